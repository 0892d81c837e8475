"""A user's own rows: columns that are units, labels, rows that are held out, other
libraries.
"""

import json
import re
from fractions import Fraction
from math import nan
from pathlib import Path

import cbm_cli as api
import numpy as np
import pandas as pd
import pytest
import yaml
from cbm_cli.datasets.columns import Columns
from cbm_cli.datasets.loading import describe, load, load_source
from cbm_cli.datasets.spec import Data
from cbm_cli.datasets.tables import ALL, table_of
from cbm_cli.grid.read import read_grid
from cbm_cli.grid.settings import Settings
from numpy.testing import assert_array_equal

from tests.builders import arrays, cbm, grid_text, holds, lines, refusal, run_grid
from tests.networks import layered, machine_file

pytestmark = pytest.mark.usefixtures("here")

ROWS = np.random.Generator(np.random.Philox(key=5)).integers(0, 2, (30, 4), np.uint8)
ROWS[:2] = [[0, 1, 0, 1], [1, 0, 1, 0]]
ALL_DIFFERENT = ((np.arange(200)[:, None] >> np.arange(8)) & 1).astype(np.uint8)


def table(names, *columns):
    """Return a CSV file of columns under their names."""
    return "".join(
        ",".join(map(str, row)) + "\n" for row in (names, *zip(*columns, strict=True))
    )


def write(text, name="rows.csv"):
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())


def read(text, **options):
    """Load the data set of a file."""
    write(text)
    return load(path="rows.csv", **options)


def complaint(text, **options):
    """Return why the data set of a file cannot be loaded."""
    return refusal(read, text, **options)


A, B, C, D = ROWS.T.tolist()
FIVE = np.random.Generator(np.random.Philox(key=7)).integers(0, 2, (12, 5), np.uint8)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"drop": "class, b"}, [0, 2]),
        ({"columns": "c,a"}, [2, 0]),
        ({"columns": "all"}, [0, 1, 2, 3]),
        ({"columns": "all", "drop": "b"}, [0, 2, 3]),
        ({"drop": "last"}, [0, 1, 2]),
        ({"drop": [-1, "a"]}, [1, 2]),
        ({"drop": -2, "columns": "1, b, a, c, class"}, [0, 1, 3]),
        ({"columns": pd.Index(["c", "a"])}, [2, 0]),
        ({"columns": np.float64([3, 1])}, [2, 0]),
        *(({"drop": four}, [0, 1, 2]) for four in (4.0, np.int64(4), np.array(4))),
    ],
)
def test_columns_are_chosen_and_dropped_by_name_and_number(options, expected):
    data = read(table(["a", "b", "c", "class"], A, B, C, D), **options)
    assert_array_equal(data.train, ROWS[:, expected])


@pytest.mark.parametrize("content", [arrays(train=ROWS, test=ROWS), lines(ROWS, " ")])
def test_arrays_and_files_without_names_are_chosen_by_number(content):
    assert_array_equal(read(content, columns="last, 1, 2").train, ROWS[:, [3, 0, 1]])


def test_a_source_of_the_command_line_has_the_options_of_a_file():
    write(table(["a", "b", "c", "class"], A, B, C, D), "odd:rows.csv")
    found = load_source("odd:rows.csv:drop=b,class,flip=true").train
    assert_array_equal(found, 1 - ROWS[:, [0, 2]])
    error = refusal(load_source, "odd:rows.csv:drop=b")
    assert error.field == "path"
    assert holds(error, "drop=class|columns=all|--data odd:rows.csv:drop=class")


def test_columns_that_are_left_out_may_hold_anything_and_each_part_has_its_own_names():
    words, times = ['"setosa"', "true", '"a, b"'] * 10, ["12:30", "", "nan"] * 10
    names = ["name", "classic", '"b, c"', "when", "invalid"]  # not class, not id
    write(table(names, words, A, B, times, D))
    write(table(names[::-1], D, times, B, A, words), "turned.csv")
    for options in {"drop": ["name", "when"]}, {"columns": 'classic, "b, c", invalid'}:
        data = load(path="rows.csv", test="turned.csv", flip=True, **options)
        assert data.names == ("classic", "b, c", "invalid")
        for part in data.parts.values():
            assert_array_equal(part, 1 - ROWS[:, [0, 1, 3]])
    error = refusal(load, test="turned.csv", path="rows.csv", drop=[1, 4])
    assert (error.field, str(error).partition(":")[0]) == ("test", "turned.csv")
    named = arrays(train=ROWS, test=ROWS, names=np.array([*"abcd"]))
    assert read(named, drop="b").names == ("a", "c", "d")


