"""What the paper states in prose and figures, checked on results.

    python reproduction/findings.py [RESULTS]

``paper/findings.yaml`` has the statements and explains how they are written.
"""

import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import yaml
from compare import Floats, KeptTrials
from printed import PAPER, markdown, text_of

import cbm_cli as cbm
from cbm_cli.errors import CbmError
from cbm_cli.statistics.wilcoxon import signed_rank

ALPHA = 0.05
FEWEST_PAIRS = 6  # at which a signed-rank test can reach ALPHA
LARGEST = 1e9  # replaces infinity, which a diverged trial has
VERDICTS = ("reproduced", "contradicted", "undecided", "not run")
OF_COURSE = {
    "at": "value at update {}",
    "mean": "mean from update {} to {}",
    "reach": "updates to {}",
    "machine": "{} in the last hidden layer",
}


@dataclass(frozen=True)
class Evidence:
    """One comparison that a finding rests on: a run against another run, or against a
    number.
    """

    statement: int  # of the finding
    run_id: str
    against: str  # run-id or number
    value: float  # means over the trials in which both sides are finite
    other: float
    n: int  # pairs of trials
    outcome: int  # 1: as the paper states, -1: significantly the opposite, 0: neither
    means_agree: bool  # whether the means are as the paper states, significantly or not


