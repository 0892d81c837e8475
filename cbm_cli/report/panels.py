"""Panels side by side with one legend and one caption: what every kind of picture becomes."""

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from cbm_cli.report.style import WIDTHS, Look, own_style
from cbm_cli.results.selection import Key

WIDEST = 4  # panels side by side
_TITLE = 124  # characters of a title in an inch, times the points of the text
_CAPTION = 150  # characters of the caption in an inch, times the points of the text


@dataclass(frozen=True)
class Panel:
    """One pair of axes, and how to fill it."""

    draw: Callable[[Axes], None]
    key: Key = ()  # values of the settings that tell panels apart
    title: tuple[str, ...] = ()  # settings; a line ends between two of them where it must
    xlabel: str = ""
    ylabel: str = ""
    ends: tuple[float, float] | None = None  # of the y axis; panels that all have the same share its numbers
    looks: Mapping[str, Look] = field(default_factory=dict)  # legend within the panel


@dataclass(frozen=True)
class Drawing:
    """Panels of one kind, with their legend and what there is to say about them."""

    panels: Sequence[Panel]
    looks: Mapping[str, Look] = field(default_factory=dict)  # legend: name -> look
    notes: Sequence[str] = ()  # sentences of the caption


class Page(NamedTuple):
    """The form of a picture."""

    size: str | tuple[float, float] | None = None  # column, page, or width and height in inches
    title: str = ""
    legend: str = "below"  # or right, none


def joined(drawings: Sequence[Drawing]) -> Drawing:
    """Return one drawing whose panels are lettered (a), (b), ..., with the looks and notes of all.

    Where a look means different lines in different drawings, each panel has its own legend.
    """
    if len(drawings) == 1:
        return drawings[0]
    panels: list[Panel] = []
    letters = []
    looks = {name: look for drawing in drawings for name, look in drawing.looks.items()}
    clear = len({str(look) for look in looks.values()}) == len(looks)
    clear &= all(looks[name] == look for drawing in drawings for name, look in drawing.looks.items())
    for drawing in drawings:
        first = len(panels)
        for panel in drawing.panels:
            first_word, *others = panel.title or ("",)
            title = (f"({chr(97 + len(panels))}) {first_word}".strip(), *others)
            own = {} if clear else drawing.looks
            panels.append(replace(panel, title=title, key=(str(len(panels)),), looks=own))
        letters.append(", ".join(f"({chr(97 + i)})" for i in range(first, len(panels))))
    notes: dict[str, list[str]] = {}
    for drawing, its in zip(drawings, letters, strict=True):
        for note in drawing.notes:
            notes.setdefault(note, []).append(its)
    said = [
        note if len(where) == len(drawings) else f"{', '.join(where)} {note}" for note, where in notes.items()
    ]
    return Drawing(panels, looks if clear else {}, said)


def compose(drawing: Drawing, page: Page) -> Figure:
    """Return the figure of a drawing: its panels in a grid, the legend and the caption."""
    points = 10.0 if page.size is None else 8.0
    with own_style(points):
        panels = _in_order(drawing.panels)
        across = _across([panel.key for panel in panels], page.size)
        down = -(-len(panels) // across)
        fixed = page.size if isinstance(page.size, tuple) else None
        width = fixed[0] if fixed else WIDTHS.get(str(page.size)) or max(0.8 + 2.9 * across, 5.0)
        handles = _handles(drawing.looks)
        beside = handles if page.legend == "right" else []
        legend = _legend(handles if page.legend == "below" else [], drawing.notes, width, points)
        needed = _width_of(legend, width)
        width = width if page.size else max(width, needed)
        entries = -(-len(legend["handles"]) // legend["ncols"])
        texts = 0.2 * entries + 0.15 * legend["title"].count("\n") + 0.25 * bool(page.title)
        rows = min(2.5, 0.82 * width / across) if page.size else 2.5
        rows += 0.18 * max(len(panel.looks) for panel in panels)
        height = fixed[1] if fixed else 0.9 + texts * points / 10 + rows * down
        figure = Figure(figsize=(width, height), layout="constrained")
        same = len({panel.ends for panel in panels}) == 1 and panels[0].ends is not None
        grid: Any = figure.subplots(down, across, squeeze=False, sharey=same).ravel()
        for axes, panel in zip(grid, panels, strict=False):
            panel.draw(axes)
            if panel.looks and page.legend != "none":
                place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.27)}
                axes.legend(handles=_handles(panel.looks), **place, frameon=False, fontsize="x-small")
            axes.set_title(_broken(panel.title, int(_TITLE / points * width / across)))
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        _name_axes(grid, panels, across)
        if page.title:
            figure.suptitle(page.title)
        if beside:
            figure.legend(handles=beside, loc="outside right center", frameon=False)
        if legend["handles"] or legend["title"]:
            _add_legend(figure, legend)
        _fit_texts(figure, across)
    return figure


