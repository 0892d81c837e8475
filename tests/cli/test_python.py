"""``import cbm_cli``: the numbers of the commands and of sums over all states; helpful
errors.
"""

import io
import subprocess
import sys
from pathlib import Path

import cbm_cli as api
import numpy as np
import pandas as pd
import pytest
import yaml
from cbm_cli.datasets.loading import load
from cbm_cli.errors import CbmError
from cbm_cli.reference import sigmoid
from cbm_cli.results import Results
from cbm_cli.results.selection import BestMachine
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, dok_array

from tests import networks as nets
from tests.builders import (
    GRID,
    cbm,
    evaluate_file,
    grid_text,
    holds,
    problems_of,
    refusal,
    summary,
)
from tests.journals import trials_of
from tests.oracles import states

pytestmark = pytest.mark.usefixtures("here")


def machine(layers=nets.RBM):
    its = nets.layered(layers, 1)
    np.savez("m.npz", **nets.machine_file(its, "rbm" if len(layers) == 2 else "dbm"))
    return api.load("m.npz"), its


def test_the_package_lists_its_functions():
    assert {"load", "open_results", "run", "data"} <= {*dir(api)}
    with pytest.raises(AttributeError, match="nothing"):
        api.nothing  # noqa: B018


def test_an_unknown_backend_of_pictures_is_named(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "no_such_backend")
    code = "import cbm_cli.report.kinds"
    told = subprocess.run(
        [sys.executable, "-c", code], stderr=-1, text=True, check=False
    ).stderr
    assert told.splitlines()[-1].startswith(
        "cbm_cli.errors.CbmError: MPLBACKEND names no backend"
    )


@pytest.mark.parametrize("layers", [nets.RBM, nets.TWO, nets.THREE])
def test_likelihoods_and_energies_are_sums_over_all_states(layers):
    found, its = machine(layers)
    X, exact = nets.visible_rows(layers), nets.brute_log_likelihoods(its, layers)
    energies = nets.layered_energy(its, nets.all_states(layers))
    log_z = (
        np.logaddexp.reduce(-energies) - found.parameters.offset_energy
    )  # of the plain energy
    assert found.log_partition() == pytest.approx(log_z, abs=1e-6)
    assert_allclose(found.free_energy(X), -exact - log_z, atol=1e-5)
    found.save("copy.npz")
    copy = api.load("copy.npz")
    assert (found.path, copy.path) == ("m.npz", "copy.npz")
    assert_allclose(copy.log_likelihood(X), exact, atol=1e-5)
    assert (copy.kind, copy.sizes, copy.names) == (found.kind, layers, ())
    for kept, given in zip(
        [*copy.weights, *copy.offsets], its[0] + its[2], strict=True
    ):
        assert_array_equal(kept, given)


@pytest.mark.parametrize("layers", [nets.RBM, nets.TWO])
@pytest.mark.parametrize("options", [{}, {"temperatures": 50, "runs": 20}])
def test_evaluate_returns_what_the_command_prints(layers, options):
    found, _ = machine(layers)
    np.save("rows.npy", X := nets.visible_rows(layers)[:7])
    method = "ais" if options else "exact"
    typed = [word for name, value in options.items() for word in (f"--{name}", value)]
    printed = evaluate_file(f"--{method}", *typed, "--json")
    assert found.evaluate(X, method, **options) == printed
    quantity = (
        "lower_bound" if method == "ais" and len(layers) > 2 else "log_likelihood"
    )
    mean = found.log_likelihood(X, method, **options).mean()
    assert mean == pytest.approx(printed[quantity]["mean"], abs=1e-4)
    log_z = found.log_partition(method, data=X, **options)
    assert log_z == pytest.approx(printed["log_z"], abs=1e-5)
    assert found.log_likelihood(X, method, log_z=log_z).mean() == pytest.approx(
        mean, abs=1e-6
    )


