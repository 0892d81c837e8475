"""Deep machines against sums over all states of their layers, written out layer by
layer.
"""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from cbm_cli import reference as ref
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.machine import TrainedMachine
from cbm_cli.machines.bounds import lower_bounds, posterior_of
from cbm_cli.machines.estimates import Stopped
from cbm_cli.machines.likelihood import (
    Method,
    Parts,
    bounds_of,
    columns,
    evaluate,
    values,
)
from cbm_cli.machines.limits import check_likelihood
from cbm_cli.machines.models import Flat, Layered
from cbm_cli.trial.checks import check
from numpy.testing import assert_allclose
from scipy.special import logsumexp

from tests import networks, oracles
from tests.builders import cbm, grid_text, holds, refusal, run_grid
from tests.networks import (
    FOUR,
    RBM,
    THREE,
    TWO,
    all_states,
    layered,
    layered_energy,
    visible_rows,
)
from tests.oracles import exact_log_likelihoods, flattened, log_z, random_machine, wide
from tests.trainings import rbm_settings

pytestmark = pytest.mark.usefixtures("here")


# Mean field and bounds


@pytest.mark.parametrize("rounds", [0, 1, 3, 100])
@pytest.mark.parametrize(
    ("even_units", "odd_units", "scale"), [(5, 6, 1.0), (40, 70, 0.1), (1, 1, 3.0)]
)
def test_mean_field_makes_the_rounds_of_the_reference(
    even_units, odd_units, scale, rounds
):
    machine = random_machine(4 + even_units, odd_units, seed=5, scale=scale)
    x, start = np.eye(4), np.full(even_units, 0.3)
    expected = ref.mean_field(x, start, wide(machine), 1e-3, rounds)
    found = oracles.field_of(machine, x, start, 1e-3, rounds)
    assert found[2] == expected[2]
    for one, other in zip(found[:2], expected[:2], strict=True):
        assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("scale", [0.3, 3.0])
@pytest.mark.parametrize("layers", [RBM, TWO, THREE, FOUR])
def test_bounds_are_expectations_and_keep_their_order(layers, scale):
    """Mean field <= log p(v), each by its definition; equal for an RBM."""
    machine = layered(layers, seed=4, scale=scale)
    flat, chosen = flattened(machine), np.arange(0, 2 ** layers[0], 3)
    rows = visible_rows(layers)[chosen]
    posterior = posterior_of(flat, rows.astype(np.float32), 1e-4, 100)
    lower = lower_bounds(flat, rows, posterior) - log_z(flat.plain)
    expected = ref.lower_bound(
        rows, *wide((posterior.deep, posterior.odd)), wide(flat.plain)
    )
    assert_allclose(lower, expected, atol=1e-9)
    exact = exact_log_likelihoods(flattened(machine, np.float64), rows)
    expected = networks.brute_log_likelihoods(machine, layers)[chosen]
    assert_allclose(exact, expected, atol=1e-11)
    assert (lower <= exact + 1e-6).all()  # parameters are rounded to float32
    assert ((exact - lower).max() > 1e-3) == (layers != RBM)


@pytest.mark.parametrize("place", ["W", "b", "c"])
def test_rows_of_a_machine_that_has_diverged_are_not_settled(place):
    x = np.eye(5, dtype=np.float32)
    flat = flattened(layered(TWO, seed=9))
    getattr(flat, place)[-1] = np.nan
    found = posterior_of(flat, x)
    assert np.isnan(found.odd).any()
    assert found.unsettled == len(x)
    made = oracles.field_of(flat.plain, x, flat.start, 1e-4, 100)[2]
    assert made == 101  # as in the reference
    assert ref.mean_field(x, flat.start, wide(flat.plain))[2] == 101


def test_deep_machines_are_annealed_in_twice_as_many_steps_unless_they_are_the_base():
    assert [Method().steps(is_deep=deep) for deep in (False, True)] == [14_500, 29_000]
    assert Method(temperatures=77).steps(is_deep=True) == 77
    flat = flattened(layered(THREE, seed=8))
    flat.W[:], flat.c[:], flat.b[4:] = 0, 0, 0
    found, _ = evaluate(
        flat, Parts({}, 1.0, flat.b[:4]), Method("ais", temperatures=3, runs=5)
    )
    assert found["log_z"] == pytest.approx(log_z(flat.plain), abs=1e-12)
    assert found["log_z_standard_error"] == 0


def parts_of(**rows):
    return Parts(rows, 1.0, np.zeros(5, np.float32))


def measured(machine, parts, method):
    found = values(*evaluate(machine, parts, method))
    return {name: found[name] for name in columns(method, machine.sizes, parts)}


