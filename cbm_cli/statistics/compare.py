"""Published values beside obtained ones: are they the same within what chance allows?"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cbm_cli.errors import IncompleteError
from cbm_cli.paper import PUBLISHED_RESULTS
from cbm_cli.statistics.cells import Cell, cell_of, mark_row
from cbm_cli.statistics.values import text_of
from cbm_cli.statistics.wilcoxon import FEWEST_PAIRS

Key = tuple[str, ...]
Published = dict[str, str]  # one line of published-results.csv
LIMIT = 2.0  # standard errors
MATCHED = ("data", "model_kind", "model_hidden", "sampler", "learning_rate", "offsets", "init")
ROW = ["table", "split", "dataset", "hidden", "sampler", "learning_rate"]

# What all runs of the paper on a data set have in common, spelled as in summary.csv.
EVERYWHERE = {"ladders": "1", "weight_scale": "0.01"} | {
    f"sliding_factor_{layer}": "0.01" for layer in ("visible", "hidden")
}
TOY = {"updates": "50000", "batch": "full", "evaluate_every": "50 updates"}
BARS = TOY | {"data_size": "3"}
SHIFTING = TOY | {"data_size": "9", "data_bar": "1"}
MNIST = {"epochs": "100", "batch": "100", "evaluate_every": "1 epoch"}
PAPER_SETTINGS = {
    "bars-and-stripes": BARS,
    "shifting-bar": SHIFTING,
    "flipped-shifting-bar": SHIFTING,
    "mnist": MNIST | {"data_binarise": "threshold", "data_threshold": "0.5"},
}
LONG_RUNS = {"0.01": "5000", "0.001": "30000"}  # epochs on the eight data sets, by learning rate

PAPER_TABLES = {
    "standard-methods-bars-mnist": "2",
    "standard-methods-shifting-bar": "3",
    "init-00-flipped-shifting-bar": "4",
    "init-00-mnist": "5",
    "init-dd-flipped-shifting-bar": "6",
    "reparameterization-order": "7",
    "moving-average": "8",
    "big-rbm-test": "9",
    "big-rbm-train": "10",
}
MISPRINT = {"table": "standard-methods-bars-mnist", "dataset": "mnist", "sampler": "PT_10", "offsets": "aa^b"}


@dataclass(frozen=True)
class Comparison:
    """Published cells that were run, each beside what was obtained; see `compare`.

    Attributes
    ----------
    cells : DataFrame
        One line a published cell and sampler it was run with (``obtained_sampler``: PCD-1 is run as
        PCD-1 and as PCD-2); in the published scale.
    missing : int
        Published RBM cells without a comparable trial.
    departures : mapping
        Why matching runs were not compared: setting that is not the paper's, and how many runs.
    not_comparable : int
        How many runs that is.
    """

    cells: pd.DataFrame
    missing: int
    departures: Mapping[str, int]
    not_comparable: int

    def reading(self, pcd: str) -> pd.DataFrame:
        """The cells in which a published PCD-1 is read as ``PCD-1`` or as ``PCD-2``."""
        cells = self.cells
        return cells[(cells["sampler"] != "PCD-1") | (cells["obtained_sampler"] == pcd)]

    def summary(self) -> list[str]:
        """How many values and marks agree, for each reading of the published PCD-1: finals, then maxima."""
        prefixes = {"PCD-1": ""}
        if (self.cells["obtained_sampler"] == "PCD-2").any():
            prefixes["PCD-2"] = "With PCD-2 in place of PCD-1: "
        counts = (_final_count, _count)
        lines = [prefix + f(self.reading(pcd)) for f in counts for pcd, prefix in prefixes.items()]
        return lines if self.cells["final_z"].notna().any() else lines[len(prefixes) :]

    def notes(self) -> list[str]:
        """What was compared with what, and what was left out."""
        notes = [
            "Difference: obtained less published, in standard errors of both means and the published "
            "value's rounding. Published final values have no spread: the obtained one stands for both.",
            "Marks: bold in its row, published/obtained; obtained by the signed-rank test (α = 0.05) where "
            f"the whole row was run with {FEWEST_PAIRS} pairs or more.",
        ]
        if (self.cells["obtained_sampler"] == "PCD-2").any():
            notes.append("Published PCD-1 is also compared with PCD-2: two sweeps an update fit it better.")
        if (self.cells[list(MISPRINT)] == pd.Series(MISPRINT)).all(axis=1).any():
            notes.append("The published bold mark of aa^b, PT_10, MNIST (table 2) is an evident misprint.")
        if self.not_comparable:
            why = ", ".join(f"{name} in {count}" for name, count in self.departures.items())
            runs = "run" if self.not_comparable == 1 else "runs"
            notes.append(f"Not compared: {self.not_comparable} {runs} with settings not the paper's ({why}).")
        if self.missing:
            notes.append(f"{self.missing} published RBM values have no comparable trial here.")
        return notes


def _count(cells: pd.DataFrame) -> str:
    z, marks = cells["z"].dropna().abs(), cells["marks_agree"].dropna()
    return (
        f"{(z <= LIMIT).sum()} of {len(z)} published values within 2 standard errors, "
        f"{int(marks.sum())} of {len(marks)} significance marks agree"
    )


def _final_count(cells: pd.DataFrame) -> str:
    z = cells["final_z"].dropna().abs()
    return f"{(z <= LIMIT).sum()} of {len(z)} published final values within 2 standard errors"


def compare(frame: pd.DataFrame) -> Comparison:
    """Match the trials of any number of experiments with the paper's tables.

    A published cell of an RBM is compared with the run that has its data, hidden units, sampler,
    learning rate, offsets and initial biases, and the paper's other settings (length, batch, evaluation
    interval, one ladder, default weight scale and sliding factors): among several, the one with the most
    trials. A run that is part of several experiments counts once.

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
    published = published_rbms()
    rows = [row.to_dict("records") for _, row in published.groupby(ROW, sort=False)]
    wanted = {_key(cell, sampler) for row in rows for cell in row for sampler in readings(cell["sampler"])}
    runs, departures = _comparable_runs(frame.drop_duplicates(["run_id", "trial"]), wanted)
    reasons = dict(Counter(name for names in departures.values() for name in names).most_common())
    cells = pd.DataFrame([line for row in rows for line in _compare_row(row, runs)])
    if cells.empty:
        why = f" ({', '.join(reasons)}: not the paper's)" if reasons else ""
        raise IncompleteError(f"no trial can be compared with a published value{why}; run a paper experiment")
    compared = len(cells.drop_duplicates([*ROW, "offsets", "init"]))
    return Comparison(cells, len(published) - compared, reasons, len(departures))


