"""Trials on workers: a crash takes no other trial down, and groups of trials change nothing."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from threading import Event, Timer

from cbm_cli.datasets.catalogue import load
from cbm_cli.execution import Failure, Job, engines, worker
from cbm_cli.execution.engines import Backlog, in_process, on_local_workers
from cbm_cli.execution.forecast import TINY
from cbm_cli.grid.settings import Trial
from cbm_cli.kernels import source_hash
from cbm_cli.results import Outcome, Progress
from tests.builders import GRID, cbm

SETTINGS = TINY.model_copy(update={"updates": 20})


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


def jobs(*kinds):
    data = load("bars-and-stripes", size=2)
    return [Job(kind("test", SETTINGS, n, 1), "run", data, ()) for n, kind in enumerate(kinds)]


def endings(results):
    return {job.trial.number: result for job, result in results}


def listen(*news):
    pass


def test_a_trial_that_raises_fails_alone_in_process():
    results = endings(in_process(jobs(Trial, Raising, Trial), listen, Event()))
    assert [type(results[n]) for n in range(3)] == [Outcome, Failure, Outcome]
    assert results[1].message == "RuntimeError: no seed today"
    assert "Traceback" in results[1].details


def test_trials_that_raise_or_kill_their_worker_fail_alone_on_workers():
    results = endings(on_local_workers(jobs(Trial, Deadly, Raising, Trial, Trial), listen, Event(), 2))
    assert [type(results[n]) for n in range(5)] == [Outcome, Failure, Failure, Outcome, Outcome]
    assert "worker died" in results[1].message
    assert results[2].message == "RuntimeError: no seed today"


def test_short_trials_travel_in_packets_whose_bytes_are_those_of_single_ones(monkeypatch):
    many = jobs(*[Trial] * 300)
    alone = {n: one.curve.tobytes() for n, one in endings(in_process(many, listen, Event())).items()}
    sent, take = [], Backlog.take

    def taking(*arguments):
        packet = take(*arguments)
        sent.append(len(packet.tasks))
        return packet

    monkeypatch.setattr(Backlog, "take", taking)
    together = {
        n: one.curve.tobytes() for n, one in endings(on_local_workers(many, listen, Event(), 2)).items()
    }
    assert together == alone
    assert len(sent) < 150  # messages
    assert max(sent) > 5
    assert sent[-1] <= 3  # so that the workers finish together


def test_the_results_before_a_crash_in_a_packet_are_kept(monkeypatch):
    monkeypatch.setattr(engines, "GROUP", 500.0)  # all trials in one message
    kinds = [Trial, Trial, Deadly, Trial]
    results = list(on_local_workers(jobs(*kinds), listen, Event(), 1))
    assert [type(endings(results)[n]) for n in range(4)] == [Outcome, Outcome, Failure, Outcome]
    assert len(results) == 4  # no trial ran twice
    assert "died, 3 times on different workers" in endings(results)[2].message


def test_a_backlog_sends_long_trials_alone_and_short_ones_together():
    backlog = Backlog(jobs(*[Trial] * 1000))
    assert len(backlog.take(True, 4).tasks) == 1  # nothing is known yet
    backlog.seconds = 0.001
    assert len(backlog.take(True, 1).tasks) == engines.MOST
    assert len(backlog.take(True, 80).tasks) == 5  # half of the share of every thread
    backlog.seconds = 10.0
    assert len(backlog.take(True, 1).tasks) == 1


def test_a_packet_that_comes_back_early_is_sent_again_in_order():
    backlog = Backlog(jobs(*[Trial] * 4))
    backlog.seconds = 0.001
    packet = backlog.take(True, 0)
    backlog.answer(packet, ("run", 0), Failure("x"))
    backlog.close(packet)
    assert [job.trial.number for job in backlog.waiting] == [1, 2, 3]


def test_trials_of_a_lost_worker_run_alone_and_fail_the_third_time():
    backlog = Backlog(jobs(*[Trial] * 3))
    backlog.seconds = 0.001
    both = backlog.take(True, 0)
    assert not list(backlog.lose(both, 2, "its worker died"))
    assert backlog.take(False, 1) is None  # something else runs there
    for turn in range(2):
        one, other = backlog.take(True, 1), backlog.take(True, 1)
        assert [len(packet.tasks) for packet in (one, other)] == [1, 1]
        assert one.alone
        failed = [job.trial.number for job, _ in backlog.lose(one, 1, "its worker died")]
        assert failed == ([0] if turn else [])
        if not turn:
            backlog.answer(other, ("run", 1), Failure("x"))
    assert not backlog


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


def test_stopped_workers_return_their_progress_or_are_ended(monkeypatch):
    monkeypatch.setattr(engines, "PATIENCE", 2.0)
    long = SETTINGS.model_copy(update={"updates": 10**9})
    (job, waiting), stopping, news = jobs(Trial, Waiting), Event(), []
    job = replace(job, trial=replace(job.trial, settings=long))
    began = time.monotonic()
    timer = Timer(60, stopping.set)
    timer.start()

    def hear(run_id, number, update, value):
        news.append((run_id, number, update))
        stopping.set()

    results = list(on_local_workers([job, waiting], hear, stopping, 2))
    timer.cancel()
    assert [(one.trial.number, type(result)) for one, result in results] == [(0, Progress)]
    assert news[0][:2] == ("run", 0)
    assert results[0][1].update >= news[0][2] > 0
    assert time.monotonic() - began < 60


def test_a_long_trial_is_saved_and_continues_on_its_worker(monkeypatch, tmp_path):
    job = replace(jobs(Trial)[0], trial=Trial("test", SETTINGS.model_copy(update={"updates": 300_000}), 0, 1))
    monkeypatch.setattr(worker, "STRETCH", 0.1)
    here = [result for _, result in in_process([job], listen, Event())]
    assert [type(result) for result in here[-2:]] == [Progress, Outcome]
    monkeypatch.undo()
    hasty = replace(job, trial=Hasty("test", job.trial.settings, 0, 1))
    there = [result for _, result in on_local_workers([hasty], listen, Event(), 1)]
    assert [type(result) for result in there[-2:]] == [Progress, Outcome]
    assert here[-1].curve.tobytes() == there[-1].curve.tobytes()


def test_a_failed_trial_is_told_and_not_taken_as_done(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("grid.yaml").write_text(GRID)
    with monkeypatch.context() as broken:
        broken.setattr("cbm_cli.execution.worker.run_trial", lambda *_: 1 / 0)
        result = cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table", code=1)
    assert "8 trials failed" in result.stderr
    assert "ZeroDivisionError" in next(Path("out").rglob("*.error.txt")).read_text()
    assert not list(Path("out").rglob("trial-*.csv"))
    cbm("run", "grid.yaml", "-o", "out", "-j", 0)
    assert len(list(Path("out").rglob("trial-*.csv"))) == 8
    assert not list(Path("out").rglob("*.error.txt"))


def test_the_version_covers_every_source_of_a_package(tmp_path):
    (tmp_path / "trial").mkdir()
    for name in ("trial/start.py", "errors.py"):
        before = source_hash.__wrapped__(tmp_path)
        (tmp_path / name).write_text("x = 1\n")
        created = source_hash.__wrapped__(tmp_path)
        (tmp_path / name).write_text("x = 2\n")
        assert len({before, created, source_hash.__wrapped__(tmp_path)}) == 3


def test_an_unwritable_cache_folder_is_replaced_by_a_private_one(tmp_path):
    code = (
        "from cbm_cli.kernels.compiling import CACHE; from cbm_cli.kernels.training import make_updates;"
        "from pathlib import Path; print(CACHE, CACHE.exists(),"
        "Path(make_updates.stats.cache_path).is_relative_to(CACHE))"
    )
    environment = os.environ | {"XDG_CACHE_HOME": "/dev/null/x", "TMPDIR": str(tmp_path)}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    folder, exists, used = found.stdout.split()
    assert Path(folder).parent == tmp_path
    assert (exists, used) == ("True", "True")
    assert not Path(folder).exists()  # gone with its process


def test_a_local_worker_that_does_not_answer_is_ended_and_named():
    said = []
    stream = on_local_workers(jobs(Waiting, Trial), listen, Event(), 2, stall=2.0, say=said.append)
    results = endings(stream)
    assert [type(results[n]) for n in range(2)] == [Failure, Outcome]
    assert "no answer for 2 s, 3 times" in results[0].message
    assert len(said) == 3
    assert all("worker process" in words and "it was ended" in words for words in said)


class Quiet(Trial):
    """A trial that does not look up for eight seconds, once."""

    @property
    def seed(self):
        time.sleep(0 if "RESTED" in os.environ else 8)
        os.environ["RESTED"] = "1"
        return super().seed


def test_a_run_that_is_paused_and_continued_does_not_blame_its_workers():
    said = []
    stream = on_local_workers(jobs(Trial, Quiet), listen, Event(), 2, stall=5.0, say=said.append)
    first = next(stream)
    time.sleep(5.5)  # as after Ctrl-Z: nobody looks at the workers
    results = endings([first, *stream])
    assert [type(results[n]) for n in range(2)] == [Outcome, Outcome]
    assert said == []
