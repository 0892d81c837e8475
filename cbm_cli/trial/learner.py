"""The training of one machine of any kind: start, updates, evaluation, machine file."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels.auto_encoder import EncoderTraining
from cbm_cli.kernels.compiling import specialised
from cbm_cli.kernels.machine import State, Trail
from cbm_cli.kernels.natural import CENTERED, FISHERS, Direction
from cbm_cli.kernels.states import Exact, evaluate_exactly, make_exact
from cbm_cli.kernels.training import Training
from cbm_cli.machines import streams
from cbm_cli.machines.files import machine_arrays
from cbm_cli.machines.likelihood import (
    Method,
    columns,
    evaluate,
    mean_cost,
    parts_of,
    values,
)
from cbm_cli.machines.models import Flat, Layered
from cbm_cli.trial.start import (
    first_machine,
    layout_of,
    machine_at,
    make_plan,
    state_of,
)

ROUNDS = ("mean_field_rounds", "mean_field_failures")


class Learner:
    """The training of one machine; everything that changes in training is in the
    state.
    """

    def __init__(self, settings: Settings, data: Dataset, seed: int) -> None:
        self.settings, self.data, self.seed = settings, data, seed
        self.sizes = layout_of(settings, data).sizes
        self.plan = make_plan(settings, data, seed)
        how = settings.gradient
        fisher = FISHERS[how.fisher] if how.kind == "natural" else CENTERED
        scaled = how.scale_to != "none", how.scale_to == "centered"
        self.direction = (
            Direction(fisher, how.damping, *scaled) if is_directed(settings) else None
        )
        self._training: Training | EncoderTraining | None = None
        self.method, names = _method_of(settings), settings.evaluate.parts
        self.parts = parts_of(data, self.method, names.split("+") if names else None)
        self.counted = ROUNDS if settings.model.kind == "dbm" else ()
        self.encodes = settings.model.kind == "auto-encoder"
        if self.encodes:
            of_parts = self.parts.rows if self.method.name == "cost" else ()
            self.measured = tuple(f"{part}_cost" for part in of_parts)
        else:
            self.measured = columns(self.method, self.sizes, self.parts)
        self.columns = (
            *self.measured,
            *self.counted,
        )  # names of the values of an evaluation
        self.exact: Exact | None = (
            None  # rows of an evaluation that the training loop can make itself
        )
        rows = self.parts.rows
        if settings.model.kind == "rbm" and self.method.name == "exact" and rows:
            watched = [*rows].index("valid") if "valid" in rows else -1
            self.exact = make_exact(
                [*rows.values()], self.parts.unit, self.sizes[1], watched
            )

    def start(self) -> State:
        """The state before the first update."""
        return self.start_from(first_machine(self.settings, self.data, self.seed))

    def start_from(self, machine: Layered) -> State:
        """The state before the first update of a machine."""
        return state_of(machine, self.plan, self.seed)

    def advance(self, state: State, trail: Trail, first: int, last: int) -> None:
        """Make the updates first, ..., last - 1 in one call of a kernel; the state
        changes in place.
        """
        self._training_of(state)(trail, first, last)

    def advance_through(
        self, state: State, trail: Trail, first: int, stations: range, best: float
    ) -> list[list[float]]:
        """Make the updates from ``first`` through some evaluations, and return the
        values of these.

        The last one is left to `evaluate` if the machine has diverged, or is better
        than ``best`` on the validation part.
        """
        trained, curve = (
            self._training_of(state),
            np.empty((len(stations), len(self.columns))),
        )
        machine = state.machine
        evaluates = specialised(evaluate_exactly, machine, self.exact, best, curve[0])
        for made, station in enumerate(stations):
            trained(trail, first, station)
            first = station
            if not evaluates(machine, self.exact, best, curve[made]):
                return curve[:made].tolist()
        return curve.tolist()

    def _training_of(self, state: State) -> Any:
        if self._training is None or self._training.state is not state:
            if self.encodes:
                self._training = EncoderTraining(
                    state, self.sizes, self.data.train, self.plan
                )
            else:
                self._training = Training(
                    state, self.data.train, self.plan, self.direction
                )
        return self._training

    def evaluate(
        self, state: State, update: int, should_stop: Callable[[], bool]
    ) -> list[float]:
        """The values of ``columns``; raises Stopped if a long evaluation was asked to
        stop.
        """
        if self.exact is not None:
            call = state.machine, self.exact, np.inf, np.empty(len(self.columns))
            if specialised(evaluate_exactly, *call)(*call):
                return call[-1].tolist()
        if self.encodes:
            rows = self.parts.rows.values() if self.measured else ()
            return [
                mean_cost(state, self.sizes, x, self.plan, should_stop) for x in rows
            ]
        found: dict[str, Any] = {}
        if self.measured:
            method = self.method
            if method.name == "ais":
                method = replace(
                    method, seed=streams.seed_of(self.seed, streams.EVALUATIONS, update)
                )
            machine = Flat(*state[:3], state.mu[self.sizes[0] :], self.sizes)
            found = values(
                *evaluate(machine, self.parts, method, should_stop=should_stop)
            )
        if self.counted:
            rounds, batches, failures = map(float, state.rounds)
            state.rounds[:] = 0
            found |= dict(
                zip(
                    ROUNDS,
                    (rounds / batches if batches else np.nan, failures),
                    strict=True,
                )
            )
        return [found[column] for column in self.columns]

    def machine(self, state: State) -> dict[str, NDArray[Any]]:
        """The arrays of a machine file."""
        machine = machine_at(state, self.settings, self.sizes)
        return machine_arrays(machine._replace(names=self.data.names))


def _method_of(settings: Settings) -> Method:
    """The evaluation that settings ask for."""
    how = settings.evaluate
    return Method(
        settings.evaluation,
        temperatures=settings.temperatures,
        runs=how.runs,
        rows=how.rows,
        checked=False,
    )


def is_directed(settings: Settings) -> bool:
    """Whether updates do not simply follow the centered gradient."""
    return settings.gradient.kind == "natural" or settings.gradient.scale_to != "none"
