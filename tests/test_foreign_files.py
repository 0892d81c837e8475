"""Files of other formats, encodings and codings are named for what they are, with a remedy that works."""

import bz2
import io
import json
import lzma
import pickle
import re
import shlex
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from cbm_cli.datasets.catalogue import load
from cbm_cli.datasets.dataset import DataError, Image
from cbm_cli.datasets.formats import read_labels
from cbm_cli.datasets.toys import shifting_bar
from tests.builders import arrays, idx, lines

ROWS = np.random.Generator(np.random.Philox(key=7)).integers(0, 2, (12, 5), np.uint8)
GREY = np.linspace(0, 1, 60).reshape(12, 5)


def zipped(*names):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return stream.getvalue()


def commas(values, mark):
    return "\n".join(mark.join(f"{value:.3f}".replace(".", ",") for value in row) for row in values.tolist())


FOREIGN = {
    "rows.xlsx": (zipped("[Content_Types].xml", "xl/workbook.xml"), "an Excel workbook; .*pandas.read_excel"),
    "rows.xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99), "an Excel workbook; .*pandas.read_excel"),
    "rows.ods": (zipped("mimetype", "content.xml"), "an OpenDocument sheet; .*pandas.read_excel"),
    "rows.pt": (zipped("rows/data.pkl", "rows/data/0"), "a PyTorch file; .*numpy.save"),
    "rows.zip": (zipped("rows.csv"), "a ZIP archive without arrays; unpack it"),
    "rows.h5": (b"\x89HDF\r\n\x1a\n" + bytes(99), "an HDF5 file.*h5py"),
    "rows.parquet": (b"PAR1" + bytes(99), "a Parquet file; .*pandas.read_parquet"),
    "rows.feather": (b"ARROW1\0\0" + bytes(99), "a Feather file; .*pandas.read_feather"),
    "rows.json": (json.dumps(ROWS.tolist()).encode(), "JSON; .*numpy.save"),
    "records.json": (json.dumps([{"a": 0, "b": 1}]).encode(), "JSON; .*pandas.read_json"),
    "lines.json": (b'{"a": 0, "b": 1}\n{"a": 1, "b": 0}\n', "JSON; .*pandas.read_json"),
    "rows.pkl": (pickle.dumps(ROWS), "a Python pickle, which can run code; .*numpy.save"),
    "rows.db": (b"SQLite format 3\0" + bytes(99), "an SQLite database; save a table of it as CSV"),
    "rows.rds": (b"X\n\0\0\0\3" + bytes(99), "a file of R; .*write.csv"),
    "rows.csv.xz": (lzma.compress(lines(ROWS)), "packed by xz; unpack it: xz -d"),
    "rows.csv.bz2": (bz2.compress(lines(ROWS)), "packed by bzip2; unpack it: bunzip2"),
    "rows.csv.zst": (b"\x28\xb5\x2f\xfd" + bytes(99), "packed by zstd"),
    "row.png": (b"\x89PNG\r\n\x1a\n" + bytes(99), "a picture; put the pixels of all into one array"),
    "rows.html": (b"<!DOCTYPE html><html>", "HTML or XML, perhaps a web page"),
    "rows.arff": (b"@RELATION iris\n@DATA\n0,1\n", "ARFF; .*scipy.io.arff"),
    "comments.arff": (b"% 1. Iris\n%\n" + b"% more\n" * 300 + b"\n@relation iris\n@data\n0,1\n", "ARFF; "),
    "rows.lfs": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0",
        "a pointer of Git LFS; .*git lfs pull",
    ),
    "wide.csv": (lines(ROWS).decode().encode("utf-16"), "text in UTF-16; save it as UTF-8: python -c"),
    "wider.csv": (lines(ROWS).decode().encode("utf-16-le"), "text in UTF-16; save it as UTF-8: python -c"),
    "accents.csv": ("größe,höhe\n0,1\n1,0\n".encode("latin-1"), "no text in UTF-8, perhaps in Latin-1"),
    "commas.csv": (commas(GREY, ";").encode(), "line 1 has decimal commas; .*sep=';', decimal=','"),
    "tabs.csv": (commas(GREY, "\t").encode(), r"line 1 has decimal commas; .*sep='\\t', decimal=','"),
    "mixed.csv": (b"a;b\n0;1\n0,5;1\n", "line 3 has decimal commas; .*sep=';', decimal=','"),
    "gap.csv": (b"a,b,c\n0,1,1\n0,,1\n", r"line 3, column 2 \(b\) is empty; fill the gap, or leave out such"),
    "na.csv": (b"a,b,c\n0,1,1\n0,NA,1\n", r"line 3, column 2 \(b\) is NA, a missing value; fill the gap"),
    "nan.csv": (b"a,b,c\n0,1,1\n0,nan,1\n", "row 2, column 2 is nan, not a number; fill the gap"),
    "question.csv": (b"0,1,1\n0,?,1\n", r"line 2, column 2 is \?, a missing value; fill the gap"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_a_file_is_is_told_by_its_content_with_the_way_to_convert_it(name, tmp_path):
    content, words = FOREIGN[name]
    for path in (tmp_path / name, tmp_path / "rows {x}'s"):  # by content, whatever it is called
        path.write_bytes(content)
        with pytest.raises(DataError, match=words) as raised:
            load(path=str(path), binarise="threshold")
        assert str(raised.value).startswith(f"{path}: ")
        assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["rows.xlsx", "rows.parquet", "rows.json", "wide.csv"])
