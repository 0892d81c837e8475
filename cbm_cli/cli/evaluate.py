"""``cbm evaluate``: the likelihood of machines, exact, estimated or bounded, or the
cost of auto encoders.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from cbm_cli.cli import options
from cbm_cli.cli.options import Pairs, Whole, command, folder_of_data
from cbm_cli.cli.output import live, note, print_list, say, say_json
from cbm_cli.cli.target import Target, results_and
from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.kernels.sharing import cores
from cbm_cli.text import count, decimal

if TYPE_CHECKING:
    from cbm_cli.execution.evaluate import Evaluated
    from cbm_cli.machines.likelihood import Method
    from cbm_cli.machines.models import Layered
    from cbm_cli.results import Store
    from cbm_cli.results.journal import Manifest
    from cbm_cli.results.writer import Writer

# Options that are for some of the methods
_METHODS = {"temperatures": ("ais",), "runs": ("ais",), "seed": ("exact", "ais")}
_HIDDEN = ("standard_error", "_doubtful")  # columns without means in the list of cells
_QUANTITIES = {
    "log_likelihood": "log-likelihood",
    "log_likelihood_at_most": "at most",
    "lower_bound": "lower bound",
    "lower_bound_at_most": "at most",
    "pseudo_likelihood": "pseudo-likel.",
    "cost": "cross entropy",
}


@command
@click.option(
    "--temperatures", type=Whole(3), help="Default: 14500; for deep machines 29000."
)
@click.option("--runs", type=Whole(2), default=100, help="Independent runs of AIS.")
@click.option(
    "--rows", type=Whole(1), help="Evaluate a fixed subsample of this many rows."
)
@options.seed
@click.option(
    "--exact", "method", flag_value="exact", help="Sum over all states (default)."
)
@click.option(
    "--ais",
    "method",
    flag_value="ais",
    help="Estimate by annealed importance sampling.",
)
@click.option(
    "--pseudo", "method", flag_value="pseudo", help="Pseudo-likelihood of an RBM."
)
@options.select
@options.data(
    "NAME|FILE|DIR", "Rows for MODEL; for results, the folder with their data files."
)
@options.jobs
@click.option(
    "--again", is_flag=True, help="Replace the values of trials that have some."
)
@options.as_json
@results_and("[EXPERIMENT|MODEL]...", ".npz")
def evaluate(
    target: Target,
    method: str | None,
    select: Pairs,
    source: str | None,
    jobs: int | None,
    again: bool,
    as_json: bool,
    **how: Any,
) -> None:
    """Compute or estimate the likelihood of machines.

    MODEL, one or several, is a machine of any kind: an NPZ file as `cbm export --help`
    describes it, or RUN:TRIAL, as `cbm best` prints it. cbm evaluates it on all parts
    of --data. Without --data, --exact and --ais print log Z alone. In a results folder,
    cbm evaluates every trial on all parts of its own data, prints the mean of each
    cell, and adds columns to summary.csv. If you interrupt it, the same command
    continues. Diverged and damaged trials are named and left out, and so are trials
    with values that other options or versions have made, unless you give --again. Then,
    or if no trial is finished, the exit code is 3.

    For a deep machine --exact prints the log-likelihood and its mean-field bound, --ais
    the bound with its log Z. For an auto encoder, which has no likelihood, cbm prints
    the mean cost.
    """
    from cbm_cli.datasets.published import data_in
    from cbm_cli.machines.likelihood import Method
    from cbm_cli.results.writer import locked

    models = target.models()
    _check_options(method or "exact", of_files=bool(models))
    workers = cores() if jobs is None else jobs
    chosen = Method(method, **how)
    if models:
        for path in models:
            name = {"model": str(path)} if len(models) > 1 else {}
            _evaluate_file(path, source, chosen, name, as_json, workers)
        return
    folder = folder_of_data(source)
    with (
        target.results().readable(target.names) as stores,
        locked(target.folder) as lock,
        data_in(folder),
    ):
        effort = {"workers": workers, "again": again}
        writers = [lock.writer(store.experiment) for store in stores]
        complete = _evaluate_results(writers, select, chosen, as_json, effort)
    if not complete:
        raise SystemExit(IncompleteError.exit_code)


def _check_options(method: str, of_files: bool) -> None:
    """Raise CbmError for options that are for other methods, or for results."""
    context = click.get_current_context()
    for option in context.params:
        if context.get_parameter_source(option) is not ParameterSource.COMMANDLINE:
            continue
        if method not in _METHODS.get(option, (method,)):
            raise CbmError(f"--{option}: has no effect with --{method}; remove it")
        if of_files and option in ("select", "again"):
            raise CbmError(f"--{option} is for results; name a folder, or remove it")


# Machine files


def _evaluate_file(
    path: Path,
    source: str | None,
    method: Method,
    name: dict[str, str],
    as_json: bool,
    workers: int,
) -> None:
    """Evaluate a machine file; of several parts of the data, print their names before
    their values.
    """
    from cbm_cli.kernels.sharing import using_cores
    from cbm_cli.machines.files import read_machine
    from cbm_cli.machines.likelihood import evaluate
    from cbm_cli.machines.threads import one_thread

    machine = read_machine(path)
    parts = _parts_for(path, machine, source, method)
    with one_thread(), using_cores(workers):
        of_machine, by_part = evaluate(machine, parts, method, str(path))
    doubts: dict[str, None] = {}  # those of log Z are the same for all parts
    for part, of_part in (by_part or {"": {}}).items():
        answer = of_machine | of_part
        doubts |= dict.fromkeys(_doubts_about(answer))
        names = name | {"part": part} if len(by_part) > 1 else name
        if as_json:
            say_json(names | answer)
        else:
            say("\n".join([*names.values(), *_lines_of(answer)]))
    for doubt in doubts:
        note(f"warning: {path}: {doubt}")


def _parts_for(path: Path, machine: Layered, source: str | None, method: Method) -> Any:
    """Return the parts of the data on which to evaluate a machine; without data, log Z
    alone is known.
    """
    import numpy as np

    from cbm_cli.datasets.loading import load_source
    from cbm_cli.machines.likelihood import no_parts, parts_of
    from cbm_cli.machines.models import flatten

    if source is not None:
        data = load_source(source, machine.sizes[0], machine.names)
        return parts_of(data, method)
    if machine.kind == "auto-encoder" or method.name not in ("exact", "ais"):
        remedy = "name the rows to evaluate it on with --data NAME or --data FILE"
        raise CbmError(f"{path}: {remedy}")
    if method.rows:
        raise CbmError("--rows: has no effect without --data; remove it")
    known = "without --data only log Z is known"
    if method.name == "ais":
        known += ", and its proved bound rests on states of chains alone"
    note(f"{path}: {known}")
    return no_parts(flatten(machine, np.float64, str(path)))


def _doubts_about(answer: dict[str, Any]) -> list[str]:
    """Return what is doubtful about an answer, with the remedy."""
    from cbm_cli.machines.likelihood import doubt_of

    doubts = []
    if doubt := doubt_of(answer):
        remedy = "trust neither it nor its error; use more --temperatures"
        doubts.append(f"{doubt}; {remedy}")
    if unsettled := answer.get("mean_field_unsettled"):
        state = f"mean field has not settled for {count(unsettled, 'row')}"
        doubts.append(f"{state}; their bounds hold, but could be closer")
    return doubts


def _lines_of(answer: Mapping[str, Any]) -> list[str]:
    """Return the lines of an answer about a machine, or about a part of the data."""
    lines = []
    if "log_z" in answer:
        error = answer.get("log_z_standard_error")
        spread = "" if error is None else f" ± {error:.6f}"
        log_z, centered = answer["log_z"], answer["log_z_centered"]
        value = f"{log_z:.6f}{spread} (plain energy, without offsets)"
        lines.append(("log Z", value))
        if centered != log_z:
            value = f"{centered:.6f}{spread} (centered energy of the file)"
            lines.append(("", value))
    if "log_z_interval" in answer:
        low, high = answer["log_z_interval"]
        interval = f"{low:.6f} to {high:.6f}"
        lines.append(("", f"{interval} (± 3 standard errors of the mean weight)"))
        lines.append(("", f"{answer['effective_sample_size']:.1f} effective runs"))
        at_least = f"{answer['log_z_at_least']:.6f} at least"
        lines.append(("", f"{at_least}, proved in {answer['precision']}"))
    if "log_z_at_most" in answer:
        at_most = f"{answer['log_z_at_most']:.6f} at most"
        lines.append(("", f"{at_most}, by a sum over all states"))
    for name, words in _QUANTITIES.items():
        if quantity := answer.get(name):
            rows = quantity["n"]
            lines.append((words, f"{quantity['mean']:.6f} nats per row ({rows} rows)"))
            lines.append(("", f"{quantity['total']:.6f} nats of all {rows} rows"))
    return [f"{words:<15} {value}" for words, value in lines]


# Results


def _evaluate_results(
    writers: Sequence[Writer],
    select: Pairs,
    method: Method,
    as_json: bool,
    effort: Mapping[str, Any],
) -> bool:
    """Evaluate the trials of experiments; return whether all of them could be."""
    from cbm_cli.results.selection import select_cells

    complete = True
    manifests = select_cells([writer.store.manifest() for writer in writers], select)
    for writer, manifest in zip(writers, manifests, strict=True):
        if select and not manifest.cells:
            continue
        store = writer.store
        damaged = store.damaged()
        for problem in damaged.values():
            note(f"{problem}; cbm run repeats what is lost")
        trials = _evaluate_trials(writer, manifest, method, as_json, effort)
        _print_evaluated(store, trials, as_json)
        _note_left_out(store, trials)
        if any(trial.columns and not trial.before for trial in trials):
            note(f"{store.folder / 'summary.csv'}: columns added")
        failed = any(trial.problem for trial in trials)
        if damaged or failed or not trials:
            complete = False
    return complete


def _evaluate_trials(
    writer: Writer,
    manifest: Manifest,
    method: Method,
    as_json: bool,
    effort: Mapping[str, Any],
) -> list[Evaluated]:
    """Evaluate the trials of an experiment, and return them in the order of its grid;
    print JSON as it comes: of several workers in any order.
    """
    from cbm_cli.execution.evaluate import evaluate_trials

    store = writer.store
    trials: list[Evaluated] = []
    run_ids = [run.run_id for run in manifest.cells]
    total = len(store.finished_keys(run_ids))

    def share() -> float:
        return len(trials) / max(total, 1)

    def status() -> list[str]:
        return [f"{store.experiment}: {len(trials):,} of {total:,} trials"]

    try:
        with (
            live(share, status) as message,
            closing(
                evaluate_trials(writer, method, manifest, **effort, say=message)
            ) as evaluated,
        ):
            for trial in evaluated:
                trials.append(trial)
                if trial.columns and as_json:
                    name = f"{trial.run.run_id} {trial.number}"
                    about = {"experiment": store.experiment, "trial": name}
                    say_json(about | trial.columns)
    except KeyboardInterrupt:
        new = sum(not trial.before for trial in trials)
        command = "the same command"
        if effort["again"]:
            command += " without --again"
        done = f"{count(new, 'trial')} evaluated"
        note(f"\nInterrupted; {done}; {command} continues.")
        raise
    return sorted(
        trials, key=lambda trial: (run_ids.index(trial.run.run_id), trial.number)
    )


def _print_evaluated(store: Store, trials: Sequence[Evaluated], as_json: bool) -> None:
    """Print a line per cell: the settings that vary, the number of trials, the mean of
    each column; say how many trials were evaluated before, and how many are doubtful.
    """
    rows = [trial.columns for trial in trials if trial.columns]
    if rows and not as_json:
        _print_means(store, [trial for trial in trials if trial.columns])
    before = sum(trial.before for trial in trials)
    if before:
        state = f"{count(before, 'trial')} evaluated before"
        note(f"{store.experiment}: {state}; --again evaluates them again")
    doubtful = 0
    for row in rows:
        doubtful += any(row[name] for name in row if name.endswith("_doubtful"))
    if doubtful:
        what = f"the estimate of log Z of {count(doubtful, 'trial')}"
        why = "rests on too few runs, or a proved bound disproves it"
        note(f"warning: {store.experiment}: {what} {why}")


def _print_means(store: Store, trials: Iterable[Evaluated]) -> None:
    from cbm_cli.results.columns import key_of

    say(f"{store.experiment}: means over trials, in nats per row")
    axes = store.manifest().axes
    cells: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    names: dict[str, None] = {}
    for trial in trials:
        cells.setdefault(key_of(trial.run.row, axes), []).append(trial.columns)
        for name, value in trial.columns.items():
            is_hidden = any(word in name for word in _HIDDEN)
            if isinstance(value, float) and not is_hidden:
                names[name] = None
    rows = []
    for settings, columns in cells.items():
        row = [*settings, str(len(columns))]
        for name in names:
            mean = fmean(of_trial.get(name, math.nan) for of_trial in columns)
            row.append("" if math.isnan(mean) else decimal(mean, ".4f"))
        rows.append(row)
    print_list((*axes, "trials", *names), rows)


def _note_left_out(store: Store, trials: Sequence[Evaluated]) -> None:
    """Say which trials were not evaluated, and why."""
    left_out: dict[str, list[str]] = {}  # by the reason
    for trial in trials:
        name = f"trial {trial.number} of {trial.run.run_id}"
        if trial.diverged:
            note(f"{store.experiment}: {name} has diverged; it has no likelihood")
        elif not trial.columns:
            cost = "an auto encoder has no likelihood; its cost is in summary.csv"
            left_out.setdefault(trial.problem or cost, []).append(name)
    for why, names in left_out.items():
        more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        note(f"{store.experiment}: {names[0]}{more} left out: {why}")
    if not trials:
        note(f"{store.experiment}: no trial is finished yet; start with: cbm run")
