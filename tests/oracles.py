"""The kernels and their reference side by side: where tests of training reach into
kernels.
"""

import itertools

import numpy as np
from cbm_cli import reference as ref
from cbm_cli.kernels import random as sites
from cbm_cli.kernels.annealing import anneal, make_walks
from cbm_cli.kernels.auto_encoder import EncoderTraining, summed_cost
from cbm_cli.kernels.batches import make_batches, order_rows
from cbm_cli.kernels.layout import Layout
from cbm_cli.kernels.likelihood import mean_log_likelihood
from cbm_cli.kernels.machine import Machine, State, empty_trail
from cbm_cli.kernels.mean_field import make_deep, mean_field, multiply_visible
from cbm_cli.kernels.memory import aligned
from cbm_cli.kernels.plan import ALL_STATES, INDEPENDENT, SAME, OffsetPlan, plain_plan
from cbm_cli.kernels.random import fill_uniform
from cbm_cli.kernels.sampling import draw_samples, make_chains
from cbm_cli.kernels.states import log_partition
from cbm_cli.kernels.training import Training
from cbm_cli.kernels.units import mean_of_units
from cbm_cli.letters import LETTERS
from cbm_cli.machines.likelihood import exact_scores
from cbm_cli.machines.models import Flat, Layered, flatten, sides_of
from cbm_cli.reference import sigmoid, states  # noqa: F401

from tests.networks import layered

# Distributions in the form that the tests ask for


def joint(W, b, c, mu=0.0, lam=0.0, beta=1.0):
    """p(x, h) of the centered machine at an inverse temperature: array (2^N, 2^M), and
    log Z.
    """
    theta = beta * W, beta * b, beta * c
    p = ref.joint_phase(*theta, mu, lam).p
    return p.reshape(2 ** len(b), 2 ** len(c)), ref.log_partition(*theta, mu, lam)


def log_likelihoods(W, b, c, rows):
    return ref.log_likelihood(np.asarray(rows, dtype=float), *wide((W, b, c)))


def wide(arrays):
    return tuple(np.asarray(array, dtype=float) for array in arrays)


def flat(W, b, c):
    return np.concatenate([np.ravel(W), b, c]).astype(float)


def moments(phase):
    """<x h'>, <x>, <h>."""
    return ref.correlation(phase), phase.p @ phase.x, phase.p @ phase.h


def phases(W, b, c, rows):
    return ref.batch(rows, ref.hidden_mean(rows, W, c)), ref.model_phase(W, b, c)


def deviations(x, p):
    """Frequencies of states in rows x less their probabilities, in standard errors."""
    index = (x @ 2.0 ** np.arange(x.shape[1])).astype(int)
    frequency = np.bincount(index, minlength=len(p)) / len(x)
    return np.abs(frequency - p) / np.sqrt(p * (1 - p) / len(x))


# States and plans of the kernels


def random_machine(n, m, seed, scale=1.0):
    rng = np.random.default_rng(seed)
    shapes = (n, m), (n,), (m,)
    return tuple((scale * rng.standard_normal(it)).astype(np.float32) for it in shapes)


def rbm(W, b, c):
    """A machine file's view of a machine of one hidden layer, float32."""
    arrays = (np.ascontiguousarray(array, dtype=np.float32) for array in (W, b, c))
    return Flat(*arrays, np.zeros(0, np.float32), (len(b), len(c)))


def flattened(machine, dtype=np.float32):
    """A machine of `networks.layered` without offsets, even layers next to even
    ones.
    """
    return flatten(Layered("dbm", *map(tuple, machine)).with_plain_biases(), dtype)


def exact_log_likelihoods(machine, rows, unit=1.0):
    return exact_scores(machine, rows, unit) - log_z(machine.plain)


def make_state(machine, offsets, its, rng):
    W, b, c, mu, lam = (aligned(array) for array in (*machine, *offsets))
    shape = its.temperatures if its.temperatures > 1 else its.rows, len(c)
    h, aside_h = (aligned(rng.random(shape) < 0.5) for _ in range(2))
    velocity = [
        aligned(np.zeros_like(it)) if its.momentum > 0 else None for it in (W, b, c)
    ]
    aside_h = aside_h if its.offsets_from == INDEPENDENT else None
    return State(W, b, c, mu, lam, np.zeros(3, np.int64), h, aside_h, *velocity)


