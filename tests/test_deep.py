"""Deep machines against sums over all states of their layers, written out layer by layer."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp

from cbm_cli import reference as ref
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels.machine import Layout
from cbm_cli.machines.bounds import lower_bounds, posterior_of, tightening
from cbm_cli.machines.estimates import Stopped
from cbm_cli.machines.files import Flat
from cbm_cli.machines.likelihood import OF_MACHINE, Method, Parts, bounds_of, columns, evaluate, values
from cbm_cli.machines.limits import check_likelihood
from cbm_cli.trial.checks import check
from tests.builders import (
    FOUR,
    RBM,
    THREE,
    TWO,
    brute_log_likelihoods,
    cbm,
    evaluate_file,
    flipped,
    layered,
    layered_energy,
    machine_file,
    split,
    visible_rows,
)
from tests.oracles import exact_log_likelihoods, field_of, flattened, log_z, random_machine, rbm, states, wide

# Layers side by side

DEPTHS = pytest.mark.parametrize("layers", [TWO, THREE, FOUR])
TWO_OR_THREE = pytest.mark.parametrize("layers", [TWO, THREE])


@pytest.mark.parametrize("layers", [(4, 3), TWO, THREE, FOUR])
def test_a_flat_machine_has_the_energies_of_its_layers(layers):
    """Layers and sides are inverse to each other, and so are weights and flat weights."""
    weights, biases, _ = layered(layers, seed=2)
    layout, rng = Layout(layers), np.random.default_rng(3)
    values = [rng.random((3, size)) for size in layers]
    x, h = layout.side(values, odd=False), layout.side(values, odd=True)
    assert (x.shape[1], h.shape[1]) == (layout.width, layout.height)
    W, sides = layout.flat_weights(weights), layout.layers(x, h)
    for found, expected in zip([*sides, *layout.weights(W)], [*values, *weights], strict=True):
        np.testing.assert_array_equal(found, expected)
    plain = weights, biases, [np.zeros(size) for size in layers]
    expected = [layered_energy(plain, [value[r] for value in values]) for r in range(3)]
    b, c = (layout.side(biases, odd=odd) for odd in (False, True))
    np.testing.assert_allclose(ref.energy(x, h, W, b, c), expected, atol=1e-12)


@DEPTHS
def test_a_step_of_the_centered_layers_is_the_plain_step_of_the_flattened_machine(layers):
    machine, (dW, db, _) = layered(layers, seed=12), layered(layers, seed=13)
    moved = [[a + d for a, d in zip(*pair, strict=True)] for pair in zip(machine[:2], (dW, db), strict=True)]
    ends = [flattened(each, float).plain for each in (machine, (*moved, machine[2]))]
    layout = Layout(layers)
    step = layout.flat_weights(dW), *(layout.side(db, odd=odd) for odd in (False, True))
    expected = ref.plain_step(step, *(layout.side(machine[2], odd=odd) for odd in (False, True)))
    for before, after, change in zip(*ends, expected, strict=True):
        np.testing.assert_allclose(after - before, change, atol=1e-12)


# Mean field


@pytest.mark.parametrize("rounds", [0, 1, 3, 100])
@pytest.mark.parametrize(("even_units", "odd_units", "scale"), [(5, 6, 1.0), (40, 70, 0.1), (1, 1, 3.0)])
def test_mean_field_makes_the_rounds_of_the_reference(even_units, odd_units, scale, rounds):
    machine = random_machine(4 + even_units, odd_units, seed=5, scale=scale)
    x, start = np.eye(4), np.full(even_units, 0.3)
    expected = ref.mean_field(x, start, wide(machine), 1e-3, rounds)
    found = field_of(machine, x, start, 1e-3, rounds)
    assert found[2] == expected[2]
    for one, other in zip(found[:2], expected[:2], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@DEPTHS
def test_the_exact_likelihood_is_the_sum_over_all_layers(layers):
    machine = layered(layers, seed=2)
    found = exact_log_likelihoods(flattened(machine, np.float64), visible_rows(layers))
    np.testing.assert_allclose(found, brute_log_likelihoods(machine, layers), atol=1e-11)


def expectation_over(means, function):
    """E[function(state)] over independent units with the given means, by all their states."""
    everything = states(len(means))
    p = np.prod(np.where(everything == 1, means, 1 - means), axis=1)
    return sum(weight * function(state) for weight, state in zip(p, everything, strict=True))


@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
@DEPTHS
def test_bounds_are_expectations_and_keep_their_order(layers, scale):
    """mean field <= deep layers summed out <= log p(v), for every row, each by its definition."""
    flat, rows = flattened(layered(layers, seed=4, scale=scale)), visible_rows(layers)[::3]
    W, b, c = wide(flat.plain)
    posterior = posterior_of(flat, rows.astype(np.float32), 1e-4, 100)
    lower, exact = lower_bounds(flat, rows, posterior), exact_log_likelihoods(flat, rows)
    expected = ref.lower_bound(rows, *wide((posterior.deep, posterior.odd)), (W, b, c))
    np.testing.assert_allclose(lower - log_z(flat.plain), expected, atol=1e-9)
    exact += log_z(flat.plain)
    random = np.random.Generator(np.random.Philox(key=[1, 2]))
    gain, error = tightening(flat, posterior, 400, random)
    for r, row in enumerate(rows):
        odd = posterior.odd[r].astype(float)

        def summed_out(h, row=row):
            free = h @ W[len(row) :].T + b[len(row) :]
            return row @ b[: len(row)] + h @ c + row @ W[: len(row)] @ h + np.logaddexp(0, free).sum()

        tighter = expectation_over(odd, summed_out) + ref.entropy(odd)
        assert lower[r] <= tighter + 1e-9
        assert tighter <= exact[r] + 1e-9
        assert abs(lower[r] + gain[r] - tighter) < 5 * error[r] + 1e-5  # float32 sums
    assert (gain > -1e-5).all()
    assert (exact - lower).max() > 1e-3


def test_bounds_are_tight_where_the_posterior_is_factorial():
    weights, biases, offsets = layered(TWO, seed=5)
    weights[1][:] = 0
    flat, rows = flattened((weights, biases, offsets)), visible_rows(TWO)
    bounds = bounds_of(flat, rows, 1.0, Method())
    exact = exact_log_likelihoods(flat, rows) + log_z(flat.plain)
    np.testing.assert_allclose(bounds.lower, exact, atol=1e-6)
    np.testing.assert_allclose(bounds.gain, 0, atol=1e-6)
    assert bounds.unsettled == 0


@pytest.mark.parametrize("layer", range(4))
def test_flipping_units_of_any_layer_changes_no_likelihood_and_no_bound(layer):
    """The paper's theorem: x to 1 - x and mu to 1 - mu leave the distribution, whatever the layer."""
    machine, rng = layered(THREE, seed=6), np.random.default_rng(7)
    choice = [rng.random(n) < 0.5 if at == layer else np.zeros(n, bool) for at, n in enumerate(THREE)]
    choice[layer][0] = True
    rows = visible_rows(THREE)
    pairs = (machine, rows), (flipped(machine, choice), np.where(choice[0], 1 - rows, rows).astype(np.uint8))
    found = [(flattened(m), r) for m, r in pairs]
    one, other = (exact_log_likelihoods(*pair) for pair in found)
    np.testing.assert_allclose(other, one, atol=1e-5)  # the parameters are float32
    one, other = (bounds_of(m, r, 1.0, Method(tolerance=1e-6)).lower - log_z(m.plain) for m, r in found)
    np.testing.assert_allclose(other, one, atol=1e-5)


