"""A program that runs a grid in forks of itself, each with another fault of the disk.

Usage: faulty_disk.py FOLDER FAULT..., with FOLDER/grid.yaml; writes FOLDER/FAULT/out,
code, said.
"""

import errno
import os
import resource
import signal
import sys
from pathlib import Path

from cbm_cli.cli import main

CALLS = {"fsync": 8, "replace": 5}  # of a run at least
KILLS = [
    f"{call}-{number}"
    for call, calls in CALLS.items()
    for number in range(1, calls + 1)
]
ERRORS = [
    "fsync-ENOSPC",
    "fsync-EDQUOT",
    "fsync-EIO",
    "replace-ENOSPC",
    "replace-EPERM",
]
FULL, READ_ONLY = "full", "EROFS"
GRID = Path(*sys.argv[1:2]).absolute() / "grid.yaml"
COMMAND = ["run", str(GRID), "-o", "out", "-j", "0"]


def break_disk(fault):
    """Make calls of `os` fail from the third on, kill this process at one, or limit
    files.
    """
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


def run_forked(fault):
    """Run the grid in a child with a fault, in a folder of its name; return its exit
    code.
    """
    child = os.fork()
    if child == 0:
        os.chdir(fault)
        with open("said", "w") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        break_disk(fault)
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
