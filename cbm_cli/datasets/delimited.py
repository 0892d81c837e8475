"""Text in columns, as pandas reads it; cbm asks whether a first line in doubt holds
names.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import pandas as pd

from cbm_cli.arrays import check_size
from cbm_cli.datasets.dataset import Image, Names
from cbm_cli.errors import FieldError
from cbm_cli.text import count, shortened

_WIDEST = 100_000  # columns, each of which pandas keeps apart
_GAPS = ["?", "-", "."]  # which pandas does not know as gaps
_GAP = re.compile(r"[?.-]?|<?na>?|#?n/a|nan|null|none", re.IGNORECASE)
_NUMBER = re.compile(
    r"[+-]?((\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|inf(inity)?)", re.IGNORECASE
)
_FIGURE = re.compile(r"[\d\s.,'%/:+-]+")  # 1,000 or 10%, which may be values
_EXCEL = re.compile(rb'"?sep=[^"]{0,2}"?', re.IGNORECASE)
TRUTH = {"true": 1.0, "false": 0.0}

Kind = Literal["number", "gap", "figure", "word"]  # of a field
Meaning = Literal["names", "row", "doubt"]  # of a line


def _row_number(row: int) -> str:
    return f"row {row + 1}"


@dataclass(frozen=True)
class Rows:
    """Rows as a file or a caller has them: numbers, text and gaps."""

    frame: pd.DataFrame
    # of the columns, if they have some; an empty one of a column without a name
    names: list[str]
    image: Image | None = None  # how to draw a row, where that is known
    at: Callable[[int], str] = _row_number  # where a row is


@dataclass(frozen=True)
class _Text:
    """Text from its first row on, and the lines above it."""

    body: bytes
    mark: str  # separates columns
    comment: str  # the last one above the rows
    skipped: int  # lines above the rows

    def records(self, skip: int = 0) -> Iterator[tuple[int, list[str]]]:
        """Yield the line and the fields of each record but the first ones."""
        stream = io.TextIOWrapper(io.BytesIO(self.body), "utf-8", newline="")
        for number, fields in islice(_records(stream, self.mark), skip, None):
            yield self.skipped + number, fields

    def comment_fields(self) -> list[str]:
        """Return the fields of the comment."""
        records = _records([self.comment.removeprefix("# ")], self.mark)
        _, fields = next(records, (0, []))
        return fields


def read_text(content: bytes, header: bool | None = None, expected: Names = ()) -> Rows:
    r"""Return the rows of text.

    Tabs, semicolons, bars, commas or blanks separate columns. Lines above the first row
    that begin with # are comments; the last one may hold the names.

    Parameters
    ----------
    content : bytes
        Text in UTF-8 with ``\n`` at the ends of lines.
    header : bool, optional
        Whether the first line holds names. FieldError without it, if the line may hold
        names or values.
    expected : tuple of str
        Names of a machine's columns. A line that holds all of them holds names.

    Examples
    --------
    >>> rows = read_text(b"a;b\n0;1\n1;?\n")
    >>> rows.names, rows.at(1)
    (['a', 'b'], 'line 3')
    >>> rows.frame.isna().to_numpy().tolist()
    [[False, False], [False, True]]
    """
    text = _split(content)
    above = text.comment_fields()
    start = [fields for _, fields in islice(text.records(), 2)]
    first, second = [*start, []][:2]
    top, names = _names_above(first, second, above, header, expected)
    width = len(second) if top else len(first)
    if not width:
        listed = shortened(", ".join(names))
        raise FieldError(f"holds names and no rows of numbers: {listed}")
    frame = _frame(text, top, width)
    if names and len(names) == width - 1:
        # marks at the ends of lines, or names of rows, as R writes them
        at_end = frame.iloc[:, -1].isna().all()
        names = [*names, ""] if at_end else ["", *names]
    if names and len(names) != width:
        raise FieldError(
            f"has {len(names):,} names of columns, and {width:,} columns in its rows"
        )
    if not names and header is None:
        _check_first_row(frame)

    def at(row: int) -> str:
        line, _ = next(text.records(top + row))
        return f"line {line}"

    return Rows(frame, names, at=at)


def kind_of(field: str) -> Kind:
    """Return what a field is.

    A figure has digits and marks only, as 1,000 or 10%.

    Examples
    --------
    >>> [kind_of(field) for field in ("0.3", "true", "?", "0,3", "a")]
    ['number', 'number', 'gap', 'figure', 'word']
    """
    if field.lower() in TRUTH or _NUMBER.fullmatch(field):
        return "number"
    if _GAP.fullmatch(field):
        return "gap"
    return "figure" if _FIGURE.fullmatch(field) else "word"


def _split(content: bytes) -> _Text:
    """Return text without the lines above its first row; FieldError for no row."""
    skipped, start, comment = 0, 0, ""
    for raw in io.BytesIO(content):
        line = raw.decode().strip()
        if line and not line.startswith("#"):
            break
        skipped += 1
        start += len(raw)
        comment = line or comment
    body = content[start:]
    if not body:
        raise FieldError("holds no rows")
    if _EXCEL.fullmatch(raw.strip()):
        raise FieldError(
            f"line {skipped + 1} ({line}) names the separator for Excel and is not a "
            "row; remove this line"
        )
    filled = (raw for raw in io.BytesIO(body) if raw.strip())
    return _Text(body, _mark_of(islice(filled, 2)), comment, skipped)


def _mark_of(lines: Iterable[bytes]) -> str:
    """Return the mark that separates the columns of lines.

    It is the first one that all lines have equally often, in an order in which decimal
    commas come last; else one that they have at all, else a blank.
    """
    unquoted = [re.sub(b'"[^"]*"', b"", line) for line in lines]
    some = " "
    for mark in "\t;|,":
        counts = {line.count(mark.encode()) for line in unquoted}
        if len(counts) == 1 and counts != {0}:
            return mark
        if counts != {0}:
            some = mark
    return some


def _records(lines: Iterable[str], mark: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line, from 1, and the fields of each record, without quotes."""
    if mark == " ":
        lines = (" ".join(line.split()) + "\n" for line in lines)
    reader = csv.reader(lines, delimiter=mark, skipinitialspace=True)
    number = 1
    for fields in reader:
        if len(fields) > 1 or "".join(fields).strip():
            yield number, [field.strip() for field in fields]
        number = reader.line_num + 1


