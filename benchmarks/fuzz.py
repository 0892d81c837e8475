"""Coverage-guided fuzzing of the readers; a development tool that needs the extra
``fuzz`` (atheris).

    python benchmarks/fuzz.py npz --minutes 10 --folder fuzz/

tries changed inputs for some minutes, keeps those that reach new code in
FOLDER/READER/corpus, and one input of each kind of finding, an exception that is no
CbmError, in FOLDER/READER/found.
"""

import argparse
import atexit
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))
with atheris.instrument_imports(include=["cbm_cli"]):
    from cbm_cli import arrays
    from cbm_cli.datasets import formats
    from cbm_cli.errors import CbmError
    from cbm_cli.grid.names import Sampler, Scheme
    from cbm_cli.grid.read import read_grid
    from cbm_cli.machines.files import read_machine
    from cbm_cli.results import Results, journal
    from cbm_cli.results.states import read_progress, sealed_npz

import numpy as np

from tests.builders import GRID, MACHINES, grid_text, idx, lines
from tests.builders import arrays as packed
from tests.networks import layered, machine_file

ROWS = np.random.default_rng(1).integers(0, 2, (6, 5)).astype(np.uint8)
PLACE = (
    Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    / "input"
)


def read_state(path: Path) -> object:
    """Read a state whose checksum is right, whatever it holds."""
    path.write_bytes(sealed_npz(path.read_bytes()))
    return read_progress(path)


def from_file(read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """Return a reader of bytes, by a file."""

    def reader(content: bytes) -> object:
        PLACE.write_bytes(content)
        return read(PLACE)

    return reader


def read_rows(path: Path) -> object:
    """Read a file of rows."""
    with formats.reading(path):
        return formats.tables_in(formats.unpacked(path))


def names(content: bytes) -> None:
    """Read a scheme and a sampler; what is read must be written as it is read again."""
    text = content.decode("utf-8", "surrogateescape")
    for kind in (Scheme, Sampler):
        with suppress(CbmError):
            found = kind.parse(text)
            assert kind.parse(str(found)) == found
            found.latex(), found.unicode()


def settings(content: bytes) -> None:
    """Read a grid of which one field is a text, as --set gives it."""
    field, _, text = content.decode("utf-8", "surrogateescape").partition("=")
    PLACE.write_text(GRID)
    read_grid(PLACE, {field: text})


def state() -> bytes:
    """Return the state of a trial."""
    vectors = {
        f"state_{name}": np.zeros((2, 2), np.float32)
        for name in ("W", "b", "c", "mu", "lam")
    }
    return packed(
        **vectors, update=np.array(3), curve=np.zeros((1, 3)), start=np.array("")
    )


KINDS = {"rbm": (4, 3), "dbm": (4, 3, 2)}
FILES = [
    packed(**machine_file(layered(sizes, 1), kind)) for kind, sizes in KINDS.items()
]
TEXT = [
    lines(ROWS),
    lines(ROWS, " "),
    lines(ROWS, ";", "\r\n"),
    b"a,b\n0,1\n",
    b"1 1:1 3:0.5\n-1 2:1 # x\n",
]
LIMIT = 2**24  # bytes of an unpacked file, instead of a gigabyte: faster


def results() -> tuple[Callable[[bytes], object], list[bytes]]:
    """Read a results folder with a changed file: the first byte of an input says which
    one.
    """
    journal._digest = lambda content: (
        b"0" * 16
    )  # else few inputs get behind the checksums
    folder = Path(tempfile.mkdtemp(prefix="cbm-fuzz-"))
    atexit.register(shutil.rmtree, folder)
    grid = folder / "grid.yaml"
    grid.write_text(GRID)
    code = "from cbm_cli.cli import main; main()"
    command = [sys.executable, "-c", code, "run", grid, "-j", "0", "-o", folder / "out"]
    subprocess.run(command, check=True)
    files = [
        folder / "out/bars" / name
        for name in ("manifest.json", "summary.csv", "trials.jsonl")
    ]
    for path in files:
        path.write_bytes(
            re.sub(rb'"[0-9a-f]{16}"}', b'"0000000000000000"}', path.read_bytes())
        )
    contents = [path.read_bytes() for path in files]

    def read(content: bytes) -> None:
        which = content[0] % len(files) if content else 0
        files[which].write_bytes(content[1:])
        try:
            found = Results(folder / "out").store("bars")
            found.summary(), found.damaged()
            for run_id in found.runs():
                for number in found.finished(run_id):
                    found.row(run_id, number)
                    found.contents(run_id, number)
                    found.curves(run_id, [number])
        finally:
            files[which].write_bytes(contents[which])

    return read, [bytes([which]) + content for which, content in enumerate(contents)]


READERS = {
    "grid": (
        from_file(read_grid),
        [text.encode() for text in (GRID, *map(grid_text, MACHINES))],
    ),
    "set": (
        settings,
        [
            b"learning_rate={start: 1, steps: 0.1 from 3 epochs}",
            b"data.flip=yes",
            b"batch=4",
        ],
    ),
    "names": (names, [b"dd^b_s", b"aa_s^l", b"PT_10-2", b"PCD-3", b"exact", b"00"]),
    "text": (from_file(read_rows), [*TEXT, gzip.compress(TEXT[0])]),
    "npy": (
        from_file(read_rows),
        [packed(array) for array in (ROWS, ROWS.astype(">f4"), ROWS.T)],
    ),
    "npz": (
        from_file(read_rows),
        [packed(train=ROWS, test=ROWS), packed(x=ROWS, y=ROWS[0])],
    ),
    "idx": (from_file(read_rows), [idx(ROWS), idx(ROWS.reshape(6, 5, 1))]),
    "machine": (from_file(read_machine), FILES),
    "state": (from_file(read_state), [state()]),
}  # fmt: skip


class Findings:
    """Counts executions, and keeps one input of each kind of exception."""

    def __init__(self, reader: Callable[[bytes], object], folder: Path) -> None:
        self.reader, self.folder = reader, folder
        self.runs, self.kinds = 0, set()
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, content: bytes) -> None:
        """Read an input."""
        self.runs += 1
        try:
            self.reader(content)
        except CbmError:
            return
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            kind = type(error).__name__, frame.filename, frame.lineno
            if kind not in self.kinds:
                self.kinds.add(kind)
                (self.folder / hashlib.sha1(content).hexdigest()[:10]).write_bytes(
                    content
                )
                print("FOUND", *kind, str(error)[:100], flush=True)


