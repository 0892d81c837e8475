"""Limits on sums over all states, checked before anything runs."""

from functools import cache
from numbers import Integral
from typing import Any

from cbm_cli.arrays import MOST_BYTES
from cbm_cli.errors import CbmError

LIKELIHOOD_BITS = 30  # an exact likelihood sums at most 2^30 states
PHASE_BITS = 16  # an exact model phase keeps all states of the smaller side in memory
FISHER_BITS = 16  # an exact Fisher matrix sums all joint states
RECORDER_BITS = 20  # a recorder sums the states of the smaller side at every record


def check_whole(place: str, least: int, **numbers: Any) -> None:
    """Raise CbmError if a number is given that is not a whole one from ``least`` to
    2^64 - 1.
    """
    for name, number in numbers.items():
        if number is not None and not (
            isinstance(number, Integral) and least <= int(number) < 2**64
        ):
            told = (
                f"{place}: {name} must be a whole number of {least} or more, not "
                f"{number!r}"
            )
            raise CbmError(told)


def check_room(place: str, **numbers: int) -> None:
    """Raise CbmError for a name that asks for more numbers in float32 than `MOST_BYTES`
    hold.
    """
    for name, count in numbers.items():
        if 4 * count > MOST_BYTES:
            told = (
                f"{name} takes an array of {count:,} numbers; the limit is "
                f"{MOST_BYTES // 4:,}"
            )
            raise CbmError(f"{place}: {told}: write a smaller number")


@cache  # training asks at every evaluation
def check_likelihood(
    sizes: tuple[int, ...], rows: int, place: str, remedy: str
) -> None:
    """Raise CbmError for an exact likelihood that would sum more than 2^30 states.

    With two hidden layers or more (``sizes`` are n_0, ..., n_L), each row needs a sum
    over the hidden states.
    """
    even, odd = sum(sizes[::2]), sum(sizes[1::2])
    for n, m, count in (
        (even, odd, 1),
        (even - sizes[0], odd, rows),
    ):  # log Z; the sum for each row
        if count << min(n, m) > 1 << LIKELIHOOD_BITS:
            each = f" for each of {count:,} rows" if count > 1 else ""
            remedy += ", or evaluate fewer rows" if count > 1 else ""
            told = f"an exact likelihood sums {_states(min(n, m), n, m)}{each}"
            raise _too_many(place, told, LIKELIHOOD_BITS, remedy)


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
    if n + m > FISHER_BITS:
        raise _too_many(
            field,
            f"the exact Fisher matrix sums {_states(n + m, n, m)}",
            FISHER_BITS,
            remedy,
        )
    rank, parameters = 2**n - 1, (n + 1) * (m + 1) - 1
    if fisher == "marginal" and not damping and rank < parameters:
        raise CbmError(
            f"the marginal Fisher matrix is singular: its rank is at most 2^{n} - 1 = "
            f"{rank}, with "
            f"{parameters} parameters; give damping, such as 0.01, or take the joint "
            "one",
            field=field,
        )


def _states(bits: int, n: int, m: int) -> str:
    return f"2^{bits} states of {n}x{m} units"


def _too_many(field: str, told: str, limit: int, remedy: str) -> CbmError:
    return CbmError(f"{told}; the limit is 2^{limit}: {remedy}", field=field)
