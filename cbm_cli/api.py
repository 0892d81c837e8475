"""The Python interface, ``import cbm_cli as cbm``: data sets, results and runs;
`machine` has machines.

Everything here calls what the commands call, and returns arrays and data frames.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cbm_cli.errors import CbmError
from cbm_cli.machine import TrainedMachine, load
from cbm_cli.machines.limits import check_whole
from cbm_cli.results import Results
from cbm_cli.results.selection import best_machines
from cbm_cli.results.writer import Lock, locked
from cbm_cli.text import count, text_of

if TYPE_CHECKING:
    import pandas as pd

    from cbm_cli.execution.run import Ending
    from cbm_cli.report.panels import Picture

_SOURCES = ("path", "valid", "test")  # fields of data that are files, or rows


# Data sets


def data(name: str | None = None, /, **options: Any) -> dict[str, NDArray]:
    """Return the parts of a data set: ``train``, and ``valid`` and ``test`` where there
    are any.

    ``name`` and ``options`` are those of ``data:`` in a grid, such as
    ``path="rows.csv"``. Rows are arrays (n, n_0): zeros and ones in uint8, or with
    ``binarise="none"`` grey values in [0, 1] in float32.

    Examples
    --------
    >>> cbm.data("shifting-bar", size=4, bar=1, flip=True)["train"]
    array([[0, 1, 1, 1],
           [1, 0, 1, 1],
           [1, 1, 0, 1],
           [1, 1, 1, 0]], dtype=uint8)
    """
    from cbm_cli.datasets.loading import load as load_dataset

    for source in (name, *map(options.get, ("train", *_SOURCES))):
        if not isinstance(source, str | PathLike | None):
            raise CbmError(
                "data: reads files and named sets; for rows in memory write "
                "cbm.run(grid, data=rows)"
            )
    dataset = load_dataset(name, **options)
    if dataset.levels == 1:
        return dataset.parts
    largest = np.float32(dataset.levels)
    return {part: rows / largest for part, rows in dataset.parts.items()}


# Results


class ResultFrames:
    """A results folder as data frames; an experiment may be left out where the folder
    has only one.

    Examples
    --------
    >>> toy = {"model": {"kind": "rbm", "hidden": 2}, "offsets": ["00", "dd^b_s"]}
    >>> toy |= {"sampler": "PCD-1", "learning_rate": 0.1, "updates": 100, "trials": 3}
    >>> rows = np.repeat([[0, 0, 1, 1], [1, 1, 0, 0]], 50, axis=0)
    >>> grid = {"experiments": {"pairs": toy}}
    >>> results = cbm.run(grid, data=rows, jobs=0, progress=False)
    >>> results
    <results in results: pairs>
    """

    def __init__(self, folder: str | PathLike = "results/") -> None:
        self._results = Results(Path(folder))

    def __repr__(self) -> str:
        names = ", ".join(self.experiments())
        return f"<results in {self._results.folder}: {names or 'none'}>"

    def experiments(self) -> list[str]:
        """Return the names of the experiments.

        Examples
        --------
        >>> cbm.open_results("results").experiments()
        ['pairs']
        """
        return self._results.experiments()

    def summaries(self, experiment: str | None = None) -> pd.DataFrame:
        """Return one row per finished trial, of one experiment or of all, as in
        summary.csv.

        Examples
        --------
        >>> summaries = cbm.open_results("results").summaries()
        >>> summaries.groupby("offsets")["trial"].count().to_dict()
        {'00': 3, 'dd^b_s': 3}
        """
        import pandas as pd

        names = [experiment] if experiment else []
        frames: list[pd.DataFrame] = []
        try:
            with self._results.readable(names) as stores:
                frames = [store.summary() for store in stores]
        except CbmError as error:
            if not frames:
                raise
            warnings.warn(str(error), stacklevel=2)
        # Without a row, numbers of trials would become floats.
        filled = [frame for frame in frames if len(frame)]
        return pd.concat(filled or frames, ignore_index=True)

    def curves(self, experiment: str | None = None) -> pd.DataFrame:
        """Return one row per evaluation of each finished trial.

        Columns: ``run_id``, the settings that vary, ``trial``, ``update``, ``epoch``,
        and the metrics in nats per sample.

        Examples
        --------
        >>> cbm.open_results("results").curves().columns[:5].tolist()
        ['run_id', 'offsets', 'trial', 'update', 'epoch']
        """
        return self._of_trials(experiment, "curves")

    def records(self, experiment: str | None = None) -> pd.DataFrame:
        """Return one row per record of each finished trial: columns as in `curves`,
        then the recorders'.

        Examples
        --------
        >>> cbm.open_results("results").records().empty  # the grid has no recorders
        True
        """
        return self._of_trials(experiment, "records")

    def table(
        self,
        experiment: str | None = None,
        *,
        select: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> pd.DataFrame:
        """Return one row per cell of ``cbm table``, with what ``--format csv`` prints.

        Parameters
        ----------
        experiment : str, optional
            Default: the only one.
        select : mapping, optional
            Settings, each with a value or a list of values, as ``--select``.
        **options
            Options of ``cbm table``: ``rows``, ``columns`` and ``choose``, a name or a
            list of names each; ``metric``, ``statistic``, ``by``, ``test``, ``alpha``,
            ``correction``. Also ``groups``, settings that divide the rows, and
            ``best``, ``"highest"`` or ``"lowest"``, of a metric without a best.

        Examples
        --------
        >>> table = cbm.open_results("results").table(statistic="final")
        >>> table["offsets"].tolist()
        ['00', 'dd^b_s']
        """
        import pandas as pd

        from cbm_cli.cli.table import tables

        for name in ("rows", "columns", "groups", "choose"):
            if name in options:
                options[name] = _names(options[name])
        experiments = [self._results.only(experiment)]
        options["select"] = _pairs(select)
        (table,) = tables(self._results, experiments, **options)
        return pd.DataFrame(table.records())

    def plot(
        self,
        kind: str = "curves",
        experiments: str | Sequence[str] = (),
        *,
        select: Mapping[str, Any] | None = None,
        size: str | tuple[float, float] | None = None,
        title: str | None = None,
        **options: Any,
    ) -> Picture:
        """Return a picture as ``cbm plot`` draws it, which a notebook shows.

        It has a Matplotlib ``figure``, a ``caption``, and ``write(path)``.

        Parameters
        ----------
        kind : str
            A kind of ``cbm plot``: curves, finals, settings, filters, activity, samples
            or data.
        experiments : str or sequence of str
            Experiments, or machines as RUN:TRIAL; default: the only experiment.
        select : mapping, optional
            Settings, each with a value or a list of values, as ``--select``.
        size, title, options
            Options of ``cbm plot``: ``statistic="mean"``, ``metric=["weight_norm"]``,
            ``x="learning_rate"``.

        Examples
        --------
        >>> picture = cbm.open_results("results").plot("curves", size="column")
        >>> picture.write("curves.pdf")
        >>> picture.caption
        'Median over 3 trials, band: quartiles.'
        """
        from cbm_cli.report.kinds import draw
        from cbm_cli.report.options import Options
        from cbm_cli.report.panels import WIDTHS, compose

        if isinstance(size, str) and size not in WIDTHS:
            raise CbmError(
                f"size {size!r}: write column, page or (width, height) in inches"
            )
        options["metric"] = _names(options.get("metric", ()))
        chosen = Options(_pairs(select), **options)
        panels = draw(self._results, kind, _names(experiments), chosen)
        return compose(panels, size, title)

    def best(
        self,
        experiment: str | None = None,
        metric: str | None = None,
        data: str | None = None,
    ) -> TrainedMachine:
        """Return the machine that ``cbm best`` names first; with several data sets,
        name one.

        Examples
        --------
        >>> cbm.open_results("results").best()
        <rbm of 4-2 units>
        """
        store = self._results.store(self._results.only(experiment))
        machines: dict[str, str] = {}  # the first of each data set
        for record in best_machines(store, metric=metric):
            if record.machine:
                machines.setdefault(record.data, record.machine)
        titles = [title for title in machines if data in (None, title)]
        if len(titles) != 1:
            raise CbmError(
                f"{store.experiment}: each data set has a best machine; name one by "
                f"data=: {', '.join(machines)}"
            )
        return load(machines[titles[0]])

    def _of_trials(self, experiment: str | None, kind: str) -> pd.DataFrame:
        """Return the curves or the records of all trials below each other."""
        import pandas as pd

        store = self._results.store(self._results.only(experiment))
        summary = store.summary()
        if summary.empty:
            return summary
        axes = [axis for axis in store.manifest().axes if axis in summary]
        read = getattr(store, kind)
        frames = []
        for trial in summary[["run_id", *axes, "trial"]].to_dict("records"):
            (frame,) = read(trial["run_id"], [trial["trial"]])
            frames.append(pd.DataFrame({**trial, **frame}))
        return pd.concat(frames, ignore_index=True)


def _names(names: str | Sequence[str]) -> Sequence[str]:
    """Return names as a list, also a single one."""
    return [names] if isinstance(names, str) else names


def _pairs(select: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return settings with the values to select by, as text."""
    pairs = []
    for name, values in (select or {}).items():
        if not isinstance(values, list | tuple):
            values = [values]
        pairs += [(name, text_of(value)) for value in values]
    return pairs


