"""A results folder: its summary, evaluations, and the commands that look at it and clean it up."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from cbm_cli.results import Results, Store
from cbm_cli.results.inventory import axes_of
from tests.builders import GRID, cbm, files, summary, throw_in
from tests.processes import start_cbm

ROWS = np.random.default_rng(3).integers(0, 2, (40, 6)).astype(np.uint8)


@pytest.fixture
def grid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("grid.yaml").write_text(GRID)
    cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table")
    return tmp_path


def records():
    return sorted(Path("out").rglob("trial-*.json"))


@pytest.mark.parametrize(
    "contents",
    [
        (b"update,a\n0,1\n2,1.5\n", b"update,a\n0,\n"),
        (b"update,a\n0,1\n", b"update,b\n0,2\n"),  # another column
        (b"update,a\n0,1", b"update,a\n0,2\n"),  # no end of the line
        (b"update,a\n", b"update,a\n0,2\n"),
    ],
)
def test_curves_read_together_are_those_read_alone(tmp_path, monkeypatch, contents):
    store = Store(tmp_path)
    monkeypatch.setattr(Store, "_read", lambda self, run_id, number, suffix: contents[number])
    for number, together in enumerate(store.curves("run", [0, 1])):
        alone = store.curve("run", number)
        assert [*together] == [*alone]
        np.testing.assert_array_equal(together, alone)


# ---- The summary ----


@pytest.mark.parametrize("harm", ["missing", "older", "short", "another grid"])
@pytest.mark.parametrize(
    "command", [("table", "out"), ("plot", "out", "curves", "-o", "x.png"), ("best", "out")]
)
def test_every_command_that_reads_takes_the_records_where_the_summary_is_not_theirs(grid, harm, command):
    path = Path("out/bars/summary.csv")
    whole, expected = path.read_text(), cbm(*command).stdout
    if harm == "missing":
        path.unlink()
    elif harm == "older":
        Store(Path("out/bars")).add_columns(records()[0].parent.name, 0, {"new_column": 1.5})
        later = time.time_ns() + 10**9
        os.utime(records()[0], ns=(later, later))
    elif harm == "short":
        path.write_text("".join(whole.splitlines(keepends=True)[:4]))
        os.utime(path, ns=(time.time_ns() + 10**12,) * 2)
    else:
        path.write_text(whole.replace("trial-", "x").replace("CD-1", "CD-2"))
        os.utime(path, ns=(0, 0))
    left = path.read_bytes() if path.exists() else None
    assert cbm(*command).stdout == expected
    assert (path.read_bytes() if path.exists() else None) == left  # only writers write it
    assert ("new_column" in Store(Path("out/bars")).summary()) == (harm == "older")
    cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table")
    assert ("new_column" in path.read_text()) == (harm == "older")
    if harm != "older":
        assert path.read_text() == whole
    before = path.stat().st_mtime_ns, path.stat().st_ino
    cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table")
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before  # up to date: not written again


def test_a_reader_shuts_no_writer_out(grid, monkeypatch):
    """A run begins while a table is made from the records."""
    Path("out/bars/summary.csv").unlink()
    write_rows, ran = Store._write_rows, []

    def slow(self, keys, stream):
        command = "run", "grid.yaml", "-o", "out", "-j", 0, "--no-table", "--trials", 3
        ran.append(start_cbm(*command, cwd=grid).communicate(timeout=60)[1])
        write_rows(self, keys, stream)

    monkeypatch.setattr(Store, "_write_rows", slow)
    assert "2 trials" in cbm("table", "out").stdout
    assert "8 of 12 trials are done" in ran[0]


# ---- Evaluating results ----


def test_evaluation_prints_a_line_per_cell_and_json_everything(grid):
    shown = cbm("evaluate", "out", "--exact").stdout.splitlines()
    assert shown[0] == "bars: means over trials, in nats per row"
    assert shown[1].split() == ["sampler", "offsets", "trials", "train_log_likelihood_exact", "exact_log_z"]
    assert len(shown) == 2 + 4
    rows = summary("out")
    for line in shown[2:]:
        sampler, offsets, trials, mean, log_z = line.split()
        own = [row for row in rows if (row["sampler"], row["offsets"]) == (sampler, offsets)]
        assert int(trials) == len(own) == 2
        values = [float(row["train_log_likelihood_final"]) for row in own]  # evaluated exactly in training
        assert float(mean) == pytest.approx(np.mean(values), abs=1e-4)
        assert float(log_z) == pytest.approx(np.mean([float(row["exact_log_z"]) for row in own]), abs=1e-4)
    lines = [json.loads(line) for line in cbm("evaluate", "out", "--exact", "--json").stdout.splitlines()]
    assert len(lines) == 8
    assert lines[0].keys() == {"experiment", "trial", "train_log_likelihood_exact", "exact_log_z"}


@pytest.mark.parametrize("how", ["terminate", "close the pipe"])
def test_an_interrupted_evaluation_leaves_a_summary_with_what_was_found(grid, how):
    command = f"{sys.executable} -m cbm_cli.cli evaluate out --ais --json --temperatures 9000".split()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.readline()
    if how == "terminate":
        process.send_signal(signal.SIGTERM)
    else:
        process.stdout.close()
    assert process.wait(60) == (143 if how == "terminate" else 1)
    assert "Traceback" not in process.stderr.read()
    found = [row.get("ais_log_z", "") != "" for row in summary("out")]
    assert len(found) == 8
    assert any(found)
    in_records = ["ais_log_z" in json.loads(path.read_text())["row"] for path in records()]
    assert sum(found) == sum(in_records) < 8


# ---- cbm ls and cbm show ----


def run_ids():
    return [cell["run_id"] for cell in Store(Path("out/bars")).manifest()["cells"]]


def test_ls_counts_trials_by_what_has_become_of_them(grid):
    first, second, *_ = run_ids()
    store = Store(Path("out/bars"))
    store.path(first, 0, ".csv").unlink()
    store.path(first, 0, ".state.npz").touch()
    store.path(second, 1, ".csv").rename(store.path(second, 1, ".error.txt"))
    for name in ("bars_rbm-3_left-over_0123456789", "bars_rbm-3_empty_0123456789", "@eaDir"):
        Path("out/bars/trials", name).mkdir()
    Path("out/bars/trials/bars_rbm-3_left-over_0123456789/trial-000.csv").touch()
    (found,) = json.loads(cbm("ls", "out", "--json").stdout)
    counts = {"cells": 4, "finished": 6, "planned": 8, "interrupted": 1, "failed": 1, "other_runs": 1}
    assert found.items() >= (counts | {"experiment": "bars", "data": ["bars-and-stripes"]}).items()
    line = cbm("ls", "out").stdout.splitlines()[1]
    assert "6 of 8  incomplete, 1 interrupted, 1 failed, 1 run " in line
    when = datetime.fromisoformat(found["when"])
    assert when.utcoffset() == timedelta(0)
    assert abs(when.timestamp() - time.time()) < 600
    assert f"{when.astimezone():%Y-%m-%d %H:%M}" in line
    runs = json.loads(cbm("ls", "out", "bars", "--json").stdout)
    assert [run["finished"] for run in runs] == [1, 1, 2, 2]
    assert runs[0]["settings"] == {"sampler": "CD-1", "offsets": "00"}
    assert [line.split()[1] for line in cbm("ls", "out", "bars").stdout.splitlines()[1:]] == run_ids()
    assert "did you mean bars?" in cbm("ls", "out", "bras", code=2).stderr
    Path("empty").mkdir()
    assert "cbm run" in cbm("ls", "empty", code=3).stderr


READERS = [
    ("ls",),
    ("table",),
    ("report",),
    ("watch",),
    ("verify",),
    ("evaluate",),
    ("compare",),
    ("plot", "curves"),
]


@pytest.mark.parametrize("command", READERS, ids=lambda words: words[0])
def test_a_word_that_is_no_results_folder_is_answered_with_what_there_is(grid, command):
    Path("out").rename("results")
    Path("foreign").mkdir()
    Path("foreign/letter.txt").touch()

    def said(folder, code=2):
        words = (command[0], folder, *command[1:], *(("-o", "new.png") if "curves" in command else ()))
        (line,) = cbm(*words, code=code).stderr.splitlines()
        return line

    assert "results/ holds the experiments bars; write the folder first, then experiments: results/ bars" in (
        said("bars")
    )
    assert said("nosuch").startswith(
        "Error: nosuch: there is no such folder; results/ holds the experiments bars"
    )
    assert "a file, not a folder" in said("grid.yaml") or command == ("evaluate",)  # which reads files, too
    assert "it belongs to the experiment bars; write results bars instead" in said("results/bars")
    assert "it belongs to the experiment bars; write results bars instead" in said("results/bars/trials")
    if command == ("table",):
        (line,) = cbm("table", "results/bars", "bars", code=2).stderr.splitlines()
        assert line.endswith(
            "no results of 'bars'; it belongs to the experiment bars; write results bars instead"
        )
    assert "there are some in results" in said(".")
    assert "foreign: holds no results; results/ holds" in said("foreign")
    Path("empty").mkdir()
    assert "empty: holds no results; results/ holds" in said("empty", code=3)
    assert Path("empty").is_dir()
    Path("results").rename("elsewhere")
    assert "make some with: cbm run experiments.yaml -o 'my results'" in said("my results")


def test_settings_that_tell_cells_apart_are_found_table_first():
    table = {"groups": ["data"], "rows": ["sampler"], "columns": ["offsets"]}
    settings = [("00", "CD-1", 1), ("dd", "CD-1", 1), ("00", "PT_4", 1), ("dd", "CD-1", 2)]
    cells = [
        {"run_id": str((o, s, b)), "data": "a", "offsets": o, "sampler": s, "init": o, "batch": b}
        for o, s, b in settings
    ]
    assert axes_of({"cells": cells, "table": table}) == ("sampler", "offsets", "batch")
    assert axes_of({"cells": cells[:1], "table": table}) == ()


def test_show_describes_a_run_by_the_beginning_of_its_id(grid):
    run_id = run_ids()[3]
    found = json.loads(cbm("show", "out", run_id[:-4], "--json").stdout)
    assert (found["run_id"], found["experiments"]) == (run_id, ["bars"])
    assert found["settings"]["sampler"] == "PT_4"
    rows = [row for row in summary("out") if row["run_id"] == run_id]
    for trial, row in zip(found["trials"], rows, strict=True):
        assert trial["status"] == "finished"
        assert trial["train_log_likelihood_final"] == float(row["train_log_likelihood_final"])
        assert {Path(file).suffix for file in trial["files"]} == {".csv", ".npz", ".json"}
    text = cbm("show", "out", run_id).stdout
    assert f"run         {run_id}" in text
    final = float(rows[1]["train_log_likelihood_final"])
    assert re.search(rf"^1 +finished +\S+ +{final:.6g} ", text, re.M)
    # A run that the grid no longer asks for is shown with the settings of its trials.
    Path("grid.yaml").write_text(GRID.replace("[CD-1, PT_4]", "CD-1"))
    cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table")
    again = json.loads(cbm("show", "out", run_id, "--json").stdout)
    assert not again["in_grid"]
    assert again["settings"] == found["settings"]
    assert "not asked for" in cbm("show", "out", run_id).stdout


def test_a_run_that_is_not_one_is_refused_with_what_there_is(grid):
    said = cbm("show", "out", "bars-and-stripes_rbm-3_00", code=2).stderr
    assert "2 runs have" in said
    assert all(run_id in said for run_id in run_ids()[:2])
    assert (
        f"did you mean {run_ids()[0]}?"
        in cbm("show", "out", run_ids()[0].replace("bars", "bras"), code=2).stderr
    )
    assert "cbm ls out EXPERIMENT" in cbm("show", "out", "zzz", code=2).stderr
    for words in ((), ("out", "bars", "x")):
        assert "cbm show [RESULTS] RUN" in cbm("show", *words, code=2).stderr


# ---- cbm best ----


def test_best_is_the_final_machine_of_the_best_value(grid):
    found = json.loads(cbm("best", "out", "bars", "--json").stdout)
    rows = summary("out")
    best = max(rows, key=lambda row: float(row["train_log_likelihood_final"]))
    assert (found["run_id"], str(found["trial"])) == (best["run_id"], best["trial"])
    assert found["value"] == float(best["train_log_likelihood_final"])
    assert found["settings"] == {"sampler": best["sampler"], "offsets": best["offsets"]}
    result = cbm("best", "out")
    assert result.stdout.strip() == found["path"]
    assert Path(found["path"]).name == f"trial-{int(best['trial']):03d}.npz"
    assert "train_log_likelihood" in result.stderr
    shown = cbm("evaluate", found["path"], "--exact", "--data", "bars-and-stripes:size=2", "--json").stdout
    assert json.loads(shown)["log_likelihood"]["mean"] == pytest.approx(found["value"])


@pytest.mark.parametrize("kind", ["rbm", "auto-encoder"])
def test_best_is_the_machine_at_the_best_validation_value(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    np.savez("rows.npz", train=ROWS[:20], valid=ROWS[20:30], test=ROWS[30:])
    text = GRID.replace("{name: bars-and-stripes, size: 2}", "{path: rows.npz}")
    if kind == "auto-encoder":
        text = (
            text.replace("rbm", kind)
            .replace("    sampler: [CD-1, PT_4]\n", "")
            .replace("method: exact, ", "")
        )
        text = text.replace("updates: 100", "epochs: 100").replace("[00, dd^b_s]", "[00, dd]")
    Path("grid.yaml").write_text(text)
    cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table")
    found = json.loads(cbm("best", "out", "--json").stdout)
    column = "valid_log_likelihood_max" if kind == "rbm" else "valid_cost_min"
    choose = max if kind == "rbm" else min
    best = choose(summary("out"), key=lambda row: float(row[column]))
    assert (found["run_id"], str(found["trial"])) == (best["run_id"], best["trial"])
    assert found["path"].endswith(".best.npz")
    assert found["value"] == float(best[column])
    metric = column.rpartition("_")[0].replace("valid", "test")
    final = json.loads(cbm("best", "out", "--metric", metric, "--json").stdout)
    best = choose(summary("out"), key=lambda row: float(row[f"{metric}_final"]))
    assert (final["run_id"], str(final["trial"])) == (best["run_id"], best["trial"])
    assert not final["path"].endswith(".best.npz")


def test_best_refuses_what_has_no_best(grid):
    said = cbm("best", "out", "--metric", "train_log_likelihod", code=2).stderr
    assert "did you mean train_log_likelihood?" in said
    Path("grid.yaml").write_text(GRID.replace("batch: full", "batch: full\n    record: weight_norms"))
    cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table")
    assert "neither more nor less" in cbm("best", "out", "--metric", "weight_norm", code=2).stderr
    cbm("run", "grid.yaml", "-o", "none", "-j", 0, "--no-table", "--set", "evaluate={method: none}")
    assert "nothing was evaluated" in cbm("best", "none", code=3).stderr
    for path in records():
        number = json.loads(path.read_text())["row"]["trial"]
        Store(Path("out/bars")).add_columns(path.parent.name, number, {"train_log_likelihood_final": np.nan})
    assert "every trial has diverged" in cbm("best", "out", code=3).stderr
    Path("out/bars/trials").rename("elsewhere")
    assert "no trial is finished" in cbm("best", "out", code=3).stderr


# ---- cbm prune ----


def test_prune_deletes_what_no_grid_asks_for_and_only_when_told_to(grid):
    cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table", "--set", "learning_rate=0.2")
    Path("more.yaml").write_text(GRID.replace("bars:", "more:").replace("seed: 5", "seed: 6"))
    cbm("run", "more.yaml", "-o", "out", "-j", 0, "--no-table")
    Path("out/more/notes.txt").write_text("mine")
    whole = files("out", ".csv", ".npz", ".json", ".txt")
    listed = json.loads(cbm("prune", "out", "grid.yaml", "more.yaml", "--json").stdout)
    assert len(listed) == 8  # 4 runs at the rate 0.2, and their ends
    assert all("_0.2_" in one["path"] and one["bytes"] > 0 and not one["deleted"] for one in listed)
    result = cbm("prune", "out", "grid.yaml", "more.yaml")
    assert "8 folders" in result.stderr
    assert "--yes" in result.stderr
    assert files("out", ".csv", ".npz", ".json", ".txt") == whole
    cbm("prune", "out", "grid.yaml", "more.yaml", "--yes")
    left = files("out", ".csv", ".npz", ".json", ".txt")
    gone = whole.keys() - left.keys()
    assert gone
    assert all("_0.2_" in path for path in gone)
    kept = files("out/more", ".csv", ".npz", ".json", ".txt")
    said = cbm("prune", "out", "grid.yaml", "--yes").stderr
    assert "Left alone, as no grid names them: more; to delete one, name it; all: --all" in said
    assert files("out/more", ".csv", ".npz", ".json", ".txt") == kept
    assert "did you mean more?" in cbm("prune", "out", "grid.yaml", "moer", "--yes", code=2).stderr
    shutil.copytree("out", "copy")
    for command in ("out", "grid.yaml", "more", "--yes"), ("copy", "grid.yaml", "--all", "--yes"):
        cbm("prune", *command)
    assert sorted(Path("copy").rglob("*more*/*")) == [Path("copy/more/notes.txt")]  # a user's file stays
    assert [*Path("out/more").iterdir()] == [Path("out/more/notes.txt")]
    assert Results(Path("out")).experiments() == ["bars"]
    again = cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table").stderr
    assert "All 8 trials are done" in again
    assert len(summary("out")) == 8


def test_prune_needs_a_grid_and_its_data(grid):
    assert "GRID.yaml" in cbm("prune", "out", code=2).stderr
    Path("grid.yaml").write_text(GRID.replace("{name: bars-and-stripes, size: 2}", "{path: gone.npz}"))
    before = files("out", ".csv", ".npz")
    assert "gone.npz" in cbm("prune", "out", "grid.yaml", "--yes", code=2).stderr
    assert files("out", ".csv", ".npz") == before


def test_prune_available_leaves_alone_what_is_asked_of_missing_data(grid):
    """Also where the experiment is named, or all are asked for; those of other data are pruned."""
    cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table", "--set", "learning_rate=0.2")
    whole = files("out", ".csv", ".npz")
    gone = GRID.replace("{name: bars-and-stripes, size: 2}", "{path: gone.npz}")
    Path("gone.yaml").write_text(gone)
    Path("more.yaml").write_text(gone.replace("bars:", "more:") + GRID[GRID.index("  bars:") :])
    for options in ((), ("bars",), ("--all",)):
        said = cbm("prune", "out", "gone.yaml", *options, "--available", "--yes").stderr
        assert "bars: left alone, the data are missing: gone\n" in said
        assert files("out", ".csv", ".npz") == whole
    listed = cbm("prune", "out", "more.yaml", "--available")
    assert "more: left alone" in listed.stderr
    assert "--available --yes" in listed.stderr
    cbm("prune", "out", "more.yaml", "--available", "--yes")
    left = files("out", ".csv", ".npz")
    assert left
    assert {path for path in whole if path not in left} == {path for path in whole if "_0.2_" in path}


# ---- Files of others ----


def test_files_of_others_change_no_command_and_stay(grid):
    commands = {
        "evaluate": ("out", "--exact"),
        "table": ("out",),
        "ls": ("out", "bars"),
        "best": ("out",),
        "show": ("out", run_ids()[0]),
        "verify": ("out", "--sample", 2, "-j", 0),
        "watch": ("out", "--once"),
        "prune": ("out", "grid.yaml", "--yes"),
    }
    answers = lambda: {  # noqa: E731  # without the time of the last result
        name: re.sub(r"\d\d:\d\d$", "", cbm(name, *options).stdout, flags=re.M)
        for name, options in commands.items()
    }
    before = answers()
    shutil.copytree("out/bars", "out/bars-copy")  # by others: a copy is an experiment
    shutil.rmtree("out/bars-copy")
    for folder in ("out/@eaDir", "out/public", "out/.git"):
        Path(folder).mkdir()
        Path(folder, "manifest.json").write_text('{"name": "a page"}')
    Path("out/train.csv.gz").write_bytes(b"data of mine")
    pages = {*Path("out").glob("*/manifest.json")} - {Path("out/bars/manifest.json")}
    thrown = {*throw_in("out/bars"), *pages, Path("out/train.csv.gz")}
    content = {path: path.read_bytes() for path in thrown}
    assert answers() == before
    cbm("report", "out", "-o", "page.html")
    assert "All 8 trials are done" in cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table").stderr
    assert "8 of 12 trials" in cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--trials", 3).stderr
    Path("other.yaml").write_text(GRID.replace("[CD-1, PT_4]", "PT_4"))
    ours = {path for path in Path("out/bars").glob("*/*_*/trial-0*") if path not in thrown}
    listed = json.loads(cbm("prune", "out", "other.yaml", "--yes", "--json").stdout)
    assert {path for path in ours if not path.exists()} == {path for path in ours if "_CD-1_" in str(path)}
    assert len(listed) == 4
    assert {path: path.read_bytes() for path in thrown} == content
    again = cbm("prune", "out", "other.yaml").stderr
    assert again.startswith("0 folders")
    cbm("prune", "out", "other.yaml", "--all", "--yes")
    assert {path: path.read_bytes() for path in thrown} == content


def test_parts_of_other_programs_are_never_deleted(grid):
    """A run into a folder that holds other things, such as the home folder."""
    others = [Path("Downloads/sub/.film.mkv.part"), Path(".x.part"), Path("bars/trials/.mine.part")]
    own = [
        Path("bars/trials/.cbm-1-ab.part"),
        Path("bars/.cbm-1-ab.part"),
        Path("bars/recent/.cbm-1-ab.part"),
    ]
    elsewhere = Path("Downloads/.cbm-1-ab.part")
    shutil.copytree("out/bars", "bars")
    own += [path / ".cbm-1-ab.part" for path in Path("bars").glob("*/*") if path.is_dir()]
    for path in (*others, *own, elsewhere):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    cbm("run", "grid.yaml", "-o", ".", "-j", 0, "--no-table")
    assert all(path.exists() for path in (*others, elsewhere))
    assert not [path for path in own if path.exists()]
