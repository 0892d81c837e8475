"""A results folder: its summary, and the commands that look at it."""

import json
import re
import shutil
import signal
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from cbm_cli.api import open_results
from cbm_cli.results import Store
from cbm_cli.results.journal import WRITER
from cbm_cli.results.reader import SavedState
from cbm_cli.results.writer import EXPORTS, FOLDERS

from tests.builders import GRID, cbm, numbers, problems_of, summary
from tests.journals import (
    change_manifest,
    change_record,
    forget,
    lines_of,
    throw_in,
    trials_of,
    writing,
)
from tests.processes import start_cbm

BARS = Path("out/bars")
pytestmark = pytest.mark.usefixtures("finished")


def run(*options, grid="grid.yaml", out="out"):
    return cbm("run", grid, "-o", out, "-j", 0, *options)


def run_ids():
    return [run.run_id for run in Store(BARS).manifest().cells]


def found(*words):
    return json.loads(cbm(*words, "--json").stdout)


def refused(*words, code=2):
    """The place and the line of what a command says."""
    result = cbm(*words, *(("-o", "new.png") if "curves" in words else ()), code=code)
    assert len(result.stderr.splitlines()) == 1
    ((place, _),) = problems_of(result)
    return place, result.stderr


@pytest.mark.parametrize("harm", ["missing", "another grid"])
def test_what_reads_takes_the_journal_and_never_the_summary(harm):
    path, commands = BARS / "summary.csv", [("table", "out"), ("best", "out")]
    whole, expected = path.read_text(), [cbm(*command).stdout for command in commands]
    path.unlink() if harm == "missing" else path.write_text(
        whole.replace("CD-1", "CD-2")
    )
    left = path.exists() and path.read_bytes()
    assert [cbm(*command).stdout for command in commands] == expected
    assert (path.exists() and path.read_bytes()) == left  # only writers write it
    run()
    assert path.read_text() == whole


def test_the_summary_holds_what_varies_and_is_read_in_full():
    columns = (BARS / "summary.csv").read_text().partition("\n")[0].split(",")
    assert columns[:7] == [
        "experiment",
        "run_id",
        "trial",
        "seed",
        "offsets",
        "sampler",
        "n_train",
    ]
    whole = Store(BARS).summary()
    settings = Store(BARS).manifest().cells[0].settings.row()
    assert [*whole] == [*columns[:4], *settings, *columns[6:]]
    assert {*whole["model_hidden"]} == {3}
    run("--set", "offsets=00")
    assert "offsets" not in (BARS / "summary.csv").read_text()
    assert {*Store(BARS).summary()["offsets"]} == {"00"}  # and not 0


def test_an_experiment_without_a_trial_leaves_the_numbers_of_the_others_whole():
    Path("out/empty").mkdir()
    shutil.copy(BARS / "manifest.json", "out/empty")
    trials = open_results("out").summaries()["trial"]
    assert (trials.tolist(), trials.dtype.kind) == (4 * [0, 1], "i")


@pytest.mark.parametrize("name", [*FOLDERS, *EXPORTS])
def test_a_file_in_the_place_of_a_folder_is_named_before_anything_is_trained(name):
    (place := Path("there", "bars", name)).parent.mkdir(parents=True)
    place.write_text("notes")
    assert problems_of(cbm("run", "grid.yaml", "-o", "there", code=2)) == [
        (str(place), "")
    ]
    assert (place.read_text(), trials_of("there")) == ("notes", {})


@pytest.mark.parametrize("how", ["terminate", "close the pipe"])
def test_an_interrupted_evaluation_leaves_a_summary_with_what_was_found(how):
    words = ["evaluate", "out", "--ais", "--json", "--temperatures", "9000"]
    words += [] if how == "terminate" else ["-j", "0"]
    process = start_cbm(*words, stdout=subprocess.PIPE)
    process.stdout.readline()
    process.send_signal(
        signal.SIGTERM
    ) if how == "terminate" else process.stdout.close()
    assert process.wait(60) == (130 if how == "terminate" else 1)  # 130 as of cbm run
    told, rows = (
        process.stderr.read(),
        [row.get("ais_log_z", "") != "" for row in summary("out")],
    )
    assert "Traceback" not in told
    continues = f"Interrupted; {sum(rows)} trial", "; the same command continues."
    assert how != "terminate" or all(words in told for words in continues)
    in_records = [
        "ais_log_z" in json.loads(line)["row"] for line in lines_of().values()
    ]
    assert 0 < sum(rows) == sum(in_records) < len(rows) == 8


