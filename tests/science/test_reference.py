"""The reference against sums in plain Python, finite differences and the paper's
theorems.
"""

import itertools
import math

import numpy as np
import pytest
from cbm_cli import reference as ref
from cbm_cli.letters import LETTERS
from numpy.testing import assert_allclose

N, M = 4, 3
RNG = np.random.default_rng(1)
THETA = RNG.standard_normal((N, M)), RNG.standard_normal(N), RNG.standard_normal(M)
OFFSETS = RNG.random(N), RNG.random(M)
NO_OFFSETS = np.zeros(N), np.zeros(M)
ROWS = ref.states(N)[[1, 2, 4, 7, 8, 11, 14]]
PAIRS = ["".join(pair) for pair in itertools.product(LETTERS, repeat=2)]


def bits(n):
    return [state[::-1] for state in itertools.product((0, 1), repeat=n)]


def naive_energy(x, h, theta=THETA, offsets=OFFSETS):
    """The energy, term by term."""
    (W, b, c), (mu, lam) = theta, offsets
    total = -sum((x[i] - mu[i]) * b[i] for i in range(len(b)))
    total -= sum((h[j] - lam[j]) * c[j] for j in range(len(c)))
    pairs = itertools.product(range(len(b)), range(len(c)))
    return total - sum((x[i] - mu[i]) * W[i, j] * (h[j] - lam[j]) for i, j in pairs)


def naive_table(theta=THETA, offsets=None):
    """p(x, h) of all pairs of states, and log Z; without offsets unless they are
    given.
    """
    n, m = theta[0].shape
    offsets, pairs = (
        offsets or (np.zeros(n), np.zeros(m)),
        itertools.product(bits(n), bits(m)),
    )
    weights = {pair: math.exp(-naive_energy(*pair, theta, offsets)) for pair in pairs}
    Z = sum(weights.values())
    return {pair: weight / Z for pair, weight in weights.items()}, math.log(Z)


def naive_log_p(rows, theta=THETA, offsets=None):
    """log p of rows of the first units of x."""
    table, _ = naive_table(theta, offsets)
    p = [
        sum(p for (of_x, _), p in table.items() if of_x[: len(x)] == tuple(x))
        for x in rows
    ]
    return np.log(p)


def flat(theta):
    return np.concatenate([np.ravel(part) for part in theta])


def shaped(vector, n=N, m=M):
    return vector[: n * m].reshape(n, m), vector[n * m : n * m + n], vector[n * m + n :]


def slopes(function, theta, step=1e-5):
    """Derivatives with respect to all parameters, by central differences."""
    vector, (n, m) = flat(theta), theta[0].shape
    shifts = step * np.eye(len(vector))
    ends = [
        [function(shaped(vector + sign * e, n, m)) for sign in (1, -1)] for e in shifts
    ]
    return np.array([(up - down) / (2 * step) for up, down in ends])


def assert_close(found, expected, atol=1e-12):
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, atol=atol)


# The machine


@pytest.mark.parametrize("offsets", [OFFSETS, NO_OFFSETS], ids=["centered", "plain"])
def test_energies_conditionals_and_likelihoods_are_sums_over_all_states(offsets):
    (W, b, c), (mu, lam) = THETA, offsets
    table, log_z = naive_table(THETA, offsets)
    assert ref.log_partition(W, b, c, mu, lam) == pytest.approx(log_z)
    assert ref.log_partition(W.T, c, b, lam, mu) == pytest.approx(log_z)
    all_x, all_h = bits(N), bits(M)
    for x, h in table:
        found = ref.energy(np.array([x]), np.array([h]), W, b, c, mu, lam)
        assert found == pytest.approx(naive_energy(x, h, THETA, offsets))
    p = np.array([[table[x, h] for h in all_h] for x in all_x])
    given_x, given_h = p / p.sum(axis=1)[:, None], p.T / p.sum(axis=0)[:, None]
    all_x, all_h = np.array(all_x), np.array(all_h)
    assert_allclose(ref.hidden_mean(all_x, W, c, mu), given_x @ all_h)
    assert_allclose(ref.visible_mean(all_h, W, b, lam), given_h @ all_x)
    log_p = np.log(p.sum(axis=1))
    assert_allclose(ref.log_likelihood(all_x, W, b, c, mu, lam), log_p)
    assert_allclose(-ref.free_energy(all_x, W, b, c, mu, lam) - log_z, log_p)


