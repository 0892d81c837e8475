"""What the paper states in prose and figures, checked on results."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import yaml

from cbm_cli.errors import IncompleteError
from cbm_cli.grid.words import value_of, with_name
from cbm_cli.paper import FINDINGS
from cbm_cli.paper.machine_measures import machine_measure
from cbm_cli.results import Metric
from cbm_cli.results.cells import Cell, Floats, Measure, Source, Trials
from cbm_cli.sheets import Document, Group, Label, Sheet
from cbm_cli.statistics.wilcoxon import FEWEST_PAIRS, Sample, signed_rank
from cbm_cli.text import count, text_of

ALPHA = 0.05
LARGEST = 1e9  # stands for infinity, which a diverged trial has
VERDICTS = ("reproduced", "contradicted", "undecided", "not run")
RELATIONS = ("above", "below", "like")
OF_COURSE = {"at": "value at update {}", "mean": "mean from update {} to {}", "reach": "updates to {}"}
OF_COURSE |= {"machine": "{} in the last hidden layer"}


@dataclass(frozen=True)
class Evidence:
    """One comparison that a finding rests on: a run against another run, or against a number."""

    statement: int  # of the finding
    run_id: str
    against: str  # run-id or number
    value: float  # means over the trials in which both sides are finite
    other: float
    n: int  # pairs of trials
    p_value: float
    outcome: int  # 1: as the paper states, -1: significantly the opposite, 0: neither
    means_agree: bool  # whether the means are as the paper states, significantly or not


@dataclass(frozen=True)
class Judged:
    """A finding of the paper and what results say about it."""

    finding: Mapping[str, Any]  # of findings.yaml
    evidence: Sequence[Evidence]

    @property
    def needed(self) -> int:
        """Return how many comparisons have to be as stated."""
        return self.finding.get("need", self.finding["comparisons"])

    @property
    def verdict(self) -> str:
        """Return one of `VERDICTS`; contradicted if too many comparisons are significantly the opposite."""
        outcomes = Counter(one.outcome for one in self.evidence)
        misses = self.finding["comparisons"] - self.needed  # as many may be otherwise
        if not self.evidence:
            return "not run"
        if outcomes[1] >= max(self.needed, len(self.evidence) - misses):
            return "reproduced"
        return "contradicted" if outcomes[-1] > misses else "undecided"

    @property
    def trials(self) -> str:
        """Return the number of trials of the comparisons."""
        numbers = sorted({one.n for one in self.evidence if one.n})
        return " to ".join(map(str, sorted({*numbers[:1], *numbers[-1:]}))) if numbers else "–"

    def numbers(self) -> str:
        """Return the numbers that the verdict rests on, statement by statement."""
        lines = []
        for i, statement in enumerate(self.finding["checks"]):
            own = [one for one in self.evidence if one.statement == i]
            held = sum(one.outcome == 1 for one in own)
            number = not isinstance(_sides(statement)[1][1], dict)
            found = f"{held} of {len(own)}{_range(own, number)}" if own else "not run"
            lines.append(f"{_words(statement, self.finding.get('metric'))}: {found}")
        return "; ".join(lines)

    def record(self) -> dict[str, Any]:
        """Return everything about the finding, as plain values."""
        names = ("name", "place", "says")
        return {name: self.finding[name] for name in names} | {
            "experiments": " ".join(self.finding["experiments"]),
            "verdict": self.verdict,
            "as_stated": sum(one.outcome == 1 for one in self.evidence),
            "opposite": sum(one.outcome == -1 for one in self.evidence),
            "means_agree": sum(one.means_agree for one in self.evidence),
            "compared": len(self.evidence),
            "needed": self.needed,
            "trials": self.trials,
            "numbers": self.numbers(),
        }


def _words(statement: Mapping[str, Any], metric: str | None) -> str:
    """Spell a statement, such as ``maximum of dd^b_s above 00``."""

    def spelled(name: str, value: Any) -> str:
        first, *others = value if isinstance(value, list) else [value]
        named = first if name == "metric" else with_name(name, first).text
        return ", ".join([named, *(value_of(name, one).text for one in others)])

    relation, sides = _sides(statement)
    cell, other = (
        " ".join(spelled(*it) for it in side.items()) if isinstance(side, dict) else f"{side:g}"
        for side in sides
    )
    of = statement.get("of", "max")
    if isinstance(of, dict):
        ((name, value),) = of.items()
        of = OF_COURSE[name].format(*(value if isinstance(value, list) else [value]))
    elif of == "max":
        of = "minimum" if metric and Metric(metric).better < 0 else "maximum"
    factor = f"{statement['factor']:g} times " if "factor" in statement else ""
    return f"{of} of {cell} {relation} {factor}{other}"


def _sides(statement: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Return how the two sides of a statement are related, and the sides."""
    relation = next(name for name in RELATIONS if name in statement)
    return relation, [statement["cell"], statement[relation]]