def test_a_word_for_sums_in_several_rows_is_a_word_like_others():
    text = "kind,a,b\ntotal,0,1\npart,1,0\ntotal,1,1\n"
    assert_array_equal(read(text, drop="kind").train, [[0, 1], [1, 0], [1, 1]])
    alone = text.replace("total", "all", 1)
    assert holds(complaint(alone, drop="kind"), "line 4 is total|remove it")


def test_marks_at_the_ends_of_lines_are_never_offered_as_a_column_to_train_on():
    text = "a,b\n0,1,\n1,0,\n"
    assert str(complaint(text)).endswith("write drop: [3]")
    assert_array_equal(read(text, drop=3).train, [[0, 1], [1, 0]])


LABELS = "class LABEL labels target ID y index class_label row_id"


@pytest.mark.parametrize("name", LABELS.split())
def test_a_column_named_like_labels_is_asked_about_and_never_trained_on_in_silence(
    name,
):
    error = complaint(table(["a", "b", name], A, B, C))
    assert error.field == "path"
    assert f"drop: [{name}], or columns: all" in str(error)


NAMED = "{},a,b\n9,0,1\n7,1,0\n8,1,1\n"
R = '"a" "b"\n"1" 0 1\n"2" 1 0\n"3" 1 1\n'  # write.table


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        *((NAMED.format(name), "1") for name in ("", "#")),
        (NAMED.format("No."), "No."),
        ("n,a,b\n1,0,1\n2,1,0\n3,1,1\n", "n"),  # it counts the rows
        ("a,,b\n0,5,1\n1,5,0\n1,5,1\n", "2"),
        (R, "1"),
        (R.replace(" ", "\t"), "1"),
        ("id,a,b,class\n9,0,1,1\n7,1,0,0\n8,1,1,1\n", "id, class"),
        (
            "id,a,b,species\n9,0,1,setosa\n7,1,0,setosa\n8,1,1,virginica\n",
            "id, species",
        ),
        ("0,1,setosa\n1,0,setosa\n1,1,virginica\n", "3"),
        ("1,0,1\n2,1,0\n3,1,1\n", "1"),
    ],
)
def test_labels_text_and_numbers_of_rows_are_asked_about_at_once(text, listed):
    options = {"header": False} if text[0].isdigit() else {}
    error = complaint(text, **options)
    assert error.field == "path"
    assert f"drop: [{listed}]" in str(error)
    assert ("columns: all" in str(error)) == (
        "setosa" not in text
    )  # not to train on words
    data = read(text, drop=listed, **options)
    assert_array_equal(data.train, [[0, 1], [1, 0], [1, 1]])
    assert data.names == (() if options else ("a", "b"))


def test_ways_to_hold_rows_out_have_their_own_cells_and_are_said():
    dumps = set()
    for way in ("", ", rows: last", ", seed: 1"):
        text = grid_text(
            "rbm", data=f"{{name: shifting-bar, size: 9, bar: 1, hold_out: 3{way}}}"
        )
        (cell,) = read_grid("grid.yaml", text=text).experiments["toy"].cells
        assert "valid 3 rows" in describe(cell.data, load(cell.data))
        dumps.add(json.dumps(cell.model_dump(mode="json"), sort_keys=True))
        assert Settings.from_manifest(cell.in_manifest()).data == cell.data
    assert len(dumps) == 3


