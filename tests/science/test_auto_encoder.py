"""Auto encoders against the back-propagation of the reference, on their machine
files.
"""

import numpy as np
import pytest
from cbm_cli import reference as ref
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.kernels.bits import worth_packing
from cbm_cli.kernels.machine import pairs_of
from cbm_cli.letters import LETTERS
from cbm_cli.machines.estimates import Stopped
from cbm_cli.trial.checks import check
from cbm_cli.trial.learner import Learner
from cbm_cli.trial.loop import converged
from numpy.testing import assert_allclose

from tests import oracles
from tests.builders import evaluate_file, holds, refusal
from tests.networks import file_of
from tests.oracles import batch_of, noises, plan, rate_of, summed_costs, wide
from tests.trainings import FIXED, STEPS, coins, rbm_settings

ROWS = (
    np.random.default_rng(7).random((64, 6)) < [0.2, 0.8, 0.5, 0.9, 0.1, 0.4]
).astype(np.uint8)


DATA = Dataset("coins", ROWS[:40].copy(), ROWS[40:54].copy(), ROWS[54:].copy())


def settings(hidden=3, scheme=None, **changes):
    base = {
        "model": {"kind": "auto-encoder", "hidden": hidden},
        "sampler": None,
        "updates": None,
    }
    base |= {
        "offsets": scheme or "d" * (1 + np.size(hidden)),
        "learning_rate": 0.2,
        "epochs": 10,
    }
    return rbm_settings(**base | {"batch": "full"} | changes)


def random_state(learner, seed, scale=0.7):
    """A state far from the start, where all activations bend."""
    rng = np.random.default_rng(seed)
    state = learner.start()
    for array in state.machine:
        array[...] = rng.normal(0, scale, array.shape)
    letters = learner.settings.offsets
    for layer, pair in enumerate(pairs_of(state.machine, learner.sizes)):
        pair.mu[:] *= letters[layer] != "0"
        pair.lam[:] *= letters[layer + 1] != "0"
    return state


def output_of(file, rows):
    """The last layer of a machine file given rows, by the reference."""
    depth, pairs = sum(name.startswith("weights") for name in file), []
    for k in range(depth):
        b = file[f"decoder_biases_{k}" if k else "biases_0"]
        lam = file[f"decoder_offsets_{k + 1}" if k + 1 < depth else f"offsets_{depth}"]
        theta = file[f"weights_{k}"], b, file[f"biases_{k + 1}"]
        pairs.append((wide(theta), wide((file[f"offsets_{k}"], lam))))
    return ref.auto_encode(np.asarray(rows, dtype=float), pairs)[1][0]


def cost_of(file, rows):
    return ref.reconstruction_cost(np.asarray(rows, dtype=float), output_of(file, rows))


def moved_offsets(pairs, y, z, learner, update):
    """The offsets after an update, from the means of its units."""
    letters = learner.settings.scheme.letters
    sides = np.array(learner.sizes[:-1]), np.array(learner.sizes[1:])
    noise = noises(learner.plan, update, *(side.sum() for side in sides))
    noise = [
        np.split(u, side.cumsum()[:-1]) for u, side in zip(noise, sides, strict=True)
    ]
    nus, slides = learner.settings.sliding_factor, "_s" in learner.settings.offsets

    def moved(offset, layer, units, u):
        target = ref.offset_target(
            LETTERS[letters[layer]].shares, *[units[layer].mean(axis=0)] * 2, u
        )
        nu = nus.hidden if layer else nus.visible
        return ref.moving_average(offset, target, nu if slides else 1)

    return [
        (moved(mu, k, y, noise[0][k]), moved(lam, k + 1, z, noise[1][k]))
        for k, (_, (mu, lam)) in enumerate(pairs)
    ]


def plain_pairs(state, sizes):
    return [(wide(pair[:3]), wide(pair[3:])) for pair in pairs_of(state.machine, sizes)]


def reference_descent(pairs, velocity, x, learner, its, update):
    """Move the offsets, and descend the cost in the plain parameters."""

    def centered(offsets):
        both = [(theta, to) for (theta, _), to in zip(pairs, offsets, strict=True)]
        return [
            (ref.transform(theta, [0 * it for it in to], to), to) for theta, to in both
        ]

    used, thetas = [offsets for _, offsets in pairs], []
    new = moved_offsets(pairs, *ref.auto_encode(x, centered(used)), learner, update)
    used = new if learner.plan.offsets.before else used
    for k, (dW, db, dc) in enumerate(ref.back_propagate(x, centered(used))):
        theta, _ = pairs[k]
        dW = dW - ref.weight_decay(theta[0], float(its.l1), float(its.l2))
        step = ref.plain_step((dW, db, dc), *used[k])
        velocity[k] = ref.accumulate(
            velocity[k], step, -rate_of(its, update), float(its.momentum)
        )
        thetas.append(ref.ascend(theta, velocity[k], 1))
    return [*zip(thetas, new, strict=True)]