@pytest.mark.parametrize("name", ["exact", "ais"])
def test_total_of_a_part_is_its_mean_times_its_rows(name):
    flat, parts = flattened(layered(TWO, seed=2)), parts_of(train=visible_rows(TWO))
    answer = evaluate(flat, parts, Method(name, temperatures=10, runs=5))[1]["train"]
    quantities = [value for value in answer.values() if isinstance(value, dict)]
    assert quantities
    for quantity in quantities:
        assert quantity["n"] == len(visible_rows(TWO)) > 1
        assert quantity["total"] == pytest.approx(quantity["n"] * quantity["mean"])


def test_an_evaluation_has_the_means_over_each_part():
    flat, training = (
        flattened(layered(TWO, seed=9)),
        {"temperatures": 300, "checked": False},
    )
    parts = parts_of(train=visible_rows(TWO)[:20], test=visible_rows(TWO)[7:])
    exact = {
        name: exact_log_likelihoods(flat, it).mean() for name, it in parts.rows.items()
    }
    expected = {f"{part}_log_likelihood": value for part, value in exact.items()}
    found = measured(flat, parts, Method("exact", **training))
    assert found == pytest.approx(expected, abs=1e-12)
    method = Method("ais", **training)
    found = measured(flat, parts, method)
    assert found == measured(flat, parts, method)
    error = found["log_z_standard_error"]
    assert abs(found["log_z"] - log_z(flat.plain)) < 5 * error
    for part, rows in parts.rows.items():
        lower, _ = bounds_of(flat, rows, 1.0, method)
        assert found[f"{part}_lower_bound"] == pytest.approx(
            lower.mean() - found["log_z"]
        )
        assert found[f"{part}_lower_bound"] < exact[part] + 5 * error
    assert found["mean_field_unsettled"] == 0
    once = measured(flat, parts, replace(method, tolerance=0, rounds=1))
    assert once["mean_field_unsettled"] == 20 + 25


def test_rows_that_did_not_converge_are_counted():
    flat, x = (
        flattened(layered(TWO, 3, scale=2.0)),
        visible_rows(TWO).astype(np.float32),
    )
    two, three = (posterior_of(flat, x, 0, rounds) for rounds in (2, 3))
    change = np.abs(np.hstack([three.deep - two.deep, three.odd - two.odd])).max(axis=1)
    assert posterior_of(flat, x, np.median(change), 2).unsettled == 16
    arrays = [[0], [20]], [0, -5], [-19.8], [0.99]  # deep 0.9900, 0.9933, 0.9952
    flat = Flat(*(np.array(array, np.float32) for array in arrays), (1, 1, 1))
    zero = np.zeros((1, 1), np.float32)
    found = [posterior_of(flat, zero, at, 1).unsettled for at in (0.005, 0.012)]
    assert found == [1, 0]  # odd units alone still change: 0.500, 0.517, 0.526


def test_grey_values_enter_the_energy_as_they_are():
    machine, grey = layered(THREE, seed=13), np.uint8([[0, 51, 204, 255]])
    given = layered_energy(machine, [grey[0] / 255, *all_states(THREE[1:])])
    expected = logsumexp(-given) - logsumexp(
        -layered_energy(machine, all_states(THREE))
    )
    found = exact_log_likelihoods(flattened(machine, np.float64), grey, 1 / 255)
    assert found == pytest.approx([expected], abs=1e-6)  # unit is float32


@pytest.mark.parametrize("name", ["exact", "ais"])
def test_an_evaluation_stops_when_asked_and_a_diverged_machine_is_evaluated_to_not_a_number(
    name,
):
    flat, parts = flattened(layered(TWO, seed=11)), parts_of(train=visible_rows(TWO))
    with pytest.raises(Stopped):
        evaluate(flat, parts, Method(name), should_stop=lambda: True)
    flat.W[0, 0] = np.nan
    found = measured(flat, parts, Method(name, temperatures=10, checked=False))
    assert np.isnan(next(iter(found.values())))


@pytest.mark.parametrize(
    ("sizes", "rows", "told"),
    [
        ((10, 15, 20), 60_000, "2^15|20x15|60,000 rows|2^30"),
        ((784, 20, 10), 1 << 20, None),
        ((30, 100), 12, "2^30|30x100|2^25"),
        ((784, 26), 12, "2^26|784x26|2^25"),
        ((784, 25), 1 << 20, None),
        ((13, 26, 13), 1, "2^26|26x26|2^25"),
    ],
)
def test_sums_that_are_too_large_are_refused(sizes, rows, told):
    if told is None:
        check_likelihood(sizes, rows, "evaluate", "")
    else:
        error = refusal(check_likelihood, sizes, rows, "evaluate", "use method: ais")
        assert holds(error, f"evaluate|{told}|use method: ais")


