"""Columns of a user's files that are units, labels among them, and rows that are held out."""

import json
import re
from pathlib import Path

import cbm_cli as cbm_package
import numpy as np
import pandas as pd
import pytest
import yaml
from cbm_cli.datasets.loading import describe, load, load_source
from cbm_cli.datasets.spec import DataSpec, spec_of
from cbm_cli.grid.read import read_grid
from numpy.testing import assert_array_equal

from tests.builders import VALIDATOR, arrays, cbm, grid_text, holds, lines, problems_of, refusal

pytestmark = pytest.mark.usefixtures("here")

ROWS = np.random.Generator(np.random.Philox(key=5)).integers(0, 2, (30, 4), np.uint8)
ROWS[:2] = [[0, 1, 0, 1], [1, 0, 1, 0]]


def table(names, *columns, mark=","):
    """Return a CSV file of columns under their names."""
    rows = [names, *zip(*columns, strict=True)]
    return "".join(mark.join(map(str, row)) + "\n" for row in rows)


def write(text, name="rows.csv"):
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())


def refused(*args, **options):
    """Return field and words of what is wrong with data."""
    error = refusal(load, *args, **options)
    assert len(str(error)) < 400
    return error.field, str(error)


A, B, C, D = ROWS.T.tolist()
TEXTS = ["setosa", "true", "versicolor"] * 10
SHORT = ["run", "grid.yaml", "-j", "0", "--trials", "1", "--set", "epochs=1", "--set", "batch=10"]
NUMBERED = list(range(30))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"drop": "class"}, [0, 1, 2]),
        ({"drop": ["class"]}, [0, 1, 2]),
        ({"drop": "4"}, [0, 1, 2]),
        ({"drop": [4]}, [0, 1, 2]),
        ({"drop": "class, b"}, [0, 2]),
        ({"drop": ["2", "class"]}, [0, 2]),
        ({"columns": "c,a"}, [2, 0]),
        ({"columns": "all"}, [0, 1, 2, 3]),
        ({"columns": [1, "b", "class"]}, [0, 1, 3]),
        ({"columns": "all", "drop": "b"}, [0, 2, 3]),
        ({"drop": "last"}, [0, 1, 2]),
        ({"drop": [-1, "a"]}, [1, 2]),
        ({"drop": -2, "columns": "all"}, [0, 1, 3]),
        ({"drop": np.int64(4)}, [0, 1, 2]),
        ({"columns": np.arange(1, 3)}, [0, 1]),
        ({"columns": pd.Index(["c", "a"])}, [2, 0]),
        ({"columns": np.float64([3, 1])}, [2, 0]),
        ({"columns": dict.fromkeys(["c", "a"]).keys()}, [2, 0]),
    ],
)
@pytest.mark.parametrize("mark", [",", "\t"])
def test_columns_are_chosen_and_dropped_by_name_and_number(options, expected, mark):
    write(table(["a", "b", "c", "class"], A, B, C, D, mark=mark))
    assert_array_equal(load(path="rows.csv", **options).train, ROWS[:, expected])


TEXT_FILES = [lines(ROWS), lines(ROWS * 1.0, ";"), lines(ROWS, " ")]


@pytest.mark.parametrize("content", [arrays(ROWS), arrays(train=ROWS, test=ROWS), *TEXT_FILES])
def test_arrays_and_files_without_names_are_chosen_by_number(content):
    write(content, "rows")
    assert_array_equal(load(path="rows", drop="1,3").train, ROWS[:, [1, 3]])
    assert_array_equal(load(path="rows", columns="last, 1, 2").train, ROWS[:, [3, 0, 1]])


