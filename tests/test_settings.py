"""Settings of all kinds of machines: what they mean, what contradicts, what has no effect."""

import csv
import json
from importlib.resources import files
from itertools import product

import numpy as np
import pytest

from cbm_cli.errors import CbmError
from cbm_cli.execution.jobs import Job
from cbm_cli.grid.parts import (
    RECORDERS,
    EarlyStopping,
    GradientChoice,
    LearningRate,
    MeanField,
    Model,
    Pretraining,
    Record,
)
from cbm_cli.grid.read import read_grid
from cbm_cli.grid.settings import Settings, Trial
from cbm_cli.results import label
from cbm_cli.results.identity import run_id
from tests.builders import MACHINES, check_schema, grid_text


@pytest.fixture
def cells(tmp_path):
    """Return a function from a kind of machine and fields to cells."""

    def cells(kind, overrides=None, **fields):
        (tmp_path / "grid.yaml").write_text(grid_text(kind, **fields))
        return read_grid(tmp_path / "grid.yaml", overrides or {}).experiments["toy"].cells

    return cells


@pytest.fixture
def complaint(tmp_path):
    """Return a function from a kind of machine and bad fields to the one complaint, less its place."""

    def complaint(kind, overrides=None, **fields):
        text = grid_text(kind, **fields)
        (tmp_path / "grid.yaml").write_text(text)
        with pytest.raises(CbmError) as caught:
            read_grid(tmp_path / "grid.yaml", overrides or {})
        (line,) = str(caught.value).split("\n")
        check_schema(text, line)
        return line.partition(": ")[2]

    return complaint


def pairs(fields):
    """Return ``sampler: CD-1; chains: 5`` as a dictionary; a field without a value is None."""
    parts = (field.partition(":") for field in fields.split("; "))
    return {name: text.strip() or None for name, _, text in parts}


# ---- What is refused ----


