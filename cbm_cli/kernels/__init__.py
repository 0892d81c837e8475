"""Every compiled function: random numbers, units, products, sampling, gradients,
training, log Z.

Arrays are float32, C-contiguous, (row, unit); the paper's letters W b c mu lam are the
machine's parameters and offsets. Kernels release the GIL and allocate nothing, but for
the few that are marked `allocating`: Python makes records of work arrays for them
(`memory`). `cbm_cli.reference` has the same equations in plain NumPy; kernels name the
function that they are tested against.
"""

import hashlib
from functools import cache
from pathlib import Path

from cbm_cli.version import __version__

# Part of every run-id. Bumped when a golden value moves (tests/golden), whatever moved
# it: kernels, start or trial (docs/decisions/0020-kernel-version.md).
# 1: cbm 0.1.0
# 2: binary rows are added up instead of multiplied, which moves last bits; the deeper
#    even layers of a deep machine follow the sliding factor of hidden units, not of
#    visible ones; seeds from 2^63 on are whole
# 3: means over rows are summed in float64, and the hidden bias takes the step of all
#    visible units at once, which moves last bits; the offsets of the deeper even layers
#    take means of probabilities, as other hidden layers do
# 4: offsets take the means of sampled visible units, so that aa^b is the enhanced
#    gradient again; natural gradients are float64
# 5: more is proved of log Z, by independent units and by sums over few units
KERNEL_VERSION = 5


@cache
def source_hash(folder: Path = Path(__file__).parent) -> str:
    """Hash the version and all Python files of a package; by default of the kernels.

    An installation without sources has compiled files, which are hashed instead.
    """
    digest = hashlib.sha256(f"{__version__} {KERNEL_VERSION}".encode())
    sources = sorted(folder.rglob("*.py")) or sorted(folder.rglob("*.pyc"))
    for source in sources:
        digest.update(
            f"\n{source.relative_to(folder)}\n".encode() + source.read_bytes()
        )
    return digest.hexdigest()[:12]
