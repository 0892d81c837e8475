"""Samples of a Boltzmann machine, from chains by Gibbs sampling or parallel tempering.

Given some units of x, a Boltzmann machine is a smaller one: what they add to the
activations of h becomes a part of its biases. Rows are therefore completed by samples
of such a machine, drawn as those of any.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cbm_cli.errors import CbmError
from cbm_cli.grid.names import Sampler
from cbm_cli.kernels.machine import Machine
from cbm_cli.kernels.memory import Array, Rows
from cbm_cli.kernels.plan import Plan, plain_plan
from cbm_cli.kernels.sampling import advance_chains, make_chains
from cbm_cli.machines import streams
from cbm_cli.machines.files import write_arrays
from cbm_cli.machines.models import Flat
from cbm_cli.machines.threads import one_thread
from cbm_cli.text import count as counted

CHAINS = 100  # side by side, unless fewer samples are asked for


class Samples(NamedTuple):
    """n samples of the visible layer, and the hidden states that they were drawn
    from.
    """

    samples: Rows  # (n, n_0)
    means: Array  # (n, n_0) p(x = 1 | hidden)
    hidden: Rows  # (n, M'); in a deep machine the odd layers side by side


def parse_sampler(text: str) -> Sampler:
    """Read ``gibbs``, ``PT_c`` or ``PT_c-k``; raise CbmError for anything else.

    Examples
    --------
    >>> parse_sampler("PT_10-2").temperatures
    10
    """
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
    n, m = machine.W.shape
    chains = min(chains, count)
    random = streams.generator(seed, streams.SAMPLES)
    temperatures = sampler.temperatures
    plan = plain_plan(
        n, m, seed, chains, temperatures=temperatures, steps=sampler.steps
    )
    with _memory_for(count, machine, chains) as samples, one_thread():
        h = np.empty((chains, temperatures, m), np.float32)
        h[:] = _first_states(machine, start, chains, random)[:, None]
        ladders = h.reshape(-1, m)
        _collect(machine, ladders, plan, samples, steps=steps, random=random)
    return samples


@contextmanager
def _memory_for(count: int, machine: Flat, chains: int) -> Iterator[Samples]:
    """Samples to be filled; CbmError if they and their chains do not fit into
    memory.
    """
    n, m = machine.sizes[0], len(machine.c)
    try:
        samples = np.empty((count, n), np.uint8)
        means = np.empty((count, n), np.float32)
        yield Samples(samples, means, hidden=np.empty((count, m), np.uint8))
    except MemoryError:
        raise CbmError(
            f"{count} samples of {chains} chains do not fit into memory; ask for "
            "fewer samples, or fewer temperatures"
        ) from None


def write_samples(path: Path, samples: Samples, names: Sequence[str] = ()) -> None:
    """Write samples, means and hidden as arrays of an NPZ file, with the names of
    visible units.
    """
    arrays: dict[str, Any] = samples._asdict()
    if names:
        arrays["names"] = np.array(names)
    write_arrays(path, arrays, np.savez_compressed)


def _first_states(
    machine: Flat,
    start: tuple[Rows, float] | None,
    chains: int,
    random: np.random.Generator,
) -> Array:
    """Hidden states (chains, M') before the first sweep: fair coins, or drawn given
    rows of data.
    """
    n_visible = machine.sizes[0]
    p: NDArray | float = 0.5
    if start is not None:
        rows, unit = start
        if rows.shape[1] != n_visible:
            raise CbmError(
                f"the data have {rows.shape[1]} columns, the machine "
                f"{n_visible} visible units"
            )
        chosen = np.resize(random.permutation(len(rows)), chains)
        grey = np.full((chains, len(machine.W)), 0.5)
        grey[:, :n_visible] = unit * rows[chosen]
        x = (random.random(grey.shape) < grey).astype(np.float32)
        p = expit(x @ machine.W + machine.c)
    return (random.random((chains, len(machine.c))) < p).astype(np.float32)


def _collect(
    machine: Flat,
    h: Array,
    plan: Plan,
    samples: Samples,
    steps: int,
    random: np.random.Generator,
) -> None:
    """Sweep the chains, and fill in the samples that are read from them."""
    W, b, c = machine.plain
    plain = Machine(W, b, c, mu=np.zeros_like(b), lam=np.zeros_like(c))
    count, n_visible = samples.samples.shape
    x = np.empty((plan.batch, len(b)), np.float32)
    to_h = np.empty((plan.batch, len(c)), np.float32)
    ladders = make_chains(h, plan, x, to_h)
    for turn, first in enumerate(range(0, count, plan.batch)):
        advance_chains(plain, ladders, plan, turn * steps, (turn + 1) * steps)
        rows, means, hidden = (array[first : first + len(x)] for array in samples)
        of_hidden = expit(x[: len(rows)] @ W + c)
        hidden[:] = random.random(hidden.shape) < of_hidden
        # A deep machine has more units on the side of x
        means[:] = expit(hidden @ W[:n_visible].T + b[:n_visible])
        rows[:] = random.random(rows.shape) < means


# Samples of some visible units given the others


def conditional(machine: Flat, row: NDArray) -> Flat:
    """Return the machine of the units that are not given in a row (n_0,) of zeros, ones
    and NaN.
    """
    W, b, c = machine.plain
    held = ~np.isnan(row)
    deep_units = len(W) - len(row)
    free = np.concatenate([~held, np.ones(deep_units, bool)])
    heard = row[held].astype(np.float64) @ W[: len(row)][held]
    return Flat(
        W=np.ascontiguousarray(W[free]),
        b=b[free],
        c=(c + heard).astype(c.dtype),
        start=machine.start,
        sizes=(int((~held).sum()), *machine.sizes[1:]),
    )


def _check_given(given: NDArray, width: int, place: str) -> None:
    """Raise CbmError unless each row (n, width) gives some units as 0 or 1, and leaves
    some as NaN.
    """
    if given.shape[1:] != (width,) or not len(given):
        shape = " x ".join(map(str, given.shape))
        raise CbmError(
            f"{place}: rows of {width} entries are needed, one for each visible "
            f"unit, not {shape}"
        )
    held = ~np.isnan(given)
    others = np.argwhere(held & (given != 0) & (given != 1))
    if len(others):
        row, column = others[0]
        raise CbmError(
            f"{place}: row {row + 1}, column {column + 1} is "
            f"{given[row, column]:g}; give 0 or 1, or leave the entry empty, and it is "
            "sampled"
        )
    for number, of_row in enumerate(held, 1):
        if of_row.all():
            remedy = "gives all entries; leave those empty that are to be sampled"
        elif not of_row.any():
            remedy = "gives no entry; leave the row out, or sample without given rows"
        else:
            continue
        raise CbmError(f"{place}: row {number} {remedy}")


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
        raise CbmError(
            f"{place}: {counted(count, 'sample')} of {counted(rows, 'row')}: ask for "
            "one of each row or more"
        )
    seed, start = how.pop("seed"), how.pop("start", None)
    with _memory_for(count, machine, how["chains"]) as completed:
        for r, row in enumerate(given):
            free = np.isnan(row)
            of_row = draw(
                conditional(machine, row),
                sampler,
                len(range(r, count, rows)),
                seed=streams.seed_of(seed, streams.GIVEN, r),
                start=start and (np.ascontiguousarray(start[0][:, free]), start[1]),
                **how,
            )
            for array in (completed.samples, completed.means):
                array[r::rows] = np.where(free, 0, row)
            completed.samples[r::rows, free] = of_row.samples
            completed.means[r::rows, free] = of_row.means
            completed.hidden[r::rows] = of_row.hidden
    return completed
