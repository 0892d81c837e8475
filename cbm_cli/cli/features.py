"""``cbm features``: the hidden activities of a machine given data."""

from __future__ import annotations

from pathlib import Path

from cbm_cli.cli import options
from cbm_cli.cli.options import command, output, refuse_input
from cbm_cli.cli.output import note, print_list
from cbm_cli.cli.target import Target, results_and
from cbm_cli.errors import CbmError


@command
@options.data("NAME|FILE", "Rows to give to the machine.")
@options.layer
@output(
    "FILE.npz",
    "File for the activities, with an array for each part of the data.",
    required=True,
)
@results_and("MODEL", ".npz")
def features(
    target: Target, source: str | None, layer: int | None, output: Path
) -> None:
    """Write the hidden activities of a machine given data.

    MODEL is a machine of any kind: an NPZ file, or RUN:TRIAL, as `cbm best` prints it.
    The file holds the activity of every unit of a hidden layer given every row, and is
    a data set itself. cbm prints the mean activity of each layer
    given the training part, and the share of units that are nearly always off or on.
    `cbm plot filters MODEL` draws filters, `cbm plot activity MODEL` activities.
    """
    model = target.model()
    if source is None:
        remedy = "name the rows that it is given with --data NAME or --data FILE"
        raise CbmError(f"{model}: {remedy}")
    refuse_input(output, model, Path(source))
    from cbm_cli.datasets.loading import load_source
    from cbm_cli.machines import representations
    from cbm_cli.machines.bounds import ROUNDS
    from cbm_cli.machines.files import read_machine, write_arrays

    machine = read_machine(model)
    number = representations.layer_of(machine, layer)
    data = load_source(source, machine.sizes[0], machine.names)
    activities, unsettled = {}, 0
    for part, rows in data.parts.items():
        layers, rows_left = representations.represent(machine, rows, 1 / data.levels)
        activities[part] = layers
        unsettled += rows_left
    arrays = {part: layers[number - 1] for part, layers in activities.items()}
    if len(arrays) == 1:  # a file may hold the rows of any part
        arrays = {"rows": activities["train"][number - 1]}
    write_arrays(output, arrays)
    lines = []
    for place, layer_activities in enumerate(activities["train"], 1):
        means = layer_activities.mean(axis=0, dtype=float)
        unbalanced = f"{representations.unbalanced(means):.1%}"
        lines.append((str(place), str(len(means)), f"{means.mean():.4f}", unbalanced))
    print_list(("layer", "units", "mean activity", "outside [0.05, 0.95]"), lines)
    if unsettled:
        state = f"mean field has not settled within {ROUNDS} rounds"
        note(f"warning: {state} for {unsettled:,} rows")
    note(f"wrote {output}: the activities of layer {number}")