def test_files_of_labels_are_named_alike(name, tmp_path):
    content, words = FOREIGN[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words):
        read_labels(tmp_path / name)


@pytest.mark.parametrize(
    "name", ["wide.csv", "accents.csv", "commas.csv", "tabs.csv", "rows.json", "lines.json"]
)
def test_the_remedy_converts_the_file(name, tmp_path):
    (tmp_path / name).write_bytes(FOREIGN[name][0])
    with pytest.raises(DataError) as raised:
        load(path=str(tmp_path / name), binarise="threshold")
    line = re.search(r"python (-c .*)", str(raised.value))[1]
    subprocess.run([sys.executable, *shlex.split(line)], check=True)
    made = {path.name for path in tmp_path.iterdir()} - {name}
    data = load(path=str(tmp_path / (made.pop() if made else name)), binarise="threshold")
    expected = {
        "wide.csv": ROWS,
        "accents.csv": [[0, 1], [1, 0]],
        "lines.json": [[0, 1], [1, 0]],
        "rows.json": ROWS,
    }
    if name in expected:
        np.testing.assert_array_equal(data.train, expected[name])
    else:
        np.testing.assert_array_equal(data.train, np.round(GREY[-len(data.train) :], 3) > 0.5)


@pytest.mark.parametrize("words", ["true false", "True False", "TRUE FALSE", '"true" "false"'])
@pytest.mark.parametrize("mark", [",", ";", " ", "\t"])
def test_true_and_false_are_1_and_0(words, mark, tmp_path):
    on, off = words.split()
    for head in ("", mark.join(("a", "falsehood", "c", "d", "truth")) + "\n"):
        rows = "\n".join(mark.join(on if value else off for value in row) for row in ROWS.tolist())
        (tmp_path / "rows.csv").write_text(f"{head}{rows}\n")
        np.testing.assert_array_equal(load(path=str(tmp_path / "rows.csv")).train, ROWS)


@pytest.mark.parametrize("head", ["a:1,b:2", "a:1;b:2", "1:a,2:b", "time 12:30,b"])
def test_column_names_with_colons_are_no_libsvm(head, tmp_path):
    mark = ";" if ";" in head else ","
    (tmp_path / "rows.csv").write_text(f"{head}\n0{mark}1\n1{mark}0\n")
    np.testing.assert_array_equal(load(path=str(tmp_path / "rows.csv")).train, [[0, 1], [1, 0]])


# Arrays that nobody reads


@pytest.mark.parametrize("name", ["validation", "val", "valid", "validation_data"])
def test_all_documented_names_of_the_validation_part_are_read(name, tmp_path):
    (tmp_path / "rows.npz").write_bytes(arrays(**{"train": ROWS, name: ROWS[:3]}))
    np.testing.assert_array_equal(load(path=str(tmp_path / "rows.npz")).valid, ROWS[:3])


