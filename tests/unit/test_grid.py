"""Grid files: what they expand to, what is wrong with them and where, and their JSON
schema.
"""

import json
import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import yaml
from cbm_cli.grid.read import read_grid
from cbm_cli.grid.schema import json_schema
from cbm_cli.grid.settings import TableSpec
from cbm_cli.results.columns import Columns

from tests.builders import (
    PAPER,
    VALIDATOR,
    cbm,
    check_mistake,
    grid_text,
    mistakes,
    problems_of,
    refusal,
)

# Lines 1 to 8 of most files below; what a test is about is on line 9 and after.
PLAIN = """\
experiments:
  toy:
    data: {name: shifting-bar, size: 9, bar: 1}
    model: {kind: rbm, hidden: 4}
    offsets: dd^b_s
    sampler: PT_10
    learning_rate: 0.1
    updates: 100
"""
FIELDS = PLAIN.partition("toy:\n")[2]
SEVERAL = f"defaults:\n{FIELDS}experiments: {{a: {{}}, b: {{}}, c: {{}}}}\n"


def read(text, *args, **named):
    """Read the text of a grid file."""
    return read_grid(Path("grid.yaml"), *args, text=text, **named)


def cells(*args, **named):
    """Return the cells of the experiment ``toy``."""
    return read(*args, **named).experiments["toy"].cells


def refused(*args, **named):
    """Return what is said of a bad grid file."""
    return refusal(read, *args, **named)


def without(field):
    return "".join(line for line in PLAIN.splitlines(True) if f" {field}:" not in line)


# ---- What a grid expands to ----


def test_defaults_serve_where_an_experiment_is_silent():
    text = """\
defaults: {trials: 3, updates: 100, data: mnist, sampler: CD-1, learning_rate: [0.1, 0.2],
  model: {kind: rbm, hidden: 4}, table: {columns: init},
  when: [{if: {offsets: 00}, set: {init: zero}}]}
experiments:
  toy: {offsets: 00}
  other: {offsets: d0, learning_rate: 0.3, epochs: 5, trials: 4}
"""
    toy, other = read(text).experiments.values()
    assert (toy.trials, other.trials, toy.table) == (3, 4, TableSpec(columns=("init",)))
    found = [
        (it.learning_rate.start, it.updates, it.epochs)
        for it in (*toy.cells, *other.cells)
    ]
    assert found == [(0.1, 100, None), (0.2, 100, None), (0.3, None, 5)]
    assert [it.init for it in (*toy.cells, *other.cells)] == [
        "zero",
        "zero",
        "inverse-sigmoid",
    ]


FACTORS = "\n    sliding_factor: {hidden: [0.1, 0.2]}"


def test_names_of_a_table_may_be_single_words_and_default_axes_leave_them_out():
    for given, rows, columns, groups in (
        (
            "{rows: model.hidden, columns: [init, batch]}",
            "model_hidden",
            "init batch",
            "data",
        ),
        ("{rows: hidden, groups: sampler}", "model_hidden", "offsets", "sampler"),
        ("{rows: offsets}", "offsets", "", "data"),
        (
            "{rows: sliding_factor}" + FACTORS,
            "sliding_factor_hidden",
            "offsets",
            "data",
        ),
    ):
        toy = read(PLAIN + f"    table: {given}\n").experiments["toy"]
        of_cells = Columns([cell.row() for cell in toy.cells])
        axes = (toy.table.rows, toy.table.columns, toy.table.groups)
        found = [" ".join(of_cells.of_settings(axis)) for axis in axes]
        assert found == [rows, columns, groups]


def test_byte_order_mark_and_windows_line_ends_do_not_matter(tmp_path):
    (tmp_path / "grid.yaml").write_bytes(
        b"\xef\xbb\xbf" + PLAIN.replace("\n", "\r\n").encode()
    )
    toy = read_grid(tmp_path / "grid.yaml").experiments["toy"]
    assert (toy.cells, toy.trials, toy.seed) == (cells(PLAIN), 25, 1)


