"""Pictures of what trained machines have learned, and of data: filters, activities, samples, rows.

This is the one module of the room that reads machines and data sets, since they are what it draws.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from cbm_cli.datasets.catalogue import load, load_source
from cbm_cli.datasets.dataset import DataError, Dataset, Image
from cbm_cli.datasets.spec import spec_of
from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.machines import representations
from cbm_cli.machines.files import Layered, flatten, read_machine
from cbm_cli.machines.samples import draw, parse_sampler
from cbm_cli.report.chosen import Chosen, Options, choose
from cbm_cli.report.panels import Drawing, Panel
from cbm_cli.report.pictures import normalised, parse_shape, tile
from cbm_cli.report.style import BOUND, looks_of, named, names_of, plain, plain_axes
from cbm_cli.results import Results
from cbm_cli.results.cells import Cell
from cbm_cli.results.selection import key_of
from cbm_cli.text import count

_SWEEPS = 1000  # of a chain before its sample
_LONG = 30  # pixels: longer lines are no pictures, and stand without gaps
_SMALL = 20  # pixels: smaller pictures are enlarged, so that the lines between them stay thin
_load = cache(load)


def data_drawing(sources: Sequence[str], options: Options) -> Drawing:
    """Draw the first rows of the training parts of data sets, named as for ``cbm evaluate --data``."""
    if not sources:
        raise CbmError("data: name data sets, as in cbm plot data mnist shifting-bar:size=9", "missing")
    panels = []
    for place, source in enumerate(sources):
        data = load_source(source)
        shown = data.train[: options.number] / data.levels
        title = (options.title or f"{plain(data.name)}: {len(shown):,} of {count(len(data.train), 'row')}",)
        panels.append(
            Panel(partial(_draw_rows, shown, shape_of(options, data, data.width)), (str(place),), title)
        )
    return Drawing(panels)


def filters_drawing(results: Results, experiments: Sequence[str], options: Options) -> Drawing:
    """Draw filters of one trial's machine of each cell, projected to the visible units (Fig. 15)."""

    def rows_of(machine: Layered, data: Dataset | None) -> NDArray:
        layer = _layer(machine, options)
        units = representations.chosen(machine.sizes[1:], options.number, seed=1)[layer - 1]
        return normalised(representations.filters(machine)[layer - 1][units])

    said = "filters chosen at random, each normalised by itself; white: excited"
    return _tiles(choose(results, experiments, options), options, rows_of, said)


def samples_drawing(results: Results, experiments: Sequence[str], options: Options) -> Drawing:
    """Draw samples of one trial's machine of each cell, by parallel tempering."""

    def rows_of(machine: Layered, data: Dataset | None) -> NDArray:
        if machine.kind == "auto-encoder":
            raise CbmError(
                "samples: an auto encoder has no distribution to draw from; see filters or activity",
                "unsuited",
            )
        sampler = parse_sampler("PT_10")
        n = options.number
        return draw(flatten(machine), sampler, n, chains=n, steps=_SWEEPS, seed=1, start=None).samples

    said = f"samples by PT$_{{10}}$, {_SWEEPS:,} sweeps from random states"
    return _tiles(choose(results, experiments, options), options, rows_of, said)


def activity_drawing(results: Results, experiments: Sequence[str], options: Options) -> Drawing:
    """Draw the mean activity of hidden units given the training data, in decreasing order (Fig. 16)."""
    chosen = choose(results, experiments, options)
    lines: dict[tuple[str, ...], list] = {}
    for cell in chosen.cells:
        machine, data = _machine(chosen, cell), data_of(chosen, cell)
        found, _ = representations.represent(machine, data.train, 1 / data.levels)
        balanced = representations.BALANCED if representations.has_probabilities(machine) else None
        for layer, values in enumerate(representations.mean_activity(found), 1):
            if options.layer in (None, layer):
                key = (*key_of(cell.settings, chosen.panels), str(layer))
                lines.setdefault(key, []).append(
                    (key_of(cell.settings, chosen.lines), np.sort(values)[::-1], balanced)
                )
        _layer(machine, options)
    looks = looks_of(list(dict.fromkeys(line for its in lines.values() for line, *_ in its)), chosen.lines)
    several = len({key[-1] for key in lines}) > 1
    panels = [
        Panel(
            partial(_draw_activity, [(values, looks[line], balanced) for line, values, balanced in its]),
            key,
            (options.title,)
            if options.title
            else (*map(named, chosen.panels, key), *([f"layer {key[-1]}"] if several else [])),
            "share of units, the most active first",
            "mean activity",
            (-0.02, 1.02) if all(balanced for *_, balanced in its) else None,
        )
        for key, its in lines.items()
    ]
    names = {names_of(chosen.lines, key): look for key, look in looks.items()}
    return Drawing(
        panels, names, ["grey: 0.05 and 0.95, beyond which a unit counts as always off or on", _which(chosen)]
    )


