"""Recorders against the reference, and records of a training: the same bytes however it
ran.
"""

import importlib
import re
import sys
from functools import partial
from math import acos, degrees
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cbm_cli import reference as ref
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.datasets.loading import load
from cbm_cli.execution.evaluate import _OF_MACHINE
from cbm_cli.grid.settings import RECORDERS, Settings, Trial
from cbm_cli.kernels.machine import Trail, empty_trail
from cbm_cli.letters import LETTERS
from cbm_cli.machine import TrainedMachine
from cbm_cli.machines.files import read_machine
from cbm_cli.machines.likelihood import Method
from cbm_cli.machines.models import Layered
from cbm_cli.results import Store
from cbm_cli.trial import loop as trial_loop
from cbm_cli.trial import recorders
from cbm_cli.trial.learner import Learner
from cbm_cli.trial.loop import run_trial
from cbm_cli.trial.own_recorders import (
    compile_recorder,
    imported_modules,
    is_taken,
    read_recorder,
)
from cbm_cli.trial.recorders import Context, check_recorders, record
from numpy.testing import assert_allclose, assert_array_equal, assert_equal

from tests.builders import GRID, cbm, holds, problems_of, refusal, summary
from tests.journals import contents_of, trials_of
from tests.oracles import advance, flat, log_likelihoods, moments, phases, random_state
from tests.trainings import RBM, THREE_PARTS, TRAININGS, finish_in_pieces, rbm_settings


def stack(n=4, m=3, T=5, seed=3):
    rng = np.random.default_rng(seed)
    shapes = (T, n, m), (T, n), (T, m)
    parameters = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    offsets = [rng.random(shape).astype(np.float32) for shape in shapes[1:]]
    return Trail(np.arange(T), *parameters, *offsets)


def context_of(offsets="aa^b", levels=1, **settings):
    rows = [
        np.random.default_rng(seed).integers(0, 2, (7, 4)).astype(np.uint8)
        for seed in (0, 1)
    ]
    its = rbm_settings(model={"kind": "rbm", "hidden": 3}, offsets=offsets, **settings)
    return Context(Dataset("rows", rows[0], valid=rows[1], levels=levels), its, seed=1)


def norms(W, b, c, mu, lam, x, valid):
    norm = np.linalg.norm
    return {
        "weight_norm": norm(W),
        "weight_row_norm": np.mean([norm(row) for row in W]),
        "weight_column_norm": np.mean([norm(column) for column in W.T]),
        "visible_bias_norm": norm(b),
        "hidden_bias_norm": norm(c),
        "centered_visible_bias_norm": norm(b + [sum(row * lam) for row in W]),
        "centered_hidden_bias_norm": norm(c + [sum(column * mu) for column in W.T]),
    }


def likelihoods(W, b, c, mu, lam, x, valid):
    train, held_out = (log_likelihoods(W, b, c, part).mean() for part in (x, valid))
    return {"log_likelihood": train, "free_energy_gap": train - held_out}


def pseudo_likelihoods(
    W, b, c, mu, lam, x, valid
):  # test_sklearn.py has sums over states
    machine = TrainedMachine(Layered("rbm", (W,), (b, c), (0 * b, 0 * c)))
    return {"pseudo_likelihood": machine.pseudo_likelihood(x).mean()}


def activities(W, b, c, mu, lam, x, valid):
    h = ref.hidden_mean(x, W, c)
    of_units = h.mean(axis=0)
    return {
        "hidden_activity_mean": of_units.mean(),
        "hidden_activity_extreme": sum(mean < 0.05 or mean > 0.95 for mean in of_units)
        / 3,
        "reconstruction_error": np.mean((x - ref.visible_mean(h, W, b)) ** 2),
        "lam_0": lam[0],
    }


def offset_errors(W, b, c, mu, lam, x, valid, scheme):
    both, found = [moments(phase)[1:] for phase in phases(W, b, c, x)], {}
    for k, (side, offset) in enumerate((("visible", mu), ("hidden", lam))):
        target = ref.offset_target(
            LETTERS[scheme[k]].shares, both[0][k], both[1][k], 0.5
        )
        found[f"{side}_offset_error"] = np.abs(offset - target).mean()
    return found


