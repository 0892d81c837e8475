"""Check the batches of `batch.py` and time them; for someone who has a GPU for a quarter of an hour.

    python benchmarks/gpu/measure.py                          on a GPU, about six minutes
    python benchmarks/gpu/measure.py --device cpu --quick     the same in small, without a GPU

Prints a line for every check, then a Markdown table, and writes all numbers to measure.json in --out. Needs
PyTorch, NumPy and SciPy. With Numba, threadpoolctl, platformdirs and pydantic the kernels are checked against
and timed on the same machine; without them the script says so, compares with PyTorch on the CPU, and sets
times against those of docs/benchmarks.md. A part that fails is told and left out.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the kernels are timed on one core
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch
from batch import NOISE, Annealing, Batch, Plan, State, one_round, philox, uniform

from cbm_cli import reference as ref

try:
    from tests import oracles
except ImportError as error:
    oracles, MISSING = None, str(error)

KEPT = {
    "PCD-1": 1.63e-3,
    "PT_20": 29.4e-3,
    "AIS": 0.816e-3,
    "PCD-1 toys": 1.28e-6,
}  # seconds: docs/benchmarks.md
ANSWERS = (  # of Philox4x32-10, published with it: counter, key, words
    ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((_ := 0xFFFFFFFF,) * 4, (_,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)
TEN = {  # settings of trials that go in batches of three with different schemes
    "PCD-1": {},
    "PCD-1, offsets after the step": {"before": False},
    "PCD-3": {"steps": 3},
    "CD-1": {"restart": True},
    "CD-2": {"restart": True, "steps": 2},
    "PT_2": {"temperatures": 2},
    "PT_5": {"temperatures": 5},
    "PT_20": {"temperatures": 20},
    "PT_4-3": {"temperatures": 4, "steps": 3},
    "PT_7, 15 samples": {"temperatures": 7, "samples": 15},
}
SCHEMES = ("dh", "am", "rr"), (1.0, 0.3, 0.01), (0.1, 0.05, 0.2)  # with sliding factors and rates


class Measurement:
    """Where measuring stands: settings, numbers found, and the time that is left."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.device, self.quick, self.out = torch.device(asked.device), asked.quick, asked.out
        self.ends, self.found, self.table = time.monotonic() + 60 * asked.minutes, {}, []
        self.is_gpu = self.device.type == "cuda"

    def tell(self, name: str, value: object, text: str = "") -> None:
        """Print a number and keep it; the file is written each time, so that a stopped run leaves it."""
        self.found[name] = value
        print(f"{name}: {text or value}", flush=True)
        (self.out / "measure.json").write_text(json.dumps(self.found | {"table": self.table}, indent=1))

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A part that may fail; the others are made all the same."""
        began = time.monotonic()
        try:
            yield
        except Exception as error:
            traceback.print_exc()
            self.tell(f"{name} failed", f"{type(error).__name__}: {str(error)[:300]}")
        print(f"  ({name}: {time.monotonic() - began:.0f} s)", flush=True)

    def seconds(self, work: Callable[[int], object], least: float = 0.3, rounds: int = 5) -> float:
        """Median of some rounds of the seconds that ``work`` takes for one repetition."""
        count, times = 1, []
        while (took := self._seconds(work, count)) < least / 4 and count < 2**20:
            count *= 2
        for _ in range(rounds if took < 5 else 1):
            times.append(self._seconds(work, count) / count)
        return statistics.median(times)

    def _seconds(self, work: Callable[[int], object], count: int) -> float:
        began = time.perf_counter()
        work(count)
        if self.is_gpu:
            torch.cuda.synchronize()
        return time.perf_counter() - began


# Checks


def check_random_numbers(m: Measurement) -> None:
    """Words against the published ones, and numbers against the kernels'."""
    for (block, low, site, high), key, words in ANSWERS:
        block, seeds = (
            torch.tensor([value], device=m.device) for value in (block, _signed(key[1] << 32 | key[0]))
        )
        found = philox(block, torch.tensor(_signed(high << 32 | low), device=m.device), site, seeds)
        assert tuple(int(word) for word in found) == words
    m.tell("random words of Philox4x32-10", "as published")
    if oracles:
        seeds, update = [1, 2**40 + 5, 2**63 + 7], 2**33 + 1
        plan = _plan(seeds=torch.tensor([_signed(seed) for seed in seeds], device=m.device))
        found = uniform(plan, torch.tensor(update, device=m.device), NOISE, 1003).cpu().numpy()
        for row, seed in zip(found, seeds, strict=True):
            assert (row == oracles.uniform(seed, update, "noise", 1003)).all()
        m.tell("random numbers of the kernels", "equal")


