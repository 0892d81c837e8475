"""Recorders against the reference, and records of a training: the same bytes however it ran."""

import csv
import itertools
import re
from dataclasses import replace
from math import acos, degrees, sqrt
from pathlib import Path

import numpy as np
import pytest

from cbm_cli import reference as ref
from cbm_cli.datasets.catalogue import load
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.parts import RECORDERS
from cbm_cli.grid.settings import Trial
from cbm_cli.kernels.machine import Trail, empty_trail
from cbm_cli.results import Store
from cbm_cli.trial import loop as trial_loop
from cbm_cli.trial import recorders
from cbm_cli.trial.learner import Learner
from cbm_cli.trial.loop import run_trial
from cbm_cli.trial.own_recorders import compile_recorder, load_recorder
from cbm_cli.trial.recorders import Context, Recording, check_recorders, record
from tests.builders import GRID, cbm, files, finish_in_pieces, rbm_settings, summary
from tests.oracles import (
    advance,
    copied,
    flat,
    joint,
    learn,
    log_likelihoods,
    moments,
    plan,
    random_state,
    sigmoid,
)

DOCS = Path(__file__).resolve().parents[1] / "docs" / "recorders.md"


def some_rows(n, seed=0):
    return np.random.default_rng(seed).integers(0, 2, (7, n)).astype(np.uint8)


def stack(n=4, m=3, T=5, seed=3):
    rng = np.random.default_rng(seed)
    shapes = (T, n, m), (T, n), (T, m)
    parameters = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    offsets = [rng.random(shape).astype(np.float32) for shape in shapes[1:]]
    return Trail(np.arange(T), *parameters, *offsets)


def context_of(snapshots, units=(0, 2), offsets="aa^b", **settings):
    n, m = snapshots.W.shape[1:]
    data = Dataset("rows", some_rows(n), valid=some_rows(n, seed=1))
    its = rbm_settings(model={"kind": "rbm", "hidden": m}, offsets=offsets, **settings)
    return Context(data, its, units, seed=1)


def one_by_one(snapshots):
    """The snapshots' W, b, c, mu, lam in float64, one after another."""
    return zip(*(array.astype(float) for array in snapshots[1:]), strict=True)


@pytest.mark.parametrize("levels", [1, 255])
def test_log_likelihood_is_the_mean_over_the_training_rows(levels):
    snapshots = stack()
    context = context_of(snapshots)
    context = replace(context, data=replace(context.data, levels=levels))
    found = record(["log_likelihood"], snapshots, context)["log_likelihood"]
    for value, (W, b, c, *_) in zip(found, one_by_one(snapshots), strict=True):
        assert value == pytest.approx(
            ref.log_likelihood(context.data.train / levels, W, b, c).mean(), abs=2e-6
        )


def test_norms_are_roots_of_sums_of_squares():
    snapshots = stack()
    found = record(["weight_norms", "bias_norms"], snapshots, context_of(snapshots))

    def norm(values):
        return sqrt(sum(float(value) ** 2 for value in values))

    for t, (W, b, c, mu, lam) in enumerate(one_by_one(snapshots)):
        expected = {
            "weight_norm": norm(W.ravel()),
            "weight_row_norm": sum(norm(row) for row in W) / 4,
            "weight_column_norm": sum(norm(column) for column in W.T) / 3,
            "visible_bias_norm": norm(b),
            "hidden_bias_norm": norm(c),
            "centered_visible_bias_norm": norm(b + [sum(row * lam) for row in W]),
            "centered_hidden_bias_norm": norm(c + [sum(column * mu) for column in W.T]),
        }
        assert {column: values[t] for column, values in found.items()} == pytest.approx(expected, rel=1e-12)


def test_centered_biases_are_those_of_a_machine_of_the_same_distribution():
    W, b, c, mu, lam = next(one_by_one(stack()))
    theta = ref.transform((W, b, c), (0 * mu, 0 * lam), (mu, lam))
    np.testing.assert_allclose(joint(*theta, mu, lam)[0], joint(W, b, c)[0], atol=1e-14)
    found = record(["bias_norms"], stack(), context_of(stack()))
    assert found["centered_hidden_bias_norm"][0] == pytest.approx(np.linalg.norm(theta[2]))


