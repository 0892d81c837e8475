"""Which cells commands show, and the best value of a setting: --select and --choose."""

import csv
import io
import json
import shutil

import cbm_cli as cbm_api
import numpy as np
import pandas as pd
import pytest
from cbm_cli.grid.read import read_grid
from cbm_cli.report.kinds import draw
from cbm_cli.report.options import Options
from cbm_cli.results import Results
from cbm_cli.results.cells import Trials, make_cells
from cbm_cli.results.journal import Run
from cbm_cli.results.selection import Choosing, select_cells, with_measure
from cbm_cli.results.writer import locked
from cbm_cli.statistics import build_table
from numpy.testing import assert_array_equal

from tests.builders import cbm, grid_text, holds, problems_of, refusal, run_grid
from tests.journals import change_manifest, made_manifest

BY_RATE = "--choose", "learning_rate"
FIELDS = {
    "offsets": "[00, dd^b_s]",
    "epochs": None,
    "updates": "60",
    "batch": "10",
    "trials": "3",
}
FIELDS |= {"data": "{path: rows.npz}", "evaluate": "{method: exact, every: 20}"}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("sweep"), np.random.default_rng(1)
    rows = (
        rng.random((90, 8))
        < rng.choice([0.1, 0.9], size=(3, 8))[rng.integers(3, size=90)]
    )
    np.savez(folder / "rows.npz", train=rows[:50], valid=rows[50:70], test=rows[70:])
    sweep = grid_text("rbm", learning_rate="[0.01, 0.1, 0.3]", **FIELDS).replace(
        "toy", "sweep"
    )
    slow = grid_text("rbm", learning_rate="0.01", **FIELDS).partition("toy:\n")[2]
    return run_grid(f"{sweep}  slow:\n{slow}", "sweep", "slow", folder=folder)


def records(results, *options):
    return [
        *csv.DictReader(
            io.StringIO(cbm("table", results, *options, "-f", "csv").stdout)
        )
    ]


def test_commands_read_the_same_selected_cells(results):
    rows = records(
        results, "--select", "learning_rate=1e-1,0.3", "--select", "offsets=00"
    )
    every = [row for row in records(results, "sweep") if row["offsets"] == "00"]
    assert [row["mean"] for row in rows] == [
        row["mean"] for row in every[1:]
    ]  # none is of slow
    option = ("--select", "learning_rate=0.01")
    found = json.loads(
        cbm("best", results, "sweep", *option, "--json").stdout.splitlines()[0]
    )
    cbm("evaluate", results, "sweep", *option, "-j", 0)
    frame = pd.read_csv(results / "sweep" / "summary.csv")
    slow = frame["learning_rate"] == 0.01
    assert found["value"] == pytest.approx(
        frame["valid_log_likelihood_max"][slow].max()
    )
    assert frame["test_log_likelihood_exact"].notna().equals(slow)


def test_values_are_distinguished_by_their_whole_text():
    values = [[500, 500], "007", 7, "x, y=2"]
    cells = [{"run_id": n, "hidden": value} for n, value in enumerate(values)]
    places = {"[500, 500]": 0, "007": 1, "7": 2, "7.0": 2, "x, y=2": 3}
    for value, place in places.items():
        (kept,) = select_cells([made_manifest(cells)], [("hidden", value)])
        assert [run.run_id for run in kept.cells] == [place]
    refusal(select_cells, [made_manifest(cells)], [("hidden", "50")])


def test_each_cell_shows_the_value_with_the_best_mean_on_the_part_that_decides(results):
    for options, part, decided, shown in (
        ("", "valid", "max", "best_valid"),
        ("--by valid --statistic final", "valid", "final", "final"),
        ("--by test --statistic max", "test", "max", "max"),
    ):
        frame, cells = (
            pd.read_csv(results / "sweep" / "summary.csv"),
            ["offsets", "learning_rate"],
        )
        means = frame.groupby([*cells, "run_id"]).mean(numeric_only=True)
        columns = [f"{part}_log_likelihood_{decided}", f"test_log_likelihood_{shown}"]
        rows = records(results, "sweep", *BY_RATE, *options.split())
        for row, offsets in zip(rows, ("00", "dd^b_s"), strict=True):
            its = means.loc[offsets]
            best = its[columns[0]].idxmax()
            assert (row["offsets"], float(row["learning_rate"])) == (offsets, best[0])
            found = [float(row[f"{part}_mean"]), float(row["mean"])]
            assert found == pytest.approx([*its.loc[best, columns]])


