"""Panels side by side with one legend: what every kind of picture becomes, and its file."""

import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.axis import Tick
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from cbm_cli.errors import CbmError
from cbm_cli.report.limits import Ends, shared
from cbm_cli.report.style import BOUND, FONT, Look, check_font, own_style
from cbm_cli.results.selection import Key

WIDTHS = {"column": 3.4, "page": 7.0}  # inches: one column, and both columns, of a journal
_WIDEST = {"column": 2, "page": 3}  # panels side by side; of other sizes four
_DPI = 300  # as journals ask for
# Metadata by suffix, so that two pictures of the same results have the same bytes.
METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".svg": {"Date": None},
}


@dataclass(frozen=True)
class Panel:
    """One pair of axes, how to fill it, and what there is to say about it."""

    draw: Callable[[Axes], None]
    key: Key = ()  # values of the settings that tell panels apart
    title: tuple[str, ...] = ()  # settings; a line ends between two of them where it must
    xlabel: str = ""
    ylabel: str = ""
    ends: Ends | None = None  # of the y axis
    scale: Key | None = None  # panels of the same scale, which are compared, have the same y axis
    looks: Mapping[str, Look] = field(default_factory=dict)  # legend: name -> look
    notes: Sequence[str] = ()  # sentences of the caption
    aspect: float = 0.82  # height by width


class Page(NamedTuple):
    """The form of a picture."""

    size: str | tuple[float, float] | None = None  # column, page, or width and height in inches
    font: str = FONT


class Picture(NamedTuple):
    """A figure, and its caption, which is not in it."""

    figure: Figure
    caption: str
    font: str = FONT

    def write(self, path: str | Path) -> None:
        """Write the figure as PNG, PDF or SVG, by the suffix; CbmError if the file cannot be written.

        PNG and SVG have the caption, and what is written in the picture, as their description.
        """
        path = Path(path)
        if path.suffix.lower() not in METADATA:
            raise CbmError(f"{path}: the suffix must be one of {', '.join(METADATA)}")
        try:
            path.write_bytes(self.content(path.suffix.lower()))
        except OSError as error:
            raise CbmError(f"{path}: cannot be written ({error.strerror})", "system") from None

    def content(self, suffix: str = ".png") -> bytes:
        """Return the bytes of a file."""
        about = {} if suffix == ".pdf" else {"Description": "\n".join([self.caption, *self._texts()])}
        stream = io.BytesIO()
        with own_style(font=self.font):
            self.figure.savefig(stream, format=suffix[1:], dpi=_DPI, metadata=METADATA[suffix] | about)
        return stream.getvalue()

    def _texts(self) -> list[str]:
        """Return the titles, names and legends of the figure."""
        numbers = {label for tick in self.figure.findobj(Tick) for label in (tick.label1, tick.label2)}
        texts = (text.get_text().strip() for text in self.figure.findobj(Text) if text not in numbers)
        return list(dict.fromkeys(filter(None, texts)))

    def _repr_png_(self) -> bytes:
        return self.content()


def in_order(panels: Sequence[Panel]) -> list[Panel]:
    """Sort panels by the values of their settings, each in the order in which it first appears."""
    values = zip(*(panel.key for panel in panels), strict=True)
    places = [{v: i for i, v in enumerate(dict.fromkeys(column))} for column in values]
    return sorted(panels, key=lambda panel: [place[v] for place, v in zip(places, panel.key, strict=True)])


