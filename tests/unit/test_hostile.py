"""Input that is damaged or meant to harm is refused in a line, or made harmless."""

import gzip
import io
import json
import os
import re
import time
import tracemalloc
import zipfile
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from cbm_cli import arrays as npz
from cbm_cli import cli as main_module
from cbm_cli.choices import FORMATS
from cbm_cli.cli import main
from cbm_cli.cli.output import live
from cbm_cli.datasets import formats
from cbm_cli.datasets.loading import load
from cbm_cli.errors import CbmError
from cbm_cli.grid.read import read_grid
from cbm_cli.machines.files import read_machine
from cbm_cli.results.states import read_progress, sealed_npz
from cbm_cli.sheets import Group, Label, Sheet, Value
from cbm_cli.text import CONTROL
from cbm_cli.trial.own_recorders import compile_recorder
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from tests.builders import (
    GRID,
    MACHINES,
    arrays,
    cbm,
    grid_text,
    holds,
    idx,
    lines,
    mat,
    problems_of,
    refusal,
    run_grid,
    summary,
)
from tests.networks import layered, machine_file

pytestmark = pytest.mark.usefixtures("here")

ROWS = np.random.default_rng(1).integers(0, 2, (6, 5)).astype(np.uint8)
CORPUS = Path(__file__).parents[1] / "corpus"
QUICK = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def limited(monkeypatch, limit):
    """Let an unpacked file have so many bytes, so that a small bomb is one."""
    for module in (npz, formats):
        monkeypatch.setattr(module, "MOST_BYTES", limit)


# Damaged files: any change of a small file is read, or refused in one line that names
# it


MILLIONS = arrays(np.zeros(30_000_000, np.uint8))


def read_rows(path):
    """The tables of a file of rows."""
    with formats.reading(path):
        return formats.tables_in(formats.unpacked(path))


def read_state(path):
    """The state of a trial in a file whose checksum is right, whatever it holds."""
    path.write_bytes(sealed_npz(path.read_bytes()))
    return read_progress(path)


KINDS = [((4, 3), "rbm"), ((4, 3, 2), "dbm")]
READERS = {
    "text": (
        read_rows,
        [lines(ROWS), lines(ROWS, "; "), b"a,b\n0,1\n", b"1 1:1 3:0.5\n-1 2:1\n"],
    ),
    "npy": (
        read_rows,
        [arrays(ROWS), arrays(ROWS.astype(">f4")), gzip.compress(arrays(ROWS))],
    ),
    "npz": (read_rows, [arrays(train=ROWS, test=ROWS), arrays(x=ROWS, y=ROWS[0])]),
    "idx": (read_rows, [idx(ROWS), idx(ROWS.reshape(6, 5, 1))]),
    "machine": (
        read_machine,
        [arrays(**machine_file(layered(it, 1), kind)) for it, kind in KINDS],
    ),
    "state": (read_state, []),
}


def changed(content, edits):
    """The content after flips, cuts and insertions at relative places."""
    for kind, place, value in edits:
        at = int(place * len(content))
        end = at + (kind == "flip") if kind != "cut" else at + value
        content = content[:at] + bytes([value] * (kind != "cut")) + content[end:]
    return content


