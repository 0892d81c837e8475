"""Time one trial, and evaluations of its machine, on several cores beside one; print a Markdown table.

    python benchmarks/threads.py [--cores 2] [--rounds 15] [WORK ...]

Both numbers of threads have turns of some 0.1 s, round after round; the table has medians, and ratios of
medians and of the best turns. In the column "chosen" a trial tries, measures and may fall back, as in
`cbm run`. Rows are MNIST where CBM_DATA_DIR or ../shared/data has it, else random ones. Ratios need
idle cores: the load, processes that want to run, is told above the table.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from timing import UNITS, numbers, target

from cbm_cli.datasets.catalogue import load
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels.annealing import make_walks
from cbm_cli.kernels.machine import empty_trail
from cbm_cli.kernels.states import mean_log_likelihood
from cbm_cli.kernels.team import Pace
from cbm_cli.machines.estimates import annealing, schedule
from cbm_cli.machines.threads import one_thread, using_cores
from cbm_cli.trial.learner import Learner

Turn = Callable[[int], None]  # does so many things, on as many threads as the context and the pace say
TURN, WARM_UP = 0.1, 300  # seconds of a turn; updates after which chains look like data
TRIES = 8  # turns in which a trial tries numbers of threads


class Fixed(Pace):
    """As many threads as there are cores, without trying."""

    def threads(self, most: int) -> int:
        """All."""
        return most


def rows() -> Dataset:
    """MNIST, or random rows with as many units on."""
    try:
        return load("mnist")
    except CbmError:
        on = np.random.default_rng(0).random((60_000, 784)) < 0.13
        return Dataset("random rows", on.astype(np.uint8))


def training(data: Dataset, hidden: list[int], sampler: str) -> tuple[Turn, Callable[[Pace], None]]:
    """Updates of one machine; and what gives them another pace."""
    kind = {"kind": "dbm", "hidden": hidden} if len(hidden) > 1 else {"kind": "rbm", "hidden": hidden[0]}
    offsets = "d" * (1 + len(hidden)) + "^b_s"
    how = {"sampler": sampler, "learning_rate": 0.01, "updates": 10**6, "evaluate": {"method": "none"}}
    learner = Learner(Settings(data={"path": "X"}, model=kind, offsets=offsets, **how), data, 1)
    state, made = learner.start(), 0
    trail = empty_trail(*state.W.shape)

    def turn(n: int) -> None:
        nonlocal made
        learner.advance(state, trail, made, made + n)
        made += n

    turn(1)
    crew = learner._training._crew
    crew.pace.threads = lambda most: 1
    turn(20 if sampler.startswith("PT") else WARM_UP)
    return turn, lambda pace: setattr(crew, "pace", pace)


def ais(data: Dataset) -> tuple[Turn, Callable[[Pace], None]]:
    """Steps of 100 runs of AIS."""
    W, b, c = machine(500)
    betas = schedule()
    walks = make_walks((W, b, c), b, data.train[:100].astype(np.float32))
    crew, made = annealing(walks, betas), 0

    def turn(n: int) -> None:
        nonlocal made
        first = made % (len(betas) - 1 - n)
        crew(n, betas, np.uint64(1), first, first + n)
        made += n

    return turn, lambda pace: setattr(crew, "pace", pace)


def likelihood(data: Dataset) -> tuple[Turn, Callable[[Pace], None]]:
    """Log-likelihoods of all rows given log Z; threads take blocks of rows from a queue."""
    given = (*machine(500), data.train, np.float32(1), 0.0)

    def turn(n: int) -> None:
        for _ in range(n):
            mean_log_likelihood(*given)

    return turn, lambda pace: None


def machine(hidden: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A machine with small weights, as after some training."""
    return (numbers(784, hidden) - 0.5) * 0.1, numbers(784) - 2, numbers(hidden) - 0.5


WORKS: dict[str, tuple[str, Callable[[Dataset], tuple[Turn, Callable[[Pace], None]]]]] = {
    "PCD-1 784x500": ("1.6", lambda data: training(data, [500], "PCD-1")),
    "DBM 784-500-500": ("1.6", lambda data: training(data, [500, 500], "PCD-1")),
    "AIS 784x500": ("1.8", ais),
    "log-likelihood of 60,000 rows": ("1.8", likelihood),
    "PT_20 784x500": ("1.3", lambda data: training(data, [500], "PT_20")),
    "PCD-1 784x16": ("1.0", lambda data: training(data, [16], "PCD-1")),
}


def seconds(turn: Turn, n: int, cores: int) -> float:
    """Seconds of one thing in a turn of n."""
    with one_thread(), using_cores(cores):
        began = time.perf_counter()
        turn(n)
        return (time.perf_counter() - began) / n


def measure(title: str, data: Dataset, cores: int, rounds: int) -> None:
    """Print the row of a work."""
    reach, make = WORKS[title]
    turn, give = make(data)
    give(Fixed())
    for threads in (1, cores):
        seconds(turn, 1, threads)
    n = max(1, min(2000, round(TURN / min(seconds(turn, 1, 1) for _ in range(3)))))
    times: dict[str, list[float]] = {"one": [], "all": [], "chosen": []}
    choosing, fixed = Pace(), Fixed()
    give(choosing)
    for _ in range(TRIES):  # the choice of a trial that has gone on for a while
        seconds(turn, n, cores)
    for _ in range(rounds):
        for name, threads, pace in (("one", 1, fixed), ("all", cores, fixed), ("chosen", cores, choosing)):
            give(pace)
            times[name].append(seconds(turn, n, threads))
    middle = {name: statistics.median(found) for name, found in times.items()}
    scale, unit = next((unit for unit in UNITS if middle["one"] * unit[0] >= 1), UNITS[-1])
    cells = [f"{middle[name] * scale:.3g} {unit}" for name in ("one", "all")]
    cells += [f"{middle['one'] / middle['all']:.2f}", f"{min(times['one']) / min(times['all']):.2f}"]
    cells += [f"{middle['one'] / middle['chosen']:.2f}", f">= {reach}"]
    print(f"| {title} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("works", nargs="*", metavar="WORK", help=f"of: {'; '.join(WORKS)} (default: all)")
    parser.add_argument("--cores", type=int, default=2, help="default: 2")
    parser.add_argument("--rounds", type=int, default=15, help="turns of every kind (default: 15)")
    given = parser.parse_args()
    os.environ.setdefault("CBM_DATA_DIR", str(Path(__file__).resolve().parents[2] / "shared" / "data"))
    data = rows()
    print(f"{target()}; {data.name}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    print(f"| work | 1 thread | {given.cores} threads | ratio of medians | of the best | chosen | reach |")
    print("|---|---|---|---|---|---|---|")
    for title in given.works or WORKS:
        measure(title, data, given.cores, given.rounds)