def test_columns_that_are_left_out_may_hold_anything_and_each_part_has_its_own_names():
    quoted, times = [f'"{text}"' for text in TEXTS], ["12:30", "", "nan"] * 10
    columns = ("name", quoted), ("a", A), ('"b, c"', B), ("when", times), ("d", D)
    moved = [columns[place] for place in (3, 1, 2, 0, 4)]
    for file, order in (("rows.csv", columns), ("test.csv", moved), ("turned.csv", columns[::-1])):
        names, values = zip(*order, strict=True)
        write(table(names, *values), file)
    chosen, dropped = {"columns": 'a, "b, c", d'}, {"drop": ["name", "when"]}
    for options in chosen, dropped, {"test": "turned.csv"} | chosen:
        data = load(**{"path": "rows.csv", "test": "test.csv"} | options)
        assert_array_equal(data.train, ROWS[:, [0, 1, 3]])
        assert_array_equal(data.test, data.train)
    assert_array_equal(load(path="rows.csv", test="turned.csv", **dropped).test, data.train)
    field, told = refused(path="rows.csv", test="turned.csv", drop=[1, 4])
    assert (field, told.partition(":")[0]) == ("test", "turned.csv")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"drop": "clas"}, "class?"),
        ({"drop": "5"}, "5; they are 1 to 4"),
        ({"drop": "-5"}, "-5; they are 1 to 4"),
        ({"drop": "0"}, " 0; "),
        ({"drop": "9" * 5000}, "999"),
        ({"columns": "1-3"}, "1-3; "),
        ({"drop": [1, 2, 3, 4]}, ""),
        ({"drop": "a", "columns": "a"}, ""),
        ({"drop": "a, b", "columns": "3, 4"}, "columns: 3, 4"),  # which leaves them out already
        ({"drop": ""}, ""),
        ({"drop": "a,,b"}, ""),
        ({"drop": "x\ny"}, ""),
        ({"drop": "a" * 200_000}, ""),
        ({"drop": True}, ""),
        ({"columns": np.array([True, False, True, False])}, "as in [id, 3, last]"),
        ({"columns": {"a": 1}}, "as in [id, 3, last]"),
    ],
    ids=range(16),
)
def test_columns_that_are_not_there_are_named(options, named):
    write(table(["a", "b", "c", "class"], A, B, C, D))
    field, message = refused(path="rows.csv", **options)
    assert field == next(iter(options))
    assert named in message


def test_names_need_a_first_line_of_names_and_files_of_libsvm_have_no_columns():
    write(lines(ROWS))
    field, message = refused(path="rows.csv", drop="class")
    assert field == "drop"
    assert {"class", "1", "4"} <= {*re.findall(r"\w+", message)}
    write("1 1:1 2:1\n0 1:1 3:1\n")
    for field in ("drop", "columns"):
        assert refused(path="rows.csv", **{field: "1"})[0] == field
    assert refused("bars-and-stripes", size=2, drop="1")[0] == "drop"


@pytest.mark.parametrize(("text", "width"), [("1,0\n1,1,y\n", "2"), ("1,0,y,7\n", "4")])
def test_lines_of_other_lengths_are_found_where_columns_are_left_out(text, width):
    write(f"a,b,class\n0,1,x\n{text}")
    assert holds(refused(path="rows.csv", drop="class")[1], f"rows.csv|3|{width}")


LABELS = "class Class LABEL labels target id ID y Y index class_label row_id #"


@pytest.mark.parametrize(
    "name", [*LABELS.split(), '"class"', "classic", "idea", "yes", "x", "pixel_1", "targeted"]
)
def test_a_column_named_like_labels_is_asked_about_and_never_trained_on_in_silence(name):
    write(table(["a", "b", name], A, B, C))
    if name.strip('"') not in LABELS.split():  # a unit
        assert_array_equal(load(path="rows.csv").train, ROWS[:, :3])
        return
    field, message = refused(path="rows.csv")
    assert field == "path"
    remedy = re.search(r"drop: \[(.*)\].* columns: (\S+)", message)
    assert remedy[1] == ("3" if name == "#" else name.strip('"'))
    assert_array_equal(load(path="rows.csv", drop=remedy[1]).train, ROWS[:, :2])
    assert_array_equal(load(path="rows.csv", columns=remedy[2]).train, ROWS[:, :3])


