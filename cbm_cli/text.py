"""Words for messages of all packages: choices, counts, durations, settings."""

import json
import math
import re
from collections.abc import Collection, Iterable
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, Literal, get_args

__version__ = "1.0.0.dev0"
# Characters that change a terminal, its lines or the order of letters, and half
# characters
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_NUMBER = r"[+-]?[\d.]+(e[+-]?\d+)?|-inf"
LARGEST = 2**53  # whole number up to which all are exact as float64
_ENDLESS = 10**20  # replaces all larger whole numbers, so that none takes long to read
_TENS = r"[eE]\+?0*\d{1,3}"
# 1e4, 10, 1_000, 10.0; digits are read by one branch only: two would take seconds to
# refuse long ones
WHOLE = rf"(?:\d(?:_?\d)*(?:(?:\.\d*)?{_TENS}|(?:\.0*)?)|\.\d+{_TENS})"
_LISTED = 30  # names that a message lists
FORMATS = ("text", "markdown", "latex", "csv", "json")  # of tables
# What a table shows of each trial: its best value, the last one, the one at the best
# validation value, or the one where the mean over the trials of the cell is best
Statistic = Literal["max", "final", "best-valid", "max-of-mean"]
STATISTICS: tuple[Statistic, ...] = get_args(Statistic)


def harmless(text: str, kept: str = "\n\t") -> str:
    r"""Return text that does nothing to a terminal: control characters, but those kept,
    as ``\u001b``.
    """
    return CONTROL.sub(
        lambda found: found[0] if found[0] in kept else rf"\u{ord(found[0]):04x}", text
    )


def not_computed(value: Any) -> Any:
    """Return a value of a CSV file, with ``'`` before a text that a spreadsheet would
    compute.
    """
    formula = (
        isinstance(value, str)
        and value[:1] in tuple("=+@-")
        and not re.fullmatch(_NUMBER, value)
    )
    return f"'{value}" if formula else value


def whole_number(given: Any) -> Any:
    """Return the whole number that a text says, as 10, 1_000, 1e4 or 10.0; anything
    else as it is given.
    """
    if not isinstance(given, str) or not re.fullmatch(
        rf"[+-]?{WHOLE}", text := given.strip()
    ):
        return given
    number = Decimal(text.replace("_", ""))
    if abs(number) >= _ENDLESS:
        return int(math.copysign(_ENDLESS, number))
    return int(number) if number == number.to_integral_value() else given


def whole_numbers(texts: Iterable[str], what: str, least: int = 0) -> list[int]:
    """Return the whole numbers of texts; ValueError for others, for smaller ones, and
    beyond `LARGEST`.
    """
    found = []
    for text in texts:
        number = whole_number(text)
        if not isinstance(number, int):
            raise ValueError(
                f"{what} must be whole numbers, not {shortened(text.strip())}"
            )
        if not least <= number <= LARGEST:
            limit = f"{least} or more" if number < least else f"{LARGEST:,} or less"
            raise ValueError(f"{what} must be {limit}, not {shortened(text.strip())}")
        found.append(number)
    return found


def shortened(text: str) -> str:
    """Return a text as a message names it, of at most 60 characters."""
    return (text if len(text) <= 60 else text[:57] + "...") or "empty"


def did_you_mean(
    word: str, known: Collection[str], cutoff: float = 0.6, otherwise: str = ""
) -> str:
    """Return ``; did you mean NAME?``; where no known name is close, ``; there are A,
    B, ...`` or otherwise.

    Initials are close, ``lr`` to ``learning_rate``, and so are capitals.
    """
    close = [
        one
        for one in known
        if len(word) > 1 and re.sub(r"([^\W_])[^\W_]*|[\W_]", r"\1", one) == word
    ]
    small = {one.lower(): one for one in known}
    close += [
        small[one]
        for one in get_close_matches(word[:80].lower(), small, n=1, cutoff=cutoff)
    ]
    listed = ", ".join([*known][:_LISTED]) + ", ..." * (len(known) > _LISTED)
    return (
        f"; did you mean {close[0]}?" if close else otherwise or f"; there are {listed}"
    )


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: ``1 trial``, ``7,200 trials``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def duration(seconds: float) -> str:
    """Return seconds in the units of everyday: ``12 s``, ``3 min 20 s``, ``2 h 05
    min``, ``4 days``.
    """
    if not math.isfinite(seconds):
        return "unknown"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 1:
        return f"{rest} s"
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    if minutes < 72 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // (24 * 60):,} days"


def text_of(value: Any) -> str:
    """Return a setting as text: ``''`` for a missing value, 16 and 16.0 as ``16``, 1e38
    as ``1e38``.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        return f"{value + 0.0:.12g}".replace("e+", "e")  # no -0
    return str(value)


def decimal(value: float, spec: str) -> str:
    """Return a number in a format such as ``.2f``; a huge one in three digits, as
    ``-5e38``.
    """
    return (
        format(value, spec)
        if not abs(value) >= 1e12
        else f"{value:.3g}".replace("e+", "e")
    )


def valid_json(value: Any, indent: int | None = None) -> str:
    """Return JSON text; NaN and infinite numbers, which JSON lacks, become null."""
    text = json.dumps(
        value, default=lambda one: one.tolist()
    )  # NumPy's numbers and arrays
    finite = json.loads(text, parse_constant=lambda _: None)
    return harmless(
        json.dumps(finite, indent=indent, ensure_ascii=False, allow_nan=False)
    )
