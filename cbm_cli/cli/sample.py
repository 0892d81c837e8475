"""``cbm sample``: draw samples from a machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cbm_cli.cli import options
from cbm_cli.cli.options import PATH, Whole, command, output, refuse_input
from cbm_cli.cli.output import note
from cbm_cli.cli.target import Target, results_and
from cbm_cli.errors import CbmError
from cbm_cli.kernels.sharing import cores
from cbm_cli.text import count as counted


@command
@click.option(
    "-n",
    "--count",
    type=Whole(1, 10**9),
    help="Samples; default: 100, or one for each given row.",
)
@click.option(
    "--given",
    "given_path",
    metavar="FILE",
    type=PATH,
    help="Rows to complete: gaps are sampled.",
)
@click.option(
    "--sampler",
    metavar="gibbs|PT_c",
    default="PT_10",
    help="PT_c: c temperatures.",
)
@click.option(
    "--steps",
    type=Whole(1),
    default=1000,
    help="Sweeps of a chain before each of its samples.",
)
@options.seed
@output("FILE.npz", "File for the samples.", required=True)
@results_and("MODEL", ".npz")
def sample(
    target: Target,
    output: Path,
    count: int | None,
    given_path: Path | None,
    sampler: str,
    steps: int,
    seed: int,
) -> None:
    """Draw samples from a machine.

    MODEL is a Boltzmann machine of any depth: an NPZ file as `cbm export --help`
    describes it, or RUN:TRIAL, as `cbm best` prints it. The file has the arrays
    samples, means and hidden. For a deep machine, samples and means are of the visible
    layer, and hidden has the odd layers (1, 3, ...) side by side. At most 100 chains
    run side by side from random states, and give samples in turn. `cbm plot samples
    MODEL` draws samples.

    --given completes rows: cbm keeps entries of 0 or 1, and samples entries that are
    empty or ? in text, or NaN in an NPZ file. Sample i completes row i modulo the
    number of rows.
    """
    model = target.model()
    refuse_input(output, model, given_path)

    from cbm_cli.datasets.formats import read_given
    from cbm_cli.kernels.sharing import using_cores
    from cbm_cli.machines.files import read_machine
    from cbm_cli.machines.models import flatten
    from cbm_cli.machines.samples import (
        CHAINS,
        draw,
        draw_given,
        parse_sampler,
        write_samples,
    )

    machine = read_machine(model)
    parsed = parse_sampler(sampler)
    if machine.kind == "auto-encoder":
        remedy = "an auto encoder has nothing to draw from; see cbm features"
        raise CbmError(f"{model}: {remedy}")
    flat = flatten(machine, place=str(model))
    chains: Any = {"chains": CHAINS, "steps": steps, "seed": seed}
    with using_cores(cores()):
        if given_path is None:
            samples = draw(flat, parsed, count or 100, **chains)
        else:
            rows = read_given(given_path, machine.names)
            place = str(given_path)
            samples = draw_given(flat, parsed, count, rows, place, **chains)
    write_samples(output, samples, machine.names)
    note(f"wrote {output}: {counted(len(samples.samples), 'sample')}")