def test_deep_machines_are_annealed_in_twice_as_many_steps():
    assert [Method().steps(layers) for layers in (RBM, TWO, THREE)] == [14_500, 29_000, 29_000]
    assert Method(temperatures=77).steps(TWO) == 77


def test_a_machine_that_is_the_base_needs_no_annealing():
    flat = flattened(layered(THREE, seed=8))
    flat.W[:], flat.c[:], flat.b[4:] = 0, 0, 0
    found, _ = evaluate(flat, Parts({}, 1.0, flat.b[:4]), Method("ais", temperatures=3, runs=5))
    assert found["log_z"] == pytest.approx(log_z(flat.plain), abs=1e-12)
    assert found["log_z_standard_error"] == 0


def measured(machine, parts, method):
    """The values of an evaluation in training, by column."""
    found = values(*evaluate(machine, parts, method))
    return {name: found[name] for name in columns(method, machine.sizes, parts)}


def test_an_evaluation_has_the_means_over_each_part():
    flat, training = flattened(layered(TWO, seed=9)), {"temperatures": 300, "checked": False}
    rows_of = {"train": visible_rows(TWO)[:20], "test": visible_rows(TWO)[7:]}
    parts = Parts(rows_of, 1.0, np.zeros(5, np.float32))
    expected = {
        f"{part}_log_likelihood": exact_log_likelihoods(flat, rows).mean() for part, rows in rows_of.items()
    }
    found = measured(flat, parts, Method("exact", **training))
    assert [*found] == [*expected]
    assert found == pytest.approx(expected, abs=1e-12)

    method = Method("ais", **training)
    found = measured(flat, parts, method)
    assert [*found][-5:] == ["mean_field_unsettled", *OF_MACHINE]
    error = found["log_z_standard_error"]
    assert abs(found["log_z"] - log_z(flat.plain)) < 5 * error
    for part, rows in rows_of.items():
        bounds, likelihood = bounds_of(flat, rows, 1.0, method), expected[f"{part}_log_likelihood"]
        assert found[f"{part}_lower_bound"] == pytest.approx(bounds.lower.mean() - found["log_z"])
        assert found[f"{part}_lower_bound"] < found[f"{part}_tighter_bound"] < likelihood + 5 * error
    assert found["mean_field_unsettled"] == 0
    assert found == measured(flat, parts, method)
    unsettled = measured(flat, parts, replace(method, tolerance=0, rounds=1))["mean_field_unsettled"]
    assert unsettled == sum(map(len, rows_of.values()))
    without = columns(method, THREE, parts)
    assert [name for name in found if "tighter" not in name] == [*without]
    assert columns(Method("none"), TWO, parts) == ()


