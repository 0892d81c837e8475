"""Offset schemes such as ``dd^b_s``: one letter a layer, parsed once into numbers."""

import re
from dataclasses import dataclass

from cbm_cli.errors import CbmError

# A letter is a weight for (data mean, model mean, the constant 1/2, uniform noise).
LETTERS: dict[str, tuple[float, float, float, float]] = {
    "0": (0.0, 0.0, 0.0, 0.0),
    "d": (1.0, 0.0, 0.0, 0.0),
    "m": (0.0, 1.0, 0.0, 0.0),
    "a": (0.5, 0.5, 0.0, 0.0),
    "h": (0.0, 0.0, 1.0, 0.0),
    "r": (0.0, 0.0, 0.0, 1.0),
}
_MEANINGS = "0 none, d data mean, m model mean, a their average, h one half, r random"
_PATTERN = re.compile(r"(?P<letters>[^\^_\s]+)(?P<marks>(?:\^[bl]|_s)*)")


@dataclass(frozen=True)
class Scheme:
    """Where the offsets of each layer come from, and when they are updated.

    Attributes
    ----------
    letters : str
        One letter of ``0dmahr`` a layer, visible layer first.
    before : bool
        Offsets are updated before the gradient step (``^b``) rather than later (``^l``).
    sliding : bool
        Offsets are an exponentially moving average (``_s``) rather than the current batch's mean.
    """

    letters: str
    before: bool = True
    sliding: bool = False

    @classmethod
    def parse(cls, text: str) -> "Scheme":
        """Read ``dd^b_s``, ``dd_s^b``, ``aa^b``, ``d0`` and the like; raise CbmError for the rest."""
        match = _PATTERN.fullmatch(text.strip())
        if match is None:
            raise CbmError(_complaint(text))
        marks = re.findall(r"\^[bl]|_s", match["marks"])
        unknown = [letter for letter in match["letters"] if letter not in LETTERS]
        if unknown or len(marks) != len({mark[0] for mark in marks}):
            raise CbmError(_complaint(text))
        return cls(match["letters"], before="^l" not in marks, sliding="_s" in marks)

    def __str__(self) -> str:
        """Canonical spelling: letters, then ``^b`` or ``^l``, then ``_s``; bare when neither matters."""
        return self.letters + ("" if self._constant else f"^{self._order}") + ("_s" if self.sliding else "")

    def latex(self) -> str:
        """The scheme as the paper prints it, to be set in math mode: ``dd^{b}_{s}``."""
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
        """Whether the order makes no name of its own: the paper writes 00, d0, 0d without ``^b``."""
        return self.before and not self.sliding and set(self.letters) <= set("0dh") and "0" in self.letters


def _complaint(text: str) -> str:
    short = re.fullmatch(r"([0dmahr]{2,}?)([bl])(s?)|([0dmahr]{2,}?)(s)", text.strip())
    if short:
        letters, order, sliding = short[1] or short[4], short[2] or "b", short[3] or short[5]
        return (
            f"offset scheme {text!r} is ambiguous; did you mean {letters}^{order}{'_s' if sliding else ''}?"
        )
    unknown = sorted(set(re.split(r"[\^_\s]", text.strip())[0]) - set(LETTERS))
    named = f" has unknown letters {' '.join(unknown)}" if unknown else " cannot be read"
    remedy = f"write one letter a layer ({_MEANINGS}), then ^b or ^l and _s, as in dd^b_s"
    return f"offset scheme {text!r}{named}; {remedy}"
