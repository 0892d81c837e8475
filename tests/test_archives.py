"""Small trials in archives: the same results as in files of their own, whatever happens to the files."""

import errno
import io
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

import cbm_cli
from cbm_cli.archives import Archive, open_archive, write_archive
from cbm_cli.errors import CbmError
from cbm_cli.execution import jobs
from cbm_cli.results import Store, filing, lock
from cbm_cli.results.contents import sealed
from cbm_cli.results.filing import Filing
from cbm_cli.results.lock import locked, writer_of
from cbm_cli.results.writing import write_atomically
from tests.builders import GRID, cbm, numbers, problems_of, summary
from tests.processes import until

MEMBERS = {
    f"trial-{n:03d}{end}": bytes([n]) * 50 for n in (*range(9), 11) for end in (".csv", ".records.csv")
}
RUN = "trials/rbm-4_00_CD-1_0.1_0123456789"


def run(out, *more):
    return cbm("run", "grid.yaml", "-o", out, "-j", 0, "--no-table", *more).stderr


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("both")
    (folder / "grid.yaml").write_text(GRID)
    for name, many in (("alone", jobs.MANY), ("out", 3)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jobs, "MANY", many)
            cbm("run", folder / "grid.yaml", "-o", folder / name, "-j", 0, "--no-table")
    return folder


@pytest.fixture
def packed(both, tmp_path, monkeypatch):
    """The results of the grid in files of their own, in `alone`, and in archives, in `out`."""
    shutil.copytree(both, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jobs, "MANY", 3)
    return Store(Path("out/bars"))


def content(folder):
    """Curves and machines of all finished trials, read through the store."""
    store = Store(Path(folder) / "bars")
    return {
        (run_id, number, end): store.files.read(f"trials/{run_id}/trial-{number:03d}{end}")
        for run_id in sorted(store.runs())
        for number in store.finished(run_id)
        for end in (".csv", ".npz")
    }


def archives(folder="out"):
    return sorted(Path(folder).rglob("*.zip"))


# ---- Archives ----


def archive(path, members=MEMBERS):
    with path.open("w+b") as stream:
        write_archive(stream, members, members.__getitem__)
    return Archive(path)


def test_an_archive_holds_what_was_put_in_and_knows_its_trials(tmp_path):
    found = archive(tmp_path / "x.zip")
    assert found.is_sound
    assert found.trials == {*range(9), 11}
    assert {name: found.read(name) for name in found.names} == MEMBERS
    shuffled = dict(random.Random(1).sample([*MEMBERS.items()], len(MEMBERS)))
    assert archive(tmp_path / "y.zip", shuffled).path.read_bytes() == found.path.read_bytes()
    with zipfile.ZipFile(found.path) as file:  # as any other program reads it
        assert {name: file.read(name) for name in file.namelist()} == MEMBERS
    empty = archive(tmp_path / "empty.zip", {})
    assert (empty.is_sound, empty.trials, empty.names) == (True, set(), set())
    (tmp_path / "none.zip").write_bytes(b"")
    none = open_archive(tmp_path / "none.zip")
    assert (none.is_sound, none.names) == (False, set())
    assert open_archive(tmp_path / "missing.zip") is None


def test_damage_to_an_archive_is_seen_and_costs_the_damaged_member_only(tmp_path):
    whole, dice = archive(tmp_path / "x.zip").path.read_bytes(), random.Random(5)
    for turn in range(300):
        changed = bytearray(whole)
        changed[dice.randrange(len(whole))] ^= 1 << dice.randrange(8)
        path = tmp_path / f"{turn}.zip"
        path.write_bytes(changed[: dice.randrange(len(whole))] if turn % 5 == 0 else changed)
        found = Archive(path)
        assert not found.is_sound
        lost = 0
        for name in MEMBERS if turn % 5 else ():
            try:
                lost += found.read(name) != MEMBERS[name]
            except (FileNotFoundError, ValueError):
                lost += 1
        assert lost <= 1


