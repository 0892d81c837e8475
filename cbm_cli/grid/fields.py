"""Kinds of values that are texts of a form: intervals, parts, schemes and samplers."""

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from cbm_cli.datasets.dataset import PARTS
from cbm_cli.datasets.fields import real
from cbm_cli.text import WHOLE, whole_numbers


def text_of_form(
    pattern: str,
    remedy: str,
    canonical: Callable[[re.Match], str],
    **numbers: int,
) -> Any:
    """Return the type of a text that matches a pattern, which editors check, too.

    ``remedy`` explains what to write; ``canonical`` turns the match into the canonical
    spelling, or raises ValueError. ``numbers`` are the ``minimum`` and ``maximum`` of
    numbers that YAML may make of such a text.
    """

    def parse(value: object) -> str:
        match = re.fullmatch(pattern, str(value).strip())
        if match is None:
            raise ValueError(remedy)
        return canonical(match)

    return spelled(parse, pattern, **numbers)


def spelled(parse: Callable[[object], str], pattern: str, **numbers: int) -> Any:
    """Return the type of a text in the spelling that ``parse`` returns, of which
    editors see the pattern.
    """
    schema: Any = {
        "type": ["string", "integer"] if numbers else "string",
        "pattern": rf"^\s*({pattern})\s*$",
    }
    return Annotated[
        str, BeforeValidator(parse), Field(json_schema_extra=schema | numbers)
    ]


def interval_text(number: int, unit: str) -> str:
    """Return an interval as settings spell it: ``1 epoch``, ``50 updates``, ``0
    epoch``.
    """
    return f"{number} {unit}s" if number > 1 else f"{number} {unit}"


def _interval(match: re.Match) -> str:
    (number,) = whole_numbers([match[1]], "intervals", 1)
    return interval_text(number, (match[2] or "update").rstrip("s"))


def _parts(match: re.Match) -> str:
    names = match[0].split("+")
    return "+".join(part for part in PARTS if part in names)


Fraction = real(gt=0, le=1)
Share = real(ge=0, lt=1)
Open: Any = real(gt=0, lt=1)
UpToOne: Any = real(ge=0, le=1)
Interval = text_of_form(
    rf"(?!0+(?:\D|$))({WHOLE})\s*(updates?|epochs?)?",
    "write a number of updates (50) or of epochs (1 epoch)",
    _interval,
    minimum=1,
)
Parts = text_of_form(
    r"(train|valid|test)(\+(train|valid|test))*",
    "write parts as train, test or train+valid+test",
    _parts,
)
