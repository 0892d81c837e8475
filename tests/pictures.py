"""Read back what pictures, pages and files of results show, without the code that
draws.
"""

import io
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch
from xml.etree import ElementTree

import numpy as np
import pandas as pd
from cbm_cli.report.panels import Picture
from cbm_cli.results.folder import find_machine
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from numpy.testing import assert_allclose

from tests.builders import cbm


def trials_of(results, experiment):
    """A row for each evaluation and record of a trial, with its settings."""
    folder = Path(results) / experiment
    rows = pd.read_csv(folder / "summary.csv", dtype={"offsets": str})
    settings = {"run_id", "data", "learning_rate", "offsets"} & {*rows.columns}
    found = rows[sorted(settings)].drop_duplicates()
    for kind in ("curves", "records"):
        tables = [
            pd.read_csv(path).assign(run_id=path.stem)
            for path in folder.glob(f"{kind}/*")
        ]
        found = found.merge(pd.concat(tables)) if tables else found
    numbers = found["trial"].astype(str)
    return found.assign(machine=f"{results}/" + found["run_id"] + ":" + numbers)


def weights_of(machine):
    arrays = np.load(io.BytesIO(find_machine(Path(machine))[1]))
    return {name: arrays[name].astype(float) for name in arrays.files if name != "kind"}


def grey(rows):
    """Rows divided by their largest absolute value, with zero in the middle."""
    return 0.5 + 0.5 * rows / np.abs(rows).max(axis=1, keepdims=True)


def numbers_in(text):
    return re.findall(r"\d(?:[\d,.]*\d)?(?:e[+-]\d+)?", text)


def figure_of(*arguments):
    """Return the figure that a command would write, and what the command says."""
    caught = []
    with patch.object(Picture, "write", lambda picture, _: caught.append(picture)):
        said = cbm(*arguments, "-o", "p.png").stderr
    (picture,) = caught
    assert picture.caption in said
    return shown_in(picture), said


def shown_in(picture):
    picture.figure.caption = picture.caption
    return picture.figure


def panels_of(figure):
    seen = [axes for axes in figure.axes if axes.get_visible()]
    titles = [axes.get_title().replace("\n", " ") for axes in seen]
    letters = [f"({chr(97 + place)})" * (len(seen) > 1) for place in range(len(seen))]
    assert all(
        title.startswith(letter) for title, letter in zip(titles, letters, strict=True)
    )
    titles = [
        title[len(letter) :].strip()
        for title, letter in zip(titles, letters, strict=True)
    ]
    return [*zip(titles, seen, strict=True)]


class Look(NamedTuple):
    """How a line looks, or its entry in a legend."""

    colour: str
    dashes: tuple | None
    marker: str


def look_of(line, mark):
    """The look of a line and of its markers, which may be another line."""
    return Look(
        to_hex(line.get_color()), line._unscaled_dash_pattern[1], mark.get_marker()
    )


def legend_of(holder):
    """Looks by name, of a figure's legend or of one within axes."""
    (legend,) = holder.legends if isinstance(holder, Figure) else [holder.get_legend()]
    pairs = zip(legend.get_texts(), legend.legend_handles, strict=True)
    return {text.get_text(): look_of(line, line) for text, line in pairs}


class Curve(NamedTuple):
    """A line with its markers, those that are open, and its spread (low, high)."""

    line: pd.Series
    marks: pd.Series
    open: pd.Series
    band: pd.DataFrame | None


def curves_of(axes, legend):
    """The curves of axes by their names: what looks like an entry of the legend."""
    found, bands = {}, list(axes.collections)
    lines = [line for line in axes.lines if line not in _bounds(axes)]
    while lines:
        line = lines.pop(0)
        xy = pd.Series(line.get_ydata(), line.get_xdata(), dtype=float)
        full, hollow = (lines.pop(0) for _ in range(2))
        assert to_hex(hollow.get_markerfacecolor()) == "#ffffff"
        assert to_hex(full.get_markerfacecolor()) == to_hex(full.get_markeredgecolor())
        look, band = look_of(line, full), None
        if bands and _colour_of(bands[0]) == look.colour:  # one trial has none
            corners = pd.DataFrame(
                np.concatenate([path.vertices for path in bands.pop(0).get_paths()])
            )
            band = corners.groupby(0)[1].agg(["min", "max"])
        assert to_hex(full.get_color()) == to_hex(hollow.get_color()) == look.colour
        assert look not in found, "two curves look alike"
        marks = [
            pd.Series(it.get_ydata(), it.get_xdata(), dtype=float)
            for it in (full, hollow)
        ]
        found[look] = Curve(xy, *marks, band)
    named = {name: found.pop(look) for name, look in legend.items() if look in found}
    assert not found, "a curve is not in the legend"
    assert not bands, "a band has the colour of no curve"
    return named


def _colour_of(spread):
    is_area = isinstance(spread, PolyCollection)
    (colour,) = spread.get_facecolor() if is_area else spread.get_color()
    return to_hex(colour)


def _bounds(axes):
    bare = [line for line in axes.lines if line.get_marker() == "None"]
    return [line for line in bare if list(line.get_xdata()) == [0, 1]]


def bounds_of(axes):
    """Where lines lie across the axes."""
    return [line.get_ydata()[0] for line in _bounds(axes)]


def ticks_of(axis):
    low, high = sorted(axis.get_view_interval())
    named = zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
    return {
        float(place): label.get_text() for place, label in named if low <= place <= high
    }


def tiles_of(image, height, width, times=1):
    """The rows of a tile of enlarged pictures, each within a pixel of grey."""
    down, across = times * height + 1, times * width + 1
    shape = (image.shape[0] - 1) // down, down, (image.shape[1] - 1) // across, across
    assert_allclose(
        np.r_[image[::down].ravel(), image[:, ::across].ravel()], 0.35, atol=0.01
    )
    cells = image[1:, 1:].reshape(shape).swapaxes(1, 2).reshape(-1, down, across)
    return cells[:, times // 2 : -1 : times, times // 2 : -1 : times].reshape(
        len(cells), -1
    )


class Element(ElementTree.Element):
    """An element of a page, with what is within."""

    def all(self, tag, class_=""):
        """The elements of a kind within, in order."""
        found = self.iter(tag or None)
        return [one for one in found if class_ in ("", *one.get("class", "").split())]

    @property
    def words(self):
        return " ".join(" ".join(self.itertext()).split())

    def rows(self):
        return [[it.words for it in row] for row in self.all("tr")]

    def terms(self):
        """What a list of terms says of each."""
        terms, told = ([it.words for it in self.all(tag)] for tag in ("dt", "dd"))
        return dict(zip(terms, told, strict=True))


class _Reader(HTMLParser):
    def handle_starttag(self, tag, attributes):
        self.tree.start(tag, {name: value or "" for name, value in attributes})
        if tag in {"meta", "img", "input", "br", "link"}:
            self.tree.end(tag)

    def handle_endtag(self, tag):
        assert self.tree.end(tag).tag == tag

    def handle_data(self, text):
        self.tree.data(text)


def page_of(text):
    """Return a page as one element, in which all others end."""
    reader = _Reader()
    reader.tree = ElementTree.TreeBuilder(Element)
    reader.tree.start("page", {})
    reader.feed(text)
    reader.handle_endtag("page")
    return reader.tree.close()