def open_results(folder: str | PathLike = "results/") -> ResultFrames:
    """Return the finished trials of a results folder as data frames; CbmError if it is
    not there.

    Examples
    --------
    >>> cbm.open_results("results")
    <results in results: pairs>
    """
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

    Finished trials are kept; an interrupted run resumes when it is called again.
    CbmError names the mistake in the grid or the data, or the trials that failed; the
    others are finished then.

    Parameters
    ----------
    grid : path or mapping
        A grid file, or its content as a mapping with ``experiments``.
    experiments : str or sequence of str
        Experiments and groups to run; default: the grid's default.
    data : data frame, array, sparse matrix, or mapping, optional
        Rows in place of ``data:`` in the grid, pictures also as (n, height, width); or
        fields of ``data:``, as in ``{"path": frame, "drop": ["class"], "hold_out":
        0.2}``, where ``train`` is ``path``, so that `data` fits. Files in ``data/`` of
        the output keep what is trained on.
    output, jobs, trials, progress
        As ``-o``, ``-j`` and ``--trials`` of ``cbm run``, and whether to show progress
        on stderr.
    changes : mapping, optional
        New values of fields, such as ``{"learning_rate": [0.1, 0.05], "data.flip":
        True}``.

    Examples
    --------
    >>> toy = {"data": {"name": "bars-and-stripes", "size": 2}, "offsets": "dd^b_s"}
    >>> toy |= {"model": {"kind": "rbm", "hidden": 3}, "sampler": "PCD-1"}
    >>> toy |= {"learning_rate": [0.1, 0.05], "updates": 100, "batch": "full"}
    >>> grid = {"experiments": {"bars": toy}}
    >>> results = cbm.run(grid, output="bars", trials=2, jobs=0, progress=False)
    >>> results.summaries()["learning_rate"].tolist()
    [0.1, 0.1, 0.05, 0.05]
    """
    from cbm_cli.cli.output import live
    from cbm_cli.execution.agenda import make_agenda
    from cbm_cli.execution.precompile import precompile
    from cbm_cli.execution.run import RunProgress, run_agenda
    from cbm_cli.grid.read import read_grid
    from cbm_cli.kernels.sharing import cores

    check_whole("run", 0, jobs=jobs)
    text, path = None, Path("grid")
    if isinstance(grid, Mapping):
        text = _yaml(grid)
    else:
        path = Path(grid)
    names = _names(experiments)
    fields = dict(changes or {})
    script = sys.modules["__main__"]
    with locked(Path(output)) as lock:
        if data is not None:
            fields["data"] = _kept_data(data, lock, path.parent)
        texts = {field: _yaml(value) for field, value in fields.items()}
        selected = read_grid(path, texts, trials, names, text=text).select(names)
        agenda = make_agenda(selected, Path(output), folder=path.parent)
        display = RunProgress(agenda)
        shown: Any = nullcontext(logging.getLogger("cbm").info)
        if progress:
            shown = live(display.share, display.words)
        # New workers would run the user's script again
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            with shown as display.message:
                precompile(agenda.jobs, display.message)
                workers = cores() if jobs is None else jobs
                ending = run_agenda(agenda, display, lock, workers=workers)
        finally:
            sys.modules["__main__"] = script
    _report(ending)
    return ResultFrames(output)


def _report(ending: Ending) -> None:
    """Warn of recorders that failed; CbmError for trials that did."""
    for name, errors in ending.flaws.items():
        trials = count(len(errors), "trial")
        message = f"{name} failed in {trials}, kept without its columns"
        warnings.warn(f"{message}; first in {errors[0]}", stacklevel=3)
    if ending.failed:
        trials = count(len(ending.failed), "trial")
        lines = [f"{trials} failed; finished ones are kept"]
        for job, failure in ending.failed[:10]:
            lines.append(f"{job.title}: {failure.message}")
        raise CbmError("\n".join(lines))


def _kept_data(data: Any, lock: Lock, folder: Path) -> Mapping[str, Any] | str:
    """Return fields of ``data:`` for a file that holds the units of data frames and
    arrays.
    """
    from cbm_cli.datasets.loading import read_parts
    from cbm_cli.datasets.spec import make_spec

    if isinstance(data, str) and not Path(data).is_file():
        return data  # a named set
    fields = {"path": data}
    if isinstance(data, Mapping) and not hasattr(data, "shape"):  # of sparse matrices
        fields = {name: value for name, value in data.items() if value is not None}
    if "train" in fields:
        if "path" in fields:
            raise CbmError("data: train is another word for path; give one of them")
        fields["path"] = fields.pop("train")
    rows = {name: fields[name] for name in _SOURCES if name in fields}
    name = {"name": "data"} if "path" in rows else {}
    # Names a value that does not fit
    spec = make_spec(**name | fields | dict.fromkeys(rows, "rows"))
    if all(isinstance(source, str | PathLike) for source in rows.values()):
        return fields
    arrays: dict[str, Any] = {}
    for part, table in read_parts(spec, fields, folder).items():
        arrays[part] = table.values
        if table.image:
            arrays[part] = table.values.reshape(-1, *table.image[:2])
    read = dict.fromkeys((*rows, "columns", "drop", "header"))
    kept = name | {field: fields[field] for field in fields if field not in read}
    if table.names:  # of all parts
        arrays["names"] = np.array(table.names)
        kept["columns"] = "all"
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    content = stream.getvalue()
    digest = hashlib.sha256(content).hexdigest()
    path = lock.folder.resolve() / "data" / f"{digest[:16]}.npz"
    lock.write_if_changed(path, content)
    return {**kept, "path": str(path)}


def _yaml(value: Any) -> str:
    """Return plain values, paths and NumPy's arrays as YAML text, which JSON is; text
    is YAML already.
    """

    def plain(item: Any) -> Any:
        if isinstance(item, PathLike):
            return str(item)
        if hasattr(item, "tolist") and np.ndim(item) < 2:
            return item.tolist()
        kind = type(item).__name__
        raise CbmError(
            f"a grid cannot hold a {kind}; pass rows by data=, as in cbm.run(grid, "
            "data=rows)"
        )

    if isinstance(value, str):
        return value
    return json.dumps(value, indent=1, ensure_ascii=False, default=plain)
