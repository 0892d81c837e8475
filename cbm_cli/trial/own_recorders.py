"""Recorders of the user: functions in Python files, sent to the workers as text."""

import re
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import numpy as np

from cbm_cli.arrays import content_of
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import RECORDERS, Experiment
from cbm_cli.kernels.machine import Trail
from cbm_cli.text import did_you_mean
from cbm_cli.trial.recorders import Columns, Context, Recorder

_COLUMN = r"\w([\w .:/()+-]{0,98}[\w)])?"


def refuse_code(experiments: Iterable[Experiment]) -> None:
    """Raise CbmError, with its place, for the first recorder that is code of a file."""
    for experiment in experiments:
        for cell in experiment.cells:
            own = [name for name in cell.record.names if name not in RECORDERS]
            if own:
                told = (
                    f"{own[0]} is code, which --no-code refuses; read the file, "
                    "then allow it"
                )
                error = CbmError(told, field="record.what")
                raise CbmError(experiment.located(cell, error))


def load_recorder(name: str, folder: Path) -> str:
    """Return the text of the file in ``file.py:function``, relative to the grid's
    folder.

    Raises CbmError if the file cannot be read or run, or has no such function.
    """
    path = folder / name.rpartition(":")[0]
    try:
        source = content_of(path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8 text"
        told = f"{path}: {reason}; paths are relative to the grid's folder"
        raise CbmError(told, field="record") from None
    compile_recorder(name, source)
    return source


def compile_recorder(name: str, source: str) -> Recorder:
    """Make the recorder ``file.py:function`` from the text of the file, run in its own
    module.

    Raises CbmError if the text cannot be run or has no such function. The recorder
    raises it if the function fails or does not return columns (T,) of numbers by name;
    if it exits, ``__cause__`` is SystemExit.
    """
    file, _, function = name.rpartition(":")
    module = ModuleType(Path(file).stem)
    with _reported(file):
        exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
    found = getattr(module, function, None)
    if not callable(found):
        functions = [
            key
            for key, value in vars(module).items()
            if callable(value) and key[0] != "_"
        ]
        hint = did_you_mean(function, functions) if functions else ""
        raise CbmError(f"{file} has no function {function}{hint}", field="record")

    def recorder(snapshots: Trail, context: Context) -> Columns:
        with _reported(file, f", in {function}"):
            items = found(snapshots, context).items()
            columns = [
                (str(column), np.asarray(values, np.float64))
                for column, values in items
            ]
        shape, names = snapshots.update.shape, [column for column, _ in columns]
        for column, values in columns:
            if not re.fullmatch(_COLUMN, column) or names.count(column) > 1:
                flaw = (
                    "appears twice"
                    if re.fullmatch(_COLUMN, column)
                    else "cannot be the name of a column"
                )
                raise CbmError(
                    f"{file}, {function}: {column[:40]!r} {flaw}; use up to 100 "
                    "letters, digits, "
                    "blanks and _ . : / ( ) + -, a letter or digit first",
                    field="record",
                )
            if values.shape != shape:
                raise CbmError(
                    f"{file}, {function}: {column} has the shape {values.shape}; it "
                    "must have a "
                    f"number for each snapshot, {shape}",
                    field="record",
                )
        return dict(columns)

    return recorder


@contextmanager
def _reported(file: str, where: str = "") -> Iterator[None]:
    """Turn any exception into a CbmError that names the last line of the user's file in
    its traceback.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == file]
        if isinstance(error, SyntaxError) and error.filename == file:
            lines.append(error.lineno)
        line = f", line {lines[-1]}" if lines else ""
        message = (
            f"{type(error).__name__}: {getattr(error, 'msg', error)}".splitlines()[0]
        )
        raise CbmError(f"{file}{line}{where}: {message}", field="record") from error
