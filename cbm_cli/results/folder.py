"""A folder of results, for reading."""

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.results.store import Store
from cbm_cli.text import did_you_mean

if TYPE_CHECKING:
    import pandas as pd


class Results:
    """A results folder, as given to ``cbm run -o``, with one folder per experiment; read-only."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            is_file = folder.exists()
            told = "is a file, not a folder of results" if is_file else "there is no such folder"
            message = f"{folder}: {told}; {_where_results_are(folder)}"
            raise CbmError(message, "unsuited" if is_file else "missing")
        self.folder = folder

    def experiments(self) -> list[str]:
        """Return the names of the experiments in this folder."""
        return _experiments_in(self.folder)

    @property
    def is_kept(self) -> bool:
        """Whether experiments are kept gzipped here, for reading only."""
        return any(self.folder.glob("*/trials.jsonl.gz"))

    def require_experiments(self) -> list[str]:
        """Return the names of the experiments; raise if there are none."""
        names = self.experiments()
        if not names:
            foreign = any(not path.name.startswith(".") for path in self.folder.iterdir())
            error = CbmError if foreign else IncompleteError
            raise error(f"{self.folder}: holds no results; {_where_results_are(self.folder)}", "incomplete")
        return names

    def only(self, experiment: str | None) -> str:
        """Return the named experiment, or the only one; CbmError if there are several."""
        names = self.require_experiments()
        if experiment is None and len(names) > 1:
            raise CbmError(
                f"{self.folder}: holds several experiments; name one of {', '.join(names)}", "missing"
            )
        return self.store(experiment or names[0]).experiment

    def store(self, experiment: str) -> Store:
        """Return the folder of one experiment; CbmError if it is not there."""
        names = self.experiments()
        if experiment not in names:
            hint = did_you_mean(experiment, names) if names else f"; {_where_results_are(self.folder)}"
            raise CbmError(f"{self.folder}: no results of {experiment!r}{hint}", "unknown")
        return Store(self.folder / experiment)

    def all_summaries(self) -> "pd.DataFrame":
        """Return the summaries of all experiments as one table; IncompleteError if there are none."""
        import pandas as pd

        frames = [self.store(name).summary() for name in self.require_experiments()]
        # those without a row would turn the numbers of trials into floats
        whole = pd.concat([frame for frame in frames if len(frame)] or frames, ignore_index=True)
        return whole.copy()  # joins the pieces of memory, so that rows are selected faster


def _is_own(folder: Path) -> bool:
    """Whether a folder with a manifest.json is an experiment: other programs have such files, too."""
    if any((folder / name).exists() for name in ("trials.jsonl", "trials.jsonl.gz", "summary.csv")):
        return True
    try:
        with (folder / "manifest.json").open("rb") as stream:
            return b'"format"' in stream.read(20)
    except OSError:  # another user's
        return False


def _experiments_in(folder: Path) -> list[str]:
    folders = (path.parent for path in folder.glob("*/manifest.json") if path.is_file())
    return sorted(one.name for one in folders if _is_own(one))


def _where_results_are(folder: Path) -> str:
    """Say where the results are that a reader may have meant instead of a folder, or how to make some."""
    whole = folder.resolve()
    above = (path for path in (whole, *whole.parents) if (path / "manifest.json").is_file())
    if inside := [path for path in above if _is_own(path)]:
        parent, name = os.path.relpath(inside[0].parent), inside[0].name
        return f"it belongs to the experiment {name}; write {shlex.quote(parent)} {shlex.quote(name)} instead"
    if below := [path for path in sorted(folder.glob("*/")) if _experiments_in(path)]:
        return f"there are some in {', '.join(map(str, below[:3]))}"
    if known := _experiments_in(Path("results")):
        holds = f"results/ holds the experiments {', '.join(known)}"
        if str(folder) in known:
            return f"{holds}; write the folder first, then experiments: results/ {shlex.quote(str(folder))}"
        return f"{holds}; leave the folder out to read them"
    into = "" if folder.is_file() else f" -o {shlex.quote(str(folder))}"
    return f"make some with: cbm run experiments.yaml{into}"
