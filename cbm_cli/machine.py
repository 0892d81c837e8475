"""Trained machines in Python: likelihoods, samples, features, as the commands compute
them.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.datasets.formats import reading
from cbm_cli.datasets.tables import given_values, rows_in_memory, units_for
from cbm_cli.errors import CbmError
from cbm_cli.machines import representations
from cbm_cli.machines.files import machine_arrays, read_machine, write_arrays
from cbm_cli.machines.likelihood import (
    Answer,
    Method,
    Parts,
    bounds_of,
    doubt_of,
    evaluate,
    exact_scores,
    no_parts,
    parts_of,
)
from cbm_cli.machines.limits import check_likelihood, check_whole
from cbm_cli.machines.models import Flat, Layered, flatten
from cbm_cli.machines.pseudo import pseudo_log_likelihoods
from cbm_cli.machines.samples import CHAINS, draw, draw_given, parse_sampler
from cbm_cli.machines.threads import one_thread
from cbm_cli.reference import free_energy, sigmoid

_OF_LOG_Z = ("exact", "ais")  # methods
_BLOCK = 10_000  # rows that are widened to float64 at a time


@dataclass(frozen=True, eq=False)
class TrainedMachine:
    """A restricted or deep Boltzmann machine, or an auto encoder, of n_0 visible units.

    Rows ``X`` are arrays (n, n_0), dense or sparse, of values from 0 to 1; ValueError
    for other shapes, types and values. If the machine and a data frame have names, the
    columns with the machine's names are taken, and others are ignored. Energies are
    those of the plain machine, with the offsets taken into the biases.

    Attributes
    ----------
    weights : tuple of arrays
        W_l, (n_l, n_{l+1}) float64, of the connections between layers l and l + 1; an
        RBM has one.
    biases : tuple of arrays
        Plain biases b_l, (n_l,), of each layer, the visible one first.
    offsets : tuple of arrays
        Offsets of each layer, (n_l,), as they were at the end of training.
    kind : str
        ``rbm``, ``dbm`` or ``auto-encoder``.
    sizes : tuple of int
        Units of the layers, the visible one first.
    names : tuple of str
        Names of the visible units, the columns of the data; empty where these have
        none.
    path : str
        The file, or RUN:TRIAL, that it was read from.
    parameters : NamedTuple
        All of these, and the inner biases and offsets of a decoder, ``decoder_biases``,
        ``decoder_offsets``.

    Examples
    --------
    >>> arrays = {
    ...     "weights_0": [[2, -2], [2, -2], [-2, 2], [-2, 2]],
    ...     "biases_0": np.zeros(4),
    ...     "biases_1": np.zeros(2),
    ... }
    >>> np.savez("pairs.npz", kind="rbm", **arrays)
    >>> cbm.load("pairs.npz")
    <rbm of 4-2 units>
    """

    parameters: Layered
    path: str = ""

    def __getattr__(self, name: str) -> Any:
        if name in ("weights", "biases", "offsets", "kind", "sizes", "names"):
            return getattr(self.parameters, name)
        raise AttributeError(f"a TrainedMachine has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<{self.kind} of {'-'.join(map(str, self.sizes))} units>"

    def log_likelihood(
        self,
        X: ArrayLike,
        method: str = "exact",
        *,
        log_z: float | None = None,
        **how: Any,
    ) -> NDArray[np.float64]:
        """Return log p(x) of each row in nats, (n,).

        Parameters
        ----------
        method : {"exact", "ais"}
            ``exact`` sums over all states. ``ais`` estimates log Z, starting at the
            means of ``X``; for deep machines it gives mean-field lower bounds.
        log_z : float, optional
            A known result of `log_partition`, instead of a new one.
        **how
            ``temperatures``, ``runs`` and ``seed`` of estimates.

        Examples
        --------
        >>> pairs = cbm.load("pairs.npz")
        >>> pairs.log_likelihood([[1, 1, 0, 0], [1, 0, 1, 0]]).round(3)
        array([-1.327, -3.977])
        """
        self._check_method(method)
        x = self._rows(X)
        if log_z is None:
            log_z = self.log_partition(method, data=x, **how)
        if self.kind == "dbm" and method == "ais":
            return bounds_of(flatten(self.parameters), x, 1.0, Method(**how))[0] - log_z
        scores = -self.free_energy(x) - log_z
        if method == "exact":  # rounding makes no p(x) exceed 1
            return np.minimum(scores, 0)
        return scores

    def log_partition(
        self,
        method: str = "exact",
        *,
        data: ArrayLike | None = None,
        temperatures: int | None = None,
        runs: int = 100,
        seed: int = 1,
    ) -> float:
        """Return log Z of the plain energy, summed over all states (``exact``) or
        estimated.

        ``ais`` starts at the means of the rows ``data``, or at the visible biases
        of the machine. A warning is issued if the estimate is doubtful, as where known
        states, the rows among them, prove a larger one; `evaluate` returns its standard
        error and the proved lower bound.

        Examples
        --------
        >>> round(cbm.load("pairs.npz").log_partition(), 6)
        5.3633
        """
        self._check_method(method)
        how = Method(method, temperatures, runs, seed=seed)
        precision = np.float64 if method == "exact" else np.float32
        flat = flatten(self.parameters, precision, repr(self))
        parts = no_parts(flat)
        if method == "ais" and data is not None:
            parts = parts_of(as_bytes(self._rows(data)), how)
        answer, _ = self._evaluated(flat, parts, how)
        return answer["log_z"]

    def evaluate(self, X: ArrayLike, method: str | None = None, **how: Any) -> Answer:
        """Return what ``cbm evaluate --json`` prints: log Z and its errors,
        likelihoods, bounds or costs.

        ``method`` is ``exact`` (default), ``ais`` or ``pseudo``; ``how`` may have
        ``temperatures``, ``runs``, ``rows`` and ``seed``. Grey values are rounded to
        multiples of 1/255, as in training.

        Examples
        --------
        >>> answer = cbm.load("pairs.npz").evaluate([[1, 1, 0, 0], [0, 0, 1, 1]])
        >>> round(answer["log_likelihood"]["mean"], 6)
        -1.327
        """
        chosen = Method(method, **how)
        parts = parts_of(as_bytes(self._rows(X)), chosen)
        answer, by_part = self._evaluated(self.parameters, parts, chosen)
        return answer | by_part["train"]

    def free_energy(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return F(x) = -log sum_h exp(-E(x, h)) of each row in nats, (n,), so that log
        p(x) = -F(x) - log Z.

        For deep machines the sum is over all hidden states; CbmError if there are too
        many.

        Examples
        --------
        >>> cbm.load("pairs.npz").free_energy([[1, 1, 0, 0], [1, 0, 1, 0]]).round(3)
        array([-4.036, -1.386])
        """
        self._check_method()
        x = self._rows(X)
        if self.kind == "dbm":
            check_likelihood(
                self.sizes, len(x), repr(self), 'use log_likelihood(X, "ais"), a bound'
            )
            return -exact_scores(flatten(self.parameters, np.float64), x)
        (W,), (b, c) = self.parameters.weights, self.parameters.biases
        energies = []
        for start in range(0, len(x), _BLOCK):
            block = x[start : start + _BLOCK].astype(np.float64)
            energies.append(free_energy(block, W, b, c))
        return np.concatenate(energies)

    def pseudo_likelihood(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return sum_i log p(x_i | all other units of x) of each row of an RBM in nats,
        (n,).

        It needs no log Z, and is not an estimate of log p(x).

        Examples
        --------
        >>> pairs = cbm.load("pairs.npz")
        >>> pairs.pseudo_likelihood([[1, 1, 0, 0], [1, 0, 1, 0]]).round(3)
        array([-0.622, -4.873])
        """
        if self.kind != "rbm":
            raise CbmError(f"{self!r}: pseudo-likelihoods are of RBMs only")
        (W,), (b, c) = self.parameters.weights, self.parameters.biases
        return pseudo_log_likelihoods(W, b, c, self._rows(X))

    def transform(self, X: ArrayLike, layer: int | None = None) -> NDArray[np.float32]:
        """Return the mean activity of the units of a hidden layer given each row, (n,
        n_l).

        ``layer`` counts from 1; default: the last one. Deep Boltzmann machines use mean
        field.

        Examples
        --------
        >>> cbm.load("pairs.npz").transform([[1, 1, 0, 0]]).round(2)
        array([[0.98, 0.02]], dtype=float32)
        """
        number = representations.layer_of(self.parameters, layer)
        layers, _ = representations.represent(self.parameters, self._rows(X))
        return layers[number - 1]

    def reconstruct(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the visible means given the mean hidden activities of each row, (n,
        n_0).

        Examples
        --------
        >>> cbm.load("pairs.npz").reconstruct([[1, 1, 0, 0]]).round(2)
        array([[0.87, 0.87, 0.13, 0.13]])
        """
        machine = self.parameters
        biases = (machine.biases[0], *machine.decoder_biases)
        y: NDArray[Any] = self.transform(X, len(biases))
        weights = machine.weights[: len(biases)]
        for W, d in zip(reversed(weights), reversed(biases), strict=True):
            y = sigmoid(y @ W.T + d)
        return y

    def sample(
        self,
        n: int | None = None,
        seed: int = 1,
        *,
        given: Any = None,
        sampler: str = "PT_10",
        steps: int = 1000,
        chains: int = CHAINS,
        start: ArrayLike | None = None,
        means: bool = False,
    ) -> NDArray:
        """Return n samples of the visible units, (n, n_0) uint8, or their ``means`` p(x
        = 1 | h), float32.

        ``chains`` run side by side, each with ``steps`` sweeps before each of its
        samples, from random states or from the rows ``start``. Rows ``given`` (R, n_0)
        of zeros, ones and gaps are completed: gaps are sampled given the rest, in
        sample i of row i % R, by ``chains`` of each row; n is R by default, and 100
        without them. Gaps are NaN, None, pandas.NA or masked entries of lists, arrays
        and data frames. The bytes are those of ``cbm sample`` with the same options.

        Examples
        --------
        >>> pairs = cbm.load("pairs.npz")
        >>> pairs.sample(1000).shape
        (1000, 4)
        >>> pairs.sample(given=[[1, None, None, 0]])
        array([[1, 1, 0, 0]], dtype=uint8)
        """
        self._check_method()
        check_whole("sample", 1, n=n, chains=chains, steps=steps)
        check_whole("sample", 0, seed=seed)
        chain_options: dict[str, Any] = {
            "chains": chains,
            "steps": steps,
            "seed": seed,
        }
        if start is not None:
            rows = as_bytes(self._rows(start))
            chain_options["start"] = rows.train, 1 / rows.levels
        machine, parsed = flatten(self.parameters), parse_sampler(sampler)
        if given is None:
            samples = draw(machine, parsed, n or 100, **chain_options)
        else:
            with reading("given"):
                values = given_values(rows_in_memory(given), self.names)
            samples = draw_given(machine, parsed, n, values, "given", **chain_options)
        return samples.means if means else samples.samples

    def filters(self, layer: int = 1) -> NDArray[np.float32]:
        """Return the filters of a hidden layer's units, projected to the visible units,
        (n_l, n_0).

        Examples
        --------
        >>> cbm.load("pairs.npz").filters()
        array([[ 2.,  2., -2., -2.],
               [-2., -2.,  2.,  2.]], dtype=float32)
        """
        number = representations.layer_of(self.parameters, layer)
        return representations.filters(self.parameters)[number - 1]

    def save(self, path: str | PathLike) -> None:
        """Write a machine file (docs/machines.md), which `load` and the commands
        read.

        Examples
        --------
        >>> pairs = cbm.load("pairs.npz")
        >>> pairs.save("copy.npz")
        >>> cbm.load("copy.npz").log_partition() == pairs.log_partition()
        True
        """
        write_arrays(Path(path), machine_arrays(self.parameters))

    def _rows(self, X: Any) -> NDArray:
        """Return X as an array of numbers if it is a (n, n_0) array of values in [0,
        1].

        The columns of a data frame with the names of the visible units are taken.
        """
        n = self.sizes[0]
        if hasattr(X, "columns"):
            X = units_for(X, self.names)
        if np.ma.is_masked(X):
            raise ValueError(
                "X has masked entries; fill them, or leave out the rows that have some"
            )
        x = np.asarray(X.toarray() if issparse(X) else X)
        if x.ndim != 2 or x.shape[1] != n or x.dtype.kind not in "buif":
            raise ValueError(
                f"X is an array of {x.dtype} of shape {x.shape}; the machine has {n} "
                f"visible units: expected numbers of shape (n, {n})"
            )
        if not len(x):
            raise ValueError(
                "X has values in no row; expected one row or more, with values from 0 "
                "to 1"
            )
        if not (x.min() >= 0 and x.max() <= 1):
            raise ValueError(
                f"X has values from {x.min()} to {x.max()}; expected one row or more, "
                "with values from 0 to 1"
            )
        return x.astype(np.uint8) if x.dtype == bool else x

    def _check_method(self, method: str = "exact") -> None:
        """Raise CbmError for a method that gives no log Z, and for a machine that has
        none.
        """
        if self.kind == "auto-encoder":
            raise CbmError(
                "an auto encoder has no likelihood, energy or samples; use transform, "
                "reconstruct or evaluate"
            )
        if method not in _OF_LOG_Z:
            methods = ", ".join(_OF_LOG_Z)
            raise CbmError(f"method {method!r} gives no log Z; there are {methods}")

    def _evaluated(
        self, machine: Layered | Flat, parts: Parts, how: Method
    ) -> tuple[Answer, dict[str, Answer]]:
        """Return what `evaluate` of machines does, with a warning if it is doubtful."""
        with one_thread():
            answer, by_part = evaluate(machine, parts, how, repr(self))
        doubt = doubt_of(answer)
        if doubt:
            warnings.warn(f"{doubt}; use more temperatures", stacklevel=3)
        return answer, by_part


def as_bytes(x: NDArray) -> Dataset:
    """Return rows (n, n_0) in [0, 1] as training holds them: bytes, grey values as
    multiples of 1/255.

    Examples
    --------
    >>> as_bytes(np.array([[0, 0.5], [1, 0]])).train
    array([[  0, 128],
           [255,   0]], dtype=uint8)
    """
    binary = ((x == 0) | (x == 1)).all()
    levels = 1 if binary else 255
    rows = np.ascontiguousarray(np.rint(x * float(levels)), np.uint8)
    return Dataset("rows", rows, levels=levels)


def load(path: str | PathLike) -> TrainedMachine:
    """Read a machine file of any kind, or RUN:TRIAL of results; CbmError if it is
    missing or damaged.

    Examples
    --------
    >>> cbm.load("pairs.npz").sizes
    (4, 2)
    """
    return TrainedMachine(read_machine(Path(path)), str(path))
