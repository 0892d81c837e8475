"""Natural and rescaled steps of the training loop against the reference and hand-worked cases."""

import numpy as np
import pytest

from cbm_cli import reference as ref
from cbm_cli.datasets.toys import bars_and_stripes
from tests.oracles import (
    copied,
    flat,
    learn,
    log_likelihoods,
    mirrored,
    moments,
    plan,
    random_state,
    sigmoid,
    states,
    uniform,
    wide,
)
from tests.oracles import reference_sweeps as swept

N, M = 4, 3
ROWS = states(N)[[1, 2, 4, 7, 8, 11, 14]].astype(np.uint8)
FISHERS = {
    "joint": lambda *machine: ref.fisher(ref.joint_phase(*machine)),
    "marginal": lambda *machine: ref.fisher(ref.model_phase(*machine)),
    "diagonal": lambda *machine: np.diag(np.diag(ref.fisher(ref.joint_phase(*machine)))),
}
DAMPING = {"joint": 0.0, "marginal": 0.01, "diagonal": 0.0}


def natural_plan(direction, batch=7, n=N, m=M, **changes):
    damping = np.float32(changes.pop("damping", DAMPING.get(direction, 0.01)))
    one = np.float32(1)
    return plan(n, m, batch, direction=direction, damping=damping, learning_rate=one, **changes)


def step_of(state, rows, its):
    """The change of (W, b, c) in update 0; the state is left as it was."""
    moved = copied(state)
    learn(moved, rows, its, 0, 1)
    return flat(*moved[:3]) - flat(*state[:3])


def assert_close(found, expected, tolerance=2e-5):
    """To a share of the longest component: parameters are float32."""
    np.testing.assert_allclose(found, expected, atol=tolerance * max(1, np.abs(expected).max()))


# Exact Fisher matrices


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fisher", FISHERS)
def test_the_exact_step_is_that_of_the_float64_reference(fisher, seed):
    its = natural_plan(fisher, exact=True)
    state = random_state(N, M, its, seed, scale=0.7)
    machine = wide(state[:3])
    gradient = ref.gradient(data_phase(machine), ref.model_phase(*machine))
    expected = flat(*ref.natural_gradient(gradient, FISHERS[fisher](*machine), float(its.damping)))
    assert np.abs(expected).max() > 0.1
    assert_close(step_of(state, ROWS, its), expected)


@pytest.mark.parametrize("fisher", ["joint", "marginal"])
def test_an_exact_fisher_matrix_takes_the_gradient_of_the_samples(fisher):
    its = natural_plan(fisher)
    state = random_state(N, M, its, seed=3, scale=0.7)
    machine = wide(state[:3])
    gradient = ref.gradient(data_phase(machine), samples_of(state, its))
    expected = ref.natural_gradient(gradient, FISHERS[fisher](*machine), float(its.damping))
    assert_close(step_of(state, ROWS, its), flat(*expected))


def data_phase(machine):
    W, _, c = machine
    return ref.batch(ROWS, ref.hidden_mean(ROWS, W, c))


def samples_of(state, its):
    """The model phase of update 0."""
    W, _, c = wide(state[:3])
    x, _ = swept(state[:3], state.h, its, 0)
    return ref.batch(x, ref.hidden_mean(x, W, c))


# Fisher matrices from samples


@pytest.mark.parametrize("stuck", [None, -60, 60], ids=["free", "a unit always off", "a unit always on"])
@pytest.mark.parametrize("damping", [0.01, 0.3])
@pytest.mark.parametrize("fisher", ["joint", "marginal"])
def test_the_sampled_step_is_that_of_the_covariance_of_the_very_samples(fisher, damping, stuck):
    batch = len(ROWS)
    its = natural_plan(fisher, sampled_fisher=True, damping=damping, iterations=200)
    state = random_state(N, M, its, seed=4, scale=0.7)
    if stuck:
        state.b[0] = state.c[0] = stuck
    model = samples_of(state, its)
    gradient = ref.gradient(data_phase(wide(state[:3])), model)
    if fisher == "joint":
        h = ref.draw(model.h, uniform(int(its.seed), 0, "fisher", batch * M).reshape(batch, M))
        model = model._replace(h=h)
    expected = ref.natural_gradient(gradient, ref.fisher(model), float(its.damping))
    assert_close(step_of(state, ROWS, its), flat(*expected), 1e-4)