# ---- Recent files ----


def test_files_are_found_wherever_they_are_and_newer_ones_first(tmp_path):
    files = Filing(tmp_path)
    for round_, names in enumerate((["best.npz", "json", "npz"], ["json", "npz"], ["npz"])):
        files.add({f"{RUN}/trial-000.{name}": f"{name}{round_}".encode() for name in names})
        files.flush()
        if round_ == 0:
            files.pack(together=False)
    (tmp_path / RUN).mkdir()
    files.write(f"{RUN}/trial-001.csv", b"alone")
    for _ in range(2):
        assert {name: files.read(f"{RUN}/{name}") for name in files.names(RUN)} == {
            "trial-000.best.npz": b"best.npz0",
            "trial-000.json": b"json1",
            "trial-000.npz": b"npz2",
            "trial-001.csv": b"alone",
        }
        assert files.trials(RUN) == {1}
        assert files.folders("trials") == {RUN.partition("/")[2]}
        files.pack(together=False)
    assert not (tmp_path / "recent").exists()


@pytest.mark.parametrize("call", ["fsync", "replace", "open", "listdir"])
def test_what_waits_is_written_soon_and_after_a_failed_flush_again(tmp_path, monkeypatch, call):
    monkeypatch.setattr(filing, "_FLUSH_EVERY", 0.1)
    owner, failing, tries = Path if call == "open" else os, [], []
    real = getattr(owner, call)

    def broken(*arguments, **keywords):
        if failing and (call != "open" or "x" in str(arguments[1:2])):
            tries.append(call)
            raise ValueError("odd") if call == "listdir" else OSError(errno.EIO, os.strerror(errno.EIO))
        return real(*arguments, **keywords)

    monkeypatch.setattr(owner, call, broken)
    said = []
    files = Filing(tmp_path, say=said.append)

    def add(number):
        files.add({f"{RUN}/trial-{number:03d}.csv": b"1"})

    def written(*numbers):
        return Filing(tmp_path).trials(RUN) == {*numbers}

    add(0)
    assert written()
    until(lambda: written(0), 5)
    failing.append(True)
    add(1)
    add(2)
    until(lambda: len(tries) > 2, 5)
    assert len(said) == 1  # once, though it was tried again
    failing.clear()
    until(lambda: written(0, 1, 2) and len(said) == 2, 5)
    assert said[1].startswith(f"{tmp_path / 'recent'}: ")
    add(3)
    until(lambda: written(0, 1, 2, 3), 5)
    assert len(said) == 2


def test_a_damaged_recent_file_is_named_and_its_trials_run_again(packed):
    whole, victim = content("out"), archives()[-1]
    with zipfile.ZipFile(victim) as file:
        members = {f"trials/{victim.stem}/{member}": file.read(member) for member in file.namelist()}
    victim.unlink()
    packed.files.add(members)
    packed.files.flush()
    assert content("out") == whole
    (recent,) = Path("out/bars/recent").iterdir()
    recent.write_bytes(recent.read_bytes()[:-1] + b"x")
    said = run("out")
    assert f"{recent}: " in said
    assert [6, 8, 2] in numbers(said)
    assert content("out") == whole


# ---- Runs ----


def test_archives_hold_the_same_results_in_a_tenth_of_the_files(packed):
    assert content("out") == content("alone")
    assert not [*Path("out").rglob("trial-*")]
    assert len(archives()) == 4 + 4  # trials and ends of the cells
    rows = [[row | {"seconds": ""} for row in summary(folder)] for folder in ("out", "alone")]
    assert rows[0] == rows[1]
    assert [8] in numbers(run("out"))


def test_more_trials_are_added_and_files_of_their_own_move_in(packed):
    for folder in ("out", "alone", "at-once"):
        run(folder, "--trials", 4)
    assert content("out") == content("alone") == content("at-once")
    assert not [*Path("alone").rglob("trial-*.csv")]
    names = [path.relative_to("at-once") for path in archives("at-once")]
    assert [path.relative_to("alone") for path in archives("alone")][4:] == names[4:]


