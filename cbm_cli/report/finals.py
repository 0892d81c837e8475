"""Pictures of one value of each trial: finals, and critical differences between methods."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from cbm_cli.errors import CbmError
from cbm_cli.report.chosen import Chosen, Options, choose
from cbm_cli.report.panels import Drawing, Panel
from cbm_cli.report.style import Look, in_words, looks_of, named, names_of, plain_axes
from cbm_cli.results import Results
from cbm_cli.results.cells import Cell, Floats, Measure, Trials, finite, measure_of
from cbm_cli.results.inventory import CellSettings
from cbm_cli.results.selection import Key, key_of
from cbm_cli.statistics.wilcoxon import signed_rank
from cbm_cli.text import count

ALPHA = 0.05


def measured_cells(chosen: Chosen, options: Options) -> list[Cell]:
    """Return the cells in a metric and statistic, by default the table's; with the errors of `measure_of`."""
    if len(options.metric) > 1:
        raise CbmError(f"--metric: given {len(options.metric)} times; this picture shows one", "conflict")
    trials = Trials(chosen.rows(), chosen.cells[0].trials.source)
    measure = measure_of(trials, chosen.table, next(iter(options.metric), None), options.statistic)
    return [cell.measured(measure) for cell in chosen.cells]


# Finals


def finals_drawing(results: Results, experiments: Sequence[str], options: Options) -> Drawing:
    """Draw the value that the table shows and the final value of every trial, with median and quartiles."""
    chosen = choose(results, experiments, options)
    cells = measured_cells(chosen, options)
    measure = cells[0].measure
    looks = looks_of(list(dict.fromkeys(key_of(cell.settings, chosen.lines) for cell in cells)), chosen.lines)
    unit = measure.metric.unit(measure.scale)
    axis = in_words(measure.metric.column) + f" ({unit})" * bool(unit)
    panels = []
    for key in dict.fromkeys(key_of(cell.settings, chosen.panels) for cell in cells):
        its = [cell for cell in cells if key_of(cell.settings, chosen.panels) == key]
        lines = [key_of(cell.settings, chosen.lines) for cell in its]
        names = [names_of(chosen.lines, line) for line in lines]
        title = (options.title,) if options.title else tuple(map(named, chosen.panels, key))
        draw = partial(_draw_finals, its, names, [looks[line] for line in lines], options)
        panels.append(Panel(draw, key, title, "", axis))
    lost = sum(int((~np.isfinite(cell.final)).sum()) for cell in cells)
    notes = ["final value of each trial"]
    if measure.statistic != "final":
        notes = [f"left, hollow: {said_of(measure)} of each trial; right, filled: final value"]
    notes += ["bars: median and quartiles", *([f"{count(lost, 'diverged trial')} left out"] if lost else [])]
    return Drawing(panels, {}, [*notes, *chosen.notes])


def said_of(measure: Measure) -> str:
    """Return the statistic of a trial in words."""
    best = "minimum" if measure.metric.better < 0 else "maximum"
    at = {"best-valid": "value at the best validation value", "max-of-mean": "value where the mean is best"}
    return {"max": best, "final": "final value", **at}[measure.statistic]


def _draw_finals(
    cells: Sequence[Cell], names: Sequence[str], looks: Sequence[Look], options: Options, axes: Axes
) -> None:
    for place, (cell, look) in enumerate(zip(cells, looks, strict=True)):
        if cell.measure.statistic == "final":
            _draw_trials(axes, cell.final, place, look, look["color"])
        else:
            _draw_trials(axes, cell.value, place - 0.19, look, "white")
            _draw_trials(axes, cell.final, place + 0.19, look, look["color"])
    turned = sum(map(len, names)) > 60
    axes.set_xticks(
        range(len(names)), names, rotation=45 if turned else 0, ha="right" if turned else "center"
    )
    axes.set_xlim(-0.6, len(names) - 0.4)
    if options.ylim:
        axes.set_ylim(*options.ylim)
    plain_axes(axes)


