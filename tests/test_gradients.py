"""Exact gradients and Fisher matrices, and natural and rescaled steps of training, against the reference."""

import numpy as np
import pytest

from cbm_cli import reference as ref
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.datasets.toys import bars_and_stripes
from cbm_cli.errors import CbmError
from cbm_cli.kernels.machine import Machine
from cbm_cli.kernels.natural import FISHERS as CODES
from cbm_cli.kernels.natural import Direction, add_up_fisher, find_moments, make_natural
from cbm_cli.machines import gradients
from cbm_cli.machines.gradients import (
    centered,
    data_moments,
    exact_moments,
    log_partition,
    natural_gradient,
    standard_gradient,
)
from cbm_cli.machines.limits import check_fisher
from cbm_cli.trial.learner import Learner
from tests.builders import rbm_settings
from tests.oracles import (
    advance,
    copied,
    flat,
    log_likelihoods,
    moments,
    random_machine,
    random_state,
    sigmoid,
    states,
    uniform,
    wide,
)
from tests.oracles import reference_sweeps as swept

SHAPES = [(3, 2), (2, 4), (4, 4), (1, 1)]


def machine(n, m, seed=0):
    return wide(random_machine(n, m, seed))


def some_rows(n, seed=0):
    return np.random.default_rng(seed).integers(0, 2, (7, n)).astype(np.uint8)


def phases(machine, rows):
    """The phases of the data and of the model, by the reference."""
    W, _, c = machine
    return ref.batch(rows, ref.hidden_mean(rows, W, c)), ref.model_phase(*machine)


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


# Exact expectations and gradients


