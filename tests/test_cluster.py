"""Trials on Dask clusters of real processes: who is used, who is refused, and what losses cost."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from threading import Event, Timer

import pytest
from dask import config
from distributed.comm import connect
from distributed.security import Security

from cbm_cli.errors import CbmError
from cbm_cli.execution import Cluster, Failure, cluster, worker
from cbm_cli.execution.cluster import on_cluster
from cbm_cli.execution.engines import in_process
from cbm_cli.execution.observe import Observer
from cbm_cli.execution.slurm import read_slurm
from cbm_cli.grid.settings import Trial
from cbm_cli.results import Outcome
from tests.builders import GRID, cbm, problems_of, refusal, toy_jobs, trials_of
from tests.processes import ROOT, LoopbackCluster, children, listening, nightly, session_of, start_cbm, until
from tests.test_execution import Deadly, Hasty, Hearing, Raising

pytestmark = pytest.mark.slow
ENDLESS = GRID.replace("updates: 100", "updates: 1e9").replace("every: 20", "every: 1e8")


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
    """A cluster with two workers that stays as it is; it gives a packet up after the second lost worker.

    Its scheduler is without cbm.
    """
    folder, env = tmp_path_factory.mktemp("dask"), {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}
    (none := folder / "none" / "cbm_cli").mkdir(parents=True)
    (none / "__init__.py").write_text("raise ModuleNotFoundError('no cbm')")
    with_workers = LoopbackCluster(folder, env=env, path=none.parent)
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

    def __init__(self, address, jobs, **options):
        self.observer, self.results = Hearing(), {}
        self.said = self.observer.said
        place = Cluster(address, **{"wait": 180.0} | options)
        self.stream = on_cluster(jobs, self.observer, Event(), place)

    def finish(self):
        for job, result in self.stream:
            self.results[job.trial.number] = result
        return self.results


def later(condition, act):
    """Do something in another thread once a condition holds; return the thread."""
    timer = Timer(0, lambda: until(condition) and act())
    timer.start()
    return timer


def same_curves(results, jobs):
    expected = {job.trial.number: outcome for job, outcome in in_process(jobs, Observer(), Event())}
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


class Touching(Trial):
    """A trial that leaves a file when it begins."""

    @property
    def seed(self):
        Path(os.environ["BEGUN"], str(self.number)).touch()
        return super().seed


def test_workers_go_on_with_short_trials_while_the_coordinator_is_busy(dask, tmp_path):
    """It is busy from the first result on: until then two trials, each a packet, have been sent."""
    dask.add("--nthreads", "1", "--no-nanny", env={"BEGUN": str(tmp_path)})
    next(Run(dask.address, toy_jobs(*[Touching] * 4)).stream)
    until(lambda: {path.name for path in tmp_path.glob("[0-9]")} >= {"0", "1"})


FOREIGN = [  # other kernels, an older package, none
    ("kernels/step.py", "\ndef ", "\n# other\ndef "),
    ("execution/worker.py", "def environment", "def not_there"),
    ("__init__.py", '"""', 'raise ModuleNotFoundError(\'no cbm\')\n"""'),
]


@pytest.mark.parametrize("changes", [FOREIGN[:1], *nightly(FOREIGN)], ids=len)
def test_other_versions_are_refused_by_name_and_all_threads_of_late_workers_are_used(dask, here, changes):
    (begun := dask.place.parent / "begun").mkdir()
    for file, old, new in changes:
        place = here / Path(file).stem / "cbm_cli"
        shutil.copytree(ROOT / "cbm_cli", place, ignore=shutil.ignore_patterns("__pycache__"))
        before, found, after = (place / file).read_text().partition(old)
        assert found
        (place / file).write_text(before + new + after)
        dask.add("--nthreads", "1", "--no-nanny", path=place.parent)
    run = Run(dask.address, toy_jobs(*[Telling] * 24))
    add = lambda: dask.add("--nthreads", "2", "--no-nanny")  # noqa: E731
    late = [later(lambda: len(run.said) >= len(changes), add), later(lambda: any(begun.iterdir()), add)]
    places = Counter(failure.message for failure in run.finish().values())
    [one.join() for one in late]
    assert {int(place.split()[0]) for place in places} == {one.pid for one in dask.workers[-2:]}
    assert (len(places), places.total()) == (4, 24)
    said = "\n".join(run.said)
    assert said.count("worker tcp://127.0.0.1:") == len(changes)
    assert f"kernel version {worker.KERNEL_VERSION}, " in said
    assert ("ModuleNotFoundError: no cbm" in said) == (len(changes) > 1)
    assert worker.environment() in said


