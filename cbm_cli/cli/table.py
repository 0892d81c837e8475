"""``cbm table``, ``plot`` and ``report``: significance tables, pictures, and one page
of everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cbm_cli.cli.options import Target, command, folder_of_data, output, results_and
from cbm_cli.cli.output import note
from cbm_cli.errors import CbmError

if TYPE_CHECKING:
    from cbm_cli.results import Results
    from cbm_cli.statistics import ResultsTable

_OF_CELLS = ("select", "choose", "by", "metric", "statistic")


@command("format", *_OF_CELLS, "rows", "columns", "test", "alpha", "correction")
@results_and("[EXPERIMENT]...")
def table(target: Target, format_: str, **choices: Any) -> None:
    """Print a table of means with significance marks.

    A cell shows mean ± standard deviation (mean of the final values) of the
    log-likelihood over trials, at the best validation value or the maximum. For the
    cost of auto encoders, the epoch is in parentheses.

    Bold: best of the row, or not significantly different from the best (Wilcoxon test).
    Underlined: best of a row with too few trials to claim significance.

    --statistic: the value at the best validation value (best-valid), the best over
    training (max), the last one (final), or the one where the mean over trials is best
    (max-of-mean).
    """
    for one in tables(target.results(), target.names, **choices):
        click.echo(one.sheet().render(format_), nl=False)


def tables(
    results: Results, experiments: Sequence[str], **choices: Any
) -> Iterator[ResultsTable]:
    """Yield the tables of experiments, by the options of ``cbm table``."""
    from cbm_cli.results.selection import read_cells
    from cbm_cli.statistics import build_table

    which = {name: choices.pop(name) for name in _OF_CELLS if name in choices}
    given = ((axis, choices.pop(axis, None)) for axis in ("rows", "columns", "groups"))
    axes = {axis: names for axis, names in given if names is not None}
    with results.readable(experiments) as stores:
        for cells in read_cells(stores, **which):
            yield build_table(cells, axes=axes, **choices)


@command(
    *(
        "size",
        "title",
        "select",
        "choose",
        "by",
        "data",
        "metrics",
        "panels",
        "x",
        "xlim",
        "ylim",
        "log",
    ),
    *("smooth", "average", "layer"),
)
@output("FILE.png|.pdf|.svg", "The picture.", required=True)
@click.argument("words", nargs=-1, metavar="[RESULTS] KIND [EXPERIMENT]...")
def plot(
    words: tuple[str, ...],
    output: Path,
    size: Any,
    title: str | None,
    source: str | None,
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
    from cbm_cli.report.chosen import Options
    from cbm_cli.report.kinds import KINDS, draw
    from cbm_cli.report.panels import compose
    from cbm_cli.results import Results
    from cbm_cli.results.folder import is_machine

    kinds = [place for place, word in enumerate(words[:2]) if word in KINDS]
    if not kinds:
        raise CbmError(
            f"write cbm plot [RESULTS] {'|'.join(KINDS)} [EXPERIMENT]... -o FILE.png"
        )
    place = kinds[-1] if len(kinds) == 2 and Path(words[0]).is_dir() else kinds[0]
    folder, kind, names = (
        Path(words[0] if place else "results/"),
        words[place],
        words[place + 1 :],
    )
    machines = kind != "data" and any(map(is_machine, names))
    is_needed = kind != "data" and (folder.is_dir() or not machines)
    with data_in(None if machines else folder_of_data(source)):
        results = Results(folder) if is_needed else None
        panels = draw(
            results,
            kind,
            names,
            Options(data=source, log=choices.pop("log") or (), **choices),
        )
    picture = compose(panels, size, title)
    picture.write(output)
    note(f"wrote {output}{picture.caption and f': {picture.caption}'}")


@command()
@output(
    "FILE.html|.htm",
    "The HTML file; it needs no other file and no network.",
    default="report.html",
)
@results_and("[EXPERIMENT]...")
def report(target: Target, output: Path) -> None:
    """Write one HTML page of results.

    It shows tables, which a click on a head sorts, curves, settings, versions,
    unfinished trials, and why trials failed.
    """
    from cbm_cli.report.page import write_report

    results = target.results()
    with results.readable(target.names) as stores:
        write_report(results, stores, output)
        note(f"wrote {output} ({output.stat().st_size / 1e3:,.0f} kB)")
