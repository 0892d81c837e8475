"""Panels side by side with one legend: what every kind of picture becomes, and its
file.
"""

import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

from cbm_cli.errors import CbmError
from cbm_cli.report.style import BOUND, Look, own_style, plain
from cbm_cli.results.selection import Key
from cbm_cli.results.writing import write_atomically

Size = str | tuple[float, float] | None  # column, page, or width and height in inches

WIDTHS = {
    "column": 3.4,
    "page": 7.0,
}  # inches: one column, and both columns, of a journal
_WIDEST = {"column": 2, "page": 3}  # panels side by side; of other sizes four
_DPI = 300  # as journals ask for
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
        if path.suffix.lower() not in _METADATA:
            raise CbmError(f"{path}: the suffix must be one of {', '.join(_METADATA)}")
        write_atomically(path, self.content(path.suffix.lower()))

    def content(self, suffix: str = ".png", **style: Any) -> bytes:
        """Return the bytes of a file, with some of Matplotlib's settings in place of
        cbm's.
        """
        about = {} if suffix == ".pdf" else {"Description": self.caption}
        stream = io.BytesIO()
        with own_style(**style):
            self.figure.savefig(
                stream, format=suffix[1:], dpi=_DPI, metadata=_METADATA[suffix] | about
            )
        return stream.getvalue()

    def _repr_png_(self) -> bytes:
        return self.content()


def compose(
    panels: Sequence[Panel], size: Size = None, title: str | None = None
) -> Picture:
    """Return the picture of some panels: lettered, in a grid, with a legend.

    The title is that of the only panel, or stands above several; with an empty one no
    panel has a title.
    """
    looks = _common_looks(panels)
    across, figsize = _layout(panels, size, looks)
    points, several = 10.0 if size is None else 8.0, len(panels) > 1
    with own_style(points):
        figure = Figure(figsize=figsize, layout="constrained")
        _add_legend(figure, looks or {})
        rows = -(-len(panels) // across)
        width, height = figure.get_figwidth() / across, figure.get_figheight() / rows

        def fitting(text: str, inches: float) -> str:
            letters = max(int(inches * 160 / points), 8)  # of the font, about
            return textwrap.fill(
                text, letters, break_long_words=False, break_on_hyphens=False
            )

        same = len({panel.ylabel for panel in panels}) == 1
        shared = (
            len({panel.scale for panel in panels}) == 1 and panels[0].scale is not None
        )
        grid: Any = figure.subplots(rows, across, squeeze=False).ravel()
        for place, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
            panel.draw(axes)
            words = (
                panel.title if title is None or (title and several) else plain(title)
            )
            axes.set_title(fitting(f"({chr(97 + place)}) " * several + words, width))
            if place % across == 0 or not same:
                axes.set_ylabel(fitting(panel.ylabel, height - 0.6))
            axes.tick_params(labelleft=place % across == 0 or not shared)
            last = place + across >= len(panels)
            if last or panels[place + across].xlabel != panel.xlabel:
                axes.set_xlabel(fitting(panel.xlabel, width))
            if looks is None:
                lines = ScaledTranslation(
                    0, -3.5 * rcParams["font.size"] / 72, figure.dpi_scale_trans
                )
                below = {
                    "bbox_to_anchor": (0.5, 0),
                    "bbox_transform": axes.transAxes + lines,
                }
                axes.legend(
                    handles=_handles(panel.looks),
                    loc="upper center",
                    fontsize="small",
                    **below,
                )
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        if several and title:
            figure.suptitle(plain(title), fontsize=points)
    return Picture(figure, _caption_of(panels))


def _common_looks(panels: Sequence[Panel]) -> dict[str, Look] | None:
    """Return the legend of all panels, the bound last; None where a name or a look
    means several lines.
    """
    pairs = [pair for panel in panels for pair in panel.looks.items()]
    looks = {name: look for name, look in pairs if look is not BOUND}
    clear = len({str(look) for look in looks.values()}) == len(looks)
    clear &= all(looks.get(name, BOUND) == look for name, look in pairs)
    return (
        looks | {name: look for name, look in pairs if look is BOUND} if clear else None
    )


def _layout(
    panels: Sequence[Panel], size: Size, looks: Mapping[str, Look] | None
) -> tuple[int, tuple[float, float]]:
    """Return the panels side by side, and width and height in inches with space for
    legends.

    The first setting's values go down, or the last one's across.
    """
    keys, n, widest = (
        [panel.key for panel in panels],
        len(panels),
        _WIDEST.get(str(size), 4),
    )
    fitting = n // len({key[:1] for key in keys}), len({key[-1:] for key in keys})
    others = n if n <= widest else 2 if n == 4 or widest == 2 else 3
    across = next((it for it in fitting if 1 < it <= widest and n % it == 0), others)
    if isinstance(size, tuple):
        return across, size
    width, rows = (
        WIDTHS.get(str(size)) or max(0.8 + 2.9 * across, 4.0),
        -(-len(panels) // across),
    )
    lines = (
        rows * max(len(panel.looks) for panel in panels)
        if looks is None
        else -(-len(looks) // 4)
    )
    named = any(panel.xlabel for panel in panels)
    row = min(
        2.6, max(panel.aspect for panel in panels) * (width / across - 0.4 * named)
    )
    return across, (width, (row + 0.25 + 0.15 * named) * rows + 0.17 * lines)


def _handles(looks: Mapping[str, Look]) -> list[Line2D]:
    return [Line2D([], [], **look, label=name) for name, look in looks.items() if name]


def _add_legend(figure: Figure, looks: Mapping[str, Look]) -> None:
    """Add a legend below, with the most columns that fit into the width."""
    handles = _handles(looks)
    for ncols in range(min(len(handles), 6), 0, -1):
        where: Any = {"loc": "outside lower center", "ncols": ncols}
        legend = figure.legend(
            handles=handles, handlelength=3.2, columnspacing=1.6, **where
        )
        if ncols == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()


def _caption_of(panels: Sequence[Panel]) -> str:
    """Return what there is to say, with the letters of the panels that it is true
    of.
    """
    notes: dict[str, list[str]] = {}
    for place, panel in enumerate(panels):
        for note in panel.notes:
            notes.setdefault(note, []).append(chr(97 + place))
    places = {
        note: f"({', '.join(its)}) " * (len(its) < len(panels))
        for note, its in notes.items()
    }
    return " ".join(f"{place}{note}." for note, place in places.items())
