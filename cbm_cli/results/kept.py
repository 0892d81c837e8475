"""What is kept of experiments, as in docs/reproduction/results: all summaries, some curves, no machines."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.results.contents import read_csv, sha256
from cbm_cli.text import count

if TYPE_CHECKING:
    import pandas as pd

KEPT = ".csv.gz"  # behind an experiment's name: its kept summary
CURVES = f"-curves{KEPT}"  # and its kept curves, of each trial or their mean
MANIFESTS = "manifests.json"  # of all kept experiments, without their cells


@dataclass(frozen=True)
class Kept:
    """A kept experiment, with the methods of a `Store` that tables and learning curves need."""

    folder: Path  # of all kept experiments
    experiment: str

    def manifest(self) -> dict[str, Any]:
        """Return description, trials, table and upper bounds; the cells are those with a kept trial."""
        path = checked(self.folder / MANIFESTS)
        about = json.loads(path.read_bytes()).get(self.experiment)
        if about is None:
            raise CbmError(f"{path}: does not describe {self.experiment}; keep its results again", "missing")
        summary = self.summary()
        columns = [*summary.columns]
        settings = columns[columns.index("seed") + 1 : columns.index("n_train")]
        cells = summary.drop_duplicates("run_id")[["run_id", *settings]]
        return about | {"experiment": self.experiment, "cells": cells.to_dict("records")}

    def summary(self) -> "pd.DataFrame":
        """Return one row per trial, as in ``summary.csv``."""
        frame = read_csv(checked(self.folder / f"{self.experiment}{KEPT}"))
        return frame.assign(experiment=self.experiment)

    def curves(self, run_id: str, numbers: Iterable[int]) -> "list[pd.DataFrame]":
        """Return the curves of trials of a run."""
        return [self.curve(run_id, number) for number in numbers]

    def curve(self, run_id: str, number: int) -> "pd.DataFrame":
        """Return the curve of a trial: update, epoch and what test and train rows gave.

        Of some experiments only the mean over the trials of a run is kept, which serves for a single trial.
        """
        path = self.folder / f"{self.experiment}{CURVES}"
        if not path.exists():
            self._lacks("curves")
        frame = read_csv(checked(path)).query("run_id == @run_id")
        if "trial" in frame:
            frame = frame.query("trial == @number")
        elif (trials := int(frame["trials"].max())) > 1:
            self._lacks(f"curves of single trials, only means over {count(trials, 'trial')},")
        row = self.summary().query("run_id == @run_id").iloc[0]
        batch = row["n_train"] if row["batch"] == "full" else int(row["batch"])
        frame.insert(
            frame.columns.get_loc("update") + 1, "epoch", frame["update"] / max(row["n_train"] // batch, 1)
        )
        apart = frame.columns.isin(["run_id", "trial", "trials"]) | frame.columns.str.endswith("_std")
        return frame.loc[:, ~apart].dropna(axis=1, how="all").reset_index(drop=True)

    def records(self, run_id: str, number: int) -> "pd.DataFrame":
        """Return no records: none are kept."""
        import pandas as pd

        return pd.DataFrame({"update": []})

    def path(self, run_id: str, number: int, suffix: str) -> NoReturn:
        """Raise IncompleteError: there are no files of single trials."""
        self._lacks("machines")

    def _lacks(self, what: str) -> NoReturn:
        remedy = f"run it again: cbm run experiments.yaml {self.experiment}"
        raise IncompleteError(f"{self.folder} keeps no {what} of {self.experiment}; {remedy}")


def checked(path: Path) -> Path:
    """Return a kept file; CbmError if it has changed since it was kept."""
    sums, digest = path.parent / "SHA256SUMS", sha256(path.read_bytes()) if path.exists() else "missing"
    if f"{digest}  {path.name}" not in _sums(path.parent):
        raise CbmError(
            f"{path}: is not the file that {sums} names; restore it, or keep the results again", "changed"
        )
    return path


def is_kept(path: Path) -> bool:
    """Whether SHA256SUMS beside a file names it; others, of data for instance, are no kept results."""
    return any(line.endswith(f"  {path.name}") for line in _sums(path.parent))


def _sums(folder: Path) -> list[str]:
    sums = folder / "SHA256SUMS"
    return sums.read_text("utf-8", "replace").splitlines() if sums.exists() else []
