"""Centered auto encoders with tied weights, of any depth: back-propagation in one compiled loop.

Layer l = 0, ..., L has n_l units. The encoder makes y_0 = x, ..., y_L, the decoder z_L = y_L, ..., z_0:

    y_{l+1} = f((y_l - mu_l) W_l + c'_l),   z_l = g((z_{l+1} - lam_l) W_l' + b'_l).

W_l (n_l, n_{l+1}) with its biases and offsets is a machine of its own, as an RBM is: a *pair* of layers. The
plain biases c_l = c'_l - mu_l W_l and b_l = b'_l - W_l lam_l are what is kept: offsets that move then leave
the function as it is, and only the gradient reads them (docs/decisions/0012-auto-encoder-centering.md).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.compiling import compiled, lean, lean_sum
from cbm_cli.kernels.offsets import slide
from cbm_cli.kernels.phases import load_batch, order_rows
from cbm_cli.kernels.random import NOISE, fill_uniform
from cbm_cli.kernels.state import Array, Rows
from cbm_cli.kernels.units import sigmoid, sum_of_softplus

SIGMOID, TANH, RELU, LINEAR = 0, 1, 2, 3  # activations

_ONE, _TWO = np.float32(1), np.float32(2)


class AutoEncoderState(NamedTuple):
    """Everything that training carries from one update to the next; changed in place.

    The pairs of layers follow each other in every array.

    Attributes
    ----------
    W : (n_0 n_1 + ... + n_{L-1} n_L,)
        Tied weights, those of a pair row by row.
    b, c : (n_0 + ... + n_{L-1},), (n_1 + ... + n_L,)
        Plain biases of the decoder's and the encoder's units, whatever the offsets.
    mu, lam : like b and c
        Offsets of the encoder's inputs y_0, ..., y_{L-1} and of the decoder's inputs z_1, ..., z_L.
    """

    W: Array
    b: Array
    c: Array
    mu: Array
    lam: Array


class AutoEncoderPlan(NamedTuple):
    """The settings of a trial as numbers.

    Attributes
    ----------
    seed, learning_rate, offsets_before, batch, batches, shuffled, unit
        As in Plan.
    sizes : (L + 1,) int64
        Units of the layers, the visible one first.
    encoder, decoder : int
        Activations of y_1, ..., y_L and of z_{L-1}, ..., z_0.
    squared : bool
        The loss of a row is sum_i (x_i - z_i)^2, not the cross entropy of x and z in nats, summed over i too.
    visible_mix, hidden_mix : (4, n_0), (4, n_1 + ... + n_L) float32
        What the offset of each unit is made of: data mean, model mean (none here), constant, noise.
    sliding_visible, sliding_hidden : float32
    """

    seed: np.uint64
    learning_rate: np.float32
    sizes: NDArray[np.int64]
    encoder: int
    decoder: int
    squared: bool
    visible_mix: Array
    hidden_mix: Array
    sliding_visible: np.float32
    sliding_hidden: np.float32
    offsets_before: bool
    batch: int
    batches: int
    shuffled: bool
    unit: np.float32


class Gradient(NamedTuple):
    """What an update learns from its batch; arrays laid out as those of the state.

    Attributes
    ----------
    W : gradient of the tied weights as it is without offsets
    b, c : mean deltas of the decoder's and of the encoder's units
    mean_y, mean_z : mean inputs of the encoder and of the decoder, like mu and lam
    """

    W: Array
    b: Array
    c: Array
    mean_y: Array
    mean_z: Array


class Pair(NamedTuple):
    """A pair of layers, n and m units, in a pass of B rows: its parameters, its units and their deltas.

    A delta is the derivative of the cost with respect to an activation. What the encoder holds of the lower
    layer stands above what the decoder holds, and of the upper layer the deltas stand above the states: the
    gradient of the tied weights is then one product, lower' upper.
    """

    machine: AutoEncoderState  # views: W (n, m), b (n,), c (m,), mu (n,), lam (m,)
    gradient: Gradient  # views of the same shapes
    lower: Array  # (2 B, n): y_l above the deltas of z_l
    upper: Array  # (2 B, m): the deltas of y_{l+1} above z_{l+1}
    y: Array  # (B, n)
    delta_z: Array
    delta_y: Array  # (B, m)
    z: Array
    to_lower: Array  # (B, n): a product
    to_upper: Array  # (B, m)


@compiled
def make_gradient(state: AutoEncoderState) -> Gradient:
    """Allocate a gradient."""
    W, b, c, mu, lam = state
    return Gradient(
        np.empty_like(W), np.empty_like(b), np.empty_like(c), np.empty_like(mu), np.empty_like(lam)
    )


@compiled
def make_pairs(
    state: AutoEncoderState, gradient: Gradient, sizes: NDArray[np.int64], rows: int
) -> list[Pair]:
    """Allocate what a pass of so many rows needs, around views of the parameters and of the gradient."""
    pairs = []
    w, i, j = 0, 0, 0
    for layer in range(sizes.size - 1):
        n, m = sizes[layer], sizes[layer + 1]
        views, slopes = of_pair(state, w, i, j, n, m), of_pair(gradient, w, i, j, n, m)
        lower, upper = np.empty((2 * rows, n), np.float32), np.empty((2 * rows, m), np.float32)
        pairs.append(
            Pair(
                AutoEncoderState(views[0], views[1], views[2], views[3], views[4]),
                Gradient(slopes[0], slopes[1], slopes[2], slopes[3], slopes[4]),
                lower,
                upper,
                lower[:rows],
                lower[rows:],
                upper[:rows],
                upper[rows:],
                np.empty((rows, n), np.float32),
                np.empty((rows, m), np.float32),
            )
        )
        w, i, j = w + n * m, i + n, j + m
    return pairs


@compiled
def of_pair(
    arrays: AutoEncoderState | Gradient, w: int, i: int, j: int, n: int, m: int
) -> tuple[Array, Array, Array, Array, Array]:
    """Views of the pair of n and m units that begins at weight w, lower unit i and upper unit j."""
    W, b, c, mu, lam = arrays
    return W[w : w + n * m].reshape((n, m)), b[i : i + n], c[j : j + m], mu[i : i + n], lam[j : j + m]


@lean
def activate(kind: int, activation: Array, bias: Array, out: Array) -> None:
    """out = f(activation + bias): (rows, units), (units,), not the same array."""
    floor = np.float32(0 if kind == RELU else -np.inf)
    for r in range(out.shape[0]):
        if kind == SIGMOID:
            for i in range(out.shape[1]):
                out[r, i] = sigmoid(activation[r, i] + bias[i])
        elif kind == TANH:
            for i in range(out.shape[1]):
                out[r, i] = _TWO * sigmoid(_TWO * (activation[r, i] + bias[i])) - _ONE
        else:
            for i in range(out.shape[1]):
                out[r, i] = max(activation[r, i] + bias[i], floor)


@lean
def slope(kind: int, value: np.float32) -> np.float32:
    """The derivative of an activation where it has this value."""
    if kind == SIGMOID:
        return value * (_ONE - value)
    if kind == TANH:
        return _ONE - value * value
    return _ONE if kind == LINEAR or value > 0 else np.float32(0)


@lean
def pull_back(kind: int, back: Array, value: Array, out: Array) -> None:
    """out = back f'(value): deltas of units from the derivative of the cost with respect to their values."""
    for r in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[r, i] = back[r, i] * slope(kind, value[r, i])


