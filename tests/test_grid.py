"""Grid files: what they expand to, what is wrong with them and where, and those of the paper."""

import csv
import time
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from cbm_cli.errors import CbmError
from cbm_cli.grid.parts import Data, Evaluate, Model, SlidingFactor
from cbm_cli.grid.read import read_grid
from cbm_cli.grid.settings import Settings, TableSpec
from tests.builders import cbm, check_schema

EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments.yaml"

# Lines 1 to 8 of most files below; what a test is about stands on line 9 and after.
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


@pytest.fixture
def read(tmp_path):
    """Return a function that reads the text of a grid file."""

    def read(text, *args, **named):
        (tmp_path / "grid.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_grid(tmp_path / "grid.yaml", *args, **named)

    read.path = tmp_path / "grid.yaml"
    return read


@pytest.fixture
def cells(read):
    """Return a function from the text of a grid file to the cells of its experiment ``toy``."""
    return lambda *args, **named: read(*args, **named).experiments["toy"].cells


@pytest.fixture
def complaints(read, tmp_path):
    """Return a function from the text of a bad grid file to its complaints, less the name of the file."""

    def complaints(*args, **named):
        with pytest.raises(CbmError) as caught:
            read(*args, **named)
        return [line.removeprefix(f"{tmp_path}/grid.yaml:") for line in str(caught.value).split("\n")]

    return complaints


def settings(**changes):
    """Return the only cell of PLAIN, with changes."""
    plain = {
        "data": Data(name="shifting-bar", size=9, bar=1),
        "model": Model(kind="rbm", hidden=4),
        "offsets": "dd^b_s",
        "sampler": "PT_10",
        "learning_rate": 0.1,
        "updates": 100,
    }
    return Settings(**(plain | changes))


def without(field):
    return "".join(line for line in PLAIN.splitlines(True) if f" {field}:" not in line)


# ---- What a grid expands to ----


def test_unquoted_values_mean_what_they_look_like(cells):
    text = without("offsets").replace("0.1", "1e-3") + "    offsets: [00, 0d, dd_s^b]\n"
    found = [(cell.offsets, cell.learning_rate.start) for cell in cells(text)]
    assert found == [("00", 0.001), ("0d", 0.001), ("dd^b_s", 0.001)]


@pytest.mark.parametrize(
    ("word", "value"), [("off", False), ("on", True), ("yes", True), ("no", False), ("true", True)]
)
def test_words_for_true_and_false_are_read_where_they_are_meant(cells, word, value):
    assert cells(PLAIN.replace("bar: 1", f"bar: 1, flip: {word}"))[0].data.flip is value


def test_axes_multiply_in_the_order_they_are_written(cells):
    text = """\
experiments:
  toy:
    sampler: [CD-1, PT_10]
    data: {flip: [false, true], name: shifting-bar, size: 9, bar: 1}
    updates: 100
    model: {kind: rbm, hidden: [4, 8]}
    offsets: dd^b_s
    learning_rate: 0.1
"""
    assert cells(text) == tuple(
        settings(
            sampler=sampler,
            data=Data(name="shifting-bar", size=9, bar=1, flip=flip),
            model=Model(kind="rbm", hidden=hidden),
        )
        for sampler in ("CD-1", "PT_10")
        for flip in (False, True)
        for hidden in (4, 8)
    )


def test_data_may_be_a_list_of_names_and_mappings_with_axes_of_their_own(cells):
    text = without("data") + "    data: [mnist, {name: bars-and-stripes, size: [2, 3]}]\n"
    bars = [Data(name="bars-and-stripes", size=size) for size in (2, 3)]
    assert [cell.data for cell in cells(text)] == [Data(name="mnist"), *bars]


def test_equal_cells_are_merged(cells):
    text = without("offsets").replace("0.1", "[0.1, 1e-1]") + "    offsets: [dd^b_s, dd_s^b, 00]\n"
    assert cells(text) == (settings(), settings(offsets="00"))


def test_a_merge_key_takes_over_what_is_not_given_beside_it(read):
    text = PLAIN.replace("toy:", "toy: &toy") + (
        "  one: {<<: *toy, updates: 50, offsets: [00, dd^b_s]}\n"
        "  two: {updates: 50, <<: [{sampler: CD-1, updates: 20}, *toy]}\n"
    )
    found = {name: it.cells for name, it in read(text).experiments.items()}
    assert found == {
        "toy": (settings(),),
        "one": (settings(updates=50, offsets="00"), settings(updates=50)),
        "two": (settings(updates=50, sampler="CD-1"),),
    }
    # YAML's own rules (https://yaml.org/type/merge.html), but of a list PyYAML 6.0.4 takes the last.
    loaded = yaml.safe_load(text)["experiments"]
    assert loaded["one"]["updates"] == loaded["two"]["updates"] == 50
    assert loaded["one"]["sampler"] == "PT_10"


def test_zip_ties_axes_into_one(cells):
    text = without("learning_rate") + (
        "    learning_rate: [0.1, 0.2]\n    weight_scale: [0.1, 0.2]\n    ladders: [1, 2, 4]\n"
        "    init: [zero, inverse-sigmoid, zero]\n    zip: [[learning_rate, weight_scale], [ladders, init]]\n"
    )
    paths = ("learning_rate.start", "weight_scale", "ladders", "init")
    assert [tuple(map(cell.value, paths)) for cell in cells(text)] == [
        (rate, rate, ladders, init)
        for rate in (0.1, 0.2)
        for ladders, init in ((1, "zero"), (2, "inverse-sigmoid"), (4, "zero"))
    ]


def test_one_list_of_fields_is_one_zip(cells):
    text = without("data").replace("0.1", "[0.1, 0.2]") + (
        "    data: [mnist, {name: bars-and-stripes, size: 3}]\n    zip: [data, learning_rate]\n"
    )
    found = [(cell.data.name, cell.learning_rate.start) for cell in cells(text)]
    assert found == [("mnist", 0.1), ("bars-and-stripes", 0.2)]


@pytest.mark.parametrize(
    "condition",
    [
        "{offsets: dd_s^b, learning_rate: [0.1, 2e-1], data.flip: on}",
        "{offsets: dd^b_s, learning_rate: [0.20, 0.1], data: {flip: true}}",
        "{offsets: [dd^b_s], learning_rate: [.1, .2], data: {flip: true, name: [mnist, shifting-bar]}}",
    ],
)
def test_exclude_drops_cells_in_which_all_holds(cells, condition):
    text = """\
experiments:
  toy:
    data: {name: shifting-bar, size: 9, bar: 1, flip: [false, true]}
    model: {kind: rbm, hidden: 4}
    offsets: [dd^b_s, 00]
    sampler: PT_10
    learning_rate: [0.1, 0.2, 0.3]
    updates: 100
    exclude:
      - CONDITION
      - {learning_rate: 0.3, data: shifting-bar}
"""
    kept = [
        (cell.data.flip, cell.offsets, cell.learning_rate.start)
        for cell in cells(text.replace("CONDITION", condition))
    ]
    both = [(False, "dd^b_s"), (False, "00"), (True, "00")]
    assert kept == [(flip, offsets, rate) for flip, offsets in both for rate in (0.1, 0.2)]


def test_when_changes_cells_in_order_and_each_change_sees_those_before(cells):
    text = (
        PLAIN.replace("dd^b_s", "[00, dd^b_s]")
        + """\
    when:
      - {if: {offsets: 00}, set: {init: zero, data.flip: true}}
      - {if: {init: zero, data: {flip: true}}, set: {epochs: 7, weight_decay: 0.2}}
      - {if: {batch: 100, ladders: 1}, set: {weight_scale: 0.3}}
"""
    )
    flipped = Data(name="shifting-bar", size=9, bar=1, flip=True)
    changed = settings(
        offsets="00",
        init="zero",
        data=flipped,
        updates=None,
        epochs=7,
        weight_decay={"l2": 0.2},
        weight_scale=0.3,
    )
    assert cells(text) == (changed, settings(weight_scale=0.3))


def test_set_of_a_whole_nested_field_replaces_it(cells):
    text = PLAIN + "    when: [{if: {sampler: PT_10}, set: {data: {name: bars-and-stripes, size: 3}}}]\n"
    assert cells(text) == (settings(data=Data(name="bars-and-stripes", size=3)),)


def test_defaults_serve_where_an_experiment_is_silent(read):
    text = """\
defaults:
  trials: 3
  seed: 7
  updates: 100
  model: {kind: rbm, hidden: 4}
  learning_rate: [0.1, 0.2]
  table: {columns: init}
  when: [{if: {offsets: 00}, set: {init: zero}}]
experiments:
  toy: {data: mnist, offsets: 00, sampler: CD-1}
  other: {data: mnist, offsets: d0, sampler: CD-1, learning_rate: 0.3, epochs: 5, trials: 4}
"""
    toy, other = read(text).experiments.values()
    assert (toy.trials, toy.seed, toy.table) == (3, 7, TableSpec(columns=("init",)))
    assert [(cell.learning_rate.start, cell.updates, cell.init) for cell in toy.cells] == [
        (0.1, 100, "zero"),
        (0.2, 100, "zero"),
    ]
    assert (other.trials, other.seed) == (4, 7)
    assert [(cell.learning_rate.start, cell.updates, cell.epochs, cell.init) for cell in other.cells] == [
        (0.3, None, 5, "inverse-sigmoid")
    ]


def test_what_a_file_leaves_out_has_defaults(read):
    toy = read(PLAIN).experiments["toy"]
    assert (toy.name, toy.description, toy.trials, toy.seed, toy.table) == ("toy", "", 25, 1, TableSpec())


def test_table_names_may_stand_alone_and_be_dotted(read):
    text = PLAIN + "    table: {rows: model.hidden, columns: [offsets, init], groups: data, scale: total}\n"
    assert read(text).experiments["toy"].table == TableSpec(
        rows=("model_hidden",), columns=("offsets", "init"), groups=("data",), scale="total"
    )


@pytest.mark.parametrize(
    ("given", "axes"),
    [
        ("{columns: data}", (("sampler", "learning_rate"), ("data",), ())),
        ("{columns: [sampler, learning_rate]}", ((), ("sampler", "learning_rate"), ("data",))),
        ("{rows: offsets, groups: sampler}", (("offsets",), (), ("sampler",))),
    ],
)
def test_default_axes_of_a_table_leave_out_what_is_named(read, given, axes):
    table = read(PLAIN + f"    table: {given}\n").experiments["toy"].table
    assert (table.rows, table.columns, table.groups) == axes


def test_honest_aliases_are_written_out(cells):
    text = without("data").replace("0.1", "&rate 0.1") + "    weight_scale: *rate\n    data: mnist\n"
    assert cells(text) == (settings(data=Data(name="mnist"), weight_scale=0.1),)


def test_byte_order_mark_and_windows_line_ends_do_not_matter(cells):
    assert cells(b"\xef\xbb\xbf" + PLAIN.replace("\n", "\r\n").encode()) == (settings(),)


def test_trial_k_has_the_same_seed_in_every_cell(read):
    toy = read(PLAIN.replace("0.1", "[0.1, 0.2]"), trials=3).experiments["toy"]
    trials = list(toy)
    assert [(trial.number, trial.settings.learning_rate.start) for trial in trials] == [
        (number, rate) for number in range(3) for rate in (0.1, 0.2)
    ]
    seeds = {trial.number: trial.seed for trial in trials}
    assert [trial.seed for trial in trials] == [seeds[trial.number] for trial in trials]
    assert len(set(seeds.values())) == 3


# ---- Choosing experiments ----

SEVERAL = (
    "defaults:\n"
    + PLAIN.partition("toy:\n")[2].replace("    ", "  ")
    + "experiments: {a: {}, b: {}, c: {}}\n"
)


def names(experiments):
    return [experiment.name for experiment in experiments]


def test_groups_nest_and_are_resolved(read):
    grid = read(SEVERAL + "groups: {outer: [inner, c], inner: [b, a], one: b}\ndefault: [outer, a]\n")
    assert grid.groups == {"outer": ("b", "a", "c"), "inner": ("b", "a"), "one": ("b",)}
    assert names(grid.select([])) == ["b", "a", "c"]
    assert names(grid.select(["c", "one", "b"])) == ["c", "b"]


def test_without_default_all_experiments_run(read):
    assert names(read(SEVERAL).select()) == ["a", "b", "c"]
    assert names(read(SEVERAL + "default: c\n").select()) == ["c"]


def test_unknown_experiment_is_refused_with_the_names_there_are(read):
    grid = read(SEVERAL.replace("b: {}", "big-one: {}") + "groups: {both: [a, c]}\n")
    with pytest.raises(CbmError) as caught:
        grid.select(["a", "bigone"])
    first, *rest = str(caught.value).split("\n")
    assert first == f"{grid.path}: there is no experiment 'bigone'; did you mean big-one?"
    assert rest == ["experiments: a, big-one, c", "groups: both"]


def test_many_groups_of_groups_resolve_at_once(complaints):
    groups = "".join(f"  g{n}: [g{n - 1}, g{n - 1}]\n" for n in range(1, 20))
    assert complaints(SEVERAL + "groups:\n  g0: x\n" + groups)[0].startswith("10:7: groups.g0: there is no")


# ---- Overrides ----


def test_override_replaces_a_field_in_every_experiment(read):
    grid = read(SEVERAL, {"learning_rate": "5e-2", "sampler": "[CD-1, PCD-1]", "trials": "2"})
    for experiment in grid.experiments.values():
        assert experiment.trials == 2
        assert [(cell.learning_rate.start, cell.sampler) for cell in experiment.cells] == [
            (0.05, "CD-1"),
            (0.05, "PCD-1"),
        ]


def test_dotted_override_reaches_into_a_field_however_it_is_written(cells):
    text = without("data") + "    data: [mnist, {name: shifting-bar, size: 9, bar: 1}]\n"
    changes = {"data.flip": "[off, on]", "evaluate.every": "3 epochs", "sliding_factor.hidden": "0.5"}
    expanded = cells(text, changes)
    titles = ["mnist", "flipped-mnist", "shifting-bar", "flipped-shifting-bar"]
    assert [cell.data.title for cell in expanded] == titles
    assert {cell.evaluate for cell in expanded} == {Evaluate(every="3 epochs")}
    assert {cell.sliding_factor for cell in expanded} == {SlidingFactor(visible=0.01, hidden=0.5)}


def test_overriding_the_length_of_training_replaces_the_other_one(cells):
    assert cells(PLAIN, {"epochs": "3"}) == (settings(updates=None, epochs=3),)


def test_overridden_field_leaves_its_zip_and_conditions_may_then_hold_nowhere(cells):
    text = without("learning_rate") + (
        "    learning_rate: [0.1, 0.2]\n    ladders: [1, 2]\n    zip: [learning_rate, ladders]\n"
        "    exclude: [{learning_rate: 0.2}]\n"
    )
    assert cells(text, {"learning_rate": "0.3"}) == tuple(
        settings(learning_rate=0.3, ladders=ladders) for ladders in (1, 2)
    )


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("evaluate: none", "evaluate: {method: none}"),
        ("evaluate: [exact, none]", "evaluate: {method: [exact, none]}"),
        ("start_from: m.npz", "start_from: {path: m.npz}"),
        ("start_from: some/machine", "start_from: {path: some/machine}"),
    ],
)
def test_a_word_is_short_for_a_mapping(short, long, read):
    cells = [read(f"{PLAIN}    {line}\n").experiments["toy"].cells for line in (short, long)]
    assert cells[0] == cells[1]


