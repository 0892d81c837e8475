"""What every data set becomes: rows of bytes in up to three parts."""

import hashlib
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np


class Image(NamedTuple):
    """How a row is a picture: its size, and whether the row goes through it line by line or down its columns.

    ``order`` is NumPy's: ``C`` for line by line, ``F`` for column by column.
    """

    height: int
    width: int
    order: Literal["C", "F"] = "C"

    def upright(self, rows: np.ndarray) -> np.ndarray:
        """Return rows (n, height * width) as pictures (n, height, width), each the right way up."""
        if self.order == "C":
            return rows.reshape(-1, self.height, self.width)
        return rows.reshape(-1, self.width, self.height).transpose(0, 2, 1)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set, ready for training: read-only and the same bytes wherever it is loaded.

    Attributes
    ----------
    name : str
        As in tables: ``flipped-shifting-bar`` for a flipped ``shifting-bar``.
    train : numpy.ndarray
        uint8, (rows, width), C-contiguous.
    valid, test : numpy.ndarray or None
        Like ``train``, where the data set has such a part.
    levels : int
        The value of a unit that is surely on. 1: values are 0 or 1. 255: v is the probability v / 255.
    upper_bound : float or None
        The best log-likelihood that any model can reach on ``train``, in nats per row, where it is known.
    image : Image or None
        How to draw a row, where rows are pictures; training does not see it.
    """

    name: str
    train: np.ndarray
    valid: np.ndarray | None = None
    test: np.ndarray | None = None
    levels: int = 1
    upper_bound: float | None = None
    image: Image | None = None

    def __post_init__(self) -> None:
        for part in self.parts.values():
            if part.dtype != np.uint8 or part.ndim != 2 or not part.flags.c_contiguous:
                raise ValueError(f"{self.name}: a part is a C-contiguous (rows, width) array of uint8")
            part.setflags(write=False)

    def __reduce__(self) -> tuple:
        # Through the constructor, so that the arrays are read-only in another process too: compiled
        # functions treat read-only and writable arrays as two types.
        return Dataset, tuple(getattr(self, field.name) for field in fields(self))

    @property
    def parts(self) -> dict[str, np.ndarray]:
        """The parts that exist, by name: ``train``, ``valid``, ``test``."""
        named = {"train": self.train, "valid": self.valid, "test": self.test}
        return {name: part for name, part in named.items() if part is not None}

    @property
    def width(self) -> int:
        """Number of visible units."""
        return self.train.shape[1]

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hexadecimal) of all that training can see: levels, shapes and bytes of the parts."""
        hasher = hashlib.sha256(f"levels {self.levels}".encode())
        for name, part in self.parts.items():
            hasher.update(f"\n{name} {part.shape}\n".encode())
            hasher.update(part)
        return hasher.hexdigest()
