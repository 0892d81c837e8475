"""Trials on Dask clusters of real processes: who is used, who is refused, and what losses cost."""

import asyncio
import contextlib
import http.client
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from dataclasses import replace
from pathlib import Path
from threading import Event, Timer

import pytest
from dask import config
from distributed import Client
from distributed.comm import connect
from distributed.security import Security

import cbm_cli
from cbm_cli.errors import CbmError
from cbm_cli.execution import Failure, cluster, worker
from cbm_cli.execution.cluster import on_cluster
from cbm_cli.execution.engines import Cluster, in_process
from cbm_cli.execution.observe import Observer
from cbm_cli.execution.slurm import read_slurm
from cbm_cli.grid.settings import Trial
from cbm_cli.results import Outcome
from tests.builders import GRID, cbm, problems_of, toy_jobs, trials_of
from tests.processes import ROOT, LoopbackCluster, children, listening, nightly, session_of, start_cbm, until
from tests.test_execution import Deadly, Hasty, Hearing, Raising

pytestmark = pytest.mark.slow
ENDLESS = GRID.replace("updates: 100", "updates: 1e9").replace("every: 20", "every: 1e8")
SLOW = GRID.replace("updates: 100", "updates: 2e5").replace("every: 20", "every: 1e5")


class Telling(Trial):
    """A trial that fails and tells where it ran, once trials have begun at four places."""

    @property
    def seed(self):
        place = f"{os.getpid()} {threading.get_ident()}"
        Path("begun", place).touch()
        until(lambda: len([*Path("begun").iterdir()]) >= 4, 120)
        raise CbmError(place)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A cluster with two workers that stays as it is; it gives a packet up after the second lost worker."""
    env = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}
    with_workers = LoopbackCluster(tmp_path_factory.mktemp("dask"), env=env)
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


@pytest.fixture
def slurm(finished, monkeypatch):
    """A SLURM that starts processes; the working folder has a grid, its finished results, and slurm.yaml."""
    Path("bin").mkdir()
    for name in ("sbatch", "srun", "scancel", "squeue"):
        Path("bin", name).symlink_to(ROOT / "tests" / "stand_in_slurm.py")
    path = [str(finished / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    Path("slurm.yaml").write_text(SLURM)
    yield
    for job in Path("jobs").glob("*"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(job.name), signal.SIGKILL)


SLURM = """kind: slurm
partition: cpu
walltime: 00:10:00
memory: 2GB
cores: 1
maximum: 1
interface: lo
"""


class Run:
    """A run on a cluster: the results by trial, and what was said."""

    def __init__(self, address, jobs, hear=lambda *news: None, **options):
        self.observer, self.results = Hearing(hear), {}
        self.said = self.observer.said
        place = Cluster(address, **{"wait": 180.0} | options)
        self.stream = on_cluster(jobs, self.observer, Event(), place)

    def finish(self):
        for job, result in self.stream:
            self.results[job.trial.number] = result
        return self.results


def later(condition, *acts):
    """Do something in another thread once a condition holds; return the thread."""
    timer = Timer(0, lambda: (until(condition), [act() for act in acts]))
    timer.start()
    return timer


def same_curves(results, jobs):
    expected = {job.trial.number: one for job, one in in_process(jobs, Observer(), Event())}
    assert {n: one.curve.tobytes() for n, one in results.items()} == {
        n: one.curve.tobytes() for n, one in expected.items()
    }


def test_a_scheduler_and_workers_started_by_hand_give_the_same_bytes(finished, shared):
    cbm("run", "grid.yaml", "-o", "there", "--scheduler", shared.address)
    assert trials_of("there") == trials_of("out")


def test_a_trial_that_kills_its_workers_fails_alone(shared):
    results = Run(shared.address, toy_jobs(Trial, Deadly, Raising, *[Trial] * 20)).finish()
    kinds = [type(result) for _, result in sorted(results.items())]
    assert kinds == [Outcome, Failure, Failure] + [Outcome] * 20
    assert "2 workers died, 2 times" in results[1].message
    assert results[2].message == "RuntimeError: no seed today"


@pytest.fixture
def foreign(tmp_path):
    """Return a function that changes a copy of the package, and returns where it is."""

    def make(name, file, old, new):
        place = tmp_path / name / "cbm_cli"
        shutil.copytree(Path(cbm_cli.__file__).parent, place, ignore=shutil.ignore_patterns("__pycache__"))
        text = (place / file).read_text()
        assert old in text
        (place / file).write_text(text.replace(old, new, 1))
        return tmp_path / name

    return make


FOREIGN = {
    "kernels": ("kernels/step.py", "\ndef ", "\n# other\ndef "),
    "older": ("execution/worker.py", "def environment", "def not_there"),
    "absent": ("__init__.py", '"""', 'raise ModuleNotFoundError(\'no cbm\')\n"""'),
}


