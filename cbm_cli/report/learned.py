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
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from cbm_cli.datasets.dataset import Dataset, Image
from cbm_cli.datasets.loading import load_again, load_source
from cbm_cli.datasets.spec import Data
from cbm_cli.errors import CbmError, FieldError, IncompleteError
from cbm_cli.machines import representations
from cbm_cli.machines.files import read_machine
from cbm_cli.machines.models import Layered, flatten
from cbm_cli.machines.samples import draw, parse_sampler
from cbm_cli.report.chosen import Chosen, choose
from cbm_cli.report.options import Options, refuse_too_many, refuse_without_effect
from cbm_cli.report.panels import Panel
from cbm_cli.report.style import BOUND, Look, looks_of, names_of, plain
from cbm_cli.results import Results, Store
from cbm_cli.results.cells import Cell
from cbm_cli.results.columns import Key, key_of
from cbm_cli.results.folder import (
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
_FEWER_MACHINES = "name fewer machines, or select some by --select"


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
    refuse_too_many(len(sources), "panels", "name fewer data sets")
    panels = []
    for source in sources:
        data = load_source(source, option="")
        rows = data.train[:SHOWN] / data.levels
        total = count(len(data.train), "row")
        panels.append(
            tile_panel(
                rows,
                shape_of(data, data.width),
                key=(source,),
                title=f"{plain(data.name)}: {len(rows):,} of {total}",
            )
        )
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
    is_line = image.height == 1 and image.width > _LONG
    pixels = rows
    if not is_line:
        longer_side = max(image.height, image.width)
        pixels = tiled(rows, image, max(1, _SMALL // longer_side))
    height, width = pixels.shape

    def fill(axes: Axes) -> None:
        axes.imshow(pixels, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_aspect("auto" if is_line else "equal")
        axes.axis("off")

    aspect = min(1.0, height / width)
    return Panel(draw=fill, key=key, title=title, notes=notes, aspect=aspect)


def tiled(rows: NDArray, image: Image, times: int = 1) -> NDArray[np.float64]:
    """Arrange rows (n, H * W) as pictures, line by line in about a square, with a pixel
    of grey around each.

    Each pixel of a row becomes ``times`` pixels across and down.
    """
    shape = image.height, image.width
    pictures = np.array([row.reshape(shape, order=image.order) for row in rows])
    pictures = np.kron(pictures, np.ones((1, times, times)))
    n, height, width = pictures.shape
    high, wide = height + 1, width + 1  # with the grey above and on the left
    across = round(math.sqrt(n * high / wide))
    across = min(max(across, 1), n)
    down = math.ceil(n / across)
    cells = np.full((down * across, high, wide), GAP)
    cells[:n, 1:, 1:] = pictures
    lines = cells.reshape(down, across, high, wide).swapaxes(1, 2)
    pixels = lines.reshape(down * high, across * wide)
    return np.pad(pixels, ((0, 1), (0, 1)), constant_values=GAP)


def normalised(rows: NDArray) -> NDArray:
    """Divide each row (n, N) by its largest absolute value and move it to [0, 1]: zero
    becomes one half.
    """
    largest = np.abs(rows).max(axis=1, keepdims=True)
    zeros = np.zeros_like(rows)
    shares = np.divide(rows, largest, out=zeros, where=largest > 0)
    return 0.5 + 0.5 * shares


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
    data: Callable[[], Dataset] | None  # FieldError without its files; None: not known
    notes: Sequence[str] = ()

    @property
    def title(self) -> str:
        """The words of a panel of its own."""
        return ", ".join(filter(None, [self.panel, self.line]))


def machines_of(
    results: Results | None, names: Sequence[str], options: Options
) -> list[Shown]:
    """Return the machine of one trial of each cell of experiments, or those named by
    RUN:TRIAL or a file.
    """
    if any(map(is_machine, names)):
        refused = ("select", "metric", "panels", "choose", "by")
        refuse_without_effect(options, refused, "machines that are named")
        looks = looks_of([(name,) for name in names], ["experiment"])
        return [
            _by_name(results, name, look, options) for (name,), look in looks.items()
        ]
    assert results is not None
    experiments = [results.only(name) for name in names or (None,)]
    chosen = choose(results, experiments, options)
    keys = [key_of(cell.row, chosen.lines) for cell in chosen.cells]
    looks = looks_of(keys, chosen.lines)
    return [
        _of_cell(chosen, cell, key, looks[key])
        for cell, key in zip(chosen.cells, keys, strict=True)
    ]


def _of_cell(chosen: Chosen, cell: Cell, key: Key, look: Look) -> Shown:
    """Return the machine of the first trial of a cell that did not diverge."""
    store = cell.trials.store
    run_id = cell.run_id
    sound = cell.rows[~cell.trials.diverged[cell.rows]]
    if not len(sound):
        raise IncompleteError(
            f"{run_id}: every trial asked for diverged; leave it out with --select"
        )
    trial = int(cell.trials.numbers("trial")[sound].min())
    path, content = store.machine(run_id, trial)
    panel = key_of(cell.row, chosen.panels)
    line = names_of(chosen.lines, key)
    choice = chosen.choice(cell)
    if choice:
        line += f" ({choice})"
    if trial:
        line += f", trial {trial}"
    return Shown(
        machine=read_machine(path, content),
        key=panel + key,
        panel=names_of(chosen.panels, panel),
        line=line,
        look=look,
        data=partial(data_of, store.folder.resolve(), cell.settings.data),
        notes=["Of each method the first trial that did not diverge", *chosen.notes],
    )


def _by_name(results: Results | None, name: str, look: Look, options: Options) -> Shown:
    """Return a machine by its name or file; its data are those of ``--data``, else of
    its run.
    """
    path, words, data = Path(name), plain(Path(name).stem), None
    trial = None if is_machine_file(name) else find_trial(name, results)
    if trial:
        store, run_id, number = trial
        words = plain(name)
        if results and "/" not in name:
            path = results.folder / name
        manifest = store.manifest()
        axes = manifest.axes or ("offsets", "sampler", "learning_rate")
        for run in manifest.cells:
            if run.run_id == run_id:
                words = f"{names_of(axes, key_of(run.row, axes))}, trial {number}"
                data = partial(data_of, store.folder.resolve(), run.settings.data)
    machine = read_machine(path)
    if options.data:
        data = partial(
            load_source, options.data, width=machine.sizes[0], names=machine.names
        )
    return Shown(
        machine=machine, key=(name,), panel="", line=words, look=look, data=data
    )


@cache
def data_of(folder: Path, spec: Data) -> Dataset:
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
        layer = representations.layer_of(machine, options.layer) - 1
        units = representations.chosen(machine.sizes[1:], SHOWN, seed=1)
        return normalised(representations.filters(machine)[layer][units[layer]])

    machines = machines_of(results, names, options)
    sizes = []
    for shown in machines:
        layer = representations.layer_of(shown.machine, options.layer)
        sizes.append(shown.machine.sizes[layer])
    filters = "Filters chosen at random" if max(sizes) > SHOWN else "Filters"
    note = f"{filters}, each normalised by itself; white excites"
    return _tile_panels(machines, rows_of, note)


def samples_panels(
    results: Results | None, names: Sequence[str], options: Options
) -> list[Panel]:
    """Draw samples of one trial's machine of each cell, by parallel tempering."""

    def rows_of(machine: Layered) -> NDArray:
        if machine.kind == "auto-encoder":
            raise CbmError(
                "samples: an auto encoder has none to draw; see filters or activity"
            )
        return draw(
            flatten(machine),
            parse_sampler("PT_10"),
            SHOWN,
            chains=SHOWN,
            steps=_SWEEPS,
            seed=1,
        ).samples

    note = (
        f"Samples by parallel tempering at 10 temperatures, {_SWEEPS:,} sweeps "
        "from random states"
    )
    return _tile_panels(machines_of(results, names, options), rows_of, note)


def _tile_panels(
    machines: Sequence[Shown], rows_of: Callable[[Layered], NDArray], note: str
) -> list[Panel]:
    """Draw rows of each machine as small pictures, in a panel of its own."""
    refuse_too_many(len(machines), "panels", _FEWER_MACHINES)
    panels = []
    for shown in machines:
        data = None
        if shown.data is not None:
            with suppress(FieldError):
                data = shown.data()
        image = shape_of(data, shown.machine.sizes[0])
        notes = [note, *shown.notes]
        if shown.machine.names and image.height == 1:
            columns = ", ".join(shown.machine.names[:SHOWN])
            notes.append(f"Units from left to right: {columns}")
        panels.append(
            tile_panel(
                rows_of(shown.machine),
                image,
                key=shown.key,
                title=shown.title,
                notes=notes,
            )
        )
    return panels


def activity_panels(
    results: Results | None, names: Sequence[str], options: Options
) -> list[Panel]:
    """Draw the mean activity of hidden units given the training data, in decreasing
    order (Fig. 16).
    """
    machines = machines_of(results, names, options)
    groups: dict[tuple[str, int], _Activities] = {}
    for shown in machines:
        for layer, means in _mean_activities(shown, options).items():
            groups.setdefault((shown.panel, layer), []).append((shown, means))
    refuse_too_many(len(groups), "panels", _FEWER_MACHINES)
    most_lines = max(map(len, groups.values()))
    refuse_too_many(most_lines, "lines", _FEWER_MACHINES)
    has_layers = len({layer for _, layer in groups}) > 1
    low, high = representations.BALANCED
    note = f"Dashed: {low} and {high}, beyond which a unit counts as always off or on"
    panels = []
    for (words, layer), lines in groups.items():
        looks = {}
        if len(lines) > 1:
            looks = {shown.line: shown.look for shown, _ in lines}
        titles = [words, f"layer {layer}"] if has_layers else [words]
        panels.append(
            Panel(
                draw=partial(_draw_activity, lines),
                key=(words, str(layer)),
                title=", ".join(filter(None, titles)),
                xlabel="share of units, the most active first",
                ylabel="mean activity",
                looks=looks,
                notes=[note, *lines[0][0].notes],
            )
        )
    return panels


# Machines, with the mean activities of a layer in decreasing order
_Activities = list[tuple[Shown, NDArray]]


def _mean_activities(shown: Shown, options: Options) -> dict[int, NDArray]:
    """Return the mean activities of the units of each layer, in decreasing order."""
    representations.layer_of(shown.machine, options.layer)  # refuses others
    if shown.data is None:
        raise FieldError(f"{shown.key[0]}: its data are not known; name them by --data")
    data = shown.data()
    layers, _ = representations.represent(shown.machine, data.train, 1 / data.levels)
    means = {}
    for layer, activities in enumerate(layers, 1):
        if options.layer in (None, layer):
            means[layer] = np.sort(activities.mean(axis=0, dtype=np.float64))[::-1]
    return means


def _draw_activity(lines: _Activities, axes: Axes) -> None:
    for place, (shown, means) in enumerate(lines):
        n = len(means)
        step = max(1, n // 6)  # one in so many units has a marker
        first = place * step // len(lines)
        axes.plot(
            (np.arange(n) + 0.5) / n,
            means,
            **shown.look,
            markevery=(first, step),
            drawstyle="steps-mid",
            linewidth=1.0,
        )
    axes.set_xlim(0, 1)
    for end in representations.BALANCED:
        axes.axhline(end, **BOUND, zorder=0)
    axes.set_ylim(-0.02, 1.02)