def _draw_activity(lines: Sequence[tuple], axes: Axes) -> None:
    for place, (values, look, balanced) in enumerate(lines):
        x = (np.arange(len(values)) + 0.5) / len(values)
        marks = np.searchsorted(x, (np.arange(6) + (place + 0.5) / len(lines)) / 6).clip(0, len(x) - 1)
        axes.plot(
            x,
            values,
            **look,
            drawstyle="steps-mid",
            linewidth=1.3,
            markersize=4,
            markevery=np.unique(marks).tolist(),
        )
        for end in balanced or ():
            axes.axhline(end, **BOUND | {"linewidth": 0.6}, zorder=0)
        if balanced:
            axes.set_ylim(-0.02, 1.02)
    axes.set_xlim(0, 1)
    plain_axes(axes)


def _tiles(
    chosen: Chosen, options: Options, rows_of: Callable[[Layered, Dataset | None], NDArray], said: str
) -> Drawing:
    """Draw rows of one machine of each cell as small pictures, one panel per cell."""
    columns, panels = [*chosen.panels, *chosen.lines], []
    for cell in chosen.cells:
        machine, data = _machine(chosen, cell), data_if_here(chosen, cell)
        shape = shape_of(options, data, machine.sizes[0])
        key = key_of(cell.settings, columns)
        title = (options.title,) if options.title else tuple(map(named, columns, key))
        panels.append(Panel(partial(_draw_rows, rows_of(machine, data), shape), key, title))
    return Drawing(panels, {}, [said, _which(chosen)])


def _draw_rows(rows: NDArray, image: Image, axes: Axes) -> None:
    """Fill the axes with rows (n, H * W) of values in [0, 1], white is 1, as small pictures."""
    pictures = rows.reshape(-1, *((image.width, image.height) if image.order == "F" else image[:2]))
    pictures = pictures.swapaxes(1, 2) if image.order == "F" else pictures
    enlarged = np.kron(pictures, np.ones((1, *(max(1, _SMALL // max(image[:2])),) * 2)))
    if image.height == 1 and image.width > _LONG:
        axes.imshow(rows, cmap="gray", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    else:
        axes.imshow(tile(enlarged), cmap="gray", vmin=0, vmax=1)
    axes.axis("off")


def shape_of(options: Options, data: Dataset | None, width: int) -> Image:
    """Return the shape of a row as a picture: the one asked for, the data set's, or a square."""
    if options.shape is None and data is not None and data.image:
        return data.image
    return Image(*parse_shape(options.shape, width))


def _layer(machine: Layered, options: Options) -> int:
    """Return the hidden layer to show, from 1; CbmError if there is none."""
    layers = len(machine.sizes) - 1
    if options.layer is not None and not 1 <= options.layer <= layers:
        said = f"--layer {options.layer}: the machine has {count(layers, 'hidden layer')}"
        raise CbmError(said, "unsuited")
    return options.layer or layers


def _trial(cell: Cell) -> int:
    """Return the trial of a cell whose machine is shown: the first that did not diverge."""
    alive = cell.trials.numbers("trial")[cell.rows[~cell.trials.diverged[cell.rows]]]
    if not len(alive):
        run_id = cell.settings["run_id"]
        raise IncompleteError(f"{run_id}: every trial asked for diverged; leave it out with --select")
    return int(alive.min())


def _machine(chosen: Chosen, cell: Cell) -> Layered:
    return read_machine(*chosen.store(cell).machine(cell.settings["run_id"], _trial(cell)))


def data_of(chosen: Chosen, cell: Cell) -> Dataset:
    """Return the data set of a cell; DataError without its files."""
    return _load(spec_of(cell.settings), folder=chosen.store(cell).manifest().get("grid_folder", ""))


def data_if_here(chosen: Chosen, cell: Cell) -> Dataset | None:
    """Return the data set of a cell, or None without its files."""
    with suppress(DataError):
        return data_of(chosen, cell)
    return None


def _which(chosen: Chosen) -> str:
    """Return which trials are shown: the usual one, and the cells of which it is another."""
    columns = [*chosen.panels, *chosen.lines]
    shown = [(_trial(cell), key_of(cell.settings, columns)) for cell in chosen.cells]
    (usual, _), *_ = Counter(trial for trial, _ in shown).most_common()
    others = [f"trial {trial} of {names_of(columns, key)}" for trial, key in shown if trial != usual]
    return ", ".join([f"of trial {usual}", *others])
