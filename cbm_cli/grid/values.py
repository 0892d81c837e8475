"""The kinds of values that settings are made of, and how their texts are read."""

import re
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from cbm_cli.errors import CbmError
from cbm_cli.grid.offsets import Scheme
from cbm_cli.grid.samplers import Sampler

EVERY_FIELD = "every field"  # context of a dump that omits nothing


class Frozen(BaseModel):
    """A validated, immutable record that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    # Fields that 0.1.0 did not have. A dump omits them at their default, so that run-ids stay what they were.
    since_0_2: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _dump(self, dump: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        if info.context == EVERY_FIELD:
            return dump(self)
        unused = {name for name in self.since_0_2 if getattr(self, name) == type(self).default_of(name)}
        return {field: value for field, value in dump(self).items() if field not in unused}

    @classmethod
    def default_of(cls, field: str) -> Any:
        """Return the value of a field that is not given."""
        return cls.model_fields[field].default


class Misfit(ValueError):
    """A value that does not go with the others; ``field`` is the one to look at first."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def _canonical(kind: type[Scheme] | type[Sampler]) -> AfterValidator:
    def parse(text: str) -> str:
        try:
            return str(kind.parse(text))
        except CbmError as error:
            raise ValueError(str(error)) from None

    return AfterValidator(parse)


def _every(text: object) -> str:
    match = re.fullmatch(r"(\d+)\s*(updates?|epochs?)?", str(text).strip())
    if match is None or int(match[1]) < 1:
        raise ValueError("write a number of updates (50) or of epochs (1 epoch)")
    unit = (match[2] or "update").rstrip("s")
    return f"{match[1]} {unit}" + ("s" if int(match[1]) > 1 else "")


def _parts(text: object) -> str:
    known, asked = ("train", "valid", "test"), str(text).split("+")
    if not set(asked) <= set(known):
        raise ValueError("write parts as train, test or train+valid+test")
    return "+".join(part for part in known if part in asked)


OffsetText = Annotated[str, _canonical(Scheme), Field(description="Offset scheme: dd^b_s, aa^b, d0, 00, ...")]
SamplerText = Annotated[
    str, _canonical(Sampler), Field(description="CD-k, PCD-k, FPCD-k, PT_c, PT_c-k or exact")
]
Interval = Annotated[str, BeforeValidator(_every), Field(description="Updates (50) or epochs (1 epoch)")]
Parts = Annotated[str, BeforeValidator(_parts)]
FileName = Annotated[str, Field(min_length=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]
WholeNumber = Annotated[int, Field(ge=0)]