@pytest.mark.parametrize(
    ("kind", "fields", "told"),
    [
        ("dbm", "model: {kind: dbm, hidden: 500}", "model.hidden: a dbm with one hidden layer is an RBM;"),
        ("dbm", "model: {kind: dbm, hidden: [500, 0]}", "model.hidden: must be whole numbers of 1 or"),
        ("dbm", "model: {kind: dbm, hidden: [500, a]}", "model.hidden: must be whole numbers of 1 or"),
        ("dbm", "model: {kind: dbm, hidden: [[500, 0], [5, 5]]}", "model.hidden: must be whole numbers of"),
        ("dbm", "model: {kind: dbm, hidden: [{a: 1}]}", "model.hidden: must be whole numbers of 1 or"),
        ("dbm", "model: {kind: dbm, hidden: []}", "model.hidden: is an empty list; an"),
        ("dbm", "model: {kind: dbm, hidden: [[[5, 5]]]}", "model.hidden: is a list within a list"),
        ("dbm", "model: {kind: dbm, hidden: half}", "model.hidden: half is for auto encoders; gi"),
        ("rbm", "model: {kind: rbm, hidden: half}", "model.hidden: half is for auto encoders; gi"),
        ("rbm", "model: {kind: rbm, hidden:}", "model.hidden: must be whole numbers of 1 or more, one per"),
        ("rbm", "model: {kind: rbm, hidden: 5-5}", "model.hidden: an rbm has one hidden layer, not 5-5; a"),
        ("rbm", "model: {kind: rbm, hidden: [[5, 5]]}", "model.hidden: is a list within a list"),
        ("auto-encoder", "model: {kind: auto-encoder, hidden: [half, 5]}", "model.hidden: must be whole"),
        ("dbm", "model: {kind: [rbm, dbm], hidden: [4, 8]}", "model.hidden: is an axis or layers,"),
        ("rbm", "model: {kind: rbm, hidden: 4, encoder: tanh}", "model.encoder: is for auto encoders;"),
        ("auto-encoder", "model: {kind: auto-encoder, hidden: 4, decoder: relu}", "model.decoder: the cross"),
        ("dbm", "offsets: dd", "offsets: offset scheme dd^b has 2 letters; this dbm of 3 layers needs"),
        ("auto-encoder", "offsets: 000", "offsets: offset scheme 000 has 3 letters; this auto-encoder of"),
        ("auto-encoder", "offsets: dm", "offsets: offset scheme dm^b uses the model mean (m, a); auto"),
        ("auto-encoder", "offsets: aa", "offsets: offset scheme aa^b uses the model mean (m, a); auto"),
        ("rbm", "sampler:", "sampler: is missing"),
        ("auto-encoder", "sampler: CD-1", "sampler: is for Boltzmann machines; an auto encoder learns by"),
        ("auto-encoder", "ladders: 2", "ladders: is for Boltzmann machines"),
        ("auto-encoder", "fast_learning_rate: 0.1", "fast_learning_rate: is for Boltzmann machines"),
        ("dbm", "sampler: FPCD-1", "sampler: FPCD-1 is for RBMs; for a dbm write PCD-k, CD-k or PT_c"),
        ("rbm", "data_phase: gibbs-2", "data_phase: is for the mean field of DBMs"),
        ("dbm", "data_phase: gibbs-0", "data_phase: write mean-field, or gibbs-k"),
        ("dbm", "data_phase: mean", "data_phase: write mean-field, or gibbs-k"),
        ("rbm", "mean_field: {rounds: 3}", "mean_field.rounds: is for the mean field of DBMs"),
        ("auto-encoder", "mean_field: {rounds: 3}", "mean_field.rounds: is for the mean field of DBMs"),
        ("rbm", "pretraining: 200", "pretraining: is for the layers of DBMs; there is nothing to"),
        ("auto-encoder", "pretraining: {epochs: 2}", "pretraining.epochs: is for the layers of DBMs"),
        ("rbm", "early_stopping: {look_ahead: 2}", "early_stopping.look_ahead: is for auto encoders"),
        ("dbm", "early_stopping: {tolerance: 0}", "early_stopping.tolerance: is for auto encoders"),
        ("auto-encoder", "gradient: natural", "gradient: is for Boltzmann machines; an auto encoder"),
        ("dbm", "gradient: natural", "gradient: the natural gradient and scale_to are for RBMs"),
        ("dbm", "gradient: {scale_to: standard}", "gradient: the natural gradient and scale_to are for"),
        ("rbm", "gradient: standard", "gradient: the standard gradient is the one without offsets, not"),
        ("dbm", "gradient: enhanced", "gradient: the enhanced gradient is the one centered by a, not"),
        ("dbm", "gradient_from: exact", "gradient_from: is for RBMs"),
        ("auto-encoder", "offsets_from: exact", "offsets_from: is for RBMs"),
        ("auto-encoder", "evaluate: {method: ais}", "evaluate: method ais estimates a likelihood, and an"),
        ("auto-encoder", "evaluate: {method: exact}", "evaluate: method exact estimates a likelihood, and"),
        ("rbm", "evaluate: {method: cost}", "evaluate: method cost is for auto encoders; write exact"),
        ("dbm", "evaluate: {method: cost}", "evaluate: method cost is for auto encoders; write exact"),
        ("dbm", "record: free_energy_gap", "record: is for RBMs; the model is of kind dbm"),
        ("auto-encoder", "record: weight_norms+log_likelihood", "record: is for RBMs; the model is of"),
        ("dbm", "pretraining: -1", "pretraining: must be 0 or more, not -1"),
        ("dbm", "pretraining: {learning_rate: 0.1}", "pretraining.learning_rate: needs epochs of"),
        ("dbm", "pretraining: {epochs: 2, offsets: ddd}", "pretraining.offsets: offset scheme ddd^b has 3"),
        ("dbm", "pretraining: {epochs: 2, sampler: FPCD-1}", "pretraining.sampler: layers are pre-trained"),
        ("dbm", "pretraining: {epochs: 2, sampler: PCD}", "pretraining.sampler: sampler 'PCD' is"),
        ("rbm", "gradient: natrual", "gradient: must be centered, standard, enhanced or natural, not"),
        ("rbm", "gradient: {fisher: marginal}", "gradient.fisher: is for the natural gradient; write"),
        ("rbm", "gradient: {estimate: samples}", "gradient.estimate: is for the natural gradient;"),
        ("rbm", "gradient: {kind: natural, iterations: 3}", "gradient.iterations: is for a Fisher matrix"),
        ("rbm", "gradient: {kind: natural, damping: -1}", "gradient.damping: must be 0 or more, not"),
        ("rbm", "gradient: {kind: natural, damping: inf}", "gradient.damping: must be finite, not inf"),
        ("rbm", "record: weight_norm", "record: there is no recorder weight_norm; did you mean"),
        ("rbm", "record: weight_norms+", "record: there is no recorder without a name;"),
        ("rbm", "record: own.py:2f", "record: there is no recorder own.py:2f; a recorder of your own"),
        ("rbm", "record: {every: 5}", "record.every: needs something to record, as in what:"),
        ("rbm", "record: {window: 1-2}", "record.window: needs something to record,"),
        ("rbm", "record: {what: bias_norms, window: 20-10}", "record.window: write the first and the last"),
        ("rbm", "record: {what: bias_norms, window: 10}", "record.window: write the first and the last"),
        ("rbm", "record: {what: bias_norms, units: 3}", "record.units: is for the recorder"),
        ("rbm", "record: {what: offset_values, units: -3}", "record.units: write the numbers of hidden"),
        ("rbm", "record: {what: bias_norms, every: often}", "record.every: write a number of updates (50)"),
        ("rbm", "sampler: CD-1; chains: 5", "chains: is for PCD-k and FPCD-k; the sampler is CD"),
        ("rbm", "sampler: exact; chains: 5", "chains: is for PCD-k and FPCD-k"),
        ("dbm", "sampler: PT_4; chains: 5", "chains: is for PCD-k and FPCD-k; the sampler is PT_4"),
        ("auto-encoder", "chains: 5", "chains: is for Boltzmann machines"),
        ("rbm", "swaps: both", "swaps: is for parallel tempering; PCD-1 has one temperature"),
        ("auto-encoder", "swaps: both", "swaps: is for Boltzmann machines"),
        ("rbm", "shuffle: false; batch: full", "shuffle: is for mini-batches"),
        ("auto-encoder", "shuffle: false; batch: full", "shuffle: is for mini-batches"),
        ("rbm", "fast_decay: 0.9", "fast_decay: is for FPCD-k; the sampler is PCD-1"),
        ("auto-encoder", "fast_decay: 0.9", "fast_decay: is for Boltzmann"),
        ("dbm", "pretraining: {doubling: false}", "pretraining.doubling: needs epochs of pre-"),
        ("rbm", "sliding_factor: 0.1", "sliding_factor: is for schemes with _s"),
        ("rbm", "sliding_factor: {visible: 0}; offsets: aa^b_s", "sliding_factor.visible: 0 keeps"),
        ("dbm", "sliding_factor: {visible: 0}; offsets: 0dd^b_s", "sliding_factor.visible: has no"),
        ("rbm", "gradient_from: exact; sampler: exact", "gradient_from: is exact already"),
        ("rbm", "offsets_from: exact; offsets: 00", "offsets_from: has no effect"),
        ("rbm", "gradient: {scale_of: weights}", "gradient.scale_of: needs scale_to"),
        ("rbm", "start_from: {path: a.npz}; weight_scale: 1", "weight_scale: is for fresh machines"),
        ("dbm", "start_from: {path: a.npz}; init: zero", "init: is for fresh machines"),
        ("rbm", "start_from: {path: a.npz, machine: best-valid}", "start_from.machine: chooses"),
        ("rbm", "evaluate: {runs: 50}", "evaluate.runs: is for method: ais; the method is exact"),
        ("auto-encoder", "evaluate: {base: uniform}", "evaluate.base: is for method: ais"),
        ("dbm", "evaluate: {method: none, rows: 5}", "evaluate.rows: is for evaluations"),
        ("dbm", "sampler: CD-1; ladders: 2", "ladders: is for parallel tempering"),
        ("dbm", "fast_learning_rate: 0.1", "fast_learning_rate: is for FPCD-k"),
        (
            "dbm",
            "sampler: PT_10; ladders: 5; pretraining: {epochs: 2, batch: 12}",
            "ladders: must divide the",
        ),
        ("rbm", "offsets: 00; gradient: {kind: natural, scale_to: centered}", "gradient: scale_to: centered"),
    ],
)
def test_what_contradicts_or_changes_nothing_is_refused_by_its_field(complaint, kind, fields, told):
    assert complaint(kind, **pairs(fields)).startswith(f"toy.{told}")


