"""Checks of settings against a data set, before anything is trained."""

import re
from collections.abc import Sequence

import numpy as np

from cbm_cli.arrays import MOST_BYTES
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import RECORDERS, Settings, TableSpec
from cbm_cli.machines import limits
from cbm_cli.text import did_you_mean
from cbm_cli.trial.learner import Learner
from cbm_cli.trial.recorders import check_recorders
from cbm_cli.trial.start import batch_rows, layout_of, total_updates, updates_of

MOST_STATIONS = 10_000_000  # updates at which something is done in one trial


def check(settings: Settings, data: Dataset) -> None:
    """Raise CbmError if settings ask for something that this data set cannot give."""
    if isinstance(settings.batch, int) and settings.batch > len(data.train):
        has = f"{data.name} has {len(data.train)}"
        told = f"{settings.batch} rows, but {has}; write a smaller number, or full"
        raise CbmError(told, field="batch")
    _check_rates(settings)
    _check_counts(settings, data)
    _check_memory(settings, data)
    asked = settings.evaluate.parts.split("+") if settings.evaluate.parts else []
    missing = " or ".join(part for part in asked if part not in data.parts)
    if missing:
        present = "+".join(data.parts)
        told = f"{data.name} has no {missing} part; write parts: {present}"
        raise CbmError(told, field="evaluate.parts")
    if settings.model.kind == "auto-encoder" or settings.early_stopping.metric:
        _check_validation(settings, data)
    if settings.model.kind == "auto-encoder":
        return
    _check_sums(settings, data)
    check_recorders(settings, data)


def check_table(table: TableSpec, cells: Sequence[tuple[Settings, Dataset]]) -> None:
    """Raise CbmError for a metric, statistic or choice of a table if no cell measures
    what it needs.

    Recorders of one's own may measure anything, and so may `cbm evaluate`, whose
    columns end with a method.
    """
    metric, parts = table.metric, dict[str, str]()
    if table.choose:
        parts["by" if table.by else "choose"] = table.by or "valid"
    if table.statistic == "best-valid":
        parts["statistic"] = "valid"
    is_later = metric and re.search(r"_(exact|ais|pseudo)$", metric)
    if is_later or not (metric or parts):
        return
    known, evaluated = dict[str, None](), set[str]()
    for settings, data in cells:
        names, measured = settings.record.names, Learner(settings, data, 0).measured
        columns = [
            name
            for recorder in names
            for name in RECORDERS.get(recorder, (metric or "",))
        ]
        known |= dict.fromkeys((*measured, *columns))
        evaluated |= {name.partition("_")[0] for name in measured}
        parts = {field: part for field, part in parts.items() if part not in evaluated}
        if (metric is None or metric in known) and not parts:
            return
    if metric is not None and metric not in known:
        hint = did_you_mean(metric, known) if known else "; nothing is measured"
        raise CbmError(f"no cell measures {metric}{hint}", field="table.metric")
    for field, part in parts.items() if evaluated else ():
        option = "hold_out_test" if part == "test" else "hold_out"
        hint = f"; {option}: 0.2 below data makes one of training rows"
        if any(part in data.parts for _, data in cells):
            hint = f"; evaluate.parts leaves it out: write {part}, too"
        raise CbmError(f"no cell evaluates a {part} part{hint}", field=f"table.{field}")


def _check_counts(settings: Settings, data: Dataset) -> None:
    """Raise CbmError for more evaluations, records or learning rates than a list in
    memory should have.
    """
    total, record, rate = (
        total_updates(settings, data),
        settings.record,
        settings.learning_rate,
    )
    intervals = {"evaluate.every": settings.every, "learning_rate.every": rate.every}
    if record.names:
        intervals["record.every"] = record.every or settings.every
    counts = {
        field: total // updates_of(text, settings, data)
        for field, text in intervals.items()
        if text
    }
    counts["record.window"] = sum(
        min(last, total) - min(first, total) for first, last in record.windows
    )
    for field, count in counts.items():
        if count > MOST_STATIONS:
            raise CbmError(
                f"comes {count:,} times in {total:,} updates; the limit is "
                f"{MOST_STATIONS:,}: "
                "write a longer interval, or fewer updates",
                field=field,
            )