def test_one_limit_of_exact_sums_holds_everywhere(clone):
    """Recorders, trials and pages have the 25 units of `check_likelihood`."""
    for hidden in (25, 26):
        what = "log_likelihood+gradient_norms"
        how = {"model": {"kind": "rbm", "hidden": hidden}, "batch": 2}
        data = Dataset("wide", np.eye(2, 30, dtype=np.uint8))
        recorded = rbm_settings(
            **how, record={"what": what}, evaluate={"method": "none"}
        )
        evaluated = rbm_settings(**how, evaluate={"method": "exact"})
        for settings in (recorded, evaluated):
            if hidden == 25:
                check(settings, data)
            else:
                assert holds(refusal(check, settings, data), "2^26|30x26|2^25")
    for page in ("recorders.md", "science/likelihood.md", "how-to/labels.md"):
        assert "25 units" in (clone / "docs" / page).read_text("utf-8")


@pytest.mark.parametrize("sizes", [(9, 2**16), (2**16, 9)])
def test_the_sums_of_a_trial_are_those_of_its_largest_part(sizes):
    how = {"model": {"kind": "dbm", "hidden": [16, 16]}, "offsets": "ddd^b", "batch": 9}
    data = Dataset(
        "bars", *(np.resize(np.eye(9, dtype=np.uint8), (n, 9)) for n in sizes)
    )
    assert holds(refusal(check, rbm_settings(**how), data), "2^16|65,536")
    check(rbm_settings(**how, evaluate={"rows": 99}), data)


@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0])
def test_lower_bound_is_never_above_the_exact_value_beside_it(scale):
    """Both are of the same weights, in float64; one of them in float32 was above by
    rounding, the more the larger the weights are.
    """
    for seed in range(20):
        rng = np.random.default_rng(seed)
        weights = [scale * rng.normal(size=shape) for shape in ((5, 4), (4, 3))]
        biases = [scale * rng.normal(size=n) for n in (5, 4, 3)]
        halves = [np.full(n, 0.5) for n in (5, 4, 3)]
        machine = Layered("dbm", tuple(weights), tuple(biases), tuple(halves))
        parts = parts_of(train=visible_rows((5, 4, 3))[:12])
        answer = evaluate(machine, parts, Method("exact"))[1]["train"]
        lower, exact = (
            answer[name]["mean"] for name in ("lower_bound", "log_likelihood")
        )
        assert lower <= exact + 1e-12 * scale


def test_free_energies_of_a_file_are_in_its_own_precision():
    rng = np.random.default_rng(1)
    weights = tuple(100 * rng.normal(size=shape) for shape in ((5, 4), (4, 3)))
    biases = tuple(100 * rng.normal(size=n) for n in (5, 4, 3))
    machine = Layered("dbm", weights, biases, tuple(np.zeros(n) for n in (5, 4, 3)))
    rows = visible_rows((5, 4, 3))
    parts = parts_of(train=rows)
    exact = evaluate(machine, parts, Method("exact"))[1]["train"]["log_likelihood"]
    likelihoods = TrainedMachine(machine).log_likelihood(rows)
    assert likelihoods.mean() == pytest.approx(exact["mean"], abs=1e-9)


# The command


def test_rows_without_settled_mean_field_are_reported():
    np.savez("m.npz", **networks.machine_file(layered((4, 1, 1), 1), **networks.SLOW))
    np.save("rows.npy", np.resize(visible_rows((4,)), (23, 4)))
    result = cbm("evaluate", "m.npz", "--data", "rows.npy", "--json")
    assert json.loads(result.stdout)["mean_field_unsettled"] == 23
    assert holds(result.stderr, "23 rows")


def test_finished_trials_gain_likelihoods_bounds_and_estimates():
    run_grid(grid_text("dbm", batch="full", trials="2"))
    for method in ([], ["--ais", "--temperatures", 500]):
        cbm("evaluate", "results", *method, "-j", 0)
    deep = pd.read_csv("results/toy/summary.csv")
    likelihood, bound = (
        deep[f"train_{name}_exact"] for name in ("log_likelihood", "lower_bound")
    )
    log_z = deep["ais_log_z"] - deep["exact_log_z"]
    assert (log_z.abs() < 5 * deep["ais_log_z_standard_error"]).all()
    assert_allclose(likelihood, deep["train_log_likelihood_final"])
    assert_allclose(deep["train_lower_bound_ais"], bound - log_z, atol=1e-9)
    assert (bound <= likelihood).all()
    assert holds(
        cbm("evaluate", "results", "--pseudo", "-j", 0, code=3).stderr,
        "RBMs|and 1 more",
    )
