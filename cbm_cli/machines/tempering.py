"""Estimates of log Z by parallel tempering between a machine of independent units and a Boltzmann machine.

Rung k of a ladder has the inverse temperature beta_k and f_k(x, h) = exp(base'x - beta_k D(x, h)), where
D(x, h) = E(x, h) + base'x: independent units at 0, the machine at 1. Neighbours exchange states (Swendsen &
Wang 1986), even and odd ones in turn, and Bennett's acceptance ratio joins their weights (Bennett 1976).
Rungs stand where neighbours reject equally often (Syed, Bouchard-Cote, Deligiannidis & Doucet 2022).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cbm_cli.kernels.machine import Array, Machine, room
from cbm_cli.kernels.plan import plain_plan
from cbm_cli.kernels.products import hold
from cbm_cli.kernels.random import SAMPLER, fill_uniform
from cbm_cli.kernels.sampling import chain_energies, make_chains, sweep
from cbm_cli.machines import streams
from cbm_cli.machines.estimates import ROUNDING, Plain, ShouldStop, Stopped, log_z_of_base, never
from cbm_cli.machines.known import Known, heaviest

FEWEST_ACCEPTED = 0.1  # share of swaps below which two rungs know too little of each other
LARGEST_ERROR = 0.3  # nats: as of AIS with 10 effective runs, errors beyond it say little
_LADDERS = 20  # of which half begin at the base, half at the heaviest known states
_TARGET = 0.5  # share of swaps that neighbours reject
_FIRST, _MOST = 12, 150  # rungs at the start of the search, and at most
_ENDS = 5  # moments of the run at which states are kept
_LOOKS = 10  # sweeps at the end of each search whose states are noted
_BUILDS = 5  # searches for rungs, which take a fourth of the sweeps
_BURNT = 0.25  # share of the run that is left out at its start
_TOO_FAR = 4.0  # standard errors between parts of a run that should agree

Values = NDArray[np.float64]


class Ladders:
    """L ladders of T rungs, from the base up to the machine."""

    def __init__(self, machine: Plain, base: Array, betas: Values, h: Array, seed: int) -> None:
        """Start at hidden states h (L, M), the same on each rung of a ladder, or (L, T, M)."""
        W, b, c = machine
        T, m = len(betas), len(c)
        states = np.repeat(h[:, None], T, axis=1) if h.ndim == 2 else h
        K = T * len(states)
        # Two steps, of which one is made at a time: then the chains keep W in tiles.
        plan = plain_plan(len(b), m, seed, K // T, ladders=K // T, temperatures=T, steps=2)
        self.shape, self.betas, self.plan, self.made = (K // T, T), betas.astype(np.float32), plan, 0
        flat = np.ascontiguousarray(states.reshape(K, m), np.float32)
        x, to_h = room((K // T, len(b))), room((K // T, m))
        self.machine = Machine(W, b, c, np.zeros_like(b), np.zeros_like(c))
        self.from_base = self.machine._replace(b=b - base)  # whose energy is D
        self.chains = chains = make_chains(flat, plan, x, to_h)
        chains.beta[:] = np.tile(self.betas, K // T)
        bias = base + np.outer(self.betas, b - base)
        for side, biases in ((chains.x, bias), (chains.h, np.outer(self.betas, c))):
            units = biases.shape[1]
            side.beta[:] = np.repeat(chains.beta[: side.beta.size // units], units)
            side.bias[:] = np.tile(biases.ravel(), side.bias.size // biases.size)
        hold(W, False, chains.x.bits)
        hold(W, True, chains.h.bits)
        numbers = K * (len(b) + m) + K
        self.u = chains.u[: numbers + -numbers % 4]

    def sweep(self) -> None:
        """Make a Gibbs sweep of every chain: x given h, then h given x; energies are D of the new states."""
        fill_uniform(self.u, self.plan.seed, self.made, SAMPLER, 0)
        sweep(self.machine, self.chains, self.plan, 0, False)
        chain_energies(self.from_base, self.chains)

    def swap(self) -> tuple[Values, NDArray[np.bool_]]:
        """Exchange states of neighbours, even or odd pairs in turn.

        Returns the probabilities of all exchanges (L, T - 1), and which were made.
        """
        (L, T), chains = self.shape, self.chains
        energy = chains.energy.reshape(L, T).astype(np.float64)
        gain = np.diff(self.betas.astype(np.float64)) * np.diff(energy, axis=1)
        chance = np.exp(np.minimum(gain, 0))
        used = chains.x.states.size + chains.h.states.size
        made = self.u[used : used + L * T].reshape(L, T)[:, :-1] < chance
        made[:, 1 - self.made % 2 :: 2] = False
        low = (np.arange(L)[:, None] * T + np.arange(T - 1))[made]
        both, turned = np.concatenate([low, low + 1]), np.concatenate([low + 1, low])
        for array in (chains.x.states, chains.h.states, chains.h.activation, chains.energy):
            array[both] = array[turned]
        self.made += 1
        return chance, made

    def ratios(self) -> tuple[Values, Values]:
        """Return log f_{k+1}(x) - log f_k(x), h summed out, of the states of rungs k and of rungs k + 1.

        Both are (L, T - 1).
        """
        (L, T), chains = self.shape, self.chains
        slope = (chains.x.states @ self.from_base.b).reshape(L, T).astype(np.float64)
        a = (chains.h.activation + self.machine.c).reshape(L, T, -1)
        here = _softplus(a, self.betas)
        up = _softplus(a[:, :-1], self.betas[1:]) - here[:, :-1]
        down = here[:, 1:] - _softplus(a[:, 1:], self.betas[:-1])
        step = np.diff(self.betas.astype(np.float64))
        return up + step * slope[:, :-1], down + step * slope[:, 1:]

    def coldest(self) -> Known:
        """Return the states (L, N) of the last rungs, and the logarithms of their weights."""
        x, to_h = (
            array.reshape(*self.shape, -1)[:, -1].copy()
            for array in (self.chains.x.states, self.chains.h.activation)
        )
        one = np.ones(1, np.float32)
        return x, x @ self.machine.b.astype(np.float64) + _softplus((to_h + self.machine.c)[:, None], one)[
            :, 0
        ]


def _softplus(a: Array, betas: Array) -> Values:
    """Sum of log(1 + exp(beta a)) over units, (L, T) of a (L, T, M)."""
    scaled = betas[:, None] * a
    tails = np.log(np.float32(1) + np.exp(-np.abs(scaled)))
    return (np.maximum(scaled, 0) + tails).sum(axis=-1, dtype=np.float64)


def bennett(up: Values, down: Values) -> Values:
    """Return log Z_{k+1} - log Z_k (...), from log f_{k+1} - log f_k of n states of each rung, (n, ...).

    The root of sum expit(up - r) = sum expit(r - down), by Newton's method on the logarithms of both sides.
    """
    r = (up.mean(axis=0) + down.mean(axis=0)) / 2
    for _ in range(50):
        forward, back = expit(up - r), expit(r - down)
        sums = forward.sum(axis=0) + 1e-300, back.sum(axis=0) + 1e-300
        slope = 2 - (forward**2).sum(axis=0) / sums[0] - (back**2).sum(axis=0) / sums[1]
        step = (np.log(sums[0]) - np.log(sums[1])) / np.maximum(slope, 0.05)
        r = r + step
        if np.abs(step).max(initial=0) < 1e-9:
            break
    return r


@dataclass(frozen=True)
class Tempered:
    """An estimate of log Z by tempering, and what speaks against it."""

    log_z: float
    standard_error: float  # from independent ladders
    betas: tuple[float, ...]  # of the rungs
    sweeps: int  # of each ladder that count
    acceptance: tuple[float, ...]  # of swaps, by link
    by_start: tuple[float, float]  # log Z of the ladders that began at the base, and at the heaviest states
    by_time: tuple[float, float]  # log Z of the first and of the last third
    differs: str  # what does not agree with itself; empty if all does
    ends: Array  # (R, N) states of the machine, from several moments of the run

    @property
    def interval(self) -> tuple[float, float]:
        """log Z -+ 3 standard errors."""
        return self.log_z - 3 * self.standard_error, self.log_z + 3 * self.standard_error

    @property
    def doubtful(self) -> bool:
        """Whether rungs hardly exchange states, ladders differ, or parts of the run by more than errors."""
        spread = not self.standard_error <= LARGEST_ERROR
        return spread or min(self.acceptance) < FEWEST_ACCEPTED or bool(self.differs)

    def disproved_by(self, log_z_at_least: float) -> bool:
        """Whether the interval lies below a proved bound."""
        return self.interval[1] + ROUNDING < log_z_at_least

    def facts(self) -> dict[str, Any]:
        """What can be told of the run beside its estimate."""
        return {
            "rungs": list(self.betas),
            "sweeps": self.sweeps,
            "acceptance": list(self.acceptance),
            "least_acceptance": min(self.acceptance),
            "log_z_by_start": list(self.by_start),
            "log_z_by_time": list(self.by_time),
            "differs": self.differs,
        }


def temper(
    machine: Plain,
    base: Array,
    known: tuple[Sequence[Known], float, Array],
    seed: int,
    sweeps: int,
    should_stop: ShouldStop = never,
) -> Tempered:
    """Estimate log Z by so many ``sweeps`` of single chains, the search for rungs included.

    Half of the ladders begin at the base, half at the heaviest of the ``known`` rows and of the states that
    the search has seen: a state that the others do not find makes the two halves differ. ``known`` are rows
    and their weights, the value of one of their levels, and means of deep units, as for `log_z_at_least`.
    """
    rows, unit, deep = known
    random, half = streams.generator(seed, streams.TEMPERING), _LADDERS // 2
    W, _, c = machine
    cold = (random.random((half, len(c))) < 0.5).astype(np.float32)

    def starts(found: Sequence[Known]) -> Array:
        heavy = (
            heaviest(found, rows, unit, deep, half) if rows or found else np.empty((0, len(W)), np.float32)
        )
        x = (random.random(heavy.shape) < heavy).astype(np.float32)
        warm = (random.random((len(x), len(c))) < expit(x @ W + c)).astype(np.float32)
        return np.concatenate([cold, np.resize(warm, cold.shape) if len(warm) else cold])

    betas, made, seen = _placed(machine, base, starts([]), seed, sweeps // 4, should_stop)
    length = max(20, (sweeps - made) // (_LADDERS * len(betas)))
    ladders = Ladders(machine, base, betas, starts([seen]), streams.seed_of(seed, streams.TEMPERING, _BUILDS))
    run = *_made(ladders, length, should_stop), betas, log_z_of_base(base, len(c))
    return _summary(*run)


def _made(ladders: Ladders, length: int, should_stop: ShouldStop) -> tuple[Values, Values, Values, Array]:
    """Make a run; return its ratios (S, L, T - 1), its chances of swaps (S, T - 1) and some of its states."""
    ratios, chances, ends = [], [], []
    for number in range(length):
        if should_stop():
            raise Stopped
        ladders.sweep()
        ratios.append(ladders.ratios())
        if number % -(-length // _ENDS) == 0:
            ends.append(ladders.coldest()[0])
        chances.append(ladders.swap()[0].mean(axis=0))
    burnt = int(_BURNT * length)
    up, down = (np.array(one[burnt:]) for one in zip(*ratios, strict=True))
    return up, down, np.array(chances[burnt:]), np.concatenate(ends)


def _summary(
    up: Values, down: Values, chances: Values, ends: Array, betas: Values, log_z_base: float
) -> Tempered:
    """An estimate from ratios (S, L, T - 1), and comparisons of its parts."""
    S, L, links = up.shape

    def by_ladder(part: slice) -> Values:
        return bennett(up[part], down[part]).sum(axis=-1)

    whole, thirds = by_ladder(slice(None)), (by_ladder(slice(S // 3)), by_ladder(slice(-(S // 3), None)))
    flat = bennett(up.reshape(S * L, links), down.reshape(S * L, links)).sum()
    halves = whole[: L // 2], whole[L // 2 :]
    drift = thirds[0] - thirds[1]
    errors = [part.std(ddof=1) / np.sqrt(len(part)) for part in (*halves, drift)]
    told = []
    if abs(halves[0].mean() - halves[1].mean()) > _TOO_FAR * np.hypot(*errors[:2]) + ROUNDING:
        told.append("ladders that began at the base and at the heaviest known states")
    if abs(drift.mean()) > _TOO_FAR * errors[2] + ROUNDING:
        told.append("the first and the last third of the run")
    by_start, by_time = ([log_z_base + float(part.mean()) for part in pair] for pair in (halves, thirds))
    return Tempered(
        log_z_base + float(flat),
        float(whole.std(ddof=1) / np.sqrt(L)),
        tuple(betas.tolist()),
        S,
        tuple(chances.mean(axis=0).tolist()),
        (by_start[0], by_start[1]),
        (by_time[0], by_time[1]),
        " and ".join(told),
        ends,
    )


def _placed(
    machine: Plain, base: Array, h: Array, seed: int, sweeps: int, should_stop: ShouldStop
) -> tuple[Values, int, Known]:
    """Search for inverse temperatures whose neighbours reject half of the swaps.

    Returns them, the number of sweeps, and the states of the machine that were seen.

    Rejection adds up along the path to a barrier that does not depend on the rungs. Each search halves it
    into equal parts.
    """
    betas, made = np.linspace(0, 1, _FIRST), 0
    seen: list[Known] = []
    for build in range(_BUILDS):
        length = max(6, sweeps // (_BUILDS * len(h) * len(betas)))
        ladders = Ladders(machine, base, betas, h, streams.seed_of(seed, streams.TEMPERING, build))
        chances = []
        for number in range(length):
            if should_stop():
                raise Stopped
            ladders.sweep()
            if number >= length - _LOOKS:
                seen.append(ladders.coldest())
            chances.append(ladders.swap()[0].mean(axis=0))
        rejected = 1 - np.mean(chances[length // 3 :], axis=0)
        barrier = np.concatenate([[0], np.cumsum(rejected + 0.02)])
        rungs = int(np.clip(np.ceil(barrier[-1] / _TARGET) + 1, 4, _MOST))
        betas = np.interp(np.linspace(0, barrier[-1], rungs), barrier, betas)
        made += length * len(h) * len(ladders.betas)
    states, weights = map(np.concatenate, zip(*seen, strict=True))
    distinct = np.unique(states, axis=0, return_index=True)[1]
    return betas, made, (states[distinct], weights[distinct])
