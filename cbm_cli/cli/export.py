"""``cbm export``: a machine as a file."""

from __future__ import annotations

from pathlib import Path

import click

from cbm_cli.cli.common import Target, check_file, note
from cbm_cli.cli.options import results_and
from cbm_cli.errors import CbmError


@click.command()
@results_and("RUN:TRIAL")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE.npz",
    help="Where to write the machine.",
)
def export(target: Target, output: Path) -> None:
    """Write the machine of a trial as a file.

    RUN is a run-id, the beginning of one or of its hash, or an experiment with one run, and TRIAL a number;
    with :best behind it, the machine is the one at the best validation value instead of the final one.
    `cbm best` prints such a name. The arrays of the file are described in docs/machines.md.
    """
    from cbm_cli.results.folder import find_machine
    from cbm_cli.results.writing import write_atomically

    models = target.models()
    check_file("-o", output, [".npz"], models)
    if len(models) != 1:
        raise CbmError(f"{' '.join(target.names) or target.folder}: name one RUN:TRIAL")
    name, content = find_machine(models[0])
    write_atomically(output, content)
    note(f"wrote {output}: the machine of {name}")