def published_rbms() -> pd.DataFrame:
    """All published RBM cells as text, ``init`` resolved: 00 and d0 started at zero biases."""
    with PUBLISHED_RESULTS.open() as file:
        table = pd.read_csv(file, dtype=str, keep_default_na=False)
    table = table[table["model"] == "rbm"].copy()
    original = table["init"].isin(["", "original"])
    table.loc[original, "init"] = np.where(
        table.loc[original, "offsets"].isin(["00", "d0"]), "zero", "inverse-sigmoid"
    )
    return table


def paper_settings(data: str, learning_rate: str) -> dict[str, str]:
    """Settings of the paper's runs on a data set beyond those that its tables list."""
    eight = {"epochs": LONG_RUNS.get(learning_rate, "5000"), "batch": "100", "evaluate_every": "50 epochs"}
    return EVERYWHERE | PAPER_SETTINGS.get(data, eight)


def readings(sampler: str) -> list[str]:
    """Samplers that a published one is compared with: PCD-1 is also read as two sweeps an update."""
    return ["PCD-1", "PCD-2"] if sampler == "PCD-1" else [sampler]


def _key(published: Published, sampler: str) -> Key:
    names = ("dataset", "model", "hidden", "sampler", "learning_rate", "offsets", "init")  # as MATCHED
    return tuple((published | {"sampler": sampler})[name] for name in names)


