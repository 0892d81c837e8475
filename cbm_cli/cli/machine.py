"""``cbm sample``, ``features`` and ``export``: what a machine gives."""

from __future__ import annotations

from pathlib import Path

from cbm_cli.cli.options import Target, command, output, refuse_input, results_and
from cbm_cli.cli.output import note, print_list
from cbm_cli.errors import CbmError
from cbm_cli.kernels.sharing import cores
from cbm_cli.text import count as counted


@command("count", "given", "sampler", "steps", "seed")
@output("FILE.npz", "File for the samples.", required=True)
@results_and("MODEL", ".npz")
def sample(
    target: Target,
    output: Path,
    count: int | None,
    given: Path | None,
    sampler: str,
    steps: int,
    seed: int,
) -> None:
    """Draw samples from a machine.

    MODEL is a Boltzmann machine of any depth: an NPZ file (docs/machines.md), or
    RUN:TRIAL, as `cbm best` prints it. The file has the arrays samples, means and
    hidden. For a deep machine, samples and means are of the visible layer, and hidden
    has the odd layers (1, 3, ...) side by side. At most 100 chains run side by side
    from random states, and give samples in turn. `cbm plot samples MODEL` draws
    samples.

    --given completes rows: cbm keeps entries of 0 or 1, and samples entries that are
    empty or ? in text, or NaN in an NPZ file. Sample i completes row i modulo the
    number of rows.
    """
    model = target.model()
    refuse_input(output, model, given)

    from cbm_cli.datasets.formats import read_given
    from cbm_cli.machines.files import flatten, read_machine
    from cbm_cli.machines.samples import (
        CHAINS,
        draw,
        draw_given,
        parse_sampler,
        write_samples,
    )
    from cbm_cli.machines.threads import using_cores

    machine, parsed = read_machine(model), parse_sampler(sampler)
    if machine.kind == "auto-encoder":
        raise CbmError(
            f"{model}: an auto encoder has nothing to draw from; see cbm features"
        )
    flat = flatten(machine, place=str(model))
    with using_cores(cores()):
        if given:
            rows = read_given(given, machine.names, str(model))
            found = draw_given(
                flat,
                parsed,
                count,
                rows,
                str(given),
                chains=CHAINS,
                steps=steps,
                seed=seed,
            )
        else:
            found = draw(
                flat, parsed, count or 100, chains=CHAINS, steps=steps, seed=seed
            )
    write_samples(output, found, machine.names)
    note(f"wrote {output}: {counted(len(found.samples), 'sample')}")


@command("data", "layer")
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
    a data set itself (docs/machines.md). cbm prints the mean activity of each layer
    given the training part, and the share of units that are nearly always off or on.
    `cbm plot filters MODEL` draws filters, `cbm plot activity MODEL` activities.
    """
    model = target.model()
    if source is None:
        raise CbmError(
            f"{model}: name the rows that it is given with --data NAME or --data FILE"
        )
    refuse_input(output, model, Path(source))
    from cbm_cli.datasets.loading import load_source
    from cbm_cli.machines import representations
    from cbm_cli.machines.bounds import ROUNDS
    from cbm_cli.machines.files import read_machine

    machine = read_machine(model)
    place = representations.layer_of(machine, layer) - 1
    data = load_source(source, machine.sizes[0], machine.names)
    found = {
        part: representations.represent(machine, x, 1 / data.levels)
        for part, x in data.parts.items()
    }
    several = len(found) > 1  # a file may hold the rows of any part
    arrays = {
        part if several else "rows": layers[place]
        for part, (layers, _) in found.items()
    }
    representations.write_arrays(output, arrays)
    means = [layer.mean(axis=0, dtype=float) for layer in found["train"][0]]
    rows = [
        (
            str(number),
            str(len(its)),
            f"{its.mean():.4f}",
            f"{representations.unbalanced(its):.1%}",
        )
        for number, its in enumerate(means, 1)
    ]
    print_list(("layer", "units", "mean activity", "outside [0.05, 0.95]"), rows)
    if unsettled := sum(more for _, more in found.values()):
        note(
            f"warning: mean field has not settled within {ROUNDS} rounds for "
            f"{unsettled:,} rows"
        )
    note(f"wrote {output}: the activities of layer {place + 1}")


@command()
@output("FILE.npz", "Where to write the machine.", required=True)
@results_and("RUN:TRIAL", ".npz")
def export(target: Target, output: Path) -> None:
    """Write the machine of a trial as a file.

    RUN is a run-id, the beginning of one or of its hash, or an experiment with one run.
    TRIAL is a number. RUN:TRIAL:best is the machine at the best validation value
    instead of the final one. `cbm best` prints such names. docs/machines.md describes
    the arrays of the file.
    """
    from cbm_cli.results.folder import find_machine
    from cbm_cli.results.writing import write_atomically

    model = target.model()
    refuse_input(output, model)
    name, content = find_machine(model)
    write_atomically(output, content)
    note(f"wrote {output}: the machine of {name}")