def directions(W, b, c, mu, lam, x, valid, phase=ref.joint_phase, damping=0.0):
    """Norms, and angles by the law of cosines."""
    both, norm, norms, angles = phases(W, b, c, x), np.linalg.norm, {}, {}
    if not mu.any():  # a machine without offsets: the data means
        mu, lam = moments(both[0])[1:]
    standard = flat(*ref.gradient(*both))
    along_offsets = flat(*ref.centered_gradient(*both, mu, lam))
    F = ref.fisher(phase(W, b, c))
    u = np.linalg.inv(F + damping * np.eye(len(F))) @ standard
    for name, v in (("standard", standard), ("centered", along_offsets)):
        cos = (norm(u) ** 2 + norm(v) ** 2 - norm(u - v) ** 2) / (2 * norm(u) * norm(v))
        norms[f"{name}_gradient_norm"] = norm(v)
        angles[f"angle_natural_{name}"] = degrees(acos(cos))
    return angles | norms


def test_norms_of_many_weights():
    """Up to 100 weights are summed as a product."""
    trail = Trail(*(array.astype(float) for array in stack(11, 10)))
    for name, column in recorders.weight_norms(trail, context_of()).items():
        expected = [
            norms(*machine, None, None)[name]
            for machine in zip(*trail[1:], strict=True)
        ]
        assert_allclose(column, expected, rtol=1e-12)


MARGINAL = {"kind": "natural", "fisher": "marginal", "damping": 0.05}
DIRECTIONS = "gradient_angles gradient_norms"
MEASURED = [  # recorders, what measures the same, the rounding, and settings
    ("weight_norms bias_norms", norms, 1e-12, {}),
    ("log_likelihood free_energy_gap", likelihoods, 2e-6, {}),  # float32 sums
    ("pseudo_likelihood", pseudo_likelihoods, 1e-9, {}),
    ("hidden_activity reconstruction_error offset_values", activities, 1e-12, {}),
    (DIRECTIONS, directions, 1e-4, {}),
]
DAMPED = partial(directions, phase=ref.model_phase, damping=0.05)
MEASURED += [(DIRECTIONS, DAMPED, 1e-4, {"gradient": MARGINAL})]
for scheme in ("aa^b_s", "dm^l", "0d", "hr^b"):
    errors = partial(offset_errors, scheme=scheme)
    MEASURED += [("offset_error", errors, 1e-10, {"offsets": scheme})]


@pytest.mark.parametrize(("levels", "scratch"), [(1, 2**17), (255, 1)])
@pytest.mark.parametrize(("names", "expected", "rounding", "settings"), MEASURED)
def test_recorders_measure_what_the_reference_does(
    names, expected, rounding, settings, levels, scratch, monkeypatch
):
    monkeypatch.setattr(recorders, "SCRATCH", scratch)
    snapshots, context = stack(), context_of(levels=levels, **settings)
    snapshots.c[0], snapshots.W[0] = [-9, 9, 0], 0  # an idle and a busy unit
    snapshots.mu[4], snapshots.lam[4] = 0, 0
    before = [array.copy() for array in snapshots]
    found = record(names.split(), snapshots, context)
    for t, arrays in enumerate(
        zip(*(array.astype(float) for array in snapshots[1:]), strict=True)
    ):
        wanted = expected(
            *arrays, context.data.train / levels, context.data.valid / levels
        )
        assert [*found] == [*wanted]
        values = {column: values[t] for column, values in found.items()}
        assert values == pytest.approx(wanted, abs=rounding)
    for array, unchanged in zip(snapshots, before, strict=True):
        assert_array_equal(array, unchanged)


def test_directions_that_agree_have_no_angle():
    """With so much damping the natural gradient has the direction of the standard
    one.
    """
    context = context_of(gradient=MARGINAL | {"damping": 1e12})
    found = record(["gradient_angles"], stack(T=50), context)
    assert_allclose(found["angle_natural_standard"], 0, atol=1e-5)


def test_columns_come_in_the_order_of_the_names_and_are_in_the_docs(clone):
    names, text = [*RECORDERS][::-1], (clone / "docs/recorders.md").read_text("utf-8")
    found = [*record(names, stack(), context_of())]
    assert found == [column for name in names for column in RECORDERS[name]]
    for word in [
        *names,
        *(column for column in found if not column.startswith("lam_")),
    ]:
        assert f"`{word}`" in text


