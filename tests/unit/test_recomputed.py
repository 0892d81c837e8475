"""Tables and curves of random trials, recomputed from the lines of trials.jsonl
alone.
"""

import json
import shutil
from collections import defaultdict
from math import inf, isfinite, nan
from pathlib import Path

import numpy as np
import pytest
from cbm_cli.grid.settings import Trial
from cbm_cli.results import Outcome, Store

from tests.builders import cbm, run_grid
from tests.enumerated import by_all_intersections, by_all_signs
from tests.journals import change_manifest, writing
from tests.pictures import curves_of, figure_of, legend_of, panels_of

LEGEND = {"00": r"$\mathit{00}$", "d0": r"$\mathit{d0}$", "aa^b": "$aa^{b}$"}
GRID = """
experiments:
  toy:
    data: {name: bars-and-stripes, size: 2, hold_out: 2}
    model: {kind: rbm, hidden: [2, 3]}
    offsets: ["00", d0, aa^b]
    sampler: [CD-1, PCD-1]
    learning_rate: 0.1
    updates: 1
    batch: full
    trials: 1
"""
METRIC = "train_log_likelihood"
COLUMNS = ("update", "epoch", METRIC, "valid_log_likelihood")
N_TRAIN = 5
ALPHA = 0.05


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """Results of all cells."""
    return run_grid(GRID, folder=tmp_path_factory.mktemp("planned"))


# Random results


def random_outcome(rng, level):
    """An outcome with ties, which may have stopped early or diverged."""
    length = rng.integers(2, 7)
    curve = np.empty((length, len(COLUMNS)))
    curve[:, 0] = 5 * np.arange(length)
    curve[:, 1] = curve[:, 0] / 10
    curve[:, 2:] = level - rng.integers(1, 8, size=(length, 2)) / 2
    diverged = None
    if rng.random() < 0.1:
        start = rng.integers(length)
        curve[start:, 2:] = rng.choice([nan, inf, -inf])
        diverged = int(curve[start, 0])
    return Outcome(
        columns=COLUMNS,
        curve=curve,
        machine={"kind": np.array("rbm")},
        diverged=diverged,
        seconds=float(rng.random()),
        rows={"train": N_TRAIN, "valid": 2},
    )


def random_results(planned, folder, seed):
    """Copy results with some of the cells, and fill them with random trials, of which
    some are missing, have failed, or were written twice.
    """
    rng = np.random.default_rng(seed)
    shutil.copytree(planned, folder)
    experiment = folder / "toy"
    (experiment / "trials.jsonl").unlink()
    trials = int(rng.integers(1, 10))
    scale = str(rng.choice(["total", "per-sample"]))
    dropped = {rng.choice(["00", "d0", "aa^b", ""]), rng.choice(["CD-1", ""])}

    def change(manifest):
        manifest["trials"] = trials
        manifest["table"]["scale"] = scale
        manifest["cells"] = [
            cell
            for cell in manifest["cells"]
            if not dropped & {*map(str, cell["settings"].values())}
            and rng.random() < 0.9
        ]

    change_manifest(experiment, change)
    runs = Store(experiment).manifest().cells
    with writing(experiment) as writer:
        for run in runs:
            level = -float(rng.integers(0, 4))
            for number in rng.permutation(trials).tolist():
                fate = rng.random()
                trial = Trial("toy", run.settings, number, 1)
                if fate < 0.2:
                    continue
                if fate < 0.3:
                    writer.write(run.run_id, trial, random_outcome(rng, level))
                if fate < 0.25:
                    writer.write_failure(run.run_id, number, "lost")
                else:
                    writer.write(run.run_id, trial, random_outcome(rng, level))
    return runs


# The same numbers from lines


def trials_in(path):
    """The last line of each finished trial, by run-id and number."""
    lines = {}
    for text in Path(path).read_text().splitlines():
        line = json.loads(text)
        lines[line["run_id"], line["trial"]] = line
    runs = defaultdict(dict)
    for (run_id, number), line in lines.items():
        if line["state"] == "finished":
            runs[run_id][number] = line
    return runs


