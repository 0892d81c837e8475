"""Threads that share the work of one call: all run the same loop, each over its own share of every array.

Every number is computed by one thread in an order that does not depend on how many there are, and random
numbers are functions of their place: a call has the same bytes on any number of threads. A thread keeps its
columns from a product to the units and their means; it meets the others before it reads what they wrote.
None instead of a team compiles to a loop without meetings, for machines that are too small to share
(docs/decisions/0060-threads-inside-a-trial.md).
"""

import os
import platform
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from cbm_cli.cores import cores
from cbm_cli.kernels.compiling import lean, merged, specialised
from cbm_cli.kernels.machine import aligned

_LONG = ir.IntType(64)
_SPINS = 400  # looks at the counter, with a pause after each, before another process may run: about 12 us
_WIDE, _NARROW = 64, 48  # columns of the panels of a product, which no two threads share
_TILE = 24  # rows of a product that BLAS makes at once, or a multiple of them
_TRIES, _WORTH = 3, 3.0  # calls of each number of threads at first, unless they take so many times as long
_TURN = 40  # calls after which another number than the best is tried again; more if it is slower
_LITTLE = 2**20  # weights times rows below which an update is not shared: about 40 us


class Team(NamedTuple):
    """What a thread knows of those that it shares a call with."""

    arrivals: NDArray[np.int64]  # (2,) of all threads at all meetings; not 0 once nobody waits any more
    notes: NDArray[np.int64]  # (threads,) a number of each
    thread: int
    threads: int
    splits: bool  # whether BLAS makes rows of a product with the same bytes as the whole


def make_teams(threads: int, splits: bool = False) -> list[Team]:
    """The same team as each of its threads sees it; the counters have cache lines of their own."""
    words = np.zeros(16 + 8 + threads + 8, np.int64)
    first = -words.ctypes.data // 8 % 8
    arrivals, notes = words[first : first + 2], words[first + 8 : first + 8 + threads]
    return [Team(arrivals, notes, thread, threads, splits) for thread in range(threads)]


@intrinsic
def _arrive(typingctx, arrivals, threads):
    """Count this thread in and wait until all have come; all that they wrote before can be read after."""

    # The counter only grows: arrival k is one of meeting k / threads, which is over at the next multiple.
    def codegen(context, builder, sig, args):
        def call(name, kind):
            builder.call(cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, []), name), [])

        place = context.make_array(sig.args[0])(context, builder, args[0]).data
        mine = builder.atomic_rmw("add", place, _LONG(1), "acq_rel")
        goal = builder.mul(builder.add(builder.udiv(mine, args[1]), _LONG(1)), args[1])
        spins = cgutils.alloca_once_value(builder, _LONG(0))
        builder.store(_LONG(0), spins)
        look, over, wait, give_way, done = (builder.append_basic_block() for _ in range(5))
        builder.branch(look)
        builder.position_at_end(look)
        come = builder.load_atomic(place, "acquire", 8)
        builder.cbranch(builder.icmp_signed(">=", come, goal), done, over)
        builder.position_at_end(over)
        left = builder.load_atomic(builder.gep(place, [_LONG(1)]), "acquire", 8)
        builder.cbranch(builder.icmp_signed("!=", left, _LONG(0)), done, wait)
        builder.position_at_end(wait)
        count = builder.add(builder.load(spins), _LONG(1))
        builder.store(count, spins)
        if platform.machine() in ("x86_64", "AMD64"):
            call("llvm.x86.sse2.pause", ir.VoidType())
        builder.cbranch(builder.icmp_signed("<", count, _LONG(_SPINS)), look, give_way)
        builder.position_at_end(give_way)
        if os.name == "posix":
            call("sched_yield", ir.IntType(32))
        builder.branch(look)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(arrivals, types.int64), codegen


@lean
def meet(team: Team | None) -> None:
    """Wait for the other threads."""
    if team is not None:  # decided when it is compiled
        _arrive(team.arrivals, np.int64(team.threads))


@merged
def leads(team: Team | None) -> bool:
    """Whether this thread does what only one does."""
    if team is None:
        return True
    return team.thread == 0


@merged
def is_alone(team: Team | None) -> bool:
    """Whether there is no other thread."""
    if team is None:
        return True
    return team.threads == 1


@lean
def total(team: Team | None, mine: int) -> int:
    """Sum of a number of every thread."""
    if team is None:
        return mine
    team.notes[team.thread] = mine
    meet(team)
    found = 0
    for number in team.notes:
        found += number
    meet(team)
    return found