@pytest.mark.parametrize(
    ("address", "kind", "hint"),
    [("tcp://127.0.0.1:9", "system", "1 s"), ("nonsense://x", "value", "tcp://HOST:PORT")],
)
def test_a_scheduler_that_is_not_there_is_told_in_one_line(grid, monkeypatch, address, kind, hint):
    monkeypatch.setattr(cluster, "_CONNECTING", 1.0)
    refused = cbm("run", "grid.yaml", "--scheduler", address, code=2)
    assert problems_of(refused) == [(f"--scheduler {address}", "", kind)]
    (line,) = [line for line in refused.stderr.splitlines() if address in line]
    assert hint in line
    assert "Traceback" not in refused.stderr
    monkeypatch.setenv("CBM_DEBUG", "1")
    assert "Traceback" in cbm("run", "grid.yaml", "--scheduler", address, code=2).stderr


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSTOP])
def test_the_trials_of_a_worker_that_leaves_go_elsewhere(tmp_path, hasty, number):
    """The scheduler gives a worker up that does not answer for its ``worker-ttl``."""
    dask = LoopbackCluster(tmp_path, env={"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "2s"})
    first = dask.add("--nthreads", "1", "--no-nanny")
    run = Run(dask.address, hasty)
    later(lambda: run.results, lambda: (first.send_signal(number), dask.add("--nthreads", "1")))
    try:
        same_curves(run.finish(), hasty)
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

    later(lambda: run.results, again)
    same_curves(run.finish(), hasty)
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
    until(lambda: job.read_text().startswith("ended"))
    assert job.read_text() == "ended 0", Path("slurm.out").read_text()
    assert trials_of("results") == trials_of("out")
    assert "worker tls://127.0.0.1" not in Path("slurm.out").read_text()  # all are used
    assert not [*Path().glob(".cbm-tls-*")]


COMMAND = "run", "grid.yaml", "--cluster", "slurm.yaml", "-o", "there"


def test_jobs_of_slurm_are_submitted_and_end_with_the_run(slurm):
    assert {"#SBATCH -p cpu", "#SBATCH -t 00:10:00"} <= {*cbm(*COMMAND, "--dry-run").stdout.splitlines()}
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
        secrets = until(lambda: len(found := [*Path().glob(".dask-jobqueue.worker.*")]) == 3 and found)
        assert [oct(path.stat().st_mode & 0o777) for path in secrets] == ["0o600"] * 3
        jobs = lambda: [pid for job in Path("jobs").glob("*") for pid in session_of(int(job.name))]  # noqa: E731
        until(lambda: len(listening(jobs())) == 2)  # a nanny and a worker
        (scheduler,) = listening([main.pid, *children(main.pid)])
        names = {"ca_file": "tls_ca_file", "cert": "tls_client_cert", "key": "tls_client_key"}
        own = {names[path.name.split(".")[3]]: str(path) for path in secrets}
        stranger = Security.temporary()
        others = {name: getattr(stranger, name) for name in own}

        def kinds_by_port():
            with contextlib.suppress(OSError, TimeoutError):  # a worker that just starts
                ports = [port for _, port in (scheduler, *listening(jobs()))]
                return {port: asked(f"tls://127.0.0.1:{port}", **own) for port in ports}

        kinds = ["Nanny", "SilentScheduler", "SilentWorker"]  # and no pages for browsers
        servers = until(lambda: (found := kinds_by_port()) and sorted(found.values()) == kinds and found)
        for port in servers:
            for address, files in (("tls", others), ("tls", own | {"tls_client_cert": None}), ("tcp", {})):
                with pytest.raises((OSError, TimeoutError, TypeError)):
                    asked(f"{address}://127.0.0.1:{port}", **files)
    finally:
        main.send_signal(signal.SIGINT)
        code, said = main.wait(20), main.stderr.read()
    assert code == 130, said
    assert " ".join(COMMAND[:2]) in said  # how to go on
    assert not [*Path().glob(".dask-jobqueue*")]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("partition", "partitoin", ("2:1", "partitoin", "unknown")),
        *[("00:10:00", wrong, ("3:11", "walltime", "value")) for wrong in ("00:00:59", "0:59", "0", "soon")],
        *[
            ("00:10:00", f'"{right}"', None)
            for right in ("1", "1:00", "00:01:00", "1-0", "0-0:1", "0-0:0:60")
        ],
        ("memory: 2GB", "memory: much", ("4:9", "memory", "value")),
        ("memory: 2GB\n", "", ("1:1", "memory", "missing")),
        ("kind: slurm", "kind: pbs", ("1:7", "kind", "value")),
        ("maximum: 1", "maximum: 1\nminimum: 3", ("slurm.yaml", "minimum", "conflict")),
    ],
)
def test_a_cluster_file_that_is_wrong_is_refused(here, old, new, problem):
    Path("slurm.yaml").write_text(SLURM.replace(old, new))
    if problem:
        assert problems_of(refusal(read_slurm, Path("slurm.yaml"))) == [problem]
    else:  # all forms of SLURM, of a minute or more
        assert read_slurm(Path("slurm.yaml")).walltime == new.strip('"')


