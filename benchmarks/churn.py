"""How a run fares on a cluster whose workers come and go: the same bytes, and at what
efficiency.

One scheduler and three workers run on loopback. A worker is killed every 5 s (its nanny
starts it again), and one joins every 10 s. Trials sleep for half a second, so that many
workers fit on few cores. From the repository: python -m benchmarks.churn [TRIALS]
"""

import csv
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from distributed import Client, Scheduler

from cbm_cli.results import Store
from tests.processes import LoopbackCluster, children, start

GRID = """
experiments:
  churn:
    trials: {trials}
    data: {{name: bars-and-stripes, size: 2}}
    model: {{kind: rbm, hidden: 3}}
    offsets: [00, dd^b_s]
    sampler: CD-1
    learning_rate: 0.1
    updates: 100
    batch: full
    record: {{what: nap.py:nap, every: 100}}
"""
NAP = """
import os, time

def nap(snapshots, context):
    time.sleep(float(os.environ["NAP"]) * len(snapshots.update))
    return {"nap": 0.0 * snapshots.update}
"""
LIMIT = 240.0  # seconds
KILL_EVERY, JOIN_EVERY, LOOK_EVERY = 5.0, 10.0, 0.1  # seconds


def contents(folder: Path) -> dict[tuple, tuple]:
    """All curves, records and machines."""
    return {
        (store.experiment, run_id, number): (
            record.curve,
            record.records,
            record.machine,
            record.files,
        )
        for store in (
            Store(path.parent) for path in sorted(folder.glob("*/trials.jsonl"))
        )
        for run_id, lines in store.lines().items()
        for number in lines
        for record in store.journal.lines([(run_id, number)])
    }


def workers_of(cluster: LoopbackCluster) -> list[int]:
    """The processes that run trials: children of the nannies."""
    return [
        pid
        for pid in children(*(nanny.pid for nanny in cluster.workers))
        if is_worker(pid)
    ]


def is_worker(pid: int) -> bool:
    """Whether a process was spawned by a nanny to be a worker, and not to watch its
    resources.
    """
    try:
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def connected(dask_scheduler: Scheduler) -> int:
    """Workers that the scheduler knows, while it knows the run, too: its clients are
    that and this script.
    """
    return len(dask_scheduler.workers) if len(dask_scheduler.clients) > 1 else 0


def churn(
    cluster: LoopbackCluster, run: subprocess.Popen
) -> tuple[int, int, float, float]:
    """Kill and add workers until a run ends.

    Returns kills, workers that joined, and workers times seconds: of all that live, and
    of the connected.
    """
    dice, began, client = random.Random(1), time.monotonic(), Client(cluster.address)
    kills = joined = 0
    passed = offered = usable = 0.0
    while run.poll() is None and time.monotonic() - began < LIMIT:
        time.sleep(LOOK_EVERY)
        before, passed, alive = passed, time.monotonic() - began, workers_of(cluster)
        offered += (passed - before) * len(alive)
        usable += (passed - before) * client.run_on_scheduler(connected)
        if passed > KILL_EVERY * (kills + 1) and alive:
            os.kill(dice.choice(alive), signal.SIGKILL)
            kills += 1
        if passed > JOIN_EVERY * (joined + 1):
            cluster.add("--nthreads", "1", env={"NAP": "0.5"})
            joined += 1
    run.kill()
    client.close()
    return kills, joined, offered, usable


def main() -> None:
    """Run the grid in one process without sleeping, then on the cluster; compare and
    print.
    """
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "grid.yaml").write_text(GRID.format(trials=trials // 2))
        (folder / "nap.py").write_text(NAP)
        command = "cbm_cli.cli", "run", folder / "grid.yaml", "-o"
        start(*command, folder / "alone", "-j", 0, env={"NAP": "0"}).wait()
        cluster = LoopbackCluster(folder)
        try:
            for _ in range(3):
                cluster.add("--nthreads", "1", env={"NAP": "0.5"})
            while len(workers_of(cluster)) < 3:
                time.sleep(LOOK_EVERY)
            began = time.monotonic()
            run = start(
                *command,
                folder / "cluster",
                "--scheduler",
                cluster.address,
                stderr=None,
            )
            kills, joined, offered, usable = churn(cluster, run)
            took = time.monotonic() - began
        finally:
            cluster.end()
        same = contents(folder / "alone") == contents(folder / "cluster")
        with open(folder / "cluster" / "churn" / "summary.csv", newline="") as file:
            worked = sum(float(row["seconds"]) for row in csv.DictReader(file))
    print(
        f"{trials} trials, exit code {run.returncode}, "
        f"{'the same bytes' if same else 'OTHER BYTES'}"
    )
    print(f"{took:.0f} s; {kills} workers killed, {joined} joined")
    print(
        f"efficiency {worked / offered:.0%}: {worked:.0f} s of trials in "
        f"{offered:.0f} s of workers"
    )
    print(
        f"{worked / usable:.0%} of the {usable:.0f} s in which worker and run were "
        "connected to the scheduler"
    )


if __name__ == "__main__":
    main()
