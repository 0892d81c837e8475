"""The kinds of pictures, by the words of ``cbm plot``."""

from collections.abc import Sequence

from cbm_cli.errors import CbmError
from cbm_cli.report.chosen import Options, refuse_without_effect
from cbm_cli.report.curves import curves_panels
from cbm_cli.report.learned import (
    activity_panels,
    data_panels,
    filters_panels,
    samples_panels,
)
from cbm_cli.report.panels import Panel
from cbm_cli.report.values import finals_panels, settings_panels
from cbm_cli.results import Results
from cbm_cli.results.folder import is_machine_file
from cbm_cli.statistics.table import in_order
from cbm_cli.text import STATISTICS, did_you_mean

TIMES = ("updates", "epochs", "seconds", "gradient-steps")  # x axes of curves
_LINES = ("x", "xlim", "ylim", "log", "smooth", "statistic")
# kind -> what draws it, and options that change nothing of it
_OF_RESULTS = {
    "curves": (curves_panels, ("layer", "data")),
    "finals": (finals_panels, ("x", "xlim", "smooth", "layer", "data")),
    "settings": (settings_panels, ("smooth", "layer", "data")),
}
_KINDS = _OF_RESULTS | {
    "filters": (filters_panels, _LINES),
    "activity": (activity_panels, _LINES),
    "samples": (samples_panels, (*_LINES, "layer")),
    "data": (
        data_panels,
        (*_LINES, "layer", "metric", "panels", "select", "choose", "by"),
    ),
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
    panels_of, without_effect = _KINDS[kind]
    refuse_without_effect(options, without_effect, kind)
    statistics = ("median", "mean") if kind == "curves" else STATISTICS
    if options.statistic not in (None, *statistics):
        raise CbmError(
            f"--statistic {options.statistic}: {kind} shows {' or '.join(statistics)}"
        )
    if kind in _OF_RESULTS and (files := [*filter(is_machine_file, names)]):
        raise CbmError(
            f"{files[0]}: is a machine; {kind} are of an experiment, or of a "
            "trial as "
            "RUN:TRIAL"
        )
    if kind in _OF_RESULTS and results and not names:
        names = [results.only(None)]
    panels = panels_of(results, names, options)
    keys = in_order(panel.key for panel in panels)
    return sorted(panels, key=lambda panel: keys.index(panel.key))
