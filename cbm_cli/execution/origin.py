"""Names of runs, and the machines that trials start from: files, or trials of another
experiment.
"""

import hashlib
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from cbm_cli.arrays import content_of
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import RECORDERS, Data, Experiment, Settings
from cbm_cli.machines.files import read_machine
from cbm_cli.machines.models import Layered
from cbm_cli.results import Store
from cbm_cli.results.identity import pretraining_id, run_ids
from cbm_cli.results.journal import TrialKey
from cbm_cli.trial.own_recorders import load_recorder
from cbm_cli.trial.pretraining import pretraining_facts
from cbm_cli.trial.start import check_machine


@dataclass(frozen=True)
class Start:
    """The machine that a trial starts from."""

    file: Path  # of the machine, or its name
    read: Callable[[], Layered]
    digest: str = (
        ""  # SHA-256 of a machine file; the trials of experiments have run-ids instead
    )
    needs: TrialKey | None = None  # of the trial that writes the machine

    def machine(self, settings: Settings, data: Dataset) -> Layered:
        """Read the machine; CbmError if it is missing or does not fit the settings."""
        try:
            machine = self.read()
            check_machine(settings, data, machine, self.file)
        except CbmError as error:
            raise CbmError(str(error), field="start_from") from None
        return machine


class FileStarts:
    """The machine files of a cell, relative to the grid's folder."""

    def __init__(self, cell: Settings, path: str, folder: Path) -> None:
        self.cell, self.path, self.folder = cell, path, folder
        self.shared = "{" not in path  # one file for all trials
        self.of = cache(self._of)

    def _of(self, number: int) -> Start:
        """Return the start of a trial; CbmError if its file cannot be read."""
        if self.shared and number:
            return self.of(0)
        file = self.folder / self.path.format(trial=number)
        read = partial(read_machine, file)
        try:
            digest = hashlib.sha256(content_of(file)).hexdigest()
        except OSError as error:
            raise CbmError(
                f"{file}: cannot be read: {error.strerror}", field="start_from"
            ) from None
        return Start(file, cache(read) if self.shared else read, digest)

    def check(self, data: Dataset, trials: int) -> None:
        """Raise CbmError for a machine that is missing or does not fit the cell."""
        for number in range(1 if self.shared else trials):
            self.of(number).machine(self.cell, data)

    @property
    def fact(self) -> str:
        """What the run-id depends on: the content of a file that all trials start from.

        If each trial has its own file, that of the first one; the digest of each is
        kept with its trial.
        """
        return self.of(0).digest if self.shared else f"files from {self.of(0).digest}"


@dataclass(frozen=True)
class TrialStarts:
    """The trials of another experiment that the trials of a cell start from."""

    cell: Settings
    source: Experiment
    its_cell: Settings
    fact: str  # the other run-id, which decides the machines
    store: Store

    def of(self, number: int) -> Start:
        """Return the start of a trial, which may not be finished yet."""
        best = self.cell.start_from.machine == "best-valid"
        name = self.store.folder.parent / f"{self.fact}:{number}{':best' * best}"

        def read():
            return read_machine(name, self.store.machine(self.fact, number, best)[1])

        return Start(name, read, needs=(self.fact, number))

    def check(self, data: Dataset, trials: int) -> None:
        """Raise CbmError if trials start from best machines that the other experiment
        does not keep.
        """
        how = self.its_cell.evaluate
        watched = "valid" in data.parts and (
            how.parts is None or "valid" in how.parts.split("+")
        )
        if self.cell.start_from.machine == "best-valid" and (
            how.method == "none" or not watched
        ):
            told = (
                f"evaluates no validation part of {data.name}, so it has no best "
                "machine"
            )
            raise CbmError(
                f"{self.source.name} {told}; write machine: final", field="start_from"
            )

    def unfinished(self, number: int) -> str:
        """Return the message for a trial that is neither finished nor part of the
        run.
        """
        more = f" --trials {number + 1}" * (number >= self.source.trials)
        again = (
            f"cbm run GRID.yaml {self.source.name}{more} -o "
            f"{shlex.quote(str(self.store.folder.parent))}"
        )
        where = f"trial {number} of {self.source.name} is not finished"
        return f"{where}; name both experiments, or first run: {again}"


class Named(NamedTuple):
    """Names of the trials of a cell, and everything that they depend on."""

    run_id: str
    course: str  # the run-id without the length of training
    pretraining: str | None  # name of its pre-trained layers, if it has any
    data: Dataset
    sources: dict[str, str]  # texts of a user's own recorders, by name
    start: FileStarts | TrialStarts | None  # None: new machines


class Names:
    """Names of the trials of cells."""

    def __init__(
        self, datasets: Mapping[Data, Dataset], root: Path, folder: Path
    ) -> None:
        self.datasets = datasets  # of all cells
        self.root = root  # the results folder
        self.folder = folder  # of the grid
        self._recorder = cache(partial(load_recorder, folder=folder))
        self._known: dict[tuple[str, Settings], Named] = {}

    def of(self, experiment: Experiment, cell: Settings) -> Named:
        """Return the names of a cell; CbmError for recorders or machines that cannot be
        read.
        """
        if (key := (experiment.name, cell)) in self._known:
            return self._known[key]
        start: FileStarts | TrialStarts | None = None
        if cell.start_from.path:
            start = FileStarts(cell, cell.start_from.path, self.folder)
        elif cell.start_from.experiment:
            source, its_cell = source_cell(experiment, cell)
            other = self.of(source, its_cell).run_id
            start = TrialStarts(
                cell, source, its_cell, other, Store(self.root / source.name)
            )
        sources = {
            name: self._recorder(name)
            for name in cell.record.names
            if name not in RECORDERS
        }
        data, seed, facts = (
            self.datasets[cell.data],
            experiment.seed,
            pretraining_facts(cell),
        )
        ids = run_ids(cell, seed, data.digest, sources, start.fact if start else "")
        layers = pretraining_id(facts, seed, data.digest) if facts else None
        return self._known.setdefault(key, Named(*ids, layers, data, sources, start))


def source_cell(experiment: Experiment, cell: Settings) -> tuple[Experiment, Settings]:
    """Return the experiment that a cell starts from, and its cell of the same model and
    data.

    If there are several, the other settings decide, one after the other, until one cell
    is left.
    """
    source = next(
        one for one in experiment.sources if one.name == cell.start_from.experiment
    )
    found = [
        one for one in source.cells if (one.model, one.data) == (cell.model, cell.data)
    ]
    if not found:
        what = (
            f"{cell.model.kind} of {cell.model.hidden} hidden units on "
            f"{cell.data.title}"
        )
        told = f"{source.name} has no {what}; its model and data must be the same"
        raise CbmError(told, field="start_from")
    for name in Settings.model_fields:
        values, mine = (
            dict.fromkeys(getattr(one, name) for one in found),
            getattr(cell, name),
        )
        if len(values) > 1 and mine not in values:
            told = (
                f"{len(found)} cells of {source.name} would do; they differ in {name}"
            )
            told += (
                f" ({', '.join(map(str, values))}), and here it is {mine}: give "
                "one of theirs"
            )
            raise CbmError(told, field="start_from")
        found = [one for one in found if len(values) == 1 or getattr(one, name) == mine]
    return source, found[0]
