"""Which columns are units: those chosen or not dropped, by name or number; labels are
asked about.
"""

import csv
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cbm_cli.errors import FieldError
from cbm_cli.text import CONTROL, did_you_mean, shortened

_LABEL = re.compile(
    r"(?i)(.*[ _.-])?(class|label|target|id|index)(e?s)?|y|#|(row|no|nr)\.?"
    r"|outcome|response|unnamed: ?\d+"
)
_LONGEST = 10_000  # characters of a list of columns


def columns_text(given: Any) -> str:
    """Return names and numbers of columns, a list or text separated by commas, as
    canonical text.
    """
    given = (
        given.tolist() if hasattr(given, "tolist") else given
    )  # NumPy's numbers and arrays
    text = given = [given] if type(given) in (int, float) else given
    if isinstance(given, Iterable) and not isinstance(
        given, str | bytes | Mapping | set
    ):
        whole = (
            int(one) if isinstance(one, float) and one.is_integer() else one
            for one in given
        )
        text = as_line(map(str, whole))
    odd = not isinstance(text, str) or len(text) > _LONGEST or CONTROL.search(text)
    items = [] if odd else _items(str(text))
    if not items or not all(items) or {"True", "False"} & {*items}:
        raise ValueError("must be names or numbers of columns, as in [id, 3, last]")
    return as_line(items)


def as_line(items: Iterable[str]) -> str:
    """Return items separated by commas, in quotes where need be."""
    quoted = (
        '"' + item.replace('"', '""') + '"' if re.search('[,"]', item) else item
        for item in items
    )
    return ", ".join(quoted)


def written_as(place: int, names: Sequence[str], width: int) -> str:
    """Return how a grid names a column: by a plain name, or by a number that is not
    another column's name.
    """
    if (
        names
        and re.fullmatch(r"[^\W\d][\w .-]*", names[place])
        and names[place] not in ("all", "last")
    ):
        return names[place]
    return str(place + 1) if str(place + 1) not in names else str(place - width)


def _items(text: str) -> list[str]:
    return [
        item.strip() for item in next(csv.reader([text], skipinitialspace=True), [])
    ]


@dataclass(frozen=True)
class Columns:
    """The columns of a data set that are units."""

    chosen: str | None = (
        # names, numbers from 1 or from the end (-1, last), or all; None: no labels
        None
    )
    dropped: str | None = None

    def places(
        self,
        names: Sequence[str],
        width: int,
        words: Collection[int] = (),
        counting: Collection[int] = (),
    ) -> list[int]:
        """Return the columns that are units, from 0.

        ``names`` are those of the columns, if they have any; ``words`` are columns that
        hold text, and ``counting`` those that count the rows. FieldError for columns
        that are not there, for nothing left, and for counts and names of labels that
        were neither chosen nor dropped.
        """
        given = self.chosen or "all"
        chosen = (
            [*range(width)]
            if given == "all"
            else _found("columns", given, names, width)
        )
        out = _found("drop", self.dropped, names, width) if self.dropped else []
        kept = [place for place in chosen if place not in out]
        if not kept:
            raise FieldError("no column is left", "drop")
        odd = {
            n
            for n in kept
            if n in counting or (names and _LABEL.fullmatch(names[n] or "id"))
        }
        if odd and self.chosen is None:
            asked = [place for place in kept if place in odd or place in words]
            listed = as_line(
                dict.fromkeys(written_as(place, names, width) for place in asked)
            )
            ways = [f"drop: [{listed}]"] if len(asked) < len(kept) else []
            ways += [] if {*asked} & {*words} else ["columns: all to train on them"]
            if ways:
                told = f"column {listed} may be labels or numbers of rows"
                raise FieldError(f"{told}; write {', or '.join(ways)}")
        return kept


def _found(field: str, text: str, names: Sequence[str], width: int) -> list[int]:
    """Return the places of the columns that a text names; each once."""
    places: list[int] = []
    for item in _items(text):
        named = [place for place, name in enumerate(names) if name == item]
        number = (
            int(item.replace("last", "-1"))
            if re.fullmatch(r"-?\d{1,9}|last", item)
            else 0
        )
        at = number - 1 if number > 0 else width + number
        counted = [at] if number and 0 <= at < width else []
        if named and counted and counted[0] not in named:
            told = (
                f"{item} is column {at + 1} by number and column {named[0] + 1} by name"
            )
            raise FieldError(
                f"{told}; count from the end: {at - width} or {named[0] - width}", field
            )
        if not named and not counted:
            hint = (
                did_you_mean(item, names[:20])
                if names
                else "; its columns have no names"
            )
            raise FieldError(
                f"has no column {shortened(item)}; they are 1 to {width:,}{hint}", field
            )
        places += named or counted
    return list(dict.fromkeys(places))
