"""Who may change a results folder, what is proved to be damaged, and that nothing else
is ever removed.
"""

import errno
import os
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from cbm_cli import arrays
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import DamagedError
from cbm_cli.grid.settings import Trial
from cbm_cli.results import states, writer
from cbm_cli.results.states import read_sealed_npz, sealed_npz
from cbm_cli.results.writer import locked
from cbm_cli.results.writing import cannot_write, write_atomically
from cbm_cli.trial.checks import check, state_bytes
from cbm_cli.trial.loop import run_trial

from tests.builders import GRID, cbm, dry, numbers, refusal
from tests.journals import contents_of, trials_of
from tests.trainings import rbm_settings


def run(*words, code=0):
    return cbm("run", "grid.yaml", "-o", "out", "-j", 0, *words, code=code).stderr


def seen(folder="out"):
    """What the system knows of all files below a folder: a write changes it."""
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        status = path.lstat()
        times = status.st_mtime_ns, status.st_ctime_ns
        found[path] = status.st_ino, status.st_size, status.st_mode, *times
    return found


@pytest.fixture
def large(monkeypatch):
    """All machines are files."""
    monkeypatch.setattr(writer, "SMALL", 0)


@pytest.fixture
def state(grid, monkeypatch):
    """The state of a trial of LONG that was stopped, in a folder of finished ones."""
    grid(GRID)
    monkeypatch.setattr("cbm_cli.trial.loop.LONG", 0)
    run()
    paths = sorted(Path("out/bars/checkpoints").glob("*/*.npz"))
    assert len(paths) == 8
    return paths[0]


def longer():
    """The command that continues all trials, and what it counts without running."""
    return "--set", "updates=120"


READERS = (
    "run grid.yaml -o out --dry-run",
    "run grid.yaml -o out --dry-run --set updates=120",
    "ls out",
    "ls out bars",
    "table out",
    "best out",
    "plot out curves -o x.png",
    "report out -o x.html",
    "verify out --sample 1 -j 0",
)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_commands_that_read_change_no_file(state, large, is_damaged):
    if is_damaged:
        run("--set", "seed=6")
        machine = next(Path("out/bars/machines").rglob("*.npz"))
        for path in (state, machine):
            path.write_bytes(path.read_bytes()[:-1])
    before = seen()
    for command in READERS:
        cbm(*command.split(), code=int(is_damaged and "verify" in command))
    assert seen() == before


# ---- States ----


def failing(number):
    return OSError(number, os.strerror(number))


