"""Samples of a Boltzmann machine: exact, or from chains by Gibbs sampling or parallel
tempering.

Given some units of x, a Boltzmann machine is a smaller one: what they add to the
activations of h becomes a part of its biases. Rows are therefore completed by samples
of such a machine, drawn as those of any.
"""

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from cbm_cli.errors import CbmError
from cbm_cli.grid.names import Sampler
from cbm_cli.kernels.machine import Array, Machine, Rows
from cbm_cli.kernels.plan import Plan, plain_plan
from cbm_cli.kernels.sampling import advance_chains, make_chains
from cbm_cli.machines import streams
from cbm_cli.machines.models import Flat
from cbm_cli.machines.threads import one_thread
from cbm_cli.reference import free_energy, states, visible_mean
from cbm_cli.results.writing import write_atomically
from cbm_cli.text import count as counted

CHAINS = 100  # side by side, unless fewer samples are asked for


class Samples(NamedTuple):
    """n samples of the visible layer, and the hidden states that they were drawn
    from.
    """

    samples: Rows  # (n, n_0)
    means: Array  # (n, n_0) p(x = 1 | hidden)
    hidden: Rows  # (n, M'); in a deep machine the odd layers side by side


def exact_samples(machine: tuple[Array, Array, Array], count: int, seed: int) -> Array:
    """Draw independent samples (count, N) of p(x): states of the smaller side by their
    weights, then Eq. (5).

    All 2^min(N, M) states are listed.
    """
    W, b, c = (array.astype(np.float64) for array in machine)
    random = streams.generator(seed, streams.EXACT_SAMPLES)
    few, many, across = (c, b, W.T) if len(c) <= len(b) else (b, c, W)
    listed = states(len(few))
    scores = np.concatenate(
        [-free_energy(part, across, few, many) for part in np.array_split(listed, 64)]
    )
    drawn = listed[random.choice(len(listed), size=count, p=softmax(scores))]
    if len(c) > len(b):
        return drawn.astype(np.float32)
    means = visible_mean(drawn, W, b)
    return (random.random(means.shape) < means).astype(np.float32)


def parse_sampler(text: str) -> Sampler:
    """Read ``gibbs``, ``PT_c`` or ``PT_c-k``; raise CbmError for anything else."""
    if text == "gibbs":
        return Sampler()
    if not re.fullmatch(r"PT_\d{1,6}(-\d{1,6})?", text):
        raise CbmError(
            f"--sampler {text}: unknown; write gibbs, PT_c or PT_c-k, as in PT_10"
        )
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
    """Draw samples from chains that run side by side; the same arguments give the same
    bytes.

    Before each sample a chain makes ``steps`` sweeps. It then gives h from p(h | x),
    the means p(x = 1 | h), and a sample of them; the chain itself continues from x.
    Sample i comes from chain i % chains; different chains are independent.

    A tempered ladder counts as one chain. ``start`` are rows (n, n_0) uint8 and the
    value of one level, as of a data set: chains start at a random choice of them, with
    grey values as probabilities and other units of x as fair coins; by default at
    random hidden states. CbmError for rows of another width.
    """
    W, b, c = machine.plain
    chains, random = min(chains, count), streams.generator(seed, streams.SAMPLES)
    changes = {"temperatures": sampler.temperatures, "steps": sampler.steps}
    plan = plain_plan(len(b), len(c), seed, chains, **changes)
    with _memory_for(count, machine, chains) as found, one_thread():
        h = np.empty((chains, sampler.temperatures, len(c)), np.float32)
        h[:] = _first_states(machine, start, chains, random)[:, None]
        plain = Machine(W, b, c, np.zeros_like(b), np.zeros_like(c))
        return _collect(plain, h.reshape(-1, len(c)), plan, found, steps, random)


@contextmanager
def _memory_for(count: int, machine: Flat, chains: int) -> Iterator[Samples]:
    """Samples to be filled; CbmError if they and their chains do not fit into
    memory.
    """
    n, m = machine.sizes[0], len(machine.c)
    try:
        yield Samples(
            np.empty((count, n), "u1"),
            np.empty((count, n), "f4"),
            np.empty((count, m), "u1"),
        )
    except MemoryError:
        remedy = "ask for fewer samples, or fewer temperatures"
        message = f"{count} samples of {chains} chains do not fit into memory; {remedy}"
        raise CbmError(message) from None


def write_samples(path: Path, samples: Samples, names: Sequence[str] = ()) -> None:
    """Write samples, means and hidden as arrays of an NPZ file, with the names of
    visible units.
    """
    stream, titles = io.BytesIO(), {"names": np.array(names)} if names else {}
    np.savez_compressed(stream, **samples._asdict() | titles)
    write_atomically(path, stream.getvalue())


