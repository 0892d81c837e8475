"""Published values beside obtained ones: are they the same within what chance allows?"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from cbm_cli.errors import IncompleteError
from cbm_cli.statistics.cells import Cell, cell_of, mark_row
from cbm_cli.statistics.published import (
    METRICS,
    MISPRINT,
    ROW,
    SMOOTHED,
    UNDERLINED,
    Key,
    Published,
    departures,
    published_cells,
    published_key,
    readings,
    rows_of,
    run_key,
)
from cbm_cli.statistics.values import text_of
from cbm_cli.statistics.wilcoxon import FEWEST_PAIRS

LIMIT = 2.0  # standard errors
KINDS = {"rbm": "RBM", "dbm": "DBM", "auto-encoder": "auto encoder"}


class Run(NamedTuple):
    """Finished trials of one setting."""

    settings: dict[str, str]
    trials: pd.DataFrame


@dataclass(frozen=True)
class Comparison:
    """Published cells that were run, each beside what was obtained; see `compare`.

    Attributes
    ----------
    cells : DataFrame
        One line a published cell and sampler it was run with (``obtained_sampler``: PCD-1 is run as
        PCD-1 and as PCD-2); in the published scale.
    missing : mapping
        By the kind of machine that was run, published cells without a comparable trial.
    departures : mapping
        Why matching runs were not compared: setting that is not the paper's, and how many runs.
    not_comparable : int
        How many runs that is.
    """

    cells: pd.DataFrame
    missing: Mapping[str, int]
    departures: Mapping[str, int]
    not_comparable: int

    @property
    def kinds(self) -> list[str]:
        """Kinds of machines that were compared."""
        return [kind for kind in KINDS if (self.cells["model"] == kind).any()]

    def summary(self) -> list[str]:
        """How many values and marks agree, by kind of machine."""
        return [line for kind in self.kinds for line in self._summary_of(kind)]

    def _summary_of(self, kind: str) -> list[str]:
        """For each reading of the published PCD-1: last values or epochs, then the best values."""
        cells = self.cells[self.cells["model"] == kind]
        name = "" if kind == "rbm" else f"{KINDS[kind][0].upper()}{KINDS[kind][1:]}s: "
        prefixes = {"PCD-1": name}
        if (cells["obtained_sampler"] == "PCD-2").any():
            prefixes["PCD-2"] = f"{name}With PCD-2 in place of PCD-1: "
        counts = [_count_epochs if kind == "auto-encoder" else _count_finals, _count]
        lines = [(f(reading(cells, pcd)), prefix) for f in counts for pcd, prefix in prefixes.items()]
        return [prefix + line for line, prefix in lines if line]

    def notes(self) -> list[str]:
        """What was compared with what, and what was left out."""
        return [*self._how(), *self._marks(), *self._special(), *self._left_out()]

    def _how(self) -> list[str]:
        epochs, finals = "auto-encoder" in self.kinds, {"rbm", "dbm"} & {*self.kinds}
        behind = " and ".join(["final values"] * bool(finals) + ["epochs to convergence"] * epochs)
        notes = [
            "Difference: obtained less published, in standard errors of both means and the published value's "
            f"rounding. Published {behind} have no spread: the obtained one stands for both."
        ]
        if "dbm" in self.kinds:
            notes.append("DBMs: the published value beside the mean-field lower bound of the log-likelihood.")
        if epochs:
            notes.append(
                "Auto encoders: the lowest cost of the part during training, and the epochs to convergence, "
                "all epochs where a trial did not converge. Published training costs of 5,000 epochs, where "
                "the test cost had stopped to fall before, are compared only with runs that go on as well "
                "(early_stopping: {look_ahead: 5000})."
            )
        return notes

    def _marks(self) -> list[str]:
        trials = {*self.cells["published_n"].astype(str)}
        how = []
        if trials - {UNDERLINED}:
            how.append(
                "obtained by the signed-rank test (α = 0.05) where the whole row was run with "
                f"{FEWEST_PAIRS} pairs or more"
            )
        if UNDERLINED in trials:
            how.append(f"where the paper has {UNDERLINED} trials, the best of the whole row, as there")
        return [f"Marks: bold in its row, published/obtained; {'; '.join(how)}."]

    def _special(self) -> list[str]:
        notes = []
        if (self.cells["obtained_sampler"] == "PCD-2").any():
            notes.append("Published PCD-1 is also compared with PCD-2: two sweeps an update fit it better.")
        if (self.cells["offsets"] == SMOOTHED).any():
            notes.append(
                f"Published d0 is compared with {SMOOTHED} where the paper trains with mini-batches: its "
                "visible offset does not move with the batch."
            )
        if (self.cells[list(MISPRINT)] == pd.Series(MISPRINT)).all(axis=1).any():
            notes.append("The published bold mark of aa^b, PT_10, MNIST (table 2) is an evident misprint.")
        return notes

    def _left_out(self) -> list[str]:
        notes = []
        if self.not_comparable:
            why = ", ".join(f"{name} in {count}" for name, count in self.departures.items())
            runs = "run" if self.not_comparable == 1 else "runs"
            notes.append(f"Not compared: {self.not_comparable} {runs} with settings not the paper's ({why}).")
        missing = [f"{count} published {KINDS[kind]} values" for kind, count in self.missing.items() if count]
        if missing:
            notes.append(f"{' and '.join(missing)} have no comparable trial here.")
        return notes


def reading(cells: pd.DataFrame, pcd: str) -> pd.DataFrame:
    """The cells in which a published PCD-1 is read as ``PCD-1`` or as ``PCD-2``."""
    return cells[(cells["sampler"] != "PCD-1") | (cells["obtained_sampler"] == pcd)]


def _within(z: pd.Series, what: str) -> str:
    z = z.dropna().abs()
    return f"{(z <= LIMIT).sum()} of {len(z)} published {what} within {LIMIT:g} standard errors"


def _count(cells: pd.DataFrame) -> str:
    tested = cells["published_n"] != int(UNDERLINED)
    counts = {"significance marks": cells[tested], "marks of the best": cells[~tested]}
    agree = [
        f"{int(marks.sum())} of {len(marks)} {what} agree"
        for what, part in counts.items()
        if len(part)
        for marks in [part["marks_agree"].dropna()]
    ]
    return ", ".join([_within(cells["z"], "values"), *agree])


def _count_finals(cells: pd.DataFrame) -> str:
    return _within(cells["final_z"], "final values") if cells["final_z"].notna().any() else ""


def _count_epochs(cells: pd.DataFrame) -> str:
    return _within(cells["epochs_z"], "epochs to convergence") if cells["epochs_z"].notna().any() else ""


def compare(frame: pd.DataFrame) -> Comparison:
    """Match the trials of any number of experiments with the paper's tables.

    A published cell is compared with the run that has its machine, data, sampler, learning rate, offsets,
    initial biases and epochs of pre-training, and the paper's other settings (length, batch, evaluation
    interval, one ladder, default weight scale and sliding factors, ...): among several, the one with the
    most trials. A run that is part of several experiments counts once.

    Parameters
    ----------
    frame : DataFrame
        The experiments' ``summary.csv`` files, one under the other.

    Raises
    ------
    IncompleteError
        No trial can be compared with a published value.
    """
    if frame.empty:
        raise IncompleteError("there are no finished trials to compare; start with `cbm run`")
    published = published_cells()
    published = published[published["model"].isin(frame["model_kind"])]
    rows = list(rows_of(published))
    runs = _runs(frame.drop_duplicates(["run_id", "trial"]))
    departing = _departing([cell for row in rows for cell in row], runs)
    reasons = dict(Counter(name for names in departing.values() for name in names).most_common())
    cells = pd.DataFrame([line for row in rows for line in _compare_row(row, runs)])
    if cells.empty:
        why = f" ({', '.join(reasons)}: not the paper's)" if reasons else ""
        raise IncompleteError(f"no trial can be compared with a published value{why}; run a paper experiment")
    compared = cells.drop_duplicates([*ROW, "offsets", "init"])["model"].value_counts()
    missing = published["model"].value_counts().sub(compared, fill_value=0).astype(int)
    left = {kind: int(missing[kind]) for kind in KINDS if kind in missing}
    return Comparison(cells, left, reasons, len(departing))


def _runs(trials: pd.DataFrame) -> dict[Key, list[Run]]:
    """Runs by what published cells are matched by, those with the most trials first."""
    runs: dict[Key, list[Run]] = {}
    for _, run in trials.groupby("run_id", sort=False):
        settings = {name: text_of(value) for name, value in run.iloc[0].items()}
        runs.setdefault(run_key(settings), []).append(Run(settings, run))
    return {key: sorted(some, key=lambda run: -len(run.trials)) for key, some in runs.items()}


def _departing(published: Sequence[Published], runs: Mapping[Key, list[Run]]) -> dict[str, list[str]]:
    """By run-id, the settings that keep a run from being compared with any cell that it matches."""
    found: dict[str, list[list[str]]] = {}
    for cell in published:
        for sampler in readings(cell["sampler"]):
            for run in runs.get(published_key(cell, sampler), ()):
                found.setdefault(run.settings["run_id"], []).append(departures(cell, run.settings))
    return {run_id: names[0] for run_id, names in found.items() if all(names)}


def _compare_row(row: Sequence[Published], runs: Mapping[Key, list[Run]]) -> Iterator[dict[str, Any]]:
    """Compare one row of a published table, for each reading of its sampler."""
    for sampler in readings(row[0]["sampler"]):
        cells = [_obtained(published, sampler, runs) for published in row]
        whole = all(cell is not None for cell in cells)
        if whole:
            cells = mark_row(cells)
        tested = whole and all(cell.bold or cell.against_best for cell in cells)
        for published, cell in zip(row, cells, strict=True):
            if cell is not None:
                known = whole if published["trials"] == UNDERLINED else tested
                yield _line(published, cell, sampler, known)


def _obtained(published: Published, sampler: str, runs: Mapping[Key, list[Run]]) -> Cell | None:
    """The cell of the run with the most trials that has the paper's settings."""
    metric = f"{published['split']}_{METRICS[published['model']]}"
    for settings, trials in runs.get(published_key(published, sampler), ()):
        if f"{metric}_final" in trials and not departures(published, settings):
            where = {"run_id": settings["run_id"]}
            cell = cell_of(trials, metric, published["log_likelihood_scale"], where=where)
            return None if np.isnan(cell.mean) else cell
    return None