def _range(evidence: Sequence[Evidence], number: bool) -> str:
    """Return the smallest and the largest value, or difference of two runs, of some comparisons."""
    found = sorted(one.value - (0 if number else one.other) for one in evidence)
    limits = [
        math.copysign(math.inf, end) if abs(end) > LARGEST / 2 else end for end in (found[0], found[-1])
    ]
    ends = dict.fromkeys(format(end, ".4g" if number else "+.4g") for end in limits)
    return f" ({'' if number else 'difference '}{' to '.join(ends)})"


@cache
def findings() -> list[dict[str, Any]]:
    """Return the findings of ``findings.yaml``."""
    return yaml.safe_load(FINDINGS.read_text(encoding="utf-8"))["findings"]


def check_findings(known: pd.DataFrame, store: Source) -> list[Judged]:
    """Check all findings on the trials of all experiments; ``store`` finds the curves of an experiment."""
    if known.empty:
        raise IncompleteError("there are no finished trials to check findings on; start with `cbm run`")
    return [Judged(one, [*_evidence(one, known, store)]) for one in findings()]


def _evidence(finding: Mapping[str, Any], known: pd.DataFrame, store: Source) -> Iterator[Evidence]:
    frame = known[known["experiment"].isin(finding["experiments"])]
    if frame.empty:
        return
    trials, runs = Trials(frame, store), frame.drop_duplicates("run_id")
    for i, statement in enumerate(finding["checks"]):
        own = {"scale": finding.get("scale"), "metric": finding.get("metric")} | statement
        metrics = [
            side.get("metric", own["metric"]) if isinstance(side, dict) else "" for side in _sides(own)[1]
        ]
        for run, other in pairs_of(finding, statement, runs):
            a = _quantity(run, trials, own, metrics[0])
            b = (
                _quantity(str(other), trials, own, metrics[1])
                if metrics[1]
                else dict.fromkeys(a, float(other))
            )
            if a.keys() & b.keys():
                yield _tested(i, (run, str(other)), a, b, own)


def pairs_of(
    finding: Mapping[str, Any], statement: Mapping[str, Any], runs: pd.DataFrame
) -> list[tuple[str, str | float]]:
    """Return what a statement compares: run-ids with run-ids of the same ``each`` settings, or a number."""
    those, other = (
        runs[_selected(runs, finding["where"] | side)] if isinstance(side, dict) else side
        for side in _sides(statement)[1]
    )
    if not isinstance(other, pd.DataFrame):
        return [(run, other) for run in those["run_id"]]
    left, right = (
        side[["run_id"]].assign(same="", **{c: side[c].map(text_of) for c in finding.get("each", [])})
        for side in (those, other)
    )
    found = left.merge(right, on=["same", *finding.get("each", [])], suffixes=("", "_other"))
    return [*zip(found["run_id"], found["run_id_other"], strict=True)]


def _selected(runs: pd.DataFrame, settings: Mapping[str, Any]) -> pd.Series:
    """Whether each run has the settings, of which a list names several allowed values."""
    chosen = pd.Series(True, index=runs.index)
    for name, value in settings.items():
        if name != "metric":
            allowed = {text_of(one) for one in (value if isinstance(value, list) else [value])}
            chosen &= runs[name].map(text_of).isin(allowed) if name in runs else False
    return chosen


def _quantity(run: str, trials: Trials, statement: Mapping[str, Any], metric: str) -> Sample:
    """Return what a statement is about, by trial; without trials in which it was not measured."""
    of, scale = statement.get("of", "max"), statement["scale"] or "per-sample"
    statistic = "final" if of == "final" else "max"
    cell = Cell({"run_id": run}, trials, trials.of_runs[run], Measure(Metric(metric), scale, statistic))
    if isinstance(of, dict):
        kept = trials.numbers(course_column(metric, of))[cell.rows]
        scaled = 1.0 if "reach" in of else cell.scale
        values = np.array(_of_course(cell, of)) if np.isnan(kept).all() else kept * scaled
        numbers = trials.numbers("trial")[cell.rows].astype(int)
    else:
        values, numbers = _of_summary(cell, of), cell.numbers
    known = zip(numbers.tolist(), values.tolist(), strict=True)
    return {trial: float(np.clip(value, -LARGEST, LARGEST)) for trial, value in known if value == value}


def _of_summary(cell: Cell, of: str) -> Floats:
    """Return a number of each trial of a cell; of a diverged trial without a value it is the worst."""
    worst = math.inf if "_cost" in cell.measure.metric.column else -math.inf
    best, final = (
        np.where(np.isnan(values) & cell.stopped, worst, values) for values in (cell.best, cell.final)
    )
    if of == "fall":
        with np.errstate(invalid="ignore"):  # a trial that never had a finite value has no fall
            return cell.measure.metric.better * (best - final)
    if of == "spread":
        with np.errstate(invalid="ignore"):
            return np.abs(best - np.median(best)) if len(best) > 1 else np.full_like(best, np.nan)
    return {"max": best, "final": final}[of]