def test_a_snapshot_that_is_not_finite_is_empty_in_all_columns():
    snapshots = stack()
    expected = record([*RECORDERS], snapshots, context_of())
    snapshots.W[1, 0, 0], snapshots.c[3, 0] = np.nan, np.inf
    for column, values in record([*RECORDERS], snapshots, context_of()).items():
        wanted = np.where([1, 0, 1, 0, 1], expected.pop(column), np.nan)
        assert_allclose(values, wanted, rtol=1e-9)
    assert not expected


def check(names, width=4, hidden=3, parts=("train",), **settings):
    plain = {"model": {"kind": "rbm", "hidden": hidden}, "offsets": "aa^b"}
    plain |= {"evaluate": {"method": "none"}, "record": {"what": "+".join(names)}}
    data = Dataset("rows", **dict.fromkeys(parts, np.zeros((2, width), np.uint8)))
    check_recorders(rbm_settings(**plain | settings), data)


@pytest.mark.parametrize(
    ("name", "settings", "told"),
    [
        (
            "log_likelihood",
            {"hidden": 500, "width": 784},
            "log_likelihood|2^500|784x500",
        ),
        (
            "offset_error",
            {"offsets": "dm^b", "hidden": 500, "width": 784},
            "offset_error|2^500",
        ),
        (
            "gradient_angles",
            {"hidden": 4, "gradient": MARGINAL | {"damping": 0}},
            "15|24|damping",
        ),
    ],
)
def test_recorders_that_do_not_fit_are_refused_and_others_pass(name, settings, told):
    assert holds(refusal(check, [name], **settings), told)
    check(RECORDERS, parts=("train", "valid"))
    check(
        ["offset_error", "bias_norms", "mine.py:any"],
        offsets="dd^b_s",
        hidden=500,
        width=784,
    )


# Recorders of the user


def own(name, source):
    return {name: compile_recorder(name, source)}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            "return g()\n\ndef g():\n    return 1 / 0",
            "mine.py, line 5|f|ZeroDivisionError",
        ),
        ("return {'a': snapshots.update[1:]}", "mine.py, f|a|(4,)|(5,)"),
        ("return [1]", "mine.py|f|AttributeError"),
        ("return {'weight_norm': snapshots.update}", "mine.py, f|weight_norm|exists"),
        ("return {'other': snapshots.update}", "mine.py:f|other|before"),
    ],
)
def test_a_function_that_fails_is_named_with_file_and_line(body, told):
    its, flaws = own("mine.py:f", f"def f(snapshots, context):\n    {body}\n"), {}
    without = record(["weight_norms", "bias_norms"], stack(), context_of())
    given = stack(), context_of(), its, flaws, [*without]
    found = record(["weight_norms", "mine.py:f", "bias_norms"], *given)
    assert flaws.keys() == {"mine.py:f"}
    assert holds(flaws["mine.py:f"], told)
    assert_equal([*found.items()], [*without.items()])


TAKEN = [
    "trial",
    "update",
    "epoch",
    "offsets",
    "data_hold_out",
    "weight_decay_l2",
    "n_valid",
    "train_log_likelihood",
    "test_lower_bound_at_most",
    "valid_cost_min",
    "train_log_likelihood_ais",
    "ais_log_z_standard_error",
    "ais_temperatures",
    "ais_doubtful",
    "exact_version",
    "exact_rows",
    "log_z",
    "lam_0",
    "kernel_version",
]


@pytest.mark.parametrize("column", TAKEN)
def test_column_that_cbm_has_itself_is_refused(column):
    body = f"def f(s, c): return {{{column!r}: 1.0 * s.update}}"
    message = refusal(own("mine.py:f", body)["mine.py:f"], stack(), context_of())
    assert holds(message, f"mine.py, f: {column!r}|rename")
    free = own("mine.py:f", body.replace(repr(column), repr(f"my {column}")))
    assert [*record(["mine.py:f"], stack(), context_of(), free)] == [f"my {column}"]


