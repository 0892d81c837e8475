"""The training of one machine of any kind: start, updates, evaluation, machine file."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels.auto_encoder import EncoderTraining
from cbm_cli.kernels.compiling import specialised
from cbm_cli.kernels.likelihood import Exact, evaluate_exactly, make_exact
from cbm_cli.kernels.machine import State, Trail
from cbm_cli.kernels.natural import CENTERED, FISHERS, Direction
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
        self.direction = _direction_of(settings)
        self._training: Training | EncoderTraining | None = None
        self.method = _method_of(settings)
        names = settings.evaluate.parts
        self.parts = parts_of(data, self.method, names.split("+") if names else None)
        self.encodes = settings.model.kind == "auto-encoder"
        self.counted = ROUNDS if settings.model.kind == "dbm" else ()
        # Names of the values of an evaluation
        self.measured = columns(self.method, self.sizes, self.parts)
        self.columns = (*self.measured, *self.counted)
        # Rows of an evaluation that a kernel makes between updates, without Python
        self.exact: Exact | None = None
        rows = self.parts.rows
        if settings.model.kind == "rbm" and self.method.name == "exact" and rows:
            watched = [*rows].index("valid") if "valid" in rows else -1
            hidden = self.sizes[1]
            self.exact = make_exact([*rows.values()], self.parts.unit, hidden, watched)

    def start(self) -> State:
        """The state before the first update."""
        return self.start_from(first_machine(self.settings, self.data, self.seed))

    def start_from(self, machine: Layered) -> State:
        """The state before the first update of a machine."""
        return state_of(machine, self.plan, self.seed)

    def advance(
        self,
        state: State,
        trail: Trail,
        first: int,
        stop: int,
        stations: Sequence[int] = (),
        best: float = -np.inf,
    ) -> tuple[int, list[list[float]]]:
        """Make the updates first, ..., stop - 1 by kernels; the state changes in place.

        Machines that have an ``exact`` are evaluated at the updates ``stations`` on the
        way. A station ends the stretch, and is left to `evaluate`, if the machine there
        has diverged, or is better than ``best`` on the validation part. Returns the
        update that is reached, and the values of the stations before it.
        """
        train = self._training_of(state)
        if not stations:
            train(trail, first, stop)
            return stop, []
        curve = np.empty((len(stations), len(self.columns)))
        machine = state.machine
        evaluates = specialised(evaluate_exactly, machine, self.exact, best, curve[0])
        for k, station in enumerate(stations):
            train(trail, first, station)
            first = station
            if not evaluates(machine, self.exact, best, curve[k]):
                return station, curve[:k].tolist()
        if first < stop:
            train(trail, first, stop)
        return stop, curve.tolist()

    def _training_of(self, state: State) -> Training | EncoderTraining:
        if self._training is None or self._training.state is not state:
            rows = self.data.train
            if self.encodes:
                self._training = EncoderTraining(state, self.sizes, rows, self.plan)
            else:
                self._training = Training(state, rows, self.plan, self.direction)
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
        measured: dict[str, Any] = {}
        if self.measured:
            method = self.method
            if method.name == "ais":
                seed = streams.seed_of(self.seed, streams.EVALUATIONS, update)
                method = replace(method, seed=seed)
            start = state.mu[self.sizes[0] :]
            machine = Flat(state.W, state.b, state.c, start=start, sizes=self.sizes)
            of_machine, by_part = evaluate(
                machine, self.parts, method, should_stop=should_stop
            )
            measured = values(of_machine, by_part)
        if self.counted:
            rounds, batches, failures = state.rounds.tolist()
            state.rounds[:] = 0
            measured["mean_field_rounds"] = rounds / batches if batches else np.nan
            measured["mean_field_failures"] = float(failures)
        return [measured[column] for column in self.columns]

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


def _direction_of(settings: Settings) -> Direction | None:
    """The direction of the steps, if updates do not simply follow the centered
    gradient.
    """
    if not is_directed(settings):
        return None
    how = settings.gradient
    return Direction(
        fisher=FISHERS[how.fisher] if how.kind == "natural" else CENTERED,
        damping=how.damping,
        scaled=how.scale_to != "none",
        to_centered=how.scale_to == "centered",
    )


def is_directed(settings: Settings) -> bool:
    """Whether updates do not simply follow the centered gradient."""
    return settings.gradient.kind == "natural" or settings.gradient.scale_to != "none"
