"""Grids, result folders and machines that several test files build, and the command line as a function."""

import csv
from pathlib import Path

from click.testing import CliRunner

from cbm_cli.cli import main

GRID = """
defaults: {trials: 2, seed: 5}
experiments:
  bars:
    data: {name: bars-and-stripes, size: 2}
    model: {kind: rbm, hidden: 3}
    offsets: [00, dd^b_s]
    sampler: [CD-1, PT_4]
    learning_rate: 0.1
    updates: 100
    batch: full
    evaluate: {method: exact, every: 20}
    table: {scale: total}
"""

MACHINES = {  # what a grid of each kind of machine needs beside data, learning rate and length
    "rbm": {"model": "{kind: rbm, hidden: 4}", "offsets": "dd^b", "sampler": "PCD-1"},
    "dbm": {"model": "{kind: dbm, hidden: [6, 5]}", "offsets": "ddd^b_s", "sampler": "PCD-1"},
    "auto-encoder": {"model": "{kind: auto-encoder, hidden: half}", "offsets": "dd^b_s"},
}


def grid_text(kind, **fields):
    """Return a grid of one machine with some fields; a field that is None is left out."""
    plain = {"data": "{name: shifting-bar, size: 9, bar: 1}", "learning_rate": "0.1", "epochs": "3"}
    lines = plain | MACHINES[kind] | {name.replace("__", "."): text for name, text in fields.items()}
    body = "".join(f"    {name}: {text}\n" for name, text in lines.items() if text is not None)
    return f"experiments:\n  toy:\n{body}"


def cbm(*arguments, code=0):
    """Run a command and return click's result; fail unless it exits with ``code``."""
    result = CliRunner().invoke(main, [*map(str, arguments)])
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def files(folder, *suffixes):
    """Content of all files with these endings, by path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.suffix in suffixes
    }


def summary(folder, experiment="bars"):
    """Rows of an experiment's summary.csv."""
    with open(Path(folder) / experiment / "summary.csv", newline="") as stream:
        return list(csv.DictReader(stream))
