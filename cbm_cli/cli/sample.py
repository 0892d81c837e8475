"""``cbm sample``: draw samples from a machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cbm_cli.cli.common import Whole, check_file, cores, note
from cbm_cli.cli.completion import data_sets
from cbm_cli.errors import CbmError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cbm_cli.machines.files import Flat
    from cbm_cli.machines.samples import Samples


@click.command()
@click.argument("model", type=click.Path(path_type=Path), metavar="MODEL")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE.npz", help="Write the samples."
)
@click.option("--png", type=click.Path(path_type=Path), metavar="FILE.png", help="Draw the samples.")
@click.option(
    "-n", "--count", type=Whole(1, 10**9), show_default="100; of given rows one each", help="Samples."
)
@click.option(
    "--given",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Hold what its rows give; sample the rest.",
)
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
    source: str | None,
    given: Path | None,
    means: bool,
    shape: str | None,
    by_columns: bool,
    **how: Any,
) -> None:
    """Draw samples from a machine.

    Samplers are Gibbs sampling and parallel tempering. MODEL is a Boltzmann machine of any depth: an NPZ file
    in the documented form, or RUN:TRIAL, as `cbm best` prints it. Samples go to an NPZ file with the arrays
    samples, means and hidden, to a picture, or both; the same seed gives the same bytes. For a deep machine,
    samples and means are the visible layer, hidden the odd layers (1, 3, ...) side by side.

    --given completes rows: entries of 0 or 1 are held; those that are empty or ? in text, or NaN in an NPZ
    file, are sampled given them. Sample i completes row i modulo the number of rows.
    """
    _check_files([path for path in (model, source, given) if path], output, png)

    from cbm_cli.machines.files import flatten, read_machine
    from cbm_cli.machines.samples import write_samples
    from cbm_cli.report.learned import MOST, shape_of, write_tile

    machine = read_machine(model)
    if machine.kind == "auto-encoder":
        raise CbmError(f"{model}: an auto encoder has nothing to draw from; see cbm features", "unsuited")
    image = shape_of(shape, None, machine.sizes[0], by_columns)
    found = _drawn(flatten(machine, place=str(model)), source, given, **how)
    count = len(found.samples)
    if output:
        write_samples(output, found)
        note(f"wrote {output}: {count} samples")
    if png:
        write_tile(png, found.means if means else found.samples, image)
        note(f"wrote {png}" + (f": the first {MOST:,} of {count:,} samples" if count > MOST else ""))


def _drawn(
    machine: Flat,
    source: str | None,
    given: Path | None,
    *,
    sampler: str,
    count: int | None,
    **how: Any,
) -> Samples:
    """Draw samples, of the whole visible layer or of what rows leave open."""
    from cbm_cli.datasets.catalogue import load_rows
    from cbm_cli.datasets.given import read_given
    from cbm_cli.machines.given import draw_given
    from cbm_cli.machines.samples import draw, parse_sampler
    from cbm_cli.machines.threads import using_cores

    parsed, start = parse_sampler(sampler), load_rows(source, width=machine.sizes[0]) if source else None
    with using_cores(cores()):
        if given:
            return draw_given(machine, parsed, count, read_given(given), str(given), start=start, **how)
        return draw(machine, parsed, count or 100, start=start, **how)


def _check_files(inputs: Sequence[str | Path], output: Path | None, png: Path | None) -> None:
    """Raise CbmError if there is nothing to write, or if what is read would be overwritten."""
    if not output and not png:
        raise CbmError("nothing to write; name a file: -o FILE.npz, --png FILE.png, or both", "missing")
    read = [*map(Path, inputs)]
    check_file("-o", output, [".npz"], read)
    check_file("--png", png, [".png"], read)
