"""The scripts in reproduction/: published values next to obtained ones, findings, and
commands of figures.
"""

import math
import shlex
from importlib import import_module
from math import nan, sqrt
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from cbm_cli.cli import main as cbm_main
from cbm_cli.errors import CbmError
from cbm_cli.grid.read import read_grid
from scipy import stats

ROOT = Path(__file__).parents[2]
GRID = read_grid(ROOT / "experiments.yaml").experiments
SCRIPTS = "compare", "figures", "findings", "pages", "printed"
with pytest.MonkeyPatch.context() as there:
    there.syspath_prepend(
        ROOT / "reproduction"
    )  # where Python finds them for the one that it runs
    compare, figures, findings, pages, printed = map(import_module, SCRIPTS)


def trials_of(frame, curves=None):
    """What the scripts read of a results folder with these summaries, and curves by
    trial.
    """
    frame = frame.assign(experiment="e")
    long = pd.DataFrame() if curves is None else curves
    results = SimpleNamespace(summaries=lambda: frame)
    results.curves = results.records = lambda _: long
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare.cbm, "open_results", lambda folder: results)
        return compare.KeptTrials()


TOY = {
    "data": "bars-and-stripes",
    "data_size": 3,
    "model_kind": "rbm",
    "model_hidden": 4,
}
TOY |= {
    "offsets": "aa^b",
    "sampler": "CD-1",
    "learning_rate": 0.1,
    "init": "inverse-sigmoid",
}
TOY |= {
    "updates": 50000,
    "batch": "full",
    "evaluate_every": "50 updates",
    "n_train": 16,
}


def run(maxima, finals=None, **settings):
    """Rows of one run of table 2, whose likelihoods are given as sums over its 16
    rows.
    """
    cell = TOY | settings
    values = {"train_log_likelihood_max": np.array(maxima) / 16, "diverged": nan}
    values["train_log_likelihood_final"] = np.array(finals or maxima) / 16
    return pd.DataFrame({"run_id": "r", "trial": range(len(maxima))} | cell | values)


def cell_of(comparison):
    """The cell of table 2, Bars & Stripes, CD-1, 0.1, aa^b: published -60.85
    (-69.1).
    """
    cells = comparison.cells
    return (
        cells[cells["table"] == "standard-methods-bars-mnist"]
        .set_index("offsets")
        .loc["aa^b"]
    )


def test_difference_in_standard_errors_by_hand():
    frame = run([-61.0, -62.0, -63.0], [-70.0, -72.0, -77.0])
    found = compare.compare(trials_of(frame))
    cell, (own, paper) = cell_of(found), (1 / 3, 1.91**2 / 25)
    assert cell["z"] == pytest.approx((-62 + 60.85) / sqrt(own + paper + 0.01**2 / 12))
    freedom = (own + paper) ** 2 / (own**2 / 2 + paper**2 / 24)  # Welch's
    assert found.chances["z"][0] == pytest.approx(1 - 2 * stats.t.sf(2, freedom))
    spread = np.var([-70, -72, -77], ddof=1) * (1 / 3 + 1 / 25)
    assert cell["final_z"] == pytest.approx((-73 + 69.1) / sqrt(spread + 0.1**2 / 12))
    lost = pd.concat([frame, run([-math.inf]).assign(trial=3, diverged=700.0)])
    again = cell_of(compare.compare(trials_of(lost)))
    assert (again["obtained_n"], again["diverged"], again["z"]) == (4, 1, cell["z"])


def test_a_single_trial_borrows_the_published_spread():
    cell = cell_of(compare.compare(trials_of(run([-62.0]))))
    assert cell["z"] == pytest.approx(
        -1.15 / sqrt(1.91**2 + 1.91**2 / 25 + 0.01**2 / 12)
    )
    assert math.isnan(cell["final_z"])


def test_of_two_runs_the_one_with_more_trials_is_taken_and_counts_once():
    frames = run([-61.0] * 3), run([-61.0] * 5).assign(run_id="new")
    cell = cell_of(
        compare.compare(trials_of(pd.concat(2 * frames)))
    )  # of two experiments
    assert (cell["run_id"], cell["obtained_n"]) == ("new", 5)


def test_of_the_mean_over_trials_the_best_evaluation_after_the_start_counts():
    curves = pd.DataFrame(
        [[-9, -9, -9], [-99, -99, -99], [-88, -93, -95], [-91, -89, -90]]
    )
    assert compare.at_best_mean(curves, np.zeros(3, bool)).tolist() == [-91, -89, -90]