def test_the_grid_chooses_too_and_options_come_before_it(results, tmp_path):
    choosing = shutil.copytree(results, tmp_path / "choosing")
    change_manifest(
        choosing / "sweep", lambda it: it["table"].update(choose=["learning_rate"])
    )
    assert records(choosing, "sweep") == records(results, "sweep", *BY_RATE)
    assert cbm_api.open_results(choosing).table("sweep")["learning_rate"].size == 2
    assert len(records(choosing, "sweep", "--choose", "none")) == 6
    assert all(row["train_mean"] for row in records(choosing, "sweep", "--by", "train"))
    assert holds(
        refusal(cbm_api.open_results(choosing).table), "several experiments|slow, sweep"
    )
    one = records(
        choosing, "sweep", "--select", "learning_rate=0.1"
    )  # there is nothing to choose
    assert [row["learning_rate"] for row in one] == ["0.1", "0.1"]


def test_a_chosen_setting_is_not_a_axis_of_the_table():
    table = "{choose: [learning_rate], by: train}"
    text = grid_text("rbm", learning_rate="[0.1, 0.2]", table=table)
    (experiment,) = read_grid("grid.yaml", text=text).experiments.values()
    assert experiment.table.choose == ("learning_rate",)
    assert "learning_rate" not in experiment.table.rows
    # --set may leave one value
    assert read_grid("grid.yaml", {"learning_rate": "0.1"}, text=text)


def made_cells(*cells):
    """Cells of a hand-made summary: settings, and for each of three trials its
    validation cost.
    """
    rows = [
        {
            "run_id": str(n),
            "trial": trial,
            "diverged": np.nan if np.isfinite(v) else 9.0,
        }
        | {"valid_cost_min": v, "valid_cost_final": v, "test_cost_final": 10 - v}
        | {
            "test_cost_min": 10 - v,
            "test_cost_best_valid": 10 - v,
            "n_test": 5,
            "norm_final": 1.0,
        }
        for n, (_, values) in enumerate(cells)
        for trial, v in enumerate(values)
    ]
    settings = [
        {"run_id": str(n), "data": "d", **own} for n, (own, _) in enumerate(cells)
    ]
    axes = {"groups": (), "rows": ("rate",), "columns": ("offsets",)}
    manifest = made_manifest(settings, 3, metric="test_cost", **axes)
    return make_cells(Trials(pd.DataFrame(rows), None), manifest)


def of_rate(rate, values, offsets="00"):
    """A cell for made_cells."""
    return {"rate": rate, "offsets": offsets}, values


def chosen(cells, *names, by="valid", metric=None):
    return with_measure(cells, Choosing(names, by, "--"), metric)


def choices(*arguments, **options):
    return [cell.choice for cell in chosen(*arguments, **options)]


def test_of_costs_the_lowest_wins_and_what_diverges_loses():
    low, high, lost = [1.0] * 3, [2.0] * 3, [0.1, 0.1, np.inf]
    equal = of_rate(1, low, "dd"), of_rate(2, low[:2], "dd")  # the first of the grid
    cells = made_cells(of_rate(1, high), of_rate(2, low), of_rate(3, lost), *equal)
    found = [
        (it.values["rate"], it.mean, it.complete, it.at_end)
        for it in choices(cells, "rate")
    ]
    assert found == [
        (2, 1.0, True, False),
        (1, 1.0, False, False),
    ]  # of two each is at an end
    assert next(iter(chosen(cells, "rate"))).mean == 9.0  # its test value
    for cost in (lambda rate: rate, lambda rate: 9 - rate):
        ends = made_cells(*(of_rate(r, [cost(r)] * 3) for r in (3, 1, 2)))
        assert [choice.at_end for choice in choices(ends, "rate")] == [True]
    (choice,) = choices(
        made_cells(of_rate(1, [1.0]), of_rate(2, [0.5, np.inf])), "rate"
    )
    assert choice.values == {"rate": 1}  # one trial, and a finite value
    error = refusal(chosen, cells, "rate", by="train")  # a part that is not there
    assert problems_of(error) == [("--by train", "")]
    assert holds(error, "train_cost|valid_cost|test_cost")
    assert "hold_out" not in str(error)  # which makes a valid part


