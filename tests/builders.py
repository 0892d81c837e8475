"""Grids, result folders and machines that several test files build, and the command line as a function."""

import csv
import io
import struct
from pathlib import Path

import numpy as np
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


def idx(array):
    """Content of an IDX file of bytes."""
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def lines(rows, separator=",", end="\n"):
    """Content of a text file of numbers."""
    return "".join(separator.join(map(str, row)) + end for row in rows.tolist()).encode()


def arrays(*alone, **named):
    """Content of an NPY file of one array, or of an NPZ file of named arrays."""
    stream = io.BytesIO()
    np.save(stream, *alone) if alone else np.savez(stream, **named)
    return stream.getvalue()
