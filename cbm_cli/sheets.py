"""A sheet: a header, groups of rows and notes, printed as text, Markdown, LaTeX, CSV or
JSON.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple
from unicodedata import combining, east_asian_width

from cbm_cli.text import harmless, not_computed, valid_json

_COLUMN_WIDTH = 246  # points: \columnwidth of a journal with two columns
_LINE_WIDTH = 345  # points: \textwidth of an article with one column
_DIGIT_WIDTH = 4.6  # points, in \small
_GAP_WIDTH = 7.4  # points, between columns in \small
_CAPTION_SENTENCES = 2  # of the notes; the others are below the caption

# A bracket or a star after \\ would be its option.
_LATEX_SPELLINGS: Any = {character: f"\\{character}" for character in "&%$#_{}"}
_LATEX_SPELLINGS |= {character: f"{{{character}}}" for character in "[]*"}
_LATEX_SPELLINGS |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}"}
_LATEX_SPELLINGS |= {"^": r"\textasciicircum{}", "|": r"\textbar{}", "–": "--"}
_LATEX_SPELLINGS |= {"±": r"$\pm$", "α": r"$\alpha$", "η": r"$\eta$"}
_LATEX_SPELLINGS |= {"<": "$<$", ">": "$>$", "≤": r"$\le$"}
_LATEX_NUMBER = re.compile(r"(?<![\w.-])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w-]|\.\d)")
_LATEX_MARKS = {"": "{}", "bold": r"\mathbf{{{}}}", "underline": r"\underline{{{}}}"}
# Shrinks what is too wide for the line.
_LATEX_FIT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"

_MARKDOWN_MARKS = {"": "{}", "bold": "**{}**", "underline": "<u>{}</u>"}
_MARKDOWN_SPELLINGS: Any = {character: f"\\{character}" for character in "\\`*|~"}
_MARKDOWN_SPELLINGS |= {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
# Underscores around words, brackets of a link, and what begins a heading or a list
_MARKDOWN_PLACES = re.compile(
    r"(?<![^\W_])_|_(?![^\W_])|\[(?=[^\]]*\][(\[:])|^(?=[#+-]+(?: |$))"
)

_TEXT_MARKS = {"": " ", "bold": "*", "underline": "_"}


class Label(NamedTuple):
    """Words of a header or a row, with a spelling for each kind of output."""

    text: str
    unicode: str
    latex: str

    @classmethod
    def of(cls, text: str) -> Label:
        r"""Return the label of plain text.

        Examples
        --------
        >>> Label.of("my_survey & 50%").latex
        'my\\_survey \\& 50\\%'
        """
        text = harmless(text, kept="")
        return cls(text=text, unicode=text, latex=latex_of(text))

    @classmethod
    def join(cls, labels: Iterable[Label], separator: str) -> Label:
        """Return one label of several."""
        parts = list(labels)
        return cls(
            text=separator.join(label.text for label in parts),
            unicode=separator.join(label.unicode for label in parts),
            latex=separator.join(label.latex for label in parts),
        )


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
        parts = [number]
        if self.spread:
            parts.append(f"± {self.spread}")
        if self.aside:
            parts.append(f"({self.aside})")
        if self.footnote:
            parts.append(f"[{self.footnote}]")
        if self.flags:
            parts.append(f"[{self.flags}]")
        return " ".join(parts)

    @property
    def is_number(self) -> bool:
        """Whether it is a number, and no word or dash."""
        return any(character.isdigit() for character in self.number)


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
        return list(chain.from_iterable(group.rows for group in self.groups))

    @property
    def columns(self) -> list[list[Item]]:
        """The entries of all rows by column, without the header."""
        return [[row[i] for row in self.rows] for i in range(len(self.header))]

    def widths(self) -> list[int]:
        """Return the width of each column in characters of a terminal, of the first one
        with the headings of groups.
        """
        widths = []
        for head, entries in zip(self.header, self.columns, strict=True):
            widths.append(max(_width(_plain(entry)) for entry in [head, *entries]))
        for group in self.groups:
            if group.heading:
                widths[0] = max(widths[0], _width(_plain(group.heading)))
        return widths

    def render(self, format: str = "text") -> str:
        """Return the sheet in one of `FORMATS`; CSV and JSON hold the records.

        Text has ``*`` and ``_`` before marked values. LaTeX needs booktabs and
        graphicx, and shrinks a table that is wider than its line.
        """
        if format == "json":
            return valid_json({**self.about, "cells": self.records()}, indent=2) + "\n"
        writers = {"text": _text, "markdown": _markdown, "latex": _latex, "csv": _csv}
        write = writers[format]
        return harmless(write(self))


# Text


def _plain(entry: Item) -> str:
    if isinstance(entry, Label):
        return harmless(entry.text, kept="")
    return harmless(entry.around(_TEXT_MARKS[entry.mark] + entry.number))


def _width(text: str) -> int:
    """Return the columns of a terminal that a text takes."""
    is_usual = [
        east_asian_width(letter) not in "WF" and not combining(letter)
        for letter in text
    ]
    if all(is_usual):
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _text(sheet: Sheet) -> str:
    widths = sheet.widths()
    rule = "─" * (sum(widths) + 3 * (len(widths) - 1))
    lines = []
    if sheet.title:
        lines.append(sheet.title.rstrip())
    lines += ["", _text_line(sheet.header, widths), f" {rule}"]
    for place, group in enumerate(sheet.groups):
        if place > 0:
            lines.append("")
        if group.heading:
            lines.append(f" {_plain(group.heading)}")
        lines += [_text_line(row, widths) for row in group.rows]
    lines.append("")
    for note in sheet.notes:
        note = note.replace("Bold: ", "*: ").replace("Underlined: ", "_: ")
        lines.append(note.rstrip())
    return "\n".join(lines) + "\n"


def _text_line(row: Sequence[Item], widths: Sequence[int]) -> str:
    """Return a row whose entries fill their columns, as a terminal shows them."""
    cells = []
    for entry, width in zip(row, widths, strict=True):
        words = _plain(entry)
        missing = width - _width(words)
        cells.append(words.ljust(len(words) + missing))
    return f" {'   '.join(cells)}".rstrip()


# Markdown


def markdown_of(text: str) -> str:
    r"""Return text that Markdown shows as it is: no HTML, links, headings or emphasis.

    Examples
    --------
    >>> print(markdown_of("<img src=x>, a*b, my_survey, [x](y)"))
    &lt;img src=x&gt;, a\*b, my_survey, \[x](y)
    """
    characters = " ".join(harmless(text).split())
    spelled = characters.translate(str.maketrans(_MARKDOWN_SPELLINGS))
    return _MARKDOWN_PLACES.sub(r"\\\g<0>", spelled)


def _markdown(sheet: Sheet) -> str:
    blocks = []
    if sheet.title:
        blocks.append(f"**{markdown_of(sheet.title)}**")
    for group in sheet.groups:
        if group.heading:
            blocks.append(markdown_of(group.heading.unicode))
        rule = "| " + " | ".join("---" for _ in sheet.header) + " |"
        lines = [_markdown_line(sheet.header), rule]
        lines += [_markdown_line(row) for row in group.rows]
        blocks.append("\n".join(lines))
    blocks += [markdown_of(note) for note in sheet.notes]
    return "\n\n".join(blocks) + "\n"


def _markdown_line(row: Sequence[Item]) -> str:
    cells = []
    for entry in row:
        if isinstance(entry, Label):
            cells.append(markdown_of(entry.unicode))
        else:
            number = _MARKDOWN_MARKS[entry.mark].format(entry.number)
            spread = markdown_of(entry.around("."))
            cells.append(number + spread.removeprefix("."))
    return f"| {' | '.join(cells)} |"


# LaTeX


def latex_of(text: str) -> str:
    r"""Return text as LaTeX sets it: special characters escaped, and negative numbers
    and powers of ten as mathematics.

    Examples
    --------
    >>> print(latex_of("my_survey & 50%: p = 6e-08, at most -21.3"))
    my\_survey \& 50\%: p = $6 \times 10^{-8}$, at most $-21.3$
    """
    escaped = text.translate(str.maketrans(_LATEX_SPELLINGS))
    separate = escaped.replace("--", "-{}-") if "--" in text else escaped
    return _LATEX_NUMBER.sub(_latex_number, separate)


def _latex_number(match: re.Match[str]) -> str:
    """Return a number within text; plain digits need no mathematics."""
    number = match[0]
    if number.startswith("-") or "e" in number:
        return f"${in_powers(number)}$"
    return number


def in_powers(number: str) -> str:
    r"""Spell a number as LaTeX sets it.

    Examples
    --------
    >>> print(in_powers("1.088e-08"))
    1.088 \times 10^{-8}
    """
    match = re.fullmatch(r"(.*)e\+?(-?)0*(\d+)", number)
    if match is None:
        return number
    digits, sign, exponent = match.groups()
    return rf"{digits} \times 10^{{{sign}{exponent}}}"


class _Parts(NamedTuple):
    """Which parts the values of a column have; all false if it has no values."""

    number: bool
    spread: bool
    aside: bool
    flags: bool

    @classmethod
    def of(cls, entries: Sequence[Item]) -> _Parts:
        values = [entry for entry in entries if isinstance(entry, Value)]
        return cls(
            number=bool(values),
            spread=any(value.spread for value in values),
            aside=any(value.aside for value in values),
            flags=any(value.flags or value.footnote for value in values),
        )

    @property
    def form(self) -> str:
        """The columns of LaTeX: before and after each decimal point, and of signs."""
        if not self.number:
            return "l"
        form = "r@{}l"
        if self.spread:
            form += r"@{\,}c@{\,}r@{}l"
        if self.aside:
            form += r"@{\;}r"
        if self.flags:
            form += "@{}l"
        return form

    @property
    def width(self) -> int:
        """The number of these columns."""
        return len(re.findall("[lcr]", self.form))


def _latex(sheet: Sheet) -> str:
    """Write a sheet whose numbers are aligned at their decimal points.

    The first sentences of the notes are the caption, and the others small print below.
    A sheet that is wider than a line has more lines, so that its letters stay readable.
    """
    gaps = _GAP_WIDTH * (len(sheet.header) - 1)
    points = _DIGIT_WIDTH * sum(sheet.widths()) + gaps
    environment = "table*" if points > _COLUMN_WIDTH else "table"
    size = r"\small"
    if points > _LINE_WIDTH:
        sheet = _narrow(sheet)
        size += r"\setlength{\tabcolsep}{4pt}"
    parts = [_Parts.of(entries) for entries in sheet.columns]
    form = "".join(part.form for part in parts)
    lines = [
        r"% needs \usepackage{booktabs,graphicx}",
        rf"\begin{{{environment}}}",
        r"\centering",
        size,
        _LATEX_FIT,
        rf"\begin{{tabular}}{{{form}}}",
        r"\toprule",
        _latex_line(sheet.header, parts),
    ]
    for group in sheet.groups:
        lines.append(r"\midrule")
        if group.heading:
            width = sum(part.width for part in parts)
            heading = rf"\emph{{{group.heading.latex}}}"
            lines.append(rf"\multicolumn{{{width}}}{{l}}{{{heading}}} \\")
        lines += [_latex_line(row, parts) for row in group.rows]
    lines += [r"\bottomrule", r"\end{tabular}}"]
    words = " ".join(sheet.notes).split()  # an empty line would end a caption
    sentences = re.split(r"(?<=\.) (?=[A-Z≤])", " ".join(words))
    caption = latex_of(" ".join(sentences[:_CAPTION_SENTENCES]))
    note = latex_of(" ".join(sentences[_CAPTION_SENTENCES:]))
    if caption:
        lines.append(rf"\caption{{{caption}}}")
    if name := re.sub("[^A-Za-z0-9.:+_-]", "", sheet.name):
        lines.append(rf"\label{{tab:{name}}}")
    if note:
        lines.append(rf"\parbox{{\linewidth}}{{\footnotesize {note}}}")
    lines.append(rf"\end{{{environment}}}")
    return "\n".join(lines) + "\n"


def _narrow(sheet: Sheet) -> Sheet:
    """Return a sheet with asides in lines of their own, and a head of several lines."""
    header = [head._replace(latex=_broken(head.latex)) for head in sheet.header]
    groups = []
    for group in sheet.groups:
        rows: list[Sequence[Item]] = []
        for row in group.rows:
            rows.append([_without_aside(entry) for entry in row])
            asides = [_aside(entry) for entry in row]
            if any(aside.text for aside in asides):
                rows.append(asides)
        groups.append(replace(group, rows=rows))
    return replace(sheet, header=header, groups=groups)


def _broken(words: str) -> str:
    lines = words.replace(", ", r"\\")
    return rf"\shortstack{{{lines}}}"


def _without_aside(entry: Item) -> Item:
    if isinstance(entry, Label):
        return entry
    return replace(entry, aside="")


def _aside(entry: Item) -> Label:
    if isinstance(entry, Label) or not entry.aside:
        return Label.of("")
    return Label.of(f"({entry.aside})")


def _latex_line(row: Sequence[Item], parts: Sequence[_Parts]) -> str:
    cells = [_latex_cell(entry, part) for entry, part in zip(row, parts, strict=True)]
    return " & ".join(cells) + r" \\"


def _latex_cell(entry: Item, parts: _Parts) -> str:
    if isinstance(entry, Label):
        if not parts.number:
            return entry.latex
        return rf"\multicolumn{{{parts.width}}}{{c}}{{{entry.latex}}}"
    flags = ""
    if entry.footnote:
        flags += rf"$^{{\mathrm{{{entry.footnote}}}}}$"
    if entry.flags:
        flags += f" {latex_of(f'[{entry.flags}]')}"
    if not entry.is_number:
        words = latex_of(entry.number) + flags
        return rf"\multicolumn{{{parts.width}}}{{c}}{{{words}}}"
    number = entry.number.replace("≤ ", r"\le ")
    cells = _at_point(number, mark=_LATEX_MARKS[entry.mark])
    if parts.spread:
        sign = r"$\pm$" if entry.spread else ""
        cells += [sign, *_at_point(entry.spread)]
    if parts.aside:
        cells.append(f"({_mathematics(entry.aside)})" if entry.aside else "")
    if parts.flags:
        cells.append(flags)
    return " & ".join(cells)


def _at_point(number: str, mark: str = "{}") -> list[str]:
    """Return what is before the decimal point of a number, and the rest."""
    before, point, after = in_powers(number).partition(".")
    return [_mathematics(before, mark), _mathematics(point + after, mark)]


def _mathematics(number: str, mark: str = "{}") -> str:
    if number == "–":
        return "--"
    return f"${mark.format(in_powers(number))}$" if number else ""


# CSV


def _csv(sheet: Sheet) -> str:
    """Write the records: nothing for NaN, and ten digits of a number."""
    stream, records = io.StringIO(), sheet.records()
    if not records:
        return ""
    writer = csv.DictWriter(stream, list(records[0]), lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow({name: _csv_field(value) for name, value in record.items()})
    return stream.getvalue()


def _csv_field(value: Any) -> Any:
    """Return what stands for a value in a CSV file."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.10g}"
    return not_computed(value)
