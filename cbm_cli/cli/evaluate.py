"""``cbm evaluate``: the likelihood of machines, exact, estimated or bounded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cbm_cli.cli.common import note
from cbm_cli.errors import CbmError

if TYPE_CHECKING:
    from cbm_cli.trial.evaluation import Method


@click.command()
@click.argument("target", default="results/", type=click.Path(path_type=Path), metavar="[RESULTS|MODEL.npz]")
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@click.option("--exact", "method", flag_value="exact", default=True, help="Sum over all states (default).")
@click.option("--ais", "method", flag_value="ais", help="Estimate by annealed importance sampling.")
@click.option("--raise", "method", flag_value="raise", help="Lower bound by reverse annealing (RAISE).")
@click.option("--data", "source", metavar="NAME|FILE", help="Rows: a data set's name, or a file.")
@click.option(
    "--part", type=click.Choice(["train", "valid", "test"]), default="train", help="Of a named set."
)
@click.option("--temperatures", type=click.IntRange(3), default=14_500, show_default=True)
@click.option(
    "--runs", type=click.IntRange(2), default=100, show_default=True, help="Independent runs of AIS."
)
@click.option("--base", type=click.Choice(["base-rate", "uniform"]), default="base-rate", show_default=True)
@click.option("--rows", type=click.IntRange(1), help="Evaluate a fixed subsample of this many rows.")
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def evaluate(
    target: Path,
    experiments: tuple[str, ...],
    method: str,
    source: str | None,
    part: str,
    temperatures: int,
    runs: int,
    base: str,
    rows: int | None,
    seed: int,
    as_json: bool,
) -> None:
    """Evaluate a machine file of anyone's, or add columns to the finished trials of RESULTS.

    MODEL.npz holds weights_0 (N, M), biases_0 (N), biases_1 (M) and, for a centered machine, offsets_0
    and offsets_1; it needs --data. Of a results folder, every part of each trial's own data is evaluated.
    """
    from cbm_cli.trial.evaluation import Method

    if method == "raise" and rows is None:
        rows = 100
        note("RAISE anneals from every row: evaluating 100 of them (--rows changes this)")
    how = Method(method, temperatures, runs, base == "uniform", rows, seed)
    if target.suffix == ".npz" or target.is_file():
        answer = _evaluate_file(target, source, part, how)
        click.echo(json.dumps(answer) if as_json else _shown(answer))
        return
    if source:
        raise CbmError("--data is for a machine file; trials are evaluated on the data they were trained on")
    _evaluate_results(target, experiments, how, as_json)


def _evaluate_file(path: Path, source: str | None, part: str, how: Method) -> dict[str, Any]:
    from cbm_cli.datasets import load_rows
    from cbm_cli.results import read_machine
    from cbm_cli.trial.evaluation import base_of_rows, evaluate_machine

    machine = read_machine(path)
    if source is None:
        raise CbmError(f"{path}: name the rows to evaluate it on with --data NAME or --data FILE")
    rows, unit = load_rows(source, part, machine.W.shape[0])
    answer = evaluate_machine(machine, rows, unit, base_of_rows(rows, unit, how.uniform_base), how, str(path))
    _warn(answer, str(path))
    return answer


def _evaluate_results(folder: Path, experiments: tuple[str, ...], how: Method, as_json: bool) -> None:
    from cbm_cli.execution import evaluate_trials
    from cbm_cli.results import Results

    results = Results(folder)
    for experiment in experiments or results.require_experiments():
        for title, columns in evaluate_trials(results.store(experiment), how):
            if as_json:
                click.echo(json.dumps({"experiment": experiment, "trial": title} | columns))
            else:
                values = ", ".join(f"{name} {value:.4f}" for name, value in columns.items())
                click.echo(f"{experiment}: {title}: {values}")
        note(f"{results.store(experiment).folder / 'summary.csv'}: columns added")


def _warn(answer: dict[str, Any], name: str) -> None:
    if answer.get("doubtful"):
        effective = answer["effective_sample_size"]
        note(
            f"warning: {name}: only {effective:.1f} effective runs carry the estimate; trust neither it nor "
            "its error: use more --temperatures, and compare --raise"
        )


def _shown(answer: dict[str, Any]) -> str:
    likelihood = answer["log_likelihood"]
    lines = []
    if "log_z" in answer:
        error = answer.get("log_z_standard_error")
        lines.append(
            f"log Z           {answer['log_z']:.6f}" + (f" ± {error:.6f}" if error is not None else "")
        )
    if "log_z_interval" in answer:
        low, high = answer["log_z_interval"]
        lines.append(f"                {low:.6f} to {high:.6f} (± 3 standard errors of the mean weight)")
        lines.append(f"                {answer['effective_sample_size']:.1f} effective runs")
    if "reverse_log_z" in answer:
        error = answer["reverse_log_z_standard_error"]
        lines.append(
            f"reverse log Z   {answer['reverse_log_z']:.6f} ± {error:.6f} (from exact samples downwards)"
        )
    kind = "lower bound    " if answer["method"] == "raise" else "log-likelihood "
    lines.append(f"{kind} {likelihood['mean']:.6f} nats per row ({likelihood['n']} rows)")
    lines.append(f"                {likelihood['total']:.6f} nats in all")
    return "\n".join(lines)
