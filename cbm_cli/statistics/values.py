"""Setting values as text: one spelling for what comes from a manifest, a CSV file or a person."""

import math
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


def text_of(value: Any) -> str:
    """Spell a setting: ``''`` for nothing, 0.1 as ``0.1``, 16 and 16.0 as ``16``, text as it is.

    >>> [text_of(v) for v in (None, float("nan"), 50000.0, 0.05, True, "00")]
    ['', '', '50000', '0.05', 'True', '00']
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else f"{value:.12g}"
    return str(value)


def suggestion(word: str, known: Iterable[str]) -> str:
    """``; did you mean X?`` where X resembles the word, else the list of what there is."""
    known = list(known)
    near = get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
