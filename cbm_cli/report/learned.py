"""Pictures of what trained machines have learned, and of data: filters, activities,
samples, rows.

This is the only module of the package that reads machines and data sets, since it draws
them.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from cbm_cli.datasets.dataset import Dataset, Image
from cbm_cli.datasets.loading import load_again, load_source
from cbm_cli.datasets.spec import DataSpec
from cbm_cli.errors import CbmError, FieldError, IncompleteError
from cbm_cli.machines import representations
from cbm_cli.machines.files import read_machine
from cbm_cli.machines.models import Layered, flatten
from cbm_cli.machines.samples import draw, parse_sampler
from cbm_cli.report.chosen import Options, choose, refuse_without_effect
from cbm_cli.report.panels import Panel
from cbm_cli.report.style import BOUND, Look, looks_of, names_of, plain
from cbm_cli.results import Results, Store
from cbm_cli.results.columns import Key, key_of
from cbm_cli.results.folder import (
    MACHINE_NAME,
    find_trial,
    is_machine,
    is_machine_file,
)
from cbm_cli.text import count

SHOWN = 100  # filters, samples or rows of a panel
GAP = 0.35  # grey between them
_SWEEPS = 1000  # of a chain before its sample
_LONG = 30  # pixels: longer lines are not pictures, and have no gaps
# pixels: smaller pictures are enlarged, so that the lines between them stay thin
_SMALL = 20


# Rows as small pictures


def data_panels(
    _: Results | None, sources: Sequence[str], options: Options
) -> list[Panel]:
    """Draw the first rows of the training parts of data sets, named as for ``cbm
    evaluate --data``.
    """
    if not sources:
        raise CbmError(
            "data: name data sets, as in cbm plot data mnist shifting-bar:size=9,bar=1"
        )
    panels = []
    for source in sources:
        data = load_source(source, option="")
        shown = data.train[:SHOWN] / data.levels
        title = f"{plain(data.name)}: {len(shown):,} of {count(len(data.train), 'row')}"
        panels.append(tile_panel(shown, shape_of(data, data.width), (source,), title))
    return panels


def tile_panel(
    rows: NDArray,
    image: Image,
    key: Key = (),
    title: str = "",
    notes: Sequence[str] = (),
) -> Panel:
    """Return a panel of rows (n, H * W) of values from 0, black, to 1, white, as small
    pictures.
    """
    lines = image.height == 1 and image.width > _LONG
    pixels = rows if lines else tiled(rows, image, max(1, _SMALL // max(image[:2])))
    aspect = min(1.0, pixels.shape[0] / pixels.shape[1])

    def fill(axes: Axes) -> None:
        axes.imshow(pixels, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_aspect("auto" if lines else "equal")
        axes.axis("off")

    return Panel(fill, key, title, notes=notes, aspect=aspect)


def tiled(rows: NDArray, image: Image, times: int = 1) -> NDArray[np.float64]:
    """Arrange rows (n, H * W) as pictures, line by line in about a square, with a pixel
    of grey around each.

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
    return np.pad(
        lines.reshape(down * (height + 1), -1), ((0, 1), (0, 1)), constant_values=GAP
    )


def normalised(rows: NDArray) -> NDArray:
    """Divide each row (n, N) by its largest absolute value and move it to [0, 1]: zero
    becomes one half.
    """
    largest = np.abs(rows).max(axis=1, keepdims=True)
    return 0.5 + 0.5 * np.divide(
        rows, largest, out=np.zeros_like(rows), where=largest > 0
    )


def shape_of(data: Dataset | None, width: int) -> Image:
    """Return the shape of a row as a picture: the data set's, else a square or a
    line.
    """
    if data is not None and data.image:
        return data.image
    side = math.isqrt(width)
    return Image(side, side) if side**2 == width else Image(1, width)


# Machines


