"""A program that runs a grid again and again in forks of itself, each with another fault of the disk.

Usage: faulty_disk.py FOLDER, with a grid.yaml there; it writes FOLDER/NAME/out and FOLDER/NAME/said.
"""

import errno
import os
import resource
import signal
import sys
from pathlib import Path

from cbm_cli.cli import main

KILLS = [f"{call}-{number}" for call in ("fsync", "replace") for number in range(1, 9)]
ERRORS = ["fsync-ENOSPC", "fsync-EDQUOT", "fsync-EIO", "replace-ENOSPC", "replace-EPERM"]
FULL, READ_ONLY = "full", "EROFS"
GRID = Path(sys.argv[-1]).absolute() / "grid.yaml"
COMMAND = ["run", str(GRID), "-o", "out", "-j", "0", "--no-table"]


def break_disk(fault):
    """Make calls of `os` fail from the third on, kill this process at one of them, or limit files."""
    call, _, how = fault.partition("-")
    if fault == FULL:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))
        return
    call, how = ("mkdir", READ_ONLY) if fault == READ_ONLY else (call, how)
    real, calls = getattr(os, call), []

    def broken(*arguments, **keywords):
        calls.append(arguments)
        if how.isdigit() and len(calls) == int(how):
            os.kill(os.getpid(), signal.SIGKILL)
        if not how.isdigit() and len(calls) > 2 * (fault != READ_ONLY):
            number = getattr(errno, how)
            raise OSError(number, os.strerror(number))
        return real(*arguments, **keywords)

    setattr(os, call, broken)


def run_forked(folder, fault):
    """Run the grid in a child process with a fault; return its exit code."""
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        with open("said", "w") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        break_disk(fault)
        main(COMMAND)
        os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    main([*COMMAND, "-o", "warm"], standalone_mode=False)  # before the forks, which are then fast
    for fault in (*KILLS, *ERRORS, FULL, READ_ONLY):
        folder = Path(fault)
        folder.mkdir()
        code = run_forked(folder, fault)
        (folder / "code").write_text(str(code))