def compose(panels: Sequence[Panel], page: Page) -> Picture:
    """Return the picture of some panels: lettered, in a grid, with a legend."""
    check_font(page.font)
    panels = [
        replace(panel, ends=shared(it.ends for it in panels if it.ends and it.scale == panel.scale))
        if panel.ends and panel.scale
        else panel
        for panel in panels
    ]
    across = _across([panel.key for panel in panels], page.size)
    looks = common_looks(panels)
    with own_style(10.0 if page.size is None else 8.0, page.font):
        figure = Figure(figsize=_size(panels, page, across), layout="constrained")
        legend = _add_legend(figure, looks or {})
        same = len({panel.ends for panel in panels}) == 1 and panels[0].ends is not None
        grid: Any = figure.subplots(-(-len(panels) // across), across, squeeze=False, sharey=same).ravel()
        for place, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
            if panel.ends:
                axes.set_ylim(panel.ends.low, panel.ends.high)
            panel.draw(axes)
            if looks is None:
                lines = ScaledTranslation(0, -3.5 * rcParams["font.size"] / 72, figure.dpi_scale_trans)
                below = {"bbox_to_anchor": (0.5, 0), "bbox_transform": axes.transAxes + lines}
                handles = _handles(panel.looks)
                axes.legend(handles=handles, loc="upper center", fontsize="small", **below)
            letter = f"({chr(97 + place)}) " * (len(panels) > 1)
            axes.set_title(letter + ", ".join(filter(None, panel.title)))
            _thin_out(axes, figure.get_figwidth() / across, figure.get_figheight() * across / len(panels))
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        _name_axes(grid, panels, across)
        if page.size is None and legend and legend.get_window_extent().width > figure.bbox.width:
            figure.set_figwidth(legend.get_window_extent().width / figure.dpi + 0.2)
        _fit_texts(figure, across)
    return Picture(figure, caption_of(panels), page.font)


def common_looks(panels: Sequence[Panel]) -> dict[str, Look] | None:
    """Return the legend of all panels, the bound last; None where a name or a look means several lines."""
    looks = {name: look for panel in panels for name, look in panel.looks.items() if look is not BOUND}
    clear = all(looks.get(name, BOUND) == look for panel in panels for name, look in panel.looks.items())
    clear &= len({str(look) for look in looks.values()}) == len(looks)
    bounds = {name: look for panel in panels for name, look in panel.looks.items() if look is BOUND}
    return looks | bounds if clear else None


def _across(keys: Sequence[Key], size: object) -> int:
    """Return the panels side by side: the first setting's values go down, or the last one's across."""
    widest = _WIDEST.get(size, 4) if isinstance(size, str) else 4
    down, last = len({key[:1] for key in keys}), len({key[-1:] for key in keys})
    for across in (len(keys) // down, last):
        if 1 < across <= widest and len(keys) % across == 0:
            return across
    if size == "column" and len(keys) == 3:
        return 1
    return len(keys) if len(keys) <= widest else 2 if len(keys) == 4 or widest == 2 else 3


def _size(panels: Sequence[Panel], page: Page, across: int) -> tuple[float, float]:
    """Return width and height in inches."""
    if isinstance(page.size, tuple):
        return page.size
    width = WIDTHS.get(str(page.size)) or max(0.8 + 2.9 * across, 4.0)
    rows, looks = -(-len(panels) // across), common_looks(panels)
    lines = rows * max(len(panel.looks) for panel in panels) if looks is None else -(-len(looks) // 4)
    named = any(panel.xlabel for panel in panels)
    row = (
        min(2.6, max(panel.aspect for panel in panels) * (width / across - 0.4 * named)) + 0.25 + 0.15 * named
    )
    return width, row * rows + 0.17 * lines


def _handles(looks: Mapping[str, Look]) -> list[Line2D]:
    return [Line2D([], [], **look, label=name) for name, look in looks.items() if name]


def _add_legend(figure: Figure, looks: Mapping[str, Look]) -> Legend | None:
    """Add a legend below, of as many columns as fit into the width."""
    handles = _handles(looks)
    for ncols in range(min(len(handles), 6), 0, -1):
        where: Any = {"loc": "outside lower center", "ncols": ncols}
        legend = figure.legend(handles=handles, handlelength=3.2, columnspacing=1.6, **where)
        if ncols == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return legend
        legend.remove()
    return None


def _thin_out(axes: Axes, width: float, height: float) -> None:
    """Have as many numbers along the axes as there is room for."""
    for axis, room in ((axes.xaxis, width - 0.6), (axes.yaxis, height - 0.6)):
        if isinstance(locator := axis.get_major_locator(), MaxNLocator):
            locator.set_params(nbins=min(6, max(2, int(room / 0.35))), steps=[1, 2, 5, 10])


def _name_axes(grid: Sequence[Axes], panels: Sequence[Panel], across: int) -> None:
    """Name the axes: y once in a row where all panels have the same name, x only below a column."""
    same = len({panel.ylabel for panel in panels}) == 1
    for place, panel in enumerate(panels):
        if place % across == 0 or not same:
            grid[place].set_ylabel(panel.ylabel)
        last = place + across >= len(panels)
        if last or panels[place + across].xlabel != panel.xlabel:
            grid[place].set_xlabel(panel.xlabel)


def _fit_texts(figure: Figure, across: int) -> None:
    """Break names and titles that are longer than their axes, or make them smaller."""
    for _ in range(3):  # a text of more lines takes room from others
        figure.draw_without_rendering()
        fitting = True
        for axes in filter(Axes.get_visible, figure.axes):
            box, wide = axes.get_window_extent(), figure.bbox.width / across
            across_axes = min(wide, 1.1 * box.width)
            middle = (box.x0 + box.x1) / 2  # of the title, which names beside the axes move
            free = min(wide, 2 * middle, 2 * (figure.bbox.width - middle))
            beyond = min(box.y0, figure.bbox.height - box.y1)  # of one row; others may have names there
            along_axes = box.height + 2 * beyond * (len(figure.axes) <= across)
            texts = ((axes.title, free), (axes.xaxis.label, across_axes), (axes.yaxis.label, along_axes))
            for text, room in texts:
                extent = text.get_window_extent()
                length = extent.height if text is axes.yaxis.label else extent.width
                words = text.get_text()
                if words and length > room:
                    fitting = False
                    if "\n" not in words:
                        letters = max(int(len(words) * room / length), 8)
                        lines = textwrap.wrap(words, letters, break_long_words=False, break_on_hyphens=False)
                        text.set_text("\n".join(lines))
                    else:
                        text.set_fontsize(float(text.get_fontsize()) * room / length)
        if fitting:
            return


def caption_of(panels: Sequence[Panel]) -> str:
    """Return what there is to say, with the letters of the panels that it is true of."""
    notes: dict[str, list[str]] = {}
    for place, panel in enumerate(panels):
        for note in [*panel.notes, *(panel.ends.notes if panel.ends else [])]:
            notes.setdefault(note, []).append(chr(97 + place))
    said = [
        note if len(letters) == len(panels) else f"({', '.join(letters)}) {note}"
        for note, letters in notes.items()
    ]
    return " ".join(f"{sentence}." for sentence in said)
