"""The paper as array code: one function per equation, to be read with the paper.

Melchior, Fischer & Wiskott, "How to Center Binary Deep Boltzmann Machines". The
compiled kernels are tested against these functions. Numbers are those of the paper's
equations in print, names are its LaTeX labels.

    equation                      here                       in kernels
    ----------------------------  -------------------------  --------------------------
    (1)-(3)    enhanced_W, ...    enhanced_gradient          scheme aa^b: (13)-(15)
    (4)        energy             energy, free_energy,       sampling.chain_energies,
                                  log_partition,             states.walk_gray_code,
                                  log_likelihood             likelihood.sum_of_scores
    (5), (6)   cond_x, cond_h     visible_mean, hidden_mean  sampling.sweep,
                                                             phases.mean_hidden
    (7)-(9)    grad_W, ...        gradient (the standard     training.gather_gradient
                                  one without offsets)
    (10)-(12)  transform_W, ...   transform; from a plain    -, biases are plain
                                  machine (23)-(25)
    (13)-(15)  cgradW, ...        centered_gradient,         step.ascend
                                  plain_step
    (16)       general_neuron     auto_encode                auto_encoder.
                                                             encode_and_decode
    (17)       MLE                inverse_sigmoid            -, trial.start.
                                                             first_machine
    (20)-(22)  change_W, ...      flip                       -
    Algorithm 1 alg:algorithm2    algorithm_1 (centered)     -
    Algorithm 2 alg:algorithm1    algorithm_2 (plain)        training.make_updates
    section 2                     sweep (CD, PCD), swap,     sampling.draw_samples,
                                  tempered_sweep             swap_neighbours
    section 2.2                   fisher, natural_gradient   natural.natural_step
    section 3                     offset_target,             offsets.slide
                                  moving_average
    section 3.2                   mean_field, lower_bound,   mean_field.mean_field
                                  pretrained,
                                  gains_of_layer
    section 4.1                   reconstruction_cost,       auto_encoder.
                                  back_propagate             cross_entropies,
                                                             propagate_back
    Salakhutdinov & Murray 2008   ais_step                   annealing.anneal
    not in the paper              weight_decay, accumulate   step.decay_weights, step
                                  (momentum), rescale        natural.natural_step

``theta`` is (W, b, c) of shapes (N, M), (N,), (M,), as is a gradient; ``offsets`` are
(mu, lam), (N,), (M,). Rows of data or of samples are x (R, N), with hidden units h (R,
M). Where recorders take many snapshots of a machine at once, in free energies, means
and `plain_step`, arrays may have axes in front of these. Logarithms are in nats.
Samplers take their uniform numbers u: a unit is on where u < p. A deep machine is
flattened into an RBM: x holds the units of its even layers side by side, h those of its
odd layers.

Results are in the precision of the arrays; tests take float64.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.special
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]  # of floats, in the precision of the arguments
Number = float | Array  # a number, or one for every unit
Theta = tuple[Array, Array, Array]  # W (N, M), b (N,), c (M,)
Offsets = tuple[Array, Array]  # mu (N,), lam (M,)
Gains = tuple[float, float]  # factors of what goes up to h and down to x
Pairs = Sequence[
    tuple[Theta, Offsets]
]  # neighbouring layers of an auto encoder, from the bottom

# --- Arrays ---


def per_row(values: Number) -> Number:
    """Numbers of units, (..., units), as (..., 1, units), for every row; one number
    stays as it is.
    """
    return values[..., None, :] if getattr(values, "ndim", 0) else values  # type: ignore[index]


def times(matrix: Array, vector: Array) -> Array:
    """The product of matrices (..., R, C) and vectors (..., C): (..., R)."""
    return (matrix @ vector[..., None])[..., 0]


def flat(theta: Theta) -> Array:
    """All parameters, or what belongs to them, in one vector (..., P): W row by row, b,
    c.
    """
    W, b, c = theta
    return np.concat([W.reshape(*W.shape[:-2], -1), b, c], axis=-1)


def sigmoid(a: Array) -> Array:
    """1 / (1 + exp(-a))."""
    return scipy.special.expit(a)


def softplus(a: Array) -> Array:
    """log(1 + exp(a))."""
    return np.logaddexp(np.zeros_like(a[..., :1]), a)


def states(
    n: int, dtype: DTypeLike = float, first: int = 0, last: int | None = None
) -> Array:
    """All states of n binary units, (2^n, n), unit 0 is the lowest bit; or those of the
    numbers first, ..., last - 1.

    >>> states(2)
    array([[0., 0.],
           [1., 0.],
           [0., 1.],
           [1., 1.]])
    """
    numbers = np.arange(first, 2**n if last is None else last)
    return ((numbers[:, None] >> np.arange(n)) & 1).astype(dtype)


# --- The machine: distributions and likelihoods ---


def energy(
    x: Array,
    h: Array,
    W: Array,
    b: Array,
    c: Array,
    mu: Number = 0.0,
    lam: Number = 0.0,
) -> Array:
    """E(x, h) of each row (R,), Eq. (4); a plain machine has no offsets."""
    x, h = x - per_row(mu), h - per_row(lam)
    return -times(x, b) - times(h, c) - (x @ W * h).sum(-1)


def visible_mean(
    h: Array, W: Array, b: Array, lam: Number = 0.0, beta: Number = 1.0
) -> Array:
    """p(x_i = 1 | h), (R, M) -> (R, N), Eq. (5), at inverse temperature beta: a number
    or (R, 1).
    """
    return sigmoid(beta * ((h - per_row(lam)) @ W.mT + per_row(b)))


def hidden_mean(
    x: Array, W: Array, c: Array, mu: Number = 0.0, beta: Number = 1.0
) -> Array:
    """p(h_j = 1 | x), (R, N) -> (R, M), Eq. (6), at inverse temperature beta: a number
    or (R, 1).
    """
    return sigmoid(beta * ((x - per_row(mu)) @ W + per_row(c)))


def free_energy(
    x: Array, W: Array, b: Array, c: Array, mu: Number = 0.0, lam: Number = 0.0
) -> Array:
    """-log sum_h exp(-E(x, h)) of each row (R,); its negative is the unnormalised log
    p(x).
    """
    x = x - per_row(mu)
    # the sum over h_j = 0, 1 is exp((0 - lam) a) + exp((1 - lam) a)
    a = x @ W + per_row(c)
    return -times(x, b) - (softplus(a) - per_row(lam) * a).sum(-1)


def log_partition(
    W: Array, b: Array, c: Array, mu: Number = 0.0, lam: Number = 0.0
) -> Array:
    """log Z of the energy (4), by the sum over all states of the smaller side.

    For centered parameters and offsets this is log Z of the centered energy, which is 0
    at the offsets. The plain machine of the same distribution (`transform` to offsets
    of 0) has an energy that is smaller by mu'b + lam'c - mu'W lam, and a log Z that is
    larger by as much. ``cbm evaluate`` prints both.
    """
    if b.shape[-1] > c.shape[-1]:
        W, b, c, mu, lam = W.mT, c, b, lam, mu
    return scipy.special.logsumexp(
        -free_energy(states(b.shape[-1], W.dtype), W, b, c, mu, lam), -1
    )


def log_likelihood(
    x: Array, W: Array, b: Array, c: Array, mu: Number = 0.0, lam: Number = 0.0
) -> Array:
    """log p(x) of each row (R,)."""
    return -free_energy(x, W, b, c, mu, lam) - log_partition(W, b, c, mu, lam)


def flip(theta: Theta, offsets: Offsets, f: Array, g: Array) -> tuple[Theta, Offsets]:
    """Parameters and offsets for the states with x_i (f_i = 1) and h_j (g_j = 1)
    flipped, Eqs. (20)-(22).
    """
    (W, b, c), (mu, lam), sign_x, sign_h = theta, offsets, (-1.0) ** f, (-1.0) ** g
    mu, lam = (np.where(on == 1, 1 - old, old) for on, old in ((f, mu), (g, lam)))
    return (sign_x[..., None] * W * per_row(sign_h), sign_x * b, sign_h * c), (mu, lam)


# --- Expectations <.>_d and <.>_m, and the gradients made of them ---


class Ensemble(NamedTuple):
    """Rows that represent the data or the model: <f> is the sum of p f(x, h) over the
    rows.
    """

    x: Array  # (R, N)
    h: Array  # (R, M) states, or means given x (Rao-Blackwell)
    p: Array  # (R,) adds up to one


Sampler = Callable[..., Ensemble]  # the model phase, from the data phase and a machine
Estimator = Callable[
    [Ensemble, Ensemble], Offsets
]  # new offsets, from the data and the model phase


def batch(x: Array, h: Array) -> Ensemble:
    """The phase of equally weighted rows."""
    return Ensemble(x, h, np.full_like(h[..., 0], 1 / x.shape[-2]))


def model_phase(
    W: Array, b: Array, c: Array, mu: Number = 0.0, lam: Number = 0.0
) -> Ensemble:
    """The exact model phase: all visible states with p(x), hidden means given them."""
    x = states(b.shape[-1], W.dtype)
    return Ensemble(
        x, hidden_mean(x, W, c, mu), np.exp(log_likelihood(x, W, b, c, mu, lam))
    )


def joint_phase(
    W: Array, b: Array, c: Array, mu: Number = 0.0, lam: Number = 0.0
) -> Ensemble:
    """All pairs of states (x, h) with p(x, h), those of h running fastest."""
    pairs = states(c.shape[-1] + b.shape[-1], W.dtype)
    x, h = pairs[:, c.shape[-1] :], pairs[:, : c.shape[-1]]
    p = np.exp(-energy(x, h, W, b, c, mu, lam) - log_partition(W, b, c, mu, lam))
    return Ensemble(x, h, p)


def means(phase: Ensemble) -> tuple[Array, Array]:
    """<x> (N,) and <h> (M,)."""
    return times(phase.x.mT, phase.p), times(phase.h.mT, phase.p)


def correlation(phase: Ensemble, mu: Number = 0.0, lam: Number = 0.0) -> Array:
    """<(x - mu)(h - lam)'>, (N, M)."""
    return ((phase.x - per_row(mu)) * phase.p[..., None]).mT @ (phase.h - per_row(lam))


