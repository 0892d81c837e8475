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
    """Read a file and compare it with its checksums.

    Examples
    --------
    >>> check(File("digits"), None).verdict
    'missing'
    """
    if path is None:
        return Checked(file.stem, None, "missing")
    expected = file.checksums[0]
    try:
        with reading(""):
            content = unpacked(path)
    except FieldError as error:
        verdict = f"wrong: expected {expected}, and it {error}"
        return Checked(file.stem, path, verdict)
    checksums = [_checksum(content, checksum) for checksum in file.checksums]
    verdict = "ok"
    if not {*checksums} & {*file.checksums}:
        verdict = f"wrong: expected {expected}, found {checksums[0]}"
    return Checked(file.stem, path, verdict, content)


def catalogue(*names: str) -> list[Listing]:
    """Return the data sets named, or all of them; files are compared with their
    checksums.

    Examples
    --------
    >>> [listing.state for listing in catalogue("bars-and-stripes")]
    ['generated']
    """
    listings = []
    for name in names or SOURCES:
        source = SOURCES[name]
        files = [check(file, path) for file, path in source.locate().items()]
        verdicts = {file.verdict for file in files}
        state = "damaged"
        if not files:
            state = "generated"
        elif "missing" in verdicts:
            state = "missing"
        elif verdicts == {"ok"}:
            state = "ok"
        listings.append(Listing(source, state, files))
    return listings


def fetch(name: str, say: Callable[[str], Any] = str) -> tuple[Path, bool]:
    """Download the files of a published data set, unless they are here and right.

    They go to the folder in ``CBM_DATA_DIR``, or to the user's cache.

    Parameters
    ----------
    name : str
        A published data set.
    say : function
        Gets the address of each file.

    Returns
    -------
    folder : Path
        The folder of its files.
    fetched : bool
        Whether anything was downloaded.
    """
    source = SOURCES[name]
    (listing,) = catalogue(name)
    present = listing.files[0].path
    if present and listing.state == "ok":
        return present.parent, False
    root = os.environ.get(VARIABLE) or str(user_cache_path("cbm") / "data")
    folder = Path(os.path.expanduser(root), source.folder)
    problems = list[str]()
    for form in source.downloads:
        try:
            for file in _lacking(form, folder):
                _download(file, folder, say)
            return folder, True
        except FieldError as problem:
            problems.append(str(problem))
        except OSError as error:
            raise FieldError(
                f"{folder}: cannot write: {error.strerror}; choose another with "
                f"{VARIABLE}"
            ) from None
    urls = []
    for file in _lacking(source.forms[0], folder):
        urls.append(file.urls[0] if file.urls else f"{file.stem}.gz")
    reason = "; ".join(problems) or "has no published address"
    raise FieldError(
        f"{name}: {reason}. By hand: get {' and '.join(urls)} and put into {folder}"
    )


def _checksum(content: bytes, like: str) -> str:
    """Return the checksum of content, of the kind of another one."""
    kind, _, _ = like.partition(":")
    if kind == "git":
        blob = b"blob %d\0" % len(content) + content
        return f"git:{hashlib.sha1(blob).hexdigest()}"
    return f"{kind}:{hashlib.sha256(content).hexdigest()}"


def _lacking(form: Sequence[File], folder: Path) -> list[File]:
    """Return the files of a form that are not here, or wrong."""
    return [
        file for file in form if check(file, find([folder], file.stem)).verdict != "ok"
    ]


def _download(file: File, folder: Path, say: Callable[[str], Any]) -> None:
    """Get a file from the first address that has it; only the right content replaces an
    old file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    problems = []
    for url in file.urls:
        say(f"fetching {url}")
        with TemporaryDirectory(suffix=".part", dir=folder) as part:
            try:
                path = _get(url, part)
            except CbmError as error:
                problems.append(f"{url} {error}")
                continue
            verdict = check(file, path).verdict
            if verdict == "ok":
                # a wrong one, packed otherwise, might be read first
                for name in (file.stem, f"{file.stem}.gz"):
                    (folder / name).unlink(missing_ok=True)
                os.replace(path, folder / path.name)
                return
            problems.append(f"{url}: {verdict}")
    raise FieldError("; ".join(problems))


def _get(url: str, folder: str) -> Path:
    """Download a file; CbmError with the answer of the address.

    A broken download is tried again; one that an address refuses (as 404) is not.
    """
    import pooch
    from requests import RequestException

    def refuse(answer: Any, **_: Any) -> None:
        if 400 <= answer.status_code < 500:
            # an error that pooch does not try again
            raise CbmError(f"answers {answer.status_code}")

    pooch.get_logger().setLevel("ERROR")
    loader = pooch.HTTPDownloader(
        progressbar=False,
        chunk_size=1 << 14,
        timeout=TIMEOUT,
        headers={"Accept-Encoding": "identity"},
        hooks={"response": refuse},
    )
    base, _, name = url.rpartition("/")
    registry = {name: None}
    store = pooch.create(
        folder, f"{base}/", registry=registry, retry_if_failed=TRIES - 1
    )
    try:
        return Path(store.fetch(name, downloader=loader))
    except (RequestException, ValueError) as error:
        response = getattr(error, "response", None)
        status = getattr(response, "status_code", "")
        cause = f"answers {status}" if status else "broke off or cannot be reached"
        raise CbmError(f"{cause}, {TRIES} times") from None