@pytest.mark.parametrize("name", ["exact", "ais"])
def test_an_rbm_is_a_deep_machine_whose_bound_is_the_likelihood(name):
    """Where no deep unit is connected, the bounds of the deep machine are the likelihood of the RBM."""
    W, b, c = random_machine(5, 4, seed=3)
    shallow = rbm(W, b, c)
    posterior = posterior_of(shallow, states(5).astype(np.float32))
    deep = Flat(
        np.vstack([W, np.zeros((3, 4), np.float32)]),
        np.concatenate([b, np.zeros(3, np.float32)]),
        c,
        np.full(3, 0.5, np.float32),
        (5, 4, 3),
    )
    parts = Parts({"train": visible_rows(TWO)}, 1.0, np.zeros(5, np.float32))
    method = Method(name, temperatures=5000, checked=True)
    (found, of_rbm), (other, of_deep) = (evaluate(its, parts, method) for its in (shallow, deep))
    likelihood, bound = of_rbm["train"]["log_likelihood"]["mean"], of_deep["train"]["lower_bound"]["mean"]
    free = 3 * np.log(2)  # log Z of the units that are not connected
    assert likelihood + found["log_z"] + free == pytest.approx(bound + other["log_z"], abs=1e-6)
    assert of_deep["train"]["tighter_bound"]["mean"] == pytest.approx(bound, abs=1e-6)
    scores = lower_bounds(shallow, states(5).astype(np.float32), posterior)
    assert scores.mean() == pytest.approx(likelihood + found["log_z"], abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_rows_that_did_not_converge_are_counted(seed):
    flat, x = flattened(layered(TWO, seed, scale=2.0)), visible_rows(TWO).astype(np.float32)
    two, three = (posterior_of(flat, x, 0, rounds) for rounds in (2, 3))
    change = np.abs(np.hstack([three.deep - two.deep, three.odd - two.odd])).max(axis=1)
    assert posterior_of(flat, x, np.median(change), 2).unsettled == (change > np.median(change)).sum() == 16
    assert posterior_of(flat, x, 0, 2).unsettled == 32


def test_a_row_whose_odd_units_alone_still_change_did_not_converge():
    arrays = [[0], [20]], [0, -5], [-19.8], [0.99]  # deep 0.9900, 0.9933, 0.9952; odd 0.500, 0.517, 0.526
    flat = Flat(*(np.array(array, np.float32) for array in arrays), (1, 1, 1))
    x = np.zeros((1, 1), np.float32)
    assert [posterior_of(flat, x, tolerance, 1).unsettled for tolerance in (0.005, 0.012)] == [1, 0]


def test_mean_field_starts_at_the_offsets():
    flat, x = flattened(layered(THREE, seed=10)), visible_rows(THREE).astype(np.float32)
    start = posterior_of(flat, x, 1e-4, rounds=0)
    assert (start.deep == flat.start).all()
    expected = ref.hidden_mean(np.hstack([x, start.deep]), flat.W, flat.c)
    np.testing.assert_allclose(start.odd, expected, atol=1e-6)


def test_grey_values_enter_the_energy_as_they_are():
    machine, grey = layered(THREE, seed=13), np.uint8([[0, 51, 204, 255]])
    energies = [layered_energy(machine, split(state, THREE)) for state in states(sum(THREE))]
    hidden = states(sum(THREE[1:]))
    given = [layered_energy(machine, [grey[0] / 255, *split(state, THREE[1:])]) for state in hidden]
    expected = np.log(np.exp(np.negative(given)).sum() / np.exp(np.negative(energies)).sum())
    found = exact_log_likelihoods(flattened(machine, np.float64), grey, 1 / 255)
    assert found == pytest.approx([expected], abs=1e-6)  # unit is float32


def test_many_rows_go_in_blocks_that_change_nothing():
    flat, rng = flattened(layered(TWO, seed=11)), np.random.default_rng(1)
    grey = rng.integers(0, 256, (450, 5)).astype(np.uint8)
    found = bounds_of(flat, grey, 1 / 255, Method(tolerance=1e-6, rounds=1000)).lower
    x = (grey / 255).astype(np.float32)
    np.testing.assert_allclose(found, lower_bounds(flat, x, posterior_of(flat, x, 1e-6, 1000)), atol=1e-6)
    exact = exact_log_likelihoods(flat, grey, 1 / 255)
    alone = [exact_log_likelihoods(flat, row[None], 1 / 255)[0] for row in grey[[0, 199, 200, 449]]]
    np.testing.assert_allclose(exact[[0, 199, 200, 449]], alone, atol=1e-12)


@pytest.mark.parametrize("name", ["exact", "ais"])
def test_an_evaluation_stops_when_asked(name):
    flat = flattened(layered(TWO, seed=11))
    parts = Parts({"train": visible_rows(TWO)}, 1.0, np.zeros(5, np.float32))
    with pytest.raises(Stopped):
        evaluate(flat, parts, Method(name), should_stop=lambda: True)


def test_a_diverged_machine_is_evaluated_to_not_a_number():
    flat = flattened(layered(TWO, seed=12))
    flat.W[0, 0] = np.nan
    parts = Parts({"train": visible_rows(TWO)}, 1.0, np.zeros(5, np.float32))
    for method in (Method("exact", checked=False), Method("ais", temperatures=10, checked=False)):
        assert np.isnan(next(iter(measured(flat, parts, method).values())))


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((784, 500, 500), "sums 2^500 states of 1284x500 units, about"),
        ((10, 15, 20), "sums 2^15 states of 20x15 units for each of 60,000 rows, about"),
        ((2000, 2000, 2000), "sums 2^2000 states of 4000x2000 units, about"),
        ((784, 500), "sums 2^500 states of 784x500 units, about"),
    ],
)
def test_sums_that_are_too_large_are_refused(sizes, said):
    with pytest.raises(CbmError, match=r"^evaluate: an exact likelihood .*2\^30: use method: ais") as error:
        check_likelihood(sizes, 60_000, "evaluate", "use method: ais")
    assert said in str(error.value)
    assert ("or evaluate fewer rows" in str(error.value)) == ("rows" in said)


