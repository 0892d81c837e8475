"""For the server that forks workers: it loads the machine code of RBMs first, if that
is compiled.
"""

from contextlib import suppress

from cbm_cli.execution.precompile import MARKS, run_tiny

with suppress(Exception):  # workers have the error, too, and say so
    if any(MARKS.glob("compiled-rbm-*")):
        run_tiny()
