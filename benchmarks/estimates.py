"""Estimates of log Z where the exact one is known: errors, doubts and times of
annealing.

    python benchmarks/estimates.py NAME...     # some of the measurements below;
    default: all of them

Machines and seeds are fixed, so that only times differ between two calls.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from cbm_cli.api import data as read_data
from cbm_cli.api import run
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.execution.evaluate import evaluate_trials
from cbm_cli.kernels.states import log_partition
from cbm_cli.machine import load
from cbm_cli.machines import certificate, factorial, likelihood
from cbm_cli.machines.bounds import posterior_of
from cbm_cli.machines.likelihood import Answer, Method, evaluate, parts_of
from cbm_cli.machines.models import Flat, flatten
from cbm_cli.machines.samples import draw_given, parse_sampler
from cbm_cli.machines.threads import one_thread
from cbm_cli.reference import energy, entropy, free_energy, states
from cbm_cli.reference import log_partition as reference_log_partition
from cbm_cli.results import Results
from cbm_cli.results.writer import locked

Case = tuple[Flat, float]  # a machine and its log Z


def rbm(W: NDArray, b: NDArray, c: NDArray) -> Flat:
    """Return a machine of one hidden layer in float32."""
    arrays = (np.ascontiguousarray(array, np.float32) for array in (W, b, c))
    return Flat(*arrays, np.zeros(0, np.float32), (len(b), len(c)))


def random_rbm(
    n: int, m: int, seed: int, scale: float
) -> tuple[NDArray, NDArray, NDArray]:
    """Return W, b and c of a normal distribution with this standard deviation."""
    random = np.random.default_rng(seed)
    W, b, c = (scale * random.standard_normal(shape) for shape in ((n, m), (n,), (m,)))
    return W, b, c


def narrow_rbm(
    seed: int, n: int = 20, m: int = 6, depths: tuple[float, float] = (12, 40)
) -> tuple[Flat, NDArray]:
    """Return a machine with one state 12 to 40 nats above all others together, and that
    state.
    """
    W, b, c = random_rbm(n, m, seed, 0.5)
    random, steep = np.random.default_rng(seed), 20.0
    state, depth = random.integers(0, 2, n), random.uniform(*depths)
    W[:, 0] = steep * (2 * state - 1)
    others = W[:, 1:], b, c[1:]
    c[0] = (
        log_partition(*others)
        + depth
        + free_energy(state[None], *others)[0]
        - steep * state.sum()
    )
    return rbm(W, b, c), state


def estimated(machine: Flat, rows: NDArray, seed: int, temperatures: int) -> Answer:
    """Return the answer of AIS with 100 runs from base rates of the rows, and of the
    rows.
    """
    how = Method("ais", temperatures=temperatures, seed=seed, checked=False)
    with one_thread():
        common, by_part = evaluate(machine, parts_of(Dataset("rows", rows), how), how)
    return common | by_part["train"]


def collective(seed: int) -> Flat:
    """Return a machine of 50 to 149 hidden units that agree on one pattern of 12 to 17
    visible ones.
    """
    random = np.random.default_rng(seed)
    n, m, s = random.integers(12, 18), random.integers(50, 150), random.uniform(4, 12)
    x, share = 2 * random.integers(0, 2, n) - 1, random.uniform(0.3, 0.7)
    W = s / n * np.tile(x[:, None], m) + random.normal(0, 0.1, (n, m))
    b = -x * share * m * s / n * random.uniform(0.9, 1) + random.normal(0, 0.2, n)
    c = -s * (x > 0).mean() * (1 - share) * random.uniform(0.9, 1) + random.normal(
        0, 0.2, m
    )
    return rbm(W, b, c)


def weak(seed: int) -> Flat:
    """Return a machine of 20 to 59 visible units that are pulled weakly towards one
    pattern.
    """
    random = np.random.default_rng(seed)
    n, m, s = random.integers(20, 60), random.integers(18, 22), random.uniform(2, 10)
    x = 2 * random.integers(0, 2, n) - 1
    W = s / n * np.tile(x[:, None], m) + random.normal(0, 0.1, (n, m))
    b = -x * random.uniform(0, 0.6 * m * s / n) + random.normal(0, 0.2, n)
    return rbm(
        W, b, -s * (x > 0).mean() * random.uniform(0, 0.8) + random.normal(0, 0.2, m)
    )


def two_regions(seed: int) -> Flat:
    """Return a machine 24-18 with heavy regions around a pattern and around its mirror
    image.
    """
    random = np.random.default_rng(seed)
    x, s = random.integers(0, 2, 24), random.uniform(1, 4)
    W, b, c = (
        random.normal(0, 0.3, (24, 18)),
        random.normal(0, 0.2, 24),
        random.normal(0, 0.2, 18),
    )
    for units, pattern in ((slice(0, 6), x), (slice(6, 12), 1 - x)):
        W[:, units] += s * (2 * pattern - 1)[:, None]
        c[units] -= s * pattern.sum() * random.uniform(0.5, 1)
    return rbm(W, b, c)


def narrow(seed: int) -> Flat:
    """Return a machine 20-6 with one state 12 to 40 nats above all others together."""
    return narrow_rbm(seed)[0]


def exact_log_z(machine: Flat) -> float:
    """Return log Z; units without weights are factors of Z of their own."""
    W, b, c = (array.astype(np.float64) for array in machine.plain)
    alone, idle = ~W.any(axis=1), ~W.any(axis=0)
    free = np.logaddexp(0, b[alone]).sum() + np.logaddexp(0, c[idle]).sum()
    bound = np.ascontiguousarray(W[~alone][:, ~idle]), b[~alone], c[~idle]
    return float(log_partition(*bound) + free)


def beside(machine: Flat, visible: int, hidden: int, size: float, seed: int) -> Case:
    """Return a machine with fair coins on both sides, and log Z.

    Between coins are normal weights of this size, so that Z is the product of two.
    """
    W, b, c = machine.plain
    coins = size * np.random.default_rng(seed).standard_normal((visible, hidden))
    both = np.zeros((len(b) + visible, len(c) + hidden))
    both[: len(b), : len(c)], both[len(b) :, len(c) :] = W, coins
    nothing = np.zeros(visible), np.zeros(hidden)
    of_coins = rbm(coins, *nothing)
    whole = rbm(both, np.append(b, nothing[0]), np.append(c, nothing[1]))
    return whole, exact_log_z(machine) + exact_log_z(of_coins)


def free_bits(seed: int) -> Case:
    """Return a collective state beside 30 to 59 fair coins."""
    coins = int(np.random.default_rng(seed).integers(30, 60))
    return beside(collective(seed), coins, 0, 0.0, seed)


def free_bits_beside_a_state(seed: int) -> Case:
    """Return 30 to 59 fair coins beside a state of 20 units, 1 to 8 nats above the
    others; it fades among the coins.
    """
    coins = int(np.random.default_rng(seed).integers(30, 60))
    machine, _ = narrow_rbm(seed, n=20, m=18, depths=(1, 8))
    return beside(machine, coins, 0, 0.0, seed)


def free_bits_on_both_sides(seed: int) -> Case:
    """Return a collective state beside 30 to 59 and 5 to 19 fair coins."""
    random = np.random.default_rng(seed)
    coins = random.integers(30, 60), random.integers(5, 20)
    return beside(collective(seed), *map(int, coins), 0.0, seed)


def almost_free_bits(seed: int) -> Case:
    """Return the same with weights of 0.1 to 0.6 between 30 to 59 and 5 to 12 units."""
    random = np.random.default_rng(seed)
    coins = random.integers(30, 60), random.integers(5, 13)
    return beside(collective(seed), *map(int, coins), random.uniform(0.1, 0.6), seed)


def log_z_in_80_bits(machine: Flat) -> float:
    """Return log Z by the sum over all states in 80 bits."""
    return reference_log_partition(*(np.longdouble(array) for array in machine.plain))


def known(
    kind: Callable[[int], Flat], log_z_of: Callable[[Flat], float] = exact_log_z
) -> Callable[[int], Case]:
    """Return machines of a kind with their log Z."""

    @wraps(kind)
    def case(seed: int) -> Case:
        machine = kind(seed)
        return machine, log_z_of(machine)

    return case


SILENT = {
    known(collective): 100,
    known(two_regions): 100,
    known(narrow): 100,
    known(weak): 100,
    free_bits: 24,
    free_bits_beside_a_state: 24,
    free_bits_on_both_sides: 24,
    almost_free_bits: 24,
}


def silent() -> Iterator[str]:
    """Machines whose modes no row shows, 100 temperatures: errors above 1 nat, how many
    are not doubtful.
    """
    for kind, count in SILENT.items():
        wrong, quiet, alarms = 0, 0, 0
        for seed in range(count):
            machine, log_z = kind(seed)
            random = np.random.default_rng(seed)
            rows = (random.random((20, machine.sizes[0])) < 0.3).astype(np.uint8)
            answer = estimated(machine, rows, seed, 100)
            error = abs(answer["log_z"] - log_z)
            wrong += error > 1
            quiet += error > 1 and not answer["doubtful"]
            alarms += error < 0.1 and answer["doubtful"]
        yield (
            f"{kind.__name__}: {wrong} of {count} wrong, {quiet} of these not "
            f"doubtful, {alarms} false alarms"
        )


def cancelling(size: float, seed: int) -> Flat:
    """Return a machine with weights of this size whose terms of log Z cancel; of four,
    one is deep.
    """
    random = np.random.default_rng(seed)
    n, m, deep = (
        random.integers(4, 10),
        random.integers(4, 8),
        random.integers(1, 4) * (seed % 4 == 0),
    )
    W = random.permuted(
        np.tile(np.arange(m) % 2 * 2 - 1, (n, 1)), axis=1
    ) * random.uniform(0.5, 1.5, (n, m))
    b = random.normal(0, 1, n) - np.maximum(size * W, 0).sum(axis=1)
    flat = rbm(size * W, b, random.normal(0, 1, m))
    if not deep:
        return flat
    return flat._replace(
        start=np.full(deep, 0.5, np.float32), sizes=(int(n - deep), int(m), int(deep))
    )


def proofs() -> Iterator[str]:
    """2,000 machines whose huge terms cancel, 500 of them deep, against sums in 80
    bits.

    How many proved bounds of log Z lie above it, and how many limits of the mean
    log-likelihood of rows, or of its mean-field bound, below it.
    """
    for size in (1, 100, 1e4, 1e6):
        high = low = 0
        closest = [-np.inf, -np.inf]
        for seed in range(500):
            machine = cancelling(size, seed)
            rows = (
                np.random.default_rng(seed)
                .permutation(states(machine.sizes[0]))[:20]
                .astype(np.uint8)
            )
            wide = [array.astype(np.longdouble) for array in machine.plain]
            log_z, found = (
                reference_log_partition(*wide),
                estimated(machine, rows, seed, 3),
            )
            if machine.is_deep:
                name, posterior = (
                    "lower_bound",
                    posterior_of(machine, rows.astype(np.float32)),
                )
                deep, odd = (means.astype(np.longdouble) for means in posterior[:2])
                lower = -energy(np.hstack([rows, deep]), odd, *wide)
                lower += sum(
                    entropy(means.astype(np.float64)) for means in posterior[:2]
                )
            else:
                name, lower = (
                    "log_likelihood",
                    -free_energy(rows.astype(np.longdouble), *wide),
                )
            most = found[f"{name}_at_most"]["mean"]
            excess = found["log_z_at_least"] - log_z, lower.mean() - log_z - most
            closest = [
                max(pair) for pair in zip(closest, map(float, excess), strict=True)
            ]
            high, low = high + (excess[0] > 0), low + (excess[1] > 0)
        nearest = f"closest {closest[0]:.1e} and {closest[1]:.1e} nats"
        yield (
            f"weights of {size:g}: {high} bounds too high, {low} limits too low, of "
            f"500; {nearest}"
        )


def planted(seed: int) -> Flat:
    """Return a machine 24-18 whose hidden units each prefer one of three patterns."""
    random = np.random.default_rng(seed)
    patterns = 2 * random.integers(0, 2, (3, 24)) - 1
    size = random.uniform(2, 12)
    W = size / 24 * patterns[np.arange(18) % 3].T + random.normal(0, 0.1, (24, 18))
    return rbm(W, random.normal(0, 0.3, 24), -size * random.uniform(0.1, 0.5, 18))


def huge(seed: int) -> Flat:
    """Return a machine of up to 12 and 8 units with weights of 0.01 to 10^6."""
    random = np.random.default_rng(seed)
    n, m = random.integers(1, 13), random.integers(1, 9)
    return rbm(*random_rbm(int(n), int(m), seed, 10 ** random.uniform(-2, 6)))


def cancelling_of_any_size(seed: int) -> Flat:
    """Return `cancelling` with weights of 1 to 10^6; a fourth of them is deep."""
    return cancelling(10 ** np.random.default_rng(seed).uniform(0, 6), seed)


def by_means(machine: Flat, seed: int) -> float:
    """Return what independent units prove of log Z, from random states."""
    random = np.random.default_rng(seed)
    starts = (random.random((10, len(machine.b))) < 0.5).astype(np.float32)
    margin = certificate._ROUNDING_OF_MEANS * certificate.rounding(machine)
    return factorial.log_z_by_means(machine, starts) - margin


def adversarial() -> Iterator[str]:
    """3,000 machines: what independent units alone prove, against log Z."""
    for kind, count in (
        (known(huge, log_z_in_80_bits), 800),
        (known(cancelling_of_any_size, log_z_in_80_bits), 800),
        (known(planted), 400),
        (known(collective), 400),
        (free_bits, 300),
        (almost_free_bits, 300),
    ):
        above, gaps = 0, []
        for seed in range(count):
            machine, log_z = kind(seed)
            gaps.append(float(log_z - by_means(machine, seed)))
            above += gaps[-1] < 0
        yield (
            f"{kind.__name__}: {above} of {count} above log Z, nearest "
            f"{min(gaps):.1e} nats, median {np.median(gaps):.2f} below"
        )


def healthy() -> Iterator[str]:
    """100 machines that mix: false alarms."""
    alarms, errors = 0, []
    for seed in range(100):
        machine = rbm(*random_rbm(20, 6, seed, 0.5))
        rows = (
            np.random.default_rng(seed).permutation(states(20)[::1001]).astype(np.uint8)
        )
        found = estimated(machine, rows, seed, 1000)
        alarms += found["doubtful"]
        errors.append(found["log_z"] - log_partition(*machine.plain))
    yield f"{alarms} of 100 doubtful, RMS error {_rms(errors):.4f}"


def _rms(errors: list[float]) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


def trained(data: str, hidden: int, offsets: str, **settings: Any) -> Flat:
    """Return a machine after a training with PCD-1 and batches of 100 rows."""
    cell = {
        "trials": 1,
        "data": data,
        "model": {"kind": "rbm", "hidden": hidden},
        "offsets": offsets,
        "sampler": "PCD-1",
        "batch": 100,
        "evaluate": {"method": "none"},
    }
    grid = {"experiments": {"x": cell | settings}}
    with tempfile.TemporaryDirectory() as folder:
        run(grid, output=folder, progress=False)
        (cell,) = Results(Path(folder)).store("x").manifest().cells
        machine = load(f"{folder}/{cell.run_id}:0")
    return flatten(machine.parameters)


def deep(seed: int) -> Flat:
    """Return a machine of layers of 14, 18 and 10 units and normal weights."""
    W, b, c = random_rbm(24, 18, seed, 0.5)
    halves = np.full(10, 0.5, np.float32)
    return rbm(W, b, c)._replace(start=halves, sizes=(14, 18, 10))


def small_weights(seed: int) -> Flat:
    """Return a machine 24-18 with normal weights of 0.1."""
    return rbm(*random_rbm(24, 18, seed, 0.1))


def middle_weights(seed: int) -> Flat:
    """Return a machine 24-18 with normal weights of 0.5."""
    return rbm(*random_rbm(24, 18, seed, 0.5))


def large_weights(seed: int) -> Flat:
    """Return a machine 24-18 with normal weights of 2."""
    return rbm(*random_rbm(24, 18, seed, 2.0))


def nothing(*given: Any) -> float:
    """Prove nothing."""
    return -np.inf


STATES_ALONE = {"_LISTED_BITS": 0, "log_z_by_means": nothing}
MEANS_ALONE = {"_LISTED_BITS": 0, "_log_sum": nothing}
IN_ALL = {"_LISTED_BITS": certificate._LISTED_BITS}


def proofs_of(
    machine: Flat, rows: NDArray, temperatures: int
) -> tuple[list[float], float]:
    """Return what is proved by states, by means and in all, and the estimate by AIS."""
    proofs = []
    for changes in (STATES_ALONE, MEANS_ALONE, IN_ALL):
        with mock.patch.multiple(certificate, **changes):
            answer = estimated(machine, rows, 1, temperatures)
        proofs.append(answer["log_z_at_least"])
    return proofs, answer["log_z"]


def gaps() -> Iterator[str]:
    """What is proved less log Z: by states alone, as before; by independent units
    alone; in all. Medians of five machines of a kind.
    """
    kinds = (
        *map(known, (small_weights, middle_weights, large_weights, deep)),
        *map(known, (collective, two_regions, narrow, weak, planted)),
        *(free_bits, free_bits_on_both_sides, almost_free_bits),
    )
    for kind in kinds:
        below = []
        for seed in range(5):
            machine, log_z = kind(seed)
            random = np.random.default_rng(seed)
            rows = (random.random((20, machine.sizes[0])) < 0.3).astype(np.uint8)
            proofs, _ = proofs_of(machine, rows, 1000)
            below.append(np.subtract(proofs, log_z))
        states_alone, means_alone, in_all = np.median(below, axis=0)
        name = kind.__name__.replace("_", " ")
        yield f"{name}: {states_alone:.2f}, {means_alone:.2f}, {in_all:.2f}"


def trained_gaps() -> Iterator[str]:
    """The same of trained machines; of 784 x 500 units less an estimate of log Z."""
    for data, hidden, offsets, settings in (
        ("mnist", 16, "dd^b_s", {"learning_rate": 0.05, "updates": 6000}),
        ("mnist", 16, "00", {"learning_rate": 0.05, "updates": 6000}),
        ("mnist", 20, "dd^b_s", {"learning_rate": 0.05, "updates": 6000}),
        ("dna", 20, "dd^b_s", {"learning_rate": 0.05, "updates": 6000}),
        ("connect4", 20, "dd^b_s", {"learning_rate": 0.05, "updates": 6000}),
        ("mnist", 500, "dd^b_s", {"learning_rate": 0.05, "updates": 3000}),
    ):
        machine = trained(data, hidden, offsets, **settings)
        rows = read_data(data)["train"][:2000]
        proofs, log_z = proofs_of(machine, rows, 3000)
        if hidden <= 20:
            log_z = exact_log_z(machine)
        states_alone, means_alone, in_all = np.subtract(proofs, log_z)
        yield (
            f"{data}, {len(machine.b)} x {hidden}, {offsets}: {states_alone:.2f}, "
            f"{means_alone:.2f}, {in_all:.2f}"
        )


def shares() -> Iterator[str]:
    """Processor time of the proof, in that of AIS of 100 runs of 14,500 temperatures;
    least of 3.
    """
    own, spent = likelihood.log_z_at_least, 0.0

    def timed(*arguments: Any, **named: Any) -> float:
        nonlocal spent
        began = time.process_time()
        log_z = own(*arguments, **named)
        spent = time.process_time() - began
        return log_z

    likelihood.log_z_at_least = timed
    for n, m, rows in ((784, 500, 2000), (784, 16, 2000), (16, 200, 2000)):
        machine = rbm(*random_rbm(n, m, 1, 0.05))
        x = (np.random.default_rng(1).random((rows, n)) < 0.15).astype(np.uint8)
        of_proof, of_rest = [], []
        for _ in range(3):
            began = time.process_time()
            estimated(machine, x, 1, 14_500)
            of_proof.append(spent)
            of_rest.append(time.process_time() - began - spent)
        share = min(of_proof) / min(of_rest)
        yield f"{n} x {m}, {rows:,} rows: {min(of_proof):.2f} s, {share:.1%}"
    likelihood.log_z_at_least = own


def clamped() -> Iterator[str]:
    """20,000 samples of 8 free units: distance from the exact conditional distribution,
    in noise.
    """
    for sampler in ("gibbs", "PT_5"):
        machine = rbm(*random_rbm(16, 6, 3, 1.0))
        row = np.where(
            np.arange(16) < 8, np.nan, np.random.default_rng(2).integers(0, 2, 16)
        )
        free = states(8)
        x = np.hstack([free, np.tile(row[8:], (256, 1))])
        scores = -free_energy(x, *(array.astype(np.float64) for array in machine.plain))
        p = np.exp(scores - np.logaddexp.reduce(scores))
        how = {"chains": 20_000, "steps": 50, "seed": 1}
        found = draw_given(
            machine, parse_sampler(sampler), 20_000, row[None], "row", **how
        ).samples
        share = np.bincount(found[:, :8] @ 2 ** np.arange(8), minlength=256) / 20_000
        noise = (
            np.sqrt(2 * p * (1 - p) / np.pi / 20_000).sum() / 2
        )  # expected of independent samples
        far = abs(share - p).sum() / 2
        yield f"{sampler:<6} total variation {far:.4f}, {far / noise:.2f} x noise"


def workers() -> Iterator[str]:
    """`cbm evaluate RESULTS --ais` of 32 machines on one and on two processes."""
    grid = {
        "experiments": {
            "x": {
                "trials": 32,
                "data": {"name": "shifting-bar", "size": 60, "bar": 10},
                "model": {"kind": "rbm", "hidden": 200},
                "offsets": "dd^b_s",
                "sampler": "PCD-1",
                "learning_rate": 0.05,
                "updates": 100,
                "batch": "full",
                "evaluate": {"method": "none"},
            }
        }
    }
    with tempfile.TemporaryDirectory() as folder:
        run(grid, output=folder, progress=False)
        took = []
        for processes in (1, 2):
            began = time.monotonic()
            with locked(Path(folder)) as lock:
                for _ in evaluate_trials(
                    lock.writer("x"), Method("ais"), workers=processes, again=True
                ):
                    pass
            took.append(time.monotonic() - began)
    yield f"{took[0]:.1f} s and {took[1]:.1f} s: {took[0] / took[1]:.2f} times as fast"


MEASUREMENTS = (
    silent,
    proofs,
    adversarial,
    healthy,
    gaps,
    trained_gaps,
    shares,
    clamped,
    workers,
)

if __name__ == "__main__":
    for measurement in MEASUREMENTS:
        if measurement.__name__ in (
            sys.argv[1:] or [one.__name__ for one in MEASUREMENTS]
        ):
            print(f"\n{measurement.__doc__}")
            for line in measurement():
                print(line, flush=True)