def test_offset_values_are_those_of_the_chosen_units():
    snapshots = stack()
    found = record(["offset_values"], snapshots, context_of(snapshots, units=(2, 0)))
    assert list(found) == ["lam_2", "lam_0"]
    np.testing.assert_array_equal(found["lam_2"], snapshots.lam[:, 2].astype(float))


@pytest.mark.parametrize("scheme", ["dd^b", "mm^b", "aa^b_s", "dm^l", "hm", "0d", "00", "rr^b"])
def test_offset_error_is_the_distance_to_the_offsets_of_the_scheme(scheme):
    snapshots = stack()
    context = context_of(snapshots, offsets=scheme)
    found = record(["offset_error"], snapshots, context)
    for t, (W, b, c, mu, lam) in enumerate(one_by_one(snapshots)):
        means = [moments(phase)[1:] for phase in phases(W, b, c, context.data.train)]
        for name, letter, side, offset in (("visible", scheme[0], 0, mu), ("hidden", scheme[1], 1, lam)):
            target = ref.offset_target(ref.LETTERS[letter], means[0][side], means[1][side], 0.5)
            assert found[f"{name}_offset_error"][t] == pytest.approx(
                np.abs(offset - target).mean(), rel=1e-10
            )


def phases(W, b, c, rows):
    """The phases of the data and of the model, by the reference."""
    return ref.batch(rows, ref.hidden_mean(rows, W, c)), ref.model_phase(W, b, c)


def both_gradients(W, b, c, mu, lam, rows):
    """The standard and the centered gradient."""
    both = phases(W, b, c, rows)
    return flat(*ref.gradient(*both)), flat(*ref.centered_gradient(*both, mu, lam))


def angle_by_cosines(u, v):
    """The law of cosines: |u - v|^2 = |u|^2 + |v|^2 - 2 |u| |v| cos."""
    a, b, c = (sqrt(sum(w**2)) for w in (u, v, u - v))
    return degrees(acos((a * a + b * b - c * c) / (2 * a * b)))


def test_gradient_norms_are_those_of_the_gradients():
    snapshots = stack()
    context = context_of(snapshots)
    found = record(["gradient_norms"], snapshots, context)
    for t, arrays in enumerate(one_by_one(snapshots)):
        standard, centered = both_gradients(*arrays, context.data.train)
        assert found["standard_gradient_norm"][t] == pytest.approx(sqrt(sum(standard**2)), rel=1e-9)
        assert found["centered_gradient_norm"][t] == pytest.approx(sqrt(sum(centered**2)), rel=1e-9)


@pytest.mark.parametrize(
    ("gradient", "phase", "damping"),
    [
        ({}, ref.joint_phase, 0.0),
        ({"kind": "centered", "scale_to": "standard"}, ref.joint_phase, 0.0),
        ({"kind": "natural", "fisher": "marginal", "damping": 0.05}, ref.model_phase, 0.05),
    ],
    ids=["default", "centered", "natural"],
)
def test_gradient_angles_obey_the_law_of_cosines(gradient, phase, damping):
    snapshots = stack()
    context = context_of(snapshots, gradient=gradient)
    found = record(["gradient_angles"], snapshots, context)
    for t, arrays in enumerate(one_by_one(snapshots)):
        standard, centered = both_gradients(*arrays, context.data.train)
        F = ref.fisher(phase(*arrays[:3]))
        natural = np.linalg.inv(F + damping * np.eye(len(F))) @ standard
        for name, other in (("standard", standard), ("centered", centered)):
            expected = angle_by_cosines(natural, other)
            assert found[f"angle_natural_{name}"][t] == pytest.approx(expected, abs=1e-4)


def test_without_offsets_the_centered_gradient_takes_the_data_means():
    snapshots = stack()
    context = context_of(snapshots)
    x = context.data.train.astype(float)
    W, c = snapshots.W.astype(float), snapshots.c.astype(float)
    data_h = np.stack([sigmoid(x @ W[t] + c[t]).mean(axis=0) for t in range(5)])
    means = snapshots._replace(mu=np.tile(x.mean(axis=0), (5, 1)), lam=data_h)
    bare = snapshots._replace(mu=0 * snapshots.mu, lam=0 * snapshots.lam)
    for name in ("gradient_angles", "gradient_norms"):
        found, expected = record([name], bare, context), record([name], means, context)
        for column in found:
            np.testing.assert_allclose(found[column], expected[column], rtol=1e-12)


