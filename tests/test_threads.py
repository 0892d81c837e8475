"""Threads inside a trial: the same bytes for any number, never much slower, and nothing left behind."""

import itertools
import threading
from collections import Counter
from functools import partial
from unittest import mock

import numpy as np
import pytest

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.execution import worker
from cbm_cli.execution.engines import Backlog, _Crew
from cbm_cli.execution.observe import Observer
from cbm_cli.grid.settings import Trial
from cbm_cli.kernels import team
from cbm_cli.kernels.compiling import lean
from cbm_cli.kernels.states import mean_log_likelihood
from cbm_cli.kernels.team import (
    Pace,
    columns_of,
    make_teams,
    meet,
    run_together,
    share,
    using_cores,
    width_of_panel,
)
from cbm_cli.machines.estimates import ais, raise_bounds
from cbm_cli.machines.files import Flat
from cbm_cli.machines.samples import draw, parse_sampler
from cbm_cli.results import Outcome
from cbm_cli.trial.loop import run_trial
from tests.builders import rbm_settings, toy_jobs
from tests.golden.cases import CASES, SHORT, departure_of_runs, golden_values, run_case, values_of


@pytest.fixture
def shared(monkeypatch):
    """Let all work be shared by as many threads as there are cores, by default one."""
    monkeypatch.setattr(team, "_LITTLE", 0)
    monkeypatch.setattr(team, "cores", lambda: 99)
    monkeypatch.setattr(Pace, "threads", lambda self, most: most)


def bytes_of(arrays):
    return {name: array.tobytes() for name, array in arrays.items()}


# Rows that gather, that look up, and that are mostly on; units that do not fill panels
WIDE = {
    "PCD-1, few on": {"on": 0.03},
    "PCD-1, most on": {"on": 0.9, "model": {"kind": "rbm", "hidden": 333}},
    "CD-2": {"sampler": "CD-2", "offsets": "00"},
    "FPCD-1": {"sampler": "FPCD-1", "momentum": 0.5, "weight_decay": {"l1": 1e-4, "l2": 1e-3}},
    "PT_5": {"sampler": "PT_5-2", "swaps": "both", "offsets": "aa^l_s"},
    "means": {"offsets": "am^b_s", "offset_means": {"visible": "probabilities", "hidden": "states"}},
    "independent": {"offsets": "aa^b_s", "offsets_from": "independent"},
    "grey": {"levels": 255},
    "DBM": {"model": {"kind": "dbm", "hidden": [170, 130]}, "offsets": "ddd^b_s"},
    "DBM, Gibbs": {
        "model": {"kind": "dbm", "hidden": [170, 130, 60]},
        "offsets": "daad^b_s",
        "data_phase": "gibbs-2",
    },
    "auto encoder": {"model": {"kind": "auto-encoder", "hidden": [200, 90]}, "offsets": "ddd^b_s"},
}


def wide(name):
    """Settings and data of 300 visible and some hundred hidden units."""
    changes = {"on": 0.3, "levels": 1} | WIDE[name]
    on, levels, random = changes.pop("on"), changes.pop("levels"), np.random.default_rng(1)
    rows = (random.random((90, 300)) < on) * random.integers(1, levels + 1, (90, 300))
    base = {"model": {"kind": "rbm", "hidden": 200}, "offsets": "dd^b_s", "learning_rate": 0.02}
    base |= {"updates": 6, "batch": 25, "evaluate": {"every": "6 updates"}} | changes
    if base["model"]["kind"] == "auto-encoder":
        base["sampler"] = None
    else:
        base["evaluate"] |= {"method": "ais", "temperatures": 8, "runs": 9}
    return Trial("wide", rbm_settings(**base), 0, 1), Dataset("wide", rows.astype(np.uint8), levels=levels)


def trained(trial, data, **how):
    outcome = run_trial(trial, data, **how)
    if isinstance(outcome, Outcome):
        return {"curve": outcome.curve.tobytes()} | bytes_of(outcome.machine)
    return outcome


@pytest.mark.parametrize("name", WIDE)
def test_large_trials_have_the_bytes_of_one_thread_stopped_and_resumed_too(name, shared):
    trial, data = wide(name)
    expected = trained(trial, data)
    assert trained(trial, data, cores=5) == expected
    result, stretches = None, itertools.cycle((2, 1, 5, 3))
    while not isinstance(result, dict):
        asked = itertools.count()
        pause = lambda asked=asked: next(asked) > 2  # noqa: E731
        how = {"should_pause": pause, "should_stop": bool, "cores": next(stretches)}
        result = trained(trial, data, since=result, **how)
    assert result == expected


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_trial_has_the_bytes_of_one_thread(name, shared):
    expected = run_case(name, SHORT)
    with using_cores(3):
        found = run_case(name, SHORT)
        assert departure_of_runs(golden_values(name, SHORT), name, SHORT) is None
    assert bytes_of(values_of(name, SHORT, found)) == bytes_of(values_of(name, SHORT, expected))


