"""A sheet: a header, groups of rows and notes, printed as text, Markdown, LaTeX, CSV or
JSON.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from cbm_cli.text import harmless, not_computed, valid_json

_COLUMN_WIDTH = 246  # points: \columnwidth of a journal with two columns

_LATEX_SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "α": r"$\alpha$",
    "η": r"$\eta$",
    "–": "--",
    "<": "$<$",
    ">": "$>$",
    "≤": r"$\le$",
}
_LATEX_MARKS = {"": "{}", "bold": r"\mathbf{{{}}}", "underline": r"\underline{{{}}}"}
_MARKDOWN_MARKS = {"": "{}", "bold": "**{}**", "underline": "<u>{}</u>"}
_TEXT_MARKS = {"": " ", "bold": "*", "underline": "_"}


class Label(NamedTuple):
    """Words of a header or a row, with a spelling for each kind of output."""

    text: str
    unicode: str
    latex: str

    @classmethod
    def of(cls, text: str) -> Label:
        """Return the label of plain text."""
        return cls(text, text, "".join(_LATEX_SPECIAL.get(c, c) for c in text))

    @classmethod
    def join(cls, labels: Iterable[Label], separator: str) -> Label:
        """Return one label of several."""
        return cls(*map(separator.join, [*zip(*labels, strict=True)] or [()] * 3))


@dataclass(frozen=True)
class Value:
    """A number with its spread; a mark emphasises the number only."""

    number: str
    spread: str = ""
    aside: str = ""  # in parentheses
    footnote: str = ""  # a letter: in brackets, in LaTeX raised
    flags: str = ""  # in brackets
    mark: str = ""  # bold or underline

    def around(self, number: str) -> str:
        """Return the whole value with the number spelled as given."""
        parts = (
            f" ± {self.spread}",
            f" ({self.aside})",
            f" [{self.footnote}]",
            f" [{self.flags}]",
        )
        shown = zip(
            parts, (self.spread, self.aside, self.footnote, self.flags), strict=True
        )
        return number + "".join(part for part, known in shown if known)


Item = Label | Value


@dataclass(frozen=True)
class Group:
    """Rows under one sub-heading, which may be empty; the first entry of a row is its
    label.
    """

    heading: Label | None
    rows: Sequence[Sequence[Item]]


@dataclass(frozen=True)
class Sheet:
    """A header and groups of rows, with notes, and the same content as records for CSV
    and JSON.
    """

    header: Sequence[Label]
    groups: Sequence[Group]
    title: str = ""  # above the table; in LaTeX the text around it says this
    name: str = ""  # LaTeX's \label
    notes: Sequence[str] = ()
    records: Callable[[], Sequence[Mapping[str, Any]]] = list
    about: Mapping[str, Any] = field(
        default_factory=dict
    )  # of JSON, next to the records

    @property
    def rows(self) -> list[Sequence[Item]]:
        """The rows of all groups."""
        return [row for group in self.groups for row in group.rows]

    def widths(self) -> list[int]:
        """Return the most characters of each column, of the first one with the headings
        of groups.
        """
        columns = zip(self.header, *self.rows, strict=True)
        widths = [max(len(_plain(entry)) for entry in column) for column in columns]
        headings = [
            len(_plain(group.heading)) for group in self.groups if group.heading
        ]
        return [max(widths[0], *headings, 0), *widths[1:]]

    def render(self, format: str = "text") -> str:
        """Return the sheet in one of `FORMATS`; LaTeX needs booktabs, CSV and JSON hold
        the records.

        Text has ``*`` and ``_`` before marked values.
        """
        if format == "json":
            return valid_json({**self.about, "cells": self.records()}, indent=2) + "\n"
        writers = {"text": _text, "markdown": _markdown, "latex": _latex, "csv": _csv}
        return harmless(writers[format](self))


def _plain(entry: Item) -> str:
    if isinstance(entry, Label):
        return harmless(entry.text, kept="")
    return harmless(entry.around(_TEXT_MARKS[entry.mark] + entry.number))


def _text(sheet: Sheet) -> str:
    form = " " + "   ".join(f"{{:{width}}}" for width in sheet.widths())
    head = form.format(*map(_plain, sheet.header))
    lines = [sheet.title] if sheet.title else []
    lines += ["", head, " " + "─" * (len(head) - 1)]
    for i, group in enumerate(sheet.groups):
        lines += [""] * (i > 0)
        lines += [f" {_plain(group.heading)}"] if group.heading else []
        lines += [form.format(*map(_plain, row)) for row in group.rows]
    notes = (
        note.replace("Bold: ", "*: ").replace("Underlined: ", "_: ")
        for note in sheet.notes
    )
    return "\n".join(line.rstrip() for line in [*lines, "", *notes]) + "\n"


def _markdown(sheet: Sheet) -> str:
    blocks = [f"**{sheet.title}**"] if sheet.title else []
    for group in sheet.groups:
        blocks += [group.heading.unicode] if group.heading else []
        rows = [
            [
                e.unicode
                if isinstance(e, Label)
                else e.around(_MARKDOWN_MARKS[e.mark].format(e.number))
                for e in its
            ]
            for its in (sheet.header, *group.rows)
        ]
        lines = [" | ".join(cell.replace("|", r"\|") for cell in row) for row in rows]
        lines.insert(1, " | ".join(["---"] * len(sheet.header)))
        blocks.append("\n".join(f"| {line} |" for line in lines))
    return "\n\n".join([*blocks, *sheet.notes]) + "\n"


def _latex(sheet: Sheet) -> str:
    """Write a sheet with aligned decimal points: a number has one column before its
    point, one after.
    """
    columns = [[row[i] for row in sheet.rows] for i in range(len(sheet.header))]
    values = [
        [entry for entry in column if isinstance(entry, Value)] for column in columns
    ]
    spreads = [max((len(value.spread) for value in its), default=0) for its in values]
    asides = [max((len(value.aside) for value in its), default=0) for its in values]
    width = sum(3 if its else 1 for its in values)
    points = 4.6 * sum(sheet.widths()) + 7.4 * (
        len(sheet.header) - 1
    )  # digits and gaps in \small
    environment = "table*" if points > _COLUMN_WIDTH else "table"
    form = "".join(r"r@{}l@{\;}l" if its else "l" for its in values)

    rows = iter(
        " & ".join(map(_latex_cell, row, map(bool, values), spreads, asides)) + r" \\"
        for row in (sheet.header, *sheet.rows)
    )
    lines = [
        "% needs \\usepackage{booktabs}",
        rf"\begin{{{environment}}}",
        r"\centering",
        r"\small",
    ]
    lines += [rf"\begin{{tabular}}{{{form}}}", r"\toprule", next(rows)]
    for group in sheet.groups:
        lines.append(r"\midrule")
        if group.heading:
            lines.append(
                rf"\multicolumn{{{width}}}{{l}}{{\emph{{{group.heading.latex}}}}} \\"
            )
        lines += islice(rows, len(group.rows))
    lines += [r"\bottomrule", r"\end{tabular}"]
    if sheet.notes:
        lines.append(rf"\caption{{{Label.of(' '.join(sheet.notes)).latex}}}")
    if name := re.sub("[^A-Za-z0-9.:+_-]", "", sheet.name):
        lines.append(rf"\label{{tab:{name}}}")
    return "\n".join([*lines, rf"\end{{{environment}}}"]) + "\n"


def _latex_cell(entry: Item, valued: bool, spread: int, aside: int) -> str:
    if isinstance(entry, Label):
        return rf"\multicolumn{{3}}{{c}}{{{entry.latex}}}" if valued else entry.latex
    flags = rf"$^{{\mathrm{{{entry.footnote}}}}}$" if entry.footnote else ""
    flags += f" [{Label.of(entry.flags).latex}]" if entry.flags else ""
    if not any(c.isdigit() for c in entry.number):
        return rf"\multicolumn{{3}}{{c}}{{{Label.of(entry.number).latex}{flags}}}"
    before, point, behind = in_powers(entry.number).partition(".")
    before = before.replace("≤ ", r"\le ")
    number = [
        _LATEX_MARKS[entry.mark].format(part) if part else ""
        for part in (before, point + behind)
    ]
    tail = ""
    for form, text, width in (
        (r"\pm {}", entry.spread, spread),
        (r"\;({})", entry.aside, aside),
    ):
        missing = width - len(
            text
        )  # space for the digits of wider entries of the column
        space = rf"\phantom{{{'0' * missing}}}" if missing and text != "–" else ""
        tail += (
            form.format(space + (r"\mbox{--}" if text == "–" else in_powers(text)))
            if text
            else ""
        )
    return f"${number[0]}$ & ${number[1]}$ & " + (f"${tail}$" if tail else "") + flags


def in_powers(number: str) -> str:
    r"""Spell a number as LaTeX sets it: ``1.088e-08`` as ``1.088 \times 10^{-8}``."""
    return re.sub(
        r"e([+-]?)0*(\d+)$",
        lambda e: rf" \times 10^{{{e[1].strip('+')}{e[2]}}}",
        number,
    )


def _csv(sheet: Sheet) -> str:
    stream, records = io.StringIO(), sheet.records()
    if records:
        writer = csv.DictWriter(stream, [*records[0]], lineterminator="\n")
        writer.writeheader()
        for row in records:
            known = {
                name: value for name, value in row.items() if value == value
            }  # not NaN
            writer.writerow(
                {
                    name: f"{it:.10g}" if isinstance(it, float) else not_computed(it)
                    for name, it in known.items()
                }
            )
    return stream.getvalue()
