"""Which cells are shown: those that are selected, and of a setting that is chosen, the best value in each."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cbm_cli.errors import CbmError
from cbm_cli.results.inventory import CellSettings, telling_apart
from cbm_cli.text import did_you_mean, text_of

Key = tuple[str, ...]
Wanted = Sequence[tuple[str, str]]  # settings with a value; of one that is given twice, either value


def key_of(cell: CellSettings, columns: Iterable[str]) -> Key:
    """Return the values of some columns as text."""
    return tuple(text_of(cell.get(column)) for column in columns)


def columns_named(name: str, cells: Sequence[CellSettings], option: str) -> tuple[str, ...]:
    """Return the columns that a name means: a column's own, or the grid's.

    ``model.hidden`` and ``hidden`` mean ``model_hidden``; ``sliding_factor`` means ``sliding_factor_visible``
    and ``sliding_factor_hidden``, of which only the first is returned where both say the same.
    """
    columns = [column for column in cells[0] if column != "run_id"]
    asked, name = name, name.replace(".", "_")
    if name in columns:
        return (name,)
    if parts := [column for column in columns if column.startswith(f"{name}_")]:
        varied = telling_apart(cells, (), parts)
        return varied or (parts[0],)
    fields = [column for column in columns if column.endswith(f"_{name}")]
    of_model = [column for column in fields if column == f"model_{name}"]
    if len(of_model or fields) > 1:
        raise CbmError(
            f"{option} {asked}: several columns are called so; name one of {', '.join(fields)}", "conflict"
        )
    if not fields:
        hint = did_you_mean(name, columns)
        hint = hint if "did you mean" in hint else f"; {_what_varies(cells)}"
        raise CbmError(f"{option} {asked}: no such setting{hint}", "unknown")
    return tuple(of_model or fields)


def varying_columns(name: str, cells: Sequence[CellSettings], option: str) -> tuple[str, ...]:
    """Return the columns that a name means, as `columns_named`; CbmError if all cells have one value."""
    columns = columns_named(name, cells, option)
    if len({key_of(cell, columns) for cell in cells}) == 1:
        value = " ".join(key_of(cells[0], columns)) or "not set"
        raise CbmError(f"{option} {name}: is {value} in every cell; {_what_varies(cells)}", "unsuited")
    return columns


def _what_varies(cells: Sequence[CellSettings]) -> str:
    """Say which settings vary."""
    names = [name for name in cells[0] if name != "run_id" and len({text_of(c.get(name)) for c in cells}) > 1]
    return f"what varies: {', '.join(names)}" if names else "nothing varies"


def select_cells(
    manifests: Sequence[Mapping[str, Any]], wanted: Wanted, constants: bool = False
) -> list[Mapping[str, Any]]:
    """Return manifests with the wanted cells only, of which some may have none.

    Numbers may be written in any way, as 0.1 or 1e-1. CbmError for a setting that is unknown, or does not
    vary unless ``constants`` may be named, and for a value that no cell of any manifest has.
    """
    cells, tests = [cell for manifest in manifests for cell in manifest["cells"]], dict[Key, set[str]]()
    for name, value in wanted:
        columns = (columns_named if constants else varying_columns)(name, cells, "--select")
        there = {text for cell in cells if len(texts := {*key_of(cell, columns)}) == 1 for text in texts}
        if not (found := there & {value} or there & {_number(value)}):
            known = ", ".join(dict.fromkeys(text_of(cell.get(columns[0])) for cell in cells))
            raise CbmError(f"--select {name}={value}: no such value; there are {known}", "unknown")
        tests.setdefault(columns, set()).update(found)

    def is_wanted(cell: CellSettings) -> bool:
        return all({*key_of(cell, columns)} in [{text} for text in texts] for columns, texts in tests.items())

    return [
        {**manifest, "cells": [cell for cell in manifest["cells"] if is_wanted(cell)]}
        for manifest in manifests
    ]


def _number(text: str) -> str:
    """Return the text of a number that may be written in another way; other text as it is."""
    try:
        return text_of(float(text))
    except ValueError:
        return text