def _draw_trials(axes: Axes, values: Floats, place: float, look: Look, face: str) -> None:
    """Draw the finite values of trials around a place, and bars for median and quartiles."""
    trials = finite(values)
    if not trials.size:
        return
    spread = place + 0.1 * np.linspace(-1, 1, trials.size) * (trials.size > 1)
    style = {"s": 14, "marker": look["marker"], "linewidths": 0.7, "alpha": 0.8}
    axes.scatter(spread, trials, facecolor=face, edgecolor=look["color"], **style)
    first, median, third = np.quantile(trials, [0.25, 0.5, 0.75])
    axes.plot([place] * 2, [first, third], color="black", linewidth=1.0, zorder=3)
    axes.plot([place - 0.12, place + 0.12], [median] * 2, color="black", zorder=3)


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


def critical_drawing(results: Results, experiments: Sequence[str], options: Options) -> Drawing:
    """Draw mean ranks of methods over data sets; bars join those without a significant difference.

    As Demsar demands, there are bars only where the Friedman test finds any difference.
    """
    chosen = choose(results, experiments, options)
    cells = measured_cells(chosen, options)
    measure = cells[0].measure
    if not measure.metric.better:
        raise CbmError(
            f"--metric {measure.metric.column}: neither more nor less of it is better; "
            "methods cannot be ranked",
            "unsuited",
        )
    others = [c for c in chosen.panels if not c.startswith("data") or c == "data_phase"]
    panels, notes, barred = [], [], False
    for key in dict.fromkeys(key_of(cell.settings, others) for cell in cells):
        its = [cell for cell in cells if key_of(cell.settings, others) == key]
        methods, table = _scores(its, chosen)
        ranks = ranks_of(table.to_numpy(), methods)
        names = [names_of(chosen.lines, line) for line in methods]
        title = (options.title,) if options.title else tuple(map(named, others, key))
        panels.append(Panel(partial(_draw_ranks, ranks, names, looks_of(methods, chosen.lines)), key, title))
        flips = len(table) < len({key_of(cell.settings, chosen.panels) for cell in its})
        both = " (a set and its flip count as one, by their mean)" * flips
        where = f"{names_of(others, key)}: ".removeprefix(": ")
        notes.append(f"{where}{ranks.blocks} data sets{both}, {ranks.test}")
        barred |= ranks.barred
    said = f"mean rank (1 is best) by the {said_of(measure)} of {in_words(measure.metric.column)}"
    bars = [f"bars: differences below the Nemenyi critical difference at {ALPHA:g}"] * barred
    return Drawing(panels, {}, [said, *notes, *bars, *chosen.notes])


def _scores(cells: Sequence[Cell], chosen: Chosen) -> tuple[list[Key], pd.DataFrame]:
    """Return methods, and their means (data sets, methods) where more is better.

    A set and its flip are one: their mean, if none of the two is missing.
    """
    sets = _sets(chosen.settings)
    own = [c for c in chosen.panels if c.startswith("data_") and c not in ("data_phase", "data_flip")]
    frame = pd.DataFrame(
        {
            "line": key_of(cell.settings, chosen.lines),
            "data": (*sets[cell.settings["data"]], *key_of(cell.settings, own)),
            "score": cell.measure.metric.better * cell.mean,
        }
        for cell in cells
    )
    methods = list(dict.fromkeys(frame["line"]))
    scores = frame.groupby(["data", "line"], sort=False)["score"].agg(lambda its: its.mean(skipna=False))
    table = scores.unstack().reindex(columns=methods)
    if min(table.shape) < 2:
        raise CbmError(
            f"critical-difference: {count(len(methods), 'method')} on {count(len(table), 'data set')}; "
            "it ranks two or more methods (--columns) over two or more data sets, of several experiments",
            "unsuited",
        )
    return methods, table


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
    k, bars = len(names), groups_of(ranks)
    half = -(-k // 2)
    base = 0.6 + 0.45 * len(bars)
    for place, method in enumerate(np.argsort(ranks.mean, kind="stable")):
        left, rank = place < half, ranks.mean[method]
        depth = base + 0.7 * (place if left else k - 1 - place) + 0.4
        edge, side = (0.7, -0.1) if left else (k + 0.3, 0.1)
        look = looks[ranks.methods[method]]
        axes.plot([rank, rank, edge], [0, depth, depth], color=look["color"], linewidth=1.0)
        axes.plot(edge, depth, **look, markersize=5, clip_on=False, zorder=3)  # where no tie hides it
        place_of_text: Any = {"ha": "right" if left else "left", "va": "center", "fontsize": "small"}
        axes.text(edge + side, depth, f"{names[method]}  {rank:.2f}", **place_of_text)
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
