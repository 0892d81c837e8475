"""Fetching published files: from several mirrors, resumed where they broke off, and put in place whole."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cbm_cli.datasets.packing import checksum, unpacked
from cbm_cli.datasets.places import find, folders, home
from cbm_cli.datasets.sources import PUBLISHED, File, Published
from cbm_cli.errors import CbmError

MIRROR = "CBM_DATA_MIRROR"
"""Environment variable: the address of a folder with the files, in folders as `Published.folder` says."""
TRIES = 5
"""Connections to one mirror that may break off, each after some bytes, before the next mirror is tried."""
TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as broken."""

Show = Callable[[str], Any]
"""File name -> what pooch takes for a progress bar: ``total``, ``update(n)``, ``reset()``, ``close()``."""


class _Unfetched(Exception):
    """This address does not give the file; the next may."""


@dataclass(frozen=True)
class Checked:
    """A file of a data set here: where it is, and its checksum beside the one that is right.

    ``found`` is None for a file that is not there, or, with ``problem``, one that cannot be read.
    """

    stem: str
    path: Path | None
    expected: str
    found: str | None = None
    problem: str | None = None

    @property
    def good(self) -> bool:
        """Whether it is there and right."""
        return self.found == self.expected


def fetchable() -> list[str]:
    """Return the data sets that some address is known for."""
    return [name for name in PUBLISHED if any(_complete(PUBLISHED[name], form) for form in _forms(name))]


def check_files(name: str, data_dir: str | Path | None = None) -> list[Checked]:
    """Return the files of a data set, each with its checksum where it is found.

    Files of a form that is not in use (an NPZ where the text files are) are left out.
    """
    published = PUBLISHED[name]
    places = folders(name, data_dir, published.folder)
    forms = [[_checked(file, places) for file in _files(form)] for form in published.forms]
    used = [form for form in forms if any(one.path for one in form)]
    return [one for form in used or forms[:1] for one in form]


def fetch(name: str, to: str | Path | None = None, show: Show | None = None) -> tuple[Path, bool]:
    """Fetch the files of a published data set, unless they are there and right.

    A file that breaks off is gone on with, here or in the next call. Its checksum is checked before it
    takes its place; until then what was there before stays.

    Parameters
    ----------
    to : path, optional
        Folder of data to put them into; default: that of ``CBM_DATA_DIR``, or the user's cache.
    show : callable, optional
        Makes a progress bar for a file.

    Returns
    -------
    (pathlib.Path, bool)
        The folder of its files, and whether anything had to be fetched.

    Raises
    ------
    CbmError
        One line: why, which files to get by hand from where, and into which folder to put them.
    """
    here = None if to else _complete_folder(name)
    if here:
        return here, False
    published = PUBLISHED[name]
    folder = Path(to or home()).expanduser() / published.folder
    forms = [form for form in _forms(name) if _complete(published, form)]
    if not forms:
        stems = " and ".join(file.stem + ".gz" for file in published.files)
        raise CbmError(f"{name}: has no published address; put {stems} into {folder}, or set {MIRROR}")
    problems = []
    for form in forms:
        try:
            fetched = [_fetch_file(file, _urls(file, published), folder, show) for file in _files(form)]
            return folder, any(fetched)
        except _Unfetched as problem:
            problems.append(str(problem))
        except OSError as error:
            raise CbmError(f"{folder}: cannot write: {error.strerror}; choose another with --to") from None
    raise CbmError(f"{name}: {'; '.join(problems)}. {_by_hand(forms[0], published, folder)}")


def _forms(name: str) -> tuple[dict[str, File], ...]:
    return PUBLISHED[name].forms


def _files(form: dict[str, File]) -> Iterable[File]:
    return dict.fromkeys(form.values())


def _complete(published: Published, form: dict[str, File]) -> bool:
    return all(_urls(file, published) for file in _files(form))


def _urls(file: File, published: Published) -> tuple[str, ...]:
    """Return where to ask for a file, best first; on the mirror alone, packed or plain, where one is set."""
    mirror = os.environ.get(MIRROR)
    if not mirror:
        return file.urls
    base = f"{mirror.rstrip('/')}/{published.folder}/{file.stem}"
    return (base,) if file.stem.endswith((".mat", ".npz")) else (f"{base}.gz", base)


