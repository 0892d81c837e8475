"""A table as text, Markdown, LaTeX, HTML, CSV or JSON."""

import html
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from io import StringIO
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from cbm_cli.errors import CbmError
from cbm_cli.results import label
from cbm_cli.statistics.cells import Cell
from cbm_cli.statistics.table import Group, Row, Table
from cbm_cli.statistics.values import suggestion, text_of

LATEX_SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "α": r"$\alpha$",
    "–": "--",
    "<": "$<$",
    ">": "$>$",
}
# Of mean, standard deviation and what stands in parentheses, by what that is.
DIGITS = {"final": (".2f", ".2f", ".1f"), "epochs": (".5f", ".4f", ".0f"), "": (".4g", ".2g", "")}
LATEX_READY = {"offsets": "${}$", "sampler": "{}"}  # columns whose label is LaTeX already


@dataclass(frozen=True)
class Style:
    """How one output format spells a label and a cell."""

    label: str
    cell: str = "{mean} ± {std}{aside}"
    aside: str = " ({})"
    plain: str = "{}"
    bold: str = "{}"
    underline: str = "{}"
    dash: str = "–"
    names: tuple[str, str] = ("Algorithm", "η")
    escape: Callable[[str], str] = str

    def mark(self, cell: Cell, text: str) -> str:
        """Emphasise a text as the cell's marks ask."""
        template = self.bold if cell.bold else self.underline if cell.underlined else self.plain
        return template.format(text)


def latex_escape(text: str) -> str:
    """Spell plain text so that LaTeX prints it."""
    return "".join(LATEX_SPECIAL.get(c, c) for c in text)


PLAIN = Style("text", plain=" {}", bold="*{}", underline="_{}")
TERMINAL = Style("unicode")
MARKDOWN = Style("unicode", bold="**{}**", underline="<u>{}</u>")
HTML = Style("unicode", bold="<strong>{}</strong>", underline="<u>{}</u>", escape=html.escape)
LATEX = Style(
    "latex",
    cell=r"${mean} \pm {std}{aside}$",
    aside=r"\;({})",
    bold=r"\mathbf{{{}}}",
    underline=r"\underline{{{}}}",
    dash=r"\mbox{--}",
    names=("Algorithm", r"$\eta$"),
    escape=latex_escape,
)


def cell_text(cell: Cell | None, style: Style, aside: str = "final") -> str:
    """Spell a cell: ``-54.75 ± 1.46 (-91.2)``, what is missing or diverged in brackets behind it.

    ``aside`` is what stands in parentheses: ``final`` values, ``epochs`` or nothing.
    """
    if cell is None:
        return style.plain.format(style.dash)
    flags = _flags(cell)
    if math.isnan(cell.mean):
        return style.plain.format("diverged" if cell.n else style.dash) + flags
    digits, spread, behind = DIGITS[aside]
    value = {"final": cell.final_mean, "epochs": cell.epochs.mean()}.get(aside)
    return (
        style.cell.format(
            mean=style.mark(cell, format(cell.mean, digits)),
            std=_number(cell.std, spread, style),
            aside=style.aside.format(_number(value, behind, style)) if aside else "",
        )
        + flags
    )


def _flags(cell: Cell) -> str:
    flags = [] if cell.complete else [f"n={cell.n}/{cell.planned}"]
    flags += [f"{cell.diverged} diverged"] if cell.diverged else []
    return f" [{', '.join(flags)}]" if flags else ""


def _number(value: float, spec: str, style: Style) -> str:
    return style.dash if math.isnan(value) else format(value, spec)


def _label(axis: str, value: Any, style: Style) -> str:
    if not isinstance(value, str):
        return text_of(value) or style.dash
    text = label(axis, value, style.label)
    return LATEX_READY[axis].format(text) if style is LATEX and axis in LATEX_READY else style.escape(text)


def _heading(axes: Iterable[str], values: Iterable[Any], style: Style) -> str:
    """Label of a group or a column; a number alone would not say what it counts."""
    parts = []
    for axis, value in zip(axes, values, strict=True):
        name = "" if isinstance(value, str) else style.escape(axis.replace("_", " ")) + " "
        parts.append(name + _label(axis, value, style))
    return ", ".join(parts)


def _corner(table: Table, style: Style) -> str:
    names = dict(zip(("sampler", "learning_rate"), style.names, strict=True))
    return "-".join(names.get(axis, style.escape(axis)) for axis in table.layout.rows)


def _header(table: Table, style: Style) -> list[str]:
    return [_corner(table, style)] + [_heading(table.layout.columns, v, style) for v in table.columns]


def _line(table: Table, row: Row, style: Style) -> list[str]:
    labels = [_label(axis, v, style) for axis, v in zip(table.layout.rows, row.values, strict=True)]
    return ["-".join(labels)] + [cell_text(cell, style, table.aside) for cell in row.cells]


def _group_heading(table: Table, group: Group, style: Style) -> str:
    return _heading(table.layout.groups, group.values, style)


