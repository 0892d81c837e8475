"""``cbm features``: how a machine represents data."""

from __future__ import annotations

from pathlib import Path

import click

from cbm_cli.cli.common import Whole, check_file, note, print_list

_HEADINGS = ("layer", "units", "mean activity", "outside [0.05, 0.95]")


@click.command()
@click.argument("model", type=click.Path(path_type=Path), metavar="MODEL")
@click.option(
    "--data",
    "source",
    required=True,
    metavar="NAME|FILE",
    help="Rows: a data set's name, or a file.",
)
@click.option("--layer", type=Whole(1), help="Hidden layer, from 1; default: the last.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE.npz",
    help="File for the activities, with an array for each part of the data.",
)
def features(model: Path, source: str, layer: int | None, output: Path) -> None:
    """Write the hidden activities of a machine given data.

    MODEL is a machine of any kind: an NPZ file, or RUN:TRIAL, as `cbm best` prints it. The file holds the
    activity of every unit of a hidden layer given every row, and is a data set itself (docs/machines.md). The
    list printed has the mean activity of each layer given the training part, and the share of its units that
    are nearly always off or on. `cbm plot filters MODEL` draws filters, `cbm plot activity MODEL` activities.
    """
    check_file("-o", output, [".npz"], [model, Path(source)])
    from cbm_cli.datasets.loading import load_source
    from cbm_cli.machines.bounds import ROUNDS
    from cbm_cli.machines.files import read_machine
    from cbm_cli.machines.representations import (
        features_of,
        layer_of,
        mean_activity,
        unbalanced,
        write_arrays,
    )

    machine = read_machine(model)
    place = layer_of(machine, layer) - 1
    found = features_of(machine, load_source(source, machine.sizes[0], machine.names))
    several = len(found.parts) > 1  # a file may hold the rows of any part
    write_arrays(output, {part if several else "rows": its[place] for part, its in found.parts.items()})
    rows = []
    for number, means in enumerate(mean_activity(found.parts["train"]), 1):
        rows.append([str(number), str(len(means)), f"{means.mean():.4f}", f"{unbalanced(means):.1%}"])
    print_list(_HEADINGS, rows)
    if found.unsettled:
        note(f"warning: mean field has not settled within {ROUNDS} rounds for {found.unsettled:,} rows")
    note(f"wrote {output}: the activities of layer {place + 1}")
