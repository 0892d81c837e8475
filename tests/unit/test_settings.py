"""Settings of all kinds of machines: what they mean, what contradicts, what has no
effect.

Whole numbers are read alike in every field and option: 10, 1_0, 1e1 and 10.0.
"""

import hashlib
import json
import re

import click
import pytest
import yaml
from cbm_cli.cli import main
from cbm_cli.cli.options import Whole
from cbm_cli.datasets.loading import load_source
from cbm_cli.grid.read import read_grid
from cbm_cli.grid.settings import Evaluate, Model, Settings
from cbm_cli.grid.words import with_name
from cbm_cli.kernels import KERNEL_VERSION
from cbm_cli.results.identity import run_ids
from cbm_cli.text import LARGEST, whole_number

from tests.builders import (
    MACHINES,
    VALIDATOR,
    cbm,
    check_mistake,
    grid_text,
    mistakes,
    pairs,
    problems_of,
    refusal,
)
from tests.cli.test_commands import commands


def cells(kind, overrides=None, **fields):
    """Return the cells of a grid of one kind of machine with some fields."""
    grid = read_grid("grid.yaml", overrides or {}, text=grid_text(kind, **fields))
    return grid.experiments["toy"].cells


MISTAKES = """
dbm model.hidden* 500 = {kind: dbm, hidden: @500}
dbm model.hidden = {kind: dbm, hidden: @[]} | {kind: dbm, hidden: [@[[5, 5]]]}
dbm model.hidden 500-500 0 = {kind: dbm, hidden: @[500, 0]}
dbm model.hidden* half = {kind: dbm, hidden: @half}
rbm model.hidden* 5-5 dbm = {kind: rbm, hidden: @5-5}
auto-encoder model.hidden* half = {kind: auto-encoder, hidden: @[half, 5]}
dbm offsets* dd^b 2 3 = @dd
auto-encoder offsets* d h r = @dm | @aa
rbm sampler* = !sampler:
auto-encoder sampler* rbm dbm = @CD-1
rbm pretraining* dbm = @200
rbm early_stopping.look_ahead* auto-encoder metric = {look_ahead: @2}
dbm gradient* scale_to = @natural | !@gradient: {scale_to: standard}
rbm gradient* dd^b 00 = @standard
dbm gradient* ddd^b_s aaa^b = @enhanced
rbm gradient* aa^b = @enhanced; offsets: aa^b_s | @enhanced; offsets: aa^l
rbm offsets_from* centered = @independent; offsets: aa^b; gradient: enhanced
rbm offsets_from* centered = @exact; offsets: aa^b; gradient: enhanced
rbm offsets_from* centered = @random; offsets: aa^b; gradient: enhanced
rbm weight_decay* natural = @0.1; gradient: natural
rbm weight_decay* rescaled = {l1: @0.1}; gradient: {scale_to: standard}
dbm pretraining* CD-k PCD-k = @2; sampler: PT_4 | @2; sampler: exact
rbm gradient* 00 scale_to = !@gradient: {kind: natural, scale_to: centered}; offsets: 00
dbm gradient_from* rbm = @exact
rbm gradient_from* = @exact; sampler: exact
rbm offsets_from* 0 = @exact; offsets: 00
auto-encoder evaluate* ais cost = !@evaluate: {method: ais}
rbm evaluate* cost exact ais = !@evaluate: {method: cost}
rbm evaluate.runs* ais exact = {runs: @50}
dbm evaluate.rows* none = {method: none, rows: @5}
dbm record* rbm = @free_energy_gap
rbm record weight_norm weight_norms = @weight_norm
rbm record.window* what = {window: @1-2}
rbm record.window* = {what: bias_norms, window: @20-10}
dbm pretraining* start_from = !@pretraining: {epochs: 2}; start_from: {path: a.npz}
dbm pretraining.learning_rate* epochs = {learning_rate: @0.1}
rbm early_stopping.metric* = {metric: @likelihood}; evaluate: none
rbm early_stopping.metric* likelihood pseudo = {metric: @likelihood}; evaluate: pseudo
rbm early_stopping.metric* pseudo-likelihood exact = {metric: @pseudo-likelihood}
rbm gradient.fisher* natural = {fisher: @marginal}
rbm gradient.damping 0 -1 = {kind: natural, damping: @-1}
rbm chains* PCD-k = @5; sampler: CD-1 | @5; sampler: PT_4 | @5; sampler: exact
auto-encoder chains* rbm dbm = @5
rbm shuffle* = @false; batch: full
rbm sliding_factor* dd^b_s = @0.1
rbm sliding_factor.visible* aa^b_s a 0 = {visible: @0}; offsets: aa^b_s
rbm weight_scale* a.npz = @1; start_from: {path: a.npz}
rbm table.choose* learning_rate = {choose: @learnin_rate}; learning_rate: [0.1, 0.2]
rbm table.choose* = {choose: @batch}
rbm table.by* = {by: @valid}
rbm table.choose* = {choose: @learning_rate, rows: learning_rate}; learning_rate: [0.1, 0.2]
rbm start_from.machine* experiment = {path: a.npz, machine: @best-valid}
"""