def test_an_experiment_to_start_from_may_be_a_word(read):
    second = PLAIN.partition("toy:")[2].replace("\n", "\n    start_from: toy\n", 1)
    found = read(f"{PLAIN}  more:{second}").experiments["more"]
    assert [one.name for one in found.sources] == ["toy"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ("--set", "updates=3", "--set", "updates=4"),
            "--set updates: is given twice; give it once;",
        ),
        (("--set", "updates=3", "--set", "epochs=4"), "--set epochs: undoes updates, which is set before it"),
        (("--set", "data.flip=true", "--set", "data=mnist"), "--set data: undoes data.flip, which is set"),
        (("--set", "data=mnist", "--set", "data.name=dna"), "--set data.name: undoes data, which is set"),
        (("--trials", "3", "--set", "trials=4"), "--trials and --set trials: give one of them"),
        (("--trials", "3", "--trials", "4"), "--trials is given twice; give it once"),
        (("-j", "1", "--jobs", "2"), "--jobs is given twice; give it once"),
        (("-o", "a", "--output", "b"), "--output is given twice; give it once"),
    ],
)
def test_of_two_values_none_wins_in_silence(options, told, tmp_path):
    (tmp_path / "grid.yaml").write_text(PLAIN)
    assert told in cbm("run", tmp_path / "grid.yaml", "--dry-run", *options, code=2).stderr


