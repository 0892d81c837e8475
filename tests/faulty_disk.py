"""A program that runs a grid again and again in forks of itself, each with another fault of the disk.

Usage: faulty_disk.py FOLDER FAULT..., with FOLDER/grid.yaml; it writes FOLDER/FAULT/out, code and said.
"""

import errno
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path

from cbm_cli.cli import main
from cbm_cli.results import Store, journal

CALLS = {"fsync": 8, "replace": 5}  # of a run at least
KILLS = [f"{call}-{number}" for call, calls in CALLS.items() for number in range(1, calls + 1)]
ERRORS = ["fsync-ENOSPC", "fsync-EDQUOT", "fsync-EIO", "replace-ENOSPC", "replace-EPERM"]
FULL, READ_ONLY, FLUSH = "full", "EROFS", "flush"
SECOND = 0.5  # between two flushes, where flushes fail
GRID = Path(*sys.argv[1:2]).absolute() / "grid.yaml"
COMMAND = ["run", str(GRID), "-o", "out", "-j", "0"]


def break_disk(fault):
    """Make calls of `os` fail from the third on, kill this process at one of them, or limit files."""
    if fault == FULL:
        return resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))
    call, _, how = ("mkdir-" * (fault == READ_ONLY) + fault).partition("-")
    real, calls = getattr(os, call), []

    def broken(*arguments, **keywords):
        calls.append(arguments)
        if how == str(len(calls)):
            os.kill(os.getpid(), signal.SIGKILL)
        if not how.isdigit() and len(calls) > 2 * (fault != READ_ONLY):
            number = getattr(errno, how)
            raise OSError(number, os.strerror(number))
        return real(*arguments, **keywords)

    return setattr(os, call, broken)


def fail_for_a_while():
    """Make fsync fail for two flushes, the second and the third; three flushes later kill this process.

    The file "finished" gets the time at which each trial is finished, and at the end that of the death.
    """
    real, write, began = os.fsync, Store.write, []
    journal.FLUSH_EVERY = SECOND

    def broken(handle):
        if not began:
            began.append(time.monotonic())
            threading.Timer(6 * SECOND, die).start()
        if 1 < (time.monotonic() - began[0]) / SECOND < 3:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(handle)

    def note(line):
        with open("finished", "a") as stream:
            stream.write(f"{line} {time.monotonic()}\n")

    def die():
        note("died at")
        os.kill(os.getpid(), signal.SIGKILL)

    def noted(self, run_id, trial, *others):
        write(self, run_id, trial, *others)
        note(f"{run_id} {trial.number}")

    os.fsync, Store.write = broken, noted


def run_forked(fault):
    """Run the grid in a child process with a fault, in a folder of its name; return its exit code."""
    child = os.fork()
    if child == 0:
        os.chdir(fault)
        with open("said", "w") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        fail_for_a_while() if fault == FLUSH else break_disk(fault)
        main(COMMAND)
        os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    warm = ["warm" if word == "out" else word for word in COMMAND] + ["--trials", "1"]
    main(warm, standalone_mode=False)  # before the forks, which are then fast
    for fault in sys.argv[2:]:
        Path(fault).mkdir()
        Path(fault, "code").write_text(str(run_forked(fault)))
