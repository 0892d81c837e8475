"""Natural and rescaled directions against float64 references and hand-worked cases."""

from typing import NamedTuple

import numpy as np
import pytest

from cbm_cli.datasets.toys import bars_and_stripes
from cbm_cli.kernels.random import FISHER
from cbm_cli.kernels.state import CENTERED, DIAGONAL, JOINT, MARGINAL, TO_CENTERED, TO_STANDARD, Plan
from cbm_cli.machines import gradients
from cbm_cli.machines.gradients import (
    Direction,
    Phase,
    centered_gradient,
    fisher_matrix,
    natural_gradient,
    standard_gradient,
)
from tests.oracles import copied, joint, learn, plan, random_state, sigmoid, states, uniform
from tests.test_sampling import plain_sweeps

N, M = 4, 3
ROWS = states(N)[[1, 2, 4, 7, 8, 11, 14]].astype(np.uint8)
FISHERS = ("joint", "marginal", "diagonal")
DAMPING = {"joint": 0.0, "marginal": 0.01, "diagonal": 0.0}


class Way(NamedTuple):
    """A way of climbing: the direction, and the plan of the chains or an exact model phase."""

    direction: Direction
    its: Plan
    exact: bool


def natural(fisher, batch=7, n=N, m=M, exact=False, **changes):
    damping = changes.pop("damping", DAMPING.get(fisher, 0.0))
    return Way(Direction(fisher, damping=damping, **changes), plan(n, m, batch), exact)


def phases(state, rows, way):
    """The gradient (W, b, c), the rows of the model phase, those of the data where it is exact, and u."""
    W, b, c = wide(state)
    data_h = sigmoid(rows @ W + c)
    if way.exact:
        x, weight = states(len(b)), joint(W, b, c)[0].sum(axis=1)
    else:
        x, _ = plain_sweeps(state[:3], state.h, way.its, 0)
        weight = np.full(len(x), 1 / len(x))
    h = sigmoid(x @ W + c)
    contrast = rows.T @ data_h / len(rows) - x.T @ (weight[:, None] * h)
    gradient = contrast, rows.mean(axis=0) - weight @ x, data_h.mean(axis=0) - weight @ h
    u = uniform(int(way.its.seed), 0, FISHER, h.size).reshape(h.shape)
    rounded = (tuple(np.float32(array) for array in arrays) for arrays in (gradient, (x, h, weight)))
    return *rounded, np.float32(rows) if way.exact else None, u


def flat(W, b, c):
    return np.concatenate([np.ravel(W), b, c]).astype(float)


def step_of(state, rows, way, offsets=None):
    """The direction (P,) of update 0."""
    gradient, model, data, u = phases(state, rows, way)
    offsets = offsets or (state.mu, state.lam)
    return way.direction(state[:3], gradient, offsets, Phase(*model), data, u).flat()


def climb(state, rows, way, rate, updates):
    """Make updates along the exact direction, in place."""
    W, b, c = state[:3]
    for _ in range(updates):
        gradient = tuple(np.float32(array) for array in standard_gradient(*wide(state), rows))
        model = Phase(*(np.float32(array) for array in model_states(state)))
        step = way.direction(state[:3], gradient, (state.mu, state.lam), model, np.float32(rows))
        for array, change in zip((W, b, c), step, strict=True):
            array += np.float32(rate) * np.float32(change)


def model_states(state):
    """All visible states with their hidden means and probabilities."""
    W, b, c = wide(state)
    x = gradients.states(len(b))
    log_p = -gradients.free_energy(W, b, c, x)
    p = np.exp(log_p - log_p.max())
    return x, gradients.hidden_mean(W, c, x), p / p.sum()


def wide(state):
    return tuple(array.astype(float) for array in state[:3])


def assert_close(found, expected, tolerance=2e-5):
    """To a share of the longest component: what goes in is float32."""
    np.testing.assert_allclose(found, expected, atol=tolerance * max(1, np.abs(expected).max()))


# The training loop


@pytest.mark.parametrize("scale_to", ["none", "standard", "centered"])
@pytest.mark.parametrize("fisher", [*FISHERS, None])
@pytest.mark.parametrize("phase", ["exact", "samples", "sampled matrix"])
def test_training_makes_the_step(phase, fisher, scale_to):
    sampled, exact = phase == "sampled matrix", phase == "exact"
    way = natural(fisher, exact=exact, damping=0.05, sampled=sampled, scale_to=scale_to)
    codes = {"joint": JOINT, "marginal": MARGINAL, "diagonal": DIAGONAL, None: CENTERED}
    scales = {"none": 0, "standard": TO_STANDARD, "centered": TO_CENTERED}
    how = {"direction": codes[fisher], "sampled_fisher": sampled, "exact": exact, "iterations": 10}
    how |= {"damping": np.float32(0.05), "scale_to": scales[scale_to], "learning_rate": np.float32(1)}
    state = random_state(N, M, way.its, seed=3, scale=0.7)
    W, _, c = wide(state)
    moved, offsets = copied(state), (ROWS.mean(axis=0), sigmoid(ROWS @ W + c).mean(axis=0))  # dd^b
    learn(moved, ROWS, way.its._replace(**how), 0, 1)
    assert_close(flat(*moved[:3]) - flat(*state[:3]), step_of(state, ROWS, way, offsets), 1e-4)


