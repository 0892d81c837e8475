"""Small trials in archives: the same results as in files of their own, whatever happens to the files."""

import errno
import io
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

import cbm_cli
from cbm_cli.archives import Archive, open_archive, write_archive
from cbm_cli.errors import CbmError
from cbm_cli.execution import jobs
from cbm_cli.results import Results, Store, lock
from cbm_cli.results.contents import sealed
from cbm_cli.results.filing import Filing
from cbm_cli.results.lock import locked, writer_of
from cbm_cli.results.writing import write_atomically
from tests.builders import GRID, cbm, summary

MEMBERS = {
    f"trial-{n:03d}{end}": bytes([n]) * 50 for n in (*range(9), 11) for end in (".csv", ".records.csv")
}


RUN = "trials/toy_rbm-4_00_CD-1_0.1_0123456789"


@pytest.fixture
def grid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("grid.yaml").write_text(GRID)
    return tmp_path


def run(out, *more):
    return cbm("run", "grid.yaml", "-o", out, "-j", 0, "--no-table", *more).stderr


@pytest.fixture
def packed(grid, monkeypatch):
    """The results of the grid in files of their own, in `alone`, and in archives, in `out`."""
    run("alone")
    monkeypatch.setattr(jobs, "MANY", 3)
    run("out")
    return Store(Path("out/bars"))


def content(folder):
    """Curves and machines of all finished trials, read through the store."""
    store = Results(Path(folder)).store("bars")
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


def test_an_archive_without_trials_is_one(tmp_path):
    found = archive(tmp_path / "x.zip", {})
    assert found.is_sound
    assert found.trials == found.names == set()


def test_damage_to_an_archive_is_seen_and_costs_the_damaged_member_only(tmp_path):
    whole, dice = archive(tmp_path / "x.zip").path.read_bytes(), random.Random(5)
    for turn in range(300):
        changed = bytearray(whole)
        changed[dice.randrange(len(whole))] ^= 1 << dice.randrange(8)
        path = tmp_path / f"{turn}.zip"
        path.write_bytes(changed[: dice.randrange(len(whole))] if turn % 5 == 0 else changed)
        found = Archive(path)
        assert not found.is_sound
        if turn % 5 == 0:
            continue
        lost = 0
        for name in MEMBERS:
            try:
                lost += found.read(name) != MEMBERS[name]
            except (FileNotFoundError, ValueError):
                lost += 1
        assert lost <= 1


def test_what_is_no_archive_is_none(tmp_path):
    (tmp_path / "x.zip").write_bytes(b"")
    found = open_archive(tmp_path / "x.zip")
    assert not found.is_sound
    assert found.names == set()
    assert open_archive(tmp_path / "y.zip") is None


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
        read = {name: files.read(f"{RUN}/{name}") for name in files.names(RUN)}
        assert read == {
            "trial-000.best.npz": b"best.npz0",
            "trial-000.json": b"json1",
            "trial-000.npz": b"npz2",
            "trial-001.csv": b"alone",
        }
        assert files.trials(RUN) == {1}
        assert files.folders("trials") == {RUN.partition("/")[2]}
        files.pack(together=False)
    assert not (tmp_path / "recent").exists()


def test_what_waits_is_written_within_seconds(tmp_path):
    files = Filing(tmp_path)
    files.add({f"{RUN}/trial-000.csv": b"1"})
    assert not files.trials(RUN)
    for _ in range(100):
        if Filing(tmp_path).trials(RUN):
            break
        signal.sigtimedwait([], 0.1)
    assert Filing(tmp_path).trials(RUN) == {0}


