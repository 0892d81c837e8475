"""Random settings of training against the reference, for some minutes.

    python benchmarks/fuzz_training.py --minutes 3 --seed 1

The kernels and `tests.oracles.Trainer`, which follows cbm_cli/reference.py, make three
updates of RBMs and of deep machines of 1 to 513 units with the same random numbers. It
prints what differs; tests/science/test_training.py does so for some of them.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.fuzz import difference


def main() -> None:
    """Parse the command line, and compare until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng, count, wrong = np.random.default_rng(given.seed), 0, 0
    end = time.monotonic() + 60 * given.minutes
    while time.monotonic() < end:
        found = difference(rng, deep=count % 4 == 3)
        count, wrong = count + 1, wrong + bool(found)
        if found:
            print(found, flush=True)
    print(f"{count:,} settings, {wrong} of which differ")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
