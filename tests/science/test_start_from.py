"""Trials that start from machines, and longer trainings that continue finished ones."""

import hashlib
import io
import shutil
from itertools import chain, repeat
from pathlib import Path

import numpy as np
import pytest
from cbm_cli.api import open_results
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError, DamagedError
from cbm_cli.execution.agenda import Agenda, Job, continued, states_in
from cbm_cli.grid.settings import Settings, Trial
from cbm_cli.machines.files import read_machine
from cbm_cli.results import Progress, Store
from cbm_cli.results.states import read_progress, sealed_npz
from cbm_cli.results.writer import Writer
from cbm_cli.trial.loop import run_trial
from cbm_cli.trial.start import start_from_machine
from numpy.testing import assert_allclose, assert_array_equal

from tests.builders import cbm, dry, files, problems_of
from tests.journals import contents_of, put_machine, trials_of, writing
from tests.networks import file_of
from tests.trainings import CODER, DBM, RBM, ROWS, THREE_PARTS, TRAININGS

SHORT, LONG = 5, 10  # epochs of 4 updates
RUN, COURSE = "toy_00000000aa", "toy_00000000bb"


@pytest.fixture(autouse=True)
def long(monkeypatch):
    """Trainings of any length keep their ends."""
    monkeypatch.setattr("cbm_cli.trial.loop.LONG", 0.0)


def since(root, epochs, settings=RBM, course=COURSE):
    trial = Trial("test", Settings(**settings | {"epochs": epochs}), 0, 1)
    job = Job(
        trial, "toy_00000000cc", THREE_PARTS, (Store(root / "new"),), course=course
    )
    return continued(job, Agenda([], {}, {}, {}), states_in(root)).since()


def run_into(folder, epochs, settings, since=None):
    """Train for so many epochs; return the store with the trial."""
    trial = Trial("test", Settings(**settings | {"epochs": epochs}), 0, 1)
    store = Store(folder / "test")
    with writing(store.folder) as writer:
        writer.write(RUN, trial, run_trial(trial, THREE_PARTS, since), course=COURSE)
    return store


