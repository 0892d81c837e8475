"""Limits on sums over all states, checked before anything runs."""

from functools import cache
from numbers import Integral
from typing import Any

from cbm_cli.arrays import MOST_BYTES
from cbm_cli.errors import CbmError

SUM_BITS = 25  # units of the smaller side of a machine whose states are summed
LISTED_BITS = 16  # units whose states are all kept in memory: phases, samples, Fisher
ROWS_BITS = 30  # states of all sums for the rows of a deep machine together


def check_whole(place: str, least: int, **numbers: Any) -> None:
    """Raise CbmError if a number is given that is not a whole one from ``least`` to
    2^64 - 1.

    Examples
    --------
    >>> check_whole("evaluate", 2, runs=1)
    Traceback (most recent call last):
    cbm_cli.errors.CbmError: evaluate: runs must be a whole number of 2 or more, not 1
    """
    for name, number in numbers.items():
        if number is None:
            continue
        is_whole = isinstance(number, Integral)
        if not is_whole or not least <= int(number) < 2**64:
            raise CbmError(
                f"{place}: {name} must be a whole number of {least} or more, not "
                f"{number!r}"
            )


def check_room(place: str, **numbers: int) -> None:
    """Raise CbmError for a name that asks for more numbers in float32 than `MOST_BYTES`
    hold.
    """
    for name, count in numbers.items():
        if 4 * count > MOST_BYTES:
            raise CbmError(
                f"{place}: {name} takes an array of {count:,} numbers; the limit is "
                f"{MOST_BYTES // 4:,}: write a smaller number"
            )


@cache  # training asks at every evaluation
def check_likelihood(
    sizes: tuple[int, ...], rows: int, place: str, remedy: str
) -> None:
    """Raise CbmError for an exact likelihood that would sum too many states: more than
    25 units on the smaller side.

    With two hidden layers or more (``sizes`` are n_0, ..., n_L), each row needs a sum
    over the hidden states: 2^30 in all rows at most.

    Examples
    --------
    >>> check_likelihood((25, 100), 500, "evaluate", "use --ais")
    >>> check_likelihood((30, 100), 500, "evaluate", "use --ais")
    ... # doctest: +ELLIPSIS
    Traceback (most recent call last):
    cbm_cli.errors.CbmError: evaluate: an exact likelihood sums 2^30 states ...
    """
    even, odd = sum(sizes[::2]), sum(sizes[1::2])
    what = "an exact likelihood"
    check_smaller_side(place, what, even, odd, SUM_BITS, remedy)
    deep = even - sizes[0]
    if rows << min(deep, odd) > 1 << ROWS_BITS:
        states = f"{_states(min(deep, odd), deep, odd)} for each of {rows:,} rows"
        remedy = f"{remedy}, or evaluate fewer rows"
        raise _too_many(place, f"{what} sums {states}", ROWS_BITS, remedy)


def check_smaller_side(
    field: str, what: str, n: int, m: int, limit: int, remedy: str
) -> None:
    """Raise CbmError if the smaller side of n x m units has more than 2^limit
    states.
    """
    if min(n, m) > limit:
        raise _too_many(field, f"{what} sums {_states(min(n, m), n, m)}", limit, remedy)


def check_fisher(
    field: str, fisher: str, damping: float, n: int, m: int, remedy: str
) -> None:
    """Raise CbmError for a Fisher matrix (joint, marginal or diagonal) that is too
    large or singular.

    It is too large if it sums more than 2^16 joint states of n visible and m hidden
    units. ``damping`` is added to its diagonal.
    """
    if n + m > LISTED_BITS:
        sums = f"the exact Fisher matrix sums {_states(n + m, n, m)}"
        raise _too_many(field, sums, LISTED_BITS, remedy)
    rank, parameters = 2**n - 1, (n + 1) * (m + 1) - 1
    if fisher == "marginal" and not damping and rank < parameters:
        raise CbmError(
            f"the marginal Fisher matrix is singular: its rank is at most 2^{n} - 1 = "
            f"{rank}, with {parameters} parameters; give damping, such as 0.01, or "
            "take the joint one",
            field=field,
        )


def _states(bits: int, n: int, m: int) -> str:
    return f"2^{bits} states of {n}x{m} units"


def _too_many(field: str, sums: str, limit: int, remedy: str) -> CbmError:
    return CbmError(f"{sums}; the limit is 2^{limit}: {remedy}", field=field)