def test_a_choice_has_rivals_or_none_and_numbers_or_words():
    none, part = [np.inf] * 3, [0.5, np.inf, np.inf]
    words, alone = of_rate("2, 1 from 9 epochs", none), of_rate(1, part, "dd")
    cells = made_cells(
        of_rate(1, none), of_rate(2, part), words, alone
    )  # one value is enough
    for metric in (
        "test_cost",
        "norm",
    ):  # which has no best: the table's metric decides
        found = choices(cells, "rate", metric=metric)
        assert [(choice.values["rate"], choice.at_end) for choice in found] == [
            (2, 0),
            (1, 0),
        ]
    each = [
        {"rate": 1, "data": "x"},
        {"rate": 1, "data": "y"},
        {"rate": 2, "data": "y"},
    ]
    several = made_cells(*((it | {"offsets": "00"}, part) for it in each))
    assert "different data" in str(refusal(chosen, several, "rate", "data"))


def test_a_choice_without_a_mean_to_choose_by_is_named():
    nothing, some = [np.nan] * 3, [0.5, 1.0, 1.5]
    cells = made_cells(of_rate(1, nothing), of_rate(2, nothing), of_rate(1, some, "dd"))
    note = "In 1 cell no value has a mean to choose by; the first one is shown."
    assert note in " ".join(build_table(chosen(cells, "rate")).sheet().notes)
    decided = made_cells(of_rate(1, some), of_rate(2, nothing))
    assert "to choose by" not in " ".join(
        build_table(chosen(decided, "rate")).sheet().notes
    )


def test_words_have_no_end():
    words = made_cells(*(of_rate(word, [word != "b"] * 3) for word in "abc"))
    assert [choice.at_end for choice in choices(words, "rate")] == [False]


def test_settings_that_are_chosen_together_vary_together():
    settings = [
        {"rate": r, "length": n, "offsets": "00"} for r, n in ((1, 100), (2, 50))
    ]
    together = made_cells(*((its, [its["rate"]] * 3) for its in settings))
    assert "length" in str(refusal(chosen, together, "rate"))
    (choice,) = choices(together, "rate", "length")
    assert choice.values == {"rate": 1, "length": 100}


def test_an_experiment_without_the_setting_is_named(results):
    assert problems_of(cbm("table", results, *BY_RATE, code=2)) == [("slow", "")]


def test_letters_show_the_choice_of_a_cell_where_cells_differ():
    values = {("00", 1): 2.0, ("00", 2): 1.0, ("dd", 1): 1.0, ("dd", 2): 2.0}
    cells = made_cells(*(of_rate(r, [v] * 3, o) for (o, r), v in values.items()))
    table = build_table(chosen(cells, "rate"))
    found = [
        (entry.cell.choice.values["rate"], entry.footnote) for entry in table.entries
    ]
    assert found == [(2, "b"), (1, "a")]
    sheet = table.sheet()
    assert "rate a: 1; b: 2." in " ".join(sheet.notes)
    assert " [b]" in sheet.render("text")
    assert r"$^{\mathrm{b}}$" in sheet.render("latex")


def test_pictures_show_the_chosen_cells(results):
    by_rate = Options(choose=["learning_rate"], panels=["learning_rate"])
    error = refusal(draw, Results(results), "curves", ["sweep"], by_rate)
    assert holds(error, "--panels learning_rate|is chosen in each cell|--choose none")
    options = Options(choose=["learning_rate"])
    (panel,) = draw(
        Results(results), "curves", ["sweep"], options
    )  # not one for each rate
    assert any("learning rate" in note for note in panel.notes)
    rates = [row["learning_rate"] for row in records(results, "sweep", *BY_RATE)]
    for name, rate in zip(panel.looks, rates, strict=True):
        assert (f"= {rate})" in name) == (len({*rates}) > 1)


