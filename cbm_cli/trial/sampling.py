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
from cbm_cli.kernels.random import SAMPLER
from cbm_cli.kernels.state import Array, Plan, Rows, State, plain_plan, plain_state
from cbm_cli.kernels.sweep import draw_samples, make_ladder
from cbm_cli.results import PlainMachine
from cbm_cli.results.files import write_atomically


class Samples(NamedTuple):
    """Joint samples of both layers: samples (n, N) uint8, means (n, N) = p(x = 1 | hidden), hidden (n, M).

    Of a flattened deep machine the visible layer in place of all N units; hidden are the odd layers.
    """

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
    n_visible: int | None = None,
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
        Rows (n, n_visible) uint8 and the value of one level, as from ``load_rows``. Chains start at a
        random choice of them, grey values taken as probabilities, other units of x as fair coins; by default
        at random hidden states.
    n_visible : int, optional
        Of a flattened deep machine: the first units of x, which are its visible layer; default: all.

    Raises
    ------
    CbmError
        Rows of another width than the machine, or samples that do not fit into memory.
    """
    W, b, c = (np.ascontiguousarray(array, dtype=np.float32) for array in machine)
    n_visible = n_visible or len(b)
    chains, random = min(chains, count), np.random.Generator(np.random.Philox(key=[seed, 6]))
    try:
        changes = {"ladders": chains, "temperatures": sampler.temperatures, "steps": sampler.steps}
        plan = plain_plan(len(b), len(c), seed, chains, **changes)
        h = np.empty((chains, sampler.temperatures, len(c)), np.float32)
        h[:] = _first_states((W, c), n_visible, start, chains, random)[:, None]
        state = plain_state(W, b, c, h.reshape(-1, len(c)))
        with threadpool_limits(1):
            return _collect(state, plan, _room(count, n_visible, len(c)), steps, random)
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
    machine: tuple[Array, Array],
    n_visible: int,
    start: tuple[Rows, float] | None,
    chains: int,
    random: np.random.Generator,
) -> Array:
    """Hidden states (chains, M) before the first sweep: fair coins, or drawn given rows of data."""
    W, c = machine
    p: NDArray | float = 0.5
    if start is not None:
        rows, unit = start
        if rows.shape[1] != n_visible:
            raise CbmError(f"the data have {rows.shape[1]} columns, the machine {n_visible} visible units")
        grey = np.full((chains, len(W)), 0.5)
        grey[:, :n_visible] = unit * rows[np.resize(random.permutation(len(rows)), chains)]
        p = expit((random.random(grey.shape) < grey).astype(np.float32) @ W + c)
    return (random.random((chains, len(c))) < p).astype(np.float32)


def _room(n: int, visible: int, hidden: int) -> Samples:
    return Samples(
        np.empty((n, visible), np.uint8),
        np.empty((n, visible), np.float32),
        np.empty((n, hidden), np.uint8),
    )


def _collect(state: State, plan: Plan, found: Samples, steps: int, random: np.random.Generator) -> Samples:
    """Sweep the chains and read them out until the room for samples is full."""
    (n, m), count = state.W.shape, len(found.samples)
    x, to_h = np.empty((plan.batch, n), np.float32), np.empty((plan.batch, m), np.float32)
    ladder = make_ladder(state.h, plan, x, to_h)
    for turn, first in enumerate(range(0, count, plan.batch)):
        for sweep in range(turn * steps, (turn + 1) * steps):
            draw_samples(*state[:3], ladder, plan.seed, SAMPLER, sweep, x, to_h)
        _read_out(
            state, x[: count - first], random, Samples(*(array[first : first + len(x)] for array in found))
        )
    return found


def _read_out(state: State, x: Array, random: np.random.Generator, out: Samples) -> None:
    """Fill ``out`` with one Gibbs step from x (n, N), of which out may have the first units alone."""
    n_visible = out.samples.shape[1]
    out.hidden[:] = random.random(out.hidden.shape) < expit(x @ state.W + state.c)
    out.means[:] = expit(out.hidden @ state.W[:n_visible].T + state.b[:n_visible])
    out.samples[:] = random.random(out.samples.shape) < out.means
