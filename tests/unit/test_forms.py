"""Rows as other programs and libraries keep them: pictures, sparse matrices, Parquet, frames."""

import re
from fractions import Fraction
from math import inf, nan
from pathlib import Path

import cbm_cli as cbm
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import yaml
from cbm_cli.datasets.columns import Columns
from cbm_cli.datasets.formats import ALL, table_of
from cbm_cli.datasets.loading import load
from numpy.testing import assert_allclose, assert_array_equal

from tests.builders import arrays, grid_text, holds, refusal

pytestmark = pytest.mark.usefixtures("here")

ROWS = np.random.Generator(np.random.Philox(key=7)).integers(0, 2, (12, 5), np.uint8)
GREY = np.linspace(0, 1, 60).reshape(12, 5)


# Values outside of the ends of a scale, and remedies that work


@pytest.mark.parametrize("noise", [2.3e-16, -9e-7])
@pytest.mark.parametrize("scale", [1.0, 255.0])
def test_errors_of_rounding_at_the_ends_are_the_ends(noise, scale):
    Path("rows.npy").write_bytes(arrays(ROWS + noise))
    assert_array_equal(load(path="rows.npy").train, ROWS)
    Path("rows.npy").write_bytes(arrays((GREY + noise) * scale))
    data = load(path="rows.npy", binarise="none", **({} if scale == 1 else {"scale": 255}))
    assert_allclose(data.train / 255, GREY, atol=0.51 / 255)


def test_the_remedies_for_values_off_the_scale_work():
    for values, shown, how in (
        ([[0, 1.00001], [0.5, 1]], "1.00001", {"binarise": "none"}),
        ([[0, 1], [0.3, 1.00002]], "0.3", {}),
        ([[-1.5, 1], [1, -1]], "-1.5", {}),
        ([[0, 255], [3, 1]], "255", {}),
    ):
        Path("rows.npy").write_bytes(arrays(np.array(values)))
        told = str(refusal(load, path="rows.npy", **how))
        assert holds(told, shown)
        remedies = re.findall(r"(threshold|scale): ([0-9.]+)", told)
        for option, value in remedies or [("binarise", "threshold")]:
            more = {} if option != "scale" else {"binarise": "none"}
            data = load(path="rows.npy", **{option: value} | more)
            assert data.train.max() == data.levels
            if option == "threshold":
                assert_array_equal(data.train, np.array(values) > float(value))


# Other forms of rows


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_sparse_matrices_of_scipy_are_filled_up(form):
    matrix = scipy.sparse.csr_array(ROWS.astype(float)).asformat(form)
    assert_array_equal(table_of(matrix).values, ROWS)
    assert_array_equal(table_of(matrix, Columns(None, "1, 3")).values, ROWS[:, [1, 3, 4]])
    twice = ([0.5, 0.5, 1.0], ([0, 0, 1], [0, 0, 1]))  # entries that occur twice are added
    assert_array_equal(table_of(scipy.sparse.coo_matrix(twice, (2, 2))).values, [[1, 0], [0, 1]])


@pytest.mark.parametrize("shape", [(12, 5, 4), (12, 5, 4, 1), (12, 1, 5, 4)])
def test_pictures_are_rows_with_a_height_and_a_width(shape):
    pictures = np.random.default_rng(1).integers(0, 2, shape)
    np.save("rows.npy", pictures)
    data = load(path="rows.npy")
    assert_array_equal(data.train, pictures.reshape(12, 20))
    assert data.image[:2] == (5, 4)
    assert load(path="rows.npy", columns="1, 2, 3").image is None


def test_parquet_is_read_as_a_data_frame_where_there_is_a_package_for_it():
    pytest.importorskip("pyarrow")
    frame_of(kind=["a", "b"] * 6).to_parquet("rows.parquet")
    assert_array_equal(load(path="rows.parquet", drop="kind").train, ROWS)
    assert holds(refusal(load, path="rows.parquet"), "kind")


def frame_of(rows=ROWS, **more):
    return pd.DataFrame(rows, columns=[f"p{n}" for n in range(rows.shape[1])]).assign(**more)