# ---- What is taken, and what it means ----

DECAYING = "{start: 0.1, decay: 0.5, every: 10 epochs}"
NATURAL = "[centered, natural, {kind: natural, fisher: [marginal, diagonal], damping: 0.1}]"
CODER = "{kind: auto-encoder, hidden: 4, decoder: [sigmoid, tanh, relu, linear], loss: squared}"
TWICE = "{epochs: 2, doubling: [true, false], batch: 10}"
SIDES = "sliding_factor.visible sliding_factor.hidden"
SOURCES = [*product(("samples", "exact"), ("same", "independent", "exact", "random"))]
BOTH, ALL = "[samples, exact]", "[same, independent, exact, random]"
DECAY = "weight_decay.l1 weight_decay.l2"
SLID = "sliding_factor: 0.1; offsets"


@pytest.mark.parametrize(
    ("kind", "fields", "paths", "values"),
    [
        # A list is an axis of RBMs, and the layers of deep machines
        ("rbm", "model: {kind: rbm, hidden: 4}", "model.hidden", [4]),
        ("rbm", "model: {kind: rbm, hidden: [4, 8]}", "model.hidden", [4, 8]),
        ("dbm", "model: {kind: dbm, hidden: [500, 200]}", "model.hidden", [(500, 200)]),
        ("dbm", "model: {kind: dbm, hidden: 500-200}", "model.hidden", [(500, 200)]),
        ("dbm", "model: {kind: dbm, hidden: [[5, 5], [2, 1]]}", "model.hidden", [(5, 5), (2, 1)]),
        ("dbm", "model: {kind: dbm, hidden: [5-5, 2-1]}", "model.hidden", [(5, 5), (2, 1)]),
        ("dbm", "model: {kind: dbm, hidden: [[5, 5], 2-1]}", "model.hidden", [(5, 5), (2, 1)]),
        ("auto-encoder", "model: {kind: auto-encoder, hidden: [50]}", "model.hidden", [50]),
        ("auto-encoder", "model: {kind: auto-encoder, hidden: half}", "model.hidden", ["half"]),
        (
            "auto-encoder",
            "model: {kind: auto-encoder, hidden: [[half], [9], 2]}",
            "model.hidden",
            ["half", 9, 2],
        ),
        ("auto-encoder", f"model: {CODER}", "model.decoder", ["sigmoid", "tanh", "relu", "linear"]),
        ("auto-encoder", "offsets: [00, dd, hh, rr]", "offsets", ["00", "dd^b", "hh^b", "rr^b"]),
        ("dbm", "pretraining: [0, {epochs: 5, learning_rate: [0.1, 1]}]", "pretraining.epochs", [0, 5, 5]),
        ("dbm", "pretraining: {epochs: 5, learning_rate: [0.1, 1]}", "pretraining.learning_rate", [0.1, 1]),
        ("dbm", f"pretraining: {TWICE}", "pretraining.doubling", [True, False]),
        ("dbm", f"pretraining: {TWICE}; shuffle: false; batch: full", "shuffle", [False, False]),
        ("dbm", "table: {rows: [data, pretraining.epochs], groups: model.hidden}", "pretraining.epochs", [0]),
        ("rbm", f"gradient: {NATURAL}", "gradient.fisher", ["joint", "joint", "marginal", "diagonal"]),
        ("rbm", f"gradient: {NATURAL}", "gradient.damping", [None, None, 0.1, 0.1]),
        ("rbm", "gradient: standard; offsets: 00", "gradient.kind", ["standard"]),
        ("rbm", "gradient: enhanced; offsets: [aa^b, aa^l_s]", "gradient.kind", ["enhanced", "enhanced"]),
        ("dbm", "gradient: enhanced; offsets: aaa", "gradient.kind", ["enhanced"]),
        ("rbm", "gradient: {kind: natural, scale_to: centered}", "gradient.scale_to", ["centered"]),
        ("rbm", "gradient: {kind: [natural], scale_to: standard}", "gradient.scale_to", ["standard"]),
        ("rbm", "gradient: {scale_to: standard, scale_of: weights}", "gradient.scale_of", ["weights"]),
        ("rbm", f"gradient_from: {BOTH}; offsets_from: {ALL}", "gradient_from offsets_from", SOURCES),
        *((kind, "momentum: 0.9", "momentum", [0.9]) for kind in MACHINES),
        *((kind, "weight_decay: 0.0002", DECAY, [(0, 0.0002)]) for kind in MACHINES),
        *((kind, "weight_decay: {l1: 1e-4}", DECAY, [(1e-4, 0)]) for kind in MACHINES),
        ("rbm", "sampler: [PCD-1, FPCD-2]; chains: 5", "chains", [5, 5]),
        ("dbm", "chains: [5, 200]", "chains", [5, 200]),
        ("dbm", "sampler: PT_4; swaps: both", "swaps", ["both"]),
        ("rbm", "shuffle: false", "shuffle", [False]),
        ("rbm", "shuffle: true; batch: full", "shuffle", [True]),
        ("rbm", "sampler: FPCD-1; fast_decay: 0.9", "fast_decay", [0.9]),
        ("rbm", f"sampler: FPCD-1; learning_rate: {DECAYING}", "fast_rate", [0.1]),
        ("rbm", "record: " + "+".join(RECORDERS), "record.names", [RECORDERS]),
        # Constant offsets have no sliding factor
        ("rbm", f"{SLID}: hd^b_s", SIDES, [(0.01, 0.1)]),
        ("rbm", f"{SLID}: hd^b_s; offsets_from: random", SIDES, [(0.1, 0.1)]),
        ("rbm", f"{SLID}: 0h^b_s; offsets_from: random", SIDES, [(0.01, 0.1)]),
        ("rbm", f"{SLID}: hd^b_s; start_from: {{path: a.npz}}", SIDES, [(0.1, 0.1)]),
        ("dbm", f"{SLID}: hdd^b_s; pretraining: {{epochs: 2, offsets: dd}}", SIDES, [(0.1, 0.1)]),
        ("dbm", f"{SLID}: 0dd^b_s; pretraining: {{epochs: 2, sliding_factor: 0.2}}", SIDES, [(0.01, 0.1)]),
        ("auto-encoder", f"{SLID}: dh^b_s", SIDES, [(0.1, 0.01)]),
    ],
)
def test_lines_of_a_grid_give_these_values_to_its_cells(cells, kind, fields, paths, values):
    found = [tuple(map(cell.value, paths.split())) for cell in cells(kind, **pairs(fields))]
    assert found == [value if " " in paths else (value,) for value in values]