def test_a_part_may_be_set_after_the_whole(tmp_path):
    (tmp_path / "grid.yaml").write_text(PLAIN)
    options = (
        "--set",
        "data={name: bars-and-stripes, size: 2}",
        "--set",
        "data.flip=true",
        "--set",
        "batch=full",
    )
    told = cbm("run", tmp_path / "grid.yaml", "--dry-run", "-j", 0, "--yes", "--yes", *options).stderr
    assert "flipped-bars-and-stripes" in told


@pytest.mark.parametrize("name", ["nan", "007", "null", "1e3", "true", "~", ".5", "0x1F"])
def test_names_stay_text(name, read):
    named = PLAIN.replace("toy:", f"{name}:")
    if name not in ("~", ".5"):
        assert list(read(named).experiments) == [name]
    data = f"    data: {{path: rows.csv, name: {name}, drop: {name}}}\n"
    text = "\n".join(line for line in PLAIN.splitlines() if not line.lstrip().startswith("data:")) + "\n"
    (cell,) = read(text + data).experiments["toy"].cells
    assert (cell.data.name, cell.data.title, cell.row()["data"], cell.data.drop) == (name,) * 4


def test_trials_given_by_the_caller_win(read):
    assert read(PLAIN + "    trials: 5\n", {"trials": "4"}, trials=3).experiments["toy"].trials == 3


@pytest.mark.parametrize(
    ("field", "text", "told"),
    [
        ("learning_rat", "1", "--set learning_rat: unknown field; did you mean learning_rate?"),
        ("data.flop", "1", "--set data.flop: unknown field; did you mean data.flip?"),
        ("learning_rate", "-1", "--set learning_rate: must be greater than 0, not -1"),
        ("learning_rate", "[", "--set learning_rate: is not YAML: "),
        ("learning_rate", "", "--set learning_rate: is empty"),
        ("data.flip", "maybe", "--set data.flip: must be true or false, not maybe"),
        ("data", "{name: mnist, sise: 3}", "--set data: sise: unknown field; did you mean size?"),
        ("offsets", "[dd, dq]", "--set offsets: offset scheme 'dq' has unknown letters q"),
        ("trials", "0", "--set trials: must be 1 or more, not 0"),
    ],
)
def test_bad_override_is_told_once_by_the_option(complaints, field, text, told):
    (line,) = complaints(SEVERAL, {field: text})
    assert line.startswith(told)


def test_bad_number_of_trials_is_told_by_the_option(complaints):
    assert complaints(SEVERAL, trials=0) == ["--trials: must be 1 or more, not 0"]


