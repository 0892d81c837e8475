"""The data of a cell: a set by name, or files of one's own."""

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from cbm_cli.datasets import check, title_of
from cbm_cli.errors import CbmError
from cbm_cli.grid.values import Count, FileName, Frozen

OF_FILES = ("path", "valid", "test", "drop_last")
"""Fields of ``data:`` that are for files."""


class Data(Frozen):
    """A data set by name, or one read from files; with the options that go with it.

    Paths stay as the grid has them, relative to the grid's folder.
    """

    name: str | None = Field(None, description="A data set; with path: what to call it, default: the file's")
    size: Count | None = Field(None, description="Bars & Stripes: side; Shifting Bar: number of pixels")
    bar: Count | None = Field(None, description="Shifting Bar: pixels that are on")
    flip: bool = Field(False, description="Exchange zeros and ones")
    binarise: Literal["threshold", "sample", "none", "refuse"] = Field(
        "threshold", description="What becomes of grey values; those of files are refused unless you say"
    )
    threshold: Annotated[float, Field(ge=0, lt=1)] = Field(0.5, description="Grey values above it are on")
    path: FileName | None = Field(None, description="A file of rows; NPZ and MAT may hold all parts")
    valid: FileName | None = Field(None, description="With path: a file of rows for validation")
    test: FileName | None = Field(None, description="With path: a file of rows for testing")
    drop_last: bool = Field(False, description="With path: the last column is no unit (AMAT: a label)")
    hold_out: Count | None = Field(None, description="Rows from the end of train that become the valid part")

    @model_validator(mode="before")
    @classmethod
    def _refuses_grey_files(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("path") and "binarise" not in given:
            return given | {"binarise": "threshold" if "threshold" in given else "refuse"}
        return given

    @model_serializer(mode="wrap")
    def _dump(self, dump: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Leave the fields of files out where there are none: a named data set is what it always was."""
        unused = () if self.path or self.valid or self.test or self.drop_last else OF_FILES
        unused += ("hold_out",) if self.hold_out is None else ()
        return {field: value for field, value in dump(self).items() if field not in unused}

    @model_validator(mode="after")
    def _takes_its_options(self) -> "Data":
        try:
            check(**self.model_dump(exclude={"flip", "hold_out"}))
        except CbmError as error:
            raise ValueError(str(error)) from None
        if self.bar and self.bar >= self.size:
            raise ValueError(f"bar must be less than size {self.size}, not {self.bar}")
        return self

    @property
    def title(self) -> str:
        """Name in tables: ``flipped-shifting-bar`` for a flipped ``shifting-bar``."""
        name = self.name or title_of(self.path)
        return f"flipped-{name}" if self.flip else name
