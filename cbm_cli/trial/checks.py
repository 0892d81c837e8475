"""Checks of settings against a data set, before anything is trained."""

from cbm_cli.datasets import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels.machine import Layout
from cbm_cli.machines import limits
from cbm_cli.trial.early_stopping import check_validation
from cbm_cli.trial.pretraining import pretraining_facts
from cbm_cli.trial.recorders import check_recorders
from cbm_cli.trial.start import batch_rows, layout_of


def check(settings: Settings, data: Dataset) -> None:
    """Raise CbmError where settings ask for what this data set cannot give."""
    _check_batch("batch", settings.batch, data)
    _check_parts(settings, data)
    if settings.model.kind == "auto-encoder":
        check_validation(settings, data)
        return
    _check_batch("pretraining.batch", settings.pretraining.batch or "full", data)
    pretraining_facts(settings)  # complains of a sampler that cannot pre-train
    layout = layout_of(settings, data)
    if settings.evaluation == "exact":
        _check_exact_evaluation(settings, data, layout)
    _check_exact_phases(settings, layout)
    gradient, sides = settings.gradient, (layout.width, layout.height)
    if gradient.kind == "natural" and gradient.estimate == "exact":
        remedy = "write estimate: samples"
        limits.check_fisher("gradient", gradient.fisher, gradient.added_damping, *sides, remedy)
    check_recorders(settings, data)
    rows = batch_rows(settings, data)
    if rows % settings.ladders:
        raise CbmError(f"ladders: {settings.ladders} ladders do not divide the batch of {rows} rows")


def _check_batch(field: str, batch: int | str, data: Dataset) -> None:
    n = len(data.train)
    if batch != "full" and batch > n:
        raise CbmError(f"{field}: {batch} rows, but {data.name} has {n}; write a smaller number, or full")


def _check_parts(settings: Settings, data: Dataset) -> None:
    asked = settings.evaluate.parts.split("+") if settings.evaluate.parts else []
    missing = " or ".join(part for part in asked if part not in data.parts)
    if missing:
        present = "+".join(data.parts)
        raise CbmError(f"evaluate.parts: {data.name} has no {missing} part; write parts: {present}")


def _check_exact_evaluation(settings: Settings, data: Dataset, layout: Layout) -> None:
    rows = max(len(part) for part in data.parts.values())
    rows = min(rows, settings.evaluate.rows or rows)
    remedy = "use method: ais (annealed importance sampling, AIS) to estimate it"
    limits.check_likelihood(layout.sizes, rows, "evaluate", remedy)


def _check_exact_phases(settings: Settings, layout: Layout) -> None:
    asked = {
        "sampler": settings.parsed_sampler.exact,
        "gradient_from": settings.gradient_from == "exact",
        "offsets_from": settings.offsets_from == "exact",
    }
    for field, exact in asked.items():
        if exact:
            what, remedy = f"{field}: exact", "use samples, as PT_10 or PCD-1 draw them"
            limits.check_smaller_side(what, layout.width, layout.height, limits.PHASE_BITS, remedy)
