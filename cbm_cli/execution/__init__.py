"""Trials to workers and back: in this process, on local processes, or on a Dask
cluster.

Here is the server that forks worker processes, and has imported what they need; this
module imports little.
"""

import atexit
import multiprocessing
import os
import signal
from typing import Any

from platformdirs import user_cache_path

HELD = (signal.SIGINT, signal.SIGTERM)  # which the coordinator heeds for its workers


def fork_server() -> Any:
    """Return the context of worker processes; its server starts now, where the system
    can have one.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    from multiprocessing import forkserver, resource_tracker

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [f"{__name__}.work", f"{__name__}.warm", "cbm_cli.cli"]
    )
    resource_tracker.ensure_running()  # which unblocks signals
    is_safe = "PYTHONSAFEPATH" in os.environ
    os.environ.setdefault(
        "PYTHONSAFEPATH", "1"
    )  # it shall not import another cbm from the working folder
    mask = signal.pthread_sigmask(
        signal.SIG_BLOCK, HELD
    )  # until a worker of the server ignores them
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if not is_safe:
            del os.environ["PYTHONSAFEPATH"]
    return context


def start_early(workers: int) -> None:
    """Let the server of some workers import the package while this process does.

    Not where this process may yet choose a folder of its own for machine code, which
    workers share. If this process ends meanwhile, so does the server: whoever reads a
    pipe would wait until it has imported all.
    """
    if workers and os.access(
        os.environ.get("CBM_KERNEL_CACHE") or user_cache_path("cbm"), os.W_OK
    ):
        fork_server()
        from multiprocessing import forkserver

        its: Any = forkserver._forkserver
        atexit.register(
            lambda: (
                os.kill(its._forkserver_pid, signal.SIGKILL)
                if its._forkserver_pid
                else None
            )
        )