def test_the_largest_sums_are_not_refused():
    check_likelihood((784, 30), 60_000, "evaluate", "")
    check_likelihood((784, 30, 30), 1, "evaluate", "")
    check_likelihood((784, 20, 10), 1 << 20, "evaluate", "")


@pytest.mark.parametrize(("train", "test", "evaluated"), [(9, 2**16, None), (2**16, 9, None), (2**16, 9, 99)])
def test_the_sums_of_a_trial_are_those_of_its_largest_part(train, test, evaluated):
    how = Settings(
        data={"name": "shifting-bar", "size": 9, "bar": 1},
        model={"kind": "dbm", "hidden": [16, 16]},
        offsets="ddd^b",
        sampler="PCD-1",
        learning_rate=0.1,
        updates=9,
        batch=9,
        evaluate={"rows": evaluated},
    )
    bars = np.eye(9, dtype=np.uint8)
    data = Dataset("bars", bars[np.arange(train) % 9], None, bars[np.arange(test) % 9])
    if evaluated:
        check(how, data)
    else:
        with pytest.raises(CbmError, match=r"2\^16 states .* each of 65,536 rows"):
            check(how, data)


# The command


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def save(layers, seed=1, kind="dbm", **changes):
    """A random machine with offsets in m.npz, and a choice of rows, some of them twice, in rows.npy."""
    machine = layered(layers, seed)
    np.savez("m.npz", **machine_file(machine, kind, **changes))
    chosen = np.random.default_rng(seed).integers(0, 2 ** layers[0], 23)
    np.save("rows.npy", visible_rows(layers)[chosen])
    return machine, chosen


