"""Pictures of what trained machines have learned, and of data: filters, activities, samples, rows.

This is the one module of the room that reads machines and data sets, since they are what it draws.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from cbm_cli.datasets.dataset import DataError, Dataset, Image
from cbm_cli.datasets.loading import load_again, load_source
from cbm_cli.datasets.spec import DataSpec, spec_of
from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.machines import representations
from cbm_cli.machines.files import Layered, flatten, read_machine
from cbm_cli.machines.samples import draw, parse_sampler
from cbm_cli.report.chosen import Options, choose, refuse_without_effect
from cbm_cli.report.limits import Ends
from cbm_cli.report.panels import Panel, in_order
from cbm_cli.report.style import BOUND, Look, looks_of, names_of, plain, spelled, title_of
from cbm_cli.results import Results, Store
from cbm_cli.results.cells import Cell
from cbm_cli.results.inventory import MACHINE_NAME, CellSettings, find_trial
from cbm_cli.results.selection import Key, key_of
from cbm_cli.text import count

SHOWN = 100  # filters, samples or rows of a panel
GAP = 0.35  # grey between them
_SWEEPS = 1000  # of a chain before its sample
_LONG = 30  # pixels: longer lines are no pictures, and stand without gaps
_SMALL = 20  # pixels: smaller pictures are enlarged, so that the lines between them stay thin


# Rows as small pictures


def data_panels(sources: Sequence[str], options: Options) -> list[Panel]:
    """Draw the first rows of the training parts of data sets, named as for ``cbm evaluate --data``."""
    if not sources:
        raise CbmError("data: name data sets, as in cbm plot data mnist shifting-bar:size=9", "missing")
    panels = []
    for source in sources:
        data = load_source(source)
        shown = data.train[:SHOWN] / data.levels
        title = (options.title or f"{plain(data.name)}: {len(shown):,} of {count(len(data.train), 'row')}",)
        panels.append(tile_panel(shown, shape_of(data, data.width), (source,), title))
    return panels


def tile_panel(
    rows: NDArray, image: Image, key: Key = (), title: tuple[str, ...] = (), notes: Sequence[str] = ()
) -> Panel:
    """Return a panel of rows (n, H * W) of values from 0, black, to 1, white, as small pictures."""
    lines = image.height == 1 and image.width > _LONG
    pixels = rows if lines else tiled(rows, image, max(1, _SMALL // max(image[:2])))
    aspect = min(1.0, pixels.shape[0] / pixels.shape[1])

    def fill(axes: Axes) -> None:
        axes.imshow(pixels, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_aspect("auto" if lines else "equal")
        axes.axis("off")

    return Panel(fill, key, title, notes=notes, aspect=aspect)


def tiled(rows: NDArray, image: Image, times: int = 1) -> NDArray[np.float64]:
    """Arrange rows (n, H * W) as pictures, line by line in about a square, with a pixel of grey around each.

    Each pixel of a row becomes ``times`` pixels across and down.
    """
    pictures = np.array([row.reshape(image[:2], order=image.order) for row in rows])
    pictures = np.kron(pictures, np.ones((1, times, times)))
    n, height, width = pictures.shape
    across = min(n, max(1, round(math.sqrt(n * (height + 1) / (width + 1)))))
    down = -(-n // across)
    cells = np.full((down * across, height + 1, width + 1), GAP)
    cells[:n, 1:, 1:] = pictures
    lines = cells.reshape(down, across, height + 1, width + 1).swapaxes(1, 2)
    return np.pad(lines.reshape(down * (height + 1), -1), ((0, 1), (0, 1)), constant_values=GAP)


def normalised(rows: NDArray) -> NDArray:
    """Divide each row (n, N) by its largest absolute value and move it to [0, 1]: zero becomes one half."""
    largest = np.abs(rows).max(axis=1, keepdims=True)
    return 0.5 + 0.5 * np.divide(rows, largest, out=np.zeros_like(rows), where=largest > 0)


def shape_of(data: Dataset | None, width: int) -> Image:
    """Return the shape of a row as a picture: the data set's, else a square or a line."""
    if data is not None and data.image:
        return data.image
    side = math.isqrt(width)
    return Image(side, side) if side**2 == width else Image(1, width)


# Machines


