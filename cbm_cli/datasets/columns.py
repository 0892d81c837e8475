"""Columns that are units: chosen or not dropped, by name or number; cbm asks about
columns that look like labels.
"""

import csv
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cbm_cli.datasets.dataset import Names
from cbm_cli.errors import FieldError
from cbm_cli.text import CONTROL, count, did_you_mean, shortened

_LABEL = re.compile(
    r"(?i)(.*[ _.-])?(class|label|target|id|index)(e?s)?|y|#|(row|no|nr)\.?"
    r"|outcome|response|unnamed: ?\d+"
)
_LONGEST = 10_000  # characters of a list of columns


def columns_text(columns: Any) -> str:
    """Return names and numbers of columns as canonical text, separated by commas.

    Parameters
    ----------
    columns : Any
        Text, a number, or a list, array or index of names and numbers. ValueError for
        anything else, and for an empty list.

    Examples
    --------
    >>> columns_text(["id", 3.0, "last"])
    'id, 3, last'
    """
    if hasattr(columns, "tolist"):  # NumPy's numbers and arrays, an index of pandas
        columns = columns.tolist()
    if type(columns) in (int, float):
        columns = [columns]
    text = ""
    if isinstance(columns, str):
        text = columns
    elif isinstance(columns, Iterable) and not isinstance(
        columns, bytes | Mapping | set
    ):
        text = as_line(_without_fraction(column) for column in columns)
    items = []
    if len(text) <= _LONGEST and not CONTROL.search(text):
        items = _items(text)
    if not items or not all(items) or "True" in items or "False" in items:
        raise ValueError("must be names or numbers of columns, as in [id, 3, last]")
    return as_line(items)


def as_line(items: Iterable[str]) -> str:
    """Return items separated by commas, in quotes where need be.

    Examples
    --------
    >>> as_line(["id", "a, b"])
    'id, "a, b"'
    """
    quoted = []
    for item in items:
        if "," in item or '"' in item:
            item = '"' + item.replace('"', '""') + '"'
        quoted.append(item)
    return ", ".join(quoted)


def written_as(place: int, names: Sequence[str], width: int) -> str:
    """Return how a grid names a column.

    Parameters
    ----------
    place : int
        The column, from 0.
    names : sequence of str
        Names of all columns; empty: they have none.
    width : int
        The number of columns.

    Returns
    -------
    str
        A plain name, or a number that is not another column's name.

    Examples
    --------
    >>> written_as(0, ["id", "1"], 2), written_as(1, ["", "2"], 2)
    ('id', '-1')
    """
    if names:
        name = names[place]
        plain = re.fullmatch(r"[^\W\d][\w .-]*", name)
        if plain and name not in ("all", "last"):
            return name
    number = str(place + 1)
    return str(place - width) if number in names else number


@dataclass(frozen=True)
class Columns:
    """The columns of a data set that are units."""

    # names, numbers from 1 or from the end (-1, last), or all; None: no labels
    chosen: str | None = None
    dropped: str | None = None
    # of a machine or the training part: of the others, these columns in this order
    units: Names = ()

    def places(
        self,
        names: Sequence[str],
        width: int,
        words: Collection[int] = (),
        counting: Collection[int] = (),
    ) -> list[int]:
        """Return the columns that are units, from 0.

        FieldError for columns that are not there, for nothing left, and for counts and
        names of labels that were neither chosen nor dropped.

        Parameters
        ----------
        names : sequence of str
            Names of the columns; empty: they have none.
        width : int
            The number of columns.
        words, counting : collections of int
            Columns that hold text or nothing, and columns that count the rows.

        Examples
        --------
        >>> Columns(dropped="id, last").places(["id", "a", "b", "class"], 4)
        [1, 2]
        """
        kept = list(range(width))
        if self.chosen not in (None, "all"):
            kept = _listed_places("columns", self.chosen, names, width)
        if self.dropped:
            dropped = {*_listed_places("drop", self.dropped, names, width)}
            kept = [place for place in kept if place not in dropped]
        if not kept:
            raise FieldError("no column is left", "drop")
        if names and self.units:
            return _in_order(self.units, {place: names[place] for place in kept})
        if self.chosen is not None:
            return kept
        labels = {*counting}
        if names:
            labels |= {
                place for place in kept if _LABEL.fullmatch(names[place] or "id")
            }
        if labels & {*kept}:
            asked = [place for place in kept if place in labels or place in words]
            written = [written_as(place, names, width) for place in asked]
            listed = as_line(dict.fromkeys(written))
            message = (
                f"column {listed} may be labels or numbers of rows, or is empty; write "
                f"drop: [{listed}]"
            )
            if not {*asked} & {*words}:
                message += ", or columns: all to train on them"
            raise FieldError(message)
        return kept


def _without_fraction(column: Any) -> str:
    """Return a name or a number as text, 3.0 as 3."""
    if isinstance(column, float) and column.is_integer():
        return str(int(column))
    return str(column)


def _items(text: str) -> list[str]:
    fields = next(csv.reader([text], skipinitialspace=True), [])
    return [field.strip() for field in fields]


def _in_order(units: Names, names: Mapping[int, str]) -> list[int]:
    """Return the places of columns in the order of other ones of the same names;
    FieldError if one is missing, or there twice.
    """
    if units == tuple(names.values()):
        return list(names)
    counts = Counter(names.values())
    for unit in units:
        if counts[unit] != 1:
            raise FieldError(
                f"has {count(counts[unit], 'column')} {unit}, where the machine or the "
                f"training part has one; it has {shortened(', '.join(names.values()))}"
            )
    places = {name: place for place, name in names.items()}
    return [places[unit] for unit in units]


def _listed_places(
    field: str, text: str, names: Sequence[str], width: int
) -> list[int]:
    """Return the places of the columns that a text lists; each once."""
    places: list[int] = []
    for item in _items(text):
        named = [place for place, name in enumerate(names) if name == item]
        counted = _place_by_number(item, width)
        if named and counted is not None and counted not in named:
            raise FieldError(
                f"{item} is column {counted + 1} by number and column {named[0] + 1} "
                f"by name; count from the end: {counted - width} or {named[0] - width}",
                field,
            )
        if named:
            places += named
        elif counted is not None:
            places.append(counted)
        else:
            hint = did_you_mean(item, names) if names else "; its columns have no names"
            raise FieldError(
                f"has no column {shortened(item)}; they are 1 to {width:,}{hint}", field
            )
    return list(dict.fromkeys(places))


def _place_by_number(item: str, width: int) -> int | None:
    """Return the place of a column by its number, from 1 or from the end; None for
    other texts.
    """
    if item == "last":
        return width - 1
    if not re.fullmatch(r"-?\d{1,9}", item):
        return None
    number = int(item)
    place = number - 1 if number > 0 else width + number
    return place if number and 0 <= place < width else None
