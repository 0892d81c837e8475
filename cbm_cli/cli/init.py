"""``cbm init``: a grid to start from."""

from __future__ import annotations

import os
from pathlib import Path

import click

from cbm_cli.cli.options import command, output
from cbm_cli.cli.output import note, to_type
from cbm_cli.errors import CbmError


@command
@click.option(
    "--paper",
    is_flag=True,
    help="Write the paper's experiments instead of the starter.",
)
@output("FILE.yaml|.yml", "File to write.", default="experiments.yaml")
def init(paper: bool, output: Path) -> None:
    """Write experiments.yaml, a commented grid to start from.

    Its experiment `quickstart` is what `cbm run` runs there.
    """
    from importlib.resources import files

    from cbm_cli.results.writing import write_atomically

    if os.path.lexists(output):
        raise CbmError(
            f"{output}: exists already; remove it, or name another file with -o"
        )
    name = "paper.yaml" if paper else "starter.yaml"
    write_atomically(output, files("cbm_cli.grid").joinpath(name).read_bytes())
    note(f"wrote {output}")
    ls = to_type("ls", output)
    is_default = output == Path("experiments.yaml")
    run = to_type("run") if is_default else to_type("run", output)
    note(f"Next:  {ls}   lists its experiments")
    note(f"       {run:{len(ls)}}   runs quickstart")
