"""Exact gradients, Fisher matrices and recorders against plain sums, finite differences and theorems."""

import re
from dataclasses import replace
from math import acos, degrees, sqrt
from pathlib import Path

import numpy as np
import pytest

from cbm_cli.datasets import Dataset
from cbm_cli.datasets.toys import bars_and_stripes
from cbm_cli.errors import CbmError
from cbm_cli.grid import RECORDERS
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels.machine import Trail
from cbm_cli.machines import gradients
from cbm_cli.machines.gradients import (
    ByParameter,
    centered_gradient,
    data_moments,
    exact_moments,
    fisher_matrix,
    free_energy,
    log_partition,
    natural_gradient,
    standard_gradient,
)
from cbm_cli.trial import recorders
from cbm_cli.trial.own_recorders import compile_recorder, load_recorder
from cbm_cli.trial.recorders import Context, check_recorders, record
from tests.oracles import joint, log_likelihoods, random_machine, sigmoid, states

SHAPES = [(3, 2), (2, 4), (4, 4), (1, 1)]
DOCS = Path(__file__).resolve().parents[1] / "docs" / "recorders.md"


def machine(n, m, seed=0):
    return tuple(array.astype(float) for array in random_machine(n, m, seed))


def some_rows(n, seed=0):
    return np.random.default_rng(seed).integers(0, 2, (7, n)).astype(np.uint8)


def split(theta, n, m):
    return theta[: n * m].reshape(n, m), theta[n * m : n * m + n], theta[n * m + n :]


def jacobian(function, theta, step=1e-5):
    """Derivatives of function(theta) (S,) by central differences: (S, P)."""
    shifts = step * np.eye(theta.size)
    return np.stack([(function(theta + e) - function(theta - e)) / (2 * step) for e in shifts], axis=-1)


def flat(W, b, c):
    return np.concatenate([W.ravel(), b, c])


# Expectations and gradients