@pytest.mark.parametrize(
    ("names", "listed"),
    [(["id", "a", "class"], "id, class"), (["", "a", "b"], "1"), (["Unnamed: 0", "a", "b"], "1")],
)
def test_all_columns_like_labels_are_named_at_once_or_by_number_if_they_have_no_name(names, listed):
    write(table(names, NUMBERED, A, B))
    field, message = refused(path="rows.csv")
    assert field == "path"
    assert f"drop: [{listed}]" in message
    kept = [1, 2] if listed == "1" else [1]
    expected = np.array([NUMBERED, A, B]).T[:, kept]
    assert_array_equal(load(path="rows.csv", drop=listed).train, expected)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("id,a,species,b\n1,?,setosa,1\n2,0,setosa,1\n", "id, species"),
        ("id,a,species,b\n1,,setosa,1\n2,0,setosa,1\n", "id, species"),
        ("a,b,species\n0,1,setosa\n1,0,virginica\n", "species"),
        ("0,0,1,setosa\n1,0,0,virginica\n", "4"),
    ],
)
def test_text_is_named_with_the_columns_that_are_asked_about(text, remedy):
    write(text)
    field, told = refused(path="rows.csv")
    assert field == "path"
    assert f"drop: [{remedy}]" in told
    assert "columns: all" not in told  # which would train on words
    if "id" not in remedy:
        units = load(path="rows.csv", drop=remedy).train
        assert_array_equal(units, [[0, 0, 1], [1, 0, 0]] if remedy == "4" else [[0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("drop", "dropped"),
    [
        ("class", ["class"]),
        ("[id, class]", ["id, class"]),
        ("[1, class]", ["1, class"]),
        ("[[id, class], [class, 1, 2]]", ["id, class", "class, 1, 2"]),
        ('["a, b", c]', ['"a, b", c']),
    ],
)
def test_a_list_in_a_grid_is_one_choice_and_a_list_of_lists_an_axis(drop, dropped):
    text = grid_text("rbm", data=f"{{path: rows.csv, drop: {drop}}}")
    cells = read_grid("grid.yaml", text=text).experiments["toy"].cells
    assert [cell.data.drop for cell in cells] == dropped
    assert VALIDATOR.is_valid(yaml.safe_load(text))


def test_runs_evaluations_and_features_read_the_same_columns():
    write(table(["id", "a", "b", "c", "class"], NUMBERED, A, B, C, TEXTS))
    write(grid_text("rbm", data="{path: rows.csv, drop: [id, class], hold_out: 0.2}"), "grid.yaml")
    told = cbm(*SHORT).stderr
    (line,) = (line for line in told.splitlines() if "rows.csv" in line)
    numbers = [*map(int, re.findall(r"\b\d+\b", line))]
    assert (numbers[:2], numbers[-1]) == ([24, 3], 6)  # rows, units; held out
    machine, *_ = cbm("best", "results").stdout.splitlines()
    source = "rows.csv:drop=id,class,flip=true"
    assert "log-likelihood" in cbm("evaluate", machine, "--data", source).stdout.lower()
    cbm("features", machine, "--data", source, "-o", "out.npz")
    assert load_source(source).width == 3
    assert "drop: [class]" in cbm("evaluate", machine, "--data", "rows.csv:drop=id", code=2).stderr
    told = cbm("run", "grid.yaml", "-j", 0, "--set", "data.drop=[id, clas]", code=2)
    assert [one[1] for one in problems_of(told)] == ["toy.data.drop"]
    assert " class?" in told.stderr


@pytest.mark.parametrize(
    ("hold_out", "count"), [(6, 6), ("6", 6), ("6e0", 6), (0.2, 6), ("0.2", 6), (0.001, 1)]
)
def test_rows_are_drawn_at_random_from_all_classes(hold_out, count):
    rows = np.repeat(np.eye(3, dtype=np.uint8), 10, axis=0)  # sorted by class
    write(lines(rows))
    data, again = (load(path="rows.csv", hold_out=hold_out) for _ in range(2))
    assert len(data.valid) == count
    assert len(np.unique(data.valid, axis=0)) > (count == 6)
    assert_array_equal(np.concatenate([data.train, data.valid]).sum(axis=0), rows.sum(axis=0))
    assert (
        np.diff(data.train.argmax(axis=1).astype(int)) >= 0
    ).all()  # the others keep their order
    assert_array_equal(again.valid, data.valid)


def test_seeds_draw_other_rows_and_the_old_way_takes_the_last_ones():
    rows = ((np.arange(200)[:, None] >> np.arange(8)) & 1).astype(np.uint8)  # all different
    write(lines(rows))
    held = [load(path="rows.csv", hold_out=40, seed=seed).valid for seed in range(3)]
    assert len({one.tobytes() for one in held}) == 3
    mean = np.mean([row @ (1 << np.arange(8)) for row in np.concatenate(held)])
    assert abs(mean - 99.5) < 4 * 200 / 12**0.5 / 120**0.5
    assert_array_equal(load(path="rows.csv", hold_out=40, rows="last").valid, rows[-40:])


def test_ways_to_hold_rows_out_have_their_own_cells_and_are_said():
    dumps = set()
    for way in ("", ", rows: last", ", seed: 1"):
        text = grid_text("rbm", data=f"{{name: shifting-bar, size: 9, bar: 1, hold_out: 3{way}}}")
        (cell,) = read_grid("grid.yaml", text=text).experiments["toy"].cells
        assert "valid 3 rows" in describe(cell.data, load(cell.data))
        dumps.add(json.dumps(cell.model_dump(mode="json"), sort_keys=True))
        row = {f"data_{field}": value for field, value in cell.data.model_dump().items()}
        assert spec_of(row).model_dump() == cell.data.model_dump()
    assert len(dumps) == 3


def test_one_file_gives_rows_for_validation_and_test_too():
    rows = ((np.arange(200)[:, None] >> np.arange(8)) & 1).astype(np.uint8)  # all different
    write(lines(rows))
    for how in ({}, {"seed": 3}, {"rows": "last"}):
        data = load(path="rows.csv", hold_out=40, hold_out_test=0.1, **how)
        assert [len(its) for its in data.parts.values()] == [140, 40, 20]
        every = np.concatenate([*data.parts.values()])
        assert {*map(bytes, every)} == {*map(bytes, rows)}
    assert_array_equal(every, rows)  # with rows: last
    alone = load(path=Path("rows.csv"), hold_out_test=np.int64(20))
    assert (len(alone.train), alone.valid, len(alone.test)) == (180, None, 20)
    assert load(path="rows.csv", hold_out=2.0).valid.shape == (2, 8)
    assert refused(path="rows.csv", test="rows.csv", hold_out_test=2)[0] == "hold_out_test"
    assert refused(path="rows.csv", hold_out=0.5, hold_out_test=0.5)[0] == "hold_out"
    told = describe(DataSpec(path="rows.csv", hold_out_test=20), alone)
    assert "test 20 rows" in told


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"rows": "last"}, "rows"),
        ({"seed": 3}, "seed"),
        ({"hold_out": 3, "rows": "last", "seed": 3}, "seed"),
        *(({"hold_out": one}, "hold_out") for one in (0, 1.5, -1, "x", "nan", "9" * 5000, True)),
        ({"hold_out_test": 1.5}, "hold_out_test"),
    ],
)
def test_what_cannot_be_held_out_is_refused(options, field):
    assert refused(name="shifting-bar", size=9, bar=1, **options)[0] == field


