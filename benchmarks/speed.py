"""Time trainings, evaluations and commands beside their products and their peers; print
a Markdown table.

    pip install -e '.[benchmarks]' && python benchmarks/speed.py [GROUP ...] [--rounds
    7]

One thread of BLAS, so many of cbm and PyTorch. Works are timed in turn, round after
round, so that a busy machine slows all of them; the table has medians, and ratios to
cbm and to "products": the sgemms of the same work alone, which bound all that
multiplies by BLAS. Data come from CBM_DATA_DIR or ../shared/data; random rows with as
many units on stand in for what is missing, and the title says so.

The same on another instruction set; the line above the table names it:

    export NUMBA_CPU_NAME=x86-64-v3 NUMBA_CPU_FEATURES= OPENBLAS_CORETYPE=Haswell
    ATEN_CPU_CAPABILITY=avx2 python benchmarks/speed.py
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import peers
from peers import both
from timing import (
    Work,
    arguments,
    head,
    medians,
    numbers,
    products_of_training,
    sgemms,
    show,
    target,
)

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.datasets.loading import load
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import Settings, Trial
from cbm_cli.kernels.likelihood import mean_log_likelihood
from cbm_cli.kernels.machine import State, empty_trail
from cbm_cli.kernels.states import log_partition
from cbm_cli.machines.estimates import ais, base_rate
from cbm_cli.machines.models import Layered
from cbm_cli.trial.learner import Learner
from cbm_cli.trial.loop import run_trial
from cbm_cli.trial.start import machine_at

Row = tuple[
    str, str, dict[str, Work]
]  # title, reach, works; the first of them is cbm's
WARM_UP = 600  # updates after which chains look like the data
TOY = {"data": {"name": "bars-and-stripes", "size": 3}, "batch": "full"}


@cache
def rows_of(name: str, width: int = 784, share: float = 0.13) -> Dataset:
    """A data set, or random rows where its files are missing."""
    for known in (name, f"{name}-reshuffled") if name == "web" else (name,):
        try:
            return load(known)
        except CbmError:
            continue
    rows = np.random.default_rng(0).random((60000, width)) < share
    return Dataset(f"random rows, {share:.0%} on", rows.astype(np.uint8))


def learner(
    data: Dataset,
    hidden: int | tuple[int, ...],
    sampler: str | None = "PCD-1",
    /,
    **more,
) -> Learner:
    """What trains a machine; by default an RBM of offsets dd^b_s, in batches of 100
    rows.
    """
    settings = {
        "data": {"name": "mnist"},
        "model": {"kind": "rbm", "hidden": hidden},
        "offsets": "dd^b_s",
    }
    settings |= {
        "learning_rate": peers.RATE,
        "epochs": 1,
        "batch": 100,
        "evaluate": {"method": "none"},
    }
    settings |= {"sampler": sampler} if sampler else {}
    return Learner(Settings(**settings | more), data, 1)


def trained(
    learner: Learner, updates: int = 0, machine: Layered | None = None
) -> tuple[State, Work]:
    """A state after so many updates, and a work that makes further ones."""
    state, trail, made = (
        learner.start_from(machine) if machine else learner.start(),
        empty_trail(0, 0),
        0,
    )

    def work(n: int) -> None:
        nonlocal made
        learner.advance(state, trail, made, made + n)
        made += n

    work(updates)
    return state, work


@cache
def mnist_machine() -> tuple[Layered, tuple[np.ndarray, ...]]:
    """A machine of 784x500 units after the warm-up, with offsets and as W, b, c."""
    trainer = learner(rows_of("mnist"), 500)
    state, _ = trained(trainer, WARM_UP)
    return machine_at(state, trainer.settings, trainer.sizes), state[:3]


def toys() -> Iterator[Row]:
    """Updates of a 9x4 machine on Bars & Stripes."""
    data = load("bars-and-stripes", size=3)
    rows = len(data.train)
    for sampler, reach in (
        ("CD-1", "<= 1.5 us"),
        ("PCD-1", "<= 1.5 us"),
        ("PT_10", "<= 9.5 us"),
    ):
        shape = {"chains": 10, "sweeps": rows} if sampler == "PT_10" else {}
        works = {"cbm": trained(learner(data, 4, sampler, **TOY), WARM_UP)[1]}
        works["products"] = products_of_training(9, 4, rows, **shape)
        works |= both(peers.training, data, 4, sampler, rows)
        works |= peers.of_scikit_learn(data, 4, rows) if sampler == "PCD-1" else {}
        yield f"{sampler} 9x4, {rows} rows", reach, works


def pcd(data: Dataset, hidden: int, reach: str) -> Row:
    """Updates of PCD-1 on a data set."""
    works = {"cbm": trained(learner(data, hidden), WARM_UP)[1]}
    works["products"] = products_of_training(data.width, hidden, 100)
    works |= both(peers.training, data, hidden)
    works |= peers.of_scikit_learn(data, hidden)
    return f"PCD-1 {data.width}x{hidden}, batch 100, {data.name}", reach, works


def rbm() -> Iterator[Row]:
    """Updates on MNIST."""
    yield pcd(rows_of("mnist"), 500, "<= 0.60 x products")
    yield pcd(rows_of("mnist"), 16, "<= 0.20 ms")


def sets() -> Iterator[Row]:
    """Updates on sets of few units, many and few of them on."""
    yield pcd(rows_of("dna", 180, 0.25), 200, "<= 0.80 x products")
    yield pcd(rows_of("adult", 123, 0.11), 200, "<= 0.65 x products")
    yield pcd(rows_of("web", 300, 0.04), 200, "<= 0.50 x products")


def tempering() -> Iterator[Row]:
    """Updates of parallel tempering on MNIST, with warm chains of a trained machine."""
    data = rows_of("mnist")
    works = {"cbm": trained(learner(data, 500, "PT_20"), 5, mnist_machine()[0])[1]}
    works["products"] = products_of_training(784, 500, 100, 20, 100)
    works |= both(peers.training, data, 500, "PT_20")
    yield (
        f"PT_20 784x500, batch 100, one ladder, {data.name}",
        "<= 0.80 x products",
        works,
    )


def annealing() -> Iterator[Row]:
    """AIS of a machine trained on MNIST."""
    data, (_, machine) = rows_of("mnist"), mnist_machine()
    base = base_rate(data.train.mean(axis=0), len(data.train))
    arrays = {"W": machine[0], "x": numbers(100, 784), "h": numbers(100, 500)}
    works = {
        "cbm": lambda n: [ais(machine, base, 1, temperatures=1000) for _ in range(n)]
    }
    works["products"] = sgemms(arrays, *["h W'", "x W"] * 1000)
    works |= both(peers.annealing, machine, base, 1000, 100)
    yield (
        f"AIS 784x500, 100 runs, 1,000 temperatures, {data.name}",
        "<= 0.70 x products",
        works,
    )


def likelihood() -> Iterator[Row]:
    """Log-likelihoods given log Z, and log Z by all states."""
    data, (_, machine) = rows_of("mnist"), mnist_machine()
    arrays, blocks, one = (
        {"W": machine[0], "x": numbers(6000, 784)},
        len(data.train) // 6000,
        np.float32(1),
    )
    works = {
        "cbm": lambda n: [
            mean_log_likelihood(*machine, data.train, one, 0.0) for _ in range(n)
        ]
    }
    works["products"] = sgemms(arrays, *["x W"] * blocks)
    works |= both(peers.likelihood, machine, data.train)
    yield (
        f"log-likelihood of {len(data.train):,} rows given log Z, 784x500",
        "<= 0.55 x products",
        works,
    )
    rng = np.random.default_rng(0)
    W, b, c = (
        0.3 * rng.standard_normal((784, 16)),
        rng.normal(-2, 1, 784),
        rng.standard_normal(16),
    )
    works = {"cbm": lambda n: [log_partition(W, b, c) for _ in range(n)]}
    works |= both(peers.log_partition, (W, b, c), dtype="float64")
    yield "log Z 784x16", "<= 0.2 s", works


def deep() -> Iterator[Row]:
    """Updates of a DBM, with mean field of exactly three rounds: no mean stays within
    the tolerance.
    """
    data, (n, m, rounds) = rows_of("mnist"), (784, 500, 3)
    trainer = learner(
        data, m, offsets="ddd^b_s", model={"kind": "dbm", "hidden": [m, m]}
    )
    trainer.plan = trainer.plan._replace(rounds=rounds, tolerance=np.float32(1e-30))
    W, x, h = numbers(n + m, m), numbers(100, n + m), numbers(100, m)
    arrays = {
        "W": W,
        "x": x,
        "h": h,
        "v": numbers(100, n),
        "V": W[:n],
        "e": numbers(100, m),
        "U": W[n:],
    }
    rest = "h W'", "x W", "x' h", "x' h"
    works = {"cbm": trained(trainer, WARM_UP)[1]}
    works["products"] = sgemms(arrays, "v V", "e U", *["h U'", "e U"] * rounds, *rest)
    works |= both(peers.deep_training, data, m, m, rounds)
    yield (
        f"DBM 784-500-500, batch 100, {rounds} rounds of mean field, {data.name}",
        "<= 0.85 x products",
        works,
    )


def natural() -> Iterator[Row]:
    """Natural gradients over all states, at a rate so low that the Fisher matrix keeps
    its rank.
    """
    data = load("bars-and-stripes", size=2)
    toy = {
        "data": {"name": "bars-and-stripes", "size": 2},
        "batch": "full",
        "learning_rate": 1e-6,
    }
    works = {
        "cbm": trained(learner(data, 4, "exact", **toy, gradient={"kind": "natural"}))[
            1
        ]
    }
    works["cbm, centered gradient"] = trained(learner(data, 4, "exact", **toy))[1]
    works |= both(peers.natural, data, 4, dtype="float64")
    yield "natural gradient, exact, 4x4", "<= 30 us", works


def recorders() -> Iterator[Row]:
    """Whole trials of 20,000 updates of a toy with every update recorded, and
    without.
    """
    data = load("bars-and-stripes", size=3)

    def trial(sampler: str, what: str = "") -> Work:
        more = {
            "updates": 20000,
            "epochs": None,
            "evaluate": {"method": "none", "every": 20000},
        }
        more |= {"record": {"what": what, "window": "0-20000"}} if what else {}
        settings = learner(data, 4, sampler, **TOY | more).settings
        return lambda n: [
            run_trial(Trial("benchmark", settings, 0, 1), data) for _ in range(n)
        ]

    for sampler in ("PT_10", "PCD-1"):
        what = "weight_norms+offset_values"
        works = {
            "cbm": trial(sampler, what),
            "with offset_error too": trial(sampler, f"{what}+offset_error"),
        }
        works["nothing recorded"] = trial(sampler)
        yield (
            f"{sampler} 9x4, norms and offsets of 20,000 updates",
            "<= 1.2 x without",
            works,
        )


def trials() -> Iterator[Row]:
    """Whole trials of 50,000 updates of a toy, with 1,000 exact evaluations and with
    one.
    """
    data = load("bars-and-stripes", size=3)

    def trial(sampler: str, every: int) -> Work:
        length = {"updates": 50_000, "epochs": None, "evaluate": {"every": every}}
        settings = learner(data, 4, sampler, **TOY | length).settings
        return lambda n: [
            run_trial(Trial("benchmark", settings, 0, 1), data) for _ in range(n)
        ]

    for sampler, reach in (("PCD-1", "<= 0.09 s"), ("PT_10", "evaluations <= 5%")):
        works = {"cbm": trial(sampler, 50), "evaluated once": trial(sampler, 50_000)}
        yield f"{sampler} 9x4, 50,000 updates, 1,000 evaluations", reach, works


def auto_encoder() -> Iterator[Row]:
    """Updates of an auto encoder on MNIST."""
    data, n, m = rows_of("mnist"), 784, 392
    arrays = {"W": numbers(n, m), "x": numbers(100, n), "y": numbers(100, m)}
    works = {
        "cbm": trained(
            learner(data, m, None, model={"kind": "auto-encoder", "hidden": m}), WARM_UP
        )[1]
    }
    works["products"] = sgemms(arrays, "x W", "y W'", "x W", "x' y", "x' y")
    works |= both(peers.encoding, data, m)
    works |= peers.of_scikit_learn(data, m, encodes=True)
    yield f"auto encoder {n}-{m}, batch 100, {data.name}", "<= 1.3 x products", works


def commands() -> Iterator[Row]:
    """``cbm --help`` as a whole process, beside an empty Python."""

    def process(*command: str) -> Work:
        command = sys.executable, *command
        return lambda n: [
            subprocess.run(command, capture_output=True, check=True) for _ in range(n)
        ]

    works = {
        "cbm": process("-m", "cbm_cli.cli", "--help"),
        "python -c pass": process("-c", "pass"),
    }
    yield "cbm --help", "<= 0.3 s", works


GROUPS = {
    function.__name__.replace("_", "-"): function
    for function in (
        *(toys, rbm, sets, tempering, annealing, likelihood, deep, natural),
        *(recorders, trials, auto_encoder, commands),
    )
}

if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument(
        "groups",
        nargs="*",
        metavar="GROUP",
        help=f"of {', '.join(GROUPS)}; default: all",
    )
    given = parser.parse_args()
    if unknown := [name for name in given.groups if name not in GROUPS]:
        parser.error(f"there is no group {unknown[0]}; groups are {', '.join(GROUPS)}")
    os.environ.setdefault(
        "CBM_DATA_DIR", str(Path(__file__).resolve().parents[2] / "shared" / "data")
    )
    print(f"{target()}, one thread; medians of {given.rounds} rounds\n")
    head()
    for name in given.groups or GROUPS:
        for title, reach, works in GROUPS[name]():
            show(title, reach, medians(works, given.rounds))