@pytest.mark.parametrize("call", ["fsync", "replace", "open", "listdir"])
def test_after_a_failed_flush_at_most_the_last_second_waits(tmp_path, monkeypatch, call):
    said, real, failing = [], getattr(os, call), [True]

    def broken(*arguments, **keywords):
        if failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO)) if call != "listdir" else ValueError("odd")
        return real(*arguments, **keywords)

    files = Filing(tmp_path, say=said.append)
    if call == "open":
        monkeypatch.setattr(Path, "open", _refusing(Path.open, failing))
    else:
        monkeypatch.setattr(os, call, broken)
    files.add({f"{RUN}/trial-000.csv": b"1"})
    files.add({f"{RUN}/trial-001.csv": b"1"})
    time.sleep(2.5)
    assert len(said) == 1  # once, though it was tried again
    failing.clear()
    time.sleep(2)
    assert Filing(tmp_path).trials(RUN) == {0, 1}
    assert f"{tmp_path / 'recent'}: writing works again; no finished trial is lost" in said[1]
    files.add({f"{RUN}/trial-002.csv": b"1"})
    time.sleep(2)
    assert Filing(tmp_path).trials(RUN) == {0, 1, 2}
    assert len(said) == 2


def _refusing(real, failing):
    def open_(path, mode="r", *arguments, **keywords):
        if failing and "x" in mode:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path, mode, *arguments, **keywords)

    return open_


def test_a_damaged_recent_file_is_named_and_its_trials_run_again(packed):
    whole, victim = content("out"), archives()[-1]
    members = {f"trials/{victim.stem}/{member}": data for member, data in _members(victim).items()}
    victim.unlink()
    files = Filing(Path("out/bars"))
    files.add(members)
    files.flush()
    assert content("out") == whole
    (recent,) = Path("out/bars/recent").iterdir()
    recent.write_bytes(recent.read_bytes()[:-1] + b"x")
    said = run("out")
    assert f"{recent}: damaged" in said
    assert "6 of 8 trials are done" in said
    assert content("out") == whole


def _members(path):
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


# ---- Runs ----


def test_archives_hold_the_same_results_in_a_tenth_of_the_files(packed):
    assert content("out") == content("alone")
    assert not [*Path("out").rglob("trial-*")]
    assert len(archives()) == 4 + 4  # trials and ends of the cells
    columns = [name for name in summary("out")[0] if name != "seconds"]
    for one, other in zip(summary("out"), summary("alone"), strict=True):
        assert {name: one[name] for name in columns} == {name: other[name] for name in columns}
    assert "All 8 trials are done" in run("out")


def test_more_trials_are_added_and_files_of_their_own_move_in(packed):
    run("out", "--trials", 4)
    run("alone", "--trials", 4)
    run("at-once", "--trials", 4)
    assert content("out") == content("alone") == content("at-once")
    assert not [*Path("alone").rglob("trial-*.csv")]
    names = [path.relative_to("at-once") for path in archives("at-once")]
    assert [path.relative_to("alone") for path in archives("alone")][4:] == names[4:]


def test_a_longer_training_continues_from_an_archive(packed):
    said = cbm("run", "grid.yaml", "-o", "out", "--dry-run", "--set", "updates=200").stdout
    assert "8 of them continue a shorter training" in said
    run("out", "--set", "updates=200")
    run("new", "--set", "updates=200")
    assert {key: value for key, value in content("out").items() if key in content("new")} == content("new")


@pytest.mark.parametrize("seed", range(6))
def test_a_damaged_member_is_run_again_and_no_other(packed, seed):
    whole, dice = content("out"), random.Random(seed)
    victim = next(path for path in archives() if path.parent.name == "trials")
    data = bytearray(victim.read_bytes())
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    victim.write_bytes(data)
    said = run("out")
    assert f"{victim}: damaged" in said
    assert "nothing to run" in said or "7 of 8 trials are done" in said
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
    assert cbm("table", "out").stdout == cbm("table", "alone").stdout
    cbm("plot", "out", "curves", "-o", "x.png")
    run_id = summary("out")[0]["run_id"]
    assert cbm("show", "out", run_id).stdout.count("finished") == 2
    assert "8" in cbm("ls", "out").stdout
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
    with pytest.raises(CbmError, match=rf"{run_id}.zip/trial-000.csv: was cut short or changed"):
        packed.curve(run_id, 0)


