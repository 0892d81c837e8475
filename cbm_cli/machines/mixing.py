"""How fast chains mix: acceptance of swaps, round trips, and the autocorrelation time of the energy."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cbm_cli.kernels.machine import Rows
from cbm_cli.machines import streams
from cbm_cli.machines.estimates import Plain
from cbm_cli.machines.tempering import Ladders

_LADDERS, _SWEEPS, _BURNT = 20, 300, 100  # watched chains or ladders, their sweeps, and those left out
_WINDOW = 5  # autocorrelation times over which correlations are summed (Sokal 1997)

Values = NDArray[np.float64]


def measure_mixing(machine: Plain, temperatures: int, rows: Rows, unit: float, seed: int) -> dict[str, float]:
    """Watch 20 chains, or ladders of a sampler's temperatures, for 200 sweeps after 100 from rows of data.

    Returns ``autocorrelation_time`` (sweeps, of the energy at temperature 1: one means independence, and a
    time near 200 that chains hardly move), and for ladders ``round_trips`` (of states from the hottest
    temperature to 1 and back, per ladder and 1,000 sweeps) and ``acceptance_1``, ... (of swaps, by link from
    the hottest on).
    """
    W, b, c = machine
    random, betas = (
        streams.generator(seed, streams.MIXING),
        np.linspace(1 if temperatures == 1 else 0, 1, temperatures),
    )
    x = rows[random.integers(0, len(rows), _LADDERS)] * np.float32(unit)
    h = (random.random((_LADDERS, len(c))) < expit(x @ W + c)).astype(np.float32)
    ladders = Ladders(machine, np.zeros_like(b), betas, h, seed)
    energies, chances, trips = [], [], _Trips(_LADDERS, temperatures)
    for number in range(_SWEEPS):
        ladders.sweep()
        energies.append(ladders.chains.energy.reshape(ladders.shape)[:, -1].copy())
        chance, made = ladders.swap()
        chances.append(chance.mean(axis=0))
        trips.follow(made, counted=number >= _BURNT)
    found = {"autocorrelation_time": autocorrelation_time(np.array(energies[_BURNT:], np.float64))}
    if temperatures > 1:
        found["round_trips"] = trips.made / _LADDERS / (_SWEEPS - _BURNT) * 1000
        means = np.mean(chances[_BURNT:], axis=0)
        found |= {f"acceptance_{link}": float(mean) for link, mean in enumerate(means, 1)}
    return found


class _Trips:
    """Follows states through the temperatures of their ladders."""

    def __init__(self, ladders: int, temperatures: int) -> None:
        self.state = np.tile(np.arange(temperatures), (ladders, 1))  # which state is where
        self.stage = np.zeros((ladders, temperatures), int)  # 1: has been hottest; 2: then at temperature 1
        self.made = 0

    def follow(self, swapped: NDArray[np.bool_], counted: bool) -> None:
        """Take the swaps (L, T - 1) of a sweep, and count states that come back to where it is hottest."""
        for ladder, link in np.argwhere(swapped):
            self.state[ladder, [link, link + 1]] = self.state[ladder, [link + 1, link]]
        every = np.arange(len(self.state))
        hot, cold = (every, self.state[:, 0]), (every, self.state[:, -1])
        self.made += int((self.stage[hot] == 2).sum()) if counted else 0
        self.stage[hot] = 1
        self.stage[cold] = np.where(self.stage[cold] == 1, 2, self.stage[cold])


def autocorrelation_time(series: Values) -> float:
    """Return 1 + 2 sum_t rho(t) of series (S, L) of one length, in steps.

    Correlations are about the mean of all, so that series that stay apart have a long time; at most S.
    """
    steps, tau = len(series), 1.0
    away = series - series.mean()
    variance = float((away**2).mean())
    if not variance:
        return float(steps)
    for lag in range(1, steps):
        tau += 2 * float((away[lag:] * away[:-lag]).mean()) / variance
        if lag >= _WINDOW * tau:
            break
    return float(np.clip(tau, 1, steps))