# ---- What is wrong, and where ----


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("weight_scal: 1", "9:5: toy.weight_scal: unknown field; did you mean weight_scale?"),
        ("xyzzy: 1", "9:5: toy.xyzzy: unknown field; there are description, trials, seed, table, data, "),
        ("offsets: 00", "9:5: toy.offsets: is given twice; line 5 has it already"),
        ("<<: CD-1", "9:5: toy: << takes a mapping such as *name, or a list of them"),
        ("<<: [{momentum: 2}, 1]", "9:5: toy: << takes a mapping such as *name, or a list of them"),
        ("<<: {momentum: 0.5}\n    <<: {momentum: 0.1}", "10:5: toy: is given twice; line 9 has it already"),
        ("<<: {momentum: 1}", "9:20: toy.momentum: must be less than 1, not 1"),
        ("<<: [{momentm: 0.5}]", "9:11: toy.momentm: unknown field; did you mean momentum?"),
        ("ladders: 1.5", "9:14: toy.ladders: must be a whole number, not 1.5"),
        ("ladders:", "9:13: toy.ladders: must be a whole number, not empty"),
        ("ladders: null", "9:14: toy.ladders: must be a whole number, not null"),
        ("ladders: [1, 0]", "9:18: toy.ladders: must be 1 or more, not 0"),
        ("weight_scale: small", "9:19: toy.weight_scale: must be a number, not small"),
        ("weight_scale: .inf", "9:19: toy.weight_scale: must be a number, not .inf"),
        ("weight_scale: inf", "9:19: toy.weight_scale: must be finite, not inf"),
        ("weight_scale: nan", "9:19: toy.weight_scale: must be finite, not nan"),
        ("weight_scale: 0", "9:19: toy.weight_scale: must be greater than 0, not 0"),
        ("weight_scale: {a: 1}", "9:19: toy.weight_scale: must be a number, not a mapping"),
        ("weight_scale: [0.1, [0.2]]", "9:25: toy.weight_scale: is a list within a list"),
        ("weight_scale: []", "9:19: toy.weight_scale: is an empty list; an axis has one value or more"),
        ("weight_scale: !!float 1", "9:19: toy.weight_scale: the YAML tag tag:yaml.org,2002:float means"),
        ("sliding_factor: 1.5", "9:21: toy.sliding_factor: must be 1 or less, not 1.5"),
        ("sliding_factor: {hidden: 0}", "9:30: toy.sliding_factor.hidden: must be greater than 0, not 0"),
        ("sliding_factor: {visible: -1}", "9:31: toy.sliding_factor.visible: must be 0 or more, not -1"),
        ("chains: 0", "9:13: toy.chains: must be 1 or more, not 0"),
        ("chains: 20", "9:13: toy.chains: is for PCD-k and FPCD-k; the sampler is PT_10; for PT_c"),
        ("swaps: odd", "9:12: toy.swaps: must be alternate or both, not odd"),
        ("shuffle: never", "9:14: toy.shuffle: must be true or false, not never"),
        ("momentum: 1", "9:15: toy.momentum: must be less than 1, not 1"),
        ("momentum: -0.1", "9:15: toy.momentum: must be 0 or more, not -0.1"),
        ("dropout: 1", "9:5: toy.dropout: unknown field; there are description, trials, "),
        ("learningrate: 1", "9:5: toy.learningrate: unknown field; did you mean learning_rate?"),
        ("data.flop: 1", "9:5: toy.data.flop: unknown field; there are description, "),
        ("weight_decay: -1", "9:19: toy.weight_decay: must be 0 or more, not -1"),
        ("weight_decay: {l1: inf}", "9:24: toy.weight_decay.l1: must be finite, not inf"),
        ("weight_decay: {l3: 1}", "9:20: toy.weight_decay.l3: unknown field; there are l1, l2"),
        ("gradient: {scale_of: weights}", "9:26: toy.gradient.scale_of: needs scale_to, as in"),
        ("gradient: {scale_of: W}", "9:26: toy.gradient.scale_of: must be all or weights, not W"),
        ("sliding_factor: {visibel: 1}", "9:22: toy.sliding_factor.visibel: unknown field; did you mean"),
        ("batch: ful", "9:12: toy.batch: must be full or a whole number, not ful; did you mean full?"),
        ("batch: 0", "9:12: toy.batch: must be full or 1 or more, not 0"),
        ("init: zeros", "9:11: toy.init: must be zero or inverse-sigmoid, not zeros; did you mean zero?"),
        ("evaluate: {every: 5 minutes}", "9:23: toy.evaluate.every: write a number of updates (50) or of"),
        (
            "mean_field: 5",
            "9:5: toy.mean_field: must be a mapping of fields, not 5; they are tolerance,",
        ),
        (
            "evaluate: exakt",
            "9:15: toy.evaluate: must be exact, ais, none or cost, not exakt; did",
        ),
        (
            "when: [{if: {offsets: 00}, set: {data.flip: true, data: mnist}}]",
            "9:61: toy.when.set.data: undoes data.flip, which is set before it; set one of them",
        ),
        ("evaluate: {method: exakt}", "9:24: toy.evaluate.method: must be exact, ais, none or cost, not"),
        ("epochs: 3", "2:3: toy: give the length of training as either updates or epochs"),
        ("ladders: 3", "9:14: toy.ladders: must divide the batch; 100 is no multiple of 3"),
        ("trials: 0", "9:13: toy.trials: must be 1 or more, not 0"),
        ("trials: [1, 2]", "9:13: toy.trials: must be a whole number, not a list"),
        ("seed: -1", "9:11: toy.seed: must be 0 or more, not -1"),
        ("description: [a]", "9:18: toy.description: must be text, not a list"),
        ("table: {rows: sampeler}", "9:19: toy.table.rows: there is no column sampeler; did you mean"),
        ("table: {groups: [data, hidden]}", "9:28: toy.table.groups: there is no column hidden; did you"),
        (
            "table: {rows: [data, init], columns: [data]}",
            "9:43: toy.table.columns: data is among the rows; name",
        ),
        ("table: {scale: all}", "9:20: toy.table.scale: must be total or per-sample, not all"),
        ("table: {row: init}", "9:13: toy.table.row: unknown field; did you mean rows?"),
        ("zip: learning_rate", "9:10: toy.zip: must be a list, not learning_rate"),
        ("zip: [data, samplr]", "9:17: toy.zip: ties whole fields; there is no samplr; did you mean"),
        ("zip: [data, ladders]", "9:10: toy.zip: ties ladders, which is not given here"),
        ("zip: [data, model, data]", "9:10: toy.zip: names data twice"),
        ("exclude: {offsets: 00}", "9:14: toy.exclude: must be a list, not a mapping"),
        ("exclude: [{offsets: 00}]", "9:15: toy.exclude: holds for no cell of the grid"),
        ("exclude: [{ladders: 2}]", "9:15: toy.exclude: holds for no cell of the grid"),
        ("exclude: [{data: {flip: on}}]", "9:15: toy.exclude: holds for no cell of the grid"),
        ("exclude: [{data.flip: off}]", "2:3: toy: has no cell left; exclude drops them all"),
        ("exclude: [{}]", "9:15: toy.exclude: names no field; it would hold for all cells"),
        ("exclude: [{offset: 00}]", "9:16: toy.exclude.offset: unknown field; did you mean offsets?"),
        ("exclude: [{offsets: dq}]", "9:25: toy.exclude.offsets: offset scheme 'dq' has unknown letters q"),
        ("exclude: [{data: {flp: on}}]", "9:23: toy.exclude.data.flp: unknown field; did you mean flip?"),
        ("exclude: [00]", "9:15: toy.exclude: must be a mapping of fields, not 00"),
        ("when: [{if: {init: zero}, set: {ladders: 2}}]", "9:17: toy.when.if: holds for no cell of the grid"),
        ("when: [{if: {sampler: PT_10}}]", "9:12: toy.when.set: is missing"),
        ("when: [{set: {ladders: 2}}]", "9:12: toy.when.if: is missing"),
        ("when: [{iff: 1, if: {batch: 100}, set: {}}]", "9:13: toy.when.iff: unknown field; did you mean"),
        ("when: [{if: {batch: 100}, set: {ladders: [2]}}]", "9:46: toy.when.set.ladders: sets one value,"),
        ("when: [{if: {batch: 100}, set: {lader: 2}}]", "9:37: toy.when.set.lader: unknown field; did you"),
        ("when: [{if: {batch: 100}, set: {data: {flip: on}}}]", "9:37: toy.when.set.data: needs the name of"),
        ("when: [{if: {batch: 100}, set: {data.name: mnist}}]", "9:48: toy.when.set.data.name: mnist has"),
        ("when: [{if: {batch: 100}, set: {offsets: ddd}}]", "9:46: toy.when.set.offsets: offset scheme"),
        ("? [a, b]\n    : 1", "9:7: toy: a key must be plain text"),
    ],
)
def test_one_mistake_is_told_once_with_its_place(complaints, line, told):
    (complaint,) = complaints(f"{PLAIN}    {line}\n")
    assert complaint.startswith(told)
    check_schema(f"{PLAIN}    {line}\n", complaint)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("data", "mnst", "8:11: toy.data: data set 'mnst' is unknown; did you mean mnist?"),
        ("data", "shifting-bar", "8:11: toy.data.size: shifting-bar needs a size; write {name:"),
        ("data", "{name: mnist, size: 3}", "8:31: toy.data.size: mnist has no option size"),
        ("data", "{name: shifting-bar, size: 4, bar: 4}", "8:46: toy.data.bar: bar must be less than size"),
        ("data", "{flip: yes}", "8:5: toy.data: needs the name of a data set, or"),
        ("model", "{kind: rbm}", "8:5: toy.model.hidden: is missing"),
        ("model", "4", "8:5: toy.model: must be a mapping of fields, not 4"),
        ("model", "{kind: dbn, hidden: 4}", "8:19: toy.model.kind: must be rbm, dbm or auto-encoder, not"),
        ("offsets", "[00, dq^b]", "8:19: toy.offsets: offset scheme 'dq^b' has unknown letters q"),
        ("offsets", "ddbs", "8:14: toy.offsets: offset scheme 'ddbs' is ambiguous; did you mean dd^b_s?"),
        ("offsets", "000", "8:14: toy.offsets: offset scheme 000 has 3 letters; this rbm of 2 layers needs"),
        ("offsets", "[00, 0]", "8:19: toy.offsets: offset scheme 0 has 1 letter"),
        ("sampler", "[CD-1, PT_1]", "8:21: toy.sampler: sampler 'PT_1': parallel tempering needs 2 or more"),
        ("learning_rate", "0", "8:20: toy.learning_rate: must be greater than 0, not 0"),
        ("learning_rate", "-0.5", "8:20: toy.learning_rate: must be greater than 0, not -0.5"),
        ("learning_rate", "{decay: 0.9}", "8:5: toy.learning_rate.start: is missing"),
        ("learning_rate", "{start: 0}", "8:28: toy.learning_rate.start: must be greater than 0, not 0"),
        ("learning_rate", "{start: 1, decay: 1, every: 5}", "8:38: toy.learning_rate.decay: must be less"),
        ("learning_rate", "{start: 1, decay: 0.9}", "8:38: toy.learning_rate.decay: decay needs an interval"),
        ("learning_rate", "{start: 1, every: 5}", "8:38: toy.learning_rate.every: every needs a decay"),
        (
            "learning_rate",
            "{start: 1, decay: 0.9, every: 5, steps: 0.1 from 7 updates}",
            "8:60: toy.learning_rate.steps: a rate decays or changes in steps; give",
        ),
        ("learning_rate", "{start: 1, steps: 0.1}", "8:38: toy.learning_rate.steps: write rates and where"),
        ("learning_rate", "{start: 1, steps: 0 from 7 epochs}", "8:38: toy.learning_rate.steps: rates must"),
        (
            "learning_rate",
            "{start: 1, steps: 0.1 from 7 epochs + 0.1 from 9 updates}",
            "8:38: toy.learning_rate.steps: count all steps in updates, or all in epochs",
        ),
        (
            "learning_rate",
            "{start: 1, steps: 0.1 from 7 epochs + 0.01 from 7 epochs}",
            "8:38: toy.learning_rate.steps: steps must come one after the other",
        ),
        ("learning_rate", "{start: 1, step: 0.1 from 7 epochs}", "8:31: toy.learning_rate.step: unknown"),
        ("updates", "1.5e0", "8:14: toy.updates: must be a whole number, not 1.5e0"),
    ],
)
def test_mistake_in_a_needed_field_is_told_once_with_its_place(complaints, field, value, told):
    text = f"{without(field)}    {field}: {value}\n"
    (complaint,) = complaints(text)
    assert complaint.startswith(told)
    check_schema(text, complaint)


