"""Workers that are jobs of SLURM, submitted with dask-jobqueue."""

import contextlib
import logging
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from cbm_cli.errors import CbmError
from cbm_cli.grid.source import Problems, Source
from cbm_cli.grid.values import Count, Frozen, WholeNumber
from cbm_cli.text import duration

_PATIENCE = 120.0  # seconds that sbatch has to answer
_WORKER = "cbm_cli.execution.dask_worker.SilentWorker"
_LOOK_EVERY = 30.0  # seconds after which jobs that have ended are replaced
_UNITS = {1: (60,), 2: (60, 1), 3: (3600, 60, 1)}  # MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS


def _checked(walltime: str) -> str:
    """Check a wall time in one of SLURM's forms."""
    match = re.fullmatch(r"(?:(\d{1,9})-)?(\d{1,9}(?::\d{1,9}){0,2})", walltime)
    if match is None:
        raise ValueError("write the wall time as HOURS:MINUTES:SECONDS, such as 02:00:00")
    numbers = [*map(int, match[2].split(":"))]
    units = (3600, 60, 1)[: len(numbers)] if match[1] else _UNITS[len(numbers)]
    seconds = 86400 * int(match[1] or 0) + sum(map(int.__mul__, numbers, units))
    if seconds < 60:
        raise ValueError(
            "a wall time under a minute ends before a worker has started; write 02:00:00 for 2 hours"
        )
    return walltime


class Slurm(Frozen):
    """Which jobs SLURM shall run: a file of ``--cluster``."""

    kind: Literal["slurm"]
    walltime: Annotated[str, AfterValidator(_checked)]
    memory: str = Field(pattern=r"^\d+(\.\d+)? ?[KMGT]i?B$")  # of a job
    cores: Count = 1  # of a job: one worker on each
    minimum: WholeNumber = 1  # jobs
    maximum: Count = 10  # jobs; there are never more than trials
    partition: str | None = None
    account: str | None = None
    interface: str | None = None  # the network, such as ib0
    extra: tuple[str, ...] = ()  # further options of sbatch, such as --qos=low
    setup: tuple[str, ...] = ()  # lines of shell that run before the workers

    def keywords(self) -> dict[str, Any]:
        """Return the arguments for dask-jobqueue."""
        return {
            "protocol": "tls://",
            "queue": self.partition,
            "account": self.account,
            "walltime": self.walltime,
            "memory": self.memory,
            "cores": self.cores,
            "processes": self.cores,
            "interface": self.interface,
            "job_extra_directives": [*self.extra],
            "job_script_prologue": [*self.setup],
            "worker_extra_args": ["--no-dashboard", "--worker-class", _WORKER],
            "job_name": "cbm-worker",
        }


@dataclass(frozen=True)
class Cluster:
    """A Dask cluster to run on."""

    address: str  # of the scheduler, such as tcp://host:8786
    wait: float = 60.0  # seconds without scheduler or workers after which a run ends
    debug: bool = False  # let Dask log
    slurm: Slurm | None = None  # its scheduler and workers are started for the run
    security: Any = None  # of such a scheduler: a `distributed.Security` with the run's own certificate


def read_slurm(path: Path) -> Slurm:
    """Read a cluster file; CbmError with a line for each problem."""
    problems = Problems()
    root = Source.of_file(path, problems).top
    fields = root.fields(Slurm.model_fields)
    try:
        found = Slurm(**{name: node.value for name, node in fields.items()})
    except ValidationError as error:
        for problem in error.errors():
            name = str(problem["loc"][0])
            if problem["type"] == "missing":
                root.wrong("is missing", "missing", inner=name)
            else:
                fields[name].wrong(problem["msg"].removeprefix("Value error, "))
    problems.raise_any()
    if found.minimum > found.maximum:
        raise CbmError(
            f"{path}: minimum: {found.minimum} is more than the maximum, {found.maximum}", "conflict"
        )
    return found


def job_script(options: Slurm) -> str:
    """Return the script of a job, as it is submitted; CbmError without dask-jobqueue."""
    job = _jobqueue().SLURMJob
    return job("tls://SCHEDULER:PORT", name="cbm-worker", **options.keywords()).job_script()


@contextlib.contextmanager
def slurm_workers(asked: Cluster, options: Slurm, left: Callable[[], int]) -> Iterator[Cluster]:
    """Start a scheduler in this process and submit jobs; the cluster that was asked for, with its address.

    ``left`` is asked for the number of trials to do: no more workers are kept than that. Jobs that have ended
    are replaced. Nobody without the certificate of this run is let in. Raises CbmError if SLURM is not there
    or does not take the job.
    """
    from distributed import Security

    from cbm_cli.execution.dask_worker import SilentScheduler

    _check_sbatch(job_script(options))
    silence_dask()
    ended = threading.Event()
    silent = {"scheduler_cls": SilentScheduler, "scheduler_options": {"dashboard": False}}
    try:
        secret = {"security": Security.temporary(), "shared_temp_directory": "."}  # where jobs start, too
        made = _jobqueue().SLURMCluster(**options.keywords(), **secret, **silent)
    except ImportError:
        raise CbmError(_missing("cryptography"), "missing") from None
    except OSError as error:
        words = f"the jobs need a certificate in the working folder: {error.__cause__ or error}"
        raise CbmError(f"--cluster: {os.getcwd()}: {words}; change into another", "system") from None
    with made as cluster:

        def keep_up() -> None:
            while not ended.is_set():
                jobs = math.ceil(left() / options.cores)
                cluster.scale(jobs=max(options.minimum, min(options.maximum, jobs)))
                ended.wait(_LOOK_EVERY)

        threading.Thread(target=keep_up, daemon=True).start()
        try:
            yield replace(asked, address=cluster.scheduler_address, security=secret["security"])
        finally:
            ended.set()


def silence_dask() -> None:
    """Keep Dask's own messages from the terminal; what matters to the user is said in other words."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]
    for name in (*names, "distributed", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", module="distributed")


def _check_sbatch(script: str) -> None:
    """Let SLURM check a job without running it."""
    if shutil.which("sbatch") is None:
        raise CbmError(
            "--cluster: there is no sbatch on this computer; run on a login node of SLURM, or start workers "
            "by hand and use --scheduler",
            "missing",
        )
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as file:
        file.write(script)
        file.flush()
        command = ["sbatch", "--test-only", file.name]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            reason = error.strerror if isinstance(error, OSError) else f"no answer in {duration(_PATIENCE)}"
            told = f"--cluster: sbatch: {reason}; check with sinfo that SLURM works"
            raise CbmError(told, "system") from None
    if answer.returncode:
        said = (answer.stderr.strip().splitlines() or ["without a reason"])[-1]
        raise CbmError(f"--cluster: SLURM refuses the job: {said}; --dry-run prints the script", "system")


def _jobqueue() -> Any:
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = {number: signal.getsignal(number) for number in numbers}
    try:
        from dask_jobqueue import slurm
    except ImportError:
        raise CbmError(_missing("dask-jobqueue"), "missing") from None
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():  # its import replaces that of Ctrl-C
            signal.signal(number, handler)
    return slurm


def _missing(package: str) -> str:
    return f"--cluster: {package} is missing; install it with: pip install 'cbm-cli[cluster]'"
