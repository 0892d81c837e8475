"""What a user gets wrong is told in one message that names the place and the remedy; exit code 2."""

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from cbm_cli.cli import main
from tests.builders import GRID, files


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CBM_DATA_DIR", raising=False)
    return tmp_path


def refused(*arguments, code=2):
    """Run cbm; check that it refuses without a traceback; return what it says."""
    result = CliRunner().invoke(main, [*map(str, arguments)])
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    return result.stderr


def refused_grid(text):
    Path("grid.yaml").write_text(text)
    return refused("run", "grid.yaml", "-j", 0)


@pytest.mark.parametrize(
    ("old", "new", "place", "words"),
    [
        ("learning_rate", "learnin_rate", "grid.yaml:9:5", "learning_rate"),
        ("learning_rate: 0.1", "learning_rate: fast", "grid.yaml:9:20", "fast"),
        ("learning_rate: 0.1", "learning_rate: 0", "grid.yaml:9:20", "greater than 0"),
        ("learning_rate: 0.1", "learning_rate: -0.1", "grid.yaml:9:20", "greater than 0"),
        ("batch: full", "batch: full\n    batch: full", "grid.yaml:12:5", "twice"),
        ("dd^b_s", "dx^b_s", "grid.yaml:7:19", "x"),
        ("dd^b_s", "ddd^b_s", "grid.yaml:7:19", "3 letters"),
        ("dd^b_s", "ddbs", "grid.yaml:7:19", "dd^b_s"),
        ("PT_4", "PT_1", "grid.yaml:8:21", "2 or more temperatures"),
        ("PT_4", "PT4", "grid.yaml:8:21", "PT_10"),
        ("hidden: 3", "hidden: none", "grid.yaml:6:32", "none"),
    ],
)
def test_a_grid_error_names_line_column_and_remedy(old, new, place, words):
    message = refused_grid(GRID.replace(old, new))
    line = next(line for line in message.splitlines() if place in line)
    assert words in line


def test_all_errors_of_a_grid_are_told_at_once():
    text = (
        GRID.replace("learning_rate: 0.1", "learning_rate: -1").replace("dd^b_s", "qq").replace("full", "0")
    )
    message = refused_grid(text)
    assert sum("grid.yaml:" in line for line in message.splitlines()) == 3


def test_an_aliased_bomb_is_refused_in_no_time():
    levels = "\n".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]" for i in range(1, 30))
    message = refused_grid(f"x0: &x0 [1, 1]\n{levels}\nexperiments: *x29\n")
    assert "grid.yaml" in message


@pytest.mark.parametrize(
    "text", ["", "- 1\n- 2\n", "experiments: {", "a: 1\n---\nb: 2\n", "experiments: !!python/object:os {}"]
)
def test_what_is_no_grid_is_refused(text):
    assert "grid.yaml" in refused_grid(text)


def test_a_grid_that_is_not_there_is_named():
    assert "nothing.yaml" in refused("run", "nothing.yaml")


def test_an_unknown_experiment_gets_a_suggestion():
    Path("grid.yaml").write_text(GRID)
    assert "bars" in refused("run", "grid.yaml", "bras")


def test_a_batch_larger_than_the_data_names_both():
    message = refused_grid(GRID.replace("batch: full", "batch: 9"))
    assert "9" in message
    assert "8" in message


def test_more_than_a_hundred_thousand_trials_need_yes():
    Path("grid.yaml").write_text(GRID)
    assert "--yes" in refused("run", "grid.yaml", "--trials", 25_001)


def test_a_machine_too_large_for_the_exact_likelihood_is_refused_with_the_time_it_would_take():
    text = GRID.replace("name: bars-and-stripes, size: 2", "name: shifting-bar, size: 40, bar: 2")
    message = refused_grid(text.replace("hidden: 3", "hidden: 40"))
    assert "2^40" in message
    assert "hours" in message
    assert "AIS" in message


LARGE = GRID.replace("name: bars-and-stripes, size: 2", "name: shifting-bar, size: 20, bar: 2")
LARGE = LARGE.replace("hidden: 3", "hidden: 17").replace("method: exact", "method: none")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            "gradient: natural",
            "gradient: the exact Fisher matrix sums 2^37 states of 20x17 units; the limit is 2^16: write",
        ),
        ("gradient: natural", "estimate: samples"),
        ("gradient: {kind: natural, fisher: marginal, damping: 0.1}", "2^37 states"),
        (
            "offsets_from: exact",
            "offsets_from: exact sums 2^17 states of 20x17 units; the limit is 2^16",
        ),
        (
            "gradient_from: exact",
            "gradient_from: exact sums 2^17 states of 20x17 units; the limit is 2^16",
        ),
        ("record: offset_eror", "there is no recorder offset_eror; did you mean offset_error"),
        ("record: {what: offset_values, units: 17}", "there is no hidden unit 17; they are 0 to 16"),
        (
            "record: gradient_angles",
            "record: gradient_angles: the exact Fisher matrix sums 2^37 states of 20x17",
        ),
        ("record: free_energy_gap", "free_energy_gap needs a validation part"),
    ],
)
def test_what_a_large_machine_cannot_have_is_refused_with_the_way_out(fields, words):
    message = refused_grid(LARGE.replace("batch: full", f"batch: full\n    {fields}"))
    assert words in message
    assert not Path("results").exists()


@pytest.mark.parametrize(
    "gradient",
    [
        "{kind: natural, estimate: samples}",
        "{kind: natural, estimate: samples, fisher: marginal}",
        "{kind: natural, fisher: diagonal}",
    ],
)
def test_the_way_out_for_large_machines_is_one(gradient):
    Path("grid.yaml").write_text(LARGE.replace("batch: full", f"batch: full\n    gradient: {gradient}"))
    result = CliRunner().invoke(main, ["run", "grid.yaml", "-j", "0", "--no-table", "--set", "updates=3"])
    assert result.exit_code == 0, result.output


def test_a_singular_fisher_matrix_is_refused_by_name_with_the_reason():
    natural = "gradient: {kind: natural, fisher: marginal}"
    message = refused_grid(GRID.replace("batch: full", f"batch: full\n    {natural}"))
    assert "its rank is at most 2^4 - 1 = 15, with 19 parameters" in message
    assert "give damping, such as 0.01, or take the joint one" in message
    assert len(message.splitlines()) == 1  # of all four cells


@pytest.mark.parametrize("exact", ["exact", "CD-1\n    gradient_from: exact"])
def test_a_fisher_matrix_of_samples_needs_samples(exact):
    natural = "gradient: {kind: natural, estimate: samples}"
    text = GRID.replace("[CD-1, PT_4]", exact).replace("batch: full", f"batch: full\n    {natural}")
    assert "an exact phase has none; write estimate: exact" in refused_grid(text)


def test_set_needs_a_field_and_a_value():
    Path("grid.yaml").write_text(GRID)
    assert "FIELD=VALUE" in refused("run", "grid.yaml", "--set", "learning_rate")
    assert "learning_rate" in refused("run", "grid.yaml", "--set", "learningrate=1")


MNIST = GRID.replace("{name: bars-and-stripes, size: 2}", "mnist").replace("batch: full", "batch: 10")
IMAGES = "train-images-idx3-ubyte"


def idx(count, magic=0x803):
    return struct.pack(">4I", magic, count, 28, 28) + bytes(count * 28 * 28)


def test_missing_data_says_what_to_put_where(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path("cache").absolute()))
    message = refused_grid(MNIST)
    assert IMAGES in message
    assert "CBM_DATA_DIR" in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (idx(30)[:-5], "truncated"),
        (gzip.compress(idx(30))[:-40], "damaged gzip"),
        (idx(30, magic=0x801), "too long"),
        (b"\x89PNG" + bytes(100), "neither text"),
        (b"", "empty"),
    ],
)
def test_a_broken_data_file_is_named(monkeypatch, content, words):
    monkeypatch.setenv("CBM_DATA_DIR", str(Path("data").absolute()))
    Path("data").mkdir()
    Path("data", IMAGES).write_bytes(content)
    Path("data", "t10k-images-idx3-ubyte").write_bytes(idx(30))
    message = refused_grid(MNIST)
    assert words in message
    assert IMAGES in message


