"""Checks of settings against a data set, before anything is trained."""

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from cbm_cli.arrays import MOST_BYTES
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import RECORDERS, Settings, TableSpec
from cbm_cli.machines import limits
from cbm_cli.results.columns import why_not_chosen
from cbm_cli.text import did_you_mean
from cbm_cli.trial.learner import Learner
from cbm_cli.trial.recorders import check_recorders
from cbm_cli.trial.start import batch_rows, layout_of, total_updates, updates_of

MOST_STATIONS = 10_000_000  # updates at which something is done in one trial


def check(settings: Settings, data: Dataset) -> None:
    """Raise CbmError if settings ask for something that this data set cannot give."""
    if isinstance(settings.batch, int) and settings.batch > len(data.train):
        raise CbmError(
            f"{settings.batch} rows, but {data.name} has {len(data.train)}; write a "
            "smaller number, or full",
            field="batch",
        )
    _check_rates(settings)
    _check_counts(settings, data)
    _check_memory(settings, data)
    _check_state(settings, data)
    parts = settings.evaluate.parts.split("+") if settings.evaluate.parts else []
    missing = [part for part in parts if part not in data.parts]
    if missing:
        raise CbmError(
            f"{data.name} has no {' or '.join(missing)} part; write parts: "
            f"{'+'.join(data.parts)}",
            field="evaluate.parts",
        )
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
    problem = why_not_chosen(table.choose)
    if problem:
        raise CbmError(f"{problem}; choose other settings", field="table.choose")
    metric = table.metric
    needed = dict[str, str]()  # parts by the field that needs them
    if table.choose and table.by:
        needed["by"] = table.by
    elif table.choose:
        needed["choose"] = "valid"
    if table.statistic == "best-valid":
        needed["statistic"] = "valid"
    is_later = metric and re.search(r"_(exact|ais|pseudo)$", metric)
    if is_later or not (metric or needed):
        return
    columns, evaluated = dict[str, None](), set[str]()
    for settings, data in cells:
        measured = Learner(settings, data, 0).measured
        columns |= dict.fromkeys(measured)
        for recorder in settings.record.names:
            columns |= dict.fromkeys(RECORDERS.get(recorder, (metric or "",)))
        evaluated |= {name.partition("_")[0] for name in measured}
        is_measured = metric is None or metric in columns
        if is_measured and evaluated.issuperset(needed.values()):
            return
    if metric is not None and metric not in columns:
        hint = did_you_mean(metric, columns) if columns else "; nothing is measured"
        raise CbmError(f"no cell measures {metric}{hint}", field="table.metric")
    if not evaluated:
        return
    for field, part in needed.items():
        if part in evaluated:
            continue
        if any(part in data.parts for _, data in cells):
            hint = f"evaluate.parts leaves it out: write {part}, too"
        else:
            option = "hold_out_test" if part == "test" else "hold_out"
            hint = f"{option}: 0.2 below data makes one of training rows"
        raise CbmError(
            f"no cell evaluates a {part} part; {hint}", field=f"table.{field}"
        )


def _check_counts(settings: Settings, data: Dataset) -> None:
    """Raise CbmError for more evaluations, records or learning rates than a list in
    memory should have.
    """
    total, record = total_updates(settings, data), settings.record
    intervals = {
        "evaluate.every": settings.every,
        "learning_rate.every": settings.learning_rate.every,
    }
    if record.names:
        intervals["record.every"] = record.every or settings.every
    counts = {}
    for field, interval in intervals.items():
        if interval:
            counts[field] = total // updates_of(interval, settings, data)
    recorded = [min(last, total) - min(first, total) for first, last in record.windows]
    counts["record.window"] = sum(recorded)
    for field, count in counts.items():
        if count > MOST_STATIONS:
            raise CbmError(
                f"comes {count:,} times in {total:,} updates; the limit is "
                f"{MOST_STATIONS:,}: write a longer interval, or fewer updates",
                field=field,
            )


def _check_memory(settings: Settings, data: Dataset) -> None:
    """Raise CbmError for arrays that no machine file could hold: more than `MOST_BYTES`
    of float32.
    """
    layout = layout_of(settings, data)
    units = sum(layout.sizes)
    of_chains = chains_of(settings, data) * units
    numbers = {
        "model.hidden": layout.width * layout.height,
        "batch": batch_rows(settings, data) * units,
        "chains": of_chains,
        # a random number for each unit and step
        "sampler": of_chains * settings.parsed_sampler.steps,
    }
    if settings.parsed_sampler.temperatures > 1:
        del numbers["chains"]  # as many as temperatures
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


