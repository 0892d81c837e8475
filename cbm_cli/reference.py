"""The paper in plain NumPy, float64: one function per equation, written to be read beside it.

Melchior, Fischer & Wiskott, "How to Center Binary Deep Boltzmann Machines". The compiled kernels are tested
against these functions. Numbers are those of the paper's equations in print, names are its LaTeX labels.

    (1)-(3)    enhanced_W, _b, _c             enhanced_gradient
    (4)        energy                         energy; from it free_energy, log_partition, log_likelihood
    (5), (6)   cond_x, cond_h                 visible_mean, hidden_mean
    (7)-(9)    grad_W, _b, _c                 gradient; without offsets the standard gradient
    (10)-(12)  transform_W, _b, _c            transform; (23)-(25) from a plain machine, transformN_W, _b, _c
    (13)-(15)  cgradW, cgradb, cgradc         centered_gradient, plain_step
    (16)       general_neuron                 auto_encode
    (17)       MLE                            inverse_sigmoid
    (20)-(22)  change_W, _b, _c               flip
    Algorithm 1 (alg:algorithm2)              algorithm_1: trains a centered machine, and reparameterises it
    Algorithm 2 (alg:algorithm1)              algorithm_2: trains a plain machine with the centered gradient
    section 2                                 sweep, swap, tempered_sweep; accumulate for FPCD's fast weights
    section 2.2, natural gradient             fisher, natural_gradient
    section 3.2, centered DBMs                mean_field, lower_bound
    section 4.1, auto encoders                auto_encode, reconstruction_cost, back_propagate
    Salakhutdinov & Murray 2008               annealed, ais_step
    not in the paper                          weight_decay, accumulate (momentum), decayed_rate, stepped_rate

``theta`` is (W, b, c) of shapes (N, M), (N,), (M,), as is a gradient; ``offsets`` are (mu, lam), (N,), (M,).
Rows of data or of samples are x (R, N), with hidden units h (R, M). Logarithms are in nats. Samplers take
their uniform numbers u: a unit is on where u < p. A deep machine is flattened into an RBM: x holds the units
of its even layers side by side, h those of its odd layers.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit as sigmoid
from scipy.special import logit, logsumexp, xlog1py, xlogy

Array = NDArray[Any]  # of floats, in the precision of the arguments
Number = float | Array  # a number, or one for every unit
Theta = tuple[Array, Array, Array]  # W (N, M), b (N,), c (M,)
Offsets = tuple[Array, Array]  # mu (N,), lam (M,)
Gains = tuple[float, float]  # factors of what goes up to h and down to x
Pairs = Sequence[tuple[Theta, Offsets]]  # neighbouring layers of an auto encoder, from the bottom

# --- The machine: distributions and likelihoods ---


def energy(x: Array, h: Array, W: Array, b: Array, c: Array, mu: Number = 0.0, lam: Number = 0.0) -> Array:
    """E(x, h) of each row (R,), Eq. (4); a plain machine has no offsets."""
    return -(x - mu) @ b - (h - lam) @ c - np.sum((x - mu) @ W * (h - lam), axis=-1)


def visible_mean(h: Array, W: Array, b: Array, lam: Number = 0.0, beta: Number = 1.0) -> Array:
    """p(x_i = 1 | h), (R, M) -> (R, N), Eq. (5), at inverse temperature beta: a number or (R, 1)."""
    return sigmoid(beta * ((h - lam) @ W.T + b))


def hidden_mean(x: Array, W: Array, c: Array, mu: Number = 0.0, beta: Number = 1.0) -> Array:
    """p(h_j = 1 | x), (R, N) -> (R, M), Eq. (6), at inverse temperature beta: a number or (R, 1)."""
    return sigmoid(beta * ((x - mu) @ W + c))


def free_energy(x: Array, W: Array, b: Array, c: Array, mu: Number = 0.0, lam: Number = 0.0) -> Array:
    """-log sum_h exp(-E(x, h)) of each row (R,); its negative is the unnormalised log p(x)."""
    a = (x - mu) @ W + c  # the sum over h_j = 0, 1 is exp((0 - lam) a) + exp((1 - lam) a)
    return -(x - mu) @ b - np.sum(np.logaddexp(0, a) - lam * a, axis=-1)


def states(n: int) -> Array:
    """All states of n binary units in the order of binary numbers, (2^n, n)."""
    return ((np.arange(2**n)[:, None] >> np.arange(n)[::-1]) & 1).astype(float)


def log_partition(W: Array, b: Array, c: Array, mu: Number = 0.0, lam: Number = 0.0) -> float:
    """log Z of the energy (4), by the sum over all states of the smaller side.

    For centered parameters and offsets this is log Z of the centered energy, which is 0 at the offsets. The
    plain machine of the same distribution (`transform` to offsets of 0) has an energy that is smaller by
    mu'b + lam'c - mu'W lam, and a log Z that is larger by as much. ``cbm evaluate`` prints both.
    """
    if len(b) > len(c):
        W, b, c, mu, lam = W.T, c, b, lam, mu
    return logsumexp(-free_energy(states(len(b)), W, b, c, mu, lam))


def log_likelihood(x: Array, W: Array, b: Array, c: Array, mu: Number = 0.0, lam: Number = 0.0) -> Array:
    """log p(x) of each row (R,)."""
    return -free_energy(x, W, b, c, mu, lam) - log_partition(W, b, c, mu, lam)


def flip(theta: Theta, offsets: Offsets, f: Array, g: Array) -> tuple[Theta, Offsets]:
    """Parameters and offsets for the states with x_i (f_i = 1) and h_j (g_j = 1) flipped, Eqs. (20)-(22)."""
    (W, b, c), (mu, lam), sign_x, sign_h = theta, offsets, (-1.0) ** f, (-1.0) ** g
    flipped = np.where(f == 1, 1 - mu, mu), np.where(g == 1, 1 - lam, lam)
    return (sign_x[:, None] * W * sign_h, sign_x * b, sign_h * c), flipped


# --- Expectations <.>_d and <.>_m, and the gradients made of them ---


class Ensemble(NamedTuple):
    """Rows that stand for the data or for the model: <f> is the sum of p f(x, h) over the rows."""

    x: Array  # (R, N)
    h: Array  # (R, M) states, or means given x (Rao-Blackwell)
    p: Array  # (R,) adds up to one


Sampler = Callable[..., Ensemble]  # the model phase, from the data phase and a machine
Estimator = Callable[[Ensemble, Ensemble], Offsets]  # new offsets, from the data and the model phase


def batch(x: Array, h: Array) -> Ensemble:
    """The phase of equally weighted rows."""
    return Ensemble(x, h, np.full(len(x), 1 / len(x)))


def model_phase(W: Array, b: Array, c: Array, mu: Number = 0.0, lam: Number = 0.0) -> Ensemble:
    """The exact model phase: all visible states with p(x), hidden means given them."""
    x = states(len(b))
    return Ensemble(x, hidden_mean(x, W, c, mu), np.exp(log_likelihood(x, W, b, c, mu, lam)))


def joint_phase(W: Array, b: Array, c: Array, mu: Number = 0.0, lam: Number = 0.0) -> Ensemble:
    """All pairs of states (x, h) with p(x, h), those of h running fastest."""
    x, h = np.repeat(states(len(b)), 2 ** len(c), axis=0), np.tile(states(len(c)), (2 ** len(b), 1))
    return Ensemble(x, h, np.exp(-energy(x, h, W, b, c, mu, lam) - log_partition(W, b, c, mu, lam)))


def correlation(phase: Ensemble, mu: Number = 0.0, lam: Number = 0.0) -> Array:
    """<(x - mu)(h - lam)'>, (N, M)."""
    return ((phase.x - mu) * phase.p[:, None]).T @ (phase.h - lam)