def test_one_file_gives_rows_for_validation_and_test_too():
    text, held = lines(ALL_DIFFERENT), []
    for how in ({}, {"seed": 3}, {"seed": 3}, {"rows": "last"}):
        data = read(text, hold_out=40, hold_out_test=0.1, **how)
        assert [len(its) for its in data.parts.values()] == [140, 40, 20]
        train, valid, test = (its @ (1 << np.arange(8)) for its in data.parts.values())
        assert sorted([*train, *valid, *test]) == [
            *range(200)
        ]  # the numbers of the rows
        assert train.tolist() == sorted(train)  # which keep their order
        held.append(tuple(valid.tolist()))
    assert held[3] == (*range(140, 180),)
    assert len({*held}) == 3  # a seed draws the same rows again
    assert abs(np.mean(held[:2]) - 99.5) < 4 * 200 / 12**0.5 / 80**0.5
    for rows, count in (("6e0", 6), (2.0, 2), (1, 1), ("0.2", 40), (0.001, 1)):
        assert len(load(path="rows.csv", hold_out=rows).valid) == count
    alone = load(path=Path("rows.csv"), hold_out_test=np.int64(20))
    assert (len(alone.train), alone.valid, len(alone.test)) == (180, None, 20)
    assert "test 20 rows" in describe(Data(path="rows.csv", hold_out_test=20), alone)


def test_a_share_of_rows_is_rounded_to_the_nearest_number():
    for rows, share, held in (
        (9, 0.3, 3),
        (9, 0.25, 2),
        (200, 0.013, 3),
        (12, 0.01, 1),
    ):
        data = read(lines(ALL_DIFFERENT[:rows]), hold_out=share, hold_out_test=share)
        counts = [len(part) for part in data.parts.values()]
        assert counts == [rows - 2 * held, held, held]


def test_a_column_that_is_not_there_is_named_with_the_one_that_is_meant():
    names = [*(f"p{n}" for n in range(30)), "class"]
    text = ",".join(names) + "\n" + lines(np.eye(31, dtype=int)).decode()
    assert holds(complaint(text, drop="classs"), "classs|did you mean class?")
    assert holds(complaint(text, drop="32"), "32|1 to 31")


# Names of columns

GREY = "0,7,16,3\n9,1,16,0\n16,0,0,0\n"
BITS = "0,1,1,0\n1,0,1,0\n1,1,0,1\n"
NUMBERS = """
1,2,3,4 3,1,0,2 "0","1","2","3" 2019,2019,2020,2020 400.5,401,401.5,402 0,0.1,1,1.1 -9,0,0,0
a,1,2,3 a,1,1,2 ?,b,c,d 0,1,setosa,2 1.2.3,50%,1:2,7/8
"""


@pytest.mark.parametrize("rows", [GREY, BITS])
@pytest.mark.parametrize("names", NUMBERS.split())
def test_numbers_in_a_first_line_are_asked_about_and_never_a_row_or_names_in_silence(
    names, rows
):
    for mark in (",", "\t", ";"):
        text = f"{names}\n{rows}".replace(",", mark)
        error = complaint(text, threshold=8 if rows == GREY else 0.5)
        assert error.field == "header"
        assert "header: true or header: false" in str(error)
        values = np.array([[*map(int, row.split(","))] for row in rows.split()])
        data = read(text, threshold=0, header=True, columns="all")
        assert_array_equal(data.train, values > 0)
        assert data.names == tuple(names.replace('"', "").split(","))


ALIKE = [
    GREY.replace("0,7", "0,0", 1),
    BITS,
    "0.13,0.9\n0.5,0\n",
    "1,0,0,setosa\n0,1,0,x\n",
]


@pytest.mark.parametrize("text", [*ALIKE, "true,false\n"])
def test_a_first_line_like_the_others_is_a_row(text):
    drop = {"drop": "last"} if "setosa" in text else {}
    assert len(read(text, threshold=0, **drop).train) == text.count("\n")


def test_a_number_that_may_be_a_name_is_refused_with_both_places():
    text, options = (
        "label,0,1,2,3\n7,0,16,3,12\n2,9,1,16,0\n",
        {"header": True, "threshold": 8},
    )
    error = complaint(text, drop=[1], **options)
    assert error.field == "drop"
    assert holds(error, "column 1 by number|column 3 by name|-5|-3")
    for drop in ("label", "-5"):
        data = read(text, drop=drop, **options)
        assert_array_equal(data.train, [[0, 1, 0, 1], [1, 0, 1, 0]])
        assert data.names == ("0", "1", "2", "3")


def test_quotes_marks_and_comments_are_those_of_pandas():
    for text, names in (
        ("item #1,b\n", ("item #1", "b")),
        ('"a, 1" , "b ""x"""\n', ("a, 1", 'b "x"')),
        ('"a\nx",b\n', ("a\nx", "b")),
        ('\ufeff"a","b"\r\n', ("a", "b")),
        ("# one\n# a,b\n", ("a", "b")),
        ("a:1,b:2\n", ("a:1", "b:2")),  # no LIBSVM
        ("time 12:30,b\n", ("time 12:30", "b")),
    ):
        data = read(f'{text}"0","1"\n1,0\n')
        assert_array_equal(data.train, [[0, 1], [1, 0]])
        assert data.names == names


