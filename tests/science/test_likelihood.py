"""Exact and annealed likelihoods of RBMs against sums over all states of both sides."""

import itertools

import numpy as np
import pytest
from cbm_cli import reference as ref
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.machines import certificate, estimates, likelihood
from cbm_cli.machines.likelihood import Method, Parts, evaluate, exact_scores
from cbm_cli.machines.models import Flat, Layered, flatten
from numpy.testing import assert_allclose, assert_array_equal, assert_equal

from tests.builders import GRID, cbm, evaluate_file, holds, run_grid
from tests.networks import layered, visible_rows
from tests.oracles import log_z, mean_score, random_machine, rbm, states, uniform, wide
from tests.oracles import walk as kernel_walk

pytestmark = pytest.mark.usefixtures("here")


# Exact likelihoods


@pytest.mark.parametrize("scale", [0.01, 1.0, 5.0, 1e3, 1e6])
@pytest.mark.parametrize("shape", [(4, 9), (1, 1), (7, 1), (40, 12), (13, 30)])
def test_log_z_by_gray_code_is_the_sum_over_all_states(shape, scale):
    machine = random_machine(*shape, seed=3, scale=scale)
    assert log_z(machine) == pytest.approx(
        ref.log_partition(*wide(machine)), rel=1e-12, abs=1e-10
    )


def own_machine(kind, sizes, size, all_of_them):
    """A machine whose weights, all or one of them, have this size."""
    weights, biases, offsets = layered(sizes, 0)
    weights = [size * W if all_of_them else W for W in weights]
    weights[0][0, 0] = size
    return Layered(
        kind, tuple(weights), tuple(biases), tuple(0 * offset for offset in offsets)
    )


def told_of(machine, rows, method, unit=1.0, base=None):
    """What a method says of a machine, and of rows."""
    base = np.zeros(rows.shape[1], np.float32) if base is None else base
    common, by_part = evaluate(
        machine, Parts({"train": rows}, unit, base), method, "m.npz"
    )
    return common, by_part["train"]


@pytest.mark.parametrize("all_of_them", [False, True])
@pytest.mark.parametrize("size", [1.0, 1e16, 1e300])
@pytest.mark.parametrize(("kind", "sizes"), [("rbm", (6, 4)), ("dbm", (5, 3, 2))])
def test_exact_likelihoods_are_finite_and_never_above_0(kind, sizes, size, all_of_them):
    machine, rows = own_machine(kind, sizes, size, all_of_them), visible_rows(sizes)
    scores = exact_scores(flat := flatten(machine, np.float64), rows)
    common, answer = told_of(machine, rows, Method("exact"))
    assert common["log_z"] == pytest.approx(ref.log_partition(*flat.plain), rel=1e-13)
    expected = np.minimum(scores - ref.log_partition(*flat.plain), 0).mean()
    assert answer["log_likelihood"]["mean"] == pytest.approx(expected, rel=1e-12)
    assert expected < 0
    _, of_best = told_of(machine, rows[[scores.argmax()]], Method("exact"))
    assert of_best["log_likelihood"]["mean"] <= 0


def test_float32_that_takes_a_likelihood_above_0_is_not_believed():
    """Activations of 1e9 are rounded by 64."""
    machine, how = (
        random_machine(6, 4, seed=3, scale=1e9),
        Method("exact", checked=False),
    )
    best = states(6)[[(-ref.free_energy(states(6), *wide(machine))).argmax()]].astype(
        np.uint8
    )
    found = [told_of(rbm(*machine), rows, how)[1] for rows in (best, 1 - best)]
    high, low = (answer["log_likelihood"]["mean"] for answer in found)
    assert low < -1e9 < high <= 0


@pytest.mark.parametrize("size", [2e38, 1e300])
def test_what_float32_cannot_hold_is_refused_where_it_is_used(size):
    machine, rows = own_machine("rbm", (6, 4), size, False), visible_rows((6, 4))
    with pytest.raises(CbmError, match=r"^m\.npz: .*e\+"):
        told_of(machine, rows, Method("ais", temperatures=20, runs=5))


