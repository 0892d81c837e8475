"""``cbm plot``: pictures of results, machines and data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from cbm_cli.choices import STATISTICS
from cbm_cli.cli import options
from cbm_cli.cli.options import Whole, command, folder_of_data, output, settings
from cbm_cli.cli.output import note
from cbm_cli.errors import CbmError

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"


def _read_limits(
    _: click.Context, option: Any, text: str | None
) -> tuple[float | None, float | None]:
    """Read LOW:HIGH, either of which may be left out."""
    match = re.fullmatch(rf"({_NUMBER})?:({_NUMBER})?", text or ":")
    if match is not None:
        low, high = (float(end) if end else None for end in match.groups())
        if low is None or high is None or low < high:
            return low, high
    raise CbmError(f"{option.opts[0]} {text}: write LOW:HIGH, such as 0:1000 or :500")


def _read_size(
    _: click.Context, __: click.Parameter, text: str | None
) -> str | tuple[float, float] | None:
    """Read a width in a journal, or WxH in inches."""
    if text is None or text in ("column", "page"):
        return text
    match = re.fullmatch(r"(\d+\.?\d*)x(\d+\.?\d*)", text)
    if match is not None:
        width, height = float(match[1]), float(match[2])
        if min(width, height) >= 1 and max(width, height) <= 50:
            return width, height
    remedy = "write column, page, or WxH in inches from 1 to 50, such as 6.5x4"
    raise CbmError(f"--size {text}: {remedy}")


def _limits(name: str, help: str) -> Any:
    return click.option(name, metavar="LOW:HIGH", callback=_read_limits, help=help)


@command
@click.option(
    "--size",
    metavar="column|page|WxH",
    callback=_read_size,
    help="Width in a journal, or inches.",
)
@click.option("--title", help='Title in place of the settings; "" for none.')
@options.select
@options.choose
@options.by
@options.data(
    "NAME|FILE|DIR",
    "Rows for a machine; for results, the folder with their data files.",
)
@click.option(
    "--metric",
    multiple=True,
    help="Column of curves or records; repeated: a panel each.",
)
@settings("--panels", "Settings, and metric, that make panels; others make lines.")
@click.option(
    "--x",
    metavar="updates|epochs|seconds|gradient-steps|SETTING",
    help=(
        "X axis; of the kind settings a numeric setting. gradient-steps: updates, "
        "after as many epochs as a layer was pre-trained."
    ),
)
@_limits("--xlim", "Ends of the x axis.")
@_limits("--ylim", "Ends of the y axis.")
@click.option(
    "--log",
    metavar="x|y|x,y",
    type=click.Choice(["x", "y", "x,y"]),
    help="Axes with a logarithmic scale.",
)
@click.option("--smooth", type=Whole(1), default=1, help="Running mean over N updates.")
@click.option(
    "--statistic",
    type=click.Choice(["median", "mean", *STATISTICS]),
    help="Of curves: median or mean; else as in tables.",
)
@options.layer
@output("FILE.png|.pdf|.svg", "The picture.", required=True)
@click.argument("words", nargs=-1, metavar="[RESULTS] KIND [EXPERIMENT]...")
def plot(
    words: tuple[str, ...],
    output: Path,
    size: Any,
    title: str | None,
    source: str | None,
    log: str | None,
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

    Each data set, each sampler and any other setting that varies has its own panel.
    RESULTS defaults to results/. In place of EXPERIMENT, RUN:TRIAL draws a trial;
    filters, activity and samples also take a machine's file. The terminal shows the
    caption.
    """
    from cbm_cli.datasets.published import data_in
    from cbm_cli.report.kinds import draw
    from cbm_cli.report.options import Options
    from cbm_cli.report.panels import compose
    from cbm_cli.results import Results
    from cbm_cli.results.folder import is_machine

    folder, kind, names = _parse(words)
    of_data = kind == "data"
    of_machines = not of_data and any(map(is_machine, names))
    needs_results = not of_data and (folder.is_dir() or not of_machines)
    with data_in(None if of_machines else folder_of_data(source)):
        results = Results(folder) if needs_results else None
        chosen = Options(data=source, log=log or (), **choices)
        panels = draw(results, kind, names, chosen)
    picture = compose(panels, size, title)
    picture.write(output)
    caption = f": {picture.caption}" if picture.caption else ""
    note(f"wrote {output}{caption}")


def _parse(words: Sequence[str]) -> tuple[Path, str, Sequence[str]]:
    """Return the results folder, the kind of picture, and the names after it."""
    from cbm_cli.report.kinds import KINDS

    places = [place for place, word in enumerate(words[:2]) if word in KINDS]
    if not places:
        kinds = "|".join(KINDS)
        raise CbmError(f"write cbm plot [RESULTS] {kinds} [EXPERIMENT]... -o FILE.png")
    place = places[0]
    if len(places) == 2 and Path(words[0]).is_dir():
        place = places[1]
    folder = words[0] if place else "results/"
    return Path(folder), words[place], words[place + 1 :]
