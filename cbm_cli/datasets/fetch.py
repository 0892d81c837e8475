"""Files of published data sets: their checksums, and downloads by pooch.

Checksums are of the content after gunzip: some mirrors pack files.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cbm_cli.datasets.files import reading, unpacked
from cbm_cli.datasets.published import SOURCES, VARIABLE, DataSource, File, find, home
from cbm_cli.errors import FieldError

TRIES = 3  # downloads from one address that may break off
TIMEOUT = 30.0  # seconds without a byte after which a connection counts as broken


@dataclass(frozen=True)
class Checked:
    """A file of a data set, compared with its checksum."""

    stem: str
    path: Path | None  # None: not here
    expected: str
    found: str = ""  # its checksum, or why it has none
    content: bytes = b""

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


def check(file: File, path: Path | None) -> Checked:
    """Read a file and compare it with its checksums."""
    first = file.checksums[0]
    if path is None:
        return Checked(file.stem, None, first)
    try:
        with reading(path):
            content = unpacked(path)
    except FieldError as error:
        return Checked(file.stem, path, first, str(error))
    found = {}
    for expected in file.checksums:
        git = expected.startswith("git:")  # the SHA-1 of a git blob
        hasher = hashlib.sha1(b"blob %d\0" % len(content)) if git else hashlib.sha256()
        hasher.update(content)
        found[expected] = ("git:" if git else "sha256:") + hasher.hexdigest()
    right = next((one for one in found if found[one] == one), first)
    return Checked(file.stem, path, right, found[right], content)


def fetchable() -> list[str]:
    """Return the data sets that an address is known for."""
    return [name for name, source in SOURCES.items() if _forms(source)]


def fetch(name: str, say: Callable[[str], Any] = str) -> tuple[Path, bool]:
    """Download the files of a published data set, unless they are here and right.

    Return the folder of its files, and whether anything was downloaded. They go to the folder in
    ``CBM_DATA_DIR``, or to the user's cache. ``say`` is told of each file what it is fetched from.
    """
    source = SOURCES[name]
    for place in source.folders:
        if any(all(_is_good(file, place) for file in form) for form in source.forms):
            return place, False
    folder, problems = home() / source.folder, []
    for form in _forms(source):
        try:
            for file in form:
                if not _is_good(file, folder):
                    _download(file, folder, say)
            return folder, True
        except FieldError as problem:
            problems.append(str(problem))
        except OSError as error:
            told = f"{folder}: cannot write: {error.strerror}; choose another with {VARIABLE}"
            raise FieldError(told) from None
    lacking = [file for file in source.forms[0] if not _is_good(file, folder)]
    if not lacking:  # another process has fetched them in the meantime
        return folder, False
    urls = [next(iter(file.urls), f"{file.stem}.gz") for file in lacking]
    reason = "; ".join(problems) or "has no published address"
    raise FieldError(f"{name}: {reason}. By hand: get {' and '.join(urls)} and put into {folder}")


def _is_good(file: File, folder: Path) -> bool:
    return check(file, find(folder, file.stem)).good


def _forms(source: DataSource) -> list[tuple[File, ...]]:
    """Return the forms of a data set that can be downloaded."""
    return [form for form in source.forms if all(file.urls for file in form)]


def _download(file: File, folder: Path, say: Callable[[str], Any]) -> None:
    """Get a file from the first address that has it; only the right content replaces what is there."""
    import pooch
    from requests import HTTPError, RequestException

    pooch.get_logger().setLevel("ERROR")
    folder.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"timeout": TIMEOUT, "headers": {"Accept-Encoding": "identity"}}
    problems = []

    def get(url: str, target: str, store: object) -> None:
        try:
            pooch.HTTPDownloader(False, 1 << 14, **options)(url, target, None)
        except HTTPError as error:  # which trying again does not mend
            answer = error.response.status_code if error.response is not None else "an error"
            raise _Refused(f"{url} answers {answer}") from None
        checked = check(file, Path(target))
        if not checked.good:
            raise _Refused(f"{url}: {checked.verdict}")

    for url in file.urls:
        say(f"fetching {url}")
        base, _, name = url.rpartition("/")
        with TemporaryDirectory(suffix=".part", dir=folder) as part:
            store = pooch.create(part, f"{base}/", registry={name: None}, retry_if_failed=TRIES - 1)
            try:
                found = store.fetch(name, downloader=get)
            except _Refused as error:
                problems.append(str(error))
            except (RequestException, ValueError):
                problems.append(f"{url} broke off or cannot be reached, {TRIES} times")
            else:
                for twin in (folder / file.stem, folder / f"{file.stem}.gz"):
                    twin.unlink(missing_ok=True)  # a wrong one, packed otherwise, might be read first
                os.replace(found, folder / name)
                return
    raise FieldError("; ".join(problems))


class _Refused(Exception):
    """An address gives something else than the file."""
