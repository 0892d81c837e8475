"""Published values beside obtained ones: are they the same within what chance allows?

    python reproduction/compare.py [RESULTS]

prints Markdown tables. RESULTS is a results folder, by default the kept results beside
this script.
"""

import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from printed import (
    KEPT,
    TABLES,
    known_reason,
    markdown,
    match,
    published_cells,
    text_of,
)
from scipy.special import stdtr

import cbm_cli as cbm
from cbm_cli.errors import CbmError
from cbm_cli.statistics.marks import Marking, mark_row

LIMIT = 2.0  # standard errors from which on values differ
KINDS = {"rbm": "RBM", "dbm": "DBM", "auto-encoder": "auto encoder"}
METRICS = {
    "rbm": "log_likelihood",
    "dbm": "lower_bound",
    "auto-encoder": "cost",
}  # behind the part's name
ROW = [
    "table",
    "split",
    "dataset",
    "hidden",
    "sampler",
    "learning_rate",
    "pretraining_epochs",
]
VALUE = [*ROW, "offsets", "init"]  # columns that tell published values apart
# of all data run with PCD-1 and PCD-2, that whose published PCD-1 fits PCD-1
ONE_SWEEP = "mnist"
UNDERLINED = (
    "10"  # trials; too few for the paper's test: only the best of a row is marked
)
# the paper's validation rows of it are the test rows of everyone else
SWAPPED = "caltech101-silhouettes"
SMOOTHED = "d0^b_s"  # what the paper prints as d0 where it trains with mini-batches
MISPRINT = {
    "table": "standard-methods-bars-mnist",
    "dataset": "mnist",
    "sampler": "PT_10",
    "offsets": "aa^b",
}
# These tables print the maximum of the mean over trials, the others the mean of the
# trials' maxima.
OF_MEAN = ("big-rbm-test", "big-rbm-train", "dbm-test", "dbm-train")
Floats = NDArray[np.float64]


def reason_of_each(cells: pd.DataFrame) -> pd.Series:
    """Return the known reason of each cell that differs; empty text without one."""
    differing = cells[cells["z"].abs() > LIMIT]
    reasons = [known_reason(cell) for cell in differing.to_dict("records")]
    return pd.Series(reasons, index=differing.index, dtype=object)


