"""Recorders of mixing and of pseudo-likelihoods: by theory, by sums over all states, and by hand."""

import numpy as np
import pytest
from sklearn.neural_network import BernoulliRBM

from cbm_cli.kernels.machine import Trail
from cbm_cli.machines.mixing import _Trips, autocorrelation_time, measure_mixing
from cbm_cli.trial.recorders import Context, record
from tests.builders import coins, rbm_settings
from tests.oracles import joint, random_machine, states


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_the_autocorrelation_time_of_an_autoregressive_process_is_known(phi):
    random, series = np.random.default_rng(1), np.zeros((4000, 20))
    for t in range(1, 4000):
        series[t] = phi * series[t - 1] + random.standard_normal(20)
    exact = (1 + phi) / (1 - phi)
    assert autocorrelation_time(series[100:]) == pytest.approx(exact, rel=0.1)


def test_series_that_stay_apart_have_a_long_time():
    random = np.random.default_rng(1)
    apart = np.repeat([[0.0, 10.0]], 200, axis=0) + random.standard_normal((200, 2))
    assert autocorrelation_time(apart) > 100
    assert autocorrelation_time(np.ones((50, 3))) == 50


def test_round_trips_are_counted_at_their_return():
    trips, around = _Trips(1, 3), [(0,), (1,), (1,), (0,)]  # down to temperature 1 and back, by links
    for _ in range(3):
        for links in around:
            swapped = np.zeros((1, 2), bool)
            swapped[0, list(links)] = True
            trips.follow(swapped, counted=True)
    assert trips.made == 3 - 1  # that of the first state began before it was known to be hottest


def mixing_of(W, b, c, temperatures):
    arrays = (np.asarray(array, np.float32) for array in (W, b, c))
    rows = np.eye(len(b), dtype=np.uint8)
    return measure_mixing(tuple(map(np.ascontiguousarray, arrays)), temperatures, rows, 1.0, 3)


def test_free_units_mix_at_once_and_two_deep_modes_do_not():
    free = mixing_of(np.zeros((6, 4)), np.zeros(6), np.zeros(4), 4)
    assert free["autocorrelation_time"] == pytest.approx(200, rel=0.01)  # the energy is constant
    assert [free[f"acceptance_{k}"] for k in (1, 2, 3)] == [1, 1, 1]
    assert free["round_trips"] > 100
    n, m, w = 6, 4, 3.0
    modes = np.full((n, m), w), np.full(n, -w * m / 2 - 0.1), np.full(m, -w * n / 2)
    alone = mixing_of(*modes, 1)
    assert {*alone} == {"autocorrelation_time"}
    assert mixing_of(*random_machine(6, 4, 1), 1)["autocorrelation_time"] < 5


def test_acceptance_is_the_mean_over_both_distributions():
    W, b, c = random_machine(4, 3, 2, 1.5)
    found = mixing_of(W, b, c, 3)
    hot, mid, cold = (joint(beta * W, beta * b, beta * c)[0].ravel() for beta in (0, 0.5, 1))
    E = -np.array([x @ b + h @ c + x @ W @ h for x in states(4) for h in states(3)])
    chance = np.minimum(1, np.exp(0.5 * (E[None, :] - E[:, None])))  # rows: of the hotter one
    for name, (p, q) in {"acceptance_1": (hot, mid), "acceptance_2": (mid, cold)}.items():
        assert found[name] == pytest.approx(p @ chance @ q, abs=0.04)


def snapshots_of(machines):
    arrays = [np.stack([np.asarray(m[k], np.float32) for m in machines]) for k in range(3)]
    none = np.zeros_like(arrays[1]), np.zeros_like(arrays[2])
    return Trail(np.arange(len(machines)) * 10, *arrays, *none)


def test_recorders_are_those_quantities_of_every_snapshot():
    machines = [random_machine(4, 3, seed) for seed in (1, 2)]
    data = coins(4)
    context = Context(data, rbm_settings(sampler="PT_3"), (), 7)
    names = ["mixing", "pseudo_likelihood", "stochastic_pseudo_likelihood"]
    found = record(names, snapshots_of(machines), context)
    assert [*found][:4] == ["autocorrelation_time", "round_trips", "acceptance_1", "acceptance_2"]
    again = record(names, snapshots_of(machines[1:])._replace(update=np.array([10])), context)
    for column, values in found.items():
        assert values[1] == again[column][0]
    for t, (W, b, c) in enumerate(machines):
        p = joint(W, b, c)[0].sum(axis=1)
        log_p = {tuple(x): np.log(value) for x, value in zip(states(4).astype(int), p, strict=True)}

        def conditional(x, i, log_p=log_p):
            other = tuple(1 - v if j == i else v for j, v in enumerate(x))
            return log_p[x] - np.logaddexp(log_p[x], log_p[other])

        rows = [tuple(map(int, row)) for row in data.train]
        exact = np.mean([sum(conditional(x, i) for i in range(4)) for x in rows])
        assert found["pseudo_likelihood"][t] == pytest.approx(exact, rel=1e-6)
        theirs = BernoulliRBM(random_state=7 + 10 * t)
        theirs.components_, theirs.intercept_visible_, theirs.intercept_hidden_ = (
            np.asarray(one, np.float64) for one in (W.T, b, c)
        )
        theirs.n_features_in_ = 4
        own = found["stochastic_pseudo_likelihood"][t]
        assert own == pytest.approx(theirs.score_samples(data.train).mean(), rel=1e-6)
