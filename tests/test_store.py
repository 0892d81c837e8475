"""The journal of an experiment: whatever happens to it, the trials that are whole are there; and its lock."""

import errno
import gzip
import io
import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import cbm_cli
from cbm_cli.errors import CbmError
from cbm_cli.results import Store, journal, lock
from cbm_cli.results.inventory import find_machine
from cbm_cli.results.journal import Journal, sealed, unsealed
from cbm_cli.results.lock import locked, writer_of
from cbm_cli.results.writing import write_atomically
from tests.builders import GRID, cbm, damage, finished_in, lines_of, numbers, problems_of, refusal, summary
from tests.processes import until

RUN = "toy_rbm-4_00_CD-1_0.1_0123456789"


def run(out, *more):
    return cbm("run", "grid.yaml", "-o", out, "-j", 0, *more).stderr


@pytest.fixture
def store(finished):
    return Store(Path("out/bars"))


# ---- The journal ----


def record(number, state="finished", run_id=RUN, **more):
    return {"run_id": run_id, "trial": number, "state": state, "seconds": 0.5, "files": {}} | more


def written(path, *records):
    """A journal with these records."""
    found = Journal(path)
    for one in records:
        found.append(one)
    found.flush()
    return found


def known(path):
    """What is finished in a journal, as another process reads it."""
    runs = Journal(Path(path)).index().runs
    return {(run_id, n) for run_id, lines in runs.items() for n, line in lines.items() if line.finished}


def test_the_newest_record_of_a_trial_counts(tmp_path):
    found = written(tmp_path / "a", record(0, value=1), record(1, "failed"), record(0, value=2), record(2))
    assert known(tmp_path / "a") == {(RUN, 0), (RUN, 2)}
    assert [one["value"] for one in found.records([(RUN, 0)])] == [2]
    written(tmp_path / "a", record(1), record(2, "failed"))  # appended by another process
    assert known(tmp_path / "a") == {(RUN, 0), (RUN, 1)}
    assert {line.seconds for line in found.index().runs[RUN].values()} == {0.5}
    with pytest.raises(KeyError):
        next(found.records([(RUN, 7)]))
    assert known(tmp_path / "missing") == set()


def test_damage_costs_the_trial_that_it_hits_and_a_cut_the_last_ones(tmp_path):
    path, dice = tmp_path / "a", random.Random(5)
    written(path, *(record(n, text="x" * dice.randrange(300)) for n in range(9)))
    whole = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == 10]
    for turn in range(400):
        changed, place = bytearray(whole), dice.randrange(len(whole))
        hit = sum(end <= place for end in ends)
        if cut := turn % 4 == 0:
            changed, left = whole[:place], {*range(hit)}
        else:
            changed[place] ^= 1 << dice.randrange(8)
            left = {*range(9)} - {hit, *([hit + 1] if whole[place] == 10 else [])}  # the next line joins it
        path.write_bytes(changed)
        journal._known.clear()
        assert known(path) == {(RUN, number) for number in left}
        damaged = Journal(path).index().damaged
        assert damaged.keys() <= {hit + 1, hit + 2}
        assert bool(damaged) == (not cut or place not in (0, *ends))


@pytest.mark.parametrize("name", ["../x", "a/b", ".x", "", "x" * 300, 'a"b', "a\nb"])
def test_a_record_whose_name_leads_elsewhere_is_none(tmp_path, name):
    written(tmp_path / "a", record(0, run_id=name), record(1))
    assert known(tmp_path / "a") == {(RUN, 1)}


@pytest.mark.parametrize("call", ["fsync", "_write_all", "open"])
def test_what_waits_is_written_soon_and_after_a_failed_flush_again(tmp_path, monkeypatch, call):
    monkeypatch.setattr(journal, "FLUSH_EVERY", 0.1)
    failing, tries, said = [], [], []
    owner = {"fsync": os, "_write_all": journal, "open": Path}[call]
    real = getattr(owner, call)

    def broken(*arguments, **keywords):
        if failing and (call != "open" or "a" in arguments[1]):
            tries.append(call)
            if call == "_write_all":
                real(arguments[0], arguments[1][:50])  # a part is on disk
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(*arguments, **keywords)

    monkeypatch.setattr(owner, call, broken)
    path = tmp_path / "new" / "a"
    found = Journal(path, say=said.append)

    def there(*expected):
        return known(path) == {(RUN, n) for n in expected}

    found.append(record(0))
    assert there()
    until(lambda: there(0), 5)
    failing.append(True)
    found.append(record(1))
    found.append(record(2))
    until(lambda: len(tries) > 2, 5)
    assert len(said) == 1  # once, though it was tried again
    assert there(0)
    failing.clear()
    until(lambda: there(0, 1, 2) and len(said) == 2, 5)
    assert said[1].startswith(f"{path}: ")
    assert not Journal(path).index().damaged
    found.append(record(3))
    until(lambda: there(0, 1, 2, 3), 5)
    assert len(said) == 2