@dataclass(frozen=True)
class Comparison:
    """Published cells that were run, each beside what was obtained; see `compare`."""

    # One line for each published cell and sampler it was run with (obtained_sampler:
    # PCD-1 is run as PCD-1 and as PCD-2), in the published scale.
    cells: pd.DataFrame
    chances: (
        pd.DataFrame
    )  # probability that z, final_z and epochs_z of a right value are within LIMIT
    missing: Mapping[
        str, int
    ]  # published cells without a comparable trial, by kind of machine
    departures: Mapping[
        str, int
    ]  # settings unlike the paper's, and how many matching runs have them
    not_comparable: int  # runs with such settings

    def plausible(self) -> pd.DataFrame:
        """Return the cells without PCD-2 beside a published PCD-1 of MNIST."""
        as_named = self.cells["sampler"] == self.cells["obtained_sampler"]
        return self.cells[as_named | (self.cells["dataset"] != ONE_SWEEP)]

    def as_read(self) -> pd.DataFrame:
        """Return one cell for each published value that was run, that of PCD-2 for
        PCD-1 except on MNIST.
        """
        cells = self.plausible().sort_values("obtained_sampler", kind="stable")
        return cells.drop_duplicates(VALUE, keep="last")

    def as_named(self) -> pd.DataFrame:
        """Return one cell for each published value that was run, with its sampler."""
        return self.cells[self.cells["sampler"] == self.cells["obtained_sampler"]]

    def reasons(self) -> pd.DataFrame:
        """Return the known reasons of values that differ, and how many each explains.

        Columns are ``reason``, empty for values that differ by chance or for no known
        reason, ``named`` and ``read``: the numbers of values that differ as published,
        and with PCD-2 for the published PCD-1.
        """
        counts = pd.DataFrame(
            {
                "named": reason_of_each(self.as_named()).value_counts(),
                "read": reason_of_each(self.as_read()).value_counts(),
            }
        )
        counts = counts.fillna(0).astype(int).rename_axis("reason").reset_index()
        return counts.sort_values(
            ["named", "read"], ascending=False, kind="stable", ignore_index=True
        )

    def unexplained(self) -> pd.DataFrame:
        """Return the cells of `as_read` that differ for no known reason."""
        reasons = reason_of_each(self.as_read())
        return self.cells.loc[reasons.index[reasons == ""]]

    def summary(self) -> list[str]:
        """Count the values and marks that agree, by kind of machine and reading of the
        published PCD-1.
        """
        lines = []
        for kind, of_kind in self.cells.groupby("model", sort=False):
            name = f"{KINDS[kind][0].upper()}{KINDS[kind][1:]}s"
            readings = {"PCD-1": name}
            if (of_kind["obtained_sampler"] == "PCD-2").any():
                readings["PCD-2"] = f"{name}, with PCD-2 instead of PCD-1"
            aside = "epochs" if kind == "auto-encoder" else "final"
            for pcd, prefix in readings.items():
                cells = of_kind[
                    (of_kind["sampler"] != "PCD-1")
                    | (of_kind["obtained_sampler"] == pcd)
                ]
                lines.append(f"{prefix}: {self._within(cells, aside)}")
                lines.append(
                    "; ".join(
                        [f"{prefix}: {self._within(cells, 'mean')}", *agreeing(cells)]
                    )
                )
        return lines

    def _within(self, cells: pd.DataFrame, name: str) -> str:
        """Count the values within two standard errors, each run once, beside what
        chance allows.
        """
        words = {
            "mean": "values",
            "final": "final values",
            "epochs": "epochs of the lowest cost",
        }[name]
        z, published = "z" if name == "mean" else f"{name}_z", f"published_{name}"
        cells = cells[cells[z].notna()].drop_duplicates(["run_id", "split", published])
        chance = self.chances.loc[cells.index, z]
        spread = math.sqrt((chance * (1 - chance)).sum())
        return (
            f"{(cells[z].abs() <= LIMIT).sum()} of {len(cells)} published {words} "
            f"within {LIMIT:g} standard "
            f"errors (expected if all were right: {chance.sum():.1f} ± {spread:.1f})"
        )

    def notes(self) -> Iterator[str]:
        """Yield what was compared with what, and what was left out."""
        runs = self.cells.drop_duplicates("run_id")
        yield (
            f"Compared: {len(runs)} runs with {int(runs['obtained_n'].sum())} trials. "
            "A run that is part of "
            "several tables counts once."
        )
        yield (
            "z: difference, obtained less published, in standard errors. These "
            "include both spreads and the "
            "rounding of the published value. Published final values and epochs have "
            "no spread: the obtained "
            f"one is used for both. ! marks more than {LIMIT:g} standard errors. 5% "
            "of right values have it, "
            f"with few trials up to {1 - self.chances.min().min():.0%}."
        )
        if self.cells["table"].isin(OF_MEAN).any():
            yield (
                "Tables 9 to 12 print the maximum of the mean over trials, and its "
                "spread there. So do the "
                "obtained values."
            )
        if (self.cells["model"] == "dbm").any():
            yield "DBMs: obtained is the mean-field lower bound of the log-likelihood."
        if (self.cells["model"] == "auto-encoder").any():
            yield (
                "Auto encoders: the lowest cost of the part during training, and its "
                "epoch. Published test "
                "costs are compared with the validation costs, which they fit "
                "(CalTech: with its 2,307 test "
                "rows, the paper's validation rows). Published values at the rates "
                "0.01 and 0.1, where all "
                "training costs are those of 5,000 epochs, are compared with runs "
                "that do not stop early "
                "(early_stopping: {look_ahead: 5000})."
            )
        yield (
            "bold: whether the cell is marked in its row, published/obtained, by the "
            "signed-rank test (α = "
            f"0.05) if the whole row was run; where the paper has {UNDERLINED} "
            "trials, only the best "
            "of a row is marked."
        )
        yield "kernel: the version of cbm's kernels that made the obtained value."
        yield from self._readings()
        if self.cells["disproved"].any():
            yield (
                "disproved: AIS estimates a mean log-likelihood above 0 for a trial, "
                "which is impossible for "
                "binary rows. Such a value counts as not agreeing."
            )
        if self.not_comparable:
            why = ", ".join(
                f"{name} in {number}" for name, number in self.departures.items()
            )
            yield (
                f"Not compared: {self.not_comparable} runs with settings other than "
                f"the paper's ({why})."
            )
        missing = [f"{n} {KINDS[kind]} values" for kind, n in self.missing.items() if n]
        if missing:
            yield (
                "Published values without a comparable trial here: "
                f"{', '.join(missing)}."
            )

    def _readings(self) -> Iterator[str]:
        """Yield how published values are read."""
        if (self.cells["obtained_sampler"] == "PCD-2").any():
            yield (
                "Published PCD-1 is also compared with PCD-2: two sweeps per update "
                "fit it better."
            )
        if (self.cells["offsets"] == SMOOTHED).any():
            yield (
                f"Published d0 is compared with {SMOOTHED} where the paper trains "
                "with mini-batches: its "
                "visible offset does not move with the batch."
            )
        if (self.cells[list(MISPRINT)] == pd.Series(MISPRINT)).all(axis=1).any():
            yield (
                "The published bold mark of aa^b, PT_10, MNIST (table 2) is an "
                "evident misprint."
            )

    def tables(self) -> Iterator[tuple[str, str]]:
        """Yield title and Markdown table: first as published, then with PCD-2 for the
        published PCD-1.
        """
        parts = ["table", "split", "dataset", "hidden", "pretraining_epochs"]
        cells = self.cells.assign(repeated=self.cells["obtained_sampler"] == "PCD-2")
        cells = cells.sort_values("repeated", kind="stable")
        for _, section in cells.groupby(["repeated", *parts], sort=False):
            first = section.iloc[0]
            aside = "epochs" if first["model"] == "auto-encoder" else "final"
            metric = (
                METRICS[first["model"]].replace("_", "-").replace("lower-b", "lower b")
            )
            unit = "of all rows" if first["scale"] == "total" else "per row"
            title = (
                f"Table {TABLES[first['table']]}: {first['dataset']}, "
                f"{first['hidden']} hidden, "
            )
            title += f"{first['split']} {metric} {unit}"
            if first["pretraining_epochs"] != "0" and aside == "final":
                title += f", {first['pretraining_epochs']} epochs of pre-training"
            if first["obtained_sampler"] == "PCD-2":
                title += ", PCD-2 for PCD-1"
            header = ["Algorithm-η", "offsets", "published", "obtained", "n", "z"]
            header += [
                f"published {aside}",
                f"obtained {aside}",
                "difference",
                "z",
                "bold",
                "kernel",
            ]
            yield (
                title,
                markdown(
                    header,
                    [line_of(cell, aside) for cell in section.to_dict("records")],
                ),
            )


