"""Critical differences: mean ranks of methods over data sets."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from cbm_cli.errors import CbmError
from cbm_cli.report.chosen import Chosen, Options, choose, notes_of, shown_cells
from cbm_cli.report.curves import said_of
from cbm_cli.report.panels import Panel
from cbm_cli.report.style import Look, in_words, looks_of, names_of, title_of
from cbm_cli.results import Results
from cbm_cli.results.cells import Cell
from cbm_cli.results.inventory import CellSettings
from cbm_cli.results.selection import Key, key_of
from cbm_cli.statistics.wilcoxon import signed_rank
from cbm_cli.text import count

ALPHA = 0.05


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


def ranks_panels(results: Results | None, experiments: Sequence[str], options: Options) -> list[Panel]:
    """Draw mean ranks of methods over data sets; bars join those without a significant difference.

    As Demsar demands, there are bars only where the Friedman test finds any difference.
    """
    chosen = choose(results, experiments, options)
    cells = shown_cells(chosen, options)
    measure = cells[0].measure
    if not measure.metric.better:
        raise CbmError(
            f"--metric {measure.metric.column}: neither more nor less of it is better; "
            "methods cannot be ranked",
            "unsuited",
        )
    others = [c for c in chosen.panels if not c.startswith("data") or c == "data_phase"]
    said = f"Mean ranks (1 is best) by the {said_of(measure)} of {in_words(measure.metric.column)}"
    panels = []
    for key in dict.fromkeys(key_of(cell.settings, others) for cell in cells):
        its = [cell for cell in cells if key_of(cell.settings, others) == key]
        methods, table = _scores(its, chosen)
        ranks = ranks_of(table.to_numpy(), methods)
        names = [names_of(chosen.lines, line) for line in methods]
        title = title_of(options.title, others, key)
        flips = len(table) < len({key_of(cell.settings, chosen.panels) for cell in its})
        both = " (a set and its flip count as one, by their mean)" * flips
        notes = [said, f"{ranks.blocks} data sets{both}, {ranks.test}"]
        bars = f"Bars: differences below the Nemenyi critical difference at {ALPHA:g}"
        notes += [*[bars] * ranks.barred, *notes_of(its, "Doubtful estimates among them"), *chosen.notes]
        draw = partial(_draw, ranks, names, looks_of(methods, chosen.lines))
        panels.append(Panel(draw, key, title, notes=notes, aspect=0.5))
    return panels


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
            "it ranks two or more methods (lines; see --panels) over two or more data sets",
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


def _draw(ranks: Ranks, names: Sequence[str], looks: Mapping[Key, Look], axes: Axes) -> None:
    k, bars = len(names), groups_of(ranks)
    half = -(-k // 2)
    base = 0.6 + 0.45 * len(bars)
    small: Any = {"fontsize": "small"}
    for place, method in enumerate(np.argsort(ranks.mean, kind="stable")):
        left, rank = place < half, ranks.mean[method]
        depth = base + 0.7 * (place if left else k - 1 - place) + 0.4
        edge, side = (0.7, -0.1) if left else (k + 0.3, 0.1)
        look = looks[ranks.methods[method]]
        axes.plot([rank, rank, edge], [0, depth, depth], color=look["color"], linewidth=0.8)
        axes.plot(edge, depth, **look, clip_on=False, zorder=3)  # where no tie hides it
        where: Any = {"ha": "right" if left else "left", "va": "center"}
        axes.text(edge + side, depth, f"{names[method]}  {rank:.2f}", **where, **small)
    for i, (first, last) in enumerate(bars):
        y = 0.5 + 0.45 * i
        axes.plot([first - 0.04, last + 0.04], [y, y], color="black", linewidth=2.5, solid_capstyle="butt")
    if ranks.barred:  # the critical difference above the ranks, as long as it is on their axis
        width = min(ranks.critical, k - 1)
        axes.plot([1, 1 + width], [-1.1, -1.1], color="black", linewidth=0.8, marker="|")
        text = f"critical difference {ranks.critical:.2f}"
        axes.text(1 + width / 2, -1.25, text, ha="center", va="bottom", **small)
    axes.hlines(0, 1, k, color="black", linewidth=0.8)
    for rank in range(1, k + 1):
        axes.vlines(rank, -0.12, 0, color="black", linewidth=0.8)
        axes.text(rank, -0.2, f"{rank}", ha="center", va="bottom", **small)
    axes.set_xlim(0.2 - 0.25 * k, k + 0.8 + 0.25 * k)
    axes.set_ylim(base + 0.7 * half + 0.3, -2.0 if ranks.barred else -0.9)
    axes.axis("off")