def test_hidden_means_reconstructions_filters_and_samples_are_those_of_the_equations():
    found, _ = machine()
    (W,), (b, c), X = (
        found.parameters.weights,
        found.parameters.biases,
        nets.visible_rows(nets.RBM),
    )
    h = sigmoid(X @ W + c)
    assert_allclose(found.transform(X), h, atol=1e-6)
    assert_allclose(found.reconstruct(X), sigmoid(h @ W.T + b), atol=1e-6)
    assert_array_equal(found.free_energy(csr_array(X)), found.free_energy(X))
    grey = np.random.default_rng(1).random((3, nets.RBM[0]))  # is taken as it is
    joint = [np.exp(grey @ b + (grey @ W + c) @ h) for h in states(nets.RBM[1])]
    assert_allclose(found.free_energy(grey), -np.log(np.sum(joint, axis=0)), atol=1e-10)
    with pytest.warns(UserWarning, match="temperatures"):
        found.log_partition("ais", temperatures=3, runs=2)
    deep, X = machine(nets.THREE)[0], nets.visible_rows(nets.THREE)
    assert [deep.transform(X, layer).shape[1] for layer in (1, 2, 3)] == [
        *nets.THREE[1:]
    ]
    assert_array_equal(deep.transform(X), deep.transform(X, 3))
    V, U, T = deep.parameters.weights
    assert_allclose(
        deep.filters(3), (V @ U @ T).T, atol=1e-6
    )  # through the layers below
    assert holds(refusal(deep.filters, 4), "--layer 4|3 hidden layers")


def test_an_auto_encoder_reconstructs_and_has_no_likelihood():
    rng = np.random.default_rng(2)
    W, V, b0, b1, b2, d1 = (
        rng.standard_normal(n) for n in ((4, 3), (3, 2), 4, 3, 2, 3)
    )
    arrays = {
        "weights_0": W,
        "weights_1": V,
        "biases_0": b0,
        "biases_1": b1,
        "biases_2": b2,
    }
    np.savez("ae.npz", kind="auto-encoder", **arrays, decoder_biases_1=d1)
    found, X = api.load("ae.npz"), states(4)
    y = sigmoid(sigmoid(X @ W + b1) @ V + b2)
    assert_allclose(found.transform(X), y, atol=1e-6)
    decoded = sigmoid(sigmoid(y @ V.T + d1) @ W.T + b0)
    assert_allclose(found.reconstruct(X), decoded, atol=1e-6)
    loss = -(X * np.log(decoded) + (1 - X) * np.log(1 - decoded)).sum(axis=1)
    assert found.evaluate(X)["cost"]["mean"] == pytest.approx(loss.mean(), rel=1e-5)
    for ask in (
        found.log_partition,
        lambda: found.free_energy(X),
        lambda: found.sample(1),
    ):
        refusal(ask)


REFUSED = [
    (lambda m, X: m.free_energy(X[:, :3]), "(16, 3)|(n, 4)"),
    (lambda m, X: m.transform(X[0]), "(4,)|(n, 4)"),
    (lambda m, X: m.reconstruct(X.astype(str)), "U3|(16, 4)|(n, 4)"),
    (lambda m, X: m.evaluate(X[:0]), "0|1"),
    (lambda m, X: m.evaluate(255 * X), "255|0|1"),
    (lambda m, X: m.transform(np.nan * X), "nan|0|1"),
    (lambda m, X: m.evaluate(X, "AIS"), "'AIS'|ais"),  # which was an exact sum
    (lambda m, X: m.log_likelihood(X, "pseudo", log_z=1.0), "'pseudo'"),
    (lambda m, X: m.log_partition("ais", temperatures=0), "temperatures|3|0"),
    (lambda m, X: m.log_partition("ais", runs=1e9), "runs|1000000000.0"),
    (lambda m, X: m.log_partition("ais", runs=10**12), "runs"),
    (lambda m, X: m.sample(0), "sample|n|0"),  # which were 100 samples
    (lambda m, X: m.sample(5, seed=-1), "seed|-1"),
    (lambda m, X: m.sample(10**15, given=[[0.0, np.nan, np.nan, np.nan]]), "samples"),
    (lambda m, X: m.sample(10**9, chains=10**9, sampler="PT_999999"), "1000000000"),
    (lambda m, X: m.sample(given=X[:0]), "0"),
]