def agreeing(cells: pd.DataFrame) -> list[str]:
    """Count the marks that agree: of the test, and of the best of a row."""
    tested = cells["published_n"] != int(UNDERLINED)
    return [
        f"{int(marks.sum())} of {len(marks)} {what} agree"
        for what, part in (
            ("significance marks", tested),
            ("marks of the best", ~tested),
        )
        if len(marks := cells.loc[part, "marks_agree"].dropna())
    ]


def line_of(cell: Mapping[str, Any], aside: str) -> list[str]:
    """Return a line of a table of the comparison."""
    decimals = {
        name: max(2, decimals_of(cell[f"published_{name}"])) for name in ("mean", "std")
    }
    init = f" {cell['init']}" * cell["table"].startswith("init-")
    words = {True: "yes", False: "no", None: "–"}
    marks = f"{words[cell['published_bold']]}/{words[cell['obtained_bold']]}"
    spread = number(cell["obtained_std"], f".{decimals['std']}f")
    obtained = f"{cell['obtained_mean']:.{decimals['mean']}f} ± {spread}"
    spec = {"final": ".1f", "epochs": ".0f"}[aside]
    return [
        f"{cell['sampler']}-{cell['learning_rate']}",
        f"{cell['offsets']}{init}",
        f"{cell['published_mean']} ± {cell['published_std']}",
        "disproved" if cell["disproved"] else obtained,
        str(cell["obtained_n"])
        + (f" ({cell['diverged']} diverged)" if cell["diverged"] else ""),
        z_of(cell["z"]),
        cell[f"published_{aside}"] or "–",
        number(cell[f"obtained_{aside}"], spec),
        number(cell[f"{aside}_difference"], f"+z{spec}"),
        z_of(cell[f"{aside}_z"]),
        marks + " !" * (cell["marks_agree"] is False),
        cell["kernel"],
    ]


