"""Turn formulas of pages into MathML, which browsers show without scripts or fonts.

As on GitHub, a formula is between dollar signs: ``$x$`` in a line, and ``$$`` on the
lines before and after it.
"""

import re
from typing import Any

from latex2mathml.converter import convert

FENCES = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.M | re.S)
DISPLAYED = re.compile(r"^\$\$\n(.*?)\n\$\$$", re.M | re.S)
INLINE = re.compile(r"(?<![\\$\w])\$(?!\s)([^$\n]+?)(?<!\s)\$(?![\w$])")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page with its formulas as MathML, except in code."""
    pieces = FENCES.split(markdown)
    for place in range(0, len(pieces), 2):
        text = DISPLAYED.sub(lambda match: displayed(match[1]), pieces[place])
        pieces[place] = INLINE.sub(lambda match: inline(match[1]), text)
    return "".join(pieces)


def inline(formula: str) -> str:
    """Return a formula within a line, which may also begin the line."""
    return f"<span>{convert(formula)}</span>"


def displayed(formulas: str) -> str:
    """Return formulas on lines of their own, one below the other."""
    lines = [line for line in formulas.split("\\\\\n") if line.strip()]
    shown = [convert(line, display="block") for line in lines]
    return "<div>" + "".join(shown) + "</div>"
