"""A user's own files: every format against arrays made here; what cannot be trained on
is named.
"""

import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from cbm_cli.datasets.dataset import Dataset, Image
from cbm_cli.datasets.loading import describe, load, load_source
from cbm_cli.datasets.spec import lack_of
from cbm_cli.grid.settings import Data
from cbm_cli.results import Store
from numpy.testing import assert_array_equal
from scipy.sparse import csr_matrix

from tests.builders import GRID as BARS
from tests.builders import arrays, cbm, holds, idx, lines, mat, problems_of, refusal

pytestmark = pytest.mark.usefixtures("here")

ROWS = np.random.Generator(np.random.Philox(key=11)).integers(0, 2, (20, 6), np.uint8)
ROWS[4] = 0  # a LIBSVM line of a label alone
ROWS[7, -1] = 1  # and the largest index
STARTED = np.maximum(
    ROWS, np.eye(1, 6, dtype=np.uint8)
)  # a row of zeros is an empty line
GREY = (np.arange(120) * 2).reshape(20, 6).astype(np.uint8)
GREY_16 = (np.arange(120) % 17).reshape(20, 6)
DIM = GREY_16.reshape(20, 2, 3)  # pictures, which are not stored as bytes
GREY_16[0, 1] = 0  # a first line of different numbers may be names


def put(content, name="rows"):
    """Write a file; return its name."""
    Path(name).write_bytes(content)
    return name


def libsvm(rows, label="+1 "):
    items = [
        [f"{i}:{value}" for i, value in enumerate(row, 1) if value]
        for row in rows.tolist()
    ]
    return "".join(f"{label}{' '.join(line)}\n" for line in items).encode()