def test_a_singular_fisher_matrix_leaves_the_angles_of_its_snapshot_empty():
    snapshots = stack()
    snapshots.b[2, 0] = 800
    found = record(["gradient_angles"], snapshots, context_of(snapshots))
    for values in found.values():
        np.testing.assert_array_equal(np.isnan(values), [False, False, True, False, False])


def test_hidden_activity_tells_idle_and_busy_units():
    snapshots = stack()
    snapshots.c[0], snapshots.W[0] = [-9, 9, 0], 0
    context = context_of(snapshots)
    found = record(["hidden_activity"], snapshots, context)
    assert found["hidden_activity_extreme"][0] == pytest.approx(2 / 3)
    for t, (W, _, c, *_) in enumerate(one_by_one(snapshots)):
        activity = ref.hidden_mean(context.data.train, W, c).mean(axis=0)
        share = sum(a < 0.05 or a > 0.95 for a in activity) / 3
        assert found["hidden_activity_mean"][t] == pytest.approx(activity.mean())
        assert found["hidden_activity_extreme"][t] == pytest.approx(share)


def test_reconstruction_error_is_the_mean_square_over_rows_and_units():
    snapshots = stack()
    context = context_of(snapshots)
    found, x = record(["reconstruction_error"], snapshots, context), context.data.train
    for value, (W, b, c, *_) in zip(found["reconstruction_error"], one_by_one(snapshots), strict=True):
        back = ref.visible_mean(ref.hidden_mean(x, W, c), W, b)
        assert value == pytest.approx(np.mean((x - back) ** 2))


def test_free_energy_gap_is_the_difference_of_the_likelihoods():
    snapshots = stack()
    context = context_of(snapshots)
    found = record(["free_energy_gap"], snapshots, context)["free_energy_gap"]
    for value, (W, b, c, *_) in zip(found, one_by_one(snapshots), strict=True):
        train, valid = (
            log_likelihoods(W, b, c, part).mean() for part in (context.data.train, context.data.valid)
        )
        assert value == pytest.approx(train - valid, abs=1e-12)


# Recording


@pytest.mark.parametrize("scratch", [1, 2**17])
def test_a_stack_is_recorded_like_its_snapshots_one_by_one(scratch, monkeypatch):
    snapshots = stack(T=7)
    context = context_of(snapshots)
    monkeypatch.setattr(recorders, "SCRATCH", scratch)
    together = record(list(RECORDERS), snapshots, context)
    for t in range(7):
        alone = record(list(RECORDERS), Trail(*(array[t : t + 1] for array in snapshots)), context)
        for column, values in together.items():
            assert (values.dtype, values.shape) == (np.float64, (7,))
            assert values[t] == pytest.approx(alone[column][0], rel=1e-9)


def test_columns_come_in_the_order_of_the_names_and_stand_in_the_docs():
    names = list(RECORDERS)[::-1]
    found = list(record(names, stack(), context_of(stack())))
    assert (found[0], found[-1]) == ("free_energy_gap", "log_likelihood")
    text = DOCS.read_text(encoding="utf-8")
    for word in [*names, *(column for column in found if not column.startswith("lam_"))]:
        assert f"`{word}`" in text


def test_a_snapshot_that_is_not_finite_is_empty_in_all_columns():
    snapshots = stack()
    expected = record(list(RECORDERS), snapshots, context_of(snapshots))
    snapshots.W[1, 0, 0] = np.nan
    snapshots.c[3, 0] = np.inf
    found = record(list(RECORDERS), snapshots, context_of(snapshots))
    assert list(found) == list(expected)
    for column, values in found.items():
        np.testing.assert_array_equal(np.isnan(values), [False, True, False, True, False])
        np.testing.assert_allclose(values[[0, 2, 4]], expected[column][[0, 2, 4]], rtol=1e-9)


def test_recording_changes_no_snapshot():
    snapshots = stack()
    before = [array.copy() for array in snapshots]
    record(list(RECORDERS), snapshots, context_of(snapshots))
    for array, old in zip(snapshots, before, strict=True):
        np.testing.assert_array_equal(array, old)


# Errors


def check(names, width=4, hidden=3, parts=("train",), units="0", **settings):
    """Check recorders against settings and a data set of this width, as before a training."""
    what = {"record": {"what": "+".join(names), "units": units}} if names else {}
    rows, model = np.zeros((2, width), np.uint8), {"model": {"kind": "rbm", "hidden": hidden}}
    its = rbm_settings(**model | {"offsets": "aa^b", "evaluate": {"method": "none"}} | settings | what)
    check_recorders(its, Dataset("rows", **dict.fromkeys(parts, rows)))


