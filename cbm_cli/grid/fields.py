"""The base class of all settings, and the kinds of values that settings are made of."""

import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from cbm_cli.datasets.dataset import PARTS
from cbm_cli.datasets.fields import real
from cbm_cli.text import WHOLE, whole_numbers


class Frozen(BaseModel):
    """A validated, immutable record that refuses unknown fields."""

    __slots__ = ("_hash",)
    model_config = ConfigDict(frozen=True, extra="forbid")
    short: ClassVar[
        tuple[str, ...]
    ] = ()  # the fields that a value without names is for

    def __hash__(self) -> int:
        """Return the hash of the fields, which is computed once: grids ask for it many
        times a cell.
        """
        try:
            return object.__getattribute__(self, "_hash")
        except AttributeError:
            object.__setattr__(
                self, "_hash", hash((type(self), *self.__dict__.values()))
            )
            return object.__getattribute__(self, "_hash")

    @model_validator(mode="before")
    @classmethod
    def _from_short(cls, given: Any) -> Any:
        return (
            given if isinstance(given, dict | cls) or not cls.short else cls.long(given)
        )

    @classmethod
    def long(cls, value: Any) -> dict[str, Any]:
        """Return the fields that a value without names is for."""
        return dict.fromkeys(cls.short, value)


def text_of_form(
    pattern: str,
    remedy: str,
    canonical: Callable[[re.Match], str] = lambda match: match[0],
    **numbers: int,
) -> Any:
    """Return the type of a text that matches a pattern, which editors check, too.

    ``remedy`` explains what to write; ``canonical`` turns the match into the canonical
    spelling, or raises ValueError. ``numbers`` are the ``minimum`` and ``maximum`` of
    numbers that YAML may make of such a text.
    """

    def parse(given: object) -> str:
        match = re.fullmatch(pattern, str(given).strip())
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


def _interval(match: re.Match) -> str:
    (count,), unit = (
        whole_numbers([match[1]], "intervals", 1),
        (match[2] or "update").rstrip("s"),
    )
    return f"{count} {unit}{'s' * (count > 1)}"


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
    lambda match: "+".join(part for part in PARTS if part in match[0].split("+")),
)
