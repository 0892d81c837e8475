"""``cbm evaluate``: the likelihood of machines, exact, estimated or bounded, or the cost of auto encoders."""

from __future__ import annotations

import math
import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cbm_cli.cli.common import (
    PLAIN_EVERY,
    Target,
    Whole,
    bars,
    given_options,
    json_option,
    note,
    print_list,
    say,
)
from cbm_cli.cli.options import data_option, folder_of_data, results_and, select_option
from cbm_cli.cores import cores
from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.text import count, decimal, duration, harmless, text_of, valid_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cbm_cli.execution.evaluate import Evaluated
    from cbm_cli.machines.likelihood import Method
    from cbm_cli.results import Store
    from cbm_cli.results.journal import Manifest
    from cbm_cli.results.selection import Wanted

# Options of a part of the methods, or of RESULTS alone
_OF_METHODS = {
    "temperatures": ("ais",),
    "runs": ("ais",),
    "seed": ("exact", "ais"),
}
_OF_MODELS, _OF_RESULTS = ("part",), ("select", "again")
_HIDDEN = "standard_error", "_doubtful"  # columns without means in the list of cells
_QUANTITIES = {
    "log_likelihood": "log-likelihood",
    "log_likelihood_at_most": "at most",
    "lower_bound": "lower bound",
    "lower_bound_at_most": "at most",
    "pseudo_likelihood": "pseudo-likel.",
}


@click.command()
@results_and("[EXPERIMENT|MODEL]...", ".npz")
@click.option("--exact", "method", flag_value="exact", help="Sum over all states (default).")
@click.option("--ais", "method", flag_value="ais", help="Estimate by annealed importance sampling.")
@click.option("--pseudo", "method", flag_value="pseudo", help="Pseudo-likelihood of an RBM.")
@select_option
@data_option
@click.option("--temperatures", type=Whole(3), show_default="14500; for deep machines 29000")
@click.option("--runs", type=Whole(2), default=100, show_default=True, help="Independent runs of AIS.")
@click.option("--rows", type=Whole(1), help="Evaluate a fixed subsample of this many rows.")
@click.option("--seed", type=Whole(0, 2**64 - 1), default=1, show_default=True)
@click.option("-j", "--jobs", type=Whole(0), help="Cores to use; 0: only this process. Default: all.")
@click.option("--again", is_flag=True, help="Evaluate also trials that were, with the same settings.")
@json_option
def evaluate(
    target: Target,
    method: str | None,
    select: Wanted,
    source: str | None,
    rows: int | None,
    as_json: bool,
    **how: Any,
) -> None:
    """Compute or estimate the likelihood of machines.

    MODEL, one or several, is a machine of any kind: an NPZ file in the documented form (docs/machines.md), or
    RUN:TRIAL, as `cbm best` prints it. It is evaluated on all parts of --data; without it --exact and --ais
    print log Z alone. In a results folder, every trial is evaluated on all parts of its own data, and
    the means of each cell are printed and columns added to summary.csv. Interrupted, the same command goes on
    where it stopped. Trials that have diverged are named and left out, damaged ones also: then, and if no
    trial is finished, the exit code is 3.

    For a deep machine --exact prints the log-likelihood and its mean-field bound, --ais the bound with its
    log Z. An auto encoder has no likelihood: its mean cost is printed.
    """
    from cbm_cli.datasets.published import data_in
    from cbm_cli.machines.likelihood import Method
    from cbm_cli.results.writing import locked

    models = target.models()
    _refuse_without_effect(method or "exact", bool(models))
    jobs = how.pop("jobs")
    effort = {"workers": cores() if jobs is None else jobs, "again": how.pop("again")}
    chosen = Method(method, rows=rows, **how)
    if models:
        _evaluate_files(models, source, chosen, as_json, effort["workers"])
    else:
        stores = [target.results().store(name) for name in target.experiments()]
        with locked(target.folder), data_in(folder_of_data(source)):
            _evaluate_results(stores, select, chosen, as_json, effort)


def _refuse_without_effect(method: str, of_models: bool) -> None:
    """Raise CbmError for an option that is given, and that this method or these machines do not have."""
    for name in given_options():
        if method not in _OF_METHODS.get(name, (method,)):
            raise CbmError(f"--{name}: has no effect with --{method}; remove it")
        if of_models and name in _OF_RESULTS:
            raise CbmError(f"--{name} is for results; name a folder, or remove it")


