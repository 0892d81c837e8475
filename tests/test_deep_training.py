"""Training of deep machines against the reference of the flattened machine, in float64."""

import itertools

import numpy as np
import pytest

from cbm_cli import reference as ref
from cbm_cli.datasets import load
from cbm_cli.grid.settings import Settings, Trial
from cbm_cli.kernels.machine import Layout
from cbm_cli.machines.files import Flat
from cbm_cli.trial.loop import run_trial
from tests.oracles import Trainer, copied, joint, learn, make_state, mix, plan, states
from tests.test_deep import (
    DEPTHS,
    FOUR,
    THREE,
    TWO,
    brute_log_likelihoods,
    exact_log_likelihoods,
    flattened,
    flipped,
    layered,
    layered_energy,
    visible_rows,
)

ROWS = {TWO: visible_rows(TWO)[[1, 4, 7, 12, 17, 22, 30]]}
ROWS |= {layers: visible_rows(layers)[[1, 3, 4, 6]] for layers in (THREE, FOUR)}


def layer_values(layers, seed):
    rng = np.random.default_rng(seed)
    return [rng.random((3, size)) for size in layers]


def deep_plan(layers, batch, scheme=None, **changes):
    layout, letters = Layout(layers), scheme or "d" * len(layers)
    mixes = [mix(letter, size) for letter, size in zip(letters, layers, strict=True)]
    sides = [layout.side(mixes, odd=odd) for odd in (False, True)]
    exactly = {"tolerance": 1e-7, "rounds": 1000, "spans": layout.spans(), "visible": layers[0]}
    return plan(layout.width, layout.height, batch, sides, **exactly | changes)


def deep_state(layers, its, seed, scale=1.0, machine=None):
    weights, biases, offsets = machine or layered(layers, seed, scale)
    layout, flat = Layout(layers), flattened((weights, biases, offsets))
    sides = [layout.side(offsets, odd=odd) for odd in (False, True)]
    return make_state(flat.plain, sides, its, np.random.default_rng(seed + 1))


# The flattened machine


@DEPTHS
def test_layers_and_sides_are_inverse(layers):
    layout, values = Layout(layers), layer_values(layers, seed=1)
    x, h = layout.side(values, odd=False), layout.side(values, odd=True)
    assert (x.shape[1], h.shape[1]) == (layout.width, layout.height)
    for found, expected in zip(layout.layers(x, h), values, strict=True):
        np.testing.assert_array_equal(found, expected)


