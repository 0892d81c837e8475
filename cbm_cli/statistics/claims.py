"""What the paper proves, checked by the equations of `cbm_cli.reference` on a random machine."""

from collections.abc import Callable, Sequence

import numpy as np

from cbm_cli import reference as ref
from cbm_cli.reference import Array, Ensemble, Offsets, Theta

NEAR = 1e-9  # larger differences are no rounding errors


def largest_difference(claim: str) -> float:
    """Return the largest difference of two sides of a claim that should be the same."""
    rng = np.random.default_rng(1)
    x = rng.integers(0, 2, (7, 4)).astype(float)
    theta = rng.normal(size=(4, 3)), rng.normal(size=4), rng.normal(size=3)
    one, other = _CLAIMS[claim](x, theta, (rng.random(4), rng.random(3)))
    return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))


Sides = tuple[Sequence[Array], Sequence[Array]]
_NONE = np.zeros(4), np.zeros(3)  # offsets of a plain machine


def _trained(algorithm: Callable, x: Array, theta: Theta, offsets: Offsets) -> tuple[Theta, Offsets]:
    """Train for five updates with exact model means; offsets are the mean of data and model."""

    def exact(data: Ensemble, *machine: Array) -> Ensemble:
        return ref.model_phase(*machine)

    return algorithm(theta, offsets, [x] * 5, exact, _average, (0.2, 0.5, 0.5))


def _average(data: Ensemble, model: Ensemble) -> Offsets:
    x, h = ((data.p @ a + model.p @ b) / 2 for a, b in zip(data[:2], model[:2], strict=True))
    return x, h


def _reparameterisation(x: Array, theta: Theta, offsets: Offsets) -> Sides:
    plain = ref.transform(theta, offsets, _NONE)
    return [ref.log_likelihood(x, *theta, *offsets)], [ref.log_likelihood(x, *plain)]


def _flips(x: Array, theta: Theta, offsets: Offsets) -> Sides:
    f, g = np.array([1, 0, 1, 1]), np.array([0, 1, 0])
    there = ref.flip(*_trained(ref.algorithm_1, x, theta, offsets), f, g)
    back = _trained(ref.algorithm_1, np.abs(x - f), *ref.flip(theta, offsets, f, g))
    return [*there[0], *there[1]], [*back[0], *back[1]]


def _algorithms(x: Array, theta: Theta, offsets: Offsets) -> Sides:
    centered, moved = _trained(ref.algorithm_1, x, theta, offsets)
    plain, same = _trained(ref.algorithm_2, x, ref.transform(theta, offsets, _NONE), offsets)
    return [*ref.transform(centered, moved, _NONE), *moved], [*plain, *same]


def _enhanced(x: Array, theta: Theta, offsets: Offsets) -> Sides:
    W, _, c = theta
    data, model = ref.batch(x, ref.hidden_mean(x, W, c)), ref.model_phase(*theta)
    return ref.enhanced_gradient(data, model), ref.centered_gradient(data, model, *_average(data, model))


_CLAIMS: dict[str, Callable[[Array, Theta, Offsets], Sides]] = {
    "reparameterisation": _reparameterisation,
    "flips": _flips,
    "algorithms": _algorithms,
    "enhanced gradient": _enhanced,
}
