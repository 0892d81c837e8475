"""Real processes for tests: the command line, and Dask clusters on loopback."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[1]


def until(condition, seconds=240.0):
    """Wait until a condition holds, perhaps for kernels to be compiled; return what it
    returned.
    """
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "nothing happened in time"
        time.sleep(0.02)
    return found


def nightly(*cases):
    """Return cases of a parametrised test that take their turn in the nightly run."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.nightly
        )
        for case in cases
    ]


def start(*command, path=ROOT, **options):
    environment = os.environ | {
        "PYTHONPATH": f"{path}{os.pathsep}{ROOT}",
        "COLUMNS": "300",
    }
    return subprocess.Popen(
        [sys.executable, "-m", *map(str, command)],
        env=environment | options.pop("env", {}),
        start_new_session=True,
        preexec_fn=_heed_signals,
        text=True,
        **{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | options,
    )


def _heed_signals():
    """Undo what a shell does for a job in the background, which ignores some
    signals.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def start_cbm(*arguments, **options):
    """Start the command line; its stderr can be read."""
    return start("cbm_cli.cli", *arguments, stderr=subprocess.PIPE, **options)


def children(*pids):
    """Process ids of all descendants of some processes."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [
                child.pid for child in psutil.Process(pid).children(recursive=True)
            ]
    return found


def listening(pids):
    """TCP connections that some processes take."""
    every = psutil.net_connections("tcp")
    return [it for it in every if it.pid in pids and it.status == psutil.CONN_LISTEN]


def end_group(process, number=signal.SIGKILL):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


class LoopbackCluster:
    """A Dask scheduler and workers as processes."""

    def __init__(self, folder, *options, **keywords):
        self.keywords = keywords
        self.place, self.options, self.workers = (
            Path(folder) / "scheduler.json",
            options,
            [],
        )
        self.scheduler = self.start_scheduler(0)
        self.address = until(lambda: self.place.exists() and self.place.read_text())
        self.address = json.loads(self.place.read_text())["address"]

    def start_scheduler(self, port):
        """Start the scheduler, again if it has ended."""
        host = "--host", "127.0.0.1", "--port", port
        return self._start(
            "scheduler", *host, "--scheduler-file", self.place, **self.keywords
        )

    def add(self, *options, **keywords):
        """Start a worker; the options are those of ``dask worker``."""
        self.workers.append(
            self._start(
                "worker", self.address, "--host", "127.0.0.1", *options, **keywords
            )
        )
        return self.workers[-1]

    def _start(self, program, *options, **keywords):
        command = (
            f"distributed.cli.dask_{program}",
            "--no-dashboard",
            *options,
            *self.options,
        )
        return start(*command, cwd=self.place.parent, **keywords)

    def end(self):
        for process in (*self.workers, self.scheduler):
            end_group(process)
            process.wait(20)