def test_names_reach_machines_and_put_columns_of_other_files_into_their_order():
    names = ["north", "east", "south", "west"]
    write(table(names, A, B, C, D))
    write(table(names[::-1], D, C, B, A), "turned.csv")
    write(table([*"abcd"], A, B, C, D), "others.csv")
    text = grid_text("rbm", data="{path: rows.csv}", batch="10", epochs="1", trials="1")
    name = f"{run_grid(text)}/toy:0"
    its = api.load(name)
    its.save("m.npz")
    assert api.load("m.npz").names == its.names == tuple(names)

    for file in ("rows", "turned"):
        cbm("features", "m.npz", "--data", f"{file}.csv", "-o", f"{file}.npz")
    assert_array_equal(np.load("turned.npz")["rows"], np.load("rows.npz")["rows"])
    refused = cbm("evaluate", "m.npz", "--data", "others.csv", code=2)
    assert holds(refused.stderr, "others.csv|a|north")
    assert_array_equal(
        its.log_likelihood(pd.read_csv("turned.csv")), its.log_likelihood(ROWS)
    )
    write("south,west,north,east\n,,1,\n", "given.csv")
    cbm("sample", "m.npz", "--given", "given.csv", "-n", 9, "--steps", 2, "-o", "s.npz")
    found = np.load("s.npz")
    assert found["names"].tolist() == names
    assert (found["samples"][:, 0] == 1).all()
    assert found["samples"][:, 1:].min() == 0


NORTH = ["north", "east", "south", "west"]
TURNED = ["west", "north", "east", "south"]  # which is not its own inverse


def save_machine(names=NORTH, size=4):
    """Write m.npz, an RBM whose visible units have names."""
    machine = machine_file(layered((size, 3), 3), "rbm")
    np.savez("m.npz", **machine | ({"names": np.array(names)} if names else {}))
    return api.load("m.npz")


def test_columns_of_other_files_get_the_order_of_names_and_not_its_inverse():
    save_machine()
    write(table(NORTH, *ROWS.T))
    order = [NORTH.index(name) for name in TURNED]
    write(table(TURNED, *ROWS.T[order]), "turned.csv")
    for source in ("turned.csv", "turned.csv:columns=all"):
        assert_array_equal(load_source(source, 4, NORTH).train, ROWS)
    both = load(path="rows.csv", test="turned.csv")
    assert_array_equal(both.test, ROWS)
    frame = pd.DataFrame(ROWS[:, order], columns=TURNED)
    assert_array_equal(table_of(frame, Columns(units=tuple(NORTH))).values, ROWS)


def test_a_machine_takes_the_columns_with_its_names_and_no_others():
    machine = save_machine()
    write(table(NORTH, *ROWS.T))
    numbers, species = range(30), ["setosa", "virginica", "setosa"] * 10
    columns = dict(zip(NORTH, ROWS.T.tolist(), strict=True))
    more = {"id": numbers, "class": species, "gaps": [""] * 30} | {
        name: columns[name] for name in TURNED
    }
    write(table(list(more), *more.values()), "more.csv")
    outputs = []
    for file in ("rows.csv", "more.csv"):
        evaluated = cbm("evaluate", "m.npz", "--data", file, "--json").stdout
        cbm("features", "m.npz", "--data", file, "-o", "f.npz")
        outputs.append((evaluated, np.load("f.npz")["rows"].tolist()))
    assert outputs[0] == outputs[1]
    frame = pd.DataFrame(more)
    for method in (machine.transform, machine.log_likelihood, machine.reconstruct):
        assert_array_equal(method(frame), method(ROWS))
    assert machine.evaluate(frame) == machine.evaluate(ROWS)
    assert holds(refusal(machine.transform, frame.drop(columns="east")), "east")
    twice = pd.concat([frame, frame[["east"]]], axis=1)
    assert holds(refusal(machine.transform, twice), "2 columns east")
    assert_array_equal(machine.transform(pd.DataFrame(ROWS)), machine.transform(ROWS))
    chosen = cbm("evaluate", "m.npz", "--data", "more.csv:columns=all", "--json")
    assert chosen.stdout == outputs[0][0]


