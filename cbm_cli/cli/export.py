"""``cbm export``: the machine of a trial as a file."""

from __future__ import annotations

from pathlib import Path

from cbm_cli.cli.options import command, output, refuse_input
from cbm_cli.cli.output import note
from cbm_cli.cli.target import Target, results_and


@command
@output("FILE.npz", "Where to write the machine.", required=True)
@results_and("RUN:TRIAL", ".npz")
def export(target: Target, output: Path) -> None:
    """Write the machine of a trial as a file.

    RUN is a run-id, the beginning of one or of its hash, or an experiment with one run.
    TRIAL is a number. RUN:TRIAL:best is the machine at the best validation value
    instead of the final one. `cbm best` prints such names.

    \b
    The file is an NPZ file. Layer 0 is visible; an rbm has the layers 0 and 1.
      kind         rbm (default), dbm or auto-encoder
      weights_0    weights between layers 0 and 1, (n_0, n_1); weights_1, ...
      biases_0     biases of layer 0; biases_1, ... They belong to the
                   centered energy, in which offsets are subtracted.
      offsets_0    offsets of layer 0; offsets_1, ...; default: zero
      names        names of the visible units; default: none
    """
    from cbm_cli.results.folder import find_machine
    from cbm_cli.results.writing import write_atomically

    model = target.model()
    refuse_input(output, model)
    name, content = find_machine(model)
    write_atomically(output, content)
    note(f"wrote {output}: the machine of {name}")