@pytest.mark.parametrize("field", ["data", "model", "offsets", "sampler", "learning_rate"])
def test_missing_field_is_told_once_however_many_cells_there_are(complaints, field):
    text = without(field) + "    ladders: [1, 2]\n    weight_scale: [1, 2, 3]\n"
    assert complaints(text) == [f"2:3: toy.{field}: is missing"]


def test_a_field_may_have_no_effect_on_some_cells_which_are_then_one_cell(cells):
    text = without("offsets").replace("PT_10", "[PCD-1, PT_10]") + (
        "    offsets: [00, d0^b_s, dd^b_s]\n    sliding_factor: [0.1, 0.2]\n    ladders: [2, 4]\n"
    )
    found = cells(text)
    assert len(set(found)) == len(found) == (1 + 2 + 2) * (1 + 2)
    assert {(cell.sampler, cell.ladders) for cell in found} == {("PCD-1", 1), ("PT_10", 2), ("PT_10", 4)}
    factors = {(cell.offsets, cell.sliding_factor.visible, cell.sliding_factor.hidden) for cell in found}
    moving = {("d0^b_s", 0.1, 0.01), ("d0^b_s", 0.2, 0.01), ("dd^b_s", 0.1, 0.1), ("dd^b_s", 0.2, 0.2)}
    assert factors == {("00", 0.01, 0.01)} | moving
    alone = cells(without("offsets").replace("PT_10", "PCD-1") + "    offsets: 00\n")
    assert alone[0] in found  # the same settings, and so the same run-id