class Shown(NamedTuple):
    """A machine, where it is shown, and the data set that it has learned."""

    machine: Layered
    panel: Key
    line: Key
    data: Callable[[], Dataset]  # DataError without its files


class Machines(NamedTuple):
    """The machines that a picture shows, and the settings that tell its panels and lines apart."""

    shown: Sequence[Shown]
    panels: Sequence[str]
    lines: Sequence[str]
    note: str = ""


def machines_of(results: Results | None, names: Sequence[str], options: Options) -> Machines:
    """Return the machine of one trial of each cell of experiments, or those named by RUN:TRIAL or a file."""
    if any(map(is_machine, names)):
        refuse_without_effect(
            options, ("select", "metric", "panels", "choose", "by"), "machines that are named"
        )
        # Machines that are named are told apart by their names, which the title says as they are.
        return Machines([_named(results, name, options) for name in names], [], ["experiment"])
    assert results is not None
    chosen = choose(results, [results.only(name) for name in names or (None,)], options)
    shown, trials = [], []
    for cell in chosen.cells:
        store, trial = chosen.store(cell), _trial(cell)
        machine = read_machine(*store.machine(cell.settings["run_id"], trial))
        keys = key_of(cell.settings, chosen.panels), key_of(cell.settings, chosen.lines)
        shown.append(Shown(machine, *keys, partial(data_of, store, cell.settings)))
        trials.append((trial, spelled([*chosen.panels, *chosen.lines], (*keys[0], *keys[1]))))
    usual = Counter(trial for trial, _ in trials).most_common()[0][0]
    others = [f"trial {trial} of {name}" for trial, name in trials if trial != usual]
    note = ". ".join([", ".join([f"Of trial {usual}", *others]), *chosen.notes])
    return Machines(shown, chosen.panels, chosen.lines, note)


def is_machine(name: str) -> bool:
    """Whether a word names a machine, by RUN:TRIAL or its file, and no experiment."""
    return name.endswith(".npz") or MACHINE_NAME.fullmatch(name) is not None


def _named(results: Results | None, name: str, options: Options) -> Shown:
    """Return a machine by its name or file; its data are those of ``--data``, else of its run."""
    found = None if name.endswith(".npz") else MACHINE_NAME.fullmatch(name)
    if found and results and not found[1]:
        name = str(results.folder / name)
    machine = read_machine(Path(name))

    def data() -> Dataset:
        if options.data:
            return load_source(options.data, machine.sizes[0], machine.names)
        if not (trial := find_trial(name, results) if found else None):
            raise DataError(f"{name}: its data are not known; name them by --data", None, "missing")
        store, run_id, _ = trial
        return data_of(store, next(it for it in store.manifest()["cells"] if it["run_id"] == run_id))

    return Shown(machine, (), (found[0] if found else Path(name).stem,), data)


def _trial(cell: Cell) -> int:
    """Return the trial of a cell whose machine is shown: the first that did not diverge."""
    alive = cell.trials.numbers("trial")[cell.rows[~cell.trials.diverged[cell.rows]]]
    if not len(alive):
        run_id = cell.settings["run_id"]
        raise IncompleteError(f"{run_id}: every trial asked for diverged; leave it out with --select")
    return int(alive.min())


def data_of(store: Store, settings: CellSettings) -> Dataset:
    """Return the data set of a cell; DataError without its files, or if they have changed."""
    return _data_of(store.folder.resolve(), spec_of(settings))


@cache
def _data_of(folder: Path, spec: DataSpec) -> Dataset:
    return load_again(spec, Store(folder).manifest())


def if_here(data: Callable[[], Dataset]) -> Dataset | None:
    """Return a data set, or None without its files."""
    with suppress(DataError):
        return data()
    return None


# What they have learned


def filters_panels(machines: Machines, options: Options) -> list[Panel]:
    """Draw filters of one trial's machine of each cell, projected to the visible units (Fig. 15)."""

    def rows_of(machine: Layered) -> NDArray:
        layer = representations.layer_of(machine, options.layer)
        units = representations.chosen(machine.sizes[1:], SHOWN, seed=1)[layer - 1]
        return normalised(representations.filters(machine)[layer - 1][units])

    sizes = (
        one.machine.sizes[representations.layer_of(one.machine, options.layer)] for one in machines.shown
    )
    which = "Filters chosen at random" if max(sizes) > SHOWN else "Filters"
    return _tiles(machines, options, rows_of, f"{which}, each normalised by itself; white excites")


