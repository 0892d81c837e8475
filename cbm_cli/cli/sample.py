"""``cbm sample``: draw samples from a machine."""

from __future__ import annotations

from pathlib import Path

import click

from cbm_cli.cli.common import Whole, check_file, note
from cbm_cli.cores import cores
from cbm_cli.errors import CbmError


@click.command()
@click.argument("model", type=click.Path(path_type=Path), metavar="MODEL")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE.npz",
    help="File for the samples.",
)
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
@click.option("--seed", type=Whole(0, 2**63 - 1), default=1, show_default=True, help="Same seed, same bytes.")
def sample(
    model: Path, output: Path, count: int | None, given: Path | None, sampler: str, steps: int, seed: int
) -> None:
    """Draw samples from a machine.

    MODEL is a Boltzmann machine of any depth: an NPZ file in the documented form, or RUN:TRIAL, as `cbm best`
    prints it. The file has the arrays samples, means and hidden. For a deep machine, samples and means are
    the visible layer, hidden the odd layers (1, 3, ...) side by side. At most 100 chains run side by side
    from random states, and give samples in turn. `cbm plot samples MODEL` draws samples.

    --given completes rows: entries of 0 or 1 are held; those that are empty or ? in text, or NaN in an NPZ
    file, are sampled given them. Sample i completes row i modulo the number of rows.
    """
    check_file("-o", output, [".npz"], [model, *filter(None, [given])])

    from cbm_cli.datasets.files import read_given
    from cbm_cli.machines.files import flatten, read_machine
    from cbm_cli.machines.samples import CHAINS, draw, draw_given, parse_sampler, write_samples
    from cbm_cli.machines.threads import using_cores

    machine, parsed = read_machine(model), parse_sampler(sampler)
    if machine.kind == "auto-encoder":
        raise CbmError(f"{model}: an auto encoder has nothing to draw from; see cbm features")
    flat = flatten(machine, place=str(model))
    with using_cores(cores()):
        if given:
            rows = read_given(given, machine.names, str(model))
            found = draw_given(flat, parsed, count, rows, str(given), chains=CHAINS, steps=steps, seed=seed)
        else:
            found = draw(flat, parsed, count or 100, chains=CHAINS, steps=steps, seed=seed)
    write_samples(output, found, machine.names)
    note(f"wrote {output}: {len(found.samples)} samples")
