"""Grids of how machines learn: the learning rate in time, momentum, decay, chains, swaps, fixed offsets."""

import numpy as np
import pytest

from cbm_cli.execution.jobs import Job
from cbm_cli.grid import LearningRate, Settings, Trial, WeightDecay
from cbm_cli.results import run_id
from tests.test_grid_deep import MACHINES, cells, complaint  # noqa: F401

PLAIN = {
    "data": {"name": "bars-and-stripes", "size": 2},
    "model": {"kind": "rbm", "hidden": 3},
    "offsets": "dd^b_s",
    "sampler": "PCD-1",
    "learning_rate": 0.1,
    "updates": 60,
}
DECAYING = "{start: 0.1, decay: 0.5, every: 10 epochs}"
STEPPED = "{start: 0.1, steps: 0.01 from 100 epochs + 1e-3 from 0200 epoch}"


def updates_of(interval):
    """Return the updates of an interval where an epoch has 7."""
    number, unit = interval.split()
    return int(number) * (7 if unit.startswith("epoch") else 1)


# ---- The learning rate ----


def test_a_plain_learning_rate_is_what_it_was():
    rate = Settings(**PLAIN).learning_rate
    assert rate == LearningRate(start=0.1)
    assert (str(rate), rate.slug, rate.constant) == ("0.1", "0.1", True)
    assert rate.pieces(updates_of, 60) == [(0, 0.1)]
    assert Settings(**PLAIN).row()["learning_rate"] == 0.1


@pytest.mark.parametrize("kind", MACHINES)
def test_a_rate_that_decays_has_a_piece_in_each_interval(cells, kind):  # noqa: F811
    (cell,) = cells(kind, learning_rate=DECAYING)
    rate = cell.learning_rate
    assert str(rate) == cell.row()["learning_rate"] == "0.1 x 0.5 every 10 epochs"
    assert rate.slug == "0.1-x-0.5-every-10-epochs"
    assert rate.pieces(updates_of, 71) == [(0, 0.1), (70, 0.05)]
    firsts, rates = zip(*rate.pieces(updates_of, 281), strict=True)
    assert firsts == (0, 70, 140, 210, 280)
    np.testing.assert_allclose(rates, [0.1, 0.05, 0.025, 0.0125, 0.00625])


def test_steps_are_pieces_and_a_longer_training_begins_with_the_same_ones(cells):  # noqa: F811
    (cell,) = cells("rbm", learning_rate=STEPPED)
    rate = cell.learning_rate
    assert str(rate) == "0.1, 0.01 from 100 epochs, 0.001 from 200 epochs"
    assert rate.slug == "0.1-0.01-from-100-epochs-0.001-from-200-epochs"
    assert rate.pieces(updates_of, 5000) == [(0, 0.1), (700, 0.01), (1400, 0.001)]
    assert rate.pieces(updates_of, 700) == [(0, 0.1)]


def test_the_name_of_a_run_tells_rates_apart_to_the_last_digit():
    rates = ({"start": 0.12345678, "decay": decay, "every": 9} for decay in (0.12345678, 0.12345679))
    one, other = (run_id(Settings(**PLAIN | {"learning_rate": rate}), 1, "digest") for rate in rates)
    assert one != other
    assert "0.12345678-x-0.12345678-every-9-updates" in one
    settings = Settings(**PLAIN | {"learning_rate": {"start": 1, "decay": 0.5, "every": 9}})
    assert " 1 x 0.5 every 9 updates trial 0" in Job(Trial("toy", settings, 0, 1), "id", None, ()).title


def test_parts_of_a_rate_are_axes_and_can_be_asked_for_and_set(cells):  # noqa: F811
    found = cells(
        "rbm",
        learning_rate="{start: [0.1, 0.2], decay: [0.5, 0.9], every: 10 epochs}",
        exclude="[{learning_rate.start: 0.1, learning_rate.decay: 0.9}]",
        when="[{if: {learning_rate: 0.2}, set: {learning_rate.every: 5}}]",
    )
    assert [str(cell.learning_rate) for cell in found] == [
        "0.1 x 0.5 every 10 epochs",
        "0.2 x 0.5 every 5 updates",
        "0.2 x 0.9 every 5 updates",
    ]
    (cell,) = cells("rbm", {"learning_rate.start": "0.3"}, learning_rate=DECAYING)
    assert str(cell.learning_rate) == "0.3 x 0.5 every 10 epochs"


def test_fast_weights_learn_at_the_rate_of_the_first_update(cells):  # noqa: F811
    (cell,) = cells("rbm", sampler="FPCD-1", learning_rate=DECAYING)
    assert cell.fast_rate == 0.1


# ---- Momentum, decay, chains, swaps, batches ----


@pytest.mark.parametrize("kind", MACHINES)
def test_momentum_and_weight_decay_are_for_all_machines(cells, kind):  # noqa: F811
    (cell,) = cells(kind, momentum="0.9", weight_decay="0.0002")
    assert (cell.momentum, cell.weight_decay) == (0.9, WeightDecay(l1=0, l2=0.0002))
    (cell,) = cells(kind, weight_decay="{l1: 1e-4}")
    assert cell.row()["weight_decay_l1"] == 1e-4
    assert cell.row()["weight_decay_l2"] == 0


