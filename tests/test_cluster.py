"""Trials on Dask clusters of real processes: who is used, who is refused, and what losses cost."""

import asyncio
import contextlib
import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from dataclasses import replace
from pathlib import Path
from threading import Event, Timer

import pytest
from distributed import Client
from distributed.comm import connect
from distributed.security import Security

import cbm_cli
from cbm_cli.errors import CbmError
from cbm_cli.execution import Failure, cluster, worker
from cbm_cli.execution.cluster import on_cluster
from cbm_cli.execution.engines import Cluster, in_process
from cbm_cli.grid.settings import Trial
from cbm_cli.results import Outcome, Progress
from tests.builders import GRID, cbm, files, toy_jobs
from tests.processes import (
    ROOT,
    LoopbackCluster,
    children,
    end_group,
    listening,
    session_of,
    start_cbm,
    until,
)

pytestmark = pytest.mark.slow
LONG = {"updates": 10**9}
ENDLESS = GRID.replace("updates: 100", "updates: 1e9").replace("every: 20", "every: 1e8")
SLOW = GRID.replace("updates: 100", "updates: 2e5").replace("every: 20", "every: 1e5")


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


class Silent(Trial):
    """A trial that stops a worker with SILENT in its environment, so that it answers no more."""

    @property
    def seed(self):
        if "SILENT" in os.environ:
            os.kill(os.getpid(), signal.SIGSTOP)
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


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A SLURM that starts processes; the working folder is a new one, with a grid."""
    (tmp_path / "bin").mkdir()
    for name in ("sbatch", "srun", "scancel", "squeue"):
        (tmp_path / "bin" / name).symlink_to(ROOT / "tests" / "stand_in_slurm.py")
    path = f"{tmp_path / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    Path("experiments.yaml").write_text(GRID)
    cbm("run", "experiments.yaml", "-o", "here", "-j", 0)
    yield
    for job in Path("jobs").glob("*"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(job.name), signal.SIGKILL)


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
    assert time.monotonic() - began < 22  # one thread would take 24


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
    silent = dask.add("--nthreads", "1", "--no-nanny", env={"SILENT": "1"})
    jobs = toy_jobs(Silent, Silent)
    run = Run(dask.address, jobs, stall=2.0)

    def stopped():
        return Path(f"/proc/{silent.pid}/stat").read_text().rpartition(") ")[2].startswith("T")

    other = Timer(0, lambda: (until(stopped), dask.add("--nthreads", "1")))
    other.start()
    results = run.finish()
    other.join()
    assert any("no answer for 2 s; its trials go elsewhere" in said for said in run.said)
    same_curves(results, jobs)


def test_a_scheduler_that_is_lost_ends_the_run_and_one_that_comes_back_does_not(dask):
    dask.add("--nthreads", "1")
    jobs = [
        replace(one, trial=Hasty("test", one.trial.settings, n, 1))
        for n, one in enumerate(toy_jobs(*[Trial] * 3, updates=150_000))
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


def trials_in(folder):
    return {name: content for name, content in files(folder, ".csv", ".npz").items() if "summary" not in name}


def test_the_documented_batch_script_gives_the_same_bytes(slurm):
    text = (ROOT / "docs" / "clusters.md").read_text()
    script = text.partition("```sh\n")[2].partition("```")[0]
    for old, new in (("HOST=$(hostname)", "HOST=127.0.0.1"), ("--ntasks=64", "--ntasks=2")):
        assert old in script
        script = script.replace(old, new)
    Path("cbm.sh").write_text(script)
    said = subprocess.run(["sbatch", "cbm.sh"], capture_output=True, text=True, check=True).stdout
    job = Path("jobs", said.split()[-1])
    until(lambda: job.read_text().startswith("ended"), 60)
    assert job.read_text() == "ended 0", Path("slurm.out").read_text()
    assert trials_in("results") == trials_in("here")
    assert "worker tls://127.0.0.1" not in Path("slurm.out").read_text()  # all are used
    assert not [*Path().glob(".cbm-tls-*")]


SLURM = """kind: slurm
partition: cpu
walltime: 00:10:00
memory: 2GB
cores: 1
maximum: 2
interface: lo
"""


def test_jobs_of_slurm_are_submitted_and_end_with_the_run(slurm):
    Path("slurm.yaml").write_text(SLURM)
    dry = cbm("run", "experiments.yaml", "--cluster", "slurm.yaml", "--dry-run", "-o", "there").stdout
    assert "#SBATCH -p cpu" in dry
    assert "#SBATCH -t 00:10:00" in dry
    assert "--protocol tls:// --tls-ca-file FOLDER/cert.pem --tls-cert FOLDER/cert.pem" in dry
    cbm("run", "experiments.yaml", "--cluster", "slurm.yaml", "-o", "there")
    assert trials_in("there") == trials_in("here")
    jobs = [*Path("jobs").glob("*")]
    assert 1 <= len(jobs) <= 2
    until(lambda: all(job.read_text() == "cancelled" for job in jobs))


def asked(address, **files):
    """What a server of Dask says to someone who asks for its identity, with a certificate or without."""
    security = Security(require_encryption=bool(files), **files)

    async def ask():
        comm = await connect(address, timeout=5, **security.get_connection_args("client"))
        await comm.write({"op": "identity", "reply": True})
        return await asyncio.wait_for(comm.read(), 5)

    return asyncio.run(ask())["type"]


def test_a_run_on_slurm_lets_nobody_in_without_its_certificate(slurm):
    Path("slurm.yaml").write_text(SLURM)
    Path("slow.yaml").write_text(ENDLESS)
    main = start_cbm("run", "slow.yaml", "--cluster", "slurm.yaml", "-o", "slow", cwd=Path.cwd())
    try:
        (key,) = until(lambda: [*Path().glob(".cbm-tls-*/key.pem")], 60)[:1]
        folder = key.parent
        files = [folder, *folder.iterdir()]
        assert [oct(path.stat().st_mode & 0o777) for path in files] == ["0o700", "0o600", "0o600"]
        # 2 jobs of a nanny and a worker, which has told its port when it gets a trial
        jobs = lambda: [pid for job in Path("jobs").glob("*") for pid in session_of(int(job.name))]  # noqa: E731
        until(lambda: len(listening(jobs())) == 4, 120)
        (scheduler,) = listening([main.pid, *children(main.pid)])
        own = {"tls_ca_file": "cert.pem", "tls_client_cert": "cert.pem", "tls_client_key": "key.pem"}
        own = {name: str(folder / file) for name, file in own.items()}
        stranger = Security.temporary()
        others = {name: getattr(stranger, name) for name in own}
        kinds = Counter()
        for _, port in (scheduler, *listening(jobs())):
            kinds[asked(f"tls://127.0.0.1:{port}", **own)] += 1
            for address, files in (("tls", others), ("tls", own | {"tls_client_cert": None}), ("tcp", {})):
                with pytest.raises((OSError, TimeoutError, TypeError)):
                    asked(f"{address}://127.0.0.1:{port}", **files)
            with pytest.raises((OSError, http.client.HTTPException)):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)
        assert kinds == {"SilentScheduler": 1, "Nanny": 2, "SilentWorker": 2}
        with pytest.raises(OSError, match=r"(?i)tls|tim|fail"):
            Client(f"tls://127.0.0.1:{scheduler[1]}", security=stranger, timeout=5)
    finally:
        main.send_signal(signal.SIGINT)
        code, said = main.wait(20), main.stderr.read()
    assert code == 130, said
    assert "To resume:" in said
    assert not [*Path().glob(".cbm-tls-*")]


@pytest.mark.parametrize("where", ["here", "on local workers", "on a cluster"])
def test_other_runs_listen_nowhere(slurm, dask, where):
    dask.add("--nthreads", "1")
    options = {"here": ("-j", 0), "on local workers": ("-j", 2)}
    options["on a cluster"] = "--scheduler", dask.address
    Path("slow.yaml").write_text(SLOW)
    main, found = start_cbm("run", "slow.yaml", *options[where], "-o", "there", cwd=Path.cwd()), set()

    def look():
        found.update(listening([main.pid, *children(main.pid)]))
        return Path("there").exists() and trials_in("there")

    until(look, 60)
    main.send_signal(signal.SIGINT)
    assert main.wait(20) == 130, main.stderr.read()
    assert not found


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("partition: cpu", "partition: nowhere"), "--cluster: SLURM refuses the job: .*invalid partition"),
        (("partition", "partitoin"), r"slurm.yaml:2:1: partitoin: unknown field; did you mean partition\?"),
        (("00:10:00", "00:00:59"), "slurm.yaml:3:11: walltime: a wall time under a minute"),
        (("00:10:00", "soon"), "slurm.yaml:3:11: walltime: write the wall time as HOURS:MINUTES:SECONDS"),
        (("memory: 2GB", "memory: much"), "slurm.yaml:4:9: memory: "),
        (("memory: 2GB\n", ""), "slurm.yaml:1:1: memory: is missing"),
        (("kind: slurm", "kind: pbs"), "slurm.yaml:1:7: kind: "),
        (("maximum: 2", "maximum: 2\nminimum: 3"), "slurm.yaml: minimum: 3 is more than the maximum, 2"),
    ],
)
def test_a_cluster_file_that_is_wrong_is_refused(slurm, change, words):
    Path("slurm.yaml").write_text(SLURM.replace(*change))
    said = cbm("run", "experiments.yaml", "--cluster", "slurm.yaml", "-o", "there", code=2).stderr
    assert re.search(words, said)
    assert not Path("there").exists() or not trials_in("there")


def test_without_slurm_or_its_extra_the_remedy_is_named(slurm, monkeypatch):
    Path("slurm.yaml").write_text(SLURM)
    Path("bin/sbatch").unlink()
    command = "run", "experiments.yaml", "--cluster", "slurm.yaml"
    assert "there is no sbatch on this computer" in cbm(*command, code=2).stderr
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    assert "pip install 'cbm-cli[slurm]'" in cbm(*command, code=2).stderr
    assert "leave --scheduler out" in cbm(*command, "--scheduler", "tcp://localhost:1", code=2).stderr


def test_without_cryptography_and_with_an_sbatch_that_hangs_the_remedy_is_named(slurm, monkeypatch):
    Path("slurm.yaml").write_text(SLURM)
    command = "run", "experiments.yaml", "--cluster", "slurm.yaml", "-o", "there"
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "cryptography", None)
        (line,) = [line for line in cbm(*command, code=2).stderr.splitlines() if "Error" in line]
    assert "--cluster: cryptography is missing; install it with: pip install 'cbm-cli[slurm]'" in line
    Path("bin/sbatch").unlink()
    Path("bin/sbatch").write_text("#!/bin/sh\nexec sleep 60\n")
    Path("bin/sbatch").chmod(0o755)
    monkeypatch.setattr("cbm_cli.execution.slurm._PATIENCE", 0.5)
    (line,) = [line for line in cbm(*command, code=2).stderr.splitlines() if "Error" in line]
    assert "--cluster: sbatch: no answer in 0 s; check with sinfo that SLURM works" in line


def test_tls_files_are_used_and_missing_ones_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("grid.yaml").write_text(GRID)
    command = "run", "grid.yaml", "--scheduler", "tls://127.0.0.1:1"
    assert "--tls-ca gone.pem: there is no such file" in cbm(*command, "--tls-ca", "gone.pem", code=2).stderr
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=x"]
    make += ["-keyout", "key.pem", "-out", "cert.pem"]
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate")
    subprocess.run(make, check=True, capture_output=True)
    pem = [str(tmp_path / name) for name in ("cert.pem", "cert.pem", "key.pem")]
    options = [*zip(("--tls-ca-file", "--tls-cert", "--tls-key"), pem, strict=True)]
    secure = LoopbackCluster(tmp_path, "--protocol", "tls", *[word for pair in options for word in pair])
    try:
        secure.add("--nthreads", "1")
        keys = [word.replace("-file", "") for pair in options for word in pair]
        cbm("run", "grid.yaml", "--scheduler", secure.address, *keys, "--no-table")
        assert secure.address.startswith("tls://")
        plain = secure.address.replace("tls", "tcp")
        assert (
            "need --scheduler tls://" in cbm("run", "grid.yaml", "--scheduler", plain, *keys, code=2).stderr
        )
    finally:
        secure.end()