# Exact Fisher matrices


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fisher", FISHERS)
def test_the_exact_step_is_that_of_the_float64_reference(fisher, seed):
    way = natural(fisher, exact=True)
    state = random_state(N, M, way.its, seed, scale=0.7)
    machine, damping = wide(state), way.direction.damping
    expected = natural_gradient(*machine, standard_gradient(*machine, ROWS), fisher, damping)
    assert np.abs(expected.flat()).max() > 0.1
    assert_close(step_of(state, ROWS, way), expected.flat())


@pytest.mark.parametrize("fisher", ["joint", "marginal"])
def test_an_exact_fisher_matrix_takes_the_gradient_of_the_samples(fisher):
    way = natural(fisher)
    state = random_state(N, M, way.its, seed=3, scale=0.7)
    F = fisher_matrix(fisher, *wide(state))
    F += way.direction.damping * np.eye(len(F))
    assert_close(step_of(state, ROWS, way), np.linalg.solve(F, sampled_phases(state, way)[0]))


def sampled_phases(state, way):
    """The gradient of update 0 from its samples (P,), the samples x (R, N) and their hidden means (R, M)."""
    gradient, (x, h, _), _, _ = phases(state, ROWS, way)
    return flat(*gradient), x.astype(float), h.astype(float)


# Fisher matrices from samples


def features(x, h):
    return np.hstack([(x[:, :, None] * h[:, None, :]).reshape(len(x), -1), x, h])


@pytest.mark.parametrize("stuck", [None, -60, 60], ids=["free", "a unit always off", "a unit always on"])
@pytest.mark.parametrize("damping", [0.01, 0.3])
@pytest.mark.parametrize("fisher", ["joint", "marginal"])
def test_the_sampled_step_is_that_of_the_covariance_of_the_very_samples(fisher, damping, stuck):
    batch = len(ROWS)
    way = natural(fisher, sampled=True, damping=damping, iterations=200)
    state = random_state(N, M, way.its, seed=4, scale=0.7)
    if stuck:
        state.b[0] = state.c[0] = stuck
    gradient, x, h = sampled_phases(state, way)
    if fisher == "joint":
        h = (uniform(int(way.its.seed), 0, FISHER, batch * M).reshape(batch, M) < h).astype(float)
    s = features(x, h)
    F = (s - s.mean(axis=0)).T @ (s - s.mean(axis=0)) / batch
    expected = np.linalg.solve(F + damping * np.eye(len(F)), gradient)
    assert_close(step_of(state, ROWS, way), expected, 1e-4)