# ---- Layers ----


def test_machines_of_several_kinds_make_one_axis(cells):
    found = cells(
        "rbm",
        model="[{kind: rbm, hidden: [4, 8]}, {kind: dbm, hidden: [6, 5]}]",
        offsets="[00, 000]",
        exclude="[{model.kind: rbm, offsets: 000}, {model: {kind: dbm, hidden: [6, 5]}, offsets: 00}]",
    )
    assert [(cell.model.size, cell.offsets) for cell in found] == [("4", "00"), ("8", "00"), ("6-5", "000")]


def test_layers_are_set_and_overridden(cells):
    (one,) = cells("dbm", {"model.hidden": "[7, 3]"})
    assert one.model.hidden == (7, 3)
    assert [cell.model.hidden for cell in cells("dbm", {"model.hidden": "[[7, 3], 4-2]"})] == [(7, 3), (4, 2)]
    for change in ("{model.hidden: 7-3}", "{model: {kind: dbm, hidden: [7, 3]}}"):
        (one,) = cells("dbm", when=f"[{{if: {{model.hidden: 6-5}}, set: {change}}}]")
        assert one.model == Model(kind="dbm", hidden=(7, 3))


@pytest.mark.parametrize(
    ("model", "layers", "sizes"),
    [
        (Model(kind="rbm", hidden=16), 2, (16,)),
        (Model(kind="dbm", hidden=[500, 400, 300]), 4, (500, 400, 300)),
        (Model(kind="auto-encoder", hidden="250-50"), 3, (250, 50)),
        (Model(kind="auto-encoder", hidden="half"), 2, (4,)),
    ],
)
def test_layers_above_nine_visible_units(model, layers, sizes):
    assert (model.layers, model.hidden_layers(9)) == (layers, sizes)


