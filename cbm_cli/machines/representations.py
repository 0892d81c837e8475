"""Filters of a machine, the activity of its hidden units, representations of data."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cbm_cli.errors import CbmError
from cbm_cli.kernels.layout import Layout
from cbm_cli.kernels.memory import Array, Rows
from cbm_cli.kernels.plan import ROUNDS, TOLERANCE
from cbm_cli.machines import streams
from cbm_cli.machines.bounds import posterior_of
from cbm_cli.machines.models import Layered, flatten
from cbm_cli.reference import sigmoid
from cbm_cli.text import count

# A unit with a mean activity outside is nearly always off, or on
BALANCED = (0.05, 0.95)
# Rows at a time: enough for fast products, few to wait for the slowest of them
_BLOCK = 1_000


# Filters


def filters(machine: Layered) -> list[Array]:
    """Return filters of each unit of each hidden layer, (n_l, n_0): columns of W_0, W_0
    W_1, and so on.

    The products project filters of higher layers linearly back to the visible one (the
    paper's Fig. 15).
    """
    projected = [machine.weights[0]]
    for W in machine.weights[1:]:
        projected.append(projected[-1] @ W)  # (n_0, n_l) @ (n_l, n_{l+1})
    return [np.ascontiguousarray(product.T, dtype=np.float32) for product in projected]


def chosen(sizes: Sequence[int], most: int, seed: int) -> list[NDArray[np.int64]]:
    """Choose ``most`` units of each layer at random, in order; all where it has no
    more.
    """
    random = streams.generator(seed, streams.UNITS)
    return [np.sort(random.permutation(n)[:most]) for n in sizes]


def layer_of(machine: Layered, layer: int | None) -> int:
    """Return the hidden layer to show, from 1: the one that is asked for, else the
    last; CbmError if none.
    """
    layers = len(machine.sizes) - 1
    if layer is None:
        return layers
    if not 1 <= layer <= layers:
        depth = count(layers, "hidden layer")
        raise CbmError(f"--layer {layer}: the machine has {depth}")
    return layer


# Representations


def represent(
    machine: Layered, rows: Rows, unit: float = 1.0
) -> tuple[list[Array], int]:
    """Return activities of each hidden layer given rows (n, n_0), float32, and how many
    rows did not settle.

    For Boltzmann machines: the means of p(h | x), by mean field if there are several
    hidden layers; for auto encoders: the outputs of the encoder's layers. ``unit`` is
    the value of one level of the rows. CbmError for rows of another width.
    """
    columns, visible = rows.shape[1], machine.sizes[0]
    if columns != visible:
        raise CbmError(
            f"the data has {columns} columns, the machine {visible} visible units"
        )
    blocks, unsettled = [], 0
    for start in range(0, len(rows), _BLOCK):
        x = rows[start : start + _BLOCK] * np.float32(unit)
        if machine.kind == "auto-encoder":
            layers, of_block = _encoded(machine, x), 0
        else:
            layers, of_block = hidden_means(machine, x)
        blocks.append(layers)
        unsettled += of_block
    return [
        np.concatenate(of_layer) for of_layer in zip(*blocks, strict=True)
    ], unsettled


def _encoded(machine: Layered, x: Array) -> list[Array]:
    """Outputs of the encoder's layers, Eq. (16)."""
    layers = [x]
    for W, b in zip(machine.weights, machine.biases[1:], strict=True):
        to_layer = layers[-1] @ W.astype(np.float32) + b.astype(np.float32)
        layers.append(sigmoid(to_layer))
    return layers[1:]


def hidden_means(
    machine: Layered, x: Array, tolerance: float = TOLERANCE, rounds: int = ROUNDS
) -> tuple[list[Array], int]:
    """Return the means of each hidden layer given x (n, n_0), (n, n_l), and how many
    rows did not settle.

    By mean field from the machine's offsets; with one hidden layer exactly, Eq. (6).
    """
    means = posterior_of(flatten(machine), x, tolerance, rounds)
    even = np.hstack([x, means.deep])
    layers = Layout(machine.sizes).layers(even, means.odd)
    return layers[1:], means.unsettled


# Activity


def unbalanced(means: NDArray) -> float:
    """Return the share of units that are nearly always off, or on: mean activity
    outside [0.05, 0.95].

    Examples
    --------
    >>> unbalanced(np.array([0.01, 0.5, 0.99, 0.3]))
    0.5
    """
    return float(((means < BALANCED[0]) | (means > BALANCED[1])).mean())
