"""Auto encoders against the back-propagation of the reference, on their machine files."""

import io
import itertools
import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from cbm_cli import reference as ref
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.grid.settings import Trial
from cbm_cli.kernels.machine import machine_of, pairs_of
from cbm_cli.kernels.products import worth_packing
from cbm_cli.machines.estimates import Stopped
from cbm_cli.results import Store
from cbm_cli.trial.checks import check
from cbm_cli.trial.learner import Learner
from cbm_cli.trial.loop import converged, run_trial
from numpy.testing import assert_allclose

from tests.builders import evaluate_file, grid_text, holds, refusal, run_grid
from tests.journals import finished_in
from tests.networks import file_of
from tests.oracles import (
    batch_of,
    copied,
    learn_auto_encoder,
    noises,
    plan,
    rate_of,
    summed_costs,
    wide,
)
from tests.trainings import FIXED, STEPS, coins, rbm_settings

ROWS = (np.random.default_rng(7).random((64, 6)) < [0.2, 0.8, 0.5, 0.9, 0.1, 0.4]).astype(np.uint8)


DATA = Dataset("coins", ROWS[:40].copy(), ROWS[40:54].copy(), ROWS[54:].copy())


def settings(hidden=3, scheme=None, **changes):
    base = {"model": {"kind": "auto-encoder", "hidden": hidden}, "sampler": None, "updates": None}
    base |= {"offsets": scheme or "d" * (1 + np.size(hidden)), "learning_rate": 0.2, "epochs": 10}
    return rbm_settings(**base | {"batch": "full"} | changes)


def random_state(learner, seed, scale=0.7):
    """A state far from the start, where all activations bend; its parameters and offsets are
    random.
    """
    rng = np.random.default_rng(seed)
    state = learner.start()
    state = state._make(rng.normal(0, scale, a.shape).astype(np.float32) for a in state)
    letters = learner.settings.offsets
    for layer, pair in enumerate(pairs_of(machine_of(state), learner.sizes)):
        pair.mu[:] *= letters[layer] != "0"
        pair.lam[:] *= letters[layer + 1] != "0"
    return state


def output_of(file, rows):
    depth, pairs = sum(name.startswith("weights") for name in file), []
    for k in range(depth):
        b = file[f"decoder_biases_{k}" if k else "biases_0"]
        lam = file[f"decoder_offsets_{k + 1}" if k + 1 < depth else f"offsets_{depth}"]
        theta = file[f"weights_{k}"], b, file[f"biases_{k + 1}"]
        pairs.append((wide(theta), wide((file[f"offsets_{k}"], lam))))
    return ref.auto_encode(np.asarray(rows, dtype=float), pairs)[1][0]


def cost_of(file, rows):
    """Mean over the rows of the loss, summed over their units."""
    return ref.reconstruction_cost(np.asarray(rows, dtype=float), output_of(file, rows))


def moved_offsets(pairs, y, z, learner, update):
    """The offsets after an update, from the means of its units."""
    plan, letters = learner.plan, re.match(r"\w+?(?=\^|_|$)", learner.settings.offsets)[0]
    below, above = np.array(learner.sizes[:-1]), np.array(learner.sizes[1:])
    noise_y, noise_z = noises(plan, update, below.sum(), above.sum())
    noise_y = np.split(noise_y, below.cumsum()[:-1])
    noise_z = np.split(noise_z, above.cumsum()[:-1])
    nus, slides = learner.settings.sliding_factor, "_s" in learner.settings.offsets
    nu_x, nu_h = (nus.visible, nus.hidden) if slides else (1, 1)

    def moved(offset, letter, units, noise, nu):
        mean = units.mean(axis=0)
        target = ref.offset_target(ref.LETTERS[letter], mean, mean, noise)
        return ref.moving_average(offset, target, nu)

    found = []
    for k, (_, (mu, lam)) in enumerate(pairs):
        visible = moved(mu, letters[k], y[k], noise_y[k], nu_h if k else nu_x)
        found.append((visible, moved(lam, letters[k + 1], z[k + 1], noise_z[k], nu_h)))
    return found


def plain_pairs(state, sizes):
    """(theta, offsets) of neighbouring layers, without offsets in the biases."""
    return [(wide(pair[:3]), wide(pair[3:])) for pair in pairs_of(machine_of(state), sizes)]


