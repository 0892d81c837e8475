"""Lower bounds of log Z by independent units, against sums over all states."""

import itertools

import numpy as np
import pytest
from cbm_cli import reference as ref
from cbm_cli.kernels import sharing
from cbm_cli.kernels.sharing import using_cores
from cbm_cli.machines import certificate, factorial
from cbm_cli.machines.factorial import Side
from cbm_cli.machines.likelihood import Method, Parts, evaluate
from cbm_cli.machines.models import Layered, flatten
from cbm_cli.machines.threads import one_thread
from numpy.testing import assert_allclose

from tests.oracles import log_z, random_machine, rbm, states


def side_of(n, m, seed, scale=1.0):
    return Side._make(random_machine(n, m, seed, scale)).wide


def random_means(n, seed):
    """Means of which some are 0, some 1, and the others between."""
    return np.random.default_rng(seed).uniform(-0.3, 1.3, n).clip(0, 1)


def weights_of_states(q):
    """The probability of each state, units being independent with means q."""
    x = states(len(q))
    return np.prod(np.where(x == 1, q, 1 - q), axis=1)


def expected(side, q):
    """E log(1 + exp(a_j)), by the sum over all states."""
    return weights_of_states(q) @ ref.softplus(states(len(q)) @ side.W + side.c)


def divergence(side, q):
    """sum_x q(x) log(q(x) / p(x)), by the sum over all states, and log Z."""
    p, scores = weights_of_states(q), -ref.free_energy(states(len(q)), *side)
    total = np.logaddexp.reduce(scores)
    of_states = p[p > 0] @ (np.log(p[p > 0]) - scores[p > 0] + total)
    return of_states, total


def rounding(side):
    return 1e-13 * sum(np.abs(array).sum() + array.size for array in side)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("scale", [0.01, 0.3, 3, 30, 1e3, 1e6])
@pytest.mark.parametrize("shape", [(1, 1), (2, 9), (9, 3)])
def test_the_expected_softplus_is_at_least_what_cosines_and_means_say(
    shape, scale, seed
):
    side, q = side_of(*shape, seed, scale), random_means(shape[0], seed)
    exact, least = expected(side, q), factorial.expected_softplus(side, q)
    assert (least <= exact + rounding(side)).all()
    by_mean = ref.softplus(q @ side.W + side.c)
    assert (least >= by_mean).all()
    if scale <= 3:
        assert_allclose(least, exact, atol=0.02 + 0.01 * scale)


def test_cosines_are_close_where_the_mean_is_not():
    """With a = +-2, log(1 + exp(a)) is 1.13 on average, and 0.69 at the average."""
    side = Side(W=np.full((1, 1), 4.0), b=np.zeros(1), c=np.full(1, -2.0))
    (least,) = factorial.expected_softplus(side, np.full(1, 0.5))
    exact = (np.log1p(np.exp(2)) + np.log1p(np.exp(-2))) / 2
    assert exact - 1e-5 < least < exact


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_a_bound_is_log_z_less_the_divergence_of_its_means(seed, turned):
    side = side_of(6, 4, seed, scale=[0.2, 1, 2][seed % 3])
    side = side.turned if turned else side
    q = random_means(len(side.b), seed)
    lost, total = divergence(side, q)
    bound = factorial.factorial_bound(side, q)
    assert total - lost - 0.3 < bound <= total - lost + rounding(side)


@pytest.mark.parametrize("turned", [False, True])
def test_better_means_diverge_less(turned):
    for seed in range(10):
        machine = random_machine(8, 7, seed)
        side = Side._make(machine).turned if turned else Side._make(machine)
        start = np.full((1, len(side.b)), 0.5, np.float32)
        settled = factorial.fixed_points(side, np.eye(len(side.b), dtype=np.float32))
        before, of_mean_field, after = (
            divergence(side.wide, q[0].astype(float))[0]
            for q in (start, settled, factorial.better_means(side, settled))
        )
        assert after < of_mean_field + 0.01
        assert after < before


def test_mean_field_ends_at_its_fixed_points_the_best_first():
    several = 0
    for seed in range(10):
        side = Side._make(random_machine(9, 8, seed, scale=2))
        starts = states(9).astype(np.float32)[::7]
        q = factorial.fixed_points(side, starts)
        next_q = ref.visible_mean(ref.hidden_mean(q, side.W, side.c), side.W, side.b)
        assert_allclose(q, next_q, atol=0.02)
        of_all = starts.clip(0.05, 0.95)
        for _ in range(30):
            of_h = ref.hidden_mean(of_all, side.W, side.c)
            of_all = ref.visible_mean(of_h, side.W, side.b)
        first, *others = ref.entropy(q) - ref.free_energy(q, *side)
        best = ref.entropy(of_all) - ref.free_energy(of_all, *side)
        assert first == pytest.approx(best.max(), abs=0.01)
        assert all(other <= first for other in others)
        several += best.max() > best.min() + 1
    assert several