def _line(published: Published, cell: Cell, sampler: str, known: bool) -> dict[str, Any]:
    """One line of a comparison; ``known``: whether the marks of its row are."""
    bold = published["best_in_row"] == "yes"
    obtained_bold = cell.best if published["trials"] == UNDERLINED else cell.bold
    return {
        **{name: published[name] for name in ("model", *ROW, "offsets", "init")},
        "scale": published["log_likelihood_scale"],
        "obtained_sampler": sampler,
        "run_id": cell.where["run_id"],
        "published_mean": published["mean"],
        "published_std": published["std"],
        "published_n": int(published["trials"]),
        "obtained_mean": cell.mean,
        "obtained_std": cell.std,
        "obtained_n": cell.n,
        "diverged": cell.diverged,
        "difference": cell.mean - float(published["mean"]),
        "z": _best_z(published, cell),
        **_aside("final", published["final_mean"], cell.finals, published),
        **_aside("epochs", published["epochs_to_convergence"], cell.epochs, published),
        "published_bold": bold,
        "obtained_bold": obtained_bold if known else None,
        "marks_agree": obtained_bold == bold if known else None,
    }


def _aside(name: str, text: str, values: pd.Series, published: Published) -> dict[str, Any]:
    """What the paper has in parentheses, without a spread, beside the values of the trials."""
    values = values[np.isfinite(values)]
    mean, published_mean = values.mean(), float(text) if text else np.nan
    few = not text or len(values) < 2
    return {
        f"published_{name}": text,
        f"obtained_{name}": mean,
        f"{name}_difference": mean - published_mean,
        f"{name}_z": np.nan if few else _z(text, mean, _twice(values, int(published["trials"]))),
    }


def _twice(values: pd.Series, n_published: int) -> float:
    """Variance of the difference of two means, the obtained spread on both sides."""
    return values.var(ddof=1) * (1 / len(values) + 1 / n_published)


def rounding_variance(text: str) -> float:
    """Variance of what rounding to the decimals of a printed number took away: 10^-2d / 12."""
    decimals = len(text.partition(".")[2])
    return 10.0 ** (-2 * decimals) / 12


def _best_z(published: Published, cell: Cell) -> float:
    """Obtained less published best in standard errors; a single trial borrows the published spread."""
    n = int(np.isfinite(cell.values).sum())
    spread = float(published["std"])
    obtained = cell.std if n > 1 else spread
    return _z(published["mean"], cell.mean, obtained**2 / n + spread**2 / int(published["trials"]))


def _z(published: str, obtained: float, variance: float) -> float:
    return (obtained - float(published)) / np.sqrt(variance + rounding_variance(published))
