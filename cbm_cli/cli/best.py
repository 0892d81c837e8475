"""``cbm best``: the best machine of each data set and part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from cbm_cli.cli import options
from cbm_cli.cli.options import Pairs, command
from cbm_cli.cli.output import note, say, say_json
from cbm_cli.cli.target import Target, results_and
from cbm_cli.errors import IncompleteError
from cbm_cli.text import decimal

if TYPE_CHECKING:
    from cbm_cli.results.selection import BestMachine


@command
@options.metric
@options.select
@options.as_json
@results_and("[EXPERIMENT]...")
def best(target: Target, metric: str | None, select: Pairs, as_json: bool) -> None:
    """Print the best machine of each data set and part.

    Likelihoods of different data cannot be compared, so each data set has a line of its
    own for each evaluated part. On the validation part, which comes first, the best
    value of all trials decides, and the machine is the one that reached it. On other
    parts the final value decides; the part that the table shows comes before the rest.
    """
    from cbm_cli.results.selection import best_machines, select_cells

    incomplete: IncompleteError | None = None  # raised at the end, after the others
    with target.results().readable(target.names) as stores:
        manifests = select_cells([store.manifest() for store in stores], select)
        for store, manifest in zip(stores, manifests, strict=True):
            if not manifest.cells:
                continue
            try:
                machines = best_machines(store, manifest, metric)
            except IncompleteError as error:
                incomplete = incomplete or error
                continue
            for machine in machines:
                if as_json:
                    say_json(msgspec.to_builtins(machine))
                else:
                    _print(machine)
        if incomplete:
            raise incomplete


def _print(machine: BestMachine) -> None:
    """Print the name of a machine, and a note on its value and its settings."""
    from cbm_cli.results import Metric

    if machine.machine is None or machine.value is None:
        note(f"{machine.data}: no trial has a finite {machine.metric}")
        return
    say(machine.machine)
    settings = [
        f"{name} {value}"
        for name, value in machine.settings.items()
        if name != "data" and value
    ]
    trial = ", ".join([*settings, f"trial {machine.trial}"])
    unit = Metric(machine.metric).unit()
    value = f"{decimal(machine.value, '.4f')} {unit}".rstrip()
    place = f"{machine.metric} {value} at the {machine.when}"
    note(f"{machine.data}: {place} ({trial})")
