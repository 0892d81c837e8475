"""``cbm plot``: pictures of results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cbm_cli.cli.common import PICTURES, Whole, check_file, note
from cbm_cli.cli.options import choose_options, folder_of_data, names_or_none
from cbm_cli.errors import CbmError
from cbm_cli.text import STATISTICS

if TYPE_CHECKING:
    from cbm_cli.report.kinds import Part

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_Value = click.Parameter


def _limits(_: click.Context, option: _Value, text: str | None) -> tuple[float | None, float | None]:
    """Read LOW:HIGH, either of which may be left out."""
    match = re.fullmatch(rf"({_NUMBER})?:({_NUMBER})?", text or ":")
    low, high = (float(end) if end else None for end in match.groups()) if match else (1.0, 0.0)
    if low is not None and high is not None and low >= high:
        raise CbmError(f"--{option.name} {text}: write LOW:HIGH, such as 0:1000 or :500")
    return low, high


def _size(_: click.Context, __: _Value, text: str | None) -> str | tuple[float, float] | None:
    if text in (None, "column", "page"):
        return text
    match = re.fullmatch(r"(\d+\.?\d*)x(\d+\.?\d*)", text)
    size = (float(match[1]), float(match[2])) if match else (0.0, 0.0)
    if not all(1 <= side <= 50 for side in size):
        raise CbmError(f"--size {text}: write column, page, or WxH in inches from 1 to 50, such as 6.5x4")
    return size


def _axes(_: click.Context, __: _Value, text: str | None) -> list[str]:
    axes = text.split(",") if text else []
    if not {*axes} <= {"x", "y"}:
        raise CbmError(f"--log {text}: write x, y or x,y")
    return axes


@click.command()
@click.argument("words", nargs=-1, metavar="[RESULTS] KIND [EXPERIMENT]...")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File: .png, .pdf or .svg.")
@click.option(
    "--size",
    metavar="column|page|WxH",
    callback=_size,
    help="Width of one column or of the page of a journal, or width and height in inches.",
)
@click.option("--title", metavar="TEXT", help="Title in place of the settings; an empty one: none.")
@choose_options
@click.option(
    "--data",
    metavar="DIR|NAME|FILE",
    help="Folder in which data sets are looked for; of activity FILE.npz: its data set.",
)
@click.option(
    "--metric",
    multiple=True,
    help="Column of curves or records, such as weight_norm; default: the table's; repeated: a panel each.",
)
@click.option(
    "--panels",
    metavar="SETTINGS|none",
    callback=names_or_none,
    help="Settings that make the panels, and metric; whatever else varies makes lines.",
)
@click.option(
    "--x",
    metavar="updates|epochs|seconds|gradient-steps|SETTING",
    help="The x axis; default: epochs where the grid says epochs, else updates; of settings: a numeric one.",
)
@click.option("--xlim", metavar="LOW:HIGH", callback=_limits, help="Ends of the x axis.")
@click.option("--ylim", metavar="LOW:HIGH", callback=_limits, help="Ends of the y axis.")
@click.option("--log", metavar="x|y|x,y", callback=_axes, help="Axes with a logarithmic scale.")
@click.option("--smooth", type=Whole(1), default=1, metavar="N", help="Running mean over N updates.")
@click.option(
    "--statistic",
    type=click.Choice(["median", "mean", *STATISTICS]),
    help="Of curves: median (default) with quartiles, or mean with standard deviation; else the value of a "
    "trial, by default the table's.",
)
@click.option("--layer", type=Whole(1), help="Hidden layer of filters and activity.")
def plot(
    words: tuple[str, ...],
    output: Path | None,
    size: str | tuple[float, float] | None,
    title: str | None,
    data: str | None,
    **choices: Any,
) -> None:
    """Draw a picture of results: PNG, PDF or SVG.

    \b
    KIND is one of:
      curves               learning curves or records, with a band over trials
      finals               best and final value of each trial
      settings             the value of the table against a numeric setting
      filters activity samples   what machines have learned
      data                 rows of data sets; name them after KIND

    Each data set, each sampler and any other setting that varies has its own panel. RESULTS defaults to
    results/. In place of EXPERIMENT, RUN:TRIAL draws a trial; filters, activity and samples also take
    FILE.npz. The caption goes to the terminal.
    """
    from cbm_cli.datasets.published import data_in
    from cbm_cli.report.kinds import draw
    from cbm_cli.report.panels import Page, compose
    from cbm_cli.results import Results

    folder, part = read_part(words, choices | {"data": data})
    if output is None:
        raise CbmError("-o: name the file to write, FILE.png, .pdf or .svg")
    check_file("-o", output, PICTURES)
    named = part.kind != "data" and any(":" in name or name.endswith(".npz") for name in part.names)
    results = None
    if part.kind != "data" and not (named and not Path(folder).is_dir()):
        results = Results(Path(folder))
    with data_in(None if named else folder_of_data(data)):
        panels = draw(results, part)
    picture = compose(panels, Page(size, title))
    picture.write(output)
    note(f"wrote {output}{picture.caption and f': {picture.caption}'}")


def read_part(words: tuple[str, ...], choices: dict[str, Any]) -> tuple[str, Part]:
    """Return the results folder and what is to be drawn; the kind of picture stands between them."""
    from cbm_cli.report.chosen import Options
    from cbm_cli.report.kinds import KINDS, Part

    kinds = [place for place, word in enumerate(words[:2]) if word in KINDS]
    if not kinds:
        raise CbmError(f"write cbm plot [RESULTS] {'|'.join(KINDS)} [EXPERIMENT]... -o FILE.png")
    place = kinds[-1] if len(kinds) == 2 and Path(words[0]).is_dir() else kinds[0]
    return (words[0] if place else "results/"), Part(words[place], words[place + 1 :], Options(**choices))