def reference_descent(pairs, velocity, x, learner, its, update):
    """Move the offsets and descend the cost in the plain parameters, with momentum and weight
    decay.
    """
    before, now = learner.plan.offsets.before, [offsets for _, offsets in pairs]

    def centered(offsets):
        both = [(theta, to) for (theta, _), to in zip(pairs, offsets, strict=True)]
        return [(ref.transform(theta, [0 * it for it in to], to), to) for theta, to in both]

    new = moved_offsets(pairs, *ref.auto_encode(x, centered(now)), learner, update)
    used = new if before else now
    gradients, thetas = ref.back_propagate(x, centered(used)), []
    for k, ((theta, _), (dW, db, dc)) in enumerate(zip(pairs, gradients, strict=True)):
        dW = dW - ref.weight_decay(theta[0], float(its.l1), float(its.l2))
        step = ref.plain_step((dW, db, dc), *used[k])
        velocity[k] = ref.accumulate(velocity[k], step, -rate_of(its, update), float(its.momentum))
        thetas.append(ref.ascend(theta, velocity[k], 1))
    return [*zip(thetas, new, strict=True)]


def assert_descends(learner, state, its, updates, shuffled=False):
    """Train, and by the reference too; compare all parameters and offsets after every update."""
    pairs, unit = plain_pairs(state, learner.sizes), 1 / learner.data.levels
    velocity = [tuple(np.zeros_like(array) for array in theta) for theta, _ in pairs]
    for update in range(updates):
        x = unit * batch_of(learner.data.train, its, update, shuffled)
        pairs = reference_descent(pairs, velocity, x, learner, its, update)
        rows = learner.data.train
        learn_auto_encoder(state, learner.sizes, rows, learner.plan, update, update + 1)
        for one, other in zip(plain_pairs(state, learner.sizes), pairs, strict=True):
            for array, wanted in zip((*one[0], *one[1]), (*other[0], *other[1]), strict=True):
                assert_allclose(array, wanted, atol=5e-5)  # float32 against float64


MOMENTUM = STEPS["momentum and decay"]
SLIDING = {"sliding_factor": {"visible": 0.3, "hidden": 0.1}}
KINDS = [
    {},
    {"scheme": "00"},
    {"scheme": "0d^l"},
    {"scheme": "dh^l_s", **SLIDING},
    {"scheme": "rr^b_s", **SLIDING},
    {"hidden": (4, 3), "scheme": "0rd^b_s", **SLIDING},
    {"hidden": (5, 2, 3), "scheme": "dhrd^l"},
]
OPTIONS = STEPS | {
    "fixed visible offsets": ({"sliding_factor": FIXED}, {}),
    "two hidden layers": ({"hidden": (4, 3), "sliding_factor": FIXED} | MOMENTUM[0], MOMENTUM[1]),
}