@pytest.mark.parametrize(
    ("kind", "fields", "told"),
    [
        (
            "rbm",
            {"sampler": "CD-1", "chains": "5"},
            "chains: chains are for PCD-k and FPCD-k; the sampler is CD",
        ),
        ("rbm", {"sampler": "exact", "chains": "5"}, "chains: chains are for PCD-k and FPCD-k"),
        (
            "dbm",
            {"sampler": "PT_4", "chains": "5"},
            "chains: chains are for PCD-k and FPCD-k; the sampler is PT_4",
        ),
        ("auto-encoder", {"chains": "5"}, "chains: chains is for Boltzmann machines"),
        ("rbm", {"swaps": "both"}, "swaps: swaps are for parallel tempering; PCD-1 has one temperature"),
        ("auto-encoder", {"swaps": "both"}, "swaps: swaps is for Boltzmann machines"),
        ("rbm", {"shuffle": "false", "batch": "full"}, "shuffle: shuffle is for mini-batches"),
        ("auto-encoder", {"shuffle": "false", "batch": "full"}, "shuffle: shuffle is for mini-batches"),
        ("rbm", {"fast_decay": "0.9"}, "fast_decay: fast_decay is for FPCD-k; the sampler is PCD-1"),
        ("auto-encoder", {"fast_decay": "0.9"}, "fast_decay: fast_decay is for FPCD-k; the sampler is back-"),
        ("dbm", {"pretraining": "{doubling: false}"}, "pretraining.doubling: doubling needs epochs of pre-"),
        ("rbm", {"sliding_factor": "0.1"}, "sliding_factor: has no effect: no offset scheme here has _s"),
        (
            "rbm",
            {"sliding_factor": "{visible: 0}", "offsets": "aa^b_s"},
            "sliding_factor: visible: 0 keeps visible offsets of the letter d at the data mean",
        ),
        ("dbm", {"sliding_factor": "{visible: 0}", "offsets": "0dd^b_s"}, "sliding_factor: visible: 0 keeps"),
    ],
)
def test_what_would_have_no_effect_is_refused_by_its_field(complaint, kind, fields, told):  # noqa: F811
    assert complaint(kind, **fields).startswith(f"toy.{told}")


def test_what_has_an_effect_is_taken(cells):  # noqa: F811
    assert [cell.chains for cell in cells("rbm", sampler="[PCD-1, FPCD-2]", chains="5")] == [5, 5]
    assert cells("dbm", chains="[5, 200]")[1].chains == 200
    assert cells("dbm", sampler="PT_4", swaps="both")[0].swaps == "both"
    assert not cells("rbm", shuffle="false")[0].shuffle
    assert cells("rbm", shuffle="true", batch="full")[0].shuffle
    layers = "{epochs: 2, doubling: [true, false], batch: 10}"
    assert [cell.pretraining.doubling for cell in cells("dbm", pretraining=layers)] == [True, False]
    assert not cells("dbm", pretraining=layers, shuffle="false", batch="full")[0].shuffle
    assert cells("rbm", gradient="{scale_to: standard, scale_of: weights}")[0].gradient.scale_of == "weights"
    assert cells("rbm", sampler="FPCD-1", fast_decay="0.9")[0].fast_decay == 0.9


def test_a_sliding_factor_may_stand_beside_schemes_that_do_not_slide(cells):  # noqa: F811
    found = cells("rbm", offsets="[00, dd^b, d0^b_s]", sliding_factor="{visible: 0, hidden: 0.1}")
    assert [cell.sliding_factor.visible for cell in found] == [0, 0, 0]
    assert cells("rbm", sliding_factor="0.01")  # the default may be spelled out
    layers = "{epochs: 2, offsets: dd^b_s}"
    assert cells("dbm", offsets="ddd^b", sliding_factor="0.1", pretraining=layers)
    assert cells("rbm", {"offsets": "00"}, offsets="dd^b_s", sliding_factor="0.1")  # by --set


def test_new_fields_at_their_defaults_leave_run_ids_alone():
    spelled = {
        "momentum": 0,
        "weight_decay": {"l1": 0, "l2": 0},
        "chains": None,
        "swaps": "alternate",
        "shuffle": True,
        "gradient": {"scale_of": "all"},
        "pretraining": {"doubling": True},
    }
    plain = Settings(**PLAIN)
    assert Settings(**PLAIN | spelled).model_dump() == plain.model_dump()
    assert not {"momentum", "weight_decay", "chains", "swaps", "shuffle"} & plain.model_dump().keys()
    changes = [{"momentum": 0.5}, {"weight_decay": {"l1": 0.1}}, {"chains": 7}, {"shuffle": False}]
    changes.append({"sampler": "PT_3", "swaps": "both"})
    assert len({run_id(Settings(**PLAIN | change), 1, "digest") for change in [{}, *changes]}) == 6


def test_bad_values_are_refused_wherever_settings_are_made():
    with pytest.raises(ValueError, match="must"):
        Settings(**PLAIN | {"learning_rate": {"start": 1, "steps": "0.1 from 5 epochs + 1 from 2 epochs"}})