@pytest.mark.parametrize(
    ("levels", "shape", "rows"), [(1, (20, 1200), 700), (255, (6, 4), 10)]
)
def test_many_rows_of_many_units_and_grey_rows_are_summed_without_loss(
    levels, shape, rows
):
    machine = random_machine(*shape, seed=8, scale=0.3)
    rows = (
        np.random.default_rng(1)
        .integers(0, levels + 1, (rows, shape[0]))
        .astype(np.uint8)
    )
    expected = -ref.free_energy(rows / levels, *wide(machine)).mean()
    assert mean_score(machine, rows, 1 / levels) == pytest.approx(expected, rel=1e-6)


# Annealing


def test_the_default_schedule_is_the_papers():
    betas = estimates.schedule()
    assert np.histogram(betas, np.float32([0, 0.5, 0.9, 1]))[0].tolist() == [
        500,
        4_000,
        10_001,
    ]
    assert (betas[0], betas[-1]) == (0, 1)
    assert (np.diff(betas) > 0).all()


@pytest.mark.parametrize(
    ("rows", "n", "m", "scale"), [(9, 6, 4, 1.0), (40, 36, 32, 0.1)]
)
@pytest.mark.parametrize("direction", [1, -1])
def test_the_walk_is_that_of_the_reference_and_can_be_cut_anywhere(
    direction, rows, n, m, scale
):
    """Also of a machine that is large enough to add up rows of weights."""
    machine, base = random_machine(n, m, 2, scale), random_machine(n, 1, 3, scale)[1]
    betas = estimates.schedule(40)[::direction].copy()
    start = (np.random.default_rng(1).random((rows, n)) < 0.5).astype(np.float32)
    moved, found = kernel_walk(machine, base, start, betas, 7)
    theta, x, log_weight = wide(machine), start.astype(float), np.zeros(rows)
    to_h = x @ theta[0]
    for k, pair in enumerate(itertools.pairwise(betas.astype(float))):
        u_h, u_x = np.split(uniform(7, k, "sampler", to_h.size + x.size), [to_h.size])
        u_h, u_x = u_h.reshape(to_h.shape), u_x.reshape(x.shape)
        x, to_h, gain = ref.ais_step(to_h, theta, base, pair, u_h, u_x)
        log_weight += gain
    assert (moved == x).all()
    assert_allclose(found, log_weight, atol=1e-5)
    _, pieces = kernel_walk(machine, base, start, betas, 7, cuts=(1, 20, 21))
    whole = estimates.walk(machine, base, start, betas, seed=7)[1]
    assert pieces.tobytes() == found.tobytes() == whole.tobytes()
    with pytest.raises(estimates.Stopped):
        estimates.walk(machine, base, start, betas, seed=7, should_stop=lambda: True)


def test_interval_is_of_three_standard_errors_on_both_sides():
    weights = np.array([1.0, 2.0, 3.0, 4.0])
    error = 3 * weights.std(ddof=1) / 2
    low, high = np.log(2.5 - error), np.log(2.5 + error)
    forward = estimates.summarise(np.log(weights), 0.5)
    assert forward.interval == pytest.approx((0.5 + low, 0.5 + high))


def test_effective_runs_and_doubts():
    summarise = estimates.summarise
    for runs, doubtful in (
        (4, True),
        (5, False),
    ):  # of 50, a tenth of which must carry the weight
        found = summarise(np.where(np.arange(50) < runs, 0.0, -100.0), 0.0)
        answer = {"log_z_interval": found.interval, "log_z_at_least": -9.0, "runs": 50}
        answer["effective_sample_size"] = found.effective_sample_size
        assert found.effective_sample_size == pytest.approx(runs)
        assert bool(likelihood.doubt_of(answer)) == doubtful
    assert summarise(np.array([100.0] + [0.0] * 49), 0.0).interval[0] == -np.inf
    w = np.array([1.0, 2, 3, 4])
    found = summarise(np.log(w), 1.0)
    assert found.log_z == pytest.approx(1 + np.log(2.5))
    assert found.effective_sample_size == pytest.approx(100 / 30)
    assert found.standard_error == pytest.approx(w.std(ddof=1) / 2 / 2.5)