def known(*arguments):
    return evaluate_file(*arguments, "--json")


@pytest.mark.parametrize("layers", [RBM, TWO, THREE])
@pytest.mark.usefixtures("folder")
def test_the_exact_likelihood_of_a_file_is_the_sum_over_all_states(layers):
    machine, chosen = save(layers, kind="rbm" if layers == RBM else "dbm")
    expected = brute_log_likelihoods(machine, layers)[chosen]
    found = known("--exact")
    assert found == known()  # what is done where no method is named
    assert found["method"] == "exact"
    assert found["log_z"] == pytest.approx(log_z(flattened(machine).plain), abs=1e-5)
    quantities = {name: its for name, its in found.items() if isinstance(its, dict)}
    bounds = {RBM: [], TWO: ["lower_bound", "tighter_bound"], THREE: ["lower_bound"]}[layers]
    assert [*quantities] == ["log_likelihood", *bounds]
    for quantity in quantities.values():
        assert quantity["n"] == 23
        assert quantity["total"] == pytest.approx(23 * quantity["mean"])
    likelihood = found["log_likelihood"]["mean"]
    assert likelihood == pytest.approx(expected.mean(), abs=1e-5)
    assert layers == RBM or found["lower_bound"]["mean"] < likelihood
    if layers == TWO:
        tighter = found["tighter_bound"]
        assert found["lower_bound"]["mean"] < tighter["mean"] < likelihood + 4 * tighter["standard_error"]


@pytest.mark.usefixtures("folder")
def test_the_standard_error_of_the_tighter_bound_is_its_spread_over_seeds():
    save(TWO, seed=4)
    found = [known("--seed", seed)["tighter_bound"] for seed in range(40)]
    spread = np.std([bound["mean"] for bound in found], ddof=1)
    error = np.mean([bound["standard_error"] for bound in found])
    assert abs(spread / error - 1) < 4 / np.sqrt(2 * 39)  # in standard errors of a standard deviation


@pytest.mark.parametrize("base", ["base-rate", "uniform"])
@TWO_OR_THREE
@pytest.mark.usefixtures("folder")
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


@pytest.mark.usefixtures("folder")
def test_people_are_shown_likelihood_bounds_and_estimate():
    save(TWO)
    number = r"(-?\d+\.\d{6})"
    for options, lines in (
        (("--exact",), ["log Z", "log-likelihood", "lower bound", "tighter bound"]),
        (
            ("--ais", "--temperatures", 200),
            ["log Z", "reverse log Z", "lower bound", "at most", "tighter bound"],
        ),
    ):
        text, answer = evaluate_file(*options), known(*options)
        shown = dict(re.findall(rf"^([a-z][\w -]*?) +{number}", text, re.MULTILINE | re.IGNORECASE))
        assert [*shown] == lines
        for words, value in shown.items():
            its = answer[
                words.lower().replace(" ", "_").replace("-", "_").replace("at_m", "lower_bound_at_m")
            ]
            assert float(value) == pytest.approx(its["mean"] if isinstance(its, dict) else its, abs=1e-6)
        error = re.search(rf"tighter bound .* ± {number} nats per row \(23 rows\)", text)[1]
        assert float(error) == pytest.approx(answer["tighter_bound"]["standard_error"], abs=1e-6)
        for words, key in (("plain energy", "log_z"), ("centered energy", "log_z_centered")):
            found = re.search(rf"{number}( ± \S+)? \({words}", text)[1]
            assert float(found) == pytest.approx(answer[key], abs=1e-6)


