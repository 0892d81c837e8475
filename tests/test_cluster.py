"""Trials on Dask clusters of real processes: who is used, who is refused, and what losses cost."""

import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from threading import Event, Timer

import pytest

import cbm_cli
from cbm_cli.errors import CbmError
from cbm_cli.execution import Failure, cluster, worker
from cbm_cli.execution.cluster import on_cluster
from cbm_cli.execution.engines import Cluster, in_process
from cbm_cli.grid.settings import Trial
from cbm_cli.results import Outcome, Progress
from tests.builders import GRID, cbm, files, toy_jobs
from tests.processes import LoopbackCluster, end_group, until

pytestmark = pytest.mark.slow
LONG = {"updates": 10**9}


class Deadly(Trial):
    """A trial that takes its worker process with it."""

    @property
    def seed(self):
        os._exit(13)


class Raising(Trial):
    """A trial that raises."""

    @property
    def seed(self):
        raise RuntimeError("no seed today")


class Telling(Trial):
    """A trial that fails after half a second and tells where it ran."""

    @property
    def seed(self):
        time.sleep(0.5)
        raise CbmError(str(os.getpid()))


class Hasty(Trial):
    """A trial that comes back to be saved ten times a second."""

    @property
    def seed(self):
        worker.STRETCH = 0.1
        return super().seed


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A cluster with two workers that stays as it is."""
    with_workers = LoopbackCluster(tmp_path_factory.mktemp("dask"))
    for _ in range(2):
        with_workers.add("--nthreads", "1")
    yield with_workers
    with_workers.end()


@pytest.fixture
def dask(tmp_path):
    """A cluster without workers."""
    alone = LoopbackCluster(tmp_path)
    yield alone
    alone.end()


class Run:
    """A run on a cluster: the results by trial, and what was said."""

    def __init__(self, address, jobs, **options):
        self.said, self.stopping, self.news = [], Event(), []
        self.cluster = Cluster(address, **options)
        self.stream = on_cluster(jobs, self.hear, self.stopping, self.cluster, self.said.append)
        self.results = {}

    def hear(self, *news):
        self.news.append(news)

    def finish(self):
        for job, result in self.stream:
            self.results[job.trial.number] = result
        return self.results

    def kinds(self):
        return [type(result) for _, result in sorted(self.results.items())]


def same_curves(results, jobs):
    expected = {job.trial.number: one for job, one in in_process(jobs, lambda *_: None, Event())}
    assert {n: one.curve.tobytes() for n, one in results.items()} == {
        n: one.curve.tobytes() for n, one in expected.items()
    }


def test_a_scheduler_and_workers_started_by_hand_give_the_same_bytes(tmp_path, monkeypatch, shared):
    monkeypatch.chdir(tmp_path)
    Path("grid.yaml").write_text(GRID)
    cbm("run", "grid.yaml", "-o", "here", "-j", 0)
    cbm("run", "grid.yaml", "-o", "there", "--scheduler", shared.address)
    here, there = files("here", ".csv", ".npz"), files("there", ".csv", ".npz")
    for found in (here, there):
        found.pop("bars/summary.csv")  # it has the seconds
    assert here == there
    assert len(here) == 24  # of 8 trials: curve, machine, end


def test_a_trial_that_kills_its_workers_fails_alone(shared):
    run = Run(shared.address, toy_jobs(Trial, Deadly, Raising, *[Trial] * 20))
    run.finish()
    assert run.kinds() == [Outcome, Failure, Failure] + [Outcome] * 20
    assert "its worker died, 3 times" in run.results[1].message
    assert run.results[2].message == "RuntimeError: no seed today"


def test_all_threads_and_workers_that_join_late_are_used(dask):
    dask.add("--nthreads", "2")
    run, began = Run(dask.address, toy_jobs(*[Telling] * 24)), time.monotonic()
    Timer(1, dask.add, ("--nthreads", "2")).start()
    run.finish()
    places = [failure.message for failure in run.results.values()]
    assert len(set(places)) == 2
    assert min(places.count(place) for place in set(places)) >= 4  # of 24
    assert time.monotonic() - began < 12  # of seconds one after the other


@pytest.fixture
def foreign(tmp_path):
    """Return a function that changes a copy of the package, and returns where it is."""

    def make(name, file, old, new):
        place = tmp_path / name / "cbm_cli"
        shutil.copytree(Path(cbm_cli.__file__).parent, place, ignore=shutil.ignore_patterns("__pycache__"))
        text = (place / file).read_text()
        assert old in text
        (place / file).write_text(text.replace(old, new))
        return tmp_path / name

    return make


def test_workers_with_other_versions_are_refused_by_name_and_the_others_go_on(dask, foreign):
    kinds = {
        "kernels": ("kernels/step.py", "\ndef ", "\n# other\ndef "),
        "older": ("execution/worker.py", "def environment", "def not_there"),
        "absent": ("__init__.py", '"""', 'raise ModuleNotFoundError(\'no cbm\')\n"""'),
    }
    for name, change in kinds.items():
        dask.add("--nthreads", "1", "--no-nanny", path=foreign(name, *change))
    jobs = toy_jobs(*[Trial] * 30)
    run = Run(dask.address, jobs)
    late = Timer(0, lambda: (until(lambda: len(run.said) >= 3), dask.add("--nthreads", "1")))
    late.start()
    same_curves(run.finish(), jobs)
    late.join()
    said = "\n".join(run.said)
    assert said.count("worker tcp://127.0.0.1:") == 3
    assert f"kernel version {worker.KERNEL_VERSION}, sources " in said
    assert "it has another version of cbm" in said
    assert "ModuleNotFoundError: no cbm" in said
    assert worker.environment() in said