def gradient(data: Ensemble, model: Ensemble, mu: Number = 0.0, lam: Number = 0.0) -> Theta:
    """The log-likelihood gradient of the centered machine, Eqs. (7)-(9); the standard one without offsets."""
    dW = correlation(data, mu, lam) - correlation(model, mu, lam)
    return dW, data.p @ data.x - model.p @ model.x, data.p @ data.h - model.p @ model.h


def centered_gradient(data: Ensemble, model: Ensemble, mu: Array, lam: Array) -> Theta:
    """The centered gradient of the plain machine, Eqs. (13)-(15)."""
    return plain_step(gradient(data, model, mu, lam), mu, lam)  # (13) is (7)


def plain_step(step: Theta, mu: Array, lam: Array, gains: Gains = (1.0, 1.0)) -> Theta:
    """The step of the plain parameters for a step of the centered ones, Eqs. (14), (15).

    The step of W includes everything that moves W: decay, missing connections. ``gains`` multiply the inputs
    of h and of x: 2 if layer-wise pre-training doubles them, else 1.
    """
    (dW, dx, dh), (up, down) = step, gains
    return dW, dx - down * dW @ lam, dh - up * dW.T @ mu


def enhanced_gradient(data: Ensemble, model: Ensemble) -> Theta:
    """The enhanced gradient of Cho, Raiko & Ilin 2011, Eqs. (1)-(3)."""
    x_d, h_d, x_m, h_m = data.p @ data.x, data.p @ data.h, model.p @ model.x, model.p @ model.h
    dW = correlation(data, x_d, h_d) - correlation(model, x_m, h_m)
    return dW, x_d - x_m - dW @ (h_d + h_m) / 2, h_d - h_m - dW.T @ (x_d + x_m) / 2