@pytest.mark.parametrize(("text", "place", "accepted", "named"), mistakes(MISTAKES))
def test_what_contradicts_or_changes_nothing_is_refused_by_its_field(
    text, place, accepted, named
):
    check_mistake(
        refusal(read_grid, "grid.yaml", text=text), text, place, accepted, named
    )


TAKEN = """
# A list is the layers of a deep machine, and a list of lists an axis
dbm model: {kind: dbm, hidden: [[5, 5], 2-1]} -> model.hidden = 5-5 | 2-1
auto-encoder model: {kind: auto-encoder, hidden: [[half], [9], 2]} -> model.hidden = half | 9 | 2
auto-encoder offsets: [00, dd, hh, rr] -> offsets = 00 | dd^b | hh^b | rr^b
dbm pretraining: [0, {epochs: 5, learning_rate: [0.1, 1]}] -> pretraining.epochs = 0 | 5 | 5
rbm gradient: [centered, natural, {kind: natural, fisher: [marginal, diagonal], damping: 0.1}]
  -> gradient.fisher gradient.damping = joint 0.0 | joint 0.0 | marginal 0.1 | diagonal 0.1
dbm evaluate: {method: ais, temperatures: 100} -> evaluation temperatures = ais 100
dbm gradient: enhanced; offsets: aaa -> gradient.kind = enhanced
rbm gradient_from: [samples, exact]; offsets_from: [independent, random]
  -> gradient_from offsets_from
  = samples independent | samples random | exact independent | exact random
all momentum: 0.9; weight_decay: 0.0002 -> momentum weight_decay.l1 weight_decay.l2 = 0.9 0.0 0.0002
rbm evaluate: {parts: test+train+test} -> evaluate.parts = train+test
rbm record: {what: offset_values + my/own.py:skew+offset_values, every: 1 epoch,
  window: 010-20+5e1-60}
  -> record.names record.every record.windows
  = ('offset_values', 'my/own.py:skew') 1 epoch ((10, 20), (50, 60))
# Defaults of other machines and schemes may be written
rbm sliding_factor: 0.01 -> offsets = dd^b
auto-encoder pretraining: 0; gradient: centered; weight_decay: {l1: 0} -> sampler = None
# What YAML takes for numbers, and other spellings of the same
rbm offsets: [dd^b_s, dd_s^b, 00]; batch: [4, 04] -> offsets batch = dd^b_s 4 | 00 4
rbm learning_rate: [1e-3, .1, '1e-1'] -> learning_rate.start = 0.001 | 0.1
rbm epochs: ; updates: 1.5e3 -> updates = 1500
rbm start_from: some/machine -> start_from.path = some/machine
rbm data: [mnist, {path: t.npz, valid: v.csv, test: t.csv, name: digits, header: no}]
  -> data.title data.header = mnist None | digits False
rbm batch: [full, 50, '50', 1_000]; trials: '3'; description: yes; exclude: []
  -> batch = full | 50 | 1000
# A list of columns is one choice, and a list of lists an axis
rbm data: {path: a.csv, drop: [1, class]} -> data.drop = 1, class
rbm data: {path: a.csv, drop: [[id, class], [class, 1, 2]]} -> data.drop = id, class | class, 1, 2
rbm data: {path: a.csv, drop: ["a, b", c]} -> data.drop = "a, b", c
# Lists of data and of models, and a change of a whole field
rbm model: [{kind: rbm, hidden: 4}, {kind: auto-encoder, hidden: half}]; offsets: 00
  -> model.kind sampler = rbm PCD-1 | auto-encoder None
rbm model: [{kind: rbm, hidden: [4, 8]}, {kind: dbm, hidden: [6, 5]}]; offsets: [00, 000]; exclude:
  [{model: {kind: rbm}, offsets: 000}, {model: {kind: dbm, hidden: [6, 5]}, offsets: 00}]
  -> model.hidden offsets = 4 00 | 8 00 | 6-5 000
dbm when: [{if: {model: {hidden: 6-5}}, set: {model: {kind: dbm, hidden: [7, 3]}}}]
  -> model.hidden = 7-3
# Axes multiply in the order in which they are written; all of a condition must hold
rbm data: {name: shifting-bar, size: 9, bar: 1, flip: [no, yes]}; learning_rate:
  [0.1, 0.2, 0.3]; offsets: [dd^b_s, 00]; exclude: [{learning_rate: 0.3}, {offsets: dd_s^b,
  learning_rate: [0.20, .1], data: {flip: on, name: [dna, shifting-bar]}}]
  -> data.flip learning_rate.start offsets = False 0.1 dd^b_s | False 0.1 00 | False 0.2 dd^b_s
  | False 0.2 00 | True 0.1 00 | True 0.2 00
# Each of several conditions leaves out the cells for which it holds
rbm offsets: [00, d0, dd^b]; batch: [10, 20]; exclude: [{offsets: 00, batch: 10},
  {batch: 20, offsets: [d0, dd^b]}, {offsets: d0, batch: 10}]
  -> offsets batch = 00 20 | dd^b 10
# A change sees those before it
rbm offsets: [00, dd^b]; when: [{if: {offsets: 00}, set: {init: zero, weight_decay: 0.2}},
  {if: {init: zero, weight_decay: {l2: 0.2}}, set: {updates: 7, momentum: 0.5}},
  {if: {batch: 100, momentum: 0}, set: {weight_scale: 0.3}}]
  -> init weight_decay.l2 updates epochs momentum weight_scale
  = zero 0.2 7 None 0.5 0.01 | inverse-sigmoid 0.0 None 3 0.0 0.3
# Cells that differ in what has no effect are one cell
rbm offsets: [00, d0^b_s, dd^b_s]; sliding_factor: [0.1, 0.2]
  -> offsets sliding_factor.visible sliding_factor.hidden
  = 00 0.01 0.01 | d0^b_s 0.1 0.01 | d0^b_s 0.2 0.01 | dd^b_s 0.1 0.1 | dd^b_s 0.2 0.2
rbm sampler: [PCD-1, PT_10]; chains: [2, 4] -> sampler chains = PCD-1 2 | PCD-1 4 | PT_10 None
# Constant offsets have no sliding factor
rbm sliding_factor: 1; offsets: dd^b_s -> sliding_factor.visible sliding_factor.hidden = 1.0 1.0
rbm sliding_factor: 0.1; offsets: hd^b_s
  -> sliding_factor.visible sliding_factor.hidden = 0.01 0.1
rbm sliding_factor: 0.1; offsets: hd^b_s; offsets_from: random
  -> sliding_factor.visible sliding_factor.hidden = 0.1 0.1
rbm sliding_factor: 0.1; offsets: hd^b_s; start_from: {path: a.npz}
  -> sliding_factor.visible sliding_factor.hidden = 0.1 0.1
dbm sliding_factor: 0.1; offsets: hdd^b_s; pretraining: 2
  -> sliding_factor.visible sliding_factor.hidden = 0.1 0.1
auto-encoder sliding_factor: 0.1; offsets: dh^b_s
  -> sliding_factor.visible sliding_factor.hidden = 0.1 0.01
"""


