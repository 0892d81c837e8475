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
      weights_l    weights between layers l and l + 1, (n_l, n_l+1)
      biases_l     biases of layer l, of the energy with offsets subtracted
      offsets_l    offsets of layer l; default: zero
      names        names of the visible units; default: none
    """
    from cbm_cli.results.folder import find_machine
    from cbm_cli.results.writing import write_atomically

    model = target.model()
    refuse_input(output, model)
    name, content = find_machine(model)
    write_atomically(output, content)
    note(f"wrote {output}: the machine of {name}")