def _text(table: Table, console: Console | None) -> str:
    styled = console is not None and console.is_terminal and not console.no_color
    style = TERMINAL if styled else PLAIN
    out = console if styled else Console(file=StringIO(), width=10_000, color_system=None)
    with out.capture() as capture:
        if table.title:
            out.print(Text(table.title, style="bold" if styled else ""))
        out.print(_rich_table(table, style))
        for note in _text_notes(table, styled):
            out.print(Text(note, style="yellow" if styled and note.startswith("INCOMPLETE") else ""))
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _rich_table(table: Table, style: Style) -> RichTable:
    rich = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in _header(table, style):
        rich.add_column(Text(head))
    for group in table.groups:
        rich.add_section()
        if group.values:
            rich.add_row(Text(_group_heading(table, group, style), style="italic"))
        for row in group.rows:
            first, *texts = _line(table, row, style)
            rich.add_row(Text(first), *map(_rich_cell, texts, row.cells))
    return rich


def _rich_cell(text: str, cell: Cell | None) -> Text:
    style = "" if cell is None else "bold" if cell.bold else "underline" if cell.underlined else ""
    return Text.assemble((text, style))  # a style of the whole Text would underline the padding too


def _text_notes(table: Table, styled: bool) -> list[str]:
    if styled:
        return table.notes()
    marks = {"Bold: ": "*: ", "Underlined: ": "_: "}
    notes = table.notes()
    for word, sign in marks.items():
        notes = [note.replace(word, sign) for note in notes]
    return notes


def _markdown(table: Table, _: Console | None) -> str:
    head = _header(table, MARKDOWN)
    blocks = [f"**{table.title}**"] if table.title else []
    for group in table.groups:
        lines = [head, ["---"] * len(head), *(_line(table, row, MARKDOWN) for row in group.rows)]
        blocks += [_group_heading(table, group, MARKDOWN)] if group.values else []
        blocks.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join([*blocks, *table.notes()]) + "\n"


def _latex(table: Table, _: Console | None) -> str:
    width = 1 + len(table.columns)
    lines = [_latex_line(_header(table, LATEX))]
    for group in table.groups:
        lines.append(r"\midrule")
        if group.values:
            heading = _group_heading(table, group, LATEX)
            lines.append(rf"\multicolumn{{{width}}}{{l}}{{\emph{{{heading}}}}} \\")
        lines += [_latex_line(_line(table, row, LATEX)) for row in group.rows]
    title = [table.title.rstrip(".") + "."] if table.title else []
    caption = latex_escape(" ".join([*title, *table.notes()]))
    body = "\n".join(lines)
    return (
        "% needs \\usepackage{booktabs}\n"
        "\\begin{table}\n\\centering\n\\small\n"
        f"\\begin{{tabular}}{{{'l' * width}}}\n\\toprule\n{body}\n\\bottomrule\n\\end{{tabular}}\n"
        f"\\caption{{{caption}}}\n\\end{{table}}\n"
    )


def _latex_line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _html(table: Table, _: Console | None) -> str:
    def line(cells: Iterable[str], tag: str) -> str:
        first, *rest = cells
        return f"<tr><th>{first}</th>{''.join(f'<{tag}>{cell}</{tag}>' for cell in rest)}</tr>"

    width = 1 + len(table.columns)
    parts = ["<table>"]
    parts += [f"<caption>{html.escape(table.title)}</caption>"] if table.title else []
    parts.append(f"<thead>\n{line(_header(table, HTML), 'th')}\n</thead>")
    for group in table.groups:
        heading = _group_heading(table, group, HTML)
        rows = [f'<tr><th colspan="{width}">{heading}</th></tr>'] if group.values else []
        rows += [line(_line(table, row, HTML), "td") for row in group.rows]
        parts.append("<tbody>\n" + "\n".join(rows) + "\n</tbody>")
    notes = "<br>".join(html.escape(note) for note in table.notes())
    parts.append(f'<tfoot>\n<tr><td colspan="{width}">{notes}</td></tr>\n</tfoot>\n</table>')
    return "\n".join(parts) + "\n"


def _csv(table: Table, _: Console | None) -> str:
    return table.long().to_csv(index=False, float_format="%.10g", lineterminator="\n")


def _json(table: Table, _: Console | None) -> str:
    about = {
        name: getattr(table, name) for name in ("title", "metric", "scale", "test", "alpha", "correction")
    }
    cells = [{name: _json_value(v) for name, v in cell.long().items()} for cell in table.cells]
    about |= {"layout": asdict(table.layout), "notes": table.notes(), "cells": cells}
    return json.dumps(about, indent=2, ensure_ascii=False) + "\n"


def _json_value(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


RENDERERS: dict[str, Callable[[Table, Console | None], str]] = {
    "text": _text,
    "markdown": _markdown,
    "latex": _latex,
    "csv": _csv,
    "html": _html,
    "json": _json,
}


def render(table: Table, format: str = "text", console: Console | None = None) -> str:
    """Spell a table in a format.

    Parameters
    ----------
    table : Table
    format : {'text', 'markdown', 'latex', 'csv', 'html', 'json'}
        LaTeX needs booktabs; CSV and JSON are the long form, one entry a cell, with p-values, effect
        sizes and n.
    console : Console, optional
        For text: a terminal with colours gets bold and underlined cells; everything else ``*`` and
        ``_`` in front of the marked cells.

    Raises
    ------
    CbmError
        Unknown format.
    """
    if format not in RENDERERS:
        raise CbmError(f"--format {format}: no such format{suggestion(format, RENDERERS)}")
    return RENDERERS[format](table, console)
