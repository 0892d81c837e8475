"""Which settings tell the cells of an experiment apart: axes of tables, lines and panels of pictures."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cbm_cli.errors import CbmError
from cbm_cli.results.inventory import CellSettings, telling_apart
from cbm_cli.text import did_you_mean, text_of

Key = tuple[str, ...]


@dataclass(frozen=True)
class TableLayout:
    """The columns of ``summary.csv`` that make the groups, rows and columns of a table."""

    groups: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def axes(self) -> tuple[str, ...]:
        """All identifying columns, groups first."""
        return self.groups + self.rows + self.columns


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
        raise CbmError(f"{option} {asked}: no such column{did_you_mean(name, columns)}", "unknown")
    return tuple(of_model or fields)


def select(cells: Sequence[CellSettings], wanted: Iterable[tuple[str, str]]) -> list[CellSettings]:
    """Return the cells with the wanted values; of one column given twice, with either value."""
    values: dict[str, list[str]] = {}
    for name, value in wanted:
        values.setdefault(name, []).append(value)
    for name, allowed in values.items():
        columns = columns_named(name, cells, "--select")
        for value in allowed:
            if not any({*key_of(cell, columns)} == {value} for cell in cells):
                there = ", ".join(dict.fromkeys(text_of(cell.get(columns[0])) for cell in cells))
                raise CbmError(f"--select {name}={value}: no such value; there are {there}", "unknown")
        cells = [cell for cell in cells if any({*key_of(cell, columns)} == {value} for value in allowed)]
    return [*cells]