def test_results_of_an_older_version_are_read_and_their_machines_checked(grid):
    """Records of cbm 0.1.0 have a checksum of the curve only."""
    run("out")
    whole = content("out")
    for path in Path("out").rglob("trial-*.json"):
        record = json.loads(path.read_text())
        old = {"format": 1, "csv_sha256": record["sha256"][".csv"], "row": record["row"]}
        path.write_text(json.dumps(old, indent=1))
    path = Path("out/bars/manifest.json")
    manifest = json.loads(path.read_text()) | {"format": 1}
    del manifest["checksum"]
    path.write_text(json.dumps(manifest, indent=1))
    cbm("table", "out")
    assert "All 8 trials are done" in run("out")
    victim = next(Path("out").rglob("trial-001.npz"))
    victim.write_bytes(victim.read_bytes().replace(np.float32(0.5).tobytes(), b"abcd", 1)[:-30])
    assert "7 of 8 trials are done" in run("out")
    assert content("out") == whole


@pytest.mark.parametrize("harm", ["value", "cut", "list", "no cells", "path"])
def test_a_damaged_manifest_is_named_and_written_again(packed, harm):
    path = Path("out/bars/manifest.json")
    text = {"value": path.read_text().replace('"trials": 2', '"trials": 3'), "cut": "{", "list": "[1]"}
    manifest = packed.manifest()
    manifest["cells"][0]["run_id"] = "../../elsewhere"  # a manifest that someone else made
    text |= {"path": sealed(manifest).decode(), "no cells": sealed({"format": 2}).decode()}
    path.write_text(text[harm])
    assert f"{path}: damaged; cbm run writes it again" in cbm("table", "out", code=2).stderr
    assert "All 8 trials are done" in run("out")
    cbm("table", "out")


@pytest.mark.parametrize(
    "command", ["ls out", "table out", "best out bars", "run grid.yaml -o out -j 0", "watch out --once"]
)
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
    assert f"{path}: Permission denied" in said or f"Permission denied: '{path}'" in said


def test_a_folder_with_the_name_of_a_file_is_left_alone_by_prune_and_run(packed):
    other = Path("out/bars", RUN, "trial-000.npz")
    part = Path("out/bars/.cbm-1-0123456789ab.part")
    for folder in (other, part):
        folder.mkdir(parents=True)
        (folder / "notes.txt").write_text("mine")
    assert cbm("prune", "out", "grid.yaml", "--yes").stderr.startswith("0 folders")
    run("out")
    assert [(folder / "notes.txt").read_text() for folder in (other, part)] == ["mine", "mine"]


def test_an_experiment_in_other_capitals_does_not_run_into_the_same_folder(packed):
    Path("twin.yaml").write_text(Path("grid.yaml").read_text().replace("bars:", "Bars:", 1))
    for more in ([], ["--dry-run"]):
        said = cbm("run", "twin.yaml", "-o", "out", "-j", 0, *more, code=2).stderr
        assert f"{Path('out/bars')}: differs from Bars in capitals only" in said
        assert "choose another folder with -o" in said
    assert not Path("out/Bars").exists()
    Path("out/Bars").mkdir()
    Path("out/Bars/manifest.json").write_bytes(Path("out/bars/manifest.json").read_bytes())
    run("out")  # both are there: the disk tells them apart


def test_a_folder_with_the_name_of_an_archive_is_none(packed):
    path = next(Path("out/bars/trials").glob("*.zip"))
    path.unlink()
    path.mkdir()
    assert "6 of 8     incomplete" in re.sub("  +", "     ", cbm("ls", "out").stdout)
    assert "[n=0/2]" in cbm("table", "out").stdout


def test_folders_without_a_finished_trial_are_no_runs_that_the_grid_left_behind(packed):
    folder = Path("out/bars", RUN)
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    (folder / "trial-000.error.txt").write_text("failed")
    assert "no longer in the grid" not in cbm("ls", "out").stdout


@pytest.mark.parametrize(
    "record", [b"{", sealed({"format": 2, "sha256": {}}), sealed({"format": 2, "row": []})]
)
def test_where_all_records_are_damaged_there_are_no_rows(grid, record):
    run("out")
    for path in Path("out").rglob("trial-*.json"):
        path.write_bytes(record)
    with pytest.warns(UserWarning, match="damaged or missing"):
        assert Store(Path("out/bars")).summary().empty
    assert "no finished trial" in cbm("table", "out", code=3).stderr
    run("out")
    assert len(Store(Path("out/bars")).summary()) == 8


