"""Columns of a user's files that are units, labels among them, and rows that are held out."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from cbm_cli.datasets.catalogue import describe, load, load_source
from cbm_cli.datasets.spec import spec_of
from cbm_cli.grid.read import read_grid
from tests.builders import VALIDATOR, arrays, cbm, grid_text, lines, problems_of, refusal

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
    """Return field, kind and words of what is wrong with data."""
    error = refusal(load, *args, **options)
    assert len(str(error)) < 400
    return error.field, *error.kinds, str(error)


A, B, C, D = ROWS.T.tolist()
TEXTS = ["setosa", "true", "versicolor, or so"] * 10
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
        ({"drop": "2-4"}, [0]),
        ({"columns": "c,a"}, [2, 0]),
        ({"columns": "1-4"}, [0, 1, 2, 3]),
        ({"columns": "1-2, class"}, [0, 1, 3]),
        ({"columns": "1-4", "drop": "b"}, [0, 2, 3]),
        ({"drop_last": True}, [0, 1, 2]),
        ({"drop_last": True, "drop": "a"}, [1, 2]),
    ],
)
@pytest.mark.parametrize("mark", [",", "\t"])
def test_columns_are_chosen_and_dropped_by_name_number_and_range(options, expected, mark):
    write(table(["a", "b", "c", "class"], A, B, C, D, mark=mark))
    np.testing.assert_array_equal(load(path="rows.csv", **options).train, ROWS[:, expected])


@pytest.mark.parametrize(
    "content",
    [arrays(ROWS), arrays(train=ROWS, test=ROWS), lines(ROWS), lines(ROWS * 1.0, ";"), lines(ROWS, " ")],
)
def test_arrays_and_files_without_names_are_chosen_by_number(content):
    write(content, "rows")
    np.testing.assert_array_equal(load(path="rows", drop="1,3").train, ROWS[:, [1, 3]])
    np.testing.assert_array_equal(load(path="rows", columns="4, 1-2").train, ROWS[:, [3, 0, 1]])
    write(table(range(8), *(A, B, C, D) * 2))  # numbers count from 1 where the names are numbers, too
    np.testing.assert_array_equal(load(path="rows.csv", drop="1, 5-8").train, ROWS[:, 1:])


def test_columns_that_are_left_out_may_hold_anything_and_each_part_has_its_own_names():
    quoted = [f'"{text}"' for text in TEXTS]
    columns = ("name", quoted), ("a", A), ('"b, c"', B), ("when", ["12:30", "", "nan"] * 10), ("d", D)
    moved = [columns[place] for place in (3, 1, 2, 0, 4)]
    for file, order in (("rows.csv", columns), ("test.csv", moved), ("turned.csv", columns[::-1])):
        names, values = zip(*order, strict=True)
        write(table(names, *values), file)
    chosen, dropped = {"columns": 'a, "b, c", d'}, {"drop": ["name", "when"]}
    for options in chosen, dropped, {"test": "turned.csv"} | chosen:
        data = load(**{"path": "rows.csv", "test": "test.csv"} | options)
        np.testing.assert_array_equal(data.train, ROWS[:, [0, 1, 3]])
        np.testing.assert_array_equal(data.test, data.train)
    field, kind, told = refused(path="rows.csv", test="turned.csv", **dropped)
    assert (field, kind) == ("test", "conflict")
    assert "turned.csv: has the column d where rows.csv has a" in told


@pytest.mark.parametrize(
    ("options", "kind", "named"),
    [
        ({"drop": "clas"}, "unknown", "class?"),
        ({"drop": "5"}, "unknown", "5; they are 1 to 4"),
        ({"drop": "0"}, "unknown", " 0; "),
        ({"drop": "9" * 5000}, "unknown", "999"),
        ({"columns": "3-9"}, "unknown", "3-9; "),
        ({"drop": "1-4"}, "unsuited", ""),
        ({"drop": "a", "columns": "a"}, "unsuited", ""),
        ({"drop": "a, b", "columns": "3-4"}, "unsuited", "columns: 3-4"),  # which leaves them out already
        ({"drop": ""}, "value", ""),
        ({"drop": "a,,b"}, "value", ""),
        ({"drop": "x\ny"}, "value", ""),
        ({"drop": "a" * 200_000}, "value", ""),
    ],
    ids=range(12),
)
def test_columns_that_are_not_there_are_named(options, kind, named):
    write(table(["a", "b", "c", "class"], A, B, C, D))
    *told, message = refused(path="rows.csv", **options)
    assert told == [next(iter(options)), kind]
    assert named in message


def test_names_need_a_first_line_of_names_and_files_of_libsvm_have_no_columns():
    write(lines(ROWS))
    *told, message = refused(path="rows.csv", drop="class")
    assert told == ["drop", "unknown"]
    assert {"class", "1", "4"} <= {*re.findall(r"\w+", message)}
    write("1 1:1 2:1\n0 1:1 3:1\n")
    for field in ("drop", "columns"):
        assert refused(path="rows.csv", **{field: "1"})[0] == field
    assert refused("bars-and-stripes", size=2, drop="1")[:2] == ("drop", "unsuited")


@pytest.mark.parametrize(("text", "width"), [("1,0\n1,1,y\n", "2"), ("1,0,y,7\n", "4")])
def test_lines_of_other_lengths_are_found_where_columns_are_left_out(text, width):
    write(f"a,b,class\n0,1,x\n{text}")
    assert {"rows.csv", "3", width} <= {*re.findall(r"[\w.]+", refused(path="rows.csv", drop="class")[-1])}


LABELS = "class Class LABEL labels target id ID y Y index class_label row_id"


@pytest.mark.parametrize(
    "name", [*LABELS.split(), '"class"', "classic", "idea", "yes", "x", "pixel_1", "targeted"]
)
def test_a_column_named_like_labels_is_asked_about_and_never_trained_on_in_silence(name):
    write(table(["a", "b", name], A, B, C))
    if name.strip('"') not in LABELS.split():  # a unit
        np.testing.assert_array_equal(load(path="rows.csv").train, ROWS[:, :3])
        return
    *told, message = refused(path="rows.csv")
    assert told == ["path", "missing"]
    remedy = re.search(r"drop: \[(.*)\].* columns: (\S+)", message)
    assert name.strip('"') in message
    np.testing.assert_array_equal(load(path="rows.csv", drop=remedy[1]).train, ROWS[:, :2])
    np.testing.assert_array_equal(load(path="rows.csv", columns=remedy[2]).train, ROWS[:, :3])


@pytest.mark.parametrize(
    ("names", "listed"),
    [(["id", "a", "class"], "id, class"), (["", "a", "b"], "1"), (["", "0", "1"], "1")],
)
def test_all_columns_like_labels_are_named_at_once_or_by_number_if_they_have_no_name(names, listed):
    write(table(names, NUMBERED, A, B))
    *told, message = refused(path="rows.csv")
    assert told == ["path", "missing"]
    assert f"drop: [{listed}]" in message
    kept = [1, 2] if listed == "1" else [1]
    np.testing.assert_array_equal(
        load(path="rows.csv", drop=listed).train, np.array([NUMBERED, A, B]).T[:, kept]
    )


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        *((f"id,a,species,b\n1,{gap},setosa,1\n2,0,setosa,1\n", "id, species") for gap in ("", "?", "0")),
        ("a,b,species\n0,1,setosa\n1,0,virginica\n", "species"),
        ("0,1,setosa\n1,0,virginica\n", "3"),
    ],
)
def test_text_is_named_with_the_columns_that_are_asked_about(text, remedy):
    write(text)
    field, _, told = refused(path="rows.csv")
    assert field == "path"
    assert f"drop: [{remedy}]" in told
    assert "columns: 1-4" not in told  # which would train on words
    if "id" not in remedy:
        np.testing.assert_array_equal(load(path="rows.csv", drop=remedy).train, [[0, 1], [1, 0]])


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
    write(table(["id", "a", "b", "c", "class"], NUMBERED, A, B, C, ["setosa", "true", "other"] * 10))
    write(grid_text("rbm", data="{path: rows.csv, drop: [id, class], hold_out: 0.2}"), "grid.yaml")
    told = cbm("run", "grid.yaml", "-j", 0, "--trials", 1, "--set", "epochs=1", "--set", "batch=10").stderr
    (line,) = (line for line in told.splitlines() if "rows.csv" in line)
    numbers = [*map(int, re.findall(r"\b\d+\b", line))]
    assert (numbers[:2], numbers[-2:]) == ([24, 3], [6, 0])  # rows, units; held out, seed
    machine, *_ = cbm("best", "results").stdout.splitlines()
    source = "rows.csv:drop=id,class,flip=true"
    assert "log-likelihood" in cbm("evaluate", machine, "--data", source).stdout.lower()
    cbm("features", machine, "--data", source, "-o", "out.npz")
    assert load_source(source).width == 3
    assert "drop: [class]" in cbm("evaluate", machine, "--data", "rows.csv:drop=id", code=2).stderr
    told = cbm("run", "grid.yaml", "-j", 0, "--set", "data.drop=[id, clas]", code=2)
    assert [one[1:] for one in problems_of(told)] == [("toy.data.drop", "unknown")]
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
    np.testing.assert_array_equal(np.concatenate([data.train, data.valid]).sum(axis=0), rows.sum(axis=0))
    assert (np.diff(data.train.argmax(axis=1).astype(int)) >= 0).all()  # the others keep their order
    np.testing.assert_array_equal(again.valid, data.valid)


def test_seeds_draw_other_rows_and_the_old_way_takes_the_last_ones():
    rows = ((np.arange(200)[:, None] >> np.arange(8)) & 1).astype(np.uint8)  # all different
    write(lines(rows))
    held = [load(path="rows.csv", hold_out=40, seed=seed).valid for seed in range(3)]
    assert len({one.tobytes() for one in held}) == 3
    mean = np.mean([row @ (1 << np.arange(8)) for row in np.concatenate(held)])
    assert abs(mean - 99.5) < 4 * 200 / 12**0.5 / 120**0.5
    np.testing.assert_array_equal(load(path="rows.csv", hold_out=40, rows="last").valid, rows[-40:])


def test_ways_to_hold_rows_out_have_their_own_cells_and_are_said():
    ways, dumps = {"": "seed 0", ", rows: last": "last", ", seed: 1": "seed 1"}, set()
    for way, said in ways.items():
        text = grid_text("rbm", data=f"{{name: shifting-bar, size: 9, bar: 1, hold_out: 3{way}}}")
        (cell,) = read_grid("grid.yaml", text=text).experiments["toy"].cells
        assert re.search(rf"valid 3 rows, .*\b{said}\b", describe(cell.data, load(cell.data)))
        dumps.add(json.dumps(cell.model_dump(mode="json"), sort_keys=True))
        row = {f"data_{field}": value for field, value in cell.data.model_dump().items()}
        assert spec_of(row).model_dump() == cell.data.model_dump()
    assert len(dumps) == 3
    del row["data_rows"]  # results that do not say which rows took the last ones
    assert spec_of(row | {"data_seed": 0}).rows == "last"


@pytest.mark.parametrize(
    ("options", "field", "kind"),
    [
        ({"rows": "last"}, "rows", "unsuited"),
        ({"seed": 3}, "seed", "unsuited"),
        ({"hold_out": 3, "rows": "last", "seed": 3}, "seed", "unsuited"),
        *(
            ({"hold_out": one}, "hold_out", "value")
            for one in (0, 1.5, -1, "x", "nan", "-0.2", "9" * 5000, True)
        ),
    ],
)
def test_what_cannot_be_held_out_is_refused(options, field, kind):
    assert refused(name="shifting-bar", size=9, bar=1, **options)[:2] == (field, kind)