@pytest.mark.parametrize(
    ("names", "settings", "message"),
    [
        (["log_likelihood"], {"hidden": 500, "width": 784}, r"log_likelihood sums 2\^500 states of 784x500"),
        (["gradient_norms"], {"hidden": 21, "width": 784}, r"2\^21"),
        (["offset_error"], {"offsets": "dm^b", "hidden": 500, "width": 784}, r"offset_error .* 2\^500"),
        (["gradient_angles"], {"hidden": 8, "width": 9}, r"sums 2\^17 states"),
        (["free_energy_gap"], {}, "validation part"),
        (["offset_values"], {"units": "0+3"}, "no hidden unit 3; they are 0 to 2"),
        (
            ["gradient_angles"],
            {"hidden": 4, "gradient": {"kind": "natural", "fisher": "marginal"}},
            "marginal Fisher matrix is singular.*15, with 24 parameters",
        ),
    ],
)
def test_recorders_that_do_not_fit_are_refused(names, settings, message):
    with pytest.raises(CbmError, match=message):
        check(names, **settings)


def test_recorders_that_fit_pass():
    check(RECORDERS, parts=("train", "valid"), units="0+2")
    check(["offset_error", "bias_norms"], offsets="dd^b_s", hidden=500, width=784)
    check(["mine.py:any"])
    check([], model={"kind": "dbm", "hidden": (3, 2)}, offsets="ddd")


# Recorders of the user


def example_of_the_docs():
    (source,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    return source


def test_the_example_of_the_docs_is_short_and_measures_cosines(tmp_path):
    code = [line for line in example_of_the_docs().splitlines() if line.strip()]
    assert len(code) <= 10
    (tmp_path / "mine.py").write_text(example_of_the_docs(), encoding="utf-8")
    name, snapshots = "mine.py:filter_cosine", stack()
    own = {name: compile_recorder(name, load_recorder(name, tmp_path))}
    found = record(["weight_norms", name], snapshots, context_of(snapshots), own)
    assert list(found)[-1] == "filter_cosine"
    for value, (W, *_) in zip(found["filter_cosine"], one_by_one(snapshots), strict=True):
        unit = W / np.linalg.norm(W, axis=0)
        assert value == pytest.approx(np.abs(unit.T @ unit)[np.triu_indices(3, 1)].mean(), rel=1e-6)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def other(snapshots, context): ...", "mine.py has no function f.*other"),
        ("x = 1\ny = 1 /", "mine.py, line 2: SyntaxError"),
        ("import no_such_module", "mine.py, line 1: ModuleNotFoundError"),
        (None, r"mine\.py: No such file.*relative to the grid's folder"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_when_it_is_loaded(tmp_path, source, message):
    if source:
        (tmp_path / "mine.py").write_text(source, encoding="utf-8")
    with pytest.raises(CbmError, match=message):
        load_recorder("mine.py:f", tmp_path)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return {'a': 1 / 0}", "mine.py, line 2, in f: ZeroDivisionError: division by zero"),
        ("return g()\n\ndef g():\n    return 1 / 0", "mine.py, line 5, in f: ZeroDivisionError"),
        ("return {'a': snapshots.update[1:]}", r"mine.py, f: a has the shape \(4,\); .* \(5,\)"),
        ("return [1]", "mine.py, in f: AttributeError"),
        ("return {'a': ['x'] * 5}", "mine.py, in f: ValueError: could not convert"),
        ("return {'update': snapshots.update}", "mine.py:f .* column update.*rename"),
        ("return {'weight_norm': snapshots.update}", "mine.py:f .* column weight_norm.*rename"),
    ],
)
def test_a_function_that_fails_is_named_with_file_and_line(body, message):
    own = {"mine.py:f": compile_recorder("mine.py:f", f"def f(snapshots, context):\n    {body}\n")}
    snapshots = stack()
    with pytest.raises(CbmError, match=message):
        record(["weight_norms", "mine.py:f"], snapshots, context_of(snapshots), own)


def test_each_file_runs_in_a_module_of_its_own():
    own = {
        f"{k}.py:f": compile_recorder(
            f"{k}.py:f", f"k = {k}\ndef f(s, c): return {{'c{k}': k + 0 * s.update}}"
        )
        for k in (1, 2)
    }
    found = record([*own], stack(), context_of(stack()), own)
    assert (found["c1"][0], found["c2"][0]) == (1, 2)