# ---- What goes with which machine ----


@pytest.mark.parametrize("kind", MACHINES)
def test_defaults_of_other_machines_may_be_spelled_out(cells, kind):
    plain = cells(kind)
    spelled = cells(
        kind,
        data_phase="mean-field",
        mean_field="{rounds: 100, tolerance: 1e-4}",
        pretraining="{epochs: 0}",
        early_stopping="{look_ahead: 5}",
        gradient="centered",
        gradient_from="samples",
        offsets_from="same",
    )
    assert spelled == plain


def test_settings_of_deep_machines_are_read(cells):
    (one,) = cells(
        "dbm",
        sampler="exact",
        data_phase="gibbs-05",
        mean_field="{tolerance: 1e-6, rounds: 7}",
        pretraining="{epochs: 20, learning_rate: 1e-3, offsets: dd, sampler: CD-1, batch: full, "
        "sliding_factor: 0.5}",
    )
    assert (one.sampler, one.data_phase) == ("exact", "gibbs-5")
    assert one.mean_field == MeanField(tolerance=1e-6, rounds=7)
    assert one.pretraining == Pretraining(
        epochs=20, learning_rate=0.001, offsets="dd^b", sampler="CD-1", batch="full", sliding_factor=0.5
    )
    (one,) = cells("auto-encoder", early_stopping="{look_ahead: 3, tolerance: 0}")
    assert one.early_stopping == EarlyStopping(look_ahead=3, tolerance=0)


