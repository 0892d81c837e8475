"""What settings ask for that a data set cannot give, or that would take for ever."""

from cbm_cli.datasets import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels.layout import Layout
from cbm_cli.trial.deep import refuse_large_deep
from cbm_cli.trial.early_stopping import check_validation
from cbm_cli.trial.evaluation import refuse_large
from cbm_cli.trial.pretraining import pretraining_facts
from cbm_cli.trial.recorders import refuse_misfits
from cbm_cli.trial.start import batch_rows, layout_of

GRADIENT_BITS = 16  # the exact gradient keeps all states in memory


def check(settings: Settings, data: Dataset) -> None:
    """Raise CbmError where settings ask for what this data set cannot give."""
    _check_batch("batch", settings.batch, data)
    if settings.model.kind == "auto-encoder":
        check_validation(settings, data)
        return
    _check_batch("pretraining: batch", settings.pretraining.batch or "full", data)
    pretraining_facts(settings)  # complains of a sampler that cannot pre-train
    layout = layout_of(settings, data)
    if settings.evaluation == "exact":
        _check_exact_evaluation(settings, data, layout)
    _check_exact_phases(settings, layout)
    if settings.gradient.kind == "natural":
        _check_natural(settings, layout)
    record = settings.record
    if record.names:
        refuse_misfits(record.names, settings, data.width, data.parts, record.unit_numbers)
    rows = batch_rows(settings, data)
    if rows % settings.ladders:
        raise CbmError(f"ladders: {settings.ladders} ladders do not divide the batch of {rows} rows")


def _check_batch(field: str, batch: int | str, data: Dataset) -> None:
    n = len(data.train)
    if batch != "full" and batch > n:
        raise CbmError(f"{field}: {batch} rows, but {data.name} has {n}; write a smaller number, or full")


def _check_exact_evaluation(settings: Settings, data: Dataset, layout: Layout) -> None:
    remedy = "use method: ais (annealed importance sampling, AIS) to estimate it"
    if settings.model.kind == "dbm":
        rows = max(len(part) for part in data.parts.values())
        rows = min(rows, settings.evaluate.rows or rows)
        refuse_large_deep(data.width, layout.width - data.width, layout.height, rows, "evaluate", remedy)
    else:
        refuse_large(layout.width, layout.height, "evaluate", remedy)


def _check_exact_phases(settings: Settings, layout: Layout) -> None:
    asked = {
        "sampler: exact": settings.parsed_sampler.exact,
        "gradient_from: exact": settings.gradient_from == "exact",
        "offsets_from: exact": settings.offsets_from == "exact",
    }
    smaller = min(layout.width, layout.height)
    for what, exact in asked.items():
        if exact and smaller > GRADIENT_BITS:
            field, value = what.split(": ")
            raise CbmError(
                f"{field}: {value} holds all 2^{smaller} states of the smaller side; "
                f"it is for up to {GRADIENT_BITS} units there, use samples: PT_10 or PCD-1"
            )


def _check_natural(settings: Settings, layout: Layout) -> None:
    gradient, bits = settings.gradient, layout.width + layout.height
    if gradient.fisher == "diagonal" or gradient.estimate == "samples":
        return
    if bits > GRADIENT_BITS:
        raise CbmError(
            f"gradient: the exact Fisher matrix sums 2^{bits} states of {layout.width} visible and "
            f"{layout.height} hidden units; it is for up to 2^{GRADIENT_BITS}: write estimate: samples"
        )
    size, rank = layout.width * layout.height + bits, 2**layout.width - 1
    if gradient.fisher == "marginal" and not gradient.added_damping and rank < size:
        raise CbmError(
            f"gradient: the marginal Fisher matrix is singular: its rank is at most 2^{layout.width} - 1 = "
            f"{rank}, with {size} parameters; give damping, such as 0.01, or take the joint one"
        )
