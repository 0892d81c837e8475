"""Recorders of mixing and of pseudo-likelihoods: by theory, by sums over all states, and by hand."""

import numpy as np
import pytest

from cbm_cli.kernels.machine import Trail
from cbm_cli.machines.files import Layered
from cbm_cli.machines.mixing import _Trips, autocorrelation_time, measure_mixing
from cbm_cli.notebook import TrainedMachine
from cbm_cli.trial.recorders import Context, record
from tests.builders import coins, rbm_settings
from tests.oracles import joint, random_machine, states


@pytest.mark.parametrize("phi", [0.0, 0.9])
def test_the_autocorrelation_time_of_an_autoregressive_process_is_known(phi):
    random, series = np.random.default_rng(1), np.zeros((4000, 20))
    for t in range(1, 4000):
        series[t] = phi * series[t - 1] + random.standard_normal(20)
    assert autocorrelation_time(series[100:]) == pytest.approx((1 + phi) / (1 - phi), rel=0.1)


def test_series_that_stay_apart_have_a_long_time():
    random = np.random.default_rng(1)
    apart = np.repeat([[0.0, 10.0]], 200, axis=0) + random.standard_normal((200, 2))
    assert autocorrelation_time(apart) > 100
    assert autocorrelation_time(np.ones((50, 3))) == 50


def test_round_trips_are_counted_at_their_return():
    trips, around = _Trips(1, 3), [(0,), (1,), (1,), (0,)]  # down to temperature 1 and back, by links
    for turn in range(3):
        for links in around:
            swapped = np.zeros((1, 2), bool)
            swapped[0, list(links)] = True
            trips.follow(swapped, counted=turn > 0)
    assert trips.made == 3 - 1  # that of the first state began before it was known to be hottest


def mixing_of(W, b, c, temperatures):
    machine = tuple(np.ascontiguousarray(array, np.float32) for array in (W, b, c))
    return measure_mixing(machine, temperatures, np.eye(len(b), dtype=np.uint8), 1.0, 3)


def test_free_units_mix_at_once_and_acceptance_is_the_mean_over_both_distributions():
    free = mixing_of(np.zeros((6, 4)), np.zeros(6), np.zeros(4), 4)
    assert free["autocorrelation_time"] == pytest.approx(200, rel=0.01)  # the energy is constant
    assert [free[f"acceptance_{k}"] for k in (1, 2, 3)] == [1, 1, 1]
    assert free["round_trips"] > 100
    alone = mixing_of(*random_machine(6, 4, 1), 1)
    assert {*alone} == {"autocorrelation_time"}
    assert alone["autocorrelation_time"] < 5
    W, b, c = random_machine(4, 3, 2, 1.5)
    found = mixing_of(W, b, c, 3)
    hot, mid, cold = (joint(W, b, c, beta=beta)[0].ravel() for beta in (0, 0.5, 1))
    E = -np.array([x @ b + h @ c + x @ W @ h for x in states(4) for h in states(3)])
    chance = np.minimum(1, np.exp(0.5 * (E[None, :] - E[:, None])))  # rows: of the hotter one
    for name, (p, q) in {"acceptance_1": (hot, mid), "acceptance_2": (mid, cold)}.items():
        assert found[name] == pytest.approx(p @ chance @ q, abs=0.04)


def test_recorders_are_those_quantities_of_every_snapshot():
    data, machines = coins(4), [random_machine(4, 3, seed) for seed in (1, 2)]
    context = Context(data, rbm_settings(sampler="PT_3"), (), 7)
    names = ["mixing", "pseudo_likelihood", "stochastic_pseudo_likelihood"]
    arrays = [np.stack(array).astype(np.float32) for array in zip(*machines, strict=True)]
    trail = Trail(np.array([0, 10]), *arrays, np.zeros((2, 4), np.float32), np.zeros((2, 3), np.float32))
    found = record(names, trail, context)
    assert [*found][:4] == ["autocorrelation_time", "round_trips", "acceptance_1", "acceptance_2"]
    again = record(names, trail._make(array[1:] for array in trail), context)
    assert {column: values[1] for column, values in found.items()} == {c: v[0] for c, v in again.items()}
    for t, (W, b, c) in enumerate(machines):
        ours = TrainedMachine(Layered("rbm", (W,), (b, c), (0 * b, 0 * c)))  # see test_sklearn.py
        own = [found[name][t] for name in names[1:]]
        exact, drawn = ours.pseudo_likelihood(data.train), ours.pseudo_likelihood(data.train, seed=7 + 10 * t)
        assert own == pytest.approx([exact.mean(), drawn.mean()], rel=1e-6)
