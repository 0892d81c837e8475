"""The names of offset schemes (``dd^b_s``) and samplers (``PT_10``), parsed into numbers and printed back."""

import re
from functools import cache
from typing import NamedTuple

from cbm_cli.errors import CbmError
from cbm_cli.text import WHOLE, whole_numbers

_KNOWN = "0dmahr"  # `reference.LETTERS` says of what an offset of each letter is made
SCHEME_PATTERN = rf"[{_KNOWN}]+(\^[bl](_s)?|_s(\^[bl])?)?"
SAMPLER_PATTERN = rf"(CD|PCD)-({WHOLE})|PT_({WHOLE})(?:-({WHOLE}))?|exact"
BACK_PROPAGATION = "back-propagation"  # shown instead of a sampler for auto encoders
_LONGEST = 60  # characters of a name
_MEANINGS = "0 none, d data mean, m model mean, a their average, h one half, r random"


class Scheme(NamedTuple):
    """Where the offsets of each layer come from, and when they are updated."""

    letters: str  # one of 0dmahr per layer, visible layer first
    before: bool = True  # offsets are updated before the gradient step (^b) rather than later (^l)
    sliding: bool = False  # offsets are a moving average (_s) rather than the mean of the current batch

    @classmethod
    @cache
    def parse(cls, text: str) -> "Scheme":
        """Read ``dd^b_s``, ``dd_s^b``, ``aa^b``, ``d0`` and the like; raise CbmError for anything else."""
        text = text.strip()
        if re.fullmatch(SCHEME_PATTERN, text) is None or len(text) > _LONGEST:
            raise CbmError(_complaint(text[:_LONGEST]))
        letters = re.split(r"[\^_]", text)[0]
        return cls(letters, before="^l" not in text, sliding="_s" in text)

    def __str__(self) -> str:
        """Canonical spelling: letters, then ``^b`` or ``^l``, then ``_s``; bare when neither matters."""
        return self.letters + ("" if self._constant else f"^{self._order}") + ("_s" if self.sliding else "")

    def latex(self) -> str:
        """The scheme as the paper prints it, for math mode: ``dd^{b}_{s}``."""
        if self._constant and not self.sliding:
            return rf"\mathit{{{self.letters}}}"
        return self.letters + f"^{{{self._order}}}" + ("_{s}" if self.sliding else "")

    def unicode(self) -> str:
        """The scheme with raised and lowered letters, for terminals and HTML: ``ddᵇₛ``."""
        raised = "" if self._constant else {"b": "ᵇ", "l": "ˡ"}[self._order]
        return self.letters + raised + ("ₛ" if self.sliding else "")

    @property
    def _order(self) -> str:
        return "b" if self.before else "l"

    @property
    def _constant(self) -> bool:
        """Whether the name leaves the order out: the paper writes 00, d0, 0d without ``^b``."""
        return self.before and not self.sliding and set(self.letters) <= set("0dh") and "0" in self.letters


def _complaint(text: str) -> str:
    short = re.fullmatch(r"([0dmahr]{2,}?)([bl])(s?)|([0dmahr]{2,}?)(s)", text)
    if short:
        letters, order, sliding = short[1] or short[4], short[2] or "b", short[3] or short[5]
        meant = f"{letters}^{order}{'_s' if sliding else ''}"
        return f"offset scheme {text!r} is ambiguous; did you mean {meant}?"
    unknown = sorted(set(re.split(r"[\^_\s]", text)[0]) - set(_KNOWN))
    found = f" has unknown letters {' '.join(unknown)}" if unknown else " cannot be read"
    remedy = f"write one letter per layer ({_MEANINGS}), then ^b or ^l and _s, as in dd^b_s"
    return f"offset scheme {text!r}{found}; {remedy}"


class Sampler(NamedTuple):
    """How the negative phase is drawn."""

    steps: int = 1  # Gibbs sweeps per update (CD-k, PCD-k) or between two rounds of swaps (PT_c-k)
    temperatures: int = 1  # chains of a tempered ladder; 1 for CD and PCD
    restart: bool = False  # chains restart at the batch in every update (CD)
    exact: bool = False  # all states of the smaller side, weighted by their probability

    @classmethod
    @cache
    def parse(cls, text: str) -> "Sampler":
        """Read ``CD-k``, ``PCD-k``, ``PT_c``, ``PT_c-k`` or ``exact``; CbmError for the rest."""
        text = text.strip()
        match = re.fullmatch(SAMPLER_PATTERN, text)
        if match is None or len(text) > _LONGEST:
            raise CbmError(
                f"sampler {text[:_LONGEST]!r} is unknown; write CD-k, PCD-k, PT_c, PT_c-k or exact, "
                "as in PCD-1 or PT_10"
            )
        try:
            (steps,) = whole_numbers([match[2] or match[4] or "1"], "steps k", 1)
            (temperatures,) = whole_numbers([match[3] or "1"], "temperatures c")
        except ValueError as error:
            raise CbmError(f"sampler {text!r}: {error}") from None
        if match[3] and temperatures < 2:
            raise CbmError(
                f"sampler {text!r}: parallel tempering needs 2 or more temperatures; PCD-{steps} has one"
            )
        return cls(steps, temperatures, match[1] == "CD", text == "exact")

    def __str__(self) -> str:
        """Canonical spelling."""
        if self.exact:
            return "exact"
        if self.temperatures > 1:
            return f"PT_{self.temperatures}" + (f"-{self.steps}" if self.steps > 1 else "")
        return f"{'CD' if self.restart else 'PCD'}-{self.steps}"

    def latex(self) -> str:
        r"""The sampler as the paper prints it: ``PT$_{10}$``."""
        return re.sub(r"_(\d+)", r"$_{\1}$", str(self))

    def unicode(self) -> str:
        """The sampler with lowered digits, for terminals and HTML: ``PT₁₀``."""
        lowered = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
        return re.sub(r"_(\d+)", lambda match: match[1].translate(lowered), str(self))
