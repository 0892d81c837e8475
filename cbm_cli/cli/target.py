"""Targets of commands: a results folder, with names of its parts, and files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cbm_cli.cli.options import GRIDS
from cbm_cli.cli.output import to_type
from cbm_cli.errors import CbmError

if TYPE_CHECKING:
    from cbm_cli.results import Results

_DEFAULT = Path("results")


@dataclass(frozen=True)
class Target:
    """The input of a command: a results folder, and names of experiments or machines in
    it.
    """

    folder: Path
    names: tuple[str, ...] = ()

    def results(self) -> Results:
        """Open the results folder; CbmError, which also lists other meanings of a first
        word.
        """
        from cbm_cli.results import Results

        missing = self.folder == _DEFAULT and not self.folder.exists()
        if self.names and missing:  # the first word was meant for a folder
            return Results(Path(self.names[0]))
        return Results(self.folder)

    def models(self) -> list[Path]:
        """Return the machines if a machine is named: files, and RUN:TRIAL in the
        folder.
        """
        from cbm_cli.results.folder import is_machine, is_machine_file

        if not any(map(is_machine, self.names)):
            return []
        folder = Path() if self.folder == _DEFAULT else self.folder
        paths = []
        for name in self.names:
            is_path = is_machine_file(name) or "/" in name
            paths.append(Path(name) if is_path else folder / name)
        return paths

    def model(self) -> Path:
        """Return the one machine that is named; CbmError for none, and for several."""
        models = self.models()
        if len(models) != 1:
            place = " ".join(self.names) or self.folder
            remedy = "name one machine: a file, or RUN:TRIAL as `cbm best` prints it"
            raise CbmError(f"{place}: {remedy}")
        return models[0]


@contextmanager
def naming_grid(command: str, words: Sequence[str]) -> Iterator[None]:
    """Add to an error how to name the grid whose suffix the first word lacks, if there
    is one.
    """
    try:
        yield
    except CbmError as error:
        paths = [Path(word + suffix) for word in words[:1] for suffix in GRIDS]
        for path in filter(Path.is_file, paths):
            remedy = f"{path} is a grid: {to_type(command, path)}"
            raise CbmError(f"{error}\n{remedy}") from None
        raise


def results_and(names: str, *suffixes: str) -> Callable:
    """Take [RESULTS] and then names, or files with some suffixes; the command gets its
    ``target``.

    A first word that is there or ends with a slash is RESULTS, else results/ is. A
    folder may precede a name: ``out/NAME``. If a command takes files with such
    suffixes, any file is a name.
    """

    def target_of(
        _: click.Context, __: click.Parameter, words: tuple[str, ...]
    ) -> Target:
        if not words or not words[0]:
            return Target(_DEFAULT, words)
        first = words[0]
        place = Path(first)
        is_file = bool(suffixes) and place.is_file()
        if place.suffix in suffixes or is_file:
            return Target(_DEFAULT, words)
        if place.exists() or first.endswith("/"):
            return Target(place, words[1:])
        if "/" in first:
            return Target(place.parent, (place.name, *words[1:]))
        return Target(_DEFAULT, words)

    return click.argument(
        "target", nargs=-1, metavar=f"[RESULTS] {names}", callback=target_of
    )