def test_readers_see_whole_records_while_others_are_written_and_put_in_order(tmp_path):
    """They neither wait nor fail, and never miss what was there before."""
    path, seen, done = tmp_path / "a", [], threading.Event()
    writer = written(path, record(0, text="x" * 1000))

    def read():
        while not done.is_set():
            with Journal(path).reading() as (stream, index):
                lines = {n: line for lines in index.runs.values() for n, line in lines.items()}
                last = journal.record_of(stream, lines[max(lines)], path)["trial"]
                seen.append((len(lines), last + 1))

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        try:
            for number in range(1, 160):
                writer.append(record(number, text="x" * 1000))
                writer.flush()
                if number % 20 == 0:
                    lines = writer.index().runs[RUN]
                    turned = sorted(lines.items(), reverse=number % 40 == 0)
                    writer.rewrite([line for _, line in turned], None)
            time.sleep(0.05)
        finally:
            done.set()
    reader.result()
    assert seen == sorted(seen)
    assert all(count == last for count, last in seen)
    assert seen[-1] == (160, 160)


def test_the_state_of_a_trial_stays_until_the_trial_is_on_disk(store, monkeypatch):
    key = finished_in(store)[0]
    other = Store(Path("out/other"))
    place = other.state_path(*key)
    place.parent.mkdir(parents=True)
    place.touch()

    def broken(handle):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as ill:
        ill.setattr(os, "fsync", broken)
        other.adopt(store, *key)
    assert place.exists()
    other.adopt(store, *key)
    assert not place.exists()
    assert finished_in(Store(other.folder)) == [key]


def test_a_packed_journal_is_read_and_not_written(store):
    table = cbm("table", "out").stdout
    packed, content = store.journal.packed, gzip.compress(store.journal.path.read_bytes())
    store.journal.path.unlink()
    packed.write_bytes(content)
    assert Store(store.folder).contents(*finished_in(Store(store.folder))[0])
    assert cbm("table", "out").stdout == table
    refused = cbm("run", "grid.yaml", "-o", "out", "-j", 0, code=2)
    assert problems_of(refused) == [("out/bars", "", "conflict")]
    packed.write_bytes(content[:-50])
    os.utime(packed, ns=(1, 1))
    assert problems_of(cbm("ls", "out", code=2)) == [(str(packed), "", "unreadable")]


def test_the_bytes_of_a_journal_depend_on_nothing_but_its_trials(finished):
    """Whatever the order of trials, stops, other runs and evaluations on the way."""
    for more in (["--set", "sampler=PT_4", "--trials", 1], ["--trials", 1], []):
        run("other", *more)
    path = Path("other/bars/trials.jsonl")
    path.write_bytes(b"".join(reversed(path.read_bytes().splitlines(keepends=True))))
    run("other")
    one, two = (lines_of(f"{folder}/bars") for folder in ("out", "other"))
    assert [*one] == [*two]
    for mine, yours in zip(one.values(), two.values(), strict=True):
        timeless = {"seconds": 0, "seal": ""}
        assert json.loads(mine) | timeless == json.loads(yours) | timeless


def test_where_all_records_are_damaged_they_are_named_and_there_are_no_rows(store):
    for key in lines_of():
        damage("out/bars", key)
    error = refusal(store.machine, *key)
    assert problems_of(error) == [("out/bars/trials.jsonl", "", "missing")]
    with pytest.warns(UserWarning, match=f"trial {key[1]} of {key[0]}: damaged"):
        assert store.row(*key) is None
    Path("out/bars/summary.csv").unlink()
    with pytest.warns(UserWarning, match="trials.jsonl: line"):
        assert store.summary().empty
    assert [kind for *_, kind in problems_of(cbm("table", "out", code=3))] == ["incomplete"]
    run("out")
    assert len(store.summary()) == 8


# ---- Machines by name ----