MARKS = np.array([0, 3, 7, 8, 19])


# Trails


@pytest.mark.parametrize("order", ["b", "l"], ids=["before", "later"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"sampler": "exact"}, {"sampler": "PT_3"}, {"gradient": {"scale_to": "standard"}}],
    ids=["PCD-1", "exact", "PT_3", "scaled"],
)
def test_snapshots_are_the_states_that_stopping_finds(changes, order):
    learner = Learner(settings({}, offsets=f"am^{order}_s", **changes), DATA, 1)
    state = random_state(*learner.sizes, learner.plan, seed=1)
    trail, start = empty_trail(*learner.sizes, MARKS), copied(state)
    advance(learner, state, 0, 20, trail)
    for k, mark in enumerate(MARKS):
        stopped = copied(start)
        advance(learner, stopped, 0, mark)
        for name in "Wbc":
            np.testing.assert_array_equal(getattr(trail, name)[k], getattr(stopped, name))
        if order == "b":
            advance(learner, stopped, mark, mark + 1)  # offsets that have moved before this step
        for name in ("mu", "lam"):
            np.testing.assert_array_equal(getattr(trail, name)[k], getattr(stopped, name))


def test_a_trail_changes_no_training_and_is_filled_piece_by_piece():
    its = plan(4, 3, len(DATA.train))
    bare, whole, pieces = (random_state(4, 3, its, seed=1) for _ in range(3))
    trail, seen = empty_trail(4, 3, MARKS), []
    learn(bare, DATA.train, its, 0, 20)
    learn(whole, DATA.train, its, 0, 20, trail)
    for first, last in itertools.pairwise([0, 1, 7, 8, 20]):
        part = empty_trail(4, 3, MARKS[(first <= MARKS) & (last > MARKS)])
        learn(pieces, DATA.train, its, first, last, part)
        seen.append(part)
    for one, other, third in zip(bare, whole, pieces, strict=True):
        assert one.tobytes() == other.tobytes() == third.tobytes()
    for together, *parts in zip(trail, *seen, strict=True):
        np.testing.assert_array_equal(np.concatenate(parts), together)


# Records of a trial
DATA = load("bars-and-stripes", size=2)


def settings(record, **changes):
    base = {"offsets": "aa^b_s", "updates": 60, "batch": 4, "evaluate": {"every": 20}, "record": record}
    return rbm_settings(**{"data": {"name": "bars-and-stripes", "size": 2}} | base | changes)


def run(its, **options):
    return run_trial(Trial("test", its, 0, 1), DATA, **options)


WHEN = [
    ({}, [0, 20, 40, 60]),
    ({"every": 25}, [0, 25, 50, 60]),
    ({"every": "2 epochs"}, range(0, 61, 4)),
    ({"window": "7-11"}, [0, 7, 8, 9, 10, 11, 20, 40, 60]),
    ({"window": "0-2+58-90"}, [0, 1, 2, 20, 40, 58, 59, 60]),
    ({"every": 1}, range(61)),
]


@pytest.mark.parametrize(("when", "updates"), WHEN)
def test_records_are_of_the_updates_asked_for_and_of_the_end(when, updates):
    outcome = run(settings({"what": "weight_norms"} | when))
    assert outcome.recorded == ("update", "weight_norm", "weight_row_norm", "weight_column_norm")
    assert outcome.records[:, 0].tolist() == list(updates)


def test_a_record_is_that_of_the_machine_that_stopping_finds():
    names = ("log_likelihood", "bias_norms", "offset_error", "gradient_norms")
    its = settings({"what": "+".join(names), "every": 13})
    learner = Learner(its, DATA, Trial("test", its, 0, 1).seed)
    outcome = run(its)
    for row in outcome.records[:-1]:
        state, update = learner.start(), int(row[0])
        trail = empty_trail(4, 3, np.array([update]))
        learn(state, DATA.train, learner.plan, 0, update)
        machine = copied(state)[:3]
        learn(state, DATA.train, learner.plan, update, update + 1, trail)
        found = record(names, trail, Context(DATA, its, (), 0))
        np.testing.assert_allclose(row[1:], [values[0] for values in found.values()], rtol=1e-12)
        assert row[1] == pytest.approx(log_likelihoods(*machine, DATA.train).mean(), abs=2e-6)


