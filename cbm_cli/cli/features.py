"""``cbm features``: what a machine has learned, and how it represents data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cbm_cli.cli.common import Whole, check_folder, json_option, note, print_list
from cbm_cli.cli.completion import data_option
from cbm_cli.errors import CbmError
from cbm_cli.text import valid_json

if TYPE_CHECKING:
    from cbm_cli.datasets.dataset import Image
    from cbm_cli.machines.files import Layered
    from cbm_cli.machines.representations import Features

_COLUMNS = {  # facts of a layer: heading and format in the table
    "layer": ("layer", "{}"),
    "units": ("units", "{}"),
    "mean_activity": ("mean activity", "{:.4f}"),
    "unbalanced": ("outside [0.05, 0.95]", "{:.1%}"),
}


class _Count(click.ParamType):
    name = "N|all"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        return "all" if value == "all" else Whole(1).convert(value, param, ctx)


@click.command()
@click.argument("model", type=click.Path(path_type=Path), metavar="MODEL")
@data_option
@click.option("--test", metavar="FILE", help="With --data FILE: a file with the rows of the test part.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where to write; default: MODEL-features in the current folder.",
)
@click.option(
    "--filters", "count", type=_Count(), default=100, show_default=True, help="Filters of a layer to draw."
)
@click.option(
    "--seed",
    type=Whole(0, 2**63 - 1),
    default=1,
    show_default=True,
    help="Random seed of the filters drawn.",
)
@click.option(
    "--shape", metavar="HxW", help="Size of a filter; default: the data's, else a square or a line."
)
@click.option("--by-columns", is_flag=True, help="Units go down the columns of a filter.")
@click.option(
    "--representations",
    "formats",
    type=click.Choice(["npz", "csv"]),
    multiple=True,
    help="Write the hidden activities given every row; may be given twice.",
)
@json_option
def features(
    model: Path,
    source: str | None,
    test: str | None,
    output: Path | None,
    count: int | str,
    seed: int,
    shape: str | None,
    by_columns: bool,
    formats: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write filters and hidden activities of a machine.

    The machine may be of any kind. Filters of every hidden layer go to filters.npz and, projected to the
    visible units, to filters-LAYER.png. With --data, activity.csv and activity.png have the mean activity of
    every hidden unit given the training part, in decreasing order. docs/features.md describes all files.
    """
    for option, given in {"--test": test, "--representations": formats}.items():
        if given and not source:
            raise CbmError(f"{option} needs data; name it with --data NAME or --data FILE", "missing")
    folder = _folder(model, output)
    from cbm_cli.datasets.catalogue import load_source
    from cbm_cli.machines.files import read_machine
    from cbm_cli.machines.representations import features_of, write_csv, write_npz
    from cbm_cli.report.learned import shape_of

    machine = read_machine(model)
    data = load_source(source, machine.sizes[0], test) if source else None
    image = shape_of(shape, data, machine.sizes[0], by_columns)
    layers = [{"layer": layer, "units": n} for layer, n in enumerate(machine.sizes[1:], 1)]
    answer: Any = {"model": str(model), "kind": machine.kind, "layers": layers}
    found = features_of(machine, data) if data else None
    files = _write_filters(folder, machine, count, seed, image)
    if found:
        files += _write_activity(folder, machine, found, layers)
        files += write_npz(folder, found) if "npz" in formats else []
        files += write_csv(folder, found) if "csv" in formats else []
        answer["unsettled"] = found.unsettled
    _show(answer | {"files": [str(file) for file in files]}, as_json)


def _folder(model: Path, output: Path | None) -> Path:
    """Return where to write; CbmError if that overwrites the machine."""
    folder = output or Path(
        f"{model.stem if model.suffix == '.npz' else model.name.replace(':', '-')}-features"
    )
    check_folder("-o", folder)
    if model.resolve().parent == folder.resolve() and re.fullmatch(r"filters|layer-\d+", model.stem):
        message = f"-o {folder}: {model.name} there is the machine itself; choose another folder"
        raise CbmError(message, "conflict")
    return folder


def _write_filters(folder: Path, machine: Layered, count: int | str, seed: int, image: Image) -> list[Path]:
    from cbm_cli.machines.representations import chosen, filters, write_filters
    from cbm_cli.report.learned import MOST, normalised, write_tile

    rows = filters(machine)
    drawn = chosen(machine.sizes[1:], MOST if isinstance(count, str) else min(count, MOST), seed)
    files = [folder / "filters.npz"]
    write_filters(files[0], rows, drawn)
    for layer, (its, units) in enumerate(zip(rows, drawn, strict=True), 1):
        files.append(folder / f"filters-{layer}.png")
        write_tile(files[-1], normalised(its[units]), image)
        if len(units) < len(its):
            note(f"{files[-1]}: {len(units):,} of {len(its):,} filters, chosen at random (--filters, --seed)")
    return files


def _write_activity(
    folder: Path, machine: Layered, found: Features, layers: list[dict[str, Any]]
) -> list[Path]:
    """Write the mean activity given the training part, and add its summary to the facts of the layers."""
    from cbm_cli.machines.bounds import ROUNDS
    from cbm_cli.machines.representations import (
        has_probabilities,
        mean_activity,
        unbalanced,
        write_activity,
    )
    from cbm_cli.report.learned import activity_panel
    from cbm_cli.report.panels import Page, compose
    from cbm_cli.report.style import looks_of

    means, probable = mean_activity(found.parts["train"]), has_probabilities(machine)
    for layer, values in zip(layers, means, strict=True):
        layer["mean_activity"] = float(values.mean())
        layer |= {"unbalanced": unbalanced(values)} if probable else {}
    if found.unsettled:
        note(f"warning: mean field has not settled within {ROUNDS} rounds for {found.unsettled:,} rows")
    files = [folder / "activity.csv", folder / "activity.png"]
    write_activity(files[0], means)
    looks = looks_of([(f"layer {layer}",) for layer in range(1, len(means) + 1)], ["layer"])
    lines = {name: (values, look) for ((name,), look), values in zip(looks.items(), means, strict=True)}
    compose([activity_panel(lines, probable)], Page()).write(files[1])
    return files


def _show(answer: dict[str, Any], as_json: bool) -> None:
    for file in answer["files"]:
        note(f"wrote {file}")
    if as_json:
        click.echo(valid_json(answer))
        return
    known = {
        name: look for name, look in _COLUMNS.items() if any(name in layer for layer in answer["layers"])
    }
    rows = (
        [look.format(layer[name]) if name in layer else "" for name, (_, look) in known.items()]
        for layer in answer["layers"]
    )
    print_list([heading for heading, _ in known.values()], rows)
