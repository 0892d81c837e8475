"""``cbm export``: a machine as a file, or a study to share."""

from __future__ import annotations

from pathlib import Path

import click

from cbm_cli.cli.common import Target, check_file, note
from cbm_cli.cli.options import results_and
from cbm_cli.errors import CbmError


@click.command()
@results_and("[EXPERIMENT]...|RUN:TRIAL")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE.npz|FILE.zip",
    help="Where to write: a machine as NPZ, a study as ZIP.",
)
def export(target: Target, output: Path) -> None:
    """Write the machine of a trial as a file, or a study to share.

    RUN is any part of a run-id that no other run in RESULTS has, and TRIAL a number; with :best behind it,
    the machine is the one at the best validation value instead of the final one. `cbm best` prints such a
    name. The arrays of the file are described in docs/machines.md.

    Without RUN:TRIAL, the ZIP file holds the page of `cbm report`, a grid that runs the trials again, and
    the settings, summary and curves of each experiment, with the digests of the data.
    """
    from cbm_cli.results.inventory import find_machine
    from cbm_cli.results.writing import write_atomically

    models = target.models()
    if not models and output.suffix == ".npz":
        raise CbmError(f"-o {output}: NPZ is for a machine; name it as RUN:TRIAL, or write FILE.zip")
    check_file("-o", output, [".npz"] if models else [".zip"], models)
    if len(models) > 1:
        raise CbmError(f"{models[1]}: a file holds one machine; name one", "conflict")
    if models:
        name, content = find_machine(models[0])
        write_atomically(output, content)
        note(f"wrote {output}: the machine of {name}")
        return
    from cbm_cli.report.study import write_study

    for warning in write_study(target.results(), target.names, output):
        note(f"warning: {warning}")
    note(f"wrote {output} ({output.stat().st_size / 1e3:,.0f} kB)")