def _check_memory(settings: Settings, data: Dataset) -> None:
    """Raise CbmError for arrays that no machine file could hold: more than `MOST_BYTES`
    of float32.
    """
    layout, sampler, rows = (
        layout_of(settings, data),
        settings.parsed_sampler,
        batch_rows(settings, data),
    )
    units, tempered = sum(layout.sizes), sampler.temperatures > 1
    chains = sampler.temperatures if tempered else settings.chains or rows
    numbers = {
        "model.hidden": layout.width * layout.height,
        "batch": rows * units,
        "sampler" if tempered else "chains": chains * units,
        "sampler": chains
        * units
        * sampler.steps,  # a random number for each unit and step
    }
    if settings.evaluation == "ais":
        numbers |= {"evaluate.temperatures": settings.temperatures}
        numbers |= {"evaluate.runs": settings.evaluate.runs * units}
    for field, count in numbers.items():
        if 4 * count > MOST_BYTES:
            raise CbmError(
                f"takes an array of {count:,} numbers with {settings.model.hidden} "
                "hidden units; "
                f"the limit is {MOST_BYTES // 4:,}: write a smaller number",
                field=field,
            )


def _check_rates(settings: Settings) -> None:
    """Raise CbmError for numbers that are infinite, or 0 by rounding, in the float32 of
    training.
    """
    rates = [rate for _, rate in settings.learning_rate.pieces(lambda text: 1, 2)]
    numbers = {
        "learning_rate": max(rates),
        "pretraining.learning_rate": settings.pretraining.learning_rate,
        "weight_scale": settings.weight_scale,
        "weight_decay.l1": settings.weight_decay.l1,
        "weight_decay.l2": settings.weight_decay.l2,
    }
    largest = float(np.finfo(np.float32).max)
    for field, number in numbers.items():
        if number and number > largest:
            told = f"must be at most {largest:.1e}, the largest float32, not {number:g}"
            raise CbmError(told, field=field)
        if number and not np.float32(number):
            raise CbmError(
                f"{number:g} is 0 in float32; write 1e-45 or more", field=field
            )


def _check_validation(settings: Settings, data: Dataset) -> None:
    """Raise CbmError if early stopping has no validation part to watch, or if it is not
    evaluated.
    """
    if "valid" not in data.parts:
        raise CbmError(
            f"{data.name} has no validation part to watch; make one of some training "
            "rows by hold_out, as in data: {name: mnist, hold_out: 10000}",
            field="early_stopping",
        )
    parts = settings.evaluate.parts
    if parts and "valid" not in parts.split("+"):
        told = (
            f"evaluate.parts: {parts} leaves out the validation part; write "
            f"{parts}+valid"
        )
        raise CbmError(told, field="early_stopping")


def _check_sums(settings: Settings, data: Dataset) -> None:
    """Raise CbmError for exact evaluations, phases and Fisher matrices of too many
    states.
    """
    layout, gradient = layout_of(settings, data), settings.gradient
    sides = layout.width, layout.height
    if settings.evaluation == "exact":
        rows = max(len(part) for part in data.parts.values())
        remedy = "use method: ais (annealed importance sampling, AIS) to estimate it"
        limits.check_likelihood(
            layout.sizes, min(rows, settings.evaluate.rows or rows), "evaluate", remedy
        )
    exact = {
        "sampler": settings.parsed_sampler.exact,
        "gradient_from": settings.gradient_from == "exact",
        "offsets_from": settings.offsets_from == "exact",
    }
    for field in (field for field, chosen in exact.items() if chosen):
        remedy = "use samples, as PT_10 or PCD-1 draw them"
        limits.check_smaller_side(field, "exact", *sides, limits.LISTED_BITS, remedy)
    sums_states = (
        gradient.fisher != "diagonal" or exact["sampler"] or exact["gradient_from"]
    )
    if gradient.kind == "natural" and sums_states:
        limits.check_fisher(
            "gradient",
            gradient.fisher,
            gradient.damping,
            *sides,
            "use samples and fisher: diagonal",
        )
