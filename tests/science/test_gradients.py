"""Exact gradients, Fisher matrices, and natural and rescaled steps, against the
reference.
"""

import numpy as np
import pytest
from cbm_cli import reference as ref
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.datasets.toys import bars_and_stripes
from cbm_cli.machines import gradients
from cbm_cli.machines.gradients import (
    centered,
    exact_moments,
    natural_gradient,
    standard_gradient,
)
from cbm_cli.machines.limits import check_fisher
from cbm_cli.trial.learner import Learner
from numpy.testing import assert_allclose

from tests import oracles
from tests.builders import holds, refusal
from tests.oracles import advance, flat, moments, phases, random_state, sigmoid, wide
from tests.trainings import rbm_settings

SHAPES = [(3, 2), (2, 4), (4, 4), (1, 1)]


def machine(n, m, seed=0):
    return wide(oracles.random_machine(n, m, seed))


def some_rows(n):
    return np.random.default_rng(0).integers(0, 2, (7, n)).astype(np.uint8)


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("block", [4096, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_exact_expectations_and_gradients_are_those_of_the_reference(
    shape, block, monkeypatch
):
    monkeypatch.setattr(gradients, "BLOCK", block)
    plain, rows, rng = machine(*shape), some_rows(shape[0]), np.random.default_rng(1)
    data, model = phases(*plain, rows)
    assert_same(exact_moments(*plain), moments(model))
    grey = np.uint8(255 * rng.random(rows.shape))
    of_grey = ref.batch(grey / 255, ref.hidden_mean(grey / 255, plain[0], plain[2]))
    assert_same(standard_gradient(*plain, grey, 1 / 255), ref.gradient(of_grey, model))
    standard = standard_gradient(*plain, rows)
    assert_same(standard, ref.gradient(data, model))
    offsets = rng.random(shape[0]), rng.random(shape[1])
    assert_same(
        centered(standard, *offsets), ref.centered_gradient(data, model, *offsets)
    )


FISHERS = {
    "joint": lambda *machine: ref.fisher(ref.joint_phase(*machine)),
    "marginal": lambda *machine: ref.fisher(ref.model_phase(*machine)),
    "diagonal": lambda *machine: np.diag(
        np.diag(ref.fisher(ref.joint_phase(*machine)))
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fisher", FISHERS)
def test_natural_gradients_are_those_of_the_reference(shape, fisher):
    plain, rows = machine(*shape), some_rows(shape[0])
    F, gradient = FISHERS[fisher](*plain), ref.gradient(*phases(*plain, rows))
    for damping in (0.0, 0.3) if fisher != "marginal" else (0.3, 1e-4):
        found = natural_gradient(
            *plain, standard_gradient(*plain, rows), fisher, damping
        )
        expected = flat(*ref.natural_gradient(gradient, F, damping))
        assert_allclose(found.flat(), expected, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("fisher", FISHERS)
def test_what_has_no_variance_does_not_move_and_its_neighbours_have_their_steps(fisher):
    rows, plain = some_rows(4), machine(4, 2)
    stuck = plain[0], np.array([800.0, 0, 0, 0]), plain[2]
    stack = [np.stack(arrays) for arrays in zip(plain, stuck, plain, strict=True)]
    found = natural_gradient(*stack, standard_gradient(*stack, rows), fisher, 0.0)
    alone = natural_gradient(
        *plain, standard_gradient(*plain, rows), fisher, 0.0
    ).flat()
    assert_allclose(found.flat()[[0, 2]], [alone, alone], rtol=1e-9)
    assert found.b[1, 0] == 0
    assert np.isfinite(found.flat()).all()


def test_a_badly_scaled_but_regular_fisher_matrix_is_inverted():
    """Variances are far apart, and the step of b is that of single units."""
    b = np.array([0.0, -14.0])
    plain = np.zeros((2, 1)), b, np.zeros(1)
    found = natural_gradient(*plain, standard_gradient(*plain, some_rows(2)))
    p, d = sigmoid(b), some_rows(2).mean(axis=0)
    assert_allclose(found.b, (d - p) / (p * (1 - p)), rtol=1e-6)


def test_a_fisher_matrix_of_fewer_states_than_parameters_is_refused():
    check_fisher("gradient", "joint", 0.0, 9, 7, "")
    check_fisher(
        "gradient", "marginal", 0.0, 4, 2, ""
    )  # 15 states, less one, for 14 parameters
    check_fisher("gradient", "marginal", 0.01, 4, 3, "")
    assert holds(refusal(check_fisher, "gradient", "marginal", 0.0, 4, 3, ""), "15|19")


# Steps of training

N, M = 4, 3
ROWS = oracles.states(N)[[1, 2, 4, 7, 8, 11, 14]].astype(np.uint8)
DAMPING = {"joint": 0.0, "marginal": 0.01, "diagonal": 0.0}


def natural(fisher, rows=ROWS, hidden=M, exact=False, others=None, **changes):
    """A learner along a natural gradient, or along the centered one if ``fisher`` is
    None.
    """
    gradient = {"kind": "centered"}
    if fisher:
        gradient = {"kind": "natural", "fisher": fisher, "damping": DAMPING[fisher]}
    its = {
        "model": {"kind": "rbm", "hidden": hidden},
        "learning_rate": 1.0,
        "batch": "full",
    }
    its |= {"gradient": gradient | changes, "sampler": "exact" if exact else "PCD-1"}
    return Learner(rbm_settings(**its | (others or {})), Dataset("rows", rows), 2024)


def random_start(way, seed, scale=0.7):
    return random_state(way.sizes, way.plan, seed, scale)


def step_of(state, way):
    """The change of (W, b, c) in update 0."""
    moved = state.copy()
    advance(way, moved, 0, 1)
    return flat(*moved[:3]) - flat(*state[:3])


def assert_close(found, expected, tolerance=2e-5):
    """To a share of the longest component: parameters are float32."""
    assert_allclose(found, expected, atol=tolerance * max(1, np.abs(expected).max()))


def data_phase(machine):
    return ref.batch(ROWS, ref.hidden_mean(ROWS, machine[0], machine[2]))


def samples_of(state, way):
    W, _, c = wide(state[:3])
    x, _ = oracles.reference_sweeps(state[:3], state.h, way.plan, 0)
    return ref.batch(x, ref.hidden_mean(x, W, c))


@pytest.mark.parametrize(
    ("fisher", "exact"),
    [*((fisher, True) for fisher in FISHERS), ("joint", False), ("marginal", False)],
)
def test_the_step_with_an_exact_fisher_matrix_is_that_of_the_reference(fisher, exact):
    way = natural(fisher, exact=exact)
    state = random_start(way, seed=1)
    machine = wide(state[:3])
    model = ref.model_phase(*machine) if exact else samples_of(state, way)
    gradient = ref.gradient(data_phase(machine), model)
    expected = flat(
        *ref.natural_gradient(gradient, FISHERS[fisher](*machine), DAMPING[fisher])
    )
    assert np.abs(expected).max() > 0.1
    assert_close(step_of(state, way), expected)


def test_the_sampled_diagonal_has_the_variances_of_the_samples():
    way = natural("diagonal", damping=0.05)
    state = random_start(way, seed=7)
    model = samples_of(state, way)
    gradient, means = (
        flat(*ref.gradient(data_phase(wide(state[:3])), model)),
        flat(*moments(model)),
    )
    assert_close(step_of(state, way), gradient / (means * (1 - means) + 0.05))


def shaped(step, n=N):
    W, b, c = np.split(step, [n * M, n * M + n])
    return W.reshape(n, M), b, c


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("fisher", [*FISHERS, None])
@pytest.mark.parametrize("length", ["standard", "centered"])
def test_a_step_can_have_the_length_of_another_gradient(length, fisher, sampled):
    damped, exact = {"damping": 0.01} if fisher else {}, not sampled
    way = natural(
        fisher, exact=exact, others={"learning_rate": 0.5}, scale_to=length, **damped
    )
    state = random_start(way, seed=11)
    machine = wide(state[:3])
    data = data_phase(machine)
    model = samples_of(state, way) if sampled else ref.model_phase(*machine)
    offsets = (
        moments(data)[1:] if length == "centered" else (np.zeros(N), np.zeros(M))
    )  # dd^b
    other = ref.centered_gradient(data, model, *offsets)
    unscaled = shaped(step_of(state, natural(fisher, exact=exact, **damped)))
    assert_close(step_of(state, way), 0.5 * flat(*ref.rescale(unscaled, other)), 1e-4)


@pytest.mark.parametrize("fisher", ["joint", None])
def test_steps_along_other_directions_have_momentum(fisher):
    others = {"momentum": 0.8, "learning_rate": 0.1, "offsets": "00"}
    way = natural(fisher, exact=True, others=others, scale_to="standard")
    state, velocity = random_start(way, seed=14), np.zeros(N * M + N + M)
    for update in range(5):
        machine = wide(state[:3])
        direction = gradient = ref.gradient(
            data_phase(machine), ref.model_phase(*machine)
        )
        if fisher:
            natural_one = ref.natural_gradient(gradient, FISHERS[fisher](*machine))
            direction = ref.rescale(natural_one, gradient)
        velocity = 0.8 * velocity + 0.1 * flat(*direction)
        advance(way, state, update, update + 1)
        assert_allclose(flat(*state[:3]) - flat(*machine), velocity, atol=2e-5)


def test_a_small_variance_is_found_in_float64_and_what_has_none_does_not_move():
    """In float32 the step of the first unit was 0.9% off: its variance is 6e-6."""
    way = natural("diagonal", np.uint8([[0, 0, 0], [0, 1, 0]]), exact=True)
    state = random_start(way, seed=1, scale=0)
    state.b[:] = 12, 0, -60
    p = sigmoid(np.float64(12))
    W, b, _ = shaped(step_of(state, way), 3)
    assert b[0] == pytest.approx(-1 / (1 - p), rel=1e-6)
    assert b[2] == 0
    assert (W[2] == 0).all()


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_a_natural_training_arrives_and_stays_where_the_fisher_matrix_is_all_but_singular(
    rate,
):
    """Figure 13 (a): within 0.5 of the bound -13.86 in 30 updates at rate 1.0, in 300
    at 0.1.
    """
    bars = bars_and_stripes(2)
    way = natural("joint", bars.train, 4, exact=True, others={"learning_rate": rate})
    state = random_start(way, 1, scale=0.01)
    advance(way, state, 0, int(30 / rate))
    assert 8 * oracles.log_likelihoods(*state[:3], bars.train).mean() > -13.86 - 0.5
    advance(way, state, int(30 / rate), 1500)
    assert all(np.isfinite(array).all() for array in state.machine)
    reached = oracles.log_likelihoods(*state[:3], bars.train).mean()
    assert bars.upper_bound - 1e-3 < reached < bars.upper_bound + 1e-9


@pytest.mark.parametrize("fisher", FISHERS)
def test_a_machine_that_has_diverged_stays_so(fisher):
    way = natural(fisher, exact=True)
    state = random_start(way, seed=3)
    state.W[0, 0] = np.nan
    assert np.isnan(step_of(state, way)).any()
