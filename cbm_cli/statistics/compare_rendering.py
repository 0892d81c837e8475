"""A comparison with the paper as text, Markdown, CSV or JSON."""

import json
import math
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from cbm_cli.errors import CbmError
from cbm_cli.results import label
from cbm_cli.statistics.compare import LIMIT, Comparison
from cbm_cli.statistics.published import PAPER_TABLES
from cbm_cli.statistics.values import suggestion

Section = tuple[str, pd.DataFrame]
HEADER = ["Algorithm-η", "offsets", "published", "obtained", "n", "z"]
ASIDES = {"final": ".1f", "epochs": ".0f"}  # what the paper has in parentheses, and how it is spelled
ALERT = " !"  # behind what does not agree


def sections(comparison: Comparison) -> Iterator[Section]:
    """Title and cells of each part: a published table's data set, first as published, then with PCD-2."""
    cells = comparison.cells
    parts = ["table", "split", "dataset", "hidden", "pretraining_epochs"]
    for pcd, suffix in (("", ""), ("PCD-2", ", published PCD-1 beside PCD-2")):
        part = cells[(cells["obtained_sampler"] == "PCD-2") == bool(pcd)]
        for _, section in part.groupby(parts, sort=False):
            yield _title(section.iloc[0]) + suffix, section


def _title(cell: pd.Series) -> str:
    number = PAPER_TABLES.get(cell["table"], cell["table"])
    title = f"Table {number}: {label('data', cell['dataset'], 'unicode')}, {cell['hidden']} hidden"
    if cell["model"] == "auto-encoder":
        return f"{title}, {cell['split']} cost"
    pretrained = cell["pretraining_epochs"]
    return title if pretrained == "0" else f"{title}, {pretrained} epochs of pre-training"


def _aside(section: pd.DataFrame) -> str:
    return "epochs" if section["model"].iloc[0] == "auto-encoder" else "final"


def _header(section: pd.DataFrame) -> list[str]:
    aside = _aside(section)
    return [*HEADER, f"published {aside}", f"obtained {aside}", "difference", "z", "bold"]


def _line(cell: dict[str, Any], style: str, aside: str) -> list[str]:
    sampler, offsets = label("sampler", cell["sampler"], style), label("offsets", cell["offsets"], style)
    init = f" {cell['init']}" if cell["table"].startswith("init-") else ""
    mean, std = (f".{max(2, _decimals(cell[f'published_{name}']))}f" for name in ("mean", "std"))
    return [
        f"{sampler}-{cell['learning_rate']}",
        offsets + init,
        f"{cell['published_mean']} ± {cell['published_std']}",
        f"{cell['obtained_mean']:{mean}} ± {_number(cell['obtained_std'], std)}",
        str(cell["obtained_n"]) + (f" ({cell['diverged']} diverged)" if cell["diverged"] else ""),
        _z(cell["z"]),
        cell[f"published_{aside}"] or "–",
        _number(cell[f"obtained_{aside}"], ASIDES[aside]),
        _number(cell[f"{aside}_difference"], f"+z{ASIDES[aside]}"),
        _z(cell[f"{aside}_z"]),
        _marks(cell),
    ]


def _decimals(text: str) -> int:
    return len(text.partition(".")[2])


def _number(value: float, spec: str) -> str:
    return "–" if math.isnan(value) else format(value, spec)


def _z(z: float) -> str:
    return _number(z, "+z.1f") + (ALERT if abs(z) > LIMIT else "")


def _marks(cell: dict[str, Any]) -> str:
    words = {True: "yes", False: "no", None: "–"}
    alert = ALERT if cell["marks_agree"] is False else ""
    return f"{words[cell['published_bold']]}/{words[cell['obtained_bold']]}{alert}"


def _lines(section: pd.DataFrame, style: str) -> list[list[str]]:
    return [_line(cell, style, _aside(section)) for cell in section.to_dict("records")]


def _text(comparison: Comparison, console: Console | None) -> str:
    styled = console is not None and console.is_terminal and not console.no_color
    out = console if styled else Console(file=StringIO(), width=10_000, color_system=None)
    with out.capture() as capture:
        for title, section in sections(comparison):
            out.print(Text(title, style="bold" if styled else ""))
            out.print(_rich_table(section, styled))
        for note in comparison.notes():
            out.print(Text(note))
        out.print()
        for line in comparison.summary():
            out.print(Text(line, style="bold" if styled else ""))
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _rich_table(section: pd.DataFrame, styled: bool) -> RichTable:
    rich = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in _header(section):
        rich.add_column(Text(head))
    for line in _lines(section, "unicode" if styled else "text"):
        rich.add_row(*(Text.assemble((t, "bold red" if styled and t.endswith(ALERT) else "")) for t in line))
    return rich


def _markdown(comparison: Comparison, _: Console | None) -> str:
    blocks = []
    for title, section in sections(comparison):
        head = _header(section)
        lines = [head, ["---"] * len(head), *_lines(section, "unicode")]
        blocks += [f"**{title}**", "\n".join(f"| {' | '.join(line)} |" for line in lines)]
    summary = "\n".join(f"- {line}" for line in comparison.summary())
    return "\n\n".join([*blocks, *comparison.notes(), summary]) + "\n"


def _csv(comparison: Comparison, _: Console | None) -> str:
    return comparison.cells.to_csv(index=False, float_format="%.10g", lineterminator="\n")


def _json(comparison: Comparison, _: Console | None) -> str:
    cells = [{name: _plain(v) for name, v in c.items()} for c in comparison.cells.to_dict("records")]
    about = {"summary": comparison.summary(), "notes": comparison.notes(), "cells": cells}
    return json.dumps(about, indent=2, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


COMPARISON_RENDERERS: dict[str, Callable[[Comparison, Console | None], str]] = {
    "text": _text,
    "markdown": _markdown,
    "csv": _csv,
    "json": _json,
}


def render_comparison(comparison: Comparison, format: str = "text", console: Console | None = None) -> str:
    """Spell a comparison in a format; ``!`` stands behind what does not agree.

    Parameters
    ----------
    comparison : Comparison
    format : {'text', 'markdown', 'csv', 'json'}
    console : Console, optional
        For text: a terminal with colours gets them.

    Raises
    ------
    CbmError
        Unknown format.
    """
    if format not in COMPARISON_RENDERERS:
        raise CbmError(f"--format {format}: no such format{suggestion(format, COMPARISON_RENDERERS)}")
    return COMPARISON_RENDERERS[format](comparison, console)