@pytest.mark.parametrize(("asked", "named"), REFUSED)
def test_arguments_that_cannot_be_are_refused_in_words(asked, named):
    with pytest.raises((CbmError, ValueError)) as raised:
        asked(machine()[0], nets.visible_rows(nets.RBM))
    assert holds(raised.value, named)


def test_data_have_their_parts_as_arrays():
    toy = api.data("shifting-bar", size=9, bar=1, flip=True)
    assert_array_equal(toy["train"], 1 - np.eye(9))
    np.save("grey.npy", np.array([[0, 51], [255, 102]], np.uint8))
    grey = api.data(path="grey.npy", scale=255, binarise="none")["train"]
    assert_allclose(grey, [[0, 0.2], [1, 0.4]], rtol=1e-6)
    assert holds(refusal(api.data, "bars"), "bars|bars-and-stripes")
    assert holds(refusal(api.data, NAMED), "data=rows")
    assert holds(refusal(api.data, path="a.npy", test=ROWS), "data=rows")


def test_runs_of_a_file_and_of_a_mapping_write_what_the_command_writes(trained):
    grids = {"file": trained / "grid.yaml", "mapping": yaml.safe_load(GRID)}
    grids["mapping"]["experiments"]["bars"]["offsets"][0] = (
        "00"  # YAML's 00 is a number to Python
    )
    for name, grid in grids.items():
        found = api.run(grid, "bars", output=name, jobs=0, progress=name == "file")
        assert found.experiments() == ["bars"]
        assert trials_of(name) == trials_of(trained / "out")
    changes = {"updates": 20, "offsets": ["dd^b"]}
    more = api.run(grids["file"], output="a/b", jobs=0, trials=1, changes=changes)
    assert [*more.summaries()["updates"]] == [20, 20]


@pytest.mark.slow
def test_a_script_without_a_guard_is_not_run_again_by_its_workers(monkeypatch):
    """And leaves the environment as it was: later programs import modules next to
    them.
    """
    text = "import os, cbm_cli\nprint('begun')\nbefore = dict(os.environ)\n"
    text += "cbm_cli.run('grid.yaml', jobs=1, trials=1, progress=False)\n"
    Path("script.py").write_text(f"{text}assert before == os.environ\n")
    Path("grid.yaml").write_text(grid_text("rbm", batch="full"))
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    answer = subprocess.check_output([sys.executable, "script.py"], text=True)
    assert answer.split() == ["begun"]


def test_faults_of_a_mapping_name_their_field():
    grid = yaml.safe_load(grid_text("rbm"))
    assert holds(refusal(api.run, grid, "tpy"), "tpy|toy")
    for jobs in (-1, 1.5, "two"):
        assert holds(refusal(api.run, grid, jobs=jobs), f"jobs|0|{jobs!r}")
    grid["experiments"]["toy"] |= {
        "sampler": "CD",
        "batch": np.int64(0),
        "offsets": ["dx"],
    }
    fields = {field for _, field in problems_of(refusal(api.run, grid))}
    assert fields == {"toy.sampler", "toy.batch", "toy.offsets"}


def test_a_recorder_that_fails_is_a_warning_and_one_that_exits_an_error_at_the_end():
    Path("grid.yaml").write_text(
        grid_text("rbm", batch="full", record="{what: own.py:fail}")
    )
    own = "def fail(snapshots, context):\n    raise "
    Path("own.py").write_text(f"{own}ZeroDivisionError\n")
    told = r"own.py:fail .*\b2\b.* trial 0: .*own.py, line 2, .*ZeroDivision"
    with pytest.warns(UserWarning, match=told):
        found = api.run("grid.yaml", jobs=0, trials=2, progress=False)
    assert len(found.summaries("toy")) == 2
    Path("own.py").write_text(f"{own}SystemExit(3)\n")
    error = refusal(
        api.run, "grid.yaml", output="more", jobs=0, trials=1, progress=False
    )
    assert holds(error, "1|own.py|SystemExit: 3")