def test_few_steps_of_conjugate_gradients_come_close_and_one_is_steepest_descent():
    exact = natural_plan("marginal", sampled_fisher=True, damping=0.1, iterations=200)
    state = random_state(N, M, exact, seed=5, scale=0.7)
    goal = step_of(state, ROWS, exact)
    model = samples_of(state, exact)
    gradient = flat(*ref.gradient(data_phase(wide(state[:3])), model))
    image = ref.fisher(model) @ gradient + 0.1 * gradient
    first = step_of(state, ROWS, exact._replace(iterations=1))
    assert_close(first, gradient * (gradient @ gradient) / (gradient @ image))
    errors = [np.linalg.norm(step_of(state, ROWS, exact._replace(iterations=k)) - goal) for k in (1, 2, 4, 8)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-3 * np.linalg.norm(goal)  # at most 7 rows: 6 directions, and damping alone


def test_many_samples_give_the_step_of_the_exact_matrix():
    """The Fisher matrix of 40,000 samples that are drawn from the model: off by some 1/sqrt(40,000)."""
    batch = 40_000
    its = natural_plan("joint", batch, sampled_fisher=True, damping=0.1, iterations=200)
    state = random_state(N, M, its, seed=6, scale=0.7)
    rows = np.resize(ROWS, (batch, N))
    for update in range(1, 20):
        state.h[:] = swept(state[:3], state.h, its, update)[1]  # towards the model's distribution
    found = step_of(state, rows, its)
    exact = step_of(state, rows, its._replace(sampled_fisher=False))
    assert np.linalg.norm(found - exact) < 0.05 * np.linalg.norm(exact)


def test_the_sampled_diagonal_has_the_variances_of_the_samples():
    its = natural_plan("diagonal", damping=0.05)
    state = random_state(N, M, its, seed=7, scale=0.7)
    model = samples_of(state, its)
    gradient, means = flat(*ref.gradient(data_phase(wide(state[:3])), model)), flat(*moments(model))
    assert_close(step_of(state, ROWS, its), gradient / (means * (1 - means) + float(its.damping)))


# What holds for all of them


WAYS = {
    "joint": {"exact": True},
    "marginal": {"exact": True},
    "diagonal": {"exact": True},
    "joint of samples": {"sampled_fisher": True, "damping": 0.01, "iterations": 10},
    "marginal of samples": {"sampled_fisher": True, "damping": 0.01, "iterations": 10},
}


@pytest.mark.parametrize("way", WAYS)
def test_offsets_do_not_change_a_natural_step(way):
    its = natural_plan(way.split()[0], **WAYS[way], sliding_visible=np.float32(0.1))
    state = random_state(N, M, its, seed=8, scale=0.7)
    step = step_of(state, ROWS, its)
    rng = np.random.default_rng(9)
    others = state._replace(mu=rng.random(N).astype(np.float32), lam=np.zeros(M, np.float32))
    assert (step_of(others, ROWS, its) == step).all()
    assert (step_of(others, ROWS, its._replace(offsets_before=False)) == step).all()


@pytest.mark.parametrize(
    ("fisher", "m"), [("joint", M), ("marginal", 1)]
)  # m: few enough for p(x) to have all
def test_flipped_data_give_the_same_natural_step(fisher, m):
    its = natural_plan(fisher, m=m, exact=True, damping=0)
    state = random_state(N, m, its, seed=10, scale=0.7)
    step, other = step_of(state, ROWS, its), step_of(mirrored(state), 1 - ROWS, its)
    dW, db, dc = np.split(step, [N * m, N * m + N])
    dW = dW.reshape(N, m)
    assert_close(other, flat(-dW, -db, dc + dW.sum(axis=0)), 1e-4)


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("direction", [*FISHERS, "centered"])
@pytest.mark.parametrize("length", ["standard", "centered"])
def test_a_step_can_have_the_length_of_another_gradient(length, direction, sampled):
    its = natural_plan(direction, exact=not sampled, scale_to=length, damping=0.01)
    its = its._replace(learning_rate=np.float32(0.5))
    state = random_state(N, M, its, seed=11, scale=0.7)
    machine = wide(state[:3])
    data, model = data_phase(machine), samples_of(state, its) if sampled else ref.model_phase(*machine)
    offsets = moments(data)[1:] if length == "centered" else (np.zeros(N), np.zeros(M))  # dd^b
    other = ref.centered_gradient(data, model, *offsets)
    unscaled = shaped(step_of(state, ROWS, natural_plan(direction, exact=not sampled, damping=0.01)))
    expected = ref.ascend([np.zeros_like(a) for a in machine], ref.rescale(unscaled, other), 0.5)
    assert_close(step_of(state, ROWS, its), flat(*expected), 1e-4)


def shaped(step):
    W, b, c = np.split(step, [N * M, N * M + N])
    return W.reshape(N, M), b, c


# Worked by hand


def one_unit(its, b, c):
    """1x1 units without a connection: h tells nothing of x."""
    state = random_state(1, 1, its, seed=12)
    return state._replace(W=np.zeros((1, 1), np.float32), b=np.float32([b]), c=np.float32([c]))


def test_the_natural_step_of_one_free_unit_is_newtons():
    """Only b has to move, by (d - p) / (p (1 - p)).

    With q = sigmoid(c) the gradient is (d - p) (q, 1, 0): (d - p) / (p (1 - p)) times the column of F that
    belongs to b, (cov(xh, x), var(x), cov(h, x)) = p (1 - p) (q, 1, 0).
    """
    rows, d, p = np.uint8([[1], [1], [1], [0]]), 0.75, sigmoid(-0.4)
    its = natural_plan("joint", 4, 1, 1, exact=True)
    np.testing.assert_allclose(
        step_of(one_unit(its, -0.4, 0.9), rows, its), [0, (d - p) / (p * (1 - p)), 0], atol=2e-6
    )


def test_newtons_method_converges_quadratically():
    rows = np.uint8([[1], [1], [1], [0]])
    its = natural_plan("joint", 4, 1, 1, exact=True)
    state, errors = one_unit(its, 0.5, 0.9), []
    for update in range(3):
        learn(state, rows, its, update, update + 1)
        errors.append(abs(float(state.b[0]) - np.log(3)))
    assert errors[0] < 0.1
    assert errors[1] < errors[0] ** 2
    assert errors[2] < 2e-7


def test_the_diagonal_step_of_one_free_unit_by_hand():
    rows, d, p, q = np.uint8([[1], [1], [1], [0]]), 0.75, sigmoid(-0.4), sigmoid(0.9)
    its = natural_plan("diagonal", 4, 1, 1, exact=True)
    expected = [(d - p) * q / (p * q * (1 - p * q)), (d - p) / (p * (1 - p)), 0]
    np.testing.assert_allclose(step_of(one_unit(its, -0.4, 0.9), rows, its), expected, atol=2e-6)


# Directions in which nothing can move


def without_the_first(step):
    """The components of a step (P,) that belong to the other units."""
    W, b, c = np.split(step, [N * M, N * M + N])
    return flat(W.reshape(N, M)[1:, 1:], b[1:], c[1:])


def smaller(state, its, value):
    """The same machine and plan where the first units, which always have a value, are taken out."""
    W, b, c = state[:3]
    machine = W[1:, 1:], b[1:] + value * W[1:, 0], c[1:] + value * W[0, 1:]
    changes = dict(zip("Wbc", map(np.ascontiguousarray, machine), strict=True))
    state = state._replace(**changes, mu=state.mu[1:], lam=state.lam[1:], h=state.h[:, 1:].copy())
    mixes = {"visible_mix": its.visible_mix[:, 1:].copy(), "hidden_mix": its.hidden_mix[:, 1:].copy()}
    spans = np.tile([0, M - 1], (N - 1, 1))
    return state, its._replace(visible=N - 1, spans=spans, **mixes)


def with_stuck_units(its, value):
    """A state whose first units always have a value, and data of which that is true too."""
    state, rows = random_state(N, M, its, seed=13, scale=0.5), ROWS.copy()
    state.b[0] = state.c[0] = 60 if value else -60
    rows[:, 0] = value
    return state, rows


@pytest.mark.parametrize("fisher", FISHERS)
def test_units_that_are_always_off_do_not_move_and_do_not_disturb_the_others(fisher):
    its = natural_plan(fisher, exact=True)
    state, rows = with_stuck_units(its, 0)
    step = step_of(state, rows, its)
    few, its = smaller(state, its, 0)
    expected = step_of(few, np.ascontiguousarray(rows[:, 1:]), its)
    assert_close(without_the_first(step), expected)
    assert np.abs(step).sum() == pytest.approx(np.abs(expected).sum(), rel=1e-4)


def test_units_that_are_always_on_are_biases_of_the_others():
    its = natural_plan("joint", exact=True)
    state, rows = with_stuck_units(its, 1)
    W, b, c = np.split(step_of(state, rows, its), [N * M, N * M + N])
    W = W.reshape(N, M)
    few, its = smaller(state, its, 1)
    expected = step_of(few, np.ascontiguousarray(rows[:, 1:]), its)
    assert_close(flat(W[1:, 1:], b[1:] + W[1:, 0], c[1:] + W[0, 1:]), expected)


@pytest.mark.parametrize("value", [0, 1])
@pytest.mark.parametrize("fisher", FISHERS)
def test_stuck_units_do_not_blow_up_a_training(fisher, value):
    its = natural_plan(fisher, exact=True)._replace(learning_rate=np.float32(0.1))
    state, rows = with_stuck_units(its, value)
    before = copied(state)
    learn(state, rows, its, 0, 2000)
    assert all(np.isfinite(array).all() for array in state)
    assert np.abs(state.b[0] - before.b[0]) < 1
    assert np.abs(state.c[0] - before.c[0]) < 1
    assert log_likelihood(state, rows) > log_likelihood(before, rows) + 0.05


def log_likelihood(state, rows):
    return log_likelihoods(*state[:3], rows).mean()


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_a_natural_training_arrives_and_stays_where_the_fisher_matrix_is_all_but_singular(rate):
    """Figure 13 (a): within 0.5 of the bound -13.86 in 30 updates at rate 1.0; 300 are enough for 0.1."""
    bars = bars_and_stripes(2)
    its = natural_plan("joint", 8, 4, 4, exact=True)._replace(learning_rate=np.float32(rate))
    for seed in range(5):
        state = random_state(4, 4, its, seed, scale=0.01)
        learn(state, bars.train, its, 0, int(30 / rate))
        assert 8 * log_likelihood(state, bars.train) > -13.86 - 0.5
        learn(state, bars.train, its, int(30 / rate), 3000)
        assert all(np.isfinite(array).all() for array in state)
        assert bars.upper_bound - 1e-3 < log_likelihood(state, bars.train) < bars.upper_bound + 1e-9