@pytest.mark.parametrize("names", [["kernels"], *nightly([*FOREIGN])], ids=len)
def test_other_versions_are_refused_by_name_and_all_threads_of_late_workers_are_used(dask, foreign, names):
    (begun := dask.place.parent / "begun").mkdir()
    for name in names:
        dask.add("--nthreads", "1", "--no-nanny", path=foreign(name, *FOREIGN[name]))
    run = Run(dask.address, toy_jobs(*[Telling] * 24))
    add = lambda: dask.add("--nthreads", "2", "--no-nanny")  # noqa: E731
    late = [later(lambda: len(run.said) >= len(names), add), later(lambda: any(begun.iterdir()), add)]
    places = Counter(failure.message for failure in run.finish().values())
    [one.join() for one in late]
    assert {int(place.split()[0]) for place in places} == {one.pid for one in dask.workers[-2:]}
    assert (len(places), places.total()) == (4, 24)
    said = "\n".join(run.said)
    assert said.count("worker tcp://127.0.0.1:") == len(names)
    assert f"kernel version {worker.KERNEL_VERSION}, " in said
    assert ("ModuleNotFoundError: no cbm" in said) == ("absent" in names)
    assert worker.environment() in said


def test_a_scheduler_that_is_not_there_is_told_in_one_line(finished, monkeypatch):
    monkeypatch.setattr(cluster, "_CONNECTING", 1.0)
    command = "run", "grid.yaml", "-o", "there", "--scheduler"
    for address, kind, hint in [
        ("tcp://127.0.0.1:9", "system", "1 s"),
        ("nonsense://x", "value", "tcp://HOST:PORT"),
    ]:
        refused = cbm(*command, address, code=2)
        assert problems_of(refused) == [(f"--scheduler {address}", "", kind)]
        (line,) = [line for line in refused.stderr.splitlines() if address in line]
        assert hint in line
        assert "Traceback" not in refused.stderr
    assert "Traceback" in cbm(*command, "nonsense://x", "--debug", code=2).stderr


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSTOP], ids=["ends", "answers no more"])
def test_the_trials_of_a_worker_that_leaves_go_elsewhere(tmp_path, hasty, number):
    """The scheduler gives a worker up that does not answer for its ``worker-ttl``."""
    dask = LoopbackCluster(tmp_path, env={"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "2s"})
    try:
        first = dask.add("--nthreads", "1", "--no-nanny")
        run = Run(dask.address, hasty)
        other = later(lambda: run.results, lambda: (first.send_signal(number), dask.add("--nthreads", "1")))
        same_curves(run.finish(), hasty)
        other.join()
    finally:
        dask.end()


@pytest.fixture
def hasty():
    """Jobs of which the first one ends soon."""
    jobs = toy_jobs(*[Trial] * 3, updates=150_000)
    return [replace(one, trial=Hasty("test", one.trial.settings, n, 1)) for n, one in enumerate(jobs)]


@pytest.mark.nightly
def test_a_scheduler_that_comes_back_does_not_end_the_run(dask, hasty):
    dask.add("--nthreads", "1")
    run = Run(dask.address, hasty, wait=20)

    def again():
        dask.scheduler.kill()
        dask.scheduler.wait()
        time.sleep(0.5)
        dask.scheduler = dask.start_scheduler(dask.address.rpartition(":")[2])
        dask.add("--nthreads", "1")

    back = later(lambda: run.results, again)
    same_curves(run.finish(), hasty)
    back.join()
    assert any("20 s" in said for said in run.said)


def test_a_scheduler_without_workers_and_one_that_is_lost_end_the_run(dask, hasty):
    def ends(run, words):
        with pytest.raises(CbmError, match=words) as caught:
            run.finish()
        assert problems_of(caught.value) == [(f"--scheduler {dask.address}", "", "system")]

    run = Run(dask.address, toy_jobs(Trial), wait=3)
    ends(run, f"3 s.*dask worker {dask.address}")
    assert "3 s (--wait)" in run.said[0]
    dask.add("--nthreads", "1", "--no-nanny")
    Run(dask.address, hasty[:1]).finish()  # the worker has come
    run = Run(dask.address, hasty, wait=1)
    later(lambda: run.results, lambda: dask.scheduler.kill())
    ends(run, "1 s")


@pytest.mark.nightly
def test_the_documented_batch_script_gives_the_same_bytes(slurm):
    script = (ROOT / "docs" / "clusters.md").read_text().partition("```sh\n")[2].partition("```")[0]
    for old, new in (("HOST=$(hostname)", "HOST=127.0.0.1"), ("--ntasks=64", "--ntasks=2")):
        assert old in script
        script = script.replace(old, new)
    Path("cbm.sh").write_text(script)
    Path("grid.yaml").rename("experiments.yaml")
    said = subprocess.run(["sbatch", "cbm.sh"], capture_output=True, text=True, check=True).stdout
    job = Path("jobs", said.split()[-1])
    until(lambda: job.read_text().startswith("ended"), 60)
    assert job.read_text() == "ended 0", Path("slurm.out").read_text()
    assert trials_of("results") == trials_of("out")
    assert "worker tls://127.0.0.1" not in Path("slurm.out").read_text()  # all are used
    assert not [*Path().glob(".cbm-tls-*")]


COMMAND = "run", "grid.yaml", "--cluster", "slurm.yaml", "-o", "there"


def test_jobs_of_slurm_are_submitted_and_end_with_the_run(slurm):
    dry = cbm(*COMMAND, "--dry-run").stdout
    assert [text in dry for text in ("#SBATCH -p cpu", "#SBATCH -t 00:10:00")] == [True] * 2
    cbm(*COMMAND)
    assert trials_of("there") == trials_of("out")
    (job,) = Path("jobs").glob("*")
    until(lambda: job.read_text() == "cancelled")


def asked(address, **files):
    """What a server of Dask says to someone who asks for its identity, with a certificate or without."""
    security = Security(require_encryption=bool(files), **files)

    async def ask():
        comm = await connect(address, timeout=5, **security.get_connection_args("client"))
        await comm.write({"op": "identity", "reply": True})
        return await asyncio.wait_for(comm.read(), 5)

    return asyncio.run(ask())["type"]


def test_a_run_on_slurm_lets_nobody_in_without_its_certificate(slurm):
    Path("grid.yaml").write_text(ENDLESS)
    main = start_cbm(*COMMAND, cwd=Path.cwd())
    try:
        secrets = until(lambda: len(found := [*Path().glob(".dask-jobqueue.worker.*")]) == 3 and found, 60)
        assert [oct(path.stat().st_mode & 0o777) for path in secrets] == ["0o600"] * 3
        jobs = lambda: [pid for job in Path("jobs").glob("*") for pid in session_of(int(job.name))]  # noqa: E731
        until(lambda: len(listening(jobs())) == 2, 120)  # a nanny and a worker
        (scheduler,) = listening([main.pid, *children(main.pid)])
        names = {"ca_file": "tls_ca_file", "cert": "tls_client_cert", "key": "tls_client_key"}
        own = {names[path.name.split(".")[3]]: str(path) for path in secrets}
        stranger = Security.temporary()
        others = {name: getattr(stranger, name) for name in own}

        def kinds_by_port():
            with contextlib.suppress(OSError, TimeoutError):  # a worker that just starts
                ports = [port for _, port in (scheduler, *listening(jobs()))]
                return {port: asked(f"tls://127.0.0.1:{port}", **own) for port in ports}

        kinds = ["Nanny", "SilentScheduler", "SilentWorker"]
        servers = until(lambda: (found := kinds_by_port()) and sorted(found.values()) == kinds and found, 120)
        for port in servers:
            for address, files in (("tls", others), ("tls", own | {"tls_client_cert": None}), ("tcp", {})):
                with pytest.raises((OSError, TimeoutError, TypeError)):
                    asked(f"{address}://127.0.0.1:{port}", **files)
            with pytest.raises((OSError, http.client.HTTPException)):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)
        with pytest.raises(OSError, match=r"(?i)tls|tim|fail"):
            Client(f"tls://127.0.0.1:{scheduler[1]}", security=stranger, timeout=5)
    finally:
        main.send_signal(signal.SIGINT)
        code, said = main.wait(20), main.stderr.read()
    assert code == 130, said
    assert " ".join(COMMAND[:2]) in said  # how to go on
    assert not [*Path().glob(".dask-jobqueue*")]


@pytest.mark.nightly  # on local workers see test_watch.py
@pytest.mark.parametrize("where", ["here", "on a cluster"])
def test_other_runs_listen_nowhere(finished, request, where):
    if where == "on a cluster":
        dask = request.getfixturevalue("dask")
        dask.add("--nthreads", "1")
        options = "--scheduler", dask.address
    else:
        options = "-j", 0
    Path("slow.yaml").write_text(SLOW)
    main, found = start_cbm("run", "slow.yaml", *options, "-o", "there", cwd=Path.cwd()), set()

    def look():
        found.update(listening([main.pid, *children(main.pid)]))
        return Path("there").exists() and trials_of("there")

    until(look, 60)
    main.send_signal(signal.SIGINT)
    assert main.wait(20) == 130, main.stderr.read()
    assert not found


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("partition", "partitoin"), ("2:1", "partitoin", None)),
        *[(("00:10:00", wrong), ("3:11", "walltime", None)) for wrong in ("00:00:59", "0:59", "0", "soon")],
        (("memory: 2GB", "memory: much"), ("4:9", "memory", None)),
        (("memory: 2GB\n", ""), ("1:1", "memory", "missing")),
        (("kind: slurm", "kind: pbs"), ("1:7", "kind", None)),
        (("maximum: 1", "maximum: 1\nminimum: 3"), ("slurm.yaml", "minimum", "conflict")),
    ],
)
def test_a_cluster_file_that_is_wrong_is_refused(tmp_path, monkeypatch, change, problem):
    monkeypatch.chdir(tmp_path)
    Path("slurm.yaml").write_text(SLURM.replace(*change))
    with pytest.raises(CbmError) as caught:
        read_slurm(Path("slurm.yaml"))
    ((*place, kind),) = problems_of(caught.value)
    assert (*place, problem[2] and kind) == problem