def _evaluate_files(paths: Sequence[Path], source: str | None, how: Method, as_json: bool, jobs: int) -> None:
    """Evaluate machine files; of several, or on several parts, print names before what is known of each."""
    for path in paths:
        common, by_part = _evaluate_file(path, source, how, jobs)
        told: set[str] = set()  # what is said of log Z is the same for all parts
        for part, answer in (by_part or {"": {}}).items():
            name = {"model": str(path)} if len(paths) > 1 else {}
            name |= {"part": part} if len(by_part) > 1 else {}
            for warning in _warnings(common | answer, str(path)):
                if warning not in told:
                    note(warning)
                told.add(warning)
            if as_json:
                click.echo(valid_json(name | common | answer))
            else:
                say("\n".join([*name.values(), _shown(common | answer)]))


def _evaluate_file(
    path: Path, source: str | None, how: Method, jobs: int
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    from cbm_cli.datasets.loading import load_source
    from cbm_cli.machines.files import read_machine
    from cbm_cli.machines.likelihood import evaluate, no_parts, parts_of
    from cbm_cli.machines.threads import one_thread, using_cores

    machine = read_machine(path)
    if source is not None:
        parts = parts_of(load_source(source, machine.sizes[0], machine.names), how)
    elif machine.kind != "auto-encoder" and how.name in ("exact", "ais"):
        if how.rows:
            raise CbmError("--rows: has no effect without --data; remove it")
        parts = no_parts(machine.sizes[0])
        proof = ", and only states that chains reach prove how large it is at least" * (how.name == "ais")
        note(f"{path}: without --data only log Z is known{proof}")
    else:
        message = f"{path}: name the rows to evaluate it on with --data NAME or --data FILE"
        raise CbmError(message)
    with one_thread(), using_cores(jobs):
        return evaluate(machine, parts, how, str(path))


def _evaluate_results(
    stores: Sequence[Store], wanted: Wanted, how: Method, as_json: bool, effort: Mapping[str, Any]
) -> None:
    from cbm_cli.execution.evaluate import evaluate_trials
    from cbm_cli.results.selection import select_cells

    whole, manifests = True, select_cells([one.manifest() for one in stores], wanted)
    for store, manifest in zip(stores, manifests, strict=True):
        experiment, damaged = store.experiment, store.damaged()
        if wanted and not manifest.cells:
            continue
        for problem in damaged.values():
            note(f"{problem}; cbm run repeats what is lost")
        with closing(evaluate_trials(store, how, manifest, **effort, say=note)) as trials:
            found = _all_of(trials, store, manifest, as_json, effort["again"])
        places = {cell["run_id"]: place for place, cell in enumerate(store.manifest().cells)}
        found.sort(key=lambda one: (places[one.cell["run_id"]], one.number))
        evaluated = sum(bool(one.columns) for one in found)
        if evaluated and not as_json:
            _print_evaluated(store, found)
        if kept := sum(one.before for one in found):
            note(f"{experiment}: {count(kept, 'trial')} evaluated before; --again evaluates them again")
        _note_others(store, found)
        if not found:
            note(f"{experiment}: no trial is finished yet; start with: cbm run")
        elif evaluated > kept:
            note(f"{store.folder / 'summary.csv'}: columns added")
        whole = whole and bool(found) and not damaged and not any(one.problem for one in found)
    if not whole:
        raise SystemExit(IncompleteError.exit_code)


def _all_of(
    trials: Iterable[Evaluated], store: Store, manifest: Manifest, as_json: bool, again: bool
) -> list[Evaluated]:
    """Return what evaluations find, and print it as JSON as it comes: of several workers in any order."""
    found: list[Evaluated] = []
    try:
        with _counter(store, manifest) as advance:
            for one in trials:
                advance(not one.before)
                found.append(one)
                if one.columns and as_json:
                    about = {"experiment": store.experiment, "trial": f"{one.cell['run_id']} {one.number}"}
                    click.echo(valid_json(about | one.columns))
    except KeyboardInterrupt:
        done = count(sum(not one.before for one in found), "trial")
        note(f"\nInterrupted; {done} evaluated; the same command {'without --again ' * again}goes on.")
        raise
    return found


def _note_others(store: Store, found: Sequence[Evaluated]) -> None:
    """Say which trials were not evaluated, and why, and how many estimates are doubtful."""
    flags = [[value for name, value in one.columns.items() if name.endswith("_doubtful")] for one in found]
    if few := sum(map(any, flags)):
        what = "is not carried by its runs, or known states or reverse AIS disprove it"
        note(f"warning: {store.experiment}: the estimate of log Z of {count(few, 'trial')} {what}")
    alike: dict[str, list[str]] = {}
    for one in found:
        trial = f"trial {one.number} of {one.cell['run_id']}"
        if one.diverged:
            note(f"{store.experiment}: {trial} has diverged; it has no likelihood")
        elif one.problem:
            alike.setdefault(one.problem, []).append(trial)
    for problem, trials in alike.items():
        more = f" and {count(len(trials) - 1, 'more of its trials', 'more of its trials')}" * (
            len(trials) > 1
        )
        note(f"{store.experiment}: {trials[0]}{more} left out: {problem}")
    costs = sum(not (one.columns or one.diverged or one.problem) for one in found)
    if costs:
        note(
            f"{store.experiment}: {count(costs, 'trial')} of auto encoders have no normalised likelihood; "
            f"their costs are in {store.folder / 'summary.csv'} already"
        )


@contextmanager
def _counter(store: Store, manifest: Manifest) -> Iterator[Callable[[bool], None]]:
    """Count the evaluated trials: a bar on a terminal, a line every few seconds elsewhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    title = TextColumn("{task.description}", markup=False)
    columns = (title, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    total = sum(len(store.finished(name)) for name in {c["run_id"] for c in manifest.cells})
    done, made, ended, began = 0, 0, threading.Event(), time.monotonic()

    def tell() -> None:
        while not ended.wait(PLAIN_EVERY):
            elapsed = time.monotonic() - began
            left = f", {duration(elapsed / made * (total - done))} left" if made else ""
            note(f"{store.experiment}: {done:,} of {total:,} trials, {duration(elapsed)}{left}")

    with bars(*columns, transient=True) as progress:
        task = progress.add_task(harmless(store.experiment), total=total)

        def advance(is_new: bool) -> None:
            nonlocal done, made
            done, made = done + 1, made + is_new
            progress.advance(task)

        if progress.disable:
            threading.Thread(target=tell, daemon=True).start()
        try:
            yield advance
        finally:
            ended.set()


def _print_evaluated(store: Store, found: Sequence[Evaluated]) -> None:
    """Print a line per cell: the settings that vary, the number of trials, the mean of each column."""
    from cbm_cli.results.folder import axes_of

    say(f"{store.experiment}: means over trials, in nats per row")
    axes = axes_of(store.manifest())
    trials: dict[tuple[str, ...], list[dict[str, float]]] = {}
    for one in (one for one in found if one.columns):
        trials.setdefault(tuple(text_of(one.cell.get(axis)) for axis in axes), []).append(one.columns)
    numbers = (name for one in found for name, value in one.columns.items() if isinstance(value, float))
    names = dict.fromkeys(name for name in numbers if not any(word in name for word in _HIDDEN))
    rows = []
    for settings, values in trials.items():
        means = (sum(columns.get(name, math.nan) for columns in values) / len(values) for name in names)
        shown = ("" if math.isnan(mean) else decimal(mean, ".4f") for mean in means)
        rows.append((*settings, str(len(values)), *shown))
    print_list((*axes, "trials", *names), rows)


def _warnings(answer: dict[str, Any], name: str) -> Iterator[str]:
    """Say what makes an answer doubtful."""
    from cbm_cli.machines.likelihood import doubt_of

    if doubt := doubt_of(answer):
        yield f"warning: {name}: {doubt}; trust neither it nor its error; use more --temperatures"
    if rows := answer.get("mean_field_unsettled"):
        unsettled = f"mean field has not settled for {count(rows, 'row')}"
        yield f"warning: {name}: {unsettled}; their bounds hold, but could be closer"


def _shown(answer: dict[str, Any]) -> str:
    if answer["method"] == "cost":
        return "\n".join(_quantity("cross entropy", answer["cost"], "nats "))
    lines = _shown_log_z(answer) if "log_z" in answer else []
    for name, words in _QUANTITIES.items():
        if name in answer:
            lines += _quantity(words, answer[name])
    return "\n".join(lines)


def _quantity(words: str, its: dict[str, Any], unit: str = "nats ") -> list[str]:
    return [
        f"{words:<15} {its['mean']:.6f} {unit}per row ({its['n']} rows)",
        f"{'':<15} {its['total']:.6f} {unit}of all {its['n']} rows",
    ]


def _shown_log_z(answer: dict[str, Any]) -> list[str]:
    error = answer.get("log_z_standard_error")
    spread = f" ± {error:.6f}" if error is not None else ""
    lines = [f"log Z           {answer['log_z']:.6f}{spread} (plain energy, without offsets)"]
    if answer["log_z_centered"] != answer["log_z"]:
        lines.append(f"                {answer['log_z_centered']:.6f}{spread} (centered energy of the file)")
    if "log_z_interval" in answer:
        low, high = answer["log_z_interval"]
        lines.append(f"                {low:.6f} to {high:.6f} (± 3 standard errors of the mean weight)")
        lines.append(f"                {answer['effective_sample_size']:.1f} effective runs")
        lines.append(
            f"                {answer['log_z_at_least']:.6f} at least, proved in {answer['precision']}"
        )
    if "reverse_log_z" in answer:
        spread = f" ± {answer['reverse_log_z_standard_error']:.6f}"
        lines.append(f"reverse log Z   {answer['reverse_log_z']:.6f}{spread} (from exact samples downwards)")
    return lines
