"""Recorders of the user: functions in Python files, sent to the workers as text."""

import ast
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from cbm_cli.arrays import content_of
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import (
    NESTED,
    RECORDERS,
    Data,
    Experiment,
    Frozen,
    Settings,
)
from cbm_cli.kernels.machine import Trail
from cbm_cli.text import did_you_mean
from cbm_cli.trial.recorders import Columns, Context, Recorder

_COLUMN = r"\w([\w .:/()+-]{0,98}[\w)])?"
_OF_TRIALS = (
    "experiment",
    "run_id",
    "trial",
    "seed",
    "update",
    "epoch",
    "seconds",
    "diverged",
    "epochs_to_convergence",
    "data",
    "log_z",
    "log_z_standard_error",
    "log_z_at_least",
    "effective_sample_size",
    "mean_field_rounds",
    "mean_field_failures",
    "mean_field_unsettled",
    "n_train",
    "n_valid",
    "n_test",
    "cbm_version",
    "kernel_version",
    "numpy_version",
    "numba_version",
)
_EVALUATED = (  # also with the suffixes of limits and of the methods of cbm evaluate
    r"(train|valid|test)_"
    r"(log_likelihood|lower_bound|tighter_bound|pseudo_likelihood|cost)"
    r"(_at_most|_exact|_ais|_pseudo|_start|_final|_max|_min|_best_valid|_update)*"
    r"|(exact|ais|pseudo)_"  # of cbm evaluate alone
    r"(rows|temperatures|runs|seed|version|doubtful|effective_sample_size|"
    r"log_z(_standard_error|_at_least|_at_most)?)"
)


def refuse_code(experiments: Iterable[Experiment]) -> None:
    """Raise CbmError, with its place, for the first recorder that is code of a file."""
    for experiment in experiments:
        for cell in experiment.cells:
            own = [name for name in cell.record.names if name not in RECORDERS]
            if own:
                message = (
                    f"{own[0]} is code, which --no-code refuses; read the file, "
                    "then allow it"
                )
                error = CbmError(message, field="record.what")
                raise CbmError(experiment.located(cell, error))


def read_recorder(name: str, folder: Path) -> str:
    """Return the text of the file in ``file.py:function``, relative to the grid's
    folder. Nothing in it runs, so that it can be compared before it does.

    Raises
    ------
    CbmError
        The file cannot be read, or is not UTF-8 text.
    """
    path = folder / name.rpartition(":")[0]
    try:
        return content_of(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        reason = "is not UTF-8 text"
    except OSError as error:
        reason = error.strerror or str(error)
    message = f"{path}: {reason}; paths are relative to the grid's folder"
    raise CbmError(message, field="record")


def imported_modules(source: str) -> tuple[str, ...]:
    """Return the modules that a recorder's text imports besides NumPy, SciPy, pandas,
    cbm and the standard library, without running it.

    A run-id does not contain their text: trials are not run again when it changes.

    Examples
    --------
    >>> imported_modules("import re, kept.angles\\nimport numpy as np")
    ('kept',)
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):  # `compile_recorder` says which
        return ()
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
    packages = {name.partition(".")[0] for name in names}
    fixed = {"numpy", "scipy", "pandas", "cbm_cli", *sys.stdlib_module_names}
    return tuple(sorted(packages - fixed))


def compile_recorder(name: str, source: str) -> Recorder:
    """Make the recorder ``file.py:function`` from the text of the file.

    The text runs in a module of its own, which no import finds: a file called
    ``signal.py`` replaces no module of that name.

    Raises
    ------
    CbmError
        The text cannot be run or has no such function. The recorder itself raises it if
        the function fails or does not return columns (T,) of numbers under names that
        are free; if it exits, ``__cause__`` is SystemExit.
    """
    file, _, name_of_function = name.rpartition(":")
    module = ModuleType(Path(file).stem)
    with _reported(file):
        exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
    function = getattr(module, name_of_function, None)
    if not callable(function):
        raise _no_function(file, name_of_function, vars(module))

    def recorder(snapshots: Trail, context: Context) -> Columns:
        with _reported(file, f", in {name_of_function}"):
            pairs = [
                (str(column), np.asarray(values, np.float64))
                for column, values in function(snapshots, context).items()
            ]
        columns: Columns = {}
        for column, values in pairs:
            flaw = _flaw_of(column, columns)
            if not flaw and values.shape != snapshots.update.shape:
                flaw = (
                    f"{column} has the shape {values.shape}; it must have a "
                    f"number for each snapshot, {snapshots.update.shape}"
                )
            if flaw:
                message = f"{file}, {name_of_function}: {flaw}"
                raise CbmError(message, field="record")
            columns[column] = values
        return columns

    return recorder


def _no_function(file: str, name: str, contents: Mapping[str, Any]) -> CbmError:
    """The error that a file has no such function."""
    functions = [
        key for key, value in contents.items() if callable(value) and key[0] != "_"
    ]
    hint = did_you_mean(name, functions) if functions else ""
    return CbmError(f"{file} has no function {name}{hint}", field="record")


def _flaw_of(column: str, earlier: Iterable[str]) -> str:
    """Why a recorder of the user cannot return this column after earlier ones, or an
    empty text.
    """
    if not re.fullmatch(_COLUMN, column):
        return (
            f"{column[:40]!r} cannot be the name of a column; use up to 100 letters, "
            "digits, blanks and _ . : / ( ) + -, a letter or digit first"
        )
    if column in earlier:
        return f"{column!r} appears twice; give each column a name of its own"
    if is_taken(column):
        return f"{column!r} is a column of cbm, it exists already; rename it"
    return ""


def is_taken(column: str) -> bool:
    """Whether cbm itself has a column of this name, in results of any kind.

    Examples
    --------
    >>> is_taken("train_log_likelihood"), is_taken("train_accuracy")
    (True, False)
    """
    return column in _columns_of_cbm() or bool(re.fullmatch(_EVALUATED, column))


@cache
def _columns_of_cbm() -> frozenset[str]:
    """Columns of trials, of settings and of the recorders of cbm."""
    names = {*_OF_TRIALS, *Settings.model_fields}
    nested: dict[str, type[Frozen]] = {"data": Data, **NESTED}
    for field, model in nested.items():
        names |= {f"{field}_{part}" for part in model.model_fields}
    for columns in RECORDERS.values():
        names |= {*columns}
    return frozenset(names)


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
        reason = f"{type(error).__name__}: {getattr(error, 'msg', error)}"
        first_line = reason.splitlines()[0]
        message = f"{file}{line}{where}: {first_line}"
        raise CbmError(message, field="record") from error
