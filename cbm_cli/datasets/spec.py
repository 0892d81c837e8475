"""The field ``data`` of a grid: a data set by name, or files, with their options."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from cbm_cli.datasets.columns import columns_text
from cbm_cli.datasets.fields import (
    Count,
    FileName,
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

OF_FILES = (
    "path",
    "valid",
    "test",
    "header",
    "columns",
    "drop",
    "scale",
)  # fields that are for files
_ALWAYS = (
    "name",
    "size",
    "bar",
    "path",
    "valid",
    "test",
)  # fields that are written without a value
_HELD = (
    "hold_out",
    "hold_out_test",
    "rows",
    "seed",
)  # fields of the rows that are held out


def _rows_or_share(given: Any) -> Any:
    try:
        number = float("no" if isinstance(given, bool) else whole_number(given))
    except (TypeError, ValueError):
        number = 0.0
    if not 0 < number < 1 and not (number.is_integer() and 1 <= number <= LARGEST):
        raise ValueError(
            f"must be rows, or a share between 0 and 1, not {shortened(str(given))}"
        )
    return float(text_of(number)) if number < 1 else int(number)


_Held = Annotated[int | float, BeforeValidator(_rows_or_share)]
_ITEMS = {
    "type": ["string", "number", "array"],
    "items": {"type": ["string", "number"]},
    "minItems": 1,
}
_Names = Annotated[str, BeforeValidator(columns_text), WithJsonSchema(_ITEMS)]


class DataSpec(BaseModel):
    """A data set by name, or one read from files, with the options that go with it.

    Paths stay as they are written, relative to a folder that the reader knows.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name | None = about(
        None, "A data set; with path: what to call it, default: the file's"
    )
    size: Count | None = about(
        None, "Bars & Stripes: side; Shifting Bar: number of pixels"
    )
    bar: Count | None = about(None, "Shifting Bar: pixels that are on")
    flip: bool = about(False, "Exchange zeros and ones")
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
    header: bool | None = about(
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
    def _threshold_by_default(cls, given: Any) -> Any:
        if not isinstance(given, dict) or given.get("binarise") is not None:
            return given
        return given | (
            {}
            if given.get("path") and "threshold" not in given
            else {"binarise": "threshold"}
        )

    @model_serializer(mode="wrap")
    def _dump(self, dump: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Leave out what is not used, and the fields of files for named data sets."""
        used = dict.fromkeys(OF_FILES, self.path) | {"threshold": self.binarise}
        used |= dict.fromkeys(_HELD, self.hold_out or self.hold_out_test)
        known = {
            field: value for field, value in dump(self).items() if used.get(field, True)
        }
        return {
            field: value
            for field, value in known.items()
            if value is not None or field in _ALWAYS
        }

    @model_validator(mode="after")
    def _check_options(self) -> "DataSpec":
        name, source = self.unflipped, self._source() if self.path is None else None
        known = (
            (*source.options, *(("binarise", "threshold") if source.grey else ()))
            if source
            else ()
        )
        takes = known if source else (*OF_FILES, "binarise", "threshold")
        for option in ("size", "bar", "binarise", "threshold", *OF_FILES):
            if option not in takes and self._is_given(option):
                more = (
                    "; files of your own take it, with path"
                    if option in OF_FILES
                    else ""
                )
                told = (
                    f"has no option {option}{more}; it takes "
                    f"{', '.join((*takes, 'flip', 'hold_out'))}"
                )
                raise FieldError(f"{name} {told}", option)
        held = self.hold_out or self.hold_out_test
        for option, used, what in (
            ("rows", held, "hold_out"),
            ("seed", held and self.rows == "random", "hold_out with rows: random"),
            ("threshold", not self._is_given("binarise"), "binarise: threshold"),
        ):
            if not used and self._is_given(option):
                raise FieldError(f"{option} has no effect: it is for {what}", option)
        if source and self.threshold >= 1:
            told = (
                f"{name}: threshold {self.threshold:g} is out of range; it must be "
                "below 1"
            )
            raise FieldError(told, "threshold")
        if not source and name in SOURCES:
            told = f"{name} is the name of a data set that cbm knows"
            raise FieldError(
                f"{told}; add a name of your own, as in name: my-data", "name"
            )
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
            if Path(self.name).suffix and "mean" not in hint:
                hint += f"; for a file write {{path: {self.name}}}"
            raise FieldError(f"data set {self.name!r} is unknown{hint}", "name")
        source = SOURCES[self.name]
        for option, limits in source.options.items():
            value, least, most = getattr(self, option), limits["least"], limits["most"]
            if value is None:
                spelled = ",".join(
                    f"{name}={one['example']}" for name, one in source.options.items()
                )
                remedy = (
                    f"write {source.written}, on a command line {self.name}:{spelled}"
                )
                raise FieldError(f"{self.name} needs a {option}; {remedy}", option)
            if not least <= value <= most:
                told = (
                    f"{self.name}: {option} {value} is out of range; it is {least} "
                    f"to {most}"
                )
                raise FieldError(told, option)
        if self.bar and self.size and self.bar >= self.size:
            raise FieldError(
                f"bar must be less than size {self.size}, not {self.bar}", "bar"
            )
        return source

    def _is_given(self, option: str) -> bool:
        if option == "binarise":
            return self.binarise in ("sample", "none")
        return getattr(self, option) != DataSpec.model_fields[option].default

    @property
    def title(self) -> str:
        """Name in tables: ``flipped-shifting-bar`` for a flipped ``shifting-bar``."""
        return f"flipped-{self.unflipped}" if self.flip else self.unflipped

    @property
    def unflipped(self) -> str:
        """Name of the data set before any flip, by default the file's."""
        return self.name or Path((self.path or "").removesuffix(".gz")).stem


def make_spec(**options: Any) -> DataSpec:
    """Return a validated `DataSpec`; FieldError, naming the field, for options that do
    not fit.
    """
    try:
        return DataSpec(**options)
    except ValidationError as error:
        first = error.errors()[0]
        field, cause = (
            str(next(iter(first["loc"]), "")),
            first.get("ctx", {}).get("error"),
        )
        if isinstance(cause, FieldError) and not field:
            raise cause from None
        told = f"unknown option {field}{did_you_mean(field, DataSpec.model_fields)}"
        if first["type"] != "extra_forbidden":
            given = shortened(" ".join(repr(first["input"]).split()))
            told = f"{field} {given}: {cause or first['msg'].lower()}"
        raise FieldError(told, field) from None


def available(data: DataSpec, folder: str | Path = "") -> str:
    """Return why a data set cannot be loaded, as far as the existence of its files
    tells; else ``""``.
    """
    if data.path:
        files = [
            own_file(folder, path)
            for path in (data.path, data.valid, data.test)
            if path
        ]
        missing = [f"{file}{near(file)}" for file in files if not file.is_file()]
        return f"{data.title}: no file {' or '.join(missing)}" if missing else ""
    try:
        SOURCES[data.name or ""].locate()
    except FieldError as error:
        return str(error)
    return ""


def spec_of(cell: Mapping[str, Any]) -> DataSpec:
    """Return the data set of a cell, from its columns ``data_...`` in a manifest."""
    given = {
        name: cell[f"data_{name}"]
        for name in DataSpec.model_fields
        if f"data_{name}" in cell
    }
    return DataSpec(**given)