def test_trial_k_has_the_same_seed_in_every_cell():
    trials = [*read(PLAIN.replace("0.1", "[0.1, 0.2]"), trials=3).experiments["toy"]]
    found = [(trial.number, trial.settings.learning_rate.start) for trial in trials]
    assert found == [*product(range(3), (0.1, 0.2))]
    (late, *_) = read(f"{PLAIN}    seed: {2**32 + 5}\n").experiments["toy"]
    for trial, seed in (
        (late, [5, 0, 1, 0]),
        *((it, [1, it.number, 0, 0]) for it in trials),
    ):
        words = np.random.SeedSequence(seed)  # halves, the low ones first
        assert trial.seed == words.generate_state(1, np.uint64)[0]


def test_groups_are_chosen():
    groups = "groups: {outer: [b, a, c], inner: [b, a], one: b}\n"
    for more, asked, found in (
        ("default: c\n", [], "c"),
        ("default: [outer, a]\n", [], "b a c"),
        ("default: a\n", ["c", "one", "b"], "c b"),
    ):
        grid = read(SEVERAL + groups + more)
        assert grid.groups == {
            "outer": ("b", "a", "c"),
            "inner": ("b", "a"),
            "one": ("b",),
        }
        assert [one.name for one in grid.select(asked)] == found.split()
    for name, told in (("inne", "inner?"), ("x", "a, b, c, outer, inner, one")):
        error = str(refusal(grid.select, ["a", name]))
        assert re.fullmatch(f"grid.yaml: .*'{name}'.* {re.escape(told)}", error)


def test_a_default_serves_the_experiments_that_it_suits():
    chains = "defaults: {chains: 5}\n"
    assert problems_of(refused(chains + PLAIN)) == [("1", "defaults.chains")]
    other = FIELDS.replace("PT_10", "PCD-1")
    toy, other = read(
        f"{chains}{PLAIN}  other:\n{other}    start_from: toy\n"
    ).experiments.values()
    assert [one.cells[0].chains for one in (toy, other)] == [None, 5]
    assert other.sources == (toy,)


BAR_OR_MNIST = (
    without("data") + "    data: [mnist, {name: shifting-bar, size: 9, bar: 1}]\n"
)
HALF = "sliding_factor.visible=0.01 sliding_factor.hidden=0.5"
TITLES = "mnist", "flipped-mnist", "shifting-bar", "flipped-shifting-bar"
RATES = PLAIN.replace("0.1", "[0.1, 0.2]") + "    exclude: [{learning_rate: 0.2}]\n"


@pytest.mark.parametrize(
    ("text", "changes", "found"),
    [
        (
            PLAIN,
            "learning_rate=5e-2; updates=7",
            ["learning_rate.start=0.05 updates=7"],
        ),
        (
            BAR_OR_MNIST,
            "data.flip=[off, on]",
            [f"data.title={title}" for title in TITLES],
        ),
        (PLAIN, "sliding_factor.hidden=0.5", [HALF]),
        # Conditions may then hold nowhere, and fields have no effect
        (RATES, "learning_rate=0.3", ["learning_rate.start=0.3"]),
        (PLAIN + "    sliding_factor: 0.1\n", "offsets=00", ["offsets=00"]),
        (
            grid_text("dbm"),
            "model.hidden=[[7, 3], 4-2]",
            ["model.hidden=7-3", "model.hidden=4-2"],
        ),
        # A part may be set after the whole
        (PLAIN, "data={name: mnist}; data.flip=true", ["data.title=flipped-mnist"]),
    ],
)
def test_overrides_replace_fields_and_reach_into_them(text, changes, found):
    paths = re.findall(r"([\w.]+)=", found[0])
    changed = cells(text, dict(one.split("=") for one in changes.split("; ")))
    assert [
        " ".join(f"{path}={cell.value(path)}" for path in paths) for cell in changed
    ] == found