def assert_descends(learner, state, its, updates, shuffled=False):
    """Train, and by the reference too; compare all parameters and offsets after every
    update.
    """
    sizes, rows = learner.sizes, learner.data.train
    pairs = plain_pairs(state, sizes)
    velocity = [tuple(np.zeros_like(array) for array in theta) for theta, _ in pairs]
    for update in range(updates):
        x = batch_of(rows, its, update, shuffled) / learner.data.levels
        pairs = reference_descent(pairs, velocity, x, learner, its, update)
        oracles.learn_auto_encoder(state, sizes, rows, learner.plan, update, update + 1)
        for one, other in zip(plain_pairs(state, sizes), pairs, strict=True):
            for array, wanted in zip(
                (*one[0], *one[1]), (*other[0], *other[1]), strict=True
            ):
                assert_allclose(array, wanted, atol=5e-5)  # float32 against float64


MOMENTUM = STEPS["momentum and decay"]
SLIDING = {"sliding_factor": {"visible": 0.3, "hidden": 0.1}}
KINDS = [
    {"scheme": "00"},
    {"scheme": "dh^l_s", **SLIDING},
    {"hidden": (4, 3), "scheme": "0rd^b_s", **SLIDING},
    {"hidden": (5, 2, 3), "scheme": "dhrd^l"},
]
OPTIONS = STEPS | {
    "two hidden layers": (
        {"hidden": (4, 3), "sliding_factor": FIXED} | MOMENTUM[0],
        MOMENTUM[1],
    ),
}