def test_the_recorded_likelihood_is_the_curves():
    outcome = run(settings({"what": "log_likelihood"}))
    np.testing.assert_array_equal(outcome.records, outcome.curve[:, [0, 2]])
    assert outcome.summary()["log_likelihood_final"] == outcome.curve[-1, 2]


def test_a_training_is_the_same_with_recorders_and_without():
    bare = run(settings({}))
    assert (bare.recorded, bare.records) == ((), None)
    recorded = run(settings({"what": "weight_norms+offset_error", "every": 1}))
    assert recorded.curve.tobytes() == bare.curve.tobytes()
    for name, array in bare.machine.items():
        assert array.tobytes() == recorded.machine[name].tobytes()


def test_a_recorder_that_writes_into_its_snapshots_changes_no_machine():
    def careless(snapshots, context):
        snapshots.W[:] = 0
        return {"nothing": np.zeros(len(snapshots.update))}

    found = run(settings({"what": "mine.py:careless"}), recorders={"mine.py:careless": careless})
    for name, array in run(settings({})).machine.items():
        assert array.tobytes() == found.machine[name].tobytes()


def together(snapshots, context):
    """How many snapshots a recorder saw at once: what rounding may depend on."""
    return {"together": np.full(len(snapshots.update), float(len(snapshots.update)))}


def test_a_stretch_has_no_more_snapshots_than_a_group(monkeypatch):
    monkeypatch.setattr(recorders, "GROUP_BYTES", 4 * 5 * 4 * 3)
    its = settings({"what": "weight_norms", "window": "7-17"})
    records = Recording(its, DATA, 1, {}, 60)
    first, seen = 0, []
    while first < 60:
        trail, last = records.trail(first, 60)
        assert trail.W.shape == (len(trail.update), 4, 3)
        assert len(trail.update) <= 3
        assert ((trail.update >= first) & (trail.update < last)).all()
        seen += trail.update.tolist()
        first = last
    assert seen == [0, *range(7, 18), 20, 40]


@pytest.mark.parametrize("when", [when for when, _ in WHEN])
@pytest.mark.parametrize("bytes_of_a_group", [4 * 5 * 4 * 3, 32_000_000])  # three snapshots, or all
def test_records_are_the_same_bytes_wherever_a_trial_was_stopped(
    tmp_path, monkeypatch, when, bytes_of_a_group
):
    monkeypatch.setattr(recorders, "GROUP_BYTES", bytes_of_a_group)
    its = settings({"what": "weight_norms+bias_norms+offset_error+mine.py:together"} | when)
    mine = {"mine.py:together": together}
    whole = run(its, recorders=mine)
    monkeypatch.setattr(trial_loop, "LONGEST_CALL", 0.0)  # the shortest calls: the most places to stop at

    def stretch(since, should_pause):
        return run(its, since=since, recorders=mine, should_pause=should_pause)

    result, stops = finish_in_pieces(stretch, Store(tmp_path), 0.3, str(when))
    assert len(stops) > 3
    assert result.recorded == whole.recorded
    assert result.records.tobytes() == whole.records.tobytes()
    assert result.curve.tobytes() == whole.curve.tobytes()
    monkeypatch.setattr(trial_loop, "LONGEST_CALL", 1e9)  # and the longest
    assert run(its, recorders=mine).records.tobytes() == whole.records.tobytes()


def test_records_end_where_training_diverges():
    outcome = run(settings({"what": "weight_norms", "every": 1}, weight_decay={"l2": 1e4}))
    assert outcome.diverged == 20
    assert outcome.records[:, 0].tolist() == list(range(20))
    assert np.isfinite(outcome.records[0]).all()
    assert np.isnan(outcome.records[15:, 1:]).all()


# From end to end


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(example_of_the_docs())
    return tmp_path


def write_grid(what="weight_norms+mine.py:filter_cosine", more=""):
    record = f"    record: {{what: {what}, every: 10, window: 41-43}}\n{more}"
    Path("grid.yaml").write_text(GRID.replace("    table:", f"{record}    table:"))


def records_of(path):
    with open(path, newline="") as stream:
        return list(csv.DictReader(stream))


