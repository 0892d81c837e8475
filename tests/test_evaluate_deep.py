"""``cbm evaluate`` on deep machines and auto encoders, against sums over all states and costs in NumPy."""

import json
import re
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from cbm_cli.machines.files import read_machine
from cbm_cli.machines.likelihood import Method
from tests.builders import cbm
from tests.oracles import log_z, random_machine
from tests.test_auto_encoder import cost_of
from tests.test_deep import THREE, TWO, brute_log_likelihoods, flattened, layered, visible_rows

DEPTHS = pytest.mark.parametrize("layers", [TWO, THREE])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def save(layers, seed=1, kind="dbm", **changes):
    """A random machine with offsets in m.npz, and a choice of rows, some of them twice, in rows.npy."""
    machine = layered(layers, seed)
    named = zip(("weights", "biases", "offsets"), machine, strict=True)
    arrays = {f"{name}_{layer}": array for name, of in named for layer, array in enumerate(of)}
    np.savez("m.npz", **({"kind": np.array(kind)} | arrays | changes))
    chosen = np.random.default_rng(seed).integers(0, 2 ** layers[0], 23)
    np.save("rows.npy", visible_rows(layers)[chosen])
    return machine, chosen


def evaluate(*arguments, code=0):
    """Run cbm evaluate m.npz on rows.npy; its standard output."""
    result = cbm("evaluate", "m.npz", "--data", "rows.npy", *arguments, code=code)
    return result.stdout if code == 0 else result.stderr


def known(*arguments):
    return json.loads(evaluate(*arguments, "--json"))


@DEPTHS
def test_the_exact_likelihood_of_a_deep_machine_is_the_sum_over_all_its_states(layers):
    machine, chosen = save(layers)
    expected = brute_log_likelihoods(machine, layers)[chosen]
    found = known("--exact")
    assert found == known()  # what is done where no method is named
    assert found["method"] == "exact"
    assert found["log_z"] == pytest.approx(log_z(flattened(machine).plain), abs=1e-5)
    likelihood, bound = found["log_likelihood"], found["lower_bound"]
    assert likelihood["mean"] == pytest.approx(expected.mean(), abs=1e-5)
    for quantity in (likelihood, bound):
        assert quantity["n"] == 23
        assert quantity["total"] == pytest.approx(23 * quantity["mean"])
    assert bound["mean"] < likelihood["mean"]
    assert ("tighter_bound" in found) == (layers == TWO)
    if layers == TWO:
        tighter = found["tighter_bound"]
        assert bound["mean"] < tighter["mean"] < likelihood["mean"] + 4 * tighter["standard_error"]


def test_bounds_meet_the_likelihood_where_mean_field_is_exact():
    save(TWO, weights_1=np.zeros((4, 3)))
    found = known("--exact")
    for bound in ("lower_bound", "tighter_bound"):
        assert found[bound]["mean"] == pytest.approx(found["log_likelihood"]["mean"], abs=1e-5)


def test_the_standard_error_of_the_tighter_bound_is_its_spread_over_seeds():
    save(TWO, seed=4)
    found = [known("--seed", seed)["tighter_bound"] for seed in range(40)]
    spread = np.std([bound["mean"] for bound in found], ddof=1)
    error = np.mean([bound["standard_error"] for bound in found])
    assert abs(spread / error - 1) < 4 / np.sqrt(2 * 39)  # in standard errors of a standard deviation


@pytest.mark.parametrize("base", ["base-rate", "uniform"])
@DEPTHS
def test_annealing_finds_log_z_within_its_error_and_bounds_with_it(layers, base):
    save(layers, seed=2)
    exact, found = known("--exact"), known("--ais", "--temperatures", 1000, "--base", base)
    assert found["method"] == "ais"
    assert "log_likelihood" not in found
    error = found["log_z_standard_error"]
    assert 0 < error < 0.1
    assert abs(found["log_z"] - exact["log_z"]) < 5 * error
    assert abs(found["reverse_log_z"] - exact["log_z"]) < 5 * found["reverse_log_z_standard_error"]
    low, high = found["log_z_interval"]
    assert low < found["log_z"] < high
    for bound in [name for name in exact if name.endswith("bound")]:
        difference = found[bound]["mean"] - exact[bound]["mean"]
        assert difference == pytest.approx(exact["log_z"] - found["log_z"], abs=1e-9)
        assert found[bound]["n"] == 23


