"""Trials trained as one batch of PyTorch tensors are those that the kernels train."""

import argparse
from pathlib import Path

import pytest


@pytest.fixture
def measurement(tmp_path, monkeypatch):
    """The measuring script, and a measurement on the CPU."""
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks" / "gpu")
    import measure

    settings = argparse.Namespace(device="cpu", quick=True, out=tmp_path, minutes=1)
    return measure, measure.Measurement(settings)


def test_a_batch_has_the_random_numbers_of_the_kernels(measurement):
    measure, its = measurement
    measure.check_random_numbers(its)
    assert its.found["random numbers of the kernels"] == "equal"


def test_a_batch_trains_and_anneals_as_the_kernels(measurement, monkeypatch):
    measure, its = measurement
    some = {"PCD-1, offsets after the step", "CD-2", "PT_7, 15 samples"}
    monkeypatch.setattr(measure, "TEN", {name: how for name, how in measure.TEN.items() if name in some})
    measure.check_annealing(its)
    measure.check_against_kernels(its)
    assert max(its.found["100 updates, batch beside kernels"].values()) < 1e-5


def test_chains_of_a_batch_that_start_in_equilibrium_stay_there(measurement):
    measure, its = measurement
    measure.check_invariance(its)