@pytest.mark.parametrize("levels", [1, 255])
@pytest.mark.parametrize(
    "changes", KINDS, ids=lambda changes: "-".join(map(str, changes.values()))
)
def test_the_cost_is_that_of_the_machine_file_and_training_descends_it(changes, levels):
    parts = [rows * (levels // 5 or 1) for rows in DATA.parts.values()]
    learner = Learner(settings(**changes), Dataset("coins", *parts, levels=levels), 3)
    state = random_state(learner, seed=1)
    assert learner.columns == ("train_cost", "valid_cost", "test_cost")
    expected = [cost_of(learner.machine(state), rows / levels) for rows in parts]
    assert_allclose(learner.evaluate(state, 0, lambda: False), expected, rtol=1e-6)
    assert_descends(
        learner, state, plan((1, 1), len(DATA.train), learning_rate=0.2), updates=6
    )


@pytest.mark.parametrize("hidden", [36, (36, 30)])
def test_binary_rows_of_many_units_are_added_up_and_not_multiplied(hidden):
    rows = (np.random.default_rng(2).random((60, 30)) < 0.3).astype(np.uint8)
    learner = Learner(settings(hidden), Dataset("many", rows[:40], rows[40:]), 3)
    assert worth_packing(40, 30, 36)
    assert worth_packing(30, 40, 36)
    assert worth_packing(
        36, 40, 30
    )  # the upper pair would, too, but its rows are not binary
    state = random_state(learner, seed=1, scale=0.3)
    assert_descends(learner, state, plan((1, 1), 40, learning_rate=0.2), 3)


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_training_are_those_of_the_reference(name):
    given, followed = OPTIONS[name]
    scheme = "d" * (1 + np.size(given.get("hidden", 3))) + "^b_s"
    options = {
        "sliding_factor": {"visible": 0.2, "hidden": 0.3},
        "batch": 4,
        "scheme": scheme,
    }
    learner = Learner(settings(**options | given), coins(6), 2024)
    its = plan((1, 1), 4, **{"learning_rate": 0.2} | followed)
    assert_descends(learner, learner.start(), its, 12, followed.get("shuffled", True))


def test_many_rows_are_evaluated_in_pieces_that_can_be_stopped():
    learner = Learner(
        settings(), Dataset("many", np.tile(DATA.train, (60, 1)), DATA.valid), 3
    )
    with pytest.raises(Stopped):
        learner.evaluate(learner.start(), 0, iter([False, True]).__next__)


@pytest.mark.parametrize("size", [100, 1e4, 1e6])
def test_no_cost_is_negative_where_huge_terms_cancel(size, here):
    """Each hidden unit knows one row and reconstructs it."""
    for seed in range(5):
        random = np.random.default_rng(seed)
        P = np.unique(random.integers(0, 2, (4, 12)), axis=0)
        s = size * random.uniform(0.5, 1.5, 12)
        W, c = s[:, None] * (2 * P.T - 1), -(P @ s) + s.min() / 2
        np.savez(
            "m.npz", kind="auto-encoder", weights_0=W, biases_0=np.zeros(12), biases_1=c
        )
        np.save("rows.npy", P)
        assert 0 <= evaluate_file("--json")["cost"]["mean"] < 1e-12


def test_the_cost_of_saturated_units_is_finite():
    learner = Learner(settings(hidden=1, scheme="00"), DATA, 3)
    state = learner.start()._replace(
        W=np.zeros(6, np.float32), b=np.full(6, 120, np.float32)
    )
    found = summed_costs(
        state, learner.sizes, np.uint8([[0, 0, 1, 1, 1, 1]]), learner.plan
    )
    assert found == 240  # -log(1 - sigmoid(120)) is 120 in each wrong unit


@pytest.mark.parametrize(
    ("bias", "row", "cost"),
    [
        (np.inf, [1] * 6, 0),
        (-np.inf, [0] * 6, 0),
        (np.inf, [1, 1, 1, 1, 1, 0], np.inf),
        (-np.inf, [0, 0, 0, 0, 0, 1], np.inf),
    ],
)
def test_an_infinite_activation_costs_nothing_on_the_right_side(bias, row, cost):
    learner = Learner(settings(hidden=1, scheme="00"), DATA, 3)
    state = learner.start()._replace(
        W=np.zeros(6, np.float32), b=np.full(6, bias, np.float32)
    )
    found = summed_costs(state, learner.sizes, np.uint8([row]), learner.plan)
    assert found == cost


def test_all_schemes_compute_the_same_function_before_training():
    mean, outputs = DATA.train.mean(axis=0), []
    starts = (
        ("ddd", (mean, 0.5, 0.5, 0.5)),
        ("0hd", (0, 0.5, 0.5, 0.5)),
        ("h00", (0.5, 0, 0, 0)),
    )
    for scheme, expected in starts:
        learner = Learner(settings((4, 3), scheme), DATA, 3)
        file = learner.machine(learner.start())
        names = "offsets_0", "offsets_1", "offsets_2", "decoder_offsets_1"
        for name, value in zip(names, expected, strict=True):
            assert_allclose(
                file[name], np.broadcast_to(value, file[name].shape), atol=1e-7
            )
        outputs.append(output_of(file, ROWS))
    assert np.ptp(outputs, axis=0).max() < 1e-7


@pytest.mark.parametrize(
    ("costs", "look_ahead", "epoch"),
    [
        (
            [3, 2, 1, 1, 1, 1, 1],
            5,
            None,
        ),  # four epochs after the third: too early to say
        (
            [3, 2, 1, 5, 5, 5, 5, 4.5],
            5,
            None,
        ),  # the fifth epoch ahead improves on the fourth
        ([3, 2, 1, 5, 5, 5, 5, 5, 0.5], 5, 3),  # the sixth comes too late
        (
            [3, 2, 1, 1 - 6e-6, 1 - 6e-6],
            1,
            4,
        ),  # falls by less than the tolerance, but falls
        (
            [3, 2, 1, 1 - 6e-6, 1 - 12e-6, 1 - 18e-6],
            2,
            5,
        ),  # by more in two epochs together
        (
            [3, 1, 4, 2, 2, 2, 2],
            3,
            2,
        ),  # the fall to the fourth counts, though not below the second
        ([np.nan, np.nan, np.nan], 2, 1),
    ],
)
def test_convergence_of_costs_written_by_hand(costs, look_ahead, epoch):
    assert converged(costs, look_ahead) == epoch


def test_settings_that_do_not_suit_the_data_are_refused():
    assert holds(refusal(check, settings(), Dataset("alone", ROWS)), "alone|hold_out")
    watching = rbm_settings(early_stopping={"metric": "likelihood"}, batch="full")
    assert refusal(check, watching, Dataset("alone", ROWS)).field == "early_stopping"
    of_train = settings(evaluate={"parts": "train"})
    assert holds(refusal(check, of_train, DATA), "train+valid")


def test_an_auto_encoder_is_judged_by_its_cost(here):
    np.savez("m.npz", **(arrays := file_of((6, 4, 3, 2), "auto-encoder")))
    rows = (np.random.default_rng(1).random((1_003, 6)) < 0.4).astype(np.uint8)
    np.save("rows.npy", rows)
    mean = pytest.approx(cost_of(arrays, rows), rel=1e-6)
    total = pytest.approx(1_003 * mean.expected, rel=1e-6)
    answer = {"method": "cost", "cost": {"mean": mean, "total": total, "n": 1_003}}
    assert evaluate_file("--json") == answer
    assert evaluate_file("--rows", 50, "--json")["cost"]["n"] == 50
    assert holds(evaluate_file("--exact", code=2), "m.npz|--exact")