@pytest.mark.parametrize("block", [4096, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_moments_of_the_model_are_sums_over_all_states(shape, block, monkeypatch):
    monkeypatch.setattr(gradients, "BLOCK", block)
    W, b, c = machine(*shape)
    p, log_z = joint(W, b, c)
    x, h = states(shape[0]), states(shape[1])
    found = exact_moments(W, b, c)
    np.testing.assert_allclose(found.W, x.T @ p @ h, atol=1e-13)
    np.testing.assert_allclose(found.b, p.sum(axis=1) @ x, atol=1e-13)
    np.testing.assert_allclose(found.c, p.sum(axis=0) @ h, atol=1e-13)
    assert log_partition(W, b, c) == pytest.approx(log_z, rel=1e-13)


@pytest.mark.parametrize("block", [4096, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_standard_gradient_is_that_of_the_log_likelihood(shape, block, monkeypatch):
    monkeypatch.setattr(gradients, "BLOCK", block)
    theta, rows = flat(*machine(*shape)), some_rows(shape[0])
    slope = jacobian(lambda t: log_likelihoods(*split(t, *shape), rows).mean(keepdims=True), theta)
    found = standard_gradient(*split(theta, *shape), rows)
    np.testing.assert_allclose(found.flat(), slope[0], atol=1e-9)


def test_moments_of_grey_rows_are_means_of_their_values():
    W, _, c = machine(3, 2)
    grey = np.array([[0, 51, 255], [102, 0, 204]], dtype=np.uint8)
    x = grey / 255
    h = sigmoid(x @ W + c)
    found = data_moments(W, c, grey, 1 / 255)
    np.testing.assert_allclose(found.W, x.T @ h / 2)
    np.testing.assert_allclose(found.b, x.mean(axis=0))
    np.testing.assert_allclose(found.c, h.mean(axis=0))


def centered_parameters(theta, shape, mu, lam):
    W, b, c = split(theta, *shape)
    return flat(W, b + W @ lam, c + W.T @ mu)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_centered_gradient_is_a_step_of_the_centered_machine(shape):
    """Algorithm 1: reparameterise, climb the likelihood of the centered machine, reparameterise back."""
    W, b, c = machine(*shape)
    rng = np.random.default_rng(1)
    mu, lam, rows = rng.random(shape[0]), rng.random(shape[1]), some_rows(shape[0])

    def log_p_of_rows(theta):
        p = joint(*split(theta, *shape), mu, lam)[0].sum(axis=1)
        index = {tuple(x): i for i, x in enumerate(states(shape[0]))}
        return np.log(p[[index[tuple(row)] for row in rows.astype(float)]]).mean(keepdims=True)

    slope = jacobian(log_p_of_rows, centered_parameters(flat(W, b, c), shape, mu, lam))[0]
    dW, db, dc = split(slope, *shape)
    found = centered_gradient(W, b, c, rows, mu, lam)
    np.testing.assert_allclose(found.W, dW, atol=1e-9)
    np.testing.assert_allclose(found.b, db - dW @ lam, atol=1e-9)
    np.testing.assert_allclose(found.c, dc - dW.T @ mu, atol=1e-9)


# Fisher matrices and the natural gradient


def log_joint(theta, shape, mu=0.0, lam=0.0):
    return np.log(joint(*split(theta, *shape), mu, lam)[0]).ravel()


def log_marginal(theta, shape, mu=0.0, lam=0.0):
    return np.log(joint(*split(theta, *shape), mu, lam)[0].sum(axis=1))


def fisher_by_scores(log_p, theta, *rest):
    """Expected outer product of the scores, which are finite differences of log p."""
    scores = jacobian(lambda t: log_p(t, *rest), theta)
    return scores.T @ (np.exp(log_p(theta, *rest))[:, None] * scores)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("fisher", "log_p"),
    [("joint", log_joint), ("marginal", log_marginal)],
    ids=["joint", "marginal"],
)
def test_fisher_matrices_are_outer_products_of_scores(shape, fisher, log_p):
    theta = flat(*machine(*shape))
    found = fisher_matrix(fisher, *split(theta, *shape))
    np.testing.assert_allclose(found, fisher_by_scores(log_p, theta, shape), atol=1e-9)


def test_the_diagonal_fisher_matrix_is_the_diagonal_of_the_joint_one():
    W, b, c = machine(4, 3)
    diagonal, joint = (fisher_matrix(fisher, W, b, c) for fisher in ("diagonal", "joint"))
    np.testing.assert_allclose(diagonal, np.diag(np.diag(joint)), atol=1e-14)


def test_rank_of_the_marginal_fisher_matrix_is_the_number_of_states_less_one():
    assert np.linalg.matrix_rank(fisher_matrix("marginal", *machine(4, 4))) == 15
    assert np.linalg.matrix_rank(fisher_matrix("joint", *machine(4, 4))) == 24


@pytest.mark.parametrize(
    ("fisher", "log_p", "shape"), [("joint", log_joint, (3, 3)), ("marginal", log_marginal, (4, 1))]
)
def test_the_natural_gradient_does_not_see_the_parametrisation(fisher, log_p, shape):
    """Found in the centered machine's parameters, it changes all probabilities in the same way."""
    theta, rows = flat(*machine(*shape)), some_rows(shape[0])
    rng = np.random.default_rng(2)
    mu, lam = rng.random(shape[0]), rng.random(shape[1])
    theta_c = centered_parameters(theta, shape, mu, lam)
    scores_c = jacobian(lambda t: log_marginal(t, shape, mu, lam), theta_c)
    index = rows.astype(int) @ (1 << np.arange(shape[0])[::-1])
    natural_c = np.linalg.solve(
        fisher_by_scores(log_p, theta_c, shape, mu, lam), scores_c[index].mean(axis=0)
    )
    plain = split(theta, *shape)
    natural = natural_gradient(*plain, standard_gradient(*plain, rows), fisher).flat()
    change = jacobian(lambda t: log_joint(t, shape), theta) @ natural
    change_c = jacobian(lambda t: log_joint(t, shape, mu, lam), theta_c) @ natural_c
    assert np.abs(change).max() > 0.1
    np.testing.assert_allclose(change, change_c, atol=1e-7 * np.abs(change).max())


def test_the_natural_gradient_of_one_free_unit_is_a_newton_step():
    """1x1 units, no weight: h tells nothing of x, and only b has to move, by (d - p) / (p (1 - p)).

    By hand: with q = sigmoid(c), the gradient is (d - p) (q, 1, 0), which is (d - p) / (p (1 - p)) times the
    column of F that belongs to b, (cov(xh, x), var(x), cov(h, x)) = p (1 - p) (q, 1, 0).
    """
    b, c = np.array([-0.4]), np.array([0.9])
    rows = np.array([[1], [1], [1], [0]], dtype=np.uint8)
    p, d = sigmoid(-0.4), 0.75
    plain = np.zeros((1, 1)), b, c
    found = natural_gradient(*plain, standard_gradient(*plain, rows))
    np.testing.assert_allclose(found.flat(), [0, (d - p) / (p * (1 - p)), 0], atol=1e-12)


def test_damping_is_added_to_the_diagonal():
    plain, rows = machine(3, 2), some_rows(3)
    gradient = standard_gradient(*plain, rows)
    for fisher in ("joint", "marginal", "diagonal"):
        found = natural_gradient(*plain, gradient, fisher, damping=0.3).flat()
        image = fisher_matrix(fisher, *plain) @ found + 0.3 * found
        np.testing.assert_allclose(image, gradient.flat(), atol=1e-12)


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
        with pytest.raises(CbmError, match=r"2\^17 states of 10x7 units.*estimate: samples"):
            fisher_matrix(fisher, *machine(10, 7))


def test_the_natural_gradient_learns_the_bars_in_thirty_updates():
    """Figure 13 (a): at rate 1.0 it is there within 30 updates, from small weights, in every trial."""
    rows = bars_and_stripes(2).train
    trials, rng = 5, np.random.default_rng(0)
    W, b, c = 0.01 * rng.standard_normal((trials, 4, 4)), np.zeros((trials, 4)), np.zeros((trials, 4))
    for _ in range(30):
        step = natural_gradient(W, b, c, standard_gradient(W, b, c, rows))
        W, b, c = W + step.W, b + step.b, c + step.c
    total = -free_energy(W, b, c, rows.astype(float)).sum(axis=1) - len(rows) * log_partition(W, b, c)
    assert (total > -13.86 - 0.5).all()
    assert (total < 8 * bars_and_stripes(2).upper_bound).all()


# Recorders


def settings_of(offsets="aa^b", hidden=3, **changes):
    """Settings of a training whose recorders look at its scheme, its model and its gradient."""
    fields = {
        "data": {"name": "mnist"},
        "model": {"kind": "rbm", "hidden": hidden},
        "offsets": offsets,
        "sampler": "PCD-1",
        "learning_rate": 0.1,
        "updates": 10,
        "evaluate": {"method": "none"},
    }
    return Settings(**fields | changes)


def stack(n=4, m=3, T=5, seed=3):
    rng = np.random.default_rng(seed)
    shapes = (T, n, m), (T, n), (T, m)
    parameters = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    offsets = [rng.random(shape).astype(np.float32) for shape in shapes[1:]]
    return Trail(np.arange(T), *parameters, *offsets)


def context_of(snapshots, units=(0, 2), **settings):
    n = snapshots.b.shape[1]
    data = Dataset("rows", some_rows(n), valid=some_rows(n, seed=1))
    return Context(data, settings_of(hidden=snapshots.c.shape[1], **settings), units, seed=1)


def one_by_one(snapshots):
    """The snapshots' W, b, c, mu, lam in float64, one after another."""
    return zip(*(array.astype(float) for array in snapshots[1:]), strict=True)


def recorded(name, snapshots, context):
    return record([name], snapshots, context)


@pytest.mark.parametrize("levels", [1, 255])
def test_log_likelihood_is_the_mean_over_the_training_rows(levels):
    snapshots = stack()
    context = context_of(snapshots)
    context = replace(context, data=replace(context.data, levels=levels))
    found = recorded("log_likelihood", snapshots, context)["log_likelihood"]
    x = context.data.train / levels
    for value, (W, b, c, *_) in zip(found, one_by_one(snapshots), strict=True):
        expected = (x @ b + np.log1p(np.exp(x @ W + c)).sum(axis=1)).mean() - joint(W, b, c)[1]
        assert value == pytest.approx(expected, abs=2e-6)


def test_norms_are_roots_of_sums_of_squares():
    snapshots = stack()
    found = record(["weight_norms", "bias_norms"], snapshots, context_of(snapshots))

    def norm(values):
        return sqrt(sum(float(value) ** 2 for value in values))

    for t, (W, b, c, mu, lam) in enumerate(one_by_one(snapshots)):
        expected = {
            "weight_norm": norm(W.ravel()),
            "weight_row_norm": sum(norm(row) for row in W) / 4,
            "weight_column_norm": sum(norm(column) for column in W.T) / 3,
            "visible_bias_norm": norm(b),
            "hidden_bias_norm": norm(c),
            "centered_visible_bias_norm": norm(b + [sum(row * lam) for row in W]),
            "centered_hidden_bias_norm": norm(c + [sum(column * mu) for column in W.T]),
        }
        assert {column: values[t] for column, values in found.items()} == pytest.approx(expected, rel=1e-12)


def test_centered_biases_are_those_of_a_machine_of_the_same_distribution():
    W, b, c, mu, lam = next(one_by_one(stack()))
    plain, _ = joint(W, b, c)
    with_offsets, _ = joint(*split(centered_parameters(flat(W, b, c), (4, 3), mu, lam), 4, 3), mu, lam)
    np.testing.assert_allclose(plain, with_offsets, atol=1e-14)


def test_offset_values_are_those_of_the_chosen_units():
    snapshots = stack()
    found = recorded("offset_values", snapshots, context_of(snapshots, units=(2, 0)))
    assert list(found) == ["lam_2", "lam_0"]
    np.testing.assert_array_equal(found["lam_2"], snapshots.lam[:, 2].astype(float))


@pytest.mark.parametrize("scheme", ["dd^b", "mm^b", "aa^b_s", "dm^l", "hm", "0d", "00", "rr^b"])
def test_offset_error_is_the_distance_to_the_offsets_of_the_scheme(scheme):
    snapshots = stack()
    context = context_of(snapshots, offsets=scheme)
    found = recorded("offset_error", snapshots, context)
    x = context.data.train.astype(float)
    for t, (W, b, c, mu, lam) in enumerate(one_by_one(snapshots)):
        p, _ = joint(W, b, c)
        data = x.mean(axis=0), sigmoid(x @ W + c).mean(axis=0)
        model = p.sum(axis=1) @ states(4), p.sum(axis=0) @ states(3)
        for name, letter, at, offset in (("visible", scheme[0], 0, mu), ("hidden", scheme[1], 1, lam)):
            target = {"d": data[at], "m": model[at], "a": (data[at] + model[at]) / 2, "0": 0.0}
            expected = np.abs(offset - target.get(letter, 0.5)).mean()
            assert found[f"{name}_offset_error"][t] == pytest.approx(expected, rel=1e-10)


def gradients_by_sums(W, b, c, mu, lam, rows):
    """The standard and the centered gradient, each from its own averages over rows and all states."""
    p, _ = joint(W, b, c)
    x, h = states(len(b)), states(len(c))
    data_h = sigmoid(rows @ W + c)

    def contrast(mu, lam):
        data = (rows - mu).T @ (data_h - lam) / len(rows)
        return data - (x - mu).T @ p @ (h - lam)

    db = rows.mean(axis=0) - p.sum(axis=1) @ x
    dc = data_h.mean(axis=0) - p.sum(axis=0) @ h
    dW = contrast(mu, lam)
    return flat(contrast(0, 0), db, dc), flat(dW, db - dW @ lam, dc - dW.T @ mu)


def angle_by_cosines(u, v):
    """The law of cosines: |u - v|^2 = |u|^2 + |v|^2 - 2 |u| |v| cos."""
    a, b, c = (sqrt(sum(w**2)) for w in (u, v, u - v))
    return degrees(acos((a * a + b * b - c * c) / (2 * a * b)))


def test_gradient_norms_are_those_of_the_gradients():
    snapshots = stack()
    context = context_of(snapshots)
    found = recorded("gradient_norms", snapshots, context)
    for t, arrays in enumerate(one_by_one(snapshots)):
        standard, centered = gradients_by_sums(*arrays, context.data.train.astype(float))
        assert found["standard_gradient_norm"][t] == pytest.approx(sqrt(sum(standard**2)), rel=1e-9)
        assert found["centered_gradient_norm"][t] == pytest.approx(sqrt(sum(centered**2)), rel=1e-9)


@pytest.mark.parametrize(
    ("gradient", "log_p", "damping"),
    [
        ({}, log_joint, 0.0),
        ({"kind": "centered", "scale_to": "standard"}, log_joint, 0.0),
        ({"kind": "natural", "fisher": "marginal", "damping": 0.05}, log_marginal, 0.05),
    ],
    ids=["default", "centered", "natural"],
)
def test_gradient_angles_obey_the_law_of_cosines(gradient, log_p, damping):
    snapshots = stack()
    context = context_of(snapshots, gradient=gradient)
    found = recorded("gradient_angles", snapshots, context)
    for t, arrays in enumerate(one_by_one(snapshots)):
        standard, centered = gradients_by_sums(*arrays, context.data.train.astype(float))
        F = fisher_by_scores(log_p, flat(*arrays[:3]), (4, 3))
        natural = np.linalg.inv(F + damping * np.eye(len(F))) @ standard
        for name, other in (("standard", standard), ("centered", centered)):
            expected = angle_by_cosines(natural, other)
            assert found[f"angle_natural_{name}"][t] == pytest.approx(expected, abs=1e-4)


def test_without_offsets_the_centered_gradient_takes_the_data_means():
    snapshots = stack()
    context = context_of(snapshots)
    x = context.data.train.astype(float)
    W, c = snapshots.W.astype(float), snapshots.c.astype(float)
    data_h = np.stack([sigmoid(x @ W[t] + c[t]).mean(axis=0) for t in range(5)])
    means = snapshots._replace(mu=np.tile(x.mean(axis=0), (5, 1)), lam=data_h)
    bare = snapshots._replace(mu=0 * snapshots.mu, lam=0 * snapshots.lam)
    for name in ("gradient_angles", "gradient_norms"):
        found, expected = recorded(name, bare, context), recorded(name, means, context)
        for column in found:
            np.testing.assert_allclose(found[column], expected[column], rtol=1e-12)


def test_a_singular_fisher_matrix_leaves_the_angles_of_its_snapshot_empty():
    snapshots = stack()
    snapshots.b[2, 0] = 800
    found = recorded("gradient_angles", snapshots, context_of(snapshots))
    for values in found.values():
        np.testing.assert_array_equal(np.isnan(values), [False, False, True, False, False])


def test_hidden_activity_tells_idle_and_busy_units():
    snapshots = stack()
    snapshots.c[0] = [-9, 9, 0]
    snapshots.W[0] = 0
    context = context_of(snapshots)
    found = recorded("hidden_activity", snapshots, context)
    assert found["hidden_activity_extreme"][0] == pytest.approx(2 / 3)
    for t, (W, _, c, *_) in enumerate(one_by_one(snapshots)):
        activity = [np.mean([sigmoid(sum(x * W[:, j]) + c[j]) for x in context.data.train]) for j in range(3)]
        share = sum(a < 0.05 or a > 0.95 for a in activity) / 3
        assert found["hidden_activity_mean"][t] == pytest.approx(np.mean(activity))
        assert found["hidden_activity_extreme"][t] == pytest.approx(share)


def test_reconstruction_error_is_the_mean_square_over_rows_and_units():
    snapshots = stack()
    context = context_of(snapshots)
    found = recorded("reconstruction_error", snapshots, context)["reconstruction_error"]
    for value, (W, b, c, *_) in zip(found, one_by_one(snapshots), strict=True):
        errors = []
        for x in context.data.train.astype(float):
            h = [sigmoid(sum(x * W[:, j]) + c[j]) for j in range(3)]
            errors += [(x[i] - sigmoid(sum(W[i] * h) + b[i])) ** 2 for i in range(4)]
        assert value == pytest.approx(np.mean(errors))


def test_free_energy_gap_is_the_difference_of_the_likelihoods():
    snapshots = stack()
    context = context_of(snapshots)
    found = recorded("free_energy_gap", snapshots, context)["free_energy_gap"]
    for value, (W, b, c, *_) in zip(found, one_by_one(snapshots), strict=True):
        train, valid = (
            log_likelihoods(W, b, c, part).mean() for part in (context.data.train, context.data.valid)
        )
        assert value == pytest.approx(train - valid, abs=1e-12)


# Recording


@pytest.mark.parametrize("scratch", [1, 2**17])
def test_a_stack_is_recorded_like_its_snapshots_one_by_one(scratch, monkeypatch):
    snapshots = stack(T=7)
    context = context_of(snapshots)
    monkeypatch.setattr(recorders, "SCRATCH", scratch)
    together = record(list(RECORDERS), snapshots, context)
    for t in range(7):
        alone = record(list(RECORDERS), Trail(*(array[t : t + 1] for array in snapshots)), context)
        for column, values in together.items():
            assert (values.dtype, values.shape) == (np.float64, (7,))
            assert values[t] == pytest.approx(alone[column][0], rel=1e-9)


def test_columns_come_in_the_order_of_the_names_and_stand_in_the_docs():
    snapshots = stack()
    names = list(RECORDERS)[::-1]
    found = list(record(names, snapshots, context_of(snapshots)))
    assert found[0] == "free_energy_gap"
    assert found[-1] == "log_likelihood"
    text = DOCS.read_text(encoding="utf-8")
    for word in [*names, *(column for column in found if not column.startswith("lam_"))]:
        assert f"`{word}`" in text


def test_a_snapshot_that_is_not_finite_is_empty_in_all_columns():
    snapshots = stack()
    expected = record(list(RECORDERS), snapshots, context_of(snapshots))
    snapshots.W[1, 0, 0] = np.nan
    snapshots.c[3, 0] = np.inf
    found = record(list(RECORDERS), snapshots, context_of(snapshots))
    assert list(found) == list(expected)
    for column, values in found.items():
        np.testing.assert_array_equal(np.isnan(values), [False, True, False, True, False])
        np.testing.assert_allclose(values[[0, 2, 4]], expected[column][[0, 2, 4]], rtol=1e-9)


def test_recording_changes_no_snapshot():
    snapshots = stack()
    before = [array.copy() for array in snapshots]
    record(list(RECORDERS), snapshots, context_of(snapshots))
    for array, old in zip(snapshots, before, strict=True):
        np.testing.assert_array_equal(array, old)


# What does not fit


def check(names, width=4, parts=("train",), units="0", **settings):
    """Check recorders against settings and a data set of this width, as before a training."""
    what = {"record": {"what": "+".join(names), "units": units}} if names else {}
    rows = np.zeros((2, width), np.uint8)
    check_recorders(settings_of(**settings, **what), Dataset("rows", **dict.fromkeys(parts, rows)))


@pytest.mark.parametrize(
    ("names", "settings", "message"),
    [
        (["log_likelihood"], {"hidden": 500, "width": 784}, r"log_likelihood sums 2\^500 states of 784x500"),
        (["gradient_norms"], {"hidden": 21, "width": 784}, r"2\^21"),
        (["offset_error"], {"offsets": "dm^b", "hidden": 500, "width": 784}, r"offset_error .* 2\^500"),
        (["gradient_angles"], {"hidden": 8, "width": 9}, r"sums 2\^17 states"),
        (["free_energy_gap"], {}, "validation part"),
        (["offset_values"], {"units": "0+3"}, "no hidden unit 3; they are 0 to 2"),
        (
            ["gradient_angles"],
            {"hidden": 4, "gradient": {"kind": "natural", "fisher": "marginal"}},
            "marginal Fisher matrix is singular.*15, with 24 parameters",
        ),
    ],
)
def test_recorders_that_do_not_fit_are_refused(names, settings, message):
    with pytest.raises(CbmError, match=message):
        check(names, **settings)


def test_recorders_that_fit_pass():
    check(RECORDERS, parts=("train", "valid"), units="0+2")
    check(["offset_error", "bias_norms"], offsets="dd^b_s", hidden=500, width=784)
    check(["mine.py:any"])
    check([], model={"kind": "dbm", "hidden": (3, 2)}, offsets="ddd")


# Recorders of one's own


def example_of_the_docs():
    (source,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    return source


def test_the_example_of_the_docs_runs_and_measures_cosines(tmp_path):
    (tmp_path / "mine.py").write_text(example_of_the_docs(), encoding="utf-8")
    name = "mine.py:filter_cosine"
    own = {name: compile_recorder(name, load_recorder(name, tmp_path))}
    snapshots = stack()
    found = record(["weight_norms", name], snapshots, context_of(snapshots), own)
    assert list(found)[-1] == "filter_cosine"
    for value, (W, *_) in zip(found["filter_cosine"], one_by_one(snapshots), strict=True):
        pairs = [(0, 1), (0, 2), (1, 2)]
        cosines = [abs(W[:, i] @ W[:, j]) / sqrt((W[:, i] @ W[:, i]) * (W[:, j] @ W[:, j])) for i, j in pairs]
        assert value == pytest.approx(np.mean(cosines), rel=1e-6)


def test_the_example_of_the_docs_is_a_function_of_ten_lines():
    code = [line for line in example_of_the_docs().splitlines() if line.strip()]
    assert len(code) <= 10


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def other(snapshots, context): ...", "mine.py has no function f; there are other"),
        ("x = 1\ny = 1 /", "mine.py, line 2: SyntaxError"),
        ("import no_such_module", "mine.py, line 1: ModuleNotFoundError"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_when_it_is_loaded(tmp_path, source, message):
    (tmp_path / "mine.py").write_text(source, encoding="utf-8")
    with pytest.raises(CbmError, match=message):
        load_recorder("mine.py:f", tmp_path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CbmError, match=r"mine\.py: No such file.*relative to the grid's folder"):
        load_recorder("mine.py:f", tmp_path)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return {'a': 1 / 0}", "mine.py, line 2, in f: ZeroDivisionError: division by zero"),
        ("return g()\n\ndef g():\n    return 1 / 0", "mine.py, line 5, in f: ZeroDivisionError"),
        ("return {'a': snapshots.update[1:]}", r"mine.py, f: a has the shape \(4,\); .* \(5,\)"),
        ("return [1]", "mine.py, in f: AttributeError"),
        ("return {'a': ['x'] * 5}", "mine.py, in f: ValueError: could not convert"),
        ("return {'update': snapshots.update}", "a column update, which is there already"),
        ("return {'weight_norm': snapshots.update}", "a column weight_norm, which is there already"),
    ],
)
def test_a_function_that_fails_is_told_with_file_and_name(body, message):
    own = {"mine.py:f": compile_recorder("mine.py:f", f"def f(snapshots, context):\n    {body}\n")}
    snapshots = stack()
    with pytest.raises(CbmError, match=message):
        record(["weight_norms", "mine.py:f"], snapshots, context_of(snapshots), own)


def test_each_file_runs_in_a_module_of_its_own():
    one = compile_recorder("one.py:f", "k = 1\ndef f(s, c): return {'one': k + 0 * s.update}")
    two = compile_recorder("two.py:f", "k = 2\ndef f(s, c): return {'two': k + 0 * s.update}")
    snapshots = stack()
    found = record(
        ["one.py:f", "two.py:f"], snapshots, context_of(snapshots), {"one.py:f": one, "two.py:f": two}
    )
    assert (found["one"][0], found["two"][0]) == (1, 2)


def test_shapes_survive_flattening():
    gradient = ByParameter(*(np.random.default_rng(0).random(s) for s in ((2, 3, 2), (2, 3), (2, 2))))
    for array, back in zip(gradient, gradient.shaped(gradient.flat()), strict=True):
        np.testing.assert_array_equal(array, back)
