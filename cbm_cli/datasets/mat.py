"""MAT files of versions 4 to 7, read by SciPy in a process of its own, which damaged ones can crash."""

import io
import subprocess
import sys

from numpy.typing import NDArray

from cbm_cli.arrays import MOST_BYTES, check_size, read_npz

_SECONDS = 300  # that reading may take
_READ = """
import io, sys
import numpy
from scipy.io import loadmat
from scipy.sparse import issparse

most = int(sys.argv[1])
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (4 * most + 2**31,) * 2)
except (ImportError, ValueError, OSError):
    pass

def limited(size):
    if size > most:
        print(size, file=sys.stderr)
        sys.exit(3)

def filled(array):
    array.check_format(full_check=True)  # damaged ones write to memory that is not their own
    limited(array.shape[0] * array.shape[1] * array.dtype.itemsize)
    return array.toarray()

found = loadmat(io.BytesIO(sys.stdin.buffer.read()))
arrays = {name: filled(one) if issparse(one) else one for name, one in found.items() if name[:2] != "__"}
plain = {name: array for name, array in arrays.items() if array.dtype.kind in "biufU"}
limited(sum(array.nbytes for array in plain.values()))
stream = io.BytesIO()
numpy.savez(stream, **plain)
sys.stdout.buffer.write(stream.getbuffer())
"""


def read_mat(content: bytes) -> dict[str, NDArray]:
    """Return the numeric, sparse (filled up) and text arrays by name; ValueError or CbmError for damage."""
    command = [sys.executable, "-P", "-c", _READ, str(MOST_BYTES)]
    try:
        found = subprocess.run(command, input=content, capture_output=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ValueError(f"no end of reading after {_SECONDS} s") from None
    if found.returncode:
        said = found.stderr.decode("utf-8", "replace").strip().splitlines()
        if found.returncode == 3:
            check_size(int(said[-1]))
        raise ValueError(said[-1] if said and found.returncode > 0 else "SciPy crashed")
    return read_npz(io.BytesIO(found.stdout))
