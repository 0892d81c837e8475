"""Workers that are jobs of SLURM, submitted with dask-jobqueue."""

import contextlib
import math
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from cbm_cli.errors import CbmError
from cbm_cli.grid.values import Count, Frozen, WholeNumber
from cbm_cli.grid.yaml_places import Problems, fields_of, load

_LOOK_EVERY = 30.0  # seconds after which jobs that have ended are replaced
_UNITS = {1: (60,), 2: (60, 1), 3: (3600, 60, 1)}  # MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS


def _checked(walltime: str) -> str:
    """Check a wall time in one of SLURM's forms."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+(?::\d+){0,2})", walltime)
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
            "queue": self.partition,
            "account": self.account,
            "walltime": self.walltime,
            "memory": self.memory,
            "cores": self.cores,
            "processes": self.cores,
            "interface": self.interface,
            "job_extra_directives": [*self.extra],
            "job_script_prologue": [*self.setup],
            "worker_extra_args": ["--no-dashboard"],
            "job_name": "cbm-worker",
        }


def read_slurm(path: Path) -> Slurm:
    """Read a cluster file; CbmError with a line for each problem."""
    problems = Problems()
    root = load(path, problems)
    fields = fields_of(root, Slurm.model_fields, problems)
    try:
        found = Slurm(**fields)
    except ValidationError as error:
        for problem in error.errors():
            name = str(problem["loc"][0])
            if problem["type"] == "missing":
                problems.add(root.mark, "is missing", name)
            else:
                problems.add(fields[name].mark, problem["msg"].removeprefix("Value error, "))
    problems.raise_any()
    if found.minimum > found.maximum:
        raise CbmError(f"{path}: minimum: {found.minimum} is more than the maximum, {found.maximum}")
    return found


def job_script(options: Slurm) -> str:
    """Return the script of a job, as it is submitted; CbmError without dask-jobqueue."""
    address = "tcp://SCHEDULER:PORT"
    return _jobqueue().SLURMJob(address, name="cbm-worker", **options.keywords()).job_script()


@contextlib.contextmanager
def slurm_workers(options: Slurm, left: Callable[[], int]) -> Iterator[str]:
    """Start a scheduler in this process and submit jobs; the address of the scheduler.

    ``left`` is asked for the number of trials to do: no more workers are kept than that. Jobs that have ended
    are replaced. Raises CbmError if SLURM is not there or does not take the job.
    """
    from cbm_cli.execution.cluster import silence_dask

    _check_sbatch(job_script(options))
    silence_dask()
    ended = threading.Event()
    with _jobqueue().SLURMCluster(**options.keywords(), scheduler_options={"dashboard": False}) as cluster:

        def keep_up() -> None:
            while not ended.is_set():
                jobs = math.ceil(left() / options.cores)
                cluster.scale(jobs=max(options.minimum, min(options.maximum, jobs)))
                ended.wait(_LOOK_EVERY)

        threading.Thread(target=keep_up, daemon=True).start()
        try:
            yield cluster.scheduler_address
        finally:
            ended.set()


def _check_sbatch(script: str) -> None:
    """Let SLURM check a job without running it."""
    if shutil.which("sbatch") is None:
        raise CbmError(
            "--cluster: there is no sbatch on this computer; run on a login node of SLURM, or start workers "
            "by hand and use --scheduler"
        )
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as file:
        file.write(script)
        file.flush()
        command = ["sbatch", "--test-only", file.name]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if answer.returncode:
        said = (answer.stderr.strip().splitlines() or ["without a reason"])[-1]
        raise CbmError(f"--cluster: SLURM refuses the job: {said}; --dry-run prints the script")


def _jobqueue() -> Any:
    try:
        from dask_jobqueue import slurm
    except ImportError:
        raise CbmError(
            "--cluster: dask-jobqueue is missing; install it with: pip install 'cbm-cli[slurm]'"
        ) from None
    return slurm
