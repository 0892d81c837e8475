"""Files of other formats, encodings and codings are named for what they are, with a remedy that works."""

import bz2
import importlib.util
import io
import json
import lzma
import pickle
import re
import shlex
import subprocess
import sys
import zipfile
from math import nan
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse

from cbm_cli.datasets.catalogue import load
from cbm_cli.datasets.columns import ALL, Columns
from cbm_cli.datasets.formats import rows_of_frame
from cbm_cli.datasets.sources import find
from tests.builders import arrays, holds, idx, lines, refusal

pytestmark = pytest.mark.usefixtures("here")

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


FOREIGN = {  # content, and the format or what converts it
    "rows.xlsx": (zipped("[Content_Types].xml", "xl/workbook.xml"), "Excel|pandas.read_excel"),
    "rows.xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99), "Excel|pandas.read_excel"),
    "rows.ods": (zipped("mimetype", "content.xml"), "OpenDocument|pandas.read_excel"),
    "rows.pt": (zipped("rows/data.pkl", "rows/data/0"), "PyTorch|numpy.save"),
    "rows.zip": (zipped("rows.csv"), "ZIP"),
    "rows.h5": (b"\x89HDF\r\n\x1a\n" + bytes(99), "HDF5|-v7|h5py"),
    "rows.mat": (b"MATLAB 7.3 MAT-file, HDF5 schema 1.00 ." + bytes(500), "HDF5|-v7|h5py"),
    "rows.feather": (b"ARROW1\0\0" + bytes(99), "Feather|pandas.read_feather"),
    "rows.json": (json.dumps(ROWS.tolist()).encode(), "JSON|numpy.save"),
    "records.json": (json.dumps([{"a": 0, "b": 1}]).encode(), "JSON|pandas.read_json"),
    "lines.json": (b'{"a": 0, "b": 1}\n{"a": 1, "b": 0}\n', "JSON|pandas.read_json|lines=True"),
    "rows.pkl": (pickle.dumps(ROWS), "pickle|numpy.save"),
    "rows.db": (b"SQLite format 3\0" + bytes(99), "SQLite|CSV"),
    "rows.rds": (b"X\n\0\0\0\3" + bytes(99), "R|write.csv"),
    "rows.csv.xz": (lzma.compress(lines(ROWS)), "xz -d"),
    "rows.csv.bz2": (bz2.compress(lines(ROWS)), "bunzip2"),
    "rows.csv.zst": (b"\x28\xb5\x2f\xfd" + bytes(99), "zstd -d"),
    "row.png": (b"\x89PNG\r\n\x1a\n" + bytes(99), "picture|numpy.save"),
    "rows.html": (b"<!DOCTYPE html><html>", "HTML"),
    "rows.arff": (b"@RELATION iris\n@DATA\n0,1\n", "ARFF|scipy.io.arff"),
    "comments.arff": (b"% 1. Iris\n%\n" + b"% more\n" * 300 + b"\n@relation iris\n@data\n0,1\n", "ARFF"),
    "rows.lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "Git LFS|git lfs pull"),
    "wide.csv": (lines(ROWS).decode().encode("utf-16"), "UTF-16|UTF-8|python -c"),
    "wider.csv": (lines(ROWS).decode().encode("utf-16-le"), "UTF-16|UTF-8|python -c"),
    "accents.csv": ("größe,höhe\n0,1\n1,0\n".encode("latin-1"), "UTF-8|Latin-1|python -c"),
}
TEXTS = {  # content, and the place and what converts it
    "commas.csv": (commas(GREY, ";").encode(), "line 1|sep=';'|decimal=','"),
    "tabs.csv": (commas(GREY, "\t").encode(), r"line 1|sep='\t'|decimal=','"),
    "mixed.csv": (b"a;b\n0;1\n0,5;1\n", "line 3|sep=';'|decimal=','"),
    "gap.csv": (b"a,b,c\n0,1,1\n0,,1\n", "line 3, column 2 (b)|dropna"),
    "na.csv": (b"a,b,c\n0,1,1\n0,NA,1\n", "line 3, column 2 (b)|NA|dropna"),
    "nan.csv": (b"a,b,c\n0,1,1\n0,nan,1\n", "row 2, column 2|nan|dropna"),
    "question.csv": (b"0,1,1\n0,?,1\n", "line 2, column 2|?|dropna"),
}


