"""Keep what these pages need of finished experiments beside them.

    python docs/reproduction/keep.py results/ standard-methods-bars moving-average

writes into results/ beside this file, and the same results give the same bytes. Runs that were kept before
and are not in these results stay, so that parts of an experiment can be run on several computers:

- EXPERIMENT.csv.gz, its summary.csv with the numbers of curves and records that comparisons with the paper
  rest on: the values at the best mean over trials (tables 9 to 12), and what `cbm compare --findings` checks
- EXPERIMENT-curves.csv.gz, if test rows were evaluated: mean and standard deviation over the trials of a run
- SHA256SUMS of all of them

It also draws the figures of the paper that show one of these experiments: figure-N.png beside this file. Then
`cbm compare docs/reproduction/results` compares them with the paper, and pages.py writes the pages.
"""

import gzip
import hashlib
import io
import subprocess
import sys
from pathlib import Path

import pandas as pd
import yaml

from cbm_cli.paper import FIGURES
from cbm_cli.results import Results
from cbm_cli.results.folder import MEAN_CURVES
from cbm_cli.statistics import add_best_of_mean, add_courses

HERE = Path(__file__).parent
TESTED = ("test_log_likelihood", "test_lower_bound")


def main() -> None:
    results = Results(Path(sys.argv[1]))
    names = sys.argv[2:] or results.experiments()
    keep(results, names, HERE / "results")
    for number, figure in yaml.safe_load(FIGURES.read_text(encoding="utf-8")).items():
        shown = " ".join(figure["parts"]).split()
        if {*shown} & {name.removesuffix("-short") for name in names}:
            draw = [sys.executable, "-m", "cbm_cli.cli", "figure", str(number), str(results.folder)]
            where = ["--size", "page", "-o", str(HERE / f"figure-{number}.png")]
            subprocess.run([*draw, *where], check=False)  # it says which experiments are missing


def keep(results: Results, names: list[str], kept: Path) -> None:
    """Write what is kept of some experiments into a folder."""
    kept.mkdir(exist_ok=True)
    for name in names:
        frame = results.store(name).summary()
        text = pd.read_csv(results.folder / name / "summary.csv", dtype=str, keep_default_na=False)
        if len(text) != len(frame):
            sys.exit(f"{results.folder / name}: a run is writing it; keep it when the run has ended")
        whole, metrics = add_courses(frame, results), metrics_of(frame)
        if metrics:
            whole = add_best_of_mean(whole, metrics, results.curve)
            write(kept / f"{name}{MEAN_CURVES}", mean_curves(frame, metrics, results))
        write(kept / f"{name}.csv.gz", text.join(whole[whole.columns.difference(frame.columns, sort=False)]))
    sums = (
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(kept.glob("*.gz"))
    )
    (kept / "SHA256SUMS").write_text("".join(sums))


def metrics_of(frame: pd.DataFrame) -> list[str]:
    """Return the metrics of tables 9 to 12 if test rows were evaluated."""
    ours = (name for name in TESTED if f"{name}_max" in frame)
    both = [name for test in ours for name in (test.replace("test", "train"), test)]
    return [name for name in both if f"{name}_max" in frame]


def mean_curves(frame: pd.DataFrame, metrics: list[str], results: Results) -> pd.DataFrame:
    """Return the mean and the standard deviation over the trials of each run, at each evaluation."""
    places = zip(frame["experiment"], frame["run_id"], frame["trial"], strict=True)
    curves = pd.concat([results.curve(*place).assign(run_id=place[1]) for place in places])
    groups = curves.groupby(["run_id", "update"], sort=False)[metrics]
    spread = groups.std().add_suffix("_std")
    return groups.mean().assign(trials=groups.size(), **spread).round(4).reset_index()


def write(path: Path, frame: pd.DataFrame) -> None:
    """Write a table with the same bytes whenever it is the same, below the runs kept before that it lacks."""
    text = frame.to_csv(index=False, lineterminator="\n")
    if path.exists():
        before, now = (
            pd.read_csv(one, dtype=str, keep_default_na=False) for one in (path, io.StringIO(text))
        )
        whole = pd.concat([before[~before["run_id"].isin(now["run_id"])], now])
        text = whole.to_csv(index=False, lineterminator="\n")
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