def main() -> None:
    """Fuzz one reader."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reader", nargs="?", choices=[*READERS, "results"])
    parser.add_argument("--list", action="store_true", help="Print the readers")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--folder", type=Path, default=Path("fuzz"))
    asked = parser.parse_args()
    if asked.list or not asked.reader:
        print(*READERS, "results")
        return
    atexit.register(
        lambda: os._exit(bool(findings.kinds))
    )  # libFuzzer would exit with 0
    warnings.simplefilter("ignore")
    for module in (arrays, formats):
        module.MOST_BYTES = LIMIT
    zipfile.ZipExtFile._update_crc = lambda self, data: (
        None
    )  # else few inputs get behind the checksums
    reader, seeds = results() if asked.reader == "results" else READERS[asked.reader]
    folder = asked.folder / asked.reader
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    findings, began = Findings(reader, folder / "found"), time.monotonic()
    limits = (
        f"-max_total_time={60 * asked.minutes:.0f}",
        "-max_len=16384",
        "-timeout=20",
        "-rss_limit_mb=4000",
    )
    options = [
        sys.argv[0],
        *limits,
        f"-artifact_prefix={folder}/",
        "-verbosity=0",
        str(corpus),
    ]

    def count(content: bytes) -> None:
        findings(content)
        if findings.runs % 1000 == 0:
            minutes = (time.monotonic() - began) / 60
            text = (
                f"{minutes:.1f} min, {findings.runs:,} inputs, "
                f"{len(findings.kinds)} findings\n"
            )
            (folder / "report.txt").write_text(f"{asked.reader}: {text}")

    atheris.Setup(options, count)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
