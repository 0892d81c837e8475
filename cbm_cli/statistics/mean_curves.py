"""The best of a mean curve, which tables 9 to 12 of the paper print: the maximum of the mean over trials."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from cbm_cli.results import Metric

CurveOf = Callable[[str, str, int], pd.DataFrame]  # of an experiment, a run-id and a trial


def add_best_of_mean(frame: pd.DataFrame, metrics: Sequence[str], curve: CurveOf) -> pd.DataFrame:
    """Return ``summary.csv`` with the values of its trials at the evaluation where their mean is best.

    The columns are ``<metric>_max_of_mean`` and, behind it, ``_update``. The mean is over the trials of a
    run. As for the best of a trial, the untrained machine does not count.
    """
    added = pd.DataFrame(
        np.nan,
        index=frame.index,
        columns=[column for name in metrics for column in best_of_mean_columns(name)],
    )
    for _, rows in frame.groupby("run_id"):
        places = zip(rows["experiment"], rows["run_id"], rows["trial"], strict=True)
        curves = [curve(*place).iloc[1:].set_index("update") for place in places]
        stopped = rows["diverged"].isna().to_numpy()  # whether a curve that ends early keeps its last value
        for name in (name for name in metrics if all(name in one for one in curves)):
            values, update = _at_best_mean([one[name] for one in curves], stopped, Metric(name).better)
            for column, value in zip(best_of_mean_columns(name), (values, update), strict=True):
                added.loc[rows.index, column] = value
    return frame.join(added)


def best_of_mean_columns(metric: str) -> tuple[str, str]:
    """Return the columns with a metric's value and update where the mean over trials is best."""
    return f"{metric}_max_of_mean", f"{metric}_max_of_mean_update"


def _at_best_mean(curves: Sequence[pd.Series], stopped: np.ndarray, better: int) -> tuple[np.ndarray, float]:
    """Return each trial's value where the mean is best, and the update.

    Evaluations from a trial's divergence on do not count, unless it never had a finite value.
    """
    together = pd.concat(curves, axis=1).sort_index().replace([np.inf, -np.inf], np.nan).to_numpy()
    held = np.where(stopped, pd.DataFrame(together).ffill(), together)
    mean = held[:, np.isfinite(held).any(axis=0)].mean(axis=1)
    if not np.isfinite(mean).any():
        return np.full(len(curves), np.nan), np.nan
    best = int(np.nanargmax(better * mean))
    return held[best], float(sorted({update for one in curves for update in one.index})[best])
