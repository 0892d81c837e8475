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

CORES: ContextVar[int] = ContextVar(
    "cores", default=1
)  # that the work of this context may use
_LIMIT = Path("/sys/fs/cgroup/cpu.max")  # of a container of Linux


def cores() -> int:
    """Return how many cores this process may use, of those that its container has."""
    own = (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1
    )
    with suppress(OSError, ValueError):  # there is no such file, or "max" in it
        quota, period = map(int, _LIMIT.read_text("utf-8").split())
        own = min(own, math.ceil(quota / period))
    return own


@contextmanager
def using_cores(count: int) -> Iterator[None]:
    """Let what runs in this context use so many cores, of those that there are: the
    results are the same.
    """
    before = CORES.set(min(count, cores()) if count > 1 else 1)
    try:
        yield
    finally:
        CORES.reset(before)


def share_out(things: Iterable[int], make: Callable[[], Callable[[int], None]]) -> None:
    """Do independent things on all cores; each thread takes the next one when it is
    free.

    ``make`` returns what does a thing, with work arrays of its own, for each thread.
    """
    left, errors = deque(things), []

    def follow() -> None:
        try:
            do = make()
            while left:
                do(left.popleft())
        except IndexError:  # another thread has taken the last one
            pass
        except BaseException as error:
            errors.append(error)

    others = [
        threading.Thread(target=follow, daemon=True)
        for _ in range(min(CORES.get(), len(left)) - 1)
    ]
    with suppress(RuntimeError):  # there cannot be as many threads
        for thread in others:
            thread.start()
    follow()
    left.clear()
    for thread in others:
        if thread.ident is not None:
            thread.join()
    if errors:
        raise errors[0]