# ---- Gradients and where their means come from ----


@pytest.mark.parametrize(
    ("gradient", "damping"),
    [
        (GradientChoice(kind="natural"), 0),
        (GradientChoice(kind="natural", estimate="samples"), 0.01),
        (GradientChoice(kind="natural", estimate="samples", damping=0), 0),
        (GradientChoice(kind="natural", damping=0.3), 0.3),
    ],
)
def test_damping_is_zero_or_a_hundredth_from_samples(gradient, damping):
    assert gradient.added_damping == damping


# ---- Recorders ----


def test_recorders_are_read(cells):
    (one,) = cells("rbm")
    assert (one.record, one.record.names, one.record.windows) == (Record(), (), ())
    (one,) = cells("rbm", record="weight_norms + offset_error+weight_norms")
    assert one.record.names == ("weight_norms", "offset_error")
    (one,) = cells(
        "rbm",
        record="{what: offset_values+my/own.py:skew, every: 1 epoch, window: 010-20+5000-5100, units: 0+03}",
    )
    assert one.record.names == ("offset_values", "my/own.py:skew")
    assert (one.record.every, one.record.window) == ("1 epoch", "10-20+5000-5100")
    assert one.record.windows == ((10, 20), (5000, 5100))
    assert one.record.unit_numbers == (0, 3)


# ---- What comes out ----


@pytest.mark.parametrize(
    ("kind", "fields", "method", "temperatures"),
    [
        ("rbm", {}, "exact", 14_500),
        ("dbm", {}, "exact", 29_000),
        ("auto-encoder", {}, "cost", 14_500),
        ("auto-encoder", {"evaluate": "{method: none}"}, "none", 14_500),
        ("dbm", {"evaluate": "{method: ais, temperatures: 100}"}, "ais", 100),
    ],
)
def test_evaluation_by_default_is_that_of_the_machine(cells, kind, fields, method, temperatures):
    (one,) = cells(kind, **fields)
    assert (one.evaluation, one.temperatures) == (method, temperatures)
    assert (one.row()["evaluate_method"], one.row()["evaluate_temperatures"]) == (method, temperatures)


