"""A folder of results, as those see it who only read."""

from pathlib import Path
from typing import Any

import pandas as pd

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.grid.names import BACK_PROPAGATION, Sampler, Scheme
from cbm_cli.results.store import Store


class Results:
    """Read-only view of a results folder.

    Parameters
    ----------
    folder : Path
        As given to ``cbm run -o``; it holds one folder an experiment.

    Raises
    ------
    CbmError
        When the folder does not exist or is none.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            state = "is a file, not a folder of results" if folder.exists() else "does not exist"
            raise CbmError(f"{folder}: {state}; write results with: cbm run experiments.yaml -o {folder}")
        self.folder = folder

    def experiments(self) -> list[str]:
        """Names of the experiments that have been run into this folder."""
        return sorted(path.parent.name for path in self.folder.glob("*/manifest.json"))

    def require_experiments(self) -> list[str]:
        """Names of the experiments; IncompleteError if there are none."""
        names = self.experiments()
        if not names:
            raise IncompleteError(
                f"{self.folder}: holds no results; make some with: cbm run experiments.yaml"
            )
        return names

    def only(self, experiment: str | None) -> str:
        """The experiment asked for, or the only one there is; CbmError if there are several."""
        names = self.require_experiments()
        if experiment is None and len(names) > 1:
            raise CbmError(f"{self.folder}: holds several experiments; name one of {', '.join(names)}")
        return self.store(experiment or names[0]).experiment

    def all_summaries(self) -> pd.DataFrame:
        """The summaries of all experiments, one under the other; IncompleteError if there are none."""
        frames = [self.summary(name) for name in self.require_experiments()]
        return pd.concat(frames, ignore_index=True)

    def store(self, experiment: str) -> Store:
        """The folder of one experiment; CbmError if it is not there."""
        names = self.experiments()
        if experiment not in names:
            there = f"there are: {', '.join(names)}" if names else "nothing has been run into it yet"
            raise CbmError(f"{self.folder}: no results of {experiment!r}; {there}")
        return Store(self.folder / experiment)

    def summary(self, experiment: str) -> pd.DataFrame:
        """One row per finished trial (docs/formats.md)."""
        return self.store(experiment).summary()

    def manifest(self, experiment: str) -> dict[str, Any]:
        """The grid that was last run: description, trials, table, cells, upper_bounds, versions."""
        return self.store(experiment).manifest()

    def curve(self, experiment: str, run_id: str, trial: int) -> pd.DataFrame:
        """The curve of one trial: update, epoch, <part>_<metric>, likelihoods in nats per sample."""
        return self.store(experiment).curve(run_id, trial)

    def records(self, experiment: str, run_id: str, trial: int) -> pd.DataFrame:
        """What was recorded of one trial: update, then the columns of its recorders; empty without any."""
        return self.store(experiment).records(run_id, trial)


def label(column: str, value: object, style: str = "text") -> str:
    """The value of a setting as a table shows it; ``style`` is text, latex or unicode."""
    parse = {"offsets": Scheme.parse, "sampler": Sampler.parse}.get(column)
    if parse is None or value == BACK_PROPAGATION:
        return f"{value:g}" if isinstance(value, float) else str(value)
    parsed = parse(str(value))
    return {"text": str, "latex": lambda it: it.latex(), "unicode": lambda it: it.unicode()}[style](parsed)
