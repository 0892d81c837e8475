"""A folder of results, for reading."""

from pathlib import Path
from typing import TYPE_CHECKING

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.results.contents import read_csv, sha256
from cbm_cli.results.store import Store
from cbm_cli.text import did_you_mean

if TYPE_CHECKING:
    import pandas as pd

KEPT = ".csv.gz"  # behind an experiment's name: its kept summary
MEAN_CURVES = f"-curves{KEPT}"  # and its kept mean curves
ONLY_KEPT = "holds kept summaries, not trials; only cbm compare reads them"


class Results:
    """A results folder, as given to ``cbm run -o``, with one folder per experiment; read-only."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            state = "is a file, not a folder of results" if folder.exists() else "does not exist"
            raise CbmError(f"{folder}: {state}; write results with: cbm run experiments.yaml -o {folder}")
        self.folder = folder

    def experiments(self) -> list[str]:
        """Return the names of the experiments in this folder."""
        return sorted(path.parent.name for path in self.folder.glob("*/manifest.json"))

    def require_experiments(self) -> list[str]:
        """Return the names of the experiments; IncompleteError if there are none."""
        names = self.experiments()
        if not names:
            self.refuse_kept()
            raise IncompleteError(
                f"{self.folder}: holds no results; make some with: cbm run experiments.yaml -o {self.folder}"
            )
        return names

    def refuse_kept(self) -> None:
        """Raise CbmError if this folder holds kept summaries alone."""
        if not self.experiments() and any(self.folder.glob(f"*{KEPT}")):
            raise CbmError(f"{self.folder}: {ONLY_KEPT}")

    def only(self, experiment: str | None) -> str:
        """Return the named experiment, or the only one; CbmError if there are several."""
        names = self.require_experiments()
        if experiment is None and len(names) > 1:
            raise CbmError(f"{self.folder}: holds several experiments; name one of {', '.join(names)}")
        return self.store(experiment or names[0]).experiment

    def store(self, experiment: str) -> Store:
        """Return the folder of one experiment; CbmError if it is not there."""
        names = self.experiments()
        if experiment not in names:
            if (self.folder / f"{experiment}{KEPT}").exists():
                raise CbmError(f"{self.folder}: {ONLY_KEPT}")
            hint = did_you_mean(experiment, names) if names else "; nothing has been run into it yet"
            raise CbmError(f"{self.folder}: no results of {experiment!r}{hint}")
        return Store(self.folder / experiment)

    def curve(self, experiment: str, run_id: str, number: int) -> "pd.DataFrame":
        """Return the curve of one trial."""
        return Store(self.folder / experiment).curve(run_id, number)

    def all_summaries(self) -> "pd.DataFrame":
        """Return the summaries of all experiments as one table; IncompleteError if there are none.

        Beside folders of experiments these are kept summaries, EXPERIMENT.csv.gz, if their SHA-256 is that in
        the file SHA256SUMS. The column ``experiment`` is the name of the folder or of the file.
        """
        import pandas as pd

        paths = [*map(self._checked, sorted(self.folder.glob(f"*{KEPT}")))]
        kept = [
            read_csv(path).assign(experiment=path.name.removesuffix(KEPT))
            for path in paths
            if not path.name.endswith(MEAN_CURVES)
        ]
        names = self.experiments() if kept else self.require_experiments()
        frames = [self.store(name).summary().assign(experiment=name) for name in names]
        frames = [*kept, *frames]
        # those without a row would turn the numbers of trials into floats
        whole = pd.concat([frame for frame in frames if len(frame)] or frames, ignore_index=True)
        return whole.copy()  # joins the pieces of memory, so that rows are selected faster

    def _checked(self, path: Path) -> Path:
        """Return a kept file; CbmError if it has changed since it was kept."""
        digest, sums = sha256(path.read_bytes()), self.folder / "SHA256SUMS"
        if f"{digest}  {path.name}" not in (sums.read_text() if sums.exists() else "").splitlines():
            raise CbmError(
                f"{path}: is not the file that {sums} names; restore it, or keep the results again"
            )
        return path


def label(column: str, value: object, style: str = "text") -> str:
    """Return the value of a setting as a table shows it; ``style`` is text, latex or unicode."""
    from cbm_cli.grid.names import BACK_PROPAGATION, Sampler, Scheme

    parse = {"offsets": Scheme.parse, "sampler": Sampler.parse}.get(column)
    if parse is None or value == BACK_PROPAGATION:
        return f"{value:g}" if isinstance(value, float) else str(value)
    parsed = parse(str(value))
    return {"text": str, "latex": lambda it: it.latex(), "unicode": lambda it: it.unicode()}[style](parsed)
