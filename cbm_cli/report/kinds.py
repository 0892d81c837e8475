"""The kinds of pictures, by the words of ``cbm plot``."""

from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from cbm_cli.errors import CbmError
from cbm_cli.report.chosen import Options, refuse_without_effect
from cbm_cli.report.panels import Panel
from cbm_cli.results import Results
from cbm_cli.text import STATISTICS, did_you_mean

# kind -> module and function
_KINDS = {
    "curves": "curves.curves_panels",
    "finals": "finals.finals_panels",
    "settings": "curves.settings_panels",
    "norms": "curves.curves_panels",
    "offsets": "curves.curves_panels",
    "angles": "curves.curves_panels",
    "filters": "learned.filters_panels",
    "activity": "learned.activity_panels",
    "samples": "learned.samples_panels",
    "data": "learned.data_panels",
    "critical-difference": "ranks.ranks_panels",
}
KINDS = tuple(_KINDS)
_PRESETS = ("norms", "offsets", "angles")
MACHINES = ("filters", "activity", "samples")  # kinds that show machines
TIMES = ("updates", "epochs", "seconds", "gradient-steps")  # x axes of curves


_ON_TIME = "x", "xlim", "smooth"
_WITHOUT_EFFECT = {  # on the pictures of a kind
    **dict.fromkeys(("curves", *_PRESETS), ("layer", "data")),
    "settings": ("smooth", "layer", "data"),
    "finals": (*_ON_TIME, "layer", "data"),
    "critical-difference": (*_ON_TIME, "ylim", "layer", "data"),
    **dict.fromkeys(("filters", "activity"), (*_ON_TIME, "ylim", "statistic")),
    "samples": (*_ON_TIME, "ylim", "statistic", "layer"),
    "data": (*_ON_TIME, "ylim", "statistic", "layer", "metric", "panels", "select", "choose", "by"),
}


class Part(NamedTuple):
    """One call of ``cbm plot``: a kind, what it is of, and how."""

    kind: str
    names: Sequence[str]  # experiments or RUN:TRIAL; of data: data sets; of machines also files
    options: Options


def draw(results: Results | None, part: Part) -> list[Panel]:
    """Return the panels of a part; the errors are those of its kind."""
    if part.kind not in _KINDS:
        raise CbmError(f"{part.kind}: is no kind of picture{did_you_mean(part.kind, KINDS)}", "unknown")
    module, function = _KINDS[part.kind].split(".")
    make = getattr(import_module(f"cbm_cli.report.{module}"), function)
    if part.options.x not in (None, *TIMES) and part.kind != "settings":
        raise CbmError(f"--x {part.options.x}: a setting is the x axis of cbm plot settings", "unsuited")
    refuse_without_effect(part.options, _WITHOUT_EFFECT[part.kind], part.kind)
    statistics = ("median", "mean") if part.kind in ("curves", *_PRESETS) else tuple(STATISTICS)
    if part.options.statistic not in (None, *statistics):
        told = f"--statistic {part.options.statistic}: {part.kind} shows {' or '.join(statistics)}"
        raise CbmError(told, "unsuited")
    if part.kind == "data":
        return make(part.names, part.options)
    if part.kind in MACHINES:
        from cbm_cli.report.learned import machines_of

        return make(machines_of(results, part.names, part.options), part.options)
    names = part.names or [results.only(None)] if results else part.names
    return make(results, names, part.options, **({"preset": part.kind} if part.kind in _PRESETS else {}))
