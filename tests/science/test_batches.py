"""The reference with an axis for trials in front: each trial as if it were alone."""

from types import SimpleNamespace

import numpy as np
import pytest
from cbm_cli import reference as ref
from numpy.testing import assert_allclose

N, M, K, R, TRIALS = 4, 3, 5, 6, 3
SHAPES = {"W": (N, M), "b": (N,), "c": (M,), "mu": (N,), "lam": (M,), "V": (N, M), "base": (N,)}
SHAPES |= {"x": (R, N), "h": (R, M), "more": (R, N), "start": (2,), "D": (N + 2, M), "d": (N + 2,)}
SHAPES |= {"to_h": (K, M), "u_x": (K, N), "u_h": (K, M), "u": (K,), "rate": ()}
BETA = np.linspace(0, 1, K)


def trial(seed):
    """Numbers of one trial by name; means, rows and what is drawn with are between 0 and 1."""
    rng = np.random.default_rng(seed)
    normal = "W", "b", "c", "V", "base", "to_h", "D", "d"
    return {
        name: rng.standard_normal(shape) if name in normal else rng.random(shape)
        for name, shape in SHAPES.items()
    }


def named(arrays):
    """The arrays, and what functions take them as."""
    t = SimpleNamespace(**arrays)
    t.theta, t.other, t.offsets = (t.W, t.b, t.c), (t.V, t.b, t.c), (t.mu, t.lam)
    t.deep, t.zero, t.beta = (t.D, t.d, t.c), (0 * t.mu, 0 * t.lam), BETA
    t.pairs = [(t.theta, t.offsets), ((t.V.mT, t.c, t.b), (t.lam, t.mu))]
    t.data = ref.batch(t.x, ref.hidden_mean(t.x, t.W, t.c, t.mu))
    t.model = ref.model_phase(*t.theta)
    t.samples = ref.sweep(ref.draw(t.u_h, t.u_h.mean(-2)[..., None, :]), t.theta, t.u_x, t.u_h)
    return t


def sampler(t):
    return lambda data, *machine: ref.model_phase(*machine)


def estimator(t):
    return lambda data, model: ref.means(data)


def trained(algorithm):
    def train(t):
        rates, batches = (t.rate, 0.3, 0.1), [t.x, t.more]
        return algorithm(t.theta, t.offsets, batches, sampler(t), estimator(t), rates, True)

    return train


def with_mean_field(t):
    return ref.lower_bound(t.x, *ref.mean_field(t.x, t.start, t.deep)[:2], t.deep)


def tempered(t):
    return ref.tempered_sweep(t.samples.h, t.theta, t.beta, [(t.u_x, t.u_h)] * 2, t.u, 1)


def natural(t):
    return ref.natural_gradient(t.other, ref.fisher(ref.joint_phase(*t.theta)), 0.1)


CASES = {
    "energy": lambda t: ref.energy(t.x, t.h, *t.theta, *t.offsets),
    "visible_mean": lambda t: ref.visible_mean(t.h, t.W, t.b, t.lam, 0.3),
    "hidden_mean": lambda t: ref.hidden_mean(t.x, t.W, t.c, t.mu, 0.3),
    "free_energy": lambda t: ref.free_energy(t.x, *t.theta, *t.offsets),
    "log_partition": lambda t: [ref.log_partition(*t.theta, *its) for its in (t.offsets, ())],
    "log_likelihood": lambda t: ref.log_likelihood(t.x, *t.theta, *t.offsets),
    "flip": lambda t: ref.flip(t.theta, t.offsets, (t.b > 0) * 1.0, (t.c > 0) * 1.0),
    "joint_phase": lambda t: ref.joint_phase(*t.theta, *t.offsets)[2:],
    "gradient": lambda t: ref.gradient(t.data, t.model, *t.offsets),
    "centered_gradient": lambda t: ref.centered_gradient(t.data, t.model, *t.offsets),
    "enhanced_gradient": lambda t: ref.enhanced_gradient(t.data, t.model),
    "fisher": lambda t: (ref.fisher(t.model), ref.fisher(t.data)),
    "natural_gradient": natural,
    "transform": lambda t: ref.transform(t.theta, t.offsets, t.zero),
    "algorithm_1": trained(ref.algorithm_1),
    "algorithm_2": trained(ref.algorithm_2),
    "inverse_sigmoid": lambda t: ref.inverse_sigmoid(t.mu),
    "ascend": lambda t: ref.ascend(t.theta, t.other, t.rate),
    "accumulate": lambda t: ref.accumulate(t.theta, t.other, 0.1, t.rate),
    "rescale": lambda t: ref.rescale(t.theta, t.other),
    "weight_decay": lambda t: ref.weight_decay(t.W, 0.1, 0.2),
    "sweep": lambda t: ref.sweep(t.samples.h, t.theta, t.u_x, t.u_h, t.beta[:, None], (2.0, 0.5)),
    "swap": lambda t: [ref.swap(t.samples, t.theta, t.beta, t.u, parity) for parity in (0, 1)],
    "tempered_sweep": tempered,
    "ais_step": lambda t: ref.ais_step(t.to_h, t.theta, t.base, (0.3, 0.4), t.u_h, t.u_x),
    "pretrained": lambda t: ref.pretrained([*t.pairs, *t.pairs[:1]]),
    "mean_field": lambda t: ref.mean_field(t.x, t.start, t.deep, 1e-3, 7),
    "lower_bound": with_mean_field,
    "auto_encode": lambda t: ref.auto_encode(t.x, t.pairs),
    "reconstruction_cost": lambda t: ref.reconstruction_cost(t.x, t.more),
    "back_propagate": lambda t: ref.back_propagate(t.x, t.pairs),
}
TESTED_WITHIN = """
per_row per_trial times flat sigmoid softplus states batch model_phase means correlation plain_step
offset_target moving_average draw mean_of gains_of_layer entropy
"""


def parts(found):
    """All arrays of a nested result."""
    if isinstance(found, tuple | list):
        return [part for one in found for part in parts(one)]
    return [found]


@pytest.mark.parametrize("spoiled", [False, True], ids=["all", "one is not a number"])
@pytest.mark.parametrize("name", CASES)
def test_a_batch_of_trials_is_every_trial_by_itself(name, spoiled):
    trials = [trial(seed) for seed in range(TRIALS)]
    if spoiled and name != "natural_gradient":  # which LAPACK refuses
        trials[1] = {key: np.full_like(array, np.nan) for key, array in trials[1].items()}
    with np.errstate(invalid="ignore"):
        stacked = named({key: np.stack([one[key] for one in trials]) for key in SHAPES})
        found = parts(CASES[name](stacked))
        alone = [parts(CASES[name](named(one))) for one in trials]
    for part, *expected in zip(found, *alone, strict=True):
        assert_allclose(part, np.stack(expected), rtol=1e-10, atol=1e-12)


def test_every_function_of_the_reference_is_tried_with_trials():
    own = [it for it in vars(ref).values() if getattr(it, "__module__", "") == ref.__name__]
    functions = {it.__name__ for it in own if not isinstance(it, type)}
    assert functions == {*CASES, *TESTED_WITHIN.split()}
