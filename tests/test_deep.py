"""Deep machines against sums over all states of their layers, written out layer by layer."""

import itertools

import numpy as np
import pytest

from cbm_cli import reference as ref
from cbm_cli.errors import CbmError
from cbm_cli.machines.estimates import Stopped
from cbm_cli.machines.bounds import lower_bounds, posterior_of, tightening
from cbm_cli.machines.files import Flat
from cbm_cli.machines.likelihood import (
    Method,
    Parts,
    bounds_of,
    columns,
    evaluate,
    exact_scores,
    values,
)
from cbm_cli.machines.limits import check_likelihood
from tests.oracles import field_of, log_z, random_machine, rbm, states, wide

TWO, THREE, FOUR = (5, 4, 3), (4, 3, 3, 2), (3, 2, 3, 2, 2)  # layers, the visible one first
DEPTHS = pytest.mark.parametrize("layers", [TWO, THREE, FOUR])


def layered(layers, seed, scale=1.0):
    """Weights, biases and offsets of every layer, of the centered energy."""
    rng = np.random.default_rng(seed)
    weights = [scale * rng.standard_normal(shape) for shape in itertools.pairwise(layers)]
    return weights, [scale * rng.standard_normal(n) for n in layers], [rng.random(n) for n in layers]


def layered_energy(machine, layer_states):
    """The centered energy, term by term."""
    weights, biases, offsets = machine
    x = [
        [state - offset for state, offset in zip(*layer, strict=True)]
        for layer in zip(layer_states, offsets, strict=True)
    ]
    energy = 0.0
    for layer, bias in enumerate(biases):
        energy -= sum(x[layer][i] * bias[i] for i in range(len(bias)))
    for layer, W in enumerate(weights):
        n, m = W.shape
        energy -= sum(x[layer][i] * W[i, j] * x[layer + 1][j] for i in range(n) for j in range(m))
    return energy


def all_states(layers):
    """Every state of every layer: (states, units), layer after layer."""
    return states(sum(layers))


def split(state, layers):
    return np.split(state, np.cumsum(layers)[:-1])


