"""``cbm plot``: pictures of results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cbm_cli.cli.options import command, folder_of_data, output
from cbm_cli.cli.output import note
from cbm_cli.errors import CbmError


@command(
    *("size", "title", "select", "choose", "by", "data", "metrics", "panels", "x", "xlim", "ylim", "log"),
    *("smooth", "average", "layer"),
)
@output("FILE.png|.pdf|.svg", "The picture.", required=True)
@click.argument("words", nargs=-1, metavar="[RESULTS] KIND [EXPERIMENT]...")
def plot(
    words: tuple[str, ...], output: Path, size: Any, title: str | None, source: str | None, **choices: Any
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
    a machine's file. The terminal shows the caption.
    """
    from cbm_cli.datasets.published import data_in
    from cbm_cli.report.chosen import Options
    from cbm_cli.report.kinds import KINDS, draw
    from cbm_cli.report.panels import compose
    from cbm_cli.results import Results
    from cbm_cli.results.folder import is_machine

    kinds = [place for place, word in enumerate(words[:2]) if word in KINDS]
    if not kinds:
        raise CbmError(f"write cbm plot [RESULTS] {'|'.join(KINDS)} [EXPERIMENT]... -o FILE.png")
    place = kinds[-1] if len(kinds) == 2 and Path(words[0]).is_dir() else kinds[0]
    folder, kind, names = Path(words[0] if place else "results/"), words[place], words[place + 1 :]
    machines = kind != "data" and any(map(is_machine, names))
    is_needed = kind != "data" and (folder.is_dir() or not machines)
    with data_in(None if machines else folder_of_data(source)):
        results = Results(folder) if is_needed else None
        panels = draw(results, kind, names, Options(data=source, log=choices.pop("log") or (), **choices))
    picture = compose(panels, size, title)
    picture.write(output)
    note(f"wrote {output}{picture.caption and f': {picture.caption}'}")
