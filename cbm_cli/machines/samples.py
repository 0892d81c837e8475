"""Samples of a Boltzmann machine: exact ones, or of chains by Gibbs sampling or parallel tempering."""

import io
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cbm_cli.errors import CbmError
from cbm_cli.grid.names import Sampler
from cbm_cli.kernels.machine import Array, Machine, Rows
from cbm_cli.kernels.plan import Plan, plain_plan
from cbm_cli.kernels.random import SAMPLER
from cbm_cli.kernels.sampling import draw_samples, make_chains
from cbm_cli.machines import streams
from cbm_cli.machines.files import Flat
from cbm_cli.machines.gradients import free_energy, hidden_mean, states
from cbm_cli.machines.threads import one_thread
from cbm_cli.results.files import write_atomically


class Samples(NamedTuple):
    """n samples of the visible layer, and the hidden states that they were drawn from."""

    samples: Rows  # (n, n_0)
    means: Array  # (n, n_0) p(x = 1 | hidden)
    hidden: Rows  # (n, M') of a deep machine the odd layers side by side


def exact_samples(machine: tuple[Array, Array, Array], count: int, seed: int) -> Array:
    """Draw independent samples (count, N) by listing the states of the smaller side (up to 2^20)."""
    W, b, c = (array.astype(np.float64) for array in machine)
    random = streams.generator(seed, streams.EXACT_SAMPLES)
    few, many, across = (c, b, W.T) if len(c) <= len(b) else (b, c, W)
    listed = states(len(few))
    scores = np.concatenate([-free_energy(across, few, many, part) for part in np.array_split(listed, 64)])
    p = np.exp(scores - scores.max())
    drawn = listed[random.choice(len(p), size=count, p=p / p.sum())]
    if len(c) > len(b):
        return drawn.astype(np.float32)
    means = hidden_mean(W.T, b, drawn)
    return (random.random(means.shape) < means).astype(np.float32)


def parse_sampler(text: str) -> Sampler:
    """Read ``gibbs``, ``PT_c`` or ``PT_c-k``; raise CbmError for the rest."""
    if text == "gibbs":
        return Sampler()
    if not re.fullmatch(r"PT_\d{1,6}(-\d{1,6})?", text):
        raise CbmError(f"--sampler {text}: unknown; write gibbs, PT_c or PT_c-k, as in PT_10")
    return Sampler.parse(text)


def draw(
    machine: Flat,
    sampler: Sampler,
    count: int,
    *,
    chains: int,
    steps: int,
    seed: int,
    start: tuple[Rows, float] | None = None,
) -> Samples:
    """Draw samples from chains that run side by side; same arguments, same bytes.

    Before each sample a chain makes ``steps`` sweeps. It then gives h from p(h | x), the means p(x = 1 | h),
    and a sample of them; the chain itself goes on from x. Sample i is of chain i % chains; those of different
    chains are independent.

    Parameters
    ----------
    sampler : Sampler
        From `parse_sampler`; a tempered ladder counts as one chain.
    start : (rows, unit), optional
        Rows (n, n_0) uint8 and the value of one level, as from ``load_rows``. Chains start at a random choice
        of them, grey values taken as probabilities, other units of x as fair coins; by default at random
        hidden states.

    Raises
    ------
    CbmError
        Rows of another width than the machine, or samples that do not fit into memory.
    """
    W, b, c = machine.plain
    chains, random = min(chains, count), streams.generator(seed, streams.SAMPLES)
    changes = {"ladders": chains, "temperatures": sampler.temperatures, "steps": sampler.steps}
    plan = plain_plan(len(b), len(c), seed, chains, **changes)
    try:
        h = np.empty((chains, sampler.temperatures, len(c)), np.float32)
        h[:] = _first_states(machine, start, chains, random)[:, None]
        plain = Machine(W, b, c, np.zeros_like(b), np.zeros_like(c))
        with one_thread():
            found = _room(count, machine.sizes[0], len(c))
            return _collect(plain, h.reshape(-1, len(c)), plan, found, steps, random)
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
    machine: Flat, start: tuple[Rows, float] | None, chains: int, random: np.random.Generator
) -> Array:
    """Hidden states (chains, M') before the first sweep: fair coins, or drawn given rows of data."""
    (W, _, c), n_visible = machine.plain, machine.sizes[0]
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
    types = np.uint8, np.float32, np.uint8
    return Samples(*(np.empty((n, m), t) for m, t in zip((visible, visible, hidden), types, strict=True)))


def _collect(
    machine: Machine, h: Array, plan: Plan, found: Samples, steps: int, random: np.random.Generator
) -> Samples:
    """Sweep the chains and read them out until the room for samples is full."""
    (n, m), count = machine.W.shape, len(found.samples)
    x, to_h = np.empty((plan.batch, n), np.float32), np.empty((plan.batch, m), np.float32)
    ladders = make_chains(h, plan, x, to_h)
    for turn, first in enumerate(range(0, count, plan.batch)):
        for sweep in range(turn * steps, (turn + 1) * steps):
            draw_samples(machine, ladders, plan, SAMPLER, sweep, x, to_h)
        out = Samples(*(array[first : first + len(x)] for array in found))
        _read_out(machine, x[: count - first], random, out)
    return found


def _read_out(machine: Machine, x: Array, random: np.random.Generator, out: Samples) -> None:
    """Fill ``out`` with one Gibbs step from x (n, N), of which out may have the first units alone."""
    n_visible = out.samples.shape[1]
    out.hidden[:] = random.random(out.hidden.shape) < expit(x @ machine.W + machine.c)
    out.means[:] = expit(out.hidden @ machine.W[:n_visible].T + machine.b[:n_visible])
    out.samples[:] = random.random(out.samples.shape) < out.means
