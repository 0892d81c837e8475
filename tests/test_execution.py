"""Trials on workers: a crash takes no other trial down, and groups of trials change nothing."""

import asyncio
import logging
import os
import pickle
import time
from asyncio import CancelledError
from dataclasses import replace
from threading import Event, Timer
from types import SimpleNamespace
from unittest.mock import AsyncMock, Mock

import pytest

from cbm_cli.errors import CbmError
from cbm_cli.execution import Failure, cluster, dask_worker, engines, worker
from cbm_cli.execution.engines import Backlog, in_process, on_local_workers
from cbm_cli.execution.observe import Observer
from cbm_cli.grid.settings import Trial
from cbm_cli.kernels import source_hash
from cbm_cli.results import Outcome, Progress
from tests.builders import GRID, run_grid, summary, toy_jobs
from tests.processes import until


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
    """A trial that its worker saves ten times a second."""

    @property
    def seed(self):
        worker.STRETCH = 0.1
        return super().seed


class Waiting(Trial):
    """A trial that does not look up for a minute."""

    @property
    def seed(self):
        time.sleep(60)
        return 1


class Hearing(Observer):
    """Gives reports to a function, and keeps messages."""

    def __init__(self, hear=lambda *news: None):
        self.said, self.progress, self.message = [], hear, lambda text: self.said.append(text)


def here(jobs):
    return [*in_process(jobs, Observer(), Event())]


@pytest.fixture(scope="module", autouse=True)
def _compiled():
    """Compile what these trials call, which may take longer than a stretch."""
    here(toy_jobs(Trial))


def on_workers(jobs, workers, observer=None, **options):
    return on_local_workers(jobs, observer or Observer(), Event(), workers, **options)


def kinds(results):
    """The kind of the last result of each trial, in the order of their numbers."""
    return [
        type(result) for _, result in sorted({job.trial.number: result for job, result in results}.items())
    ]


def message(results, number):
    return next(result.message for job, result in results if job.trial.number == number)


def curves(results):
    return {job.trial.number: result.curve.tobytes() for job, result in results}


def test_trials_that_raise_or_kill_their_worker_fail_alone():
    results = here(toy_jobs(Trial, Raising, Trial))
    assert kinds(results) == [Outcome, Failure, Outcome]
    assert message(results, 1) == "RuntimeError: no seed today"
    assert "in seed" in results[1][1].details  # the traceback
    results = [*on_workers(toy_jobs(Trial, Deadly, Raising, Trial, Trial), 2)]
    assert kinds(results) == [Outcome, Failure, Failure, Outcome, Outcome]
    assert "3 times" in message(results, 1)
    assert message(results, 2) == "RuntimeError: no seed today"


def test_short_trials_travel_in_packets_whose_bytes_are_those_of_single_ones(monkeypatch):
    many, sent, take = toy_jobs(*[Trial] * 300), [], Backlog.take

    def taking(*arguments):
        packet = take(*arguments)
        sent.extend([len(packet.tasks)] if packet else [])
        return packet

    alone = curves(here(many))
    monkeypatch.setattr(Backlog, "take", taking)
    assert curves(on_workers(many, 2)) == alone
    assert len(sent) < 150  # messages
    assert max(sent) > 5
    assert sent[-1] <= 3  # so that the workers finish together


def test_the_results_before_a_crash_in_a_packet_are_kept(monkeypatch):
    monkeypatch.setattr(engines, "GROUP", 500.0)  # all trials in one message
    results = [*on_workers(toy_jobs(Trial, Trial, Deadly, Trial), 1)]
    assert kinds(results) == [Outcome, Outcome, Failure, Outcome]
    assert len(results) == 4  # no trial ran twice
    assert "3 times" in message(results, 2)


def test_a_backlog_sends_long_trials_alone_short_ones_together_and_again_what_comes_back():
    backlog = Backlog(toy_jobs(*[Trial] * 1000))
    assert len(backlog.take(True, 4).tasks) == 1  # nothing is known yet
    backlog.seconds = 0.001
    packet = backlog.take(True, 1)
    assert len(packet.tasks) == engines.MOST
    assert len(backlog.take(True, 80).tasks) == 5  # half of the share of every thread
    backlog.seconds = 10.0
    assert len(backlog.take(True, 1).tasks) == 1
    backlog.answer(packet, ("run", 1), Failure("x"))
    backlog.close(packet, 3.0)
    assert backlog.seconds == 6.5  # of a trial: as much the last packet as those before
    assert [job.trial.number for job in backlog.waiting][:3] == [2, 3, 4]


