"""``cbm export``: write the machine of a trial as a file."""

from __future__ import annotations

from pathlib import Path

import click

from cbm_cli.cli.common import check_file, note


@click.command()
@click.argument("model", type=click.Path(path_type=Path), metavar="[RESULTS/]RUN:TRIAL")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE.npz",
    help="Where to write.",
)
def export(model: Path, output: Path) -> None:
    """Write the machine of a trial as an NPZ file.

    RUN is any part of a run-id that no other run in RESULTS (default: results/) has, and TRIAL a number; with
    :best behind it, the machine is the one at the best validation value instead of the final one. `cbm best`
    prints such a name. The arrays of the file are described in docs/machines.md.
    """
    from cbm_cli.results.inventory import find_machine
    from cbm_cli.results.writing import write_atomically

    check_file("-o", output, [".npz"], [model])
    name, content = find_machine(model)
    write_atomically(output, content)
    note(f"wrote {output}: the machine of {name}")