def test_ls_counts_trials_by_what_has_become_of_them():
    first, second, *_ = run_ids()
    store = Store(BARS)
    forget(BARS, (first, 0), (second, 1))
    state = store.state_path(store.manifest().courses[first], first, 0)
    state.parent.mkdir(parents=True)
    state.touch()
    with writing(BARS) as writer:
        writer.write_failure(second, 1, "ValueError")
    other = "bars_rbm-3_left-over_0123456789"
    shutil.copytree(BARS, "copy")
    change_record("copy", (first, 1), lambda record: record.update(run_id=other))
    with (BARS / "trials.jsonl").open("ab") as stream:
        stream.write(lines_of("copy")[other, 1])
    (listed,) = found("ls", "out")
    counts = {"cells": 4, "finished": 6, "planned": 8, "interrupted": 1, "failed": 1}
    assert listed | counts | {"other_runs": 1, "data": ["bars-and-stripes"]} == listed
    when = datetime.fromisoformat(listed["when"])
    assert when.utcoffset() == timedelta(0)
    assert abs(when.timestamp() - (BARS / "trials.jsonl").stat().st_mtime) < 2
    line = cbm("ls", "out").stdout.splitlines()[1]
    assert line.endswith(f"{when.astimezone():%Y-%m-%d %H:%M}")
    assert re.findall(r"(?<= )\d+(?= )", line) == ["4", "6", "8", "1", "1", "1"]
    assert " incomplete" in line
    shown = [
        [one["status"] for one in found("ls", "out", run)["trials"]]
        for run in (first, second)
    ]
    assert shown == [["interrupted", "finished"], ["finished", "failed"]]
    assert (
        "train_log_likelihood_final" in cbm("ls", "out", second).stdout
    )  # of one of them
    runs = found("ls", "out", "bars")
    assert [one["run_id"] for one in runs] == [*run_ids(), other]
    assert [one["finished"] for one in runs] == [1, 1, 2, 2, 1]
    assert [one["in_grid"] for one in runs] == [True] * 4 + [False]
    assert [*runs[0]["settings"].items()] == [("sampler", "CD-1"), ("offsets", "00")]


def test_a_missing_journal_next_to_its_curves_is_named():
    run_id = run_ids()[0]
    (BARS / "trials.jsonl").unlink()
    shown = found("ls", "out", run_id)  # as a run that is not begun
    assert (shown["run_id"], shown["trials"]) == (run_id, [])
    assert "trials.jsonl is missing; restore it" in cbm("table", "out", code=3).stderr
    for command in ("verify", "evaluate"):
        assert "bars: " in cbm(command, "out", code=3).stderr


def test_trials_beyond_those_that_are_asked_for_are_counted_apart():
    run("--trials", 1)
    runs = [*found("ls", "out"), *found("ls", "out", "bars")]
    counts = [(one["finished"], one["planned"], one["beyond"]) for one in runs]
    assert counts == [(4, 4, 4), *[(1, 1, 1)] * 4]
    assert re.search("4 of 4 .*4 more than asked", cbm("ls", "out").stdout)


@pytest.mark.parametrize(
    "command", ["ls", "table", "report", "verify", "evaluate", "plot curves"]
)
def test_every_reader_refuses_what_is_not_a_results_folder(command):
    Path("out").rename("results")
    Path("empty").mkdir()
    command, *more = command.split()
    place, said = refused(command, "nosuch/", *more)
    assert place == "nosuch"
    assert "results/" in said
    assert refused(command, "empty", *more, code=3)[0] == "empty"
    assert not [*Path("empty").iterdir()]


