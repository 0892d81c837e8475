"""Works timed in turn, the matrix products that bound them, and the rows of a Markdown table."""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import numba
import numpy as np
from llvmlite.binding import get_host_cpu_name
from threadpoolctl import threadpool_info

from cbm_cli.kernels.compiling import lean
from cbm_cli.kernels.products import product, product_nt, product_tn

Work = Callable[[int], object]  # does the same thing n times
Product = tuple[int, np.ndarray, np.ndarray, np.ndarray]  # which one, a, b, out

TURN = 0.1  # seconds of a turn, at least, unless once takes longer
PLAIN, RIGHT_TURNED, LEFT_TURNED = 0, 1, 2  # a b, a b', a' b
UNITS = (1, "s"), (1e3, "ms"), (1e6, "us")


def arguments(description: str) -> argparse.ArgumentParser:
    """A parser that knows the number of rounds."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="turns of every work (default: 7)")
    return parser


def target() -> str:
    """The processor that the kernels are compiled for, and the one whose sgemm OpenBLAS has chosen."""
    cores = {info["architecture"] for info in threadpool_info() if info["internal_api"] == "openblas"}
    kernels = numba.config.CPU_NAME or get_host_cpu_name()
    return f"kernels for {kernels}, OpenBLAS for {', '.join(sorted(cores))}, one thread"


def medians(works: dict[str, Work], rounds: int) -> dict[str, float]:
    """Seconds of one repetition of each work: medians over rounds in which every work has its turn."""
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
    print("| work | who | time | / cbm | / products | reach |\n|---|---|---|---|---|---|")


def show(title: str, reach: str, times: dict[str, float]) -> None:
    """Print a row for each work; ``reach`` is for the first."""
    scale, unit = next((unit for unit in UNITS if times["cbm"] * unit[0] >= 1), UNITS[-1])
    for who, seconds in times.items():
        ratios = [f"{seconds / times[other]:.2f}" if other in times else "" for other in ("cbm", "products")]
        print(
            f"| {title} | {who} | {seconds * scale:.3g} {unit} | {' | '.join(ratios)} | {reach} |", flush=True
        )
        title = reach = ""


def numbers(*shape: int) -> np.ndarray:
    """Random float32 of an array."""
    return np.random.default_rng(0).random(shape, np.float32)


def sgemms(products: Sequence[Product], order: Sequence[int] | None = None) -> Work:
    """The sgemms of a work alone, called from compiled code in the order given; by default each once."""
    order = np.array(range(len(products)) if order is None else order)
    return lambda n: _multiply(tuple(products), order, n)


@lean
def _multiply(products, order, n):
    for _ in range(n):
        for p in order:
            which, a, b, out = products[p]
            if which == PLAIN:
                product(a, b, out)
            elif which == RIGHT_TURNED:
                product_nt(a, b, out)
            else:
                product_tn(a, b, out)


def products_of_training(n: int, m: int, batch: int, chains: int = 0, sweeps: int = 1) -> Work:
    """The products of an update of an n x m machine: the data's, two of each sweep, two of the gradient."""
    chains = chains or batch
    W, x, h = numbers(n, m), numbers(batch, n), numbers(batch, m)
    to_x, to_h, gradient = np.empty_like(x), np.empty_like(h), np.empty_like(W)
    products = [
        (PLAIN, x, W, to_h),
        (RIGHT_TURNED, h[:chains], W, to_x[:chains]),
        (PLAIN, x[:chains], W, to_h[:chains]),
        (LEFT_TURNED, x, h, gradient),
        (LEFT_TURNED, x, h, gradient),
    ]
    return sgemms(products, [0, *[1, 2] * sweeps, 3, 4])
