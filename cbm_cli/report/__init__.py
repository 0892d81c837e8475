"""Pictures of results."""

from cbm_cli.report.curves import plot_curves

__all__ = ["plot_curves"]
