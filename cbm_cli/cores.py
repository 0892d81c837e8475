"""How many cores a process may use."""

import math
import os
from contextlib import suppress
from pathlib import Path, PurePosixPath

_SYSTEM = Path("/")  # where the files of Linux are


def cores() -> int:
    """Return how many cores this process may use, of those that its container has."""
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found, groups = [float(own)], _SYSTEM / "proc/self/cgroup"  # of Linux, version 1 or 2
    for line in groups.read_text("utf-8").splitlines() if groups.exists() else ():
        _, controllers, group = line.split(":", 2)
        if "cpu" not in controllers.split(",") and controllers:
            continue
        files = ("cpu/{}/cpu.cfs_quota_us", "cpu/{}/cpu.cfs_period_us") if controllers else ("{}/cpu.max",)
        for above in (path := PurePosixPath(group.strip("/")), *path.parents):
            with suppress(OSError, ValueError):  # there is none, or "max"
                texts = [
                    (_SYSTEM / "sys/fs/cgroup" / file.format(above)).read_text("utf-8") for file in files
                ]
                quota, period = map(int, " ".join(texts).split())
                found.append(quota / period if quota > 0 else math.inf)
    return math.ceil(min(found))
