"""``cbm verify``: run a sample of finished trials again, and compare."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cbm_cli.cli.common import Target, Whole, WholeOr, json_option, note
from cbm_cli.cli.options import data_folder_option, results_and
from cbm_cli.cores import cores
from cbm_cli.errors import IncompleteError
from cbm_cli.text import count, valid_json

if TYPE_CHECKING:
    from cbm_cli.execution.verify import Verdict


@click.command()
@results_and("[EXPERIMENT]...")
@click.option(
    "--sample",
    type=WholeOr("all"),
    default=10,
    show_default=True,
    metavar="N|all",
    help="Run so many trials again, chosen at random, the same each time.",
)
@click.option("-j", "--jobs", type=Whole(0), help="Cores to use; 0: only this process. Default: all.")
@click.option("--no-code", is_flag=True, help="Leave out trials with recorders of their own: they are code.")
@data_folder_option
@json_option
def verify(
    target: Target, sample: int | str, jobs: int | None, no_code: bool, data: Path | None, as_json: bool
) -> None:
    """Run a sample of trials again, and compare.

    Verdicts: same bytes; different (where first); damaged; cannot be run again, as without its data. See
    docs/verify.md. The exit code is 1 if a trial is different or damaged, and 3 if none could run again.
    """
    from cbm_cli.datasets.published import data_in
    from cbm_cli.execution.verify import CANNOT, DAMAGED, DIFFERENT, verify_trials

    found: Counter[str] = Counter()
    made: Counter[str] = Counter()

    def tell(verdict: Verdict) -> None:
        found[verdict.verdict] += 1
        if verdict.verdict == DIFFERENT:
            made[verdict.made] += 1
        click.echo(valid_json(asdict(verdict)) if as_json else _line(verdict))

    names, workers = target.experiments(), cores() if jobs is None else jobs
    many = None if isinstance(sample, str) else sample
    with data_in(data):
        verify_trials(target.results(), names, many, tell, workers=workers, code=not no_code, announce=note)
    if not found:
        raise IncompleteError(f"{', '.join(names)}: no trial is finished yet; start with: cbm run")
    note(f"{count(found.total(), 'trial')}: " + ", ".join(f"{n:,} {what}" for what, n in found.items()))
    for versions, n in made.items():
        note(f"{n:,} of the different ones: made with {versions or 'this computer and these versions'}")
    if found[DIFFERENT] or found[DAMAGED]:
        raise SystemExit(1)
    if found.total() == found[CANNOT]:
        raise SystemExit(IncompleteError.exit_code)


def _line(verdict: Verdict) -> str:
    reason = f" ({verdict.reason})" if verdict.reason else ""
    return f"{verdict.experiment} {verdict.run_id} trial {verdict.number}: {verdict.verdict}{reason}"
