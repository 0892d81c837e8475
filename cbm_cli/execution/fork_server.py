"""The server that forks worker processes, and has imported what they need; this module
imports little.
"""

import atexit
import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from platformdirs import user_cache_path

HELD = (signal.SIGINT, signal.SIGTERM)  # which the coordinator heeds for its workers
_SAFE = "PYTHONSAFEPATH"  # a new Python looks for no modules in the working folder


def fork_server() -> Any:
    """Return the context of worker processes; its server starts now."""
    from multiprocessing import forkserver, resource_tracker

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["cbm_cli.execution.work", "cbm_cli.execution.warm", "cbm_cli.cli"]
    )
    with _safe_path():
        resource_tracker.ensure_running()  # which unblocks signals
        # Until a worker of the server ignores them
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return context


@contextmanager
def _safe_path() -> Iterator[None]:
    """Let processes that start now find no modules in the working folder."""
    before = os.environ.get(_SAFE)
    os.environ[_SAFE] = "1"
    try:
        yield
    finally:
        del os.environ[_SAFE]
        if before is not None:
            os.environ[_SAFE] = before


def start_early(workers: int) -> None:
    """Let the server of some workers import the package while this process does.

    Not where this process may yet choose a folder of its own for machine code, which
    workers share. If this process ends meanwhile, so does the server: whoever reads a
    pipe would wait until it has imported all.
    """
    cache = os.environ.get("CBM_KERNEL_CACHE") or user_cache_path("cbm")
    if workers and os.access(cache, os.W_OK):
        fork_server()
        atexit.register(_end_server)


def _end_server() -> None:
    from multiprocessing import forkserver

    server: Any = forkserver._forkserver
    if server._forkserver_pid:
        os.kill(server._forkserver_pid, signal.SIGKILL)
