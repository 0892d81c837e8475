"""How trials of the paper's lengths spread over workers, and how long the whole paper takes.

    python benchmarks/scale.py                    simulate: trials that sleep, on 1 to 256 local workers
    python benchmarks/scale.py --faults           the same; workers are killed and trials fail
    python benchmarks/scale.py --paper            estimate hours of all experiments on 1, 64 and 1,000 cores
    python benchmarks/scale.py --measure          time updates and evaluations of all experiments anew

Times of trials are in scale-costs.csv, as ``--measure`` has found them on this computer. The simulation takes
some of them, scaled so that the ideal takes --seconds, and runs them through the real engine: each trial only
sleeps. The ideal is the time of the longest trials first, without any overhead.
"""

import argparse
import csv
import heapq
import multiprocessing
import os
import random
import resource
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from numpy import quantile as quantiles

from cbm_cli.datasets.catalogue import load
from cbm_cli.errors import CbmError
from cbm_cli.execution import Job
from cbm_cli.execution.engines import on_local_workers
from cbm_cli.execution.forecast import TINY, Cost, compile_kernels, cost_of, seconds_of
from cbm_cli.execution.jobs import make_agenda, only_available
from cbm_cli.grid.read import read_grid
from cbm_cli.grid.settings import Trial
from cbm_cli.kernels.machine import State, empty_trail
from cbm_cli.machines.limits import likelihood_seconds
from cbm_cli.machines.threads import one_thread
from cbm_cli.text import duration
from cbm_cli.trial.learner import Learner

COSTS = Path(__file__).with_name("scale-costs.csv")
GRID = Path(__file__).parents[1] / "experiments.yaml"
WORKERS = (1, 2, 8, 64, 256)
CORES = (1, 64, 1000)


# Settings that do not change what an update costs
NO_MATTER = ("offsets", "learning_rate", "sliding_factor", "init", "weight_scale", "updates", "epochs")
TIMED = 0.05  # seconds of training that are enough to time an update
LADDER = 400  # temperatures of AIS that are enough to time it
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
    """When the last of so many workers ends, if each takes the next trial as soon as it is free."""
    ends = [0.0] * workers
    for span in seconds:
        heapq.heapreplace(ends, ends[0] + span)
    return max(ends)


def longest_first(seconds: Iterable[float], workers: int) -> float:
    """As `schedule`, in the best simple order."""
    return schedule(sorted(seconds, reverse=True), workers)


def simulate(workers: int, lengths: Sequence[float], ideal: float, faults: bool) -> None:
    """Run trials that sleep; print a row of the table."""
    dice = random.Random(workers)
    seconds = [dice.choice(lengths) for _ in range(max(100, 8 * workers))]
    scale = ideal / longest_first(seconds, workers)
    seconds = [scale * span for span in seconds]
    data = load("bars-and-stripes", size=2)
    endings = [INJECTED if faults and n % 50 == 7 else SLEPT for n in range(len(seconds))]
    facts = enumerate(zip(seconds, endings, strict=True))
    trials = [Sleeping("scale", TINY, n, 1, span, ending) for n, (span, ending) in facts]
    jobs = [Job(trial, "run", data, ()) for trial in trials]
    ended, killed = threading.Event(), [0]
    if faults:
        often = ideal / max(1, workers // 10)
        threading.Thread(target=_kill, args=(often, ended, killed, dice), daemon=True).start()
    began, cpu = time.perf_counter(), time.process_time()
    results = Counter()
    for _, result in on_local_workers(jobs, lambda *news: None, threading.Event(), workers):
        results[result.message] += 1
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    ended.set()
    _wait_for_children()
    lost = results.total() - results[SLEPT] - results[INJECTED]
    in_order = schedule(seconds, workers)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"| {workers} | {len(jobs):,} | {sum(seconds) / len(jobs):.2f} s | {ideal:.0f} s | {in_order:.1f} s "
        f"| {took:.1f} s | {ideal / took:.0%} | {in_order / took:.0%} "
        f"| {1000 * cpu / len(jobs):.1f} ms | {memory:.0f} MB "
        f"| {results[SLEPT]:,} | {results[INJECTED]} | {killed[0]} | {lost} |",
        flush=True,
    )
    assert results.total() == len(jobs), results


def _kill(every: float, ended: threading.Event, killed: list[int], dice: random.Random) -> None:
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


def measure() -> None:
    """Write how long the trials of all experiments take, without those that stand for longer ones."""
    grid = read_grid(GRID, {}, None, ())
    asked = [one for name, one in grid.experiments.items() if not name.endswith("-short")]
    asked, missing = only_available(asked, GRID.parent)
    print(f"left out for want of data: {missing}")
    with tempfile.TemporaryDirectory() as folder:
        agenda = make_agenda(asked, Path(folder, "results"), adopt=False, folder=GRID.parent)
        compile_kernels(agenda, print)
        with one_thread():  # as in a worker
            kinds = {kind: measured(job) for kind, job in {kind_of(job): job for job in agenda.jobs}.items()}
        seconds = [seconds_of(job, kinds[kind_of(job)]) for job in agenda.jobs]
        ratios = [
            seconds_of(job, cost_of(job)) / took for job, took in zip(agenda.jobs, seconds, strict=True)
        ]
        print(
            "forecast / measured, quantiles 0, 10, 50, 90 and 100%:", quantiles(ratios, (0, 0.1, 0.5, 0.9, 1))
        )
        found = Counter(
            (job.trial.experiment, float(f"{took:.3g}"))
            for job, took in zip(agenda.jobs, seconds, strict=True)
        )
    with COSTS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["experiment", "trials", "seconds"])
        writer.writerows((name, n, seconds) for (name, seconds), n in found.items())