@pytest.mark.parametrize("scale", [0.3, 1, 3])
def test_parts_share_no_state_and_leave_none_out(scale):
    """With six units all are fixed: the parts are the states."""
    for seed in range(10):
        few, more = (Side._make(random_machine(n, 5, seed, scale)) for n in (6, 9))
        q = np.full(6, 0.4, np.float32)
        total = log_z(few.wide)
        assert factorial.sum_of_parts(few, q) == pytest.approx(total, abs=1e-9)
        q = factorial.fixed_points(more, states(9).astype(np.float32)[::7])[0]
        undivided = factorial.factorial_bound(more.wide, q)
        divided = factorial.sum_of_parts(more, q)
        assert undivided - 0.2 < divided < log_z(more.wide)


def in_part(x, part):
    """Which states have the held units of a part."""
    return (x[:, part.held] == part.means[part.held]).all(axis=1)


def test_no_state_is_in_two_parts_around_modes():
    x = states(7)
    for seed in range(20):
        random = np.random.default_rng(seed)
        modes = random.random((random.integers(2, 5), 7)).astype(np.float32)
        parts = factorial.disjoint_parts(modes)
        assert len(parts) == len(modes)
        assert sum(in_part(x, part).astype(int) for part in parts).max() == 1
        same = factorial.disjoint_parts(modes[[0, 0]])
        assert len(same) == 1


def test_a_part_is_split_into_states_that_it_has():
    x = states(7)
    for seed in range(10):
        side = Side._make(random_machine(7, 5, seed, scale=2))
        q = np.full(7, 0.5, np.float32)
        q[[2, 4, 5]] = 1, 0, 1
        part = factorial.Part(q, np.array([2, 4, 5]))
        scores = -ref.free_energy(x[in_part(x, part)], *side.wide)
        split = factorial.sum_of_parts(side, part.means, part.held)
        assert split == pytest.approx(np.logaddexp.reduce(scores), abs=1e-9)


def test_two_modes_far_apart_both_count():
    """Hidden units that agree or disagree with a pattern: two equal modes."""
    pattern = np.arange(20) % 2 * 2 - 1
    W = 1.5 * np.outer(pattern, np.ones(18))
    b, c = -W.sum(axis=1) / 2, -W.sum(axis=0) / 2
    machine = rbm(W, b, c)
    both = np.array([pattern > 0, pattern < 0]).astype(np.float32)
    exact = log_z(machine.plain)
    assert exact - 0.05 < factorial.log_z_by_means(machine, both) < exact
    one = factorial.log_z_by_means(machine, both[:1])
    assert one == pytest.approx(exact - np.log(2), abs=0.05)


@pytest.fixture
def means_alone(monkeypatch):
    """Proofs by independent units, without those by sums over states."""
    monkeypatch.setattr(certificate, "_LISTED_BITS", 0)
    monkeypatch.setattr(certificate, "_log_sum", lambda *given: -np.inf)


def proved(machine, seed=0):
    """What is proved of a flat machine by runs that end anywhere, without rows."""
    random = np.random.default_rng(seed)
    ends = (random.random((5, len(machine.b))) < 0.5).astype(np.float32)
    return certificate.log_z_at_least(machine, ends, [], 1.0)


def exact_log_z(machine):
    """log Z by a sum over all states in 80 bits."""
    return ref.log_partition(*(array.astype(np.longdouble) for array in machine.plain))


def of_normal_weights(random, size):
    n, m = random.integers(1, 12, 2)
    return rbm(*(size * random.standard_normal(shape) for shape in ((n, m), n, m)))


def of_terms_that_cancel(random, size):
    """Inputs of hidden units add up to little, and so do the biases with them."""
    n, m = random.integers(4, 10), random.integers(4, 8)
    signs = random.permuted(np.tile(np.arange(m) % 2 * 2 - 1, (n, 1)), axis=1)
    W = size * signs * random.uniform(0.5, 1.5, (n, m))
    b = random.normal(0, 1, n) - np.maximum(W, 0).sum(axis=1)
    return rbm(W, b, random.normal(0, 1, m))


def of_planted_patterns(random, size):
    """Each hidden unit prefers one of two patterns; biases hold them back."""
    n, m = random.integers(4, 12), random.integers(2, 11)
    patterns = random.integers(0, 2, (2, n)) * 2 - 1
    W = size / n * patterns[random.integers(0, 2, m)].T + random.normal(0, 0.1, (n, m))
    b, c = random.normal(0, 1, n), -size * random.uniform(0, 0.6, m)
    return rbm(W, b, c)


