"""Panels side by side with one legend: what every kind of picture becomes, and its
file.
"""

import io
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_lowercase
from typing import Any, NamedTuple

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

from cbm_cli.errors import CbmError
from cbm_cli.report.style import BOUND, Look, own_style, plain
from cbm_cli.results.columns import Key
from cbm_cli.results.writing import write_atomically

Size = str | tuple[float, float] | None  # column, page, or width and height in inches

# Inches: one column, and both columns, of a journal
WIDTHS = {"column": 3.4, "page": 7.0}
_WIDEST = {"column": 2, "page": 3}  # panels side by side; of other sizes four
_POINTS_ON_SCREEN, _POINTS_IN_PRINT = 10.0, 8.0  # of the font
_LETTERS_AN_INCH = 160  # divided by the points of the font, about
_DPI = 300  # as journals ask for
# Inches
_HIGHEST_PANEL = 2.6
_TITLE, _XLABEL, _LEGEND_LINE = 0.25, 0.15, 0.17
_LEGEND_LEADING = 1.75  # distance of the lines of a legend, by the size of the font
_LEGEND_COLUMNS = 6  # at most
# Metadata by suffix, so that two pictures of the same results have the same bytes.
_METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".svg": {"Date": None},
}


@dataclass(frozen=True)
class Panel:
    """One pair of axes, how to fill it, and what there is to say about it."""

    draw: Callable[[Axes], None]
    key: Key = ()  # values of the settings that tell panels apart
    title: str = ""
    xlabel: str = ""
    ylabel: str = ""
    scale: Key | None = None  # of the y axis: panels that are compared have the same
    looks: Mapping[str, Look] = field(default_factory=dict)  # legend: name -> look
    notes: Sequence[str] = ()  # sentences of the caption
    aspect: float = 0.82  # height by width


class Picture(NamedTuple):
    """A figure, and its caption, which is not in it."""

    figure: Figure
    caption: str

    def write(self, path: str | Path) -> None:
        """Write the figure as PNG, PDF or SVG, by the suffix; CbmError if the file
        cannot be written.

        PNG and SVG have the caption as their description.
        """
        path = Path(path)
        suffix = path.suffix.lower()
        if suffix not in _METADATA:
            raise CbmError(f"{path}: the suffix must be one of {', '.join(_METADATA)}")
        write_atomically(path, self.content(suffix))

    def content(self, suffix: str = ".png", **style: Any) -> bytes:
        """Return the bytes of a file, with some of Matplotlib's settings in place of
        cbm's.
        """
        metadata = dict(_METADATA[suffix])
        if suffix != ".pdf":
            metadata["Description"] = self.caption
        stream = io.BytesIO()
        with own_style(**style):
            self.figure.savefig(stream, format=suffix[1:], dpi=_DPI, metadata=metadata)
        return stream.getvalue()

    def _repr_png_(self) -> bytes:
        return self.content()


def compose(
    panels: Sequence[Panel], size: Size = None, title: str | None = None
) -> Picture:
    """Return the picture of some panels: lettered, in a grid, with a legend.

    The title is that of the only panel, or is above several; with an empty one no
    panel has a title.
    """
    looks = _common_looks(panels)
    points = _POINTS_ON_SCREEN if size is None else _POINTS_IN_PRINT
    with own_style(points):
        across, figsize = _layout(panels, size, looks)
        down = math.ceil(len(panels) / across)
        figure = Figure(figsize=figsize, layout="constrained")
        legend_height = 0.0  # of lines behind the first
        if looks:
            lines = _add_legend(figure, looks)
            legend_height = (lines - 1) * _LEGEND_LEADING * points / 72
            if not isinstance(size, tuple):  # a long legend makes no panel flat
                more = max(lines - _legend_lines(looks), 0)
                height = figsize[1] + more * _LEGEND_LEADING * points / 72
                figure.set_figheight(height)
        width = figure.get_figwidth() / across
        height = (figure.get_figheight() - legend_height) / down
        grid: Any = figure.subplots(down, across, squeeze=False).ravel()
        for place, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
            panel.draw(axes)
            heading = panel.title
            if title == "" or (title and len(panels) == 1):
                heading = plain(title)
            if len(panels) > 1:
                heading = f"({ascii_lowercase[place]}) {heading}"
            axes.set_title(_wrapped(heading, width, points))
            inches = (width, height)
            _label_axes(axes, panels, place, across=across, inches=inches)
            if looks is None:
                _add_own_legend(axes, panel.looks, points)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        if len(panels) > 1 and title:
            figure.suptitle(plain(title), fontsize=points)
    return Picture(figure=figure, caption=_caption_of(panels))


# Words


def _wrapped(text: str, inches: float, points: float) -> str:
    """Return text in lines of about this width."""
    letters = max(int(inches * _LETTERS_AN_INCH / points), 8)
    return textwrap.fill(text, letters, break_long_words=False, break_on_hyphens=False)