def test_a_longer_training_continues_from_an_archive(packed):
    dry = cbm("run", "grid.yaml", "-o", "out", "--dry-run", "--set", "updates=200").stdout
    assert numbers(dry)[0] == [8, 0, 8, 8]
    run("out", "--set", "updates=200")
    run("new", "--set", "updates=200")
    assert {key: value for key, value in content("out").items() if key in content("new")} == content("new")


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_member_is_run_again_and_no_other(packed, seed):
    whole, dice = content("out"), random.Random(seed)
    victim = next(path for path in archives() if path.parent.name == "trials")
    data = bytearray(victim.read_bytes())
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    victim.write_bytes(data)
    said = run("out")
    assert f"{victim}: " in said
    assert [8] in numbers(said) or [7, 8, 1] in numbers(said)
    assert content("out") == whole
    assert Archive(victim).is_sound


def test_every_command_reads_archives(packed):
    machine = cbm("best", "out").stdout.strip()
    assert ".zip/trial-00" in machine
    rows = ["--data", "bars-and-stripes:size=2", "--json"]
    answer = json.loads(cbm("evaluate", machine, *rows).stdout)["log_likelihood"]["mean"]
    best = max(float(row["train_log_likelihood_final"]) for row in summary("out"))
    assert answer == pytest.approx(best, abs=1e-7)  # in float64, and in float32 while it trained
    cbm("sample", machine, "-o", "x.npz", "-n", 5, "--steps", 2)
    assert np.load("x.npz")["samples"].shape == (5, 4)
    run_id, told = summary("out")[0]["run_id"], []
    for folder in ("out", "alone"):
        cbm("plot", folder, "curves", "-o", "x.svg")
        trials = json.loads(cbm("show", folder, run_id, "--json").stdout)["trials"]
        runs = json.loads(cbm("ls", folder, "bars", "--json").stdout)
        facts = [one["status"] for one in trials], [one["finished"] for one in runs]
        told.append((cbm("table", folder).stdout, Path("x.svg").read_text(), facts))
    assert told[0] == told[1]
    assert facts == (["finished"] * 2, [2] * 4)
    cbm("evaluate", "out", "--ais", "--temperatures", 10, "--runs", 5)
    assert all(row["ais_log_z"] for row in summary("out"))
    assert content("out") == content("alone")
    assert not Path("out/bars/recent").exists()
    Path("other.yaml").write_text(GRID.replace("[CD-1, PT_4]", "CD-1"))
    cbm("prune", "out", "other.yaml", "bars", "--yes")
    assert len(archives()) == 2 + 2


def test_damage_that_is_read_is_named(packed):
    run_id = summary("out")[0]["run_id"]
    packed.files.add({f"trials/{run_id}/trial-000.csv": b"update,epoch,train_log_likelihood\n0,0,-1\n"})
    packed.pack()
    with pytest.raises(CbmError) as caught:
        packed.curve(run_id, 0)
    path = f"out/bars/trials/{run_id}.zip/trial-000.csv"
    assert problems_of(caught.value) == [(path, "", "changed")]


@pytest.mark.parametrize("harm", ["value", "cut", "list", "no cells", "path", "newer"])
def test_a_manifest_that_cannot_be_read_is_named(packed, harm):
    path = Path("out/bars/manifest.json")
    text = {"value": path.read_text().replace('"trials": 2', '"trials": 3'), "cut": "{", "list": "[1]"}
    text["newer"] = sealed(packed.manifest() | {"format": 99}).decode()
    manifest = packed.manifest()
    manifest["cells"][0]["run_id"] = "../../elsewhere"  # a manifest that someone else made
    text |= {"path": sealed(manifest).decode(), "no cells": sealed({"format": 2}).decode()}
    path.write_text(text[harm])
    assert problems_of(cbm("table", "out", code=2)) == [(str(path), "", "unreadable")]
    if harm != "newer":
        assert [8] in numbers(run("out"))
        assert packed.manifest()["trials"] == 2  # written again


