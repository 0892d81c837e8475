"""What ``data:`` says of a data set: a name, or files, with the options that go with it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from cbm_cli.datasets.columns import columns_text
from cbm_cli.datasets.dataset import DataError
from cbm_cli.datasets.sources import SOURCES, own_file
from cbm_cli.text import CONTROL, FORMULA, LARGEST, did_you_mean, shortened, whole_number

OF_FILES = ("path", "valid", "test", "drop_last", "columns", "drop", "scale")  # fields that are for files
_HELD = ("hold_out", "rows", "seed")  # fields of the rows that are held out

_Count = Annotated[int, Field(ge=1, le=LARGEST), BeforeValidator(whole_number)]


def _rows_or_share(given: Any) -> Any:
    number: Any = None if isinstance(given, bool) else whole_number(given)
    try:
        fits = 1 <= number <= LARGEST if isinstance(number, int) else 0 < (number := float(number)) < 1
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise ValueError(f"must be rows, or a share between 0 and 1, not {shortened(str(given))}")
    return number


Held = Annotated[
    int | float,
    BeforeValidator(_rows_or_share),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            ]
        }
    ),
]
_Names = Annotated[
    str,
    BeforeValidator(columns_text),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": ["string", "number"]},
                {"type": "array", "items": {"type": ["string", "number"]}, "minItems": 1},
            ]
        }
    ),
]


def _name(text: str) -> str:
    if CONTROL.search(text) or len(text) > 100:
        raise ValueError("cannot be a name; use up to 100 characters, without line breaks and escapes")
    return text


def _file_name(text: str) -> str:
    if CONTROL.search(text) or max(map(len, text.encode().split(b"/"))) > 255 or len(text) > 2000:
        raise ValueError("cannot be the name of a file; it has too many letters, or line breaks or escapes")
    if FORMULA.match(text):
        raise ValueError(f"begins with {text[0]}, as formulas of spreadsheets do; write ./ before it")
    try:
        Path(text).expanduser()
    except RuntimeError:
        raise ValueError("has no home folder of this user; write the whole path") from None
    return text


FileName = Annotated[str, Field(min_length=1), AfterValidator(_file_name)]


class DataSpec(BaseModel):
    """A data set by name, or one read from files, with the options that go with it.

    Paths stay as they are written, relative to a folder that the reader knows.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, AfterValidator(_name)] | None = Field(
        None, description="A data set; with path: what to call it, default: the file's"
    )
    size: _Count | None = Field(None, description="Bars & Stripes: side; Shifting Bar: number of pixels")
    bar: _Count | None = Field(None, description="Shifting Bar: pixels that are on")
    flip: bool = Field(False, description="Exchange zeros and ones")
    binarise: Literal["threshold", "sample", "none", "refuse"] = Field(
        "threshold", description="What becomes of grey values; in files they are an error unless this is set"
    )
    threshold: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.5,
        description="Values above it are on; below 1: a share of the scale, else in the file's units",
    )
    path: FileName | None = Field(None, description="A file of rows; NPZ and MAT may hold all parts")
    valid: FileName | None = Field(None, description="With path: a file of rows for validation")
    test: FileName | None = Field(None, description="With path: a file of rows for testing")
    drop_last: bool = Field(False, description="With path: the last column is not a unit (AMAT: a label)")
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        None,
        description="With path: the value that is surely on, as 16 or 255; values are divided by it",
    )
    columns: _Names | None = Field(
        None, description="With path: columns that are units, by name, number or range: [a, 3, 10-20]"
    )
    drop: _Names | None = Field(
        None, description="With path: columns that are not units, such as labels: [class, 1]"
    )
    hold_out: Held | None = Field(
        None, description="Rows of train that become the valid part: their number, or a share as 0.2"
    )
    rows: Literal["random", "last"] = Field(
        "random", description="With hold_out: rows drawn at random by seed, or the last ones"
    )
    seed: Annotated[int, Field(ge=0, le=LARGEST), BeforeValidator(whole_number)] = Field(
        0, description="With hold_out: number that decides which rows are drawn"
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_grey_files(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("path") and "binarise" not in given:
            return given | {"binarise": "threshold" if "threshold" in given else "refuse"}
        return given

    @model_serializer(mode="wrap")
    def _dump(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the fields of files for named data sets, and newer fields that are not used."""
        unused: tuple[str, ...] = () if self.path else OF_FILES
        unused += tuple(name for name in ("scale", "columns", "drop") if getattr(self, name) is None)
        unused += () if self.hold_out else _HELD
        return {field: value for field, value in dump(self).items() if field not in unused}

    @model_validator(mode="after")
    def _check_options(self) -> "DataSpec":
        if self.path is None:
            self._check_named()
        else:
            self._check_files()
        for option in ("rows", "seed"):
            if self._is_given(option) and not self.hold_out:
                told = f"{option} has no effect without hold_out, as in hold_out: 0.2"
                raise DataError(told, option, "unsuited")
        if self.rows == "last" and self._is_given("seed"):
            raise DataError("seed has no effect with rows: last; remove one of them", "seed", "unsuited")
        if self.binarise != "threshold" and self._is_given("threshold"):
            told = f"{self.unflipped}: threshold has no effect where binarise is {self.binarise}"
            raise DataError(f"{told}; remove one of them", "threshold", "unsuited")
        return self

    def _check_named(self) -> None:
        name = self.name
        if name is None:
            told = "needs the name of a data set, or the path of a file, as in {path: rows.csv}"
            raise DataError(told, None, "missing")
        if name not in SOURCES:
            hint = did_you_mean(name, SOURCES)
            hint += f"; for a file write {{path: {name}}}" if Path(name).suffix and "mean" not in hint else ""
            raise DataError(f"data set {name!r} is unknown{hint}", "name", "unknown")
        source = SOURCES[name]
        for option in ("size", "bar", "binarise", "threshold", *OF_FILES):
            if option in source.options:
                self._check_range(option, **source.options[option])
            elif option not in source.takes and self._is_given(option):
                own = "; that is for files of your own, beside path" if option in OF_FILES else ""
                takes = own or f"; it takes {', '.join((*source.takes, 'flip'))}"
                raise DataError(f"{name} has no option {option}{takes}", option, "unsuited")
        if self.bar and self.size and self.bar >= self.size:
            raise DataError(f"bar must be less than size {self.size}, not {self.bar}", "bar", "conflict")
        if self.threshold >= 1:
            raise DataError(
                f"{name}: threshold {self.threshold:g} is out of range; it must be below 1", "threshold"
            )
        if self.binarise == "refuse" and source.grey:
            told = f"{name}: binarise refuse is for files; write threshold, sample or none"
            raise DataError(told, "binarise", "unsuited")

    def _check_range(self, option: str, example: int, least: int, most: int) -> None:
        value = getattr(self, option)
        if value is None:
            name, options = self.name, SOURCES[self.name].example
            spelled = ",".join(f"{key}={number}" for key, number in options.items() if key != "name")
            remedy = f"write {written(options)}, on a command line {name}:{spelled}"
            raise DataError(f"{name} needs a {option}; {remedy}", option, "missing")
        if not least <= value <= most:
            raise DataError(f"{self.name}: {option} {value} is out of range; it is {least} to {most}", option)

    def _check_files(self) -> None:
        title = self.unflipped
        if title in SOURCES:
            remedy = "choose another name" if self.name else "add a name of your own, as in name: my-data"
            told = f"{title} is the name of a data set that cbm knows; {remedy}"
            raise DataError(told, "name", "conflict")
        if FORMULA.match(title):
            raise DataError(
                f"the name {title} begins like a formula of a spreadsheet; add a name, as in name: my-data",
                "name",
            )
        for option in ("size", "bar"):
            if self._is_given(option):
                takes = "valid, test, columns, drop, drop_last, binarise, threshold, scale, flip, hold_out"
                told = f"{title} is read from a file and has no option {option}; it takes {takes}"
                raise DataError(told, option, "unsuited")

    def _is_given(self, option: str) -> bool:
        return getattr(self, option) != DataSpec.model_fields[option].default

    @property
    def title(self) -> str:
        """Name in tables: ``flipped-shifting-bar`` for a flipped ``shifting-bar``."""
        return f"flipped-{self.unflipped}" if self.flip else self.unflipped

    @property
    def unflipped(self) -> str:
        """Name of the data set before any flip, by default the file's."""
        return self.name or title_of(self.path or "")


def make_spec(**options: Any) -> DataSpec:
    """Return a validated `DataSpec`; DataError, naming the field, for options that do not fit."""
    try:
        return DataSpec(**options)
    except ValidationError as error:
        first = error.errors()[0]
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, DataError):
            raise cause from None
        field = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            told = f"unknown option {field}{did_you_mean(field, DataSpec.model_fields)}"
            raise DataError(told, field, "unknown") from None
        given = shortened(repr(first["input"]))
        raise DataError(f"{field} {given}: {first['msg'].lower()}", field) from None


def available(data: DataSpec, folder: str | Path = "") -> str:
    """Return why a data set cannot be loaded, as far as the existence of its files tells; else ``""``."""
    if data.path is None:
        source = SOURCES[data.name]
        try:
            if source.forms:
                source.locate()
        except DataError as error:
            return str(error)
        return ""
    files = [own_file(folder, path) for path in (data.path, data.valid, data.test) if path]
    missing = [str(file) for file in files if not file.is_file()]
    return f"{data.title}: no file {' or '.join(missing)}" if missing else ""


def title_of(path: str) -> str:
    """Return what a data set from a file is called: the file's name without folder and endings."""
    return Path(path.removesuffix(".gz")).stem


def written(example: dict[str, Any]) -> str:
    """Return how a grid writes a data set: ``mnist``, or ``{name: bars-and-stripes, size: 3}``."""
    name, *options = (f"{option}: {value}" for option, value in example.items())
    return f"{{{', '.join((name, *options))}}}" if options else example["name"]


def spec_of(cell: Mapping[str, Any]) -> DataSpec:
    """Return the data set of a cell, from its columns ``data_...`` in a manifest."""
    given = {name: cell[f"data_{name}"] for name in DataSpec.model_fields if f"data_{name}" in cell}
    before = {"rows": "last"} if given.get("hold_out") else {}  # of results without data_rows
    return DataSpec(**before | given)