def number(value: float, spec: str) -> str:
    """Return a number as text; a dash for NaN."""
    return "–" if math.isnan(value) else format(value, spec)


def z_of(z: float) -> str:
    """Return a difference in standard errors, with ! beyond `LIMIT`."""
    return number(z, "+z.1f") + " !" * (abs(z) > LIMIT)


class KeptTrials:
    """The finished trials of a results folder; a run of several experiments counts
    once.
    """

    def __init__(self, folder: str | PathLike = KEPT) -> None:
        self.folder, self.results = Path(folder), cbm.open_results(folder)
        frame = self.results.summaries()
        if frame.empty:
            raise CbmError("there are no finished trials; start with `cbm run`")
        self.all = frame  # a trial has a row in each experiment that it is part of
        self.frame = frame.drop_duplicates(["run_id", "trial"])
        self.runs = dict([*self.frame.groupby("run_id", sort=False)])
        firsts = self.frame.drop_duplicates("run_id").set_index("run_id", drop=False)
        self.settings = firsts.map(text_of).rename_axis(None)

    def curves(self, run_id: str, metric: str, kind: str = "curves") -> pd.DataFrame:
        """Return a metric in nats per row: a column for each trial by update; empty
        where it is not kept.
        """
        experiment = self.runs[run_id]["experiment"].iloc[0]
        try:
            long = getattr(self.results, kind)(experiment)
        except CbmError:
            return pd.DataFrame()
        long = long[long["run_id"] == run_id]
        return (
            long.pivot(index="update", columns="trial", values=metric)
            if metric in long
            else pd.DataFrame()
        )


@dataclass(frozen=True)
class Run:
    """A run beside a published value: a number for each trial in which the metric was
    measured.
    """

    run_id: str
    trials: list[int]
    values: Floats  # the statistic of the table, -inf or NaN for diverged trials
    finals: Floats
    epochs: Floats  # of the lowest cost, of trials that did not diverge
    diverged: int
    kernel: str  # the version that trained it


def read_run(
    run_id: str, trials: KeptTrials, metric: str, scale: str, of_mean: bool
) -> Run:
    """Return the values of a run in the published scale."""
    rows = trials.runs[run_id]

    def column(name: str) -> Floats:
        return (
            rows[name].to_numpy(float) if name in rows else np.full(len(rows), np.nan)
        )

    cost = metric.endswith("cost")
    statistic = "max_of_mean" if of_mean else "min" if cost else "max"
    rows_of_part = (
        column(f"n_{metric.partition('_')[0]}")
        if scale == "total" and not cost
        else 1.0
    )
    values, finals = (
        column(f"{metric}_{statistic}") * rows_of_part,
        column(f"{metric}_final") * rows_of_part,
    )
    stopped = ~np.isnan(column("diverged"))
    if of_mean and np.isnan(values).all():
        values = (
            at_best_mean(
                trials.curves(run_id, metric).reindex(columns=rows["trial"]), stopped
            )
            * rows_of_part
        )
    known = ~np.isnan(values) | stopped
    batch = pd.to_numeric(rows["batch"], errors="coerce").to_numpy()
    of_epoch = column("n_train") // np.fmin(batch, column("n_train"))
    return Run(
        run_id,
        rows["trial"][known].tolist(),
        values[known],
        finals[known],
        (column(f"{metric}_{statistic}_update") / of_epoch)[known & ~stopped],
        int((stopped | ~np.isfinite(values))[known].sum()),
        trials.settings.loc[run_id].get("kernel_version", ""),
    )