def test_a_machine_is_named_by_its_run_and_trial_wherever_a_file_is(store):
    machine = cbm("best", "out").stdout.strip()
    run_id, number = machine.removeprefix("out/").split(":")
    rows = ["--data", "bars-and-stripes:size=2", "--json"]
    cbm("export", machine, "-o", "m.npz")
    part = run_id[-10:]
    Path("out").rename("results")
    for name in (f"{part}:{number}", f"results/{part}:{number}", "m.npz"):
        answer = json.loads(cbm("evaluate", name, *rows).stdout)["log_likelihood"]["mean"]
        best = max(float(row["train_log_likelihood_final"]) for row in summary("results"))
        assert answer == pytest.approx(best, abs=1e-7)  # in float64, and in float32 while it trained
        cbm("sample", name, "-o", "x.npz", "-n", 5, "--steps", 2)
        cbm("features", name, "--data", "bars-and-stripes:size=2", "-o", "features.npz")
    assert Path("m.npz").read_bytes() == Store(Path("results/bars")).machine(run_id, int(number))[1]
    for name, kind, hint in (
        ("rbm-3:0", None, run_id),  # several runs
        (f"{part}:9", "unknown", "2 trials"),
        (f"{part}:{number}:best", "missing", "best"),
        ("nothing:0", "unknown", "cbm ls"),
        ("elsewhere/nothing:0", "missing", "elsewhere"),
        ("m.npz", "conflict", "RUN:TRIAL"),
        ("bars", "conflict", "RUN:TRIAL"),
        (f"{part}:0 {part}:1", "conflict", "RUN:TRIAL"),
    ):
        refused = cbm("export", *name.split(), "-o", "y.npz", code=2)
        assert refused.error.kinds[0] == (kind or "value")
        assert hint in refused.stderr
    assert not Path("y.npz").exists()


@pytest.mark.parametrize("harm", ["value", "cut", "list", "no cells", "path", "above", "newer"])
def test_a_manifest_that_cannot_be_read_is_named(store, harm):
    path = Path("out/bars/manifest.json")
    text = {"value": path.read_text().replace('"trials": 2', '"trials": 3'), "cut": "{", "list": "[1]"}
    text["newer"] = sealed(store.manifest() | {"format": 99}).decode()
    text["no cells"] = sealed({"format": 3}).decode()
    for kind, name in (("path", "../../elsewhere"), ("above", "..")):  # a manifest that someone else made
        manifest = unsealed(path.read_bytes())
        manifest["cells"][0]["run_id"] = name
        text[kind] = sealed(manifest).decode()
    path.write_text(text[harm])
    assert problems_of(cbm("table", "out", code=2)) == [(str(path), "", "unreadable")]
    if harm == "newer":  # nothing of it is read, or deleted
        machine = f"out/{next(iter(store.runs()))}:0"
        for words in (f"evaluate {machine}", f"export {machine} -o x.npz", "run grid.yaml -o out -j 0"):
            assert problems_of(cbm(*words.split(), code=2)) == [(str(path), "", "unreadable")]
    else:
        run_id = next(iter(store.runs()))
        assert find_machine(Path(f"out/{run_id}:0"))[1] == store.machine(run_id, 0)[1]  # which is not damaged
        assert [8] in numbers(run("out"))
        assert store.manifest()["trials"] == 2  # written again


@pytest.mark.parametrize("command", ["ls out", "table out", "best out bars", "run grid.yaml -o out -j 0"])
@pytest.mark.parametrize("place", ["bars/manifest.json", "bars/trials.jsonl"])
def test_what_may_not_be_read_is_named_and_not_taken_for_missing(store, monkeypatch, place, command):
    path = Path("out", place)

    def refusing(real):
        def call(given, *others, **named):
            if not isinstance(given, int) and Path(given) == path:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(given))
            return real(given, *others, **named)

        return call

    for owner, name in ((io, "open"), (os, "listdir"), (Path, "read_bytes")):
        monkeypatch.setattr(owner, name, refusing(getattr(owner, name)))
    said = cbm(*command.split(), code=2).stderr
    assert str(path) in said
    assert os.strerror(errno.EACCES) in said


def test_an_experiment_in_other_capitals_does_not_run_into_the_same_folder(store):
    Path("twin.yaml").write_text(GRID.replace("bars:", "Bars:", 1))
    for more in ([], ["--dry-run"]):
        refused = cbm("run", "twin.yaml", "-o", "out", "-j", 0, *more, code=2)
        assert problems_of(refused) == [("out/bars", "", "conflict")]
        assert "-o" in refused.stderr
    assert not Path("out/Bars").exists()
    Path("out/Bars").mkdir()
    Path("out/Bars/manifest.json").write_bytes(Path("out/bars/manifest.json").read_bytes())
    run("out")  # both are there: the disk tells them apart


