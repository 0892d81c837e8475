"""Machines of several layers, and their centered energy."""

import itertools

import numpy as np
from cbm_cli.reference import states

# Layers, the visible one first
RBM, TWO, THREE, FOUR = (4, 3), (5, 4, 3), (4, 3, 3, 2), (3, 2, 3, 2, 2)


def layered(layers, seed, scale=1.0):
    """Weights, biases and offsets of every layer, of the centered energy."""
    rng = np.random.default_rng(seed)
    weights = [
        scale * rng.standard_normal(shape) for shape in itertools.pairwise(layers)
    ]
    biases = [scale * rng.standard_normal(n) for n in layers]
    return weights, biases, [rng.random(n) for n in layers]


def layered_energy(machine, layer_states):
    """The centered energy; of many states if units are rows of their values."""
    weights, biases, offsets = machine
    x = [
        (np.asarray(state).T - mu).T
        for state, mu in zip(layer_states, offsets, strict=True)
    ]
    energy = -sum(bias @ units for bias, units in zip(biases, x, strict=True))
    for W, (below, above) in zip(weights, itertools.pairwise(x), strict=True):
        energy = energy - np.einsum("i...,ij,j...", below, W, above)
    return energy


def machine_file(machine, kind="dbm", **changes):
    """Arrays of a machine file; ``changes`` replace arrays, or remove them by None."""
    named = zip(("weights", "biases", "offsets"), machine, strict=True)
    arrays = {
        f"{name}_{layer}": array for name, of in named for layer, array in enumerate(of)
    }
    arrays = {"kind": np.array(kind)} | arrays | changes
    return {name: array for name, array in arrays.items() if array is not None}


def file_of(layers, kind, /, seed=1, **changes):
    """Arrays of a random machine file of any kind, with offsets; changes as above."""
    rng = np.random.default_rng(seed + 100)
    inner = [*enumerate(layers)][1:-1] if kind == "auto-encoder" else []
    decoder = {f"decoder_biases_{layer}": rng.standard_normal(n) for layer, n in inner}
    decoder |= {f"decoder_offsets_{layer}": rng.random(n) for layer, n in inner}
    arrays = machine_file(layered(layers, seed), kind, **decoder) | changes
    return {name: array for name, array in arrays.items() if array is not None}


# Arrays of a machine of 4-1-1 units whose mean field does not settle: the mean m = 2 p
# - 1 of both hidden units follows m <- tanh(m) and falls like sqrt(3 / 4n), so that p
# still moves by 2e-4 in round 100
SLOW = {
    "weights_0": np.zeros((4, 1)),
    "weights_1": np.full((1, 1), 4.0),
    "biases_1": np.array([2.0]),
}

SLOW |= {
    "biases_2": np.array([-2.0]),
    "offsets_1": np.zeros(1),
    "offsets_2": np.ones(1),
}


def visible_rows(layers):
    return states(layers[0]).astype(np.uint8)


def all_states(layers):
    """All states of all layers, each a row for each unit."""
    return np.split(states(sum(layers)).T, np.cumsum(layers)[:-1])


def brute_log_likelihoods(machine, layers):
    weight = np.exp(-layered_energy(machine, all_states(layers)))
    return np.log(weight.reshape(-1, 2 ** layers[0]).sum(axis=0) / weight.sum())
