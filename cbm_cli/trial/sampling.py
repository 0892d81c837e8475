"""Samples of a machine, by Gibbs sampling or parallel tempering: chains that are advanced together."""

import io
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  the BLAS of np.dot in kernels: loaded before threads are limited
from numpy.typing import NDArray
from scipy.special import expit
from threadpoolctl import threadpool_limits

from cbm_cli.errors import CbmError
from cbm_cli.grid.samplers import Sampler
from cbm_cli.kernels.state import Array, Mix, Plan, Rows, State, plain_state
from cbm_cli.kernels.sweep import draw_samples, make_ladder
from cbm_cli.results import PlainMachine
from cbm_cli.results.files import write_atomically

_NO_MIX = Mix(*np.zeros(4, np.float32))


class Samples(NamedTuple):
    """Joint samples of both layers: samples (n, N) uint8, means (n, N) = p(x = 1 | hidden), hidden (n, M)."""

    samples: Rows
    means: Array
    hidden: Rows


def parse_sampler(text: str) -> Sampler:
    """Read ``gibbs``, ``PT_c`` or ``PT_c-k``; raise CbmError for the rest."""
    if text == "gibbs":
        return Sampler()
    if not re.fullmatch(r"PT_\d{1,6}(-\d{1,6})?", text):
        raise CbmError(f"--sampler {text}: unknown; write gibbs, PT_c or PT_c-k, as in PT_10")
    return Sampler.parse(text)


def draw(
    machine: PlainMachine,
    sampler: Sampler,
    count: int,
    *,
    chains: int,
    steps: int,
    seed: int,
    start: tuple[Rows, float] | None = None,
) -> Samples:
    """Draw samples from chains that run side by side; same arguments, same bytes.

    A chain makes ``steps`` sweeps before each sample it gives, the first included. It then gives h from
    p(h | x), the means p(x = 1 | h), and a sample of them; the chain itself goes on from x.

    Parameters
    ----------
    machine : PlainMachine
        Rounded to float32 for the sweeps.
    sampler : Sampler
        From `parse_sampler`; a tempered ladder counts as one chain.
    count : int
        Samples; number i is of chain i % chains.
    chains : int
        Samples of different chains are independent.
    start : (rows, unit), optional
        Rows (n, N) uint8 and the value of one level, as from ``load_rows``. Chains start at a random
        choice of them, grey values taken as probabilities; by default at uniformly random states.

    Raises
    ------
    CbmError
        Rows of another width than the machine, or samples that do not fit into memory.
    """
    W, b, c = (np.ascontiguousarray(array, dtype=np.float32) for array in machine)
    chains, random = min(chains, count), np.random.Generator(np.random.Philox(key=[seed, 6]))
    try:
        plan = _plan(sampler, chains, seed)
        x = np.empty((chains, sampler.temperatures, len(b)), np.float32)
        x[:] = _first_states(start, chains, len(b), random)[:, None]
        state = plain_state(W, b, c, x.reshape(-1, len(b)))
        with threadpool_limits(1):
            return _collect(state, plan, count, steps, random)
    except MemoryError:
        raise CbmError(
            f"{count} samples of {chains} chains do not fit into memory; lower --count or --chains"
        ) from None


def write_samples(path: Path, samples: Samples) -> None:
    """Write samples, means and hidden as arrays of an NPZ file."""
    stream = io.BytesIO()
    np.savez_compressed(stream, **samples._asdict())
    write_atomically(path, stream.getvalue())


def _first_states(
    start: tuple[Rows, float] | None, chains: int, width: int, random: np.random.Generator
) -> Array:
    """Visible states (chains, N) before the first sweep."""
    p: NDArray | float = 0.5
    if start is not None:
        rows, unit = start
        if rows.shape[1] != width:
            raise CbmError(f"the data have {rows.shape[1]} columns, the machine {width} visible units")
        p = unit * rows[np.resize(random.permutation(len(rows)), chains)]
    return (random.random((chains, width)) < p).astype(np.float32)


def _collect(state: State, plan: Plan, count: int, steps: int, random: np.random.Generator) -> Samples:
    """Sweep the chains and read them out until there are ``count`` samples."""
    n, m = state.W.shape
    found = Samples(
        np.empty((count, n), np.uint8), np.empty((count, n), np.float32), np.empty((count, m), np.uint8)
    )
    ladder, x = make_ladder(state, plan), np.empty((plan.batch, n), np.float32)
    for turn, first in enumerate(range(0, count, plan.batch)):
        for sweep in range(turn * steps, (turn + 1) * steps):
            draw_samples(state, ladder, plan, sweep, x)
        _read_out(
            state, x[: count - first], random, Samples(*(array[first : first + len(x)] for array in found))
        )
    return found


def _read_out(state: State, x: Array, random: np.random.Generator, out: Samples) -> None:
    """Fill ``out`` with one Gibbs step from x (n, N)."""
    out.hidden[:] = random.random(out.hidden.shape) < expit(x @ state.W + state.c)
    out.means[:] = expit(out.hidden @ state.W.T + state.b)
    out.samples[:] = random.random(out.samples.shape) < out.means


def _plan(sampler: Sampler, chains: int, seed: int) -> Plan:
    """A plan of one sweep of all chains at a time; what only training reads is zero."""
    zero = np.float32(0)
    return Plan(
        seed=np.uint64(seed),
        learning_rate=zero,
        sliding_visible=zero,
        sliding_hidden=zero,
        visible_mix=_NO_MIX,
        hidden_mix=_NO_MIX,
        offsets_before=False,
        batch=chains,
        batches=1,
        shuffled=False,
        unit=np.float32(1),
        ladders=chains,
        temperatures=sampler.temperatures,
        steps=sampler.steps,
        restart=False,
        exact=False,
        fast_learning_rate=zero,
        fast_decay=zero,
    )