def column(line, name):
    return [float(value) for value in line["curve"][name]]


def value_of(line, statistic):
    """A trial's value per row, after the untrained machine."""
    values = column(line, METRIC)[1:]
    if statistic == "final":
        return values[-1]
    decisive = values
    if statistic == "best-valid":
        decisive = column(line, "valid_log_likelihood")[1:]
    comparable = [value if isfinite(value) else -inf for value in decisive]
    return values[comparable.index(max(comparable))]


def cell_of(lines, statistic, scale):
    """What a table says of a cell, and its values by trial."""
    factor = N_TRAIN if scale == "total" else 1
    values = {}
    finals = []
    diverged = 0
    for number, line in sorted(lines.items()):
        value = factor * value_of(line, statistic)
        values[number] = value
        finals.append(factor * value_of(line, "final"))
        diverged += line["row"]["diverged"] is not None or not isfinite(value)
    finite = [value for value in values.values() if isfinite(value)]
    record = {"n": len(lines), "diverged": diverged, "mean": nan, "std": nan}
    if finite:
        record["mean"] = np.mean(finite)
    if len(finite) > 1:
        record["std"] = np.std(finite, ddof=1)
    ends = [value for value in finals if isfinite(value)]
    record["final_mean"] = np.mean(ends) if ends else nan
    return record, values


def best_of(row):
    """The place of the best cell: of those without a trial that diverged, if any."""
    ranking = {}
    for place, values in row.items():
        finite = [value for value in values.values() if isfinite(value)]
        if finite:
            ranking[place] = len(finite) == len(values), np.mean(finite)
    return max(ranking, key=ranking.get, default=None)


def difference_of(x, y):
    """The median of the means of any two differences, where all are finite."""
    gains = [a - b for a, b in zip(x, y, strict=True)]
    if not gains or not all(map(isfinite, [*x, *y])):
        return None
    return np.median([(a + b) / 2 for i, a in enumerate(gains) for b in gains[i:]])


def significance_against(best, row):
    """P-value, effect, pairs, smallest p and difference of the best against each other
    cell.
    """
    tests = {}
    for place, values in row.items():
        if place == best or not values:
            continue
        shared = sorted(row[best].keys() & values.keys())
        x, y = [row[best][n] for n in shared], [values[n] for n in shared]
        p_value, effect = by_all_signs(x, y) if shared else (nan, 0)
        decisive = sum(isfinite(a) or isfinite(b) for a, b in zip(x, y, strict=True))
        smallest = min(1.0, 2.0 ** (1 - decisive))
        tests[place] = p_value, effect, len(shared), smallest, difference_of(y, x)
    return tests


def marks_of(row, correction):
    """What is said of each cell of a row beside its numbers."""
    nothing = {"best": False, "bold": False, "underlined": False}
    marks = {place: dict(nothing) for place in row}
    filled = {place: values for place, values in row.items() if values}
    best = best_of(filled)
    if best is None or len(filled) < 2:
        return marks
    tests = significance_against(best, filled)
    ps = {place: test[0] for place, test in tests.items()}
    smallest = {place: test[3] for place, test in tests.items()}
    if correction:
        corrected = by_all_intersections([*ps.values()])
        ps = dict(zip(ps, corrected, strict=True))
        smallest = {place: min(1.0, p * len(ps)) for place, p in smallest.items()}
    claimed = all(p < ALPHA for p in smallest.values())
    for place, (p_value, effect, pairs, _, difference) in tests.items():
        better = smallest[place] < ALPHA and ps[place] < ALPHA and effect < 0
        marks[place]["better_by_test"] = better
        marks[place]["bold"] = claimed and (better or ps[place] >= ALPHA)
        if difference is not None:
            marks[place]["difference"] = difference
        if smallest[place] < ALPHA:
            facts = {"p_value": p_value, "effect_size": effect, "n_pairs": pairs}
            marks[place] |= facts
            if correction:
                marks[place]["p_value_holm"] = ps[place]
    marks[best] = {"best": True, "bold": claimed, "underlined": not claimed}
    return marks


# Comparison


