"""Pictures of one value of each trial: finals, and critical differences between methods."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.report.chosen import Chosen, Options, choose
from cbm_cli.report.panels import Drawing, Panel
from cbm_cli.report.style import Look, in_words, looks_of, named, plain_axes
from cbm_cli.results import Metric, Results, default_metric, measured
from cbm_cli.statistics.layout import CellSettings, Key, key_of
from cbm_cli.statistics.wilcoxon import signed_rank
from cbm_cli.text import count, did_you_mean

ALPHA = 0.05


class CellValues(NamedTuple):
    """The values of the trials of a cell, in the table's scale."""

    line: Key
    panel: Key
    data: str
    best: NDArray[np.float64]  # maximum over training, for costs the minimum
    final: NDArray[np.float64]


def read_values(chosen: Chosen, options: Options) -> tuple[list[CellValues], Metric]:
    """Return the values of a metric, and the metric.

    Raises CbmError for an unknown metric or more than one, IncompleteError if nothing was evaluated.
    """
    if len(options.metric) > 1:
        raise CbmError(f"--metric: given {len(options.metric)} times; this picture shows one", "conflict")
    rows = pd.concat([chosen.trials(cell) for cell in chosen.cells])
    known = measured(rows)
    metric = Metric(next(iter(options.metric), chosen.table["metric"] or default_metric(rows) or ""))
    if metric.column not in known:
        hint = did_you_mean(metric.column, known) if known else "; nothing was evaluated or recorded"
        said = f"--metric {metric.column or '(default)'}: not in the results{hint}"
        raise CbmError(said, "unknown") if options.metric else IncompleteError(said)
    found = []
    for cell in chosen.cells:
        its = chosen.trials(cell)
        scale = (
            float(its[f"n_{metric.part}"].iloc[0])
            if chosen.table["scale"] == "total" and metric.better
            else 1.0
        )
        ends = ("_min" if metric.better < 0 else "_max", "_final")
        best, final = (
            its.get(f"{metric.column}{end}", its.get(f"{metric.column}_final", its.get(metric.column)))
            for end in ends
        )
        values = (np.asarray(column, dtype=float) * scale for column in (best, final))
        found.append(
            CellValues(key_of(cell, chosen.lines), key_of(cell, chosen.panels), cell["data"], *values)
        )
    return found, metric


def _axis(chosen: Chosen, metric: Metric) -> str:
    unit = metric.unit(chosen.table["scale"])
    return in_words(metric.column) + f" ({unit})" * bool(unit)


# Finals


def finals_drawing(results: Results, experiments: Sequence[str], options: Options) -> Drawing:
    """Draw the best and the final value of every trial, with median and quartiles of each method."""
    chosen = choose(results, experiments, options)
    values, metric = read_values(chosen, options)
    looks = looks_of(list(dict.fromkeys(value.line for value in values)), chosen.lines)
    panels = []
    for key in dict.fromkeys(value.panel for value in values):
        its = [value for value in values if value.panel == key]
        names = [", ".join(filter(None, map(named, chosen.lines, value.line))) for value in its]
        title = (options.title,) if options.title else tuple(map(named, chosen.panels, key))
        draw = partial(_draw_finals, its, names, looks, options)
        panels.append(Panel(draw, key, title, "", _axis(chosen, metric)))
    lost = sum(int((~np.isfinite(value.final)).sum()) for value in values)
    word = "minimum" if metric.better < 0 else "maximum"
    notes = [f"left, hollow: {word} of each trial; right, filled: final value", "bars: median and quartiles"]
    return Drawing(panels, {}, [*notes, *([f"{count(lost, 'diverged trial')} left out"] if lost else [])])


def _draw_finals(
    values: Sequence[CellValues],
    names: Sequence[str],
    looks: Mapping[Key, Look],
    options: Options,
    axes: Axes,
) -> None:
    for place, value in enumerate(values):
        look = looks[value.line]
        for side, trials in ((-0.19, value.best), (0.19, value.final)):
            trials = trials[np.isfinite(trials)]
            if not trials.size:
                continue
            face = look["color"] if side > 0 else "white"
            spread = place + side + 0.1 * np.linspace(-1, 1, trials.size) * (trials.size > 1)
            style = {"s": 14, "marker": look["marker"], "linewidths": 0.7, "alpha": 0.8}
            axes.scatter(spread, trials, facecolor=face, edgecolor=look["color"], **style)
            first, median, third = np.quantile(trials, [0.25, 0.5, 0.75])
            axes.plot([place + side] * 2, [first, third], color="black", linewidth=1.0, zorder=3)
            axes.plot([place + side - 0.12, place + side + 0.12], [median] * 2, color="black", zorder=3)
    turned = sum(map(len, names)) > 60
    axes.set_xticks(
        range(len(names)), names, rotation=45 if turned else 0, ha="right" if turned else "center"
    )
    axes.set_xlim(-0.6, len(names) - 0.4)
    if options.ylim:
        axes.set_ylim(*options.ylim)
    plain_axes(axes)