def test_results_of_another_form_are_refused_in_one_line_and_left_as_they_are():
    path = BARS / "manifest.json"
    manifest = json.loads(path.read_text()) | {"format": 6}
    manifest["versions"]["cbm"] = "9.9"
    path.write_text(json.dumps(manifest, indent=1))
    before = {path: path.read_bytes() for path in BARS.rglob("*.*")}
    commands = "table out|ls out|evaluate out|run grid.yaml -o out"
    for command in commands.split("|"):
        place, said = refused(*command.split())
        assert place == "out/bars"
        assert "cbm 9.9" in said
    assert {path: path.read_bytes() for path in BARS.rglob("*.*")} == before


def test_a_word_that_is_not_a_results_folder_is_answered_with_a_list():
    Path("out").rename("results")
    Path("foreign").mkdir()
    Path("foreign/a").touch()
    run_id = Store(Path("results/bars")).manifest().cells[0].run_id
    for words, hint in [
        ("table grid.yaml", "results/"),
        ("table results/bars/curves bars", "results bars"),
        ("table .", "results"),
        ("table foreign", "results/"),
        *((f"{command} bras", "bars") for command in ("table", "ls", "verify")),
        ("ls results rbm-3_00", run_id),
        (f"ls results {run_id.replace('rbm', 'rmb')}", run_id),
        (f"ls results bars {run_id}", ""),  # one run
        (f"ls results {run_id}:2", ""),
    ]:
        place, said = refused(*words.split())
        assert place == ("results" if words.endswith("bras") else words.split()[1])
        assert hint in said.partition(":")[2].partition(":")[2]
    for words in ("bars", "results/ bars bars"):
        assert cbm("table", *words.split()).stdout == cbm("table").stdout
    Path("results").rename("elsewhere")
    assert "elsewhere" in refused("table", "my results")[1]
    Path("elsewhere").rename("foreign/old")
    assert (
        "cbm run experiments.yaml -o 'my results'" in refused("table", "my results")[1]
    )


def test_the_list_names_few_data_sets():
    def rename(manifest):
        for cell, name in zip(manifest["cells"], "abcd", strict=True):
            cell["settings"]["data"] = {"path": f"{name}.csv"}

    change_manifest(BARS, rename)
    assert "a, b, c and 1 more " in cbm("ls", "out").stdout


def test_ls_describes_a_run_by_the_beginning_of_its_id():
    run_id = run_ids()[3]
    assert (
        run_id == "rbm-3_dd-b-s_PT-4_0.1_24e793b4d1"
    )  # as long as KERNEL_VERSION is 5
    shown = found("ls", "out", run_id[:-4])
    assert (shown["run_id"], shown["experiments"], shown["in_grid"]) == (
        run_id,
        ["bars"],
        True,
    )
    assert shown["settings"]["sampler"] == "PT_4"
    rows = [row for row in summary("out") if row["run_id"] == run_id]
    finals = [float(row["train_log_likelihood_final"]) for row in rows]
    assert [one["train_log_likelihood_final"] for one in shown["trials"]] == finals
    for name in (run_id[-10:], f"{run_id}:0", f"{run_id}:1:best"):
        assert found("ls", "out", name) == shown
    text = cbm("ls", "out", run_id).stdout
    assert re.search(rf"^1 +finished +\S+ +{finals[1]:.6g} ", text, re.M)
    run("--set", "sampler=CD-1")  # no longer in the grid
    again = found("ls", "out", run_id)
    assert (again["in_grid"], again["settings"]) == (False, shown["settings"])
    lines = text.splitlines()[2], cbm("ls", "out", run_id).stdout.splitlines()[2]
    assert ["grid" in line for line in lines] == [False, True]


def test_best_is_the_machine_at_the_best_validation_value_or_the_final_one():
    rows = np.random.default_rng(3).integers(0, 2, (40, 6)).astype(np.uint8)
    np.savez("rows.npz", train=rows[:20], valid=rows[20:30], test=rows[30:])
    Path("other.yaml").write_text(
        GRID.replace("name: bars-and-stripes, size: 2", "path: rows.npz")
    )
    run(grid="other.yaml", out="other")
    machines = [*map(json.loads, cbm("best", "other", "--json").stdout.splitlines())]
    result = cbm("best", "other")
    assert result.stdout.split() == [one["machine"] for one in machines]
    assert all(one["metric"] in result.stderr for one in machines)
    expected = ("valid", "max", ":best"), ("test", "final", ""), ("train", "final", "")
    for machine, (part, ending, suffix) in zip(machines, expected, strict=True):
        column = f"{part}_log_likelihood_{ending}"
        best = max(summary("other"), key=lambda row, column=column: float(row[column]))
        assert machine["machine"] == f"other/{best['run_id']}:{best['trial']}{suffix}"
        assert (machine["value"], machine["part"]) == (float(best[column]), part)
        assert machine["settings"] == {name: best[name] for name in machine["settings"]}
    assert found("best", "other", "--metric", "test_log_likelihood") == machines[1]


