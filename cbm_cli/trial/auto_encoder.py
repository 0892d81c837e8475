"""Learning of centered auto encoders with tied weights."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cbm_cli.datasets import Dataset
from cbm_cli.grid.offsets import LETTERS, Scheme
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels import auto_encoder as kernel
from cbm_cli.kernels.auto_encoder import AutoEncoderPlan, AutoEncoderState, summed_cost, train_auto_encoder
from cbm_cli.kernels.state import Array, Rows, Trail
from cbm_cli.machines.annealing import Stopped
from cbm_cli.trial.evaluation import evaluated_parts
from cbm_cli.trial.start import batch_rows

_KINDS = {
    "sigmoid": kernel.SIGMOID,
    "tanh": kernel.TANH,
    "relu": kernel.RELU,
    "linear": kernel.LINEAR,
}
_INVERSES = {
    "sigmoid": lambda mean: np.log(mean / (1 - mean)),
    "tanh": np.arctanh,
    "relu": lambda mean: mean,
    "linear": lambda mean: mean,
}
_ROWS = 250  # evaluated at a time: few enough to stay near the cache


class AutoEncoderLearner:
    """Trains by plain back-propagation of mini-batches, with the centered gradient."""

    def __init__(self, settings: Settings, data: Dataset, seed: int) -> None:
        self.settings, self.data, self.seed = settings, data, seed
        self.plan = make_plan(settings, data, seed)
        self.batches = self.plan.batches
        self.parts = evaluated_parts(settings, data).rows if settings.evaluation == "cost" else {}
        self.columns = tuple(f"{part}_cost" for part in self.parts)

    def start(self) -> AutoEncoderState:
        """The state before the first update."""
        return initial_state(self.settings, self.data, self.seed)

    def advance(self, state: AutoEncoderState, trail: Trail, first: int, last: int) -> None:
        """Make the updates first, ..., last - 1; the trail stays empty: recorders are for RBMs."""
        train_auto_encoder(state, self.data.train, self.plan, first, last)

    def evaluate(self, state: AutoEncoderState, update: int, should_stop: Callable[[], bool]) -> list[float]:
        """Mean cost of each part: cross entropy in nats, or squared error, summed over the units of a row."""
        return [mean_cost(state, rows, self.plan, should_stop) for rows in self.parts.values()]

    def machine(self, state: AutoEncoderState) -> dict[str, NDArray]:
        """The arrays of a machine file."""
        return machine_arrays(state, self.plan.sizes) | {
            "encoder": np.array(self.settings.model.encoder),
            "decoder": np.array(self.settings.model.decoder),
            "loss": np.array(self.settings.model.loss),
        }


def mean_cost(
    state: AutoEncoderState,
    rows: Rows,
    plan: AutoEncoderPlan,
    should_stop: Callable[[], bool] = lambda: False,
) -> float:
    """Mean over rows (n, n_0) uint8 of their loss; Stopped where asked to stop."""
    total = 0.0
    for first in range(0, len(rows), _ROWS):
        if should_stop():
            raise Stopped
        total += summed_cost(state, rows[first : first + _ROWS], plan)
    return total / len(rows)


def layer_sizes(settings: Settings, data: Dataset) -> tuple[int, ...]:
    """Units of the layers, the visible one first."""
    return (data.width, *settings.model.hidden_layers(data.width))


def make_plan(settings: Settings, data: Dataset, seed: int) -> AutoEncoderPlan:
    """Put the settings into the numbers of a plan; the seed is the key of every random number."""
    scheme, model, sliding = Scheme.parse(settings.offsets), settings.model, settings.sliding_factor
    sizes, batch = layer_sizes(settings, data), batch_rows(settings, data)
    mixes = [_mix(letter, size) for letter, size in zip(scheme.letters, sizes, strict=True)]
    return AutoEncoderPlan(
        seed=np.uint64(seed),
        learning_rate=np.float32(settings.learning_rate.start),
        sizes=np.array(sizes),
        encoder=_KINDS[model.encoder],
        decoder=_KINDS[model.decoder],
        squared=model.loss == "squared",
        visible_mix=mixes[0],
        hidden_mix=np.concatenate(mixes[1:], axis=1),
        sliding_visible=np.float32(sliding.visible if scheme.sliding else 1),
        sliding_hidden=np.float32(sliding.hidden if scheme.sliding else 1),
        offsets_before=scheme.before,
        batch=batch,
        batches=len(data.train) // batch,
        shuffled=settings.batch != "full",
        unit=np.float32(1 / data.levels),
    )


def _mix(letter: str, units: int) -> Array:
    """What the offsets of a layer are made of, (4, units)."""
    data, model, half, noise = LETTERS[letter]
    return np.tile(np.array([[data], [model], [half / 2], [noise]], np.float32), (1, units))


def initial_state(settings: Settings, data: Dataset, seed: int) -> AutoEncoderState:
    """The parameters and offsets before the first update.

    W_l ~ N(0, weight_scale^2), from the seed alone. The decoder's visible bias is the inverse activation of
    the data mean clipped to [0.001, 0.999], as in the paper's section on initialisation, or zero; all other
    biases are 0. Biases are plain ones: the auto encoder is the same function for every scheme. Offsets start
    at the data mean and, of hidden units, at the activation of 0; at 0 for the letter 0, 1/2 for h and r.
    """
    sizes, model = layer_sizes(settings, data), settings.model
    weights = np.random.Generator(np.random.Philox(key=[seed, 1]))
    mean = data.train.mean(axis=0, dtype=np.float64) / data.levels
    bias = np.zeros(data.width)
    if settings.init == "inverse-sigmoid":
        bias = _INVERSES[model.decoder](np.clip(mean, 0.001, 0.999))
    letters = Scheme.parse(settings.offsets).letters
    of_encoder, of_decoder = (
        _first_offsets(letters, activation, sizes) for activation in (model.encoder, model.decoder)
    )
    if letters[0] == "d":
        of_encoder[0] = mean
    arrays = AutoEncoderState(
        W=np.concatenate(
            [settings.weight_scale * weights.standard_normal(n * m) for n, m in pairwise(sizes)]
        ),
        b=np.concatenate([bias, np.zeros(sum(sizes[1:-1]))]),
        c=np.zeros(sum(sizes[1:])),
        mu=np.concatenate(of_encoder[:-1]),
        lam=np.concatenate([*of_decoder[1:-1], of_encoder[-1]]),  # the decoder starts from the encoder's top
    )
    return AutoEncoderState(*(array.astype(np.float32) for array in arrays))


def _first_offsets(letters: str, activation: str, sizes: tuple[int, ...]) -> list[NDArray]:
    of_data = 0.5 if activation == "sigmoid" else 0.0
    first = {"0": 0.0, "d": of_data, "h": 0.5, "r": 0.5}
    return [np.full(size, first[letter]) for letter, size in zip(letters, sizes, strict=True)]


def pairs_of(state: AutoEncoderState, sizes: NDArray[np.int64]) -> list[AutoEncoderState]:
    """Views of each pair of layers: W (n, m), b (n,), c (m,), mu (n,), lam (m,)."""
    below, above = sizes[:-1], sizes[1:]
    weights = [block.reshape(-1, m) for block, m in zip(_cut(state.W, below * above), above, strict=True)]
    biases_and_offsets = (
        _cut(array, lengths) for array, lengths in zip(state[1:], (below, above) * 2, strict=True)
    )
    return [AutoEncoderState(*views) for views in zip(weights, *biases_and_offsets, strict=True)]


def _cut(array: NDArray, lengths: NDArray[np.int64]) -> list[NDArray]:
    return np.split(array, np.cumsum(lengths)[:-1])


def machine_arrays(state: AutoEncoderState, sizes: NDArray[np.int64]) -> dict[str, NDArray]:
    """The auto encoder in the documented form of machine files: centered biases and their offsets.

    Biases are stored in float64 as b + W lam and c + mu W of each pair of layers, so that reading the file
    back gives the plain ones to the last bit.
    """
    arrays = {"kind": np.array("auto-encoder")}
    for layer, pair in enumerate(pairs_of(state, sizes)):
        W, b, c, mu, lam = (array.astype(np.float64) for array in pair)
        of_decoder = "biases_0" if layer == 0 else f"decoder_biases_{layer}"
        top = layer + 2 == len(sizes)  # the decoder starts from the units that the encoder ends with
        arrays |= {
            f"weights_{layer}": pair.W.copy(),
            of_decoder: b + W @ lam,
            f"biases_{layer + 1}": c + mu @ W,
            f"offsets_{layer}": pair.mu.copy(),
            f"{'' if top else 'decoder_'}offsets_{layer + 1}": pair.lam.copy(),
        }
    return arrays