def _check_state(settings: Settings, data: Dataset) -> None:
    """Raise CbmError for a trial whose state could be written but not read again."""
    size = state_bytes(settings, data)
    if size > MOST_BYTES:
        raise CbmError(
            f"the state of a trial would take {size:,} bytes; the limit is "
            f"{MOST_BYTES:,}: write fewer hidden units, or leave out momentum or the "
            "validation part, which take as much as the machine",
            field="model.hidden",
        )


def state_bytes(settings: Settings, data: Dataset) -> int:
    """Return how many bytes the arrays of a state take at least.

    A state holds the machine and its offsets and the hidden states of the chains, and
    where there are such things a velocity, the best machine, pre-trained layers, and
    the curve so far.
    """
    layout = layout_of(settings, data)
    units = sum(layout.sizes)
    in_file = sum(n * m for n, m in pairwise(layout.sizes))
    weights, hidden_states = in_file, 0
    if settings.model.kind != "auto-encoder":
        weights = layout.width * layout.height
        samplers = 2 if settings.offsets_from == "independent" else 1
        hidden_states = samplers * chains_of(settings, data) * layout.height
    numbers = weights + 2 * units + hidden_states
    if settings.momentum > 0:
        numbers += weights + units
    if "valid" in data.parts and settings.evaluation != "none":
        numbers += in_file + 2 * units
    evaluations = total_updates(settings, data) // updates_of(
        settings.every, settings, data
    )
    columns = 2 + len(data.parts) if settings.evaluation != "none" else 2
    return 4 * numbers + 8 * columns * evaluations


def chains_of(settings: Settings, data: Dataset) -> int:
    """Chains of a sampler."""
    temperatures = settings.parsed_sampler.temperatures
    if temperatures > 1:
        return temperatures
    return settings.chains or batch_rows(settings, data)


def _check_rates(settings: Settings) -> None:
    """Raise CbmError for numbers that are infinite, or 0 by rounding, in the float32 of
    training.
    """
    rate = settings.learning_rate
    # Of a schedule without its times: all its rates, in the first of two updates
    rates = [number for _, number in rate.pieces(lambda interval: 1, 2)]
    numbers = {
        "learning_rate": max(rates),
        "pretraining.learning_rate": settings.pretraining.learning_rate,
        "weight_scale": settings.weight_scale,
        "weight_decay.l1": settings.weight_decay.l1,
        "weight_decay.l2": settings.weight_decay.l2,
    }
    largest = float(np.finfo(np.float32).max)
    for field, number in numbers.items():
        if not number:
            continue
        flaw = ""
        if number > largest:
            flaw = f"must be at most {largest:.1e}, the largest float32, not {number:g}"
        elif not np.float32(number):
            flaw = f"{number:g} is 0 in float32; write 1e-45 or more"
        if flaw:
            raise CbmError(flaw, field=field)


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
        raise CbmError(
            f"evaluate.parts: {parts} leaves out the validation part; write "
            f"{parts}+valid",
            field="early_stopping",
        )


def _check_sums(settings: Settings, data: Dataset) -> None:
    """Raise CbmError for exact evaluations, phases and Fisher matrices of too many
    states.
    """
    layout, gradient = layout_of(settings, data), settings.gradient
    n, m = layout.width, layout.height
    if settings.evaluation == "exact":
        most = max(len(part) for part in data.parts.values())
        rows = min(most, settings.evaluate.rows or most)
        remedy = "use method: ais (annealed importance sampling, AIS) to estimate it"
        limits.check_likelihood(layout.sizes, rows, "evaluate", remedy)
    exact = {
        "sampler": settings.parsed_sampler.exact,
        "gradient_from": settings.gradient_from == "exact",
        "offsets_from": settings.offsets_from == "exact",
    }
    remedy = "use samples, as PT_10 or PCD-1 draw them"
    for field, is_exact in exact.items():
        if is_exact:
            limits.check_smaller_side(
                field, "exact", n=n, m=m, limit=limits.LISTED_BITS, remedy=remedy
            )
    if gradient.kind != "natural":
        return
    if gradient.fisher != "diagonal" or exact["sampler"] or exact["gradient_from"]:
        limits.check_fisher(
            "gradient",
            gradient.fisher,
            gradient.damping,
            n=n,
            m=m,
            remedy="use samples and fisher: diagonal",
        )
