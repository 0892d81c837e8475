"""The Python interface, ``import cbm_cli as cbm``: data sets, results and runs;
`machine` has machines.

Everything here calls what the commands call, and returns arrays and data frames.
"""

from __future__ import annotations

import hashlib
import io
import json
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

    from cbm_cli.report.panels import Picture


# Data sets


def data(name: str | None = None, /, **options: Any) -> dict[str, NDArray]:
    """Return the parts of a data set: ``train``, and ``valid`` and ``test`` where there
    are any.

    ``name`` and ``options`` are those of ``data:`` in a grid, such as
    ``path="rows.csv"``. Rows are arrays (n, n_0): zeros and ones in uint8, or with
    ``binarise="none"`` grey values in [0, 1] in float32.
    """
    from cbm_cli.datasets.loading import load as load_dataset

    for source in (name, *map(options.get, ("path", "train", "valid", "test"))):
        if not isinstance(source, str | PathLike | None):
            told = (
                "reads files and named sets; for rows in memory write "
                "cbm.run(grid, data=rows)"
            )
            raise CbmError(f"data: {told}")
    found = load_dataset(name, **options)
    if found.levels == 1:
        return found.parts
    return {part: rows / np.float32(found.levels) for part, rows in found.parts.items()}


# Results


class ResultFrames:
    """A results folder as data frames; an experiment may be left out where the folder
    has only one.
    """

    def __init__(self, folder: str | PathLike = "results/") -> None:
        self._results = Results(Path(folder))

    def __repr__(self) -> str:
        return (
            f"<results in {self._results.folder}: "
            f"{', '.join(self.experiments()) or 'none'}>"
        )

    def experiments(self) -> list[str]:
        """Return the names of the experiments."""
        return self._results.experiments()

    def summaries(self, experiment: str | None = None) -> pd.DataFrame:
        """Return one row per finished trial, of one experiment or of all, as in
        summary.csv.
        """
        import pandas as pd

        frames = list[pd.DataFrame]()
        try:
            with self._results.readable([experiment] if experiment else ()) as stores:
                frames = [store.summary() for store in stores]
        except CbmError as error:
            if not frames:
                raise
            warnings.warn(str(error), stacklevel=2)
        # those without a row would turn the numbers of trials into floats
        return pd.concat(
            [frame for frame in frames if len(frame)] or frames, ignore_index=True
        ).copy()

    def curves(self, experiment: str | None = None) -> pd.DataFrame:
        """Return one row per evaluation of each finished trial.

        Columns: ``run_id``, ``trial``, the settings that vary, ``update``, ``epoch``,
        and the metrics in nats per sample.
        """
        return self._long(experiment, "curves")

    def records(self, experiment: str | None = None) -> pd.DataFrame:
        """Return one row per record of each finished trial: columns as in `curves`,
        then the recorders'.
        """
        return self._long(experiment, "records")

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
        """
        import pandas as pd

        from cbm_cli.cli.table import tables

        for name in {"rows", "columns", "groups", "choose"} & {*options}:
            options[name] = _listed(options[name])
        names = [self._results.only(experiment)]
        (found,) = tables(self._results, names, select=_wanted(select), **options)
        return pd.DataFrame(found.records())

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
        """
        from cbm_cli.report.kinds import draw
        from cbm_cli.report.options import Options
        from cbm_cli.report.panels import WIDTHS, compose

        if isinstance(size, str) and size not in WIDTHS:
            raise CbmError(
                f"size {size!r}: write column, page or (width, height) in inches"
            )
        if isinstance(metric := options.get("metric"), str):
            options["metric"] = [metric]
        asked = Options(_wanted(select), **options)
        return compose(
            draw(self._results, kind, _listed(experiments), asked), size, title
        )

    def best(
        self,
        experiment: str | None = None,
        metric: str | None = None,
        data: str | None = None,
    ) -> TrainedMachine:
        """Return the machine that ``cbm best`` names first; with several data sets,
        name one.
        """
        store = self._results.store(self._results.only(experiment))
        machines: dict[str, str] = {}  # the first of each data set
        for record in best_machines(store, metric=metric):
            if record.machine:
                machines.setdefault(record.data, record.machine)
        paths = [path for title, path in machines.items() if data in (None, title)]
        if len(paths) != 1:
            titles = ", ".join(machines)
            raise CbmError(
                f"{store.experiment}: each data set has a best machine; name one by "
                f"data=: {titles}"
            )
        return load(paths[0])

    def _long(self, experiment: str | None, kind: str) -> pd.DataFrame:
        """Return the curves or the records of all trials below each other."""
        import pandas as pd

        store = self._results.store(self._results.only(experiment))
        summary = store.summary()
        if summary.empty:
            return summary
        keys = [*zip(summary["run_id"], summary["trial"], strict=True)]
        found = [getattr(store, kind)(run_id, [number])[0] for run_id, number in keys]
        frames = pd.concat(found, keys=keys, names=["run_id", "trial"])
        axes = [
            "run_id",
            *(axis for axis in store.manifest().axes if axis in summary),
        ]
        cells = summary[axes].drop_duplicates("run_id")
        return cells.merge(frames.reset_index(["run_id", "trial"]), on="run_id")