def everything(n=300, m=130):
    """What is computed of a machine, on as many cores as the context has."""
    random = np.random.default_rng(n + m)
    W, b, c = (random.normal(0, 0.1, shape).astype(np.float32) for shape in ((n, m), n, m))
    rows = (random.random((5000, n)) < 0.3).astype(np.uint8)
    found, walks = ais((W, b, c), b, seed=3, temperatures=40, runs=21)
    flat = Flat(W, b, c, np.zeros(0, np.float32), (n, m))
    return bytes_of(
        {
            "ais": np.array([found.log_z, *found.interval]),
            "walks": walks.log_weight,
            "raise": raise_bounds((W, b, c), b, rows[:25].astype(np.float32), seed=1, temperatures=30),
            "likelihood": np.array(mean_log_likelihood(W, b, c, rows, 1, 17.0)),
            "grey": np.array(mean_log_likelihood(W, b, c, 7 * rows, 1 / 7, 17.0)),
            **draw(flat, parse_sampler("PT_3"), 30, chains=7, steps=4, seed=2)._asdict(),
        }
    )


def test_estimates_likelihoods_and_samples_have_the_bytes_of_one_thread(shared):
    expected = everything()
    for count in (2, 5):
        with using_cores(count):
            assert everything() == expected, count
    rows, W, b = np.eye(224 * 40 + 3, 20, dtype=np.uint8), *np.ones((2, 20, 6), np.float32)
    with using_cores(3):  # of many blocks it is that of each row
        found = mean_log_likelihood(W, b[:, 0], W[0], rows, 1, 0.0)
    scores = np.where(rows.any(axis=1), 1 + 6 * np.logaddexp(0, 2), 6 * np.logaddexp(0, 1))
    assert found == pytest.approx(scores.mean(), abs=1e-5)


def test_shares_are_whole_panels_and_each_column_and_row_is_one_threads():
    for columns, count in itertools.product([*range(1, 200), 500, 784, 1284], (1, 2, 3, 5, 16)):
        edges, j = {0}, 0
        while j < columns:
            j += width_of_panel(columns - j)
            edges.add(min(j, columns))
        parts = [columns_of(one, columns) for one in make_teams(count)]
        assert [first for first, _ in parts[1:]] == [last for _, last in parts[:-1]]
        assert (parts[0][0], parts[-1][1]) == (0, columns)
        assert {edge for part in parts for edge in part} <= edges
        assert max(last - first for first, last in parts) <= columns / count + 64
        rows = [range(*share(one, columns)) for one in make_teams(count)]
        assert [*itertools.chain(*rows)] == [*range(columns)]


@lean
def count_in_turn(one, board, rounds):
    for turn in range(rounds):
        if turn % one.threads == one.thread:
            board[0] = 3 * board[0] + turn  # what the others wrote is seen
        meet(one)


@lean
def only_arrive(one, times):
    one.arrivals[1] = 1  # nobody waits, so that all count themselves in at the same time
    for _ in range(times):
        meet(one)


def test_no_arrival_is_lost_however_many_come_at_once():
    """A lost one would let all wait for ever."""
    teams, times = make_teams(4), 5_000_000
    run_together(only_arrive, [(one, times) for one in teams], teams[0].arrivals)
    assert teams[0].arrivals[0] == 4 * times


@pytest.mark.parametrize("count", [2, 5])
def test_what_a_thread_writes_is_seen_after_a_meeting(count):
    teams, board = make_teams(count), np.zeros(1, np.uint64)
    run_together(count_in_turn, [(one, board, 1000) for one in teams], teams[0].arrivals)
    assert board[0] == sum(3 ** (999 - turn) * turn for turn in range(1000)) % 2**64


def test_an_interrupted_call_leaves_no_thread_waiting():
    teams, before, finished = make_teams(3), threading.active_count(), []

    def kernel(one):
        if one.thread == 0:
            raise KeyboardInterrupt
        count_in_turn(one, np.zeros(1, np.uint64), 50)
        finished.append(one.thread)

    with pytest.raises(KeyboardInterrupt):
        run_together(kernel, [(one,) for one in teams], teams[0].arrivals)
    assert sorted(finished) == [1, 2]
    assert threading.active_count() == before
    board = np.zeros(1, np.uint64)  # the same team meets again
    run_together(count_in_turn, [(one, board, 50) for one in teams], teams[0].arrivals)
    assert board[0]


def test_where_no_thread_can_be_started_one_does_the_work(shared, monkeypatch):
    trial, data = wide("means")
    expected = trained(trial, data)
    start, started = threading.Thread.start, []

    def starting(self):
        if len(started) % 2:
            raise RuntimeError("can't start new thread")
        started.append(self)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", starting)
    assert trained(trial, data, cores=3) == expected
    (only,) = started
    assert not only.is_alive()


