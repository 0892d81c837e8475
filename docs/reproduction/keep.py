"""Keep what these pages need of finished experiments beside them.

    python docs/reproduction/keep.py results/ standard-methods-bars moving-average

writes into results/ beside this file, and the same results give the same bytes. Runs that were kept before
and are not in these results stay, and so do other trials of the same runs, so that parts of an experiment can
be run on several computers:

- EXPERIMENT.csv.gz, its summary.csv with the numbers of curves and records that comparisons with the paper
  rest on: the values at the best mean over trials (tables 9 to 12), and what `cbm compare --findings` checks
- EXPERIMENT-curves.csv.gz, if test rows were evaluated: mean and standard deviation over the trials of a run;
  of experiments with few and long trials the curve of each, so that trials can join later
- manifests.json, the table of each experiment, the most trials that were asked for, and known upper bounds
- SHA256SUMS of all of them

It also draws the figures of the paper that show one of these experiments, as figure-N.png beside this file:
from what is kept, if that has more trials than these results, else from these results. If what is kept lacks
what a figure shows, such as machines, the picture that was drawn before stays. Then
`cbm compare docs/reproduction/results` compares them with the paper, and pages.py writes the pages.
"""

import gzip
import hashlib
import io
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml

from cbm_cli.errors import IncompleteError
from cbm_cli.paper import FIGURES
from cbm_cli.paper.findings import add_courses
from cbm_cli.results import Kept, Metric, Results, Store
from cbm_cli.results.cells import MAX_OF_MEAN, Cell, Measure, Trials, best_of_mean_columns
from cbm_cli.results.kept import CURVES, MANIFESTS

HERE = Path(__file__).parent
OF_MEANS = ("eight-sets", "dbm-eight-sets")  # how the names of the experiments of tables 9 to 12 begin
LONG = ("big-", "dbm-")  # and of those with few and long trials
TRIAL = ["run_id", "trial"]
TESTED = ("test_log_likelihood", "test_lower_bound")
EFFECTIVE = "effective_sample_size"  # of AIS, kept with curves of single trials


def main() -> None:
    results = Results(Path(sys.argv[1]))
    names = sys.argv[2:] or results.experiments()
    keep(results, names, HERE / "results")
    for number, figure in yaml.safe_load(FIGURES.read_text(encoding="utf-8")).items():
        shown = " ".join(figure["parts"]).split()
        if {*shown} & {name.removesuffix("-short") for name in names}:
            kept = Results(HERE / "results")
            more = any(trials_of(kept, name) > trials_of(results, name) for name in shown)
            draw = [sys.executable, "-m", "cbm_cli.cli", "figure", str(number)]
            where = [str((kept if more else results).folder), "--size", "page"]
            picture = ["-o", str(HERE / f"figure-{number}.png")]
            subprocess.run([*draw, *where, *picture], check=False)  # it says which experiments are missing


def trials_of(results: Results, name: str) -> int:
    """Return the number of finished trials of an experiment; 0 of what is none."""
    known = name in (*results.experiments(), *results.kept())
    return len(results.reader(name).summary()) if known else 0


def keep(results: Results, names: list[str], kept: Path) -> None:
    """Write what is kept of some experiments into a folder."""
    kept.mkdir(exist_ok=True)
    for name in names:
        frame = results.store(name).summary()
        results.store(name).write_summary()
        text = read(results.folder / name / "summary.csv")
        if len(text) != len(frame):
            sys.exit(f"{results.folder / name}: a run is writing it; keep it when the run has ended")
        summary, course = kept / f"{name}.csv.gz", kept / f"{name}{CURVES}"
        other = other_trials(summary, text, singly=name.startswith(LONG))
        added, metrics = add_courses(frame, results), metrics_of(frame)
        whole = pd.concat([other, text.join(added[added.columns.difference(frame.columns, sort=False)])])
        if metrics:
            curves = curves_of(frame, metrics, results)
            before = pd.read_csv(course) if course.exists() else curves.iloc[:0]
            keys = [key for key in TRIAL if key in before]
            before = before[among(before[keys], other[keys])]
            if name.startswith(OF_MEANS):
                whole = with_best_of_mean(whole, metrics, results, Kept(kept, name))
            if name.startswith(LONG):
                write(course, pd.concat([before, curves.round(4)]))
            else:
                write(course, pooled(before, mean_curves(curves, metrics), metrics))
        write(summary, whole)
        describe(name, results.store(name).manifest(), kept / MANIFESTS)
    sums = (
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted([*kept.glob("*.gz"), kept / MANIFESTS])
    )
    (kept / "SHA256SUMS").write_text("".join(sums))


