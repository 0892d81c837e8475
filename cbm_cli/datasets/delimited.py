"""Text in columns, as pandas reads it; whether a first line of names is one is asked
where in doubt.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pandas as pd

from cbm_cli.arrays import check_size
from cbm_cli.datasets.dataset import Image
from cbm_cli.errors import FieldError
from cbm_cli.text import count, shortened

_WIDEST = 100_000  # columns, each of which pandas keeps apart
_GAPS = ["?", "-", "."]  # which pandas does not know as gaps
_GAP = re.compile(r"[?.-]?|<?na>?|#?n/a|nan|null|none", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?)", re.IGNORECASE)
_ASK = "write header: true or header: false"
TRUTH = {"true": 1.0, "false": 0.0}
_DIGITS = re.compile(r"[\d\s.,'%/:+-]+")  # 1,000 or 10%, which may be values


@dataclass(frozen=True)
class Rows:
    """Rows as they are given: numbers, text and gaps."""

    frame: pd.DataFrame
    names: list[
        str
    ]  # of the columns, if they have some; an empty one of a column without a name
    image: Image | None = None  # how to draw a row, where that is known
    at: Callable[[int], str] = lambda row: f"row {row + 1}"  # where a row is


def read_text(content: bytes, header: bool | None = None) -> Rows:
    """Return the rows of text; tabs, semicolons, bars, commas or blanks separate their
    columns.

    Lines above the first row that begin with # are comments; the last one may hold the
    names. FieldError if the first line may hold names or values, and ``header`` is not
    given.
    """
    skipped, comment, body, mark = _start_of(content)

    def records(skip: int = 0) -> Iterator[tuple[int, list[str]]]:
        found = _records(io.TextIOWrapper(io.BytesIO(body), "utf-8", newline=""), mark)
        return (
            (skipped + number, fields) for number, fields in islice(found, skip, None)
        )

    (_, first), (_, second), *_ = *islice(records(), 2), (0, [])
    (_, above), *_ = *_records([comment.removeprefix("# ")], mark), (0, [])
    names = _names(first, second, above if len(above) == len(first) else [], header)
    top = int(names is first)
    width = len(second if top else first)
    if top and not second:
        line, _, _ = body.partition(b"\n")
        raise FieldError(
            f"holds names and no rows of numbers: {shortened(line.decode().strip())}"
        )
    if width > _WIDEST:
        raise FieldError(f"has more than {_WIDEST:,} columns; save it as NPY")
    check_size(8 * (body.count(b"\n") + (not body.endswith(b"\n")) - top) * width)
    how: dict[str, Any] = {
        "sep": r"\s+" if mark == " " else mark,
        "skipinitialspace": True,
    }
    how |= {"header": None, "skiprows": top, "na_values": _GAPS, "low_memory": False}
    frame = pd.DataFrame()
    with suppress(pd.errors.ParserError):  # a line is too long, or a quote does not end
        frame = pd.read_csv(io.BytesIO(body), **how)
    if (
        frame.empty or b'"' in body or frame.iloc[:, -1].isna().any()
    ):  # pandas fills up short lines
        rows = 0
        for rows, (number, fields) in enumerate(records(top), 1):  # noqa: B007
            if len(fields) != width:
                told = (
                    f"line {number} has {count(len(fields), 'column')}, the lines "
                    f"before it {width:,}"
                )
                hint = (
                    "is it cut short"
                    if len(fields) < width
                    else "does a value hold the separator"
                )
                raise FieldError(f"{told}; {hint}?")
        if frame.shape != (rows, width):
            raise FieldError("has quotes that do not end, or are within a value")
    if (
        names and len(names) == width - 1
    ):  # marks at the ends of lines, or names of rows, as R writes them
        names = [*names, ""] if frame.iloc[:, -1].isna().all() else ["", *names]
    if names and len(names) != width:
        raise FieldError(
            f"has {len(names):,} names of columns, and {width:,} columns in its rows"
        )
    if not names and header is None:
        _check_first_row(frame)
    return Rows(frame, names, at=lambda row: f"line {next(records(top + row))[0]}")


def _start_of(content: bytes) -> tuple[int, str, bytes, str]:
    """Return the number of lines that are empty or comments, the last comment, the text
    below, and its mark.

    The mark separates columns: two lines have it equally often, and more often than
    others.
    """
    skipped, comment, stream = 0, "", io.BytesIO(content)
    for raw in stream:
        line = raw.decode().strip()
        if line and not line.startswith("#"):
            break
        skipped, comment = skipped + 1, line or comment
    else:
        raise FieldError("holds no rows")
    body = content[stream.tell() - len(raw) :]
    lines = islice((raw for raw in io.BytesIO(body) if raw.strip()), 2)
    bare = [re.sub(b'"[^"]*"', b"", line) for line in lines]
    counts = {mark: [line.count(mark.encode()) for line in bare] for mark in "\t;|,"}
    mark = max(
        counts,
        key=lambda mark: (
            len({*counts[mark]}) == 1 and any(counts[mark]),
            sum(counts[mark]),
        ),
    )
    return skipped, comment, body, mark if any(counts[mark]) else " "


def _records(lines: Iterable[str], mark: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line, from 1, and the fields of each record, without quotes."""
    lines = (" ".join(line.split()) + "\n" for line in lines) if mark == " " else lines
    reader, number = csv.reader(lines, delimiter=mark, skipinitialspace=True), 1
    for fields in reader:
        if len(fields) > 1 or "".join(fields).strip():
            yield number, [field.strip() for field in fields]
        number = reader.line_num + 1


