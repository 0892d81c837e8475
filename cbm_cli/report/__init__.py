"""Pictures of results."""

import os
import sys
from contextlib import suppress

# Pictures are files and need no backend, but Matplotlib is not imported where MPLBACKEND names none it knows.
if "matplotlib" not in sys.modules and "MPLBACKEND" in os.environ:
    backend = os.environ.pop("MPLBACKEND")
    import matplotlib

    os.environ["MPLBACKEND"] = backend
    with suppress(ValueError):
        matplotlib.rcParams["backend"] = backend