def test_the_base_rate_is_the_smoothed_logit_of_the_mean():
    base = estimates.base_rate(np.array([0.0, 0.5, 1.0]), 9)
    assert_allclose(base, [np.log(0.05 / 0.95), 0, np.log(0.95 / 0.05)], rtol=1e-6)
    grey = Dataset("grey", np.uint8([[0, 255]]), levels=255)
    expected = estimates.base_rate(np.array([0, 1]), 1)
    assert_array_equal(likelihood.parts_of(grey, Method()).base, expected)
    assert estimates.log_z_of_base(np.zeros(3, np.float32), 4) == pytest.approx(
        7 * np.log(2)
    )


def test_a_subsample_is_random_in_order_and_shared_by_all_trials():
    rows = (np.arange(1000)[:, None] >> np.arange(10) & 1).astype(np.uint8)
    data = Dataset("numbers", rows, test=rows[:90])
    found = likelihood.parts_of(data, Method(rows=100)).rows
    same = likelihood.parts_of(data, Method(rows=100, seed=2), ["train"]).rows
    numbers = found["train"] @ (1 << np.arange(10))
    assert (np.diff(numbers) > 0).all()
    assert (len(numbers), len({*np.diff(numbers)}) > 10) == (
        100,
        True,
    )  # not each tenth row
    assert 30 < (numbers < 500).sum() < 70
    assert_array_equal(found["test"], rows[:90])
    assert_equal(same, {"train": found["train"]})


# What is proved of log Z


def estimated(machine, rows, unit=1.0, sizes=None, **how):
    """What annealing says about a machine (W, b, c), and about its rows."""
    arrays = [np.ascontiguousarray(array, np.float32) for array in machine]
    sizes = sizes or arrays[0].shape
    flat = Flat(*arrays, np.full(len(arrays[1]) - sizes[0], 0.5, np.float32), sizes)
    base = np.linspace(
        -2, 1, sizes[0], dtype=np.float32
    )  # which known states must not count
    method = Method("ais", **{"temperatures": 100, "checked": False} | how)
    return told_of(flat, rows, method, unit, base)


@pytest.fixture
def states_alone(monkeypatch):
    """Proofs by sums over states that were found, without any other."""
    monkeypatch.setattr(certificate, "_LISTED_BITS", 0)
    monkeypatch.setattr(certificate, "log_z_by_means", lambda *given: -np.inf)


@pytest.fixture
def means_alone(monkeypatch):
    """Proofs by independent units, without any other."""
    monkeypatch.setattr(certificate, "_LISTED_BITS", 0)
    monkeypatch.setattr(certificate, "_log_sum", lambda *given: -np.inf)


SIZES = [((9, 4), 1), ((4, 9), 3), ((1, 1), 1), ((4, 3, 3, 2), 2)]


@pytest.mark.parametrize(("sizes", "scale"), SIZES)
@pytest.mark.parametrize("unit", [1.0, 1 / 255])
def test_log_z_is_at_least_what_the_known_states_weigh(sizes, scale, unit):
    all_rows = (states(sizes[0]) * round(1 / unit)).astype(np.uint8)
    for seed in range(5):
        machine = flatten(Layered("dbm", *layered(sizes, seed, scale)))
        theta = machine.plain
        for rows in (all_rows, np.repeat(all_rows[:1], 3, axis=0), all_rows.clip(0, 1)):
            common, _ = estimated(theta, rows, unit, sizes=sizes, runs=5)
            assert common["log_z_at_least"] < log_z(theta)