def gradient(
    data: Ensemble, model: Ensemble, mu: Number = 0.0, lam: Number = 0.0
) -> Theta:
    """The log-likelihood gradient of the centered machine, Eqs. (7)-(9); the standard
    one without offsets.
    """
    dW = correlation(data, mu, lam) - correlation(model, mu, lam)
    (x_d, h_d), (x_m, h_m) = means(data), means(model)
    return dW, x_d - x_m, h_d - h_m


def centered_gradient(data: Ensemble, model: Ensemble, mu: Array, lam: Array) -> Theta:
    """The centered gradient of the plain machine, Eqs. (13)-(15)."""
    return plain_step(gradient(data, model, mu, lam), mu, lam)  # (13) is (7)


def plain_step(step: Theta, mu: Array, lam: Array, gains: Gains = (1.0, 1.0)) -> Theta:
    """The step of the plain parameters for a step of the centered ones, Eqs. (14),
    (15).

    The step of W includes everything that moves W: decay, missing connections.
    ``gains`` multiply the inputs of h and of x: 2 if layer-wise pre-training doubles
    them, else 1.
    """
    (dW, dx, dh), (up, down) = step, gains
    return dW, dx - down * times(dW, lam), dh - up * times(dW.mT, mu)


def enhanced_gradient(data: Ensemble, model: Ensemble) -> Theta:
    """The enhanced gradient of Cho, Raiko & Ilin 2011, Eqs. (1)-(3)."""
    (x_d, h_d), (x_m, h_m) = means(data), means(model)
    dW = correlation(data, x_d, h_d) - correlation(model, x_m, h_m)
    return (
        dW,
        x_d - x_m - times(dW, h_d + h_m) / 2,
        h_d - h_m - times(dW.mT, x_d + x_m) / 2,
    )


