"""Texts of all packages: numbers read and written, names as messages show them."""

import json
import math
import re
from collections.abc import Collection, Iterable
from decimal import Decimal
from difflib import get_close_matches
from typing import Any

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


def harmless(text: str, kept: str = "\n\t") -> str:
    r"""Return text that does nothing to a terminal: control characters, but those kept,
    as ``\u001b``.
    """

    def escaped(match: re.Match) -> str:
        character = match[0]
        return character if character in kept else rf"\u{ord(character):04x}"

    return CONTROL.sub(escaped, text)


def not_computed(value: Any) -> Any:
    """Return a value of a CSV file, with ``'`` before a text that a spreadsheet would
    compute.

    Examples
    --------
    >>> not_computed("=1+1"), not_computed("-1.5")
    ("'=1+1", '-1.5')
    """
    if not isinstance(value, str) or re.fullmatch(_NUMBER, value):
        return value
    return f"'{value}" if value.startswith(("=", "+", "@", "-")) else value


def whole_number(value: Any) -> Any:
    """Return the whole number that a text says, as 10, 1_000, 1e4 or 10.0; anything
    else as it is.

    Examples
    --------
    >>> whole_number("1e4"), whole_number("1.5")
    (10000, '1.5')
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not re.fullmatch(rf"[+-]?{WHOLE}", text):
        return value
    number = Decimal(text.replace("_", ""))
    if abs(number) >= _ENDLESS:
        return int(math.copysign(_ENDLESS, number))
    return int(number) if number == number.to_integral_value() else value


def whole_numbers(texts: Iterable[str], what: str, least: int = 0) -> list[int]:
    """Return the whole numbers of texts; ValueError for others, for smaller ones, and
    beyond `LARGEST`.

    Examples
    --------
    >>> whole_numbers(["500", "1e3"], "sizes")
    [500, 1000]
    """
    numbers = []
    for text in texts:
        number, name = whole_number(text), shortened(text.strip())
        if not isinstance(number, int):
            raise ValueError(f"{what} must be whole numbers, not {name}")
        if number < least:
            raise ValueError(f"{what} must be {least} or more, not {name}")
        if number > LARGEST:
            raise ValueError(f"{what} must be {LARGEST:,} or less, not {name}")
        numbers.append(number)
    return numbers


def shortened(text: str) -> str:
    """Return a text as a message names it, of at most 60 characters.

    Examples
    --------
    >>> shortened("")
    'empty'
    """
    if len(text) > 60:
        return f"{text[:57]}..."
    return text or "empty"


def did_you_mean(
    word: str, names: Collection[str], cutoff: float = 0.6, otherwise: str = ""
) -> str:
    """Return ``; did you mean NAME?``; where no name is close, ``; there are A, B,
    ...`` or otherwise.

    Initials are close, ``lr`` to ``learning_rate``, and so are capitals.

    Examples
    --------
    >>> did_you_mean("lr", ["momentum", "learning_rate"])
    '; did you mean learning_rate?'
    >>> did_you_mean("x", ["a", "b"])
    '; there are a, b'
    """
    for name in names:
        initials = re.sub(r"([^\W_])[^\W_]*|[\W_]", r"\1", name)
        if len(word) > 1 and initials == word:
            return f"; did you mean {name}?"
    small = {name.lower(): name for name in names}
    close = get_close_matches(word[:80].lower(), small, n=1, cutoff=cutoff)
    if close:
        return f"; did you mean {small[close[0]]}?"
    if otherwise:
        return otherwise
    listed = [*names][:_LISTED]
    if len(names) > _LISTED:
        listed.append("...")
    return f"; there are {', '.join(listed)}"


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 trial``, ``7,200 trials``.

    Examples
    --------
    >>> count(7200, "trial")
    '7,200 trials'
    """
    ending = "" if number == 1 else "s"
    return f"{number:,} {noun}{ending}"


def duration(seconds: float) -> str:
    """Return seconds in the units of everyday: ``12 s``, ``3 min 20 s``, ``2 h 05
    min``, ``4 days``.

    Examples
    --------
    >>> duration(7500)
    '2 h 05 min'
    """
    if not math.isfinite(seconds):
        return "unknown"
    minutes, seconds = divmod(round(seconds), 60)
    if minutes < 1:
        return f"{seconds} s"
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s"
    if minutes < 72 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // (24 * 60):,} days"


def text_of(value: Any) -> str:
    """Return a setting as text: ``''`` for a missing value, 16 and 16.0 as ``16``, 1e38
    as ``1e38``.

    Examples
    --------
    >>> text_of(16.0), text_of(1e38), text_of(None)
    ('16', '1e38', '')
    """
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return ""
    return f"{value + 0.0:.12g}".replace("e+", "e")  # no -0


def decimal(value: float, spec: str) -> str:
    """Return a number in a format such as ``.2f``; a huge one in three digits, as
    ``-5e38``.

    Examples
    --------
    >>> decimal(-22.196, ".2f"), decimal(-5e38, ".2f")
    ('-22.20', '-5e38')
    """
    if abs(value) >= 1e12:
        return f"{value:.3g}".replace("e+", "e")
    return format(value, spec)


def valid_json(value: Any, indent: int | None = None) -> str:
    """Return JSON text; NaN and infinite numbers, which JSON lacks, become null.

    Examples
    --------
    >>> valid_json({"mean": float("nan"), "n": 2})
    '{"mean": null, "n": 2}'
    """
    # NumPy's numbers and arrays have tolist().
    text = json.dumps(value, default=lambda array: array.tolist())
    finite = json.loads(text, parse_constant=lambda _: None)
    text = json.dumps(finite, indent=indent, ensure_ascii=False, allow_nan=False)
    return harmless(text)