@pytest.mark.parametrize("line", re.sub(r"\n  |\n#.*", " ", TAKEN).strip().splitlines())
def test_lines_of_a_grid_give_these_values_to_its_cells(line):
    given, paths, values = re.split(" +-> | = ", line)
    machine, _, fields = given.strip().partition(" ")
    for kind in MACHINES if machine == "all" else [machine]:
        VALIDATOR.validate(yaml.safe_load(grid_text(kind, **pairs(fields))))
        found = (
            map(cell.value, paths.split()) for cell in cells(kind, **pairs(fields))
        )
        assert " | ".join(" ".join(map(str, one)) for one in found) == values.strip()


def test_rows_are_flat_and_name_machine_and_method():
    rows = [cells(kind)[0].row() for kind in MACHINES]
    columns = (
        "model_kind",
        "model_hidden",
        "sampler",
        "evaluate_method",
        "evaluate_temperatures",
    )
    assert [tuple(map(row.get, columns)) for row in rows] == [
        ("rbm", 4, "PCD-1", "exact", 14_500),
        ("dbm", "6-5", "PCD-1", "exact", 29_000),
        ("auto-encoder", "half", "back-propagation", "cost", 14_500),
    ]
    assert all(row.keys() == rows[0].keys() for row in rows)
    scales = [with_name("gradient_scale_to", it).text for it in ("none", "standard")]
    assert scales == ["not scaled", "norm of the standard"]