def check_against_kernels(m: Measurement) -> None:
    """Largest differences after 100 updates of ten settings, three trials each."""
    largest = {}
    for name, how in TEN.items():
        plans, states, rows = _small(how)
        batch = _batch_of(plans, states, rows, m.device)
        batch.run(100)
        largest[name] = _difference(
            batch.state, [_trained(*each, rows, 100) for each in zip(plans, states, strict=True)]
        )
    worst = max(largest, key=largest.get)
    m.tell("100 updates, batch beside kernels", largest, f"at most {largest[worst]:.1e} ({worst})")
    # A state flips where u is within rounding of p, once in some ten million: not in two settings.
    assert sorted(largest.values())[-2] < 1e-4
    n, hidden, updates = (784, 500, 100) if m.is_gpu else (784, 50, 20)
    rows = digits(600)
    plain = oracles.plan(n, hidden, 100, batches=6, learning_rate=0.01)
    plans = [plain._replace(seed=np.uint64(seed)) for seed in (1, 2)]
    states = [oracles.random_state(n, hidden, its, seed=k, scale=0.01) for k, its in enumerate(plans)]
    batch = _batch_of(plans, states, rows, m.device)
    batch.run(updates)
    ends = [_trained(*each, rows, updates) for each in zip(plans, states, strict=True)]
    off = float(np.mean([batch.state.h[k].cpu().numpy() != end.h for k, end in enumerate(ends)]))
    m.tell(f"PCD-1 {n}x{hidden}, {updates} updates: share of hidden states that differ", off, f"{off:.1e}")
    most = _difference(batch.state, ends, State._fields[:5])
    m.tell("the same: largest difference of parameters and offsets", most, f"{most:.1e}")


def check_annealing(m: Measurement) -> None:
    """Log weights of 9 walks of two machines, beside those of the kernels."""
    theta = [oracles.random_machine(12, 8, seed) for seed in (1, 2)]
    base, betas = np.float32(np.linspace(-1, 1, 12)), np.linspace(0, 1, 61).astype(np.float32)
    stacked = tuple(torch.tensor(np.stack(part), device=m.device) for part in zip(*theta, strict=True))
    x, plan = digits(9, 12, 0.4).astype(np.float32), _plan(seeds=torch.tensor([5, 6], device=m.device))
    start, bases = (torch.tensor(part, device=m.device).expand(2, *part.shape) for part in (x, base))
    found = Annealing(stacked, bases, start, torch.tensor(betas, device=m.device), plan, "eager")
    found.run(60)
    expected = [oracles.walk(one, base, x, betas, seed)[1] for one, seed in zip(theta, (5, 6), strict=True)]
    most = float(np.abs(found.log_weight.cpu().numpy() - expected).max())
    m.tell("AIS, 60 temperatures: log weights beside kernels", most, f"differ by {most:.1e}")
    assert most < 1e-4