@lean
def output_deltas(kind: int, squared: bool, x: Array, z: Array, out: Array) -> None:
    """Deltas of the reconstruction z of x (B, n_0) for the mean cost of the batch."""
    share = _ONE / np.float32(x.shape[0])
    for r in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[r, i] = share * (z[r, i] - x[r, i])
            if squared:
                out[r, i] *= _TWO * slope(kind, z[r, i])


@compiled
def encode_and_decode(pairs: list[Pair], encoder: int, decoder: int) -> None:
    """From y_0 = x upwards and down again, to the activations of z_0 without bias, ``to_lower`` of pair 0."""
    last = len(pairs) - 1
    for k in range(last + 1):
        pair = pairs[k]
        np.dot(pair.y, pair.machine.W, pair.to_upper)  # (B, n) @ (n, m)
        activate(encoder, pair.to_upper, pair.machine.c, pairs[k + 1].y if k < last else pair.z)
    for k in range(last, -1, -1):
        pair = pairs[k]
        np.dot(pair.z, pair.machine.W.T, pair.to_lower)  # (B, m) @ (m, n)
        if k > 0:
            activate(decoder, pair.to_lower, pair.machine.b, pairs[k - 1].z)


@compiled
def propagate_back(pairs: list[Pair], encoder: int, decoder: int) -> None:
    """From the deltas of z_0 upwards through the decoder and down through the encoder, to those of y_1."""
    last = len(pairs) - 1
    for k in range(last + 1):
        pair = pairs[k]
        np.dot(pair.delta_z, pair.machine.W, pair.to_upper)  # (B, n) @ (n, m)
        if k < last:
            pull_back(decoder, pair.to_upper, pair.z, pairs[k + 1].delta_z)
        else:
            pull_back(encoder, pair.to_upper, pair.z, pair.delta_y)
    for k in range(last, 0, -1):
        pair = pairs[k]
        np.dot(pair.delta_y, pair.machine.W.T, pair.to_lower)  # (B, m) @ (m, n)
        pull_back(encoder, pair.to_lower, pair.y, pairs[k - 1].delta_y)


