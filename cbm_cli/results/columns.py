"""The columns of cells: which of them a name means, which vary, and which tell cells
apart.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import TableSpec, meant, parts_of
from cbm_cli.text import did_you_mean, text_of

Row = dict[str, Any]  # values of a cell or a trial, by column of summary.csv
Key = tuple[str, ...]
# Settings that decide on which rows values are measured
_OF_ROWS = ("data", "evaluate_rows", "evaluate_parts")


def why_not_chosen(columns: Iterable[str]) -> str:
    """Say why values of some of these columns cannot be compared; ``""`` where they
    can.
    """
    for column in columns:
        if column.startswith(_OF_ROWS):
            return (
                f"{column} decides on which rows values are measured, and values on "
                "different data or rows cannot be compared"
            )
    return ""


def key_of(row: Row, columns: Iterable[str]) -> Key:
    """Return the values of some columns as text.

    >>> row = {"offsets": "00", "momentum": 0.5, "chains": None}
    >>> key_of(row, ["momentum", "chains"])
    ('0.5', '')
    """
    return tuple(text_of(row.get(column)) for column in columns)


class Columns:
    """The columns of some cells, all of which have the same.

    Parameters
    ----------
    rows : sequence of mappings
        The values of each cell, by column.
    chosen : collection of str
        Columns that do not count, as each cell shows the best of their values.

    Examples
    --------
    >>> rows = [
    ...     {"offsets": "00", "sampler": "CD-1", "batch": 100},
    ...     {"offsets": "dd^b", "sampler": "CD-1", "batch": 100},
    ...     {"offsets": "dd^b", "sampler": "PCD-1", "batch": 100},
    ... ]
    >>> columns = Columns(rows)
    >>> columns.varying()
    ['offsets', 'sampler']
    >>> columns.apart(["offsets"])
    ['sampler']
    >>> columns.named("sampler", "--rows")
    ['sampler']
    """

    def __init__(self, rows: Sequence[Row], chosen: Collection[str] = ()) -> None:
        self.rows, self.chosen = rows, chosen
        first = rows[0] if rows else {}
        self.names = [column for column in first if column not in chosen]

    def texts(self, column: str) -> list[str]:
        """Return the different values of a column as text, in the order of the
        cells.
        """
        return list(dict.fromkeys(text_of(row.get(column)) for row in self.rows))

    def varying(self, names: Iterable[str] | None = None) -> list[str]:
        """Return the columns, of all or of some, that have several values."""
        candidates = self.names if names is None else names
        return [column for column in candidates if len(self.texts(column)) > 1]

    def apart(
        self, columns: Iterable[str] = (), candidates: Iterable[str] | None = None
    ) -> list[str]:
        """Return the candidates, by default all columns, that one after another tell
        more cells apart than the columns before do.
        """
        keys = [key_of(row, columns) for row in self.rows]
        added: list[str] = []
        for column in self.names if candidates is None else candidates:
            if len(set(keys)) == len(keys):
                break
            texts = [text_of(row.get(column)) for row in self.rows]
            wider = [(*key, text) for key, text in zip(keys, texts, strict=True)]
            if len(set(wider)) > len(set(keys)):
                keys = wider
                added.append(column)
        return added

    def axes(self, table: TableSpec) -> list[str]:
        """Return the columns that tell the cells apart, those of their table first."""
        settings = (*table.groups, *table.rows, *table.columns)
        return self.apart((), [*self.of_settings(settings), *self.names])

    def of_settings(self, settings: Iterable[str]) -> list[str]:
        """Return the columns of settings: of one with several parts those that vary,
        or the first. Columns that do not count are left out.
        """
        columns: list[str] = []
        for setting in settings:
            names = dict.fromkeys([setting, *parts_of(setting)])
            parts = [column for column in names if column in self.names]
            columns += self.varying(parts) or parts[:1]
        return columns

    def named(self, name: str, option: str, several: bool = False) -> list[str]:
        """Return the columns that a name means: a column's own, or the grid's.

        ``model.hidden`` and ``hidden`` mean ``model_hidden``; ``sliding_factor`` means
        ``sliding_factor_visible`` and ``sliding_factor_hidden``, of which only the
        first is returned where both say the same. If several columns have one name,
        those that vary are meant.

        Raises
        ------
        CbmError
            Unknown name, or one of a setting that is chosen in each cell; with
            ``several`` also where all cells have one value.
        """
        word = name.replace(".", "_")
        if word in self.chosen:
            raise CbmError(
                f"{option} {name}: is chosen in each cell, and cannot tell cells "
                "apart; remove it, or write --choose none"
            )
        what_varies = f"what varies: {', '.join(self.varying()) or 'nothing'}"
        parts: list[str] = []
        if word not in self.names:
            parts = [column for column in self.names if column.startswith(f"{word}_")]
        columns = self.apart((), parts) or parts[:1]
        if not parts:
            columns = meant(name, self.names)
            columns = self.varying(columns) or columns
            if len(columns) > 1:
                raise CbmError(
                    f"{option} {name}: several columns are called so; name one of "
                    f"{', '.join(columns)}"
                )
        if not columns:
            hint = did_you_mean(word, self.names, otherwise=f"; {what_varies}")
            raise CbmError(f"{option} {name}: no such setting{hint}")
        if several and not self.varying(columns):
            value = " ".join(key_of(self.rows[0], columns)) or "not set"
            raise CbmError(f"{option} {name}: is {value} in every cell; {what_varies}")
        return columns