def _label_axes(
    axes: Axes,
    panels: Sequence[Panel],
    place: int,
    *,
    across: int,
    inches: tuple[float, float],
) -> None:
    """Label the axes of a panel, without what its neighbours say already."""
    panel = panels[place]
    width, height = inches
    points = rcParams["font.size"]
    is_first = place % across == 0
    if is_first or len({other.ylabel for other in panels}) > 1:
        axes.set_ylabel(_wrapped(panel.ylabel, height - 0.6, points))
    scales = {other.scale for other in panels}
    is_shared = len(scales) == 1 and None not in scales
    axes.tick_params(labelleft=is_first or not is_shared)
    below = place + across
    if below >= len(panels) or panels[below].xlabel != panel.xlabel:
        axes.set_xlabel(_wrapped(panel.xlabel, width, points))


def _caption_of(panels: Sequence[Panel]) -> str:
    """Return what there is to say, with the letters of the panels that it is true
    of.
    """
    letters: dict[str, list[str]] = {}
    for place, panel in enumerate(panels):
        for note in panel.notes:
            letters.setdefault(note, []).append(ascii_lowercase[place])
    sentences = []
    for note, places in letters.items():
        if len(places) < len(panels):
            note = f"({', '.join(places)}) {note}"
        sentences.append(f"{note}.")
    return " ".join(sentences)


# Sizes


def _layout(
    panels: Sequence[Panel], size: Size, looks: Mapping[str, Look] | None
) -> tuple[int, tuple[float, float]]:
    """Return the panels side by side, and width and height in inches with space for
    legends.
    """
    across = _across(panels, size)
    if isinstance(size, tuple):
        return across, size
    down = math.ceil(len(panels) / across)
    width = WIDTHS[size] if size else max(0.8 + 2.9 * across, 4.0)
    if looks is None:
        legend_lines = down * max(len(panel.looks) for panel in panels)
    else:
        legend_lines = _legend_lines(looks)
    labels = 1 if any(panel.xlabel for panel in panels) else 0
    aspect = max(panel.aspect for panel in panels)
    height = min(aspect * (width / across - 0.4 * labels), _HIGHEST_PANEL)
    row = height + _TITLE + _XLABEL * labels
    return across, (width, row * down + _LEGEND_LINE * legend_lines)


def _across(panels: Sequence[Panel], size: Size) -> int:
    """Return the panels side by side: the first setting's values go down, or the last
    one's across.
    """
    n = len(panels)
    widest = _WIDEST.get(str(size), 4)
    firsts = {panel.key[:1] for panel in panels}
    lasts = {panel.key[-1:] for panel in panels}
    for across in (n // len(firsts), len(lasts)):
        if 1 < across <= widest and n % across == 0:
            return across
    if n <= widest:
        return n
    if n == 4 or widest == 2:
        return 2
    return 3


def _legend_lines(looks: Mapping[str, Look]) -> int:
    """Return the lines of a legend of short names."""
    return math.ceil(len(looks) / 4)


# Legends


def _common_looks(panels: Sequence[Panel]) -> dict[str, Look] | None:
    """Return the legend of all panels, the bound last; None where a name or a look
    means several lines.
    """
    looks: dict[str, Look] = {}
    bounds: dict[str, Look] = {}
    for panel in panels:
        for name, look in panel.looks.items():
            same = bounds if look is BOUND else looks
            if same.setdefault(name, look) != look:
                return None
    if (
        len({str(look) for look in looks.values()}) < len(looks)
        or looks.keys() & bounds
    ):
        return None
    return looks | bounds


def _handles(looks: Mapping[str, Look]) -> list[Line2D]:
    return [Line2D([], [], **look, label=name) for name, look in looks.items() if name]


def _add_legend(figure: Figure, looks: Mapping[str, Look]) -> int:
    """Add a legend below, with the most columns that fit into the width; return its
    lines.
    """
    handles = _handles(looks)
    for ncols in range(min(len(handles), _LEGEND_COLUMNS), 0, -1):
        legend = figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=ncols,
            handlelength=3.2,
            columnspacing=1.6,
        )
        if ncols == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return math.ceil(len(handles) / ncols)
        legend.remove()
    return 0


def _add_own_legend(axes: Axes, looks: Mapping[str, Look], points: float) -> None:
    """Add a legend of one panel below the name of its axis."""
    figure: Any = axes.figure
    below_name = ScaledTranslation(0, -3.5 * points / 72, figure.dpi_scale_trans)
    axes.legend(
        handles=_handles(looks),
        loc="upper center",
        fontsize="small",
        bbox_to_anchor=(0.5, 0),
        bbox_transform=axes.transAxes + below_name,
    )