@pytest.mark.parametrize("block", [4096, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_exact_expectations_and_gradients_are_those_of_the_reference(shape, block, monkeypatch):
    monkeypatch.setattr(gradients, "BLOCK", block)
    plain, rows, rng = machine(*shape), some_rows(shape[0]), np.random.default_rng(1)
    data, model = phases(plain, rows)
    assert_same(exact_moments(*plain), moments(model))
    assert_same(data_moments(plain[0], plain[2], rows), moments(data))
    assert log_partition(*plain) == pytest.approx(ref.log_partition(*plain), rel=1e-13)
    standard = standard_gradient(*plain, rows)
    assert_same(standard, ref.gradient(data, model))
    offsets = rng.random(shape[0]), rng.random(shape[1])
    assert_same(centered(standard, *offsets), ref.centered_gradient(data, model, *offsets))


def test_a_stack_of_machines_has_the_gradients_of_each():
    machines, rows, rng = [machine(4, 3, seed) for seed in range(3)], some_rows(4), np.random.default_rng(2)
    stacked = [np.stack(arrays) for arrays in zip(*machines, strict=True)]
    mu, lam = rng.random((3, 4)), rng.random((3, 3))
    found = centered(standard_gradient(*stacked, rows), mu, lam)
    for k, plain in enumerate(machines):
        expected = ref.centered_gradient(*phases(plain, rows), mu[k], lam[k])
        assert_same((array[k] for array in found), expected)


def test_moments_of_grey_rows_are_means_of_their_values():
    W, _, c = machine(3, 2)
    grey = np.array([[0, 51, 255], [102, 0, 204]], dtype=np.uint8)
    x = grey / 255
    assert_same(data_moments(W, c, grey, 1 / 255), moments(ref.batch(x, ref.hidden_mean(x, W, c))))


# Exact Fisher matrices


FISHERS = {
    "joint": lambda *machine: ref.fisher(ref.joint_phase(*machine)),
    "marginal": lambda *machine: ref.fisher(ref.model_phase(*machine)),
    "diagonal": lambda *machine: np.diag(np.diag(ref.fisher(ref.joint_phase(*machine)))),
}


def fisher_matrix(fisher, W, b, c):
    """The matrix (P, P) that the kernels make, for parameters in the order of the reference."""
    n, m = W.shape
    work, places = (
        make_natural(Direction(CODES[fisher]), n, m, 0),
        np.arange((n + 1) * (m + 1)).reshape(n + 1, -1),
    )
    find_moments(Machine(W, b, c, b, c), work)
    add_up_fisher(work)
    order = np.concatenate([places[:n, :m].ravel(), places[:n, m], places[n, :m]])
    lower = np.tril(work.F)
    return (lower + np.tril(lower, -1).T)[np.ix_(order, order)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fisher", FISHERS)
def test_fisher_matrices_and_natural_gradients_are_those_of_the_reference(shape, fisher):
    plain, rows = machine(*shape), some_rows(shape[0])
    F, gradient = FISHERS[fisher](*plain), ref.gradient(*phases(plain, rows))
    if fisher != "diagonal":
        np.testing.assert_allclose(fisher_matrix(fisher, *plain), F, atol=1e-13)
    for damping in (0.0, 0.3) if fisher != "marginal" else (0.3,):
        found = natural_gradient(*plain, standard_gradient(*plain, rows), fisher, damping)
        np.testing.assert_allclose(
            found.flat(), flat(*ref.natural_gradient(gradient, F, damping)), rtol=1e-7, atol=1e-12
        )


def test_rank_of_the_marginal_fisher_matrix_is_the_number_of_states_less_one():
    assert np.linalg.matrix_rank(fisher_matrix("marginal", *machine(4, 4))) == 15
    assert np.linalg.matrix_rank(fisher_matrix("joint", *machine(4, 4))) == 24


def test_a_singular_fisher_matrix_has_no_natural_gradient_and_its_neighbours_have_theirs():
    rows, plain = some_rows(4), machine(4, 4)
    stuck = plain[0], np.array([800.0, 0, 0, 0]), plain[2]
    stack = [np.stack(arrays) for arrays in zip(plain, stuck, plain, strict=True)]
    for fisher in ("joint", "diagonal"):
        found = natural_gradient(*stack, standard_gradient(*stack, rows), fisher).flat()
        alone = natural_gradient(*plain, standard_gradient(*plain, rows), fisher).flat()
        assert np.isnan(found[1]).all()
        np.testing.assert_allclose(found[[0, 2]], [alone, alone], rtol=1e-9)
        assert np.isnan(natural_gradient(*stuck, standard_gradient(*stuck, rows), fisher).flat()).all()
    assert np.isnan(natural_gradient(*plain, standard_gradient(*plain, rows), "marginal").flat()).all()


def test_a_badly_scaled_but_regular_fisher_matrix_is_inverted():
    """Variances of units far apart are no reason to refuse: the step of b is the one of a single unit."""
    b = np.array([0.0, -14.0])
    plain = np.zeros((2, 1)), b, np.zeros(1)
    found = natural_gradient(*plain, standard_gradient(*plain, some_rows(2)))
    p, d = sigmoid(b), some_rows(2).mean(axis=0)
    np.testing.assert_allclose(found.b, (d - p) / (p * (1 - p)), rtol=1e-6)


def test_a_fisher_matrix_of_too_many_states_is_refused_with_their_number():
    for fisher in ("joint", "marginal"):
        with pytest.raises(CbmError, match=r"^gradient: .*2\^17 states of 10x7 units.*estimate: samples"):
            natural_gradient(*machine(10, 7), standard_gradient(*machine(10, 7), some_rows(10)), fisher)


@pytest.mark.parametrize(("n", "m", "singular"), [(4, 2, False), (4, 3, True), (3, 2, True)])
def test_a_marginal_fisher_matrix_of_fewer_states_than_parameters_is_refused(n, m, singular):
    if not singular:
        check_fisher("gradient", "marginal", 0.0, n, m, "")
        return
    with pytest.raises(CbmError, match=f"{2**n - 1}, with {n * m + n + m} parameters"):
        check_fisher("gradient", "marginal", 0.0, n, m, "")
    check_fisher("gradient", "marginal", 0.01, n, m, "")


N, M = 4, 3


ROWS = states(N)[[1, 2, 4, 7, 8, 11, 14]].astype(np.uint8)


DAMPING = {"joint": 0.0, "marginal": 0.01, "diagonal": 0.0}


def natural(fisher, rows=ROWS, hidden=M, exact=False, others=None, **changes):
    """A learner along a natural gradient, or along the centered one if ``fisher`` is None.

    Changes are of the gradient, ``others`` of other settings.
    """
    gradient = {"kind": "centered"}
    if fisher:
        gradient = {"kind": "natural", "fisher": fisher, "damping": DAMPING[fisher]}
    its = {"sampler": "exact"} if exact else {}
    its |= {"model": {"kind": "rbm", "hidden": hidden}, "learning_rate": 1.0, "updates": 1, "batch": "full"}
    return Learner(
        rbm_settings(**its | {"gradient": gradient | changes} | (others or {})), Dataset("rows", rows), 2024
    )


def random_start(way, seed, scale=0.7):
    return random_state(*way.sizes, way.plan, seed, scale)


def step_of(state, way):
    """The change of (W, b, c) in update 0; the state is left as it was."""
    moved = copied(state)
    advance(way, moved, 0, 1)
    return flat(*moved[:3]) - flat(*state[:3])


def assert_close(found, expected, tolerance=2e-5):
    """To a share of the longest component: parameters are float32."""
    np.testing.assert_allclose(found, expected, atol=tolerance * max(1, np.abs(expected).max()))


# Exact Fisher matrices


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("fisher", "exact"), [*((fisher, True) for fisher in FISHERS), ("joint", False), ("marginal", False)]
)
def test_the_step_with_an_exact_fisher_matrix_is_that_of_the_reference(fisher, exact, seed):
    way = natural(fisher, exact=exact)
    state = random_start(way, seed)
    machine = wide(state[:3])
    gradient = ref.gradient(
        data_phase(machine), ref.model_phase(*machine) if exact else samples_of(state, way)
    )
    expected = flat(*ref.natural_gradient(gradient, FISHERS[fisher](*machine), DAMPING[fisher]))
    assert np.abs(expected).max() > 0.1
    assert_close(step_of(state, way), expected)


def data_phase(machine):
    W, _, c = machine
    return ref.batch(ROWS, ref.hidden_mean(ROWS, W, c))


def samples_of(state, way):
    """The model phase of update 0."""
    W, _, c = wide(state[:3])
    x, _, _ = swept(state[:3], state.h, way.plan, 0)
    return ref.batch(x, ref.hidden_mean(x, W, c))


# Fisher matrices from samples


@pytest.mark.parametrize("stuck", [None, -60, 60], ids=["free", "a unit always off", "a unit always on"])
@pytest.mark.parametrize("damping", [0.01, 0.3])
@pytest.mark.parametrize("fisher", ["joint", "marginal"])
def test_the_sampled_step_is_that_of_the_covariance_of_the_very_samples(fisher, damping, stuck):
    batch = len(ROWS)
    way = natural(fisher, estimate="samples", damping=damping, iterations=200)
    state = random_start(way, seed=4)
    if stuck:
        state.b[0] = state.c[0] = stuck
    model = samples_of(state, way)
    gradient = ref.gradient(data_phase(wide(state[:3])), model)
    if fisher == "joint":
        h = ref.draw(model.h, uniform(int(way.plan.seed), 0, "fisher", batch * M).reshape(batch, M))
        model = model._replace(h=h)
    expected = ref.natural_gradient(gradient, ref.fisher(model), damping)
    assert_close(step_of(state, way), flat(*expected), 1e-4)


def test_few_steps_of_conjugate_gradients_come_close_and_one_is_steepest_descent():
    ways = {k: natural("marginal", estimate="samples", damping=0.1, iterations=k) for k in (1, 2, 4, 8, 200)}
    exact = ways[200]
    state = random_start(exact, seed=5)
    goal = step_of(state, exact)
    model = samples_of(state, exact)
    gradient = flat(*ref.gradient(data_phase(wide(state[:3])), model))
    image = ref.fisher(model) @ gradient + 0.1 * gradient
    first = step_of(state, ways[1])
    assert_close(first, gradient * (gradient @ gradient) / (gradient @ image))
    errors = [np.linalg.norm(step_of(state, ways[k]) - goal) for k in (1, 2, 4, 8)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-3 * np.linalg.norm(goal)  # at most 7 rows: 6 directions, and damping alone


def test_the_sampled_diagonal_has_the_variances_of_the_samples():
    way = natural("diagonal", damping=0.05)
    state = random_start(way, seed=7)
    model = samples_of(state, way)
    gradient, means = flat(*ref.gradient(data_phase(wide(state[:3])), model)), flat(*moments(model))
    assert_close(step_of(state, way), gradient / (means * (1 - means) + 0.05))


# What holds for all of them
WAYS = {
    "joint": {"exact": True},
    "marginal": {"exact": True},
    "diagonal": {"exact": True},
    "joint of samples": {"estimate": "samples", "damping": 0.01},
    "marginal of samples": {"estimate": "samples", "damping": 0.01},
}


@pytest.mark.parametrize("name", WAYS)
def test_offsets_do_not_change_a_natural_step(name):
    def way(offsets):
        others = {"offsets": offsets, "sliding_factor": {"visible": 0.1, "hidden": 1}}
        return natural(name.split()[0], others=others, **WAYS[name])

    state = random_start(way("dd^b_s"), seed=8)
    step = step_of(state, way("dd^b_s"))
    rng = np.random.default_rng(9)
    others = state._replace(mu=rng.random(N).astype(np.float32), lam=np.zeros(M, np.float32))
    assert (step_of(others, way("dd^b_s")) == step).all()
    assert (step_of(others, way("dd^l_s")) == step).all()


@pytest.mark.parametrize("of", ["all", "weights"])
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("fisher", [*FISHERS, None])
@pytest.mark.parametrize("length", ["standard", "centered"])
def test_a_step_can_have_the_length_of_another_gradient(length, fisher, sampled, of):
    damped = {"damping": 0.01} if fisher else {}
    half = {"learning_rate": 0.5}
    way = natural(fisher, exact=not sampled, others=half, scale_to=length, scale_of=of, **damped)
    state = random_start(way, seed=11)
    machine = wide(state[:3])
    data, model = data_phase(machine), samples_of(state, way) if sampled else ref.model_phase(*machine)
    offsets = moments(data)[1:] if length == "centered" else (np.zeros(N), np.zeros(M))  # dd^b
    other = ref.centered_gradient(data, model, *offsets)
    unscaled = shaped(step_of(state, natural(fisher, exact=not sampled, **damped)))
    expected = ref.rescale(unscaled, other)
    if of == "weights":
        factor = np.linalg.norm(other[0]) / np.linalg.norm(unscaled[0])
        expected = [factor * array for array in unscaled]
    assert_close(step_of(state, way), 0.5 * flat(*expected), 1e-4)


@pytest.mark.parametrize("fisher", ["joint", None])
def test_steps_along_other_directions_have_momentum_and_weight_decay(fisher):
    """Decay is part of the gradient whose direction is taken, and the velocity adds up the steps."""
    others = {"momentum": 0.8, "weight_decay": {"l1": 0.01, "l2": 0.1}, "learning_rate": 0.1, "offsets": "00"}
    way = natural(fisher, exact=True, others=others, scale_to="standard")
    state, velocity = random_start(way, seed=14), np.zeros(N * M + N + M)
    for update in range(5):
        machine = wide(state[:3])
        dW, db, dc = ref.gradient(data_phase(machine), ref.model_phase(*machine))
        gradient = dW + ref.weight_decay(machine[0], 0.01, 0.1), db, dc
        direction = gradient
        if fisher:
            direction = ref.rescale(ref.natural_gradient(gradient, FISHERS[fisher](*machine)), gradient)
        velocity = 0.8 * velocity + 0.1 * flat(*direction)
        advance(way, state, update, update + 1)
        np.testing.assert_allclose(flat(*state[:3]) - flat(*machine), velocity, atol=2e-5)


def shaped(step):
    W, b, c = np.split(step, [N * M, N * M + N])
    return W.reshape(N, M), b, c


def test_newtons_method_converges_quadratically():
    """In the bias of one visible unit, which is not connected."""
    way = natural("joint", np.uint8([[1], [1], [1], [0]]), 1, exact=True)
    state, errors = random_start(way, seed=12), []
    state.W[:], state.b[:], state.c[:] = 0, 0.5, 0.9
    for update in range(3):
        advance(way, state, update, update + 1)
        errors.append(abs(float(state.b[0]) - np.log(3)))
    assert errors[0] < 0.1
    assert errors[1] < errors[0] ** 2
    assert errors[2] < 2e-7


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
    return state._replace(**changes, mu=state.mu[1:], lam=state.lam[1:], h=state.h[:, 1:].copy())


def with_stuck_units(fisher, value, rate=1.0):
    """Learners of data whose first unit always has a value, and of the other units alone; and a state."""
    rows = ROWS.copy()
    rows[:, 0] = value
    way = natural(fisher, rows, exact=True, others={"learning_rate": rate})
    state = random_start(way, seed=13, scale=0.5)
    state.b[0] = state.c[0] = 60 if value else -60
    return way, natural(fisher, np.ascontiguousarray(rows[:, 1:]), M - 1, exact=True), state


@pytest.mark.parametrize("fisher", FISHERS)
def test_units_that_are_always_off_do_not_move_and_do_not_disturb_the_others(fisher):
    way, of_others, state = with_stuck_units(fisher, 0)
    step, expected = step_of(state, way), step_of(smaller(state, 0), of_others)
    assert_close(without_the_first(step), expected)
    assert np.abs(step).sum() == pytest.approx(np.abs(expected).sum(), rel=1e-4)


def test_units_that_are_always_on_are_biases_of_the_others():
    way, of_others, state = with_stuck_units("joint", 1)
    W, b, c = shaped(step_of(state, way))
    expected = step_of(smaller(state, 1), of_others)
    assert_close(flat(W[1:, 1:], b[1:] + W[1:, 0], c[1:] + W[0, 1:]), expected)


@pytest.mark.parametrize("value", [0, 1])
@pytest.mark.parametrize("fisher", FISHERS)
def test_stuck_units_do_not_blow_up_a_training(fisher, value):
    way, _, state = with_stuck_units(fisher, value, rate=0.1)
    before = copied(state)
    advance(way, state, 0, 600)
    assert all(np.isfinite(array).all() for array in state)
    assert np.abs(state.b[0] - before.b[0]) < 1
    assert np.abs(state.c[0] - before.c[0]) < 1
    rows = way.data.train
    assert log_likelihood(state, rows) > log_likelihood(before, rows) + 0.05


def log_likelihood(state, rows):
    return log_likelihoods(*state[:3], rows).mean()


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_a_natural_training_arrives_and_stays_where_the_fisher_matrix_is_all_but_singular(rate):
    """Figure 13 (a): within 0.5 of the bound -13.86 in 30 updates at rate 1.0; 300 are enough for 0.1."""
    bars = bars_and_stripes(2)
    way = natural("joint", bars.train, 4, exact=True, others={"learning_rate": rate})
    for seed in range(2):
        state = random_start(way, seed, scale=0.01)
        advance(way, state, 0, int(30 / rate))
        assert 8 * log_likelihood(state, bars.train) > -13.86 - 0.5
        advance(way, state, int(30 / rate), 1500)
        assert all(np.isfinite(array).all() for array in state)
        assert bars.upper_bound - 1e-3 < log_likelihood(state, bars.train) < bars.upper_bound + 1e-9


@pytest.mark.parametrize("name", WAYS)
def test_stuck_units_do_not_move_and_a_machine_that_has_diverged_stays_so(name):
    way = natural(name.split()[0], others={"weight_decay": {"l2": 0.0}}, **WAYS[name])
    stuck = random_start(way, seed=3, scale=0)
    stuck.b[:], stuck.c[:] = 5000, 5000  # all units are on: their variance is 0 in float64
    moved = step_of(stuck, way)
    assert np.isfinite(moved).all()
    lost = random_start(way, seed=3)
    lost.W[0, 0] = np.nan
    advance(way, lost, 0, 1)
    assert np.isnan(lost.W).any()
