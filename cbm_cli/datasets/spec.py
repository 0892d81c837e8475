"""The field ``data`` of a grid: a data set by name, or files, with their options."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ValidationError,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from cbm_cli.datasets.columns import columns_text
from cbm_cli.datasets.fields import (
    Count,
    FileName,
    Flag,
    Frozen,
    Name,
    NotNegative,
    Positive,
    WholeNumber,
    about,
)
from cbm_cli.datasets.published import SOURCES, DataSource, near, own_file
from cbm_cli.errors import FieldError
from cbm_cli.text import (
    LARGEST,
    did_you_mean,
    shortened,
    text_of,
    whole_number,
)

# fields that are for files
OF_FILES = ("path", "valid", "test", "header", "columns", "drop", "scale")
# fields that are written without a value
_ALWAYS = ("name", "size", "bar", "path", "valid", "test")


def _rows_or_share(held: Any) -> Any:
    """Return a number of rows, or a share of them."""
    number = 0.0
    if not isinstance(held, bool):
        with suppress(TypeError, ValueError):
            number = float(whole_number(held))
    if 0 < number < 1:
        return float(text_of(number))
    if number.is_integer() and 1 <= number <= LARGEST:
        return int(number)
    raise ValueError(
        f"must be rows, or a share between 0 and 1, not {shortened(str(held))}"
    )


_Held = Annotated[int | float, BeforeValidator(_rows_or_share)]
_ITEMS = {
    "type": ["string", "number", "array"],
    "items": {"type": ["string", "number"]},
    "minItems": 1,
}
_Names = Annotated[str, BeforeValidator(columns_text), WithJsonSchema(_ITEMS)]


class Data(Frozen):
    """A data set by name, or one read from files, with the options that go with it.

    Paths stay as they are written, relative to a folder that the reader knows.
    """

    short = ("name",)

    name: Name | None = about(
        None, "A data set; with path: what to call it, default: the file's"
    )
    size: Count | None = about(
        None, "Bars & Stripes: side; Shifting Bar: number of pixels"
    )
    bar: Count | None = about(None, "Shifting Bar: pixels that are on")
    flip: Flag = about(False, "Exchange zeros and ones")
    binarise: Literal["threshold", "sample", "none"] | None = about(
        None, "How grey values become units"
    )
    threshold: NotNegative = about(
        0.5, "Values above it are on: a share of the scale, from 1 on a value"
    )
    path: FileName | None = about(
        None, "A file of rows; NPZ and MAT may hold all parts"
    )
    valid: FileName | None = about(None, "With path: a file of rows for validation")
    test: FileName | None = about(None, "With path: a file of rows for testing")
    header: Flag | None = about(
        None, "With path: whether the first line of text holds names"
    )
    scale: Positive | None = about(
        None, "With path: the value that is surely on, as 16 or 255"
    )
    columns: _Names | None = about(
        None, "With path: columns that are units, as [a, 3]; all: labels too"
    )
    drop: _Names | None = about(
        None, "With path: columns that are not units, as [class, 1, last]"
    )
    hold_out: _Held | None = about(
        None, "Rows of train for the valid part: a number, or a share as 0.2"
    )
    hold_out_test: _Held | None = about(None, "As hold_out, for the test part")
    rows: Literal["random", "last"] = about(
        "random", "With hold_out: drawn by seed, or the last ones"
    )
    seed: WholeNumber = about(
        0, "With hold_out: number that decides which rows are drawn"
    )

    @model_validator(mode="before")
    @classmethod
    def _threshold_by_default(cls, fields: Any) -> Any:
        """Binarise named sets, and files with a threshold, by a threshold."""
        if not isinstance(fields, dict) or fields.get("binarise") is not None:
            return fields
        if fields.get("path") and "threshold" not in fields:
            return fields
        return fields | {"binarise": "threshold"}

    @model_serializer(mode="wrap")
    def _dump(self, dump: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Leave out what is not used, and the fields of files for named data sets."""
        unused = set[str]()
        if not self.path:
            unused.update(OF_FILES)
        if not self.binarise:
            unused.add("threshold")
        if not self._holds_out:
            unused.update(("hold_out", "hold_out_test", "rows", "seed"))
        return {
            field: value
            for field, value in dump(self).items()
            if field not in unused and (value is not None or field in _ALWAYS)
        }

    @model_validator(mode="after")
    def _check(self) -> "Data":
        """Refuse options that are not for this data set, or not without others."""
        source = None if self.path else self._source()
        if not source and self.unflipped in SOURCES:
            raise FieldError(
                f"{self.unflipped} is the name of a data set that cbm knows; add a "
                "name of your own, as in name: my-data",
                "name",
            )
        sizes = source.options if source else {}
        is_grey = source is None or source.grey
        of_threshold = is_grey and self.binarise not in ("sample", "none")
        if source:
            of_threshold = of_threshold and self.threshold < 1
        holds, random = self._holds_out, self.rows == "random"
        effects = {
            "size": ("size" in sizes, "bars-and-stripes and shifting-bar"),
            "bar": ("bar" in sizes, "shifting-bar"),
            "binarise": (is_grey, "grey values"),
            "threshold": (
                of_threshold,
                "binarise: threshold, and below 1 for sets by name",
            ),
            **dict.fromkeys(OF_FILES, (not source, "files of your own, with path")),
            "rows": (holds, "hold_out"),
            "seed": (holds and random, "hold_out with rows: random"),
        }
        for option, (has_effect, purpose) in effects.items():
            if self._is_set(option) and not has_effect:
                message = f"{self.unflipped}: {option} is for {purpose}; remove it"
                raise FieldError(message, option)
        return self

    def _source(self) -> DataSource:
        """Return the record of the data set of this name; FieldError also for sizes out
        of range.
        """
        if self.name is None:
            raise FieldError(
                "needs the name of a data set, or the path of a file, as in {path: "
                "rows.csv}"
            )
        if self.name not in SOURCES:
            hint = did_you_mean(self.name, SOURCES)
            raise FieldError(
                f"data set {self.name!r} is unknown{hint}; write a file as "
                f"{{path: {self.name}}}",
                "name",
            )
        source = SOURCES[self.name]
        for option, limits in source.options.items():
            least, most = limits["least"], limits["most"]
            if not least <= (getattr(self, option) or 0) <= most:
                raise FieldError(
                    f"{self.name} needs a {option} of {least} to {most}, as in "
                    f"{source.written}",
                    option,
                )
        if self.bar and self.size and self.bar >= self.size:
            raise FieldError(
                f"bar must be less than size {self.size}, not {self.bar}", "bar"
            )
        return source

    @property
    def _holds_out(self) -> bool:
        return bool(self.hold_out or self.hold_out_test)

    def _is_set(self, option: str) -> bool:
        if option == "binarise":
            return self.binarise in ("sample", "none")
        return getattr(self, option) != Data.model_fields[option].default

    @property
    def title(self) -> str:
        """Name in tables: ``flipped-shifting-bar`` for a flipped ``shifting-bar``."""
        return f"flipped-{self.unflipped}" if self.flip else self.unflipped

    @property
    def unflipped(self) -> str:
        """Name of the data set before any flip, by default the file's."""
        return self.name or Path((self.path or "").removesuffix(".gz")).stem


