"""The base class of all settings, and kinds of values that their fields are made of:
numbers, names, files.
"""

from os import PathLike
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from pydantic_core import PydanticKnownError

from cbm_cli.text import CONTROL, LARGEST, shortened, text_of, whole_number


class Frozen(BaseModel):
    """A validated, immutable record that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    # the fields that a value without names is for
    short: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _from_short(cls, value: Any) -> Any:
        if isinstance(value, dict | cls) or not cls.short:
            return value
        return cls.long(value)

    @classmethod
    def long(cls, value: Any) -> dict[str, Any]:
        """Return the fields that a value without names is for."""
        return dict.fromkeys(cls.short, value)


def about(default: Any, description: str) -> Any:
    """Return a field with a default.

    Parameters
    ----------
    default : Any
        Value of the field where a grid does not name it.
    description : str
        Words for the reference page and for editors.

    Examples
    --------
    >>> about(0.5, "Values above it are on").description
    'Values above it are on'
    """
    return Field(default, description=description)


def whole(minimum: int) -> Any:
    """Return the type of a whole number from ``minimum`` on.

    Parameters
    ----------
    minimum : int
        The least number that is accepted.

    Examples
    --------
    >>> from pydantic import TypeAdapter
    >>> TypeAdapter(whole(1)).validate_python("1e4")
    10000
    """
    limits = Field(ge=minimum, le=LARGEST)
    return Annotated[int, limits, BeforeValidator(whole_number)]


def real(**limits: Any) -> Any:
    """Return the type of a finite number.

    Numbers that agree in 12 digits, as tables print them, are one number.

    Parameters
    ----------
    **limits
        Limits as Pydantic names them: ``gt``, ``ge``, ``lt``, ``le``.

    Examples
    --------
    >>> from pydantic import TypeAdapter
    >>> TypeAdapter(real(gt=0)).validate_python(0.1 + 0.2)
    0.3
    """

    def in_digits(number: float) -> float:
        rounded = float(text_of(number))
        if rounded == limits.get("lt"):
            raise PydanticKnownError("less_than", {"lt": rounded})
        return rounded

    finite = Field(allow_inf_nan=False, **limits)
    return Annotated[float, finite, AfterValidator(in_digits)]


def printable(text: str) -> str:
    """Return a text that can name a file or a data set; ValueError for others.

    Examples
    --------
    >>> printable("digits")
    'digits'
    """
    longest = max(len(name) for name in text.encode().split(b"/"))
    if longest > 255 or CONTROL.search(text):
        raise ValueError(
            "cannot be a name; use up to 100 letters (files: 255), and no control "
            "characters"
        )
    return text


def _no_number(flag: Any) -> Any:
    """Refuse 0 and 1 for true and false: they may be meant as numbers of lines."""
    number = isinstance(flag, int | float) and not isinstance(flag, bool)
    if number or flag in ("0", "1"):
        raise ValueError(f"must be true or false, not {shortened(str(flag))}")
    return flag


def _as_text(path: Any) -> Any:
    return str(path) if isinstance(path, PathLike) else path


Count: Any = whole(1)
WholeNumber: Any = whole(0)
NotNegative: Any = real(ge=0)
Positive: Any = real(gt=0)
Flag = Annotated[bool, BeforeValidator(_no_number)]
Name = Annotated[str, Field(max_length=100), AfterValidator(printable)]
FileName = Annotated[
    str,
    Field(min_length=1, max_length=2000),
    BeforeValidator(_as_text),
    AfterValidator(printable),
]