def fisher(phase: Ensemble) -> Array:
    """The covariance (P, P) of (x h' row by row, x, h) in a phase.

    The Fisher matrix of p(x, h), as the paper prints it, for the `joint_phase`; that of
    p(x), as it defines it, for the `model_phase`; an estimate of either for samples
    with hidden states or hidden means.
    """
    x, h, p = phase
    s = np.hstack([(x[:, :, None] * h[:, None, :]).reshape(len(p), -1), x, h])
    s = s - p @ s
    return (s * p[:, None]).T @ s


def natural_gradient(standard: Theta, F: Array, damping: float = 0.0) -> Theta:
    """(F + damping I)^-1 times the gradient (Amari 1998), the shortest step where F is
    singular.

    F is a `fisher` matrix, or its diagonal as a matrix for the diagonal approximation.
    If F is singular, kernels take another step than the shortest one: parameters
    without a variance of their own do not move (`natural.solve`). To first order both
    steps raise the likelihood alike.
    """
    dW, db, _ = standard
    damped = F + damping * np.eye(len(F), dtype=F.dtype)
    step = np.linalg.pinv(damped, len(F) * np.finfo(F.dtype).eps) @ flat(standard)
    W, b, c = np.split(step, [dW.size, dW.size + len(db)])
    return W.reshape(dW.shape), b, c