def _listed(names: Any) -> Any:
    """Return a single name as a list of it, and anything else as it is."""
    return [names] if isinstance(names, str) else names


def _wanted(select: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return settings and values to select by as text."""
    lists = {
        name: one if isinstance(one, list | tuple) else [one]
        for name, one in (select or {}).items()
    }
    return [
        (name, text_of(value)) for name, values in lists.items() for value in values
    ]


def open_results(folder: str | PathLike = "results/") -> ResultFrames:
    """Return the finished trials of a results folder as data frames; CbmError if it is
    not there.
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
    """
    from cbm_cli.cli.output import live
    from cbm_cli.execution.agenda import make_agenda
    from cbm_cli.execution.precompile import precompile
    from cbm_cli.execution.run import RunProgress, run_agenda
    from cbm_cli.grid.read import read_grid
    from cbm_cli.kernels.sharing import cores

    check_whole("run", 0, jobs=jobs)
    text, path = (
        (_yaml(grid), Path("grid")) if isinstance(grid, Mapping) else (None, Path(grid))
    )
    names = _listed(experiments)
    with locked(Path(output)) as lock:
        fields = dict(changes or {})
        if data is not None:
            fields["data"] = _kept_data(data, lock, path.parent)
        texts = {
            field: value if isinstance(value, str) else _yaml(value)
            for field, value in fields.items()
        }
        selected = read_grid(path, texts, trials, names, text=text).select(names)
        agenda = make_agenda(selected, Path(output), folder=path.parent)
        its = RunProgress(agenda)
        script = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType(
            "__main__"
        )  # or new workers would run the user's script again
        try:
            with (
                live(its.share, its.words)
                if progress
                else nullcontext(its.message) as its.message
            ):
                if agenda.jobs:
                    precompile(agenda.jobs, its.message)
                ending = run_agenda(
                    agenda, its, lock, workers=cores() if jobs is None else jobs
                )
        finally:
            sys.modules["__main__"] = script
    for name, flaw in ending.flaws.items():
        kept = (
            f"{name} failed in {count(ending.flawed[name], 'trial')}, kept without "
            "its columns"
        )
        warnings.warn(f"{kept}; first in {flaw}", stacklevel=2)
    if ending.failed:
        lines = [
            f"{job.title}: {failure.message}" for job, failure in ending.failed[:10]
        ]
        head = f"{count(len(ending.failed), 'trial')} failed; finished ones are kept"
        raise CbmError("\n".join([head, *lines]))
    return ResultFrames(output)


def _kept_data(data: Any, lock: Lock, folder: Path) -> dict[str, Any] | str:
    """Return fields of ``data:`` for a file that holds the units of data frames and
    arrays.
    """
    from cbm_cli.datasets.loading import read_parts
    from cbm_cli.datasets.spec import make_spec

    if isinstance(data, str) and not Path(data).is_file():
        return data  # a named set
    given = (
        data
        if isinstance(data, Mapping) and not hasattr(data, "shape")
        else {"path": data}
    )
    if {"train", "path"} <= given.keys():
        raise CbmError("data: train is another word for path; give one of them")
    given = {
        "path" if name == "train" else name: one
        for name, one in given.items()
        if one is not None
    }
    sources = {name: given[name] for name in ("path", "valid", "test") if name in given}
    default = {"name": "data"} if "path" in sources else {}
    spec = make_spec(
        **default | given | dict.fromkeys(sources, "rows")
    )  # it names a value that does not fit
    if all(isinstance(one, str | PathLike) for one in sources.values()):
        return given
    arrays: dict[str, Any] = {}
    for part, found in read_parts(spec, given, folder).items():
        values, image = found.values, found.image
        arrays[part] = values.reshape(-1, *image[:2]) if image else values
    names = found.names  # all parts have the same
    stream = io.BytesIO()
    np.savez(stream, **arrays | ({"names": np.array(names)} if names else {}))
    content = stream.getvalue()
    name = f"{hashlib.sha256(content).hexdigest()[:16]}.npz"
    path = lock.folder.resolve() / "data" / name
    lock.keep_rows(path, content)
    rest = {
        name: one
        for name, one in given.items()
        if name not in (*sources, "columns", "drop", "header")
    }
    return (
        {"name": "data"}
        | rest
        | {"path": str(path)}
        | ({"columns": "all"} if names else {})
    )


def _yaml(value: Any) -> str:
    """Return plain values, paths and NumPy's arrays as YAML text, which JSON is."""

    def plain(one: Any) -> Any:
        if hasattr(one, "tolist") and getattr(one, "ndim", 0) < 2:
            return one.tolist()
        if isinstance(one, PathLike):
            return str(one)
        kind = type(one).__name__
        raise CbmError(
            f"a grid cannot hold a {kind}; pass rows by data=, as in cbm.run(grid, "
            "data=rows)"
        )

    return json.dumps(value, indent=1, ensure_ascii=False, default=plain)