@DEPTHS
def test_weights_and_flat_weights_are_inverse(layers):
    layout, (weights, _, _) = Layout(layers), layered(layers, seed=1)
    W = layout.flat_weights(weights)
    for found, expected in zip(layout.weights(W), weights, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert np.count_nonzero(W) == sum(block.size for block in weights)


@DEPTHS
def test_flat_energies_are_those_of_the_layers(layers):
    weights, biases, _ = layered(layers, seed=2)
    layout, values = Layout(layers), layer_values(layers, seed=3)
    W = layout.flat_weights(weights)
    x, h = layout.side(values, odd=False), layout.side(values, odd=True)
    b, c = layout.side(biases, odd=False), layout.side(biases, odd=True)
    found = ref.energy(x, h, W, b, c)
    plain = weights, biases, [np.zeros(size) for size in layers]
    expected = [layered_energy(plain, [value[r] for value in values]) for r in range(3)]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def neighbours(layers):
    """Which units of x and h are of neighbouring layers, from the number of the layer of each."""
    even = np.repeat(np.arange(0, len(layers), 2), layers[0::2])
    odd = np.repeat(np.arange(1, len(layers), 2), layers[1::2])
    return np.abs(even[:, None] - odd) == 1


@DEPTHS
def test_spans_hold_the_connections_and_no_other(layers):
    spans, (_, M) = Layout(layers).spans(), (connected := neighbours(layers)).shape
    within = (np.arange(M) >= spans[:, :1]) & (np.arange(M) < spans[:, 1:])
    np.testing.assert_array_equal(within, connected)


def test_an_rbm_is_a_machine_of_two_layers():
    layout, W = Layout((4, 3)), np.arange(12.0).reshape(4, 3)
    assert (layout.width, layout.height) == (4, 3)
    assert layout.flat_weights([W]) is not W
    np.testing.assert_array_equal(layout.flat_weights([W]), W)
    np.testing.assert_array_equal(layout.spans(), np.tile([0, 3], (4, 1)))


@DEPTHS
def test_a_step_of_the_centered_layers_is_the_plain_step_of_the_flattened_machine(layers):
    weights, biases, offsets = layered(layers, seed=12)
    dW, db, _ = layered(layers, seed=13)
    moved = (
        [W + d for W, d in zip(weights, dW, strict=True)],
        [b + d for b, d in zip(biases, db, strict=True)],
    )
    ends = [flattened((*parameters, offsets), float).plain for parameters in ((weights, biases), moved)]
    layout = Layout(layers)
    step = layout.flat_weights(dW), *(layout.side(db, odd=odd) for odd in (False, True))
    expected = ref.plain_step(step, *(layout.side(offsets, odd=odd) for odd in (False, True)))
    for before, after, change in zip(*ends, expected, strict=True):
        np.testing.assert_allclose(after - before, change, atol=1e-12)


@pytest.mark.parametrize(
    "changes", [{}, {"exact": True}, {"restart": True}, {"ladders": 1, "temperatures": 3}]
)
@pytest.mark.parametrize("layers", [THREE, FOUR])
def test_layers_that_are_not_neighbours_stay_unconnected(layers, changes):
    its = deep_plan(layers, 4, "a" * len(layers), **changes)
    state = deep_state(layers, its, seed=4)
    apart = ~neighbours(layers)
    assert apart.any()
    before = state.W.copy()
    learn(state, ROWS[layers], its, 0, 50)
    assert (state.W[apart] == 0).all()
    assert (state.W[~apart] != before[~apart]).all()


# Updates


WAYS = {
    "PCD-1": {},
    "PCD-2": {"steps": 2},
    "CD-1": {"restart": True},
    "PT_3": {"ladders": 1, "temperatures": 3},
    "exact": {"exact": True},
    "gibbs-1": {"gibbs": 1},
    "gibbs-3": {"gibbs": 3},
}


@pytest.mark.parametrize("letter", "0da")
@pytest.mark.parametrize("changes", WAYS.values(), ids=WAYS)
@DEPTHS
def test_updates_are_those_of_the_reference(layers, changes, letter):
    its = deep_plan(layers, len(ROWS[layers]), letter * len(layers), **changes)
    state = deep_state(layers, its, seed=5, scale=0.7)
    trainer = Trainer(state, its)
    np.testing.assert_array_equal(trainer.connected, neighbours(layers))
    for update in range(4):
        trainer.update(ROWS[layers], update)
        learn(state, ROWS[layers], its, update, update + 1)
        for found, expected in zip(state[3:5], trainer.offsets, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-5)
        for found, expected in zip(state[:3], trainer.theta, strict=True):
            np.testing.assert_allclose(found, expected, atol=2e-5)
    if not its.exact:
        assert (state.h == trainer.h).all()
    assert state.rounds[1] == (0 if its.gibbs else 4)
    assert state.rounds[2] == 0


@pytest.mark.parametrize("changes", [{}, {"gibbs": 2}, {"ladders": 1, "temperatures": 3}])
def test_training_of_a_deep_machine_can_be_cut_anywhere(changes):
    rows = np.resize(visible_rows(THREE), (23, THREE[0]))
    its = deep_plan(THREE, 4, "dada", batches=5, shuffled=True, **changes)
    whole, pieces = (deep_state(THREE, its, seed=6) for _ in range(2))
    learn(whole, rows, its, 0, 40)
    for first, last in itertools.pairwise([0, 1, 2, 7, 30, 40]):
        learn(pieces, rows, its, first, last)
    for one, other in zip(whole, pieces, strict=True):
        assert one.tobytes() == other.tobytes()


def test_mean_field_that_does_not_converge_is_counted():
    its = deep_plan(TWO, len(ROWS[TWO]), rounds=2, tolerance=1e-9)
    state = deep_state(TWO, its, seed=7)
    learn(state, ROWS[TWO], its, 0, 5)
    assert state.rounds.tolist() == [10, 5, 5]


# Flips


def distribution(state, n_visible):
    """log p of every visible state."""
    sizes = n_visible, len(state.c), len(state.b) - n_visible
    flat = Flat(state.W, state.b, state.c, state.mu[n_visible:], sizes)
    return exact_log_likelihoods(flat, states(n_visible).astype(np.uint8))


def course(layers, machine, rows, scheme, updates=25):
    """log p of all visible states after every update, with exact model phases."""
    its = deep_plan(layers, len(rows), scheme, exact=True, learning_rate=0.3)
    state = deep_state(layers, its, seed=8, machine=machine)
    found = []
    for update in range(updates):
        learn(state, rows, its, update, update + 1)
        found.append(distribution(state, layers[0]))
    return np.array(found)


def whole_layer(layers, layer):
    return [np.full(size, at == layer) for at, size in enumerate(layers)]


def flipped_course(layers, machine, layer, scheme):
    """The course of the machine whose units of a layer have the opposite meaning, told of the same states."""
    choice, rows = whole_layer(layers, layer), ROWS[layers]
    other = course(layers, flipped(machine, choice), 1 - rows if layer == 0 else rows, scheme)
    return other[:, ::-1] if layer == 0 else other  # states come in the order of their numbers


@pytest.mark.parametrize("scheme", ["ddd", "aaa", "mmm"])
@pytest.mark.parametrize("layer", range(3))
def test_training_of_two_hidden_layers_does_not_notice_a_flip(layer, scheme):
    machine = layered(TWO, seed=9, scale=0.3)
    plain = course(TWO, machine, ROWS[TWO], scheme)
    assert np.abs(plain[-1] - plain[0]).max() > 0.3
    np.testing.assert_allclose(flipped_course(TWO, machine, layer, scheme), plain, atol=2e-4)


@pytest.mark.parametrize("layer", range(4))
def test_training_of_three_hidden_layers_does_not_notice_a_flip(layer):
    machine = layered(THREE, seed=10, scale=0.3)
    plain = course(THREE, machine, ROWS[THREE], "dddd")
    np.testing.assert_allclose(flipped_course(THREE, machine, layer, "dddd"), plain, atol=2e-4)


@pytest.mark.parametrize("layer", range(3))
def test_training_without_offsets_does_notice_a_flip(layer):
    weights, biases, _ = layered(TWO, seed=9, scale=0.3)
    machine = weights, biases, [np.zeros(size) for size in TWO]
    choice = whole_layer(TWO, layer)
    signed, other_biases, ones = flipped(machine, choice)
    plain = [bias.copy() for bias in other_biases]
    for at, W in enumerate(signed):  # the same distribution with offsets of zero again
        plain[at] -= W @ ones[at + 1]
        plain[at + 1] -= ones[at] @ W
    rows = 1 - ROWS[TWO] if layer == 0 else ROWS[TWO]
    one = course(TWO, machine, ROWS[TWO], "000")
    other = course(TWO, (signed, plain, machine[2]), rows, "000")
    other = other[:, ::-1] if layer == 0 else other
    assert np.abs(other - one).max() > 5e-3  # 25 times the tolerance above


# Gibbs steps in the data phase


@pytest.mark.parametrize("layers", [TWO, THREE])
def test_many_gibbs_steps_draw_from_the_exact_posterior(layers):
    """Means and correlations of 40,000 chains given one row, within 4.5 standard errors."""
    batch, row = 40_000, visible_rows(layers)[[5]]
    its = deep_plan(layers, batch, "0" * len(layers), gibbs=60, exact=True, learning_rate=1)
    state = deep_state(layers, its, seed=11)
    state.mu[:], state.lam[:] = 0, 0
    W, b, c = (array.astype(float) for array in state[:3])
    x = states(len(b))
    p, _ = joint(W, b, c)
    posterior = p * (x[:, : layers[0]] == row).all(axis=1)[:, None]
    posterior /= posterior.sum()
    before = copied(state)
    learn(state, np.tile(row, (batch, 1)), its, 0, 1)
    step = [after.astype(float) - then for after, then in zip(state[:3], before[:3], strict=True)]
    connected = neighbours(layers)

    def expectations(p):
        return (x.T @ p @ states(len(c)))[connected], p.sum(axis=1) @ x, p.sum(axis=0) @ states(len(c))

    found = step[0][connected], step[1], step[2]
    for moved, given, model in zip(found, expectations(posterior), expectations(p), strict=True):
        error = np.sqrt(given * (1 - given) / batch)
        assert (np.abs(moved - (given - model)) < 4.5 * error + 1e-3).all()  # float32 sums of 40,000 rows


# From end to end


@pytest.mark.parametrize("changes", [{}, {"data_phase": "gibbs-2"}, {"sampler": "PT_3"}, {"sampler": "CD-1"}])
@pytest.mark.parametrize("hidden", [(4, 3), (3, 3, 2), (3, 2, 2, 2)])
def test_the_machine_of_a_trial_has_the_likelihood_that_its_curve_ends_with(hidden, changes):
    layers = 4, *hidden
    its = {
        "data": {"name": "bars-and-stripes", "size": 2},
        "model": {"kind": "dbm", "hidden": list(hidden)},
        "offsets": "d" * len(layers) + "^b_s",
        "sampler": "PCD-1",
        "learning_rate": 0.1,
        "updates": 40,
        "batch": 4,
        "evaluate": {"every": 20},
    }
    bars = load("bars-and-stripes", size=2)
    outcome = run_trial(Trial("test", Settings(**its | changes), 0, 1), bars)
    assert str(outcome.machine["kind"]) == "dbm"
    machine = [
        [outcome.machine[f"{name}_{k}"].astype(float) for k in range(count)]
        for name, count in (("weights", len(hidden)), ("biases", len(layers)), ("offsets", len(layers)))
    ]
    index = bars.train.astype(int) @ (1 << np.arange(4)[::-1])
    expected = brute_log_likelihoods(machine, layers)[index].mean()
    assert outcome.columns[2] == "train_log_likelihood"
    assert outcome.curve[-1, 2] == pytest.approx(expected, abs=1e-5)
    fields = outcome.columns[3:]
    assert fields == (() if "data_phase" in changes else ("mean_field_rounds", "mean_field_failures"))
    if fields:
        assert np.isnan(outcome.curve[0, 3])
        assert (outcome.curve[1:, 3] >= 1).all()
        assert (outcome.curve[:, 4] == 0).all()