def kind_of(job: Job) -> tuple:
    """All settings that an update's cost depends on: those of a kind are timed once."""
    deep = job.trial.settings.model.kind == "dbm"  # mean field converges at other speeds with other offsets
    left_out = NO_MATTER[0 if not deep else 1 :]
    return tuple(value for name, value in job.trial.settings if name not in left_out)


def measured(job: Job) -> Cost:
    """Time the beginning of a trial, an update and an evaluation, with its first weights."""
    settings, began = job.trial.settings, time.perf_counter()
    learner = Learner(settings, job.data, job.trial.seed)
    state = learner.start()
    learner.advance(state, empty_trail(0, 0), 0, 1)
    beginning = min(time.perf_counter() - began, 0.2)  # the first one also loads the machine code
    return Cost(beginning, _update_seconds(learner, state), _evaluation_seconds(job))


def _update_seconds(learner: Learner, state: State) -> float:
    """Seconds of an update."""
    updates, none = 1, empty_trail(0, 0)
    while True:
        began = time.perf_counter()
        learner.advance(state, none, 0, updates)
        seconds = time.perf_counter() - began
        if seconds > TIMED:
            return seconds / updates
        updates *= 2


def _evaluation_seconds(job: Job) -> float:
    """Seconds of an evaluation; AIS is timed on a short ladder of temperatures, exact ones are not timed."""
    settings, data = job.trial.settings, job.data
    if settings.evaluation == "exact":
        sizes = (data.width, *settings.model.hidden_layers(data.width))
        return likelihood_seconds(sizes, sum(map(len, data.parts.values())))
    _seconds_with(job, {"rows": 1, "temperatures": 3})  # loads the machine code
    if settings.evaluation != "ais":
        return _seconds_with(job, {})
    of_temperature = _seconds_with(job, {"rows": 1, "temperatures": LADDER}) / LADDER
    return _seconds_with(job, {"temperatures": 3}) + of_temperature * settings.temperatures


def _seconds_with(job: Job, changes: dict[str, int]) -> float:
    """Seconds of an evaluation with these changes."""
    settings = job.trial.settings
    how = settings.evaluate.model_copy(update=changes)
    learner = Learner(settings.model_copy(update={"evaluate": how}), job.data, job.trial.seed)
    state = learner.start()
    began = time.perf_counter()
    learner.evaluate(state, 0, lambda: False)
    return time.perf_counter() - began


def costs() -> dict[str, list[float]]:
    """Seconds of every trial, by experiment."""
    found: dict[str, list[float]] = {}
    with COSTS.open(newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["experiment"], []).extend([float(row["seconds"])] * int(row["trials"]))
    return found


def paper() -> None:
    """Print the hours of every experiment, and of all of them on several numbers of cores."""
    experiments = costs()
    print("| experiment | trials | a trial | core hours |\n|---|---|---|---|")
    for name, seconds in sorted(experiments.items(), key=lambda item: -sum(item[1])):
        lengths = " to ".join(dict.fromkeys((duration(min(seconds)), duration(max(seconds)))))
        print(f"| {name} | {len(seconds):,} | {lengths} | {sum(seconds) / 3600:,.1f} |")
    print("\n| cores | time, longest trials first |\n|---|---|")
    trials = [seconds for of in experiments.values() for seconds in of]
    for cores in CORES:
        print(f"| {cores:,} | {duration(longest_first(trials, cores))} |")
    print(f"\n{len(trials):,} trials, the longest {duration(max(trials))}")


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", action="store_true", help="kill workers, and let trials fail")
    parser.add_argument("--paper", action="store_true", help="estimate the hours of the whole paper")
    parser.add_argument("--measure", action="store_true", help="time all experiments anew")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="ideal time of a simulation (default: 20)"
    )
    parser.add_argument("--workers", type=int, nargs="*", default=WORKERS, help="default: 1 2 8 64 256")
    asked = parser.parse_args()
    if asked.measure:
        return measure()
    if asked.paper:
        return paper()
    lengths = [seconds for of in costs().values() for seconds in of]
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    heads = "workers | trials | mean | longest first | this order | took | share of the first | of the second"
    heads += " | coordinator, a trial | memory | slept | failed | workers killed | trials lost"
    print(f"| {heads} |\n{'|---' * 14}|")
    for workers in asked.workers:
        simulate(workers, lengths, asked.seconds, asked.faults)
    return None


if __name__ == "__main__":
    main()
