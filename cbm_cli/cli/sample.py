"""``cbm sample``: draw samples from a machine."""

from collections.abc import Sequence
from pathlib import Path

import click

from cbm_cli.cli.common import Whole, check_file, note
from cbm_cli.cli.completion import data_sets
from cbm_cli.errors import CbmError


@click.command()
@click.argument("model", type=click.Path(path_type=Path), metavar="MODEL")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE.npz", help="Write the samples."
)
@click.option("--png", type=click.Path(path_type=Path), metavar="FILE.png", help="Draw the samples.")
@click.option("-n", "--count", type=Whole(1, 10**9), default=100, show_default=True, help="Samples.")
@click.option(
    "--sampler", default="PT_10", show_default=True, metavar="gibbs|PT_c", help="PT_c: c temperatures."
)
@click.option(
    "--steps",
    type=Whole(1),
    default=1000,
    show_default=True,
    help="Sweeps of a chain before each of its samples.",
)
@click.option(
    "--chains",
    type=Whole(1),
    default=100,
    show_default=True,
    help="Chains, at most as many as samples; they give samples in turn.",
)
@click.option("--seed", type=Whole(0, 2**63 - 1), default=1, show_default=True)
@click.option(
    "--data",
    "source",
    shell_complete=data_sets,
    metavar="NAME|FILE",
    help="Start the chains at rows of data; default: random states.",
)
@click.option("--means", is_flag=True, help="Draw p(x = 1 | h) instead of states.")
@click.option(
    "--shape", metavar="HxW", help="Size of a picture; default: square if possible, else one line per sample."
)
@click.option(
    "--by-columns", is_flag=True, help="Fill pictures column by column, as caltech101-silhouettes is stored."
)
def sample(
    model: Path,
    output: Path | None,
    png: Path | None,
    count: int,
    sampler: str,
    source: str | None,
    means: bool,
    shape: str | None,
    by_columns: bool,
    **how: int,
) -> None:
    """Draw samples from a machine.

    Samplers are Gibbs sampling and parallel tempering. MODEL is a Boltzmann machine of any depth: an NPZ file
    in the documented form, or RUN:TRIAL, as `cbm best` prints it. Samples go to an NPZ file with the arrays
    samples, means and hidden, to a picture, or both; the same seed gives the same bytes. For a deep machine,
    samples and means are the visible layer, hidden the odd layers (1, 3, ...) side by side.
    """
    _check_files([model, *([Path(source)] if source else [])], output, png)

    from cbm_cli.datasets.catalogue import load_rows
    from cbm_cli.machines.files import flatten, read_machine
    from cbm_cli.machines.samples import draw, parse_sampler, write_samples
    from cbm_cli.report.learned import MOST, shape_of, write_tile

    machine, parsed = read_machine(model), parse_sampler(sampler)
    if machine.kind == "auto-encoder":
        message = f"{model}: an auto encoder has no distribution to draw from; see cbm features"
        raise CbmError(message, "unsuited")
    n_visible = machine.sizes[0]
    image = shape_of(shape, None, n_visible, by_columns)
    start = load_rows(source, width=n_visible) if source else None
    found = draw(flatten(machine, place=str(model)), parsed, count, start=start, **how)
    if output:
        write_samples(output, found)
        note(f"wrote {output}: {count} samples")
    if png:
        write_tile(png, found.means if means else found.samples, image)
        note(f"wrote {png}" + (f": the first {MOST:,} of {count:,} samples" if count > MOST else ""))


def _check_files(inputs: Sequence[Path], output: Path | None, png: Path | None) -> None:
    """Raise CbmError if there is nothing to write, or if what is read would be overwritten."""
    if not output and not png:
        raise CbmError("nothing to write; name a file: -o FILE.npz, --png FILE.png, or both", "missing")
    check_file("-o", output, [".npz"], inputs)
    check_file("--png", png, [".png"], inputs)