@lean
def add_rows(rows: Array, scale: np.float32, out: Array) -> None:
    """out = scale times the sum of the rows (B, units)."""
    out[:] = 0
    for r in range(rows.shape[0]):
        for i in range(out.size):
            out[i] += rows[r, i]
    for i in range(out.size):
        out[i] *= scale


@compiled
def fill_gradient(pairs: list[Pair]) -> None:
    """Sums and products over the batch; deltas hold the share of their row already."""
    for pair in pairs:
        W, b, c, mean_y, mean_z = pair.gradient
        share = _ONE / np.float32(pair.y.shape[0])
        add_rows(pair.delta_z, _ONE, b)
        add_rows(pair.delta_y, _ONE, c)
        add_rows(pair.y, share, mean_y)
        add_rows(pair.z, share, mean_z)
        np.dot(pair.lower.T, pair.upper, W)  # (n, 2 B) @ (2 B, m)


@lean_sum
def descend(machine: AutoEncoderState, gradient: Gradient, learning_rate: np.float32) -> None:
    """One step of a pair against its centered gradient; its parameters change in place.

    The gradient of W is <(y - mu)' delta_y> + <delta_z' (z - lam)>: here the one without offsets, less
    mu' <delta_y> and <delta_z>' lam, so that the products need no centered copies of the rows.
    """
    W, b, c, mu, lam = machine
    slope_W, slope_b, slope_c, _, _ = gradient
    for j in range(c.size):
        c[j] -= learning_rate * slope_c[j]
    for i in range(b.size):
        mu_i, slope_i = mu[i], slope_b[i]
        along_lam = np.float32(0)
        for j in range(c.size):
            step = learning_rate * (slope_W[i, j] - mu_i * slope_c[j] - slope_i * lam[j])
            W[i, j] -= step
            c[j] += step * mu_i
            along_lam += step * lam[j]
        b[i] += along_lam - learning_rate * slope_i