def test_all_columns_of_results_are_taken():
    """Whatever a grid trains: files of results have no column that is free."""
    several = TRAININGS["recorders"], TRAININGS["AIS"], TRAININGS["DBM off the grid"]
    for parts in (*several, TRAININGS["auto encoder"]):
        trained = run_trial(Trial("test", Settings(**parts), 0, 1), THREE_PARTS)
        columns = {*trained.columns, *trained.recorded, *trained.summary()}
        free = {name for name in columns if not is_taken(name.removesuffix("_final"))}
        assert not free
    assert not [name for name in Settings(**RBM).row() if not is_taken(name)]


@pytest.mark.parametrize("name", ["exact", "ais", "pseudo"])
def test_all_columns_that_evaluations_add_are_taken(name):
    added = {f"{name}_{quantity}" for quantity in _OF_MACHINE}
    added |= Method(name).facts(is_deep=False).keys()
    assert not [column for column in added if not is_taken(column)]


def test_two_recorders_cannot_return_the_same_column():
    body = "def f(s, c): return {'mine': 1.0 * s.update}"
    both, flaws = own("1.py:f", body) | own("2.py:f", body), {}
    columns = record([*both], stack(), context_of(), both, flaws)
    assert [*columns] == ["mine"]
    assert holds(flaws["2.py:f"], "2.py:f|mine|exists already; rename it")


def test_text_of_a_recorder_is_read_without_running_it(here):
    Path("mine.py").write_text("open('ran', 'w')\ndef f(s, c): return {}\n")
    assert read_recorder("mine.py:f", Path()).startswith("open('ran'")
    imported_modules(read_recorder("mine.py:f", Path()))
    assert not Path("ran").exists()
    compile_recorder("mine.py:f", Path("mine.py").read_text())
    assert Path("ran").exists()


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        ("import numpy.linalg as l, re\nfrom scipy import stats", ()),
        ("import kept.angles", ("kept",)),
        ("def f(s, c):\n    from torch import nn\n    from kept import angle", None),
        ("def f(s, c:", ()),
        ("import \0", ()),
    ],
)
def test_modules_that_a_recorder_imports_are_read_from_its_text(text, modules):
    assert imported_modules(text) == (("kept", "torch") if modules is None else modules)


@pytest.mark.parametrize("file", ["signal.py", "re.py", "pickle.py", "numpy.py"])
def test_recorder_file_replaces_no_module_of_its_name(here, file):
    path, module = [*sys.path], importlib.import_module(Path(file).stem)
    text = "import numpy\ndef f(s, c): return {'mine': numpy.zeros(len(s.update))}"
    Path(file).write_text(text)
    columns = own(f"{file}:f", read_recorder(f"{file}:f", Path()))[f"{file}:f"](
        stack(), context_of()
    )
    assert_array_equal(columns["mine"], 0)
    assert sys.path == path
    assert sys.modules[Path(file).stem] is module
    assert importlib.import_module(Path(file).stem) is module


def test_each_file_runs_in_a_module_of_its_own():
    text = "k = {0}\ndef f(s, c): return {{'c{0}': k + 0 * s.update}}"
    both = own("1.py:f", text.format(1)) | own("2.py:f", text.format(2))
    found = record([*both], stack(), context_of(), both)
    assert (found["c1"][0], found["c2"][0]) == (1, 2)


# Records of a trial

DATA = load("bars-and-stripes", size=2)
MARKS = np.array([0, 3, 7, 8, 19])


def settings(record=None, **changes):
    base = {
        "data": {"name": "bars-and-stripes", "size": 2},
        "offsets": "aa^b_s",
        "updates": 60,
    }
    base |= {"batch": 4, "evaluate": {"every": 20}, "record": record or {}}
    return rbm_settings(**base | changes)


def run(its, **options):
    return trial_loop.run_trial(Trial("test", its, 0, 1), DATA, **options)


WAYS = [
    {},
    {"sampler": "exact"},
    {"sampler": "PT_3"},
    {"gradient": {"scale_to": "standard"}},
]