def test_few_steps_of_conjugate_gradients_come_close_and_one_is_steepest_descent():
    def after(iterations):
        way = natural("marginal", sampled=True, damping=0.1, iterations=iterations)
        return step_of(state, ROWS, way)

    way = natural("marginal")
    state = random_state(N, M, way.its, seed=5, scale=0.7)
    goal = after(200)
    gradient, x, h = sampled_phases(state, way)
    s = features(x, h) - features(x, h).mean(axis=0)
    image = s.T @ (s @ gradient) / len(s) + 0.1 * gradient
    assert_close(after(1), gradient * (gradient @ gradient) / (gradient @ image))
    errors = [np.linalg.norm(after(k) - goal) for k in (1, 2, 4, 8)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-3 * np.linalg.norm(goal)  # at most 7 rows: 6 directions, and damping alone


def test_many_samples_give_the_step_of_the_exact_matrix():
    """The Fisher matrix of 40,000 samples that are drawn from the model: off by some 1/sqrt(40,000)."""
    batch = 40_000
    way = natural("joint", batch, sampled=True, damping=0.1, iterations=200)
    state = random_state(N, M, way.its, seed=6, scale=0.7)
    rows = np.resize(ROWS, (batch, N))
    for update in range(1, 20):
        state.h[:] = plain_sweeps(state[:3], state.h, way.its, update)[1]  # towards the model's distribution
    found = step_of(state, rows, way)
    exact = step_of(state, rows, natural("joint", batch, damping=0.1))
    assert np.linalg.norm(found - exact) < 0.05 * np.linalg.norm(exact)


def test_the_sampled_diagonal_has_the_variances_of_the_samples():
    way = natural("diagonal", damping=0.05)
    state = random_state(N, M, way.its, seed=7, scale=0.7)
    gradient, x, h = sampled_phases(state, way)
    means = features(x, h).mean(axis=0)
    assert_close(step_of(state, ROWS, way), gradient / (means * (1 - means) + 0.05))


# What holds for all of them


WAYS = {
    "joint": {"exact": True},
    "marginal": {"exact": True},
    "diagonal": {"exact": True},
    "joint of samples": {"sampled": True, "damping": 0.01},
    "marginal of samples": {"sampled": True, "damping": 0.01},
}


@pytest.mark.parametrize("name", WAYS)
def test_offsets_do_not_change_a_natural_step(name):
    way = natural(name.split()[0], **WAYS[name])
    state = random_state(N, M, way.its, seed=8, scale=0.7)
    others = np.random.default_rng(9).random(N).astype(np.float32), np.zeros(M, np.float32)
    assert (step_of(state, ROWS, way, others) == step_of(state, ROWS, way)).all()


@pytest.mark.parametrize(
    ("fisher", "m"), [("joint", M), ("marginal", 1)]
)  # m: few enough for p(x) to have all
def test_flipped_data_give_the_same_natural_step(fisher, m):
    way = natural(fisher, m=m, exact=True, damping=0.0)
    state = random_state(N, m, way.its, seed=10, scale=0.7)
    mirror = state._replace(W=-state.W, b=-state.b, c=state.c + state.W.sum(axis=0), mu=1 - state.mu)
    step, other = step_of(state, ROWS, way), step_of(mirror, 1 - ROWS, way)
    dW, db, dc = np.split(step, [N * m, N * m + N])
    dW = dW.reshape(N, m)
    assert_close(other, flat(-dW, -db, dc + dW.sum(axis=0)), 1e-4)


@pytest.mark.parametrize("of", ["all", "weights"])
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("fisher", [*FISHERS, None])
@pytest.mark.parametrize("length", ["standard", "centered"])
def test_a_step_can_have_the_length_of_another_gradient(length, fisher, sampled, of):
    way = natural(fisher, exact=not sampled, damping=0.01, scale_to=length, scale_of=of)
    state = random_state(N, M, way.its, seed=11, scale=0.7)
    machine = wide(state)
    mu, lam = ROWS.mean(axis=0), sigmoid(ROWS @ machine[0] + machine[2]).mean(axis=0)  # dd^b
    gradient = sampled_phases(state, way)[0] if sampled else standard_gradient(*machine, ROWS).flat()
    if length == "centered":
        gradient = centered_of(gradient, mu, lam)
        if not sampled:
            assert_close(gradient, centered_gradient(*machine, ROWS, mu, lam).flat())
    step = step_of(state, ROWS, way, (mu, lam))
    unscaled = step_of(state, ROWS, natural(fisher, exact=not sampled, damping=0.01), (mu, lam))
    counted = slice(N * M if of == "weights" else None)  # W comes first
    assert np.linalg.norm(step[counted]) == pytest.approx(np.linalg.norm(gradient[counted]), rel=1e-4)
    cosine = step @ unscaled / np.linalg.norm(step) / np.linalg.norm(unscaled)
    assert cosine == pytest.approx(1, abs=1e-6)


def centered_of(gradient, mu, lam):
    """Eqs. (cgradW), (cgradb), (cgradc) from the differences <x h'>, <x>, <h>."""
    W, dx, dh = np.split(gradient, [N * M, N * M + N])
    W = W.reshape(N, M) - np.outer(mu, dh) - np.outer(dx, lam)
    return flat(W, dx - W @ lam, dh - mu @ W)


# Worked by hand


def one_unit(way, b, c):
    """1x1 units without a connection: h tells nothing of x."""
    state = random_state(1, 1, way.its, seed=12)
    return state._replace(W=np.zeros((1, 1), np.float32), b=np.float32([b]), c=np.float32([c]))


def test_the_natural_step_of_one_free_unit_is_newtons():
    """Only b has to move, by (d - p) / (p (1 - p)).

    With q = sigmoid(c) the gradient is (d - p) (q, 1, 0): (d - p) / (p (1 - p)) times the column of F that
    belongs to b, (cov(xh, x), var(x), cov(h, x)) = p (1 - p) (q, 1, 0).
    """
    rows, d, p = np.uint8([[1], [1], [1], [0]]), 0.75, sigmoid(-0.4)
    way = natural("joint", 4, 1, 1, exact=True)
    np.testing.assert_allclose(
        step_of(one_unit(way, -0.4, 0.9), rows, way), [0, (d - p) / (p * (1 - p)), 0], atol=2e-6
    )


def test_newtons_method_converges_quadratically():
    rows = np.uint8([[1], [1], [1], [0]])
    way = natural("joint", 4, 1, 1, exact=True)
    state, errors = one_unit(way, 0.5, 0.9), []
    for _ in range(3):
        climb(state, rows, way, 1.0, 1)
        errors.append(abs(float(state.b[0]) - np.log(3)))
    assert errors[0] < 0.1
    assert errors[1] < errors[0] ** 2
    assert errors[2] < 2e-7


def test_the_diagonal_step_of_one_free_unit_by_hand():
    rows, d, p, q = np.uint8([[1], [1], [1], [0]]), 0.75, sigmoid(-0.4), sigmoid(0.9)
    way = natural("diagonal", 4, 1, 1, exact=True)
    expected = [(d - p) * q / (p * q * (1 - p * q)), (d - p) / (p * (1 - p)), 0]
    np.testing.assert_allclose(step_of(one_unit(way, -0.4, 0.9), rows, way), expected, atol=2e-6)


# Directions in which nothing can move


def without_the_first(step):
    """The components of a step (P,) that belong to the other units."""
    W, b, c = np.split(step, [N * M, N * M + N])
    return flat(W.reshape(N, M)[1:, 1:], b[1:], c[1:])


def smaller(state, value):
    """The same machine where the first units, which always have a value, are taken out."""
    W, b, c = state[:3]
    machine = W[1:, 1:], b[1:] + value * W[1:, 0], c[1:] + value * W[0, 1:]
    changes = dict(zip("Wbc", map(np.ascontiguousarray, machine), strict=True))
    return state._replace(**changes, mu=state.mu[1:], lam=state.lam[1:])


def with_stuck_units(way, value):
    """A state whose first units always have a value, and data of which that is true too."""
    state, rows = random_state(N, M, way.its, seed=13, scale=0.5), ROWS.copy()
    state.b[0] = state.c[0] = 60 if value else -60
    rows[:, 0] = value
    return state, rows


@pytest.mark.parametrize("fisher", FISHERS)
def test_units_that_are_always_off_do_not_move_and_do_not_disturb_the_others(fisher):
    way = natural(fisher, exact=True)
    state, rows = with_stuck_units(way, 0)
    step = step_of(state, rows, way)
    expected = step_of(smaller(state, 0), rows[:, 1:], way)
    assert_close(without_the_first(step), expected)
    assert np.abs(step).sum() == pytest.approx(np.abs(expected).sum(), rel=1e-4)


def test_units_that_are_always_on_are_biases_of_the_others():
    way = natural("joint", exact=True)
    state, rows = with_stuck_units(way, 1)
    W, b, c = np.split(step_of(state, rows, way), [N * M, N * M + N])
    W = W.reshape(N, M)
    expected = step_of(smaller(state, 1), rows[:, 1:], way)
    assert_close(flat(W[1:, 1:], b[1:] + W[1:, 0], c[1:] + W[0, 1:]), expected)


@pytest.mark.parametrize("value", [0, 1])
@pytest.mark.parametrize("fisher", FISHERS)
def test_stuck_units_do_not_blow_up_a_training(fisher, value):
    way = natural(fisher, exact=True)
    state, rows = with_stuck_units(way, value)
    before = copied(state)
    climb(state, rows, way, 0.1, 2000)
    assert all(np.isfinite(array).all() for array in state)
    assert np.abs(state.b[0] - before.b[0]) < 1
    assert np.abs(state.c[0] - before.c[0]) < 1
    assert log_likelihood(state, rows) > log_likelihood(before, rows) + 0.05


def log_likelihood(state, rows):
    machine = wide(state)
    return -gradients.free_energy(*machine, rows.astype(float)).mean() - gradients.log_partition(*machine)


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_a_natural_training_arrives_and_stays_where_the_fisher_matrix_is_all_but_singular(rate):
    """Figure 13 (a): within 0.5 of the bound -13.86 in 30 updates at rate 1.0; 300 are enough for 0.1."""
    bars = bars_and_stripes(2)
    way = natural("joint", 8, 4, 4, exact=True)
    for seed in range(5):
        state = random_state(4, 4, way.its, seed, scale=0.01)
        climb(state, bars.train, way, rate, int(30 / rate))
        assert 8 * log_likelihood(state, bars.train) > -13.86 - 0.5
        climb(state, bars.train, way, rate, 3000 - int(30 / rate))
        assert all(np.isfinite(array).all() for array in state)
        assert bars.upper_bound - 1e-3 < log_likelihood(state, bars.train) < bars.upper_bound + 1e-9
