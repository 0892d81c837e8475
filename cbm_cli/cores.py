"""How many cores a process may use."""

import math
import os
from contextlib import suppress
from pathlib import Path

_LIMIT = Path("/sys/fs/cgroup/cpu.max")  # of a container of Linux


def cores() -> int:
    """Return how many cores this process may use, of those that its container has."""
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # there is no such file, or "max" in it
        quota, period = map(int, _LIMIT.read_text("utf-8").split())
        own = min(own, math.ceil(quota / period))
    return own