@pytest.mark.parametrize("size", [1, 100, 1e4, 1e6])
@pytest.mark.parametrize("sizes", [(8, 6), (3, 8), (5, 4, 3), (4, 4, 3, 2)])
def test_what_is_proved_of_terms_that_cancel_is_never_wrong(sizes, size):
    """Large terms cancel in -F(x); by sums over all states in 80 bits."""
    rows = states(sizes[0]).astype(np.uint8)
    for seed in range(10):
        random, weights, biases = (
            np.random.default_rng(seed),
            [],
            [np.zeros(n) for n in sizes],
        )
        for k, (n, m) in enumerate(itertools.pairwise(sizes)):
            signs = random.permuted(np.tile(np.arange(m) % 2 * 2 - 1, (n, 1)), axis=1)
            weights.append(size * signs * random.uniform(0.5, 1.5, (n, m)))
            biases[k] -= np.maximum(weights[-1], 0).sum(axis=1)
        biases = [b + random.normal(0, 1, len(b)) for b in biases]
        halves = tuple(np.full(n, 0.5) for n in sizes)
        machine = flatten(Layered("dbm", tuple(weights), tuple(biases), halves))
        wider = [array.astype(np.longdouble) for array in machine.plain]
        common, answer = told_of(
            machine, rows, Method("ais", 3, 5, seed=seed, checked=False)
        )
        below = ref.log_partition(*wider) - common["log_z_at_least"]
        assert below > 0
        margin, terms = (
            certificate.rounding(machine),
            sum(np.abs(it).sum() for it in wider),
        )
        assert margin >= 2 * sum(machine.W.shape) * np.finfo(float).eps * terms
        if len(sizes) == 2:
            relative = 1e-11 * (1 + abs(common["log_z_at_least"]))
            assert below < 2 * margin + relative
            exact = np.mean(-ref.free_energy(rows, *wider) - ref.log_partition(*wider))
            above = answer["log_likelihood_at_most"]["mean"] - exact
            assert 1.5 * margin < above < 2 * below + relative + 1e-12 * abs(exact)


@pytest.mark.usefixtures("states_alone")
def test_starts_of_their_own_reach_a_state_that_neither_rows_nor_runs_know():
    for seed in range(10):
        machine, state = narrow_machine(seed)
        rows = (
            np.random.default_rng(seed + 100).integers(0, 2, (5, 20)).astype(np.uint8)
        )
        assert (rows != state).any(axis=1).all()
        found, _ = estimated(machine, rows, seed=seed, temperatures=30)
        exact = log_z([array.astype(np.float32) for array in machine])
        assert found["log_z_at_least"] == pytest.approx(exact, abs=0.01)
        _, answer = estimated(
            machine, state[None].astype(np.uint8), temperatures=3, runs=2
        )
        assert (
            -1e-3 < answer["log_likelihood_at_most"]["mean"] <= 0
        )  # as rows are binary


def proved(machine, rows):
    """What is proved of a machine by these rows and by runs that end at x = 0."""
    rows, ends = rows.astype(np.uint8), np.zeros((4, rows.shape[1]), np.float32)
    known = [certificate.Scored(rows, exact_scores(machine, rows))]
    return certificate.log_z_at_least(machine, ends, known, 1.0)


@pytest.mark.usefixtures("states_alone")
@pytest.mark.parametrize("seed", range(5))
def test_the_mirror_image_of_a_row_reaches_a_state_that_many_hidden_units_carry(seed):
    """Each hears 8 of 16 units and needs 6; two keep a unit on; the last one turns all
    off.
    """
    random, a, b, c = (
        np.random.default_rng(seed),
        4.0,
        np.full(24, -8.0),
        np.full(17, -22.0),
    )
    state, W = random.permutation(np.arange(24) < 16), np.zeros((24, 17))
    for j in range(16):
        W[random.choice(np.flatnonzero(state), 8, replace=False), j] = a
    W[:, 16] = -W.sum(axis=1)
    machine = rbm(W, b, c)
    assert proved(machine, ~state[None]) == pytest.approx(
        log_z(machine.plain), abs=0.05
    )


@pytest.mark.usefixtures("states_alone")
@pytest.mark.parametrize("seed", range(5))
def test_the_units_that_a_hidden_unit_prefers_are_a_start(seed):
    """Eight hidden units carry a state, the others its mirror image; one, or all, carry
    none.
    """
    random, a = np.random.default_rng(seed), 2.0
    sign = random.permutation(np.arange(12) % 2 * 2 - 1)
    W = a * np.outer(sign, np.arange(16) % 2 * 2 - 1)
    machine = rbm(W, np.full(12, -2 * a), np.full(16, -3 * a))
    rows = np.zeros((1, 12))
    assert proved(machine, rows) == pytest.approx(log_z(machine.plain), abs=0.05)


