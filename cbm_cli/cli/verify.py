"""``cbm verify``: run a sample of finished trials again, and compare."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cbm_cli.cli.common import Target, Whole, cores, json_option, note
from cbm_cli.cli.completion import data_folder_option, results_and
from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.text import count, valid_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from cbm_cli.execution.verifying import Verdict


@click.command()
@results_and("[EXPERIMENT]...")
@click.option("--sample", type=Whole(1), help="Run so many trials again (default: 10).")
@click.option("--all", "all_", is_flag=True, help="Run all trials again.")
@click.option("--seed", type=Whole(0), default=1, show_default=True, help="Chooses the trials.")
@click.option("-j", "--jobs", type=Whole(0), help="Cores to use; 0: only this process. Default: all.")
@click.option("--no-code", is_flag=True, help="Leave out trials with recorders of their own: they are code.")
@data_folder_option
@json_option
def verify(
    target: Target, jobs: int | None, seed: int, no_code: bool, data: Path | None, as_json: bool, **many: Any
) -> None:
    """Run a sample of trials again, and compare.

    Verdicts: same bytes; differs (where first, and by how much); cannot be rerun, as without its data;
    damaged files. See docs/verify.md. The exit code is 1 if a trial differs or is damaged, and 3 if none
    could be rerun.
    """
    from cbm_cli.datasets.sources import data_in
    from cbm_cli.execution import verify_trials
    from cbm_cli.execution.verifying import DAMAGED, DIFFERS, NOT_RERUN

    choose, folder = _choice(**many), target.results()
    found: Counter[str] = Counter()
    made: Counter[str] = Counter()

    def tell(verdict: Verdict) -> None:
        found[verdict.verdict] += 1
        if verdict.verdict == DIFFERS:
            made[verdict.made] += 1
        click.echo(valid_json(asdict(verdict)) if as_json else _line(verdict))

    names, workers = target.experiments(), cores() if jobs is None else jobs
    how: Any = {"workers": workers, "seed": seed, "code": not no_code, "announce": note}
    with data_in(data):
        verify_trials(folder, names, choose, tell, **how)
    if not found:
        raise IncompleteError(f"{', '.join(names)}: no trial is finished yet; start with: cbm run")
    note(f"{count(found.total(), 'trial')}: " + ", ".join(f"{n:,} {what}" for what, n in found.items()))
    for how, n in made.items():
        note(f"{n:,} of those that differ: made with {how or 'this computer and these versions'}")
    if found[DIFFERS] or found[DAMAGED]:
        raise SystemExit(1)
    if found.total() == found[NOT_RERUN]:
        raise SystemExit(IncompleteError.exit_code)


def _choice(sample: int | None, all_: bool) -> Callable[[int], int]:
    """Return a function from how many trials there are to how many run again."""
    if sample is not None and all_:
        raise CbmError("--sample and --all: give only one of them", "conflict")
    return lambda trials: trials if all_ else min(sample or 10, trials)


def _line(verdict: Verdict) -> str:
    reason = f" ({verdict.reason})" if verdict.reason else ""
    return f"{verdict.experiment} {verdict.run_id} trial {verdict.number}: {verdict.verdict}{reason}"
