"""Every compiled function: random numbers, units, sweeps, gradients, training, partition function.

Arrays are float32, C-contiguous, (row, unit); the paper's letters W b c mu lam stand for the
machine's parameters and offsets. All kernels release the GIL and allocate nothing in an update.
"""

from cbm_cli.kernels.compiling import KERNEL_HASH

__all__ = ["KERNEL_HASH"]