def _fit_texts(figure: Figure, across: int) -> None:
    """Break names and titles that are longer than their axes, or make them smaller."""
    for _ in range(3):  # a text of more lines takes room from others
        figure.draw_without_rendering()
        wide, changed = figure.bbox.width / across, False
        for axes in filter(Axes.get_visible, figure.axes):
            box = axes.get_window_extent()
            changed |= _fit(axes.title, wide) | _fit(axes.xaxis.label, min(wide, 1.1 * box.width))
            changed |= _fit(axes.yaxis.label, box.height, upright=True)
            changed |= _thin(axes.xaxis, "width", box.width) | _thin(axes.yaxis, "height", box.height)
        if not changed:
            return


def _fit(text: Text, room: float, upright: bool = False) -> bool:
    """Fit a text into so many pixels; return whether it was too long."""

    def length() -> float:
        box = text.get_window_extent()
        return box.height if upright else box.width

    if not text.get_text() or length() <= room:
        return False
    words = text.get_text()
    if words.count("\n") == 0:
        text.set_text(textwrap.fill(words, max(int(len(words) * room / length()), 8), break_long_words=False))
    if length() > room:
        text.set_fontsize(float(text.get_fontsize()) * room / length())
    return True


def _thin(axis: Axis, side: str, length: float) -> bool:
    """Have fewer numbers along an axis of so many pixels where they run into each other."""
    labels, locator = [label for label in axis.get_ticklabels() if label.get_text()], axis.get_major_locator()
    needed = sum(getattr(label.get_window_extent(), side) for label in labels)
    if needed < 0.8 * length or not isinstance(locator, MaxNLocator):
        return False
    locator.set_params(nbins=max(1, len(labels) // 2))
    return True


def _name_axes(grid: Sequence[Axes], panels: Sequence[Panel], across: int) -> None:
    """Name the axes: y once in a row where all panels have the same name, x only below a column."""
    for i, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
        below = panels[i + across].xlabel if i + across < len(panels) else None
        if panel.xlabel != below:
            axes.set_xlabel(panel.xlabel)
    once = len({panel.ylabel for panel in panels}) == 1
    for i, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
        axes.set_ylabel("" if once and i % across else panel.ylabel)


def _in_order(panels: Sequence[Panel]) -> list[Panel]:
    """Sort panels by where each value of their keys first appeared, the first setting slowest."""
    values = zip(*(panel.key for panel in panels), strict=True)
    places = [{v: i for i, v in enumerate(dict.fromkeys(column))} for column in values]
    return sorted(panels, key=lambda panel: [place[v] for place, v in zip(places, panel.key, strict=True)])


def _across(keys: Sequence[Key], size: object) -> int:
    """Return the panels side by side: the first setting's values go down, or the last one's across."""
    widest = min(WIDEST, {"column": 2, "page": 3}.get(size, WIDEST) if isinstance(size, str) else WIDEST)
    down, last = len({key[:1] for key in keys}), len({key[-1:] for key in keys})
    for across in (len(keys) // down, last):
        if 1 < across <= widest and len(keys) % across == 0:
            return across
    if size == "column" and len(keys) == 3:
        return 1
    return len(keys) if len(keys) <= widest else 2 if len(keys) == 4 or widest == 2 else 3


def _broken(parts: Iterable[str], room: int) -> str:
    """Join settings by commas, in lines of about so many characters."""
    lines: list[str] = []
    for part in filter(None, parts):
        if lines and len(lines[-1]) + 2 + len(part) <= room:
            lines[-1] += f", {part}"
        else:
            lines.append(part)
    return ",\n".join(lines)


def _handles(looks: Mapping[str, Look]) -> list[Line2D]:
    return [Line2D([], [], **look, label=name) for name, look in looks.items() if name]


def _legend(handles: Sequence[Line2D], notes: Sequence[str], width: float, points: float) -> dict[str, Any]:
    """Return a legend of as many columns as fit into the width; its title is the caption."""
    lines, room = "; ".join(notes).splitlines(), int(_CAPTION / points * width)
    title = "\n".join(part for line in lines for part in textwrap.wrap(line, room))
    legend = {"handles": handles, "title": title}
    for ncols in range(min(len(handles), 6), 1, -1):
        if _width_of(legend | {"ncols": ncols}, width) <= width:
            return legend | {"ncols": ncols}
    return legend | {"ncols": 1}


def _width_of(legend: Mapping[str, Any], width: float) -> float:
    """Return the inches that a legend takes."""
    figure = Figure(figsize=(width, 3))
    box = _add_legend(figure, legend)
    figure.draw_without_rendering()
    return box.get_window_extent().width / figure.dpi + 0.1


def _add_legend(figure: Figure, legend: Mapping[str, Any]) -> Legend:
    place = "outside lower center" if figure.axes else "lower center"
    how = {"loc": place, "frameon": False, "handlelength": 2.8, "title_fontsize": "small"}
    box = figure.legend(**legend, **how)
    box.get_title().set(color="#555555", multialignment="center")
    return box
