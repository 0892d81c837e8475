"""Files of formats that are not read: what they are, by their content, and how to convert them."""

import io
import re
import zipfile
from pathlib import Path

from cbm_cli.datasets.dataset import DataError

_EXCEL = "an Excel workbook", "pandas.read_excel"
_HDF5 = (
    "an HDF5 file, as MATLAB's version 7.3; in MATLAB save it with -v7, else convert one of its arrays: "
    "python -c \"import h5py, numpy; numpy.save({npy!r}, h5py.File({file!r})['NAME'][:])\""
)
_PICKLE = "a Python pickle, which can run code; where it was written, save numbers: numpy.save({npy!r}, rows)"
_R = "a file of R; in R save it as CSV: write.csv(rows, {csv!r}, row.names = FALSE)"
_PICTURE = "a picture; put the pixels of all into one array, a row for each: numpy.save({npy!r}, rows)"
_ARFF = (
    'ARFF; convert it: python -c "import pandas, scipy.io.arff as arff; '
    'pandas.DataFrame(arff.loadarff({file!r})[0]).to_csv({csv!r}, index=False)"'
)
_STARTS: dict[bytes, str | tuple[str, str]] = {  # first bytes -> what to say, or a format and its reader
    b"\x89HDF": _HDF5,
    b"MATLAB 7.3": _HDF5,
    b"ARROW1": ("a Feather file", "pandas.read_feather"),
    b"FEA1": ("a Feather file", "pandas.read_feather"),
    b"\xd0\xcf\x11\xe0": _EXCEL,
    b"SQLite format 3": "an SQLite database; save a table of it as CSV",
    **{bytes((0x80, protocol)): _PICKLE for protocol in range(2, 6)},
    **dict.fromkeys((b"RDX", b"RDA", b"X\n\x00\x00", b"A\n2\n", b"A\n3\n"), _R),
    b"\xfd7zXZ": "packed by xz; unpack it: xz -d {file}",
    b"BZh": "packed by bzip2; unpack it: bunzip2 {file}",
    b"\x28\xb5\x2f\xfd": "packed by zstd; unpack it: zstd -d {file}",
    b"7z\xbc\xaf": "a 7z archive; unpack it",
    **dict.fromkeys((b"\x89PNG", b"\xff\xd8\xff", b"GIF8"), _PICTURE),
    b"%PDF": "a PDF document; get its numbers as CSV",
    b"version https://git-lfs": "a pointer of Git LFS; get the file itself: git lfs pull",
}
_MEMBERS: dict[str, str | tuple[str, str]] = {  # ends of names in ZIP files
    "xl/workbook.xml": _EXCEL,
    "content.xml": ("an OpenDocument sheet", "pandas.read_excel"),
    "data.pkl": "a PyTorch file; save its array: numpy.save({npy!r}, rows.numpy())",
}
_TEXTS: dict[bytes, str | tuple[str, str]] = {  # first letters of text, without blanks
    b"[[": 'JSON; convert it: python -c "import json, numpy; numpy.save({npy!r}, json.load(open({file!r})))"',
    b"{": ("JSON", "pandas.read_json"),
    b"[": ("JSON", "pandas.read_json"),
    b"<": "HTML or XML, perhaps a web page about the file; get the file itself",
    b"@relation": _ARFF,
}


def refuse_foreign(path: Path, content: bytes) -> None:
    """Raise DataError for content of a format that is known and not read."""
    head = re.sub(rb"(?m)^%.*", b"", content[:10_000].removeprefix(b"\xef\xbb\xbf"))  # comments of ARFF
    text = b"".join(head.lower().split())
    known = [about for start, about in _STARTS.items() if content.startswith(start)]
    known += [about for start, about in _TEXTS.items() if text.startswith(start)]
    if content.startswith(b"PK"):
        known += _about_zip(content)
    if known:
        options = ["lines=True"] if text.startswith(b"{") and b"}{" in text else []  # an object in each line
        words = (
            known[0] if isinstance(known[0], str) else f"{known[0][0]}; {converted(known[0][1], *options)}"
        )
        raise DataError(f"{path}: is {filled(words, path)}", None, "unreadable")


def refuse_encoding(path: Path, content: bytes) -> None:
    """Raise DataError for bytes that are no text in UTF-8, naming the encoding that they may have."""
    head = content[:10_000]
    wide = head.startswith((b"\xff\xfe", b"\xfe\xff")) or (len(head) > 3 and not any(head[1::2]))
    encoding = "utf-16" if wide else "latin-1"
    if not wide and (any(byte < 9 for byte in head) or sum(byte > 127 for byte in head) > len(head) / 3):
        raise DataError(f"{path}: is neither text nor NPY, NPZ, MAT or IDX", None, "unreadable")
    kind = "text in UTF-16" if wide else "no text in UTF-8, perhaps in Latin-1 (Windows-1252)"
    code = "from pathlib import Path; p = Path({file!r}); "
    code += f"p.write_text(p.read_text({encoding!r}), 'utf-8')"
    message = f'{path}: is {kind}; save it as UTF-8: python -c "{filled(code, path)}"'
    raise DataError(message, None, "unreadable")


def converted(reader: str, *options: str) -> str:
    """Return the remedy to convert a file by a reader of pandas, to be filled with the file's names."""
    call = ", ".join(("{file!r}", *options))
    return f'convert it: python -c "import pandas; {reader}({call}).to_csv({{csv!r}}, index=False)"'


def filled(words: str, path: Path) -> str:
    """Return a remedy with the names of the file and of what it is converted to."""
    csv = path.with_name(f"{path.stem}-converted.csv" if path.suffix == ".csv" else f"{path.stem}.csv")
    return words.format(file=str(path), csv=str(csv), npy=str(path.with_suffix(".npy")))


def _about_zip(content: bytes) -> list[str | tuple[str, str]]:
    try:
        names = zipfile.ZipFile(io.BytesIO(content)).namelist()
    except Exception:  # a damaged one: the reader of NPZ files says so
        return []
    if any(name.endswith(".npy") for name in names):
        return []
    known = [about for end, about in _MEMBERS.items() if any(name.endswith(end) for name in names)]
    return known or (["a ZIP archive without arrays; unpack it"] if names else [])