def test_best_refuses_what_has_no_best():
    assert (
        "train_log_likelihood"
        in refused("best", "out", "--metric", "train_log_likelihod")[1]
    )
    run("--set", "record=[weight_norms]")
    assert (
        refused("best", "out", "--metric", "weight_norm")[0] == "--metric weight_norm"
    )
    run("--set", "evaluate={method: none}", out="none")
    assert problems_of(cbm("best", "none", code=3)) == [("", "")]
    with writing(BARS) as writer:
        for key in lines_of():
            writer.replace_columns(*key, {"train_log_likelihood_final": np.nan})
        writer.finish()
    assert "cbm run" not in refused("best", "out", code=3)[1]
    (BARS / "trials.jsonl").unlink()
    assert "cbm run" in refused("best", "out", code=3)[1]


def test_files_of_others_change_no_command_and_stay():
    commands = (
        "evaluate out --exact -j 0|table out|ls out bars|best out|verify out "
        "--sample all -j 0"
    )

    def answers():  # without the time of the last result
        said = [cbm(*command.split()).stdout for command in commands.split("|")]
        return re.sub(r"\d\d:\d\d$", "", "\n".join(said), flags=re.M)

    before = answers()
    for folder in ("out/@eaDir", "out/public", "out/.git"):
        Path(folder).mkdir()
        Path(folder, "manifest.json").write_text('{"name": "a page"}')
    pages = {*Path("out").glob("*/manifest.json")} - {BARS / "manifest.json"}
    thrown = {*throw_in("out/bars"), *pages}
    content = {path: path.read_bytes() for path in thrown}
    assert answers() == before
    assert [8, 12, 4] in numbers(run("--trials", 3).stderr)
    assert {path: path.read_bytes() for path in thrown} == content


def test_parts_of_other_programs_are_never_deleted():
    """A run into a folder that holds other things, such as the home folder."""
    shutil.copytree("out/bars", "bars")
    places = ("", *FOLDERS, *EXPORTS, *(f"{kind}/{run_ids()[0]}" for kind in FOLDERS))
    own = [Path("bars", place, f".cbm-{WRITER}-1-ab.part") for place in places]
    others = [
        Path("Downloads/.cbm-1-ab.part"),
        Path(".x.part"),
        Path("bars/curves/.mine.part"),
    ]
    for path in others + own:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    run(out=".")
    assert [path for path in others + own if path.exists()] == others


# What listing costs


def test_listing_opens_each_experiment_a_few_times(monkeypatch):
    opens = []
    usual = Path.open

    def counted(path, *arguments, **options):
        opens.append(path)
        return usual(path, *arguments, **options)

    counts = []
    for number in (5, 20):
        for place in range(number):
            shutil.copytree(BARS, f"many-{number}/e{place}", dirs_exist_ok=True)
        opens.clear()
        with monkeypatch.context() as patch:
            patch.setattr(Path, "open", counted)
            assert len(found("ls", f"many-{number}")) == number
        counts.append(len(opens))
    assert counts[1] == 4 * counts[0]  # as many experiments, not their square


def test_interrupted_trials_are_found_without_a_look_at_all_of_them(monkeypatch):
    store = Store(BARS)
    first = run_ids()[0]
    states = [
        SavedState(Path(f"trial-{number}.npz"), "course", first, number)
        for number in range(300)
    ]
    monkeypatch.setattr(Store, "states", lambda self: states)
    reads = []
    usual = Store.lines
    monkeypatch.setattr(Store, "lines", lambda self: reads.append(1) or usual(self))
    assert store.interrupted() == {(first, number) for number in range(2, 300)}
    assert len(reads) == 1