WAYS = st.sampled_from(["flip", "cut", "insert"])
EDITS = st.lists(
    st.tuples(WAYS, st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=4
)


def check_read(reader, content):
    """Read a file, or see it refused in one line; no other error may leave the
    reader.
    """
    Path("input").write_bytes(content)
    told = "input"
    try:
        reader(Path("input"))
    except CbmError as error:
        told = str(error)
    assert re.fullmatch("input((?!BytesIO).)*", told)


@pytest.mark.parametrize(
    "name", [name for name, (_, contents) in READERS.items() if contents]
)
@QUICK
@given(which=st.integers(0, 3), edits=EDITS)
def test_a_damaged_file_is_read_or_refused_in_one_line(name, which, edits, monkeypatch):
    limited(monkeypatch, 2**20)
    reader, contents = READERS[name]
    check_read(reader, contents[which % len(contents)])
    check_read(reader, changed(contents[which % len(contents)], edits))


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*")), ids=lambda path: path.name)
def test_inputs_that_once_failed_are_refused(path, monkeypatch):
    limited(monkeypatch, 2**24)
    check_read(READERS[path.parent.name][0], path.read_bytes())


# MAT files


def test_a_sparse_array_that_points_outside_of_itself_is_refused():
    """SciPy's toarray writes to memory that is not its own."""
    content, places = mat(compressed=False, train=csr_matrix(np.eye(3))), [0, 1, 2]
    for whole, bad in (
        (places, [3, 1, 2]),
        (places, [-1, 1, 2]),
        ([0, 1, 2, 3], [0, 2**28, -(2**28), 0]),  # an empty matrix, by its last number
    ):
        right, wrong = (np.array(of, "<i4").tobytes() for of in (whole, bad))
        Path("bad.mat").write_bytes(content.replace(right, wrong, 1))
        assert holds(refusal(read_rows, Path("bad.mat")), "bad.mat")


@pytest.mark.parametrize(
    ("at", "value"),
    [(128, 99), (132, 7), (136, 99), (145, 8), (152, 99), (156, 3), (184, 14)],
)
@pytest.mark.parametrize(
    "more", [{"train": ROWS * 1.0}, {"train": csr_matrix(np.eye(3))}]
)
def test_elements_of_a_mat_file_that_scipy_would_crash_at_are_refused(at, value, more):
    content = bytearray(mat(compressed=False, **more))
    content[at] = value
    Path("bad.mat").write_bytes(content)
    assert holds(refusal(read_rows, Path("bad.mat")), "bad.mat")
    Path("bad.mat").write_bytes(mat(**more)[:-9])
    assert holds(refusal(read_rows, Path("bad.mat")), "cut short")


@pytest.mark.parametrize("kind", [float, bool])
def test_a_sparse_array_of_a_mat_file_without_its_values_is_refused(kind):
    """Whether it is sparse is in eight bits, next to others that say it is logical."""
    whole = mat(compressed=False, train=csr_matrix(np.eye(3, dtype=kind)))
    values = 8 + 3 * 8 if kind is float else 8  # with their head
    content = bytearray(whole[:-values])
    content[132:136] = (len(content) - 136).to_bytes(4, "little")
    Path("bad.mat").write_bytes(content)
    assert holds(refusal(read_rows, Path("bad.mat")), "bad.mat|other bytes")


# Long lines


TIMES = "1 12:30:00" + 22 * " 12:34:56" + " end"
MACS = "1 00:1b:44:11:3a:b7" + 9 * " 00:1b:44:11:3a:b7" + " end"
DIGITS = "7" * 60_000
LONG = {
    "times": TIMES,
    "addresses": MACS,
    "indices": "1 1:1" + 30_000 * " 1:1" + " end",
    "blanks": "1 1:1" + 60_000 * " " + "end",
    "colons": "1 1:" + 60_000 * ":" + " end",
    "comments": "1 1:1 " + 30_000 * "# " + "end",
    "digits": f"{DIGITS}x,1",
    "fraction": f"0.{DIGITS}x,1",
    "exponent": f"1e{DIGITS}x,1",
    "commas": f"{DIGITS},{DIGITS};x",
    "quotes": 30_000 * '""' + "x,1",
    "words": f"{'a ' * 30_000},b",
}


@pytest.mark.parametrize("what", LONG)
def test_a_long_line_takes_time_in_proportion_to_its_length(what):
    """Patterns that can split a line in several ways take minutes or years."""
    Path("long.txt").write_text(f"{LONG[what]}\n0,1\n" * 2)
    start = time.process_time()
    with suppress(CbmError):
        read_rows(Path("long.txt"))
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    "columns", [f"{'row_' * 15_000}x", f"{DIGITS}x", "a, " * 20_000]
)
def test_long_names_of_columns_take_time_in_proportion_to_their_length(columns):
    start = time.process_time()
    frame = pd.DataFrame({columns: [0, 1], "b": [1, 0]})
    assert formats.table_of(frame).names == (columns, "b")
    refusal(load, path=f"rows.csv:{columns}")
    assert time.process_time() - start < 5