@pytest.mark.parametrize("name", [*FOREIGN, *TEXTS])
def test_what_a_file_is_is_told_by_its_content_with_the_way_to_convert_it(name):
    content, told = (FOREIGN | TEXTS)[name]
    for path in (name, "rows {x}'s"):  # by content, whatever it is called
        Path(path).write_bytes(content)
        error = refusal(load, path=path, binarise="threshold")
        assert (error.field, error.kinds) == ("path", ("unreadable" if name in FOREIGN else "value",))
        assert str(error).startswith(f"{path}: ")
        assert len(str(error).splitlines()) == 1
        assert holds(error, told)


PAIRS = [[0, 1], [1, 0]]
CONVERTED = {"wide.csv": ROWS, "rows.json": ROWS, "accents.csv": PAIRS, "lines.json": PAIRS}


@pytest.mark.parametrize("name", [*CONVERTED, "commas.csv", "tabs.csv"])
def test_the_remedy_converts_the_file(name):
    Path(name).write_bytes((FOREIGN | TEXTS)[name][0])
    told = str(refusal(load, path=name, binarise="threshold"))
    line = re.search(r"python (-c .*)", told)[1]
    subprocess.run([sys.executable, *shlex.split(line)], check=True)
    made = {path.name for path in Path().iterdir()} - {name}
    data = load(path=made.pop() if made else name, binarise="threshold")
    shares = np.round(GREY[-len(data.train) :], 3) > 0.5
    np.testing.assert_array_equal(data.train, CONVERTED.get(name, shares))


@pytest.mark.parametrize("words", ["true false", "True False", '"TRUE" "FALSE"'])
@pytest.mark.parametrize("mark", [",", ";", " ", "\t"])
def test_true_and_false_are_1_and_0(words, mark):
    on, off = words.split()
    for head in ("", mark.join(("a", "falsehood", "c", "d", "truth")) + "\n"):
        rows = "\n".join(mark.join(on if value else off for value in row) for row in ROWS.tolist())
        Path("rows.csv").write_text(f"{head}{rows}\n")
        np.testing.assert_array_equal(load(path="rows.csv").train, ROWS)


@pytest.mark.parametrize("head", ["a:1,b:2", "a:1;b:2", "1:a,2:b", "time 12:30,b"])
def test_column_names_with_colons_are_no_libsvm(head):
    mark = ";" if ";" in head else ","
    Path("rows.csv").write_text(f"{head}\n0{mark}1\n1{mark}0\n")
    np.testing.assert_array_equal(load(path="rows.csv").train, PAIRS)


# Arrays that nobody reads


@pytest.mark.parametrize("name", ["validation", "val", "valid", "validation_data"])
def test_all_documented_names_of_the_validation_part_are_read_and_labels_are_no_part(name):
    more = {"train_labels": np.eye(12)[:, :3], "y": np.arange(12), "names": np.array(["a", "b"])}
    Path("rows.npz").write_bytes(arrays(**more | {"train": ROWS, name: ROWS[:3]}))
    data = load(path="rows.npz")
    assert [*data.parts] == ["train", "valid"]
    np.testing.assert_array_equal(data.valid, ROWS[:3])


@pytest.mark.parametrize("others", [("valid", "val"), ("train_data",), ("test", "eval")])
def test_an_array_beside_train_that_could_be_a_part_is_named(others):
    Path("rows.npz").write_bytes(arrays(train=ROWS, **dict.fromkeys(others, ROWS[:3])))
    error = refusal(load, path="rows.npz")
    assert (error.field, error.kinds) == ("path", ("unknown",))
    assert holds(error, f"train|{others[-1]} (3 x 5)")


# Values beside the ends of a scale, and remedies that work