def check_device_against_cpu(m: Measurement) -> None:
    """The same on the device, eager and compiled, and on the CPU: 20 updates of PCD-1 and of PT_5."""
    for sampler in ("PCD-1", "PT_5"):
        ends = {}
        for device, how in {("cpu", "eager"), *((m.device.type, how) for how in (*ways(m), "compiled"))}:
            batch = make_batch(3, 30, 20, 20, sampler, how, torch.device(device))
            batch.run(20)
            ends[device, how] = [part.cpu() for part in batch.state]
        usual = ends.pop(("cpu", "eager"))
        for (device, how), end in ends.items():
            most = max(float((a - b).abs().max()) for a, b in zip(end, usual, strict=True))
            m.tell(f"{sampler}, 20 updates, {device} {how} beside cpu eager", most, f"differs by {most:.1e}")


def check_invariance(m: Measurement) -> None:
    """Chains that start in equilibrium stay there: total variation in units of its noise."""
    rng, K, T = np.random.default_rng(1), 2_000 if m.quick else 20_000, 5
    theta = [rng.standard_normal(shape).astype(np.float32) for shape in ((6, 4), (6,), (4,))]
    tempered = [[np.float32(beta) * part for part in theta] for beta in np.arange(T) / (T - 1)]
    phases = [ref.joint_phase(*(part.astype(float) for part in machine)) for machine in tempered]
    chosen = [rng.choice(len(phase.p), K, p=phase.p) for phase in phases]
    h = np.stack([phase.h[k] for phase, k in zip(phases, chosen, strict=True)], axis=1).astype(np.float32)
    seeds = torch.arange(K, device=m.device) + 7
    plan = _plan(seeds=seeds, tempered=True)
    parts = [torch.tensor(part, device=m.device).expand(K, *part.shape) for part in theta]
    h, number = torch.tensor(h, device=m.device), torch.tensor(0, device=m.device)
    for turn in range(10):
        x, h, _ = one_round(h, parts, number + turn, torch.zeros_like(number), plan)
    worst = 0.0
    for k, phase in enumerate(phases):
        index = (x[:, k].cpu().numpy() @ 2.0 ** np.arange(6)).astype(int)
        p = phase.p.reshape(2**6, -1).sum(axis=1)
        found = np.bincount(index, minlength=len(p)) / K
        noise = np.sqrt(p * (1 - p) / K).sum() * np.sqrt(2 / np.pi) / 2  # expected total variation
        worst = max(worst, float(np.abs(found - p).sum() / 2 / noise))
    m.tell(
        "chains that start in equilibrium: total variation / noise, 10 rounds of PT_5", worst, f"{worst:.2f}"
    )
    assert worst < 4


# What is timed


def digits(count: int, n: int = 784, on: float = 0.13) -> np.ndarray:
    """Rows as dense as MNIST's: blobs of ten means."""
    rng = np.random.default_rng(1)
    means = rng.beta(0.3, 0.3 * (1 / on - 1), (10, n))
    return (rng.random((count, n)) < means[rng.integers(0, 10, count)]).astype(np.uint8)


def ways(m: Measurement) -> tuple[str, ...]:
    """How a batch can run on the device."""
    return ("compiled graph", "compiled", "eager graph", "eager") if m.is_gpu else ("eager",)


def make_batch(
    trials: int, n: int, hidden: int, size: int, sampler: str, how: str, device: torch.device
) -> Batch:
    """A batch of dd^b_s on rows like digits, every trial with its own order of them."""
    rng, rows = np.random.default_rng(2), digits(6 * size if n < 100 else 6000, n)
    T = int(sampler.partition("_")[2]) if "PT" in sampler else size
    shapes = (trials, n, hidden), (trials, n), (trials, hidden)
    W, b, c = (0.01 * rng.standard_normal(shape) for shape in shapes)
    b = b + np.log((rows.mean(0) + 0.01) / (1.01 - rows.mean(0)))
    state = State(W, b, c, b * 0 + rows.mean(0), c * 0 + 0.5, rng.random((trials, T, hidden)) < 0.5)
    state = State(*(torch.tensor(part, dtype=torch.float32, device=device) for part in state))
    order = torch.tensor(np.argsort(rng.random((trials, len(rows)))), device=device)
    plan = _plan(
        seeds=torch.arange(trials, device=device) + 1,
        rates=torch.full((trials,), 0.01, device=device),
        batch=size,
        tempered="PT" in sampler,
        rounds=size if "PT" in sampler else 1,
        device=device,
    )
    return Batch(state, torch.tensor(rows, device=device), order, plan, how)


