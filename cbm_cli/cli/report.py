"""``cbm report``: one page of results."""

from pathlib import Path

import click

from cbm_cli.cli.common import check_file, note, results_argument
from cbm_cli.cli.completion import experiments_argument


@click.command()
@results_argument
@experiments_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default="report.html",
    show_default=True,
    help="The HTML file; it needs no other file and no network.",
)
def report(results: Path, experiments: tuple[str, ...], output: Path) -> None:
    """Write one HTML page of results.

    It has an overview, tables, curves, filters, and the paper's values beside them. The page can be filtered
    by scheme, sampler, data and learning rate, sorted, printed and sent as one file. It also shows what is
    unfinished, what has diverged or failed and why, and which versions computed it.
    """
    check_file("-o", output, [".html", ".htm"])
    from cbm_cli.paper.page import beside_the_paper
    from cbm_cli.report.page import write_report
    from cbm_cli.results import Results

    for warning in write_report(Results(results), experiments, output, beside_the_paper):
        note(f"warning: {warning}")
    note(f"wrote {output} ({output.stat().st_size / 1e3:,.0f} kB)")