# ---- One writer ----


def test_a_second_writer_is_refused_and_told_who_the_first_is(packed):
    with locked(Path("out")):
        for command in (["run", "grid.yaml", "-o", "out"], ["evaluate", "out"]):
            said = cbm(*command, code=2).stderr
            assert f"process {os.getpid()} on " in said
            assert "is writing here" in said
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
    Path("out").mkdir()
    for name in (".lock", "LOCK", ".lock-held"):
        Path("out", name).write_text("of another program")
    run("out")
    assert {path.read_text() for path in Path("out").iterdir() if path.is_file()} == {"of another program"}
    assert len([path for path in Path("out").iterdir() if path.is_file()]) == 3


SOFT = ["ENOSYS", "ENOLCK", "EOPNOTSUPP", "ENOTSUP", "EINVAL", "no fcntl"]


@pytest.fixture(params=SOFT)
def without_locks(request, monkeypatch):
    """A disk, or a system, without the usual locks."""

    def refuse(*_):
        number = getattr(errno, request.param)
        raise OSError(number, os.strerror(number))

    if request.param == "no fcntl":
        monkeypatch.setattr(lock, "fcntl", None)
    else:
        monkeypatch.setattr(lock.fcntl, "flock", refuse)


def test_without_locks_of_the_disk_there_is_one_writer_too(tmp_path, without_locks):
    me = f"process {os.getpid()} on {socket.gethostname()}"
    with locked(tmp_path / "out", "cbm run again"):
        writer = writer_of(tmp_path / "out")
        assert (writer.name, writer.alive, writer.command) == (me, True, "cbm run again")
        with pytest.raises(CbmError, match=rf"{me} is writing here; .* remove .*\.cbm-lock-held"):
            locked(tmp_path / "out").__enter__()
    assert not (tmp_path / "out").exists()
    with locked(tmp_path / "out"):
        (tmp_path / "out" / "kept").touch()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["kept"]


def test_without_locks_of_the_disk_a_killed_writer_is_followed(tmp_path, without_locks):
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    holder = tmp_path / ".cbm-lock-held"
    for host, free in ((socket.gethostname(), True), ("another-computer", False)):
        text = f"process {gone.pid} on {host}"
        holder.write_text(text)
        (tmp_path / ".cbm-lock").write_text(f"{text}\ncbm run")
        assert writer_of(tmp_path).alive is (not free)
        if free:
            with locked(tmp_path):
                assert holder.read_text() == f"process {os.getpid()} on {socket.gethostname()}"
            assert not holder.exists()
        else:
            with pytest.raises(CbmError, match=f"process {gone.pid} on another-computer is writing here"):
                locked(tmp_path).__enter__()


def test_a_run_without_locks_of_the_disk_is_a_run(grid, without_locks):
    run("out")
    assert len(summary("out")) == 8
    assert not [*Path("out").glob(".cbm-lock*")]


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


def test_what_is_refused_leaves_no_folder(grid):
    cbm("run", "grid.yaml", "-o", "out", "--set", "learning_rate=1e39", code=2)
    assert not Path("out").exists()


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_files_have_the_mode_that_the_user_asks_for(tmp_path, mask):
    code = "import sys; from pathlib import Path; from cbm_cli.results.writing import write_atomically\n"
    code += "write_atomically(Path(sys.argv[1]), b'1')"
    command = [sys.executable, "-c", code, tmp_path / "x"]
    subprocess.run(command, check=True, umask=mask)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o666 & ~mask
    write_atomically(tmp_path / "x", b"2")


def test_every_text_is_read_in_a_named_encoding_and_nothing_changes_the_umask():
    for path in Path(cbm_cli.__file__).parent.rglob("*.py"):
        text = path.read_text("utf-8")
        assert not re.search(r"(read_text|\.open)\(\)|open\(newline=[^,)]*\)", text), path
        assert "os.umask" not in text, path
