"""The names of offset schemes (``dd^b_s``) and samplers (``PT_10``), parsed into
numbers and printed back.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from cbm_cli.errors import FieldError
from cbm_cli.grid.fields import spelled
from cbm_cli.letters import LETTERS, Letter
from cbm_cli.text import WHOLE, whole_numbers

BACK_PROPAGATION = "back-propagation"  # shown instead of a sampler for auto encoders
_LONGEST = 60  # characters of a name


def scheme_pattern() -> str:
    """Return the regular expression of offset schemes."""
    return rf"([{''.join(LETTERS)}]+)(\^[bl](_s)?|_s(\^[bl])?)?"


class Scheme(NamedTuple):
    """Sources of the offsets of each layer, and when they are updated.

    Examples
    --------
    >>> scheme = Scheme.parse("dm_s^b")
    >>> str(scheme), scheme.sliding
    ('dm^b_s', True)
    >>> [row.name for row in scheme.rows]
    ['data mean', 'model mean']
    """

    letters: str  # keys of `LETTERS`, one per layer, visible layer first
    # offsets are updated before the gradient step (^b) rather than later (^l)
    before: bool = True
    # offsets are a moving average (_s) rather than the mean of the current batch
    sliding: bool = False

    @classmethod
    @cache
    def parse(cls, text: str) -> "Scheme":
        """Read ``dd^b_s``, ``dd_s^b``, ``aa^b``, ``d0`` and the like; raise CbmError
        for anything else.
        """
        text = text.strip()
        match = re.fullmatch(scheme_pattern(), text)
        if match is not None and len(text) <= _LONGEST:
            return cls(match[1], before="^l" not in text, sliding="_s" in text)
        listed = ", ".join(f"{letter} {row.name}" for letter, row in LETTERS.items())
        raise FieldError(
            f"offset scheme {text[:_LONGEST]!r} cannot be read; write one letter per "
            f"layer ({listed}), then ^b or ^l and _s, as in dd^b_s"
        )

    @property
    def rows(self) -> tuple[Letter, ...]:
        """The facts about the letter of each layer, visible layer first."""
        return tuple(LETTERS[letter] for letter in self.letters)

    @property
    def has_offsets(self) -> bool:
        """Whether any layer has offsets."""
        return not all(row.is_none for row in self.rows)

    @property
    def needs_model(self) -> bool:
        """Whether any offset contains a mean of the model."""
        return any(row.needs_model for row in self.rows)

    def __str__(self) -> str:
        """Canonical spelling: letters, then ``^b`` or ``^l``, then ``_s``; bare when
        neither matters.
        """
        return self._spelled("^b", "^l", "_s")

    def latex(self) -> str:
        """The scheme as the paper prints it, for math mode: ``dd^{b}_{s}``."""
        text = self._spelled("^{b}", "^{l}", "_{s}")
        return rf"\mathit{{{text}}}" if text == self.letters else text

    def unicode(self) -> str:
        """The scheme with raised and lowered letters, for terminals and HTML:
        ``ddᵇₛ``.
        """
        return self._spelled("ᵇ", "ˡ", "ₛ")

    def _spelled(self, before: str, later: str, sliding: str) -> str:
        if self.sliding:
            return self.letters + (before if self.before else later) + sliding
        if not self.before:
            return self.letters + later
        # The paper writes 00, d0, 0d, where offsets do not depend on the machine.
        is_constant = not any(row.model or row.noise for row in self.rows)
        is_partial = any(row.is_none for row in self.rows)
        return self.letters if is_constant and is_partial else self.letters + before


class Sampler(NamedTuple):
    """How the negative phase is drawn.

    Examples
    --------
    >>> Sampler.parse("PT_10-2")
    Sampler(steps=2, temperatures=10, restart=False, exact=False)
    >>> str(Sampler(steps=3, restart=True))
    'CD-3'
    """

    # Gibbs sweeps per update (CD-k, PCD-k) or between two rounds of swaps (PT_c-k)
    steps: int = 1
    temperatures: int = 1  # chains of a tempered ladder; 1 for CD and PCD
    restart: bool = False  # chains restart at the batch in every update (CD)
    exact: bool = False  # all states of the smaller side, weighted by their probability

    @classmethod
    @cache
    def parse(cls, text: str) -> "Sampler":
        """Read a name in one of the forms of `SAMPLERS`; CbmError for the rest."""
        text = text.strip()
        name = f"sampler {text[:_LONGEST]!r}"
        for form, row in SAMPLERS.items():
            temperatures, steps = f"(?P<temperatures>{WHOLE})", f"(?P<steps>{WHOLE})"
            match = re.fullmatch(form.format(c=temperatures, k=steps), text)
            if match is None or len(text) > _LONGEST:
                continue
            numbers: dict[str, Any] = {}
            for field, digits in match.groupdict().items():
                least = 2 if field == "temperatures" else 1
                try:
                    (numbers[field],) = whole_numbers([digits], field, least)
                except ValueError as error:
                    raise FieldError(f"{name}: {error}") from None
            return row._replace(**numbers)
        listed = ", ".join(forms_of(lambda row: True))
        raise FieldError(f"{name} is unknown; write {listed}, as in PCD-1 or PT_10")

    @property
    def tempered(self) -> bool:
        """Whether chains swap their states between temperatures."""
        return self.temperatures > 1

    @property
    def persistent(self) -> bool:
        """Whether there are chains of its own, of a number that a grid chooses."""
        return not (self.tempered or self.restart or self.exact)

    @property
    def doubles(self) -> bool:
        """Whether it can double the activations that have one side of two, as
        pre-training does.
        """
        return not (self.tempered or self.exact)

    def __str__(self) -> str:
        """Canonical spelling."""
        kind = (self.tempered, self.restart, self.exact)
        for form, row in SAMPLERS.items():
            shows_steps = "{k}" in form or self.steps == 1
            if kind == (row.tempered, row.restart, row.exact) and shows_steps:
                return form.format(c=self.temperatures, k=self.steps)
        raise ValueError(f"no form of SAMPLERS is for {self!r}")

    def latex(self) -> str:
        r"""The sampler as the paper prints it: ``PT$_{10}$``."""
        return re.sub(r"_(\d+)", r"$_{\1}$", str(self))

    def unicode(self) -> str:
        """The sampler with lowered digits, for terminals and HTML: ``PT₁₀``."""
        lowered = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
        return re.sub(r"_(\d+)", lambda match: match[1].translate(lowered), str(self))


# How samplers are written, with c temperatures and k steps, and what they are. The
# first form that has all numbers of a sampler is its canonical spelling.
SAMPLERS = {
    "CD-{k}": Sampler(restart=True),
    "PCD-{k}": Sampler(),
    "PT_{c}": Sampler(temperatures=2),
    "PT_{c}-{k}": Sampler(temperatures=2),
    "exact": Sampler(exact=True),
}


def forms_of(holds: Callable[[Sampler], bool]) -> list[str]:
    """Return how the samplers are written for which something holds.

    Examples
    --------
    >>> forms_of(lambda sampler: sampler.doubles)
    ['CD-k', 'PCD-k']
    """
    return [form.format(c="c", k="k") for form, row in SAMPLERS.items() if holds(row)]


def _sampler_pattern() -> str:
    return "|".join(form.format(c=WHOLE, k=WHOLE) for form in SAMPLERS)


def _spelled_scheme(text: object) -> str:
    return str(Scheme.parse(str(text)))


def _spelled_sampler(text: object) -> str:
    return str(Sampler.parse(str(text)))


OffsetText = spelled(
    _spelled_scheme,
    scheme_pattern(),
    minimum=0,  # 00 in YAML is 0
    maximum=0,
)
SamplerText = spelled(_spelled_sampler, _sampler_pattern())
