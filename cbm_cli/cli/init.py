"""``cbm init``: write a grid to start from."""

import os
from pathlib import Path

import click

from cbm_cli.cli.common import check_file, command, note, note_activation
from cbm_cli.errors import CbmError


@click.command()
@click.option("--paper", is_flag=True, help="Write the paper's experiments instead of the starter.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default="experiments.yaml",
    show_default=True,
    metavar="FILE.yaml",
    help="File to write.",
)
def init(paper: bool, output: Path) -> None:
    """Write experiments.yaml, a commented grid to start from.

    Its experiment `quickstart` is what `cbm run` runs there.
    """
    from importlib.resources import files

    from cbm_cli.results.writing import write_atomically

    check_file("-o", output, (".yaml", ".yml"))
    if os.path.lexists(output):
        raise CbmError(f"{output}: is there already; remove it, or name another file with -o")
    grid = files("cbm_cli.grid") / ("paper.yaml" if paper else "starter.yaml")
    write_atomically(output, grid.read_bytes())
    run = command("run") if output == Path("experiments.yaml") else command("run", output)
    note(f"wrote {output}")
    shown = command("ls", output)
    note(f"Next:  {shown}   lists its experiments\n       {run:{len(shown)}}   runs quickstart")
    note_activation()