@pytest.mark.parametrize("noise", [2.3e-16, -1e-17, 1e-9, -9e-7])
@pytest.mark.parametrize("scale", [1.0, 255.0])
def test_errors_of_rounding_at_the_ends_are_the_ends(noise, scale):
    Path("rows.npy").write_bytes(arrays(ROWS + noise))
    np.testing.assert_array_equal(load(path="rows.npy").train, ROWS)
    Path("rows.npy").write_bytes(arrays((GREY + noise) * scale))
    data = load(path="rows.npy", binarise="none", **({} if scale == 1 else {"scale": 255}))
    np.testing.assert_allclose(data.train / 255, GREY, atol=0.51 / 255)


@pytest.mark.parametrize(
    ("values", "shown", "how"),
    [
        ([[0, 1.00001], [0.5, 1]], "1.00001", {"binarise": "none"}),
        ([[0, 1], [-0.00001, 1]], "-1e-05", {"binarise": "none"}),
        ([[0, 1], [0.3, 1.00002]], "0.3", {}),
        ([[1, 2], [2, 1]], "2", {}),
        ([[-1.5, 1], [1, -1]], "-1.5", {}),
        ([[0, 16], [3, 1]], "16", {}),
        ([[0, 255], [3, 1]], "255", {}),
        ([[1.25, 1.5], [1.5, 1.25]], "1.25", {}),
        ([[-1.0, -2], [-2, -1]], "-2|-1", {}),  # for which there is no option
    ],
)
def test_the_remedies_for_values_off_the_scale_work(values, shown, how):
    Path("rows.npy").write_bytes(arrays(np.array(values)))
    told = str(refusal(load, path="rows.npy", **how))
    assert holds(told, shown)
    remedies = re.findall(r"(threshold|scale): ([0-9.]+)", told)
    if np.max(values) < 0:
        assert remedies == []
        return
    for option, value in remedies or [("binarise", "threshold")]:
        more = {} if option != "scale" else {"binarise": "none"}
        data = load(path="rows.npy", **{option: value} | more)
        assert data.train.max() == data.levels
        if option == "threshold":
            np.testing.assert_array_equal(data.train, np.array(values) > float(value))


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte", "train-images.idx3-ubyte"])
@pytest.mark.parametrize("end", ["", ".gz"])
def test_files_of_mnist_are_found_under_both_names(name, end):
    Path(f"{name}{end}").write_bytes(idx(ROWS))
    assert find(Path(), "train-images-idx3-ubyte") == Path(f"{name}{end}")


# Other forms of rows


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("make", [scipy.sparse.csr_matrix, scipy.sparse.csr_array])
def test_sparse_matrices_of_scipy_are_filled_up(form, make):
    scipy.sparse.save_npz("rows.npz", make(ROWS.astype(float)).asformat(form))
    np.testing.assert_array_equal(load(path="rows.npz").train, ROWS)
    np.testing.assert_array_equal(load(path="rows.npz", drop=[1, 3]).train, ROWS[:, [1, 3, 4]])
    twice = ([0.5, 0.5, 1.0], ([0, 0, 1], [0, 0, 1]))  # entries that stand twice are added
    scipy.sparse.save_npz("rows.npz", scipy.sparse.coo_matrix(twice, (2, 2)))
    np.testing.assert_array_equal(load(path="rows.npz").train, [[1, 0], [0, 1]])


@pytest.mark.parametrize(
    ("change", "kind", "told"),
    [
        ({"indices": np.array([9] * 28, np.int32)}, "unreadable", ""),
        ({"indices": np.array([-1] * 28, np.int32)}, "unreadable", ""),
        ({"shape": np.array([2**30, 2**30])}, "limit", ""),
        ({"format": np.array(b"bsr")}, "unreadable", "tocsr"),
        ({"indptr": np.array([0, 5], np.int32)}, "unreadable", ""),
    ],
)
def test_damaged_sparse_matrices_are_refused(change, kind, told):
    scipy.sparse.save_npz("good.npz", scipy.sparse.csr_matrix(ROWS))
    with np.load("good.npz") as file:
        np.savez("rows.npz", **{**file, **change})
    error = refusal(load, path="rows.npz")
    assert (error.field, error.kinds, told in str(error)) == ("path", (kind,), True)


