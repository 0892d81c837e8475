"""``import cbm_cli as cbm``: the numbers of the commands and of sums over all states; helpful errors."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

import cbm_cli as api
from cbm_cli import notebook
from cbm_cli.datasets.catalogue import load
from cbm_cli.datasets.spec import spec_of
from cbm_cli.errors import CbmError
from cbm_cli.reference import sigmoid
from cbm_cli.results import Results

# isort: off
from tests.builders import (
    GRID, RBM, THREE, TWO, brute_log_likelihoods, cbm, files, grid_text, holds, layered, layered_energy,
    machine_file, problems_of, refusal, split, summary, visible_rows,
)  # fmt: skip
from tests.oracles import states

pytestmark = pytest.mark.usefixtures("here")


def machine(layers=RBM, seed=1, kind=None):
    its = layered(layers, seed)
    np.savez("m.npz", **machine_file(its, kind or ("rbm" if len(layers) == 2 else "dbm")))
    return api.load("m.npz"), its


def test_the_import_is_light():
    code = "import sys, cbm_cli; print({'numpy', 'numba', 'pandas'} & {*sys.modules})"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"
    assert {"load", "open_results", "run", "data", "from_sklearn"} <= {*dir(api)}
    with pytest.raises(AttributeError, match="nothing"):
        api.nothing  # noqa: B018


# Machines


@pytest.mark.parametrize("layers", [RBM, TWO, THREE])
def test_likelihoods_and_energies_are_sums_over_all_states(layers):
    found, its = machine(layers)
    X = visible_rows(layers)
    np.testing.assert_allclose(found.log_likelihood(X), brute_log_likelihoods(its, layers), atol=1e-5)
    energies = np.array([layered_energy(its, split(state, layers)) for state in states(sum(layers))])
    log_z = np.logaddexp.reduce(-energies) - found.parameters.offset_energy  # of the plain energy
    assert found.log_partition() == pytest.approx(log_z, abs=1e-6)
    scores = np.logaddexp.reduce(-energies.reshape(-1, len(X)), axis=0) - found.parameters.offset_energy
    np.testing.assert_allclose(found.free_energy(X), -scores, atol=1e-5)


@pytest.mark.parametrize("layers", [RBM, TWO])
@pytest.mark.parametrize("method", ["exact", "ais"])
def test_evaluate_returns_what_the_command_prints(layers, method):
    found, _ = machine(layers)
    X = visible_rows(layers)[:7]
    np.save("rows.npy", X)
    options = {"temperatures": 50, "runs": 20} if method == "ais" else {}
    typed = [word for name, value in options.items() for word in (f"--{name}", value)]
    command = ("evaluate", "m.npz", "--data", "rows.npy", f"--{method}", *typed, "--json")
    printed = json.loads(cbm(*command).stdout)
    assert found.evaluate(X, method, **options) == printed
    quantity = "lower_bound" if method == "ais" and len(layers) > 2 else "log_likelihood"
    mean = found.log_likelihood(X, method, **options).mean()
    assert mean == pytest.approx(printed[quantity]["mean"], abs=1e-4)
    log_z = found.log_partition(method, data=X, **options)
    assert log_z == pytest.approx(printed["log_z"], abs=1e-5)
    assert found.log_likelihood(X, method, log_z=log_z).mean() == pytest.approx(mean, abs=1e-6)


def test_grey_values_are_taken_as_they_are():
    found, _ = machine()
    weights, biases, _ = found.parameters[1:4]
    x = np.random.default_rng(1).random((3, RBM[0]))
    joint = [np.exp(x @ biases[0] + (x @ weights[0] + biases[1]) @ h) for h in states(RBM[1])]
    np.testing.assert_allclose(found.free_energy(x), -np.log(np.sum(joint, axis=0)), atol=1e-10)
    with pytest.warns(UserWarning, match="temperatures"):
        found.log_partition("ais", temperatures=3, runs=2)


def test_hidden_means_reconstructions_filters_and_samples_are_those_of_the_equations():
    found, _ = machine()
    (W,), (b, c) = found.parameters.weights, found.parameters.biases
    X = visible_rows(RBM)
    h = sigmoid(X @ W + c)
    np.testing.assert_allclose(found.transform(X), h, atol=1e-6)
    np.testing.assert_allclose(found.reconstruct(X), sigmoid(h @ W.T + b), atol=1e-6)
    np.testing.assert_allclose(found.filters(), W.T, atol=1e-6)
    cbm("sample", "m.npz", "-o", "s.npz", "-n", 9, "--steps", 5, "--seed", 3)
    with np.load("s.npz") as drawn:
        np.testing.assert_array_equal(found.sample(9, 3, steps=5), drawn["samples"])
        np.testing.assert_array_equal(found.sample(9, 3, steps=5, means=True), drawn["means"])
    assert found.sample(2, start=X, steps=1).shape == (2, RBM[0])


def test_layers_of_deep_machines_are_named_by_number():
    found, _ = machine(THREE)
    X = visible_rows(THREE)
    assert [found.transform(X, layer).shape[1] for layer in (1, 2, 3)] == [*THREE[1:]]
    np.testing.assert_array_equal(found.transform(X), found.transform(X, 3))
    assert found.filters(2).shape == (THREE[2], THREE[0])
    with pytest.raises(ValueError, match=r"\b4\b.*\b1\b.*\b3\b"):
        found.filters(4)


def test_an_auto_encoder_reconstructs_and_has_no_likelihood():
    rng = np.random.default_rng(2)
    W, V = rng.standard_normal((4, 3)), rng.standard_normal((3, 2))
    b0, b1, b2, d1 = (rng.standard_normal(n) for n in (4, 3, 2, 3))
    arrays = {"weights_0": W, "weights_1": V, "biases_0": b0, "biases_1": b1, "biases_2": b2}
    np.savez("ae.npz", kind="auto-encoder", **arrays, decoder_biases_1=d1)
    found, X = api.load("ae.npz"), states(4)
    y = sigmoid(sigmoid(X @ W + b1) @ V + b2)
    np.testing.assert_allclose(found.transform(X), y, atol=1e-6)
    decoded = sigmoid(sigmoid(y @ V.T + d1) @ W.T + b0)
    np.testing.assert_allclose(found.reconstruct(X), decoded, atol=1e-6)
    loss = -(X * np.log(decoded) + (1 - X) * np.log(1 - decoded)).sum(axis=1)
    assert found.evaluate(X)["cost"]["mean"] == pytest.approx(loss.mean(), rel=1e-5)
    for ask in (found.log_partition, lambda: found.free_energy(X), lambda: found.sample(1)):
        assert refusal(ask).kinds == ("unsuited",)
    with pytest.raises(ValueError, match="auto-encoder of 4-3-2"):
        found.to_sklearn()


@pytest.mark.parametrize("layers", [RBM, TWO])
def test_a_saved_machine_is_the_same_with_its_offsets(layers):
    found, (_, _, offsets) = machine(layers)
    found.save("copy.npz")
    copy, X = api.load("copy.npz"), visible_rows(layers)
    np.testing.assert_allclose(copy.log_likelihood(X), found.log_likelihood(X), atol=1e-9)
    for kept, given in zip(copy.parameters.offsets, offsets, strict=True):
        np.testing.assert_array_equal(kept, given)


@pytest.mark.parametrize(
    ("X", "told"),
    [
        (np.zeros((2, 3)), "(2, 3)|(n, 4)"),
        (np.zeros(4), "(4,)|(n, 4)"),
        (np.full((2, 4), "1"), "U1|(2, 4)|(n, 4)"),
        (np.zeros((0, 4)), "0|1"),
        (np.full((1, 4), 255), "255|0|1"),
        (np.full((1, 4), np.nan), "nan|0|1"),
    ],
)
def test_wrong_arrays_are_refused_with_both_shapes(X, told):
    found, _ = machine()
    for ask in (found.free_energy, found.transform, found.evaluate, found.reconstruct):
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            ask(X)
        assert holds(raised.value, told)


# Data sets, results and runs


def test_data_have_their_parts_as_arrays():
    toy = api.data("shifting-bar", size=9, bar=1, flip=True)
    np.testing.assert_array_equal(toy["train"], 1 - np.eye(9))
    np.save("grey.npy", np.array([[0, 51], [255, 102]], np.uint8))
    grey = api.data(path="grey.npy", scale=255, binarise="none")["train"]
    np.testing.assert_allclose(grey, [[0, 0.2], [1, 0.4]], rtol=1e-6)
    assert holds(refusal(api.data, "bars"), "bars|bars-and-stripes")


def test_runs_of_a_file_and_of_a_mapping_write_what_the_command_writes(trained):
    grids = {"file": trained / "grid.yaml", "mapping": yaml.safe_load(GRID)}
    grids["mapping"]["experiments"]["bars"]["offsets"][0] = "00"  # YAML's 00 is a number to Python
    for name, grid in grids.items():
        found = api.run(grid, "bars", output=name, jobs=0, progress=name == "file")
        assert found.experiments() == ["bars"]
        same = {path: text for path, text in files(name, ".csv").items() if "summary" not in path}
        assert same == {p: t for p, t in files(trained / "out", ".csv").items() if "summary" not in p}
    changes = {"updates": 20, "offsets": ["dd^b"]}
    more = api.run(grids["file"], output="more", jobs=0, trials=1, changes=changes)
    assert [*more.summaries()["updates"]] == [20, 20]


@pytest.mark.slow
def test_a_script_without_a_guard_is_not_run_again_by_its_workers():
    text = "import cbm_cli\nprint('begun')\ncbm_cli.run('grid.yaml', jobs=1, trials=1, progress=False)\n"
    Path("script.py").write_text(text)
    Path("grid.yaml").write_text(grid_text("rbm", batch="full"))
    answer = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.split() == ["begun"]
    assert len(summary("results", "toy")) == 1


def test_faults_of_a_mapping_name_their_field():
    grid = yaml.safe_load(grid_text("rbm")) | {}
    grid["experiments"]["toy"] |= {"sampler": "CD", "batch": np.int64(0), "offsets": ["dx"]}
    problems = problems_of(refusal(api.run, grid))
    assert {field for _, field, _ in problems} == {"toy.sampler", "toy.batch", "toy.offsets"}
    error = refusal(api.run, yaml.safe_load(grid_text("rbm")), "tpy")
    assert holds(error, "tpy|toy")


def failing_grid(statement):
    """Write a grid whose recorder ends in a statement."""
    Path("own.py").write_text(f"def fail(snapshots, context):\n    {statement}\n")
    Path("grid.yaml").write_text(grid_text("rbm", batch="full", record="{what: own.py:fail}"))


def test_failed_trials_raise_after_the_others_are_finished():
    failing_grid("raise SystemExit(3)")
    error = refusal(api.run, "grid.yaml", jobs=0, trials=1, progress=False)
    assert error.kinds == ("failed",)
    assert holds(error, "1|own.py|SystemExit: 3")


def test_a_recorder_that_fails_is_a_warning_with_the_trial_and_the_line():
    failing_grid("raise ZeroDivisionError")
    with pytest.warns(UserWarning, match=r"own.py:fail .*\b2\b.* trial 0: .*own.py, line 2, .*ZeroDivision"):
        found = api.run("grid.yaml", jobs=0, trials=2, progress=False)
    assert len(found.summaries("toy")) == 2


def test_frames_hold_what_the_files_hold(trained):
    found, rows = api.open_results(trained / "out"), summary(trained / "out")
    assert found.experiments() == ["bars"]
    for frame in (found.summaries(), found.summaries("bars")):
        assert [*frame["run_id"]] == [row["run_id"] for row in rows]
        assert {*frame["offsets"]} == {"00", "dd^b_s"}
    curves = found.curves("bars")
    assert len(curves) == len(rows) * 6  # evaluations at 0, 20, ..., 100
    assert [*curves.columns[-3:]] == ["update", "epoch", "train_log_likelihood"]
    assert {"run_id", "trial", "offsets", "sampler"} <= {*curves}
    last = curves[curves["update"] == 100].set_index(["run_id", "trial"])["train_log_likelihood"]
    for row in rows:
        final = float(row["train_log_likelihood_final"])
        assert last[row["run_id"], int(row["trial"])] == final
    assert found.records("bars").empty
    table = found.table(columns=["sampler"], rows=["offsets"], statistic="final")
    how = "--columns sampler --rows offsets --statistic final -f csv"
    printed = cbm("table", trained / "out", *how.split()).stdout
    expected = pd.read_csv(io.StringIO(printed), dtype={"offsets": str})
    pd.testing.assert_frame_equal(table, expected, check_dtype=False)
    for choice in ("statistic", "metric", "test", "best", "correction"):
        problem = problems_of(refusal(found.table, **{choice: "maxx"}))
        assert problem == [(f"--{choice} maxx", "", "unknown")]
    assert problems_of(refusal(found.table, alpha=1))[0][0] == "--alpha 1"
    best = found.best().log_likelihood(api.data("bars-and-stripes", size=2)["train"]).mean()
    finals = [float(row["train_log_likelihood_final"]) for row in rows]
    assert best == pytest.approx(max(finals), abs=1e-5)
    rivals = [{"data": name, "machine": f"{name}.npz"} for name in ("a", "b")]
    machine()[0].save("b.npz")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(notebook, "best_machines", lambda store, metric: rivals)
        assert found.best(data="b").sizes == RBM
        assert refusal(found.best).kinds == ("missing",)
        assert holds(refusal(found.best), "bars|a, b")
    assert holds(refusal(found.curves, "bar"), "bar|bars")
    assert holds(refusal(api.open_results, "nowhere"), "nowhere")


@pytest.mark.parametrize("own", [None, ""])
def test_a_run_leaves_the_environment_of_its_caller_as_it_was(own, monkeypatch):
    """Programs that the caller starts later import modules beside them."""
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    if own is not None:
        monkeypatch.setenv("PYTHONSAFEPATH", own)
    before = dict(os.environ)
    api.run(yaml.safe_load(grid_text("rbm", batch="full")), jobs=1, trials=1, progress=False)
    assert dict(os.environ) == before


# Rows from memory

OF_ROWS = {"model": {"kind": "rbm", "hidden": 3}, "offsets": "dd^b", "sampler": "PCD-1", "trials": 1}
OF_ROWS |= {"learning_rate": 0.1, "updates": 20, "batch": 10}
ROWS = np.random.default_rng(4).integers(0, 2, (60, 16))
NAMED = pd.DataFrame(ROWS, columns=[f"p{n}" for n in range(16)]).assign(kind=["a", "b"] * 30)


@pytest.mark.parametrize(
    ("rows", "train", "valid"),
    [
        (ROWS, ROWS, None),
        (ROWS.reshape(60, 4, 4), ROWS, None),
        (ROWS.tolist(), ROWS, None),
        ({"path": NAMED, "drop": ["kind"]}, ROWS, None),
        ({"path": NAMED, "columns": "1-8", "valid": NAMED[:10]}, ROWS[:, :8], ROWS[:10, :8]),
        ({"path": 9.0 * ROWS, "threshold": 5.0, "flip": True}, 1 - ROWS, None),
    ],
)
def test_frames_and_arrays_are_trained_on(tmp_path, rows, train, valid):
    grid = {"experiments": {"toy": OF_ROWS}}
    found = api.run(grid, data=rows, output=tmp_path / "out", jobs=0, progress=False)
    (cell,) = Results(tmp_path / "out").store("toy").manifest()["cells"]
    data = load(spec_of(cell))
    np.testing.assert_array_equal(data.train, train)
    assert (data.valid is None) == (valid is None)
    if valid is not None:
        np.testing.assert_array_equal(data.valid, valid)
    assert found.summaries("toy")["data"].unique().tolist() == [
        "flipped-data" if cell["data_flip"] else "data"
    ]
    before = {*(tmp_path / "out").rglob("*")}
    api.run(grid, data=rows, output=tmp_path / "out", jobs=0, progress=False)  # there is nothing to do
    assert {*(tmp_path / "out").rglob("*")} == before


@pytest.mark.parametrize(
    ("rows", "kind", "named"),
    [
        (NAMED, "value", "drop: [kind]"),
        ({"path": NAMED, "dorp": ["kind"]}, "unknown", "drop"),
        (ROWS * 3, "value", "threshold"),
        (np.zeros((4, 2, 2, 3)), "value", "(4, 2, 2, 3)"),
    ],
)
def test_frames_that_cannot_be_trained_on_are_refused(tmp_path, rows, kind, named):
    with pytest.raises(CbmError) as error:
        api.run({"experiments": {"toy": OF_ROWS}}, data=rows, output=tmp_path / "out", progress=False)
    assert (error.value.kinds, named in str(error.value)) == ((kind,), True)
