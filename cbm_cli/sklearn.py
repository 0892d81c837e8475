"""Centered RBMs as scikit-learn's estimators; only this module needs scikit-learn."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import ValidationError
from scipy.sparse import issparse

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels.machine import empty_trail
from cbm_cli.kernels.sharing import using_cores
from cbm_cli.machine import TrainedMachine, as_bytes
from cbm_cli.machines.limits import SUM_BITS
from cbm_cli.machines.models import Layered
from cbm_cli.machines.threads import one_thread
from cbm_cli.reference import hidden_mean, visible_mean
from cbm_cli.trial.checks import check
from cbm_cli.trial.learner import Learner
from cbm_cli.trial.start import machine_at

try:
    from joblib import effective_n_jobs
    from sklearn.base import (
        BaseEstimator,
        ClassNamePrefixFeaturesOutMixin,
        TransformerMixin,
    )
    from sklearn.utils import check_random_state, gen_batches
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        f"CenteredRBM needs scikit-learn ({error}): pip install scikit-learn"
    ) from None

SCORES = "log-likelihood", "pseudo-likelihood"
_BLOCK = 10_000  # sparse rows that are filled up at a time
_TYPES = (np.float64, np.float32)  # of rows


class CenteredRBM(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A binary RBM trained by the centered gradient.

    Rows are values from 0 to 1, dense or sparse. Other values are cut to this range,
    with a warning; training rounds grey values to multiples of 1/255. Training is that
    of ``cbm run``: the same kernels and initial weights. It holds a byte for each
    value, of sparse rows too. Rows in float32 have features in float32.

    Parameters
    ----------
    n_components : int
        Hidden units of the machines that `fit` and the first `partial_fit` make.
    offsets : str
        The scheme: ``00`` is the plain RBM, ``dd^b_s`` centers both layers by moving
        averages of data means.
    sampler : str
        ``CD-k``, ``PCD-k``, ``PT_c``, ``PT_c-k`` or ``exact``.
    learning_rate : float
        Step of an update.
    batch_size : int
        Rows of a mini-batch, and persistent chains; at most the rows there are. The
        rows of an epoch that do not fill a last batch are left out; they are others in
        every epoch.
    n_iter : int
        Epochs of `fit`.
    random_state : int, RandomState or None
        Seed of initial weights, batches and chains, and of the draws of `gibbs`.
    scores : {"log-likelihood", "pseudo-likelihood"}
        What `score_samples` returns.
    n_jobs : int or None
        Cores that training and `score_samples` use; -1: all. Results do not depend on
        it.

    Attributes
    ----------
    components_ : (n_components, n_features) array
        Weights.
    intercept_visible_, intercept_hidden_ : (n_features,) and (n_components,) arrays
        Biases of the plain machine, as those of `sklearn.neural_network.BernoulliRBM`.
    machine_ : TrainedMachine
        The machine with its offsets; ``machine_.save(path)`` writes it.
    random_state_ : RandomState
        The generator of `gibbs`, which goes on from call to call.

    Examples
    --------
    >>> rows = np.repeat([[0, 0, 1, 1], [1, 1, 0, 0]], 50, axis=0)
    >>> rbm = CenteredRBM(n_components=2, random_state=0).fit(rows)
    >>> rbm.transform(rows).shape, rbm.gibbs(rows).dtype
    ((100, 2), dtype('bool'))
    """

    components_: NDArray[np.float64]
    _log_z: float | None  # None until a score needs it
    _means: NDArray[np.float64]  # of the rows of the last training

    def __init__(
        self,
        n_components: int = 256,
        *,
        offsets: str = "dd^b_s",
        sampler: str = "PCD-1",
        learning_rate: float = 0.1,
        batch_size: int = 10,
        n_iter: int = 10,
        random_state: Any = None,
        scores: str = "log-likelihood",
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.offsets = offsets
        self.sampler = sampler
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.n_iter = n_iter
        self.random_state = random_state
        self.scores = scores
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: object = None) -> CenteredRBM:
        """Train a new machine for ``n_iter`` epochs; ``y`` is ignored.

        Examples
        --------
        >>> rows = np.repeat([[0, 0, 1, 1], [1, 1, 0, 0]], 50, axis=0)
        >>> rbm = CenteredRBM(n_components=2, random_state=0)
        >>> rbm.fit(rows).components_.shape
        (2, 4)
        """
        return self._train(self._values(X, reset=True), self.n_iter, None)

    def partial_fit(self, X: ArrayLike, y: object = None) -> CenteredRBM:
        """Train for one epoch on ``X``, from the machine and the chains of the last
        call.

        As in `sklearn.neural_network.BernoulliRBM`, the machine keeps its hidden units:
        another ``n_components`` counts for the next `fit`. A training that diverges is
        not kept.

        Examples
        --------
        >>> rows = np.repeat([[0, 0, 1, 1], [1, 1, 0, 0]], 50, axis=0)
        >>> rbm = CenteredRBM(n_components=2, random_state=0)
        >>> for _ in range(10):
        ...     rbm = rbm.partial_fit(rows)
        >>> bool(np.all(rbm.components_ == rbm.fit(rows).components_))
        True
        """
        state = getattr(self, "_state", None)
        return self._train(self._values(X, reset=state is None), 1, state)

    def transform(self, X: ArrayLike) -> NDArray:
        """Return p(h = 1 | x), (n, n_components), in float32 for rows in float32, else
        in float64.

        Examples
        --------
        >>> rows = np.repeat([[0, 0, 1, 1], [1, 1, 0, 0]], 50, axis=0)
        >>> rbm = CenteredRBM(n_components=2, random_state=0).fit(rows)
        >>> rbm.transform(rows[:3]).shape
        (3, 2)
        """
        check_is_fitted(self)
        x = self._values(X)
        W = self.components_.T.astype(x.dtype, copy=False)
        c = self.intercept_hidden_.astype(x.dtype, copy=False)
        return hidden_mean(x, W, c)

    def gibbs(self, X: ArrayLike) -> NDArray[np.bool_]:
        """Draw hidden and then visible states given each row, (n, n_features).

        Each call draws other states.

        Examples
        --------
        >>> rows = np.repeat([[0, 0, 1, 1], [1, 1, 0, 0]], 50, axis=0)
        >>> rbm = CenteredRBM(n_components=2, random_state=0).fit(rows)
        >>> rbm.gibbs(rows[:3]).shape
        (3, 4)
        """
        check_is_fitted(self)
        p = self.transform(X)
        h = self.random_state_.uniform(size=p.shape) < p
        p = visible_mean(h, self.components_.T, self.intercept_visible_)
        return self.random_state_.uniform(size=p.shape) < p

    def score_samples(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return log p(x) of each row in nats, (n,), or its pseudo-likelihood, as
        ``scores`` asks.

        log Z is exact if the smaller side has at most 25 units. Otherwise AIS estimates
        it, once after each training, from the means of the training rows: all rows then
        share one error.

        Examples
        --------
        >>> rows = np.repeat([[0, 0, 1, 1], [1, 1, 0, 0]], 50, axis=0)
        >>> rbm = CenteredRBM(n_components=2, random_state=0).fit(rows)
        >>> log_p = rbm.score_samples(rows[:2])  # log p(x) of two rows of 16 states
        >>> bool(np.exp(log_p).sum() <= 1)
        True
        """
        check_is_fitted(self)
        x = self._values(X)
        if self.scores not in SCORES:
            raise ValueError(
                f"scores must be one of {', '.join(SCORES)}, not {self.scores!r}"
            )
        if self.scores == "pseudo-likelihood":
            return self.machine_.pseudo_likelihood(x)
        if self._log_z is None:
            exact = min(self.machine_.sizes) <= SUM_BITS
            method = "exact" if exact else "ais"
            with using_cores(effective_n_jobs(self.n_jobs)):
                self._log_z = self.machine_.log_partition(method, data=self._means)
        scores = []
        for block in gen_batches(x.shape[0], _BLOCK):
            scores.append(self.machine_.log_likelihood(x[block], log_z=self._log_z))
        return np.concatenate(scores)

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Return the mean of `score_samples`, by which grid searches choose.

        Examples
        --------
        >>> rows = np.repeat([[0, 0, 1, 1], [1, 1, 0, 0]], 50, axis=0)
        >>> rbm = CenteredRBM(n_components=2, random_state=0).fit(rows)
        >>> bool(rbm.score(rows) == rbm.score_samples(rows).mean())
        True
        """
        return float(self.score_samples(X).mean())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _values(self, X: ArrayLike, reset: bool = False) -> Any:
        """Return rows in float64 or float32, as an array or in SciPy's CSR form."""
        x = validate_data(self, X, reset=reset, dtype=list(_TYPES), accept_sparse="csr")
        low, high = x.min(), x.max()
        if low < 0 or high > 1:
            warnings.warn(
                f"values from {low:.4g} to {high:.4g} are cut to [0, 1]; scale them "
                "first, as with MinMaxScaler",
                stacklevel=3,
            )
            x = x.minimum(1).maximum(0) if issparse(x) else x.clip(0, 1)
        return x

    def _train(self, x: Any, epochs: int, state: Any) -> CenteredRBM:
        """Train for some epochs, from a state or from a new machine."""
        components = self.n_components if state is None else len(self.components_)
        settings = self._settings(components, epochs, x.shape[0])
        data = _dataset_of(x)
        try:
            check(settings, data)
        except CbmError as error:
            raise ValueError(str(error)) from None
        if state is None:
            random = check_random_state(self.random_state)
            self._seed, self._updates = int(random.randint(2**31 - 1)), 0
            self.random_state_ = check_random_state(self.random_state)
        learner = Learner(settings, data, self._seed)
        new: Any = learner.start()
        if state:  # of other chains, where the size of the batch has changed
            new = state.copy()._replace(h=np.resize(state.h, new.h.shape))
        batches = learner.plan.batches
        first = -(-self._updates // batches)  # an epoch of this size of the batch
        trail = empty_trail(*new.W.shape)
        with one_thread(), using_cores(effective_n_jobs(self.n_jobs)):
            for epoch in range(first, first + epochs):
                learner.advance(new, trail, epoch * batches, (epoch + 1) * batches)
        machine = _in_float64(machine_at(new, settings, learner.sizes))
        self._state, self._updates, self._log_z = new, (first + epochs) * batches, None
        self._means = np.asarray(x.mean(axis=0, dtype=np.float64)).reshape(1, -1)
        self.machine_ = TrainedMachine(machine)
        self.components_ = machine.weights[0].T.copy()
        self.intercept_visible_, self.intercept_hidden_ = machine.biases
        return self

    def _settings(self, components: Any, epochs: int, rows: int) -> Settings:
        """Return the parameters as settings of a grid; ValueError that names the one
        that is wrong.
        """
        for name in ("n_components", "batch_size", "n_iter"):
            number = getattr(self, name)
            if not isinstance(number, Integral) or number < 1:
                raise ValueError(
                    f"{name} must be a whole number of 1 or more, not {number!r}"
                )
        try:
            return Settings(
                data={"path": "X"},
                model={"kind": "rbm", "hidden": int(components)},
                offsets=self.offsets,
                sampler=self.sampler,
                learning_rate=self.learning_rate,
                epochs=epochs,
                batch=min(int(self.batch_size), rows),
                evaluate={"method": "none"},
            )
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
        field = "".join(f"{name}: " for name in problem["loc"][:1])
        raise ValueError(field + problem["msg"].removeprefix("Value error, "))


def _dataset_of(x: Any) -> Dataset:
    """Return rows as training holds them; sparse ones are filled up as bytes only."""
    if not issparse(x):
        return as_bytes(x)
    levels = 1 if np.isin(x.data, (0, 1)).all() else 255
    values = np.rint(x.data.astype(np.float64) * levels).astype(np.uint8)
    rows = type(x)((values, x.indices, x.indptr), x.shape).toarray()
    return Dataset("rows", rows, levels=levels)


def _in_float64(machine: Layered) -> Layered:
    """Return a machine of float64; ValueError where training has diverged."""
    arrays = {}
    for name in ("weights", "biases", "offsets"):
        layers = [array.astype(np.float64) for array in getattr(machine, name)]
        if not all(np.isfinite(array).all() for array in layers):
            raise ValueError(
                "training has diverged; use a lower learning_rate or another scheme of "
                "offsets"
            )
        arrays[name] = tuple(layers)
    return Layered("rbm", arrays["weights"], arrays["biases"], arrays["offsets"])
