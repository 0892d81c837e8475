"""The kinds of pictures, by the words of ``cbm plot``."""

from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from cbm_cli.errors import CbmError
from cbm_cli.report.chosen import Options, refuse_without_effect
from cbm_cli.report.panels import Panel
from cbm_cli.results import Results
from cbm_cli.text import STATISTICS, did_you_mean

TIMES = ("updates", "epochs", "seconds", "gradient-steps")  # x axes of curves
_LINES = ("x", "xlim", "ylim", "log", "smooth", "statistic")
_CURVES, _VALUES, _LEARNED = "cbm_cli.report.curves", "cbm_cli.report.values", "cbm_cli.report.learned"
# kind -> module, and options that change nothing of it
_KINDS: dict[str, tuple[str, Sequence[str]]] = {
    "curves": (_CURVES, ("layer", "data")),
    "finals": (_VALUES, ("x", "xlim", "smooth", "layer", "data")),
    "settings": (_VALUES, ("smooth", "layer", "data")),
    "filters": (_LEARNED, _LINES),
    "activity": (_LEARNED, _LINES),
    "samples": (_LEARNED, (*_LINES, "layer")),
    "data": (_LEARNED, (*_LINES, "layer", "metric", "panels", "select", "choose", "by")),
}
KINDS = tuple(_KINDS)


class Part(NamedTuple):
    """One call of ``cbm plot``: a kind, what it is of, and how."""

    kind: str
    names: Sequence[str]  # experiments or RUN:TRIAL; of data: data sets; of machines also files
    options: Options


def draw(results: Results | None, part: Part) -> list[Panel]:
    """Return the panels of a part; the errors are those of its kind."""
    kind, names, options = part
    if kind not in KINDS:
        raise CbmError(f"{kind}: is not a kind of picture{did_you_mean(kind, KINDS)}")
    if options.x not in (None, *TIMES) and kind != "settings":
        raise CbmError(f"--x {options.x}: a setting is the x axis of cbm plot settings")
    module, without_effect = _KINDS[kind]
    refuse_without_effect(options, without_effect, kind)
    statistics = ("median", "mean") if kind == "curves" else STATISTICS
    if options.statistic not in (None, *statistics):
        told = f"--statistic {options.statistic}: {kind} shows {' or '.join(statistics)}"
        raise CbmError(told)
    if module != _LEARNED and results and not names:
        names = [results.only(None)]
    return getattr(import_module(module), f"{kind}_panels")(results, names, options)