def test_other_offsets_leave_the_distribution():
    new = RNG.random(N), RNG.random(M)
    moved = ref.transform(THETA, OFFSETS, new)
    assert naive_table(moved, new)[0] == pytest.approx(naive_table(THETA, OFFSETS)[0])
    assert_close(ref.transform(moved, new, OFFSETS), THETA)


@pytest.mark.parametrize("f", [[1, 1, 1, 1], [1, 0, 1, 0]])
@pytest.mark.parametrize("g", [[0, 0, 0], [0, 1, 0]])
def test_a_flipped_machine_has_the_energies_of_the_flipped_states(f, g):
    machine = ref.flip(THETA, OFFSETS, np.array(f), np.array(g))
    for x, h in itertools.product(bits(N), bits(M)):
        mirrored = naive_energy(
            np.abs(np.subtract(x, f)), np.abs(np.subtract(h, g)), *machine
        )
        assert mirrored == pytest.approx(naive_energy(x, h))


def test_the_inverse_sigmoid_gives_a_machine_without_weights_the_data_mean():
    mean = np.array([0.1, 0.5, 0.9])
    found = ref.visible_mean(
        np.zeros((1, 2)), np.zeros((3, 2)), ref.inverse_sigmoid(mean)
    )
    assert_allclose(found, [mean])


# Gradients


def phases(offsets=NO_OFFSETS):
    (W, b, c), (mu, lam) = THETA, offsets
    return ref.batch(ROWS, ref.hidden_mean(ROWS, W, c, mu)), ref.model_phase(
        W, b, c, mu, lam
    )


def mean_log_p(offsets):
    return lambda theta: np.mean(naive_log_p(ROWS, theta, offsets))


@pytest.mark.parametrize("offsets", [OFFSETS, NO_OFFSETS], ids=["centered", "standard"])
def test_the_gradient_is_the_derivative_of_the_log_likelihood(offsets):
    found = ref.gradient(*phases(offsets), *offsets)
    assert_allclose(flat(found), slopes(mean_log_p(offsets), THETA), atol=1e-8)


@pytest.mark.parametrize("gains", [(2, 1), (1, 2)])
@pytest.mark.parametrize("side", ["visible", "hidden"])
def test_a_step_with_doubled_inputs_does_not_notice_a_flip(side, gains):
    (up, down), (mu, lam), both = gains, OFFSETS, phases()

    def step(phases, mu, lam):
        return ref.plain_step(ref.gradient(*phases, mu, lam), mu, lam, gains)

    W, b, c = step(both, mu, lam)
    if side == "visible":
        other = step([phase._replace(x=1 - phase.x) for phase in both], 1 - mu, lam)
        assert_close(other, (-W, -b, c + up * W.sum(axis=0)))
    else:
        other = step([phase._replace(h=1 - phase.h) for phase in both], mu, 1 - lam)
        assert_close(other, (-W, b + down * W.sum(axis=1), -c))


def test_aa_is_the_enhanced_gradient_and_dm_and_md_share_its_weight_step_alone():
    data, model = phases()
    x_d, h_d, x_m, h_m = (
        data.p @ data.x,
        data.p @ data.h,
        model.p @ model.x,
        model.p @ model.h,
    )
    enhanced = ref.enhanced_gradient(data, model)
    assert_close(
        ref.centered_gradient(data, model, (x_d + x_m) / 2, (h_d + h_m) / 2), enhanced
    )
    for mu, lam in ((x_d, h_m), (x_m, h_d)):
        found = ref.centered_gradient(data, model, mu, lam)
        assert_allclose(found[0], enhanced[0], atol=1e-14)
        assert np.abs(flat(found) - flat(enhanced)).max() > 1e-6


