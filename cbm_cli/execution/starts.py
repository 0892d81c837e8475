"""The machines that trials start from: of files, or of trials of another experiment."""

import hashlib
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from cbm_cli.arrays import content_of
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import Experiment, Settings
from cbm_cli.machines.files import read_machine
from cbm_cli.machines.models import Layered
from cbm_cli.results import Store
from cbm_cli.results.journal import TrialKey
from cbm_cli.trial.start import check_machine


@dataclass(frozen=True)
class Start:
    """The machine that a trial starts from."""

    file: Path  # of the machine, or its name
    read: Callable[[], Layered]
    # SHA-256 of a machine file; the trials of experiments have run-ids instead
    digest: str = ""
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
        self.cell = cell
        self.path = path
        self.folder = folder
        self.shared = "{" not in path  # one file for all trials
        self.of = cache(self._of)

    def _of(self, number: int) -> Start:
        """Return the start of a trial; CbmError if its file cannot be read."""
        if self.shared and number:
            return self.of(0)
        file = self.folder / self.path.format(trial=number)
        try:
            digest = hashlib.sha256(content_of(file)).hexdigest()
        except OSError as error:
            raise CbmError(
                f"{file}: cannot be read: {error.strerror}", field="start_from"
            ) from None
        return Start(file, partial(read_machine, file), digest)

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
        digest = self.of(0).digest
        return digest if self.shared else f"files from {digest}"


@dataclass(frozen=True)
class TrialStarts:
    """The trials of another experiment that the trials of a cell start from."""

    cell: Settings
    source: Experiment
    source_cell: Settings
    fact: str  # the other run-id, which decides the machines
    store: Store

    @property
    def wants_best(self) -> bool:
        """Whether the machine at the best validation value is meant."""
        return self.cell.start_from.machine == "best-valid"

    def of(self, number: int) -> Start:
        """Return the start of a trial, which may not be finished yet."""
        ending = ":best" if self.wants_best else ""
        name = self.store.folder.parent / f"{self.fact}:{number}{ending}"

        def read() -> Layered:
            _, content = self.store.machine(self.fact, number, self.wants_best)
            return read_machine(name, content)

        return Start(name, read, needs=(self.fact, number))

    def check(self, data: Dataset, trials: int) -> None:
        """Raise CbmError if trials start from best machines that the other experiment
        does not keep.
        """
        if not self.wants_best:
            return
        evaluate = self.source_cell.evaluate
        parts = [*data.parts]
        if evaluate.parts is not None:
            parts = evaluate.parts.split("+")
        is_watched = "valid" in data.parts and "valid" in parts
        if evaluate.method == "none" or not is_watched:
            raise CbmError(
                f"{self.source.name} evaluates no validation part of {data.name}, so "
                "it has no best machine; write machine: final",
                field="start_from",
            )

    def unfinished(self, number: int) -> str:
        """Return the message for a trial that is neither finished nor part of the
        run.
        """
        name = self.source.name
        trials = f" --trials {number + 1}" if number >= self.source.trials else ""
        folder = shlex.quote(str(self.store.folder.parent))
        return (
            f"trial {number} of {name} is not finished; name both experiments, or "
            f"first run: cbm run GRID.yaml {name}{trials} -o {folder}"
        )


def source_cell(experiment: Experiment, cell: Settings) -> tuple[Experiment, Settings]:
    """Return the experiment that a cell starts from, and its cell of the same model and
    data.

    If there are several, the other settings decide, one after the other, until one cell
    is left.
    """
    name = cell.start_from.experiment
    source = next(source for source in experiment.sources if source.name == name)
    same = (cell.model, cell.data)
    cells = [other for other in source.cells if (other.model, other.data) == same]
    if not cells:
        raise CbmError(
            f"{source.name} has no {cell.model.kind} of {cell.model.hidden} hidden "
            f"units on {cell.data.title}; its model and data must be the same",
            field="start_from",
        )
    for field in Settings.model_fields:
        values = dict.fromkeys(getattr(other, field) for other in cells)
        if len(values) == 1:
            continue
        here = getattr(cell, field)
        if here not in values:
            there = ", ".join(map(str, values))
            raise CbmError(
                f"{len(cells)} cells of {source.name} would do; they differ in {field} "
                f"({there}), and here it is {here}: give one of theirs",
                field="start_from",
            )
        cells = [other for other in cells if getattr(other, field) == here]
    return source, cells[0]