def test_what_is_missing_for_slurm_is_named_with_its_remedy(slurm, monkeypatch):
    def refused(kind, *hints, command=COMMAND, place="--cluster"):
        result = cbm(*command, code=2)
        assert problems_of(result)[0][::2] == (place, kind)
        assert any(all(hint in line for hint in (place, *hints)) for line in result.stderr.splitlines())
        assert not Path("there").exists() or not trials_of("there")

    scheduler = *COMMAND[:2], "--scheduler", "tcp://localhost:1"
    for package in ("cryptography", "dask_jobqueue"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, package, None)
            refused("missing", package.replace("_", "-"), "pip install 'cbm-cli[cluster]'")
    with monkeypatch.context() as without:
        without.setattr("cbm_cli.cli.run.find_spec", {"distributed": None}.get)
        refused("missing", "Dask", "pip install 'cbm-cli[cluster]'")
        refused("missing", command=scheduler, place="--scheduler")
    Path("slurm.yaml").write_text(SLURM.replace("partition: cpu", "partition: nowhere"))
    refused("system", "invalid partition specified: nowhere", "--dry-run")
    Path("slurm.yaml").write_text(SLURM)
    Path("bin/sbatch").unlink()
    refused("missing", "sbatch", "--scheduler")
    Path("bin/sbatch").write_text("#!/bin/sh\nexec sleep 60\n")
    Path("bin/sbatch").chmod(0o755)
    monkeypatch.setattr("cbm_cli.execution.slurm._PATIENCE", 0.5)
    refused("system", "sbatch", "0 s", "sinfo")
    for options in (COMMAND[2:], ("-j", 2)):
        both = cbm(*scheduler, *options, code=2)
        assert both.error.kinds == ("conflict",)
        assert options[0] in both.stderr


def test_tls_files_that_are_missing_are_named(grid):
    named = dict.fromkeys(("ca-file", "client.cert", "client.key"), "gone.pem")
    with config.set({f"distributed.comm.tls.{name}": path for name, path in named.items()}):
        refused = cbm("run", "grid.yaml", "--scheduler", "tls://127.0.0.1:1", code=2)
    assert problems_of(refused) == [("--scheduler tls://127.0.0.1:1", "", "missing")]