def test_decay_pulls_weights_to_zero_and_leaves_the_centered_biases():
    W, _, _ = THETA
    decay = ref.weight_decay(W, l1=0.3, l2=0.2)
    slope = slopes(
        lambda theta: -0.3 * np.abs(theta[0]).sum() - 0.1 * (theta[0] ** 2).sum(), THETA
    )
    assert_allclose(flat((decay, *NO_OFFSETS)), slope, atol=1e-9)
    dW, db, dc = ref.gradient(*phases(), *OFFSETS)
    steps = [ref.plain_step((dW + term, db, dc), *OFFSETS) for term in (0.0, decay)]
    ends = [
        ref.transform(ref.ascend(THETA, step, 0.1), NO_OFFSETS, OFFSETS)
        for step in steps
    ]
    assert_allclose(ends[1][0] - ends[0][0], 0.1 * decay)
    assert_close(ends[0][1:], ends[1][1:])


# Fisher matrices


def log_joint(theta):
    return np.log([*naive_table(theta)[0].values()])


def log_marginal(theta):
    return naive_log_p(bits(N), theta)


@pytest.mark.parametrize(
    ("log_p", "phase"), [(log_joint, ref.joint_phase), (log_marginal, ref.model_phase)]
)
def test_fisher_matrices_are_expected_products_of_scores(log_p, phase):
    scores = slopes(log_p, THETA)
    expected = (scores * np.exp(log_p(THETA))) @ scores.T
    assert_allclose(ref.fisher(phase(*THETA)), expected, atol=1e-8)


@pytest.mark.parametrize("damping", [0.0, 0.1])
def test_the_natural_gradient_solves_for_the_gradient(damping):
    F, gradient = ref.fisher(ref.joint_phase(*THETA)), ref.gradient(*phases())
    step = flat(ref.natural_gradient(gradient, F, damping))
    assert_allclose(F @ step + damping * step, flat(gradient), atol=1e-12)


# Both algorithms


def estimator(scheme):
    """Offsets of a scheme, with the same noise for every new estimator."""
    rng = np.random.default_rng(3)
    return lambda data, model: tuple(
        ref.offset_target(
            LETTERS[letter].shares,
            data.p @ of_data,
            model.p @ of_model,
            rng.random(of_data.shape[1]),
        )
        for letter, of_data, of_model in zip(scheme, data[:2], model[:2], strict=True)
    )


@pytest.mark.parametrize("before", [True, False], ids=["before", "later"])
@pytest.mark.parametrize("scheme", PAIRS)
def test_algorithm_1_is_algorithm_2(scheme, before):
    def trained(algorithm, theta):
        batches = [ROWS[:4], ROWS[3:]] * 5
        phase, rates = lambda data, *machine: ref.model_phase(*machine), (0.2, 0.3, 0.1)
        return algorithm(
            theta, OFFSETS, batches, phase, estimator(scheme), rates, before
        )

    centered, offsets = trained(
        ref.algorithm_1, ref.transform(THETA, NO_OFFSETS, OFFSETS)
    )
    plain, same_offsets = trained(ref.algorithm_2, THETA)
    assert_close(offsets, same_offsets)
    assert_close(ref.transform(centered, offsets, NO_OFFSETS), plain, 1e-11)


def test_letters_weigh_means_a_half_and_noise():
    values = {"0": 0, "d": 0.2, "m": 0.6, "a": 0.4, "h": 0.5, "r": 0.9}
    assert values.keys() == LETTERS.keys()
    shares = np.transpose([LETTERS[letter].shares for letter in values])
    assert_allclose(ref.offset_target(shares, 0.2, 0.6, 0.9), [*values.values()])
    assert ref.moving_average(0.2, 0.7, 1) == 0.7
    assert ref.moving_average(0.2, 0.7, 0.1) == pytest.approx(0.25)


# Deep machines


