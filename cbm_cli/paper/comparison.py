"""Published values beside obtained ones: are they the same within what chance allows?"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd

from cbm_cli.errors import IncompleteError
from cbm_cli.grid.words import value_of
from cbm_cli.paper import PAPER_TABLES
from cbm_cli.paper.mismatches import LIMIT, reasons
from cbm_cli.paper.published import match, published_cells
from cbm_cli.results import Metric
from cbm_cli.results.cells import (
    MAX_OF_MEAN,
    Cell,
    Floats,
    Measure,
    Source,
    Trials,
    best_of_mean_columns,
    finite,
    mean,
)
from cbm_cli.sheets import Document, Group, Item, Label, Sheet
from cbm_cli.statistics.marks import Marking, mark_row
from cbm_cli.statistics.wilcoxon import FEWEST_PAIRS
from cbm_cli.text import count, text_of

KINDS = {"rbm": "RBM", "dbm": "DBM", "auto-encoder": "auto encoder"}
METRICS = {"rbm": "log_likelihood", "dbm": "lower_bound", "auto-encoder": "cost"}  # behind the part's name
ROW = ["table", "split", "dataset", "hidden", "sampler", "learning_rate", "pretraining_epochs"]
ONE_SWEEP = "mnist"  # of all data run with PCD-1 and PCD-2, that whose published PCD-1 fits PCD-1
UNDERLINED = "10"  # trials; too few for the paper's test: only the best of a row is marked
SWAPPED = "caltech101-silhouettes"  # the paper's validation rows of it are the test rows of everyone else
SMOOTHED = "d0^b_s"  # what the paper prints as d0 where it trains with mini-batches
MISPRINT = {"table": "standard-methods-bars-mnist", "dataset": "mnist", "sampler": "PT_10", "offsets": "aa^b"}
# These tables print the maximum of the mean over trials, the others the mean of the trials' maxima.
OF_MEAN = ("big-rbm-test", "big-rbm-train", "dbm-test", "dbm-train")
HEADER = ["Algorithm-η", "offsets", "published", "obtained", "n", "z"]
ASIDES = {"final": ".1f", "epochs": ".0f"}  # in the paper's parentheses, and how it is spelled
ALERT = " !"  # behind what does not agree


@dataclass(frozen=True)
class Comparison:
    """Published cells that were run, each beside what was obtained; see `compare`."""

    # One line for each published cell and sampler it was run with (obtained_sampler: PCD-1 is run as
    # PCD-1 and as PCD-2), in the published scale.
    cells: pd.DataFrame
    chances: pd.DataFrame  # probability that z, final_z and epochs_z of a right value are within LIMIT
    missing: Mapping[str, int]  # published cells without a comparable trial, by kind of machine
    departures: Mapping[str, int]  # settings unlike the paper's, and how many matching runs have them
    not_comparable: int  # runs with such settings
    versions: Mapping[str, Sequence[str]]  # of the kernels: experiments of the compared runs that have them
    has_curves: bool = False  # tables 9 to 12 are compared with the maximum of the mean, as they should be

    @property
    def kinds(self) -> list[str]:
        """Kinds of machines that were compared."""
        return [kind for kind in KINDS if (self.cells["model"] == kind).any()]

    def summary(self) -> list[str]:
        """Count the values and marks that agree, by kind of machine and reading of the published PCD-1."""
        lines = []
        for kind in self.kinds:
            of_kind = self.cells[self.cells["model"] == kind]
            name = "" if kind == "rbm" else f"{KINDS[kind][0].upper()}{KINDS[kind][1:]}s: "
            aside = "epochs" if kind == "auto-encoder" else "final"
            readings = {"PCD-1": name}
            if (of_kind["obtained_sampler"] == "PCD-2").any():
                readings["PCD-2"] = f"{name}With PCD-2 instead of PCD-1: "
            asides, values = [], []
            for pcd, prefix in readings.items():
                cells = of_kind[(of_kind["sampler"] != "PCD-1") | (of_kind["obtained_sampler"] == pcd)]
                if cells[f"{aside}_z"].notna().any():
                    asides.append(prefix + self._within(cells, aside))
                values.append("; ".join([prefix + self._within(cells, "mean"), *_agreeing(cells)]))
            lines += asides + values
        return lines

    def _within(self, cells: pd.DataFrame, name: str) -> str:
        """Count the values within two standard errors, each run once, beside what chance allows."""
        words = {"mean": "values", "final": "final values", "epochs": "epochs of the lowest cost"}[name]
        z, published = "z" if name == "mean" else f"{name}_z", f"published_{name}"
        cells = cells[cells[z].notna()].drop_duplicates(["run_id", "split", published])
        chance = self.chances.loc[cells.index, z]
        spread = math.sqrt((chance * (1 - chance)).sum())
        return (
            f"{(cells[z].abs() <= LIMIT).sum()} of {len(cells)} published {words} within {LIMIT:g} standard "
            f"errors (expected if all were right: {chance.sum():.1f} ± {spread:.1f})"
        )

    def notes(self) -> list[str]:
        """Return what was compared with what, and what was left out."""
        known = reasons(self.differing())
        return [*self._compared(), *self._marks(), *self._special(), *known, *self._left_out()]

    def plausible(self) -> pd.DataFrame:
        """Return the cells without PCD-2 beside a published PCD-1 of MNIST."""
        as_named = self.cells["sampler"] == self.cells["obtained_sampler"]
        return self.cells[as_named | (self.cells["dataset"] != ONE_SWEEP)]

    def differing(self) -> list[dict[str, Any]]:
        """Return the plausible cells beyond two standard errors."""
        cells = self.plausible()
        return cells[cells["z"].abs() > LIMIT].to_dict("records")

    def _compared(self) -> Iterator[str]:
        runs = self.cells.drop_duplicates("run_id")
        epochs, finals = "auto-encoder" in self.kinds, {"rbm", "dbm"} & {*self.kinds}
        behind = " and ".join(["final values"] * bool(finals) + ["epochs of the lowest cost"] * epochs)
        yield (
            f"Compared: {count(len(runs), 'run')} with {count(int(runs['obtained_n'].sum()), 'trial')}. "
            "A run that is part of several tables counts once."
        )
        least = self.chances.min().min()
        yield (
            "z: difference, obtained less published, in standard errors; these include both spreads and "
            f"the rounding of the published value. Published {behind} have no spread: the obtained one is "
            f"used for both. ! marks more than {LIMIT:g} standard errors: of right values 5% have it, "
            f"and more of them with few trials, here up to {1 - least:.0%}."
        )
        if self.cells["table"].isin(OF_MEAN).any():
            yield "Tables 9 to 12 print the maximum of the mean over trials, and its spread there; " + (
                "so do the obtained values."
                if self.has_curves
                else "without curves, obtained is the mean of maxima."
            )
        if "dbm" in self.kinds:
            yield "DBMs: obtained is the mean-field lower bound of the log-likelihood."
        if epochs:
            yield (
                "Auto encoders: the lowest cost of the part during training, and its epoch. Published test "
                "costs are compared with the validation costs, which they fit (CalTech: with its 2,307 test "
                "rows, the paper's validation rows). Published values at the rates 0.01 and 0.1, where all "
                "training costs are those of 5,000 epochs, are compared with runs that do not stop early "
                "(early_stopping: {look_ahead: 5000})."
            )

    def _marks(self) -> Iterator[str]:
        trials = {*self.cells["published_n"].astype(str)}
        how = []
        if trials - {UNDERLINED}:
            how.append(
                "obtained marks by the signed-rank test (α = 0.05), if the whole row was run with "
                f"{FEWEST_PAIRS} pairs or more"
            )
        if UNDERLINED in trials:
            how.append(f"where the paper has {UNDERLINED} trials, only the best of a whole row is marked")
        yield f"bold: whether the cell is marked in its row, published/obtained; {'; '.join(how)}."

    def _special(self) -> Iterator[str]:
        if (self.cells["obtained_sampler"] == "PCD-2").any():
            yield "Published PCD-1 is also compared with PCD-2: two sweeps per update fit it better."
        if (self.cells["offsets"] == SMOOTHED).any():
            yield (
                f"Published d0 is compared with {SMOOTHED} where the paper trains with mini-batches: its "
                "visible offset does not move with the batch."
            )
        if (self.cells[list(MISPRINT)] == pd.Series(MISPRINT)).all(axis=1).any():
            yield "The published bold mark of aa^b, PT_10, MNIST (table 2) is an evident misprint."

    def _left_out(self) -> Iterator[str]:
        if len(self.versions) > 1:
            each = ", ".join(
                f"{version} in {count(len(its), 'run')}" for version, its in self.versions.items()
            )
            where = "; ".join(
                f"{version}: {', '.join(dict.fromkeys(its))}" for version, its in [*self.versions.items()][1:]
            )
            yield f"Kernel versions differ: {each} ({where}); other numbers by rounding or by a mended fault."
        if self.not_comparable:
            why = ", ".join(f"{name} in {number}" for name, number in self.departures.items())
            runs = count(self.not_comparable, "run")
            yield f"Not compared: {runs} with settings other than the paper's ({why})."
        missing = [f"{count(n, f'{KINDS[kind]} value')}" for kind, n in self.missing.items() if n]
        if missing:
            yield f"Published values without a comparable trial here: {', '.join(missing)}."

    def document(self) -> Document:
        """Return the comparison to print: first as published, then with PCD-2 for the published PCD-1."""
        parts = ["table", "split", "dataset", "hidden", "pretraining_epochs"]
        cells = self.cells.assign(repeated=self.cells["obtained_sampler"] == "PCD-2")
        cells = cells.sort_values("repeated", kind="stable").groupby(["repeated", *parts], sort=False)
        sheets = [_sheet(section) for _, section in cells]
        notes, summary = self.notes(), self.summary()
        records = self.cells.to_dict("records")
        return Document(sheets, notes, summary, records, {"summary": summary, "notes": notes})


def _agreeing(cells: pd.DataFrame) -> list[str]:
    tested = cells["published_n"] != int(UNDERLINED)
    return [
        f"{int(marks.sum())} of {len(marks)} {what} agree"
        for what, part in (("significance marks", tested), ("marks of the best", ~tested))
        if len(marks := cells.loc[part, "marks_agree"].dropna())
    ]


def _sheet(section: pd.DataFrame) -> Sheet:
    first = section.iloc[0]
    aside = "epochs" if first["model"] == "auto-encoder" else "final"
    number = PAPER_TABLES.get(first["table"], first["table"])
    metric = Metric(f"{first['split']}_{METRICS[first['model']]}")
    measure = f"{metric.part} {metric.name} {metric.unit(first['scale'])}"
    title = f"Table {number}: {first['dataset']}, {first['hidden']} hidden, {measure}"
    if first["pretraining_epochs"] != "0" and aside == "final":
        title += f", {first['pretraining_epochs']} epochs of pre-training"
    if first["obtained_sampler"] == "PCD-2":
        title += ", published PCD-1 beside PCD-2"
    header = [*HEADER, f"published {aside}", f"obtained {aside}", "difference", "z", "bold"]
    rows = [_line(cell, aside) for cell in section.to_dict("records")]
    return Sheet([*map(Label.of, header)], [Group(None, rows)], title)


def _line(cell: dict[str, Any], aside: str) -> list[Item]:
    sampler, offsets = (value_of(name, cell[name]) for name in ("sampler", "offsets"))
    init = [Label.of(cell["init"])] if cell["table"].startswith("init-") else []
    decimals = (max(2, _decimals(cell[f"published_{name}"])) for name in ("mean", "std"))
    digits, spread = (f".{d}f" for d in decimals)
    words = {True: "yes", False: "no", None: "–"}
    marks = f"{words[cell['published_bold']]}/{words[cell['obtained_bold']]}"
    texts = [
        f"{cell['published_mean']} ± {cell['published_std']}",
        f"{cell['obtained_mean']:{digits}} ± {_number(cell['obtained_std'], spread)}",
        str(cell["obtained_n"]) + (f" ({cell['diverged']} diverged)" if cell["diverged"] else ""),
        _z(cell["z"]),
        cell[f"published_{aside}"] or "–",
        _number(cell[f"obtained_{aside}"], ASIDES[aside]),
        _number(cell[f"{aside}_difference"], f"+z{ASIDES[aside]}"),
        _z(cell[f"{aside}_z"]),
        marks + ALERT * (cell["marks_agree"] is False),
    ]
    return [
        Label.join([sampler, Label.of(cell["learning_rate"])], "-"),
        Label.join([offsets, *init], " "),
        *(Label.of(text, alert=text.endswith(ALERT)) for text in texts),
    ]


def _number(value: float, spec: str) -> str:
    return "–" if math.isnan(value) else format(value, spec)


def _z(z: float) -> str:
    return _number(z, "+z.1f") + ALERT * (abs(z) > LIMIT)


def compare(frame: pd.DataFrame, source: Source | None = None) -> Comparison:
    """Match the trials of any number of experiments, their ``summary.csv``, with the paper's tables.

    A published cell is compared with the run that has its machine, data, sampler, learning rate, offsets,
    initial biases and epochs of pre-training, and the paper's other settings (length, batch, evaluation
    interval, one ladder, default weight scale and sliding factors, ...): among several, the one with the
    most trials. A run that is part of several experiments counts once. ``source`` returns the curves of an
    experiment, for the statistic of tables 9 to 12.

    Raises
    ------
    IncompleteError
        No trial can be compared with a published value.
    """
    if frame.empty:
        raise IncompleteError("there are no finished trials to compare; start with `cbm run`")
    trials = Trials(frame.drop_duplicates(["run_id", "trial"]), source)
    published = published_cells()
    published = published[published["model"].isin(trials.frame["model_kind"])]
    pairs = _with_departures(published, trials)
    unlike = {run: names.iloc[0] for run, names in pairs.groupby("run")["departures"] if all(names)}
    counts = dict(Counter(name for names in unlike.values() for name in names).most_common())
    whole = pairs[~pairs["departures"].astype(bool)].sort_values("n", ascending=False, kind="stable")
    whole = whole.drop_duplicates(["line", "reading"])[["line", "reading", "run"]]
    rows = published.merge(whole, how="left").groupby([*ROW, "reading"], sort=False)
    compared = (_compare_row(row, trials) for _, row in rows if row["run"].notna().any())
    lines = [line for row in compared for line in row]
    if not lines:
        raise IncompleteError(_nothing(trials.frame, published, counts))
    cells = pd.DataFrame([line for line, _ in lines])
    return Comparison(
        cells,
        chances=pd.DataFrame([chances for _, chances in lines]),
        missing=_missing(published, cells),
        departures=counts,
        not_comparable=len(unlike),
        versions=_versions(trials.frame, cells),
        has_curves=source is not None,
    )


def _with_departures(published: pd.DataFrame, trials: Trials) -> pd.DataFrame:
    """Return published cells with the runs that match them, and the number of their trials."""
    firsts = trials.frame.drop_duplicates("run_id").set_index("run_id", drop=False).rename_axis(None)
    numbers = {run: len(rows) for run, rows in trials.of_runs.items()}
    pairs = match(published, firsts.map(text_of))
    return pairs.assign(n=pairs["run"].map(numbers))


def _nothing(frame: pd.DataFrame, published: pd.DataFrame, departures: Mapping[str, int]) -> str:
    """Say why no trial can be compared."""
    why = f" ({', '.join(departures)}: not the paper's)" if departures else ""
    unknown = frame[~frame["data"].isin(published["dataset"])].drop_duplicates(["model_kind", "data"])
    if not departures and len(unknown):
        sets = ", ".join(f"{row.model_kind} on {row.data}" for row in unknown.itertuples())
        why = f" (the paper's tables have no {sets})"
    return f"no trial can be compared with a published value{why}; run a paper experiment"


def _missing(published: pd.DataFrame, cells: pd.DataFrame) -> dict[str, int]:
    """Return the number of published values that were not run, by kind of machine."""
    kinds = published.drop_duplicates("line")["model"].value_counts()
    compared = cells.drop_duplicates([*ROW, "offsets", "init"])["model"].value_counts()
    missing = kinds.sub(compared, fill_value=0).astype(int)
    return {kind: int(missing[kind]) for kind in KINDS if kind in missing}


def _versions(frame: pd.DataFrame, cells: pd.DataFrame) -> dict[str, list[str]]:
    """Return the experiments of compared runs by the version of the kernels, the usual one first."""
    used = frame.reindex(columns=["run_id", "kernel_version", "experiment"])
    used = used[used["run_id"].isin(cells["run_id"])].drop_duplicates(["run_id", "kernel_version"])
    experiments = used.groupby(used["kernel_version"].map(text_of))["experiment"].agg(list)
    return dict(sorted(experiments.items(), key=lambda it: -len(it[1])))


def _compare_row(row: pd.DataFrame, trials: Trials) -> Iterator[tuple[dict[str, Any], dict[str, float]]]:
    """Compare one row of a published table, in one reading of its sampler, with the runs beside it."""
    first = row.iloc[0]
    part = first["split"]
    if first["model"] == "auto-encoder" and part == "test" and first["dataset"] != SWAPPED:
        part = "valid"
    metric = Metric(f"{part}_{METRICS[first['model']]}")
    if f"{metric.column}_final" not in trials.frame:
        return
    known = trials.source is not None or best_of_mean_columns(metric.column)[0] in trials.frame
    statistic = MAX_OF_MEAN if first["table"] in OF_MEAN and known else "max"
    measure = Measure(metric, first["log_likelihood_scale"], statistic)
    cells = [
        Cell({"run_id": run}, trials, trials.of_runs[run], measure) if run in trials.of_runs else None
        for run in row["run"]
    ]
    cells = [cell if cell and not math.isnan(cell.mean) else None for cell in cells]
    whole = all(cells)
    marks = mark_row([cell.values if cell and whole else None for cell in cells], Marking(metric.better))
    tested = whole and any(mark.best and mark.claimed for mark in marks)
    for published, cell, mark in zip(row.to_dict("records"), cells, marks, strict=True):
        if cell is not None:
            underlined = published["trials"] == UNDERLINED
            obtained = mark.best if underlined else mark.bold
            yield _compared(published, cell, obtained if (whole if underlined else tested) else None)


def _compared(
    published: Mapping[str, str], cell: Cell, obtained_bold: bool | None
) -> tuple[dict[str, Any], dict[str, float]]:
    """Return one line of a comparison, and its chances; ``obtained_bold`` is None where it is not known."""
    bold = published["best_in_row"] == "yes"
    z, chance = _best_z(published, cell.value)
    final, final_chance = _aside("final", published["final_mean"], cell.final, published)
    epochs, epochs_chance = _aside("epochs", published["epochs_to_convergence"], cell.epochs, published)
    line = {
        **{name: published[name] for name in ("model", *ROW, "offsets", "init")},
        "scale": published["log_likelihood_scale"],
        "obtained_sampler": published["reading"],
        "run_id": cell.settings["run_id"],
        "published_mean": published["mean"],
        "published_std": published["std"],
        "published_n": int(published["trials"]),
        "obtained_mean": cell.mean,
        "obtained_std": cell.std,
        "obtained_n": cell.n,
        "diverged": cell.diverged,
        "difference": cell.mean - float(published["mean"]),
        "z": z,
        **final,
        **epochs,
        "published_bold": bold,
        "obtained_bold": obtained_bold,
        "marks_agree": None if obtained_bold is None else obtained_bold == bold,
    }
    return line, {"z": chance, "final_z": final_chance, "epochs_z": epochs_chance}


def _best_z(published: Mapping[str, str], values: Floats) -> tuple[float, float]:
    """Compare best values in standard errors; a single trial borrows the published spread."""
    values, n_published, spread = finite(values), int(published["trials"]), float(published["std"])
    n = len(values)
    parts = [(values.std(ddof=1) if n > 1 else spread) ** 2 / n, spread**2 / n_published]
    # Welch's degrees of freedom; a borrowed spread has the published trials' ones.
    weights = [parts[0] ** 2 / (n - 1), parts[1] ** 2 / (n_published - 1)] if n > 1 else []
    freedom = (sum(parts) ** 2 / sum(weights) if sum(weights) else math.inf) if weights else n_published - 1
    return _in_errors(published["mean"], mean(values), sum(parts)), within_by_chance(freedom)


def _aside(
    name: str, text: str, values: Floats, published: Mapping[str, str]
) -> tuple[dict[str, Any], float]:
    """Compare what the paper has in parentheses, without a spread: the obtained one is used on both sides."""
    values, mean_of = finite(values), mean(values)
    z = math.nan
    if text and len(values) > 1:
        variance = values.var(ddof=1) * (1 / len(values) + 1 / int(published["trials"]))
        z = _in_errors(text, mean_of, variance)
    line = {
        f"published_{name}": text,
        f"obtained_{name}": mean_of,
        f"{name}_difference": mean_of - (float(text) if text else math.nan),
        f"{name}_z": z,
    }
    return line, within_by_chance(len(values) - 1)


def _in_errors(published: str, obtained: float, variance: float) -> float:
    return (obtained - float(published)) / math.sqrt(variance + rounding_variance(published))


def _decimals(text: str) -> int:
    return len(text.partition(".")[2])


def rounding_variance(text: str) -> float:
    """Return the variance that rounding adds to a printed number with d decimals: 10^(-2 d) / 12."""
    return 10.0 ** (-2 * _decimals(text)) / 12


@cache
def within_by_chance(freedom: float) -> float:
    """Return the probability that a right value is within `LIMIT` standard errors, by Student's t."""
    if freedom < 1:
        return math.nan
    if math.isinf(freedom):
        return math.erf(LIMIT / math.sqrt(2))
    from scipy.special import stdtr

    return float(1 - 2 * stdtr(freedom, -LIMIT))