@pytest.mark.parametrize("shape", [(12, 5, 4), (12, 5, 4, 1), (12, 1, 5, 4)])
def test_pictures_are_rows_with_a_height_and_a_width(shape):
    pictures = np.random.default_rng(1).integers(0, 2, shape)
    np.save("rows.npy", pictures)
    data = load(path="rows.npy")
    np.testing.assert_array_equal(data.train, pictures.reshape(12, 20))
    assert data.image[:2] == (5, 4)
    assert load(path="rows.npy", columns="1-3").image is None
    np.save("colour.npy", np.zeros((12, 5, 4, 3)))
    assert refusal(load, path="colour.npy").kinds == ("value",)
    scipy.io.savemat("rows.mat", {"train": np.zeros((5, 4, 12))})  # MATLAB counts pictures last
    assert refusal(load, path="rows.mat").kinds == ("unsuited",)


def test_parquet_is_read_as_a_data_frame_where_there_is_a_package_for_it():
    Path("rows.parquet").write_bytes(b"PAR1" + bytes(99))
    error = refusal(load, path="rows.parquet")
    if not importlib.util.find_spec("pyarrow"):
        assert (error.field, error.kinds) == ("path", ("missing",))
        assert "pip install 'cbm-cli[parquet]'" in str(error)
        return
    assert error.kinds == ("unreadable",)
    frame_of(kind=["a", "b"] * 6).to_parquet("rows.parquet")
    np.testing.assert_array_equal(load(path="rows.parquet", drop="kind").train, ROWS)
    assert refusal(load, path="rows.parquet").kinds == ("value",)


@pytest.mark.parametrize("name", ["x_{}", "X_{}", "{}", "x_{}_data"])
def test_parts_have_the_names_of_other_libraries(name):
    parts = {name.format(part): ROWS.reshape(12, 5, 1) for part in ("train", "test")}
    np.savez("rows.npz", **parts, y_train=np.arange(12), y_test=np.arange(12))
    if name == "x_{}_data":
        assert refusal(load, path="rows.npz").kinds == ("missing",)
    else:
        assert {*load(path="rows.npz").parts} == {"train", "test"}


def frame_of(rows=ROWS, **more):
    return pd.DataFrame(rows, columns=[f"p{n}" for n in range(rows.shape[1])]).assign(**more)


FRAMES = {  # a frame, the columns, and the kind, place and remedy of what is wrong
    "label": (frame_of(label=1), ALL, "missing", "drop: [label]"),
    "words": (frame_of(kind="a"), ALL, "value", "row 1, column 6 (kind)|drop: [kind]"),
    "gap": (frame_of(q=[1.0] * 7 + [nan] + [0.0] * 4), ALL, "value", "row 8, column 6 (q)|dropna"),
    "gap behind": (frame_of(q=[nan] * 12), Columns(dropped="1-2"), "value", "row 1, column 6 (q)"),
    "nullable gap": (frame_of(q=pd.array([1] * 11 + [None], "Int64")), ALL, "value", "row 12, column 6 (q)"),
    "numbered words": (pd.DataFrame({0: [0, 1], 1: ["a", "b"]}), ALL, "value", "column 2|drop: [2]"),
    "unknown": (frame_of(), Columns(dropped="p9"), "unknown", "p9"),
    "nothing": (frame_of().iloc[:0], ALL, "missing", ""),
}


@pytest.mark.parametrize("what", FRAMES)
def test_data_frames_say_what_is_no_unit(what):
    frame, columns, kind, told = FRAMES[what]
    error = refusal(rows_of_frame, "frame", frame, columns)
    assert (str(error).partition(":")[0], error.kinds) == ("frame", (kind,))
    assert holds(error, told)


@pytest.mark.parametrize("kind", [bool, "uint8", "float32", "int64", "Int64", "boolean"])
def test_data_frames_are_rows_whatever_their_types(kind):
    found = rows_of_frame(
        "frame", frame_of(label=2).astype({f"p{n}": kind for n in range(5)}), Columns("1-5")
    )
    np.testing.assert_array_equal(found.values, ROWS)