def test_run_ids_name_layers_and_tell_settings_apart():
    layers = [run_ids(cells(kind)[0], 1, "")[0] for kind in ("dbm", "auto-encoder")]
    assert layers[0].startswith("dbm-6-5_ddd-b-s_PCD-1_0.1_")
    assert layers[1].startswith("auto-encoder-half_dd-b-s_back-propagation_0.1_")
    rates = (
        {"start": 0.12345678, "decay": it, "every": 9}
        for it in (0.12345678, 0.12345679)
    )
    one, other = (
        run_ids(Settings(**PLAIN, learning_rate=rate), 1, "")[0] for rate in rates
    )
    assert one != other
    steps = " + ".join(f"0.01 from {first} updates" for first in range(10, 60))
    (long,) = cells("rbm", learning_rate=f"{{start: 0.1, steps: {steps}}}")
    assert len(f"{run_ids(long, 1, '')[0]}.csv") <= 255  # as disks take it


PLAIN = {
    "data": {"name": "bars-and-stripes", "size": 2},
    "model": {"kind": "rbm", "hidden": 3},
}
PLAIN |= {"offsets": "dd^b_s", "sampler": "PCD-1", "updates": 60}
STEPPED = "{start: 0.1, steps: 0.01 from 100 epochs + 1e-3 from 0200 epoch}"
WORDS = "0.1, 0.01 from 100 epochs, 0.001 from 200 epochs"
DECAYING, DECAYS = (
    "{start: 0.1, decay: 0.5, every: 10 epochs}",
    "0.1 x 0.5 every 10 epochs",
)
PIECES = [(0, 0.1), (70, 0.05), (140, 0.025), (210, 0.0125)]


def test_a_rate_has_a_piece_in_each_interval_and_words_of_its_own():
    for rate, words, end, pieces in (
        ("0.1", "0.1", 60, [(0, 0.1)]),
        (DECAYING, DECAYS, 211, PIECES),
        (STEPPED, WORDS, 5000, [(0, 0.1), (700, 0.01), (1400, 0.001)]),
        (STEPPED, WORDS, 700, [(0, 0.1)]),
    ):
        (cell,) = cells("rbm", learning_rate=rate)
        assert str(cell.learning_rate) == str(cell.row()["learning_rate"]) == words
        assert (
            f"_{words.replace(', ', '-').replace(' ', '-')}_" in run_ids(cell, 1, "")[0]
        )
        updates_of = lambda interval: 7 * int(interval.split()[0])  # noqa: E731 (all are in epochs)
        firsts, rates = zip(*cell.learning_rate.pieces(updates_of, end), strict=True)
        assert [*zip(firsts, map(pytest.approx, rates), strict=True)] == pieces


def digest_of(run_id):
    return run_id.rpartition("_")[2]


@pytest.mark.parametrize("kind", MACHINES)
def test_run_id_hashes_what_differs_from_defaults_and_the_course_all_but_the_length(
    kind,
):
    """Any other facts would give all trials new names, and run them again."""
    (settings,) = cells(kind)
    fields = yaml.safe_load(grid_text(kind))["experiments"]["toy"]
    changes = {
        name: value
        for name, value in settings.model_dump(mode="json").items()
        if name in fields and name != "data"
    }
    changes["evaluate"] = {"every": settings.every}
    without_length = {
        name: value
        for name, value in changes.items()
        if name not in ("updates", "epochs")
    }
    names = run_ids(settings, 1, "digest")
    for run_id, facts in zip(names, (changes, without_length), strict=True):
        whole = {"settings": facts, "seed": 1, "data": "digest"}
        text = json.dumps(whole | {"kernel": KERNEL_VERSION}, sort_keys=True)
        assert digest_of(run_id) == hashlib.sha256(text.encode()).hexdigest()[:10]
    assert names[0] != names[1]