def fisher(phase: Ensemble) -> Array:
    """The covariance (P, P) of (x h' row by row, x, h) in a phase.

    The Fisher matrix of p(x, h), as the paper prints it, for the `joint_phase`; that of p(x), as it defines
    it, for the `model_phase`; an estimate of either for samples with hidden states or hidden means.
    """
    x, h, p = phase
    s = np.hstack([(x[:, :, None] * h[:, None, :]).reshape(len(x), -1), x, h])
    s = s - p @ s
    return (s * p[:, None]).T @ s


def natural_gradient(standard: Theta, F: Array, damping: float = 0.0) -> Theta:
    """(F + damping I)^-1 times the gradient (Amari 1998), the shortest step where F is singular.

    F is a `fisher` matrix, or its diagonal as a matrix for the diagonal approximation.
    """
    dW, db, dc = standard
    F, vector = F + damping * np.eye(len(F)), np.concatenate([dW.ravel(), db, dc])
    step_W, step_b, step_c = np.split(np.linalg.lstsq(F, vector)[0], [dW.size, dW.size + len(db)])
    return step_W.reshape(dW.shape), step_b, step_c


# --- Offsets ---

# Shares of data mean, model mean, constant and uniform noise, by letter of a scheme.
LETTERS = {
    "0": (0, 0, 0, 0),
    "d": (1, 0, 0, 0),
    "m": (0, 1, 0, 0),
    "a": (1 / 2, 1 / 2, 0, 0),
    "h": (0, 0, 1 / 2, 0),
    "r": (0, 0, 0, 1),
}


def offset_target(shares: Sequence[Number], data_mean: Number, model_mean: Number, noise: Number) -> Number:
    """The new offset of each unit, (units,); shares are (4,) of a letter or (4, units)."""
    return shares[0] * data_mean + shares[1] * model_mean + shares[2] + shares[3] * noise


def moving_average(old: Any, new: Any, nu: Number) -> Any:
    """Move an offset by the sliding factor nu towards its target; 1 is no average."""
    return (1 - nu) * old + nu * new


def transform(theta: Theta, old: Offsets, new: Offsets) -> Theta:
    """The parameters for other offsets that leave p(x, h) as it is, Eqs. (10)-(12)."""
    (W, b, c), (mu, lam), (mu_new, lam_new) = theta, old, new
    return W, b + W @ (lam_new - lam), c + W.T @ (mu_new - mu)


# --- Both algorithms ---