def _of_course(cell: Cell, of: Mapping[str, Any]) -> list[float]:
    """Return a number of the curve, the records or the machine of each trial; NaN where they are not kept.

    ``at``: the value at an update. ``mean``: the mean over all updates between two, also where windows of a
    recorder make rows dense; linear between rows. ``reach``: the first update at which the metric is so high,
    in nats per row; infinity if it never is. ``machine``: a number of the machine at the end.
    """
    rows = cell.trials.frame.iloc[cell.rows]
    if "machine" in of:
        places = zip(rows["experiment"], rows["run_id"], rows["trial"], strict=True)
        return [machine_measure(of["machine"], cell.trials.store(name), *trial) for name, *trial in places]
    try:
        curves = cell.curves()
    except IncompleteError:  # kept results may have none
        return [math.nan] * len(rows)
    if "reach" in of:
        return [_reached(curve / s, of["reach"]) for curve, s in zip(curves, cell.scale, strict=True)]
    return [_at(curve, of["at"]) if "at" in of else _mean(curve, *of["mean"]) for curve in curves]


def _reached(curve: pd.Series, value: float) -> float:
    reached = curve.index[curve >= value]
    return float(reached[0]) if len(reached) else math.nan if curve.empty else math.inf


def _at(curve: pd.Series, update: int) -> float:
    later = curve[curve.index >= update]
    return float(later.iloc[0]) if len(later) else math.nan


def _mean(curve: pd.Series, first: int, last: int) -> float:
    known = curve[(curve.index >= first) & (curve.index <= last)].dropna()
    if known.empty:
        return math.nan
    updates = np.arange(known.index[0], known.index[-1] + 1)
    return float(np.interp(updates, known.index, known).mean())


def course_column(metric: str, of: Mapping[str, Any]) -> str:
    """Return the column of a kept summary with a number of the curves or records."""
    ((name, value),) = of.items()
    return ":".join([metric, name, *map(str, value if isinstance(value, list) else [value])])


def _tested(
    number: int, names: tuple[str, str], a: Sample, b: Sample, statement: Mapping[str, Any]
) -> Evidence:
    """Test whether the values of two runs are related as stated."""
    b = {trial: statement.get("factor", 1) * value for trial, value in b.items()}
    test, shared = signed_rank(a, b), sorted(a.keys() & b.keys())
    pairs = [(a[trial], b[trial]) for trial in shared]
    value, other = np.mean([pair for pair in pairs if max(map(abs, pair)) < LARGEST] or pairs[:1], axis=0)
    if "like" in statement:
        agree = abs(value - other) <= statement["within"]
    else:
        agree = value > other if "above" in statement else value < other
    outcome = 0
    if test.powered(ALPHA):
        differs = int(np.sign(test.effect_size)) if test.p_value < ALPHA else 0
        if "like" in statement:
            outcome = 1 if agree else -1 if differs else 0
        else:
            outcome = differs if "above" in statement else -differs
    return Evidence(number, *names, float(value), float(other), test.n_pairs, test.p_value, outcome, agree)


def count_findings(judged: Sequence[Judged]) -> str:
    """Return how many findings have each verdict."""
    verdicts = Counter(one.verdict for one in judged)
    parts = ", ".join(f"{verdicts[name]} {name}" for name in VERDICTS)
    return f"{count(len(judged), 'finding')} of prose and figures: {parts}."


def findings_document(judged: Sequence[Judged]) -> Document:
    """Return the findings to print: their verdicts, then what those that were run rest on."""
    records = [one.record() for one in judged]
    header = [*map(Label.of, ("Finding", "paper", "verdict", "as stated", "by means", "trials"))]
    rows = [
        [
            *(one[name] for name in ("name", "place", "verdict")),
            *(f"{one[name]} of {one['compared']}" for name in ("as_stated", "means_agree")),
            one["trials"],
        ]
        for one in records
    ]
    left = dict.fromkeys(name for one in judged if not one.evidence for name in one.finding["experiments"])
    notes = [
        "as stated: how many comparisons are significantly as the paper states (signed-rank test, "
        f"α = {ALPHA:g}, {FEWEST_PAIRS} trials or more); by means: how many have means as the paper states, "
        "significantly or not. contradicted: too many are significantly opposite. "
        "undecided: neither, or too few trials or comparisons were run.",
        *(f"{one['name']}: {one['says']} {one['numbers']}." for one in records if one["compared"]),
        *([f"Not run, of experiments.yaml: {', '.join(left)}."] if left else []),
    ]
    sheet = Sheet(header, [Group(None, [[*map(Label.of, row)] for row in rows])], "Findings of the paper")
    return Document([sheet], notes, [count_findings(judged)], records, {"notes": notes})
