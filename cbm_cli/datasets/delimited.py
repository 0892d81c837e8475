"""Text in columns, as pandas reads it; cbm asks whether a first line in doubt holds
names.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
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
_DECIMAL_COMMA = re.compile(rb"\s*[+-]?(\d+|\d*,\d+)\s*")  # 0,3; or a whole number
_EXCEL = re.compile(rb'"?sep=[^"]{0,2}"?', re.IGNORECASE)
TRUTH = {"true": 1.0, "false": 0.0}

Kind = Literal["number", "truth", "gap", "figure", "word"]  # of a field
Meaning = Literal["names", "row", "doubt"]  # of a line
Place = Literal["first line", "comment", "nowhere"]  # of the names


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
        for _, fields in records:
            return fields
        return []


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
    place = _place_of_names(first, second, above, header, expected)
    top, names, width = 0, list[str](), len(first)
    if place == "first line":
        top, names, width = 1, first, len(second)
        if not second:
            line = text.body.partition(b"\n")[0].decode().strip()
            raise FieldError(f"holds names and no rows of numbers: {shortened(line)}")
    elif place == "comment":
        names = above
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
    ['number', 'truth', 'gap', 'figure', 'word']
    """
    if field.lower() in TRUTH:
        return "truth"
    if _NUMBER.fullmatch(field):
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
    mark = _mark_of(list(islice(filled, 2)))
    return _Text(body, mark, comment, skipped)


def _mark_of(lines: Sequence[bytes]) -> str:
    """Return the mark that separates the columns of lines.

    All lines have it equally often, and more often than other marks; or it separates
    numbers with decimal commas.
    """
    for mark in ";\t| ":
        if all(_has_decimal_commas(line, mark.encode()) for line in lines):
            return mark
    unquoted = [re.sub(b'"[^"]*"', b"", line) for line in lines]
    best, most = " ", (False, 0)
    for mark in "\t;|,":
        counts = [line.count(mark.encode()) for line in unquoted]
        alike = counts[0] > 0 and len({*counts}) == 1
        if sum(counts) and (alike, sum(counts)) > most:
            best, most = mark, (alike, sum(counts))
    return best


def _has_decimal_commas(line: bytes, mark: bytes) -> bool:
    """Whether a mark separates a line into numbers, at least one with a comma."""
    fields = line.strip().split(mark)
    numbers = all(_DECIMAL_COMMA.fullmatch(field) for field in fields)
    return numbers and len(fields) > 1 and b"," in line


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


def _place_of_names(
    first: list[str],
    second: list[str],
    above: list[str],
    header: bool | None,
    expected: Names,
) -> Place:
    """Return where the names of columns are; FieldError if that is in doubt."""
    if header is False:
        return "nowhere"
    if expected and {*expected} <= {*first}:
        return "first line"
    line = _meaning(first, second)
    comment: Meaning = "row"
    if above and len(above) == len(first):
        comment = _meaning(above, first)
    if line == "names" or (header and comment == "row"):
        return "first line"
    if comment == "names" or header:
        return "comment"
    if line == comment == "row":
        return "nowhere"
    fields = above if comment == "doubt" else first
    shown = shortened(", ".join(field or "''" for field in fields))
    hint = ""
    if any(kind_of(field) == "figure" for field in fields):
        hint = "; values have no commas, % or other marks, as 0.3 or 1000"
    raise _doubt(f"the first line, {shown}, may hold names or values", hint)


def _doubt(cause: str, hint: str = "") -> FieldError:
    remedy = f"write header: true or header: false{hint}"
    return FieldError(f"{cause}; {remedy}", "header")


def _meaning(fields: list[str], below: list[str]) -> Meaning:
    """Return what a line holds: names of columns, values, or either.

    Words are names if the line has no numbers and no gaps. Numbers may be names if they
    are whole and all different, or if the line has a word above a number.
    """
    kinds = [kind_of(field) for field in fields]
    kinds_below = [kind_of(field) for field in below]
    pairs = list(zip(kinds, kinds_below, strict=False))
    if "number" not in kinds and "truth" not in kinds:
        return _meaning_of_words(_without_empty_end(fields, below), pairs)
    if ("word", "number") in pairs or ("figure", "number") in pairs:
        return "doubt"
    if "truth" in kinds:
        return "row"
    numbers = [float(field) for field in fields if _NUMBER.fullmatch(field)]
    whole = all(number.is_integer() for number in numbers)
    different = len({*numbers}) == len(numbers)
    return "doubt" if whole and different else "row"


def _meaning_of_words(fields: list[str], pairs: list[tuple[Kind, Kind]]) -> Meaning:
    """Return what a line without numbers holds."""
    kinds = [kind_of(field) for field in fields]
    if "word" not in kinds and "figure" not in kinds:
        return "row"
    if "word" not in kinds:  # 0,3 above 0,1 is a value, above 1 it may be a name
        figures = [below for kind, below in pairs if kind == "figure"]
        alike = figures and all(below == "figure" for below in figures)
        return "row" if alike else "doubt"
    # the first column or the last one may have no name
    inner = [kind for kind, field in zip(kinds, fields, strict=True) if field]
    unnamed = "" in fields[1:-1]
    return "doubt" if unnamed or "gap" in inner else "names"


def _without_empty_end(fields: list[str], below: list[str]) -> list[str]:
    """Return fields without the last ones that are empty, as in the line below."""
    end = len(fields)
    while 0 < end <= len(below) and not fields[end - 1] and not below[end - 1]:
        end -= 1
    return fields[:end]


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
    first, others = numeric.iloc[0], numeric.iloc[1:]
    low, high = min(0, others.min().min()), max(1, others.max().max())
    odd = first[(first < low) | (first > high)]
    if odd.empty and not (others % 1).any(axis=None):
        odd = first[(first % 1).fillna(0) != 0]
    if len(odd) and len(others):
        raise _doubt(
            f"the first line alone holds values as {odd.iloc[0]:g}, and may hold names"
        )