@pytest.mark.parametrize("command", ["ls out", "table out", "best out bars", "run grid.yaml -o out -j 0"])
@pytest.mark.parametrize("place", ["bars/manifest.json", "bars/trials/RUN"])
def test_what_may_not_be_read_is_named_and_not_taken_for_missing(packed, monkeypatch, place, command):
    path = Path("out", place.replace("RUN", sorted(packed.runs())[0]))

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


def test_folders_with_the_names_of_files_are_left_alone_and_taken_for_none(packed):
    others = [Path("out/bars", RUN, "trial-000.npz"), Path("out/bars/.cbm-1-0123456789ab.part")]
    for folder in others:
        folder.mkdir(parents=True)
        (folder / "notes.txt").write_text("mine")
    assert numbers(cbm("prune", "out", "grid.yaml", "--yes").stderr)[0][0] == 0
    run("out")
    assert [(folder / "notes.txt").read_text() for folder in others] == ["mine", "mine"]
    (others[0].parent / "trial-000.error.txt").write_text("failed")
    assert json.loads(cbm("ls", "out", "--json").stdout)[0]["other_runs"] == 0  # no trial is finished there
    path = next(Path("out/bars/trials").glob("*.zip"))
    path.unlink()
    path.mkdir()
    assert [one["finished"] for one in json.loads(cbm("ls", "out", "--json").stdout)] == [6]
    assert "[n=0/2]" in cbm("table", "out").stdout


def test_an_experiment_in_other_capitals_does_not_run_into_the_same_folder(packed):
    Path("twin.yaml").write_text(GRID.replace("bars:", "Bars:", 1))
    for more in ([], ["--dry-run"]):
        refused = cbm("run", "twin.yaml", "-o", "out", "-j", 0, *more, code=2)
        assert problems_of(refused) == [("out/bars", "", "conflict")]
        assert "-o" in refused.stderr
    assert not Path("out/Bars").exists()
    Path("out/Bars").mkdir()
    Path("out/Bars/manifest.json").write_bytes(Path("out/bars/manifest.json").read_bytes())
    run("out")  # both are there: the disk tells them apart


@pytest.mark.parametrize(
    "record", [b"{", sealed({"format": 2, "sha256": {}}), sealed({"format": 2, "row": []})]
)
def test_where_all_records_are_damaged_there_are_no_rows(finished, record):
    paths = [*Path("out").rglob("trial-*.json")]
    for path in paths:
        path.write_bytes(record)
    with pytest.warns(UserWarning, match=re.escape(str(paths[0].parent.parent))):
        assert Store(Path("out/bars")).summary().empty
    assert [kind for *_, kind in problems_of(cbm("table", "out", code=3))] == ["incomplete"]
    run("out")
    assert len(Store(Path("out/bars")).summary()) == 8


# ---- One writer ----


def test_a_second_writer_is_refused_and_told_who_the_first_is(packed):
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


def test_lock_files_of_other_programs_are_neither_changed_nor_deleted(grid):
    names = (".lock", "LOCK", ".lock-held")
    Path("out").mkdir()
    for name in names:
        Path("out", name).write_text("of another program")
    run("out")
    found = {path.name: path.read_text() for path in Path("out").iterdir() if path.is_file()}
    assert found == dict.fromkeys(names, "of another program")


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
def test_without_locks_of_the_disk_a_killed_writer_is_followed(tmp_path, without_locks, host, free):
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
    else:
        with pytest.raises(CbmError, match=text):
            locked(tmp_path).__enter__()


def test_who_asks_for_the_writer_keeps_no_writer_out(tmp_path):
    asking = threading.Event()

    def ask():
        while not asking.is_set():
            writer_of(tmp_path)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(50):
            with locked(tmp_path):
                pass
    finally:
        asking.set()
        for thread in threads:
            thread.join()


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