@lean
def move_offsets(
    state: AutoEncoderState,
    gradient: Gradient,
    plan: AutoEncoderPlan,
    noisy: bool,
    update: int,
    noise: tuple[Array, Array],
) -> None:
    """All offsets, from the means of this update."""
    noise_y, noise_z = noise
    if noisy:
        fill_uniform(noise_y, plan.seed, update, NOISE, 0)
        fill_uniform(noise_z, plan.seed, update, NOISE, noise_y.size // 4)
    n, y, z = plan.sizes[0], gradient.mean_y, gradient.mean_z
    slide(state.mu[:n], plan.visible_mix, plan.sliding_visible, y[:n], y[:n], noise_y)
    slide(state.mu[n:], plan.hidden_mix, plan.sliding_hidden, y[n:], y[n:], noise_y[n:])
    slide(state.lam, plan.hidden_mix, plan.sliding_hidden, z, z, noise_z)


@compiled
def train_auto_encoder(
    state: AutoEncoderState, rows: Rows, plan: AutoEncoderPlan, first: int, last: int
) -> None:
    """Advance ``state`` in place through the updates first, ..., last - 1.

    Parameters
    ----------
    state : AutoEncoderState
    rows : (n, n_0) uint8
        Training data.
    plan : AutoEncoderPlan
    first, last : int
        Numbers of the first update and of the one after the last; an update's random numbers depend on
        its number alone, so that a stretch can be cut anywhere.
    """
    order = np.empty(rows.shape[0], np.int64)
    gradient = make_gradient(state)
    pairs = make_pairs(state, gradient, plan.sizes, plan.batch)
    bottom, encoder, decoder = pairs[0], plan.encoder, plan.decoder
    z = np.empty_like(bottom.to_lower)
    noisy = plan.visible_mix[3].any() or plan.hidden_mix[3].any()
    n, m = state.mu.size, state.lam.size
    noise = np.zeros(n + -n % 4, np.float32), np.zeros(m + -m % 4, np.float32)
    ordered = -1
    for update in range(first, last):
        epoch = update // plan.batches
        if epoch != ordered and (plan.shuffled or ordered < 0):
            order_rows(order, plan.shuffled, plan.seed, epoch)
            ordered = epoch
        load_batch(rows, order, (update - epoch * plan.batches) * plan.batch, plan.unit, bottom.y)
        encode_and_decode(pairs, encoder, decoder)
        activate(decoder, bottom.to_lower, bottom.machine.b, z)
        output_deltas(decoder, plan.squared, bottom.y, z, bottom.delta_z)
        propagate_back(pairs, encoder, decoder)
        fill_gradient(pairs)
        if plan.offsets_before:
            move_offsets(state, gradient, plan, noisy, update, noise)
        for pair in pairs:
            descend(pair.machine, pair.gradient, plan.learning_rate)
        if not plan.offsets_before:
            move_offsets(state, gradient, plan, noisy, update, noise)


@lean_sum
def cross_entropies(x: Array, activation: Array, bias: Array) -> float:
    """Sum over rows of sum_i -x_i log z_i - (1 - x_i) log(1 - z_i), z = sigmoid(activation + bias); in nats.

    A term is log(1 + exp(a)) - x a, which is finite for any a.
    """
    total = 0.0
    for r in range(x.shape[0]):
        total += sum_of_softplus(activation[r], bias, _ONE)
        for i in range(bias.size):
            total -= x[r, i] * (activation[r, i] + bias[i])
    return total


@lean_sum
def squared_errors(x: Array, z: Array) -> float:
    """Sum over rows of sum_i (x_i - z_i)^2."""
    total = 0.0
    for r in range(x.shape[0]):
        for i in range(x.shape[1]):
            total += np.float64(x[r, i] - z[r, i]) ** 2
    return total


@compiled
def summed_cost(state: AutoEncoderState, rows: Rows, plan: AutoEncoderPlan) -> float:
    """Sum over rows (n, n_0) uint8 of their loss, in float64."""
    count = rows.shape[0]
    pairs = make_pairs(state, make_gradient(state), plan.sizes, count)
    x, activation, b = pairs[0].y, pairs[0].to_lower, pairs[0].machine.b
    load_batch(rows, np.arange(count), 0, plan.unit, x)
    encode_and_decode(pairs, plan.encoder, plan.decoder)
    if not plan.squared:
        return cross_entropies(x, activation, b)
    z = np.empty_like(x)
    activate(plan.decoder, activation, b, z)
    return squared_errors(x, z)
