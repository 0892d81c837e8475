"""Trials of one shape as one batch of PyTorch tensors, by the equations of `cbm_cli.reference`; a prototype.

CD-k, PCD-k and parallel tempering with one ladder, any offsets; AIS. Trials differ in seed, learning rate,
offset scheme and sliding factor. Random numbers are those of the kernels, so that every trial is the one that
`cbm` trains, up to rounding. T trials, N visible and M hidden units, B rows of a batch, K chains.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cbm_cli import reference as ref

SAMPLER, SHUFFLE, NOISE, RESTART = range(4)  # what a random number is drawn for, as in kernels/random.py
_LOW = 0xFFFFFFFF


class State(NamedTuple):
    """What an update changes; h are the hidden states of the chains, from the hottest to the coldest."""

    W: Tensor  # (T, N, M)
    b: Tensor  # (T, N)
    c: Tensor  # (T, M)
    mu: Tensor  # (T, N)
    lam: Tensor  # (T, M)
    h: Tensor  # (T, K, M)


class Plan(NamedTuple):
    """How the trials learn: what may differ between them, and what is common to all."""

    seeds: Tensor  # (T,) int64
    rates: Tensor  # (T,)
    mu_shares: Tensor  # (4, T, 1) of data mean, model mean, 1 and noise; see `reference.LETTERS`
    lam_shares: Tensor
    mu_factor: Tensor  # (T, 1) sliding factors
    lam_factor: Tensor
    batch: int
    rounds: int = 1  # sweeps of a ladder in one update, each of which gives a sample; 1 without tempering
    steps: int = 1
    tempered: bool = False
    restart: bool = False
    before: bool = True


def philox(block: Tensor, update: Tensor, site: int, seeds: Tensor) -> tuple[Tensor, ...]:
    """Four 32-bit words (T, blocks) of Philox4x32-10, in 64-bit integers; `kernels.random.philox_block`."""
    keys = seeds[:, None] & _LOW, (seeds[:, None] >> 32) & _LOW
    c0, c1, c2, c3 = block, update & _LOW, site, update >> 32 & _LOW
    for turn in range(10):
        k0, k1 = (key + turn * add & _LOW for key, add in zip(keys, (0x9E3779B9, 0xBB67AE85), strict=True))
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2  # they overflow; the high word comes back by the mask
        c0, c1, c2, c3 = p1 >> 32 & _LOW ^ c1 ^ k0, p1 & _LOW, p0 >> 32 & _LOW ^ c3 ^ k1, p0 & _LOW
    return c0, c1, c2, c3


def uniform(plan: Plan, update: Tensor, site: int, count: int, first: Tensor | int = 0) -> Tensor:
    """Numbers (T, count) in [0, 1) from block ``first`` on; `kernels.random.fill_uniform`."""
    blocks = first + torch.arange(-(-count // 4), device=plan.seeds.device)
    words = torch.stack(philox(blocks, update, site, plan.seeds), dim=-1)
    return ((words >> 8) * 2.0**-24).reshape(len(plan.seeds), -1)[:, :count]


def cut(u: Tensor, *shapes: tuple[int, ...]) -> list[Tensor]:
    """The first numbers of u (T, count), in these shapes behind T."""
    sizes = [torch.Size(shape).numel() for shape in shapes]
    parts = u[:, : sum(sizes)].split(sizes, dim=1)
    return [part.reshape(len(u), *shape) for part, shape in zip(parts, shapes, strict=True)]


def one_round(h: Tensor, theta: ref.Theta, update: Tensor, turn: Tensor, plan: Plan) -> ref.ChainStates:
    """Sweep all chains k times; and if they are tempered, let neighbours swap."""
    (_, chains, m), n = h.shape, theta[1].shape[-1]
    count = plan.steps * chains * (n + m) + chains
    count += -count % 4
    u = uniform(plan, update, SAMPLER, count, turn * (count // 4))
    *numbers, u_swap = cut(u, *[(chains, n), (chains, m)] * plan.steps, (chains,))
    pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
    if plan.tempered:
        beta = torch.arange(chains, device=h.device) / (chains - 1)
        return ref.tempered_sweep(h, theta, beta, pairs, u_swap, [(update * plan.rounds + turn) % 2])
    for u_x, u_h in pairs:
        samples = ref.sweep(h, theta, u_x, u_h)
        h = samples.h
    return samples


def advance(state: State, x: Tensor, update: Tensor, plan: Plan, sweep: Callable = one_round) -> None:
    """Make an update in place, with the rows x (T, B, N) of the data: `reference.algorithm_2`."""
    (n, m), h = state.W.shape[1:], state.h

    def sample(data: ref.Ensemble, *theta: Tensor) -> ref.Ensemble:
        nonlocal h
        if plan.restart:
            h = ref.draw(data.h, *cut(uniform(plan, update, RESTART, plan.batch * m), (plan.batch, m)))
        if not plan.tempered:
            x, h, to_h = sweep(h, theta, update, torch.zeros_like(update), plan)
        else:
            coldest = []
            for turn in torch.arange(plan.rounds, device=x_d.device):
                x, h, to_h = sweep(h, theta, update, turn, plan)
                coldest.append((x[:, -1], to_h[:, -1]))
            x, to_h = (torch.stack(side, dim=1) for side in zip(*coldest, strict=True))
        return ref.batch(x, ref.mean_of(to_h, theta[2]))

    def estimate(data: ref.Ensemble, model: ref.Ensemble) -> ref.Offsets:
        width = n + -n % 4
        noise, of_h = cut(uniform(plan, update, NOISE, width + m), (width,), (m,))
        shares, noises = (plan.mu_shares, plan.lam_shares), (noise[:, :n], of_h)
        sides = zip(shares, ref.means(data), ref.means(model), noises, strict=True)
        mu, lam = (ref.offset_target(*side) for side in sides)
        return mu, lam

    (*theta, mu, lam, _), x_d = state, x
    rates = plan.rates, plan.mu_factor, plan.lam_factor
    theta, offsets = ref.algorithm_2(tuple(theta), (mu, lam), [x], sample, estimate, rates, plan.before)
    for old, new in zip(state, (*theta, *offsets, h), strict=True):
        old.copy_(new)


class Batch:
    """Training of a batch of trials.

    Parameters
    ----------
    state : State
        Changed in place.
    rows : (n, N) uint8
        Data of all trials.
    order : (T, n) int64
        In which each trial takes the rows.
    plan : Plan
    how : str
        eager, or compiled by torch.compile; with " graph", an update is replayed as a CUDA graph.
    """

    def __init__(self, state: State, rows: Tensor, order: Tensor, plan: Plan, how: str = "eager") -> None:
        self.state, self.rows, self.order, self.plan, self.graph = state, rows, order, plan, None
        self.update, self.how = torch.zeros((), dtype=torch.int64, device=rows.device), how
        self.advance, self.sweep = advance, one_round
        if "compiled" in how and plan.tempered:  # a hundred rounds would take minutes to compile as one
            self.sweep = compiled(one_round)
        elif "compiled" in how:
            self.advance = compiled(advance)

    def run(self, updates: int) -> None:
        """Make updates; the first three before a graph is captured."""
        for _ in range(updates):
            if "graph" in self.how and self.graph is None and self.update >= 3:
                self.graph = captured(self._step)
            self.graph.replay() if self.graph else self._step()

    def _step(self) -> None:
        start = self.update % (len(self.rows) // self.plan.batch) * self.plan.batch
        chosen = self.order.index_select(1, start + torch.arange(self.plan.batch, device=self.rows.device))
        self.advance(self.state, self.rows[chosen].float(), self.update, self.plan, self.sweep)
        self.update += 1


class Annealing:
    """Runs (T, R) of annealed importance sampling, from x (T, R, N) along betas; log weights are float64."""

    def __init__(
        self, theta: ref.Theta, base: Tensor, x: Tensor, betas: Tensor, plan: Plan, how: str
    ) -> None:
        self.theta, self.base, self.betas, self.plan, self.how, self.graph = (
            theta,
            base,
            betas,
            plan,
            how,
            None,
        )
        self.to_h, self.step = x @ theta[0], torch.zeros((), dtype=torch.int64, device=x.device)
        self.log_weight = torch.zeros(x.shape[:2], dtype=torch.float64, device=x.device)
        self.anneal = compiled(self._anneal) if "compiled" in how else self._anneal

    def run(self, steps: int, at_once: int = 50) -> None:
        """Anneal; a graph replays ``at_once`` steps."""
        while steps:
            if "graph" in self.how and self.graph is None and self.step >= 3:
                self.graph = captured(lambda: [self._once() for _ in range(at_once)])
            replays = self.graph is not None and steps >= at_once
            self.graph.replay() if replays else self._once()
            steps -= at_once if replays else 1

    def _once(self) -> None:
        self.anneal(self.to_h, self.log_weight, self.step)
        self.step += 1

    def _anneal(self, to_h: Tensor, log_weight: Tensor, step: Tensor) -> None:
        (_, runs, m), n = to_h.shape, self.base.shape[-1]
        u_h, u_x = cut(uniform(self.plan, step, SAMPLER, runs * (m + n)), (runs, m), (runs, n))
        at = step % (len(self.betas) - 1) + torch.arange(2, device=step.device)
        betas = self.betas.index_select(0, at)
        _, moved, gain = ref.ais_step(to_h, self.theta, self.base, tuple(betas), u_h, u_x)
        to_h.copy_(moved)
        log_weight += gain


def compiled(work: Callable) -> Callable:
    """Fuse what lies between products into few kernels, for the shapes of the first call."""
    torch._dynamo.reset()
    return torch.compile(work, fullgraph=True, dynamic=False)


def captured(work: Callable[[], Any]) -> Any:
    """Record some work as a CUDA graph, without doing it."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph
