"""What a user gets wrong is told in one message that names the place and the remedy; exit code 2."""

import gzip
import os
import re
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.builders import GRID, cbm, files


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CBM_DATA_DIR", raising=False)
    return tmp_path


def refused(*arguments, code=2):
    return cbm(*arguments, code=code).stderr


def refused_grid(text):
    Path("grid.yaml").write_text(text)
    return refused("run", "grid.yaml", "-j", 0)


# What is wrong with a grid is tested in test_grid, with a machine file in test_machines, with rows in
# test_files; here, that commands say it.


def test_all_errors_of_a_grid_are_told_at_once_with_line_column_and_remedy():
    text = GRID.replace("learning_rate: 0.1", "learning_rate: -1").replace("dd^b_s", "ddbs")
    told = refused_grid(text.replace("PT_4", "PT4").replace("hidden: 3", "hidden: none")).splitlines()
    words = {"6:32": "none", "7:19": "dd^b_s", "8:21": "PT_10", "9:20": "greater than 0"}
    assert len(told) == len(words)
    for line, (place, word) in zip(told, words.items(), strict=True):
        assert f"grid.yaml:{place}: " in line
        assert word in line


def test_what_is_not_there_is_named():
    Path("grid.yaml").write_text(GRID)
    assert "nothing.yaml" in refused("run", "nothing.yaml")
    assert "did you mean bars?" in refused("run", "grid.yaml", "bras")
    assert "FIELD=VALUE" in refused("run", "grid.yaml", "--set", "learning_rate")
    assert "learning_rate" in refused("run", "grid.yaml", "--set", "learningrate=1")
    assert "no Dask scheduler" in refused("run", "grid.yaml", "--scheduler", "tcp://127.0.0.1:1")
    save()
    assert "bars-and-stripes" in refused("evaluate", "m.npz", "--data", "bars")
    assert "none.npz" in refused("evaluate", "none.npz", "--data", "bars-and-stripes:size=2")


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
    assert all(words in message for words in ("2^40", "hours", "AIS"))


LARGE = GRID.replace("name: bars-and-stripes, size: 2", "name: shifting-bar, size: 20, bar: 2")
LARGE = LARGE.replace("hidden: 3", "hidden: 17").replace("method: exact", "method: none")


SAMPLES = "estimate: samples"
STATES = "states of 20x17 units; the limit is 2^16"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("gradient: natural", f"gradient: the exact Fisher matrix sums 2^37 {STATES}: write"),
        ("gradient: natural", SAMPLES),
        ("gradient: {kind: natural, fisher: marginal, damping: 0.1}", "2^37 states"),
        ("offsets_from: exact", f"offsets_from: exact sums 2^17 {STATES}"),
        ("gradient_from: exact", f"gradient_from: exact sums 2^17 {STATES}"),
        ("record: offset_eror", "there is no recorder offset_eror; did you mean offset_error"),
        ("record: {what: offset_values, units: 17}", "there is no hidden unit 17; they are 0 to 16"),
        ("record: gradient_angles", "record: gradient_angles: the exact Fisher matrix sums 2^37 states"),
        ("record: free_energy_gap", "free_energy_gap needs a validation part"),
    ],
)
def test_what_a_large_machine_cannot_have_is_refused_with_the_way_out(fields, words):
    message = refused_grid(LARGE.replace("batch: full", f"batch: full\n    {fields}"))
    assert words in message
    assert not Path("results").exists()


@pytest.mark.parametrize("fields", [SAMPLES, f"{SAMPLES}, fisher: marginal", "fisher: diagonal"])
def test_the_way_out_for_large_machines_is_one(fields):
    natural = f"gradient: {{kind: natural, {fields}}}"
    Path("grid.yaml").write_text(LARGE.replace("batch: full", f"batch: full\n    {natural}"))
    cbm("run", "grid.yaml", "-j", 0, "--no-table", "--set", "updates=3")


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
        (idx(30, magic=0x801), "too long"),
        (gzip.compress(idx(30), mtime=0)[:-40], "damaged gzip"),
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
    cbm("run", "grid.yaml", "-o", "out", "-j", 0)
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
        ({"kind": np.array("auto-encoder")}, "no normalised"),
    ],
)
def test_a_foreign_machine_file_is_refused(changes, words):
    save(**changes)
    np.save("rows.npy", np.zeros((3, 4), np.uint8))
    message = refused("evaluate", "m.npz", "--exact", "--data", "rows.npy")
    assert "m.npz" in message
    assert words in message


@pytest.mark.parametrize(
    ("content", "words"), [(b"0,1,0,1\n0,1,2,1\n", "row 2, column 3"), (b"0,1,0\n1,1,1\n", "3 columns")]
)
def test_rows_that_do_not_fit_are_refused(content, words):
    save()
    Path("rows.csv").write_bytes(content)
    assert words in refused("evaluate", "m.npz", "--exact", "--data", "rows.csv")


@pytest.mark.parametrize(
    ("names", "where", "words"),
    [
        (("toy", "Toy"), "4:3", "differs from toy in capitals only, which macOS and Windows do not tell"),
        (("con", "b"), "3:3", "cannot name a folder on Windows; use another name"),
        (("b", "NUL.txt"), "4:3", "cannot name a folder on Windows; use another name"),
        (("com1", "b"), "3:3", "cannot name a folder on Windows"),
        (("b", "x."), "4:3", "cannot name a folder on Windows"),
        (("b", "aux"), "4:3", "cannot name a folder on Windows"),
    ],
)
def test_names_that_are_no_folders_of_their_own_everywhere_are_refused(folder, names, where, words):
    body = "{data: {name: bars-and-stripes, size: 2}, model: {kind: rbm, hidden: 2}, sampler: CD-1}"
    lines = [f"  {name}: {body}" for name in names]
    head = "defaults: {offsets: 00, learning_rate: 0.1, epochs: 1, batch: full}\nexperiments:\n"
    Path("grid.yaml").write_text(head + "\n".join(lines))
    said = refused("run", "grid.yaml", "-j", 0)
    assert re.search(rf"grid.yaml:{where}: \S+: {words}", said)
    fine = head + f"  console: {body}\n  com10: {body}\n  x.y: {body}"
    Path("grid.yaml").write_text(fine)
    cbm("run", "grid.yaml", "--list")