class NewModel(Model):
    units: str = "binary"


class NewEvaluate(Evaluate):
    reverse: bool = False


class NewSettings(Settings):
    model: NewModel
    evaluate: NewEvaluate = NewEvaluate()
    ladder: float | None = None


@pytest.mark.parametrize("kind", MACHINES)
def test_new_field_with_a_neutral_default_renames_no_run(kind):
    given = cells(kind)[0].model_dump(mode="json", exclude_defaults=True)
    old, new = Settings(**given), NewSettings(**given)
    assert new.ladder is None
    assert new.model.units == "binary"
    assert run_ids(new, 1, "digest") == run_ids(old, 1, "digest")
    changes = (
        {"ladder": 2.0},
        {"model": given["model"] | {"units": "spins"}},
        {"evaluate": {"reverse": True}},
    )
    names = [run_ids(NewSettings(**given | one), 1, "digest")[0] for one in changes]
    assert len({run_ids(old, 1, "digest")[0], *names}) == 4


def test_default_that_is_written_out_is_the_same_run():
    same = [
        {},
        {"momentum": 0},
        {"evaluate": {"every": "50 updates"}},
        {"evaluate": {"method": "exact"}},
        {"batch": 100, "shuffle": True, "sliding_factor": 0.01},
    ]
    rate = {"learning_rate": 0.1}
    assert len({run_ids(Settings(**PLAIN, **rate, **one), 1, "") for one in same}) == 1
    ais = {"method": "ais", "temperatures": 14_500, "runs": 100}
    usual, other = {"method": "ais"}, ais | {"temperatures": 14_501}
    names = [
        run_ids(Settings(**PLAIN, **rate, evaluate=one), 1, "")
        for one in (ais, usual, other)
    ]
    assert names[0] == names[1] != names[2]


def test_trainings_with_other_evaluations_share_no_end():
    fields = {**PLAIN, "learning_rate": 0.1}
    in_updates = run_ids(Settings(**fields), 1, "")
    longer = run_ids(Settings(**fields | {"updates": 90}), 1, "")
    in_epochs = run_ids(Settings(**fields | {"updates": None, "epochs": 9}), 1, "")
    assert in_updates[0] != longer[0]
    assert in_updates[1] == longer[1]
    assert in_epochs[1] != longer[1]  # it is evaluated every epoch


def test_numbers_that_print_alike_are_one_setting():
    rates = "[0.3, 0.30000000000000004]"
    (one,) = cells("rbm", learning_rate=rates, weight_scale="[0.1, 0.1000000000000001]")
    (other,) = cells("rbm", learning_rate=0.1 + 0.2, weight_scale=0.1)
    assert run_ids(one, 1, "")[0] == run_ids(other, 1, "")[0]
    assert len(cells("rbm", momentum="[0.3, 0.300000000001]")) == 2
    assert len(cells("rbm", data=f"{{path: a.npy, hold_out: {rates}}}")) == 1
    error = refusal(cells, "rbm", momentum="0.9999999999999")  # which would be 1
    assert "must be less than 1" in str(error)


def test_content_decides_a_run_id_and_names_are_labels():
    def name(
        data="a.csv",
        what="own.py:f",
        start="m.npz",
        digest="rows",
        text="text",
        source="1",
    ):
        changed = {"data": {"path": data, "name": data[0]}, "record": {"what": what}}
        settings = Settings(
            **PLAIN | changed, start_from={"path": start}, learning_rate=0.1
        )
        return run_ids(settings, 1, digest, {what: text}, source)[0]

    assert (
        name()
        == name("b/c.csv")
        == name(what="deep/mine.py:f")
        == name(start="n/{trial}.npz")
    )
    others = (
        name(digest="others"),
        name(text="other"),
        name(what="own.py:g"),
        name(source="2"),
    )
    assert len({name(), *others}) == 5


# Whole numbers