@pytest.mark.parametrize("name", TRAININGS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_training_that_is_continued_ends_in_the_same_bytes_as_one_at_once(
    tmp_path, name
):
    settings = TRAININGS[name]
    run_into(tmp_path / "short", SHORT, settings)
    start, folders = (
        since(tmp_path / "short", LONG, settings),
        (tmp_path / "1", tmp_path / "2"),
    )
    for folder, progress in zip(folders, (start, None), strict=True):
        store = run_into(folder, LONG, settings, progress)
    continued, at_once = (
        contents_of(folder) | files(folder, ".npz") for folder in folders
    )
    assert continued == at_once
    last = {"early stopping": 6, "divergence": 8}.get(name, LONG)
    assert store.curves(RUN, [0])[0]["epoch"].iloc[-1] == last


def test_the_furthest_state_that_is_not_too_far_is_taken_from_all_experiments(tmp_path):
    for experiment, epochs in (("test", 3), ("other", 4), ("more", 6)):
        run_into(tmp_path / "runs", epochs, RBM)
        (tmp_path / "runs/test").rename(tmp_path / f"runs/{experiment}-{epochs}")
    found = [since(tmp_path / "runs", epochs) for epochs in (2, 3, 5, 6)]
    assert found[0] is None
    assert [state.update for state in found[1:]] == [12, 16, 24]
    assert since(tmp_path / "runs", 40, course="toy_00000000dd") is None


def test_the_state_of_an_interrupted_trial_is_for_longer_ones_of_the_same_start(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(
        "cbm_cli.trial.loop.LONGEST_CALL", 0.0
    )  # the most places to stop at
    short, store = Trial("test", Settings(**RBM), 0, 1), Store(tmp_path / "test")
    paused = run_trial(
        short, THREE_PARTS, should_pause=iter([False] * 5 + [True]).__next__
    )
    with writing(store.folder) as writer:
        writer.write_progress(RUN, 0, paused, COURSE)
    assert since(tmp_path, LONG).update == paused.update > 4
    assert since(tmp_path, 1) is None
    state = store.state_path(COURSE, RUN, 0)
    assert read_progress(state, "another digest") is None
    arrays = dict(np.load(state))
    np.savez(state, **arrays | {"state.velocity_W": np.empty((0, 0), np.float32)})
    with pytest.raises(DamagedError, match="changed after it was written"):
        read_progress(state)
    state.write_bytes(sealed_npz(state.read_bytes()))
    with pytest.raises(CbmError, match="is not the state of a trial"):
        read_progress(state)


# From machines


@pytest.mark.parametrize(
    "settings", [RBM, DBM, CODER], ids=["rbm", "dbm", "auto-encoder"]
)
@pytest.mark.parametrize("letter", "0dh")
def test_a_trial_starts_as_the_function_that_the_machine_is(tmp_path, settings, letter):
    slow = settings | {"sliding_factor": {"visible": 0.5, "hidden": 0.5}}
    store = run_into(tmp_path, SHORT, slow)
    name, content = store.machine(RUN, 0)
    other = Settings(**settings | {"offsets": letter * (2 if settings is RBM else 3)})
    state = start_from_machine(other, THREE_PARTS, 5, read_machine(name, content))
    if letter == "0":
        assert not np.append(state.mu, state.lam).any()
    else:
        assert_array_equal(state.mu[:6], np.load(io.BytesIO(content))["offsets_0"])
    outcome = run_trial(Trial("test", other, 0, 5), THREE_PARTS, Progress(state))
    first, curve = (
        dict(zip(outcome.columns, outcome.curve[0], strict=True)),
        store.curves(RUN, [0]),
    )
    last = curve[0].filter(regex="log_likelihood|cost").iloc[-1].to_dict()
    assert last == pytest.approx({name: first[name] for name in last}, rel=1e-6)
    assert last


def test_a_fixed_visible_offset_is_the_mean_of_the_data_whatever_the_machine_has(
    tmp_path,
):
    store = run_into(tmp_path, SHORT, RBM | {"offsets": "mm^b"})
    settings = Settings(**RBM | {"sliding_factor": {"visible": 0}})
    state = start_from_machine(
        settings, THREE_PARTS, 5, read_machine(*store.machine(RUN, 0))
    )
    assert_allclose(state.mu, THREE_PARTS.train.mean(0), rtol=1e-6)
    grey = Dataset("grey", 200 * THREE_PARTS.train, levels=255)
    state = start_from_machine(settings, grey, 5, read_machine(*store.machine(RUN, 0)))
    assert_allclose(state.mu, 200 / 255 * THREE_PARTS.train.mean(0), rtol=1e-6)


# The command line

GRID = """
defaults: {trials: 2, data: {path: rows.npz}, model: {kind: rbm, hidden: 3}, sampler: PCD-1,
  offsets: [00, dd^b_s], learning_rate: 0.1, batch: 5, epochs: 5, evaluate: {parts: train+valid}}
experiments:
  second: {learning_rate: 0.01, start_from: {experiment: first}}
  first: {}
"""


@pytest.fixture
def grid(here):
    """Return a function that writes a grid with replacements."""
    np.savez("rows.npz", train=ROWS[:20], valid=ROWS[20:30], test=ROWS[30:])

    def write(*replacements):
        text = GRID
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        Path("grid.yaml").write_text(text)

    write()
    return write


def run(*arguments, out="out", code=0):
    return cbm("run", "grid.yaml", *arguments, "-j", 0, "-o", out, code=code)


def refused(*arguments):
    result = run(*arguments, code=2)
    assert "second.start_from" in [field for _, field in problems_of(result)]
    return result.stderr


def curves(experiment):
    """The curve of every trial of the experiment, by offsets and number."""
    rows = open_results("out").curves(experiment)
    return {key: its.reset_index() for key, its in rows.groupby(["offsets", "trial"])}


def test_an_experiment_starts_from_the_trials_of_another_one_which_runs_first(grid):
    assert dry() == [8, 0, 8]
    assert "cbm run GRID.yaml first -o out" in refused("second")
    run()
    first, second = curves("first"), curves("second")
    assert first.keys() == second.keys()
    assert len(first) == 4
    for key, curve in second.items():
        assert (
            curve["train_log_likelihood"][0]
            == first[key]["train_log_likelihood"].iloc[-1]
        )
    assert dry("-o", "out") == [8, 8, 0]
    run("first", out="alone")
    run("second", out="alone")
    cbm("run", "grid.yaml", "-j", 1, "-o", "worker")
    assert contents_of("out") == contents_of("alone") == contents_of("worker")


def test_trials_start_from_the_best_machines_on_the_validation_part(grid):
    grid(BEST)
    run()
    first, second = curves("first"), curves("second")
    for key, curve in second.items():
        assert (
            curve["valid_log_likelihood"][0]
            == first[key]["valid_log_likelihood"][1:].max()
        )


def test_an_experiment_starts_from_machine_files(grid):
    run("first")
    cell = Store(Path("out/first")).manifest().cells[1].run_id
    grid(("experiment: first", "path: 'start/trial-{trial:03d}.npz'"))
    Path("start").mkdir()
    for number in range(2):
        cbm("export", f"out/{cell}:{number}", "-o", f"start/trial-{number:03d}.npz")
        if number == 0:
            assert "trial-001.npz" in refused("second")
    run("second")
    first, second = curves("first"), curves("second")
    for (_, number), curve in second.items():
        last = first["dd^b_s", number]["train_log_likelihood"].iloc[-1]
        assert curve["train_log_likelihood"][0] == pytest.approx(last, rel=1e-6)
    shutil.copy(
        "start/trial-000.npz", "start/trial-001.npz"
    )  # its trials run again, and no other
    assert dry("second", "-o", "out") == [4, 2, 2]
    grid(
        ("experiment: first", "path: start/trial-000.npz")
    )  # which is part of the run-id
    assert dry("second", "-o", "out")[:3] == [4, 0, 4]


LONGER = "first", "--set", "epochs=10"
BEST = "experiment: first", "experiment: first, machine: best-valid"


def test_more_epochs_continue_finished_trials_whose_checkpoints_are_kept(
    grid, monkeypatch
):
    monkeypatch.setattr("cbm_cli.trial.loop.LONG", 60)
    run("first", out="without")
    assert not [*Path("without").rglob("*.npz")]
    assert dry(*LONGER, "-o", "without") == [4, 0, 4]
    monkeypatch.setattr("cbm_cli.trial.loop.LONG", 0)
    run("first")
    assert dry(*LONGER, "-o", "out") == [4, 0, 4, 4]
    assert "not reused" not in run(*LONGER).stderr
    run(*LONGER, out="new")
    assert trials_of("new").items() <= trials_of("out").items()


def test_a_cut_end_is_named_and_its_trial_starts_from_the_beginning(grid):
    run("first")
    victim = sorted(Path("out").rglob("trial-001-*.npz"))[0]
    victim.write_bytes(victim.read_bytes()[:-50])
    assert f"{victim}: " in run(*LONGER).stderr
    assert dry(*LONGER, "-o", "out") == [4, 4, 0]


def in_stretches(*arguments, **options):
    """Train for a few updates, as if the time for more were over."""
    pauses = chain([False] * 5, repeat(True))
    return run_trial(*arguments, **options | {"should_pause": pauses.__next__})


def test_states_of_a_trial_that_starts_from_a_file_are_for_this_file(grid, monkeypatch):
    np.savez("start.npz", **file_of((len(ROWS[0]), 3), "rbm", seed=1))
    grid(("experiment: first", "path: start.npz"))
    monkeypatch.setattr("cbm_cli.trial.loop.LONGEST_CALL", 0.0)
    monkeypatch.setattr("cbm_cli.execution.work.run_trial", in_stretches)
    monkeypatch.setattr("cbm_cli.execution.run.SAVE_EVERY", -1.0)
    digest = hashlib.sha256(Path("start.npz").read_bytes()).hexdigest()
    write, updates = Writer.write_progress, []

    def write_progress(self, run_id, number, progress, course, start):
        write(self, run_id, number, progress, course, start)
        path = self.store.state_path(course, run_id, number)
        updates.append(read_progress(path, digest).update)

    monkeypatch.setattr(Writer, "write_progress", write_progress)
    run("second", "--trials", 1)
    assert len({*updates}) > 1


# What is refused


@pytest.mark.parametrize(
    ("first", "hint"),
    [
        ("{model: {kind: rbm, hidden: 4}}", "3 hidden units on rows"),
        ("{learning_rate: [0.1, 0.2]}", "learning_rate (0.1, 0.2)"),
        ("{trials: 1}", "cbm run GRID.yaml first --trials 2 -o out"),
        ("{evaluate: {parts: train}}", "machine: final"),
    ],
)
def test_an_experiment_without_the_trials_that_are_needed_is_refused(grid, first, hint):
    grid(("first: {}", f"first: {first}"), *[BEST] * ("final" in hint))
    assert hint in refused()


def test_settings_that_are_not_needed_to_find_the_cell_may_differ(grid):
    when = "[{if: {offsets: 00}, set: {init: zero}}]"
    grid(("first: {}", f"first: {{when: {when}, learning_rate: 0.2}}"))
    assert dry() == [8, 0, 8]


@pytest.mark.parametrize(
    ("arrays", "hint"),
    [
        ({"kind": np.array("dbm")}, "dbm"),
        ({"weights_0": np.zeros((6, 4)), "biases_1": np.zeros(4)}, "6-3"),
    ],
)
def test_a_machine_that_does_not_fit_is_refused_before_anything_runs(
    grid, arrays, hint
):
    plain = {
        "weights_0": np.zeros((6, 3)),
        "biases_0": np.zeros(6),
        "biases_1": np.zeros(3),
    }
    np.savez("a.npz", **plain | arrays)
    grid(("experiment: first", "path: a.npz"))
    assert hint in refused("second").partition("a.npz: ")[2]
    assert not Path("out").exists()


def test_a_machine_that_diverged_fails_its_trial_alone(grid):
    run("first")
    store, second = Store(Path("out/first")), Store(Path("out/second"))
    cell = store.manifest().cells[0].run_id
    arrays = dict(np.load(io.BytesIO(store.machine(cell, 1)[1]))) | {
        "biases_0": np.full(6, np.nan)
    }
    put_machine(store, cell, 1, arrays)
    run(code=1)
    assert curves("first").keys() - curves("second").keys() == {("00", 1)}
    assert [*filter(None, map(second.failed, second.runs()))] == [{1}]