GAPS = "drop: [q]|12 gaps|row 1, column 6 (q)|2 more|dropna"
FRAMES = {  # a frame, the columns, and the place and remedy of what is wrong
    "label": (frame_of(label=1), ALL, "drop: [label]"),
    "dates": (frame_of(day=pd.Timestamp("2020-01-01")), ALL, "row 1, column 6 (day)|drop: [day]"),
    "gaps": (frame_of(q=[nan] * 12), Columns(dropped="1, 2"), GAPS),
    "nullable gap": (frame_of(q=pd.array([1] * 11 + [None], "Int64")), ALL, "row 12, column 6 (q)"),
    "numbered words": (pd.DataFrame({0: [0, 1], 1: ["a", "b"]}), ALL, "column 2 (1)|drop: [2]"),
    "endless": (frame_of(np.full((3, 5), inf)), ALL, "row 1, column 1 (p0) is|no finite number"),
    "nothing": (frame_of().iloc[:0], ALL, "no rows"),
    "a list of words": ([["a"]], ALL, "list|(1, 1)"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("what", FRAMES)
def test_columns_of_data_frames_that_are_not_units_are_named(what):
    frame, columns, told = FRAMES[what]
    assert holds(refusal(table_of, frame, columns), told)


@pytest.mark.parametrize("kind", ["bool", "float32", "Int64", "boolean", "object", "category"])
def test_data_frames_are_rows_whatever_their_types(kind):
    frame = frame_of(label=2).astype({f"p{n}": kind for n in range(5)})
    found = table_of(frame, Columns("1, 2, 3, 4, 5"))
    assert_array_equal(found.values, ROWS)
    assert found.names == ("p0", "p1", "p2", "p3", "p4")
    assert_array_equal(table_of(frame_of().map(Fraction)).values, ROWS)


# Data frames of other libraries

GRID = grid_text("rbm", data="{name: bars-and-stripes, size: 2}")


def polars(frame):
    return pytest.importorskip("polars").DataFrame(frame.to_dict("list"))


def arrow(frame):
    return pytest.importorskip("pyarrow").table(frame.to_dict("list"))


def batch(frame):
    return arrow(frame).to_batches()[0]


@pytest.mark.parametrize("made", [polars, arrow, batch])
def test_frames_of_other_libraries_turn_themselves_into_pandas(made):
    found = table_of(made(frame_of(kind="a")), Columns(dropped="kind"))
    assert_array_equal(found.values, ROWS)
    assert found.names == ("p0", "p1", "p2", "p3", "p4")
    assert holds(refusal(table_of, made(frame_of(kind="a"))), "row 1, column 6 (kind)|drop: [kind]")
    gaps = made(frame_of().astype(object).mask(np.eye(12, 5, dtype=bool), None))
    assert holds(refusal(table_of, gaps), "5 gaps|row 5, column 5 (p4)")
    flags = made(frame_of(ROWS.astype(bool)))
    assert_array_equal(table_of(flags).values, ROWS)


class Foreign:
    """A frame of a library that needs a package to turn itself into pandas."""

    def to_pandas(self):
        raise ModuleNotFoundError("No module named 'pyarrow'")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"path": ROWS, "test": Foreign()}, "data['test']|'pyarrow'|pip install pyarrow"),
        ({"path": frame_of(), "drop": "p9"}, "data['path']|p9"),
        ({"path": frame_of(), "test": frame_of().rename(columns={"p1": "q"})}, "data['test']|q|p1"),
        ({"trian": frame_of()}, "trian"),
        (ROWS * 3, "threshold"),
        (np.ma.masked_array(ROWS, np.eye(12, 5)), "data['path']|5 gaps|row 1, column 1"),
    ],
    ids=range(6),
)
def test_what_cannot_be_read_from_python_is_said_in_a_line(data, told):
    error = refusal(cbm.run, yaml.safe_load(GRID), data=data, progress=False)
    assert len(str(error).splitlines()) == 1
    assert holds(error, told)


@pytest.mark.parametrize("rows", [frame_of(), ROWS, arrow(frame_of())], ids=range(3))
def test_rows_within_a_grid_are_refused_with_where_to_pass_them(rows):
    grid, changes = yaml.safe_load(GRID), {"data": {"path": rows}}
    within = {"experiments": {"toy": changes}}
    for error in (refusal(cbm.run, within), refusal(cbm.run, grid, changes=changes)):
        assert holds(error, f"{type(rows).__name__}|data=rows")
    for wrong in ({"train": rows, "path": rows}, {"test": rows}):
        assert holds(refusal(cbm.run, grid, data=wrong), "path")


def test_frames_from_python_are_trained_on_with_their_parts_and_names():
    turned = frame_of()[["p4", "p3", "p2", "p1", "p0"]].assign(label=2)
    label = polars(pd.DataFrame({"drop": ["label"]}))["drop"]
    given = {"path": frame_of(label=1), "test": polars(turned), "drop": label, "name": "mine"}
    short = {"trials": 1, "progress": False, "changes": {"epochs": 1, "batch": 2}}
    for more in ({"hold_out": np.int64(3)}, {"hold_out": 2.0}, {"valid": arrow(frame_of(label=1))}):
        rows = cbm.run(yaml.safe_load(GRID), data=given | more, **short).summaries()
        assert ({*rows["data"]}, {*rows["n_test"]}) == ({"mine"}, {12})
    data = [load(path=str(path), columns="all") for path in Path("results/data").glob("*.npz")]
    assert sorted(len(one.parts) for one in data) == [2, 3]
    for one in data:
        assert one.names == ("p0", "p1", "p2", "p3", "p4")
        for rows in one.parts.values():
            assert_array_equal(rows, ROWS)
    bar = cbm.data("shifting-bar", size=5, bar=1) | {"test": None}
    assert {*cbm.run(yaml.safe_load(GRID), data=bar, **short).summaries()["n_train"]} == {5}
