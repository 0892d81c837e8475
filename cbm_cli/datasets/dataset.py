"""What every data set becomes: rows of bytes in up to three parts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import numpy as np

PARTS = ("train", "valid", "test")
Names = tuple[str, ...]  # of the columns of a data set, where they have some


class Image(NamedTuple):
    """How a row is a picture."""

    height: int
    width: int
    # NumPy's: C for line by line, F for column by column
    order: Literal["C", "F"] = "C"


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set, ready for training: read-only and the same bytes wherever it is
    loaded.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.eye(3, dtype=np.uint8)
    >>> data = Dataset("diagonal", rows, test=rows[:1])
    >>> data.width, list(data.parts), data.digest[:8]
    (3, ['train', 'test'], 'b6d39395')
    """

    name: str  # as in tables: flipped-shifting-bar for a flipped shifting-bar
    train: np.ndarray  # uint8, (rows, width), C-contiguous
    valid: np.ndarray | None = None  # like train, where the data set has such a part
    test: np.ndarray | None = None
    # a unit that is surely on: 1 (values are 0 or 1) or 255 (v is the probability v /
    # 255)
    levels: int = 1
    # best log-likelihood of any model on train, nats per row, where known
    upper_bound: float | None = None
    image: Image | None = None  # how to draw a row; training does not see it
    names: Names = ()  # training does not see them
    of_bytes: bool = False  # whether 255 was taken for the scale of the file

    def __post_init__(self) -> None:
        for part in self.parts.values():
            part.setflags(write=False)

    def __reduce__(self) -> tuple:
        # Through the constructor, so that the arrays are read-only in another process
        # too: compiled functions treat read-only and writable arrays as two types.
        return Dataset, tuple(getattr(self, field.name) for field in fields(self))

    @property
    def parts(self) -> dict[str, np.ndarray]:
        """The parts that exist, by name: ``train``, ``valid``, ``test``."""
        arrays = {name: getattr(self, name) for name in PARTS}
        return {name: rows for name, rows in arrays.items() if rows is not None}

    @property
    def width(self) -> int:
        """Number of visible units."""
        return self.train.shape[1]

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hexadecimal) of all that training can see: levels, shapes and bytes
        of the parts.
        """
        hasher = hashlib.sha256(f"levels {self.levels}".encode())
        for name, part in self.parts.items():
            hasher.update(f"\n{name} {part.shape}\n".encode())
            hasher.update(part.data)
        return hasher.hexdigest()