@dataclass(frozen=True)
class Judged:
    """A finding of the paper and what results say about it."""

    finding: Mapping[str, Any]  # of findings.yaml
    evidence: Sequence[Evidence]

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`; contradicted if too many comparisons are significantly the
        opposite.
        """
        if not self.evidence:
            return "not run"
        outcomes = Counter(one.outcome for one in self.evidence)
        comparisons = self.finding["comparisons"]
        needed = self.finding.get("need", comparisons)
        misses = comparisons - needed  # the number that may be otherwise
        if outcomes[1] >= max(needed, len(self.evidence) - misses):
            return "reproduced"
        return "contradicted" if outcomes[-1] > misses else "undecided"

    def row(self) -> list[str]:
        """Return what the finding says, its verdict and counts of comparisons, for a
        table.
        """
        n = sorted({one.n for one in self.evidence if one.n})
        counts = [
            sum(one.outcome == 1 for one in self.evidence),
            sum(one.means_agree for one in self.evidence),
        ]
        return [
            *(self.finding[name] for name in ("says", "place")),
            self.verdict,
            *(
                f"{count} of {len(self.evidence)}" if self.evidence else "–"
                for count in counts
            ),
            " to ".join(map(str, dict.fromkeys([n[0], n[-1]]))) if n else "–",
        ]

    def numbers(self) -> str:
        """Return the numbers that the verdict rests on, statement by statement."""
        lines = []
        for i, statement in enumerate(self.finding["checks"]):
            own = [one for one in self.evidence if one.statement == i]
            found = "not run"
            if own:
                alone = not isinstance(sides_of(statement)[2], dict)
                values = sorted(one.value - (0 if alone else one.other) for one in own)
                ends = [
                    math.copysign(math.inf, v) if abs(v) > LARGEST / 2 else v
                    for v in (values[0], values[-1])
                ]
                texts = dict.fromkeys(
                    format(end, ".4g" if alone else "+.4g") for end in ends
                )
                held = sum(one.outcome == 1 for one in own)
                found = (
                    f"{held} of {len(own)} "
                    f"({'' if alone else 'difference '}{' to '.join(texts)})"
                )
            lines.append(
                f"{words_of(statement, self.finding.get('metric') or '')}: {found}"
            )
        return "; ".join(lines)


def sides_of(statement: Mapping[str, Any]) -> tuple[str, Any, Any]:
    """Return how the two sides of a statement are related, and the sides."""
    relation = next(name for name in ("above", "below", "like") if name in statement)
    return relation, statement["cell"], statement[relation]


def words_of(statement: Mapping[str, Any], metric: str) -> str:
    """Spell a statement, such as ``maximum of dd^b_s above 00``."""

    def spelled(name: str, value: Any) -> str:
        text = ", ".join(map(str, value if isinstance(value, list) else [value]))
        return (
            text
            if name in ("offsets", "metric", "sampler", "init")
            else f"{name.replace('_', ' ')} {text}"
        )

    relation, *sides = sides_of(statement)
    cell, other = (
        " ".join(spelled(*it) for it in side.items())
        if isinstance(side, dict)
        else f"{side:g}"
        for side in sides
    )
    of = statement.get("of", "max")
    if isinstance(of, dict):
        ((name, value),) = of.items()
        of = OF_COURSE[name].format(*(value if isinstance(value, list) else [value]))
    elif of == "max":
        of = "minimum" if metric.endswith("cost") else "maximum"
    factor = f"{statement['factor']:g} times " if "factor" in statement else ""
    return f"{of} of {cell} {relation} {factor}{other}"


@cache
def findings() -> list[dict[str, Any]]:
    """Return the findings of ``findings.yaml``."""
    return yaml.safe_load((PAPER / "findings.yaml").read_text(encoding="utf-8"))[
        "findings"
    ]


def check_findings(trials: KeptTrials) -> list[Judged]:
    """Check all findings on the trials of all experiments."""
    return [Judged(one, [*evidence_of(one, trials)]) for one in findings()]


def evidence_of(finding: Mapping[str, Any], trials: KeptTrials) -> Iterator[Evidence]:
    """Yield a comparison for each pair of runs that each statement of a finding
    compares.
    """
    runs = trials.all.loc[
        trials.all["experiment"].isin(finding["experiments"])
    ].drop_duplicates("run_id")
    for i, statement in enumerate(finding["checks"]):
        own = {
            "scale": finding.get("scale"),
            "metric": finding.get("metric"),
        } | statement
        _, *sides = sides_of(own)
        metrics = [
            side.get("metric", own["metric"]) if isinstance(side, dict) else ""
            for side in sides
        ]
        for run, other in pairs_of(finding, statement, runs):
            a = quantity(run, trials, own, metrics[0])
            b = (
                quantity(str(other), trials, own, metrics[1])
                if metrics[1]
                else dict.fromkeys(a, float(other))
            )
            if a.keys() & b.keys():
                yield tested(i, (run, str(other)), a, b, own)


def pairs_of(
    finding: Mapping[str, Any], statement: Mapping[str, Any], runs: pd.DataFrame
) -> list[tuple[str, str | float]]:
    """Return what a statement compares: run-ids with run-ids of the same ``each``
    settings, or a number.
    """
    _, cell, other = sides_of(statement)
    these = runs[selected(runs, finding["where"] | cell)]
    if not isinstance(other, dict):
        return [(run, other) for run in these["run_id"]]
    those, each = (
        runs[selected(runs, finding["where"] | other)],
        finding.get("each", []),
    )
    left, right = (
        side[["run_id"]].assign(same="", **{c: side[c].map(text_of) for c in each})
        for side in (these, those)
    )
    found = left.merge(right, on=["same", *each], suffixes=("", "_other"))
    return [*zip(found["run_id"], found["run_id_other"], strict=True)]


def selected(runs: pd.DataFrame, settings: Mapping[str, Any]) -> pd.Series:
    """Whether each run has the settings, of which a list names several allowed
    values.
    """
    chosen = pd.Series(True, index=runs.index)
    for name, value in settings.items():
        if name != "metric":
            allowed = {
                text_of(one) for one in (value if isinstance(value, list) else [value])
            }
            chosen &= runs[name].map(text_of).isin(allowed) if name in runs else False
    return chosen


def quantity(
    run: str, trials: KeptTrials, statement: Mapping[str, Any], metric: str
) -> dict[int, float]:
    """Return what a statement is about, by trial; without trials in which it was not
    measured.
    """
    rows, of, cost = trials.runs[run], statement.get("of", "max"), "_cost" in metric

    def column(name: str) -> Floats:
        return (
            rows[name].to_numpy(float) if name in rows else np.full(len(rows), np.nan)
        )

    likelihood = statement["scale"] == "total" and metric.endswith(
        ("likelihood", "bound")
    )
    scale = column(f"n_{metric.partition('_')[0]}") if likelihood else 1.0
    if isinstance(of, dict):
        values = number_of_course(run, trials, metric, of, scale)
    else:
        worst = math.inf if cost else -math.inf
        stopped = ~np.isnan(column("diverged"))
        columns = (f"{metric}_{'min' if cost else 'max'}", f"{metric}_final")
        best, final = (column(name) * scale for name in columns)
        if np.isnan(best).all():  # what recorders measure has a last value alone
            best = final
        best, final = (np.where(np.isnan(v) & stopped, worst, v) for v in (best, final))
        with np.errstate(invalid="ignore"):
            falls = (best - final) * (-1 if cost else 1)
            spreads = np.abs(best - np.median(best)) if len(best) > 1 else best * np.nan
        values = {"max": best, "final": final, "fall": falls, "spread": spreads}[of]
    known = zip(rows["trial"], values, strict=True)
    return {
        int(trial): float(np.clip(value, -LARGEST, LARGEST))
        for trial, value in known
        if value == value
    }


def number_of_course(
    run: str, trials: KeptTrials, metric: str, of: Mapping[str, Any], scale: Any
) -> Floats:
    """Return a number of the curve, the records or the machine of each trial; NaN where
    they are not kept.

    ``at``: the value at an update. ``mean``: the mean over all updates between two,
    also where windows of a recorder make rows dense; linear between rows. ``reach``:
    the first update at which the metric is so high, in nats per row; infinity if it
    never is. ``machine``: a number of the machine at the end. Kept results have a
    column with such a number where they have no curves.
    """
    ((name, value),) = of.items()
    rows = trials.runs[run]
    kept = ":".join(
        [metric, name, *map(str, value if isinstance(value, list) else [value])]
    )
    if kept in rows and rows[kept].notna().any():
        return rows[kept].to_numpy(float) * (1.0 if name == "reach" else scale)
    if name == "machine":
        return np.array(
            [machine_measure(value, trials, row) for row in rows.to_dict("records")]
        )
    curves = trials.curves(run, metric)
    curves = trials.curves(run, metric, "records") if curves.empty else curves
    found = []
    for trial in rows["trial"]:
        curve = curves[trial].dropna() if trial in curves else pd.Series(dtype=float)
        if curve.empty:
            found.append(math.nan)
        elif name == "reach":
            reached = curve.index[curve >= value]
            found.append(float(reached[0]) if len(reached) else math.inf)
        elif name == "at":
            later = curve[curve.index >= value]
            found.append(float(later.iloc[0]) if len(later) else math.nan)
        else:
            between = curve[(curve.index >= value[0]) & (curve.index <= value[1])]
            updates = (
                np.arange(between.index[0], between.index[-1] + 1)
                if len(between)
                else []
            )
            known = len(between) > 0
            found.append(
                float(np.interp(updates, between.index, between).mean())
                if known
                else math.nan
            )
    return np.array(found) * (1.0 if name == "reach" else scale)


def machine_measure(name: str, trials: KeptTrials, row: Mapping[str, Any]) -> float:
    """Return a number of the machine of a trial; NaN where the machine or its data
    cannot be read.

    ``filter correlation`` is the mean absolute correlation of two filters of the last
    hidden layer (Fig. 15); ``activity spread`` the standard deviation over its units of
    their mean activity (Fig. 16).
    """
    try:
        machine = cbm.load(f"{trials.folder / row['run_id']}:{row['trial']}")
        layer = len(machine.sizes) - 1
        with np.errstate(
            invalid="ignore", divide="ignore"
        ):  # filters of zeros have no correlation
            if name == "filter correlation":
                rows = machine.filters(layer).astype(float)
                return float(
                    np.abs(np.corrcoef(rows)[np.triu_indices(len(rows), 1)]).mean()
                )
            return float(
                machine.transform(cbm.data(row["data"])["train"][:1000], layer)
                .mean(axis=0)
                .std()
            )
    except CbmError:
        return math.nan


def tested(
    number: int,
    names: tuple[str, str],
    a: Mapping[int, float],
    b: Mapping[int, float],
    statement: Mapping[str, Any],
) -> Evidence:
    """Test whether the values of two runs are related as stated."""
    b = {trial: statement.get("factor", 1) * value for trial, value in b.items()}
    test = signed_rank(a, b)
    pairs = [(a[trial], b[trial]) for trial in sorted(a.keys() & b.keys())]
    value, other = np.mean(
        [pair for pair in pairs if max(map(abs, pair)) < LARGEST] or pairs[:1], axis=0
    )
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
    return Evidence(
        number, *names, float(value), float(other), test.n_pairs, outcome, bool(agree)
    )


def count_findings(judged: Sequence[Judged]) -> str:
    """Return how many findings have each verdict."""
    verdicts = Counter(one.verdict for one in judged)
    parts = ", ".join(f"{verdicts[name]} {name}" for name in VERDICTS)
    return f"{len(judged)} findings of prose and figures: {parts}."


def finding_table(judged: Sequence[Judged]) -> str:
    """Return the findings with verdicts and counts as a Markdown table."""
    return markdown(
        ["finding", "paper", "verdict", "as stated", "by means", "trials"],
        [one.row() for one in judged],
    )


NOTE = (
    "- **as stated**: comparisons that are significantly as the paper states "
    f"(signed-rank test, α = {ALPHA:g}, {FEWEST_PAIRS} trials or more). **by means**: "
    "comparisons with means as the paper states, significantly or not.\n"
    "- **reproduced**: all comparisons are significantly as stated, or the number that "
    "the statement needs: if it says *most*, some may differ.\n"
    "- **contradicted**: more are significantly opposite than the statement allows.\n"
    "- **undecided**: neither, or too few trials or comparisons were run."
)


def main() -> None:
    judged = check_findings(KeptTrials(*sys.argv[1:2]))
    print("\n".join([finding_table(judged), "", count_findings(judged), NOTE]))
    for one in judged:
        if one.evidence:
            print(f"{one.finding['name']}: {one.numbers()}.")


if __name__ == "__main__":
    main()