def test_runs_with_other_settings_are_named_and_not_compared():
    with pytest.raises(CbmError, match="updates"):
        compare.compare(trials_of(run([-20.0], updates=500)))


TOYS = (
    "standard-methods-bars standard-methods-shifting initialisation reparameterisation "
)
TOYS += "moving-average"
EIGHT = "eight-sets-16 eight-sets-16-two-sweeps eight-sets-200 eight-sets-200-slow"


@pytest.mark.parametrize(
    ("names", "tables", "count"),
    [
        (
            TOYS,
            ("standard-methods", "init-", "reparameterization", "moving-average"),
            216,
        ),
        (EIGHT, "big-rbm", 192),
        ("dbm-eight-sets", "dbm", 64),
        ("auto-encoder", "auto-encoder", 76),
    ],
)
def test_every_published_value_has_its_cell_in_the_grid(names, tables, count):
    cells = printed.published_cells()
    cells = cells[cells["table"].str.startswith(tables)]
    rows = pd.DataFrame(
        [cell.row() for name in names.split() for cell in GRID[name].cells]
    )
    texts = rows.map(lambda value: "" if value is None else printed.text_of(value))
    found = printed.match(cells, texts)
    assert found[~found["departures"].astype(bool)]["line"].nunique() == count


def test_disproved_estimates_of_the_kept_results_are_no_values():
    cells = compare.compare(compare.KeptTrials()).cells
    assert cells["disproved"].sum() == 4
    estimates = cells[(cells["model"] != "auto-encoder") & ~cells["disproved"]]
    assert (estimates["obtained_mean"] < 0).all()


# Findings


def test_numbers_of_the_course_are_read_from_curves():
    curve = {"update": [0, 1, 2, 10000], "train_x": [0.0, nan, 2.0, 10000.0]}
    curves = pd.DataFrame({"run_id": "r", "trial": 0} | curve)
    trials = trials_of(pd.DataFrame({"run_id": ["r"], "trial": [0]}), curves)
    for of, number in (
        ({"at": 3}, 10000),
        ({"reach": 1.5}, 2),
        ({"reach": 1e6}, math.inf),
        ({"mean": [0, 10000]}, 5000),  # over updates, not over rows
        ({"at": 20000}, nan),
    ):
        found = findings.number_of_course("r", trials, "train_x", of, 1.0)[0]
        assert found == pytest.approx(number, rel=1e-12, nan_ok=True)


def test_every_check_compares_runs_of_the_grid():
    for finding in findings.findings():
        cells = [cell for name in finding["experiments"] for cell in GRID[name].cells]
        rows = pd.DataFrame(
            [cell.row() | {"run_id": f"{n}"} for n, cell in enumerate(cells)]
        )
        pairs = [findings.pairs_of(finding, check, rows) for check in finding["checks"]]
        assert all(pairs), finding["name"]
        assert sum(map(len, pairs)) == finding["comparisons"] >= finding.get("need", 0)


# Figures


def test_every_panel_is_a_plot_command_of_experiments_of_the_grid():
    plot = cbm_main.get_command(None, "plot")
    runs = pd.DataFrame({"experiment": [], "run_id": [], "data": [], "offsets": []})
    panels = [it for figure in figures.figures().values() for it in figure["parts"]]
    for panel in panels:
        words = shlex.split(panel["plot"])
        with plot.make_context("plot", ["results", *words, "-o", "none.png"]):
            assert words[0] == "data" or words[1] in GRID
        assert "trial" in panel or figures.command(panel, runs) == words


def test_a_panel_of_a_single_trial_names_the_trials_of_its_runs():
    cells = {"run_id": ["a", "b", "c"], "offsets": ["00", "dd^b", "aa^b"]}
    runs = pd.DataFrame({"experiment": "divergence"} | cells)
    panel = {
        "trial": 2,
        "plot": "curves divergence --select 'offsets=dd^b,aa^b' --metric lam_0",
    }
    assert figures.command(panel, runs) == ["curves", "b:2", "c:2", "--metric", "lam_0"]


def test_the_pages_are_what_the_script_makes():
    for name, text in pages.pages().items():
        path = pages.PAGES / name
        assert path.read_text("utf-8") == text, (
            f"{name}: run python reproduction/pages.py"
        )