def _first_states(
    machine: Flat,
    start: tuple[Rows, float] | None,
    chains: int,
    random: np.random.Generator,
) -> Array:
    """Hidden states (chains, M') before the first sweep: fair coins, or drawn given
    rows of data.
    """
    (W, _, c), n_visible = machine.plain, machine.sizes[0]
    p: NDArray | float = 0.5
    if start is not None:
        rows, unit = start
        if rows.shape[1] != n_visible:
            message = (
                f"the data have {rows.shape[1]} columns, the machine "
                f"{n_visible} visible units"
            )
            raise CbmError(message)
        grey = np.full((chains, len(W)), 0.5)
        grey[:, :n_visible] = (
            unit * rows[np.resize(random.permutation(len(rows)), chains)]
        )
        p = expit((random.random(grey.shape) < grey).astype(np.float32) @ W + c)
    return (random.random((chains, len(c))) < p).astype(np.float32)


def _collect(
    machine: Machine,
    h: Array,
    plan: Plan,
    found: Samples,
    steps: int,
    random: np.random.Generator,
) -> Samples:
    """Sweep the chains and read samples from them until ``found`` is full."""
    (n, m), count = machine.W.shape, len(found.samples)
    x, to_h = (
        np.empty((plan.batch, n), np.float32),
        np.empty((plan.batch, m), np.float32),
    )
    ladders = make_chains(h, plan, x, to_h)
    for turn, first in enumerate(range(0, count, plan.batch)):
        advance_chains(machine, ladders, plan, turn * steps, (turn + 1) * steps)
        samples, means, hidden = (array[first : first + len(x)] for array in found)
        known = samples.shape[1]  # a deep machine has more units on the side of x
        hidden[:] = random.random(hidden.shape) < expit(
            x[: count - first] @ machine.W + machine.c
        )
        means[:] = expit(hidden @ machine.W[:known].T + machine.b[:known])
        samples[:] = random.random(samples.shape) < means
    return found


# Samples of some visible units given the others


def conditional(machine: Flat, row: NDArray) -> Flat:
    """Return the machine of the units that are not given in a row (n_0,) of zeros, ones
    and NaN.
    """
    (W, b, c), given = machine.plain, ~np.isnan(row)
    free = np.concatenate([~given, np.ones(len(W) - len(row), bool)])
    heard = row[given].astype(np.float64) @ W[: len(row)][given]
    sizes = int((~given).sum()), *machine.sizes[1:]
    return Flat(
        np.ascontiguousarray(W[free]),
        b[free],
        (c + heard).astype(c.dtype),
        machine.start,
        sizes,
    )


def _check_given(given: NDArray, width: int, place: str) -> None:
    """Raise CbmError unless each row (n, width) gives some units as 0 or 1, and leaves
    some as NaN.
    """
    if given.ndim != 2 or given.shape[1] != width or not len(given):
        shape = " x ".join(map(str, given.shape))
        told = (
            f"{place}: rows of {width} entries are needed, one for each visible "
            f"unit, not {shape}"
        )
        raise CbmError(told)
    held = ~np.isnan(given)
    for row, column in np.argwhere(held & (given != 0) & (given != 1))[:1]:
        where = f"row {row + 1}, column {column + 1} is {given[row, column]:g}"
        raise CbmError(
            f"{place}: {where}; give 0 or 1, or leave the entry empty, and it is "
            "sampled"
        )
    for row in np.flatnonzero(held.all(axis=1) | ~held.any(axis=1))[:1]:
        told = "gives no entry; leave the row out, or sample without given rows"
        if held[row].all():
            told = "gives all entries; leave those empty that are to be sampled"
        raise CbmError(f"{place}: row {row + 1} {told}")


def draw_given(
    machine: Flat,
    sampler: Sampler,
    count: int | None,
    given: NDArray,
    place: str,
    **how: Any,
) -> Samples:
    """Draw samples that complete rows ``given`` (R, n_0) of zeros, ones and NaN;
    CbmError for others.

    Sample i of ``count`` (default: R) completes row i % R; its ``means`` are the given
    values where there are some. Each row has ``chains`` of its own; ``how`` holds what
    `draw` takes.
    """
    rows = len(given)
    _check_given(given, machine.sizes[0], place)
    count = count or rows
    if count < rows:
        few = (
            f"{counted(count, 'sample')} of {counted(rows, 'row')}: ask for one of "
            "each row or more"
        )
        raise CbmError(f"{place}: {few}")
    seed, start = how.pop("seed"), how.pop("start", None)
    with _memory_for(count, machine, how["chains"]) as whole:
        for r, row in enumerate(given):
            free, own = np.isnan(row), streams.seed_of(seed, streams.GIVEN, r)
            begin = start and (np.ascontiguousarray(start[0][:, free]), start[1])
            number = len(range(r, count, rows))
            its = draw(
                conditional(machine, row), sampler, number, seed=own, start=begin, **how
            )
            pairs: Any = zip(whole[:2], its[:2], strict=True)
            for found, part in pairs:
                found[r::rows] = np.where(free, 0, row)
                found[r::rows, free] = part
            whole.hidden[r::rows] = its.hidden
    return whole