def flattened(machine, dtype=np.float32):
    """The same machine without offsets, even layers beside even ones."""
    weights, biases, offsets = machine
    layers = [len(bias) for bias in biases]
    plain = [np.array(bias) for bias in biases]
    for at, W in enumerate(weights):
        plain[at] -= W @ offsets[at + 1]
        plain[at + 1] -= offsets[at] @ W
    blocks = [[np.zeros((n, m)) for m in layers[1::2]] for n in layers[::2]]
    for at, W in enumerate(weights):
        blocks[(at + 1) // 2][at // 2] = W if at % 2 == 0 else W.T
    start = np.concatenate(offsets[2::2])
    arrays = np.block(blocks), np.concatenate(plain[::2]), np.concatenate(plain[1::2]), start
    return Flat(*(np.ascontiguousarray(array, dtype=dtype) for array in arrays), tuple(layers))


def exact_log_likelihoods(machine, rows, unit=1.0):
    return exact_scores(machine, rows, unit) - log_z(machine.plain)


def visible_rows(layers):
    return states(layers[0]).astype(np.uint8)


def brute_log_likelihoods(machine, layers):
    """log p of every visible state, by the energies of all states of all layers."""
    weight = np.exp([-layered_energy(machine, split(state, layers)) for state in all_states(layers)])
    return np.log(weight.reshape(2 ** layers[0], -1).sum(axis=1) / weight.sum())


@pytest.mark.parametrize(("even_units", "odd_units", "scale"), [(5, 6, 1.0), (40, 70, 0.1), (1, 1, 3.0)])
def test_mean_field_ends_at_a_fixed_point(even_units, odd_units, scale):
    W, b, c = machine = random_machine(4 + even_units, odd_units, seed=3, scale=scale)
    x = (np.random.default_rng(1).random((9, 4)) < 0.5).astype(float)
    even, odd, made = field_of(machine, x, np.full(even_units, 0.5))
    assert 1 < made <= 500
    np.testing.assert_allclose(even, ref.visible_mean(odd, W[4:], b[4:]), atol=5e-6)
    np.testing.assert_allclose(odd, ref.hidden_mean(np.hstack([x, even]), W, c), atol=5e-6)


@pytest.mark.parametrize("rounds", [0, 1, 3, 100])
def test_mean_field_makes_the_rounds_of_the_reference(rounds):
    machine, x, start = random_machine(9, 6, seed=5), np.eye(4), np.full(5, 0.3)
    expected = ref.mean_field(x, start, wide(machine), 1e-3, rounds)
    found = field_of(machine, x, start, 1e-3, rounds)
    assert found[2] == expected[2]
    for one, other in zip(found[:2], expected[:2], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@DEPTHS
def test_the_flattened_machine_has_the_layered_energy_up_to_a_constant(layers):
    machine = layered(layers, seed=1)
    flat = flattened(machine, np.float64)
    differences = []
    for state in all_states(layers)[::3]:
        parts = split(state, layers)
        x, h = np.concatenate(parts[::2]), np.concatenate(parts[1::2])
        differences.append(layered_energy(machine, parts) + x @ flat.b + h @ flat.c + x @ flat.W @ h)
    assert np.ptp(differences) < 1e-12


@DEPTHS
def test_the_exact_likelihood_is_the_sum_over_all_layers(layers):
    machine = layered(layers, seed=2)
    found = exact_log_likelihoods(flattened(machine, np.float64), visible_rows(layers))
    np.testing.assert_allclose(found, brute_log_likelihoods(machine, layers), atol=1e-11)


@DEPTHS
def test_the_gradient_is_the_data_phase_less_the_model_phase(layers):
    """Both phases from exact posteriors, by finite differences of the likelihood of one row."""
    weights, biases, offsets = layered(layers, seed=3)
    row, step = visible_rows(layers)[[5]], 1e-5
    everything = all_states(layers)
    p = np.exp([-layered_energy((weights, biases, offsets), split(state, layers)) for state in everything])
    posterior = p * (everything[:, : layers[0]] == row).all(axis=1)
    parts = np.split(everything, np.cumsum(layers)[:-1], axis=1)
    centered = [part - offset for part, offset in zip(parts, offsets, strict=True)]
    phases = posterior / posterior.sum() - p / p.sum()

    def likelihood():
        return exact_log_likelihoods(flattened((weights, biases, offsets), np.float64), row)[0]

    def slope(array, at):
        ends, value = [], array[at]
        for array[at] in (value + step, value - step):
            ends.append(likelihood())
        array[at] = value
        return (ends[0] - ends[1]) / (2 * step)

    for W, below, above in zip(weights, centered[:-1], centered[1:], strict=True):
        expected = np.einsum("s,si,sj->ij", phases, below, above)
        found = [[slope(W, (i, j)) for j in range(W.shape[1])] for i in range(W.shape[0])]
        np.testing.assert_allclose(found, expected, atol=1e-8)
    for bias, layer in zip(biases, centered, strict=True):
        np.testing.assert_allclose([slope(bias, i) for i in range(len(bias))], phases @ layer, atol=1e-8)


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


def flipped(machine, choice):
    """The machine whose ``choice`` (booleans by layer) of units has the opposite meaning."""
    weights, biases, offsets = machine
    signs = [np.where(chosen, -1.0, 1.0) for chosen in choice]
    return (
        [W * np.outer(*pair) for W, pair in zip(weights, itertools.pairwise(signs), strict=True)],
        [bias * sign for bias, sign in zip(biases, signs, strict=True)],
        [np.where(chosen, 1 - o, o) for chosen, o in zip(choice, offsets, strict=True)],
    )


@pytest.mark.parametrize("layer", range(4))
def test_flipping_units_of_any_layer_changes_no_likelihood_and_no_bound(layer):
    """The paper's theorem: x to 1 - x and mu to 1 - mu leave the distribution, whatever the layer."""
    machine, rng = layered(THREE, seed=6), np.random.default_rng(7)
    choice = [rng.random(n) < 0.5 if at == layer else np.zeros(n, bool) for at, n in enumerate(THREE)]
    choice[layer][0] = True
    rows = visible_rows(THREE)
    flat, other = flattened(machine), flattened(flipped(machine, choice))
    other_rows = np.where(choice[0], 1 - rows, rows).astype(np.uint8)
    exact, other_exact = exact_log_likelihoods(flat, rows), exact_log_likelihoods(other, other_rows)
    np.testing.assert_allclose(other_exact, exact, atol=1e-5)  # the parameters are float32
    lower, other_lower = (
        bounds_of(m, r, 1.0, Method(tolerance=1e-6)).lower - log_z(m.plain)
        for m, r in ((flat, rows), (other, other_rows))
    )
    np.testing.assert_allclose(other_lower, lower, atol=1e-5)


@pytest.mark.parametrize("layers", [TWO, THREE])
def test_annealing_keeps_its_stated_error(layers):
    flat = flattened(layered(layers, seed=8, scale=0.7))
    base, exact = np.float32([-0.5, 0.3, 0, 1, -1][: layers[0]]), log_z(flat.plain)
    parts, how = Parts({}, 1.0, base), {"temperatures": 100, "checked": False}
    found = [evaluate(flat, parts, Method("ais", seed=seed, **how))[0] for seed in range(60)]
    inside = sum(abs(its["log_z"] - exact) < 2 * its["log_z_standard_error"] for its in found)
    assert inside >= 51  # 95.4% of 60 are 57.3; four standard errors below are 50.8


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
    assert [*found][-4:] == [
        "mean_field_unsettled", "log_z", "log_z_standard_error", "effective_sample_size",
    ]  # fmt: skip
    error = found["log_z_standard_error"]
    assert abs(found["log_z"] - log_z(flat.plain)) < 5 * error
    for part, rows in rows_of.items():
        bounds, likelihood = bounds_of(flat, rows, 1.0, method), expected[f"{part}_log_likelihood"]
        assert found[f"{part}_lower_bound"] == pytest.approx(bounds.lower.mean() - found["log_z"])
        assert found[f"{part}_lower_bound"] < found[f"{part}_tighter_bound"] < likelihood + 5 * error
    assert found["mean_field_unsettled"] == 0
    assert found == measured(flat, parts, method)
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
    energies = [layered_energy(machine, split(state, THREE)) for state in all_states(THREE)]
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
    flat = Flat(*(np.zeros(shape, np.float32) for shape in ((52, 22), (52,), (22,), (22,))), (30, 22, 22))
    parts = Parts({"train": np.zeros((300, 30), np.uint8)}, 1.0, np.zeros(30, np.float32))
    with pytest.raises(CbmError, match="for each of 300 rows"):
        evaluate(flat, parts, Method())
