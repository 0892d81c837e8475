"""Time whole runs of eight short MNIST trials with one worker and with two; print a
Markdown table.

    python benchmarks/workers.py [--updates 4500]

Machines of 784x500 units, PCD-1 in batches of 100 rows, without evaluations. Runs of
ten updates show what the commands take to start; they come first, and compile the
kernels. Needs the files of MNIST in CBM_DATA_DIR or ../shared/data, and two free cores.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GRID = """
defaults: {trials: 8, seed: 1}
experiments:
  workers:
    description: Eight trials of a large machine.
    data: mnist
    model: {kind: rbm, hidden: 500}
    offsets: dd^b_s
    sampler: PCD-1
    learning_rate: 0.01
    updates: %d
    evaluate: {method: none, every: %d updates}
"""


def seconds(updates: int, jobs: int) -> float:
    """Wall-clock time of a run of eight trials."""
    with tempfile.TemporaryDirectory() as folder:
        grid = Path(folder, "grid.yaml")
        grid.write_text(GRID % (updates, updates))
        run = (
            "-m",
            "cbm_cli.cli",
            "run",
            str(grid),
            "-j",
            str(jobs),
            "-o",
            f"{folder}/results",
        )
        began = time.perf_counter()
        subprocess.run([sys.executable, *run], check=True, capture_output=True)
        return time.perf_counter() - began


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--updates", type=int, default=4500, help="of a trial (default: 4500)"
    )
    updates = parser.parse_args().updates
    os.environ.setdefault(
        "CBM_DATA_DIR", str(Path(__file__).resolve().parents[2] / "shared" / "data")
    )
    print(
        "| 784x500, 8 trials of | one worker | two workers | one / two | reach "
        "|\n|---|---|---|---|---|"
    )
    seconds(10, 1)
    for length, reach in ((10, ""), (updates, ">= 1.85")):
        one, two = (seconds(length, jobs) for jobs in (1, 2))
        print(
            (
                f"| {length:,} updates | {one:.1f} s | {two:.1f} s | {one / two:.2f} | "
                f"{reach} |"
            ),
            flush=True,
        )