def test_bad_override_is_reported_once_by_the_option():
    for change, told in (
        ("lr=0.2", "learning_rate?"),
        ("every=5", "evaluate.every"),
        ("offsets=00,aa^b", "[00,aa^b]"),
        ("learning_rate=", "learning_rate"),
        ("data={name: mnist, sise: 3}", "size sise"),
        ("trials=0", "0"),
    ):
        field, _, text = change.partition("=")
        error = refused(SEVERAL, {field: text})
        named, _, inner = told.partition(" s")
        assert problems_of(error) == [(f"--set {field}", f"s{inner}" if inner else "")]
        assert named in str(error)
    assert problems_of(refused(SEVERAL, trials=0)) == [("--trials", "")]


def test_changes_leave_experiments_alone_that_are_not_run():
    coder = "c: {model: {kind: auto-encoder, hidden: 4}, offsets: 00}"
    text = SEVERAL.replace("c: {}", coder) + "groups: {some: [a]}\n"
    changed = read(text, {"sampler": "PT_4"}, 3, ["some"]).experiments
    assert [one.cells[0].sampler for one in changed.values()] == ["PT_4", "PT_10", None]
    assert [one.trials for one in changed.values()] == [3, 25, 25]
    error = refused(text, {"sampler": "PT_4"}, None, ["c"])
    assert problems_of(error) == [("--set sampler", "")]


def test_of_two_values_none_wins_in_silence(grid):
    for options, place in (
        ("--set updates=3 --set updates=4", "--set updates"),
        ("--set data.flip=true --set data=mnist", "--set data"),
        ("--trials 3 --set trials=4", "--trials and --set trials"),
        ("--dry-run", "--dry-run"),
    ):
        result = cbm("run", "grid.yaml", "--dry-run", *options.split(), code=2)
        assert result.stderr.splitlines()[-1].startswith(f"Error: {place}: ")


# ---- What is wrong, and where ----

