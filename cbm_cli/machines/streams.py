"""Streams of random numbers that NumPy draws from one seed, by purpose.

A stream is a Philox generator with the key (seed, number of the stream). Compiled kernels use sites instead,
see `cbm_cli.kernels.random`.
"""

import numpy as np

START = 1  # initial weights
CHAINS = 2  # initial states of the chains
AIS_START = 3  # states that annealing starts from
EXACT_SAMPLES = 4
SUBSAMPLE = 5  # rows that are evaluated
SAMPLES = 6  # of cbm sample
BOUNDS = 7  # samples of the tighter bound
UNITS = 8  # units that are drawn
HELD_OUT = 9  # rows that a classifier is tested on


def generator(seed: int, stream: int) -> np.random.Generator:
    """Return the generator of a stream; the same seed (64 bits) and stream give the same numbers."""
    key = np.array([seed, stream], np.uint64)  # a list would become floats for seeds from 2^63 on
    return np.random.Generator(np.random.Philox(key=key))