# --- Offsets ---


def offset_target(
    shares: Sequence[Number], data_mean: Number, model_mean: Number, noise: Number
) -> Number:
    """The new offset of each unit, (units,); shares are (4,) of a letter, as in
    `cbm_cli.letters`, or (4, units) of several.
    """
    return (
        shares[0] * data_mean + shares[1] * model_mean + shares[2] + shares[3] * noise
    )


def moving_average(old: Any, new: Any, nu: Number) -> Any:
    """Move an offset by the sliding factor nu towards its target; 1 does not
    average.
    """
    return (1 - nu) * old + nu * new


def transform(theta: Theta, old: Offsets, new: Offsets) -> Theta:
    """The parameters for other offsets that leave p(x, h) as it is, Eqs. (10)-(12)."""
    (W, b, c), (mu, lam), (mu_new, lam_new) = theta, old, new
    return W, b + times(W, lam_new - lam), c + times(W.mT, mu_new - mu)


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
    """Train a centered machine: Algorithm 1. Arguments as in `algorithm_2`, theta as in
    the energy (4).
    """
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
    """Train a plain machine with the centered gradient: Algorithm 2, the one that the
    kernels follow.

    Parameters
    ----------
    batches : iterable of (B, N)
        Data of each update.
    sample : function
        The model phase from (data phase, W, b, c), and from (..., mu, lam) in
        `algorithm_1`.
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
            mu, lam = (
                moving_average(mu, mu_new, nu_mu),
                moving_average(lam, lam_new, nu_lam),
            )
        W, b, c = ascend(
            (W, b, c), centered_gradient(data, model, mu, lam), eta
        )  # Eqs. (13)-(15)
        if not before:
            mu, lam = (
                moving_average(mu, mu_new, nu_mu),
                moving_average(lam, lam_new, nu_lam),
            )
    return (W, b, c), (mu, lam)


def inverse_sigmoid(mean: Array) -> Array:
    """Biases of a machine without weights that has these means, Eq. (17)."""
    return scipy.special.logit(mean)


# --- Steps ---


def ascend(theta: Theta, direction: Theta, eta: float) -> Theta:
    """Return theta + eta * direction."""
    (W, b, c), (dW, db, dc) = theta, direction
    return W + eta * dW, b + eta * db, c + eta * dc


def accumulate(old: Theta, direction: Theta, rate: float, kept: float) -> Theta:
    """kept * old + rate * direction, such as the velocity of momentum, which is then
    added to theta.
    """
    W, b, c = old
    return ascend((kept * W, kept * b, kept * c), direction, rate)


def rescale(direction: Theta, other: Theta) -> Theta:
    """The direction with the Euclidean norm of another, over all parameters."""
    norm, target = ((flat(each) ** 2).sum(-1) ** 0.5 for each in (direction, other))
    W, b, c = (d * (target / norm) for d in direction)
    return W, b, c


def weight_decay(W: Array, l1: float, l2: float) -> Array:
    """The decay term of the gradient of W: the gradient of -l1 sum |w| - l2/2 sum w^2.

    Add it before `plain_step`: the weights of the centered machine then decay, and its
    biases do not change.
    """
    return -l1 * np.sign(W) - l2 * W


# --- Samplers ---


class ChainStates(NamedTuple):
    """Chains after a sweep."""

    x: Array  # (K, N)
    h: Array  # (K, M)
    # (K, M) x W, from which come the hidden means that the gradient takes, and energies
    to_h: Array


def draw(p: Array, u: Array) -> Array:
    """States of units: on where u < p."""
    return (u < p) * 1.0


def mean_of(to_h: Array, c: Array, beta: Number = 1.0) -> Array:
    """`hidden_mean` from the product x W."""
    return sigmoid(beta * (to_h + per_row(c)))


def sweep(
    h: Array,
    theta: Theta,
    u_x: Array,
    u_h: Array,
    beta: Number = 1.0,
    gains: Gains = (1.0, 1.0),
) -> ChainStates:
    """One Gibbs sweep of chains that carry h (K, M): x given h, then h given x.

    CD starts at hidden states drawn from the data's hidden means, PCD where the last
    update ended. ``gains`` as in `plain_step`.
    """
    (W, b, c), (up, down) = theta, gains
    x = draw(visible_mean(down * h, W, b, beta=beta), u_x)
    to_h = up * x @ W
    return ChainStates(x, draw(mean_of(to_h, c, beta), u_h), to_h)


def swap(
    samples: ChainStates, theta: Theta, beta: Array, u: Array, parity: int
) -> ChainStates:
    """Exchange the states of neighbours (k, k + 1), k = parity, parity + 2, ..., of one
    ladder of chains.

    With the Metropolis probability min(1, exp((beta_k - beta_{k+1}) (E_k - E_{k+1})));
    beta, u are (K,).
    """
    (x, h, to_h), (_, b, c), order = samples, theta, np.arange(len(beta))
    E = -times(x, b) - times(h, c) - (to_h * h).sum(-1)  # `energy`, with x W at hand
    for k in range(parity, len(beta) - 1, 2):
        gain = (beta[k] - beta[k + 1]) * (E[k] - E[k + 1])
        if u[k] < np.exp(min(gain, 0.0)):
            order[[k, k + 1]] = k + 1, k
    return ChainStates(*(each[order] for each in samples))


def tempered_sweep(
    h: Array,
    theta: Theta,
    beta: Array,
    u: Iterable[tuple[Array, Array]],
    u_swap: Array,
    parity: int,
) -> ChainStates:
    """k Gibbs sweeps of a ladder (K, M) at inverse temperatures beta (K,), then a round
    of swaps.

    u holds k pairs (u_x, u_h); rounds swap even pairs (``parity`` 0) and odd ones in
    turn. At beta = 1 the samples are the model's.
    """
    for u_x, u_h in u:
        samples = sweep(h, theta, u_x, u_h, beta[:, None])
        h = samples.h
    return swap(samples, theta, beta, u_swap, parity)


def ais_step(
    to_h: Array,
    theta: Theta,
    base: Array,
    betas: tuple[Number, Number],
    u_h: Array,
    u_x: Array,
) -> tuple[Array, Array, Array]:
    """One step of annealed importance sampling, from inverse temperature here to there:
    ``betas``.

    The path is f_beta(x) = exp(((1 - beta) base + beta b)'x) prod_j (1 + exp(beta (W'x
    + c)_j)): at 0 there are independent units with biases ``base`` (N,), at 1 there is
    theta. Rows come as x W, (R, M); returns x (R, N) and x W after a sweep, h then x,
    that leaves f_here invariant, and what is added to each log weight, log f_there(x) -
    log f_here(x), (R,).
    """
    (W, b, c), (here, there) = theta, betas
    h = draw(mean_of(to_h, c, here), u_h)
    x = draw(visible_mean(here * h, W, (1 - here) * base + here * b), u_x)
    to_h = x @ W
    a = to_h + per_row(c)
    return (
        x,
        to_h,
        (there - here) * times(x, b - base)
        + (softplus(there * a) - softplus(here * a)).sum(-1),
    )


# --- Deep machines, flattened ---


def gains_of_layer(k: int, depth: int) -> Gains:
    """Factors of activations in the RBM that pre-trains the layers k and k + 1 of
    ``depth`` pairs.

    An inner layer of the deep machine has neighbours on both sides, in its RBM on one
    side only: what goes up from the data and down from the last layer counts twice
    (Salakhutdinov & Hinton 2009).
    """
    return 2.0 if k == 0 else 1.0, 2.0 if k == depth - 1 else 1.0


def pretrained(rbms: Pairs) -> tuple[list[Array], list[Array], list[Array]]:
    """Weights, biases and offsets of the layers of a deep machine, from RBMs trained on
    one another.

    RBM k + 1 is trained on the hidden means of RBM k, each with its `gains_of_layer`.
    Weights between inner layers, whose RBM has doubled nothing, are halved; an inner
    layer gets the mean of its two biases, and its offset from the RBM below.
    """
    thetas, offsets = zip(*rbms, strict=True)
    (first, *_), (*_, last) = thetas, thetas
    weights = [
        W / 2 if 0 < k < len(rbms) - 1 else W for k, (W, _, _) in enumerate(thetas)
    ]
    inner = [(c + b) / 2 for (_, _, c), (_, b, _) in pairwise(thetas)]
    return (
        weights,
        [first[1], *inner, last[2]],
        [offsets[0][0], *(lam for _, lam in offsets)],
    )


def mean_field(
    x: Array, start: Array, theta: Theta, tolerance: float = 1e-4, rounds: int = 100
) -> tuple[Array, Array, int]:
    """Mean-field posterior of the hidden layers given the visible layer x (R, n).

    Each round sets the even layers, then the odd ones, to their best response to each
    other; it is the last one when no mean changes by ``tolerance`` or more.

    Returns
    -------
    even, odd : (R, N - n), (R, M)
        Means of the deeper even layers, which begin at ``start`` (N - n,), and of the
        odd layers.
    number : int
        Number of rounds; rounds + 1 without convergence.
    """
    (W, b, c), n = theta, x.shape[-1]
    even = np.broadcast_to(start, (len(x), len(start)))
    odd = hidden_mean(np.hstack([x, even]), W, c)
    for number in range(1, rounds + 1):
        old = np.hstack([even, odd])
        even = visible_mean(odd, W[n:], b[n:])
        odd = hidden_mean(np.hstack([x, even]), W, c)
        if np.abs(np.hstack([even, odd]) - old).max() < tolerance:
            return even, odd, number
    return even, odd, rounds + 1


def entropy(p: Array) -> Array:
    """Entropy of independent units with means p (R, units), (R,)."""
    return -(scipy.special.xlogy(p, p) + scipy.special.xlog1py(1 - p, -p)).sum(-1)


def lower_bound(x: Array, even: Array, odd: Array, theta: Theta) -> Array:
    """The variational bound of log p(x), (R,): <-E> under the factorial posterior, plus
    its entropy, - log Z.

    The energy is linear in every unit, so that its expectation is the energy of the
    means.
    """
    W, b, c = theta
    mean_energy = energy(np.hstack([x, even]), odd, W, b, c)
    return entropy(even) + entropy(odd) - mean_energy - log_partition(W, b, c)


# --- Auto encoders ---


def auto_encode(x: Array, pairs: Pairs) -> tuple[list[Array], list[Array]]:
    """Layers y_0 = x, ..., y_L of the encoder and z_0, ..., z_L = y_L of the decoder,
    section 4.1.

    ``pairs`` are (theta, offsets) of neighbouring layers, from the bottom: y_{l+1} =
    sigmoid((y_l - mu) W + c) and z_l = sigmoid((z_{l+1} - lam) W' + b) with tied
    weights W.
    """
    y = [x]
    for (W, _, c), (mu, _) in pairs:
        y.append(sigmoid((y[-1] - per_row(mu)) @ W + per_row(c)))
    z = [y[-1]]
    for (W, b, _), (_, lam) in reversed(pairs):
        z.insert(0, sigmoid((z[0] - per_row(lam)) @ W.mT + per_row(b)))
    return y, z


def reconstruction_cost(x: Array, z: Array) -> Array:
    """Mean over rows of the cross entropy, summed over units."""
    per_unit = -scipy.special.xlogy(x, z) - scipy.special.xlog1py(1 - x, -z)
    return per_unit.sum(-1).mean(-1)


def back_propagate(x: Array, pairs: Pairs) -> list[Theta]:
    """Gradients of the cost with respect to W, b, c of every pair, the offsets held
    still.

    A delta is the derivative of the cost with respect to what goes into an activation.
    """
    depth, (y, z) = len(pairs), auto_encode(x, pairs)
    weights = [W for (W, _, _), _ in pairs]
    delta_z = [(z[0] - x) / x.shape[-2]]
    for k in range(1, depth):  # up through the decoder
        delta_z.append(delta_z[-1] @ weights[k - 1] * z[k] * (1 - z[k]))
    delta_y = [delta_z[-1] @ weights[-1] * y[depth] * (1 - y[depth])]
    for k in range(depth - 1, 0, -1):  # down through the encoder
        delta_y.insert(0, delta_y[0] @ weights[k].mT * y[k] * (1 - y[k]))
    gradients = []
    for k, (_, (mu, lam)) in enumerate(pairs):
        dW = (y[k] - per_row(mu)).mT @ delta_y[k]
        dW = dW + delta_z[k].mT @ (z[k + 1] - per_row(lam))
        gradients.append((dW, delta_z[k].sum(-2), delta_y[k].sum(-2)))
    return gradients