def test_an_error_of_one_thread_is_raised_and_the_others_stop(shared):
    def do(thing):
        if thing == 5:
            raise ValueError("five")

    before = threading.active_count()
    with using_cores(3), pytest.raises(ValueError, match="five"):
        team.share_out(range(1000), lambda: do)
    assert threading.active_count() == before


def test_more_threads_than_cores_are_not_started(monkeypatch):
    monkeypatch.setattr(team, "cores", lambda: 2)
    found = []
    for asked in (1, 2, 5):
        with using_cores(asked):
            found.append(team.CORES.get())
    assert found == [1, 2, 2]


class Clock:
    """Calls that take as long as they are said to: seconds of an update by the number of threads."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(team.time, "perf_counter", lambda: self.now)

    def run(self, pace, seconds, most, stretch=30.0, call=0.5):
        """Calls of a stretch, lengthened as a trial does; return the updates made, and threads by call."""
        began, at_once, made, used = self.now, 1, 0, []
        while self.now - began < stretch:
            count, before = pace.threads(most), self.now
            after = before + at_once * seconds(count)
            pace.call(count, partial(setattr, self, "now", after), at_once)
            made += at_once
            used.append(count)
            if self.now - before < call / 2:
                at_once *= 2
            elif self.now - before > call:
                at_once //= 2
        return made, used


@pytest.mark.parametrize("ratio", [0.55, 0.9, 1.1, 50.0])
def test_a_shared_trial_is_never_much_slower_than_the_best_number_of_threads(monkeypatch, ratio):
    seconds = lambda count: 0.0016 * (ratio if count > 1 else 1)  # noqa: E731
    made, _ = Clock(monkeypatch).run(Pace(), seconds, 2)
    assert made * min(map(seconds, (1, 2))) > 0.95 * 30


def test_the_number_of_threads_follows_the_load(monkeypatch):
    clock, pace = Clock(monkeypatch), Pace()

    def usual(most, busy=False, **length):
        """What calls at the end of a stretch mostly take: now and then another number is tried."""
        seconds = lambda count: 0.001 * (3.0 if busy and count > 1 else 1 / count)  # noqa: E731
        return Counter(clock.run(pace, seconds, most, **length)[1][-15:]).most_common(1)[0]

    assert usual(4)[0] == 4
    assert usual(4, busy=True)[0] == 1
    assert usual(4, stretch=120)[0] == 4
    assert usual(3)[0] == 3
    assert usual(1) == (1, 15)


@pytest.mark.parametrize(
    ("jobs", "cores", "expected"),
    [(25, 2, [1, 1]), (1, 2, [2]), (3, 8, [2, 3, 3]), (1, 1, [1]), (4, 4, [1, 1, 1, 1]), (3, 4, [1, 1, 2])],
)
def test_trials_come_first_and_cores_left_over_are_shared(monkeypatch, jobs, cores, expected):
    class Sent:
        """A worker that notes how many cores it gets."""

        def __init__(self):
            self.connection = self

        def start(self, packet, cores):
            self.packet, self.cores = packet, cores

        def tell(self, message):
            assert message == self.cores

    monkeypatch.setattr("cbm_cli.execution.engines._Worker", Sent)
    crew = _Crew(Backlog(toy_jobs(*[Trial] * jobs)), Observer(), cores)
    crew.assign()
    assert [worker.cores for worker in crew.busy.values()] == expected
    if jobs == 4:  # those of a trial that has ended go to another one
        del crew.busy[next(iter(crew.busy))]
        crew.assign()
        assert [worker.cores for worker in crew.busy.values()] == [2, 1, 1]
    if (jobs, cores) == (3, 4):  # one that comes back does not get all that two have left
        _, one, other = crew.busy
        crew.backlog.waiting += one.packet.open.values()
        del crew.busy[one], crew.busy[other]
        crew.assign()
        assert [worker.cores for worker in crew.busy.values()] == [2, 2]


def test_a_running_trial_is_told_of_cores_that_others_leave(monkeypatch):
    class Told:
        """A connection with messages: trials, a number during them, and that it is over."""

        coming, polls, sent = [("tasks", {}, 1), 3, None], [True, False, True], []

        def recv(self):
            return self.coming.pop(0)

        def poll(self):
            return self.polls.pop(0)

        def send(self, message):
            self.sent.append(message)

    def packet(tasks, datasets, tell, stopped, cores):
        with using_cores(cores):
            for _ in range(2):
                yield stopped(), team.CORES.get()

    monkeypatch.setattr(team, "cores", lambda: 2)
    monkeypatch.setattr(worker, "signal", mock.MagicMock())
    monkeypatch.setattr(worker, "run_packet", packet)
    worker.serve(Told())
    assert Told.sent == [[(False, 2)], [(True, 2)], True]
