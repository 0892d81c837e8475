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
from cbm_cli.machine import TrainedMachine, as_bytes
from cbm_cli.machines.models import Layered
from cbm_cli.machines.threads import one_thread, using_cores
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
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        f"CenteredRBM needs scikit-learn ({error}): pip install scikit-learn"
    ) from None

SCORES = "log-likelihood", "pseudo-likelihood"
EXACT_BITS = (
    20  # log Z is exact up to this size of the smaller side, which takes about a second
)


_BLOCK = 10_000  # sparse rows that are filled up at a time


class CenteredRBM(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A binary RBM trained by the centered gradient.

    Rows are values from 0 to 1, dense or sparse. Other values are cut to this range,
    with a warning; training rounds grey values to multiples of 1/255. Training is that
    of ``cbm run``: the same kernels and initial weights. It holds a byte for each
    value, of sparse rows too. Rows in float32 have features in float32.

    Parameters
    ----------
    n_components : int
        Hidden units.
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
        Seed of initial weights, batches and chains.
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
    """

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
        """Train a new machine for ``n_iter`` epochs; ``y`` is ignored."""
        return self._train(self._values(X, reset=True), self.n_iter, None)

    def partial_fit(self, X: ArrayLike, y: object = None) -> CenteredRBM:
        """Train for one epoch on ``X``, from the machine and the chains of the last
        call.
        """
        state = getattr(self, "_state", None)
        return self._train(self._values(X, reset=state is None), 1, state)

    def transform(self, X: ArrayLike) -> NDArray:
        """Return p(h = 1 | x), (n, n_components), in float32 for rows in float32, else
        in float64.
        """
        check_is_fitted(self)
        x = self._values(X)
        W, c = (
            array.astype(x.dtype, copy=False)
            for array in (self.components_.T, self.intercept_hidden_)
        )
        return hidden_mean(x, W, c)

    def gibbs(self, X: ArrayLike) -> NDArray[np.bool_]:
        """Draw hidden and then visible states given each row, (n, n_features)."""
        check_is_fitted(self)
        random, p = check_random_state(self.random_state), self.transform(X)
        h = random.uniform(size=p.shape) < p
        p = visible_mean(h, self.components_.T, self.intercept_visible_)
        return random.uniform(size=p.shape) < p

    def score_samples(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return log p(x) of each row in nats, (n,), or its pseudo-likelihood, as
        ``scores`` asks.

        log Z is exact if the smaller side has at most 20 units. Otherwise AIS estimates
        it, once after each training, from the means of the training rows: all rows then
        share one error.
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
            exact = min(self.machine_.sizes) <= EXACT_BITS
            with using_cores(effective_n_jobs(self.n_jobs)):
                self._log_z = self.machine_.log_partition(
                    "exact" if exact else "ais", data=self._means
                )
        blocks = (x[i : i + _BLOCK] for i in range(0, x.shape[0], _BLOCK))
        dense = (block.toarray() if issparse(block) else block for block in blocks)
        return np.concatenate(
            [self.machine_.log_likelihood(block, log_z=self._log_z) for block in dense]
        )

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Return the mean of `score_samples`, by which grid searches choose."""
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
        types = [np.float64, np.float32]
        x = validate_data(self, X, reset=reset, dtype=types, accept_sparse="csr")
        if x.min() < 0 or x.max() > 1:
            found = f"values from {x.min():.4g} to {x.max():.4g} are cut to [0, 1]"
            warnings.warn(
                f"{found}; scale them first, as with MinMaxScaler", stacklevel=3
            )
            x = x.minimum(1).maximum(0) if issparse(x) else x.clip(0, 1)
        return x

    def _train(self, x: Any, epochs: int, since: Any) -> CenteredRBM:
        """Train for some epochs, from a state or from a new machine."""
        settings = self._settings(epochs, x.shape[0])
        if issparse(x):  # filled up as bytes only
            levels = 1 if np.isin(x.data, (0, 1)).all() else 255
            values = np.rint(x.data.astype(np.float64) * levels).astype(np.uint8)
            rows = type(x)((values, x.indices, x.indptr), x.shape).toarray()
            data = Dataset("rows", rows, levels=levels)
        else:
            data = as_bytes(x)
        try:
            check(settings, data)
        except CbmError as error:
            raise ValueError(str(error)) from None
        if since is None:
            self._seed, self._updates = (
                int(check_random_state(self.random_state).randint(2**31 - 1)),
                0,
            )
        learner = Learner(settings, data, self._seed)
        state: Any = learner.start()
        if since:  # of other chains, where the size of the batch has changed
            state = since.copy()._replace(h=np.resize(since.h, state.h.shape))
        batches = learner.plan.batches
        first = -(-self._updates // batches)  # an epoch of this size of the batch
        trail = empty_trail(*state.W.shape)
        with one_thread(), using_cores(effective_n_jobs(self.n_jobs)):
            for epoch in range(first, first + epochs):
                learner.advance(state, trail, epoch * batches, (epoch + 1) * batches)
        self._state, self._updates, self._log_z = (
            state,
            (first + epochs) * batches,
            None,
        )
        self._means = np.asarray(x.mean(axis=0, dtype=np.float64)).reshape(1, -1)
        machine = machine_at(state, settings, learner.sizes)
        weights, biases, offsets = (
            tuple(a.astype(np.float64) for a in arrays) for arrays in machine[1:4]
        )
        if not all(np.isfinite(array).all() for array in (*weights, *biases, *offsets)):
            raise ValueError(
                "training has diverged; use a lower learning_rate or another "
                "scheme "
                "of offsets"
            )
        self.machine_ = TrainedMachine(Layered("rbm", weights, biases, offsets))
        self.components_, (self.intercept_visible_, self.intercept_hidden_) = (
            weights[0].T.copy(),
            biases,
        )
        return self

    def _settings(self, epochs: int, rows: int) -> Settings:
        """Return the parameters as settings of a grid; ValueError that names the one
        that is wrong.
        """
        for name in ("n_components", "batch_size", "n_iter"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < 1:
                raise ValueError(
                    f"{name} must be a whole number of 1 or more, not {value!r}"
                )
        try:
            return Settings(
                data={"path": "X"},
                model={"kind": "rbm", "hidden": int(self.n_components)},
                offsets=self.offsets,
                sampler=self.sampler,
                learning_rate=self.learning_rate,
                epochs=epochs,
                batch=min(int(self.batch_size), rows),
                evaluate={"method": "none"},
            )
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            place = "".join(f"{name}: " for name in problem["loc"][:1])
            raise ValueError(
                place + problem["msg"].removeprefix("Value error, ")
            ) from None