# Critical differences


class Ranks(NamedTuple):
    """Mean ranks of methods over data sets."""

    methods: list[Key]
    mean: NDArray[np.float64]  # 1 is the best
    blocks: int  # data sets
    p: float  # of the Friedman test; of two methods: of the signed-rank test
    critical: float  # difference of mean ranks that the Nemenyi test finds significant

    @property
    def barred(self) -> bool:
        """Whether differences of single methods may be tested: only where the test of all finds one."""
        return len(self.mean) > 2 and self.p < ALPHA

    @property
    def test(self) -> str:
        """The test of all methods, with what follows from it."""
        name = "Friedman" if len(self.mean) > 2 else "signed-rank test"
        if self.p >= ALPHA:
            return f"{name} p = {self.p:.2g}: no significant difference, so no bars"
        return f"{name} p = {self.p:.2g}"


def ranks_of(scores: NDArray[np.float64], methods: Sequence[Key]) -> Ranks:
    """Rank methods by scores (data sets, methods), more is better: Demsar 2006, sections 3.2.2 and 3.2.3.

    Ties have their mean rank; a missing score ranks last. The Friedman test corrects for ties; two methods
    are compared by the signed-rank test (section 3.1.3).
    """
    from scipy.stats import friedmanchisquare, rankdata, studentized_range

    scores = np.where(np.isfinite(scores), scores, -np.inf)
    n, k = scores.shape
    ranks = rankdata(-scores, axis=1)
    differ = np.ptp(ranks, axis=1).any()
    p = float(friedmanchisquare(*ranks.T).pvalue) if k > 2 and differ else 1.0
    if k == 2:
        p = signed_rank(*(dict(enumerate(column)) for column in scores.T)).p_value
    critical = studentized_range.ppf(1 - ALPHA, k, np.inf) / math.sqrt(2) * math.sqrt(k * (k + 1) / (6 * n))
    return Ranks([*methods], ranks.mean(axis=0), n, p, float(critical))


def _names(columns: Sequence[str], key: Key) -> str:
    return ", ".join(filter(None, map(named, columns, key)))


def _mean(value: CellValues, options: Options) -> float:
    trials = value.final if options.statistic == "final" else value.best
    finite = trials[np.isfinite(trials)]
    return float(finite.mean()) if finite.size else math.nan


def _statistic(options: Options, metric: Metric) -> str:
    if options.statistic == "final":
        return "final"
    return "minimum of" if metric.better < 0 else "maximum of"


def critical_drawing(results: Results, experiments: Sequence[str], options: Options) -> Drawing:
    """Draw mean ranks of methods over data sets; bars join those without a significant difference.

    As Demsar demands, there are bars only where the Friedman test finds any difference.
    """
    chosen = choose(results, experiments, options)
    values, metric = read_values(chosen, options)
    if not metric.better:
        raise CbmError(
            f"--metric {metric.column}: neither more nor less of it is better; methods cannot be ranked",
            "unsuited",
        )
    of_data = {column for column in chosen.panels if column.startswith("data")} - {"data_phase"}
    others = [column for column in chosen.panels if column not in of_data]
    place = [chosen.panels.index(column) for column in others]
    own = [chosen.panels.index(column) for column in of_data - {"data", "data_flip"}]
    panels, notes, barred, sets = [], [], False, _sets(chosen.cells)
    for key in dict.fromkeys(tuple(value.panel[i] for i in place) for value in values):
        its = [value for value in values if tuple(value.panel[i] for i in place) == key]
        scores = [(value.line, metric.better * _mean(value, options)) for value in its]
        frame = pd.DataFrame(scores, columns=["line", "score"])
        frame["data"] = [(*sets[value.data], *(value.panel[i] for i in own)) for value in its]
        methods = list(dict.fromkeys(frame["line"]))
        # A set and its flip are one: what is left of the mean of both without a missing score
        scores = frame.groupby(["data", "line"], sort=False)["score"].agg(lambda its: its.mean(skipna=False))
        table = scores.unstack().reindex(columns=methods)
        if min(table.shape) < 2:
            raise CbmError(
                f"critical-difference: {count(len(methods), 'method')} on {count(len(table), 'data set')}; "
                "it ranks two or more methods (--columns) over two or more data sets, of several experiments",
                "unsuited",
            )
        ranks = ranks_of(table.to_numpy(), methods)
        names = [_names(chosen.lines, line) for line in methods]
        title = (options.title,) if options.title else tuple(map(named, others, key))
        panels.append(Panel(partial(_draw_ranks, ranks, names, looks_of(methods, chosen.lines)), key, title))
        flips = len(table) < len({value.panel for value in its})
        both = " (a set and its flip count as one, by their mean)" * flips
        where = f"{', '.join(map(named, others, key))}: ".removeprefix(": ")
        notes.append(f"{where}{ranks.blocks} data sets{both}, {ranks.test}")
        barred |= ranks.barred
    said = f"mean rank (1 is best) by the {_statistic(options, metric)} {in_words(metric.column)}"
    bars = [f"bars: differences below the Nemenyi critical difference at {ALPHA:g}"] * barred
    return Drawing(panels, {}, [said, *notes, *bars])