def _names(
    first: list[str], second: list[str], above: list[str], header: bool | None
) -> list[str]:
    """Return the names in the first line, or in the comment above it; FieldError if
    that is in doubt.
    """
    named, commented = (
        _are_names(first, second),
        bool(above) and _are_names(above, first),
    )
    if header is False or (header is None and named is False and commented is False):
        return []
    if named or (header and commented is False):
        return first
    if header or commented:
        return above
    shown = shortened(
        ", ".join(field or "''" for field in (above if commented is None else first))
    )
    raise FieldError(
        f"the first line, {shown}, may hold names or values; {_ASK}", "header"
    )


def _are_names(fields: list[str], below: list[str]) -> bool | None:
    """Whether fields are names of columns, and no values; None if they may be either.

    Words are names, where they are more than digits and marks, and the line has no
    numbers and no gaps. Numbers may be names if they are whole and all different, or if
    the line has a word above a number.
    """
    numbers = [float(field) for field in fields if _NUMBER.fullmatch(field)]
    gaps = [n for n, field in enumerate(fields) if _GAP.fullmatch(field)]
    truth, valued = (
        [field.lower() in TRUTH for field in fields],
        (_NUMBER.fullmatch, _GAP.fullmatch),
    )
    words = [
        n
        for n, it in enumerate(fields)
        if not truth[n] and not any(match(it) for match in valued)
    ]
    if not numbers and not any(
        truth
    ):  # the first column or the last one may have no name
        odd = [n for n in gaps if fields[n] or 0 < n < len(fields) - 1]
        plain = all(_DIGITS.fullmatch(fields[n]) for n in words)
        return None if words and (odd or plain) else bool(words)
    if any(_NUMBER.fullmatch(below[n]) for n in words if n < len(below)):
        return None
    repeated = any(truth) or len({*numbers}) < len(numbers)
    return (
        False
        if repeated or not all(number.is_integer() for number in numbers)
        else None
    )


def _check_first_row(frame: pd.DataFrame) -> None:
    """Refuse a first row of numbers unlike those of all other rows, which may be
    names.
    """
    numeric = frame.select_dtypes("number")
    first, rest = numeric.iloc[0], numeric.iloc[1:]
    beyond = first[
        (first < min(0, rest.min().min())) | (first > max(1, rest.max().max()))
    ]
    if beyond.empty and (first % 1).any() and not (rest % 1).any(axis=None):
        beyond = first[first % 1 != 0]
    if len(beyond) and len(rest):
        told = (
            f"the first line alone holds values as {beyond.iloc[0]:g}, and may "
            "hold names"
        )
        raise FieldError(f"{told}; {_ASK}", "header")
