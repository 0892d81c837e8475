"""One thread of BLAS for a trial or an evaluation: the same bytes everywhere."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

from cbm_cli.kernels.computer import libraries


@contextmanager
def one_thread() -> Iterator[None]:
    """Let BLAS use one thread, so that sums have the same order and the same bytes.

    Threads of a process may use this at the same time.
    """
    with _with_own_numbers().limit(limits=1):
        _LIMIT.acquire()
        try:
            yield
        finally:
            _LIMIT.release()


def one_thread_for_good() -> None:
    """Let BLAS use one thread in this process from now on, as workers do."""
    _LIMIT.acquire()
    _with_own_numbers().limit(limits=1)


class _Limit:
    """The limit of libraries with one number of threads for the whole process.

    The first user sets it, and the last one gives back what there was before; users
    begin and end in any order.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._limiter: Any = None

    def acquire(self) -> None:
        """Limit the libraries to one thread, unless they are limited already."""
        with self._lock:
            if self._users == 0:
                _take_control()
                self._limiter = _with_one_number().limit(limits=1)
                _take_control()
            self._users += 1

    def release(self) -> None:
        """Give back the number of threads, unless others still need the limit."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                _take_control()
                self._limiter.restore_original_limits()
                _take_control()


_LIMIT = _Limit()


def _take_control() -> None:
    """Let any thread set the number, as threadpoolctl ignores all others."""
    for library in libraries().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):  # since threadpoolctl 3.8
            library.clear_controlling_thread(force=True)


@cache
def _with_own_numbers() -> ThreadpoolController:
    """Return the libraries in which each thread has a number of its own: of OpenMP."""
    return libraries().select(threading_layer=["openmp"], user_api=["openmp"])


@cache
def _with_one_number() -> ThreadpoolController:
    """Return the other libraries."""
    own = {library.filepath for library in _with_own_numbers().lib_controllers}
    everything = [library.filepath for library in libraries().lib_controllers]
    return libraries().select(filepath=[path for path in everything if path not in own])
