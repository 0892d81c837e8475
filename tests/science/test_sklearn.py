"""`CenteredRBM`: scikit-learn's own checks, scores, seeds, and rows of all kinds."""

import numpy as np
import pytest
from cbm_cli.machine import TrainedMachine
from cbm_cli.machines.models import Layered
from cbm_cli.reference import log_likelihood, sigmoid
from cbm_cli.sklearn import CenteredRBM
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import BernoulliRBM
from sklearn.utils.estimator_checks import parametrize_with_checks

from tests.builders import holds, refusal
from tests.oracles import log_likelihoods, random_machine, states


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return train_test_split(X / 16, y, test_size=0.3, random_state=0)


def small(**changes):
    return CenteredRBM(**{"n_components": 4, "n_iter": 3, "random_state": 1} | changes)


@pytest.mark.filterwarnings("ignore:values from")
@parametrize_with_checks(
    [CenteredRBM(), CenteredRBM(offsets="00", sampler="PT_4", batch_size=7)]
)
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)


def test_scores_are_what_is_asked_for_and_exact_where_they_can_be(digits):
    X = digits[0][:100, 20:28]
    found = small().fit(X)
    W, b, c = found.components_.T, found.intercept_visible_, found.intercept_hidden_
    assert_allclose(found.score_samples(X), log_likelihood(X, W, b, c), atol=1e-6)
    assert_allclose(found.transform(X), sigmoid(X @ W + c), atol=1e-12)
    assert found.score(X) == pytest.approx(found.score_samples(X).mean())
    again = found.partial_fit(X).score_samples(states(8))  # by another log Z
    assert np.exp(again).sum() == pytest.approx(1, abs=1e-6)
    found.set_params(scores="pseudo-likelihood")
    assert_allclose(found.score_samples(X), found.machine_.pseudo_likelihood(X))
    with pytest.raises(ValueError, match="scores"):
        found.set_params(scores="likelihood").score_samples(X)
    large = small(n_components=21).fit(digits[0][:100])
    exact = large.machine_.log_likelihood(digits[0][:5])
    assert_allclose(large.score_samples(digits[0][:5]), exact, atol=0.2)  # by AIS


def test_training_is_that_of_the_seed_and_of_epochs_in_a_row(digits):
    X, changes = digits[0][:100], ({}, {}, {"random_state": 2}, {"offsets": "00"})
    one, same, *others = (small(**change).fit(X).components_ for change in changes)
    assert_array_equal(one, same)
    assert all(np.abs(one - other).max() > 0.01 for other in others)
    pieces = small()
    for _ in range(3):
        pieces.partial_fit(X)
    assert_array_equal(pieces.components_, one)
    pieces.partial_fit(X[:7])  # a smaller batch keeps some of the chains
    assert 0 < np.abs(pieces.components_ - one).max() < 1


def test_partial_fit_keeps_the_hidden_units_of_the_first_call_as_scikit_learn_does(
    digits,
):
    X = digits[0][:100]
    for estimator in (small(), BernoulliRBM(n_components=4, random_state=1)):
        estimator.partial_fit(X)
        estimator.set_params(n_components=10)
        estimator.partial_fit(X)
        assert estimator.components_.shape == (4, 64)
        assert estimator.transform(X).shape == (100, 4)
        assert len(estimator.get_feature_names_out()) == 4
        assert estimator.fit(X).transform(X).shape == (100, 10)
        estimator.partial_fit(X)
        assert estimator.components_.shape == (10, 64)


def test_each_call_of_gibbs_draws_other_states_as_in_scikit_learn(digits):
    X = digits[0][:100]
    for estimator in (small(), BernoulliRBM(n_components=4, random_state=1)):
        first, second = (estimator.fit(X).gibbs(X), estimator.gibbs(X))
        assert (first != second).any()
    assert_array_equal(small().fit(X).gibbs(X), small().fit(X).gibbs(X))


