"""Learning of restricted and deep Boltzmann machines."""

from collections.abc import Callable, Sequence

import numpy as np

from cbm_cli.datasets import Dataset
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels.state import State, Trail
from cbm_cli.kernels.training import train
from cbm_cli.trial.deep import DeepMachine, DeepMethod, evaluate_deep
from cbm_cli.trial.evaluation import Evaluator, base_of, evaluated_parts, seed_at
from cbm_cli.trial.start import initial_state, layout_of, machine_arrays, make_plan, make_state

ROUNDS = ("mean_field_rounds", "mean_field_failures")


class BoltzmannLearner:
    """Trains by the paper's Algorithm 2; a deep machine is flattened, see `kernels.layout.Layout`."""

    def __init__(self, settings: Settings, data: Dataset, seed: int) -> None:
        self.settings, self.data, self.seed = settings, data, seed
        self.layout = layout_of(settings, data)
        self.plan = make_plan(settings, data, seed)
        self.batches = self.plan.batches
        self.deep = settings.model.kind == "dbm"
        self.measure = (
            DeepEvaluator(settings, data, seed) if self.deep else Evaluator.of(settings, data, seed)
        )
        self.columns = self.measure.columns

    def start(self) -> State:
        """The state before the first update."""
        return initial_state(self.settings, self.data, self.plan, self.seed)

    def start_from(self, machine: tuple[Sequence, Sequence, Sequence]) -> State:
        """The same around weights, plain biases and offsets that have been trained before."""
        return make_state(self.settings, self.plan, self.layout, machine, self.seed)

    def advance(self, state: State, trail: Trail, first: int, last: int) -> None:
        """Make the updates first, ..., last - 1."""
        train(state, self.data.train, self.plan, trail, first, last)

    def evaluate(self, state: State, update: int, should_stop: Callable[[], bool]) -> list[float]:
        """The values of ``columns``."""
        if self.deep:
            return self.measure(state, update, should_stop)
        return self.measure(state[:3], update, should_stop)

    def machine(self, state: State) -> dict[str, np.ndarray]:
        """The arrays of a machine file."""
        return machine_arrays(state, self.layout, self.settings.model.kind)


class DeepEvaluator:
    """What is measured at every evaluation of a deep machine in training."""

    def __init__(self, settings: Settings, data: Dataset, seed: int) -> None:
        how, field = settings.evaluate, settings.mean_field
        self.seed, self.unit, self.width = seed, 1 / data.levels, data.width
        self.base, self.parts = base_of(data, how.base == "uniform"), evaluated_parts(how, data)
        self.method = DeepMethod(
            settings.evaluation,
            tighter=settings.model.layers == 3,
            temperatures=settings.temperatures,
            runs=how.runs,
            tolerance=field.tolerance,
            rounds=field.rounds,
        )
        self.columns = (
            *self.method.columns(self.parts),
            *(ROUNDS if settings.data_phase == "mean-field" else ()),
        )

    def __call__(self, state: State, update: int, should_stop: Callable[[], bool]) -> list[float]:
        """Likelihoods or bounds; then mean-field rounds a batch since the last evaluation, and failures."""
        machine = DeepMachine(state.W, state.b, state.c, state.mu[self.width :])
        seed = seed_at(self.seed, update)
        values = evaluate_deep(self.method, machine, self.parts, self.unit, self.base, seed, should_stop)
        if len(values) == len(self.columns):
            return values
        rounds, batches, failures = map(float, state.rounds)
        state.rounds[:] = 0
        return [*values, rounds / batches if batches else np.nan, failures]
