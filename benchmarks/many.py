"""What a trial costs beside its training: planning, sending, writing, resuming and
reading many short trials.

    python benchmarks/many.py --trials 100000

Prints seconds and milliseconds per trial of `cbm run`, of the same command again, and
of `cbm table`; the memory of the coordinator; the number of files and their size.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GRID = """
defaults: {{seed: 1}}
experiments:
  many:
    data: {{name: bars-and-stripes, size: 2}}
    model: {{kind: rbm, hidden: 4}}
    offsets: [00, d0, 0d, dd, dm, mm, aa^b, dd^b_s, mm^b, aa^b_s]
    sampler: [CD-1, PCD-1]
    learning_rate: [{rates}]
    updates: 50
    batch: full
    trials: {trials}
"""


def measured(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return the seconds of a command and the largest memory (MB) of its own
    process.
    """
    began, largest = time.perf_counter(), 0.0
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
            largest = max(
                largest,
                *(
                    float(line.split()[1]) / 1024
                    for line in status.splitlines()
                    if "HWM" in line
                ),
            )
        except (OSError, TypeError):
            pass
        time.sleep(0.05)
    if process.returncode:
        sys.exit(process.stderr.read().decode())
    return time.perf_counter() - began, largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--cells", type=int, default=1000, help="a multiple of 20")
    parser.add_argument("-j", "--jobs", default="2")
    choice = parser.parse_args()
    cbm = [sys.executable, "-m", "cbm_cli.cli"]
    with tempfile.TemporaryDirectory() as folder:
        grid, out = Path(folder, "grid.yaml"), Path(folder, "out")
        rates = ", ".join(f"{0.001 * (k + 1):.3f}" for k in range(choice.cells // 20))
        grid.write_text(GRID.format(rates=rates, trials=choice.trials // choice.cells))
        run = [*cbm, "run", str(grid), "-o", str(out), "-j", choice.jobs]
        subprocess.run(
            [*run[:-4], "-o", f"{folder}/warm", "--trials", "1", "--set", "offsets=00"],
            check=True,
        )
        commands = {"run": run, "run again": run, "table": [*cbm, "table", str(out)]}
        print("| command | seconds | ms a trial | memory |\n|---|---|---|---|")
        for name, command in commands.items():
            seconds, memory = measured(command, os.environ | {"COLUMNS": "200"})
            print(
                (
                    f"| {name} | {seconds:.1f} | {1000 * seconds / choice.trials:.2f} "
                    "| "
                    f"{memory:.0f} MB |"
                ),
                flush=True,
            )
        found = [path for path in out.rglob("*") if path.is_file()]
        print(
            f"{len(found):,} files, "
            f"{sum(path.stat().st_size for path in found) / 1e6:.0f} MB"
        )


if __name__ == "__main__":
    main()
