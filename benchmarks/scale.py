"""How trials of the paper's lengths spread over workers, and how long the whole paper
takes.

    python benchmarks/scale.py                    simulate: trials that sleep, on 1 to
    256 local workers python benchmarks/scale.py --faults           the same; workers
    are killed and trials fail python benchmarks/scale.py --paper            estimate
    hours of all experiments on 1, 64 and 1,000 cores

Times of the paper's trials are in scale-costs.csv. The simulation takes some of them,
scaled so that the ideal takes --seconds, and runs them through the real engine: each
trial only sleeps. The ideal is the time of the longest trials first, without any
overhead.
"""

import argparse
import csv
import heapq
import multiprocessing
import os
import random
import resource
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cbm_cli.datasets.loading import load
from cbm_cli.errors import CbmError
from cbm_cli.execution.precompile import TINY
from cbm_cli.execution.spread import Task, spread
from cbm_cli.execution.work import train
from cbm_cli.grid.settings import Trial
from cbm_cli.text import duration

COSTS = Path(__file__).with_name("scale-costs.csv")
WORKERS = (1, 2, 8, 64, 256)
CORES = (1, 64, 1000)
SLEPT = "slept"  # how a trial of the simulation ends, and how one that fails does
INJECTED = "failed as it should"


@dataclass(frozen=True)
class Sleeping(Trial):
    """A trial that takes a time and nothing else, not even the loading of kernels."""

    seconds: float = 0.0
    ending: str = SLEPT

    @property
    def seed(self) -> int:
        """Sleep, and end the trial."""
        time.sleep(self.seconds)
        raise CbmError(self.ending)


def schedule(seconds: Iterable[float], workers: int) -> float:
    """When the last of so many workers ends, if each takes the next trial as soon as it
    is free.
    """
    ends = [0.0] * workers
    for span in seconds:
        heapq.heapreplace(ends, ends[0] + span)
    return max(ends)


def longest_first(seconds: Iterable[float], workers: int) -> float:
    """As `schedule`, in the best simple order."""
    return schedule(sorted(seconds, reverse=True), workers)


def simulate(
    workers: int, lengths: Sequence[float], ideal: float, faults: bool
) -> None:
    """Run trials that sleep; print a row of the table."""
    dice = random.Random(workers)
    seconds = [dice.choice(lengths) for _ in range(max(100, 8 * workers))]
    scale = ideal / longest_first(seconds, workers)
    seconds = [scale * span for span in seconds]
    data = load("bars-and-stripes", size=2)
    endings = [
        INJECTED if faults and n % 50 == 7 else SLEPT for n in range(len(seconds))
    ]
    facts = enumerate(zip(seconds, endings, strict=True))
    trials = [
        Sleeping("scale", TINY, n, 1, span, ending) for n, (span, ending) in facts
    ]
    ended, killed = threading.Event(), [0]
    if faults:
        often = ideal / max(1, workers // 10)
        threading.Thread(
            target=_kill, args=(often, ended, killed, dice), daemon=True
        ).start()
    began, cpu = time.perf_counter(), time.process_time()
    results = Counter()
    tasks = [Task(trial, (trial, {}), data) for trial in trials]
    for _, result in spread(train, [tasks], lambda message: None, workers):
        results[result.message] += 1
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    ended.set()
    _wait_for_children()
    lost = results.total() - results[SLEPT] - results[INJECTED]
    in_order = schedule(seconds, workers)
    number, mean = len(trials), sum(seconds) / len(trials)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"| {workers} | {number:,} | {mean:.2f} s | {ideal:.0f} s | {in_order:.1f} s "
        f"| {took:.1f} s | {ideal / took:.0%} | {in_order / took:.0%} "
        f"| {1000 * cpu / len(trials):.1f} ms | {memory:.0f} MB "
        f"| {results[SLEPT]:,} | {results[INJECTED]} | {killed[0]} | {lost} |",
        flush=True,
    )
    assert results.total() == len(trials), results


def _kill(
    every: float, ended: threading.Event, killed: list[int], dice: random.Random
) -> None:
    """Kill a worker process now and then."""
    while not ended.wait(every):
        children = multiprocessing.active_children()
        if children:
            dice.choice(children).kill()
            killed[0] += 1


def _wait_for_children() -> None:
    deadline = time.monotonic() + 30
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.1)


def costs() -> dict[str, list[float]]:
    """Seconds of every trial, by experiment."""
    found: dict[str, list[float]] = {}
    with COSTS.open(newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["experiment"], []).extend(
                [float(row["seconds"])] * int(row["trials"])
            )
    return found


def paper() -> None:
    """Print the hours of every experiment, and of all of them on several numbers of
    cores.
    """
    experiments = costs()
    print("| experiment | trials | a trial | core hours |\n|---|---|---|---|")
    for name, seconds in sorted(experiments.items(), key=lambda item: -sum(item[1])):
        lengths = " to ".join(
            dict.fromkeys((duration(min(seconds)), duration(max(seconds))))
        )
        print(f"| {name} | {len(seconds):,} | {lengths} | {sum(seconds) / 3600:,.1f} |")
    print("\n| cores | time, longest trials first |\n|---|---|")
    trials = [seconds for of in experiments.values() for seconds in of]
    for cores in CORES:
        print(f"| {cores:,} | {duration(longest_first(trials, cores))} |")
    print(f"\n{len(trials):,} trials, the longest {duration(max(trials))}")


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--faults", action="store_true", help="kill workers, and let trials fail"
    )
    parser.add_argument(
        "--paper", action="store_true", help="estimate the hours of the whole paper"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=20.0,
        help="ideal time of a simulation (default: 20)",
    )
    parser.add_argument(
        "--workers", type=int, nargs="*", default=WORKERS, help="default: 1 2 8 64 256"
    )
    asked = parser.parse_args()
    if asked.paper:
        return paper()
    lengths = [seconds for of in costs().values() for seconds in of]
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    heads = (
        "workers | trials | mean | longest first | this order | took | share of "
        "the first | of the second"
    )
    heads += (
        " | coordinator, a trial | memory | slept | failed | workers killed | "
        "trials lost"
    )
    print(f"| {heads} |\n{'|---' * 14}|")
    for workers in asked.workers:
        simulate(workers, lengths, asked.seconds, asked.faults)
    return None


if __name__ == "__main__":
    main()