@pytest.mark.parametrize("order", ["b", "l"], ids=["before", "later"])
@pytest.mark.parametrize("changes", WAYS, ids=str)
def test_snapshots_are_the_states_that_stopping_finds(changes, order):
    learner = Learner(settings(offsets=f"am^{order}_s", **changes), DATA, 1)
    state = random_state(learner.sizes, learner.plan, seed=1)
    trail, start = empty_trail(*learner.sizes, MARKS), state.copy()
    advance(learner, state, 0, 20, trail)
    for k, mark in enumerate(MARKS):
        stopped = start.copy()
        advance(learner, stopped, 0, mark)
        for name in "Wbc":
            assert_array_equal(getattr(trail, name)[k], getattr(stopped, name))
        if order == "b":
            advance(
                learner, stopped, mark, mark + 1
            )  # offsets that have moved before this step
        for name in ("mu", "lam"):
            assert_array_equal(getattr(trail, name)[k], getattr(stopped, name))


@pytest.mark.parametrize(
    ("when", "updates"),
    [
        ({}, [0, 20, 40, 60]),
        ({"every": "2 epochs"}, range(0, 61, 4)),
        ({"window": "0-2+58-90"}, [0, 1, 2, 20, 40, 58, 59, 60]),
    ],
)
def test_records_are_of_the_updates_asked_for_and_of_the_end(when, updates):
    outcome = run(settings({"what": "log_likelihood"} | when))
    assert outcome.recorded == ("update", "log_likelihood")
    assert outcome.records[:, 0].tolist() == list(updates)
    if not when:
        assert_array_equal(outcome.records, outcome.curve[:, [0, 2]])
        assert outcome.summary()["log_likelihood_final"] == outcome.curve[-1, 2]


def test_a_recorder_that_writes_into_its_snapshots_does_not_change_the_training(
    monkeypatch,
):
    monkeypatch.setattr(recorders, "GROUP_BYTES", 4 * 5 * 4)  # each snapshot alone

    def careless(snapshots, context):
        snapshots.W[:] = 0
        return {"nothing": np.zeros(len(snapshots.update))}

    bare = run(settings())
    assert (bare.recorded, bare.records) == ((), None)
    its = settings({"what": "weight_norms+mine.py:careless+offset_error", "every": 1})
    recorded = run(its, recorders={"mine.py:careless": careless})
    assert recorded.curve.tobytes() == bare.curve.tobytes()
    assert_equal(recorded.machine, bare.machine)


LATE = """def f(snapshots, context):
    if snapshots.update[-1] >= 40:
        raise ValueError('late')
    return {'mine': snapshots.update + 0.5}
"""