def test_results_that_are_a_file_are_refused():
    Path("grid.yaml").write_text(GRID)
    Path("out").write_text("mine")
    assert "out" in refused("run", "grid.yaml", "-o", "out", "-j", 0)
    assert Path("out").read_text() == "mine"
    assert "is a file" in refused("table", "out")


@pytest.mark.skipif(os.name != "posix", reason="needs a folder that nobody can write")
def test_results_that_cannot_be_written_are_refused():
    Path("grid.yaml").write_text(GRID)
    out = "/proc/results" if os.geteuid() == 0 else "out"
    if out == "out":
        Path(out).mkdir(mode=0o500)
    message = refused("run", "grid.yaml", "-o", out, "-j", 0)
    assert "cannot write" in message
    assert "-o" in message


def test_a_folder_without_results_says_how_to_make_some():
    assert "cbm run" in refused("table", "nowhere")
    Path("empty").mkdir()
    assert "cbm run" in refused("table", "empty", code=3)
    assert "cbm run" in refused("compare", "empty", code=3)


def test_a_table_of_an_unknown_column_gets_a_suggestion():
    Path("grid.yaml").write_text(GRID)
    assert CliRunner().invoke(main, ["run", "grid.yaml", "-o", "out", "-j", "0"]).exit_code == 0
    before = files("out", ".csv", ".json")
    assert "sampler" in refused("table", "out", "--rows", "samplr")
    assert "learning_rate" in refused("plot", "out", "curves", "-o", "x.png", "--select", "learningrate=1")
    assert ".png" in refused("plot", "out", "curves", "-o", "x.doc")
    assert files("out", ".csv", ".json") == before


def save(**changes):
    arrays = {"weights_0": np.zeros((4, 2)), "biases_0": np.zeros(4), "biases_1": np.zeros(2)} | changes
    np.savez("m.npz", **{name: array for name, array in arrays.items() if array is not None})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"biases_1": None}, "lacks biases_1"),
        ({"biases_0": np.zeros(3)}, "do not fit"),
        ({"offsets_1": np.zeros(3)}, "offsets_1"),
        ({"weights_0": np.full((4, 2), np.nan)}, "NaN"),
        ({"biases_0": np.array(["a"] * 4)}, "not numbers"),
        ({"biases_0": np.array([None] * 4)}, "not a machine file"),
        ({"kind": np.array("gmm")}, "gmm"),
        ({"kind": np.array("auto-encoder")}, "an auto encoder has no normalised likelihood"),
    ],
)
def test_a_foreign_machine_file_is_refused(changes, words):
    save(**changes)
    np.save("rows.npy", np.zeros((3, 4), np.uint8))
    message = refused("evaluate", "m.npz", "--exact", "--data", "rows.npy")
    assert "m.npz" in message
    assert words in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"0,1,0,1\n0,1,2,1\n", "row 2, column 3"),
        (b"0,1,0\n1,1,1\n", "3 columns"),
        (b"hello", "neither"),
        (b"\x1f\x8bgarbage", "cannot be read"),
    ],
)
def test_rows_that_do_not_fit_are_refused(content, words):
    save()
    Path("rows.csv").write_bytes(content)
    assert words in refused("evaluate", "m.npz", "--exact", "--data", "rows.csv")


def test_unknown_data_and_machines_are_named():
    save()
    assert "bars-and-stripes" in refused("evaluate", "m.npz", "--data", "bars")
    assert "none.npz" in refused("evaluate", "none.npz", "--data", "bars-and-stripes:size=2")


def test_a_scheduler_that_does_not_answer_is_named():
    Path("grid.yaml").write_text(GRID)
    assert "no Dask scheduler" in refused("run", "grid.yaml", "--scheduler", "tcp://127.0.0.1:1")