class Shown(NamedTuple):
    """A machine, where and how it is shown, and the data set that it has learned."""

    machine: Layered
    key: Key  # in the order of the grid
    panel: str  # what it shares with the machines that it is compared with, in words
    line: str  # what tells it apart from these, in words
    look: Look
    data: (
        Callable[[], Dataset] | None
    )  # FieldError without its files; None where it is not known
    notes: Sequence[str] = ()


def machines_of(
    results: Results | None, names: Sequence[str], options: Options
) -> list[Shown]:
    """Return the machine of one trial of each cell of experiments, or those named by
    RUN:TRIAL or a file.
    """
    if any(map(is_machine, names)):
        asked = ("select", "metric", "panels", "choose", "by")
        refuse_without_effect(options, asked, "machines that are named")
        looks = looks_of([(name,) for name in dict.fromkeys(names)], ["experiment"])
        return [
            _by_name(results, name, look, options) for (name,), look in looks.items()
        ]
    assert results is not None
    chosen = choose(results, [results.only(name) for name in names or (None,)], options)
    keys = [key_of(cell.row, chosen.lines) for cell in chosen.cells]
    looks, shown = looks_of(list(dict.fromkeys(keys)), chosen.lines), []
    for cell, key in zip(chosen.cells, keys, strict=True):
        store, run_id = (
            chosen.stores[cell.run.experiment],
            cell.run_id,
        )
        alive = cell.trials.numbers("trial")[
            cell.rows[~cell.trials.diverged[cell.rows]]
        ]
        if not len(alive):
            raise IncompleteError(
                f"{run_id}: every trial asked for diverged; leave it out with --select"
            )
        trial = int(alive.min())
        machine = read_machine(*store.machine(run_id, trial))
        panel, choice = key_of(cell.row, chosen.panels), chosen.choice(cell)
        line = (
            names_of(chosen.lines, key)
            + f" ({choice})" * bool(choice)
            + f", trial {trial}" * bool(trial)
        )
        notes = ["Of each method the first trial that did not diverge", *chosen.notes]
        data = partial(data_of, store.folder.resolve(), cell.settings.data)
        words = names_of(chosen.panels, panel)
        shown.append(Shown(machine, panel + key, words, line, looks[key], data, notes))
    return shown


def _by_name(results: Results | None, name: str, look: Look, options: Options) -> Shown:
    """Return a machine by its name or file; its data are those of ``--data``, else of
    its run.
    """
    found = None if is_machine_file(name) else MACHINE_NAME.fullmatch(name)
    path = results.folder / name if found and results and not found[1] else Path(name)
    machine, words, data = read_machine(path), plain(path.stem), None
    if found and (trial := find_trial(name, results)):
        store, run_id, number = trial
        manifest, words = store.manifest(), plain(name)
        axes = manifest.axes or ("offsets", "sampler", "learning_rate")
        for run in [run for run in manifest.cells if run.run_id == run_id]:
            words = f"{names_of(axes, key_of(run.row, axes))}, trial {number}"
            data = partial(data_of, store.folder.resolve(), run.settings.data)
    if options.data:
        data = partial(load_source, options.data, machine.sizes[0], machine.names)
    return Shown(machine, (name,), "", words, look, data)


@cache
def data_of(folder: Path, spec: DataSpec) -> Dataset:
    """Return the data set of a cell; FieldError without its files, or if they have
    changed.
    """
    manifest = Store(folder).manifest()
    return load_again(spec, manifest.grid_folder, manifest.digests)


# What they have learned


def filters_panels(
    results: Results | None, names: Sequence[str], options: Options
) -> list[Panel]:
    """Draw filters of one trial's machine of each cell, projected to the visible units
    (Fig. 15).
    """

    def rows_of(machine: Layered) -> NDArray:
        layer = representations.layer_of(machine, options.layer)
        units = representations.chosen(machine.sizes[1:], SHOWN, seed=1)[layer - 1]
        return normalised(representations.filters(machine)[layer - 1][units])

    machines = machines_of(results, names, options)
    sizes = (
        one.machine.sizes[representations.layer_of(one.machine, options.layer)]
        for one in machines
    )
    which = "Filters chosen at random" if max(sizes) > SHOWN else "Filters"
    return _tiles(
        machines, rows_of, f"{which}, each normalised by itself; white excites"
    )