def test_each_value_needs_an_effect_on_some_cell(complaints):
    zipped = without("offsets") + "    offsets: [00, dd^b_s]\n    sliding_factor: [0.1, 0.2]\n"
    (found,) = complaints(zipped + "    zip: [offsets, sliding_factor]\n")
    assert found.startswith("9:22: toy.sliding_factor: is for schemes with _s")
    (found,) = complaints(PLAIN + "    when: [{if: {batch: 100}, set: {fast_decay: 0.5}}]\n")
    assert found.startswith("9:49: toy.when.set.fast_decay: is for FPCD-k")
    changed = "    evaluate: {every: 5}\n    when: [{if: {batch: 100}, set: {evaluate.method: cost}}]\n"
    assert complaints(PLAIN + changed)[0].startswith("10:37: toy.when.set.evaluate.method: method cost is")
    (found,) = complaints(PLAIN, {"fast_decay": "0.5"})
    assert found.startswith("--set fast_decay: is for FPCD-k")


def test_a_default_needs_an_effect_on_some_experiment(read, complaints):
    text = "defaults: {fast_decay: 0.5}\n" + PLAIN
    assert complaints(text) == ["1:24: defaults.fast_decay: is for FPCD-k; the sampler is PT_10"]
    other = (
        "  other: {data: mnist, model: {kind: rbm, hidden: 1}, offsets: 00, sampler: FPCD-1, learning_rate: 1"
    )
    grid = read(f"{text}{other}, updates: 9}}\n").experiments
    assert [one.cells[0].fast_decay for one in grid.values()] == [0.95, 0.5]


def test_values_without_effect_are_reported_beside_other_problems(complaints):
    text = PLAIN + "    fast_decay: 0.5\n  other: {data: mnst}\n"
    found = complaints(text)
    assert found[0].startswith("9:17: toy.fast_decay: is for FPCD-k")
    assert found[1].startswith("10:17: other.data: data set 'mnst' is unknown")


def test_experiments_that_start_from_each_other_are_refused(complaints):
    text = SEVERAL.replace(
        "a: {}, b: {}", "a: {start_from: {experiment: b}}, b: {start_from: {experiment: a}}"
    )
    first, second = complaints(text)
    assert "a.start_from.experiment: starts from b, which starts from a in the end" in first
    assert "b.start_from.experiment: starts from a, which starts from b in the end" in second


def test_fields_overridden_by_an_option_excuse_the_others(cells):
    assert cells(PLAIN + "    ladders: 4\n", {"sampler": "CD-1"})[0].ladders == 1


def test_kinds_of_machines_share_a_grid_with_fields_that_only_some_need(cells):
    text = without("model") + "    model: [{kind: rbm, hidden: 4}, {kind: auto-encoder, hidden: half}]\n"
    found = [(cell.model.kind, cell.sampler) for cell in cells(text)]
    assert found == [("rbm", "PT_10"), ("auto-encoder", None)]


@pytest.mark.parametrize(
    ("text", "updates"), [("1e4", 10_000), ("10_000", 10_000), ("1.5e3", 1500), ("+2E1", 20), ("7", 7)]
)
def test_whole_numbers_may_have_an_exponent_or_underscores(cells, text, updates):
    assert cells(without("updates") + f"    updates: {text}\n")[0].updates == updates
    if "." not in text:
        (cell,) = cells(PLAIN + f"    evaluate: {{every: {text.lstrip('+').lower()} updates}}\n")
        assert cell.every == f"{updates} updates"


@pytest.mark.parametrize("text", ["1.5", "1e-1", "1e999", "1e", "1__0", "0e4", "1.25e1"])
def test_other_numbers_are_no_whole_numbers(complaints, text):
    (found,) = complaints(without("updates") + f"    updates: {text}\n")
    assert found.startswith("8:14: toy.updates: must be ")
    assert found.endswith(f"not {text}")


def test_errors_found_with_the_data_name_the_place_of_their_field(read):
    toy = read(PLAIN + "    batch: [10, 900]\n    exclude: [{batch: 10}]\n").experiments["toy"]
    (cell,) = toy.cells
    place = f"{read.path}:"
    assert toy.located(cell, CbmError("batch: too many")) == f"{place}9:17: toy.batch: too many"
    assert toy.located(cell, CbmError("data.size: odd")) == f"{place}3:38: toy.data.size: odd"
    assert toy.located(cell, CbmError("a.csv: missing"), "data") == f"{place}3:11: toy.data: a.csv: missing"
    assert toy.located(cell, CbmError("evaluate: no")) == f"{place}2:3: toy.evaluate: no"
    assert toy.located(cell, CbmError("no field")) == f"{place}2:3: toy: no field"
    error = CbmError("is missing")
    error.field = "bar"
    assert toy.located(cell, error, "data") == f"{place}3:46: toy.data.bar: is missing"


def test_thousand_cells_are_checked_in_a_second(cells):
    rates = ", ".join(str(number / 1000) for number in range(1, 1001))
    begun = time.perf_counter()
    assert len(cells(PLAIN.replace("0.1", f"[{rates}]"))) == 1000
    assert time.perf_counter() - begun < 3  # 0.15 s on an idle machine


def test_zip_of_axes_of_different_lengths_is_refused(complaints):
    text = PLAIN.replace("0.1", "[0.1, 0.2]") + "    ladders: [1, 2, 4]\n    zip: [learning_rate, ladders]\n"
    assert complaints(text) == [
        "10:10: toy.zip: ties axes of different lengths: learning_rate has 2, ladders has 3"
    ]


