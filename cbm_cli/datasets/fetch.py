"""Files of published data sets: whether they are here, compared with their checksums,
and downloads by pooch.

Checksums are of the content after gunzip: some mirrors pack files.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from platformdirs import user_cache_path

from cbm_cli.datasets.formats import reading, unpacked
from cbm_cli.datasets.published import SOURCES, VARIABLE, DataSource, File, find
from cbm_cli.errors import CbmError, FieldError

TRIES = 3  # downloads from one address that may break off
TIMEOUT = 30.0  # seconds without a byte after which a connection counts as broken


@dataclass(frozen=True)
class Checked:
    """A file of a data set, compared with its checksums."""

    stem: str
    path: Path | None  # None: not here
    verdict: str  # ok, missing, or what is wrong
    content: bytes = b""


@dataclass(frozen=True)
class Listing:
    """A data set that cbm knows, and whether its files are here."""

    source: DataSource
    state: str  # generated, ok, missing or damaged (a file is not as published)
    files: Sequence[Checked]


def check(file: File, path: Path | None) -> Checked:
    """Read a file and compare it with its checksums."""
    if path is None:
        return Checked(file.stem, None, "missing")
    try:
        with reading(""):
            content = unpacked(path)
    except FieldError as error:
        return Checked(
            file.stem, path, f"wrong: expected {file.checksums[0]}, and it {error}"
        )
    found = []
    for expected in file.checksums:
        kind, _, _ = expected.partition(":")
        blob = (
            hashlib.sha1(b"blob %d\0" % len(content))
            if kind == "git"
            else hashlib.sha256()
        )
        blob.update(content)
        found.append(f"{kind}:{blob.hexdigest()}")
    wrong = f"wrong: expected {file.checksums[0]}, found {found[0]}"
    return Checked(
        file.stem, path, "ok" if {*found} & {*file.checksums} else wrong, content
    )


def catalogue(*wanted: str) -> list[Listing]:
    """Return the data sets named, or all of them; files are compared with their
    checksums.
    """
    listed = []
    for source in (SOURCES[name] for name in wanted or SOURCES):
        try:
            files = [check(file, path) for file, path in source.locate().items()]
            wrong = any(file.verdict != "ok" for file in files)
            state = "damaged" if wrong else "ok" if files else "generated"
        except FieldError:
            found = {
                file: [find(folder, file.stem) for folder in source.folders]
                for file in source.forms[0]
            }
            files = [
                check(file, next(filter(None, paths), None))
                for file, paths in found.items()
            ]
            state = "missing"
        listed.append(Listing(source, state, files))
    return listed


def fetch(name: str, say: Callable[[str], Any] = str) -> tuple[Path, bool]:
    """Download the files of a published data set, unless they are here and right.

    Return the folder of its files, and whether anything was downloaded. They go to the
    folder in ``CBM_DATA_DIR``, or to the user's cache. ``say`` gets the address of each
    file.
    """
    source = SOURCES[name]
    for place in source.folders:
        if not all(_lacking(form, place) for form in source.forms):
            return place, False
    home = os.environ.get(VARIABLE) or user_cache_path("cbm") / "data"
    folder, problems = Path(os.path.expanduser(home)) / source.folder, list[str]()
    for form in source.downloads:
        try:
            for file in _lacking(form, folder):
                _download(file, folder, say)
            return folder, True
        except FieldError as problem:
            problems.append(str(problem))
        except OSError as error:
            told = (
                f"{folder}: cannot write: {error.strerror}; choose another with "
                f"{VARIABLE}"
            )
            raise FieldError(told) from None
    urls = [
        next(iter(file.urls), f"{file.stem}.gz")
        for file in _lacking(source.forms[0], folder)
    ]
    reason = "; ".join(problems) or "has no published address"
    raise FieldError(
        f"{name}: {reason}. By hand: get {' and '.join(urls)} and put into {folder}"
    )


def _lacking(form: Sequence[File], folder: Path) -> list[File]:
    """Return the files of a form that are not here, or wrong."""
    return [
        file for file in form if check(file, find(folder, file.stem)).verdict != "ok"
    ]


def _download(file: File, folder: Path, say: Callable[[str], Any]) -> None:
    """Get a file from the first address that has it; only the right content replaces an
    old file.

    What breaks off is tried again; what an address refuses (as 404) is not.
    """
    import pooch
    from requests import RequestException

    def refuse(answer: Any, **_: Any) -> None:
        if 400 <= answer.status_code < 500:
            raise CbmError(
                f"answers {answer.status_code}"
            )  # an error that pooch does not try again

    pooch.get_logger().setLevel("ERROR")
    folder.mkdir(parents=True, exist_ok=True)
    how: Any = {
        "headers": {"Accept-Encoding": "identity"},
        "hooks": {"response": refuse},
    }
    loader, problems = (
        pooch.HTTPDownloader(False, 1 << 14, timeout=TIMEOUT, **how),
        list[str](),
    )
    for url in file.urls:
        say(f"fetching {url}")
        base, _, name = url.rpartition("/")
        with TemporaryDirectory(suffix=".part", dir=folder) as part:
            store = pooch.create(
                part, f"{base}/", registry={name: None}, retry_if_failed=TRIES - 1
            )
            try:
                found = store.fetch(name, downloader=loader)
            except (RequestException, ValueError, CbmError) as error:
                answer = getattr(getattr(error, "response", None), "status_code", "")
                told = (
                    f"answers {answer}" if answer else "broke off or cannot be reached"
                )
                told = (
                    str(error)
                    if isinstance(error, CbmError)
                    else f"{told}, {TRIES} times"
                )
                problems.append(f"{url} {told}")
                continue
            if (verdict := check(file, Path(found)).verdict) == "ok":
                for twin in (folder / file.stem, folder / f"{file.stem}.gz"):
                    twin.unlink(
                        missing_ok=True
                    )  # a wrong one, packed otherwise, might be read first
                os.replace(found, folder / name)
                return
            problems.append(f"{url}: {verdict}")
    raise FieldError("; ".join(problems))
