"""Downloads of published files, and their checksums.

Downloads go to a hidden file, which gets its name only with the right checksum; interrupted ones start again.
Checksums are of the content after gunzip: some mirrors pack files.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from cbm_cli.datasets.dataset import DataError
from cbm_cli.datasets.formats import unpacked
from cbm_cli.datasets.sources import SOURCES, VARIABLE, DataSource, File, find, home

MIRROR = "CBM_DATA_MIRROR"  # environment variable: address of a folder of data
TRIES = 3  # downloads from one address that may break off, each after some bytes
TIMEOUT = 30.0  # seconds without a byte after which a connection counts as broken

Show = Callable[[str], Any]  # from the name of a file to a progress bar as pooch takes it


class _Unfetched(Exception):
    """This address does not give the file; the next may."""


@dataclass(frozen=True)
class Checked:
    """A file of a data set, compared with its checksum."""

    stem: str
    path: Path | None  # None: not here
    expected: str
    found: str = ""  # its checksum, or why it has none

    @property
    def good(self) -> bool:
        """Whether it is here and right."""
        return self.found == self.expected

    @property
    def verdict(self) -> str:
        """``ok``, ``missing``, or what is wrong."""
        if self.path is None or self.good:
            return "ok" if self.good else "missing"
        return f"wrong: expected {self.expected}, found {self.found}"


def fetchable() -> list[str]:
    """Return the data sets that an address is known for."""
    return [name for name, source in SOURCES.items() if _forms(source)]


def check_files(name: str) -> list[Checked]:
    """Return the files that a data set is, or would be, read from, compared with their checksums."""
    source = SOURCES[name]
    try:
        return [_check(file, path) for file, path in source.locate().items()]
    except DataError:
        forms = [[_check_in(file, *source.folders) for file in form] for form in source.forms]
        return next((form for form in forms if any(file.path for file in form)), forms[0])


def fetch(name: str, show: Show | None = None) -> tuple[Path, bool]:
    """Download the files of a published data set, unless they are here and right.

    Return the folder of its files, and whether anything was downloaded. They go to the folder in
    ``CBM_DATA_DIR``, or to the user's cache.
    """
    source = SOURCES[name]
    for place in source.folders:
        if any(all(_check_in(file, place).good for file in form) for form in source.forms):
            return place, False
    folder = home() / source.folder
    forms = _forms(source)
    if not forms:
        stems = " and ".join(f"{file.stem}.gz" for form in source.forms for file in form)
        message = f"{name}: has no published address; put {stems} into {folder}, or set {MIRROR}"
        raise DataError(message, None, "missing")
    problems = []
    for form in forms:
        try:
            fetched = [_fetch_file(file, _urls(file, source), folder, show) for file in form]
            return folder, any(fetched)
        except _Unfetched as problem:
            problems.append(str(problem))
        except OSError as error:
            message = f"{folder}: cannot write: {error.strerror}; choose another with {VARIABLE}"
            raise DataError(message, None, "system") from None
    wanted = [_urls(file, source)[0] for file in forms[0] if not _check_in(file, folder).good]
    if not wanted:  # another process has fetched them in the meantime
        return folder, False
    by_hand = f"By hand: get {' and '.join(wanted)} and put into {folder}"
    raise DataError(f"{name}: {'; '.join(problems)}. {by_hand}", None, "system")


def _forms(source: DataSource) -> list[tuple[File, ...]]:
    """Return the forms of a data set that can be downloaded."""
    return [form for form in source.forms if all(_urls(file, source) for file in form)]


def _urls(file: File, source: DataSource) -> tuple[str, ...]:
    """Return where to ask for a file, best first; on the mirror alone, packed or plain, where one is set."""
    mirror = os.environ.get(MIRROR)
    if not mirror:
        return file.urls
    base = f"{mirror.rstrip('/')}/{source.folder}/{file.stem}"
    return (base,) if file.stem.endswith((".mat", ".npz")) else (f"{base}.gz", base)


def _check_in(file: File, *folders: Path) -> Checked:
    return _check(file, next(filter(None, (find(folder, file.stem) for folder in folders)), None))


def _check(file: File, path: Path | None) -> Checked:
    if path is None:
        return Checked(file.stem, None, file.checksums[0])
    try:
        content = unpacked(path)
    except DataError as error:
        return Checked(file.stem, path, file.checksums[0], str(error))
    found = {expected: _checksum(content, expected) for expected in file.checksums}
    right = next((one for one in found if found[one] == one), file.checksums[0])
    return Checked(file.stem, path, right, found[right])


def _checksum(content: bytes, like: str) -> str:
    """Return the checksum of some content, of the kind that ``like`` is: ``sha256:`` or ``git:``."""
    if like.startswith("git:"):
        return "git:" + hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _fetch_file(file: File, urls: tuple[str, ...], folder: Path, show: Show | None) -> bool:
    """Download a file from the first address that has it; False if it is here and right."""
    if _check_in(file, folder).good:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    problems = []
    for url in urls:
        target = folder / urlsplit(url).path.rpartition("/")[2]
        part = target.with_name(f".{target.name}.{uuid4().hex}.part")  # others may fetch the same file
        try:
            _download(url, part, file, show)
            os.replace(part, target)
        except _Unfetched as problem:
            problems.append(str(problem))
            continue
        finally:
            part.unlink(missing_ok=True)
        for twin in (folder / file.stem, folder / f"{file.stem}.gz"):
            if twin != target:
                twin.unlink(missing_ok=True)  # a wrong one, packed otherwise, might be read first
        return True
    raise _Unfetched("; ".join(problems))


def _download(url: str, part: Path, file: File, show: Show | None) -> None:
    """Fill ``part`` with the content of an address that has the right checksum."""
    from pooch import HTTPDownloader
    from requests import HTTPError, RequestException

    for _ in range(TRIES):
        bar = show(file.stem) if show else False
        options = {"timeout": TIMEOUT, "headers": {"Accept-Encoding": "identity"}}
        try:
            HTTPDownloader(bar, 1 << 14, **options)(url, str(part), None)
        except HTTPError as error:
            raise _Unfetched(f"{url} answers {error.response.status_code}") from None  # type: ignore[union-attr]
        except RequestException:
            if part.stat().st_size:
                continue
            raise _Unfetched(
                f"{urlsplit(url).netloc or url} cannot be reached or sends nothing of {file.stem}"
            ) from None
        checked = _check(file, part)
        if checked.good:
            return
        raise _Unfetched(f"{url} has the wrong checksum: expected {checked.expected}, found {checked.found}")
    raise _Unfetched(f"{url} broke off {TRIES} times")