FORMS = {
    "csv of Windows": lines(ROWS, end="\r\n"),
    **{f"separated by {mark!r}": lines(ROWS, mark) for mark in (", ", ";", "\t", "|")},
    "comments and empty lines": b"# a, b: c\n\n" + lines(ROWS) + b"\n",
    "column names, and blanks": b"# R\na b c falsehood e truth\n" + lines(ROWS, " "),
    "names, True and False": b"a\tb\tc\tfalsehood\te\ttruth\n" + lines(ROWS > 0, "\t"),
    "true and false in quotes": lines(np.where(ROWS, '"TRUE"', '"FALSE"'), " "),
    **{
        f"npy of {kind}": arrays(ROWS.astype(kind))
        for kind in ("uint8", "bool", "float32")
    },
    "npy, Fortran order": arrays(np.asfortranarray(ROWS)),
    **{
        f"errors of rounding: {noise}": arrays(ROWS + noise)
        for noise in (2.3e-16, -9e-7)
    },
    "npz of one array": arrays(anything=ROWS, labels=np.arange(20)),
    "mat": mat(X=ROWS, y=np.ones((20, 1))),
    "mat, version 4": mat("4", X=ROWS.astype(float)),
    "mat, sparse": mat(X=csr_matrix(ROWS.astype(float))),
    "idx of images": idx(ROWS.reshape(20, 2, 3)),
    **{
        f"npy of images {n}": arrays(ROWS.reshape(20, *n))
        for n in ((2, 3), (2, 3, 1), (1, 2, 3))
    },
    "libsvm without labels": libsvm(STARTED, ""),
    "libsvm of floats, with comments": libsvm(ROWS.astype(float)).replace(
        b"\n", b" # 3:1\n"
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_rows_come_out_of_every_format_packed_or_not(form):
    for content in (FORMS[form], gzip.compress(FORMS[form], mtime=0)):
        dataset = load(path=put(content))
        assert_array_equal(dataset.train, STARTED if "without labels" in form else ROWS)
        assert (dataset.train.dtype, dataset.levels, dataset.valid) == (
            np.uint8,
            1,
            None,
        )
        assert dataset.image == (Image(2, 3) if "images" in form else None)
    if dataset.image:
        assert load(path="rows", columns="1, 2, 3").image is None


@pytest.mark.parametrize("name", ["a/my.csv.gz", "my", "my.NPZ"])
def test_a_data_set_is_called_as_its_file_without_folder_and_endings(name, here):
    Path(name).parent.mkdir(exist_ok=True)
    put(arrays(ROWS), name)
    assert load(path=name, folder=here).name == Data(path=name).title == "my"
    assert Data(path=name, name="mine", flip=True).title == "flipped-mine"


# Parts


@pytest.mark.parametrize("maker", [arrays, mat])
@pytest.mark.parametrize(
    ("form", "valid"), [("{}", "valid"), ("{}_data", "val"), ("X_{}", "validation")]
)
def test_one_file_may_hold_all_parts(maker, form, valid):
    parts = {"train": ROWS[:10], valid: ROWS[10:15], "test": ROWS[15:]}
    named = {form.format(part): rows for part, rows in parts.items()}
    put(maker(**named, train_labels=np.ones((10, 1)), y_train=np.arange(20)))
    for binarise in (None, "sample", "none"):  # of zeros and ones, all the same
        dataset = load(path="rows", binarise=binarise)
        assert list(dataset.parts) == ["train", "valid", "test"]
        for found, expected in zip(dataset.parts.values(), parts.values(), strict=True):
            assert_array_equal(found, expected * dataset.levels)


def test_parts_may_lie_in_files_of_different_formats():
    put(arrays(train=ROWS, valid=ROWS[:3]))
    dataset = load(path="rows", test=put(lines(ROWS[5:]), "t.csv"))
    assert_array_equal(dataset.valid, ROWS[:3])
    assert_array_equal(dataset.test, ROWS[5:])
    narrow = ROWS * (
        np.arange(6) < 4
    )  # LIBSVM parts are as wide as the largest index of all
    dataset = load(path=put(libsvm(narrow)), test=put(libsvm(ROWS), "test"))
    assert_array_equal(dataset.train, narrow)
    assert_array_equal(dataset.test, ROWS)


# Grey values


ROUNDED, FULL = np.round(GREY / 255, 3), GREY + 17.0  # to 255
GREYS = {  # content, its values as shares of the scale, and options
    "images": (idx(GREY), GREY / 255, {}),
    "dim images": (idx(GREY_16.astype(np.uint8).reshape(20, 2, 3)), GREY_16 / 255, {}),
    "bytes as text": (lines(GREY), GREY / 255, {"header": False}),
    "bytes above 127": (lines(GREY_16 + 112), (GREY_16 + 112) / 255, {}),
    "shares": (arrays(GREY / 255), GREY / 255, {}),
    "shares, a little too low": (arrays(GREY / 255 - 9e-7), GREY / 255, {}),
    "values, a little too high": (
        arrays(FULL * (1 + 9e-7)),
        FULL / 255,
        {"scale": 255},
    ),
    "shares as text": (lines(ROUNDED), ROUNDED, {"header": False}),
    "a scale": (arrays(GREY_16), GREY_16 / 16, {"scale": 16}),
    "a scale that is not reached": (arrays(ROWS), ROWS / 16, {"scale": 16}),
}


@pytest.mark.parametrize("form", GREYS)
def test_grey_values_are_shares_whole_numbers_to_255_or_to_a_scale(form):
    content, shares, options = GREYS[form]
    put(content)
    for threshold in (
        one for one in (0.0, 0.05, 0.5, 0.7) if shares.min() <= one < shares.max()
    ):
        dataset = load(
            path="rows", binarise="threshold", threshold=threshold, **options
        )
        assert_array_equal(dataset.train, shares > threshold)
        assert dataset.levels == 1
    probabilities = load(path="rows", binarise="none", **options)
    assert probabilities.levels == 255
    assert np.abs(probabilities.train / 255 - shares).max() <= 0.5 / 255 + 1e-12


def test_the_line_on_the_data_says_that_grey_values_are_bytes():
    for content, options, are_bytes in (
        (arrays(DIM.astype(np.uint8)), {"binarise": "none"}, True),
        (arrays(GREY), {"binarise": "threshold"}, True),
        (lines(GREY), {"binarise": "none", "header": False}, True),
        (arrays(GREY), {"binarise": "none", "scale": 255}, False),
        (arrays(DIM), {"binarise": "none", "scale": 16}, False),
        (arrays(GREY), {"threshold": 8}, False),
        (arrays(ROWS), {"binarise": "none"}, False),
    ):
        data = Data(path=put(content), **options)
        line = describe(data, load(data))
        assert line.endswith(", of bytes from 0 to 255") == are_bytes
    mnist = Data(name="mnist", binarise="none")
    bytes_of_mnist = Dataset("mnist", GREY, levels=255, of_bytes=True)
    assert "bytes" not in describe(mnist, bytes_of_mnist)  # as everybody knows


@pytest.mark.parametrize(
    ("kind", "scale"), [(np.uint8, 255), (np.float64, 1), (np.int64, 510)]
)
def test_sampled_units_are_on_with_their_share(kind, scale):
    n = 20000
    grey = np.tile(np.uint8([0, 1, 64, 128, 254, 255]), (n, 1))
    put(arrays((grey * (scale / 255)).astype(kind)))
    how = {"path": "rows", "binarise": "sample", "scale": scale}
    dataset, p = load(**how), grey[0] / 255
    assert (
        np.abs(dataset.train.mean(axis=0) - p) <= 4.5 * np.sqrt(p * (1 - p) / n)
    ).all()
    both = load(test="rows", **how)
    assert_array_equal(both.train, dataset.train)
    assert not np.array_equal(both.train, both.test)


def test_a_threshold_is_in_the_files_units_or_a_share_of_the_scale():
    ways = [({"threshold": value}, value) for value in (8, 0, 15, 1)]
    ways += [
        ({"threshold": value, "scale": 16}, level)
        for value, level in ((3, 3), (0.25, 4))
    ]
    ways += [({"binarise": "threshold", "scale": 16}, 8)]
    for kind in (np.uint8, np.float64):
        put(lines(GREY_16.astype(kind)))
        for options, level in ways:
            assert_array_equal(load(path="rows", **options).train, level < GREY_16)


def test_constant_data_may_be_evaluated():
    put(lines(np.ones((3, 4), int)))
    assert (load_source("rows").train == 1).all()


def test_missing_files_are_all_named_a_misspelled_one_with_the_one_that_is_there(
    tmp_path,
):
    data = Data(path="trian.csv", test="t.csv")
    put(lines(ROWS), "train.csv")
    for told in (
        lack_of(data),
        refusal(load, data),
        refusal(load_source, "trian.csv"),
    ):
        assert holds(told, "trian.csv|train.csv")
    assert holds(
        lack_of(data, tmp_path), f"{tmp_path / 'trian.csv'}|{tmp_path / 't.csv'}"
    )
    for file in ("trian.csv", "t.csv"):
        put(lines(ROWS), file)
    assert (
        lack_of(data, tmp_path) == lack_of(Data(name="bars-and-stripes", size=2)) == ""
    )


def test_parts_that_do_not_fit_are_refused():
    put(lines(ROWS), "a.csv")
    put(lines(ROWS[:, :5]), "b.csv")
    put(arrays(train=ROWS, test=ROWS[:, :5]), "c.npz")
    put(arrays(train=ROWS, test=ROWS), "two.npz")
    for data, field, where, told in (
        ({"path": "a.csv", "valid": "b.csv"}, "valid", "b.csv", "5|a.csv|6"),
        ({"path": "c.npz"}, "test", "c.npz (test)", "5|c.npz (train)|6"),
        ({"path": "two.npz", "test": "a.csv"}, "test", "a.csv", "two.npz (test)"),
    ):
        error = refusal(load, **data)
        assert (error.field, problems_of(error)) == (field, [(where, "")])
        assert holds(error, told)


# What cannot be trained on

FOUR = b"a,b,c,class\n0,1,0,1\n1,0,1,0\n"
LIBSVM = b"1 1:1 2:1\n0 1:1 3:1\n"


def with_value(value):
    rows = ROWS.astype(float)
    rows[1, 2] = value
    return arrays(rows)


def packed(content):
    return gzip.compress(content, mtime=0)


with zipfile.ZipFile(zipped := io.BytesIO(), "w") as archive:
    archive.writestr("xl/workbook.xml", "x")

# By the field of the message: content of the file ``bad``, words of the message, other
# options
BAD = {
    "path": [
        (packed(b""), "empty"),
        (b"# nothing\n", ""),
        ("größe,b\n0,1\n".encode("latin-1"), "UTF-8|CSV"),
        (b"0,1\n1,\0\0\n", "NPY|NPZ|MAT (up to -v7)|IDX"),
        (b"a,b\n", "a, b"),
        (b"a,b\nyes,no\nno,yes\n", "line 2, column 1 (a) is yes|numbers, as 0, 1"),
        (b"sep=;\na;b\n0;1\n", "line 1 (sep=;)|separator|Excel|remove this line"),
        (b"a\n0\nsep=;\n", "line 3, column 1 (a) is sep=;"),  # which is no first line
        (b"# x\nsep=\t\n0\t1\n", "line 2 (sep=)|Excel"),
        (b'"sep=,"\n0,1\n', "line 1|Excel"),
        (b"0,3;0,8\n0,1;0,9\n", "line 1, column 1 is 0,3|0,8|0.3|without commas"),
        (b"a;b\n0,3;0,8\n1,0;0\n", "line 2, column 1 (a) is 0,3|without commas"),
        (b"0,3\t0,8\n0,1\t0,9\n", "line 1, column 2 is 0,8|without commas"),
        (b'a,b\n"1,000","2,000"\n"3,000","4,000"\n', "1,000|or 1000|commas"),
        (b"a,b\n10%,20%\n5%,6%\n", "10%|without commas, %"),
        (b"a,b,c\n0,1,0\n1,1,0\nTotal,2,0\n", "line 4 is Total|remove it"),
        (b"n,a,b\nx,0,1\ny,1,0\nSum,1,1\n", "line 4 is Sum|remove", {"drop": "n"}),
        (b"a,b\nmm,kg\n0,1\n1,0\n", "line 2, column 1 (a) is mm|units of measurement"),
        (b"a,b\n0,1\n1,0\n", "line 1|names|header: true", {"header": False}),
        (b"a,b\n,kg\n0,1\n1,0\n1,1\n", "line 2, column 2 (b)|measurement|1 gap"),
        (b"a,b\n0,1\n1,x\n1,0\n", "line 3, column 2 (b) is x|remove lines"),
        (b"a,b,,\n0,1,,\n1,0,,\n", "column 3, 4|is empty|drop: [3, 4]"),
        (b"a,b,c\n0,yes,1\n1,no,0\n", "column 2 (b) is yes|numbers, as 0, 1"),
        (b"a,b\n0,12:30\n1,12:31\n", "drop: [b]"),  # times are no units
        (b"a,b,c\n0,1,1\n,1,0\n1,,\n0,0,0\n", "3 gaps|2 of 4"),
        (b"a,b\n0,1\n# end\n", "line 3|1 column,|2"),
        (b"a,b,c\n0,1,\n1,0,\n", "line 2, column 3 (c) is a gap|drop: [c]"),
        (b"id,a,species,b\n1,,setosa,1\n2,0,setosa,1\n", "drop: [id, species]"),
        (
            b"a\tb\tc\n1\t\t0\n\t1\t0\n0\t1\t1\n",
            "2 gaps|line 2, column 2 (b)|line 3, column 1 (a)",
        ),
        (b"a,b,c\n0,0,0\n" + b",,\n" * 15, "line 3, column 1 (a)|45 gaps|15 of 16"),
        (b"0,1,0\n1,1,0\n1,1", "line 3|2|3|cut"),
        (b"0,1,0\n1,1,0\n1,1,0,1\n", "separator"),
        (b"a,b,c\n0,1\n1,0\n", "3|2"),
        (b"a\n0,1,1\n1,0,0\n", "1|3"),
        (b'a,b\n0,"1\n1,0\n', "quotes"),
        (zipped.getvalue(), "ZIP|Excel|CSV"),
        (with_value(np.inf), "row 2, column 3|inf"),
        (with_value(np.nan), "1 gap|row 2, column 3|dropna"),
        (arrays(np.zeros((0, 4))), ""),
        (arrays(np.zeros((12, 5, 4, 3))), "(12, 5, 4, 3)"),  # pictures with colors
        (arrays(np.array([[{}]], dtype=object)), ""),
        (arrays(train=ROWS)[:-40], "damaged"),
        (arrays(a=ROWS, b=ROWS), "a (20, 6)|b (20, 6)|train, valid, test"),
        (arrays(train=ROWS, valid=ROWS, val=ROWS[:3]), "train|val (3, 6)"),
        (arrays(test=ROWS), "train|test"),
        (
            arrays(train=ROWS, names=np.array(["a", "b"])),
            "2 names|train|(20, 6)|remove",
        ),
        (mat(train=np.array(["abc"])), "no numbers"),
        (
            mat(train=np.zeros((5, 4, 12))),
            "reshape(x, [], n)",
        ),  # MATLAB counts pictures last
        (packed(idx(ROWS) + b"\0"), "121|(20,6)|damaged"),
        (bytes((0, 0, 13, 2)) + bytes(99), "IDX"),
        (idx(ROWS.reshape(5, 4, 3, 2)), "(5, 4, 3, 2)"),
        (b"PAR1" + bytes(99), ""),
        (b"1 1:1 a:1\n", "line 1|a:1"),
        (b"1 0:1 1:1\n", "line 1|0|1"),
        (b"1 2:1 2:1\n", "line 1|2"),
        (b"1 99999999:1\n", "line 1|99999999"),
        (arrays(0 * ROWS), "0"),
    ],
    "header": [
        (b"a,1,1\n0,1,1\n", "a, 1, 1|header: true"),
        (arrays(ROWS), "no effect|text|remove", {"header": True}),
        *(
            (lines(ROWS), "true or false", {"header": number})
            for number in (0, 1, "0", "1", 2.0)
        ),
        (b"1,000;2,000\n3;4\n", "1,000, 2,000|header: true|0.3 or 1000"),
        (b"0,3 0,8\n0,1 0,9\n", "0, 3 0, 8|no commas|0.3"),
        (LIBSVM, "no effect|remove", {"header": False}),
    ],
    "drop": [
        (FOUR, "class?", {"drop": "clas"}),
        (FOUR, "5; they are 1 to 4", {"drop": "5"}),
        (FOUR, "0; they are 1 to 4", {"drop": "0"}),
        (FOUR, "", {"drop": "9" * 5000}),
        (FOUR, "", {"drop": ""}),
        (FOUR, "", {"drop": "a" * 200_000}),
        (FOUR, "", {"drop": True}),
        (LIBSVM, "", {"drop": "1"}),
    ],
    "columns": [
        (FOUR, "as in [id, 3, last]", {"columns": np.array([True, False])}),
        (LIBSVM, "", {"columns": "1"}),
    ],
    "binarise": [
        (with_value(0.5), "row 2, column 3|0.5|binarise: threshold"),
        (arrays(-ROWS.astype(int)), "-1|-1 to 0|threshold: 0"),
        (lines(GREY_16), "row 1, column 3|2", {"scale": 16}),
    ],
    "scale": [
        (with_value(-1), "row 2, column 3|-1|0|1", {"binarise": "threshold"}),
        (
            with_value(17),
            "row 2, column 3|17|0|16",
            {"binarise": "sample", "scale": 16},
        ),
        (lines(GREY_16), "scale: 16|threshold: 8", {"binarise": "threshold"}),
        *(
            (content, "0 to 16|scale: 16", {"binarise": binarise})
            for content in (arrays(DIM), arrays(DIM * 1.0), arrays(x=DIM))
            for binarise in ("none", "threshold", "sample")
        ),
        (lines(GREY_16 + 111), "scale: 127", {"binarise": "sample"}),
    ],
    "threshold": [
        (lines(GREY_16), "all values", {"binarise": "threshold", "scale": 32}),
        (arrays(ROWS), "all values", {"threshold": 1}),
    ],
    "hold_out": [
        (FOUR, "2 rows", {"drop": "class", "hold_out": 0.5, "hold_out_test": 0.5}),
        *(
            (FOUR, "", {"hold_out": it})
            for it in (0, 1.5, -1, "x", "nan", "9" * 5000, True)
        ),
    ],
    "hold_out_test": [
        (FOUR, "test part", {"drop": "class", "test": "bad", "hold_out_test": 1}),
    ],
    "rows": [(FOUR, "hold_out", {"rows": "last"})],
    "seed": [
        (FOUR, "hold_out", {"seed": 3}),
        (FOUR, "rows: random", {"hold_out": 3, "rows": "last", "seed": 3}),
    ],
}
CASES = [(field, *case) for field, cases in BAD.items() for case in cases]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_bad_rows_are_refused_in_one_line(case):
    field, content, told, options = (*case, {})[:4]
    error = refusal(load, path=put(content, "bad"), **options)
    assert error.field == field
    assert str(error).startswith(("bad: ", f"{field} "))
    assert len(str(error)) < 400
    assert len(str(error).splitlines()) == 1
    assert holds(error, told)


# In a grid

DATA = "{path: rows.csv, test: parts/t.npz}"
GRID = BARS.replace("{name: bars-and-stripes, size: 2}", DATA).replace(
    "[CD-1, PT_4]", "CD-1"
)
GRID = GRID.replace("bars:", "mine:").replace("trials: 2", "trials: 1")


def run(grid, code=0):
    return cbm("run", grid, "-j", 0, "-o", "out", code=code)


def test_a_grid_reads_files_next_to_it_and_keeps_their_names():
    Path("grids/parts").mkdir(parents=True)
    put(GRID.encode(), "grids/grid.yaml")
    put(lines(ROWS), "grids/rows.csv")
    put(arrays(test=ROWS[:5]), "grids/parts/t.npz")
    assert holds(run("grids/grid.yaml").stderr, "rows.csv|20|6|test 5")
    (cell, *_) = Store(Path("out/mine")).manifest().cells
    found = [cell.row[name] for name in ("data", "data_path", "data_test")]
    assert found == ["rows", "rows.csv", "parts/t.npz"]
    assert cell.settings.data.binarise is None
    Path("grids").rename("moved")
    assert "2 trials done in earlier runs" in run("moved/grid.yaml").stderr
    put(b"0,0\n1,1\n", "moved/rows.csv")
    refused = run("moved/grid.yaml", code=2)
    assert problems_of(refused) == [("5", "mine.data.test")]
    assert holds(refused.stderr, "parts/t.npz|6|rows.csv|2")


def test_the_same_rows_in_two_files_are_refused_as_one_data_set():
    put(lines(ROWS), "rows.csv")
    put(arrays(ROWS), "rows.npy")
    text = GRID.replace("rows.csv, test: parts/t.npz", "[rows.csv, rows.npy]")
    both = run(put(text.encode(), "both.yaml"), code=2)
    assert problems_of(both) == [("5", "mine.data")]