def test_deep_machines_are_annealed_in_twice_as_many_steps():
    steps = {}
    for layers in (TWO, THREE, TWO[:2]):
        save(layers)
        steps[layers] = Method().steps(read_machine("m.npz").sizes)
        assert Method(temperatures=77).steps(read_machine("m.npz").sizes) == 77
    assert steps == {TWO: 29_000, THREE: 29_000, TWO[:2]: 14_500}


def test_a_deep_machine_of_one_hidden_layer_is_an_rbm():
    save((5, 4))
    deep = known("--exact")
    save((5, 4), kind="rbm")
    assert deep == known("--exact")
    assert [*deep] == ["method", "log_z", "log_z_energy", "log_z_centered", "log_likelihood"]


def test_people_are_shown_likelihood_bounds_and_estimate():
    save(TWO)
    number = r"(-?\d+\.\d{6})"
    for method, lines in (
        ("--exact", ["log Z", "log-likelihood", "lower bound", "tighter bound"]),
        ("--ais", ["log Z", "reverse log Z", "lower bound", "tighter bound"]),
    ):
        options = (method, "--temperatures", 200)
        text, answer = evaluate(*options), known(*options)
        shown = dict(re.findall(rf"^([a-z][\w -]*?) +{number}", text, re.MULTILINE | re.IGNORECASE))
        assert [*shown] == lines
        for words, value in shown.items():
            its = answer[words.lower().replace(" ", "_").replace("-", "_")]
            assert float(value) == pytest.approx(its["mean"] if isinstance(its, dict) else its, abs=1e-6)
        error = re.search(rf"tighter bound .* ± {number} nats per row \(23 rows\)", text)[1]
        assert float(error) == pytest.approx(answer["tighter_bound"]["standard_error"], abs=1e-6)


def test_rows_whose_mean_field_did_not_settle_are_told():
    # m = 2 p - 1 of both units follows m <- tanh(m): at this critical weight it falls like sqrt(3 / 4n).
    arrays = {"offsets_1": np.zeros(1), "offsets_2": np.ones(1), "weights_0": np.zeros((4, 1))}
    biases = {"biases_1": np.array([2.0]), "biases_2": np.array([-2.0])}  # plain ones: -2 and -2
    save((4, 1, 1), weights_1=np.full((1, 1), 4.0), **arrays, **biases)
    result = cbm("evaluate", "m.npz", "--data", "rows.npy", "--json")
    assert json.loads(result.stdout)["mean_field_unsettled"] == 23
    assert "mean field has not settled for 23 rows" in result.stderr


def encoder(sizes, seed=1, **changes):
    """Arrays of an auto encoder's file with offsets, saved in m.npz, and rows in rows.npy."""
    rng = np.random.default_rng(seed)
    arrays = {f"weights_{i}": rng.standard_normal(shape) for i, shape in enumerate(pairwise(sizes))}
    for name in ("biases", "offsets", "decoder_biases", "decoder_offsets"):
        inner = name.startswith("decoder")
        layers = [*enumerate(sizes)][1:-1] if inner else enumerate(sizes)
        arrays |= {f"{name}_{i}": rng.standard_normal(n) for i, n in layers}
    texts = {"kind": "auto-encoder", "encoder": "sigmoid", "decoder": "sigmoid", "loss": "cross-entropy"}
    arrays |= {name: np.array(text) for name, text in (texts | changes).items()}
    np.savez("m.npz", **arrays)
    rows = (rng.random((1_003, sizes[0])) < 0.4).astype(np.uint8)
    np.save("rows.npy", rows)
    return arrays, rows


@pytest.mark.parametrize(
    ("sizes", "texts", "words"),
    [
        ((6, 3), {}, "cross entropy"),
        ((6, 4, 2), {"encoder": "tanh"}, "cross entropy"),
        ((6, 4, 3, 2), {"encoder": "relu", "decoder": "linear", "loss": "squared"}, "squared error"),
        ((6, 4, 2), {"loss": "squared"}, "squared error"),
    ],
)
def test_an_auto_encoder_is_judged_by_its_cost(sizes, texts, words):
    arrays, rows = encoder(sizes, **texts)
    expected = cost_of(arrays, rows)
    found = known()
    assert found["method"] == "cost"
    assert found["loss"] == texts.get("loss", "cross-entropy")
    assert found["cost"]["mean"] == pytest.approx(expected, rel=1e-9)
    assert found["cost"]["total"] == pytest.approx(1_003 * expected, rel=1e-9)
    assert found["cost"]["n"] == 1_003
    assert known("--rows", 50)["cost"]["n"] == 50
    text = evaluate()
    assert re.match(rf"{words} +{expected:.6f} (nats )?per row \(1003 rows\)\n", text)
    assert ("nats" in text) == (words == "cross entropy")


