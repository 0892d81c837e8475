"""The kinds of pictures, by the words of ``cbm plot``."""

from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from cbm_cli.report.chosen import Options
from cbm_cli.report.panels import Drawing, Page, compose, joined
from cbm_cli.report.style import check_formula, check_output, write_figure
from cbm_cli.results import Results

# kind -> module and function, whether several metrics are possible, the preset of metrics
_CURVES = ("curves", "curves_drawing")
_KINDS = {
    "curves": _CURVES,
    "finals": ("finals", "finals_drawing"),
    "norms": _CURVES,
    "offsets": _CURVES,
    "angles": _CURVES,
    "filters": ("learned", "filters_drawing"),
    "activity": ("learned", "activity_drawing"),
    "samples": ("learned", "samples_drawing"),
    "data": ("learned", "data_drawing"),
    "critical-difference": ("finals", "critical_drawing"),
}
KINDS = tuple(_KINDS)
PRESETS = ("norms", "offsets", "angles")


class Part(NamedTuple):
    """One call of ``cbm plot``: a kind, what it is of, and how."""

    kind: str
    names: Sequence[str]  # experiments; of data: data sets
    options: Options


def draw(results: Results | None, part: Part) -> Drawing:
    """Return the drawing of a part; the errors are those of its kind."""
    module, function = _KINDS[part.kind]
    make = getattr(import_module(f"cbm_cli.report.{module}"), function)
    check_formula("--title", part.options.title)
    if results is None or part.kind == "data":
        return make(part.names, part.options)
    preset = {"preset": part.kind} if part.kind in PRESETS else {}
    experiments = [results.only(name) for name in part.names or (None,)]
    return make(results, experiments, part.options, **preset)


def write_picture(drawings: Iterable[Drawing], page: Page, path: Path) -> None:
    """Write drawings as one figure to a PNG, PDF or SVG file; what cannot be written is refused first."""
    check_output(path)
    check_formula("--title", page.title)
    write_figure(compose(joined([*drawings]), page), path)