def random_state(layers, its, seed, scale=1.0):
    """The state of a machine of `networks.layered`."""
    machine = layered(layers, seed, scale)
    sides = sides_of(machine[2], machine[2], "dbm")
    return make_state(
        flattened(machine).plain, sides, its, np.random.default_rng(seed + 1)
    )


def plan(layers, batch, scheme=None, sliding=(1, 1), before=True, **changes):
    """A full-batch plan of PCD-1, changed as asked; mean field runs until it has
    settled.

    A scheme has a letter for each layer; sliding factors are of the visible and the
    other layers. ``learning_rate`` is a number or a schedule ((first update, rate),
    ...).
    """
    layout, scheme = Layout(tuple(layers)), scheme or "d" * len(layers)
    letters = zip(scheme, layers, strict=True)
    mixes = [
        np.tile(np.float32(LETTERS[letter].shares)[:, None], (1, n))
        for letter, n in letters
    ]
    factors = [np.full(n, sliding[k > 0], np.float32) for k, n in enumerate(layers)]
    sides = *sides_of(mixes, mixes, "dbm"), *sides_of(factors, factors, "dbm")
    offsets = OffsetPlan(*sides, before, "r" in scheme)
    exactly = {
        "tolerance": 1e-7,
        "rounds": 3000,
        "spans": layout.spans(),
        "visible": layers[0],
    }
    numbers = {
        name: np.float32(it) if isinstance(it, float) else it
        for name, it in (exactly | changes).items()
    }
    rate = numbers.pop("learning_rate", 0.1)
    firsts, rates = zip(*([(0, rate)] if np.isscalar(rate) else rate), strict=True)
    schedule = {
        "rates": np.float32(rates),
        "rate_from": np.int64(firsts),
        "offsets": offsets,
    }
    return plain_plan(layout.width, layout.height, 2024, batch, **schedule | numbers)


def rate_of(its, update):
    return float(its.rates[its.rate_from <= update][-1])


def as_loaded(rows):
    """Rows that cannot be written, as those of data sets, for which kernels are
    compiled.
    """
    rows = rows.view()
    rows.setflags(write=False)
    return rows


def learn(state, rows, plan, first, last, trail=None):
    """Train in place."""
    Training(state, as_loaded(rows), plan)(
        trail or empty_trail(*state.W.shape), first, last
    )


def learn_auto_encoder(state, sizes, rows, plan, first, last):
    EncoderTraining(state, sizes, as_loaded(rows), plan)(None, first, last)


def advance(learner, state, first, last, trail=None):
    """Train in place by the learner of a trial."""
    learner.advance(state, trail or empty_trail(*state.W.shape), first, last)


# Single kernels


def unit_means(activation, bias, gain=1):
    found = np.empty_like(activation)
    mean_of_units(activation[None], np.float32(gain), bias, found[None])
    return found


def kernel_machine(W, b, c):
    return Machine(W, b, c, np.zeros_like(b), np.zeros_like(c))


def sweep(machine, h, its, update):
    """Advance chains h once; return samples x, their x W, and the visible states of all
    chains.
    """
    x = np.empty((its.rows, len(machine[1])), np.float32)
    to_h = np.empty((its.rows, h.shape[1]), np.float32)
    chains = make_chains(h, its, x, to_h)
    draw_samples(kernel_machine(*machine), chains, its, sites.SAMPLER, update)
    return x, to_h, chains.x.states


def log_z(machine):
    return log_partition(*machine)


def mean_score(machine, rows, unit):
    """Mean log-likelihood of the rows, and log Z."""
    return mean_log_likelihood(*machine, as_loaded(rows), np.float32(unit), 0.0)


def walk(machine, base, x, betas, seed, cuts=()):
    """Rows and log weights after annealing from x, in calls between the cuts."""
    walks = make_walks(machine, base, x, 0, len(x), len(x))
    for first, last in itertools.pairwise([0, *cuts, len(betas) - 1]):
        anneal(walks, betas, np.uint64(seed), first, last)
    return walks.x, walks.log_weight