def _by_hand(form: dict[str, File], published: Published, folder: Path) -> str:
    missing = [file for file in _files(form) if not _checked(file, [folder]).good]
    return f"By hand: get {' and '.join(_urls(file, published)[0] for file in missing)} and put into {folder}"


def _complete_folder(name: str) -> Path | None:
    places = folders(name, None, PUBLISHED[name].folder)
    for folder in places:
        for form in _forms(name):
            if all(_checked(file, [folder]).good for file in _files(form)):
                return folder
    return None


def _checked(file: File, places: list[Path]) -> Checked:
    path = next(filter(None, (find(place, file.stem) for place in places)), None)
    if path is None:
        return Checked(file.stem, None, file.checksums[0])
    try:
        expected, found = _compared(path, file)
    except CbmError as error:
        return Checked(file.stem, path, file.checksums[0], problem=str(error))
    return Checked(file.stem, path, expected, found)


def _compared(path: Path, file: File) -> tuple[str, str]:
    """Return the checksum that is right and the one that was found; equal if any right one was found."""
    content = unpacked(path)
    found = {expected: checksum(content, expected) for expected in file.checksums}
    right = [expected for expected in found if found[expected] == expected]
    expected = (right or file.checksums)[0]
    return expected, found[expected]


def _fetch_file(file: File, urls: Iterable[str], folder: Path, show: Show | None) -> bool:
    """Fetch a file from the first address that has it; False if it is there and right."""
    if _checked(file, [folder]).good:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    problems = []
    for url in urls:
        target = folder / urlsplit(url).path.rpartition("/")[2]
        part = target.with_name(f".{target.name}.part")
        try:
            _download(url, part, file, show)
        except _Unfetched as problem:
            problems.append(str(problem))
            if part.exists() and not part.stat().st_size:
                part.unlink()
            continue
        os.replace(part, target)
        _remove_twin(target, file)
        return True
    raise _Unfetched("; ".join(problems))


def _remove_twin(target: Path, file: File) -> None:
    """Remove a wrong file that is the same but packed, or not packed, and would be read first."""
    other = find(target.parent, file.stem)
    if other != target and not _checked(file, [target.parent]).good:
        other.unlink()


def _download(url: str, part: Path, file: File, show: Show | None) -> None:
    """Fill ``part`` until it is right, and on disk; what breaks off stays in it for another time."""
    for _ in range(TRIES):
        begun = part.stat().st_size if part.exists() else 0
        whole = _append(url, part, file.stem, show)
        expected, found = _part_compared(part, file)
        if found == expected:
            return
        if not whole:
            if part.stat().st_size != begun:
                continue
            raise _Unfetched(
                f"{urlsplit(url).netloc or url} cannot be reached or sends nothing of {file.stem}"
            )
        part.unlink()
        if not begun:  # else what it went on with may have come from elsewhere: once more from the start
            raise _Unfetched(f"{url} has the wrong checksum: expected {expected}, found {found}")
    raise _Unfetched(f"{url} broke off {TRIES} times")


def _part_compared(part: Path, file: File) -> tuple[str, str]:
    try:
        return _compared(part, file)
    except CbmError:
        return file.checksums[0], "a damaged gzip file"


def _append(url: str, part: Path, name: str, show: Show | None) -> bool:
    """Go on with ``part`` where it ends, or start it anew; False where the connection broke off."""
    import pooch
    import requests

    with part.open("ab") as stream:

        def start_anew(response: requests.Response, **_: Any) -> None:
            if response.status_code in (requests.codes.ok, requests.codes.range_not_satisfiable):
                stream.truncate(0)  # the server sends all of it, or what is here is longer than it

        headers = {"Range": f"bytes={stream.tell()}-", "Accept-Encoding": "identity"}
        download = pooch.HTTPDownloader(
            progressbar=show(name) if show else False,
            chunk_size=1 << 14,
            timeout=TIMEOUT,
            headers=headers if stream.tell() else {"Accept-Encoding": "identity"},
            hooks={"response": start_anew},
        )
        try:
            download(url, stream, None)
        except requests.HTTPError as error:
            if error.response.status_code == requests.codes.range_not_satisfiable:
                return False
            raise _Unfetched(f"{url} answers {error.response.status_code}") from None
        except requests.RequestException:
            return False
        finally:
            stream.flush()
            os.fsync(stream.fileno())
    return True