def test_ones_own_recorder_is_recorded_here_and_on_workers(folder):
    write_grid()
    cbm("run", "grid.yaml", "-o", "here", "-j", 0, "--no-table")
    cbm("run", "grid.yaml", "-o", "there", "-j", 1, "--no-table")
    here, there = files("here", ".csv", ".npz"), files("there", ".csv", ".npz")
    for found in (here, there):
        found.pop("bars/summary.csv")  # it has the seconds
    assert here == there
    paths = sorted(Path("here").rglob("*.records.csv"))
    assert len(paths) == 8
    for path in paths:
        rows = records_of(path)
        assert [int(row["update"]) for row in rows] == [*range(0, 41, 10), 41, 42, 43, *range(50, 101, 10)]
        assert list(rows[0])[1:] == ["weight_norm", "weight_row_norm", "weight_column_norm", "filter_cosine"]
        with np.load(path.with_name(path.name.replace(".records.csv", ".npz"))) as machine:
            W = machine["weights_0"].astype(float)
        unit = W / np.linalg.norm(W, axis=0)
        cosines = np.abs(unit.T @ unit)[np.triu_indices(3, 1)]
        assert float(rows[-1]["filter_cosine"]) == pytest.approx(cosines.mean(), rel=1e-6)
        assert float(rows[-1]["weight_norm"]) == pytest.approx(np.linalg.norm(W), rel=1e-6)
    assert all(float(row["filter_cosine_final"]) > 0 for row in summary("here"))
    assert "All 8 trials are done" in cbm("run", "grid.yaml", "-o", "here", "-j", 0).stderr


def test_another_recorder_in_the_same_file_is_run_afresh(folder):
    write_grid()
    cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table")
    text = Path("mine.py").read_text()
    Path("mine.py").write_text(text.replace('{"filter_cosine": (', '{"filter_cosine": 1 + ('))
    assert "nothing to run" not in cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table").stderr
    assert all(float(row["filter_cosine_final"]) > 1 for row in summary("out"))


@pytest.mark.parametrize(
    ("what", "source", "words"),
    [
        ("mine.py:cosine", None, "mine.py has no function cosine"),
        ("other.py:f", None, "other.py: No such file or directory"),
        ("mine.py:f", "def f(s, c:\n", "mine.py, line 1: SyntaxError"),
        ("weight_norm", None, "did you mean weight_norms"),
        ("mine.py", None, "file.py:function"),
    ],
)
def test_a_recorder_that_cannot_be_is_refused_before_anything_runs(folder, what, source, words):
    write_grid(what)
    if source:
        Path("mine.py").write_text(source)
    assert words in cbm("run", "grid.yaml", "-o", "out", "-j", 0, code=2).stderr
    assert not Path("out").exists()


@pytest.mark.parametrize("jobs", [0, 1])
def test_a_recorder_that_fails_fails_its_trials_with_file_and_line(folder, jobs):
    write_grid("mine.py:f")
    Path("mine.py").write_text("def f(snapshots, context):\n    return {'mine': 1 / 0}\n")
    result = cbm("run", "grid.yaml", "-o", "out", "-j", jobs, "--no-table", code=1)
    assert "8 trials failed" in result.stderr
    assert "record: mine.py, line 2, in f: ZeroDivisionError: division by zero" in result.stderr
    assert not list(Path("out").rglob("trial-*.csv"))
    assert "ZeroDivisionError" in next(Path("out").rglob("*.error.txt")).read_text()


def test_a_copied_trial_brings_its_records(folder):
    write_grid()
    cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table")
    Path("grid.yaml").write_text(Path("grid.yaml").read_text().replace("bars:", "bars-again:"))
    assert "All 8 trials are done" in cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table").stderr
    one, other = files("out/bars/trials", ".csv"), files("out/bars-again/trials", ".csv")
    assert one == other
    assert sum(name.endswith(".records.csv") for name in other) == 8


def test_every_kind_of_file_stands_in_the_docs(folder):
    write_grid()
    cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table")
    docs = Path(__file__).resolve().parents[1] / "docs" / "formats.md"
    text = docs.read_text(encoding="utf-8")
    trials = Path("out").glob("*/trials/*/*-000*")
    kinds = {path.name.replace("-000", "-007") for path in trials}
    assert "ends/<run-id without length>/trial-007-2000.npz " in text
    assert kinds == {"trial-007.csv", "trial-007.npz", "trial-007.json", "trial-007.records.csv"}
    for kind in kinds:
        assert f"trials/<run-id>/{kind} " in text