def test_frames_hold_what_the_files_hold(trained):
    found, rows = api.open_results(trained / "out"), summary(trained / "out")
    assert found.experiments() == ["bars"]
    for frame in (found.summaries(), found.summaries("bars")):
        assert [*frame["run_id"]] == [row["run_id"] for row in rows]
    curves = found.curves("bars")
    assert {"run_id", "trial", "offsets", "sampler", "epoch"} <= {*curves}
    finals = [float(row["train_log_likelihood_final"]) for row in rows]
    assert [*curves[curves["update"] == 100]["train_log_likelihood"]] == finals
    assert found.records("bars").empty
    best = (
        found.best()
        .log_likelihood(api.data("bars-and-stripes", size=2)["train"])
        .mean()
    )
    assert best == pytest.approx(max(finals), abs=1e-5)
    assert holds(refusal(found.curves, "bar"), "bar|bars")
    assert holds(refusal(api.open_results, "nowhere"), "nowhere")


def test_a_table_is_that_of_the_command(trained):
    found = api.open_results(trained / "out")
    how = "--columns sampler --rows offsets --statistic final -f csv"
    printed = cbm("table", trained / "out", *how.split()).stdout
    table = found.table(columns="sampler", rows=["offsets"], statistic="final")
    expected = pd.read_csv(io.StringIO(printed), dtype={"offsets": str})
    pd.testing.assert_frame_equal(table, expected, check_dtype=False)
    for choice in ("statistic", "metric", "test", "best", "correction"):
        assert holds(refusal(found.table, **{choice: "maxx"}), f"{choice} maxx")
    assert problems_of(refusal(found.table, alpha=1)) == [("--alpha 1", "")]


def test_the_best_machine_is_asked_for_by_data_where_there_are_several(
    trained, monkeypatch
):
    found, (saved, _) = api.open_results(trained / "out"), machine()
    saved.save("b.npz")
    rivals = [
        BestMachine(data=name, part="train", machine=f"{name}.npz", metric="m")
        for name in ("a", "b")
    ]
    monkeypatch.setattr("cbm_cli.api.best_machines", lambda store, metric: rivals)
    assert found.best(data="b").sizes == nets.RBM
    assert holds(refusal(found.best), "bars|a, b")


OF_ROWS = {"model": {"kind": "rbm", "hidden": 3}, "offsets": "dd^b", "sampler": "PCD-1"}
OF_ROWS |= {"trials": 1, "learning_rate": 0.1, "updates": 20, "batch": 10}
ROWS = np.random.default_rng(4).integers(0, 2, (60, 16))
NAMED = pd.DataFrame(ROWS, columns=[f"p{n}" for n in range(16)]).assign(
    kind=["a", "b"] * 30
)


@pytest.mark.parametrize(
    ("rows", "train", "valid"),
    [
        (ROWS.reshape(60, 4, 4), ROWS, None),
        (dok_array(ROWS), ROWS, None),  # which is a mapping, too
        (Path("rows.npy"), ROWS, None),
        (
            {"path": NAMED, "columns": [1, 2, 3], "valid": NAMED[:10]},
            ROWS[:, :3],
            ROWS[:10, :3],
        ),
        (
            {"path": NAMED, "columns": "p0", "valid": "v.csv", "header": True},
            ROWS[:, :1],
            ROWS[:9, :1],
        ),
        ({"path": 9.0 * ROWS, "threshold": 5.0, "flip": True}, 1 - ROWS, None),
    ],
)
def test_frames_and_arrays_are_trained_on(rows, train, valid):
    np.save("rows.npy", ROWS)
    NAMED[:9].to_csv("v.csv", index=False)
    grid = {"experiments": {"toy": OF_ROWS}}
    found = api.run(grid, data=rows, output="out", jobs=0, progress=False)
    (cell,) = Results(Path("out")).store("toy").manifest().cells
    data = load(cell.settings.data)
    assert_array_equal(data.train, train)
    assert_array_equal(data.valid, valid)
    name = (
        "rows"
        if str(rows) == "rows.npy"
        else "flipped-data"
        if cell.settings.data.flip
        else "data"
    )
    assert found.summaries("toy")["data"].unique().tolist() == [name]
    before = {*Path("out").rglob("*")}
    api.run(
        grid, data=rows, output="out", jobs=0, progress=False
    )  # there is nothing to do
    assert {*Path("out").rglob("*")} == before
