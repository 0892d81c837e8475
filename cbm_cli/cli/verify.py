"""``cbm verify``: train finished trials again, and compare."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from cbm_cli.cli import options
from cbm_cli.cli.options import Whole, command, folder_of_data
from cbm_cli.cli.output import note, say, say_json
from cbm_cli.cli.target import Target, results_and
from cbm_cli.errors import IncompleteError
from cbm_cli.kernels.sharing import cores
from cbm_cli.text import count

if TYPE_CHECKING:
    from cbm_cli.execution.verify import Verdict


@command
@click.option(
    "--sample",
    metavar="N|all",
    type=Whole(1, word="all"),
    default=10,
    help="Trials, drawn at random each time, or all.",
)
@options.jobs
@options.no_code
@options.data("DIR", "Folder with the data files of the results.")
@options.as_json
@results_and("[EXPERIMENT]...")
def verify(
    target: Target,
    sample: int | str,
    jobs: int | None,
    no_code: bool,
    source: str | None,
    as_json: bool,
) -> None:
    """Run a sample of trials again, and compare.

    Verdicts: same bytes; different (where first); damaged; cannot be run again, for
    example without its data. The exit code is 1 if a trial is
    different or damaged, and 3 if none could run again.

    Recorders of the form file.py:function are code. They run if their text is that of
    the trials and their file is not part of the results. If results come from someone
    else, give --no-code.
    """
    from cbm_cli.datasets.published import data_in
    from cbm_cli.execution.verify import CANNOT, DAMAGED, DIFFERENT, verify_trials

    verdicts, versions = Counter[str](), Counter[str]()

    def show(verdict: Verdict) -> None:
        verdicts[verdict.verdict] += 1
        if verdict.verdict == DIFFERENT:
            versions[verdict.made] += 1
        if as_json:
            say_json(asdict(verdict))
            return
        trial = f"{verdict.experiment} {verdict.run_id} trial {verdict.number}"
        reason = f" ({verdict.reason})" if verdict.reason else ""
        say(f"{trial}: {verdict.verdict}{reason}")

    results = target.results()
    with results.readable(target.names) as stores, data_in(folder_of_data(source)):
        names = [store.experiment for store in stores]
        verify_trials(
            results,
            names,
            show,
            sample=sample if isinstance(sample, int) else None,
            workers=cores() if jobs is None else jobs,
            code=not no_code,
            announce=note,
        )
        if not verdicts:
            where = ", ".join(names)
            remedy = "no trial is finished yet; start with: cbm run"
            raise IncompleteError(f"{where}: {remedy}")
        sums = ", ".join(f"{n:,} {verdict}" for verdict, n in verdicts.items())
        note(f"{count(verdicts.total(), 'trial')}: {sums}")
        for version, n in versions.items():
            made_with = version or "this computer and these versions"
            note(f"{n:,} of the different ones: made with {made_with}")
    if verdicts[DIFFERENT] or verdicts[DAMAGED]:
        raise SystemExit(1)
    if verdicts.total() == verdicts[CANNOT]:
        raise SystemExit(IncompleteError.exit_code)
