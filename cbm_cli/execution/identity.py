"""The names of runs, and what they depend on."""

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.execution.starts import FileStarts, TrialStarts, source_cell
from cbm_cli.grid.settings import RECORDERS, Data, Experiment, Settings
from cbm_cli.results import Store
from cbm_cli.results.identity import pretraining_id, run_ids
from cbm_cli.trial.own_recorders import read_recorder
from cbm_cli.trial.pretraining import pretraining_facts


class Named(NamedTuple):
    """Names of the trials of a cell, and everything that they depend on."""

    run_id: str
    course: str  # the run-id without the length of training
    pretraining: str | None  # name of its pre-trained layers, if it has any
    data: Dataset
    sources: dict[str, str]  # texts of a user's own recorders, by name
    start: FileStarts | TrialStarts | None  # None: new machines


class Names:
    """Names of the trials of cells.

    A user's own recorders are read for them, but not run.
    """

    def __init__(
        self, datasets: Mapping[Data, Dataset], root: Path, folder: Path
    ) -> None:
        self.datasets = datasets  # of all cells
        self.root = root  # the results folder
        self.folder = folder  # of the grid
        self._recorder = cache(partial(read_recorder, folder=folder))
        self._names: dict[tuple[str, Settings], Named] = {}

    def of(self, experiment: Experiment, cell: Settings) -> Named:
        """Return the names of a cell; CbmError for recorders or machines that cannot be
        read.
        """
        key = experiment.name, cell
        if key in self._names:
            return self._names[key]
        start = self._start(experiment, cell)
        sources = {}
        for recorder in cell.record.names:
            if recorder not in RECORDERS:
                sources[recorder] = self._recorder(recorder)
        data, seed = self.datasets[cell.data], experiment.seed
        fact = start.fact if start else ""
        run_id, course = run_ids(cell, seed, data.digest, sources, fact)
        facts = pretraining_facts(cell)
        layers = pretraining_id(facts, seed, data.digest) if facts else None
        self._names[key] = Named(
            run_id=run_id,
            course=course,
            pretraining=layers,
            data=data,
            sources=sources,
            start=start,
        )
        return self._names[key]

    def _start(
        self, experiment: Experiment, cell: Settings
    ) -> FileStarts | TrialStarts | None:
        if cell.start_from.path:
            return FileStarts(cell, cell.start_from.path, self.folder)
        if not cell.start_from.experiment:
            return None
        source, other = source_cell(experiment, cell)
        return TrialStarts(
            cell=cell,
            source=source,
            source_cell=other,
            fact=self.of(source, other).run_id,
            store=Store(self.root / source.name),
        )