def time_training(m: Measurement, name: str, trials: int, sizes: tuple[int, int, int]) -> None:
    """Trials times updates a second of a sampler, in each way to run them."""
    sampler, (n, hidden, size) = name.partition(" ")[0], sizes
    core, where = kernel_seconds(m, name, sizes)
    T = int(sampler.partition("_")[2]) if "PT" in sampler else 0
    flops = 2 * n * hidden * (2 * T * size + 3 * size if T else 5 * size)
    for how in ways(m):
        if time.monotonic() > m.ends:
            return
        with m.part(f"{name} {n}x{hidden}, {trials} trials, {how}"):
            batch = make_batch(trials, n, hidden, size, sampler, how, m.device)
            batch.run(4)
            took = m.seconds(batch.run)
            assert all(bool(torch.isfinite(part).all()) for part in batch.state)
            row(m, f"{sampler} {n}x{hidden}, batch {size}", trials, how, took, flops, core, where)
            del batch
            if m.is_gpu:
                torch.cuda.empty_cache()


def time_annealing(m: Measurement, name: str, machines: int, sizes: tuple[int, int, int]) -> None:
    """Seconds of a temperature of AIS; in the first way, of all temperatures."""
    (n, hidden, runs), steps = sizes, 500 if m.quick else 14_500
    core, where = kernel_seconds(m, name, sizes)
    for how in ways(m):
        if time.monotonic() > m.ends:
            return
        with m.part(f"AIS {machines} machines {how}"):
            annealing = make_annealing(m, machines, runs, n, hidden, steps, how)
            annealing.run(100 if m.is_gpu else 5)
            count = steps if how == "compiled graph" else steps // 50
            took = m._seconds(annealing.run, count) / count
            assert bool(torch.isfinite(annealing.log_weight).all())
            work = f"AIS {n}x{hidden}, {runs} runs, a temperature"
            row(m, work, machines, how, took, 4 * runs * n * hidden, core, where)


def make_annealing(
    m: Measurement, machines: int, runs: int, n: int, hidden: int, steps: int, how: str
) -> Annealing:
    """Runs from random states of machines with random weights."""
    rng, device = np.random.default_rng(3), m.device
    shapes = (machines, n, hidden), (machines, n), (machines, hidden)
    theta = tuple(
        torch.tensor(0.05 * rng.standard_normal(s), dtype=torch.float32, device=device) for s in shapes
    )
    x = torch.tensor(rng.random((machines, runs, n)) < 0.5, dtype=torch.float32, device=device)
    betas = torch.linspace(0, 1, steps + 1, device=device)
    plan = _plan(seeds=torch.arange(machines, device=device) + 1)
    return Annealing(theta, torch.zeros(machines, n, device=device), x, betas, plan, how)


