"""Every compiled function: random numbers, units, sweeps, gradients, training, partition function.

Arrays are float32, C-contiguous, (row, unit); the paper's letters W b c mu lam stand for the
machine's parameters and offsets. All kernels release the GIL and allocate nothing in an update.
"""

import hashlib
from pathlib import Path


def _hash_of_sources() -> str:
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode() + source.read_bytes())
    return digest.hexdigest()[:12]


KERNEL_HASH = _hash_of_sources()
"""Changes when any kernel does: part of every run-id, and the name of the folder of machine code."""