def _comparable_runs(
    trials: pd.DataFrame, wanted: set[Key]
) -> tuple[dict[Key, pd.DataFrame], dict[str, list[str]]]:
    """Best run of each wanted cell; and for each other run of one, the settings that are not the paper's."""
    runs: dict[Key, pd.DataFrame] = {}
    departures: dict[str, list[str]] = {}
    for run_id, run in trials.groupby("run_id", sort=False):
        settings = {name: text_of(value) for name, value in run.iloc[0].items()}
        key = tuple(settings[name] for name in MATCHED)
        if key not in wanted:
            continue
        paper = paper_settings(settings["data"], settings["learning_rate"])
        departing = [name for name, value in paper.items() if settings[name] != value]
        if departing:
            departures[run_id] = departing
        elif key not in runs or len(run) > len(runs[key]):
            runs[key] = run
    return runs, departures


def _compare_row(row: Sequence[Published], runs: Mapping[Key, pd.DataFrame]) -> Iterator[dict[str, Any]]:
    """Compare one row of a published table, for each reading of its sampler."""
    for sampler in readings(row[0]["sampler"]):
        cells = [_obtained(published, sampler, runs) for published in row]
        if all(cell is not None for cell in cells):
            cells = mark_row(cells)
        known = all(cell is not None and (cell.bold or cell.against_best) for cell in cells)
        for published, cell in zip(row, cells, strict=True):
            if cell is not None:
                yield _line(published, cell, sampler, known)


def _obtained(published: Published, sampler: str, runs: Mapping[Key, pd.DataFrame]) -> Cell | None:
    run = runs.get(_key(published, sampler))
    metric = f"{published['split']}_log_likelihood"
    if run is None or f"{metric}_max" not in run:
        return None
    cell = cell_of(run, metric, published["log_likelihood_scale"], where={"run_id": run["run_id"].iloc[0]})
    return None if np.isnan(cell.mean) else cell


def _line(published: Published, cell: Cell, sampler: str, known: bool) -> dict[str, Any]:
    bold = published["best_in_row"] == "yes"
    final = published["final_mean"]
    return {
        **{name: published[name] for name in (*ROW, "offsets", "init")},
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
        "z": _max_z(published, cell),
        "published_final": final,
        "obtained_final": cell.final_mean,
        "final_difference": cell.final_mean - float(final) if final else np.nan,
        "final_z": _final_z(published, cell) if final else np.nan,
        "published_bold": bold,
        "obtained_bold": cell.bold if known else None,
        "marks_agree": cell.bold == bold if known else None,
    }


def rounding_variance(text: str) -> float:
    """Variance of what rounding to the decimals of a printed number took away: 10^-2d / 12."""
    decimals = len(text.partition(".")[2])
    return 10.0 ** (-2 * decimals) / 12


def _max_z(published: Published, cell: Cell) -> float:
    """Obtained less published maximum in standard errors; a single trial borrows the published spread."""
    n = int(np.isfinite(cell.maxima).sum())
    spread = float(published["std"])
    obtained = cell.std if n > 1 else spread
    return _z(published["mean"], cell.mean, obtained**2 / n + spread**2 / int(published["trials"]))


def _final_z(published: Published, cell: Cell) -> float:
    """The same for the last values, the obtained spread on both sides; NaN for fewer than two trials."""
    finals = cell.finals[np.isfinite(cell.finals)]
    if len(finals) < 2:
        return np.nan
    variance = finals.var(ddof=1)
    return _z(
        published["final_mean"], finals.mean(), variance / len(finals) + variance / int(published["trials"])
    )


def _z(published: str, obtained: float, variance: float) -> float:
    return (obtained - float(published)) / np.sqrt(variance + rounding_variance(published))
