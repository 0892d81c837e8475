"""Works timed in turn, the matrix products that bound them, and the rows of a Markdown
table.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numba
import numpy as np
from llvmlite.binding import get_host_cpu_name
from threadpoolctl import threadpool_info

from cbm_cli.kernels.compiling import lean
from cbm_cli.kernels.dense import product, product_nt, product_tn

Work = Callable[[int], object]  # does the same thing n times

TURN = 0.1  # seconds of a turn, at least, unless once takes longer
UNITS = (1, "s"), (1e3, "ms"), (1e6, "us")


def arguments(description: str) -> argparse.ArgumentParser:
    """A parser that knows the number of rounds."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=7, help="turns of every work (default: 7)"
    )
    return parser


def target() -> str:
    """The processor that the kernels are compiled for, and the one whose sgemm OpenBLAS
    has chosen.
    """
    cores = {
        info["architecture"]
        for info in threadpool_info()
        if info["internal_api"] == "openblas"
    }
    kernels = numba.config.CPU_NAME or get_host_cpu_name()
    return (
        f"kernels for {kernels}, OpenBLAS for {', '.join(sorted(cores))} on one thread"
    )


def medians(works: dict[str, Work], rounds: int) -> dict[str, float]:
    """Seconds of one repetition of each work: medians over rounds in which every work
    has its turn.
    """
    repetitions = {name: _repetitions(work) for name, work in works.items()}
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            seconds[name].append(_seconds(work, repetitions[name]) / repetitions[name])
    return {name: statistics.median(times) for name, times in seconds.items()}


def _repetitions(work: Work) -> int:
    """How many repetitions fill a turn."""
    _seconds(work, 1)  # compiles
    n = 1
    while _seconds(work, n) < TURN:
        n *= 2
    return n


def _seconds(work: Work, n: int) -> float:
    began = time.perf_counter()
    work(n)
    return time.perf_counter() - began


def head() -> None:
    """Print the head of the table."""
    print(
        "| work | who | time | / cbm | / products | reach |\n|---|---|---|---|---|---|"
    )


def show(title: str, reach: str, times: dict[str, float]) -> None:
    """Print a row for each work; ``reach`` is for the first."""
    for who, seconds in times.items():
        scale, unit = next(
            (unit for unit in UNITS if seconds * unit[0] >= 1), UNITS[-1]
        )
        ratios = [
            f"{seconds / times[other]:.2f}" if other in times else ""
            for other in ("cbm", "products")
        ]
        print(
            (
                f"| {title} | {who} | {seconds * scale:.3g} {unit} | "
                f"{' | '.join(ratios)} "
                f"| {reach} |"
            ),
            flush=True,
        )
        title = reach = ""


def numbers(*shape: int) -> np.ndarray:
    """Random float32 of an array."""
    return np.random.default_rng(0).random(shape, np.float32)


def sgemms(arrays: dict[str, np.ndarray], *products: str) -> Work:
    """The sgemms of a work alone, in compiled code; each is written as ``x W``, ``h
    W'`` or ``x' h``.
    """
    different = list(dict.fromkeys(products))
    order = np.array([different.index(product) for product in products])
    calls = tuple(_call(arrays, *product.split()) for product in different)
    return lambda n: _multiply(calls, order, n)


def _call(
    arrays: dict[str, np.ndarray], left: str, right: str
) -> tuple[int, np.ndarray, ...]:
    """Which product it is, a, b, and an array for the result."""
    a, b = arrays[left.rstrip("'")], arrays[right.rstrip("'")]
    rows, columns = a.shape[left.endswith("'")], b.shape[not right.endswith("'")]
    return (
        2 * left.endswith("'") + right.endswith("'"),
        a,
        b,
        np.empty((rows, columns), np.float32),
    )


@lean
def _multiply(calls, order, n):
    for _ in range(n):
        for k in order:
            which, a, b, out = calls[k]
            if which == 0:
                product(a, b, out)
            elif which == 1:
                product_nt(a, b, out)
            else:
                product_tn(a, b, out)


def products_of_training(
    n: int, m: int, batch: int, chains: int = 0, sweeps: int = 1
) -> Work:
    """The products of an update: the data's, two of every sweep of the chains, two of
    the gradient.
    """
    arrays = {"W": numbers(n, m), "x": numbers(batch, n), "h": numbers(batch, m)}
    arrays |= {"X": arrays["x"][: chains or batch], "H": arrays["h"][: chains or batch]}
    return sgemms(arrays, "x W", *["H W'", "X W"] * sweeps, "x' h", "x' h")
