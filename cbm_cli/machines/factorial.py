"""A lower bound of log Z by independent units.

Take any distribution of x whose units are independent, with means q (N,). With h summed
out, Jensen's inequality says

    log Z >= H(q) + b'q + sum_j E log(1 + exp(a_j)),    a_j = c_j + sum_i W_ij x_i,

where H is the entropy. The right side is log Z less the divergence of the distribution
from p(x). Every q is a proof, so no search for a good one has to converge.

The expected value is bounded in turn. With g(a) = log(2 cosh(a / 2)),

    log(1 + exp(a)) = a / 2 + g(a),
    g(a) >= log 2 + sum_k tau_k (1 - cos(omega_k a)),    k = 1, 3, 5, ...,
    omega_k = 2 pi k / P,    tau_k = 4 pi / (P omega_k sinh(pi omega_k)),

for any period P, and the expected value of a cosine is a product over units:

    E cos(omega a_j) = Re exp(i omega c_j) prod_i (1 - q_i + q_i exp(i omega W_ij)).

The bound of g holds since the second derivative of the whole sum, by the Fourier
transform of g'', is that of g less that of g moved by P/2 both ways, plus that of g
moved by P, and so on. Up to P/2 it is therefore at most that of g, whose value and
slope at 0 the sum shares. Beyond P/2 the sum repeats values from nearer to 0, where g
is smaller. Terms are not negative, so that a few of them prove less, but nothing wrong.

The same holds with the sides of the machine exchanged.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

from cbm_cli.kernels.memory import Array
from cbm_cli.machines.models import Flat, Side
from cbm_cli.reference import entropy, free_energy, softplus, states

_ROUNDS = (10, 20)  # of mean field: from all starts, and from the best of them
_FIXED_POINTS = 4  # of mean field from which the search for the best means goes on
_APART = 0.5  # in some unit, fixed points that are not the same
_LEAST, _MOST = 0.05, 0.95  # means at half of the starts, from which more is reached
_SEARCH = 30  # rounds of the search for means, which has hardly an end of its own
_HELD, _HELD_OF_LARGE = 6, 4  # units that are fixed in all ways, less those of parts
_LARGE = 100_000  # weights of a large machine
_TERMS = 10  # cosines
_SPREAD = 5.0  # standard deviations of an activation within half a period
_WIDTH = 8.0  # what half a period has more, since its end is rounded
_NEGLIGIBLE = 1e-3  # variance of an activation that a unit may have without a cosine

Values = NDArray[np.float64]
Units = NDArray[np.intp]
NO_UNITS: Units = np.zeros(0, np.intp)


class Part(NamedTuple):
    """Means of the states of x in which the units ``held`` are as they are there."""

    means: Array  # (N,), 0 or 1 for the units held
    held: Units


class Covering(NamedTuple):
    """Disjoint parts of the states of one side, and a lower bound of their weight."""

    log_z: float
    side: Side
    parts: list[Part]


@np.errstate(over="ignore", invalid="ignore")  # of weights whose squares overflow
def log_z_by_means(machine: Flat, starts: Array) -> float:
    """Return a lower bound of log Z, up to rounding, from states of x (R, N).

    Mean field goes from the states to its fixed points. From these better means are
    sought, on both sides. The side on which disjoint parts around them weigh more is
    split in all parts. Float32 finds means, and float64 computes their bounds.
    """
    visible = machine.plain
    means_of_x = fixed_points(visible, starts)
    means_of_h = expit(means_of_x @ visible.W + visible.c)
    best = Covering(-np.inf, visible, [Part(starts[0], NO_UNITS)])
    for side, means in ((visible, means_of_x), (visible.turned, means_of_h)):
        parts = disjoint_parts(better_means(side, means))
        wide = side.wide
        log_z = logsumexp([factorial_bound(wide, part.means) for part in parts])
        if log_z > best.log_z:  # which NaN is not
            best = Covering(float(log_z), side, parts)
    count = _HELD_OF_LARGE if visible.W.size > _LARGE else _HELD
    count -= int(np.log2(len(best.parts)))
    weights = [sum_of_parts(best.side, *part, count) for part in best.parts]
    return max(best.log_z, float(logsumexp(weights)))


def fixed_points(side: Side, starts: Array) -> Array:
    """Means to which mean field leads from states of x (R, N), up to four that differ,
    the best first.

    It begins at the states themselves and at means near to them. A half step sets one
    side to its best response: h = sigmoid(c + q W), then q = sigmoid(b + W h). Mean
    field has the bound above with E a_j in place of a_j.
    """
    q = np.vstack([starts, starts.clip(_LEAST, _MOST)])
    for rounds in _ROUNDS:
        for _ in range(rounds):
            q = expit(expit(q @ side.W + side.c) @ side.W.T + side.b)
        bounds = entropy(q) - free_energy(q, *side)
        q = _different(q[np.argsort(-bounds, kind="stable")])
    return q


def _different(means: Array) -> Array:
    """The first four rows (R, N) that are far from all rows before."""
    modes = [means[0]]
    for row in means[1:]:
        nearest = min(np.abs(row - mode).max() for mode in modes)
        if nearest > _APART and len(modes) < _FIXED_POINTS:
            modes.append(row)
    return np.array(modes)


def disjoint_parts(modes: Array) -> list[Part]:
    """Parts around modes (R, N), so that no state is in two of them.

    The unit in which the modes differ most is fixed, in two ways, and so on.
    """
    spread = np.ptp(modes, axis=0)
    unit = int(np.argmax(spread))
    if not spread[unit] > 0:
        return [Part(modes[0], NO_UNITS)]
    of_unit = modes[:, unit]
    above = of_unit - of_unit.min() > of_unit.max() - of_unit
    parts = []
    for on in (False, True):
        members = modes[above == on].copy()
        members[:, unit] = on
        for part in disjoint_parts(members):
            parts.append(Part(part.means, np.append(part.held, unit)))
    return parts


def better_means(side: Side, q: Array, held: Units = NO_UNITS) -> Array:
    """Means (R, N) of larger bounds, as a rule; those of the units ``held`` stay.

    If the derivative of the bound by q_i is 0, logit(q_i) = b_i + sum_j E log(1 +
    exp(a_j)) with x_i = 1 less that with x_i = 0; its series in W_ij is taken to second
    order. Activations are taken as normal, so that E sigmoid(a) is about
    sigmoid(kappa E a), with kappa = (1 + pi variance / 8)^-1/2 (MacKay 1992).
    """
    fixed, squares = q[:, held], np.square(side.W)
    for _ in range(_SEARCH):
        variance = (q * (1 - q)) @ squares
        kappa = 1 / np.sqrt(1 + np.float32(np.pi / 8) * variance)
        h = expit(kappa * (q @ side.W + side.c))
        slope = kappa * h * (1 - h)
        to_x = side.b + h @ side.W.T + (np.float32(0.5) - q) * (slope @ squares.T)
        q = (q + expit(to_x)) / 2
        q[:, held] = fixed
    return q


def factorial_bound(side: Side, q: Array) -> float:
    """H(q) + b'q + sum_j E log(1 + exp(a_j)) for means q (N,), or a little less."""
    means = q.astype(np.float64)
    from_h = expected_softplus(side, means).sum()
    return float(entropy(means) + means @ side.b + from_h)