def kernel_seconds(m: Measurement, name: str, sizes: tuple[int, int, int]) -> tuple[float, str]:
    """Seconds of an update, or of a temperature, of one trial on one core, and where that was measured."""
    (n, hidden, size), sampler = sizes, name.partition(" ")[0]
    if not oracles:
        return KEPT[name], "docs/benchmarks.md"
    if name == "AIS":
        rng, rows = np.random.default_rng(3), digits(size, n).astype(np.float32)
        theta = [(0.05 * rng.standard_normal(s)).astype(np.float32) for s in ((n, hidden), (n,), (hidden,))]

        def walk(count: int) -> None:
            oracles.walk(theta, 0 * theta[1], rows, np.linspace(0, 1, count + 1).astype(np.float32), 1)

        walk(1)  # compiles
        return m._seconds(walk, 200) / 200, "here"
    rows = digits(6 * size if n < 100 else 6000, n)
    T = int(sampler.partition("_")[2]) if "PT" in sampler else 1
    more = {"temperatures": T, "ladders": 1, "samples": size} if T > 1 else {}
    its = oracles.plan(n, hidden, size, batches=len(rows) // size, learning_rate=0.01, **more)
    state, made = oracles.random_state(n, hidden, its, seed=1, scale=0.01), 0
    state.b[:] = np.log((rows.mean(0) + 0.01) / (1.01 - rows.mean(0)))

    def train(count: int) -> None:
        nonlocal made
        oracles.learn(state, rows, its, made, made + count)
        made += count

    train(300 if T == 1 else 10)  # until the chains look like the data
    return m.seconds(train), "here"


def row(
    m: Measurement, work: str, trials: int, how: str, took: float, flops: float, core: float, where: str
) -> None:
    """A row of the table."""
    share = flops * trials / took / m.found["float32 product, FLOP/s"]
    m.table.append(
        {"work": work, "trials": trials, "how": how, "seconds": took, "times one core": trials * core / took}
        | {"core seconds": core, "core": where, "share of product": share}
    )
    m.tell(
        f"{work}, {trials} trials, {how}", took, f"{took * 1e3:.3f} ms, {trials * core / took:.1f} x one core"
    )


def measure_ceilings(m: Measurement) -> None:
    """What the device can do: a large product in float32, the same in TF32, a copy."""
    size = 8192 if m.is_gpu else 1024
    a, b = (torch.rand(size, size, device=m.device) for _ in range(2))
    m.tell("float32 product, FLOP/s", 2 * size**3 / m.seconds(lambda n: [a @ b for _ in range(n)]))
    if m.is_gpu:
        torch.set_float32_matmul_precision("high")
        m.tell("TF32 product, FLOP/s", 2 * size**3 / m.seconds(lambda n: [a @ b for _ in range(n)]))
        torch.set_float32_matmul_precision("highest")
    big = torch.rand(2**28 if m.is_gpu else 2**24, device=m.device)
    to = torch.empty_like(big)
    m.tell(
        "copy, bytes/s read and written",
        8 * big.numel() / m.seconds(lambda n: [to.copy_(big) for _ in range(n)]),
    )


# Small helpers


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


def _plan(seeds: torch.Tensor, device: torch.device | None = None, **changes: object) -> Plan:
    """A plan of dd^b_s with a hidden sliding factor of 0.01."""
    trials, device = len(seeds), device or seeds.device
    shares = torch.tensor(ref.LETTERS["d"], device=device, dtype=torch.float32)[:, None, None].expand(
        4, trials, 1
    )
    ones = torch.ones(trials, 1, device=device)
    return Plan(seeds, ones[:, 0], shares, shares, ones, 0.01 * ones, 1)._replace(**changes)


def _small(how: dict) -> tuple[list, list, np.ndarray]:
    """Plans, states and rows of three trials that differ in scheme, sliding factor, rate and seed."""
    n, hidden, B = 12, 8, 10
    more = dict(how)
    if "temperatures" in how:
        more |= {"ladders": 1, "samples": how.get("samples", B)}
    plans = [
        oracles.plan(n, hidden, B, scheme, (nu, nu), batches=5, learning_rate=eta, **more)._replace(
            seed=np.uint64(k + 1)
        )
        for k, (scheme, nu, eta) in enumerate(zip(*SCHEMES, strict=True))
    ]
    states = [oracles.random_state(n, hidden, its, seed=k, scale=0.5) for k, its in enumerate(plans)]
    return plans, states, digits(50, n, 0.4)


def _batch_of(plans: list, states: list, rows: np.ndarray, device: torch.device) -> Batch:
    """The batch of trials that the kernels train by these plans from these states."""

    def stacked(arrays: list, axis: int = 0) -> torch.Tensor:
        return torch.tensor(np.stack(arrays, axis), device=device)

    state = State(
        *(stacked([getattr(s, name) for s in states]) for name in ("W", "b", "c", "mu", "lam", "h"))
    )
    its, how = plans[0], [one.offsets for one in plans]
    plan = Plan(
        seeds=torch.tensor([_signed(int(one.seed)) for one in plans], device=device),
        rates=stacked([one.rates[0] for one in plans]),
        mu_shares=stacked([one.mu_mix for one in how], 1),
        lam_shares=stacked([one.lam_mix for one in how], 1),
        mu_factor=stacked([one.mu_factor for one in how]),
        lam_factor=stacked([one.lam_factor for one in how]),
        batch=its.batch,
        rounds=its.rows // its.chains,
        steps=its.steps,
        tempered=its.temperatures > 1,
        restart=its.restart,
        before=its.offsets.before,
    )
    order = torch.arange(len(rows), device=device).expand(len(plans), -1)
    return Batch(state, torch.tensor(rows, device=device), order, plan)


def _trained(its: object, state: object, rows: np.ndarray, updates: int) -> object:
    """The state after training by the kernels."""
    oracles.learn(state, rows, its, 0, updates)
    return state


def _difference(state: State, ends: list, names: tuple[str, ...] = State._fields) -> float:
    """Largest difference of any number of the states."""
    found = {name: getattr(state, name).cpu().numpy() for name in names}
    pairs = ((found[name][k], getattr(end, name)) for k, end in enumerate(ends) for name in names)
    return max(float(np.abs(one - other).max()) for one, other in pairs)


def main() -> None:
    """Check and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument(
        "--minutes", type=float, default=5.5, help="begin nothing after so many (default: 5.5)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path(os.environ.get("OUT", ".")), help="folder of measure.json"
    )
    asked = parser.parse_args()
    if asked.device == "cuda" and not torch.cuda.is_available():
        parser.error("PyTorch finds no CUDA device; --device cpu --quick tries everything without one")
    m, quick = Measurement(asked), asked.quick
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    m.tell("device", torch.cuda.get_device_name() if m.is_gpu else platform.processor() or "cpu")
    m.tell(
        "versions", {"torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}
    )
    if not oracles:
        m.tell(
            "kernels", f"cannot be imported: {MISSING}; needs numba, threadpoolctl, platformdirs, pydantic"
        )
    with m.part("ceilings"):
        measure_ceilings(m)
    with m.part("random numbers"):
        check_random_numbers(m)
    if oracles:
        with m.part("kernels"):
            check_annealing(m)
            check_against_kernels(m)
    with m.part("invariance"):
        check_invariance(m)
    with m.part("device and CPU"):
        check_device_against_cpu(m)
    sizes = (784, 50, 5) if quick else (784, 500, 100)
    works = ("PCD-1", 100, sizes), ("PT_20", 50, sizes), ("AIS", 20, sizes), ("PCD-1 toys", 7200, (9, 4, 16))
    for name, trials, shape in (*works, ("PT_20", 25, sizes), ("PCD-1", 25, sizes), ("PCD-1", 1, sizes)):
        with m.part(f"{name}, {trials} trials"):
            time_work = time_annealing if name == "AIS" else time_training
            time_work(m, name, min(trials, 2) if quick else trials, shape)
    show(m)


def show(m: Measurement) -> None:
    """Print the table."""
    print(f"\n{m.found['device']}, PyTorch {torch.__version__}; a core is that of the kernels\n")
    print(
        "| work | trials | how | time | one core, one trial | x one core | share of a large float32 product |"
    )
    print("|---|---|---|---|---|---|---|")
    for one in m.table:
        print(
            f"| {one['work']} | {one['trials']} | {one['how']} | {one['seconds'] * 1e3:.4g} ms "
            f"| {one['core seconds'] * 1e3:.3g} ms ({one['core']}) | {one['times one core']:.1f} "
            f"| {one['share of product']:.2f} |"
        )


if __name__ == "__main__":
    main()
