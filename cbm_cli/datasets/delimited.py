"""Text in columns, as pandas reads it; whether a first line of names is one is asked where in doubt."""

import csv
import io
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pandas as pd

from cbm_cli.arrays import check_size
from cbm_cli.datasets.dataset import DataError
from cbm_cli.text import shortened

_WIDEST = 100_000  # columns, each of which pandas keeps apart
_GAPS = ["?", "-", "."]  # which pandas does not know as gaps
_GAP = re.compile(r"[?.-]?|<?na>?|#?n/a|nan|null|none", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?)", re.IGNORECASE)
_TRUTH = re.compile("true|false", re.IGNORECASE)
_ASK = "write header: true or header: false"


@dataclass(frozen=True)
class Text:
    """Rows of text, the names of their columns, if they have some, and the line of each row."""

    frame: pd.DataFrame
    names: list[str]  # an empty one of a column without a name
    lines: Sequence[int]


def read_text(content: bytes, header: bool | None = None) -> Text:
    """Return the rows of text; tabs, semicolons, bars, commas or blanks separate their columns.

    Lines above the first row that begin with # are comments; the last one may hold the names. DataError if
    the first line may hold names or values, and ``header`` does not say which.
    """
    skipped, comment, stream = 0, "", io.BytesIO(content)
    for raw in stream:
        line = raw.decode().strip()
        if line and not line.startswith("#"):
            break
        skipped, comment = skipped + 1, line or comment
    else:
        raise DataError("holds no rows")
    body = content[stream.tell() - len(raw) :]
    mark = _mark_of(islice((raw for raw in io.BytesIO(body) if raw.strip()), 2))
    records = _records(io.TextIOWrapper(io.BytesIO(body), "utf-8", newline=""), mark)
    (_, first), (_, second), *_ = *islice(records, 2), (0, [])
    (_, above), *_ = *_records([comment.removeprefix("# ")], mark), (0, [])
    names = _names(first, second, above if len(above) == len(first) else [], header)
    lines, width = array("q"), 0
    for number, found in islice(_widths(body, mark), int(names is first), None):
        if lines and found != width:
            told = f"line {skipped + number} has {found:,} columns, the lines before it {width:,}"
            raise DataError(f"{told}; is it cut short?")
        width = found
        lines.append(skipped + number)
    if not lines:
        raise DataError(f"holds names and no rows of numbers: {shortened(line)}")
    if width > _WIDEST:
        raise DataError(f"has more than {_WIDEST:,} columns; save it as NPY")
    check_size(8 * len(lines) * width)
    how: dict[str, Any] = {"sep": r"\s+" if mark == " " else mark, "skipinitialspace": True}
    how |= {"header": None, "skiprows": int(names is first), "na_values": _GAPS, "low_memory": False}
    frame = pd.read_csv(io.BytesIO(body), **how)
    if frame.shape != (len(lines), width):
        raise DataError("has quotes that do not end, or stand within a value")
    if (
        names and len(names) == width - 1
    ):  # marks at the ends of all lines, or names of rows, as R writes them
        names = [*names, ""] if frame.iloc[:, -1].isna().all() else ["", *names]
    if names and len(names) != width:
        raise DataError(f"has {len(names):,} names of columns, and {width:,} columns in its rows")
    if not names and header is None:
        _check_first_row(frame)
    return Text(frame, names, lines)


def _mark_of(lines: Iterable[bytes]) -> str:
    """Return what separates the columns: the mark that stands equally often in two lines, and most often."""
    bare = [re.sub(b'"[^"]*"', b"", line) for line in lines]
    counts = {mark: [line.count(mark.encode()) for line in bare] for mark in "\t;|,"}
    mark = max(counts, key=lambda mark: (len({*counts[mark]}) == 1 and any(counts[mark]), sum(counts[mark])))
    return mark if any(counts[mark]) else " "


def _records(lines: Iterable[str], mark: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line, from 1, and the fields of each record, without quotes."""
    lines = (" ".join(line.split()) + "\n" for line in lines) if mark == " " else lines
    reader, number = csv.reader(lines, delimiter=mark, skipinitialspace=True), 1
    for fields in reader:
        if len(fields) > 1 or "".join(fields).strip():
            yield number, [field.strip() for field in fields]
        number = reader.line_num + 1


def _widths(body: bytes, mark: str) -> Iterator[tuple[int, int]]:
    """Yield the first line and the number of fields of each record; pandas would fill up short ones."""
    if b'"' in body:
        for number, fields in _records(io.TextIOWrapper(io.BytesIO(body), "utf-8", newline=""), mark):
            yield number, len(fields)
        return
    blank = b" \n" if mark == "\t" else b" \t\n"
    for number, raw in enumerate(io.BytesIO(body), 1):
        if raw.strip(blank):
            yield number, len(raw.split()) if mark == " " else raw.count(mark.encode()) + 1


def _names(first: list[str], second: list[str], above: list[str], header: bool | None) -> list[str]:
    """Return the names in the first line, or in the comment above it; DataError if that is in doubt."""
    named, commented = _are_names(first, second), bool(above) and _are_names(above, first)
    if header is False or (header is None and named is False and commented is False):
        return []
    if named or (header and commented is False):
        return first
    if header or commented:
        return above
    shown = shortened(", ".join(field or "''" for field in (above if commented is None else first)))
    raise DataError(f"the first line, {shown}, may hold names or values; {_ASK}", "header")


def _are_names(fields: list[str], below: list[str]) -> bool | None:
    """Whether fields are names of columns, and no values; None if they may be either.

    Words are names, where no number and no gap stands beside them. Numbers may be names if they are whole
    and none stands twice, or if a word beside them stands above a number.
    """
    numbers = [float(field) for field in fields if _NUMBER.fullmatch(field)]
    truth = any(map(_TRUTH.fullmatch, fields))
    gaps = [n for n, field in enumerate(fields) if _GAP.fullmatch(field)]
    valued = (_NUMBER.fullmatch, _TRUTH.fullmatch, _GAP.fullmatch)
    words = [n for n, field in enumerate(fields) if not any(match(field) for match in valued)]
    if not numbers and not truth:  # the first column or the last one may have no name
        odd = [n for n in gaps if fields[n] or 0 < n < len(fields) - 1]
        return None if words and odd else bool(words)
    if any(_NUMBER.fullmatch(below[n]) for n in words if n < len(below)):
        return None
    repeated = truth or len({*numbers}) < len(numbers)
    return False if repeated or not all(number.is_integer() for number in numbers) else None


def _check_first_row(frame: pd.DataFrame) -> None:
    """Refuse a first row of numbers unlike those of all other rows, which may be names."""
    numeric = frame.select_dtypes("number")
    first, rest = numeric.iloc[0], numeric.iloc[1:]
    if rest.empty:
        return
    beyond = first[(first < min(0, rest.min().min())) | (first > max(1, rest.max().max()))]
    if beyond.empty and (first % 1).any() and not (rest % 1).any(axis=None):
        beyond = first[first % 1 != 0]
    if not beyond.empty:
        told = f"the first line alone holds values as {beyond.iloc[0]:g}, and may hold names"
        raise DataError(f"{told}; {_ASK}", "header")