@pytest.mark.parametrize(
    "others", [("x_test",), ("X_valid",), ("holdout",), ("valid", "val"), ("train_data",), ("test", "eval")]
)
def test_an_array_beside_train_that_could_be_a_part_is_named(others, tmp_path):
    (tmp_path / "rows.npz").write_bytes(arrays(train=ROWS, **dict.fromkeys(others, ROWS[:3])))
    size = "12 x 5" if others == ("train_data",) else "3 x 5"
    with pytest.raises(DataError, match=rf"holds train.*, and {others[-1]} \(3 x 5\), which is no part"):
        load(path=str(tmp_path / "rows.npz"))
    assert size


def test_labels_and_arrays_of_other_widths_are_no_parts(tmp_path):
    more = {"train_labels": np.eye(12)[:, :3], "y": np.arange(12), "names": np.array(["a", "b"])}
    (tmp_path / "rows.npz").write_bytes(arrays(train=ROWS, **more))
    np.testing.assert_array_equal(load(path=str(tmp_path / "rows.npz")).train, ROWS)


# Values beside the ends of a scale, and remedies that work


@pytest.mark.parametrize("noise", [2.3e-16, -1e-17, 1e-9, -9e-7])
@pytest.mark.parametrize("scale", [1.0, 255.0])
def test_errors_of_rounding_at_the_ends_are_the_ends(noise, scale, tmp_path):
    path = tmp_path / "rows.npy"
    path.write_bytes(arrays(ROWS + noise))
    np.testing.assert_array_equal(load(path=str(path)).train, ROWS)
    grey = GREY * scale
    for values in (grey, grey + noise * scale):
        path.write_bytes(arrays(values))
        how = {} if scale == 1 else {"scale": 255}
        data = load(path=str(path), binarise="none", **how)
        np.testing.assert_allclose(data.train / 255, GREY, atol=0.51 / 255)


@pytest.mark.parametrize(
    ("values", "shown", "binarise"),
    [
        ([[0, 1.00001], [0.5, 1]], "1.00001", "none"),
        ([[0, 1], [-0.00001, 1]], "-1e-05", "none"),
        ([[0, 1], [0.3, 1.00002]], "0.3", "refuse"),
        ([[1, 2], [2, 1]], "2", "refuse"),
        ([[-1, 1], [1, -1]], "-1", "refuse"),
        ([[-1.5, 1], [1, -1]], "-1.5", "refuse"),
        ([[0, 16], [3, 1]], "16", "refuse"),
        ([[2, 3], [3, 2]], "2", "refuse"),
        ([[0, 255], [3, 1]], "255", "refuse"),
        ([[0, 0.25], [1, 0.75]], "0.25", "refuse"),
        ([[1.25, 1.5], [1.5, 1.25]], "1.25", "refuse"),
    ],
)
def test_the_remedies_for_values_off_the_scale_work(values, shown, binarise, tmp_path):
    (tmp_path / "rows.npy").write_bytes(arrays(np.array(values)))
    with pytest.raises(DataError) as raised:
        load(path=str(tmp_path / "rows.npy"), **({"binarise": binarise} if binarise != "refuse" else {}))
    told = str(raised.value)
    assert re.search(rf"(is|reach) {re.escape(shown)}[;,]", told)
    ways = re.findall(r"(threshold|scale): ([0-9.]+)", told) or [("binarise", "threshold")]
    for option, value in ways:
        more = {} if option != "scale" else {"binarise": "none"}
        data = load(path=str(tmp_path / "rows.npy"), **{option: value} | more)
        assert data.train.max() == data.levels
        if option == "threshold":
            np.testing.assert_array_equal(data.train, np.array(values) > float(value))


def test_values_below_zero_alone_have_no_option_and_are_told_so(tmp_path):
    (tmp_path / "rows.npy").write_bytes(arrays(np.array([[-1.0, -2], [-2, -1]])))
    with pytest.raises(DataError, match="values of -2 to -1: add a number to all, no option does it"):
        load(path=str(tmp_path / "rows.npy"))


# Names and shapes


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte", "train-images.idx3-ubyte"])
@pytest.mark.parametrize("end", ["", ".gz"])
def test_files_of_mnist_are_found_under_both_names(name, end, tmp_path):
    from cbm_cli.datasets.sources import find

    (tmp_path / f"{name}{end}").write_bytes(idx(ROWS))
    assert find(tmp_path, "train-images-idx3-ubyte") == tmp_path / f"{name}{end}"


def test_a_shifting_bar_is_a_line():
    assert shifting_bar(9, 1).image == Image(1, 9)