def at_best_mean(curves: pd.DataFrame, diverged: NDArray[np.bool_]) -> Floats:
    """Return each trial's value at the evaluation where the mean over trials is
    highest.

    The untrained machine does not count. A trial that stopped early keeps its last
    value.
    """
    curves = curves.iloc[1:].replace([np.inf, -np.inf], np.nan)
    held = np.where(diverged, curves, curves.ffill())
    held_of_known = held[:, np.isfinite(held).any(axis=0)]
    if (
        not held_of_known.size
        or not np.isfinite(means := held_of_known.mean(axis=1)).any()
    ):
        return np.full(len(diverged), np.nan)
    return held[np.nanargmax(means)]


def finite(values: Floats) -> Floats:
    """Return the finite values."""
    return values[np.isfinite(values)]


def mean_of(values: Floats) -> float:
    """Return the mean of the finite values; NaN if there is none."""
    return float(finite(values).mean()) if len(finite(values)) else math.nan


def compare(trials: KeptTrials) -> Comparison:
    """Match the trials of any number of experiments with the paper's tables.

    A published cell is compared with the run that has its machine, data, sampler,
    learning rate, offsets, initial biases and epochs of pre-training, and the paper's
    other settings (length, batch, evaluation interval, default weight scale and sliding
    factors, ...): among several, the one with the most trials.

    Raises
    ------
    CbmError
        No trial can be compared with a published value.
    """
    published = published_cells()
    published = published[published["model"].isin(trials.frame["model_kind"])]
    pairs = match(published, trials.settings)
    unlike = {
        run: names.iloc[0]
        for run, names in pairs.groupby("run")["departures"]
        if all(names)
    }
    counts = dict(
        Counter(name for names in unlike.values() for name in names).most_common()
    )
    whole = pairs[~pairs["departures"].astype(bool)]
    whole = whole.assign(n=whole["run"].map(lambda run: len(trials.runs[run])))
    whole = whole.sort_values("n", ascending=False, kind="stable").drop_duplicates(
        ["line", "reading"]
    )
    rows = published.merge(whole[["line", "reading", "run"]], how="left").groupby(
        [*ROW, "reading"], sort=False
    )
    lines = [
        line
        for _, row in rows
        if row["run"].notna().any()
        for line in compare_row(row, trials)
    ]
    if not lines:
        why = f" ({', '.join(counts)}: not the paper's)" if counts else ""
        raise CbmError(
            f"no trial can be compared with a published value{why}; run an "
            "experiment "
            "of the paper"
        )
    cells = pd.DataFrame([line for line, _ in lines])
    kinds = published.drop_duplicates("line")["model"].value_counts()
    compared = cells.drop_duplicates(VALUE)["model"].value_counts()
    missing = kinds.sub(compared, fill_value=0).astype(int).to_dict()
    return Comparison(
        cells,
        pd.DataFrame([chances for _, chances in lines]),
        missing,
        counts,
        len(unlike),
    )


def compare_row(
    row: pd.DataFrame, trials: KeptTrials
) -> Iterator[tuple[dict[str, Any], dict[str, float]]]:
    """Compare one row of a published table, in one reading of its sampler, with the
    runs beside it.
    """
    first = row.iloc[0]
    part = first["split"]
    if (
        first["model"] == "auto-encoder"
        and part == "test"
        and first["dataset"] != SWAPPED
    ):
        part = "valid"
    metric = f"{part}_{METRICS[first['model']]}"
    how = (metric, first["log_likelihood_scale"], first["table"] in OF_MEAN)
    runs = [
        read_run(run, trials, *how) if isinstance(run, str) else None
        for run in row["run"]
    ]
    runs = [
        run if run and not math.isnan(mean_of(run.values)) else None for run in runs
    ]
    whole = all(runs)
    better = -1 if metric.endswith("cost") else 1
    samples = [
        dict(zip(run.trials, run.values, strict=True)) if run and whole else None
        for run in runs
    ]
    marks = mark_row(samples, Marking(better))
    tested = whole and any(mark.best and mark.claimed for mark in marks)
    for published, run, mark in zip(row.to_dict("records"), runs, marks, strict=True):
        if run is not None:
            underlined = published["trials"] == UNDERLINED
            obtained = mark.best if underlined else mark.bold
            yield beside(
                published, run, obtained if (whole if underlined else tested) else None
            )