DIGITS = "9" * 5000
SPELLINGS = ("10", "1_0", "1E+1", "1.0e1", "10.0", "010", "1e1")
FIELDS = """
rbm trials: # | seed: # | epochs: # | batch: # | chains: # | sampler: PCD-# | sampler: PT_#
rbm data: {name: shifting-bar, size: 20, bar: #} | model: {kind: rbm, hidden: #}
rbm data: {name: shifting-bar, size: 20, bar: 1, hold_out: #}
dbm model: {kind: dbm, hidden: [#, 5]} | model: {kind: dbm, hidden: 7-#} | pretraining: #
auto-encoder early_stopping: {look_ahead: #}
rbm learning_rate: {start: 0.1, decay: 0.5, every: # updates}
rbm learning_rate: {start: 0.1, steps: 0.01 from # updates + 0.001 from 20 updates}
rbm evaluate: {every: # epochs} | evaluate: {rows: #} | evaluate: {method: ais, runs: #}
rbm record: {what: weight_norms, every: #} | record: {what: weight_norms, window: 0-#+20-30}
"""
FIELDS = [
    (kind, *one.split(": ", 1))  # kind of machine, field, value with # for the number
    for kind, _, lines in (line.partition(" ") for line in FIELDS.strip().splitlines())
    for one in lines.split(" | ")
]
IDS = [f"{field} {value}" for _, field, value in FIELDS]


def read(kind, field, value):
    return read_grid("grid.yaml", text=grid_text(kind, **{field: value})).experiments[
        "toy"
    ]


@pytest.mark.parametrize(("kind", "field", "value"), FIELDS, ids=IDS)
def test_every_field_reads_every_spelling(kind, field, value):
    expected = read(kind, field, value.replace("#", "10"))
    for spelling in SPELLINGS[1:-1]:
        given = value.replace("#", spelling)
        found = read(kind, field, given)
        assert found.cells == expected.cells
        assert (found.trials, found.seed) == (expected.trials, expected.seed)
        assert VALIDATOR.is_valid(yaml.safe_load(grid_text(kind, **{field: given}))), (
            spelling
        )


@pytest.mark.parametrize(("kind", "field", "value"), FIELDS, ids=IDS)
def test_other_numbers_are_refused_at_their_place(kind, field, value):
    for number in (
        "1.5",
        "1.55e1",
        "1e-1",
        "-10",
        "x",
        "1e",
        "0x10",
        DIGITS,
        f"1e{'9' * 50}",
    ):
        if "hold_out" in value and number == "1e-1":
            continue  # a tenth of the rows is a share that can be held out
        given = value.replace("#", number)
        error = refusal(read, kind, field, given)
        ((line, told),) = {
            *problems_of(error)
        }  # a list of layers may also be one of single layers
        lines = grid_text(kind, **{field: given}).splitlines()
        assert lines[int(line) - 1] == f"    {field}: {given}"
        assert told.split(".")[:2] == ["toy", field]
        assert all(len(line) < 500 for line in str(error).splitlines())


def test_one_reader_knows_all_spellings_signs_and_numbers_of_any_length():
    assert {whole_number(text) for text in (*SPELLINGS, 10.0)} == {10}
    for text in ("1.5", "100e-1", "1__0", "_1", "", "inf", "1e1.0"):
        assert whole_number(text) == text
    assert (whole_number(" +1e4 "), whole_number("-1e1")) == (10_000, -10)
    assert whole_number(f"{LARGEST + 1}") == LARGEST + 1
    assert whole_number("1e400") == whole_number(DIGITS) == 10**20
    endless = DIGITS * 40 + "x"  # without end if each digit were read twice
    assert whole_number(endless) == endless


def test_every_option_for_a_whole_number_reads_it_by_that_reader(grid):
    options = [it for _, command in commands(main) for it in command.params]
    numbers = [it for it in options if isinstance(it.type, click.types.IntParamType)]
    numbers = [it for it in numbers if not it.count]
    assert len(numbers) > 10
    assert [it.name for it in numbers if not isinstance(it.type, Whole)] == []
    ends = {it.name: (it.type.min, it.type.max) for it in numbers}
    assert (ends["rows"], ends["seed"]) == ((1, None), (0, 2**63 - 1))
    assert len(cbm("run", "grid.yaml", "--trials", DIGITS, code=2).stderr) < 500
    told = cbm("run", "grid.yaml", "--trials", "1e1", "--dry-run", "-j", "2.0").stdout
    assert "40 trials" in told
    assert load_source("shifting-bar:size=1e1,bar=2.0").train.shape == (10, 10)