def test_rows_are_flat_and_name_machine_and_method(cells):
    rows = [cells(kind)[0].row() for kind in MACHINES]
    assert [(row["model_kind"], row["model_hidden"], row["sampler"]) for row in rows] == [
        ("rbm", 4, "PCD-1"),
        ("dbm", "6-5", "PCD-1"),
        ("auto-encoder", "half", "back-propagation"),
    ]
    for row in rows:
        assert row.keys() == rows[0].keys()
        assert all(value is None or isinstance(value, str | int | float) for value in row.values())
        assert json.loads(json.dumps(row)) == row
        assert row["pretraining_epochs"] == 0


@pytest.mark.parametrize("style", ["text", "latex", "unicode"])
def test_tables_name_back_propagation_as_it_is(cells, style):
    assert label("sampler", cells("auto-encoder")[0].row()["sampler"], style) == "back-propagation"


def test_run_ids_name_layers_and_tell_settings_apart(cells):
    prefixes = [run_id(cells(kind)[0], 1, "").rpartition("_")[0] for kind in MACHINES]
    assert prefixes == [
        "shifting-bar_rbm-4_dd-b_PCD-1_0.1",
        "shifting-bar_dbm-6-5_ddd-b-s_PCD-1_0.1",
        "shifting-bar_auto-encoder-half_dd-b-s_back-propagation_0.1",
    ]
    found = cells(
        "dbm", pretraining="[0, 200]", data_phase="[mean-field, gibbs-1]", weight_scale="[0.01, 0.1]"
    )
    assert len({run_id(cell, 1, "") for cell in found}) == 8
    recorded = cells("rbm", record="[bias_norms, weight_norms]")
    assert len({run_id(cell, 1, "") for cell in recorded}) == 2


def test_every_published_size_of_a_hidden_layer_can_be_written(cells):
    """Tables 9 to 13: numbers, 200-200 for DBMs, half for auto encoders."""
    with (files("cbm_cli.paper") / "published-results.csv").open() as lines:
        published = {(row["model"], row["hidden"]) for row in csv.DictReader(lines)}
    assert published
    for kind, hidden in published:
        Model(kind=kind, hidden=hidden.replace("x", "-"))


PLAIN = {
    "data": {"name": "bars-and-stripes", "size": 2},
    "model": {"kind": "rbm", "hidden": 3},
    "offsets": "dd^b_s",
    "sampler": "PCD-1",
    "learning_rate": 0.1,
    "updates": 60,
}
STEPPED = "{start: 0.1, steps: 0.01 from 100 epochs + 1e-3 from 0200 epoch}"


def updates_of(interval):
    """Return the updates of an interval where an epoch has 7."""
    number, unit = interval.split()
    return int(number) * (7 if unit.startswith("epoch") else 1)


# ---- The learning rate ----


def test_a_plain_learning_rate_is_what_it_was():
    rate = Settings(**PLAIN).learning_rate
    assert rate == LearningRate(start=0.1)
    assert (str(rate), rate.slug, rate.constant) == ("0.1", "0.1", True)
    assert rate.pieces(updates_of, 60) == [(0, 0.1)]
    assert Settings(**PLAIN).row()["learning_rate"] == 0.1


@pytest.mark.parametrize("kind", MACHINES)
def test_a_rate_that_decays_has_a_piece_in_each_interval(cells, kind):
    (cell,) = cells(kind, learning_rate=DECAYING)
    rate = cell.learning_rate
    assert str(rate) == cell.row()["learning_rate"] == "0.1 x 0.5 every 10 epochs"
    assert rate.slug == "0.1-x-0.5-every-10-epochs"
    assert rate.pieces(updates_of, 71) == [(0, 0.1), (70, 0.05)]
    firsts, rates = zip(*rate.pieces(updates_of, 281), strict=True)
    assert firsts == (0, 70, 140, 210, 280)
    np.testing.assert_allclose(rates, [0.1, 0.05, 0.025, 0.0125, 0.00625])


