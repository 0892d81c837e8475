"""A user's own files: every format against arrays made here, packed or not, and everything that is wrong."""

import gzip
import io
import json
import re
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import yaml
from scipy.io import savemat
from scipy.sparse import csr_matrix

from cbm_cli.datasets.catalogue import describe, load, load_rows
from cbm_cli.datasets.dataset import DataError, Image
from cbm_cli.datasets.spec import available
from cbm_cli.errors import CbmError
from cbm_cli.grid.parts import Data
from cbm_cli.grid.read import read_grid
from cbm_cli.grid.schema import json_schema
from tests.builders import arrays, cbm, idx, lines

ROWS = np.random.Generator(np.random.Philox(key=11)).integers(0, 2, (20, 6), np.uint8)
ROWS[4] = 0  # a LIBSVM line of a label alone
ROWS[7, -1] = 1  # and the largest index
STARTED = np.maximum(ROWS, np.eye(1, 6, dtype=np.uint8))  # no row is zero: that would be an empty line
GREY = (np.arange(120) * 2).reshape(20, 6).astype(np.uint8)


npy = npz = arrays


def mat(version: str = "5", **arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    savemat(stream, arrays, format=version, do_compression=version == "5")
    return stream.getvalue()


def libsvm(rows: np.ndarray, label: str = "+1 ") -> bytes:
    items = (" ".join(f"{i + 1}:{value}" for i, value in enumerate(row) if value) for row in rows.tolist())
    return "".join(f"{label}{line}\n" for line in items).encode()


FORMS = {
    "csv": lines(ROWS),
    "csv without a last line end": lines(ROWS)[:-1],
    "csv of Windows": lines(ROWS, end="\r\n"),
    "csv with blanks": lines(ROWS, ", "),
    "csv of floats": lines(ROWS.astype(float)),
    "semicolons": lines(ROWS, ";"),
    "vertical bars": lines(ROWS, "|"),
    "tabs": lines(ROWS, "\t"),
    "blanks": lines(ROWS, " "),
    "ragged blanks": lines(ROWS, "  ", " \n"),
    "comments and empty lines": b"# a, b: c\n\n" + lines(ROWS) + b"\n",
    "column names": b"a,pixel 2,c3,d,e,f\n" + lines(ROWS),
    "column names in quotes": b'# R\n"a";"b";"c";"d";"e";"f"\n' + lines(ROWS, ";"),
    "column names and blanks": b"a b c d e f\n" + lines(ROWS, " "),
    "byte order mark": b"\xef\xbb\xbf" + lines(ROWS),
    "npy": npy(ROWS),
    "npy of bool": npy(ROWS.astype(bool)),
    "npy of int64": npy(ROWS.astype(np.int64)),
    "npy of float32": npy(ROWS.astype(np.float32)),
    "npy, Fortran order": npy(np.asfortranarray(ROWS)),
    "npz of one array": npz(anything=ROWS, labels=np.arange(20)),
    "npz": npz(train=ROWS),
    "mat": mat(X=ROWS, y=np.ones((20, 1))),
    "mat of doubles": mat(train_data=ROWS.astype(float)),
    "mat, version 4": mat("4", X=ROWS.astype(float)),
    "mat, sparse": mat(X=csr_matrix(ROWS.astype(float))),
    "idx of rows": idx(ROWS),
    "idx of images": idx(ROWS.reshape(20, 2, 3)),
    "libsvm": libsvm(ROWS),
    "libsvm without labels": libsvm(STARTED, ""),
    "libsvm of floats": libsvm(ROWS.astype(float)),
    "libsvm with comments": libsvm(ROWS).replace(b"\n", b" # 3:1\n"),
}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("form", FORMS)
def test_the_same_rows_come_out_of_every_format(form, packed, tmp_path):
    path = tmp_path / "rows"
    path.write_bytes(gzip.compress(FORMS[form], mtime=0) if packed else FORMS[form])
    dataset = load(path=str(path))
    expected = STARTED if "without labels" in form else ROWS
    np.testing.assert_array_equal(dataset.train, expected)
    assert (dataset.train.dtype, dataset.levels, dataset.valid) == (np.uint8, 1, None)
    assert dataset.image == (Image(2, 3) if form == "idx of images" else None)


@pytest.mark.parametrize(
    ("name", "title"),
    [("my.csv", "my"), ("my.train.csv.gz", "my.train"), ("a/b/rows", "rows"), ("x.NPZ", "x")],
)
def test_a_data_set_is_called_as_its_file_without_folder_and_endings(name, title, tmp_path):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(npy(ROWS))
    assert load(path=name, folder=tmp_path).name == title
    assert Data(path=name).title == title
    assert Data(path=name, name="mine", flip=True).title == "flipped-mine"


# Parts


@pytest.mark.parametrize("maker", [npz, mat])
@pytest.mark.parametrize("names", [("train", "valid", "test"), ("train_data", "val_data", "test_data")])
def test_one_file_may_hold_all_parts(maker, names, tmp_path):
    parts = [ROWS[:10], ROWS[10:15], ROWS[15:]]
    labels = {"train_labels": np.ones((10, 1)), "classnames": np.array(["a", "bc"])}
    (tmp_path / "all").write_bytes(maker(**dict(zip(names, parts, strict=True)), **labels))
    dataset = load(path="all", folder=tmp_path)
    assert list(dataset.parts) == ["train", "valid", "test"]
    for found, expected in zip(dataset.parts.values(), parts, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_parts_may_lie_in_files_of_different_formats(tmp_path):
    (tmp_path / "train.npz").write_bytes(npz(train=ROWS, valid=ROWS[:3]))
    (tmp_path / "t.csv").write_bytes(lines(ROWS[5:]))
    dataset = load(path="train.npz", test="t.csv", folder=tmp_path)
    np.testing.assert_array_equal(dataset.valid, ROWS[:3])
    np.testing.assert_array_equal(dataset.test, ROWS[5:])


def test_libsvm_parts_are_as_wide_as_the_largest_index_of_all(tmp_path):
    narrow = ROWS.copy()
    narrow[:, 4:] = 0
    (tmp_path / "train").write_bytes(libsvm(narrow))
    (tmp_path / "test").write_bytes(libsvm(ROWS))
    dataset = load(path="train", test="test", folder=tmp_path)
    np.testing.assert_array_equal(dataset.train, narrow)
    np.testing.assert_array_equal(dataset.test, ROWS)


@pytest.mark.parametrize("label", [0, 7, -1, 0.5])
def test_drop_last_leaves_out_the_column_of_labels_whatever_it_holds(label, tmp_path):
    rows = [[*row, label] for row in ROWS.tolist()]
    (tmp_path / "rows.amat").write_text("#size: 20 7\n" + "\n".join(" ".join(map(str, row)) for row in rows))
    np.testing.assert_array_equal(load(path="rows.amat", drop_last=True, folder=tmp_path).train, ROWS)


# Grey values


@pytest.mark.parametrize(
    ("content", "shares"),
    [
        (idx(GREY), GREY / 255),
        (lines(GREY), GREY / 255),
        (npy(GREY.astype(np.int64)), GREY / 255),
        (npy(GREY.astype(float)), GREY / 255),
        (npy(GREY / 255), GREY / 255),
        (lines(np.round(GREY / 255, 3)), np.round(GREY / 255, 3)),
    ],
    ids=["idx", "csv", "int64", "whole floats", "shares", "csv of shares"],
)
def test_grey_values_are_shares_or_whole_numbers_to_255(content, shares, tmp_path):
    path = tmp_path / "grey"
    path.write_bytes(content)
    for threshold in (0.0, 0.5, 0.7):
        dataset = load(path=str(path), binarise="threshold", threshold=threshold)
        np.testing.assert_array_equal(dataset.train, shares > threshold)
        assert dataset.levels == 1
    probabilities = load(path=str(path), binarise="none")
    assert probabilities.levels == 255
    assert np.abs(probabilities.train / 255 - shares).max() <= 0.5 / 255 + 1e-12


@pytest.mark.parametrize("kind", [np.uint8, np.float64])
def test_sampled_units_are_on_as_often_as_their_share_says(kind, tmp_path):
    n = 20000
    grey = np.tile(np.uint8([0, 1, 64, 128, 254, 255]), (n, 1))
    (tmp_path / "grey.npy").write_bytes(npy(grey if kind == np.uint8 else grey / 255))
    dataset = load(path="grey.npy", binarise="sample", folder=tmp_path)
    p = grey[0] / 255
    assert (np.abs(dataset.train.mean(axis=0) - p) <= 4 * np.sqrt(p * (1 - p) / n)).all()
    np.random.seed(1)  # noqa: NPY002 (that it has no influence is what is tested)
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    both = load(path="grey.npy", test="grey.npy", binarise="sample", folder=tmp_path)
    np.testing.assert_array_equal(both.train, dataset.train)
    assert not np.array_equal(both.train, both.test)
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


def test_grey_values_are_refused_unless_it_is_said_what_becomes_of_them(tmp_path):
    rows = ROWS.astype(float)
    rows[3, 2] = 0.5
    (tmp_path / "rows.npy").write_bytes(npy(rows))
    with pytest.raises(
        CbmError, match=r"rows\.npy: row 4, column 3 is 0\.5; expected 0 or 1; .*binarise: threshold"
    ):
        load(path="rows.npy", folder=tmp_path)
    assert load(path="rows.npy", folder=tmp_path, threshold=0.4).train[3, 2] == 1


@pytest.mark.parametrize("binarise", ["threshold", "sample", "none"])
def test_zeros_and_ones_stay_what_they_are_however_grey_values_are_treated(binarise, tmp_path):
    (tmp_path / "rows").write_bytes(idx(ROWS))
    dataset = load(path="rows", folder=tmp_path, binarise=binarise)
    assert dataset.digest == load(path="rows", folder=tmp_path).digest


# What is wrong


def with_value(value: float) -> np.ndarray:
    rows = ROWS.astype(float)
    rows[1, 2] = value
    return rows


BAD = {
    "text cut into by zeros": (b"0,1\n1,\0\0\n", "neither text nor NPY"),
    "missing": (None, "no such file"),
    "empty": (b"", "is empty"),
    "empty, packed": (gzip.compress(b"", mtime=0), "is empty"),
    "comments alone": (b"# nothing\n", "holds no rows"),
    "half a gzip file": (gzip.compress(lines(ROWS), mtime=0)[:-9], "damaged gzip file"),
    "start of a gzip file": (gzip.compress(idx(ROWS), mtime=0)[:5], "damaged gzip file"),
    "another gzip checksum": (gzip.compress(idx(ROWS), mtime=0)[:-6] + bytes(6), "damaged gzip file"),
    "picture": (b"P5 28 28 255\n\xff" + bytes(784), "neither text"),
    "bytes": (bytes(range(128, 256)), "neither text nor NPY, NPZ, MAT or IDX"),
    "words": (b"hello world\n", "holds no rows of numbers, only words: hello world"),
    "names of columns alone": (b"a,b\n", "holds no rows of numbers, only words: a,b"),
    "one name": (b"a,1\n0,1\n", "line 1, column 1 is a, neither"),
    "names in the midst": (b"0,1\na,b\n", "line 2, column 1 is a, neither"),
    "numbered rows": (b",a,b\n0,1,0\n", r"column 1 has no name, .* write drop: \[1\] to leave out"),
    "numbered rows and columns": (b",0,1\n0,1,0\n", "column 1 has no name"),
    "missing value": (b"0,1\n0,\n", "line 2, column 2 is empty"),
    "missing value in the midst": (b"0,,1\n0,,1\n", "line 1, column 2 is empty"),
    "cut short": (b"0,1,0\n1,1,0\n1,1", "line 3 has 2 columns, the lines before it 3; is it cut short"),
    "nan in text": (b"0,1\n0,nan\n", "row 2, column 2 is nan, not a number"),
    "infinite": (npy(with_value(np.inf)), "row 2, column 3 is inf, not a number"),
    "nan": (npz(train=with_value(np.nan)), "row 2, column 3 is nan, not a number"),
    "two": (
        lines(with_value(2).astype(int)),
        r"row 2, column 3 is 2; expected 0 or 1; .* threshold: 1, or scale: 2 and",
    ),
    "no rows": (npy(np.zeros((0, 4))), "holds no rows"),
    "no columns": (npy(np.zeros((4, 0))), "holds no rows"),
    "a row": (npy(np.zeros(4)), r"shape \(4,\); expected rows and columns"),
    "half an npy file": (npy(ROWS)[:-9], "cannot be read as NPY"),
    "pickled": (npy(np.array([[{}]], dtype=object)), "holds pickled objects"),
    "text array": (npy(np.array([["a"]])), "holds an array of <U1; expected numbers"),
    "half an npz file": (npz(train=ROWS)[:-40], "cannot be read as NPZ"),
    "npz of several": (npz(a=ROWS, b=ROWS), "holds a 20 x 6, b 20 x 6; expected train, valid, test"),
    "npz without train": (npz(test=ROWS), "has no train part; it has test"),
    "npz of nothing": (npz(), "holds no array"),
    "half a mat file": (mat(X=ROWS)[:-20], "cannot be read as MAT"),
    "mat of another shape": (mat(X=np.zeros((3, 2, 2))), "holds X 3 x 2 x 2; expected"),
    "mat of labels": (mat(y=np.ones((4, 1))), "holds y 4 x 1; expected"),
    "mat of text": (mat(train=np.array(["abc"])), "holds an array of <U3|shape"),
    "mat, version 7.3": (b"MATLAB 7.3 MAT-file, HDF5 schema 1.00 ." + bytes(500), "save it with -v7"),
    "hdf5": (
        b"\x89HDF\r\n\x1a\n" + bytes(99),
        "HDF5 file, as MATLAB's version 7.3; in MATLAB save it with -v7",
    ),
    "half an idx file": (idx(ROWS)[:-1], "truncated: 119 of the 120 values"),
    "start of an idx file": (idx(ROWS)[:10], "unsigned bytes in 1 to 3 dimensions"),
    "idx of large sizes": (idx(ROWS)[:4] + b"\xff" * 12, "truncated"),
    "idx too long": (gzip.compress(idx(ROWS) + b"\0", mtime=0), "too long"),
    "idx of one dimension": (idx(ROWS.ravel()), "expected rows and columns"),
    "idx of no rows": (idx(np.zeros((0, 28, 28), np.uint8)), "holds no rows"),
    "idx of floats": (bytes((0, 0, 13, 2)) + bytes(99), "cannot be read as IDX"),
    "libsvm of another shape": (b"1 1:1 a:1\n", r"line 1: cannot read 'a:1' as index:value"),
    "libsvm without a value": (b"1 1:1\n1 2:\n", r"line 2: cannot read '2:'"),
    "libsvm from 0": (b"1 0:1 1:1\n", "line 1: index 0 is out of range; indices are 1 to"),
    "libsvm with an index twice": (b"1 2:1 2:1\n", "line 1: index 2 appears twice"),
    "libsvm too wide": (b"1 99999999:1\n", "index 99999999 is out of range"),
    "libsvm of no values": (b"+1\n-1\n# 1:1\n+1 1:\n", "cannot read '1:'"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_files_are_named_with_what_is_wrong(what, tmp_path):
    content, complaint = BAD[what]
    path = tmp_path / "bad"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=complaint) as raised:
        load(path=str(path))
    assert str(raised.value).startswith(str(path))
    assert raised.value.field in ("path", "binarise")


@pytest.mark.parametrize(
    ("value", "options", "words"),
    [
        (-1, {"binarise": "threshold"}, "row 2, column 3 is -1; values are 0 to 1"),
        (-1, {"binarise": "none", "scale": 16}, "row 2, column 3 is -1; values are 0 to 16"),
        (17, {"binarise": "sample", "scale": 16}, "row 2, column 3 is 17; values are 0 to 16"),
        (256, {"binarise": "none"}, "values reach 256, .* add scale: 256"),
        (1.5, {"threshold": 0.4}, "values reach 1.5, on an unknown scale"),
    ],
)
def test_values_beyond_the_scale_are_refused(value, options, words, tmp_path):
    (tmp_path / "rows.npy").write_bytes(npy(with_value(value)))
    with pytest.raises(DataError, match=words) as raised:
        load(path="rows.npy", folder=tmp_path, **options)
    assert raised.value.field == "scale"


# Scales and thresholds

GREY_16 = (np.arange(120) % 17).reshape(20, 6)


@pytest.mark.parametrize(
    ("options", "on"),
    [
        ({"threshold": 8}, GREY_16 > 8),
        ({"threshold": 0}, GREY_16 > 0),
        ({"threshold": 15}, GREY_16 > 15),
        ({"threshold": 1}, GREY_16 > 1),
        ({"binarise": "threshold", "scale": 16}, GREY_16 > 8),
        ({"threshold": 0.25, "scale": 16}, GREY_16 > 4),
        ({"threshold": 3, "scale": 16}, GREY_16 > 3),
        ({"binarise": "threshold", "scale": 32}, GREY_16 > 16),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.float64])
def test_a_threshold_is_in_the_files_units_or_a_share_of_the_scale(kind, options, on, tmp_path):
    (tmp_path / "grey16.csv").write_bytes(lines(GREY_16.astype(kind)))
    data = {"path": str(tmp_path / "grey16.csv"), **options}
    if on.any():
        np.testing.assert_array_equal(load(**data).train, on)
        return
    with pytest.raises(DataError, match=r"grey16.csv: threshold 0.5 turns all values, 0 to 16, into 0"):
        load(**data)


@pytest.mark.parametrize("binarise", ["threshold", "sample", "none"])
def test_an_unknown_scale_is_refused_with_the_remedy(binarise, tmp_path):
    path = tmp_path / "grey16.csv"
    path.write_bytes(lines(GREY_16))
    with pytest.raises(DataError, match=r"csv: values reach 16, .*add scale: 16 .*threshold: 8") as raised:
        load(path=str(path), binarise=binarise)
    assert raised.value.field == "scale"
    with pytest.raises(DataError, match=r"row 1, column 3 is 2; expected 0 or 1") as raised:
        load(path=str(path), scale=16)
    assert raised.value.field == "binarise"
    path.write_bytes(idx(GREY_16.astype(np.uint8).reshape(20, 2, 3)))  # images of bytes: 0 to 255
    assert load(path=str(path), binarise="none").train.max() == 16
    path.write_bytes(lines(GREY_16 + 111))  # to 127: seven bits
    with pytest.raises(DataError, match="values reach 127"):
        load(path=str(path), binarise=binarise)
    path.write_bytes(lines(GREY_16 + 112))  # to 128: bytes
    assert load(path=str(path), binarise="none").train.max() == 128


def test_values_are_divided_by_the_scale(tmp_path):
    n = 20000
    rows = np.tile([0, 4, 8, 16], (n, 1))
    (tmp_path / "rows.npy").write_bytes(npy(rows))
    shares = load(path=str(tmp_path / "rows.npy"), binarise="none", scale=16)
    assert shares.train[0].tolist() == [0, 64, 128, 255]
    (tmp_path / "dim.npy").write_bytes(npy(ROWS))  # nothing above 1, of 16
    dim = load(path=str(tmp_path / "dim.npy"), binarise="none", scale=16)
    np.testing.assert_array_equal(dim.train, ROWS * 16)
    with pytest.raises(DataError, match="threshold 1 turns all values, 0 to 1, into 0"):
        load(path=str(tmp_path / "dim.npy"), threshold=1)
    p = np.array([0, 0.25, 0.5, 1])
    sampled = load(path=str(tmp_path / "rows.npy"), binarise="sample", scale=16)
    assert (np.abs(sampled.train.mean(axis=0) - p) <= 4 * np.sqrt(p * (1 - p) / n)).all()


def test_a_first_line_that_numbers_the_columns_is_no_row(tmp_path):
    rows = np.random.default_rng(1).integers(0, 17, (20, 8))
    (tmp_path / "rows.csv").write_bytes(lines(np.arange(8)[None]) + lines(rows))
    np.testing.assert_array_equal(load(path=str(tmp_path / "rows.csv"), threshold=8).train, rows > 8)
    (tmp_path / "rows.csv").write_bytes(lines(np.arange(7)[None]) + lines(rows[:, :7]))
    assert len(load(path=str(tmp_path / "rows.csv"), threshold=3).train) == 21


@pytest.mark.parametrize("value", [0, 1])
def test_constant_data_are_nothing_to_train_on_but_may_be_evaluated(value, tmp_path):
    (tmp_path / "rows.csv").write_bytes(lines(np.full((3, 4), value)))
    with pytest.raises(DataError, match=rf"rows.csv: all values of the training part are {value}") as raised:
        load(path="rows.csv", folder=tmp_path)
    assert raised.value.field == "path"
    assert (load_rows(str(tmp_path / "rows.csv"))[0] == value).all()


def test_data_are_available_where_all_their_files_exist(tmp_path):
    data = Data(path="rows.csv", test="t.csv")
    assert "t.csv" in available(data, tmp_path)
    (tmp_path / "rows.csv").write_bytes(lines(ROWS))
    assert str(tmp_path / "t.csv") in available(data, tmp_path)
    (tmp_path / "t.csv").write_bytes(lines(ROWS))
    assert available(data, tmp_path) == available(Data(name="bars-and-stripes", size=2)) == ""
    share = f"{ROWS.mean():.1%}"
    said = describe(data, load(data, folder=tmp_path))
    assert said == f"rows.csv: 20 rows x 6 units, {share} ones (test 20 rows)"


def test_parts_of_different_width_are_refused(tmp_path):
    (tmp_path / "a.csv").write_bytes(lines(ROWS))
    (tmp_path / "b.csv").write_bytes(lines(ROWS[:, :5]))
    with pytest.raises(CbmError, match=r"b\.csv: has 5 columns, .*a\.csv has 6; all parts"):
        load(path="a.csv", valid="b.csv", folder=tmp_path)
    (tmp_path / "c.npz").write_bytes(npz(train=ROWS, test=ROWS[:, :5]))
    with pytest.raises(CbmError, match=r"c\.npz \(test\): has 5 columns, .*c\.npz \(train\) has 6"):
        load(path="c.npz", folder=tmp_path)


def test_a_part_given_twice_is_refused(tmp_path):
    (tmp_path / "a.npz").write_bytes(npz(train=ROWS, test=ROWS))
    with pytest.raises(CbmError, match=r"the test part is in .*a\.npz \(test\) already"):
        load(path="a.npz", test="a.npz", folder=tmp_path)


def test_a_last_column_that_cannot_be_dropped_is_refused(tmp_path):
    (tmp_path / "a").write_bytes(libsvm(ROWS))
    (tmp_path / "b").write_bytes(lines(ROWS[:, :1]))
    with pytest.raises(CbmError, match="LIBSVM keeps labels apart"):
        load(path="a", drop_last=True, folder=tmp_path)
    with pytest.raises(CbmError, match="single column; drop_last leaves nothing"):
        load(path="b", drop_last=True, folder=tmp_path)


# Rows for an evaluation


def test_rows_of_a_file_are_those_of_the_part_that_is_asked_for(tmp_path):
    (tmp_path / "all.npz").write_bytes(npz(train=ROWS, test=ROWS[:4]))
    (tmp_path / "one.csv").write_bytes(lines(ROWS))
    for source, part, expected in [("all.npz", "test", ROWS[:4]), ("one.csv", "test", ROWS)]:
        rows, unit = load_rows(str(tmp_path / source), part)
        np.testing.assert_array_equal(rows, expected)
        assert unit == 1
    with pytest.raises(CbmError, match="has no part valid; it has train, test"):
        load_rows(str(tmp_path / "all.npz"), "valid")


def test_rows_of_a_libsvm_file_are_filled_up_to_the_machine(tmp_path):
    (tmp_path / "rows").write_bytes(libsvm(ROWS))
    rows, _ = load_rows(str(tmp_path / "rows"), width=9)
    np.testing.assert_array_equal(rows, np.pad(ROWS, ((0, 0), (0, 3))))


def test_rows_of_a_grey_file_take_options_as_data_sets_do(tmp_path):
    path = tmp_path / "grey:odd.idx"
    path.write_bytes(idx(GREY))
    with pytest.raises(CbmError, match="expected 0 or 1"):
        load_rows(str(path))
    rows, unit = load_rows(f"{path}:binarise=threshold,threshold=0.7,flip=true")
    np.testing.assert_array_equal(rows, GREY / 255 <= 0.7)
    rows, unit = load_rows(f"{path}:binarise=none")
    np.testing.assert_array_equal(rows, GREY)
    assert unit == 1 / 255


# In a grid

GRID = """\
experiments:
  mine:
    data: {path: rows.csv, test: parts/t.npz}
    model: {kind: rbm, hidden: 3}
    offsets: [00, dd^b_s]
    sampler: CD-1
    learning_rate: 0.1
    updates: 20
    batch: full
    trials: 1
    evaluate: {method: exact, every: 10}
"""


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """Folder ``grids`` with a grid and its data, beside the one that commands are run in."""
    folder = tmp_path / "grids"
    (folder / "parts").mkdir(parents=True)
    (folder / "grid.yaml").write_text(GRID)
    (folder / "rows.csv").write_bytes(lines(ROWS))
    (folder / "parts" / "t.npz").write_bytes(npz(test=ROWS[:5]))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return folder


def run(grid, code=0):
    return cbm("run", grid, "-j", 0, "-o", "out", code=code)


def test_a_grid_reads_files_beside_it_and_keeps_their_names_as_written(project):
    assert re.search(
        r"rows.csv: 20 rows x 6 units, \d+\.\d% ones \(test 5 rows\)\n", run("../grids/grid.yaml").stderr
    )
    record = json.loads(next(Path("out").rglob("trial-000.json")).read_text())["row"]
    assert (record["data"], record["data_path"], record["data_test"]) == ("rows", "rows.csv", "parts/t.npz")
    assert (record["data_binarise"], record["n_train"], record["n_test"]) == ("refuse", 20, 5)


def test_a_file_that_changes_makes_other_trials_and_one_that_only_moves_does_not(project):
    run("../grids/grid.yaml")
    before = {path.name for path in Path("out/mine/trials").iterdir()}
    assert "All 2 trials are done" in run("../grids/grid.yaml").stderr
    project.rename(project.with_name("moved"))
    assert "All 2 trials are done" in run("../moved/grid.yaml").stderr
    (project.with_name("moved") / "rows.csv").write_bytes(lines(1 - ROWS))
    run("../moved/grid.yaml")
    assert len({path.name for path in Path("out/mine/trials").iterdir()} - before) == 2


def test_trials_on_files_are_evaluated_from_any_folder(project, monkeypatch):
    run("../grids/grid.yaml")
    monkeypatch.chdir("..")
    cbm("evaluate", "elsewhere/out", "--exact")


def test_a_bad_file_stops_the_run_with_one_message(project):
    (project / "rows.csv").write_bytes(b"0,1\n1,3\n")
    assert "has 6 columns" in run("../grids/grid.yaml", code=2).stderr


def cells_of(folder: Path, data: str) -> list[Data]:
    path = folder / "grid.yaml"
    path.write_text(GRID.replace("{path: rows.csv, test: parts/t.npz}", data))
    return [cell.data for cell in read_grid(path).experiments["mine"].cells][::2]


def test_files_may_be_an_axis_and_have_options_and_a_name(project):
    assert cells_of(project, "[{path: [a.csv, b.csv]}, mnist, {path: c.amat, name: c, drop_last: yes}]") == [
        Data(path="a.csv"),
        Data(path="b.csv"),
        Data(name="mnist"),
        Data(path="c.amat", name="c", drop_last=True),
    ]


def test_the_fields_of_files_are_not_recorded_for_named_data_sets():
    assert list(Data(name="mnist").model_dump()) == ["name", "size", "bar", "flip", "binarise", "threshold"]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("{flip: yes}", "needs the name of a data set, or the path of a file"),
        ("rows.csv", "for a file write {path: rows.csv}"),
        ("{path: rows.csv, binarise: maybe}", "must be threshold, sample, none or refuse, not maybe"),
        ("{path: ''}", "must be"),
    ],
)
def test_options_that_do_not_fit_a_file_are_told_with_their_place(project, data, told):
    with pytest.raises(CbmError) as raised:
        cells_of(project, data)
    assert told in str(raised.value)
    assert "grid.yaml:3:" in str(raised.value)


@pytest.mark.parametrize(
    ("data", "fits"),
    [
        ("{path: rows.csv}", True),
        ("{path: [a.csv, b.csv], binarise: sample, flip: [on, off]}", True),
        ("{path: t.npz, valid: v.csv, test: t.csv, name: digits, drop_last: yes}", True),
        ("[mnist, {path: rows.csv}]", True),
        ("{valid: v.csv}", False),
        ("{name: mnist, valid: v.csv}", False),
        ("{name: digits}", False),
        ("{path: {a: b}}", False),
    ],
)
def test_the_schema_for_editors_knows_files(data, fits):
    text = GRID.replace("{path: rows.csv, test: parts/t.npz}", data)
    validator = jsonschema.Draft202012Validator(json_schema())
    assert validator.is_valid(yaml.safe_load(text)) is fits