@pytest.mark.parametrize("levels", [1, 255])
@pytest.mark.parametrize("changes", KINDS, ids=lambda changes: "-".join(map(str, changes.values())))
def test_the_cost_is_that_of_the_machine_file_and_training_descends_it(changes, levels):
    parts = [rows * (levels // 5 or 1) for rows in DATA.parts.values()]
    learner = Learner(settings(**changes), Dataset("coins", *parts, levels=levels), 3)
    state = random_state(learner, seed=1)
    assert learner.columns == ("train_cost", "valid_cost", "test_cost")
    expected = [cost_of(learner.machine(state), rows / levels) for rows in parts]
    assert_allclose(learner.evaluate(state, 0, lambda: False), expected, rtol=1e-6)
    assert_descends(learner, state, plan(1, 1, len(DATA.train), learning_rate=0.2), updates=6)


@pytest.mark.parametrize("hidden", [36, (36, 5)])
def test_binary_rows_of_many_units_are_added_up_and_not_multiplied(hidden):
    rows = (np.random.default_rng(2).random((60, 30)) < 0.3).astype(np.uint8)
    learner = Learner(settings(hidden), Dataset("many", rows[:40], rows[40:50], rows[50:]), 3)
    assert worth_packing(40, 30, 36)
    assert worth_packing(30, 40, 36)
    state, its = random_state(learner, seed=1, scale=0.3), plan(1, 1, 40, learning_rate=0.2)
    assert_descends(learner, state, its, 3)


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_training_are_those_of_the_reference(name):
    given, followed = OPTIONS[name]
    scheme = "d" * (1 + np.size(given.get("hidden", 3))) + "^b_s"
    options = {"sliding_factor": {"visible": 0.2, "hidden": 0.3}, "batch": 4, "scheme": scheme}
    learner = Learner(settings(**options | given), coins(6), 2024)
    its, shuffled = (
        plan(1, 1, 4, **{"learning_rate": 0.2} | followed),
        followed.get("shuffled", True),
    )
    assert_descends(learner, learner.start(), its, updates=12, shuffled=shuffled)


def test_many_rows_are_evaluated_in_pieces_that_can_be_stopped():
    learner = Learner(settings(), Dataset("many", np.tile(DATA.train, (60, 1)), DATA.valid), 3)
    state = random_state(learner, seed=2)
    expected = cost_of(learner.machine(state), DATA.train)
    assert learner.evaluate(state, 0, lambda: False)[0] == pytest.approx(expected, rel=1e-6)
    asked = iter([False, True])
    with pytest.raises(Stopped):
        learner.evaluate(state, 0, lambda: next(asked))


@pytest.mark.parametrize("size", [100, 1e4, 1e6])
def test_no_cost_is_negative_where_huge_terms_cancel(size, here):
    """Each hidden unit knows one row and reconstructs it, so that the cross entropy is nearly 0."""
    for seed in range(5):
        random = np.random.default_rng(seed)
        P = np.unique(random.integers(0, 2, (4, 12)), axis=0)
        s = size * random.uniform(0.5, 1.5, 12)
        W, c = s[:, None] * (2 * P.T - 1), -(P @ s) + s.min() / 2
        np.savez("m.npz", kind="auto-encoder", weights_0=W, biases_0=np.zeros(12), biases_1=c)
        np.save("rows.npy", P)
        cost = evaluate_file("--json")["cost"]["mean"]
        assert 0 <= cost < 1e-12


def test_the_cost_of_saturated_units_is_finite():
    learner = Learner(settings(hidden=1, scheme="00"), DATA, 3)
    state = learner.start()._replace(W=np.zeros(6, np.float32), b=np.full(6, 120, np.float32))
    rows = np.array([[0, 0, 1, 1, 1, 1]], np.uint8)
    found = summed_costs(state, learner.sizes, rows, learner.plan)
    assert found == 240  # -log(1 - sigmoid(120)) is 120 in each wrong unit


@pytest.mark.parametrize("hidden", [3, (5, 4, 3)])
def test_all_schemes_compute_the_same_function_before_training(hidden):
    layers = 1 + np.size(hidden)
    outputs, offsets = [], []
    for scheme in (*(letter * layers for letter in "0dhr"), "d" + "0" * (layers - 1)):
        learner = Learner(settings(hidden, scheme, weight_scale=1.0), DATA, 3)
        file = learner.machine(learner.start())
        outputs.append(output_of(file, ROWS))
        offsets.append(file["offsets_0"])
    assert np.ptp(outputs, axis=0).max() < 1e-12
    assert np.ptp(offsets, axis=0).min() > 0.05  # though their offsets differ


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("ddd", (DATA.train.mean(axis=0), 0.5, 0.5, 0.5)),
        ("0hd", (0, 0.5, 0.5, 0.5)),
        ("h00", (0.5, 0, 0, 0)),
    ],
)
def test_the_first_offsets(scheme, expected):
    learner = Learner(settings((4, 3), scheme), DATA, 3)
    file = learner.machine(learner.start())
    names = "offsets_0", "offsets_1", "offsets_2", "decoder_offsets_1"
    for name, value in zip(names, expected, strict=True):
        assert_allclose(file[name], np.broadcast_to(value, file[name].shape), atol=1e-7)


def test_the_first_visible_bias_makes_the_data_mean():
    learner = Learner(settings(weight_scale=1e-9), DATA, 3)
    z = output_of(learner.machine(learner.start()), ROWS)
    assert_allclose(z, np.tile(DATA.train.mean(axis=0), (len(ROWS), 1)), atol=1e-6)
    zero = Learner(settings(init="zero"), DATA, 3).start()
    assert not zero.b.any()
    assert not zero.c.any()


@pytest.mark.parametrize("hidden", [3, (4, 3)])
@pytest.mark.parametrize("letters", ["dd", "hd", "h0", "00"])
def test_only_auto_encoders_with_visible_offsets_do_not_notice_flipped_data(hidden, letters):
    """In the costs along 60 updates from the same function, of the data and of the flipped data."""
    scheme = letters[0] + letters[1] * np.size(hidden) + ("^l_s" if letters != "00" else "")
    learner, costs = Learner(settings(hidden, scheme, batch=7), DATA, 3), []
    straight = random_state(learner, seed=6)
    mirror = copied(straight)  # makes 1 - z of 1 - x
    first = pairs_of(machine_of(mirror), learner.sizes)[0]
    first.c[:] += first.W.sum(axis=0)
    first.W[:] *= -1
    first.b[:] *= -1
    first.mu[:] = 1 - first.mu if letters != "00" else 0
    for update, (state, flip) in itertools.product(range(0, 60, 5), ((straight, 0), (mirror, 1))):
        its = learner.sizes, DATA.train ^ flip, learner.plan
        learn_auto_encoder(state, *its, update, update + 5)
        cost = summed_costs(state, learner.sizes, DATA.valid ^ flip, learner.plan)
        costs.append(cost / len(DATA.valid))
    one, other = costs[::2], costs[1::2]
    if letters == "00":
        assert np.abs(np.divide(one, other) - 1).max() > 1e-3  # fifty times the tolerance below
    else:
        assert_allclose(one, other, rtol=2e-5)  # float32, over 60 updates
        assert np.ptp(one) > 0.02


