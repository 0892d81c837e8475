"""Tasks on workers: a crash takes no other trial down, and packets of trials change
nothing.
"""

import errno
import logging
import os
import pickle
import tempfile
import time
from collections import deque
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Event, Timer
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.execution import cluster, pools, shared_rows, spread, work
from cbm_cli.execution.pools import Processes
from cbm_cli.execution.spread import Task, _Queue
from cbm_cli.execution.work import Failure, Packet, train
from cbm_cli.grid.settings import Trial
from cbm_cli.results import Outcome, Progress
from threadpoolctl import threadpool_info, threadpool_limits

from tests.trainings import coins, toy_jobs


class Raising(Trial):
    """A trial that raises."""

    @property
    def seed(self):
        raise RuntimeError("no seed today")


class Deadly(Trial):
    """A trial that takes its worker process with it."""

    @property
    def seed(self):
        os._exit(13)


class Hasty(Trial):
    """A trial that comes back ten times a second."""

    @property
    def seed(self):
        work.STRETCH = 0.1
        return super().seed


class Waiting(Trial):
    """A trial that does not look up for a minute."""

    @property
    def seed(self):
        time.sleep(60)
        return 1


def tasks_of(jobs):
    return [Task(job, (job.trial, job.sources), job.data) for job in jobs]


def run(jobs, workers=0, say=lambda message: None, **options):
    """The job and the result of whatever comes back."""
    for task, result in spread.spread(train, [tasks_of(jobs)], say, workers, **options):
        yield task.about, result


@pytest.fixture(scope="module", autouse=True)
def _compiled():
    """Compile what these trials call, which may take longer than a stretch."""
    [*run(toy_jobs(Trial))]


def kinds(results):
    """The kind of the last result of each trial, in the order of their numbers."""
    last = {job.trial.number: type(result) for job, result in results}
    return [kind for _, kind in sorted(last.items())]


def curves(results):
    finished = (
        (job.trial.number, result)
        for job, result in results
        if isinstance(result, Outcome)
    )
    return {number: result.curve.tobytes() for number, result in finished}


@pytest.fixture
def packets(monkeypatch):
    """The numbers of tasks of the packets that go to workers."""
    sent, submit = [], Processes.submit

    def submitting(self, function, packet, *datasets):
        sent.append(len(packet.tasks))
        return submit(self, function, packet, *datasets)

    monkeypatch.setattr(Processes, "submit", submitting)
    return sent


def test_short_trials_travel_in_packets_whose_bytes_are_those_of_single_ones(
    packets, monkeypatch
):
    monkeypatch.setattr(
        spread, "PATIENCE", 0.0
    )  # with runs that are stopped, not with this one
    many = toy_jobs(*[Trial] * 300)
    assert curves(run(many, 2)) == curves(run(many))
    assert len(packets) < 150
    assert max(packets) > 5
    assert packets[-1] <= 3  # so that the workers finish together


def test_trials_that_raise_or_kill_their_worker_fail_alone(packets, monkeypatch):
    results = [*run(toy_jobs(Trial, Raising, Trial))]
    assert kinds(results) == [Outcome, Failure, Outcome]
    assert results[1][1].message == "RuntimeError: no seed today"
    assert "in seed" in results[1][1].details  # the traceback
    monkeypatch.setattr(spread, "PACKET", 500.0)  # many trials in one message
    said, jobs = [], toy_jobs(*[Trial] * 5, Deadly, Raising, *[Trial] * 6)
    results = [*run(jobs, 1, said.append)]
    assert kinds(results) == [Outcome] * 5 + [Failure] * 2 + [Outcome] * 6
    assert len(results) == len(jobs)  # no result is reported twice
    assert max(packets) > 1
    assert len(said) == 2  # a line for each lost worker, then the failure
    assert "a worker process died" in said[0]


@pytest.fixture
def queue():
    """Tasks that wait for a pool of one thread, in which nothing runs."""

    def make(number):
        pool = SimpleNamespace(threads=1, apart=True, deaths=3, ahead=1)
        waiting = deque(tasks_of(toy_jobs(*[Trial] * number)))
        return _Queue(pool, train, waiting, lambda message: None)

    return make


def answer(queue, packet, results, seconds=0.0):
    """What comes of a packet; without results it is taken back."""
    future = Future()
    future.set_result((seconds, results)) if results else future.cancel()
    queue.open[future] = packet
    return [*queue.take(future)]


def test_a_queue_sends_long_trials_alone_short_ones_together_and_again_what_comes_back(
    queue,
):
    its = queue(1000)
    assert len(its._next(4)) == 1  # nothing is known yet
    its.seconds = 0.001
    packet = its._next(1)
    assert len(packet) == spread.MOST
    assert len(its._next(80)) == 5  # half of the share of every thread
    its.seconds = 10.0
    assert len(its._next(1)) == 1
    progress = Progress(None)
    told = answer(its, packet, [Failure("x"), progress], 6.0)
    assert [result for _, result in told] == [Failure("x"), progress]
    assert its.seconds == 6.5  # of a trial: as much the last packet as those before
    assert [*its.waiting][:2] == packet[
        1:3
    ]  # the one that goes on, then those that were not begun
    assert packet[1].begin() is progress


