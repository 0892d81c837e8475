"""Labels of rows, for a classifier on what a machine makes of them; training never sees any."""

import io
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from cbm_cli.datasets.packing import unpacked
from cbm_cli.datasets.places import find
from cbm_cli.datasets.published import locate
from cbm_cli.errors import CbmError

_MNIST = {"train": "train-labels-idx1-ubyte", "test": "t10k-labels-idx1-ubyte"}
_IDX_LABELS = b"\0\0\x08\x01"
_ARRAYS = {
    "train": ("train_labels", "train"),
    "valid": ("valid_labels", "val_labels", "valid"),
    "test": ("test_labels", "test"),
}
_OWN = "name a file of your own, one label a row, as in --labels TRAIN.csv,TEST.csv"

_Labels = dict[str, tuple[str, np.ndarray]]  # part -> where its labels come from, the labels


def load_labels(source: str, rows: Mapping[str, int], files: str | None = None) -> dict[str, np.ndarray]:
    """Return the labels (n,) of the parts of a data set, of any type that tells classes apart.

    Parameters
    ----------
    source : str
        What `load_source` has loaded: ``mnist`` and ``caltech101-silhouettes`` come with labels.
    rows : dict
        Number of rows by part.
    files : str, optional
        ``TRAIN,TEST`` or ``FILE``: text or NPY, one label a row, or IDX; a single FILE has the labels of
        all parts (NPZ or MAT, arrays ``train_labels`` or ``train`` and so on), unless train is all there is.

    Raises
    ------
    CbmError
        Where there are none for the training or the test part, or as many as no part has rows.
    """
    found = dict(_own(files) if files else _published(source))
    missing = [part for part in ("train", "test") if part in rows and part not in found]
    if missing:
        raise CbmError(f"{files}: has no labels of the {' and '.join(missing)} part; {_OWN}")
    for part in rows.keys() & found.keys():
        where, labels = found[part]
        if len(labels) != rows[part]:
            raise CbmError(
                f"{where}: has {len(labels):,} labels, the {part} part {rows[part]:,} rows; "
                "it needs one label a row and no header"
            )
    return {part: found[part][1] for part in rows if part in found}


def _own(files: str) -> _Labels:
    paths = [files] if Path(files).is_file() else files.split(",")
    if len(paths) > 2:
        raise CbmError(f"--labels {files}: names {len(paths)} files; write TRAIN,TEST")
    if len(paths) == 1:
        return {part or "train": (files, labels) for part, labels in _read(Path(files)).items()}
    return {part: (path, _only(Path(path))) for part, path in zip(("train", "test"), paths, strict=True)}


def _only(path: Path) -> np.ndarray:
    found = _read(path)
    if "" not in found:
        raise CbmError(f"{path}: holds the labels of several parts; name it alone, as in --labels {path}")
    return found[""]


def _published(source: str) -> _Labels:
    name = source.partition(":")[0]
    if name == "mnist":
        return dict(_of_mnist())
    if name == "caltech101-silhouettes":
        path = locate(name)["train"]
        return {part: (str(path), labels) for part, labels in _read(path).items()}
    raise CbmError(f"{source}: comes without labels (mnist and caltech101-silhouettes have them); {_OWN}")


def _of_mnist() -> Iterator[tuple[str, tuple[str, np.ndarray]]]:
    images = locate("mnist")
    for part, stem in _MNIST.items():
        folder = images[part].parent
        path = find(folder, stem)
        if path is None:
            raise CbmError(f"mnist: {folder} has no {stem}[.gz]; put it beside the images, or {_OWN}")
        yield part, (str(path), _read(path)[""])


def _read(path: Path) -> dict[str, np.ndarray]:
    """Return the labels of a file: under the name ``""``, or by part."""
    content = unpacked(path)
    if content.startswith(_IDX_LABELS):
        return {"": _idx(path, content)}
    if content.startswith((b"\x93NUMPY", b"PK", b"MATLAB")):
        arrays = _arrays(path, content)
        return {part: _vector(f"{path} {part}".strip(), array) for part, array in arrays.items()}
    return {"": _vector(str(path), _text(path, content))}


def _idx(path: Path, content: bytes) -> np.ndarray:
    labels = np.frombuffer(content, np.uint8, offset=min(8, len(content)))
    if len(labels) != int.from_bytes(content[4:8], "big"):
        raise CbmError(f"{path}: holds another number of labels than its header says; get the file again")
    return labels


def _arrays(path: Path, content: bytes) -> dict[str, np.ndarray]:
    from scipy.io import loadmat

    stream = io.BytesIO(content)
    try:
        loaded = loadmat(stream) if content.startswith(b"MATLAB") else np.load(stream, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        return {
            part: loaded[next(name for name in names if name in loaded)]
            for part, names in _ARRAYS.items()
            if any(name in loaded for name in names)
        }
    except Exception as error:  # whatever NumPy and SciPy meet in a damaged file
        raise CbmError(f"{path}: cannot be read as arrays of labels: {error}") from None


def _vector(where: str, array: np.ndarray) -> np.ndarray:
    if array.size != max(array.shape, default=0) or array.dtype.kind not in "biufUS":
        raise CbmError(f"{where}: holds {array.dtype} of shape {array.shape}; expected one label a row")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise CbmError(f"{where}: holds NaN or infinite values; expected one label a row")
    return array.ravel()


def _text(path: Path, content: bytes) -> np.ndarray:
    try:
        lines = [line.strip() for line in content.decode("utf-8-sig").splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise CbmError(f"{path}: is neither text nor NPY, NPZ, MAT or IDX labels") from None
    for number, line in enumerate(lines, 1):
        if "," in line or ";" in line:
            raise CbmError(
                f"{path}: label {number} is {line[:40]!r}; expected one label a row, in one column"
            )
    try:
        return np.array(lines, dtype=np.float64)
    except ValueError:
        return np.array(lines)