def describe(name: str, manifest: Mapping[str, Any], path: Path) -> None:
    """Write what tables and curves need to know of an experiment beside its trials."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    trials = max(manifest["trials"], known.get(name, manifest)["trials"])
    known[name] = {field: manifest[field] for field in ("description", "table", "upper_bounds")}
    known[name]["trials"] = trials
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def other_trials(summary: Path, now: pd.DataFrame, singly: bool) -> pd.DataFrame:
    """Return the rows that were kept of other trials of the same runs.

    Unless curves are kept ``singly``, no trial that is part of a mean can be replaced.
    """
    if not summary.exists():
        return now.iloc[:0]
    before = read(summary)
    before = before[before["run_id"].isin(now["run_id"])]
    again = among(before[TRIAL], now[TRIAL])
    mixed = {*before["run_id"][again]} & {*before["run_id"][~again]}
    if mixed and not singly:
        sys.exit(f"{summary}: of {min(mixed)} some trials are kept already; give all, or others only")
    return before[~again]


def among(rows: pd.DataFrame, others: pd.DataFrame) -> np.ndarray:
    """Return whether each row is one of the others, as text."""
    one, other = (pd.MultiIndex.from_frame(frame.astype(str)) for frame in (rows, others))
    return one.isin(other)


def with_best_of_mean(
    whole: pd.DataFrame, metrics: list[str], results: Results, before: Kept
) -> pd.DataFrame:
    """Add the values where the mean over new trials and those kept before is best."""
    columns = [column for name in metrics for column in best_of_mean_columns(name)]
    frame = pd.read_csv(io.StringIO(whole.to_csv(index=False))).drop(columns=columns, errors="ignore")
    trials = Trials(frame, lambda experiment: Both(results.store(experiment), before))
    added = pd.DataFrame(np.nan, index=frame.index, columns=columns)
    for run, rows in trials.of_runs.items():
        for name in metrics:
            cell = Cell({"run_id": run}, trials, rows, Measure(Metric(name), statistic=MAX_OF_MEAN))
            values = cell.values
            for column, value in zip(best_of_mean_columns(name), (values, cell.best_update), strict=True):
                added.loc[rows, column] = frame["trial"][rows].map(values) if value is values else value
    return whole.assign(**added.set_axis(whole.index))


class Both(NamedTuple):
    """New trials of an experiment, and those kept before, as one store."""

    new: Store
    before: Kept

    def curves(self, run_id: str, numbers: Iterable[int]) -> list[pd.DataFrame]:
        """Return the curves of trials of a run."""
        finished = self.new.finished(run_id)
        try:
            return [(self.new if n in finished else self.before).curve(run_id, n) for n in numbers]
        except IncompleteError:
            sys.exit(f"{run_id}: only the mean curve of its kept trials is known; run them again, too")


def pooled(before: pd.DataFrame, now: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Return means and standard deviations over the trials of two tables of mean curves together."""
    if before.empty:
        return now
    both = pd.concat([before, now], ignore_index=True)
    trials = both["trials"]
    spreads = {
        name: (trials - 1) * both[f"{name}_std"].fillna(0) ** 2 + trials * both[name] ** 2 for name in metrics
    }
    sums = both[["run_id", "update", "trials"]].assign(
        **{name: trials * both[name] for name in metrics},
        **{f"{name}_std": squares for name, squares in spreads.items()},
    )
    groups = sums.groupby(["run_id", "update"], sort=False).sum()
    trials = groups["trials"]
    for name in metrics:
        groups[name] /= trials
        rest = (groups[f"{name}_std"] - trials * groups[name] ** 2).clip(lower=0)
        groups[f"{name}_std"] = np.sqrt(rest / (trials - 1).replace(0, np.nan))
    return groups.round(4).reset_index().reindex(columns=both.columns)


def metrics_of(frame: pd.DataFrame) -> list[str]:
    """Return the metrics of tables 9 to 12 if test rows were evaluated."""
    ours = (name for name in TESTED if f"{name}_max" in frame)
    both = [name for test in ours for name in (test.replace("test", "train"), test)]
    return [name for name in both if f"{name}_max" in frame]


def curves_of(frame: pd.DataFrame, metrics: list[str], results: Results) -> pd.DataFrame:
    """Return the curve of each trial, with the effective runs of AIS."""
    places = zip(frame["experiment"], frame["run_id"], frame["trial"], strict=True)
    curves = pd.concat(results.curve(*place).assign(run_id=place[1], trial=place[2]) for place in places)
    return curves[[*TRIAL, "update", *metrics, *curves.columns.intersection([EFFECTIVE])]]


def mean_curves(curves: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Return the mean and the standard deviation over the trials of each run, at each evaluation."""
    groups = curves.groupby(["run_id", "update"], sort=False)[metrics]
    spread = groups.std().add_suffix("_std")
    return groups.mean().assign(trials=groups.size(), **spread).round(4).reset_index()


def read(table: Path | io.StringIO) -> pd.DataFrame:
    """Read a table as it is written, number by number."""
    return pd.read_csv(table, dtype=str, keep_default_na=False)


def write(path: Path, frame: pd.DataFrame) -> None:
    """Write a table with the same bytes whenever it is the same, below the runs kept before that it lacks."""
    text = frame.to_csv(index=False, lineterminator="\n")
    if path.exists():
        before, now = read(path), read(io.StringIO(text))
        whole = pd.concat([before[~before["run_id"].isin(now["run_id"])], now])
        text = whole.to_csv(index=False, lineterminator="\n")
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