def test_trials_of_a_lost_worker_run_alone_and_fail_the_third_time():
    backlog = Backlog(toy_jobs(*[Trial] * 3))
    backlog.seconds = 0.001
    both = backlog.take(True, 0)
    assert not list(backlog.lose(both, 2, "its worker died"))
    assert backlog.take(False, 1) is None  # something else runs there
    for turn in range(2):
        one, other = backlog.take(True, 1), backlog.take(True, 1)
        assert [len(packet.tasks) for packet in (one, other)] == [1, 1]
        failed = [job.trial.number for job, _ in backlog.lose(one, 1, "its worker died")]
        assert failed == ([0] if turn else [])
        if not turn:
            backlog.answer(other, ("run", 1), Failure("x"))
    assert not backlog


def test_stopped_workers_return_their_progress_or_are_ended(monkeypatch):
    monkeypatch.setattr(engines, "PATIENCE", 1.0)
    stopping, news = Event(), []
    jobs = toy_jobs(Trial, Waiting, updates=10**9)
    timer, began = Timer(60, stopping.set), time.monotonic()
    timer.start()

    def hear(*one):
        news.append(one)
        stopping.set()

    results = list(on_local_workers(jobs, Hearing(hear), stopping, 2))
    timer.cancel()
    assert [(one.trial.number, type(result)) for one, result in results] == [(0, Progress)]
    assert news[0][:2] == ("run", 0)
    assert results[0][1].update >= news[0][2] > 0
    assert 0 < results[0][1].seconds < time.monotonic() - began < 60


def test_a_worker_that_does_not_end_when_it_is_told_is_ended():
    crew, idle = engines._Crew(Backlog([]), Observer(), 1), Mock()
    crew.idle.append(idle)
    crew.end()
    assert [name for name, *_ in idle.mock_calls] == ["tell", "process.join", "kill"]
    idle.tell.assert_called_once_with(None)


def test_a_long_trial_is_saved_and_continues_on_its_worker(monkeypatch):
    (job,) = toy_jobs(Trial, updates=300_000)
    with monkeypatch.context() as hasty:
        hasty.setattr(worker, "STRETCH", 0.1)
        ours = here([job])
    theirs = [*on_workers([replace(job, trial=Hasty("test", job.trial.settings, 0, 1))], 1)]
    for results in (ours, theirs):
        assert [type(result) for _, result in results[-2:]] == [Progress, Outcome]
    assert ours[-1][1].curve.tobytes() == theirs[-1][1].curve.tobytes()


def test_the_version_covers_every_source_of_a_package(tmp_path):
    (tmp_path / "trial").mkdir()
    for name in ("trial/start.py", "errors.py"):
        before = source_hash.__wrapped__(tmp_path)
        (tmp_path / name).write_text("x = 1\n")
        created = source_hash.__wrapped__(tmp_path)
        (tmp_path / name).write_text("x = 2\n")
        assert len({before, created, source_hash.__wrapped__(tmp_path)}) == 3


def test_a_local_worker_that_does_not_answer_is_ended_and_named(monkeypatch):
    monkeypatch.setattr(engines, "TRIES", 1)
    observer = Hearing()
    results = [*on_workers(toy_jobs(Waiting, Trial), 2, observer, stall=5.0)]
    assert kinds(results) == [Failure, Outcome]
    assert "5 s" in message(results, 0)
    assert len(observer.said) == 1


