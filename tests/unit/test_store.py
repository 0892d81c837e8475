"""The journal of an experiment: whatever happens to it, whole trials are there; and its
lock.
"""

import errno
import io
import os
import re
import shutil
import socket
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from unittest.mock import Mock, patch

import pytest
from cbm_cli.api import open_results
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import Trial
from cbm_cli.results import Progress, Store, journal
from cbm_cli.results.folder import find_machine
from cbm_cli.results.journal import Journal, JournalWriter, Line, sealed
from cbm_cli.results.writer import locked
from cbm_cli.results.writing import write_atomically
from cbm_cli.trial.loop import run_trial
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from tests.builders import cbm, numbers, problems_of, refusal
from tests.journals import change_manifest, damage, finished_in, lines_of, writing
from tests.processes import until
from tests.trainings import coins, rbm_settings

RUN = "toy_rbm-4_00_CD-1_0.1_0123456789"
STATES = "finished", "failed"
BROKEN = OSError(errno.EIO, os.strerror(errno.EIO))


def run(out, *more):
    return cbm("run", "grid.yaml", "-o", out, "-j", 0, *more).stderr


@pytest.fixture
def store(finished):
    return Store(Path("out/bars"))


# ---- The journal ----


def record(number, state="finished", run_id=RUN, **more):
    return Line(run_id, number, state, 0.5, **more)


def written(path, *records):
    """A journal with these records."""
    writer = JournalWriter(Journal(path))
    for one in records:
        writer.append(one)
    writer.flush()
    return writer


def known(path):
    """What is in a journal, as another process reads it."""
    return {
        (run_id, n)
        for run_id, lines in Journal(path).read().runs.items()
        for n in lines
    }


