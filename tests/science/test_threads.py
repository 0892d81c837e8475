"""Threads that share independent things: the same bytes for any number, and none left
behind.
"""

import threading

import numpy as np
import pytest
from cbm_cli.kernels import sharing
from cbm_cli.kernels.sharing import CORES, share_out, using_cores
from cbm_cli.kernels.states import mean_log_likelihood
from cbm_cli.machines import estimates
from cbm_cli.machines.estimates import ais


@pytest.fixture(autouse=True)
def many_cores(monkeypatch):
    monkeypatch.setattr(sharing, "cores", lambda: 99)


def everything(n=300, m=130):
    """What cores share of a machine."""
    random = np.random.default_rng(n + m)
    W, b, c = (
        random.normal(0, 0.1, shape).astype(np.float32) for shape in ((n, m), n, m)
    )
    rows = (random.random((5000, n)) < 0.3).astype(np.uint8)
    found, ends = ais((W, b, c), b, seed=3, temperatures=40, runs=121)
    _, log_weights = estimates.walk((W, b, c), b, ends, estimates.schedule(40), seed=3)
    grey = (rows, 1), (7 * rows, 1 / 7)
    likelihoods = [mean_log_likelihood(W, b, c, *given, 17.0) for given in grey]
    arrays = found.log_z, found.interval, log_weights, ends, likelihoods
    return [np.array(array).tobytes() for array in arrays]


def test_estimates_and_likelihoods_have_the_bytes_of_one_thread(monkeypatch):
    expected = everything()
    for count in (2, 5):
        with using_cores(count):
            assert everything() == expected, count
    monkeypatch.setattr(
        estimates, "_LARGE", np.inf
    )  # the same random numbers, in one chunk
    assert np.allclose(
        np.frombuffer(everything()[2]), np.frombuffer(expected[2]), atol=1e-3
    )


def test_where_no_thread_can_be_started_one_does_the_work(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done = []
    with using_cores(3):
        share_out(range(10), lambda: done.append)
    assert done == [*range(10)]


def test_an_error_of_one_thread_is_raised_and_the_others_stop():
    def do(thing):
        if thing == 5:
            raise ValueError("five")

    before = {*threading.enumerate()}  # one of these may end meanwhile
    with using_cores(3), pytest.raises(ValueError, match="five"):
        share_out(range(1000), lambda: do)
    assert not {*threading.enumerate()} - before


def test_more_threads_than_cores_are_not_started(monkeypatch):
    monkeypatch.setattr(sharing, "cores", lambda: 2)
    found = []
    for asked in (1, 2, 5):
        with using_cores(asked):
            found.append(CORES.get())
    assert found == [1, 2, 2]