@pytest.mark.parametrize("seed", range(24))
def test_a_table_of_random_trials_is_what_their_lines_say(planned, tmp_path, seed):
    folder = tmp_path / "results"
    runs = random_results(planned, folder, seed)
    trials = trials_in(folder / "toy/trials.jsonl")
    if not any(trials[run.run_id] for run in runs):
        cbm("table", folder, code=1)
        return
    for row in Store(folder / "toy").summary().to_dict("records"):
        final = value_of(trials[row["run_id"]][row["trial"]], "final")
        assert row[f"{METRIC}_final"] == pytest.approx(final, nan_ok=True)
    statistic = ["max", "final", "best-valid"][seed % 3]
    words = ["--statistic", statistic, "-f", "json"]
    correction = seed % 2 == 1
    words += ["--correction", "holm"] * correction
    table = json.loads(cbm("table", folder, *words).stdout)
    cells, rows = {}, defaultdict(dict)
    for run in runs:
        settings = run.settings
        key = settings.offsets, settings.sampler_name, settings.model.hidden
        cells[key], values = cell_of(trials[run.run_id], statistic, table["scale"])
        cells[key]["n_planned"] = Store(folder / "toy").manifest().trials
        rows[key[1:]][key] = values
    for row in rows.values():
        for key, mark in marks_of(row, correction).items():
            cells[key] |= mark
    hidden = {run.settings.model.hidden for run in runs}
    shown = {}
    for record in table["cells"]:
        units = record.get("model_hidden", max(hidden))  # a column if several are there
        shown[record["offsets"], record["sampler"], units] = record
    assert shown.keys() == cells.keys()
    for key, expected in cells.items():
        found = {name: shown[key][name] for name in expected}
        found = {name: nan if it is None else it for name, it in found.items()}
        assert found == pytest.approx(expected, nan_ok=True)


def curve_of(lines, scale):
    """Quartiles by update of a cell's trials; one that stopped keeps its last value,
    and one that diverged ends.
    """
    factor = N_TRAIN if scale == "total" else 1
    updates = {update for line in lines.values() for update in column(line, "update")}
    quartiles = {}
    for update in sorted(updates):
        values = []
        for line in lines.values():
            curve = dict(zip(column(line, "update"), column(line, METRIC), strict=True))
            last = max(curve)
            if update <= last:
                values.append(curve[update])
            elif line["row"]["diverged"] is None:
                values.append(curve[last])
        finite = [factor * value for value in values if isfinite(value)]
        if finite:
            quartiles[update] = np.quantile(finite, [0.25, 0.5, 0.75])
    return quartiles


@pytest.mark.parametrize("seed", range(100, 108))
def test_curves_of_random_trials_are_what_their_lines_say(planned, here, seed):
    folder = here / "results"
    runs = random_results(planned, folder, seed)
    trials = trials_in(folder / "toy/trials.jsonl")
    scale = Store(folder / "toy").manifest().table.scale
    samplers = {run.settings.sampler_name for run in runs}
    hidden = {run.settings.model.hidden for run in runs}
    expected = {}
    for run in runs:
        settings = run.settings
        words = []
        if len(samplers) > 1:
            words.append(settings.sampler_name)
        if len(hidden) > 1:
            words.append(f"hidden units {settings.model.hidden}")
        curve = curve_of(trials[run.run_id], scale)
        if curve:
            expected[", ".join(words), LEGEND[settings.offsets]] = curve
    figure, _ = figure_of("plot", folder, "curves")
    legend = legend_of(figure)
    shown = {}
    for title, axes in panels_of(figure):
        for name, curve in curves_of(axes, legend).items():
            shown[title, name] = curve
    assert shown.keys() == expected.keys()
    for key, quartiles in expected.items():
        line, band = shown[key].line, shown[key].band
        assert line.to_dict() == {
            at: pytest.approx(q[1]) for at, q in quartiles.items()
        }
        if band is not None:
            ends = {at: (low, high) for at, (low, _, high) in quartiles.items()}
            found = dict(zip(band.index, band.to_numpy().tolist(), strict=True))
            assert found == {at: pytest.approx(pair) for at, pair in ends.items()}
