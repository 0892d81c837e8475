"""What is measured during training, and when."""

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from cbm_cli.grid.values import Count, Frozen, Interval, Misfit, Parts
from cbm_cli.grid.wording import did_you_mean

RECORDERS = (  # names of functions in trial/recorders.py
    "log_likelihood",
    "weight_norms",
    "bias_norms",
    "offset_values",
    "offset_error",
    "gradient_angles",
    "gradient_norms",
    "hidden_activity",
    "reconstruction_error",
    "free_energy_gap",
)
OWN_RECORDER = r".+\.py:[A-Za-z_]\w*"  # file.py:function


def _names(text: object) -> str:
    names = [name.strip() for name in str(text).split("+")]
    for name in names:
        if name not in RECORDERS and not re.fullmatch(OWN_RECORDER, name):
            own = "" if ".py" not in name else "; a recorder of your own is written file.py:function"
            raise ValueError(
                f"there is no recorder {name or 'without a name'}{own or did_you_mean(name, RECORDERS)}"
            )
    return "+".join(dict.fromkeys(names))


def _window(text: object) -> str:
    spans = [re.fullmatch(r"\s*(\d+)\s*-\s*(\d+)\s*", span) for span in str(text).split("+")]
    if not all(span and int(span[1]) < int(span[2]) for span in spans):
        raise ValueError("write the first and the last update of a window, as in 1000-1100 or 0-100+500-600")
    return "+".join(f"{int(span[1])}-{int(span[2])}" for span in spans)


def _units(text: object) -> str:
    units = [unit.strip() for unit in str(text).split("+")]
    if not all(re.fullmatch(r"\d+", unit) for unit in units):
        raise ValueError("write the numbers of hidden units, from 0, as in 0 or 0+3")
    return "+".join(dict.fromkeys(str(int(unit)) for unit in units))


class Evaluate(Frozen):
    """What is measured during training, and how often."""

    method: Literal["exact", "ais", "none", "cost"] | None = Field(
        None, description="Log-likelihood, or nothing; default: exact, or the cost of an auto encoder"
    )
    every: Interval | None = Field(None, description="Default: 50 updates, or 1 epoch where epochs are given")
    parts: Parts | None = Field(
        None, description="Parts that are evaluated: train+test; default: all there are"
    )
    rows: Count | None = Field(None, description="Evaluate a fixed subsample of this many rows of each part")
    temperatures: Annotated[int, Field(ge=3)] | None = Field(
        None, description="AIS: inverse temperatures; default: 14,500, of a DBM 29,000"
    )
    runs: Annotated[int, Field(ge=2)] = Field(100, description="AIS: independent runs")
    base: Literal["base-rate", "uniform"] = Field("base-rate", description="AIS: the machine it starts from")


class Record(Frozen):
    """What is recorded beside the evaluations."""

    what: Annotated[str, BeforeValidator(_names)] | None = Field(
        None, description="Recorders joined by +, such as weight_norms+offset_error, or file.py:function"
    )
    every: Interval | None = Field(None, description="Default: at every evaluation")
    window: Annotated[str, BeforeValidator(_window)] | None = Field(
        None, description="Record every update from the first to the last: 1000-1100, 0-100+5000-5100"
    )
    units: Annotated[str, BeforeValidator(_units)] = Field(
        "0", description="offset_values: numbers of hidden units, 0+3"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> "Record":
        for field in ("every", "window"):
            if getattr(self, field) and not self.what:
                raise Misfit(field, f"{field} needs something to record, as in what: weight_norms")
        if self.units != Record.model_fields["units"].default and "offset_values" not in self.names:
            raise Misfit("units", "units are for the recorder offset_values, which is not recorded")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the recorders; those of one's own are ``file.py:function``."""
        return tuple(self.what.split("+")) if self.what else ()

    @property
    def windows(self) -> tuple[tuple[int, int], ...]:
        """First and last update of each window."""
        spans = self.window.split("+") if self.window else ()
        return tuple(tuple(map(int, span.split("-"))) for span in spans)

    @property
    def unit_numbers(self) -> tuple[int, ...]:
        """Hidden units whose offsets are recorded, from 0."""
        return tuple(map(int, self.units.split("+")))