def _sets(cells: Sequence[CellSettings]) -> dict[str, Key]:
    """Return what data sets are, by their title, apart from whether they are flipped."""
    columns = dict.fromkeys(c for cell in cells for c in cell if c.startswith("data_") and c != "data_flip")
    return {cell["data"]: key_of(cell, columns) if columns else (cell["data"],) for cell in cells}


def groups_of(ranks: Ranks) -> list[tuple[float, float]]:
    """Return the longest stretches of mean ranks within the critical difference, as (first, last)."""
    if not ranks.barred:
        return []
    mean = np.sort(ranks.mean)
    ends = [mean[mean <= first + ranks.critical].max() for first in mean]
    stretches = [(a, b) for a, b in zip(mean, ends, strict=True) if b > a]
    return [(a, b) for i, (a, b) in enumerate(stretches) if not any(b <= other for _, other in stretches[:i])]


def _draw_ranks(ranks: Ranks, names: Sequence[str], looks: Mapping[Key, Look], axes: Axes) -> None:
    k, order, bars = len(names), np.argsort(ranks.mean, kind="stable"), groups_of(ranks)
    half = -(-k // 2)
    base = 0.6 + 0.45 * len(bars)
    for place, method in enumerate(order):
        left, rank = place < half, ranks.mean[method]
        depth = base + 0.7 * (place if left else k - 1 - place) + 0.4
        edge = 0.7 if left else k + 0.3
        look = looks[ranks.methods[method]]
        axes.plot([rank, rank, edge], [0, depth, depth], color=look["color"], linewidth=1.0)
        axes.plot(edge, depth, **look, markersize=5, clip_on=False, zorder=3)  # where no tie hides it
        text = f"{names[method]}  {rank:.2f}"
        axes.text(
            edge + (-0.1 if left else 0.1),
            depth,
            text,
            ha="right" if left else "left",
            va="center",
            fontsize="small",
        )
    for i, (first, last) in enumerate(bars):
        y = 0.5 + 0.45 * i
        axes.plot([first - 0.04, last + 0.04], [y, y], color="black", linewidth=2.5, solid_capstyle="butt")
    if ranks.barred:
        _draw_critical_difference(ranks, axes)
    axes.hlines(0, 1, k, color="black", linewidth=1)
    for rank in range(1, k + 1):
        axes.vlines(rank, -0.12, 0, color="black", linewidth=1)
        axes.text(rank, -0.2, f"{rank}", ha="center", va="bottom", fontsize="small")
    axes.set_xlim(0.2 - 0.25 * k, k + 0.8 + 0.25 * k)
    axes.set_ylim(base + 0.7 * half + 0.3, -2.0)
    axes.axis("off")


def _draw_critical_difference(ranks: Ranks, axes: Axes) -> None:
    """Draw the critical difference above the ranks, as long as it is on their axis."""
    width = min(ranks.critical, len(ranks.mean) - 1)
    axes.plot([1, 1 + width], [-1.1, -1.1], color="black", linewidth=1, marker="|", markersize=6)
    text = f"critical difference {ranks.critical:.2f}"
    axes.text(1 + width / 2, -1.25, text, ha="center", va="bottom", fontsize="small")
