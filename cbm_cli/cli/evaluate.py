"""``cbm evaluate``: the likelihood of a machine file."""

from pathlib import Path

import click


@click.command()
@click.argument("model", type=click.Path(path_type=Path), metavar="MODEL.npz")
@click.option("--exact", is_flag=True, help="Sum over all states of the smaller side (the default).")
@click.option(
    "--data", "source", required=True, metavar="NAME|FILE", help="A data set's name, or a file of rows."
)
@click.option(
    "--part", type=click.Choice(["train", "valid", "test"]), help="Part of a named set; default: train."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def evaluate(model: Path, exact: bool, source: str, part: str | None, as_json: bool) -> None:
    """Print log Z and the log-likelihood of a machine, whoever made the file.

    MODEL.npz holds weights_0 (N, M), biases_0 (N), biases_1 (M) and, for a centered machine, offsets_0
    and offsets_1. FILE is .npy, .csv or text of zeros and ones, or IDX; plain or gzipped.
    """
    import json

    from cbm_cli.datasets import load_rows
    from cbm_cli.results import read_machine
    from cbm_cli.trial.evaluation import evaluate_exactly

    del exact  # the only method so far
    rows, unit = load_rows(source, part or "train")
    answer = evaluate_exactly(read_machine(model), rows, unit, str(model))
    if as_json:
        click.echo(json.dumps(answer))
        return
    likelihood = answer["log_likelihood"]
    click.echo(f"log Z           {answer['log_z']:.6f}")
    click.echo(f"log-likelihood  {likelihood['mean']:.6f} nats per row ({likelihood['n']} rows)")
    click.echo(f"                {likelihood['total']:.6f} nats in all")