# Bombs


def claimed(shape, dtype="<f8"):
    """Content of an NPY file with a header of any shape, and ten bytes."""
    stream, header = (
        io.BytesIO(),
        {"shape": shape, "fortran_order": False, "descr": dtype},
    )
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue() + bytes(10)


def zipped(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return stream.getvalue()


SHAPE, HUGE = b"\6\0\0\0\5\0\0\0", b"\xff\xff\xff\x7f\5\0\0\0"  # of ROWS in a MAT file
SIZE = (30_000_128).to_bytes(4, "little")  # of an NPY file of MILLIONS
BOMBS = {
    "gzip": (gzip.compress(b"0,1\n" * 7_500_000, mtime=0), ""),
    "npy header": (claimed((2**40,)), "8,796,093,022,208"),
    "npy of impossible texts": (claimed((1,), "<U3")[:-10] + b"\xff" * 12, ""),
    "npy negative": (claimed((-1,)), "10"),
    "npy of wide texts": (claimed((1,), "<U500000000"), "2,000,000,000"),
    "npz member": (zipped(train=MILLIONS), "30,000,128"),
    "npz understated": (
        zipped(train=MILLIONS).replace(SIZE, (138).to_bytes(4, "little")),
        "",
    ),
    "mat compressed": (mat(train=np.zeros((3000, 10_000), np.uint8)), ""),
    "mat shape": (mat(compressed=False, train=ROWS * 1.0).replace(SHAPE, HUGE), ""),
    "libsvm": (b"1 1000000:1\n" * 40, "320,000,000"),
    "columns": (b"1," * 200_000 + b"1\n", "100,000"),
    "rows": (b"0.5,1\n" * 1_000_000, "16,000,000"),
    "idx": (b"\0\0\x08\3" + b"\xff" * 12, ""),
}


@contextmanager
def taking(most):
    """Check that what is done within takes at most so many bytes of memory."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("what", BOMBS)
def test_a_bomb_is_refused_before_it_takes_memory(what, monkeypatch):
    content, told = BOMBS[what]
    limited(monkeypatch, 10_000_000)
    Path("bomb").write_bytes(content)
    with taking(30_000_000):
        error = refusal(read_rows, Path("bomb"))
    assert str(error).partition(":")[0] == "bomb"
    assert holds(error, told)


def test_a_part_that_another_one_widens_is_refused_before_it_takes_memory(monkeypatch):
    limited(monkeypatch, 10_000_000)
    Path("train").write_bytes(b"1 1:1\n" * 40)
    Path("test").write_bytes(b"1 1000000:1\n")
    assert holds(refusal(load, path="train", test="test"), "train|40,000,000")


def test_members_that_are_not_needed_are_not_unpacked(monkeypatch):
    limited(monkeypatch, 10_000_000)
    odd = {"bomb": MILLIONS, "pickled": arrays(np.array([{}]))}
    its = machine_file(layered((4, 3), 1), "rbm")
    its = {name: arrays(np.asarray(array)) for name, array in its.items()}
    for name, members in {"m.npz": its, "rows.npz": {"train": arrays(ROWS)}}.items():
        Path(name).write_bytes(zipped(**odd, **members))
    assert problems_of(refusal(read_machine, Path("m.npz"))) == [("m.npz", "")]
    read_rows(Path("rows.npz"))
    assert problems_of(refusal(npz.read_npz, Path("rows.npz"), where="rows.npz")) == [
        ("rows.npz", "")
    ]
    monkeypatch.undo()
    assert npz.MOST_BYTES >= 2 * 70_000 * 784 * 8  # MNIST in float64


def test_reading_a_small_array_of_a_large_file_takes_little_memory():
    large = np.random.default_rng(1).integers(0, 256, 20_000_000, np.uint8)
    Path("large.npz").write_bytes(arrays(large=large, small=np.arange(3)))
    with taking(1_000_000):
        assert npz.read_npz(Path("large.npz"), ["small"])["small"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("place", ["/dev/zero", "pipe", "."])
def test_an_endless_device_is_not_a_file(place):
    os.mkfifo("pipe")
    for reader in (read_rows, read_machine):
        assert holds(refusal(reader, Path(place)), "plain file")


# Grids


def check_grid(text, changes=None):
    """Read a grid, or see it refused in lines that name a place each."""
    Path("grid.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
    told = ""
    try:
        read_grid(Path("grid.yaml"), changes or {})
    except CbmError as error:
        told = str(error)
    for line in told.splitlines():
        assert line.startswith(("grid.yaml", "--set"))
        assert len(line) < 2000


FIELDS = [*yaml.safe_load(GRID)["experiments"]["bars"]]
WORDS = [*FIELDS, "defaults", "experiments", "when", "exclude", "if", "set"]
ODD = [
    "00",
    "dd^b_s",
    "PT_10",
    "rbm",
    "mnist",
    "exact",
    "1 epoch",
    "=1",
    "\x1b[31m",
    "\ud800",
]
SCALARS = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats()
SCALARS |= st.text(max_size=8) | st.sampled_from([*WORDS, *ODD])
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(SCALARS, inner, max_size=3)
    ),
    max_leaves=8,
)
TOP = st.dictionaries(st.sampled_from(WORDS), VALUES, min_size=1, max_size=4)
SET = st.sampled_from([*FIELDS, "data.flip", "trials", "nothing"])


@QUICK
@given(TOP, st.sampled_from([*MACHINES]))
def test_any_grid_is_read_or_refused(fields, kind):
    whole = yaml.safe_load(grid_text(kind))
    whole["experiments"]["toy"] |= fields
    check_grid(yaml.safe_dump(whole))


@QUICK
@given(SET, st.text() | VALUES.map(yaml.safe_dump))
def test_any_text_of_set_is_read_or_refused(field, text):
    check_grid(GRID, {field: text})


# Names and links: nothing leads out of a folder


def test_what_cannot_be_a_folder_everywhere_cannot_name_an_experiment():
    for name in (
        "..",
        "a/b",
        "a\\u001b[31m",
        "-rf",
        "é",
        "a.yaml",
        "b.npz",
        "x" * 101,
        "",
    ):
        error = refusal(
            read_grid, "grid.yaml", text=GRID.replace("  bars:", f'  "{name}":')
        )
        assert [place for place, _ in problems_of(error)] == ["4"]
        assert re.search(": cannot name an? (experiment|folder)", str(error))
        assert not CONTROL.search(str(error))


# Code


def test_no_code_refuses_recorders_of_files_and_runs_none():
    Path("mine.py").write_text(
        "open('ran', 'w')\ndef f(snapshots, context): return {}\n"
    )
    Path("grid.yaml").write_text(
        GRID.replace("    table:", "    record: mine.py:f\n    table:")
    )
    refused = cbm("run", "grid.yaml", "--no-code", "--dry-run", code=2)
    assert problems_of(refused) == [("13", "bars.record.what")]
    assert holds(refused.stderr, "mine.py:f|--no-code")
    assert not Path("ran").exists()
    cbm("run", "grid.yaml", "--no-code", "--dry-run", "--set", "record=weight_norms")


def test_a_column_that_would_break_a_file_is_refused_by_name():
    def recorded(*columns):
        text = ", ".join(f"{column!r}: snapshots.update + 0.5" for column in columns)
        recorder = compile_recorder(
            "mine.py:f", f"def f(snapshots, context): return {{{text}}}\n"
        )
        return recorder(SimpleNamespace(update=np.arange(3)), None)

    bad = ["a,b", "a\nb", "", " a", "a ", "x" * 101, "=1+1", "\x1b[31m"]
    for columns in (*([name] for name in bad), [1, "1"]):
        error = refusal(recorded, *columns)
        assert holds(error, "record|mine.py, f")
        assert repr(str(columns[-1])[:40]) in str(error)
        assert ("appears twice" in str(error)) == (len(columns) > 1)
        assert not CONTROL.search(str(error))
    (values,) = recorded("é (mean) a_1:2/3+4-5.6").values()
    assert values.tolist() == [0.5, 1.5, 2.5]


# What reaches a terminal, a spreadsheet, a page


HOSTILE = "\x1b]0;title\x07\x1b[31mred\x9b2J\u202etxt\r[bold]<script>&\ud800"


def test_a_description_and_a_folder_do_nothing_to_a_terminal():
    text = GRID.replace(
        "  bars:", '  bars:\n    description: "\\e]0;t\\a \\x9b2J \\u202e [red]x"'
    )
    run_grid(text, "--trials", 1)
    Path("results/bars").rename(
        Path("results", HOSTILE.replace("\ud800", "").replace("/", ""))
    )
    for command in ("ls grid.yaml", "ls", "table", "best", "evaluate results -j 0"):
        output = cbm(*command.split()).output
        assert not CONTROL.search(output.replace("\n", ""))
    assert "[red]x" in cbm("ls", "grid.yaml").output
    assert "\\u001b[31mred" in cbm("ls").output


ESCAPES = "\x1b]0;title\x07\x1b[31mred\x9b2J\u202e"
OWN = f"""def f(snapshots, context):
    raise ValueError({ESCAPES!r})
"""


def spoiled(folder):
    """Put escape sequences into a journal, a manifest, and names of columns."""
    journal = folder / "bars" / "trials.jsonl"
    line = f'{{"run_id":"{ESCAPES}","trial":1,"status":"{ESCAPES}"}}'
    journal.write_text(f"{journal.read_text()}{line}\n{ESCAPES}\n")
    manifest = folder / "bars" / "manifest.json"
    facts = json.loads(manifest.read_text())
    facts["description"] = ESCAPES
    facts["evil"] = ESCAPES
    manifest.write_text(json.dumps(facts))
    rows = "1,0,1,0\n0,1,0,1\n1,1,0,0\n"
    Path("rows.csv").write_text(f"a{ESCAPES},b,c,class\n{rows}")


@pytest.mark.parametrize(
    "command",
    [
        *("ls out", "ls out bars", "ls out --json", "best out", "table out"),
        *("evaluate out -j 0", "verify out --sample 1 -j 0", "run grid.yaml -j 0"),
        *("run grid.yaml -o out -j 0 --dry-run", "run own.yaml -o own -j 0"),
        *("ls own.yaml", "plot out curves bars -o c.png", "report out -o r.html"),
        "plot data rows.csv -o d.png",
    ],
)
def test_no_command_lets_a_text_of_a_file_change_a_terminal(finished, command):
    spoiled(Path("out"))
    Path("own.py").write_text(OWN)
    Path("own.yaml").write_text(
        GRID.replace("batch: full", "batch: full\n    record: own.py:f").replace(
            "  bars:", '  bars:\n    description: "\\e]0;t\\a \\x9b2J"'
        )
    )
    result = CliRunner().invoke(main, command.split())
    assert not isinstance(result.exception, AssertionError)
    assert not CONTROL.search(result.output.replace("\n", "").replace("\t", ""))
    if "own" in command and "run" in command:
        assert "\\u001b[31mred" in result.output


def test_commands_print_in_one_place():
    """Only `cbm_cli/cli/output.py` prints, and makes harmless what it prints."""
    folder = Path(main_module.__file__).parent
    printing = [
        path.name
        for path in folder.glob("*.py")
        if re.search(r"\bclick\.(echo|secho)\(|(?<!_)\bprint\(", path.read_text())
    ]
    assert printing == ["output.py"]
    assert (folder / "output.py").read_text().count("click.echo(") == 1


@pytest.mark.parametrize("format_", FORMATS)
def test_no_format_of_a_sheet_lets_control_characters_through(format_):
    words = Label.of(HOSTILE)
    group = Group(words, [[words, Value("1", "2", flags=HOSTILE, mark="bold")]])
    about, records = {"about": HOSTILE}, [{HOSTILE: HOSTILE}]
    sheet = Sheet(
        [words, words], [group], HOSTILE, HOSTILE, [HOSTILE], lambda: records, about
    )
    text = sheet.render(format_)
    assert not CONTROL.search(text.replace("\n", ""))
    assert format_ != "json" or json.loads(text)["about"] == HOSTILE


def test_a_formula_becomes_text_in_csv_and_numbers_stay_numbers():
    cells = ["=1+1", "+cmd|x", "@x", "-x", "-1.5", -1.5, "+2e-3", "a=b"]
    _, row = (
        Sheet([], [], records=lambda: [dict(enumerate(cells))])
        .render("csv")
        .splitlines()
    )
    assert row == "'=1+1,'+cmd|x,'@x,'-x,-1.5,-1.5,+2e-3,a=b"


def test_a_data_set_named_like_a_formula_is_text_in_the_summary():
    Path("=rows.csv").write_text("1,1\n0,1\n1,1\n")
    data = "[{path: '=rows.csv'}, {path: '=rows.csv', name: '@b', columns: [1]}]"
    found = run_grid(grid_text("rbm", data=data, batch="full", trials="1"))
    assert [row["data"] for row in summary(found, "toy")] == ["'=rows", "'@b"]


def test_a_note_is_printed_above_the_bar_and_not_into_it(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with live(lambda: 0.5, lambda: ["1 of 2 [red]trials :smile:"]) as tell:
        tell("begun")  # with the bar below it
        tell("lost [red]x")
    before, _, after = capsys.readouterr().err.partition("lost [red]x")
    assert "1 of 2 [red]trials :smile:" in before
    assert before.endswith("\x1b[2K")  # the bar is erased first
    assert after.startswith("\n")


def test_letters_that_a_terminal_does_not_have_are_question_marks(finished):
    result = CliRunner(charset="latin-1").invoke(main, ["table", "out"])
    assert result.exit_code == 0, result.exception
    assert holds(result.output, "± 0|CD-1")
    assert "????" in result.output  # for the line below the heads


def test_trainings_without_end_are_begun_and_endless_rows_and_rates_are_refused():
    Path("grid.yaml").write_text(GRID.replace("every: 20", "every: 1e9"))
    long = "run", "grid.yaml", "--dry-run", "--set", "updates=1e12"
    with taking(100_000_000):
        cbm(*long)
    for field, change in (
        ("evaluate.every", "evaluate.every=20"),
        ("record.every", "record={what: weight_norms, every: 20}"),
        ("record.window", "record={what: weight_norms, window: 0-50_000_000_000}"),
        ("learning_rate.every", "learning_rate={start: 0.1, decay: 0.9, every: 20}"),
    ):
        refused = cbm(*long, "--set", change, code=2)
        assert [it.partition(".")[2] for _, it in problems_of(refused)] == [field]
        assert holds(refused.stderr, "50,000,000,000|1,000,000,000,000")


def test_an_npz_file_of_ours_is_one_of_numpy():
    arrays = {"W": np.arange(6.0).reshape(2, 3).T, "Ω": np.array(["é", "Ω1"])}
    arrays |= {"none": np.zeros((0, 4), np.float32), "c": np.float32([1, 2])[::-1]}
    content = io.BytesIO(npz.npz_of(arrays))
    for found in (np.load(content, allow_pickle=False), npz.read_npz(content)):
        assert [*found] == [*arrays]
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array, strict=True)
    archive = zipfile.ZipFile(content)
    assert archive.testzip() is None
    assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