def deep_case(deep_weights=1.0):
    """Layers 3, 3, 2: units 3 and 4 of x are the second hidden layer."""
    rng = np.random.default_rng(5)
    W, b, c = (rng.standard_normal(shape) for shape in ((5, 3), 5, 3))
    W[3:] *= deep_weights
    return W, b, c


def test_the_bound_is_the_expectation_under_independent_units_and_below_log_p():
    theta, rows = deep_case(), ref.states(3)
    even, odd, _ = ref.mean_field(rows, np.array([0.4, 0.6]), theta, 1e-9, 2000)
    found, (_, log_z) = ref.lower_bound(rows, even, odd, theta), naive_table(theta)
    for r, x in enumerate(bits(3)):
        expected = -log_z
        for s, h in itertools.product(bits(2), bits(3)):
            means = zip((*s, *h), (*even[r], *odd[r]), strict=True)
            q = math.prod(mean if unit else 1 - mean for unit, mean in means)
            energy = naive_energy((*x, *s), h, theta, (np.zeros(5), np.zeros(3)))
            expected -= q * (energy + math.log(q)) if q > 0 else 0
        assert found[r] == pytest.approx(expected, abs=1e-9)
    gaps = naive_log_p(rows, theta) - found
    assert gaps.min() > -1e-12
    assert gaps.max() > 1e-4


def test_the_bound_is_tight_without_weights_to_deeper_layers_and_for_an_rbm():
    theta, rows = deep_case(deep_weights=0.0), ref.states(3)
    even, odd, made = ref.mean_field(rows, np.array([0.4, 0.6]), theta)
    assert made == 2  # the first round still moves the deeper layer from its start
    assert_allclose(
        ref.lower_bound(rows, even, odd, theta), naive_log_p(rows, theta), atol=1e-12
    )
    even, odd, made = ref.mean_field(ROWS, np.zeros(0), THETA)
    assert (even.shape, made) == ((len(ROWS), 0), 1)
    assert_allclose(
        ref.lower_bound(ROWS, even, odd, THETA), naive_log_p(ROWS), atol=1e-12
    )


# Auto encoders


def auto_encoder(sizes):
    normal, uniform = (
        np.random.default_rng(6).standard_normal,
        np.random.default_rng(7).random,
    )
    shapes = [((n, m), n, m) for n, m in itertools.pairwise(sizes)]
    return [
        (tuple(map(normal, shape)), tuple(map(uniform, shape[1:]))) for shape in shapes
    ]


def naive_layers(x, pairs):
    """Layers of one row, unit by unit."""
    y = [x]
    for (W, _, c), (mu, _) in pairs:
        y.append([1 / (1 + math.exp(-a)) for a in (y[-1] - mu) @ W + c])
    z = [y[-1]]
    for (W, b, _), (_, lam) in pairs[::-1]:
        z.append([1 / (1 + math.exp(-a)) for a in W @ (z[-1] - lam) + b])
    return y, z[::-1]


@pytest.mark.parametrize("sizes", [(4, 3), (4, 2, 3, 2)], ids=str)
def test_back_propagation_is_the_derivative_of_the_cost(sizes):
    pairs, x = auto_encoder(sizes), RNG.random((5, 4))
    y, z = ref.auto_encode(x, pairs)
    for r in range(len(x)):
        for found, expected in zip((y, z), naive_layers(x[r], pairs), strict=True):
            assert_close([layer[r] for layer in found], expected)

    def cost(theta, k):
        changed = [*pairs[:k], (theta, pairs[k][1]), *pairs[k + 1 :]]
        made = np.array([naive_layers(row, changed)[1][0] for row in x])
        return -(x * np.log(made) + (1 - x) * np.log(1 - made)).sum() / len(x)

    assert ref.reconstruction_cost(x, z[0]) == pytest.approx(cost(pairs[0][0], 0))
    for k, found in enumerate(ref.back_propagate(x, pairs)):
        expected = slopes(lambda theta, k=k: cost(theta, k), pairs[k][0])
        assert_allclose(flat(found), expected, atol=1e-6)