@pytest.mark.parametrize(
    ("costs", "look_ahead", "epoch"),
    [
        ([], 5, None),
        ([9, 8, 7, 6, 5, 4, 3, 2], 2, None),  # falls for ever
        ([3, 2, 1, 1, 1, 1, 1], 5, None),  # four epochs after the third: too early to say
        ([3, 2, 1, 1, 1, 1, 1, 1], 5, 3),
        ([3, 2, 1, 5, 5, 5, 5, 4.5], 5, None),  # the fifth epoch ahead improves on the fourth
        ([3, 2, 1, 5, 5, 5, 5, 5, 0.5], 5, 3),  # the sixth comes too late
        ([3, 2, 1, 1 - 6e-6, 1 - 6e-6], 1, 4),  # falls by less than the tolerance, but falls
        ([3, 2, 1, 1 - 6e-6, 1 - 12e-6, 1 - 18e-6], 2, 5),  # by more in two epochs together
        ([3, 1, 4, 2, 2, 2, 2], 3, 2),  # the fall to the fourth is one, though not below the second
        ([2, 2, 2], 2, 1),
        ([2, 2, 1.999], 2, None),
        ([3, 2, np.nan, np.nan], 2, 2),
        ([np.nan, np.nan, np.nan], 2, 1),
    ],
)
def test_convergence_of_costs_written_by_hand(costs, look_ahead, epoch):
    assert converged(costs, look_ahead) == epoch


def test_a_trial_stops_when_the_validation_cost_has_converged():
    quick = settings(batch=5, epochs=500, learning_rate=1.0, early_stopping={"look_ahead": 3})
    outcome = run_trial(Trial("test", quick, 0, 1), DATA)
    assert outcome.columns == ("update", "epoch", "train_cost", "valid_cost", "test_cost")
    valid = outcome.curve[1:, 3]
    assert len(valid) < 500
    assert (np.diff(valid)[-3:] >= -1e-5).all()
    assert outcome.converged == converged(valid, 3) == 1 + valid.argmin()
    assert outcome.summary()["test_cost_best_valid"] == outcome.curve[outcome.converged, 4]


@pytest.mark.parametrize(
    ("changes", "data", "told"),
    [
        ({}, Dataset("alone", ROWS), "alone|hold_out"),
        ({"evaluate": {"parts": "train"}}, DATA, "train+valid"),
    ],
)
def test_settings_that_do_not_suit_the_data_are_refused(changes, data, told):
    assert holds(refusal(check, settings(**changes), data), told)


def test_from_a_grid_to_the_summary(here):
    np.savez("coins.npz", train=DATA.train, valid=DATA.valid, test=DATA.test)
    model = {"model": "{kind: auto-encoder, hidden: [[4, 3]]}", "offsets": "[000, ddd^b_s]"}
    length = {"learning_rate": "0.5", "batch": "10", "epochs": "30"}
    run_grid(grid_text("auto-encoder", data="{path: coins.npz}", **model, **length), "--trials", 2)
    store = Store(Path("results/toy"))
    keys = finished_in(store)
    assert len(keys) == 4
    for key, best in product(keys, (True, False)):
        curve = store.curves(key[0], [key[1]])[0].to_numpy()
        row = curve[1 + curve[1:, 3].argmin()] if best else curve[-1]
        with np.load(io.BytesIO(store.machine(*key, best)[1])) as arrays:
            assert cost_of(dict(arrays), DATA.test) == pytest.approx(row[4], rel=1e-6)


@pytest.mark.parametrize("sizes", [(6, 4, 2), (6, 4, 3, 2)])
def test_an_auto_encoder_is_judged_by_its_cost(here, sizes):
    arrays = file_of(sizes, "auto-encoder")
    np.savez("m.npz", **arrays)
    rows = (np.random.default_rng(1).random((1_003, 6)) < 0.4).astype(np.uint8)
    np.save("rows.npy", rows)
    found, expected = evaluate_file("--json"), cost_of(arrays, rows)
    assert found["method"] == "cost"
    assert found["cost"]["mean"] == pytest.approx(expected, rel=1e-6)
    assert found["cost"]["total"] == pytest.approx(1_003 * expected, rel=1e-6)
    assert found["cost"]["n"] == 1_003
    assert evaluate_file("--rows", 50, "--json")["cost"]["n"] == 50
    shown = re.match(r"cross entropy +(\S+) nats per row \(1003 rows\)\n", evaluate_file())
    assert float(shown[1]) == pytest.approx(found["cost"]["mean"], abs=1e-6)
    assert holds(evaluate_file("--exact", code=2), "m.npz|--exact")
