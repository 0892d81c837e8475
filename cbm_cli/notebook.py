"""The Python interface, ``import cbm_cli as cbm``: machines, results, runs and data sets.

Everything here calls what the commands call, and returns arrays and data frames.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.machines import representations
from cbm_cli.machines.files import Layered, flatten, machine_arrays, read_machine
from cbm_cli.machines.given import draw_given
from cbm_cli.machines.likelihood import (
    Answer,
    Method,
    bounds_of,
    doubt_of,
    evaluate,
    exact_scores,
    parts_of,
)
from cbm_cli.machines.limits import check_likelihood, check_whole
from cbm_cli.machines.pseudo import pseudo_log_likelihoods
from cbm_cli.machines.samples import CHAINS, draw, parse_sampler
from cbm_cli.machines.threads import one_thread
from cbm_cli.reference import ACTIVATIONS, free_energy, visible_mean
from cbm_cli.results import Results
from cbm_cli.results.inventory import axes_of
from cbm_cli.results.lock import locked
from cbm_cli.results.selection import best_machines
from cbm_cli.results.writing import write_if_changed
from cbm_cli.text import count, did_you_mean, text_of

if TYPE_CHECKING:
    import pandas as pd

    from cbm_cli.execution.run import Ending
    from cbm_cli.grid.settings import Experiment
    from cbm_cli.report.panels import Picture

_BLOCK = 10_000  # rows that are widened to float64 at a time
_NO_LIKELIHOOD = (
    "an auto encoder has no likelihood, energy or samples; use transform, reconstruct or evaluate"
)


# Machines


@dataclass(frozen=True, eq=False)
class TrainedMachine:
    """A restricted or deep Boltzmann machine, or an auto encoder, of n_0 visible units.

    Rows ``X`` are arrays (n, n_0) of values from 0 to 1; ValueError for other shapes, types and values.
    Energies are those of the plain machine, with the offsets taken into the biases.
    """

    parameters: Layered  # weights, plain biases and offsets of each layer, float64

    @property
    def kind(self) -> str:
        """``rbm``, ``dbm`` or ``auto-encoder``."""
        return self.parameters.kind

    @property
    def sizes(self) -> tuple[int, ...]:
        """Units of the layers, the visible one first."""
        return self.parameters.sizes

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the visible units, the columns of the data; empty where these have none."""
        return self.parameters.names

    def __repr__(self) -> str:
        return f"<{self.kind} of {'-'.join(map(str, self.sizes))} units>"

    def log_likelihood(
        self, X: ArrayLike, method: str = "exact", *, log_z: float | None = None, **how: Any
    ) -> NDArray[np.float64]:
        """Return log p(x) of each row in nats, (n,).

        Parameters
        ----------
        method : {"exact", "ais"}
            ``exact`` sums over all states. ``ais`` estimates log Z, starting at the means of ``X``; for deep
            machines it gives mean-field lower bounds.
        log_z : float, optional
            A known result of `log_partition`, instead of a new one.
        **how
            ``temperatures``, ``runs`` and ``seed`` of estimates.
        """
        x = self._rows(X)
        _check_gives_log_z(method)
        if log_z is None:
            log_z = self.log_partition(method, data=x, **how)
        if self.kind == "dbm" and method == "ais":
            return bounds_of(flatten(self.parameters), x, 1.0, Method(**how))[0] - log_z
        found = -self.free_energy(x) - log_z
        return np.minimum(found, 0) if method == "exact" else found  # rounding makes no p(x) exceed 1

    def log_partition(
        self,
        method: str = "exact",
        *,
        data: ArrayLike | None = None,
        temperatures: int | None = None,
        runs: int = 100,
        seed: int = 1,
    ) -> float:
        """Return log Z of the plain energy, summed over all states (``exact``) or estimated.

        ``ais`` starts at the means of the rows ``data``, or at the uniform distribution. A warning
        is issued if the estimate is doubtful, as where known states, the rows among them, prove a larger one;
        `evaluate` returns its standard error and the proved lower bound.
        """
        self._needs_likelihood()
        _check_gives_log_z(method)
        how = Method(method, temperatures, runs, "uniform" if data is None else "base-rate", seed=seed)
        rows = np.zeros((1, self.sizes[0])) if data is None else self._rows(data)
        parts = parts_of(as_bytes(rows), how)
        if method == "exact" or data is None:
            parts = parts._replace(rows={})
        machine = flatten(self.parameters, np.float64 if method == "exact" else np.float32, repr(self))
        with one_thread():
            found, _ = evaluate(machine, parts, how, repr(self))
        _warn_of_doubt(found)
        return found["log_z"]

    def evaluate(self, X: ArrayLike, method: str | None = None, **how: Any) -> Answer:
        """Return what ``cbm evaluate --json`` prints: log Z and its errors, likelihoods, bounds or costs.

        ``method`` is ``exact`` (default), ``ais`` or ``pseudo``; ``how`` may have ``temperatures``,
        ``runs``, ``base``, ``rows`` and ``seed``. Grey values are rounded to multiples of
        1/255, as in training.
        """
        chosen, data = Method(method, **how), as_bytes(self._rows(X))
        with one_thread():
            common, by_part = evaluate(self.parameters, parts_of(data, chosen), chosen, repr(self))
        _warn_of_doubt(common)
        return common | by_part["train"]

    def free_energy(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return F(x) = -log sum_h exp(-E(x, h)) of each row in nats, (n,), so that log p(x) = -F(x) - log Z.

        For deep machines the sum is over all hidden states; CbmError if there are too many.
        """
        self._needs_likelihood()
        x = self._rows(X)
        if self.kind == "dbm":
            check_likelihood(self.sizes, len(x), repr(self), 'use log_likelihood(X, "ais"), a bound')
            return -exact_scores(flatten(self.parameters), x)
        (W,), (b, c) = self.parameters.weights, self.parameters.biases
        return _by_blocks(lambda rows: free_energy(rows, W, b, c), x)

    def pseudo_likelihood(
        self, X: ArrayLike, seed: int | np.random.RandomState | None = None
    ) -> NDArray[np.float64]:
        """Return sum_i log p(x_i | all other units of x) of each row of an RBM in nats, (n,).

        It needs no log Z, and is no estimate of log p(x). With a ``seed`` one random unit of each row stands
        for all, as in scikit-learn's ``BernoulliRBM.score_samples`` with this ``random_state``.
        """
        if self.kind != "rbm":
            raise CbmError(f"{self!r}: pseudo-likelihoods are of RBMs only", "unsuited")
        (W,), (b, c) = self.parameters.weights, self.parameters.biases
        return pseudo_log_likelihoods(W, b, c, self._rows(X), seed=seed)

    def transform(self, X: ArrayLike, layer: int | None = None) -> NDArray[np.float32]:
        """Return the mean activity of the units of a hidden layer given each row, (n, n_l).

        ``layer`` counts from 1; default: the last one. Deep Boltzmann machines use mean field.
        """
        return representations.represent(self.parameters, self._rows(X))[0][self._layer(layer) - 1]

    def reconstruct(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the visible means given the mean hidden activities of each row, (n, n_0)."""
        machine = self.parameters
        if self.kind != "auto-encoder":
            return visible_mean(self.transform(X, 1), machine.weights[0], machine.biases[0])
        y: NDArray[Any] = self.transform(X)
        decode = ACTIVATIONS[machine.decoder][0]
        biases = machine.biases[0], *machine.decoder_biases
        for W, d in zip(reversed(machine.weights), reversed(biases), strict=True):
            y = decode(y @ W.T + d)
        return y

    def sample(
        self,
        n: int | None = None,
        seed: int = 1,
        *,
        given: ArrayLike | None = None,
        sampler: str = "PT_10",
        steps: int = 1000,
        chains: int = CHAINS,
        start: ArrayLike | None = None,
        means: bool = False,
    ) -> NDArray:
        """Return n samples of the visible units, (n, n_0) uint8, or their ``means`` p(x = 1 | h), float32.

        ``chains`` run side by side, each with ``steps`` sweeps before each of its samples, from random states
        or from the rows ``start``. Rows ``given`` (R, n_0) of zeros, ones and NaN are completed: what is NaN
        is sampled given the rest, in sample i of row i % R, by ``chains`` of each row; n is R by default, and
        100 without them. The bytes are those of ``cbm sample`` with the same options.
        """
        self._needs_likelihood()
        check_whole("sample", 1, n=n, chains=chains, steps=steps)
        check_whole("sample", 0, seed=seed)
        rows = None if start is None else as_bytes(self._rows(start))
        begin = None if rows is None else (rows.train, 1 / rows.levels)
        how: dict[str, Any] = {"chains": chains, "steps": steps, "seed": seed, "start": begin}
        machine, parsed = flatten(self.parameters), parse_sampler(sampler)
        if given is None:
            found = draw(machine, parsed, n or 100, **how)
        else:
            found = draw_given(machine, parsed, n, np.asarray(given, np.float64), "given", **how)
        return found.means if means else found.samples

    def filters(self, layer: int = 1) -> NDArray[np.float32]:
        """Return the filters of a hidden layer's units, projected to the visible units, (n_l, n_0)."""
        return representations.filters(self.parameters)[self._layer(layer) - 1]

    def save(self, path: str | PathLike) -> None:
        """Write a machine file (docs/machines.md), which `load` and the commands read."""
        representations.write_arrays(Path(path), machine_arrays(self.parameters))

    def to_sklearn(self) -> Any:
        """Return an RBM as a fitted `sklearn.neural_network.BernoulliRBM`, without its offsets."""
        if self.kind != "rbm":
            raise ValueError(f"scikit-learn has RBMs only; this is a {self!r}")
        from sklearn.neural_network import BernoulliRBM

        (W,), (b, c) = self.parameters.weights, self.parameters.biases
        estimator = BernoulliRBM(n_components=len(c))
        estimator.components_ = np.ascontiguousarray(W.T)
        estimator.intercept_visible_, estimator.intercept_hidden_ = b.copy(), c.copy()
        estimator.h_samples_ = np.zeros((estimator.batch_size, len(c)))
        estimator.n_features_in_ = len(b)
        return estimator

    def _rows(self, X: ArrayLike) -> NDArray:
        """Return X as an array of numbers if it is a (n, n_0) array of values in [0, 1].

        Columns of a data frame are put into the order of the names of the visible units.
        """
        n = self.sizes[0]
        if hasattr(X, "columns"):
            from cbm_cli.datasets.columns import Columns
            from cbm_cli.datasets.files import in_order, rows_of

            X = in_order(rows_of(X, Columns("all")), self.parameters.names, n, repr(self)).values
        x = np.asarray(X)
        if x.ndim != 2 or x.shape[1] != n or x.dtype.kind not in "buif":
            found = f"X is an array of {x.dtype} of shape {x.shape}"
            raise ValueError(
                f"{found}; the machine has {n} visible units: expected numbers of shape (n, {n})"
            )
        if not len(x) or not (x.min() >= 0 and x.max() <= 1):
            found = f"from {x.min()} to {x.max()}" if len(x) else "in no row"
            raise ValueError(f"X has values {found}; expected one row or more, with values from 0 to 1")
        return x.astype(np.uint8) if x.dtype == bool else x

    def _layer(self, layer: int | None) -> int:
        last = len(self.sizes) - 1
        if layer is not None and not 1 <= layer <= last:
            raise ValueError(f"there is no hidden layer {layer}; the machine has layers 1 to {last}")
        return layer or last

    def _needs_likelihood(self) -> None:
        if self.kind == "auto-encoder":
            raise CbmError(_NO_LIKELIHOOD, "unsuited")


def _check_gives_log_z(method: str) -> None:
    """Raise CbmError for a method that gives no log Z."""
    if method not in (known := ("exact", "ais")):
        raise CbmError(f"method {method!r} gives no log Z; there are {', '.join(known)}", "unknown")


def _by_blocks(function: Callable[[NDArray], NDArray], x: NDArray) -> NDArray[np.float64]:
    starts = range(0, len(x), _BLOCK)
    return np.concatenate([function(x[start : start + _BLOCK].astype(np.float64)) for start in starts])


def as_bytes(x: NDArray) -> Dataset:
    """Return rows (n, n_0) in [0, 1] as training holds them: bytes, grey values as multiples of 1/255."""
    levels = 1 if ((x == 0) | (x == 1)).all() else 255
    return Dataset("rows", np.ascontiguousarray(np.rint(x * float(levels)), np.uint8), levels=levels)


def _warn_of_doubt(answer: Answer) -> None:
    if doubt := doubt_of(answer):
        warnings.warn(f"{doubt}; use more temperatures", stacklevel=3)


def load(path: str | PathLike) -> TrainedMachine:
    """Read a machine file of any kind, or RUN:TRIAL of results; CbmError if it is missing or damaged."""
    return TrainedMachine(read_machine(Path(path)))


def from_sklearn(estimator: Any) -> TrainedMachine:
    """Return a fitted `BernoulliRBM` or `CenteredRBM` as a machine, without offsets."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(estimator)
    arrays = estimator.components_.T, estimator.intercept_visible_, estimator.intercept_hidden_
    W, b, c = (np.array(array, np.float64) for array in arrays)
    return TrainedMachine(Layered("rbm", (W,), (b, c), (np.zeros_like(b), np.zeros_like(c))))


# Data sets


def data(name: str | None = None, /, **options: Any) -> dict[str, NDArray]:
    """Return the parts of a data set: ``train``, and ``valid`` and ``test`` where there are any.

    ``name`` and ``options`` are those of ``data:`` in a grid, such as ``path="rows.csv"``. Rows are arrays
    (n, n_0): zeros and ones in uint8, or with ``binarise="none"`` grey values in [0, 1] in float32.
    """
    from cbm_cli.datasets.loading import load as load_dataset

    found = load_dataset(name, **options)
    if found.levels == 1:
        return found.parts
    return {part: rows / np.float32(found.levels) for part, rows in found.parts.items()}


# Results


class ResultFrames:
    """A results folder as data frames; an experiment may be left out where the folder has only one."""

    def __init__(self, folder: str | PathLike = "results/") -> None:
        self._results = Results(Path(folder))

    def __repr__(self) -> str:
        return f"<results in {self._results.folder}: {', '.join(self.experiments()) or 'none'}>"

    def experiments(self) -> list[str]:
        """Return the names of the experiments."""
        return self._results.experiments()

    def summaries(self, experiment: str | None = None) -> pd.DataFrame:
        """Return one row per finished trial, of one experiment or of all, as in summary.csv."""
        results = self._results
        return results.store(experiment).summary() if experiment else results.all_summaries()

    def curves(self, experiment: str | None = None) -> pd.DataFrame:
        """Return one row per evaluation of each finished trial.

        Columns: ``run_id``, ``trial``, the settings that vary, ``update``, ``epoch``, and the metrics in nats
        per sample.
        """
        return self._long(experiment, "curve")

    def records(self, experiment: str | None = None) -> pd.DataFrame:
        """Return one row per record of each finished trial: columns as in `curves`, then the recorders'."""
        return self._long(experiment, "records")

    def table(
        self,
        experiment: str | None = None,
        *,
        rows: str | Sequence[str] | None = None,
        columns: str | Sequence[str] | None = None,
        groups: str | Sequence[str] | None = None,
        metric: str | None = None,
        statistic: str | None = None,
        best: str | None = None,
        test: str = "signed-rank",
        alpha: float = 0.05,
        correction: str | None = None,
        select: Mapping[str, Any] | None = None,
        choose: str | Sequence[str] | None = None,
        by: str | None = None,
    ) -> pd.DataFrame:
        """Return one row per cell of ``cbm table``, with what ``--format csv`` prints; options as there.

        ``select`` maps settings to a value, or to a list of values.
        """
        import pandas as pd

        from cbm_cli.results.selection import read_cells
        from cbm_cli.statistics import build_table

        store = self._results.store(self._results.only(experiment))
        asked = {"rows": rows, "columns": columns, "groups": groups}
        axes = {name: _listed(names) for name, names in asked.items() if names is not None}
        which: Any = {"select": _wanted(select or {}), "choose": _listed(choose), "by": by}
        (cells,) = read_cells([store], metric, statistic, **which)
        how: Any = {"test": test, "alpha": alpha, "correction": correction}
        found = build_table(cells, axes=axes, best=best, **how)
        return pd.DataFrame(found.records())

    def plot(
        self,
        kind: str = "curves",
        experiments: str | Sequence[str] = (),
        *,
        select: Mapping[str, Any] | None = None,
        size: str | tuple[float, float] | None = None,
        **options: Any,
    ) -> Picture:
        """Return a picture as ``cbm plot`` draws it, which a notebook shows.

        It has a Matplotlib ``figure``, a ``caption``, and ``write(path)``.

        Parameters
        ----------
        kind : str
            A kind of ``cbm plot``: curves, finals, settings, norms, filters, ...
        experiments : str or sequence of str
            Experiments, or machines as RUN:TRIAL; default: the only experiment.
        select : mapping, optional
            Settings, each with a value or a list of values, as ``--select``.
        size, options
            Options of ``cbm plot``: ``statistic="mean"``, ``metric=["weight_norm"]``, ``x="learning_rate"``.
        """
        from cbm_cli.report.chosen import Options
        from cbm_cli.report.kinds import Part, draw
        from cbm_cli.report.panels import WIDTHS, Page, compose

        if isinstance(size, str) and size not in WIDTHS:
            raise CbmError(f"size {size!r}: write column, page or (width, height) in inches", "unknown")
        known = [field.name for field in fields(Options)]
        for name in options.keys() - {*known}:
            raise CbmError(f"plot: there is no option {name}{did_you_mean(name, known)}", "unknown")
        if isinstance(metric := options.get("metric"), str):
            options["metric"] = [metric]
        panels = draw(
            self._results, Part(kind, _listed(experiments), Options(_wanted(select or {}), **options))
        )
        return compose(panels, Page(size))

    def best(
        self, experiment: str | None = None, metric: str | None = None, data: str | None = None
    ) -> TrainedMachine:
        """Return the machine that ``cbm best`` names first; with several data sets, name one."""
        store = self._results.store(self._results.only(experiment))
        every: dict[str, str] = {}
        for one in best_machines(store, metric=metric):
            if one["machine"]:
                every.setdefault(one["data"], one["machine"])
        found = [path for name, path in every.items() if data in (None, name)]
        if len(found) != 1:
            names = ", ".join(every)
            message = f"{store.experiment}: each data set has a best machine; name one by data=: {names}"
            raise CbmError(message, "missing")
        return load(found[0])

    def _long(self, experiment: str | None, kind: str) -> pd.DataFrame:
        """Return the curves or the records of all trials below each other."""
        import pandas as pd

        store = self._results.store(self._results.only(experiment))
        summary = store.summary()
        if summary.empty:
            return summary
        keys = [*zip(summary["run_id"], summary["trial"], strict=True)]
        frames = pd.concat([getattr(store, kind)(*key) for key in keys], keys=keys, names=["run_id", "trial"])
        axes = ["run_id", *(axis for axis in axes_of(store.manifest()) if axis in summary)]
        cells = summary[axes].drop_duplicates("run_id")
        return cells.merge(frames.reset_index(["run_id", "trial"]), on="run_id")


def _listed(names: Any) -> Any:
    """Return a single name as a list of it, and anything else as it is."""
    return [names] if isinstance(names, str) else names


def _wanted(select: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return settings and values to select by as text."""
    lists = {name: one if isinstance(one, list | tuple) else [one] for name, one in select.items()}
    return [(name, text_of(value)) for name, values in lists.items() for value in values]


def open_results(folder: str | PathLike = "results/") -> ResultFrames:
    """Return the finished trials of a results folder as data frames; CbmError if it is not there."""
    return ResultFrames(folder)


# Runs


def run(
    grid: str | PathLike | Mapping[str, Any],
    experiments: str | Sequence[str] = (),
    *,
    data: Any = None,
    output: str | PathLike = "results/",
    jobs: int | None = None,
    trials: int | None = None,
    changes: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> ResultFrames:
    """Run experiments as ``cbm run`` does, and return the results.

    Finished trials are kept; an interrupted run resumes when it is called again. CbmError says what is wrong
    with the grid or the data, or which trials failed; the others are finished then.

    Parameters
    ----------
    grid : path or mapping
        A grid file, or its content as a mapping with ``experiments``.
    experiments : str or sequence of str
        Experiments and groups to run; default: the grid's default.
    data : data frame, array, sparse matrix, or mapping, optional
        Rows in place of ``data:`` in the grid, pictures also as (n, height, width); or fields of ``data:``,
        as in ``{"path": frame, "drop": ["class"], "hold_out": 0.2}``. Files in ``data/`` of the output keep
        what is trained on.
    output, jobs, trials, progress
        As ``-o``, ``-j`` and ``--trials`` of ``cbm run``, and whether to show progress on stderr.
    changes : mapping, optional
        New values of fields, such as ``{"learning_rate": [0.1, 0.05], "data.flip": True}``.
    """
    check_whole("run", 0, jobs=jobs)
    beside = Path() if isinstance(grid, Mapping) else Path(grid).parent
    rows = {} if data is None else {"data": _kept_data(data, Path(output), beside)}
    selected, folder = _selected(grid, experiments, trials, {**(changes or {}), **rows})
    _raise_failures(_run_all(selected, folder, Path(output), jobs, progress))
    return ResultFrames(output)


def _run_all(
    selected: Sequence[Experiment], folder: Path, output: Path, jobs: int | None, progress: bool
) -> Ending:
    from cbm_cli.cli.progress import Display
    from cbm_cli.cores import cores
    from cbm_cli.execution.compiling import compile_kernels
    from cbm_cli.execution.jobs import make_agenda
    from cbm_cli.execution.progress import RunProgress
    from cbm_cli.execution.run import run_agenda

    with locked(output):
        agenda = make_agenda(selected, output, folder=folder)
        with _hidden_script(), Display(agenda) if progress else RunProgress(agenda) as observer:
            if agenda.jobs:
                compile_kernels(agenda, observer.message)
            return run_agenda(agenda, observer, workers=cores() if jobs is None else jobs)


def _kept_data(data: Any, output: Path, folder: Path) -> dict[str, Any] | str:
    """Return fields of ``data:`` for a file that holds the units of data frames and arrays."""
    from cbm_cli.datasets.spec import make_spec
    from cbm_cli.datasets.units import read_parts

    if isinstance(data, str):
        return data
    given = dict(data) if isinstance(data, Mapping) else {"path": data}
    sources = {name: one for name in ("path", "valid", "test") if (one := given.get(name)) is not None}
    if all(isinstance(one, str | PathLike) for one in sources.values()):
        return given
    spec = make_spec(**{"name": "data"} | given | dict.fromkeys(sources, "rows"))  # says what does not fit
    arrays: dict[str, Any] = {}
    for part, found in read_parts(spec, given, folder).items():
        values, image = found.table.values, found.table.image
        arrays[part] = values.reshape(-1, *image[:2]) if image else values
    names = found.table.names  # all parts have the same
    stream = io.BytesIO()
    np.savez(stream, **arrays | ({"names": np.array(names)} if names else {}))
    content = stream.getvalue()
    path = output.resolve() / "data" / f"{hashlib.sha256(content).hexdigest()[:16]}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_if_changed(path, content)
    rest = {name: one for name, one in given.items() if name not in (*sources, "columns", "drop")}
    return {"name": "data"} | rest | {"path": str(path)} | ({"columns": "all"} if names else {})


def _raise_failures(ending: Ending) -> None:
    """Warn of recorders that failed; raise CbmError if trials did."""
    for name, flaw in ending.flaws.items():
        kept = f"{name} failed in {count(ending.flawed[name], 'trial')}, kept without its columns"
        warnings.warn(f"{kept}; first in {flaw}", stacklevel=3)
    if ending.failed:
        lines = [f"{job.title}: {failure.message}" for job, failure in ending.failed[:10]]
        head = f"{count(len(ending.failed), 'trial')} failed; finished ones are kept"
        raise CbmError("\n".join([head, *lines]), "failed")


def _selected(
    grid: str | PathLike | Mapping[str, Any],
    experiments: str | Sequence[str],
    trials: int | None,
    changes: Mapping[str, Any],
) -> tuple[list[Experiment], Path]:
    """Return the experiments to run, and the folder that paths are relative to."""
    from cbm_cli.grid.read import read_grid

    text, path = (_yaml(grid), Path("grid")) if isinstance(grid, Mapping) else (None, Path(grid))
    texts = {field: value if isinstance(value, str) else _yaml(value) for field, value in changes.items()}
    names = _listed(experiments)
    return read_grid(path, texts, trials, names, text=text).select(names), path.parent


@contextmanager
def _hidden_script() -> Iterator[None]:
    """Keep new worker processes from running the user's script again; they need nothing of it."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _yaml(value: Any) -> str:
    """Return plain values, paths and NumPy's arrays as YAML text, which JSON is."""
    return json.dumps(
        value,
        indent=1,
        ensure_ascii=False,
        default=lambda one: one.tolist() if hasattr(one, "tolist") else str(one),
    )