def algorithm_1(
    theta: Theta,
    offsets: Offsets,
    batches: Iterable[Array],
    sample: Sampler,
    estimate: Estimator,
    rates: tuple[float, Number, Number],
    before: bool = True,
) -> tuple[Theta, Offsets]:
    """Train a centered machine: Algorithm 1. Arguments as in `algorithm_2`, theta as in the energy (4)."""
    eta, nu_mu, nu_lam = rates
    for x_d in batches:
        (W, b, c), (mu, lam) = theta, offsets
        data = batch(x_d, hidden_mean(x_d, W, c, mu))  # Eq. (6)
        model = sample(data, W, b, c, mu, lam)  # Eqs. (5), (6)
        mu_new, lam_new = estimate(data, model)
        moved = moving_average(mu, mu_new, nu_mu), moving_average(lam, lam_new, nu_lam)
        if before:
            theta, offsets = transform(theta, offsets, moved), moved  # Eqs. (10)-(12)
        theta = ascend(theta, gradient(data, model, *offsets), eta)  # Eqs. (7)-(9)
        if not before:
            theta, offsets = transform(theta, offsets, moved), moved
    return theta, offsets


def algorithm_2(
    theta: Theta,
    offsets: Offsets,
    batches: Iterable[Array],
    sample: Sampler,
    estimate: Estimator,
    rates: tuple[float, Number, Number],
    before: bool = True,
) -> tuple[Theta, Offsets]:
    """Train a plain machine with the centered gradient: Algorithm 2, the one that the kernels follow.

    Parameters
    ----------
    batches : iterable of (B, N)
        Data of each update.
    sample : function
        The model phase from (data phase, W, b, c), and from (..., mu, lam) in `algorithm_1`.
    estimate : function
        (mu_new, lam_new) from (data phase, model phase).
    rates
        (eta, nu_mu, nu_lam): learning rate and sliding factors.
    before : bool
        Offsets move before the gradient step (^b), or after it (^l).
    """
    (W, b, c), (mu, lam), (eta, nu_mu, nu_lam) = theta, offsets, rates
    for x_d in batches:
        data = batch(x_d, hidden_mean(x_d, W, c))  # h_d, Eq. (6)
        model = sample(data, W, b, c)  # x_m and h_m, Eqs. (5), (6)
        mu_new, lam_new = estimate(data, model)
        if before:
            mu, lam = moving_average(mu, mu_new, nu_mu), moving_average(lam, lam_new, nu_lam)
        dW, db, dc = centered_gradient(data, model, mu, lam)  # Eqs. (13)-(15)
        W = W + eta * dW
        b = b + eta * db
        c = c + eta * dc
        if not before:
            mu, lam = moving_average(mu, mu_new, nu_mu), moving_average(lam, lam_new, nu_lam)
    return (W, b, c), (mu, lam)


def inverse_sigmoid(mean: Array) -> Array:
    """Biases of a machine without weights that has these means, Eq. (17)."""
    return logit(mean)


# --- Steps ---


def ascend(theta: Theta, direction: Theta, eta: float) -> Theta:
    """A step of length eta along a direction."""
    W, b, c = (parameter + eta * d for parameter, d in zip(theta, direction, strict=True))
    return W, b, c


def accumulate(old: Theta, direction: Theta, rate: float, kept: float) -> Theta:
    """kept * old + rate * direction: the velocity of momentum, or FPCD's fast weights.

    Momentum adds the velocity to theta. FPCD adds the fast weights to theta for its chains alone (Tieleman &
    Hinton 2009); there ``kept`` is their decay, such as 0.95.
    """
    W, b, c = (kept * o + rate * d for o, d in zip(old, direction, strict=True))
    return W, b, c


def rescale(direction: Theta, other: Theta) -> Theta:
    """The direction with the Euclidean norm of another, over all parameters."""
    norm, target = (np.sqrt(sum(np.sum(d**2) for d in each)) for each in (direction, other))
    return tuple(d * target / norm for d in direction)


def weight_decay(W: Array, l1: float, l2: float) -> Array:
    """The decay term of the gradient of W: the gradient of -l1 sum |w| - l2/2 sum w^2.

    Add it before `plain_step`: the weights of the centered machine then decay, and its biases do not change.
    """
    return -l1 * np.sign(W) - l2 * W


