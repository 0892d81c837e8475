"""Samplers such as ``PT_10``, parsed once into numbers."""

import re
from dataclasses import dataclass

from cbm_cli.errors import CbmError

BACK_PROPAGATION = "back-propagation"  # what stands in the place of a sampler's name for auto encoders
_PATTERN = re.compile(
    r"(?P<kind>CD|PCD|FPCD)-(?P<steps>\d+)|PT_(?P<temperatures>\d+)(?:-(?P<pt_steps>\d+))?|exact"
)


@dataclass(frozen=True)
class Sampler:
    """How the negative phase is drawn.

    Attributes
    ----------
    steps : int
        Gibbs sweeps an update (CD-k, PCD-k), or between two rounds of swaps (PT_c-k).
    temperatures : int
        Chains of a tempered ladder; 1 for CD and PCD.
    restart : bool
        Chains restart at the batch in every update (CD).
    exact : bool
        All states of the smaller side, weighted by their probability, in place of samples.
    fast : bool
        Chains feel fast weights beside the regular ones (FPCD, Tieleman & Hinton 2009).
    """

    steps: int = 1
    temperatures: int = 1
    restart: bool = False
    exact: bool = False
    fast: bool = False

    @classmethod
    def parse(cls, text: str) -> "Sampler":
        """Read ``CD-k``, ``PCD-k``, ``FPCD-k``, ``PT_c``, ``PT_c-k`` or ``exact``; CbmError for the rest."""
        match = _PATTERN.fullmatch(text.strip())
        if match is None:
            raise CbmError(
                f"sampler {text!r} is unknown; write CD-k, PCD-k, FPCD-k, PT_c, PT_c-k or exact, as in PCD-1 "
                "or PT_10"
            )
        if text.strip() == "exact":
            return cls(exact=True)
        steps = int(match["steps"] or match["pt_steps"] or 1)
        temperatures = int(match["temperatures"] or 1)
        if steps < 1:
            raise CbmError(f"sampler {text!r} makes no step; k must be 1 or more")
        if match["temperatures"] and temperatures < 2:
            raise CbmError(
                f"sampler {text!r}: parallel tempering needs 2 or more temperatures; PCD-{steps} has one"
            )
        return cls(steps, temperatures, restart=match["kind"] == "CD", fast=match["kind"] == "FPCD")

    def __str__(self) -> str:
        if self.exact:
            return "exact"
        if self.temperatures > 1:
            return f"PT_{self.temperatures}" + (f"-{self.steps}" if self.steps > 1 else "")
        return f"{'CD' if self.restart else 'FPCD' if self.fast else 'PCD'}-{self.steps}"

    def latex(self) -> str:
        r"""As the paper prints it: ``PT$_{10}$``."""
        if self.temperatures > 1:
            return rf"PT$_{{{self.temperatures}}}$" + (f"-{self.steps}" if self.steps > 1 else "")
        return str(self)

    def unicode(self) -> str:
        """With lowered digits, for terminals and HTML: ``PT₁₀``."""
        lowered = str(self.temperatures).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
        return str(self).replace(f"_{self.temperatures}", lowered)