def beside(
    published: Mapping[str, str], run: Run, obtained_bold: bool | None
) -> tuple[dict[str, Any], dict[str, float]]:
    """Return one line of a comparison, and its chances; ``obtained_bold`` is None where
    it is not known.
    """
    values, bold = finite(run.values), published["best_in_row"] == "yes"
    # No distribution over binary rows gives a row more than probability 1
    disproved = published["model"] != "auto-encoder" and bool((values > 0).any())
    z, chance = (math.nan, math.nan) if disproved else z_of_best(published, values)
    obtained_bold = None if disproved else obtained_bold
    line = {
        **{name: published[name] for name in ("model", *VALUE)},
        "scale": published["log_likelihood_scale"],
        "obtained_sampler": published["reading"],
        "run_id": run.run_id,
        "published_mean": published["mean"],
        "published_std": published["std"],
        "published_n": int(published["trials"]),
        "obtained_mean": mean_of(values),
        "obtained_std": values.std(ddof=1) if len(values) > 1 else math.nan,
        "obtained_n": len(run.trials),
        "diverged": run.diverged,
        "kernel": run.kernel,
        "disproved": disproved,
        "z": z,
        "published_bold": bold,
        "obtained_bold": obtained_bold,
        "marks_agree": None if obtained_bold is None else obtained_bold == bold,
    }
    chances = {"z": chance}
    # What the paper has in parentheses, without a spread: the obtained one is used on
    # both sides
    asides = {"final": (published["final_mean"], run.finals)}
    asides["epochs"] = (published["epochs_to_convergence"], run.epochs)
    for name, (text, numbers) in asides.items():
        numbers, z = finite(numbers), math.nan
        if text and len(numbers) > 1:
            variance = numbers.var(ddof=1) * (
                1 / len(numbers) + 1 / int(published["trials"])
            )
            z = in_errors(text, mean_of(numbers), variance)
        line |= {
            f"published_{name}": text,
            f"obtained_{name}": mean_of(numbers),
            f"{name}_z": z,
        }
        line[f"{name}_difference"] = mean_of(numbers) - (
            float(text) if text else math.nan
        )
        chances[f"{name}_z"] = within_by_chance(len(numbers) - 1)
    return line, chances


def z_of_best(published: Mapping[str, str], values: Floats) -> tuple[float, float]:
    """Compare best values in standard errors; a single trial borrows the published
    spread.
    """
    n, n_published, spread = (
        len(values),
        int(published["trials"]),
        float(published["std"]),
    )
    parts = [
        (values.std(ddof=1) if n > 1 else spread) ** 2 / n,
        spread**2 / n_published,
    ]
    freedom: float = n_published - 1
    if n > 1:  # Welch's degrees of freedom
        weights = parts[0] ** 2 / (n - 1) + parts[1] ** 2 / (n_published - 1)
        freedom = sum(parts) ** 2 / weights if weights else math.inf
    return in_errors(published["mean"], mean_of(values), sum(parts)), within_by_chance(
        freedom
    )


def in_errors(published: str, obtained: float, variance: float) -> float:
    """Return a difference in standard errors; rounding to d decimals adds the variance
    10^(-2 d) / 12.
    """
    return (obtained - float(published)) / math.sqrt(
        variance + 10.0 ** (-2 * decimals_of(published)) / 12
    )


def decimals_of(text: str) -> int:
    """Return the number of decimals of a printed number."""
    return len(text.partition(".")[2])


@cache
def within_by_chance(freedom: float) -> float:
    """Return the probability that a right value is within `LIMIT` standard errors, by
    Student's t.
    """
    if freedom < 1:
        return math.nan
    if math.isinf(freedom):
        return math.erf(LIMIT / math.sqrt(2))
    return float(1 - 2 * stdtr(freedom, -LIMIT))


def main() -> None:
    comparison = compare(KeptTrials(*sys.argv[1:2]))
    for title, table in comparison.tables():
        print(f"{title}\n\n{table}\n")
    print("\n".join([*comparison.notes(), "", *comparison.summary()]))


if __name__ == "__main__":
    main()