# Values on other rows


@pytest.mark.parametrize("setting", ["evaluate.rows", "evaluate.parts", "data.size"])
@pytest.mark.parametrize("place", ["--", "table."])
def test_settings_that_decide_which_rows_are_measured_cannot_be_chosen(place, setting):
    column = setting.replace(".", "_")
    values = [({column: value, "offsets": "00"}, [1.0] * 3) for value in ("2", "4")]
    choosing = Choosing([column], "valid", place)
    error = refusal(with_measure, made_cells(*values), choosing)
    assert problems_of(error) == [(f"{place}choose {column}", "")]
    assert holds(error, f"{column} decides on which rows|--choose none")


@pytest.mark.parametrize("setting", ["evaluate.rows", "evaluate.parts", "data.bar"])
def test_a_grid_that_chooses_which_rows_are_measured_is_refused(tmp_path, setting):
    fields = {
        "data": "{name: shifting-bar, size: 9, bar: [1, 2], hold_out: 0.3}",
        "evaluate": "{rows: [4, 8], parts: [train, train+valid]}",
        "table": f"{{choose: {setting}, by: train}}",
        "batch": "full",
    }
    (tmp_path / "grid.yaml").write_text(grid_text("rbm", **fields))
    refused = cbm("run", tmp_path / "grid.yaml", "--dry-run", code=2).stderr
    assert holds(refused, f"toy.table.choose: {setting.replace('.', '_')} decides on")


def test_values_on_other_numbers_of_rows_are_not_compared(tmp_path):
    fields = FIELDS | {
        "data": "{name: bars-and-stripes, size: 3}",
        "offsets": "00",
        "evaluate": "{every: 20, rows: [4, 8]}",
    }
    text = grid_text("rbm", learning_rate="[0.01, 0.3]", **fields)
    results = run_grid(text, "toy", folder=tmp_path)
    choice = ["--choose", "evaluate.rows,learning_rate", "--by", "train"]
    refused = cbm("table", results, *choice, code=2).stderr
    assert holds(refused, "evaluate_rows decides on which rows|--choose none")
    machines = [*map(json.loads, cbm("best", results, "--json").stdout.splitlines())]
    assert [machine["data"] for machine in machines] == [
        "bars-and-stripes (evaluate_rows 4)",
        "bars-and-stripes (evaluate_rows 8)",
    ]
    rows = [machine["settings"]["evaluate_rows"] for machine in machines]
    assert rows == ["4", "8"]


# Data sets of one file


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """Results on all rows of a file, and on those that are left when some are held
    out.
    """
    folder = tmp_path_factory.mktemp("held")
    rows = np.random.default_rng(2).random((40, 6)) < 0.5
    np.savetxt(folder / "rows.csv", rows, "%d", ",")
    fields = FIELDS | {
        "data": "[{path: rows.csv}, {path: rows.csv, hold_out: 0.2}]",
        "offsets": "00",
        "learning_rate": "[0.01, 0.1]",
    }
    return run_grid(grid_text("rbm", **fields), "toy", folder=folder)


def test_settings_of_data_that_one_cell_alone_has_make_rows_of_a_table(held):
    found = records(held, "--metric", "train_log_likelihood", "--statistic", "max")
    assert [row["data_hold_out"] for row in found] == ["", "0.2", "", "0.2"]
    assert {row["n"] for row in found} == {"3"}
    option = ("--select", "data_hold_out=0.2")
    assert len(records(held, *option)) == 2
    assert len(records(held, "--rows", "hold_out", "--columns", "learning_rate")) == 4


def test_cells_on_other_rows_do_not_compete(held):
    options = (*BY_RATE, "--by", "train", "--statistic", "max")
    found = records(held, *options)
    assert [row["data_hold_out"] for row in found] == ["", "0.2"]
    frame = pd.read_csv(held / "toy" / "summary.csv")
    value = "train_log_likelihood_max"
    frame["data_hold_out"] = frame["data_hold_out"].fillna("").astype(str)
    means = frame.groupby(["data_hold_out", "learning_rate"])[value].mean()
    for row in found:
        rate = means[row["data_hold_out"]].idxmax()
        assert float(row["learning_rate"]) == rate