def test_names_of_a_machine_that_are_numbers_are_found_in_a_first_line():
    machine = save_machine(["0", "1", "2", "3"])
    write(table(["label", "3", "2", "1", "0"], range(30), *ROWS.T[::-1]))
    write(table(["0", "1", "2", "3"], *ROWS.T), "plain.csv")
    for file in ("rows.csv", "plain.csv"):
        assert_array_equal(load_source(file, 4, machine.names).train, ROWS)
    write("3,2,label,1,0\n1,,7,,\n", "given.csv")
    cbm("sample", "m.npz", "--given", "given.csv", "-n", 9, "--steps", 2, "-o", "s.npz")
    assert (np.load("s.npz")["samples"][:, 3] == 1).all()


def test_messages_on_options_have_the_form_of_options():
    save_machine(names=[])
    write(table(["id", "a", "b", "c", "d", "the class"], range(30), *ROWS.T, A))
    refused = cbm("evaluate", "m.npz", "--data", "rows.csv", code=2).stderr
    (source,) = re.findall("as in --data '(.*)'", refused)
    assert source == "rows.csv:drop=id,the class"
    assert "drop: " not in refused
    cbm("evaluate", "m.npz", "--data", source)
    write(lines(np.where(ROWS, 16, 3)), "grey.csv")
    for source, option in (
        ("grey.csv", "threshold=9"),
        ("grey.csv:binarise=none", "scale=16"),
    ):
        refused = cbm("evaluate", "m.npz", "--data", source, code=2).stderr
        assert holds(refused, f"{option}|--data grey.csv:binarise=threshold")
    write("1,2,3,0\n0,1,0,1\n", "doubt.csv")
    refused = cbm("features", "m.npz", "--data", "doubt.csv", "-o", "f.npz", code=2)
    assert holds(refused.stderr, "header=true|header=false|doubt.csv:header=true")


# Remedies that work


def test_the_remedies_for_values_off_the_scale_work():
    for values, shown, how in (
        ([[0, 1.00001], [0.5, 1]], "1.00001", {"binarise": "none"}),
        ([[0, 1], [0.3, 1.00002]], "0.3", {}),
        ([[-1.5, 1], [1, -1]], "-1.5", {}),
        ([[0, 255], [3, 1]], "255", {}),
    ):
        told = str(complaint(arrays(np.array(values)), **how))
        assert holds(told, shown)
        remedies = re.findall(r"(threshold|scale): ([0-9.]+)", told)
        for option, value in remedies or [("binarise", "threshold")]:
            more = {} if option != "scale" else {"binarise": "none"}
            data = load(path="rows.csv", **{option: value} | more)
            assert data.train.max() == data.levels
            if option == "threshold":
                assert_array_equal(data.train, np.array(values) > float(value))


# Other forms of rows


def test_parquet_is_read_as_a_data_frame_where_there_is_a_package_for_it():
    pytest.importorskip("pyarrow")
    frame_of(kind=["a", "b"] * 6).to_parquet("rows.parquet")
    assert_array_equal(load(path="rows.parquet", drop="kind").train, FIVE)


def frame_of(rows=FIVE, **more):
    return pd.DataFrame(rows, columns=[f"p{n}" for n in range(rows.shape[1])]).assign(
        **more
    )


