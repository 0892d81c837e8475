"""``cbm run --plot``: learning curves that are drawn again and again during a run."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from cbm_cli.cli.common import PICTURES, check_file, note
from cbm_cli.errors import IncompleteError

EVERY = 30.0  # seconds between two drawings, more if they take long


def check_plot(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    """Refuse a picture that cannot be written before anything runs."""
    check_file("--plot", path, PICTURES)
    return path


@contextlib.contextmanager
def redrawn(path: Path | None, output: Path, experiments: Sequence[str]) -> Iterator[None]:
    """Draw the experiments of a results folder while the body runs, and once more after it.

    Drawing errors never stop the run; the last one is reported.
    """
    if path is None:
        yield
        return
    several, ended = len(experiments) > 1, threading.Event()
    paths = {one: path.with_stem(f"{path.stem}-{one}") if several else path for one in experiments}

    def draw_again() -> None:
        wait = EVERY
        while not ended.wait(wait):
            began = time.monotonic()
            for one, its in paths.items():
                _draw(output, one, its)
            wait = max(EVERY, 10 * (time.monotonic() - began))

    thread = threading.Thread(target=draw_again, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        for one, its in paths.items():
            problem = _draw(output, one, its)
            note(f"--plot {its}: {problem}" if problem else f"wrote {its}")


def _draw(output: Path, experiment: str, path: Path) -> str:
    """Draw an experiment, and replace its picture as a whole; return what went wrong."""
    part = path.with_name(f".{path.stem}.part{path.suffix}")
    try:
        from cbm_cli.report import plot_curves
        from cbm_cli.results import Results

        plot_curves(Results(output), experiment, part)
        part.replace(path)
    except IncompleteError:
        return "no trial is finished yet"
    except Exception as error:  # nothing that goes wrong here may end the run
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        return f"{type(error).__name__}: {error}"
    return ""
