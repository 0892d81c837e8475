"""A user's own files: every format against arrays made here, packed or not."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from cbm_cli.datasets.dataset import Image
from cbm_cli.datasets.loading import load, load_source
from cbm_cli.datasets.spec import available
from cbm_cli.grid.settings import Data
from cbm_cli.results import Store
from numpy.testing import assert_array_equal
from scipy.sparse import csr_matrix

from tests.builders import GRID as BARS
from tests.builders import arrays as npy
from tests.builders import cbm, holds, idx, lines, mat, problems_of, refusal

pytestmark = pytest.mark.usefixtures("here")

ROWS = np.random.Generator(np.random.Philox(key=11)).integers(0, 2, (20, 6), np.uint8)
ROWS[4] = 0  # a LIBSVM line of a label alone
ROWS[7, -1] = 1  # and the largest index
STARTED = np.maximum(ROWS, np.eye(1, 6, dtype=np.uint8))  # a row of zeros is an empty line
GREY = (np.arange(120) * 2).reshape(20, 6).astype(np.uint8)
GREY_16 = (np.arange(120) % 17).reshape(20, 6)
GREY_16[0, 1] = 0  # a first line of different numbers may be names
npz = npy


def put(content, name="rows"):
    """Write a file; return its name."""
    Path(name).write_bytes(content)
    return name


def libsvm(rows, label="+1 "):
    items = [[f"{i}:{value}" for i, value in enumerate(row, 1) if value] for row in rows.tolist()]
    return "".join(f"{label}{' '.join(line)}\n" for line in items).encode()


FORMS = {
    "csv of Windows": lines(ROWS, end="\r\n"),
    **{f"separated by {mark!r}": lines(ROWS, mark) for mark in (", ", ";", "\t", "|")},
    "comments and empty lines": b"# a, b: c\n\n" + lines(ROWS) + b"\n",
    "column names, and blanks": b"# R\na b c falsehood e truth\n" + lines(ROWS, " "),
    "names, True and False": b"a\tb\tc\tfalsehood\te\ttruth\n" + lines(ROWS > 0, "\t"),
    "true and false in quotes": lines(np.where(ROWS, '"TRUE"', '"FALSE"'), " "),
    **{f"npy of {kind}": npy(ROWS.astype(kind)) for kind in ("uint8", "bool", "float32")},
    "npy, Fortran order": npy(np.asfortranarray(ROWS)),
    "npz of one array": npz(anything=ROWS, labels=np.arange(20)),
    "mat": mat(X=ROWS, y=np.ones((20, 1))),
    "mat, version 4": mat("4", X=ROWS.astype(float)),
    "mat, sparse": mat(X=csr_matrix(ROWS.astype(float))),
    "idx of images": idx(ROWS.reshape(20, 2, 3)),
    "libsvm without labels": libsvm(STARTED, ""),
    "libsvm of floats, with comments": libsvm(ROWS.astype(float)).replace(b"\n", b" # 3:1\n"),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_rows_come_out_of_every_format_packed_or_not(form):
    for content in (FORMS[form], gzip.compress(FORMS[form], mtime=0)):
        dataset = load(path=put(content))
        assert_array_equal(dataset.train, STARTED if "without labels" in form else ROWS)
        assert (dataset.train.dtype, dataset.levels, dataset.valid) == (np.uint8, 1, None)
        assert dataset.image == (Image(2, 3) if form == "idx of images" else None)


@pytest.mark.parametrize("name", ["a/my.csv.gz", "my", "my.NPZ"])
def test_a_data_set_is_called_as_its_file_without_folder_and_endings(name, tmp_path):
    (tmp_path / "in" / name).parent.mkdir(parents=True)
    put(npy(ROWS), tmp_path / "in" / name)
    assert load(path=name, folder=tmp_path / "in").name == Data(path=name).title == "my"
    assert Data(path=name, name="mine", flip=True).title == "flipped-mine"


# Parts


@pytest.mark.parametrize("maker", [npz, mat])
@pytest.mark.parametrize(
    ("form", "valid"), [("{}", "valid"), ("{}_data", "val"), ("X_{}", "validation")]
)
def test_one_file_may_hold_all_parts(maker, form, valid):
    parts = [ROWS[:10], ROWS[10:15], ROWS[15:]]
    named = dict(zip(map(form.format, ("train", valid, "test")), parts, strict=True))
    labels = {"train_labels": np.ones((10, 1)), "classnames": np.array(["a", "bc"])}
    put(maker(**named, **labels, y_train=np.arange(20)))
    for binarise in (None, "sample", "none"):  # of zeros and ones, all the same
        dataset = load(path="rows", binarise=binarise)
        assert list(dataset.parts) == ["train", "valid", "test"]
        for found, expected in zip(dataset.parts.values(), parts, strict=True):
            assert_array_equal(found, expected * dataset.levels)


def test_parts_may_lie_in_files_of_different_formats():
    put(npz(train=ROWS, valid=ROWS[:3]))
    dataset = load(path="rows", test=put(lines(ROWS[5:]), "t.csv"))
    assert_array_equal(dataset.valid, ROWS[:3])
    assert_array_equal(dataset.test, ROWS[5:])
    narrow = ROWS * (np.arange(6) < 4)  # LIBSVM parts are as wide as the largest index of all
    dataset = load(path=put(libsvm(narrow)), test=put(libsvm(ROWS), "test"))
    assert_array_equal(dataset.train, narrow)
    assert_array_equal(dataset.test, ROWS)


# Grey values


ROUNDED = np.round(GREY / 255, 3)
SHARES = {"idx": idx(GREY), "csv": lines(GREY), "npy": npy(GREY / 255), "text": lines(ROUNDED)}


@pytest.mark.parametrize("form", SHARES)
def test_grey_values_are_shares_or_whole_numbers_to_255(form):
    put(SHARES[form])
    shares = ROUNDED if form == "text" else GREY / 255
    for threshold in (0.0, 0.5, 0.7):
        dataset = load(path="rows", binarise="threshold", threshold=threshold, header=False)
        assert_array_equal(dataset.train, shares > threshold)
        assert dataset.levels == 1
    probabilities = load(path="rows", binarise="none", header=False)
    assert probabilities.levels == 255
    assert np.abs(probabilities.train / 255 - shares).max() <= 0.5 / 255 + 1e-12


@pytest.mark.parametrize(("kind", "scale"), [(np.uint8, 255), (np.float64, 1), (np.int64, 510)])
def test_sampled_units_are_on_with_their_share(kind, scale):
    n = 20000
    grey = np.tile(np.uint8([0, 1, 64, 128, 254, 255]), (n, 1))
    put(npy((grey * (scale / 255)).astype(kind)))
    how = {"path": "rows", "binarise": "sample", "scale": scale}
    dataset, p = load(**how), grey[0] / 255
    assert (np.abs(dataset.train.mean(axis=0) - p) <= 4.5 * np.sqrt(p * (1 - p) / n)).all()
    both = load(test="rows", **how)
    assert_array_equal(both.train, dataset.train)
    assert not np.array_equal(both.train, both.test)


def test_a_threshold_is_in_the_files_units_or_a_share_of_the_scale():
    ways = [({"threshold": value}, value) for value in (8, 0, 15, 1)]
    ways += [({"threshold": value, "scale": 16}, level) for value, level in ((3, 3), (0.25, 4))]
    ways += [({"binarise": "threshold", "scale": 16}, 8)]
    for kind in (np.uint8, np.float64):
        put(lines(GREY_16.astype(kind)))
        for options, level in ways:
            assert_array_equal(load(path="rows", **options).train, level < GREY_16)


def test_values_are_divided_by_the_scale():
    shares = load(path=put(npy(np.tile([0, 4, 8, 16], (3, 1)))), binarise="none", scale=16)
    assert shares.train[0].tolist() == [0, 64, 128, 255]
    dim = load(path=put(npy(ROWS)), binarise="none", scale=16)  # nothing above 1, of 16
    assert_array_equal(dim.train, ROWS * 16)
    images = idx(GREY_16.astype(np.uint8).reshape(20, 2, 3))  # bytes: 0 to 255
    assert load(path=put(images), binarise="none").train.max() == 16
    eight_bits = lines(GREY_16 + 112)
    assert load(path=put(eight_bits), binarise="none").train.max() == 128


def test_constant_data_may_be_evaluated():
    for value in (0, 1):
        put(lines(np.full((3, 4), value)))
        assert (load_source("rows").train == value).all()


def test_a_misspelled_file_is_named_with_the_one_that_is_there():
    put(lines(ROWS), "train.csv")
    refused = refusal(load, path="trian.csv"), refusal(load_source, "trian.csv")
    for told in (*refused, available(Data(path="trian.csv"))):
        assert holds(told, "trian.csv|train.csv")


def test_data_are_available_where_all_their_files_exist(tmp_path):
    data = Data(path="rows", test="t.csv")
    assert holds(available(data), "rows|t.csv")
    put(lines(ROWS))
    assert holds(available(data, tmp_path), f"{tmp_path / 't.csv'}")
    put(lines(ROWS), "t.csv")
    assert available(data, tmp_path) == available(Data(name="bars-and-stripes", size=2)) == ""


def test_parts_that_do_not_fit_are_refused():
    put(lines(ROWS), "a.csv")
    put(lines(ROWS[:, :5]), "b.csv")
    put(npz(train=ROWS, test=ROWS[:, :5]), "c.npz")
    put(npz(train=ROWS, test=ROWS), "two.npz")
    for data, field, where, told in (
        ({"path": "a.csv", "valid": "b.csv"}, "valid", "b.csv", "5|a.csv|6"),
        ({"path": "c.npz"}, "test", "c.npz (test)", "5|c.npz (train)|6"),
        ({"path": "two.npz", "test": "a.csv"}, "test", "a.csv", "two.npz (test)"),
    ):
        error = refusal(load, **data)
        assert (error.field, problems_of(error)) == (field, [(where, "")])
        assert holds(error, told)


# Rows for an evaluation


def test_rows_of_a_grey_file_take_options_as_data_sets_do():
    path = put(idx(GREY), "grey:odd.idx")
    assert refusal(load_source, path).field == "binarise"
    data = load_source(f"{path}:binarise=threshold,threshold=0.7,flip=true")
    assert_array_equal(data.train, GREY / 255 <= 0.7)


# In a grid

DATA = "{path: rows.csv, test: parts/t.npz}"
GRID = BARS.replace("{name: bars-and-stripes, size: 2}", DATA).replace("[CD-1, PT_4]", "CD-1")
GRID = GRID.replace("bars:", "mine:").replace("trials: 2", "trials: 1")


def run(grid, code=0):
    return cbm("run", grid, "-j", 0, "-o", "out", code=code)


def test_a_grid_reads_files_next_to_it_and_keeps_their_names(tmp_path, monkeypatch):
    grids = tmp_path / "grids"
    (grids / "parts").mkdir(parents=True)
    put(GRID.encode(), grids / "grid.yaml")
    put(lines(ROWS), grids / "rows.csv")
    put(npz(test=ROWS[:5]), grids / "parts" / "t.npz")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert holds(run("../grids/grid.yaml").stderr, "rows.csv|20|6|test 5")
    (cell, *_) = Store(Path("out/mine")).manifest().cells
    found = [cell[name] for name in ("data", "data_path", "data_test")]
    assert found == ["rows", "rows.csv", "parts/t.npz"]
    assert "data_binarise" not in cell
    grids.rename(tmp_path / "moved")
    assert "2 trials done in earlier runs" in run("../moved/grid.yaml").stderr
    put(b"0,0\n1,1\n", tmp_path / "moved" / "rows.csv")
    refused = run("../moved/grid.yaml", code=2)
    assert problems_of(refused) == [("5", "mine.data.test")]
    assert holds(refused.stderr, "parts/t.npz|6|rows.csv|2")


def test_the_same_rows_in_two_files_are_refused_as_one_data_set():
    put(lines(ROWS), "rows.csv")
    put(npy(ROWS), "rows.npy")
    text = GRID.replace("rows.csv, test: parts/t.npz", "[rows.csv, rows.npy]")
    both = run(put(text.encode(), "both.yaml"), code=2)
    assert problems_of(both) == [("5", "mine.data")]