@pytest.mark.parametrize(
    "changes",
    [{"offsets": "00"}, {"sampler": "PT_4"}, {"sampler": "CD-1"}, {"batch_size": 7}],
)
def test_partial_fit_goes_on_with_other_parameters(changes, digits):
    found = small().partial_fit(digits[0][:100])
    before = found.components_
    found.set_params(**changes).partial_fit(digits[0][:100])
    assert 0 < np.abs(found.components_ - before).max() < 1


def test_a_training_that_diverges_is_not_kept(digits):
    X = digits[0][:100]
    found, same = small().partial_fit(X), small().partial_fit(X)
    with pytest.raises(ValueError, match="diverged"):
        found.set_params(learning_rate=3e38).partial_fit(X)
    assert_array_equal(found.components_, same.components_)
    found.set_params(learning_rate=same.learning_rate).partial_fit(X)
    assert_array_equal(found.components_, same.partial_fit(X).components_)


def test_gibbs_draws_states_with_the_probabilities_of_the_machine():
    X = np.repeat([[0, 1, 1, 0, 0, 1]], 20_000, axis=0)
    found = small().fit(np.vstack([X[:50], 1 - X[:50]]))
    h = states(4)
    p = sigmoid(X[0] @ found.components_.T + found.intercept_hidden_)
    weight = np.prod(np.where(h == 1, p, 1 - p), axis=1)
    mean = weight @ sigmoid(h @ found.components_ + found.intercept_visible_)
    drawn = found.gibbs(X)
    assert (np.abs(drawn.mean(axis=0) - mean) < 4.5 * 0.5 / np.sqrt(len(X))).all()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"n_components": 0}, "n_components|0"),
        ({"batch_size": "full"}, "batch_size|full"),
        ({"sampler": "CD"}, "sampler|CD-k"),
        ({"sampler": "exact", "n_components": 30}, "sampler|2^20"),
        ({"learning_rate": 3e38, "n_iter": 30}, "learning_rate"),  # which diverges
    ],
)
def test_parameters_that_are_wrong_are_named(changes, told):
    rows = states(20 if "n_components" in changes else 4)[:50]
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        clone(small()).set_params(**changes).fit(rows)
    assert holds(raised.value, told)
    assert "Value error" not in str(raised.value)  # of Pydantic


def test_the_pseudo_likelihood_is_that_of_sums_over_states():
    (W, b, c), x = random_machine(6, 4, seed=2), states(6)
    layers = Layered(
        "rbm", (W.astype(float),), (b.astype(float), c.astype(float)), (0 * b, 0 * c)
    )
    machine, p = TrainedMachine(layers), np.exp(log_likelihoods(W, b, c, x))
    flips = p[np.arange(64)[:, None] ^ (1 << np.arange(6))]  # states are binary numbers
    expected = np.log(p[:, None] / (p[:, None] + flips)).sum(axis=1)
    assert_allclose(machine.pseudo_likelihood(x), expected, rtol=1e-9)
    deep = TrainedMachine(Layered("dbm", (W, W.T), (b, c, b), (b, c, b)))
    refusal(deep.pseudo_likelihood, x)


def test_sparse_rows_and_rows_in_float32_train_the_machine_that_dense_ones_do(digits):
    X = digits[0][:300]  # sixteenths, which float32 holds exactly
    sparse, single = csr_array(X), X.astype(np.float32)
    dense, *others = (small().fit(rows) for rows in (X, sparse, single))
    for other in others:
        assert_array_equal(other.components_, dense.components_)
    assert_allclose(dense.transform(sparse), dense.transform(X), atol=1e-12)
    assert_allclose(dense.score_samples(sparse), dense.score_samples(X), atol=1e-12)
    found = dense.transform(single)
    assert (found.dtype, dense.transform(X).dtype) == (np.float32, np.float64)
    assert_allclose(found, dense.transform(X), atol=1e-6)
    for rows in (16 * sparse, 16 * X):  # out of range they are cut
        with pytest.warns(UserWarning, match=r"from 0 to 16.*\[0, 1\].*MinMaxScaler"):
            cut = dense.transform(rows)
        assert_allclose(cut, dense.transform((16 * X).clip(0, 1)), atol=1e-12)