def expected_softplus(side: Side, q: Values) -> Values:
    """Lower bounds (M,) of E log(1 + exp(a_j)): by cosines, or with E a_j for a_j.

    Units whose variance hardly matters count by their means, which proves less.
    """
    variance, mean, squares = q * (1 - q), q @ side.W + side.c, np.square(side.W)
    random = variance * squares.sum(axis=1) > _NEGLIGIBLE
    W, p = side.W[random], q[random, None]
    half_period = np.abs(mean) + _SPREAD * np.sqrt(variance @ squares) + _WIDTH
    omega = np.pi / half_period
    turn = np.exp(1j * omega * W)
    phase = np.exp(1j * omega * (mean - q[random] @ W))
    next_turn, next_phase = turn**2, phase**2
    g = np.full(len(mean), np.log(2))
    for k in range(1, 2 * _TERMS, 2):
        tau = 2 / (k * np.sinh(np.pi * k * omega))
        cosine = phase * np.prod(1 - p + p * turn, axis=0)
        g += tau * (1 - cosine.real)
        turn, phase = turn * next_turn, phase * next_phase
    return np.maximum(mean / 2 + g, softplus(mean))


def sum_of_parts(
    side: Side, q: Array, held: Units = NO_UNITS, count: int = _HELD
) -> float:
    """Return the bound of log Z by 2^count parts: so many units are fixed in all ways,
    so that no state is in two parts, and bounds of what the parts weigh add up.
    Units that are ``held`` already have only that state.

    The units are those that correlate most with others, to second order in W.
    """
    variance, h = q * (1 - q), expit(q @ side.W + side.c)
    coupling = (side.W * (h * (1 - h))) @ side.W.T
    np.fill_diagonal(coupling, 0)
    correlation = variance * (np.square(coupling) @ variance)
    free = np.setdiff1d(np.arange(len(q)), held)
    order = np.argsort(-correlation[free], kind="stable")
    split = free[order[:count]]
    parts = np.tile(q, (2 ** len(split), 1))
    parts[:, split] = states(len(split))
    parts = better_means(side, parts, np.append(held, split))
    wide = side.wide
    return float(logsumexp([factorial_bound(wide, part) for part in parts]))
