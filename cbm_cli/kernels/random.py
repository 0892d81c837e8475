"""Random numbers as a pure function of (seed, update, site, index): Philox4x32-10.

Salmon, Moraes, Dror & Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3". The
counter is (block, update mod 2^32, site, update / 2^32), the key is the trial's 64-bit
seed.
"""

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.compiling import inlined, lean, merged

Word = np.uint64  # a 32-bit word, in 64 bits so that products fit

# Sites: what a number is drawn for; of a second sampler that only the offsets see the
# ones that end in _ASIDE
SAMPLER, SHUFFLE, NOISE, RESTART, SAMPLER_ASIDE, RESTART_ASIDE = range(6)

_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_8 = np.uint32(8)
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
# what is added to the two words of the key in each of the ten rounds
_KEY_0 = tuple(np.uint64(0x9E3779B9 * k) for k in range(10))
_KEY_1 = tuple(np.uint64(0xBB67AE85 * k) for k in range(10))


@inlined
def _round(counter, k0, k1):
    c0, c1, c2, c3 = counter
    p0 = _M0 * c0
    p1 = _M1 * c2
    first = (p1 >> _32) ^ c1 ^ (k0 & _LOW)
    third = (p0 >> _32) ^ c3 ^ (k1 & _LOW)
    return first, p1 & _LOW, third, p0 & _LOW


@inlined
def philox_block(
    block: int, update: int, site: int, seed: np.uint64
) -> tuple[Word, Word, Word, Word]:
    """Return the four 32-bit words of a block, all as uint64.

    The ten rounds are written out: only then does the loop over blocks around them
    vectorise. Multiplications are fast where the compiler sees that no word has more
    than 32 bits.
    """
    k0, k1 = seed & _LOW, seed >> _32
    low, high = np.uint64(update) & _LOW, np.uint64(update) >> _32
    counter = np.uint64(block) & _LOW, low, np.uint64(site) & _LOW, high
    counter = _round(counter, k0, k1)
    counter = _round(counter, k0 + _KEY_0[1], k1 + _KEY_1[1])
    counter = _round(counter, k0 + _KEY_0[2], k1 + _KEY_1[2])
    counter = _round(counter, k0 + _KEY_0[3], k1 + _KEY_1[3])
    counter = _round(counter, k0 + _KEY_0[4], k1 + _KEY_1[4])
    counter = _round(counter, k0 + _KEY_0[5], k1 + _KEY_1[5])
    counter = _round(counter, k0 + _KEY_0[6], k1 + _KEY_1[6])
    counter = _round(counter, k0 + _KEY_0[7], k1 + _KEY_1[7])
    counter = _round(counter, k0 + _KEY_0[8], k1 + _KEY_1[8])
    return _round(counter, k0 + _KEY_0[9], k1 + _KEY_1[9])


@lean
def fill_words(
    words: NDArray[np.uint32], seed: np.uint64, update: int, site: int, first_block: int
) -> None:
    """Fill ``words`` (uint32, length a multiple of 4) with blocks first_block,
    first_block + 1, ...
    """
    for block in range(words.size // 4):
        w0, w1, w2, w3 = philox_block(first_block + block, update, site, seed)
        words[4 * block] = np.uint32(w0)
        words[4 * block + 1] = np.uint32(w1)
        words[4 * block + 2] = np.uint32(w2)
        words[4 * block + 3] = np.uint32(w3)


@merged
def fill_uniform(
    u: NDArray[np.float32], seed: np.uint64, update: int, site: int, first_block: int
) -> None:
    """Fill ``u`` (float32, length a multiple of 4) with uniform numbers in [0, 1):
    (word >> 8) 2^-24.
    """
    scale = np.float32(2.0**-24)
    for block in range(u.size // 4):
        w0, w1, w2, w3 = philox_block(first_block + block, update, site, seed)
        u[4 * block] = np.float32(np.int32(np.uint32(w0) >> _8)) * scale
        u[4 * block + 1] = np.float32(np.int32(np.uint32(w1) >> _8)) * scale
        u[4 * block + 2] = np.float32(np.int32(np.uint32(w2) >> _8)) * scale
        u[4 * block + 3] = np.float32(np.int32(np.uint32(w3) >> _8)) * scale