def test_all_mistakes_of_a_file_are_told_at_once_in_its_order(complaints):
    text = """\
defaults: {trials: 0}
default: [one, tow]
grups: {}
experiments:
  one:
    data: {name: shifting-bar, sise: 9, bar: 0}
    offsets: [00, dx]
    sampler: PT_1
    learning_rate: [-1, a]
    sampler: CD-1
    epochs: 3
  two:
    offsets: aa
    exclude: [{init: one}]
"""
    assert [line.partition("; ")[0] for line in complaints(text)] == [
        "1:20: defaults.trials: must be 1 or more, not 0",
        "2:16: default: there is no experiment or group tow",
        "3:1: grups: unknown field",
        "6:32: one.data.sise: unknown field",
        "6:46: one.data.bar: must be 1 or more, not 0",
        "7:19: one.offsets: offset scheme 'dx' has unknown letters x",
        "8:14: one.sampler: sampler 'PT_1': parallel tempering needs 2 or more temperatures",
        "9:21: one.learning_rate: must be greater than 0, not -1",
        "9:25: one.learning_rate: must be a number, not a",
        "10:5: one.sampler: is given twice",
        "14:22: two.exclude.init: must be zero or inverse-sigmoid, not one",
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", " is empty"),
        ("# nothing\n", " is empty"),
        ("- a\n- b\n", "1:1: must be a mapping of fields, not a list"),
        ("{}", "1:1: experiments: must name at least one"),
        ("experiments: {}", "1:1: experiments: must name at least one"),
        ("experiments:\n", "1:1: experiments: must name at least one"),
        ("experiments: [a]", "1:1: experiments: must name at least one"),
        ("experiments:\n  a/b: {}\n", "2:3: a/b: cannot name an experiment"),
        ("experiments:\n  ..: {}\n", "2:3: ..: cannot name an experiment"),
        ("experiments:\n  toy:\n", "2:3: toy: must be a mapping of fields, not empty"),
        ("experiments:\n  toy:\n    a: b: c\n", "3:9: is not YAML: mapping values are not allowed here;"),
        ("experiments:\n\ttoy: 1\n", "2:1: is not YAML: while scanning for the next token, found character"),
        ("experiments: {toy: *x}\n", "1:20: is not YAML: found undefined alias 'x'"),
        ("experiments: &x {toy: *x}\n", "1:18: is nested more than 20 levels deep, or contains an alias"),
        (PLAIN + "---\n" + PLAIN, "9:1: is not YAML: expected a single document in the stream, but found"),
        (PLAIN + "    init: \x07\n", "9:11: is not YAML: special characters are not allowed"),
        (PLAIN.encode() + b"    # caf\xe9\n", "9:10: is not UTF-8"),
        (PLAIN.encode("utf-16"), "1:1: is not UTF-8"),
        ("experiments: " + "[" * 5000, "1:34: is nested more than 20 levels deep"),
        ("experiments: " + "[" * 50 + "]" * 50, "1:34: is nested more than 20 levels deep"),
        ("#" * 1_000_001, " is larger than 1,000,000 bytes"),
    ],
)
def test_what_is_no_grid_is_refused_with_its_place(complaints, text, told):
    assert complaints(text)[0].startswith(told)


def test_missing_file_and_folder_are_refused(tmp_path):
    with pytest.raises(CbmError, match=r"none\.yaml: there is no such file"):
        read_grid(tmp_path / "none.yaml")
    with pytest.raises(CbmError, match=r": is a folder; name a YAML file"):
        read_grid(tmp_path)


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        ("{x: [a, aa]}", "9:17: groups.x: there is no experiment or group aa; did you mean a?"),
        ("{x: [y], y: [x]}", "9:10: groups.x: contains itself"),
        ("{a: [b]}", "9:10: groups.a: is already the name of an experiment"),
        ("{x: []}", "9:13: groups.x: names no experiment"),
        ("[a, b]", "9:1: groups: must be a mapping of fields, not a list"),
    ],
)
def test_bad_group_is_refused(complaints, groups, told):
    (complaint,) = complaints(f"{SEVERAL}groups: {groups}\n")
    assert complaint.startswith(told)


def test_a_long_chain_of_groups_is_resolved(read):
    groups = "".join(f"  g{n}: g{n + 1}\n" for n in range(500)) + "  g500: a\n"
    assert read(SEVERAL + "groups:\n" + groups).groups["g0"] == ("a",)


