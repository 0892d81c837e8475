"""What the one training loop drives: a machine of any kind that starts, learns, is evaluated and written."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbm_cli.datasets import Dataset
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels import training
from cbm_cli.kernels.auto_encoder import EncoderTraining, summed_cost
from cbm_cli.kernels.machine import State, Trail
from cbm_cli.kernels.random import FISHER, fill_uniform
from cbm_cli.kernels.step import add, fade, rate_at
from cbm_cli.machines.annealing import Stopped
from cbm_cli.machines.files import Flat, Layered, machine_arrays
from cbm_cli.machines.gradients import Direction, Phase
from cbm_cli.machines.likelihood import columns, evaluate, values
from cbm_cli.trial.evaluation import evaluated_parts, method_of, seed_at
from cbm_cli.trial.start import first_machine, layout_of, machine_at, make_plan, state_of

ROUNDS = ("mean_field_rounds", "mean_field_failures")
_ROWS = 250  # of an auto encoder evaluated at a time: few enough to stay near the cache


class Learner:
    """The training of one machine; all that changes in training is in the state."""

    def __init__(self, settings: Settings, data: Dataset, seed: int) -> None:
        self.settings, self.data, self.seed = settings, data, seed
        self.sizes = layout_of(settings, data).sizes
        self.plan = make_plan(settings, data, seed)
        self.direction = _direction_of(settings)
        self._training: training.Training | EncoderTraining | None = None
        self.method, self.parts = method_of(settings), evaluated_parts(settings, data)
        self.encodes = settings.model.kind == "auto-encoder"
        if self.encodes:
            self.measured = (
                tuple(f"{part}_cost" for part in self.parts.rows) if self.method.name == "cost" else ()
            )
        else:
            self.measured = columns(self.method, self.sizes, self.parts)
        mean_field = settings.model.kind == "dbm" and settings.data_phase == "mean-field"
        self.counted = ROUNDS if mean_field else ()
        self.columns = (*self.measured, *self.counted)  # names of the values of an evaluation

    def start(self) -> State:
        """The state before the first update."""
        return self.start_from(first_machine(self.settings, self.data, self.seed))

    def start_from(self, machine: Layered) -> State:
        """The state before the first update around a machine."""
        return state_of(machine, self.settings, self.plan, self.seed)

    def advance(self, state: State, trail: Trail, first: int, last: int) -> None:
        """Make the updates first, ..., last - 1 in one call of a kernel; the state changes in place."""
        if self._training is None or self._training.state is not state:
            direct, rows = self._direct if self.direction else None, self.data.train
            if self.encodes:
                self._training = EncoderTraining(state, self.sizes, rows, self.plan)
            else:
                self._training = training.Training(state, rows, self.plan, direct)
        self._training(trail, first, last)

    def _direct(self, work: training.Workspace, update: int) -> None:
        """Make the step of an update along a natural gradient, or along one of another length."""
        plan, machine, model = self.plan, work.machine, work.model.phase
        gradient, decay = work.gradient[:3], 0.0
        if plan.l1 or plan.l2:
            decay = -(plan.l1 * np.sign(machine.W) + plan.l2 * machine.W)
            gradient = gradient[0] + decay, *gradient[1:]
        weight = -model.weight
        h = work.model.states.h if plan.exact else model.h / model.weight[:, None]
        u = np.empty(h.size + -h.size % 4, np.float32)
        fill_uniform(u, plan.seed, update, FISHER, 0)
        phase, data = Phase(model.x, h, weight), work.data.x if plan.exact else None
        found = self.direction(
            machine[:3], gradient, machine[3:], phase, data, u[: h.size].reshape(h.shape), decay
        )
        to = work.velocity if plan.momentum else machine
        if plan.momentum:
            fade(to, plan.momentum)
        for array, change in zip(to[:3], found, strict=True):
            array += rate_at(plan, update) * change
        if plan.momentum:
            add(to, machine)

    def evaluate(self, state: State, update: int, should_stop: Callable[[], bool]) -> list[float]:
        """The values of ``columns``; Stopped where a long evaluation was asked to stop."""
        if self.encodes:
            return [self._cost(state, part, should_stop) for part in self.parts.rows if self.measured]
        found: dict[str, Any] = {}
        if self.measured:
            machine = Flat(*state[:3], state.mu[self.data.width :], self.sizes)
            method = self.method
            if method.name == "ais":
                method = replace(method, seed=seed_at(self.seed, update))
            found = values(*evaluate(machine, self.parts, method, should_stop=should_stop))
        if self.counted:
            rounds, batches, failures = map(float, state.rounds)
            state.rounds[:] = 0
            found |= dict(zip(ROUNDS, (rounds / batches if batches else np.nan, failures), strict=True))
        return [found[column] for column in self.columns]

    def machine(self, state: State) -> dict[str, NDArray[Any]]:
        """The arrays of a machine file."""
        return machine_arrays(machine_at(state, self.settings, self.sizes))

    def _cost(self, state: State, part: str, should_stop: Callable[[], bool]) -> float:
        """Mean cost of a part: cross entropy in nats, or squared error, summed over the units of a row."""
        rows, total = self.parts.rows[part], 0.0
        for first in range(0, len(rows), _ROWS):
            if should_stop():
                raise Stopped
            total += summed_cost(state, self.sizes, rows[first : first + _ROWS], self.plan)
        return total / len(rows)


def _direction_of(settings: Settings) -> Direction | None:
    """Another direction or length of updates than the centered gradient's."""
    how = settings.gradient
    if how.kind != "natural" and how.scale_to == "none":
        return None
    fisher = how.fisher if how.kind == "natural" else None
    sampled = how.estimate == "samples"
    return Direction(fisher, sampled, how.added_damping, how.iterations, how.scale_to, how.scale_of)


def is_finite(state: State) -> bool:
    """Whether all numbers of a state are."""
    return all(np.isfinite(array).all() for array in state)
