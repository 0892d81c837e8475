"""Turn formulas of pages into MathML, which browsers show without scripts or fonts, and
break long sentences below printed tables.

As on GitHub, a formula is between dollar signs: ``$x$`` in a line, and ``$$`` on the
lines before and after it.
"""

import re
import textwrap
from typing import Any

from latex2mathml.converter import convert

FENCES = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.M | re.S)
DISPLAYED = re.compile(r"^\$\$\n(.*?)\n\$\$$", re.M | re.S)
WIDTH = 100  # characters of printed text that a page has place for
INLINE = re.compile(r"(?<![\\$\w])\$(?!\s)([^$\n]+?)(?<!\s)\$(?![\w$])")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page with formulas as MathML, except in code, and broken captions."""
    pieces = FENCES.split(markdown)
    for place in range(0, len(pieces), 2):
        text = DISPLAYED.sub(lambda match: displayed(match[1]), pieces[place])
        pieces[place] = INLINE.sub(lambda match: inline(match[1]), text)
    for place in range(1, len(pieces), 2):
        if pieces[place].startswith("```text"):
            pieces[place] = broken(pieces[place])
    return "".join(pieces)


def broken(output: str) -> str:
    """Return printed text whose sentences are not wider than the page."""
    lines = []
    for line in output.split("\n"):
        lines.extend(textwrap.wrap(line, WIDTH) if line.endswith(".") else [line])
    return "\n".join(lines)


def inline(formula: str) -> str:
    """Return a formula within a line, which may also begin the line."""
    return f"<span>{convert(formula)}</span>"


def displayed(formulas: str) -> str:
    """Return formulas on lines of their own, one below the other."""
    lines = [line for line in formulas.split("\\\\\n") if line.strip()]
    shown = [convert(line, display="block") for line in lines]
    return "<div>" + "".join(shown) + "</div>"