def samples_panels(
    results: Results | None, names: Sequence[str], options: Options
) -> list[Panel]:
    """Draw samples of one trial's machine of each cell, by parallel tempering."""

    def rows_of(machine: Layered) -> NDArray:
        if machine.kind == "auto-encoder":
            raise CbmError(
                "samples: an auto encoder has none to draw; see filters or activity"
            )
        sampler = parse_sampler("PT_10")
        return draw(
            flatten(machine), sampler, SHOWN, chains=SHOWN, steps=_SWEEPS, seed=1
        ).samples

    said = (
        f"Samples by parallel tempering at 10 temperatures, {_SWEEPS:,} sweeps "
        "from random states"
    )
    return _tiles(machines_of(results, names, options), rows_of, said)


def _tiles(
    machines: Sequence[Shown], rows_of: Callable[[Layered], NDArray], said: str
) -> list[Panel]:
    """Draw rows of each machine as small pictures, in a panel of its own."""
    panels = []
    for one in machines:
        data = None
        with suppress(FieldError):
            data = one.data and one.data()
        rows, image = rows_of(one.machine), shape_of(data, one.machine.sizes[0])
        title = ", ".join(filter(None, [one.panel, one.line]))
        notes = [said, *one.notes]
        if one.machine.names and image.height == 1:
            notes.append(
                f"Units from left to right: {', '.join(one.machine.names[:SHOWN])}"
            )
        panels.append(tile_panel(rows, image, one.key, title, notes))
    return panels


def activity_panels(
    results: Results | None, names: Sequence[str], options: Options
) -> list[Panel]:
    """Draw the mean activity of hidden units given the training data, in decreasing
    order (Fig. 16).
    """
    machines, lines = (
        machines_of(results, names, options),
        dict[tuple[str, int], list[Any]](),
    )
    for one in machines:
        representations.layer_of(one.machine, options.layer)
        if one.data is None:
            raise FieldError(
                f"{one.key[0]}: its data are not known; name them by --data"
            )
        data = one.data()
        found, _ = representations.represent(one.machine, data.train, 1 / data.levels)
        for layer, activities in enumerate(found, 1):
            if options.layer in (None, layer):
                means = np.sort(activities.mean(axis=0, dtype=np.float64))[::-1]
                lines.setdefault((one.panel, layer), []).append((one, means))
    several = len({layer for _, layer in lines}) > 1

    def fill(its: Sequence[tuple[Shown, NDArray]], axes: Axes) -> None:
        for place, (one, values) in enumerate(its):
            x, step = (
                (np.arange(len(values)) + 0.5) / len(values),
                max(1, len(values) // 6),
            )
            marks = place * step // len(its), step  # the first and every so many
            axes.plot(
                x,
                values,
                **one.look,
                markevery=marks,
                drawstyle="steps-mid",
                linewidth=1.0,
            )
        axes.set_xlim(0, 1)
        for end in representations.BALANCED:
            axes.axhline(end, **BOUND, zorder=0)
        axes.set_ylim(-0.02, 1.02)

    low, high = representations.BALANCED
    said, panels = (
        f"Dashed: {low} and {high}, beyond which a unit counts as always off or on",
        [],
    )
    for (words, layer), its in lines.items():
        title = ", ".join(filter(None, [words, f"layer {layer}" * several]))
        labels = title, "share of units, the most active first", "mean activity"
        looks = {one.line: one.look for one, _ in its} if len(its) > 1 else {}
        notes = [said, *its[0][0].notes]
        panels.append(
            Panel(partial(fill, its), (words, str(layer)), *labels, None, looks, notes)
        )
    return panels
