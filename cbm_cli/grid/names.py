"""The names of offset schemes (``dd^b_s``) and samplers (``PT_10``), parsed into
numbers and printed back.
"""

import re
from functools import cache
from typing import NamedTuple

from cbm_cli.errors import FieldError
from cbm_cli.grid.fields import spelled
from cbm_cli.text import WHOLE, whole_numbers

_LETTERS = "0dmahr"  # `reference.LETTERS` says of what an offset of each letter is made
_SCHEME = rf"([{_LETTERS}]+)(\^[bl](_s)?|_s(\^[bl])?)?"
_SAMPLER = rf"(CD|PCD)-({WHOLE})|PT_({WHOLE})(?:-({WHOLE}))?|exact"
BACK_PROPAGATION = "back-propagation"  # shown instead of a sampler for auto encoders
_LONGEST = 60  # characters of a name


class Scheme(NamedTuple):
    """Sources of the offsets of each layer, and when they are updated."""

    letters: str  # one of 0dmahr per layer, visible layer first
    before: bool = (
        True  # offsets are updated before the gradient step (^b) rather than later (^l)
    )
    # offsets are a moving average (_s) rather than the mean of the current batch
    sliding: bool = False

    @classmethod
    @cache
    def parse(cls, text: str) -> "Scheme":
        """Read ``dd^b_s``, ``dd_s^b``, ``aa^b``, ``d0`` and the like; raise CbmError
        for anything else.
        """
        text = text.strip()
        if (match := re.fullmatch(_SCHEME, text)) and len(text) <= _LONGEST:
            return cls(match[1], before="^l" not in text, sliding="_s" in text)
        told = f"offset scheme {text[:_LONGEST]!r}"
        unknown = sorted({*re.split(r"[\^_\s]", text[:_LONGEST])[0]} - {*_LETTERS})
        found = (
            f"has unknown letters {' '.join(unknown)}" if unknown else "cannot be read"
        )
        letters = (
            "0 none, d data mean, m model mean, a their average, h one half, r random"
        )
        remedy = (
            f"write one letter per layer ({letters}), then ^b or ^l and _s, as "
            "in dd^b_s"
        )
        raise FieldError(f"{told} {found}; {remedy}")

    def __str__(self) -> str:
        """Canonical spelling: letters, then ``^b`` or ``^l``, then ``_s``; bare when
        neither matters.
        """
        return self._written("^b", "^l", "_s")

    def latex(self) -> str:
        """The scheme as the paper prints it, for math mode: ``dd^{b}_{s}``."""
        text = self._written("^{b}", "^{l}", "_{s}")
        return rf"\mathit{{{text}}}" if text == self.letters else text

    def unicode(self) -> str:
        """The scheme with raised and lowered letters, for terminals and HTML:
        ``ddᵇₛ``.
        """
        return self._written("ᵇ", "ˡ", "ₛ")

    def _written(self, before: str, later: str, sliding: str) -> str:
        constant = self.before and not self.sliding and {*self.letters} <= {*"0dh"}
        bare = constant and "0" in self.letters  # the paper writes 00, d0, 0d
        return (
            self.letters
            + (before if self.before else later) * (not bare)
            + sliding * self.sliding
        )


class Sampler(NamedTuple):
    """How the negative phase is drawn."""

    # Gibbs sweeps per update (CD-k, PCD-k) or between two rounds of swaps (PT_c-k)
    steps: int = 1
    temperatures: int = 1  # chains of a tempered ladder; 1 for CD and PCD
    restart: bool = False  # chains restart at the batch in every update (CD)
    exact: bool = False  # all states of the smaller side, weighted by their probability

    @classmethod
    @cache
    def parse(cls, text: str) -> "Sampler":
        """Read ``CD-k``, ``PCD-k``, ``PT_c``, ``PT_c-k`` or ``exact``; CbmError for the
        rest.
        """
        text = text.strip()
        match, told = re.fullmatch(_SAMPLER, text), f"sampler {text[:_LONGEST]!r}"
        if match is None or len(text) > _LONGEST:
            forms = "CD-k, PCD-k, PT_c, PT_c-k or exact, as in PCD-1 or PT_10"
            raise FieldError(f"{told} is unknown; write {forms}")
        try:
            (steps,) = whole_numbers([match[2] or match[4] or "1"], "steps k", 1)
            (temperatures,) = (
                whole_numbers([match[3]], "temperatures c", 2) if match[3] else [1]
            )
        except ValueError as error:
            raise FieldError(f"{told}: {error}") from None
        return cls(steps, temperatures, match[1] == "CD", text == "exact")

    def __str__(self) -> str:
        """Canonical spelling."""
        if self.exact:
            return "exact"
        if self.temperatures > 1:
            return f"PT_{self.temperatures}" + (
                f"-{self.steps}" if self.steps > 1 else ""
            )
        return f"{'CD' if self.restart else 'PCD'}-{self.steps}"

    def latex(self) -> str:
        r"""The sampler as the paper prints it: ``PT$_{10}$``."""
        return re.sub(r"_(\d+)", r"$_{\1}$", str(self))

    def unicode(self) -> str:
        """The sampler with lowered digits, for terminals and HTML: ``PT₁₀``."""
        lowered = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
        return re.sub(r"_(\d+)", lambda match: match[1].translate(lowered), str(self))


# 00 in YAML is 0
OffsetText = spelled(
    lambda text: str(Scheme.parse(str(text))), _SCHEME, minimum=0, maximum=0
)
SamplerText = spelled(lambda text: str(Sampler.parse(str(text))), _SAMPLER)