def test_steps_are_pieces_and_a_longer_training_begins_with_the_same_ones(cells):
    (cell,) = cells("rbm", learning_rate=STEPPED)
    rate = cell.learning_rate
    assert str(rate) == "0.1, 0.01 from 100 epochs, 0.001 from 200 epochs"
    assert rate.slug == "0.1-0.01-from-100-epochs-0.001-from-200-epochs"
    assert rate.pieces(updates_of, 5000) == [(0, 0.1), (700, 0.01), (1400, 0.001)]
    assert rate.pieces(updates_of, 700) == [(0, 0.1)]


def test_the_name_of_a_run_tells_rates_apart_to_the_last_digit():
    rates = ({"start": 0.12345678, "decay": decay, "every": 9} for decay in (0.12345678, 0.12345679))
    one, other = (run_id(Settings(**PLAIN | {"learning_rate": rate}), 1, "digest") for rate in rates)
    assert one != other
    assert "0.12345678-x-0.12345678-every-9-updates" in one
    settings = Settings(**PLAIN | {"learning_rate": {"start": 1, "decay": 0.5, "every": 9}})
    assert " 1 x 0.5 every 9 updates trial 0" in Job(Trial("toy", settings, 0, 1), "id", None, ()).title


def test_parts_of_a_rate_are_axes_and_can_be_asked_for_and_set(cells):
    found = cells(
        "rbm",
        learning_rate="{start: [0.1, 0.2], decay: [0.5, 0.9], every: 10 epochs}",
        exclude="[{learning_rate.start: 0.1, learning_rate.decay: 0.9}]",
        when="[{if: {learning_rate: 0.2}, set: {learning_rate.every: 5}}]",
    )
    assert [str(cell.learning_rate) for cell in found] == [
        "0.1 x 0.5 every 10 epochs",
        "0.2 x 0.5 every 5 updates",
        "0.2 x 0.9 every 5 updates",
    ]
    (cell,) = cells("rbm", {"learning_rate.start": "0.3"}, learning_rate=DECAYING)
    assert str(cell.learning_rate) == "0.3 x 0.5 every 10 epochs"


# ---- Momentum, decay, chains, swaps, batches ----


def test_a_sliding_factor_may_stand_beside_schemes_that_do_not_slide(cells):
    found = cells("rbm", offsets="[00, dd^b, d0^b_s, dd^b_s]", sliding_factor="{visible: 0, hidden: 0.1}")
    factors = [(cell.sliding_factor.visible, cell.sliding_factor.hidden) for cell in found]
    assert factors == [(0.01, 0.01), (0.01, 0.01), (0, 0.01), (0, 0.1)]
    assert cells("rbm", sliding_factor="0.01")  # the default may be spelled out
    for offsets, layers in (("ddd^b", "{epochs: 2, offsets: dd^b_s}"), ("0dd^b_s", "{epochs: 2}")):
        (cell,) = cells("dbm", offsets=offsets, sliding_factor="0.1", pretraining=layers)
        assert (cell.sliding_factor.visible, cell.sliding_factor.hidden) == (0.1, 0.1)
    assert cells("rbm", {"offsets": "00"}, offsets="dd^b_s", sliding_factor="0.1")  # by --set


def test_new_fields_at_their_defaults_leave_run_ids_alone():
    spelled = {
        "momentum": 0,
        "weight_decay": {"l1": 0, "l2": 0},
        "chains": None,
        "swaps": "alternate",
        "shuffle": True,
        "gradient": {"scale_of": "all"},
        "pretraining": {"doubling": True},
    }
    plain = Settings(**PLAIN)
    assert Settings(**PLAIN | spelled).model_dump() == plain.model_dump()
    assert not {"momentum", "weight_decay", "chains", "swaps", "shuffle"} & plain.model_dump().keys()
    changes = [{"momentum": 0.5}, {"weight_decay": {"l1": 0.1}}, {"chains": 7}, {"shuffle": False}]
    changes.append({"sampler": "PT_3", "swaps": "both"})
    assert len({run_id(Settings(**PLAIN | change), 1, "digest") for change in [{}, *changes]}) == 6


def test_bad_values_are_refused_wherever_settings_are_made():
    with pytest.raises(ValueError, match="must"):
        Settings(**PLAIN | {"learning_rate": {"start": 1, "steps": "0.1 from 5 epochs + 1 from 2 epochs"}})