def test_trials_of_a_lost_worker_run_alone_and_fail_the_third_time(queue):
    its = queue(3)
    its.waiting, (first, second, third) = deque(), its.waiting
    assert not [*its._lose([first, second], "it died")]
    its.pool.apart, its.open["future"] = False, [third]
    assert its._next(1) == []  # something else runs there
    its.open.clear()
    assert [its._next(1), its._next(1)] == [[first], [second]]
    assert not [*its._lose([first], "it died")]
    answer(its, [second], [Progress(None)])  # which clears it
    assert not answer(its, [third], [])  # taken back by a scheduler that was away
    assert [(task, task.deaths) for task in its.waiting] == [(third, 0), (second, 0)]
    assert [task for task, _ in its._lose([first], "it died")] == [first]


@pytest.mark.parametrize("failures", [2, 3])
def test_workers_that_die_as_they_start_are_tried_three_times(monkeypatch, failures):
    of_a_killed_server = EOFError, ConnectionResetError, BrokenProcessPool
    errors, started = deque(of_a_killed_server[:failures]), []
    submit = pools.ProcessPoolExecutor.submit

    def refuse(self, *given):
        started.append(self)
        if errors:
            raise errors.popleft()
        return submit(self, *given)

    monkeypatch.setattr(pools.ProcessPoolExecutor, "submit", refuse)
    error = (
        nullcontext()
        if failures < 3
        else pytest.raises(CbmError, match="-j 0 does without")
    )
    with Processes(1) as its, error:
        assert its.submit(int, "7").result() == 7
    assert len({*started}) == len(started) == 3


def test_stopped_workers_return_their_progress_or_are_ended(monkeypatch):
    monkeypatch.setattr(spread, "PATIENCE", 3.0)
    stopping, began, results = Event(), time.monotonic(), []
    Timer(8, stopping.set).start()
    with pytest.raises(KeyboardInterrupt):
        results.extend(
            run(toy_jobs(Trial, Waiting, updates=10**9), 2, stopping=stopping)
        )
    assert {(one.trial.number, type(result)) for one, result in results} == {
        (0, Progress)
    }
    assert 0 < results[0][1].seconds < time.monotonic() - began < 30
    assert results[0][1].update > 0


def test_a_long_trial_comes_back_and_continues_on_a_worker(monkeypatch):
    (job,) = toy_jobs(Trial, updates=300_000)
    with monkeypatch.context() as hasty:
        hasty.setattr(work, "STRETCH", 0.1)
        ours = [*run([job])]
    theirs = [*run([replace(job, trial=Hasty("test", job.trial.settings, 0, 1))], 1)]
    for results in (ours, theirs):
        assert [type(result) for _, result in results[-2:]] == [Progress, Outcome]
    assert ours[-1][1].curve.tobytes() == theirs[-1][1].curve.tobytes()


def looking(about, since, data, should_pause, should_stop):
    """Work: where the rows of a data set are, and what they are."""
    maps = Path("/proc/self/maps").read_text()
    assert not data.train.flags.writeable
    return os.getpid(), "cbm-rows-" in maps, data.digest, data.train.tobytes()


def test_workers_share_the_memory_of_data_sets(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    data = coins(7, rows=1000)
    fresh = Dataset("fresh", data.train, data.valid, levels=255)
    tasks = [Task(n, n, one) for n, one in enumerate([data, fresh, data, fresh])]
    found = [result for _, result in spread.spread(looking, [tasks], print, 2)]
    assert {(is_shared, digest, rows) for _, is_shared, digest, rows in found} == {
        (True, one.digest, data.train.tobytes()) for one in (data, fresh)
    }
    assert not [*tmp_path.iterdir()]


def test_a_full_disk_costs_memory_and_no_run(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(shared_rows, "_written", Mock(side_effect=error))
    data = coins(7)
    assert shared_rows.shared(data) is data
    assert not [*tmp_path.iterdir()]


def blas_threads(*_):
    """Work: how many threads BLAS uses."""
    return [pool["num_threads"] for pool in threadpool_info()]


def test_a_worker_of_dask_has_its_threads_back_after_a_packet():
    packet = Packet(blas_threads, [(None, None, "")], bool)
    work._datasets[""] = None
    with threadpool_limits(2):
        before = blas_threads()
        _, (during,) = work.on_cluster(pickle.dumps(packet), work.environment())
        assert {*during} == {1}
        assert blas_threads() == before


def test_messages_of_dask_itself_are_not_shown():
    logs = [
        logging.getLogger(name)
        for name in ("distributed", "distributed.client", "tornado")
    ]
    for log in logs:
        log.setLevel(logging.NOTSET)
    cluster.silence_dask()
    assert not any(log.isEnabledFor(logging.CRITICAL) for log in logs)