@pytest.mark.parametrize("names", ["", "No.,a,b\n", "row,a,b\n", "n,a,b\n"])
def test_a_column_that_counts_the_rows_is_asked_about_and_never_a_unit_in_silence(names):
    write(names + "".join(f"{n},{n % 2},1\n" for n in range(5)))
    field, told = refused(path="rows.csv", threshold=1, **({} if names else {"header": False}))
    assert (field, "drop: [" in told) == ("path", True)
    how = {"header": bool(names), "threshold": 3}
    assert load(path="rows.csv", columns="all", **how).width == 3


# Names of columns

GREY = "0,7,16,3\n9,1,16,0\n16,0,0,0\n"
BITS = "0,1,1,0\n1,0,1,0\n1,1,0,1\n"
NUMBERS = """
1,2,3,4 0,1,3,4 0,1,2,3 3,1,0,2 "0","1","2","3" 0.0,1.0,2.0,3.0 -1,0,1,2 2019,2020,2021,2022
2019,2019,2020,2020 400.5,401,401.5,402 0,0.1,1,1.1 99,0,0,0
a,1,2,3 a,1,1,2 ?,b,c,d x,,u,z 0,1,setosa,2 1.2.3,50%,1:2,7/8
"""


@pytest.mark.parametrize("rows", [GREY, BITS])
@pytest.mark.parametrize("names", NUMBERS.split())
def test_numbers_in_a_first_line_are_asked_about_and_never_a_row_or_names_in_silence(names, rows):
    write(f"{names}\n{rows}")
    for mark in (",", "\t", ";"):
        write(f"{names}\n{rows}".replace(",", mark))
        field, told = refused(path="rows.csv", threshold=8 if rows == GREY else 0.5)
        assert field == "header"
        assert "header: true or header: false" in told
        values = np.array([[*map(int, row.split(","))] for row in rows.split()])
        data = load(path="rows.csv", threshold=0, header=True, columns="all")
        assert_array_equal(data.train, values > 0)
        assert data.names == tuple(names.replace('"', "").split(","))