class JournalMachine(RuleBasedStateMachine):
    """A journal that is written, killed, damaged, resumed and read in any order.

    What has to be there is known without a checksum: a line counts if its bytes are
    those that were once written, and of several lines of a trial the last one.
    """

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "journal")
        self.path.touch()
        self.reader, self.written = None, {}
        self.begin()

    def teardown(self):
        self.folder.cleanup()

    def begin(self):
        self.writer, self.waiting = JournalWriter(Journal(self.path)), []
        self.writer._flush_soon = lambda: None  # flushes are a rule

    @rule(
        trial=st.integers(0, 4), seed=st.integers(0, 99), state=st.sampled_from(STATES)
    )
    def append(self, trial, seed, state):
        one = record(trial, state, seed=seed, details="x" * seed)
        self.writer.append(one)
        self.waiting.append(one)
        self.written[sealed(one)] = one

    @rule()
    def flush(self):
        self.writer.flush()
        newest = {(one.run_id, one.trial): one for one in self.waiting}
        assert self.sound().items() >= newest.items()
        self.waiting.clear()

    @rule(share=st.floats(0, 1))
    def kill(self, share):
        """The process ends while it writes."""
        left = b"".join(sealed(one) + b"\n" for one in self.waiting)
        with self.path.open("ab") as stream:
            stream.write(left[: int(share * len(left))])
        self.begin()

    @rule(share=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
    def flip(self, share, bit):
        if content := bytearray(self.path.read_bytes()):
            content[int(share * len(content))] ^= 1 << bit
            self.path.write_bytes(content)
        self.reader = None

    @rule(share=st.floats(0.5, 1))
    def cut(self, share):
        content = self.path.read_bytes()
        self.path.write_bytes(content[: int(share * len(content))])
        self.reader = None

    @rule()
    def resume(self):
        """A run begins: what is sound is put in order, and the rest is gone."""
        self.flush()
        sound = self.sound()
        JournalWriter(Journal(self.path)).rewrite(sorted(sound))
        lines = b"".join(sealed(sound[key]) + b"\n" for key in sorted(sound))
        assert self.path.read_bytes() == lines

    def sound(self):
        lines = self.path.read_bytes().split(b"\n")[:-1]
        found = [self.written[line] for line in lines if line in self.written]
        return {(one.run_id, one.trial): one for one in found}

    @invariant()
    def read(self):
        sound, self.reader = self.sound(), self.reader or Journal(self.path)
        for reader in (self.reader, Journal(self.path)):
            heads = reader.read().runs.get(RUN, {})
            states = {n: head.state for n, head in heads.items()}
            assert states == {n: line.state for (_, n), line in sound.items()}
            assert [*reader.lines(sorted(sound))] == [
                sound[key] for key in sorted(sound)
            ]
        told = " ".join(reader.damaged.values())
        for number, line in enumerate(self.path.read_bytes().split(b"\n")[:-1], 1):
            trial = re.match(rb'\{"run_id":"[^"/\\]+","trial":(\d{1,16}),', line)
            if line not in self.written and not trial:
                assert f"line {number}: damaged" in told


JournalMachine.TestCase.settings = settings(
    max_examples=60, derandomize=True, deadline=None
)
TestJournal = JournalMachine.TestCase


@pytest.mark.parametrize("name", ["../x", ".x", "", "x" * 300, "a\nb"])
def test_a_record_whose_name_leads_elsewhere_is_none(tmp_path, name):
    written(tmp_path / "a", record(0, run_id=name), record(1))
    assert known(tmp_path / "a") == {(RUN, 1)}


def test_what_waits_is_written_soon_and_after_a_failed_flush_again(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(journal, "FLUSH_EVERY", 0.1)
    said, fsync, path = [], Mock(wraps=os.fsync), tmp_path / "new" / "a"
    monkeypatch.setattr(os, "fsync", fsync)
    found = JournalWriter(Journal(path))
    found.say = said.append

    def there(*expected):
        return known(path) == {(RUN, n) for n in expected}

    found.append(record(0))
    assert there()
    until(lambda: there(0), 5)
    tries, fsync.side_effect = fsync.call_count, BROKEN
    found.append(record(1))
    found.append(record(2))
    until(lambda: fsync.call_count > tries + 2, 5)
    assert len(said) == 1  # once, though it was tried again
    with found._lock:  # while nothing is being written
        assert there(0)
    fsync.side_effect = None
    until(lambda: there(0, 1, 2) and len(said) == 2, 5)
    assert said[1].startswith(f"{path}: ")
    found.append(record(3))
    until(lambda: there(0, 1, 2, 3), 5)
    assert len(said) == 2


def test_readers_see_whole_records_while_others_are_written_and_put_in_order(tmp_path):
    path, seen, done = tmp_path / "a", [], threading.Event()
    writer = written(path, record(0, details="x" * 1000))

    def read():
        reader = Journal(path)
        while not done.is_set():
            last = max(reader.read().runs[RUN])
            (found,) = reader.lines([(RUN, last)])
            seen.append((last, found.trial))

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        try:
            for number in range(1, 160):
                writer.append(record(number, details="x" * 1000))
                writer.flush()
                if number % 20 == 0:
                    order = range(number + 1)[:: -1 if number % 40 == 0 else 1]
                    writer.rewrite((RUN, n) for n in order)
            time.sleep(0.05)
        finally:
            done.set()
    reader.result()
    assert seen == sorted(seen)
    assert all(last == found for last, found in seen)
    assert seen[-1] == (159, 159)


def test_the_state_of_a_trial_stays_until_the_trial_is_on_disk(tmp_path, monkeypatch):
    store, trial = Store(tmp_path / "toy"), Trial("toy", rbm_settings(batch=5), 0, 1)
    monkeypatch.setattr("cbm_cli.trial.loop.LONG", 0)
    outcome = run_trial(trial, coins(4))
    with writing(store.folder) as writer:
        writer.write_progress(RUN, 0, Progress(outcome.end.state), "course")
        outcome = replace(outcome, end=None)
        with patch.object(os, "fsync", side_effect=BROKEN):
            writer.write(RUN, trial, outcome, "course")
        assert store.state_path("course", RUN, 0).exists()
        writer.write(RUN, trial, outcome, "course")
        assert not store.state_path("course", RUN, 0).exists()
    assert finished_in(Store(store.folder)) == [(RUN, 0)]


def test_a_run_puts_the_lines_of_trials_in_the_order_of_the_grid(store):
    path = Path("out/bars/trials.jsonl")
    path.write_bytes(b"".join(reversed(path.read_bytes().splitlines(keepends=True))))
    run("out")
    runs = [run.run_id for run in store.manifest().cells]
    assert [*lines_of()] == [*product(runs, (0, 1))]


def test_where_all_records_are_damaged_they_are_named_and_there_are_not_rows(store):
    for key in lines_of():
        damage("out/bars", key)
    error = refusal(store.machine, *key)
    assert problems_of(error) == [("out/bars/trials.jsonl", "")]
    with pytest.warns(UserWarning, match="trials.jsonl: line"):
        assert store.summary().empty
    cbm("table", "out", code=3)
    run("out")
    assert len(store.summary()) == 8


# ---- Machines by name ----


def test_a_machine_is_named_by_its_run_and_trial_wherever_a_file_is(store):
    run_id, number = cbm("best", "out").stdout.strip().removeprefix("out/").split(":")
    cbm("export", f"out/{run_id}:{number}", "-o", "m.npz")
    assert Path("m.npz").read_bytes() == store.machine(run_id, int(number))[1]
    part, data, answers = run_id[-10:], "bars-and-stripes:size=2", set()
    Path("out").rename("results")
    for name in (f"{part}:{number}", f"results/{part}:{number}", "m.npz"):
        answers.add(cbm("evaluate", name, "--data", data, "--json").stdout)
        cbm("sample", name, "-o", "x.npz", "-n", 5, "--steps", 2)
        cbm("features", name, "--data", data, "-o", "features.npz")
    assert len(answers) == 1
    for name, hint in (
        (f"{part}:9", "2 trials"),
        (f"{part}:{number}:best", "best"),
        ("bars", "RUN:TRIAL"),
        (f"{part}:0 {part}:1", "RUN:TRIAL"),
    ):
        assert hint in cbm("export", *name.split(), "-o", "y.npz", code=2).stderr


MANIFEST = Path("out/bars/manifest.json")
HARMS = {
    "value": lambda: MANIFEST.write_text(
        MANIFEST.read_text().replace(": 2,", ": 3,", 1)
    ),
    "cut": lambda: MANIFEST.write_text("{"),
    "missing": MANIFEST.unlink,
    # someone else's, whose name leads elsewhere
    "path": lambda: change_manifest(
        "out/bars", lambda it: it["courses"].update({"../x": ""})
    ),
}


REPORT = "report out -o page.html"
READERS = ["ls out", "ls out bars later", "table out", "best out", REPORT]
READERS += ["evaluate out --exact -j 0", "verify out --sample 2 -j 0"]


@pytest.mark.parametrize(
    ("harm", "readers"),
    [
        ("value", READERS),
        ("cut", ["ls out"]),
        ("missing", ["ls out"]),
        ("path", ["ls out"]),
    ],
)
def test_a_manifest_that_cannot_be_read_is_named_and_costs_its_experiment_alone(
    store, harm, readers
):
    key = finished_in(store)[0]
    machine = store.machine(*key)[1]
    shutil.copytree("out/bars", "out/later")
    HARMS[harm]()
    for command in readers:
        refused = cbm(*command.split(), code=2)
        assert problems_of(refused) == [(str(MANIFEST), "")]
        assert "keeps finished trials" in refused.stderr
        assert (
            "later" in Path("page.html").read_text()
            if command == REPORT
            else refused.stdout
        )
    with pytest.warns(UserWarning, match=str(MANIFEST)):
        assert {*open_results("out").summaries()["experiment"]} == {"later"}
    assert find_machine(Path(f"out/{key[0]}:0"))[1] == machine  # which is not damaged
    assert [8] in numbers(run("out"))
    assert store.manifest().trials == 2  # written again


@pytest.mark.parametrize(
    "command", ["ls out", "best out bars", "run grid.yaml -o out -j 0"]
)
@pytest.mark.parametrize("place", ["bars/manifest.json", "bars/trials.jsonl"])
def test_what_may_not_be_read_is_named_and_not_taken_for_missing(
    store, monkeypatch, place, command
):
    path, real = Path("out", place), io.open

    def refusing(given, *others, **named):
        if given == path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(given))
        return real(given, *others, **named)

    monkeypatch.setattr(io, "open", refusing)
    said = cbm(*command.split(), code=2).stderr
    assert str(path) in said
    assert os.strerror(errno.EACCES) in said


# ---- One writer ----


def test_a_second_writer_is_refused_with_the_name_of_the_first(store):
    with locked(Path("out")):
        for command in (["run", "grid.yaml", "-o", "out"], ["evaluate", "out"]):
            refused = cbm(*command, code=2)
            assert problems_of(refused) == [("out", "")]
            assert f"process {os.getpid()} on " in refused.stderr
        cbm("table", "out")
        cbm("run", "grid.yaml", "-o", "out", "--dry-run")
    run("out")


@pytest.mark.parametrize("number", ["ENOSYS", "ENOLCK"])
def test_without_locks_of_the_disk_there_is_one_writer_too(
    tmp_path, monkeypatch, number
):
    error = OSError(getattr(errno, number), "no locks here")
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=error))
    me = f"process {os.getpid()} on {socket.gethostname()}"
    with locked(tmp_path / "out"), pytest.raises(CbmError, match=f"{me} is writing"):
        locked(tmp_path / "out").__enter__()
    assert not (tmp_path / "out").exists()  # as nothing was written
    with locked(tmp_path / "out"):
        (tmp_path / "out" / "kept").touch()
    assert (tmp_path / "out" / "kept").exists()


def test_files_have_the_mode_that_the_user_asks_for(tmp_path):
    for mask in (0o022, 0o077):
        before = os.umask(mask)
        try:
            write_atomically(tmp_path / "x", b"1")
        finally:
            os.umask(before)
        assert (tmp_path / "x").stat().st_mode & 0o777 == 0o666 & ~mask