@pytest.mark.parametrize("method", ["exact", "ais", "raise"])
def test_an_auto_encoder_has_no_likelihood(method):
    encoder((6, 3))
    said = evaluate(f"--{method}", code=2)
    assert f"an auto encoder has no normalised likelihood for --{method} to find; it is judged by its" in said


def test_a_cross_entropy_of_outputs_beyond_0_and_1_is_refused():
    encoder((6, 3), decoder="linear")
    assert "the cross entropy, needs a sigmoid decoder, not linear" in evaluate(code=2)


def test_what_a_deep_machine_cannot_be_asked_is_said():
    save(TWO)
    assert "--raise anneals from rows of data, and would need the states of all even" in evaluate(
        "--raise", code=2
    )
    said = cbm("evaluate", "m.npz", "--data", "bars-and-stripes:size=3", code=2).stderr
    assert "has 5 visible units; the data has 9 columns" in said
    said = cbm("evaluate", "m.npz", code=2).stderr
    assert "--data" in said


def test_an_exact_likelihood_of_too_many_states_is_refused():
    sizes = 5, 26, 26
    W, b, c = random_machine(31, 26, seed=1)
    arrays = {"weights_0": W[:5], "weights_1": W[5:].T, "biases_0": b[:5], "biases_1": c, "biases_2": b[5:]}
    np.savez("m.npz", kind=np.array("dbm"), **arrays)
    np.save("rows.npy", np.zeros((17, sizes[0]), np.uint8))
    said = evaluate("--exact", code=2)  # 17 rows of 2^26 states each are more than 2^30
    assert "for each of 17 rows" in said
    assert "use --ais (annealed importance sampling) to estimate it, or evaluate fewer rows" in said


GRID = """
defaults: {trials: 2, seed: 5, data: {path: coins.npz}, offsets: ddd^b_s, batch: 10, learning_rate: 0.2}
experiments:
  deep:
    model: {kind: dbm, hidden: [[4, 3]]}
    sampler: PCD-1
    epochs: 20
    evaluate: {method: exact, every: 20 epochs}
  encoder:
    model: {kind: auto-encoder, hidden: [[4, 3]]}
    epochs: 2
"""


def test_finished_trials_gain_likelihood_bounds_and_estimates():
    rng = np.random.default_rng(3)
    rows = (rng.random((60, 6)) < [0.2, 0.8, 0.5, 0.9, 0.1, 0.4]).astype(np.uint8)
    np.savez("coins.npz", train=rows[:40], valid=rows[40:])
    with open("grid.yaml", "w") as file:
        file.write(GRID)
    cbm("run", "grid.yaml", "deep", "encoder", "-j", 0, "--no-table")
    before = {name: pd.read_csv(f"results/{name}/summary.csv") for name in ("deep", "encoder")}
    exact = cbm("evaluate", "results/")
    cbm("evaluate", "results", "deep", "--ais", "--temperatures", 500)
    after = {name: pd.read_csv(f"results/{name}/summary.csv") for name in before}
    pd.testing.assert_frame_equal(after["encoder"], before["encoder"])
    assert "encoder: 2 trials of auto encoders have no normalised likelihood; their costs" in exact.stderr
    assert len(exact.stdout.splitlines()) == 2
    deep = after["deep"]
    pd.testing.assert_frame_equal(deep[before["deep"].columns], before["deep"])
    for part in ("train", "valid"):
        its = {name: deep[f"{part}_{name}"] for name in ("lower_bound_ais", "log_likelihood_exact")}
        np.testing.assert_allclose(its["log_likelihood_exact"], deep[f"{part}_log_likelihood_final"])
        for bound in ("lower_bound", "tighter_bound"):
            difference = deep[f"{part}_{bound}_ais"] - deep[f"{part}_{bound}_exact"]
            np.testing.assert_allclose(difference, deep["exact_log_z"] - deep["ais_log_z"], atol=1e-9)
        assert (deep[f"{part}_lower_bound_exact"] <= its["log_likelihood_exact"]).all()
        assert (deep[f"{part}_tighter_bound_standard_error_ais"] > 0).all()
    assert ((deep["ais_log_z"] - deep["exact_log_z"]).abs() < 5 * deep["ais_log_z_standard_error"]).all()
    shown = cbm("table", "results", "deep", "--metric", "valid_lower_bound_ais").stdout
    assert f"{deep['valid_lower_bound_ais'].mean():.2f}" in shown