def test_aliased_bomb_is_refused_at_once(complaints):
    levels = "".join(f"  l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 30))
    begun = time.perf_counter()
    (complaint,) = complaints("defaults:\n  l0: &l0 [x, x]\n" + levels + PLAIN)
    assert "has more than 100,000 values" in complaint
    assert time.perf_counter() - begun < 30


@pytest.mark.parametrize(
    "axes",
    [
        "".join(
            f"    {field}: {list(range(1, 101))}\n"
            for field in ("weight_scale", "ladders", "batch", "updates")
        ),
        f"    data: {{name: mnist, size: {list(range(2000))}, bar: {list(range(2000))}}}\n",
    ],
)
def test_grid_too_large_to_write_out_is_refused_before_it_is(complaints, axes):
    kept = "".join(line for line in PLAIN.splitlines(True) if f"\n{line.split(':')[0]}:" not in f"\n{axes}")
    begun = time.perf_counter()
    (complaint,) = complaints(kept + axes)
    assert "has more than 1,000,000" in complaint
    assert time.perf_counter() - begun < 5


# ---- The experiments of the paper ----


def test_experiments_of_the_paper_expand_to_their_tables():
    grid = read_grid(EXPERIMENTS)
    assert {name: len(experiment.cells) for name, experiment in grid.experiments.items()} == {
        "quickstart": 4 * 3,
        "standard-methods-bars": 4 * 4 * 3,
        "standard-methods-shifting": 2 * 4 * 4 * 3,
        "initialisation": 2 * 2 * 4 * 3,
        "reparameterisation": 2 * 4 * 3,
        "moving-average": 2 * 3 * 4 * 3,
        "no-moving-average": 8,
        "standard-methods-mnist": 5 * (3 + 3 + 1),
        "initialisation-mnist": 2 * 2 * 2 * (3 + 3 + 1),
        "reparameterisation-mnist": 2 * (3 + 3 + 1),
        "moving-average-mnist": 3 * (3 + 3 + 1),
        "two-sweeps-mnist": (6 + 2) * 3,
        **dict.fromkeys(("big-rbm-mnist", "big-rbm-mnist-short"), 4 * 2),
        **dict.fromkeys(("big-rbm-caltech", "big-rbm-caltech-short"), 4 * 2),
        **dict.fromkeys(("big-divergence", "big-divergence-short"), 2 * 4),
        **dict.fromkeys(("big-divergence-full-batch", "big-divergence-full-batch-short"), 2),
        **dict.fromkeys(("norms", "norms-short"), 4),
        **dict.fromkeys(("eight-sets-16", "eight-sets-16-two-sweeps", "eight-sets-16-short"), 8 * 4),
        **dict.fromkeys(("eight-sets-200", "eight-sets-200-short"), 8 * 4),
        **dict.fromkeys(("eight-sets-200-slow", "eight-sets-200-slow-short"), 8 * 4),
        "divergence": 2 * 7,
        "divergence-causes": 2 * 4 * 3,
        "other-offsets": 11,
        "natural-gradient": 2 * (7 + 2),
        "norms-small": 4,
        "dbm-mnist": 3 * 2,
        "dbm-mnist-short": 2,
        "dbm-caltech": 3 * 3,
        "dbm-caltech-short": 2 * 2,
        **dict.fromkeys(("dbm-eight-sets", "dbm-eight-sets-two-sweeps"), 8 * 2 * 2),
        "dbm-eight-sets-short": 2 * 2,
        "auto-encoder": (9 * 2 + 1) * 2,
        "auto-encoder-short": 2 * 2 * 2,
    }
    other_trials = {"eight-sets-200-slow": 10, "big-divergence": 1, "big-divergence-full-batch": 1}
    deep = ("dbm-mnist", "dbm-caltech", "dbm-eight-sets", "dbm-eight-sets-two-sweeps")
    other_trials |= dict.fromkeys((*deep, "auto-encoder"), 10)
    for name, experiment in grid.experiments.items():
        if not name.endswith("-short"):
            assert experiment.trials == other_trials.get(name, 25)
    assert all(experiment.description for experiment in grid.experiments.values())
    assert names(grid.select()) == ["quickstart"]


CELL = ("data", "model_hidden", "sampler", "learning_rate", "offsets", "init")
PUBLISHED = ("dataset", "hidden", "sampler", "learning_rate", "offsets", "init")


def rows_of_cells(*names):
    """Return the settings of all cells of some experiments, as the tables of the paper name them."""
    return {
        (*(str(cell.row()[column]) for column in CELL), experiment.table.scale, str(experiment.trials))
        for experiment in read_grid(EXPERIMENTS).select(names)
        for cell in experiment.cells
    }


def published(*tables):
    with (files("cbm_cli.paper") / "published-results.csv").open() as lines:
        return [row for row in csv.DictReader(lines) if row["table"].startswith(tables)]


def test_every_published_value_of_a_small_machine_has_its_cell():
    """Tables 2 to 8; 00 and d0 "as originally proposed" start at zero biases, the others do not."""
    cells = {row[:-1] for row in rows_of_cells("toy-tables", "mnist-16")}
    rows = published("standard-methods", "init-", "reparameterization", "moving-average")
    assert len(rows) == 36 + 28 + 72 + 18 + 14 + 18 + 18 + 14 + 27 + 27 + 21
    for row in rows:
        if row["init"] == "original":
            row["init"] = "zero" if row["offsets"] in ("00", "d0") else "inverse-sigmoid"
        scale = "total" if row["log_likelihood_scale"] == "total" else "per-sample"
        assert (*(row[column] for column in PUBLISHED), scale) in cells


def test_every_published_value_of_the_eight_sets_has_its_cell():
    """Tables 9 and 10."""
    rows = published("big-rbm")
    assert len(rows) == 2 * 96
    for row in rows:  # docs/decisions/0019-published-d0.md
        row["offsets"] = "d0^b_s" if row["offsets"] == "d0" else row["offsets"]
    sampler = CELL.index("sampler")  # the paper does not name PCD-2
    cells = {(*row[:-2], row[-1]) for row in rows_of_cells("eight-sets") if row[sampler] != "PCD-2"}
    assert cells == {tuple(row[column] for column in (*PUBLISHED, "trials")) for row in rows}


def test_a_short_experiment_is_less_of_the_long_one():
    """The same cells, or some of them, but for length, evaluations and stand-ins; or fewer trials."""
    experiments = read_grid(EXPERIMENTS).experiments
    stand_ins = {"rcv1-valid": "rcv1", "web-reshuffled": "web"}
    less = {"updates", "epochs", "evaluate_every", "evaluate_parts", "evaluate_rows", "pretraining_epochs"}

    def essence(cell):
        row = {key: value for key, value in cell.row().items() if key not in less}
        return row | {key: stand_ins.get(row[key], row[key]) for key in ("data", "data_name")}

    shorts = {
        name.removesuffix("-short"): one for name, one in experiments.items() if name.endswith("-short")
    }
    assert len(shorts) == 12
    for name, short in shorts.items():
        full = experiments[name]
        assert short.trials <= full.trials
        whole = [essence(cell) for cell in full.cells]
        assert all(essence(cell) in whole for cell in short.cells)
        longest = {
            length: max(getattr(cell, length) or 0 for cell in full.cells) for length in ("updates", "epochs")
        }
        shorter = all(
            (cell.updates or 0) <= longest["updates"] / 4 and (cell.epochs or 0) <= longest["epochs"] / 4
            for cell in short.cells
        )
        assert shorter or short.trials * len(short.cells) <= full.trials * len(full.cells) / 4


def test_toys_are_trained_on_the_full_batch_and_mnist_in_epochs():
    grid = read_grid(EXPERIMENTS)
    for experiment in grid.select(["quickstart", "toy-tables", "no-moving-average"]):
        assert {(cell.updates, cell.batch, cell.every) for cell in experiment.cells} == {
            (50000, "full", "50 updates")
        }
    for experiment in grid.select(["mnist-16"]):
        assert {(cell.epochs, cell.batch, cell.every) for cell in experiment.cells} == {(100, 100, "1 epoch")}


# ---- Changes from the command line ----


def test_changes_leave_experiments_alone_that_are_not_run(tmp_path):
    """What is set for one kind of machine need not suit another one in the same file."""
    grid = tmp_path / "grid.yaml"
    common = "data: mnist, learning_rate: 1, updates: 9"
    grid.write_text(
        "groups: {both: [first, second]}\n"
        "experiments:\n"
        f"  first: {{{common}, model: {{kind: rbm, hidden: 4}}, offsets: 00, sampler: CD-1}}\n"
        f"  second: {{{common}, model: {{kind: rbm, hidden: 4}}, offsets: d0, sampler: PCD-1}}\n"
        f"  coder: {{{common}, model: {{kind: auto-encoder, hidden: 4}}, offsets: 00}}\n"
    )
    changed = read_grid(grid, {"sampler": "PT_4"}, 3, ["both"]).experiments
    assert [one.cells[0].sampler for one in changed.values()] == ["PT_4", "PT_4", None]
    assert [one.trials for one in changed.values()] == [3, 3, 25]
    with pytest.raises(CbmError, match="back-propagation"):
        read_grid(grid, {"sampler": "PT_4"}, None, ["coder"])