def test_a_scheduler_without_workers_is_told_and_given_up(dask):
    run = Run(dask.address, toy_jobs(Trial), wait=3)
    with pytest.raises(
        CbmError, match=f"no usable worker in 3 s; start some with: dask worker {dask.address}"
    ):
        run.finish()
    assert "no usable worker; waiting up to 3 s (--wait)" in run.said[0]


def test_a_scheduler_that_is_not_there_is_told_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster, "_CONNECTING", 1.0)
    Path("grid.yaml").write_text(GRID)
    said = cbm("run", "grid.yaml", "--scheduler", "tcp://127.0.0.1:9", code=2).stderr.splitlines()
    (line,) = [line for line in said if line.startswith("Error")]
    assert "--scheduler tcp://127.0.0.1:9: no Dask scheduler answered in 1 s" in line
    assert "Traceback" not in "".join(said)
    said = cbm("run", "grid.yaml", "--scheduler", "nonsense://x", code=2).stderr
    assert "write tcp://HOST:PORT" in said
    debug = cbm("run", "grid.yaml", "--scheduler", "nonsense://x", "--debug", code=2).stderr
    assert "Traceback" in debug


@pytest.mark.parametrize(("nanny", "to_group"), [((), True), (("--no-nanny",), False)])
def test_a_worker_that_gets_sigterm_gives_its_trial_back_at_once(dask, nanny, to_group):
    process = dask.add("--nthreads", "2", *nanny)
    jobs = toy_jobs(Trial, Trial, **LONG)
    run = Run(dask.address, jobs)
    end = end_group if to_group else lambda one, number: one.send_signal(number)

    def hear(*news):
        if not run.news:
            end(process, signal.SIGTERM)
        run.news.append(news)

    run.hear = hear
    stream = on_cluster(jobs, lambda *news: hear(*news), run.stopping, run.cluster, run.said.append)
    began, back = time.monotonic(), {}
    for job, result in stream:
        back[job.trial.number] = result
        if len(back) == 2:
            break
    stream.close()
    assert [type(result) for result in back.values()] == [Progress, Progress]
    assert all(result.update > 0 for result in back.values())
    assert time.monotonic() - began < 20  # not the 30 s of a stretch


def test_a_worker_that_does_not_answer_is_named_and_its_trials_go_elsewhere(dask):
    silent = dask.add("--nthreads", "1", "--no-nanny")
    jobs = toy_jobs(*[Trial] * 2, updates=300_000)
    run = Run(dask.address, jobs, stall=2.0)

    def freeze():
        until(lambda: run.news)
        silent.send_signal(signal.SIGSTOP)
        dask.add("--nthreads", "1")

    timer = Timer(0, freeze)
    timer.start()
    results = run.finish()
    timer.join()
    assert any("no answer for 2 s; its trials go elsewhere" in said for said in run.said)
    same_curves(results, jobs)


def test_a_scheduler_that_is_lost_ends_the_run_and_one_that_comes_back_does_not(dask):
    dask.add("--nthreads", "1")
    jobs = [
        replace(one, trial=Hasty("test", one.trial.settings, n, 1))
        for n, one in enumerate(toy_jobs(*[Trial] * 3, updates=300_000))
    ]
    run = Run(dask.address, jobs, wait=20)
    lost = Timer(0, lambda: (until(lambda: run.results), dask.scheduler.kill(), dask.scheduler.wait()))
    lost.start()

    def again():
        lost.join()
        dask.scheduler = dask.start_scheduler(dask.address.rpartition(":")[2])
        dask.add("--nthreads", "1")

    back = Timer(0.5, again)
    back.start()
    same_curves(run.finish(), jobs)
    back.join()
    assert any("connection is lost; trying again for 20 s" in said for said in run.said)
    end = Run(dask.address, jobs, wait=1)
    Timer(0, lambda: (until(lambda: end.results), dask.scheduler.kill())).start()
    with pytest.raises(CbmError, match=r"no Dask scheduler answered in 1 s.* Finished trials are kept"):
        end.finish()