MISTAKES = """
rbm weight_scal weight_scale = !@weight_scal: 1
rbm data mnst mnist = @mnst
rbm data rows.csv path = @rows.csv
rbm data.size* shifting-bar 9 1 = @shifting-bar
rbm data.size* mnist bars-and-stripes shifting-bar = {name: mnist, size: @3}
rbm data.scale* mnist path = {name: mnist, scale: @2}
rbm data.bar* 4 = {name: shifting-bar, size: 4, bar: @4}
rbm data.size* 1 10 = {name: bars-and-stripes, size: @11}
rbm data.size* a bars-and-stripes shifting-bar = {path: a.csv, size: @3}
rbm data.threshold* binarise = {name: mnist, binarise: none, threshold: @0.3}
rbm data.binarise otsu threshold sample none = {name: mnist, binarise: @otsu}
rbm data.name* mnist my-data = !@data: {path: a/mnist.csv.gz}
rbm data.path* = {path: @"rows\\0.csv"}
rbm data.name* 100 = {path: rows.csv, name: @"\\e[31mred"}
rbm data* path = !@data: {flip: yes}
rbm model.hidden = !@model: {kind: rbm}
rbm model 4 kind hidden = !@model: 4
rbm data* = !data:; weight_scale: [1, 2, 3]
rbm model.kind rbm dbm auto-encoder dbn = {kind: @dbn, hidden: 4}
rbm learning_rate 0.5 = @0,1
rbm learning_rate.start 1000 = {start: @'1,000'}
rbm batch 0.5 = @1,5
rbm updates 1000 = @20,000; epochs:
rbm <<* defaults = !<<: @{batch: 5}
rbm learning_rate 0 = @0
rbm learning_rate.decay 1 = {start: 1, decay: @1, every: 5}
rbm learning_rate.decay* every = {start: 1, decay: @0.9}
rbm learning_rate.every* decay = {start: 1, every: @5}
rbm learning_rate.steps* decay every = {start: 1, decay: 0.9, every: 5, steps: @0.1 from 7 updates}
rbm learning_rate.steps* 0 = {start: 1, steps: @0 from 7 epochs}
rbm learning_rate.steps* updates epochs = {start: 1, steps: @1 from 7 epochs + 0.1 from 9 updates}
rbm learning_rate.steps* 1 = {start: 1, steps: @1 from 7 epochs + 0.1 from 7 epochs}
rbm epochs* updates = !updates: 3; epochs: @3
rbm weight_scale = @small | @nan | @0 | @{a: 1} | [0.1, @[0.2]] | @[]
rbm weight_scale* = @.inf | @!!float 1
rbm sliding_factor 1 1.5 = @1.5
rbm sliding_factor.hidden 0 = {hidden: @0}
rbm sliding_factor.visible 0 -1 = {visible: @-1}
rbm chains 1 = @0
rbm momentum 1 = @1
rbm momentum 0 -0.1 = @-0.1
rbm weight_decay 0 -1 = @-1
rbm batch full 1 0 = @0
rbm evaluate.every = {every: @5 minutes}
rbm trials = @0 | @[1, 2]
rbm table.groups* model_hiden model_hidden = {groups: [data, @model_hiden]}
rbm table.rows* evaluate_every record_every = {rows: @every}
rbm table.columns* data rows = {rows: [data, init], columns: [@data]}
rbm exclude = @{offsets: 00} | [@00]
rbm exclude* = [@{offsets: 00}] | [@{data: {flip: on}}]
rbm -* exclude = !exclude: [{data: {flip: off}}]
rbm exclude = [@{}]
rbm sliding_factor* dd^b_s = [@0.1, 0.2]; offsets: [00, d0^b_s]; exclude: [{offsets: d0^b_s}]
rbm exclude* = [{offsets: 00}, @{batch: 7}]; offsets: [00, dd^b]
rbm exclude.offset offsets = [{@offset: 00}]
rbm exclude.offsets dq = [{offsets: @dq}]
rbm when.if* = [{if: @{init: zero}, set: {batch: 2}}]
rbm when.set = [@{if: {sampler: PCD-1}}]
rbm when.set.batch = [{if: {batch: 100}, set: {batch: @[2]}}]
rbm when.set.data* path = [{if: {batch: 100}, set: {@data: {flip: on}}}]
rbm when.set.evaluate.runs* ais = [{if: {batch: 100}, set: {evaluate: {runs: @5}}}]
rbm when.set.epochs* updates = [{if: {batch: 100}, set: {updates: 3, epochs: @4}}]
rbm start_from.experiment* toy = {experiment: @tyo}
rbm start_from.experiment* end = {experiment: @toy}
rbm start_from.path* = {experiment: toy, path: @a.npz}
rbm start_from.path* trial = {path: @'a-{number}.npz'} | {path: @'a-{trial.npz'}
"""


@pytest.mark.parametrize(("text", "place", "accepted", "named"), mistakes(MISTAKES))
def test_one_mistake_is_reported_once_with_its_place(text, place, accepted, named):
    check_mistake(refused(text), text, place, accepted, named)


def test_a_field_that_is_given_twice_names_both_of_its_lines():
    text = PLAIN + "    batch: 5\n    init: zero\n    batch: 6\n"
    first, second = (
        number for number, line in enumerate(text.splitlines(), 1) if "batch" in line
    )
    assert str(refused(text)) == (
        f"grid.yaml:{second}: toy.batch: is given twice; line {first} has it already"
    )


def test_all_mistakes_of_a_file_are_reported_at_once_in_its_order():
    text = """\
defaults: {trials: 0}
default: [one, tow]
grups: {}
experiments:
  one:
    data: {name: shifting-bar, sise: 9, bar: 0}
    sampler: PT_1
    learning_rate: [-1, a]
    sampler: CD-1
    ? [a, b]
    : 1
  two:
    exclude: [{init: one}]
"""
    places = "1 defaults.trials, 2 default, 3 grups, 6 one.data.bar, 6 one.data.sise, "
    places += (
        "7 one.sampler, 8 one.learning_rate, 8 one.learning_rate, 9 "
        "one.sampler, 10 one, "
    )
    places += "13 two.exclude.init"
    assert ", ".join(map(" ".join, problems_of(refused(text)))) == places
    found = problems_of(refused(PLAIN + "    chains: 5\n  other: {data: mnst}\n"))
    assert found[:2] == [("9", "toy.chains"), ("10", "other.data")]