def samples_panels(machines: Machines, options: Options) -> list[Panel]:
    """Draw samples of one trial's machine of each cell, by parallel tempering."""

    def rows_of(machine: Layered) -> NDArray:
        if machine.kind == "auto-encoder":
            raise CbmError(
                "samples: an auto encoder has no distribution to draw from; see filters or activity",
                "unsuited",
            )
        sampler = parse_sampler("PT_10")
        return draw(flatten(machine), sampler, SHOWN, chains=SHOWN, steps=_SWEEPS, seed=1, start=None).samples

    said = f"Samples by parallel tempering at 10 temperatures, {_SWEEPS:,} sweeps from random states"
    return _tiles(machines, options, rows_of, said)


def _tiles(
    machines: Machines, options: Options, rows_of: Callable[[Layered], NDArray], said: str
) -> list[Panel]:
    """Draw rows of each machine as small pictures, in a panel of its own."""
    columns, panels = [*machines.panels, *machines.lines], []
    for one in machines.shown:
        image = shape_of(if_here(one.data), one.machine.sizes[0])
        key = (*one.panel, *one.line)
        title = title_of(options.title, columns, key)
        notes = [said, *filter(None, [machines.note])]
        if one.machine.names and image.height == 1:
            notes.append(f"Units from left to right: {', '.join(one.machine.names[:SHOWN])}")
        panels.append(tile_panel(rows_of(one.machine), image, key, title, notes))
    return in_order(panels)


def activity_panels(machines: Machines, options: Options) -> list[Panel]:
    """Draw the mean activity of hidden units given the training data, in decreasing order (Fig. 16)."""
    lines: dict[Key, dict[Key, NDArray]] = {}
    balanced = True
    for one in machines.shown:
        representations.layer_of(one.machine, options.layer)
        data = one.data()
        found, _ = representations.represent(one.machine, data.train, 1 / data.levels)
        balanced &= representations.has_probabilities(one.machine)
        for layer, values in enumerate(representations.mean_activity(found), 1):
            if options.layer in (None, layer):
                lines.setdefault((*one.panel, str(layer)), {})[one.line] = values
    looks = looks_of(list(dict.fromkeys(one.line for one in machines.shown)), machines.lines)
    several = len({layer for *_, layer in lines}) > 1
    panels = []
    for key, its in lines.items():
        drawn = {names_of(machines.lines, line): (values, looks[line]) for line, values in its.items()}
        title = title_of(
            options.title, [*machines.panels, *["layer"] * several], key[: len(key) - 1 + several]
        )
        panels.append(activity_panel(drawn, balanced, key, title, [machines.note]))
    return in_order(panels)


def activity_panel(
    lines: Mapping[str, tuple[NDArray, Look]],
    balanced: bool,
    key: Key = (),
    title: tuple[str, ...] = (),
    notes: Sequence[str] = (),
) -> Panel:
    """Return a panel of the mean activities of units, by name, in decreasing order.

    ``balanced``: activities are probabilities, of which some count as balanced.
    """

    def fill(axes: Axes) -> None:
        for place, (values, look) in enumerate(lines.values()):
            x = (np.arange(len(values)) + 0.5) / len(values)
            marks = np.searchsorted(x, (np.arange(6) + (place + 0.5) / len(lines)) / 6).clip(0, len(x) - 1)
            style = look | {"markevery": np.unique(marks).tolist(), "drawstyle": "steps-mid"}
            axes.plot(x, np.sort(values)[::-1], **style, linewidth=1.0)
        for end in representations.BALANCED * balanced:
            axes.axhline(end, **BOUND, zorder=0)
        axes.set_xlim(0, 1)

    said = [
        "Dashed: {} and {}, beyond which a unit counts as always off or on".format(*representations.BALANCED)
    ]
    return Panel(
        fill,
        key,
        title,
        "share of units, the most active first",
        "mean activity",
        Ends(-0.02, 1.02) if balanced else None,
        looks={name: look for name, (_, look) in lines.items()} if len(lines) > 1 else {},
        notes=[*said * balanced, *filter(None, notes)],
    )