# ---- One writer ----


def test_a_second_writer_is_refused_and_told_who_the_first_is(store):
    with locked(Path("out")):
        for command in (["run", "grid.yaml", "-o", "out"], ["evaluate", "out"]):
            refused = cbm(*command, code=2)
            assert problems_of(refused) == [("out", "", "system")]
            assert f"process {os.getpid()} on " in refused.stderr
        cbm("table", "out")
        cbm("run", "grid.yaml", "-o", "out", "--dry-run")
    run("out")


def test_a_lock_ends_with_its_process_however_it_ends(tmp_path):
    code = "import sys, time; from pathlib import Path; from cbm_cli.results.lock import locked\n"
    code += "with locked(Path(sys.argv[1])): print('locked', flush=True); time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE)
    holder.stdout.readline()
    with pytest.raises(CbmError, match=f"process {holder.pid} on"), locked(tmp_path):
        pass
    holder.kill()
    holder.communicate()
    with locked(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == [".cbm-lock"]


@pytest.fixture(params=["ENOSYS", "ENOLCK", "EOPNOTSUPP", "ENOTSUP", "EINVAL", "no fcntl"])
def without_locks(request, monkeypatch):
    """A disk, or a system, without the usual locks."""

    def refuse(*_):
        raise OSError(getattr(errno, request.param), "no locks here")

    if request.param == "no fcntl":
        monkeypatch.setattr(lock, "fcntl", None)
    else:
        monkeypatch.setattr(lock.fcntl, "flock", refuse)


ME = f"process {os.getpid()} on {socket.gethostname()}"


def test_without_locks_of_the_disk_there_is_one_writer_too(tmp_path, without_locks):
    with locked(tmp_path / "out", "cbm run again"):
        writer = writer_of(tmp_path / "out")
        assert (writer.name, writer.alive, writer.command) == (ME, True, "cbm run again")
        with pytest.raises(CbmError, match=rf"{ME}.*\.cbm-lock-held"):
            locked(tmp_path / "out").__enter__()
    assert not (tmp_path / "out").exists()
    with locked(tmp_path / "out"):
        (tmp_path / "out" / "kept").touch()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["kept"]


@pytest.mark.parametrize("without_locks", ["ENOLCK"], indirect=True)
@pytest.mark.parametrize(("host", "free"), [(socket.gethostname(), True), ("another-computer", False)])
def test_without_locks_of_the_disk_a_killed_writer_is_followed(
    tmp_path, without_locks, monkeypatch, host, free
):
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    holder, text = tmp_path / ".cbm-lock-held", f"process {gone.pid} on {host}"
    holder.write_text(text)
    (tmp_path / ".cbm-lock").write_text(f"{text}\ncbm run")
    assert writer_of(tmp_path).alive is (not free)
    if free:
        with locked(tmp_path):
            assert holder.read_text() == ME
        assert not holder.exists()
        holder.write_text(text)  # and another one is quicker
        quicker, part_beside = "process 1 on another-computer", lock.part_beside
        monkeypatch.setattr(lock, "part_beside", lambda it: it.write_text(quicker) and part_beside(it))
        with pytest.raises(CbmError, match=quicker):
            locked(tmp_path).__enter__()
        assert holder.read_text() == quicker
    else:
        with pytest.raises(CbmError, match=text):
            locked(tmp_path).__enter__()


def test_who_asks_for_the_writer_keeps_no_writer_out(tmp_path, monkeypatch):
    """Who asks has the lock for an instant."""
    free, try_lock = iter([False, False]), lock._try_lock
    monkeypatch.setattr(lock, "_try_lock", lambda stream: next(free, True) and try_lock(stream))
    with locked(tmp_path):
        assert writer_of(tmp_path).alive


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_files_have_the_mode_that_the_user_asks_for(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "x", b"1")
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o666 & ~mask


def test_every_text_is_read_in_a_named_encoding_and_nothing_changes_the_umask():
    for path in Path(cbm_cli.__file__).parent.rglob("*.py"):
        text = path.read_text("utf-8")
        assert not re.search(r"(read_text|\.open)\(\)|open\(newline=[^,)]*\)", text), path
        assert "os.umask" not in text, path
