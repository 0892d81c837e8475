"""Learning of restricted and deep Boltzmann machines."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from cbm_cli.datasets import Dataset
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels.state import State, Trail
from cbm_cli.kernels.training import train
from cbm_cli.machines.files import Machine
from cbm_cli.machines.likelihood import columns, evaluate, values
from cbm_cli.trial.evaluation import evaluated_parts, method_of, seed_at
from cbm_cli.trial.start import initial_state, layout_of, machine_arrays, make_plan, make_state

ROUNDS = ("mean_field_rounds", "mean_field_failures")


class BoltzmannLearner:
    """Trains by the paper's Algorithm 1; a deep machine is flattened, see `kernels.layout.Layout`."""

    def __init__(self, settings: Settings, data: Dataset, seed: int) -> None:
        self.settings, self.data, self.seed = settings, data, seed
        self.layout = layout_of(settings, data)
        self.plan = make_plan(settings, data, seed)
        self.batches = self.plan.batches
        self.method, self.parts = method_of(settings), evaluated_parts(settings, data)
        self.measured = columns(self.method, self.layout.sizes, self.parts)
        deep = settings.model.kind == "dbm"
        self.counted = ROUNDS if deep and settings.data_phase == "mean-field" else ()
        self.columns = (*self.measured, *self.counted)

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
        """The values of ``columns``: likelihoods or bounds; rounds of mean field per batch, and failures."""
        found = {}
        if self.measured:
            machine = Machine(*state[:3], state.mu[self.data.width :], self.layout.sizes)
            method = self.method
            if method.name == "ais":
                method = replace(method, seed=seed_at(self.seed, update))
            found = values(*evaluate(machine, self.parts, method, should_stop=should_stop))
        if self.counted:
            rounds, batches, failures = map(float, state.rounds)
            state.rounds[:] = 0
            found |= dict(zip(ROUNDS, (rounds / batches if batches else np.nan, failures), strict=True))
        return [found[column] for column in self.columns]

    def machine(self, state: State) -> dict[str, np.ndarray]:
        """The arrays of a machine file."""
        return machine_arrays(state, self.layout, self.settings.model.kind)