def decayed_rate(update: int, start: float, decay: float, every: int) -> float:
    """The learning rate start * decay^floor(update / every)."""
    return start * decay ** (update // every)


def stepped_rate(update: int, steps: Sequence[tuple[int, float]]) -> float:
    """The learning rate of the last of the steps ((first update, rate), ...) that has begun."""
    return [rate for first, rate in steps if first <= update][-1]


# --- Samplers ---


def draw(p: Array, u: Array) -> Array:
    """States of units: on where u < p."""
    return (u < p).astype(float)


def sweep(
    h: Array, theta: Theta, u_x: Array, u_h: Array, beta: Number = 1.0, gains: Gains = (1.0, 1.0)
) -> tuple[Array, Array]:
    """One Gibbs sweep of chains that carry h (K, M): x given h, then h given x; returns both.

    CD starts at hidden states drawn from the data's hidden means, PCD where the last update ended. ``gains``
    as in `plain_step`.
    """
    (W, b, c), (up, down) = theta, gains
    x = draw(visible_mean(h, down * W, b, beta=beta), u_x)
    return x, draw(hidden_mean(x, up * W, c, beta=beta), u_h)


def swap(x: Array, h: Array, theta: Theta, beta: Array, u: Array, parity: int) -> tuple[Array, Array]:
    """Exchange the states of neighbours (k, k + 1), k = parity, parity + 2, ..., of one ladder of chains.

    With the Metropolis probability min(1, exp((beta_k - beta_{k+1}) (E_k - E_{k+1}))); beta, u are (K,).
    """
    E, order = energy(x, h, *theta), np.arange(len(beta))
    for k in range(parity, len(beta) - 1, 2):
        if u[k] < np.exp(min(0.0, (beta[k] - beta[k + 1]) * (E[k] - E[k + 1]))):
            order[[k, k + 1]] = k + 1, k
    return x[order], h[order]


def parities(swaps: str, number: int) -> tuple[int, ...]:
    """Which rounds of swaps follow sweep ``number``: even and odd pairs in turn ("alternate"), or "both"."""
    return (number % 2,) if swaps == "alternate" else (0, 1)


def tempered_sweep(
    h: Array,
    theta: Theta,
    beta: Array,
    u: Iterable[tuple[Array, Array]],
    u_swap: Array,
    rounds: Iterable[int],
) -> tuple[Array, Array]:
    """k Gibbs sweeps of a ladder (K, M) at inverse temperatures beta (K,), then rounds of swaps.

    u holds k pairs (u_x, u_h), ``rounds`` the `parities`; at beta = 1 the samples are the model's.
    """
    for u_x, u_h in u:
        x, h = sweep(h, theta, u_x, u_h, beta[:, None])
    for parity in rounds:
        x, h = swap(x, h, theta, beta, u_swap, parity)
    return x, h


def annealed(theta: Theta, base: Array, beta: float) -> Theta:
    """The machine at beta between independent units with biases ``base`` (0) and theta (1)."""
    W, b, c = theta
    return beta * W, (1 - beta) * base + beta * b, beta * c


def ais_step(x: Array, here: Theta, there: Theta, u_h: Array, u_x: Array) -> tuple[Array, Array]:
    """One step of annealed importance sampling between two `annealed` machines.

    Returns x (R, N) after a sweep, h then x, that leaves ``here`` invariant, and what the step adds to each
    row's log weight, (R,). From theta down to the base, the steps are those of reverse AIS and RAISE.
    """
    W, b, c = here
    h = draw(hidden_mean(x, W, c), u_h)
    x = draw(visible_mean(h, W, b), u_x)
    return x, free_energy(x, *here) - free_energy(x, *there)


# --- Deep machines, flattened ---


def mean_field(
    x: Array, start: Array, theta: Theta, tolerance: float = 1e-4, rounds: int = 100
) -> tuple[Array, Array, int]:
    """Mean-field posterior of the hidden layers given the visible layer x (R, n).

    Each round sets the even layers, then the odd ones, to their best response to each other; it is the last
    one when no mean changes by ``tolerance`` or more.

    Returns
    -------
    even, odd : (R, N - n), (R, M)
        Means of the deeper even layers, which begin at ``start`` (N - n,), and of the odd layers.
    made : int
        Rounds made; rounds + 1 without convergence.
    """
    (W, b, c), n = theta, x.shape[1]
    even = np.tile(start, (len(x), 1))
    odd = hidden_mean(np.hstack([x, even]), W, c)
    for made in range(1, rounds + 1):
        old = np.hstack([even, odd])
        even = visible_mean(odd, W[n:], b[n:])
        odd = hidden_mean(np.hstack([x, even]), W, c)
        if np.abs(np.hstack([even, odd]) - old).max() < tolerance:
            return even, odd, made
    return even, odd, rounds + 1


def entropy(p: Array) -> Array:
    """Entropy of independent units with means p (R, units), (R,)."""
    return -np.sum(xlogy(p, p) + xlog1py(1 - p, -p), axis=-1)


def lower_bound(x: Array, even: Array, odd: Array, theta: Theta) -> Array:
    """The variational bound of log p(x), (R,): <-E> under the factorial posterior, plus its entropy, - log Z.

    The energy is linear in every unit, so that its expectation is the energy of the means.
    """
    return -energy(np.hstack([x, even]), odd, *theta) + entropy(even) + entropy(odd) - log_partition(*theta)


# --- Auto encoders ---

# Activations, and their derivatives where they have the value v.
ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "sigmoid": (sigmoid, lambda v: v * (1 - v)),
    "tanh": (np.tanh, lambda v: 1 - v**2),
    "relu": (lambda a: np.maximum(a, 0), lambda v: (v > 0).astype(float)),
    "linear": (lambda a: a, np.ones_like),
}