FAILURES = {
    "EMFILE": (failing(errno.EMFILE), "Too many open files"),
    "EIO": (failing(errno.EIO), "Input/output error"),
    "EACCES": (failing(errno.EACCES), "Permission denied"),
    "ESTALE": (failing(errno.ESTALE), "Stale file handle"),
    "memory": (MemoryError(), "not enough memory"),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("words", [["--dry-run"], []])
def test_a_state_that_cannot_be_read_ends_the_run_and_stays(
    state, monkeypatch, failure, words
):
    error, reason = FAILURES[failure]
    content, real = state.read_bytes(), states.content_of

    def content_of(path):
        if path == state:
            raise error
        return real(path)

    with monkeypatch.context() as broken:
        broken.setattr(states, "content_of", content_of)
        said = run(*longer(), *words, code=2)
    assert f"{state}: cannot be read: {reason}" in said
    assert state.read_bytes() == content
    assert dry("-o", "out", *longer())[3] == 8  # all of them continue


@pytest.mark.parametrize("words", [["--dry-run"], []])
def test_a_state_over_the_limit_ends_the_run_and_stays(state, monkeypatch, words):
    content = state.read_bytes()
    monkeypatch.setattr(arrays, "MOST_BYTES", len(content) - 1)
    said = run(*longer(), *words, code=2)
    assert f"{state}: cannot be read: Has {len(content):,} bytes; the limit is" in said
    assert state.read_bytes() == content


def test_a_state_whose_checksum_fails_is_renamed_by_a_run_alone(state):
    whole = trials_of("out")
    damaged = bytearray(state.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    state.write_bytes(damaged)
    said = cbm("run", "grid.yaml", "-o", "out", "--dry-run", *longer())
    assert f"{state}: was cut short or changed" in said.stderr
    assert numbers(said.stdout)[0][:4] == [8, 0, 8, 7]
    assert state.read_bytes() == damaged
    assert f"{state}: kept as {state.name}.damaged-1" in run(*longer())
    assert state.with_name(f"{state.name}.damaged-1").read_bytes() == damaged
    run()
    assert (
        contents_of("out").items()
        >= {
            key: content for key, content in whole.items() if not isinstance(key, str)
        }.items()
    )


def test_files_that_are_set_aside_never_replace_each_other(tmp_path):
    path = tmp_path / "out" / "x.npz"
    with locked(tmp_path / "out") as lock:
        for content in (b"1", b"2"):
            path.write_bytes(content)
            lock.set_aside(path)
    kept = sorted(path.parent.glob("x.npz.damaged-*"))
    assert [one.read_bytes() for one in kept] == [b"1", b"2"]


def test_every_change_of_a_sealed_file_is_found(tmp_path):
    path = tmp_path / "x.npz"
    content = sealed_npz(arrays.npz_of({"x": np.arange(5)}))
    path.write_bytes(content)
    assert read_sealed_npz(path)["x"].tolist() == [0, 1, 2, 3, 4]
    assert np.load(path)["x"].tolist() == [0, 1, 2, 3, 4]
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 4
        path.write_bytes(changed)
        with pytest.raises(DamagedError, match="was cut short or changed"):
            read_sealed_npz(path)
        path.write_bytes(content[:place])
        with pytest.raises(DamagedError, match="was cut short or changed"):
            read_sealed_npz(path)


PARTS = Dataset("parts", np.eye(8, dtype=np.uint8), np.eye(8, dtype=np.uint8))
KINDS = {
    "plain": {},
    "momentum": {"momentum": 0.5},
    "chains": {"sampler": "PCD-1", "chains": 70},
    "ladder": {"sampler": "PT_20"},
    "aside": {"sampler": "PCD-1", "offsets_from": "independent", "offsets": "mm"},
    "deep": {"model": {"kind": "dbm", "hidden": [30, 15]}, "offsets": "ddd"},
    "coder": {
        "model": {"kind": "auto-encoder", "hidden": 30},
        "sampler": None,
        "offsets": "dd",
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_size_of_a_state_is_known_before_training(kind, monkeypatch):
    monkeypatch.setattr("cbm_cli.trial.loop.LONG", 0.0)  # the end is kept
    plain = {"model": {"kind": "rbm", "hidden": 40}, "updates": 20, "batch": 4}
    settings = rbm_settings(**plain | {"evaluate": {"every": 1}} | KINDS[kind])
    end = run_trial(Trial("toy", settings, 0, 1), PARTS).end
    held = 0
    for name, array in end.arrays().items():
        if name not in ("facts", "state.rounds"):
            held += array.nbytes
    assert 0.75 * held < state_bytes(settings, PARTS) <= held


def test_a_trial_whose_state_could_not_be_read_is_refused_before_it_begins():
    """Weights, their velocity and the best machine: each below the limit, together
    above it.
    """
    rows = np.zeros((2, 9500), np.uint8)
    settings = rbm_settings(
        model={"kind": "rbm", "hidden": 9500},
        momentum=0.5,
        batch="full",
        evaluate={"method": "ais", "temperatures": 10, "runs": 5},
    )
    error = refusal(check, settings, Dataset("wide", rows, rows))
    assert error.field == "model.hidden"
    assert "1,073,741,824" in str(error)
    check(settings, Dataset("wide", rows))


# ---- Machines ----


def test_a_machine_that_cannot_be_read_is_not_trained_again(grid, large, monkeypatch):
    run()
    whole, real = trials_of("out"), states.content_of
    Path("out/.cbm-checked.json").unlink()
    victim = next(Path("out/bars/machines").rglob("*.npz"))

    def content_of(path):
        if path == victim:
            raise failing(errno.EMFILE)
        return real(path)

    with monkeypatch.context() as broken:
        broken.setattr(states, "content_of", content_of)
        for words in (["--dry-run"], []):
            said = run(*words, code=2)
            assert f"{victim}: cannot be read: Too many open files" in said
    assert trials_of("out") == whole
    victim.write_bytes(victim.read_bytes()[:-1])
    assert [7, 8, 1] in numbers(run())
    assert trials_of("out") == whole


def test_large_machines_are_read_once_and_again_after_they_were_written_to(
    grid, large, monkeypatch
):
    read, real = [], states.content_of
    monkeypatch.setattr(
        states, "content_of", lambda path: read.append(path) or real(path)
    )
    run()
    machines = sorted(Path("out/bars/machines").rglob("*.npz"))
    for words in ([], ["--dry-run"]):
        run(*words)
    assert not read  # they were hashed when they were written
    Path("out/.cbm-checked.json").unlink()
    for times in (8, 8, 16):  # a dry run keeps nothing in mind, a run does
        run("--dry-run") if times == 8 and not read else run()
        assert len(read) in (times, 16)
    del read[:]
    run()
    assert not read
    machines[3].write_bytes(machines[3].read_bytes())
    run()
    assert read == [machines[3]]
    cbm("verify", "out", "--sample", 1, "-j", 0)
    assert {*machines} <= {*read}  # which trusts nothing


# ---- The lock ----


def test_without_its_lock_nothing_is_written(tmp_path):
    with locked(tmp_path / "out") as lock:
        bars = lock.writer("bars")
    for write in (
        lambda: bars.write_failure("toy", 0, "x"),
        lambda: bars.export(),
        lambda: bars.finish(),
        lambda: lock.set_aside(tmp_path / "x"),
        lambda: lock.write_if_changed(tmp_path / "x", b""),
    ):
        with pytest.raises(RuntimeError, match="without its lock"):
            write()
    assert not (tmp_path / "out").exists()


def test_the_true_error_is_raised_where_a_second_cbm_starts_as_the_first_ends(
    tmp_path, monkeypatch
):
    folder, real = tmp_path / "out", os.rmdir

    def rmdir(path, **more):
        (folder / "theirs").touch()  # by now the other one has begun
        return real(path, **more)

    def fail():
        with locked(folder):
            raise KeyError("the true one")

    monkeypatch.setattr(os, "rmdir", rmdir)
    with pytest.raises(KeyError, match="the true one"):
        fail()
    assert [path.name for path in folder.iterdir()] == ["theirs"]


def test_what_others_write_into_a_results_folder_is_left_alone(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    others = folder / ".cbm-output-1-2.part"  # of `cbm plot -o out/x.png`
    left = folder / ".cbm-run-1-2.part"  # by a run that was killed
    for path in (others, left):
        path.touch()
    with locked(folder):
        pass
    assert others.exists()
    assert not left.exists()


REMEDIES = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room",
    errno.EACCES: "check its permissions",
    errno.EROFS: "check its permissions",
    errno.EIO: "check the disk",
}


@pytest.mark.parametrize("number", REMEDIES)
def test_the_remedy_fits_the_failure_of_the_disk(number):
    words = str(cannot_write(Path("x"), failing(number)))
    assert f"x: cannot write: {os.strerror(number)}; {REMEDIES[number]}, or" in words


def test_a_failure_without_a_number_has_words(tmp_path):
    error = OSError("the tape is full")
    assert "x: cannot write: the tape is full; " in str(cannot_write(Path("x"), error))
    with patch.object(os, "fsync", side_effect=error):
        said = refusal(write_atomically, tmp_path / "x", b"1")
    assert "the tape is full" in str(said)