GAPS = "drop: [q]|row 1, column 6 (q) is a gap"
FRAMES = {  # a frame, columns, place and remedy
    "dates": (
        frame_of(day=pd.Timestamp("2020-01-01")),
        ALL,
        "row 1, column 6 (day)|drop: [day]",
    ),
    "gaps": (frame_of(q=[nan] * 12), Columns(dropped="1, 2"), GAPS),
    "nullable gap": (
        frame_of(q=pd.array([1] * 11 + [None], "Int64")),
        ALL,
        "row 12, column 6 (q)",
    ),
    "numbered words": (
        pd.DataFrame({0: [0, 1], 1: ["a", "b"]}),
        ALL,
        "column 2 (1)|drop: [2]",
    ),
    "a list of words": ([["a"]], ALL, "list|(1, 1)"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("what", FRAMES)
def test_columns_of_data_frames_that_are_not_units_are_named(what):
    frame, columns, told = FRAMES[what]
    assert holds(refusal(table_of, frame, columns), told)


@pytest.mark.parametrize(
    "kind", ["bool", "float32", "Int64", "boolean", "object", "category"]
)
def test_data_frames_are_rows_whatever_their_types(kind):
    frame = frame_of(label=2).astype({f"p{n}": kind for n in range(5)})
    found = table_of(frame, Columns("1, 2, 3, 4, 5"))
    assert_array_equal(found.values, FIVE)
    assert found.names == ("p0", "p1", "p2", "p3", "p4")
    assert_array_equal(table_of(frame_of().map(Fraction)).values, FIVE)


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
    assert_array_equal(found.values, FIVE)
    assert found.names == ("p0", "p1", "p2", "p3", "p4")
    assert holds(
        refusal(table_of, made(frame_of(kind="a"))),
        "row 1, column 6 (kind)|drop: [kind]",
    )
    gaps = made(frame_of().astype(object).mask(np.eye(12, 5, dtype=bool), None))
    assert holds(refusal(table_of, gaps), "5 gaps|row 5, column 5 (p4)")
    flags = made(frame_of(FIVE.astype(bool)))
    assert_array_equal(table_of(flags).values, FIVE)


class Foreign:
    """A frame of a library that needs a package to turn itself into pandas."""

    def to_pandas(self):
        raise ModuleNotFoundError("No module named 'pyarrow'")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            {"path": FIVE, "test": Foreign()},
            "data['test']|'pyarrow'|pip install pyarrow",
        ),
        ({"path": frame_of(), "drop": "p9"}, "data['train']|p9"),
        (
            {"path": frame_of(), "test": frame_of().rename(columns={"p1": "q"})},
            "data['test']|q|p1",
        ),
        ({"trian": frame_of()}, "trian"),
        (FIVE * 3, "threshold"),
        (
            np.ma.masked_array(FIVE, np.eye(12, 5)),
            "data['train']|5 gaps|row 1, column 1",
        ),
    ],
    ids=range(6),
)
def test_what_cannot_be_read_from_python_is_said_in_a_line(data, told):
    error = refusal(api.run, yaml.safe_load(GRID), data=data, progress=False)
    assert len(str(error).splitlines()) == 1
    assert holds(error, told)


@pytest.mark.parametrize("rows", [frame_of(), FIVE, arrow(frame_of())], ids=range(3))
def test_rows_within_a_grid_are_refused_with_where_to_pass_them(rows):
    grid, changes = yaml.safe_load(GRID), {"data": {"path": rows}}
    within = {"experiments": {"toy": changes}}
    for error in (
        refusal(api.run, within),
        refusal(api.run, grid, changes=changes),
    ):
        assert holds(error, f"{type(rows).__name__}|data=rows")
    for wrong in ({"train": rows, "path": rows}, {"test": rows}):
        assert holds(refusal(api.run, grid, data=wrong), "path")


def test_frames_from_python_are_trained_on_with_their_parts_and_names():
    turned = frame_of()[["p4", "p3", "p2", "p1", "p0"]].assign(label=2)
    label = polars(pd.DataFrame({"drop": ["label"]}))["drop"]
    given = {
        "path": frame_of(label=1),
        "test": polars(turned),
        "drop": label,
        "name": "mine",
    }
    short = {"trials": 1, "progress": False, "changes": {"epochs": 1, "batch": 2}}
    for more in ({"hold_out": np.int64(3)}, {"valid": arrow(frame_of(label=1))}):
        rows = api.run(yaml.safe_load(GRID), data=given | more, **short).summaries()
        assert ({*rows["data"]}, {*rows["n_test"]}) == ({"mine"}, {12})
    data = [
        load(path=str(path), columns="all")
        for path in Path("results/data").glob("*.npz")
    ]
    assert sorted(len(one.parts) for one in data) == [2, 3]
    for one in data:
        assert one.names == ("p0", "p1", "p2", "p3", "p4")
        for rows in one.parts.values():
            assert_array_equal(rows, FIVE)
    bar = api.data("shifting-bar", size=5, bar=1) | {"test": None}
    assert {
        *api.run(yaml.safe_load(GRID), data=bar, **short).summaries()["n_train"]
    } == {5}
