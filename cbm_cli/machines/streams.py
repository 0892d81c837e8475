"""Streams of random numbers that NumPy draws from one seed, by purpose.

A stream is a Philox generator with the key (seed, number of the stream). Compiled
kernels use sites instead, see `cbm_cli.kernels.random`.
"""

import numpy as np

START = 1  # initial weights
CHAINS = 2  # initial states of the chains
AIS_START = 3  # states that annealing starts from
SUBSAMPLE = 5  # rows that are evaluated
SAMPLES = 6  # of cbm sample
UNITS = 8  # units that are drawn
LAYERS = 10  # seeds of the layers of a pre-training
EVALUATIONS = 11  # seeds of the evaluations during a training
GIVEN = 15  # seeds of rows whose free units are sampled


def generator(seed: int, stream: int) -> np.random.Generator:
    """Return the generator of a stream; the same seed (64 bits) and stream give the
    same numbers.

    Examples
    --------
    >>> first, again = generator(7, START), generator(7, START)
    >>> first.random() == again.random() != generator(7, CHAINS).random()
    True
    """
    key = np.array(
        [seed, stream], np.uint64
    )  # a list would become floats for seeds from 2^63 on
    return np.random.Generator(np.random.Philox(key=key))


def seed_of(seed: int, stream: int, number: int = 0) -> int:
    """Return the seed (64 bits) of a part of a computation: the ``number``-th of a
    stream.

    Examples
    --------
    >>> seed_of(7, LAYERS) == seed_of(7, LAYERS, 1)
    False
    """
    key, counter = (
        np.array([seed, stream], np.uint64),
        np.array([number, 0, 0, 0], np.uint64),
    )
    return int(np.random.Philox(key=key, counter=counter).random_raw())
