"""Which columns of a file are units: those chosen or not dropped; labels are asked about."""

import csv
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cbm_cli.datasets.dataset import DataError
from cbm_cli.text import CONTROL, did_you_mean, shortened

_LABEL = re.compile(r"(.*[ _.-])?(class|label|target|id|index)(e?s)?|y", re.IGNORECASE)
_LONGEST = 10_000  # characters of a list of columns
_NUMBERS = re.compile(r"(\d{1,16})(?:\s*-\s*(\d{1,16}))?")


def columns_text(given: Any) -> Any:
    """Return names and numbers of columns, a list or text separated by commas, as canonical text."""
    text = as_line(map(str, given)) if isinstance(given, list | tuple) else given
    if not isinstance(text, str):
        return text
    bad = CONTROL.search(text) or len(text) > _LONGEST
    items = [item.strip() for item in next(csv.reader([text], skipinitialspace=True), [])] if not bad else []
    if not items or not all(items):
        raise ValueError("must be names or numbers of columns, as in [id, 3, 10-20]")
    return as_line(items)


def as_line(items: Iterable[str]) -> str:
    """Return items separated by commas, in quotes where need be."""
    quoted = ('"' + item.replace('"', '""') + '"' if re.search('[,"]', item) else item for item in items)
    return ", ".join(quoted)


@dataclass(frozen=True)
class Columns:
    """The columns of a data set's files that are units."""

    chosen: str | None = None  # names, numbers from 1, and ranges; None: all
    dropped: str | None = None
    without_last: bool = False

    def __bool__(self) -> bool:
        return bool(self.chosen or self.dropped or self.without_last)

    def places(
        self, where: object, names: Sequence[str], width: int, words: Collection[int] = ()
    ) -> list[int] | None:
        """Return the columns that are units, from 0; None for all of them.

        ``names`` are those in the file's first line, if it has any; ``words`` are columns that hold text.
        DataError for columns that are not there, for nothing left, and for names of labels that were neither
        chosen nor dropped.
        """
        if self.without_last and width < 2:
            raise DataError(
                f"{where}: has a single column; drop_last leaves nothing", "drop_last", "unsuited"
            )
        chosen = _found(where, "columns", self.chosen, names, width) if self.chosen else range(width)
        out = set(_found(where, "drop", self.dropped, names, width)) if self.dropped else set()
        if out and out.isdisjoint(chosen):
            told = f"{where}: columns: {self.chosen} leaves out {self.dropped} already; remove drop"
            raise DataError(told, "drop", "unsuited")
        out |= {width - 1} if self.without_last else set()
        kept = [place for place in chosen if place not in out]
        if not kept:
            field = "drop" if self.dropped else "columns"
            raise DataError(f"{where}: no column is left", field, "unsuited")
        if not self.chosen:
            _ask(where, names, kept, width, words)
        return kept if self else None


def _ask(
    where: object, names: Sequence[str], kept: Sequence[int], width: int, words: Collection[int]
) -> None:
    """Refuse columns that look like labels or numbers of rows, with those of text, unless they were named."""
    odd = [place for place in kept if place < len(names) and _LABEL.fullmatch(names[place] or "id")]
    if odd:
        odd = [place for place in kept if place in odd or place in words]
        which = f"column {odd[0] + 1} has no name, as if it numbered the rows"
        listed = as_line(names[place] or str(place + 1) for place in odd)
        if names[odd[0]]:
            which = f"column{'s' * (len(odd) > 1)} {listed} may be labels or numbers of rows, by name"
        instead = "" if {*odd} & {*words} else f", or columns: 1-{width} to train on all"
        raise DataError(
            f"{where}: {which}; write drop: [{listed}] to leave out{instead}",
            "path",
            "missing",
        )


def _found(where: object, field: str, text: str, names: Sequence[str], width: int) -> list[int]:
    """Return the places of the columns that a text names; each once."""
    places: list[int] = []
    for item in next(csv.reader([text], skipinitialspace=True)):
        match = _NUMBERS.fullmatch(item)
        if item in names and not item.isdigit():
            places += [place for place, name in enumerate(names) if name == item]
        elif match:
            first, last = int(match[1]), int(match[2] or match[1])
            if not 1 <= first <= last <= width:
                told = f"{where}: has no column {item}; they are 1 to {width:,}"
                raise DataError(told, field, "unknown")
            places += range(first - 1, last)
        elif names:
            told = f"{where}: has no column {shortened(item)}{did_you_mean(item, names[:20])}"
            raise DataError(told, field, "unknown")
        else:
            raise DataError(
                f"{where}: its columns have no names, so that {shortened(item)} is unknown; "
                f"write a number from 1 to {width:,}",
                field,
                "unknown",
            )
    return list(dict.fromkeys(places))


ALL = Columns()
