"""Data that cannot be trained on: one line names the file, the place and what to write instead."""

import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from cbm_cli.datasets.loading import load

from tests.builders import arrays, holds, idx, lines, mat, refusal

ROWS = np.random.Generator(np.random.Philox(key=11)).integers(0, 2, (20, 6), np.uint8)
GREY = (np.arange(120) % 17).reshape(20, 6)
GREY[0, 1] = 0  # a first line of different numbers may be names
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

# By the field of the message: content of the file ``bad``, words of the message, other options
BAD = {
    "path": [
        (None, ""),
        (b"", ""),
        (packed(b""), ""),
        (b"# nothing\n", ""),
        (packed(lines(ROWS))[:-9], "gzip"),
        ("größe,b\n0,1\n".encode("latin-1"), "UTF-8|CSV"),
        (b"0,1\n1,\0\0\n", "NPY|NPZ|MAT (up to -v7)|IDX"),
        (b'[{"a": 0, "b": 1}]', "no rows"),
        (b"a,b\n", "a,b"),
        (b"0,1,1\na,b,c\n", "line 2, column 1|a|numbers, as 0 and 1"),  # dropping all leaves none
        (b"a,b\nyes,no\nno,yes\n", "line 2, column 1 (a) is yes|numbers, as 0 and 1"),
        (b"sep=;\na;b\n0;1\n", "line 2, column 1 (sep=) is a|numbers, as 0 and 1"),
        (b"a,b\n0,1\n# end\n", "line 3|1 column,|2"),
        (b"a,b,c\n0,1,\n1,0,\n", "drop: [c]; 2 gaps"),
        (b"a\tb\tc\n1\t\t0\n\t1\t0\n0\t1\t1\n", "2 gaps|line 2, column 2 (b)|line 3, column 1 (a)"),
        (b"a,b,c\n0,0,0\n" + b",,\n" * 15, "45 gaps|line 6, column 1 (a)|35 more"),
        (b"0,1,0\n1,1,0\n1,1", "line 3|2|3"),
        (b"a,b,class\n0,1,x\n1,0\n1,1,y\n", "line 3|2", {"drop": "class"}),
        (b"a,b,c\n0,1\n1,0\n", "3|2"),
        (b"a\n0,1,1\n1,0,0\n", "1|3"),
        (b'a,b\n0,"1\n1,0\n', "quotes"),
        (zipped.getvalue(), "ZIP|Excel|CSV"),
        (with_value(np.inf), "row 2, column 3|inf"),
        (with_value(np.nan), "1 gap|row 2, column 3|dropna"),
        (arrays(np.zeros((0, 4))), ""),
        (arrays(np.zeros((12, 5, 4, 3))), "(12, 5, 4, 3)"),  # pictures with colors
        (arrays(ROWS)[:-9], "111|120"),
        (arrays(np.array([[{}]], dtype=object)), ""),
        (arrays(train=ROWS)[:-40], "damaged"),
        (arrays(a=ROWS, b=ROWS), "a 20 x 6|b 20 x 6|train, valid, test"),
        (arrays(train=ROWS, valid=ROWS, val=ROWS[:3]), "train|val 3 x 6"),
        (arrays(test=ROWS), "train|test"),
        (mat(X=ROWS)[:-20], "damaged"),
        (mat(y=np.ones((4, 1))), "y 4 x 1"),
        (mat(train=np.array(["abc"])), "no numbers"),
        (mat(train=np.zeros((5, 4, 12))), "reshape(x, [], n)"),  # MATLAB counts pictures last
        (packed(idx(ROWS) + b"\0"), "IDX|121|120"),
        (bytes((0, 0, 13, 2)) + bytes(99), "IDX"),
        (b"PAR1" + bytes(99), ""),
        (b"1 1:1 a:1\n", "line 1|a:1"),
        (b"1 0:1 1:1\n", "line 1|0|1"),
        (b"1 2:1 2:1\n", "line 1|2"),
        (b"1 99999999:1\n", "line 1|99999999"),
        (arrays(0 * ROWS), "0"),
    ],
    "header": [(b"a,1,1\n0,1,1\n", "a, 1, 1|header: true")],
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
        (FOUR, "1-3; they are 1 to 4", {"columns": "1-3"}),
        (FOUR, "as in [id, 3, last]", {"columns": np.array([True, False])}),
        (LIBSVM, "", {"columns": "1"}),
    ],
    "binarise": [
        (with_value(0.5), "row 2, column 3|0.5|binarise: threshold"),
        (arrays(-ROWS.astype(int)), "-1|add a number"),  # no threshold has values above it
        (lines(GREY), "row 1, column 3|2", {"scale": 16}),
    ],
    "scale": [
        (with_value(-1), "row 2, column 3|-1|0|1", {"binarise": "threshold"}),
        (with_value(17), "row 2, column 3|17|0|16", {"binarise": "sample", "scale": 16}),
        (lines(GREY), "scale: 16|threshold: 8", {"binarise": "threshold"}),
        (lines(GREY), "scale: 16|threshold: 8", {"binarise": "none"}),
        (lines(GREY + 111), "scale: 127", {"binarise": "sample"}),
    ],
    "threshold": [
        (lines(GREY), "all values", {"binarise": "threshold", "scale": 32}),
        (arrays(ROWS), "all values", {"threshold": 1}),
    ],
    "hold_out": [
        (FOUR, "2 rows", {"drop": "class", "hold_out": 0.5, "hold_out_test": 0.5}),
        *((FOUR, "", {"hold_out": it}) for it in (0, 1.5, -1, "x", "nan", "9" * 5000, True)),
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
def test_bad_rows_are_refused_in_one_line(case, here):
    field, content, told, options = (*case, {})[:4]
    if content is not None:
        Path("bad").write_bytes(content)
    error = refusal(load, path="bad", **options)
    assert error.field == field
    assert str(error).startswith(("bad: ", f"{field} "))
    assert len(str(error)) < 400
    assert len(str(error).splitlines()) == 1
    assert holds(error, told)
