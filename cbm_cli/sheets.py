"""Sheets: headers, groups of rows and notes, printed as text, Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cbm_cli.text import FORMULA, harmless, valid_json

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
_NUMBER = r"[+-]?[\d.]+(e[+-]?\d+)?|-inf"
_ANSI = {"bold": "1", "underline": "4", "italic": "3", "alert": "1;31", "warning": "33"}


class Label(NamedTuple):
    """Words of a header or a row, with a spelling for each kind of output."""

    text: str
    unicode: str
    latex: str
    alert: bool = False  # red on a terminal

    @classmethod
    def of(cls, text: str, alert: bool = False) -> Label:
        """Return the label of plain text."""
        return cls(text, text, latex_escape(text), alert)

    @classmethod
    def join(cls, labels: Iterable[Label], separator: str) -> Label:
        """Return one label of several."""
        labels = [*labels]
        return cls(
            separator.join(label.text for label in labels),
            separator.join(label.unicode for label in labels),
            separator.join(label.latex for label in labels),
        )


@dataclass(frozen=True)
class Value:
    """A number with its spread; a mark emphasises the number only, except on a terminal."""

    number: str
    spread: str = ""
    aside: str = ""  # in parentheses
    footnote: str = ""  # a letter: in brackets, in LaTeX raised
    flags: str = ""  # in brackets
    mark: str = ""  # bold or underline

    def around(self, number: str) -> str:
        """Return the whole value with the number spelled as given."""
        parts = (f" ± {self.spread}", f" ({self.aside})", f" [{self.footnote}]", f" [{self.flags}]")
        shown = zip(parts, (self.spread, self.aside, self.footnote, self.flags), strict=True)
        return number + "".join(part for part, known in shown if known)


Item = Label | Value


@dataclass(frozen=True)
class Group:
    """Rows under one sub-heading, which may be empty; the first entry of a row is its label."""

    heading: Label | None
    rows: Sequence[Sequence[Item]]


@dataclass(frozen=True)
class Sheet:
    """One table: a title, a header and groups of rows."""

    header: Sequence[Label]
    groups: Sequence[Group]
    title: str = ""  # above the table; in LaTeX the text around it says this
    name: str = ""  # LaTeX's \label


@dataclass(frozen=True)
class Document:
    """Sheets with their notes, and the same content as records for CSV and JSON."""

    sheets: Sequence[Sheet]
    notes: Sequence[str] = ()
    summary: Sequence[str] = ()  # lines behind the notes
    records: Sequence[Mapping[str, Any]] = ()
    about: Mapping[str, Any] = field(default_factory=dict)  # of JSON, beside the records

    def render(self, format: str = "text", coloured: bool = False) -> str:
        """Return the document in one of `FORMATS`; LaTeX needs booktabs, CSV and JSON hold the records.

        ``coloured`` text is for a terminal. Other text has ``*`` and ``_`` before marked values.
        """
        if format == "text":
            return _text(self, coloured)
        writers = {"markdown": _markdown, "latex": _latex, "csv": _csv, "json": _json}
        return harmless(writers[format](self))


def latex_escape(text: str) -> str:
    """Spell plain text so that LaTeX prints it."""
    return "".join(_LATEX_SPECIAL.get(c, c) for c in text)


def _text(document: Document, coloured: bool) -> str:
    if coloured:
        notes = [_painted(note, "warning" * note.startswith("INCOMPLETE")) for note in document.notes]
    else:
        plain = (note.replace("Bold: ", "*: ").replace("Underlined: ", "_: ") for note in document.notes)
        notes = [*map(harmless, plain)]
    lines = [line for sheet in document.sheets for line in _text_lines(sheet, coloured)] + notes
    if document.summary:
        lines += ["", *(_painted(line, "bold" if coloured else "") for line in document.summary)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _widths(sheet: Sheet, coloured: bool) -> list[int]:
    rows = [sheet.header, *(row for group in sheet.groups for row in group.rows)]
    widths = [max(len(_plain(entry, coloured)) for entry in column) for column in zip(*rows, strict=True)]
    headings = [len(_plain(group.heading, coloured)) for group in sheet.groups if group.heading]
    return [max(widths[0], *headings, 0), *widths[1:]]


def _plain(entry: Item, coloured: bool) -> str:
    if isinstance(entry, Label):
        return harmless(entry.unicode if coloured else entry.text, kept="")
    return entry.around(("" if coloured else _TEXT_MARKS[entry.mark]) + entry.number)


def _text_lines(sheet: Sheet, coloured: bool) -> list[str]:
    widths = _widths(sheet, coloured)

    def line(entries: Iterable[Item]) -> str:
        cells = []
        for entry, width in zip(entries, widths, strict=True):
            text = _plain(entry, coloured)
            style = "" if not coloured else entry.mark if isinstance(entry, Value) else "alert" * entry.alert
            cells.append(_painted(text, style) + " " * (width - len(text)))
        return " " + "   ".join(cells)

    lines = [_painted(sheet.title, "bold" * coloured)] if sheet.title else []
    lines += ["", line(sheet.header), " " + "─" * (sum(widths) + 3 * (len(widths) - 1))]
    for i, group in enumerate(sheet.groups):
        lines += [""] * (i > 0)
        if group.heading:
            lines.append(" " + _painted(_plain(group.heading, coloured), "italic" * coloured))
        lines += [line(row) for row in group.rows]
    return [*lines, ""]


def _painted(text: str, style: str) -> str:
    return f"\x1b[{_ANSI[style]}m{harmless(text)}\x1b[0m" if style else harmless(text)


def _markdown(document: Document) -> str:
    def line(entries: Iterable[Item]) -> str:
        cells = (e.unicode if isinstance(e, Label) else e.around(_MARKDOWN_MARKS[e.mark].format(e.number))
                 for e in entries)  # fmt: skip
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

    blocks = []
    for sheet in document.sheets:
        blocks += [f"**{sheet.title}**"] if sheet.title else []
        for group in sheet.groups:
            blocks += [group.heading.unicode] if group.heading else []
            rule = f"| {' | '.join(['---'] * len(sheet.header))} |"
            blocks.append("\n".join([line(sheet.header), rule, *map(line, group.rows)]))
    summary = "\n".join(f"- {line}" for line in document.summary)
    return "\n\n".join([*blocks, *document.notes, *([summary] if summary else [])]) + "\n"


def _latex(document: Document) -> str:
    tables = [
        _latex_table(sheet, [] if i else [*document.notes, *document.summary])  # beside the label
        for i, sheet in enumerate(document.sheets)
    ]
    return "".join(["% needs \\usepackage{booktabs}\n", *tables])


def _latex_table(sheet: Sheet, notes: Sequence[str]) -> str:
    """Write a sheet with aligned decimal points: a number has one column before its point, one after."""
    rows = [row for group in sheet.groups for row in group.rows]
    valued = [any(isinstance(row[i], Value) for row in rows) for i in range(len(sheet.header))]
    spreads = [_spread_width(row[i] for row in rows) for i in range(len(sheet.header))]
    width = sum(3 if it else 1 for it in valued)
    points = 4.6 * sum(_widths(sheet, True)) + 12 * (len(sheet.header) - 1)  # digits and gaps in \small
    environment = "table*" if points > _COLUMN_WIDTH else "table"

    def line(entries: Iterable[Item]) -> str:
        cells = (_latex_cell(*it) for it in zip(entries, valued, spreads, strict=True))
        return " & ".join(cells) + r" \\"

    lines = [line(sheet.header)]
    for group in sheet.groups:
        lines.append(r"\midrule")
        if group.heading:
            lines.append(rf"\multicolumn{{{width}}}{{l}}{{\emph{{{group.heading.latex}}}}} \\")
        lines += [line(row) for row in group.rows]
    columns = "".join(r"r@{}l@{\;}l" if it else "l" for it in valued)
    name = re.sub("[^A-Za-z0-9.:+_-]", "", sheet.name)
    name = f"\\label{{tab:{name}}}\n" if name else ""
    caption = latex_escape(" ".join(notes))
    caption = f"\\caption{{{caption}}}\n" if caption else ""
    return (
        f"\\begin{{{environment}}}\n\\centering\n\\small\n"
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n"
        + "\n".join(lines)
        + f"\n\\bottomrule\n\\end{{tabular}}\n{caption}{name}\\end{{{environment}}}\n"
    )


def _spread_width(entries: Iterable[Item]) -> tuple[int, int]:
    """Return the most characters of the spreads and of the asides of a column."""
    values = [entry for entry in entries if isinstance(entry, Value)]
    return max((len(v.spread) for v in values), default=0), max((len(v.aside) for v in values), default=0)


def _latex_cell(entry: Item, valued: bool, spread: tuple[int, int]) -> str:
    if isinstance(entry, Label):
        return rf"\multicolumn{{3}}{{c}}{{{entry.latex}}}" if valued else entry.latex
    flags = rf"$^{{\mathrm{{{entry.footnote}}}}}$" if entry.footnote else ""
    flags += f" [{latex_escape(entry.flags)}]" if entry.flags else ""
    if not any(c.isdigit() for c in entry.number):
        return rf"\multicolumn{{3}}{{c}}{{{latex_escape(entry.number)}{flags}}}"
    before, point, behind = _in_powers(entry.number).partition(".")
    before = before.replace("≤ ", r"\le ")
    number = [_LATEX_MARKS[entry.mark].format(part) if part else "" for part in (before, point + behind)]
    tail = rf"\pm {_in_powers(_padded(entry.spread, spread[0]))}" if entry.spread else ""
    tail += rf"\;({_in_powers(_padded(entry.aside, spread[1]))})" if entry.aside else ""
    return f"${number[0]}$ & ${number[1]}$ & " + (f"${tail}$" if tail else "") + flags


def _in_powers(number: str) -> str:
    r"""Spell a number as LaTeX sets it: ``1.088e-08`` as ``1.088 \times 10^{-8}``."""
    return re.sub(r"e([+-]?)0*(\d+)$", lambda e: rf" \times 10^{{{e[1].strip('+')}{e[2]}}}", number)


def _padded(text: str, width: int) -> str:
    """Leave space for the digits of wider entries of the column; a dash is a missing number."""
    missing = width - len(text)
    room = rf"\phantom{{{'0' * missing}}}" if missing and text != "–" else ""
    return room + (r"\mbox{--}" if text == "–" else text)


def _csv(document: Document) -> str:
    import csv
    import io

    def spelled(value: Any) -> Any:
        if isinstance(value, float):
            return "" if math.isnan(value) else format(value, ".10g")
        formula = isinstance(value, str) and FORMULA.match(value) and not re.fullmatch(_NUMBER, value)
        return f"'{value}" if formula else value  # a spreadsheet would compute it

    stream, records = io.StringIO(), document.records
    if records:
        writer = csv.DictWriter(stream, [*records[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: spelled(value) for name, value in row.items()} for row in records)
    return stream.getvalue()


def _json(document: Document) -> str:
    return valid_json({**document.about, "cells": document.records}, indent=2) + "\n"
