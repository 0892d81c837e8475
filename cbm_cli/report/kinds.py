"""The kinds of pictures, by the words of ``cbm plot``."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from cbm_cli.choices import STATISTICS
from cbm_cli.errors import CbmError
from cbm_cli.report.curves import curves_panels
from cbm_cli.report.finals import finals_panels
from cbm_cli.report.learned import (
    activity_panels,
    data_panels,
    filters_panels,
    samples_panels,
)
from cbm_cli.report.options import Options, refuse_without_effect
from cbm_cli.report.panels import Panel
from cbm_cli.report.settings import settings_panels
from cbm_cli.results import Results
from cbm_cli.results.folder import is_machine_file
from cbm_cli.statistics.table import in_order
from cbm_cli.text import did_you_mean

TIMES = ("updates", "epochs", "seconds", "gradient-steps")  # x axes of curves
_OF_LINES = ("x", "xlim", "ylim", "log", "smooth", "statistic")
_OF_CELLS = ("metric", "panels", "select", "choose", "by")


class Kind(NamedTuple):
    """The function that draws a kind of picture, and options without effect on it."""

    panels: Callable[[Results | None, Sequence[str], Options], list[Panel]]
    without_effect: Sequence[str]
    is_of_results: bool = False  # and not of machines


_KINDS = {
    "curves": Kind(curves_panels, ("layer", "data"), is_of_results=True),
    "finals": Kind(
        finals_panels, ("x", "xlim", "smooth", "layer", "data"), is_of_results=True
    ),
    "settings": Kind(settings_panels, ("smooth", "layer", "data"), is_of_results=True),
    "filters": Kind(filters_panels, _OF_LINES),
    "activity": Kind(activity_panels, _OF_LINES),
    "samples": Kind(samples_panels, (*_OF_LINES, "layer")),
    "data": Kind(data_panels, (*_OF_LINES, "layer", *_OF_CELLS)),
}
KINDS = tuple(_KINDS)


def draw(
    results: Results | None, kind: str, names: Sequence[str], options: Options
) -> list[Panel]:
    """Return the panels of one call of ``cbm plot``, in the order of their settings in
    the grid.

    ``names`` are experiments or RUN:TRIAL; of machines also files; of the kind ``data``
    they are data sets. The errors are those of the kind.
    """
    if kind not in KINDS:
        raise CbmError(f"{kind}: is not a kind of picture{did_you_mean(kind, KINDS)}")
    if options.x not in (None, *TIMES) and kind != "settings":
        raise CbmError(f"--x {options.x}: a setting is the x axis of cbm plot settings")
    refuse_without_effect(options, _KINDS[kind].without_effect, kind)
    statistics = ("median", "mean") if kind == "curves" else STATISTICS
    if options.statistic not in (None, *statistics):
        raise CbmError(
            f"--statistic {options.statistic}: {kind} shows {' or '.join(statistics)}"
        )
    if _KINDS[kind].is_of_results:
        for name in names:
            if is_machine_file(name):
                raise CbmError(
                    f"{name}: is a machine; {kind} are of an experiment, or of a trial "
                    "as RUN:TRIAL"
                )
        if results and not names:
            names = [results.only(None)]
    panels = _KINDS[kind].panels(results, names, options)
    keys = in_order(panel.key for panel in panels)
    return sorted(panels, key=lambda panel: keys.index(panel.key))