ALIKE = [GREY.replace("0,7", "0,0", 1), BITS, "0.13,0.9\n0.5,0\n", "1,0,0,setosa\n0,1,0,x\n"]


@pytest.mark.parametrize("text", [*ALIKE, "true,false\n"])
def test_a_first_line_like_the_others_is_a_row(text):
    write(text)
    drop = {"drop": "last"} if "setosa" in text else {}
    assert len(load(path="rows.csv", threshold=0, **drop).train) == text.count("\n")


def test_a_number_that_may_be_a_name_is_refused_with_both_places():
    write("label,0,1,2,3\n7,0,16,3,12\n2,9,1,16,0\n")
    field, told = refused(path="rows.csv", header=True, threshold=8, drop=[1])
    assert field == "drop"
    assert holds(told, "column 1 by number|column 3 by name|-5|-3")
    for drop in ("label", "-5"):
        data = load(path="rows.csv", header=True, threshold=8, drop=drop)
        assert_array_equal(data.train, [[0, 1, 0, 1], [1, 0, 1, 0]])
        assert data.names == ("0", "1", "2", "3")


R = '"a" "b"\n"1" 0 1\n"2" 1 0\n"3" 1 1\n'  # write.table


FROM_R = [R, R.replace('"', ""), R.replace(" ", "\t"), R.replace(" ", ",")]
NAMELESS = "{},a,b\n1,0,1\n2,1,0\n3,1,1\n"


@pytest.mark.parametrize("text", [*FROM_R, NAMELESS.format(""), NAMELESS.format("#")])
def test_names_of_rows_are_asked_about(text):
    write(text)
    assert "drop: [1]" in refused(path="rows.csv")[1]
    data = load(path="rows.csv", drop=[1])
    assert_array_equal(data.train, [[0, 1], [1, 0], [1, 1]])
    assert data.names == ("a", "b")


@pytest.mark.parametrize("head", ["a,b,c", "a", '"a","b","c"'])
def test_other_numbers_of_names_than_of_columns_are_refused(head):
    write(f"{head}\n" + ("0,1\n1,0\n" if "b" in head else "0,1,1\n1,0,0\n"))
    assert holds(refused(path="rows.csv")[1], f"{head.count(',') + 1}|{2 if 'b' in head else 3}")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("item #1,b\n0,1\n1,0\n", ("item #1", "b")),
        ("#1,#2\n0,1\n1,0\n", ("#1", "#2")),
        ('"a, 1" , "b ""x"""\n0,1\n1,0\n', ("a, 1", 'b "x"')),
        ('"a\nx",b\n0,1\n1,0\n', ("a\nx", "b")),
        ("a;b,c\n0,1\n1,0\n", ("a;b", "c")),
        ("\ufeffa,b\n0,1\n1,0\n", ("a", "b")),
        ('\ufeff"a";"b"\r\n0;1\r\n1;0\r\n', ("a", "b")),
        ("# one\n# a,b\n0,1\n1,0\n", ("a", "b")),
        ('"0", "1"\n"1", "0"\n', ()),
    ],
)
def test_quotes_marks_and_comments_are_those_of_pandas(text, names):
    write(text)
    data = load(path="rows.csv", **({} if names else {"header": False}))
    assert_array_equal(data.train, [[0, 1], [1, 0]])
    assert data.names == names


