"""Threads that share independent things: the same bytes for any number, and none left
behind.
"""

import threading
from contextlib import ExitStack

import numpy as np
import pytest
from cbm_cli.kernels import sharing
from cbm_cli.kernels.annealing import make_walks
from cbm_cli.kernels.computer import libraries
from cbm_cli.kernels.likelihood import mean_log_likelihood
from cbm_cli.kernels.sharing import CORES, share_out, using_cores
from cbm_cli.machines import estimates
from cbm_cli.machines.estimates import ais
from cbm_cli.machines.threads import one_thread


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


# shapes where BLAS adds in another order for 50 rows than for 100, and larger ones
SHAPES = [(784, 14), (1100, 10), (97, 200), (300, 130)]


@pytest.mark.parametrize("shape", SHAPES)
def test_estimates_and_likelihoods_have_the_bytes_of_one_thread(shape):
    expected = everything(*shape)
    for count in (2, 5, 64):
        with using_cores(count):
            assert everything(*shape) == expected, count


@pytest.mark.parametrize("shape", SHAPES)
def test_walks_start_with_the_activations_of_their_group_alone(shape):
    random = np.random.default_rng(1)
    machine = tuple(
        random.normal(size=size).astype(np.float32) for size in (shape, *shape)
    )
    base = np.zeros(shape[0], np.float32)
    x = (random.random((121, shape[0])) < 0.5).astype(np.float32)
    together = make_walks(machine, base, x, 0, 121, 50)
    for start in (0, 50, 100):
        rows = x[start : start + 50]
        alone = make_walks(machine, base, rows, start, 121, 50)
        assert together.to_h[start : start + 50].tobytes() == alone.to_h.tobytes()


def test_reverse_walks_of_a_machine_whose_sums_cancel_do_not_depend_on_cores():
    """Large weights that cancel leave what BLAS rounds, which decides the first h."""
    n, m = 784, 14
    half = np.random.default_rng(2).normal(0, 1e6, (n // 2, m)).astype(np.float32)
    W = np.concatenate([half, -half])
    machine = W, np.zeros(n, np.float32), np.zeros(m, np.float32)
    x = np.ones((121, n), np.float32)
    down = estimates.schedule(20)[::-1].copy()
    log_weights = []
    for count in (1, 2):
        with using_cores(count):
            walks = estimates.walk(machine, machine[1], x, down, seed=3)
            log_weights.append(walks[1])
    assert (log_weights[0] == log_weights[1]).all()


def test_the_group_of_a_walk_depends_on_the_machine_alone():
    """Groups that share cores are large enough for packed products."""
    for weights in (1, 36, 700, 784 * 14, 784 * 500):
        group = estimates._group_of(10**9, weights)
        assert group >= 50
        assert group * weights >= 2**15
    assert estimates._group_of(100, 36) == 100


def test_groups_and_one_chunk_agree_but_for_rounding(monkeypatch):
    expected = everything()
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


@pytest.mark.parametrize("count", [1, 3])
def test_an_index_error_of_a_job_is_not_taken_for_the_end_of_the_work(count):
    done = []

    def do(job):
        if job == 3:
            raise IndexError("out of range")
        done.append(job)

    with using_cores(count), pytest.raises(IndexError, match="out of range"):
        share_out(range(10), lambda: do)

    def no_arrays():
        raise IndexError("no arrays")

    with using_cores(count), pytest.raises(IndexError, match="no arrays"):
        share_out(range(10), no_arrays)


def threads_of_blas():
    return {
        library["num_threads"]
        for library in libraries().info()
        if library["user_api"] == "blas"
    }


def test_one_thread_lasts_until_its_last_user_ends_and_no_longer():
    """Whatever the order in which users begin and end."""
    with libraries().limit(limits=2):
        assert threads_of_blas() == {2}
        first, second = ExitStack(), ExitStack()
        first.enter_context(one_thread())
        second.enter_context(one_thread())
        first.close()
        assert threads_of_blas() == {1}
        second.close()
        assert threads_of_blas() == {2}
        with pytest.raises(ValueError, match="inside"), one_thread():
            raise ValueError("inside")
        assert threads_of_blas() == {2}


def test_one_thread_of_many_threads_at_a_time():
    begin, seen = threading.Barrier(8), []

    def use():
        begin.wait()
        for _ in range(50):
            with one_thread():
                seen.append(threads_of_blas())

    with libraries().limit(limits=2):
        users = [threading.Thread(target=use) for _ in range(8)]
        for user in users:
            user.start()
        for user in users:
            user.join()
        assert seen == [{1}] * 400
        assert threads_of_blas() == {2}


def test_more_threads_than_cores_are_not_started(monkeypatch):
    monkeypatch.setattr(sharing, "cores", lambda: 2)
    found = []
    for asked in (1, 2, 5):
        with using_cores(asked):
            found.append(CORES.get())
    assert found == [1, 2, 2]