def field_of(machine, x, start, tolerance=1e-6, rounds=500):
    """Mean field of the deeper even units and of the odd ones, and the rounds made."""
    deep = make_deep(len(x), x.shape[1], len(machine[1]) - x.shape[1], len(machine[2]))
    deep.visible[:], deep.even[:], deep.odd[:] = x, start, np.nan
    machine = kernel_machine(*machine)
    multiply_visible(machine, deep, True)
    made = mean_field(machine, deep, np.float32(tolerance), rounds)
    return deep.even, deep.odd, made


def epoch_order(count, seed, epoch, shuffled=True):
    batches = make_batches(np.zeros((count, 1), np.uint8), 1)
    order_rows(batches, plain_plan(1, 1, seed, 1)._replace(shuffled=shuffled), epoch)
    return batches.order


def summed_costs(state, sizes, rows, plan):
    return summed_cost(state, sizes, as_loaded(rows), plan)


def batch_of(rows, its, update, shuffled=True):
    batches = len(rows) // its.batch
    order, k = (
        epoch_order(len(rows), int(its.seed), update // batches, shuffled),
        update % batches,
    )
    return rows[order[k * its.batch : (k + 1) * its.batch]]


# Random numbers of the kernels


def uniform(seed, update, site, count):
    """The first numbers of a site, such as "sampler"."""
    u = np.empty(count + -count % 4, np.float32)
    fill_uniform(u, np.uint64(seed), update, getattr(sites, site.upper()), 0)
    return u[:count]


def noises(its, update, n, m):
    """Numbers of the letter r for n and m units."""
    padded = n + -n % 4
    u = uniform(int(its.seed), update, "noise", padded + m)
    return u[:n], u[padded:]


def sweep_numbers(its, update, site, chains, n, m):
    """For each round of an update: (u_x, u_h) of its sweeps, and numbers of its
    swaps.
    """
    each, rounds = (
        its.steps * chains * (n + m) + chains,
        its.rows * its.temperatures // chains,
    )
    each += -each % 4
    for u in uniform(int(its.seed), update, site, rounds * each).reshape(rounds, each):
        sweeps, at = [], chains * (n + m)
        for k in range(its.steps):
            u_x, u_h = np.split(u[k * at : (k + 1) * at], [chains * n])
            sweeps.append((u_x.reshape(chains, n), u_h.reshape(chains, m)))
        yield sweeps, u[its.steps * at :][:chains]


# The reference on these numbers


def reference_sweeps(theta, h, its, update, site="sampler"):
    """Samples x, and hidden states of all chains after an update."""
    theta, h, T = wide(theta), h.astype(float), its.temperatures
    rounds, gains = (
        its.rows * T // len(h),
        (float(its.to_hidden), float(its.to_visible)),
    )
    samples = []
    for r, (sweeps, u_swap) in enumerate(
        sweep_numbers(its, update, site, len(h), *theta[0].shape)
    ):
        if T == 1:
            for u_x, u_h in sweeps:
                x, h, _ = ref.sweep(h, theta, u_x, u_h, gains=gains)
        else:
            turn, beta, ladders = (update * rounds + r) % 2, np.linspace(0, 1, T), []
            for k in range(0, len(h), T):
                at = slice(k, k + T)
                u = [(u_x[at], u_h[at]) for u_x, u_h in sweeps]
                ladders.append(
                    ref.tempered_sweep(h[at], theta, beta, u, u_swap[at], turn)
                )
            x, h, _ = (np.concatenate(side) for side in zip(*ladders, strict=True))
        samples.append(x[T - 1 :: T])
    return np.concatenate(samples), h


def exactly(algorithm, theta, offsets, rows, its, updates):
    """An algorithm of the reference with exact model phases, and data means as
    offsets.
    """
    rates = rate_of(its, 0), *wide((its.offsets.mu_factor, its.offsets.lam_factor))
    sample = lambda data, *machine: ref.model_phase(*machine)  # noqa: E731
    batches, estimate = (
        [rows.astype(float)] * updates,
        lambda data, model: ref.means(data),
    )
    return algorithm(
        theta, offsets, batches, sample, estimate, rates, its.offsets.before
    )


class Trainer:
    """Training by the functions of the reference, on the random numbers of the
    kernels.
    """

    def __init__(self, state, its):
        self.its = its
        self.W, self.b, self.c, *self.offsets = wide(state.machine)
        self.h, self.aside_h = wide(
            [] if h is None else h for h in (state.h, state.aside_h)
        )
        self.velocity = [np.zeros_like(array) for array in self.theta]
        units = np.arange(len(self.c))
        self.connected = (units >= its.spans[:, :1]) & (units < its.spans[:, 1:])

    @property
    def theta(self):
        return self.W, self.b, self.c

    def update(self, rows, number):
        its, gains = self.its, (float(self.its.to_hidden), float(self.its.to_visible))
        data = self.data_phase(float(its.unit) * np.asarray(rows, dtype=float))
        model, self.h = self.model_phase(data, self.h, number, exact=its.exact)
        moved = self.moved_offsets(data, model, number)
        mu, lam = moved if its.offsets.before else self.offsets
        dW, dx, dh = ref.gradient(data, model, mu, lam)
        dW = dW + ref.weight_decay(self.W, float(its.l1), float(its.l2))
        gradient = ref.plain_step((dW * self.connected, dx, dh), mu, lam, gains)
        rate, momentum = rate_of(its, number), float(its.momentum)
        self.velocity = ref.accumulate(self.velocity, gradient, rate, momentum)
        self.W, self.b, self.c = ref.ascend(self.theta, self.velocity, 1)
        self.offsets = moved

    def data_phase(self, x):
        """Rows of all even layers and means of the odd ones, given the visible
        layer.
        """
        if x.shape[1] == len(self.b):
            return ref.batch(x, ref.hidden_mean(x, self.its.to_hidden * self.W, self.c))
        start = self.offsets[0][x.shape[1] :]
        even, odd, _ = ref.mean_field(
            x, start, self.theta, tolerance=1e-13, rounds=10_000
        )
        return ref.batch(np.hstack([x, even]), odd)

    def model_phase(self, data, h, number, exact, aside=""):
        """All states, or the samples of an update; and the chains after it."""
        if exact:
            return ref.model_phase(*self.theta), h
        if self.its.restart:
            u = uniform(int(self.its.seed), number, f"restart{aside}", data.h.size)
            h = ref.draw(data.h, u.reshape(data.h.shape))
        x, h = reference_sweeps(
            [a.astype(np.float32) for a in self.theta],
            h,
            self.its,
            number,
            f"sampler{aside}",
        )
        return ref.batch(x, ref.hidden_mean(x, self.its.to_hidden * self.W, self.c)), h

    def moved_offsets(self, data, model, number):
        its, how, source = self.its, self.its.offsets, self.its.offsets_from
        if source != SAME:
            exact = source == ALL_STATES
            model, self.aside_h = self.model_phase(
                data, self.aside_h, number, exact, "_aside"
            )
        sides = zip(
            self.offsets,
            wide((how.mu_factor, how.lam_factor)),
            (how.mu_mix, how.lam_mix),
            moments(data)[1:],
            moments(model)[1:],
            noises(its, number, *self.W.shape),
            strict=True,
        )
        return [
            ref.moving_average(old, ref.offset_target(*rest), nu)
            for old, nu, *rest in sides
        ]


def departure(state, trainer):
    """How many hidden states differ, and how much numbers do at most."""
    chains = [] if trainer.its.exact else [(state.h, trainer.h)]
    if state.aside_h is not None:
        chains.append((state.aside_h, trainer.aside_h))
    expected = (
        *trainer.theta,
        *trainer.offsets,
        *(trainer.velocity if state.velocity else ()),
    )
    pairs = zip((*state[:5], *(state.velocity or ())[:3]), expected, strict=True)
    error = max(np.abs(one - other).max() for one, other in pairs)
    return sum(int((one != other).sum()) for one, other in chains), error