def auto_encode(
    x: Array, pairs: Pairs, encoder: str = "sigmoid", decoder: str = "sigmoid"
) -> tuple[list[Array], list[Array]]:
    """Layers y_0 = x, ..., y_L of the encoder and z_0, ..., z_L = y_L of the decoder, section 4.1.

    ``pairs`` are (theta, offsets) of neighbouring layers, from the bottom: y_{l+1} = f((y_l - mu) W + c) and
    z_l = g((z_{l+1} - lam) W' + b) with tied weights W.
    """
    (f, _), (g, _) = ACTIVATIONS[encoder], ACTIVATIONS[decoder]
    y = [x]
    for (W, _, c), (mu, _) in pairs:
        y.append(f((y[-1] - mu) @ W + c))
    z = [y[-1]]
    for (W, b, _), (_, lam) in reversed(pairs):
        z.insert(0, g((z[0] - lam) @ W.T + b))
    return y, z


def reconstruction_cost(x: Array, z: Array, loss: str = "cross-entropy") -> float:
    """Mean over rows of the squared error or of the cross entropy, summed over units."""
    per_unit = (x - z) ** 2 if loss == "squared" else -xlogy(x, z) - xlog1py(1 - x, -z)
    return per_unit.sum(axis=1).mean()


def back_propagate(
    x: Array, pairs: Pairs, encoder: str = "sigmoid", decoder: str = "sigmoid", loss: str = "cross-entropy"
) -> list[Theta]:
    """Gradients of the cost with respect to W, b, c of every pair, the offsets held still.

    A delta is the derivative of the cost with respect to what goes into an activation. Cross entropy is for
    a sigmoid decoder.
    """
    (_, df), (_, dg), depth = ACTIVATIONS[encoder], ACTIVATIONS[decoder], len(pairs)
    y, z = auto_encode(x, pairs, encoder, decoder)
    weights = [W for (W, _, _), _ in pairs]
    delta_z = [(2 * (z[0] - x) * dg(z[0]) if loss == "squared" else z[0] - x) / len(x)]
    for k in range(1, depth):  # up through the decoder
        delta_z.append(delta_z[-1] @ weights[k - 1] * dg(z[k]))
    delta_y = [delta_z[-1] @ weights[-1] * df(y[depth])]
    for k in range(depth - 1, 0, -1):  # down through the encoder
        delta_y.insert(0, delta_y[0] @ weights[k].T * df(y[k]))
    return [
        ((y[k] - mu).T @ delta_y[k] + delta_z[k].T @ (z[k + 1] - lam), delta_z[k].sum(0), delta_y[k].sum(0))
        for k, (_, (mu, lam)) in enumerate(pairs)
    ]