def test_each_data_set_of_one_file_has_its_best_machine(held):
    lines = cbm("best", held, "--json").stdout.splitlines()
    machines = [json.loads(line) for line in lines]
    pairs = [(one["settings"]["data_hold_out"], one["part"]) for one in machines]
    assert pairs == [("", "train"), ("0.2", "valid"), ("0.2", "train")]
    frame = pd.read_csv(held / "toy" / "summary.csv")
    on_all = frame[frame["data_hold_out"].isna()]["train_log_likelihood_final"]
    assert machines[0]["value"] == pytest.approx(on_all.max())


def test_data_sets_of_one_title_are_named_apart_in_python(held):
    results = cbm_api.open_results(held)
    error = refusal(results.best)
    assert holds(error, "name one by data=: rows (hold_out none), rows (hold_out 0.2)")
    lines = cbm("best", held, "--json").stdout.splitlines()
    paths = [json.loads(line)["machine"] for line in lines]
    for title, path in (("none", paths[0]), ("0.2", paths[1])):
        machine = results.best(data=f"rows (hold_out {title})")
        assert_array_equal(machine.weights[0], cbm_api.load(path).weights[0])


def test_values_that_exist_are_shown_where_one_data_set_alone_has_a_validation_part(
    held,
):
    found = records(held)
    assert [row["n"] for row in found] == ["3"] * 4
    assert {row["n_planned"] for row in found} == {"3"}
    assert all(row["mean"] for row in found)
    text = cbm("table", held).stdout
    assert "Maximum train log-likelihood during training" in text
    assert "not measured" not in text
    chosen_valid = cbm("table", held, "--statistic", "best-valid").stdout
    assert "–: the value was not measured in any trial of the cell." in chosen_valid
    at_best = records(held, "--statistic", "best-valid")
    assert [row["n"] for row in at_best] == ["0", "3", "0", "3"]
    assert {row["n_planned"] for row in at_best} == {"3"}
    validated = cbm("table", held, "--select", "data_hold_out=0.2").stdout
    assert "at the best validation value" in validated


def test_value_that_some_trials_alone_have_says_in_how_many(held, tmp_path):
    results = shutil.copytree(held, tmp_path / "results")
    store = Results(results).store("toy")
    run_id = store.manifest().cells[0].run_id
    columns = {"train_log_likelihood_exact": -4.0}
    with locked(results) as lock:
        writer = lock.writer("toy")
        for number in (0, 2):
            writer.replace_columns(run_id, number, columns)
        writer.finish()
    text = cbm("table", results, "--metric", "train_log_likelihood_exact").stdout
    assert "[measured in 2 of 3]" in text
    assert "PARTIAL: in 1 cell the value was measured in some trials only" in text
    assert "INCOMPLETE" not in text


def test_rate_with_a_schedule_counts_among_the_lowest_and_highest():
    decaying = "{start: 0.3, decay: 0.9, every: 10 epochs}"
    stepped = "{start: 0.001, steps: 1e-4 from 2 epochs}"
    text = grid_text("rbm", learning_rate=f"[0.01, 0.1, {decaying}, {stepped}]")
    cells = read_grid("grid.yaml", text=text).experiments["toy"].cells
    frame = pd.DataFrame(
        {
            "run_id": ["0", "1", "2", "3"],
            "trial": 0,
            "diverged": np.nan,
            "train_log_likelihood_max": -3.0,
            "train_log_likelihood_final": -4.0,
        }
    )
    for best, is_at_end in enumerate([False, False, True, True]):
        frame.loc[best, "train_log_likelihood_max"] = -0.5
        manifest = made_manifest([], 1)
        runs = [Run(str(place), cell) for place, cell in enumerate(cells)]
        made = make_cells(Trials(frame, None), manifest.with_cells(runs))
        choosing = Choosing(["learning_rate"], "train", "--")
        (cell,) = with_measure(made, choosing, "train_log_likelihood", "max")
        assert cell.choice.at_end == is_at_end
        frame.loc[best, "train_log_likelihood_max"] = -3.0
