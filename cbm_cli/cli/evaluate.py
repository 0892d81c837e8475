"""``cbm evaluate``: the likelihood of machines, exact, estimated or bounded, or the
cost of auto encoders.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from cbm_cli.cli.options import Pairs, Target, command, folder_of_data, results_and
from cbm_cli.cli.output import live, note, print_list, say
from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.kernels.sharing import cores
from cbm_cli.text import count, decimal, text_of, valid_json

if TYPE_CHECKING:
    from cbm_cli.execution.evaluate import Evaluated
    from cbm_cli.machines.likelihood import Method
    from cbm_cli.results import Store

# Options of a part of the methods
_HOW = ("temperatures", "runs", "subsample", "seed")
_OF_METHODS = {"temperatures": ("ais",), "runs": ("ais",), "seed": ("exact", "ais")}
_HIDDEN = "standard_error", "_doubtful"  # columns without means in the list of cells
_QUANTITIES = {
    "log_likelihood": "log-likelihood",
    "log_likelihood_at_most": "at most",
    "lower_bound": "lower bound",
    "lower_bound_at_most": "at most",
    "pseudo_likelihood": "pseudo-likel.",
    "cost": "cross entropy",
}


@command(*_HOW, *("exact", "ais", "pseudo", "select", "data", "jobs", "again", "json"))
@results_and("[EXPERIMENT|MODEL]...", ".npz")
def evaluate(
    target: Target,
    method: str | None,
    select: Pairs,
    source: str | None,
    as_json: bool,
    **how: Any,
) -> None:
    """Compute or estimate the likelihood of machines.

    MODEL, one or several, is a machine of any kind: an NPZ file (docs/machines.md), or
    RUN:TRIAL, as `cbm best` prints it. cbm evaluates it on all parts of --data. Without
    --data, --exact and --ais print log Z alone. In a results folder, cbm evaluates
    every trial on all parts of its own data, prints the mean of each cell, and adds
    columns to summary.csv. If you interrupt it, the same command continues. Diverged
    and damaged trials are named and left out. Then, or if no trial is finished, the
    exit code is 3.

    For a deep machine --exact prints the log-likelihood and its mean-field bound, --ais
    the bound with its log Z. For an auto encoder, which has no likelihood, cbm prints
    the mean cost.
    """
    from cbm_cli.datasets.published import data_in
    from cbm_cli.machines.likelihood import Method
    from cbm_cli.results.writing import locked

    ctx, name, models = click.get_current_context(), method or "exact", target.models()
    for option in ctx.params:
        if ctx.get_parameter_source(option) is ParameterSource.COMMANDLINE:
            if name not in _OF_METHODS.get(option, (name,)):
                raise CbmError(f"--{option}: has no effect with --{name}; remove it")
            if models and option in ("select", "again"):
                raise CbmError(
                    f"--{option} is for results; name a folder, or remove it"
                )
    jobs, again = how.pop("jobs"), how.pop("again")
    workers, chosen = cores() if jobs is None else jobs, Method(method, **how)
    if models:
        _evaluate_files(models, source, chosen, as_json, workers)
        return
    folder = folder_of_data(source)
    with (
        target.results().readable(target.names) as stores,
        locked(target.folder),
        data_in(folder),
    ):
        whole = _evaluate_results(
            stores, select, chosen, as_json, {"workers": workers, "again": again}
        )
    if not whole:
        raise SystemExit(IncompleteError.exit_code)


def _evaluate_files(
    paths: Sequence[Path], source: str | None, how: Method, as_json: bool, jobs: int
) -> None:
    """Evaluate machine files; of several, or on several parts, print names before their
    values.
    """
    from cbm_cli.datasets.loading import load_source
    from cbm_cli.machines.files import read_machine
    from cbm_cli.machines.likelihood import doubt_of, evaluate, no_parts, parts_of
    from cbm_cli.machines.threads import one_thread, using_cores

    for path in paths:
        machine = read_machine(path)
        if source is not None:
            parts = parts_of(load_source(source, machine.sizes[0], machine.names), how)
        elif machine.kind == "auto-encoder" or how.name not in ("exact", "ais"):
            raise CbmError(
                f"{path}: name the rows to evaluate it on with --data NAME or "
                "--data "
                "FILE"
            )
        elif how.rows:
            raise CbmError("--rows: has no effect without --data; remove it")
        else:
            parts = no_parts(machine.sizes[0])
            proof = ", and its proved bound rests on states of chains alone" * (
                how.name == "ais"
            )
            note(f"{path}: without --data only log Z is known{proof}")
        with one_thread(), using_cores(jobs):
            common, by_part = evaluate(machine, parts, how, str(path))
        doubts = dict[str, None]()  # what is said of log Z is the same for all parts
        for part, answer in (by_part or {"": {}}).items():
            whole = common | answer
            if doubt := doubt_of(whole):
                doubts[
                    f"{doubt}; trust neither it nor its error; use more --temperatures"
                ] = None
            if rows := whole.get("mean_field_unsettled"):
                unsettled = f"mean field has not settled for {count(rows, 'row')}"
                doubts[f"{unsettled}; their bounds hold, but could be closer"] = None
            name = {"model": str(path)} if len(paths) > 1 else {}
            name |= {"part": part} if len(by_part) > 1 else {}
            if as_json:
                click.echo(valid_json(name | whole))
            else:
                say("\n".join([*name.values(), *_shown(whole)]))
        for doubt in doubts:
            note(f"warning: {path}: {doubt}")


def _shown(answer: dict[str, Any]) -> list[str]:
    """Return the lines of an answer about a machine, or about a part of the data."""
    lines = list[tuple[str, str]]()
    if "log_z" in answer:
        error = answer.get("log_z_standard_error")
        spread = f" ± {error:.6f}" if error is not None else ""
        lines.append(
            ("log Z", f"{answer['log_z']:.6f}{spread} (plain energy, without offsets)")
        )
        if answer["log_z_centered"] != answer["log_z"]:
            lines.append(
                (
                    "",
                    (
                        f"{answer['log_z_centered']:.6f}{spread} (centered energy of "
                        "the "
                        "file)"
                    ),
                )
            )
    if "log_z_interval" in answer:
        low, high = answer["log_z_interval"]
        lines.append(
            ("", f"{low:.6f} to {high:.6f} (± 3 standard errors of the mean weight)")
        )
        lines.append(("", f"{answer['effective_sample_size']:.1f} effective runs"))
        lines.append(
            (
                "",
                (
                    f"{answer['log_z_at_least']:.6f} at least, proved in "
                    f"{answer['precision']}"
                ),
            )
        )
    if "reverse_log_z" in answer:
        spread = f" ± {answer['reverse_log_z_standard_error']:.6f}"
        value = f"{answer['reverse_log_z']:.6f}{spread} (from exact samples downwards)"
        lines.append(("reverse log Z", value))
    for name, words in _QUANTITIES.items():
        if its := answer.get(name):
            lines.append((words, f"{its['mean']:.6f} nats per row ({its['n']} rows)"))
            lines.append(("", f"{its['total']:.6f} nats of all {its['n']} rows"))
    return [f"{words:<15} {value}" for words, value in lines]


def _evaluate_results(
    stores: Sequence[Store],
    wanted: Pairs,
    how: Method,
    as_json: bool,
    effort: Mapping[str, Any],
) -> bool:
    """Evaluate the trials of experiments; return whether all of them could be."""
    from cbm_cli.results.selection import select_cells

    whole, manifests = True, select_cells([one.manifest() for one in stores], wanted)
    for store, manifest in zip(stores, manifests, strict=True):
        if wanted and not manifest.cells:
            continue
        damaged = store.damaged()
        for problem in damaged.values():
            note(f"{problem}; cbm run repeats what is lost")
        found = _all_of(store, manifest, how, as_json, effort)
        places = {
            cell["run_id"]: place for place, cell in enumerate(store.manifest().cells)
        }
        found.sort(key=lambda one: (places[one.cell["run_id"]], one.number))
        evaluated, kept = (
            sum(bool(one.columns) for one in found),
            sum(one.before for one in found),
        )
        if evaluated and not as_json:
            _print_evaluated(store, found)
        if kept:
            trials = count(kept, "trial")
            note(
                f"{store.experiment}: {trials} evaluated before; --again evaluates "
                "them again"
            )
        _note_others(store, found)
        if evaluated > kept:
            note(f"{store.folder / 'summary.csv'}: columns added")
        whole = (
            whole
            and bool(found)
            and not damaged
            and not any(one.problem for one in found)
        )
    return whole


def _all_of(
    store: Store, manifest: Any, how: Method, as_json: bool, effort: Mapping[str, Any]
) -> list[Evaluated]:
    """Return what evaluations find, and print it as JSON as it comes: of several
    workers in any order.
    """
    from cbm_cli.execution.evaluate import evaluate_trials

    found, total = (
        list[Any](),
        sum(len(store.finished(cell["run_id"])) for cell in manifest.cells),
    )

    def status() -> list[str]:
        return [f"{store.experiment}: {len(found):,} of {total:,} trials"]

    try:
        with (
            live(lambda: len(found) / max(total, 1), status) as tell,
            closing(
                evaluate_trials(store, how, manifest, **effort, say=tell)
            ) as trials,
        ):
            for one in trials:
                found.append(one)
                if one.columns and as_json:
                    about = {
                        "experiment": store.experiment,
                        "trial": f"{one.cell['run_id']} {one.number}",
                    }
                    click.echo(valid_json(about | one.columns))
    except KeyboardInterrupt:
        done, again = (
            sum(not one.before for one in found),
            "without --again " * effort["again"],
        )
        note(
            f"\nInterrupted; {count(done, 'trial')} evaluated; the same command "
            f"{again}continues."
        )
        raise
    return found


def _print_evaluated(store: Store, found: Sequence[Evaluated]) -> None:
    """Print a line per cell: the settings that vary, the number of trials, the mean of
    each column.
    """
    from cbm_cli.results.folder import axes_of

    say(f"{store.experiment}: means over trials, in nats per row")
    axes = axes_of(store.manifest())
    trials: dict[tuple[str, ...], list[dict[str, float]]] = {}
    for one in (one for one in found if one.columns):
        trials.setdefault(
            tuple(text_of(one.cell.get(axis)) for axis in axes), []
        ).append(one.columns)
    numbers = (
        name
        for one in found
        for name, value in one.columns.items()
        if isinstance(value, float)
    )
    names = dict.fromkeys(
        name for name in numbers if not any(word in name for word in _HIDDEN)
    )
    rows = []
    for settings, its in trials.items():
        means = (
            fmean(columns.get(name, math.nan) for columns in its) for name in names
        )
        shown = ("" if math.isnan(mean) else decimal(mean, ".4f") for mean in means)
        rows.append((*settings, str(len(its)), *shown))
    print_list((*axes, "trials", *names), rows)


def _note_others(store: Store, found: Sequence[Evaluated]) -> None:
    """Say which trials were not evaluated, and why, and how many estimates are
    doubtful.
    """
    flags = [
        [value for name, value in one.columns.items() if name.endswith("_doubtful")]
        for one in found
    ]
    if few := sum(map(any, flags)):
        what = "rests on too few runs, or known states or reverse AIS disprove it"
        note(
            f"warning: {store.experiment}: the estimate of log Z of "
            f"{count(few, 'trial')} {what}"
        )
    alike = dict[str, list[str]]()
    for one in found:
        trial = f"trial {one.number} of {one.cell['run_id']}"
        if one.diverged:
            note(f"{store.experiment}: {trial} has diverged; it has no likelihood")
        elif not one.columns:
            why = (
                one.problem
                or "an auto encoder has no likelihood; its cost is in summary.csv"
            )
            alike.setdefault(why, []).append(trial)
    for why, trials in alike.items():
        more = f" and {len(trials) - 1:,} more" * (len(trials) > 1)
        note(f"{store.experiment}: {trials[0]}{more} left out: {why}")
    if not found:
        note(f"{store.experiment}: no trial is finished yet; start with: cbm run")