BOMB = "".join(
    f"  l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 30)
)
BOMB = f"defaults:\n  l0: &l0 [x, x]\n{BOMB}{PLAIN}"
WIDE = "weight_scale", "weight_decay", "batch", "chains"
AXES = "".join(f"    {field}: {[*range(1, 101)]}\n" for field in WIDE)
NESTED = f"    data: {{name: mnist, size: {[*range(2000)]}, bar: {[*range(2000)]}}}\n"


@pytest.mark.parametrize(
    ("text", "place", "remedy"),
    [
        ("", "", ""),
        ("experiments: [a]", "1 experiments", ""),
        (SEVERAL.replace("c: {}", "B: {}"), "8 B", ""),
        (SEVERAL + "groups: {a: [b]}\n", "9 groups.a", ""),
        ("experiments: {toy: *x}\n", "1", ""),
        (PLAIN.encode() + b"    # caf\xe9\n", "9", ""),
        (PLAIN + '    init: "\\ud800"\n', "9 toy.init", "a surrogate"),
        (PLAIN + "    init: \1\n", "9", "special characters"),
        (
            PLAIN + "    init: !!python/object/apply:os.system [ls]\n",
            "9 toy.init",
            "remove it",
        ),
        # Too large to write out
        ("experiments: " + "[" * 5000, "", ""),
        ("#" * 1_000_001, "", ""),
        (BOMB, "", "100,000"),
        (PLAIN + AXES, "2 toy", "1,000,000"),
        (without("data") + NESTED, "8 toy.data", "1,000,000"),
        # Slips of YAML, with what to write
        (PLAIN.replace("    offsets", "\toffsets"), "5", "has no tabs"),
        (PLAIN + "    momentum:0.5\n", "9", "a blank after each colon"),
        (PLAIN.replace("sampler: ", "sampler = "), "6", "a blank after each colon"),
        (PLAIN.replace("sampler: ", "sampler: 'x"), "6", "check brackets, quotes"),
        (PLAIN.replace("sampler: ", "sampler: @"), "6", "marks in quotes"),
        (PLAIN.replace("dd^b_s", "0"), "5 toy.offsets", "1 letter"),
        (
            PLAIN.replace("kind: rbm", "kind:rbm"),
            "4 toy.model.kind",
            "did you mean kind?",
        ),
    ],
)
def test_what_is_not_a_grid_is_refused_with_its_place(text, place, remedy, tmp_path):
    path = tmp_path / "grid.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    error, (place, _, field) = refusal(read_grid, path), place.partition(" ")
    assert problems_of(error)[0] == (place or str(path), field)
    assert remedy in str(error)
    assert len(str(error)) < 3000


# The schema accepts and refuses the same


def test_command_prints_the_schema():
    assert json.loads(cbm("schema").stdout) == json_schema()
    VALIDATOR.check_schema(json_schema())


def test_experiments_of_the_paper_are_accepted_and_name_their_schema():
    text = PAPER.read_text("utf-8")
    VALIDATOR.validate(yaml.safe_load(text))
    assert "# yaml-language-server: $schema=" in text


@pytest.mark.parametrize(
    "text",
    [
        "[a]",
        "experiments: {}",
        "experiments: {a/b: {}}",
        grid_text("rbm", data="{path: {}}"),
    ],
)
def test_schema_refuses_files_of_another_shape(text):
    refusal(read_grid, "grid.yaml", text=text)
    assert not VALIDATOR.is_valid(yaml.safe_load(text))
