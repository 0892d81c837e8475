"""From a trial's settings and data to the numbers that the kernels work on."""

import numpy as np

from cbm_cli.datasets import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.offsets import LETTERS, Scheme
from cbm_cli.grid.samplers import Sampler
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels.state import Mix, Plan, State
from cbm_cli.trial.evaluation import refuse_large

GRADIENT_BITS = 16  # the exact gradient keeps all states in memory


def check(settings: Settings, data: Dataset) -> None:
    """Raise CbmError where settings ask for what this data set cannot give."""
    n = len(data.train)
    if settings.batch != "full" and settings.batch > n:
        raise CbmError(
            f"batch: {settings.batch} rows, but {data.name} has {n}; write a smaller number, or full"
        )
    smaller = min(data.width, settings.model.hidden)
    if settings.evaluation == "exact":
        remedy = "use method: ais (annealed importance sampling, AIS) to estimate it"
        refuse_large(data.width, settings.model.hidden, "evaluate", remedy)
    if Sampler.parse(settings.sampler).exact and smaller > GRADIENT_BITS:
        raise CbmError(
            f"sampler: exact holds all 2^{smaller} states of the smaller side; "
            f"it is for up to {GRADIENT_BITS} units there, use PT_10 or PCD-1"
        )
    rows = n if settings.batch == "full" else settings.batch
    if rows % settings.ladders:
        raise CbmError(f"ladders: {settings.ladders} ladders do not divide the batch of {rows} rows")


def batch_rows(settings: Settings, data: Dataset) -> int:
    """Rows of a batch."""
    return len(data.train) if settings.batch == "full" else settings.batch


def total_updates(settings: Settings, data: Dataset) -> int:
    """Updates of the whole training; the last incomplete batch of an epoch is dropped."""
    return settings.updates or settings.epochs * (len(data.train) // batch_rows(settings, data))


def updates_between_evaluations(settings: Settings, data: Dataset) -> int:
    """Updates between two evaluations."""
    number, unit = settings.every.split()
    return int(number) * (len(data.train) // batch_rows(settings, data) if unit.startswith("epoch") else 1)


def make_plan(settings: Settings, data: Dataset, seed: int) -> Plan:
    """Put the settings into the numbers of a Plan; the seed is the key of every random number."""
    scheme, sampler = Scheme.parse(settings.offsets), Sampler.parse(settings.sampler)
    batch = batch_rows(settings, data)
    sliding = settings.sliding_factor
    return Plan(
        seed=np.uint64(seed),
        learning_rate=np.float32(settings.learning_rate),
        sliding_visible=np.float32(sliding.visible if scheme.sliding else 1),
        sliding_hidden=np.float32(sliding.hidden if scheme.sliding else 1),
        visible_mix=_mix(scheme.letters[0]),
        hidden_mix=_mix(scheme.letters[1]),
        offsets_before=scheme.before,
        batch=batch,
        batches=len(data.train) // batch,
        shuffled=settings.batch != "full",
        unit=np.float32(1 / data.levels),
        ladders=settings.ladders if sampler.temperatures > 1 else batch,
        temperatures=sampler.temperatures,
        steps=sampler.steps,
        restart=sampler.restart,
        exact=sampler.exact,
        fast_learning_rate=np.float32(settings.fast_rate),
        fast_decay=np.float32(settings.fast_decay),
    )


def _mix(letter: str) -> Mix:
    data, model, half, noise = LETTERS[letter]
    return Mix(np.float32(data), np.float32(model), np.float32(half / 2), np.float32(noise))


def initial_state(settings: Settings, data: Dataset, plan: Plan, seed: int) -> State:
    """The machine, offsets and chains before the first update.

    W ~ N(0, weight_scale^2); b is the inverse sigmoid of the data mean clipped to [0.001, 0.999], or
    zero; c = 0. Offsets start at the data mean and 1/2 (0 for the letter 0, 1/2 for h and r), chains at
    uniformly random states. Weights and chains depend on the seed alone: trial k starts from the same
    weights in every cell of an experiment.
    """
    n, m = data.width, settings.model.hidden
    weights, chains = (np.random.Generator(np.random.Philox(key=[seed, site])) for site in (1, 2))
    mean = data.train.mean(axis=0, dtype=np.float64) / data.levels
    clipped = np.clip(mean, 0.001, 0.999)
    bias = np.log(clipped / (1 - clipped)) if settings.init == "inverse-sigmoid" else np.zeros(n)
    visible, hidden = Scheme.parse(settings.offsets).letters
    arrays = State(
        W=settings.weight_scale * weights.standard_normal((n, m)),
        b=bias,
        c=np.zeros(m),
        mu=np.zeros(n) if visible == "0" else mean if visible in "dma" else np.full(n, 0.5),
        lam=np.full(m, 0.0 if hidden == "0" else 0.5),
        x=chains.random((plan.ladders * plan.temperatures, n)) < 0.5,
        fast_W=np.zeros((n, m) if settings.fast_rate else (0, 0)),
        fast_b=np.zeros(n if settings.fast_rate else 0),
        fast_c=np.zeros(m if settings.fast_rate else 0),
    )
    return State(*(array.astype(np.float32) for array in arrays))


def machine_arrays(state: State, kind: str = "rbm") -> dict[str, np.ndarray]:
    """The machine in the documented form of machine files: centered parameters and their offsets.

    Biases are stored in float64 as b + W lam and c + W' mu, Eqs. (transform_b), (transform_c), so that
    reading the file back gives the plain machine to the last bit.
    """
    W, b, c, mu, lam = (np.asarray(array, dtype=np.float64) for array in state[:5])
    return {
        "kind": np.array(kind),
        "weights_0": state.W.copy(),
        "biases_0": b + W @ lam,
        "biases_1": c + W.T @ mu,
        "offsets_0": state.mu.copy(),
        "offsets_1": state.lam.copy(),
    }