def of_free_units(random, size):
    """Fair coins on both sides beside a collective state; small weights among them."""
    n, m = random.integers(2, 6, 2)
    W = np.zeros((n + 5, m + 4))
    W[:n, :m] = size * random.uniform(0.2, 1, (n, m))
    W[n:, m:] = random.choice([0, 0.3]) * random.standard_normal((5, 4))
    b, c = np.zeros(n + 5), np.zeros(m + 4)
    b[:n], c[:m] = -W[:n].sum(axis=1) / 2, -W[:, :m].sum(axis=0) / 2
    return rbm(W, b, c)


def of_several_layers(random, size):
    sizes = [*random.integers(1, 5, random.integers(3, 6))]
    weights = [
        size * random.standard_normal(shape) for shape in itertools.pairwise(sizes)
    ]
    biases = tuple(size * random.standard_normal(n) for n in sizes)
    offsets = tuple(np.zeros(n) for n in sizes)
    return flatten(Layered("dbm", tuple(weights), biases, offsets))


KINDS = (
    of_normal_weights,
    of_terms_that_cancel,
    of_planted_patterns,
    of_free_units,
    of_several_layers,
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [0.1, 1, 10, 1e3, 1e6])
@pytest.mark.usefixtures("means_alone")
def test_means_prove_nothing_above_log_z(kind, size):
    for seed in range(12):
        machine = kind(np.random.default_rng(seed), size)
        assert proved(machine, seed) < exact_log_z(machine), seed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [0.1, 1, 10, 1e3, 1e6])
def test_the_sum_over_all_states_of_few_units_proves_no_more_than_log_z(
    kind, size, monkeypatch
):
    monkeypatch.setattr(certificate, "_log_sum", lambda *given: -np.inf)
    for seed in range(12):
        machine = kind(np.random.default_rng(seed), size)
        below = exact_log_z(machine) - proved(machine, seed)
        assert 0 < below < 1e-7 * (1 + size)


@pytest.mark.parametrize(("scale", "most"), [(0.1, 0.01), (0.5, 0.2), (1, 0.8)])
@pytest.mark.usefixtures("means_alone")
def test_means_come_near_to_log_z_of_random_machines(scale, most):
    for seed in range(5):
        machine = rbm(*random_machine(16, 14, seed, scale))
        assert log_z(machine.plain) - most < proved(machine, seed)


def free_bits(seed):
    """30 to 59 fair coins beside a state of 20 units that is 1 to 8 nats above all
    others together, and log Z; the state fades among the coins.
    """
    random = np.random.default_rng(seed)
    W, b, c = (array.astype(float) for array in random_machine(20, 18, seed, 0.5))
    state, depth = random.integers(0, 2, 20), random.uniform(1, 8)
    W[:, 0] = 20 * (2 * state - 1)
    others = W[:, 1:], b, c[1:]
    of_state = ref.free_energy(state[None], *others)[0] - 20 * state.sum()
    c[0] = log_z(others) + depth + of_state
    coins = int(random.integers(30, 60))
    alone = rbm(W, b, c)
    beside = np.vstack([W, np.zeros((coins, 18))]), np.append(b, np.zeros(coins)), c
    return rbm(*beside), log_z(alone.plain) + coins * np.log(2)


def test_no_estimate_beside_free_bits_is_wrong_in_silence():
    wrong = 0
    for seed in range(24):
        machine, exact = free_bits(seed)
        random, n = np.random.default_rng(seed), len(machine.b)
        parts = Parts(
            {"train": (random.random((20, n)) < 0.3).astype(np.uint8)},
            1.0,
            np.zeros(n, np.float32),
        )
        how = Method("ais", temperatures=100, seed=seed, checked=False)
        answer, _ = evaluate(machine, parts, how)
        assert answer["log_z_at_least"] < exact
        if abs(answer["log_z"] - exact) > 1:
            wrong += 1
            assert answer["doubtful"], seed
    assert wrong > 15


def test_a_proof_has_the_same_bytes_with_any_number_of_cores(monkeypatch):
    monkeypatch.setattr(sharing, "cores", lambda: 99)
    machine = rbm(*random_machine(120, 90, seed=2, scale=0.2))
    rows = (np.random.default_rng(1).random((300, 120)) < 0.3).astype(np.uint8)
    parts = Parts({"train": rows}, 1.0, np.zeros(120, np.float32))
    answers = []
    for count in (1, 2, 5):
        with using_cores(count), one_thread():
            how = Method("ais", temperatures=30, runs=110, checked=False)
            answer, by_part = evaluate(machine, parts, how)
        most = by_part["train"]["log_likelihood_at_most"]["mean"]
        answers.append((answer["log_z_at_least"], most))
    assert len({*answers}) == 1