def make_spec(**options: Any) -> Data:
    """Return a validated `Data`; FieldError, naming the field, for options that do
    not fit.

    Examples
    --------
    >>> make_spec(path="rows.csv", drop=["id", 3]).drop
    'id, 3'
    """
    try:
        return Data(**options)
    except ValidationError as error:
        first = error.errors()[0]
    field = str(next(iter(first["loc"]), ""))
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, FieldError) and not field:
        raise cause from None
    if first["type"] == "extra_forbidden":
        hint = did_you_mean(field, Data.model_fields)
        raise FieldError(f"unknown option {field}{hint}", field) from None
    text = shortened(" ".join(repr(first["input"]).split()))
    message = cause or first["msg"].lower()
    raise FieldError(f"{field} {text}: {message}", field) from None


def lack_of(data: Data, folder: str | Path = "") -> str:
    """Return why a data set cannot be loaded; else ``""``.

    Parameters
    ----------
    data : Data
        A data set, of which only the existence of its files is looked at.
    folder : str or Path
        Paths are relative to it.

    Examples
    --------
    >>> lack_of(make_spec(path="nowhere.csv"))
    'nowhere: no file nowhere.csv'
    """
    if data.path:
        paths = [path for path in (data.path, data.valid, data.test) if path]
        files = [own_file(folder, path) for path in paths]
        missing = [f"{file}{near(file)}" for file in files if not file.is_file()]
        return f"{data.title}: no file {' or '.join(missing)}" if missing else ""
    return SOURCES[data.unflipped].lacking()