@pytest.mark.parametrize("walltime", ["1", "1:00", "00:01:00", "1-0", "0-0:1", "0-0:0:60"])
def test_wall_times_of_a_minute_or_more_are_taken_in_all_forms_of_slurm(tmp_path, walltime):
    (tmp_path / "slurm.yaml").write_text(SLURM.replace("00:10:00", f'"{walltime}"'))
    assert read_slurm(tmp_path / "slurm.yaml").walltime == walltime


def test_what_is_missing_for_slurm_is_named_with_its_remedy(slurm, monkeypatch):
    def refused(kind, place, *hints, more=()):
        result = cbm(*COMMAND, *more, code=2)
        assert problems_of(result)[0][::2] == (place, kind)
        (line,) = [line for line in result.stderr.splitlines() if place in line]
        assert [hint for hint in hints if hint not in line] == []
        assert not Path("there").exists() or not trials_of("there")

    for package in ("cryptography", "dask_jobqueue"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, package, None)
            refused("missing", "--cluster", package.replace("_", "-"), "pip install 'cbm-cli[cluster]'")
    with monkeypatch.context() as without:
        without.setattr("cbm_cli.cli.run.find_spec", {"distributed": None}.get)
        refused("missing", "--cluster", "Dask", "pip install 'cbm-cli[cluster]'")
        told = cbm(*COMMAND[:2], "--scheduler", "tcp://localhost:1", code=2)
        assert problems_of(told) == [("--scheduler", "", "missing")]
    text = Path("slurm.yaml").read_text()
    Path("slurm.yaml").write_text(text.replace("partition: cpu", "partition: nowhere"))
    refused("system", "--cluster", "invalid partition specified: nowhere", "--dry-run")
    Path("slurm.yaml").write_text(text)
    Path("bin/sbatch").unlink()
    refused("missing", "--cluster", "sbatch", "--scheduler")
    Path("bin/sbatch").write_text("#!/bin/sh\nexec sleep 60\n")
    Path("bin/sbatch").chmod(0o755)
    monkeypatch.setattr("cbm_cli.execution.slurm._PATIENCE", 0.5)
    refused("system", "--cluster", "sbatch", "0 s", "sinfo")
    for options, told in ((COMMAND[2:], "--cluster"), (("-j", 2), "-j")):
        both = cbm(*COMMAND[:2], *options, "--scheduler", "tcp://localhost:1", code=2)
        assert both.error.kinds == ("conflict",)
        assert told in both.stderr


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate")
def test_tls_files_are_used_and_missing_ones_are_named(finished):
    command = "run", "grid.yaml", "-o", "there", "--no-table", "--scheduler"
    with config.set({"distributed.comm.tls.ca-file": "gone.pem"}):
        refused = cbm(*command, "tls://127.0.0.1:1", code=2)
    assert problems_of(refused) == [("--scheduler tls://127.0.0.1:1", "", "missing")]
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=x -keyout key.pem -out cert.pem"
    subprocess.run(make.split(), check=True, capture_output=True)
    pem = [str(finished / name) for name in ("cert.pem", "cert.pem", "key.pem")]
    options = [*zip(("--tls-ca-file", "--tls-cert", "--tls-key"), pem, strict=True)]
    secure = LoopbackCluster(finished, "--protocol", "tls", *[word for pair in options for word in pair])
    try:
        secure.add("--nthreads", "1")
        assert secure.address.startswith("tls://")
        keys = {"ca-file": pem[0], "client": {"cert": pem[1], "key": pem[2]}}
        with config.set({"distributed.comm.tls": keys}):
            cbm(*command, secure.address)
        assert trials_of("there") == trials_of("out")
    finally:
        secure.end()
