"""Files with a checksum: states from which trainings continue, and the machines of
trials.

Damage is proved by a checksum and nothing else. Whatever else keeps a file from being
read (too many open files, a disk that does not answer, no memory) is an error that
names the file and leaves it as it is.
"""

import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbm_cli.arrays import content_of, npz_of, read_npz
from cbm_cli.errors import CbmError, DamagedError
from cbm_cli.kernels.machine import State
from cbm_cli.kernels.memory import aligned
from cbm_cli.results.outcome import GROUPS, Progress

_LENGTH = (64).to_bytes(2, "little")  # of the comment of an archive: a SHA-256
_SEAL_BYTES = len(_LENGTH) + 64


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Turn a failure to read ``path`` into an error that names it and the reason.

    Raises DamagedError if the file is missing, and CbmError for all other failures.
    """
    try:
        yield
    except FileNotFoundError:
        raise DamagedError(f"{path}: no such file") from None
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise CbmError(f"{path}: cannot be read: {reason}") from None
    except MemoryError:
        raise CbmError(f"{path}: cannot be read: not enough memory") from None


def read_checked(path: Path, digest: str) -> bytes:
    """Return the content of a file that has this SHA-256; errors as of `named`.

    Raises DamagedError if it has another one.
    """
    with named(path):
        content = content_of(path)
        if hashlib.sha256(content).hexdigest() != digest:
            raise DamagedError(f"{path}: was cut short or changed after it was written")
    return content


def sealed_npz(npz: bytes) -> bytes:
    """Return an NPZ file that ends with its SHA-256.

    It is the comment of the archive, which other programs skip.

    >>> content = sealed_npz(npz_of({"x": np.zeros(2)}))
    >>> np.load(io.BytesIO(content))["x"]
    array([0., 0.])
    """
    archive = npz[: -len(_LENGTH)]  # without the length of its comment, which was 0
    return archive + _seal_of(archive)


def _seal_of(archive: bytes | memoryview) -> bytes:
    """The comment of an archive, after its length."""
    return _LENGTH + hashlib.sha256(archive).hexdigest().encode()


def read_sealed_npz(path: Path) -> dict[str, NDArray]:
    """Return the arrays of a file of `sealed_npz`.

    Raises DamagedError if the file is missing or its checksum fails, and CbmError if it
    cannot be read for any other reason.
    """
    with named(path):
        content = content_of(path)
        archive = memoryview(content)[:-_SEAL_BYTES]
        if content[-_SEAL_BYTES:] != _seal_of(archive):
            raise DamagedError(f"{path}: was cut short or changed after it was written")
        return read_npz(io.BytesIO(content), where=str(path))


def state_file(arrays: Mapping[str, NDArray], small: bool = False) -> bytes:
    """Return the file of a state, from `Progress.arrays`.

    A ``small`` one is compressed, which takes longer.
    """
    if not small:
        return sealed_npz(npz_of(arrays))
    stream = io.BytesIO()
    compressed: Any = np.savez_compressed
    compressed(stream, **arrays)
    return sealed_npz(stream.getvalue())


def read_progress(path: Path, start: str = "") -> Progress | None:
    """Read the state of a trial that started from the machine of the SHA-256 ``start``.

    Returns None without a file, or if its trial started elsewhere. Errors are
    those of `read_sealed_npz`.
    """
    if not path.is_file():
        return None
    arrays = read_sealed_npz(path)
    try:
        with named(path):
            return _progress_of(arrays, start)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = repr(error)[:200]
        raise CbmError(
            f"{path}: is not the state of a trial ({reason}); move it away"
        ) from None


def _progress_of(arrays: Mapping[str, NDArray], start: str) -> Progress | None:
    facts: dict[str, Any] = json.loads(str(arrays["facts"]))
    if facts.pop("start") != start:
        return None
    groups: dict[str, Any] = {group: {} for group in ("state", *GROUPS)}
    for key, array in arrays.items():
        group, _, name = key.partition(".")
        if name:
            groups[group][name] = array
    state: dict[str, Any] = groups.pop("state")
    if not all(array.size for array in state.values()):
        raise ValueError("kernels do not expect empty arrays")
    state = {name: aligned(array) for name, array in state.items()}
    # Whole numbers: counts may exceed 2^24
    state["rounds"] = arrays["state.rounds"].astype(np.int64)
    facts["recorded"] = tuple(facts["recorded"])
    curve = arrays["curve"].tolist()
    progress = Progress(State(**state), curve=curve, **groups, **facts)
    progress.best_machine = progress.best_machine or None
    if arrays["records"].size:
        progress.records = [arrays["records"]]
    return progress
