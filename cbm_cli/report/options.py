"""Options of `cbm plot`, the same for every kind of picture that can use them."""

from collections.abc import Sequence
from dataclasses import dataclass

from cbm_cli.errors import CbmError

Limits = tuple[float | None, float | None]
FREE: Limits = (None, None)  # of an axis whose ends are not asked for
MOST = {"lines": 32, "panels": 24}  # of a panel or a legend, and of a picture


@dataclass(frozen=True)
class Options:
    """What a picture shows of the results, and how.

    Attributes
    ----------
    select : sequence of (str, str)
        Settings with a value; several values of one setting are alternatives.
    choose : sequence of str, optional
        Settings of which each cell has the best value; by default the table's.
    by : str, optional
        Part of the data that decides which is the best.
    metric : sequence of str
        Columns of curves or records.
    panels : sequence of str, optional
        Settings that make the panels, and ``metric``; all others make lines.
    x : str, optional
        The x axis: updates, epochs, seconds or gradient-steps; of ``settings`` one.
    xlim, ylim : pair of float or None
        Ends of the axes.
    log : sequence of str
        The axes that are logarithmic: x, y.
    smooth : int
        Updates in a running mean.
    statistic : str, optional
        Of curves median or mean; of other kinds that of a trial, by default the
        table's.
    layer : int, optional
        The hidden layer, from 1; by default the last.
    data : str, optional
        The rows that a machine file is shown.
    """

    select: Sequence[tuple[str, str]] = ()
    choose: Sequence[str] | None = None
    by: str | None = None
    metric: Sequence[str] = ()
    panels: Sequence[str] | None = None
    x: str | None = None
    xlim: Limits = FREE
    ylim: Limits = FREE
    log: Sequence[str] = ()
    smooth: int = 1
    statistic: str | None = None
    layer: int | None = None
    data: str | None = None

    @property
    def average(self) -> str:
        """What lines show of the trials: their median, between quartiles, or their mean
        ± a deviation.
        """
        return "mean" if self.statistic == "mean" else "median"


def refuse_without_effect(options: Options, names: Sequence[str], what: str) -> None:
    """Raise CbmError for an option that is given, and that has no effect on what is
    drawn.
    """
    for name in names:
        option = getattr(options, name)
        if option not in (getattr(Options(), name), [], {}):
            raise CbmError(f"--{name}: has no effect on {what}; remove it")


def refuse_too_many(number: int, noun: str, remedy: str) -> None:
    """Raise CbmError if a picture would have more lines or panels than can be read.

    Examples
    --------
    >>> refuse_too_many(128, "lines", "select some")
    Traceback (most recent call last):
    cbm_cli.errors.CbmError: 128 lines are too many to read (at most 32); select some
    """
    most = MOST[noun]
    if number > most:
        raise CbmError(
            f"{number} {noun} are too many to read (at most {most}); {remedy}"
        )