def test_silence_while_the_run_was_paused_is_not_that_of_its_workers(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(engines.time, "monotonic", lambda: clock[0])
    backlog = Backlog(toy_jobs(Trial))
    packet = backlog.take(True, 0)
    times = 1.5, 3, 60, 61.5, 61.9, 62.1  # paused from 3 to 60
    for clock[0], silent in zip(times, (0, 0, 0, 0, 0, 1), strict=True):
        assert len([*backlog.silent([packet], 5.0)]) == silent


@pytest.fixture
def session():
    """A run of one trial on a cluster, whose client itself does what it asks of workers."""
    client = SimpleNamespace(status="running", loop=SimpleNamespace(add_callback=lambda *_: None))
    client.subscribe_topic = client.cancel = lambda *_: None
    client.asked = []  # in the order in which it was
    client.run = lambda act, token, **_: (act(token), client.asked.append(act))
    return cluster._Session(client, "tcp://there", Backlog(toy_jobs(Trial)), Observer())


@pytest.mark.parametrize(("status", "error"), [("closed", CbmError), ("running", RuntimeError)])
def test_a_scheduler_that_is_lost_while_a_packet_is_sent_ends_the_run_by_name(session, status, error):
    def submit(*arguments, **options):
        session.client.status = status
        raise RuntimeError("tcp://there")

    session.threads, session.client.submit = {"tcp://worker": 1}, submit
    with pytest.raises(error, match="tcp://there"):
        [*session.run(Event())]


def test_a_trial_whose_worker_was_lost_waits_until_it_is_alone_on_a_cluster(session):
    session.threads, session.open["future"] = {"tcp://worker": 2}, "another packet"
    session.backlog.suspects.append(session.backlog.waiting.popleft())
    session._submit_packets()  # which would fail with a client of this kind
    assert len(session.backlog) == 1


def test_what_only_a_lost_worker_may_run_is_sent_again_though_another_joined_while_it_was_sent(session):
    """Dask keeps it for that worker, and a run waited for it without end."""

    def submit(*arguments, key, workers, **options):
        session.threads = {"tcp://later": 1}
        return sent.setdefault(key, Mock(status="lost", workers=workers))

    sent, session.there = {}, {"tcp://first", "tcp://later"}
    session.threads, session.client.submit, session.client.cancel = {"tcp://first": 1}, submit, Mock()
    session._submit_packets()
    data, packet = sent.values()
    assert (data.workers, packet.workers) == (["tcp://first"], ["tcp://later"])
    session._submit_packets()
    (cancelled,) = session.client.cancel.call_args.args
    assert {*cancelled} == {data}  # and with it what needs it


@pytest.mark.parametrize(
    ("status", "error", "losses"),
    [
        ("error", ImportError("half of a module"), 1),
        ("cancelled", CancelledError(), 0),
        ("finished", OSError(), 0),
    ],
)
def test_a_packet_that_fails_or_is_taken_back_waits_again(session, status, error, losses):
    """Also one that was finished before, and lost with its worker; a failure counts as a loss."""
    session.client.gather = AsyncMock(side_effect=error)
    packet = session.backlog.take(True, 1)
    asyncio.run(session._await(future := Mock(status=status)))
    answered, answer = session.answers.get()
    assert answered is future
    assert not [*session._take(packet, answer)]
    assert len(session.backlog) == 1
    assert session.backlog.losses.total() == losses


def test_trials_on_a_cluster_return_their_progress_when_the_run_is_stopped(session, monkeypatch):
    monkeypatch.setattr(cluster, "PATIENCE", 0.0)
    monkeypatch.setattr(dask_worker, "_one_thread_for_good", lambda: None)
    monkeypatch.setattr(dask_worker, "get_worker", lambda: None)
    (stopping := Event()).set()
    packet = session.open["future"] = session.backlog.take(True, 1)
    assert not [*session.run(stopping)]
    until(lambda: session.client.asked == [dask_worker.stop] * 2)  # at once, and those that did not answer
    ((key, job),) = packet.open.items()
    facts = pickle.dumps(packet.tasks), session.token, worker.environment(), 1, job.data
    _, (answered, result) = dask_worker.work(*facts)
    assert (answered, type(result)) == (key, Progress)


def test_messages_of_dask_itself_are_not_shown():
    logs = [logging.getLogger(name) for name in ("distributed", "distributed.client", "tornado")]
    for log in logs:
        log.setLevel(logging.NOTSET)
    cluster.silence_dask()
    assert not any(log.isEnabledFor(logging.CRITICAL) for log in logs)


def test_a_trial_that_two_experiments_ask_for_is_trained_once_and_kept_by_both(tmp_path):
    cells = GRID.partition("  bars:\n")[2]
    results = run_grid(f"{GRID}  other:\n{cells.replace('[CD-1, PT_4]', '[CD-1, PCD-1]')}", folder=tmp_path)
    kept = []
    for name in ("bars", "other"):
        rows = [row for row in summary(results, name) if row["sampler"] == "CD-1"]
        assert {row.pop("experiment") for row in rows} == {name}
        kept.append(rows)
    assert kept[0] == kept[1]  # with the seconds of training
    assert len(kept[0]) == 4