@pytest.mark.parametrize("mark", ["\t", ",", ";", "|"])
def test_gaps_are_named_up_to_ten_whatever_separates_the_columns(mark):
    write(table("abc", [1, "", "0"], ["", 1, 1], [0, 0, 1], mark=mark))
    told = "2 gaps|line 2, column 2 (b)|line 3, column 1 (a)|dropna"
    assert holds(refused(path="rows.csv")[1], told)
    write(table("abc", *[[0, *[""] * 15]] * 3, mark=mark))
    message = refusal(load, path="rows.csv")
    assert holds(message, "45 gaps|line 6, column 1 (a)|35 more")
    assert str(message).count("line ") == 10


def test_names_of_columns_travel_with_the_rows_of_every_part():
    write(table("abcd", A, B, C, D))
    write(table("dcba", D, C, B, A), "test.csv")
    data = load(path="rows.csv", test="test.csv", valid="rows.csv", flip=True, columns="d, a, c")
    assert data.names == ("d", "a", "c")
    for part in data.parts.values():
        assert_array_equal(part, 1 - ROWS[:, [3, 0, 2]])
    write(arrays(train=ROWS, test=ROWS, names=np.array([*"abcd"])), "rows.npz")
    assert load(path="rows.npz", drop="b").names == ("a", "c", "d")


def test_names_reach_machines_and_put_columns_of_other_files_into_their_order(tmp_path):
    names = ["north", "east", "south", "west"]
    write(table(names, A, B, C, D))
    write(table(names[::-1], D, C, B, A), "turned.csv")
    write(table([*"abcd"], A, B, C, D), "others.csv")
    write(grid_text("rbm", data="{path: rows.csv}"), "grid.yaml")
    cbm(*SHORT)
    name, *_ = cbm("best", "results").stdout.splitlines()
    its = cbm_package.load(name)
    assert its.names == tuple(names)
    its.save("m.npz")
    assert cbm_package.load("m.npz").names == its.names

    for file in ("rows.csv", "turned.csv"):
        cbm("features", "m.npz", "--data", file, "-o", f"{file}.npz")
    rows, turned = (np.load(f"{file}.csv.npz") for file in ("rows", "turned"))
    assert [*rows] == ["rows"]  # a file of any part
    assert_array_equal(turned["rows"], rows["rows"])
    told = [cbm("evaluate", "m.npz", "--data", f"{file}.csv").stdout for file in ("rows", "turned")]
    assert told[0] == told[1]
    said = cbm("evaluate", "m.npz", "--data", "others.csv", code=2).stderr
    assert holds(said, "others.csv|a|north")

    frame = pd.read_csv("turned.csv")
    assert_array_equal(its.log_likelihood(frame), its.log_likelihood(ROWS))
    assert holds(refusal(its.transform, pd.read_csv("others.csv")), "a|north")
    cbm("sample", "m.npz", "-n", 3, "--steps", 2, "-o", "s.npz")
    assert np.load("s.npz")["names"].tolist() == names
    write("south,west,north,east\n,,1,\n", "given.csv")
    cbm("sample", "m.npz", "--given", "given.csv", "-n", 9, "--steps", 2, "-o", "s.npz")
    assert (np.load("s.npz")["samples"][:, 0] == 1).all()
    assert np.load("s.npz")["samples"][:, 1:].min() == 0