@merged
def share(team: Team | None, count: int) -> tuple[int, int]:
    """This thread's share of so many rows: the first one, and the one after the last."""
    if team is None:
        return 0, count
    return count * team.thread // team.threads, count * (team.thread + 1) // team.threads


@merged
def rows_of(team: Team | None, rows: int) -> tuple[int, int]:
    """This thread's share of the rows of a product by BLAS: whole tiles, or all or none if BLAS adds up in
    another order where rows are fewer.
    """
    if team is None:
        return 0, rows
    if not team.splits:
        return 0, rows if team.thread == 0 else 0
    first, last = share(team, (rows + _TILE - 1) // _TILE)
    return min(first * _TILE, rows), min(last * _TILE, rows)


@merged
def columns_of(team: Team | None, columns: int) -> tuple[int, int]:
    """This thread's share of so many columns, in whole panels of a product."""
    if team is None:
        return 0, columns
    return _edge(columns, team.thread, team.threads), _edge(columns, team.thread + 1, team.threads)


@lean
def width_of_panel(columns: int) -> int:
    """Columns of the next panel where so many are left: panels of 48 keep the last one from being narrow."""
    vectors = (columns + 15) // 16
    if vectors == 1:
        return 16
    return _NARROW if vectors % 4 else _WIDE


@lean
def _edge(columns: int, thread: int, threads: int) -> int:
    """The edge between two panels where a thread's share begins: that nearest to an even share."""
    if thread == threads:
        return columns
    goal, narrow = columns * thread // threads, -((columns + 15) // 16) % 4 * _NARROW
    if goal < narrow:
        return min(columns, (goal + _NARROW // 2) // _NARROW * _NARROW)
    return min(columns, narrow + (goal - narrow + _WIDE // 2) // _WIDE * _WIDE)


@merged
def units_of(team: Team | None, width: int, units: int) -> tuple[int, int, int, int]:
    """This thread's units in long rows of ``width``, each some rows of so many units, as `units.Runs`."""
    if is_alone(team):
        return 1, 0, 0, width
    first, last = columns_of(team, units)
    return width // units, units, first, last - first


# From Python

CORES: ContextVar[int] = ContextVar("cores", default=1)  # that the work of this context may use


def use_cores(count: int) -> Token[int]:
    """Let what runs in this context use so many cores, of those that there are.

    What it computes does not depend on their number.
    """
    return CORES.set(min(count, cores()) if count > 1 else 1)


@contextmanager
def using_cores(count: int) -> Iterator[None]:
    """`use_cores` for a while."""
    before = use_cores(count)
    try:
        yield
    finally:
        CORES.reset(before)


def is_shared(rows: int, n: int, m: int) -> bool:
    """Whether work with so many rows of a machine is enough for several threads."""
    return rows * n * m >= _LITTLE


def seen_by(team: Team, work: Any, fresh: bool = True) -> Any:
    """The work of one thread: the same arrays, but ``fresh`` ones of those that a tuple calls its own."""
    if not isinstance(work, tuple) or isinstance(work, Team):
        return work
    if not hasattr(work, "_fields"):
        return tuple(seen_by(team, part, fresh) for part in work)
    own = getattr(work, "own", ()) if fresh else ()
    parts = {name: seen_by(team, part, fresh) for name, part in work._asdict().items()}
    parts |= {name: aligned(parts[name], parts[name].dtype) for name in own}
    return work._replace(**parts | ({"team": team} if "team" in work._fields else {}))


class Pace:
    """How many threads make the fastest calls, found by trying: cores may be slow, shared or taken."""

    def __init__(self) -> None:
        self.times: dict[int, deque[float]] = {}  # of one thing in the last two calls, by threads
        self.calls: Counter[int] = Counter()
        self.latest: Counter[int] = Counter()  # which call was the last with so many threads

    def threads(self, most: int) -> int:
        """How many threads, up to ``most``, the next call takes.

        Each number is tried at first; later those that were not the best are tried again, the slower the
        more rarely, so that tries take some percent of the time at most.
        """
        options = sorted({min(most, 2**k) for k in range(most.bit_length() + 1)})
        known = {option: min(self.times[option]) for option in options if option in self.times}
        least = min(known.values(), default=1.0)
        slower = {option: known.get(option, 0.0) / least for option in options}
        now = self.calls.total()

        def is_due(option: int) -> bool:
            if self.calls[option] < _TRIES:
                return slower[option] < _WORTH
            return now - self.latest[option] > _TURN * slower[option]

        due = [option for option in options if is_due(option)]
        return min(due, key=self.calls.__getitem__) if due else min(options, key=slower.__getitem__)

    def call(self, threads: int, work: Callable[[], None], things: int) -> None:
        """Make a call that does so many things, and remember how long it took, but for the very first."""
        began = time.perf_counter()
        work()
        if self.latest:
            times = self.times.setdefault(threads, deque(maxlen=2))
            times.append((time.perf_counter() - began) / max(1, things))
            self.calls[threads] += 1
        self.latest[threads] = self.calls.total()


class Crew:
    """A compiled function and its work, whose calls are shared by as many threads as are fastest.

    Parameters
    ----------
    kernel : callable
        A compiled function that returns nothing.
    work : tuple
        Its first arguments.
    rest : tuple
        Examples of the others.
    shared : bool
        Whether the work is enough for several threads: if not, no meetings are compiled.
    splits : callable
        Whether BLAS makes this work's products in parts for so many threads with the bytes of whole ones.
    """

    def __init__(
        self,
        kernel: Callable[..., Any],
        work: tuple,
        rest: tuple,
        shared: bool,
        splits: Callable[[int], bool] = lambda threads: True,
    ) -> None:
        self.work, self.shared, self.splits = work, shared, splits
        self.most, self.pace = 2**10 if shared else 1, Pace()
        self.calls: dict[
            int, tuple[list[Team], list[tuple]]
        ] = {}  # teams and works, by the number of threads
        if shared:
            self.work = seen_by(make_teams(1, True)[0], work, fresh=False)
        self.kernel = specialised(kernel, *self.work, *rest)

    def __call__(self, things: int, *rest: object) -> None:
        """Do the work, which consists of so many things."""
        if self.most == 1:
            self.kernel(*self.work, *rest)
            return
        threads = self.pace.threads(min(CORES.get(), self.most))
        if threads > 1 and threads not in self.calls:
            teams = make_teams(threads, self.splits(threads))
            self.calls[threads] = teams, [seen_by(team, self.work, team.thread > 0) for team in teams]
        try:
            self.pace.call(threads, partial(self._share, threads, rest), things)
        except RuntimeError:  # there cannot be so many threads
            self.most = 1
            self._share(1, rest)

    def _share(self, threads: int, rest: tuple) -> None:
        if threads == 1:
            self.kernel(*self.work, *rest)
        else:
            teams, works = self.calls[threads]
            run_together(self.kernel, [(*work, *rest) for work in works], teams[0].arrivals)


def run_together(kernel: Callable[..., Any], calls: Sequence[tuple], arrivals: NDArray) -> None:
    """Call a compiled function on a thread for each tuple of arguments, the first of them on this thread.

    Raises RuntimeError if there cannot be as many threads; then none has done anything.
    """
    gate, open_ = threading.Event(), []
    arrivals[:] = 0

    def follow(call: tuple) -> None:
        gate.wait()
        if open_:
            kernel(*call)

    others = [threading.Thread(target=follow, args=(call,), daemon=True) for call in calls[1:]]
    try:
        for thread in others:
            thread.start()
        open_.append(True)
        gate.set()
        kernel(*calls[0])
    except BaseException:
        arrivals[1] = 1  # nobody waits for this thread
        raise
    finally:
        gate.set()
        for thread in others:
            if thread.ident is not None:
                thread.join()


def share_out(things: Iterable[int], make: Callable[[], Callable[[int], None]]) -> None:
    """Do independent things on as many threads as there are cores; each takes the next one when it is free.

    ``make`` returns what does a thing, with work arrays of its own, for each thread.
    """
    left, errors = deque(things), []

    def follow() -> None:
        try:
            do = make()
            while left:
                do(left.popleft())
        except IndexError:  # another thread has taken the last one
            pass
        except BaseException as error:
            errors.append(error)

    others = [threading.Thread(target=follow, daemon=True) for _ in range(min(CORES.get(), len(left)) - 1)]
    with suppress(RuntimeError):  # there cannot be as many threads
        for thread in others:
            thread.start()
    follow()
    left.clear()
    for thread in others:
        if thread.ident is not None:
            thread.join()
    if errors:
        raise errors[0]
