"""Recorders of the user's own: a function of a Python file, whose text travels to the workers."""

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from cbm_cli.errors import CbmError
from cbm_cli.grid.wording import did_you_mean
from cbm_cli.trial.recorders.snapshots import Context, Recorder, Snapshots


def is_own(name: str) -> bool:
    """Whether a recorder's name means a function of a file, as ``mine.py:filter_cosine``."""
    return ".py:" in name


def load_recorder(name: str, folder: Path) -> str:
    """Return the source text of the file of ``file.py:function``, found to have the function.

    Parameters
    ----------
    name : str
    folder : Path
        What the file's path is relative to: the grid's folder.

    Raises
    ------
    CbmError
        Where the file cannot be read or run, or has no such function.
    """
    file, _ = _split(name)
    try:
        source = (folder / file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is no text in UTF-8"
        raise CbmError(
            f"record: {folder / file}: {reason}; paths are relative to the grid's folder"
        ) from None
    compile_recorder(name, source)
    return source


def compile_recorder(name: str, source: str) -> Recorder:
    """Make the recorder ``file.py:function`` from the text of the file, run in a module of its own.

    Raises
    ------
    CbmError
        Where the text cannot be run, or has no such function; and, when the recorder is called, where it
        fails or returns anything but a column (T,) of numbers for each of one or more names.
    """
    file, name_of_function = _split(name)
    module = ModuleType(Path(file).stem)
    try:
        exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
    except Exception as error:
        raise CbmError(f"record: {_place(file, error)}: {_told(error)}") from error
    function = getattr(module, name_of_function, None)
    if not callable(function):
        functions = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
        hint = did_you_mean(name_of_function, functions) if functions else ""
        raise CbmError(f"record: {file} has no function {name_of_function}{hint}")
    return _checked(function, file, name_of_function)


def compiled(sources: Mapping[str, str]) -> dict[str, Recorder]:
    """The recorders of ``sources``, name -> text of the file."""
    return {name: compile_recorder(name, source) for name, source in sources.items()}


def _checked(function: Callable, file: str, name: str) -> Recorder:
    """The function, with its errors and the form of its answer told as the user's to mend."""

    def recorder(snapshots: Snapshots, context: Context) -> dict[str, NDArray[np.float64]]:
        try:
            found = function(snapshots, context)
            columns = {str(column): np.asarray(values, np.float64) for column, values in found.items()}
        except Exception as error:
            raise CbmError(f"record: {_place(file, error)}, in {name}: {_told(error)}") from error
        shape = snapshots.update.shape
        for column, values in columns.items():
            if values.shape != shape:
                raise CbmError(
                    f"record: {file}, {name}: {column} has the shape {values.shape}; it must have a number "
                    f"for each snapshot, {shape}"
                )
        return columns

    return recorder


def _split(name: str) -> tuple[str, str]:
    file, _, function = name.rpartition(":")
    return file, function


def _place(file: str, error: Exception) -> str:
    """The file, and the last line of it that the error went through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    if isinstance(error, SyntaxError) and error.filename == file:
        lines.append(error.lineno)
    return f"{file}, line {lines[-1]}" if lines else file


def _told(error: Exception) -> str:
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {message}".splitlines()[0]
