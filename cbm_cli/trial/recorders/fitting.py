"""Which recorders go with which machine; said before anything is trained."""

from collections.abc import Collection, Sequence

from cbm_cli.errors import CbmError
from cbm_cli.grid.offsets import Scheme
from cbm_cli.grid.settings import Settings
from cbm_cli.grid.wording import did_you_mean
from cbm_cli.machines import limits
from cbm_cli.trial.recorders.measures import RECORDERS, fisher_of, needs_model_means
from cbm_cli.trial.recorders.own import is_own


def refuse_misfits(
    names: Sequence[str],
    settings: Settings,
    width: int,
    parts: Collection[str] | None = None,
    units: Sequence[int] = (),
) -> None:
    """Raise CbmError for a recorder that does not exist or does not fit the model.

    Parameters
    ----------
    names : sequence of str
        As in the grid; a user's own recorders are taken to fit.
    settings : Settings
    width : int
        Visible units.
    parts : collection of str, optional
        Parts that the data set has; by default they are not looked at.
    units : sequence of int
        Hidden units that ``offset_values`` is to show, counted from 0.
    """
    for name in names:
        if name not in RECORDERS and not is_own(name):
            raise CbmError(f"record: unknown recorder {name}{did_you_mean(name, RECORDERS)}")
    if names and settings.model.kind != "rbm":
        raise CbmError(f"record: recorders are for kind: rbm; this model's kind is {settings.model.kind}")
    hidden = settings.model.hidden_layers(width)[0]
    if "offset_values" in names:
        _refuse_units(units, hidden)
    if "free_energy_gap" in names and parts is not None and "valid" not in parts:
        raise CbmError("record: free_energy_gap needs a validation part, which this data set does not have")
    if "gradient_angles" in names:
        limits.check_fisher("record: gradient_angles", *fisher_of(settings), width, hidden, "leave it out")
    for name in names:
        if name in _summing(settings):
            what = f"record: {name}"
            limits.check_smaller_side(what, width, hidden, limits.RECORDER_BITS, "leave it out")


def _refuse_units(units: Sequence[int], hidden: int) -> None:
    if not units:
        raise CbmError("record: offset_values needs units: the hidden units to show, such as 0+3")
    for unit in units:
        if not 0 <= unit < hidden:
            raise CbmError(f"record: units: there is no hidden unit {unit}; they are 0 to {hidden - 1}")


def _summing(settings: Settings) -> set[str]:
    """Names of the recorders that need all states of the smaller side."""
    of_scheme = {"offset_error"} if needs_model_means(Scheme.parse(settings.offsets).letters) else set()
    return {"log_likelihood", "gradient_norms", "gradient_angles"} | of_scheme