@pytest.mark.parametrize("layers", [RBM, TWO, THREE])
@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.usefixtures("folder")
def test_log_z_belongs_to_the_plain_energy_or_to_the_documented_one(layers, centered):
    changes = {} if centered else {f"offsets_{k}": np.zeros(n) for k, n in enumerate(layers)}
    weights, biases, offsets = save(layers, kind="rbm" if layers == RBM else "dbm", **changes)[0]
    machine = weights, biases, offsets if centered else [0 * o for o in offsets]
    energies = [layered_energy(machine, split(state, layers)) for state in states(sum(layers))]
    found = known("--exact")
    assert found["log_z_energy"] == "plain"
    assert found["log_z_centered"] == pytest.approx(logsumexp(np.negative(energies)), abs=1e-5)
    W, b, c = flattened(machine, float).plain
    assert found["log_z"] == pytest.approx(ref.log_partition(W, b, c), abs=1e-5)
    assert (found["log_z"] == found["log_z_centered"]) == (not centered)
    assert ("centered energy" in evaluate_file("--exact")) == centered
    annealed = known("--ais", "--temperatures", 50, "--runs", 5)
    same = found["log_z_centered"] - found["log_z"]
    assert annealed["log_z_centered"] - annealed["log_z"] == pytest.approx(same, abs=1e-9)


@pytest.mark.usefixtures("folder")
def test_a_deep_machine_of_one_hidden_layer_is_an_rbm():
    save((5, 4))
    deep = known("--exact")
    save((5, 4), kind="rbm")
    assert deep == known("--exact")
    assert [*deep] == ["method", "log_z", "log_z_energy", "log_z_centered", "log_likelihood"]


@pytest.mark.usefixtures("folder")
def test_rows_without_settled_mean_field_are_reported():
    # m = 2 p - 1 of both units follows m <- tanh(m): at this critical weight it falls like sqrt(3 / 4n).
    arrays = {"offsets_1": np.zeros(1), "offsets_2": np.ones(1), "weights_0": np.zeros((4, 1))}
    biases = {"biases_1": np.array([2.0]), "biases_2": np.array([-2.0])}  # plain ones: -2 and -2
    save((4, 1, 1), weights_1=np.full((1, 1), 4.0), **arrays, **biases)
    result = cbm("evaluate", "m.npz", "--data", "rows.npy", "--json")
    assert json.loads(result.stdout)["mean_field_unsettled"] == 23
    assert "mean field has not settled for 23 rows" in result.stderr


@pytest.mark.usefixtures("folder")
def test_what_a_deep_machine_cannot_be_asked_is_refused():
    save(TWO)
    assert "--raise anneals from rows of data" in evaluate_file("--raise", code=2)
    said = cbm("evaluate", "m.npz", "--data", "bars-and-stripes:size=3", code=2).stderr
    assert "m.npz: has 5 visible units; the data has 9 columns" in said
    assert "--data" in cbm("evaluate", "m.npz", code=2).stderr


@pytest.mark.usefixtures("folder")
def test_an_exact_likelihood_of_too_many_states_is_refused():
    sizes = 5, 26, 26
    W, b, c = random_machine(31, 26, seed=1)
    arrays = {"weights_0": W[:5], "weights_1": W[5:].T, "biases_0": b[:5], "biases_1": c, "biases_2": b[5:]}
    np.savez("m.npz", kind=np.array("dbm"), **arrays)
    np.save("rows.npy", np.zeros((17, sizes[0]), np.uint8))
    said = evaluate_file("--exact", code=2)  # 17 rows of 2^26 states each are more than 2^30
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


@pytest.mark.usefixtures("folder")
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
    assert len(exact.stdout.splitlines()) == 3
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