@pytest.mark.usefixtures("states_alone")
def test_steps_find_states_that_are_heavier_than_rows_and_ends_of_runs(monkeypatch):
    machine = rbm(*random_machine(24, 20, seed=3))
    rows, found = np.zeros((1, 24)), []
    for steps in (0, certificate._STEPS):
        monkeypatch.setattr(certificate, "_STEPS", steps)
        found.append(proved(machine, rows))
    few, many = found
    assert few + 0.3 < many < log_z(machine.plain)


def test_known_states_are_distinct_and_the_heaviest_come_first():
    machine = rbm(*random_machine(9, 7, seed=2))
    ends = states(9).astype(np.float32)[:5].repeat(2, axis=0)
    found = certificate._known_states(machine, ends, points=ends[:3])
    assert len(np.unique(found, axis=0)) == len(found)
    weights = -ref.free_energy(found, *wide(machine.plain))
    assert (np.diff(weights) < 1e-5).all()
    for end in ends:
        assert (found == end).all(axis=1).any()


def narrow_machine(seed, n=20, m=6):
    """A machine with one state 12 to 40 nats above all others together, without a slope
    to it.
    """
    W, b, c = (
        array.astype(float) for array in random_machine(n, m, seed=seed, scale=0.5)
    )
    random, steep = np.random.default_rng(seed), 20.0
    state, depth = random.integers(0, 2, n), random.uniform(12, 40)
    W[:, 0] = steep * (2 * state - 1)
    others = W[:, 1:], b, c[1:]
    c[0] = (
        log_z(others)
        + depth
        + ref.free_energy(state[None], *others)[0]
        - steep * state.sum()
    )
    return (W, b, c), state


def test_an_estimate_that_misses_a_known_state_is_doubtful():
    silent, missed = 0, 0
    for seed in range(50):
        machine, state = narrow_machine(seed)
        rows = np.random.default_rng(seed).integers(0, 2, (10, 20)).astype(np.uint8)
        rows[3] = state
        found, _ = estimated(machine, rows, seed=seed)
        exact = log_z([array.astype(np.float32) for array in machine])
        assert found["log_z_at_least"] == pytest.approx(exact, abs=0.01)
        if abs(found["log_z"] - exact) > 1:
            silent += not found["doubtful"]
            disproved = found["effective_sample_size"] == 0
            assert (
                f"{found['log_z_at_least']:.2f}" in likelihood.doubt_of(found)
            ) == disproved
            missed += disproved
    assert silent == 0
    assert missed > 20  # the others rest on a single run


def test_healthy_estimates_are_not_doubtful():
    doubtful = 0
    for seed in range(50):
        rows, machine = (
            states(9).astype(np.uint8),
            random_machine(9, 6, seed=seed, scale=0.5),
        )
        common, _ = estimated(machine, rows, seed=seed, temperatures=1000)
        doubtful += common["doubtful"]
    assert doubtful <= 1


def test_trials_whose_estimates_known_states_disprove_are_counted(monkeypatch):
    run_grid(GRID)
    monkeypatch.setattr(likelihood, "log_z_at_least", lambda *given, **named: 1e6)
    assert (
        "log Z of 8 trials"
        in cbm("evaluate", "--ais", "--temperatures", 3, "-j", 0).stderr
    )


def test_offsets_that_make_biases_infinite_are_refused_in_one_line():
    arrays = {
        "weights_0": np.full((2, 2), 1e308),
        "offsets_0": np.ones(2),
        "offsets_1": np.ones(2),
    }
    np.savez("m.npz", **arrays, biases_0=np.full(2, -1e308), biases_1=np.zeros(2))
    np.save("rows.npy", np.eye(2, dtype=np.uint8))
    (line,) = evaluate_file(code=2).splitlines()
    assert holds(line, "m.npz|inf|float64")