def _names_above(
    first: list[str],
    second: list[str],
    above: list[str],
    header: bool | None,
    expected: Names,
) -> tuple[int, list[str]]:
    """Return the lines that names of columns take, and the names, which may also be
    those of a comment; FieldError if that is in doubt.
    """
    if header is False:
        return 0, []
    if expected and {*expected} <= {*first}:
        return 1, first
    line = _meaning(first, second)
    comment: Meaning = "row"
    if above and len(above) == len(first):
        comment = _meaning(above, first)
    if line == "names" or (header and comment == "row"):
        return 1, first
    if comment == "names" or header:
        return 0, above
    if line == comment == "row":
        return 0, []
    fields = above if comment == "doubt" else first
    shown = shortened(", ".join(field or "''" for field in fields))
    raise _doubt(f"the first line, {shown}, may hold names or values")


def _doubt(cause: str) -> FieldError:
    return FieldError(
        f"{cause}; write header: true or header: false; values have no commas, % or "
        "other marks, as 0.3 or 1000",
        "header",
    )


def _meaning(fields: list[str], below: list[str]) -> Meaning:
    """Return what a line holds: names of columns, values, or either.

    Words are names if the line has no numbers, and no gaps but columns without a name.
    A word above a number may be a name, and so may numbers that are whole and all
    different.
    """
    kinds = [kind_of(field) for field in fields]
    if "word" in kinds and not {"number", "gap"} & {
        *map(kind_of, filter(None, fields))
    }:
        return "names"
    pairs = zip(kinds, map(kind_of, below), strict=False)
    if {("word", "number"), ("figure", "number")} & {*pairs}:
        return "doubt"
    numbers = [float(field) for field in fields if _NUMBER.fullmatch(field)]
    if not numbers or len({*numbers}) < len(numbers):
        return "row"
    return "doubt" if all(number.is_integer() for number in numbers) else "row"


def _frame(text: _Text, top: int, width: int) -> pd.DataFrame:
    """Return the rows below the names; FieldError for rows of different widths."""
    if width > _WIDEST:
        raise FieldError(f"has more than {_WIDEST:,} columns; save it as NPY")
    ends = text.body.count(b"\n")
    lines = ends if text.body.endswith(b"\n") else ends + 1
    check_size(8 * (lines - top) * width)
    options: dict[str, Any] = {
        "sep": r"\s+" if text.mark == " " else text.mark,
        "skipinitialspace": True,
        "header": None,
        "skiprows": top,
        "na_values": _GAPS,
        "low_memory": False,
    }
    frame = pd.DataFrame()
    with suppress(pd.errors.ParserError):  # a line is too long, or a quote does not end
        frame = pd.read_csv(io.BytesIO(text.body), **options)
    # pandas fills up short lines
    if frame.empty or b'"' in text.body or frame.iloc[:, -1].isna().any():
        rows = _count_rows(text, top, width)
        if frame.shape != (rows, width):
            raise FieldError("has quotes that do not end, or are within a value")
    return frame


def _count_rows(text: _Text, top: int, width: int) -> int:
    """Return the number of rows; FieldError for one of another width."""
    rows = 0
    for number, fields in text.records(top):
        rows += 1
        if len(fields) != width:
            hint = "does a value hold the separator?"
            if len(fields) < width:
                hint = "is it cut short?"
            columns = count(len(fields), "column")
            raise FieldError(
                f"line {number} has {columns}, the lines before it {width:,}; {hint}"
            )
    return rows


def _check_first_row(frame: pd.DataFrame) -> None:
    """Refuse a first row of numbers unlike those of all other rows, which may be
    names.
    """
    numeric = frame.select_dtypes("number")
    first, others = numeric.iloc[0].dropna(), numeric.iloc[1:]
    low, high = min(0, others.min().min()), max(1, others.max().max())
    is_odd = (first < low) | (first > high)
    if not (others % 1).any(axis=None):
        is_odd |= first % 1 != 0
    if is_odd.any() and len(others):
        odd = first[is_odd].iloc[0]
        raise _doubt(
            f"the first line alone holds values as {odd:g}, and may hold names"
        )
