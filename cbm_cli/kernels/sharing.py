"""Threads that do independent things of one work, as blocks of rows; an update of a
machine takes one.
"""

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

# that the work of this context may use
CORES: ContextVar[int] = ContextVar("cores", default=1)
_LIMIT = Path("/sys/fs/cgroup/cpu.max")  # of a container of Linux


def cores() -> int:
    """Return how many cores this process may use, of those that its container has."""
    count = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):  # there is no such file, or "max" in it
        quota, period = map(int, _LIMIT.read_text("utf-8").split())
        count = min(count, math.ceil(quota / period))
    return count


@contextmanager
def using_cores(count: int) -> Iterator[None]:
    """Let the work of this context use so many cores, of those that there are.

    Results are the same for any number.
    """
    before = CORES.set(min(count, cores()) if count > 1 else 1)
    try:
        yield
    finally:
        CORES.reset(before)


def share_out(jobs: Iterable[int], make: Callable[[], Callable[[int], None]]) -> None:
    """Do independent jobs on all cores; each thread takes the next one when it is free.

    ``make`` returns what does a job, with work arrays of its own, for each thread. An
    error of a job ends the work, and is raised here.
    """
    queue, errors = deque(jobs), list[BaseException]()

    def work() -> None:
        try:
            do = make()
            for job in _taken_from(queue):
                do(job)
        except BaseException as error:
            errors.append(error)
            queue.clear()

    count = min(CORES.get(), len(queue))
    threads = [threading.Thread(target=work, daemon=True) for _ in range(count - 1)]
    with suppress(RuntimeError):  # there cannot be as many threads
        for thread in threads:
            thread.start()
    work()
    for thread in threads:
        if thread.ident is not None:
            thread.join()
    if errors:
        raise errors[0]


def _taken_from(queue: deque[int]) -> Iterator[int]:
    """Take jobs until none is left, for other threads take from the same queue."""
    while True:
        try:
            job = queue.popleft()
        except IndexError:
            return
        yield job