@pytest.mark.parametrize("when", [{"window": "7-11"}, {"every": 1}])
@pytest.mark.parametrize("at_once", [3, 10**5])
def test_records_are_the_same_bytes_wherever_a_trial_was_stopped(
    tmp_path, monkeypatch, when, at_once
):
    def together(
        snapshots, context
    ):  # how many it sees at once: what rounding may depend on
        return {
            "together": np.full(len(snapshots.update), float(len(snapshots.update)))
        }

    monkeypatch.setattr(recorders, "GROUP_BYTES", 4 * 5 * 4 * at_once)
    its = settings(
        {"what": "weight_norms+bias_norms+offset_error+a.py:together+b.py:f"} | when
    )
    mine = own("b.py:f", LATE) | {"a.py:together": together}
    whole = run(its, recorders=mine)
    columns = dict(zip(whole.recorded, whole.records.T, strict=True))
    assert columns["together"].max() <= at_once
    if at_once == 3:  # what a recorder gave before it failed stays
        early = 3 * ((columns["update"] < 40).sum() // 3)
        given = [
            *(columns["update"][:early] + 0.5),
            *[np.nan] * (len(whole.records) - early),
        ]
        assert_array_equal(columns["mine"], given)
    monkeypatch.setattr(trial_loop, "LONGEST_CALL", 0.0)  # the most places to stop at

    def stretch(since, should_pause):
        return run(its, since=since, recorders=mine, should_pause=should_pause)

    result, stops = finish_in_pieces(stretch, Store(tmp_path), 0.3, str(when))
    assert len(stops) > 3
    assert (result.recorded, result.flaws) == (whole.recorded, whole.flaws)
    assert result.records.tobytes() == whole.records.tobytes()
    assert result.curve.tobytes() == whole.curve.tobytes()
    monkeypatch.setattr(trial_loop, "LONGEST_CALL", 1e9)  # and the longest
    assert run(its, recorders=mine).records.tobytes() == whole.records.tobytes()


def test_records_end_where_training_diverges():
    outcome = run(
        settings({"what": "weight_norms", "every": 1}, weight_decay={"l2": 1e4})
    )
    assert outcome.diverged == 20
    assert_array_equal(outcome.records[:, 0], range(20))
    assert np.isfinite(outcome.records[0]).all()
    assert np.isnan(outcome.records[15:, 1:]).all()


# From end to end


@pytest.fixture
def grid(here, clone):
    """Return a function that runs a grid with recorders; mine.py is the example of the
    docs.
    """
    page = (clone / "docs/recorders.md").read_text("utf-8")
    Path("mine.py").write_text(
        re.search(r"```python .*?\n(.*?)```", page, re.DOTALL)[1]
    )

    def run(out="out", what="weight_norms+mine.py:filter_cosine", jobs=0, code=0):
        record = f"    record: {{what: {what}, every: 10, window: 41-43}}\n    table:"
        Path("grid.yaml").write_text(GRID.replace("    table:", record))
        return cbm("run", "grid.yaml", "-o", out, "-j", jobs, code=code)

    return run


UPDATES = [*range(0, 41, 10), 41, 42, 43, *range(50, 101, 10)]


def test_ones_own_recorder_is_recorded_here_and_on_workers(grid):
    grid("here")
    grid("there", jobs=1)
    assert trials_of("here") == trials_of("there")
    store, places = Store(Path("here/bars")), contents_of("here", kinds=["records"])
    assert len(places) == 8
    for _, run_id, number, _ in places:
        exported = pd.read_csv(f"here/bars/records/{run_id}.csv").query(
            f"trial == {number}"
        )
        assert exported["update"].tolist() == UPDATES
        assert [*exported][2:] == [*RECORDERS["weight_norms"], "filter_cosine"]
        W = read_machine(*store.machine(run_id, number)).weights[0]
        unit = W / np.linalg.norm(W, axis=0)
        cosines = np.abs(unit.T @ unit)[np.triu_indices(3, 1)]
        last = exported.iloc[-1]
        assert last["filter_cosine"] == pytest.approx(cosines.mean(), rel=1e-6)
        assert last["weight_norm"] == pytest.approx(np.linalg.norm(W), rel=1e-6)


def test_another_recorder_under_the_same_name_is_run_again(grid):
    grid()
    text = Path("mine.py").read_text()
    Path("mine.py").write_text(
        text.replace('{"filter_cosine": (', '{"filter_cosine": 1 + (')
    )
    grid()
    assert all(float(row["filter_cosine_final"]) > 1 for row in summary("out"))


@pytest.mark.parametrize(
    ("what", "source", "told"),
    [
        ("mine.py:cosine", None, "mine.py|cosine|filter_cosine"),
        ("mine.py:f", "import sys\nsys.exit(0)\n", "mine.py, line 2: SystemExit: 0"),
        ("other.py:f", None, "other.py: No such file"),
        ("mine.py:f", "def f(s, c:\n", "mine.py, line 1: SyntaxError"),
    ],
)
def test_a_recorder_that_cannot_be_is_refused_before_anything_runs(
    grid, what, source, told
):
    if source:
        Path("mine.py").write_text(source)
    refused = grid(what=what, code=2)
    assert problems_of(refused) == [("13", "bars.record")]
    assert holds(refused.stderr, told)
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ("{'x': 1 / 0}", "mine.py, line 1|ZeroDivisionError"),
        ("{'trial': s.update}", "mine.py, f: 'trial' is a column of cbm|rename"),
        ("{'x': s.update[1:]}", "mine.py, f: x has the shape"),
    ],
)
def test_a_function_that_fails_stops_no_training(grid, returned, reason):
    Path("mine.py").write_text(f"def f(s, c): return {returned}\n")
    noted = grid(what="weight_norms+mine.py:f")
    assert holds(noted.stderr, f"{reason}|the trial is kept")
    assert len(summary("out")) == 8
