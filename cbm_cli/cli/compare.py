"""``cbm compare``: published beside obtained."""

from pathlib import Path

import click

from cbm_cli.cli.common import results_argument


@click.command()
@results_argument
@click.option(
    "-f", "--format", "format_", type=click.Choice(["text", "markdown", "csv", "json"]), default="text"
)
def compare(results: Path, format_: str) -> None:
    """Compare results with the values that the paper published."""
    from rich.console import Console

    from cbm_cli.results import Results
    from cbm_cli.statistics import compare as compare_with_published
    from cbm_cli.statistics import render_comparison

    console = Console()
    comparison = compare_with_published(Results(results).all_summaries())
    text = render_comparison(comparison, format_, console if console.is_terminal else None)
    click.echo(text.rstrip("\n"))
