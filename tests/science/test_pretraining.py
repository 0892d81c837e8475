"""Layer-wise pre-training: what layers learn, the deep machine of them, and who shares
them.
"""

import itertools
from pathlib import Path

import numpy as np
import pytest
from cbm_cli import reference as ref
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.execution.agenda import make_agenda
from cbm_cli.grid.read import read_grid
from cbm_cli.grid.settings import Settings, Trial
from cbm_cli.machines import streams
from cbm_cli.machines.files import machine_arrays
from cbm_cli.results import Progress
from cbm_cli.trial.learner import Learner
from cbm_cli.trial.loop import run_trial
from cbm_cli.trial.pretraining import LayerTraining
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
from pydantic import ValidationError

from tests.builders import cbm, grid_text
from tests.journals import contents_of, forget, lines_of
from tests.oracles import Trainer, plan
from tests.trainings import RBM

ROWS = (np.random.default_rng(3).random((24, 5)) < [0.9, 0.7, 0.5, 0.3, 0.1]).astype(
    np.uint8
)
DATA = Dataset("five", ROWS)


def settings(hidden=(4, 3), **changes):
    base = {
        "model": {"kind": "dbm", "hidden": list(hidden)},
        "weight_scale": 0.3,
        "epochs": 4,
    }
    base |= {"offsets": "d" * (1 + len(hidden)) + "^b_s", "pretraining": {"epochs": 6}}
    return Settings(**RBM | base | changes)


def test_layers_have_the_persistent_chains_of_the_deep_machine():
    for its, chains in ((settings(chains=7), 7), (settings(sampler="CD-1"), 5)):
        assert LayerTraining(its, DATA, seed=7).first_state(Progress(None)).h.shape == (
            chains,
            4,
        )


def test_layers_are_trained_by_the_rule_and_in_the_batches_of_the_deep_machine():
    changes = {
        "shuffle": False,
        "momentum": 0.5,
        "weight_decay": {"l1": 0.1, "l2": 0.2},
    }
    for its in (settings(), settings(**changes)):
        layer = LayerTraining(its, DATA, seed=7)._stage_of(Progress(None)).plan
        deep = Learner(its, DATA, 7).plan
        for name in ("batch", "shuffled", "momentum", "l1", "l2", "rates", "steps"):
            assert_array_equal(getattr(layer, name), getattr(deep, name))


HIDDEN = pytest.mark.parametrize("hidden", [(4, 3), (4, 3, 2, 3)])


@HIDDEN
def test_an_inner_layer_gets_the_mean_input_of_its_two_rbms(hidden):
    """Inputs that were doubled, up in the first RBM and down in the last, count
    once.
    """
    pretraining, now = LayerTraining(settings(hidden), DATA, seed=7), Progress(None)
    now.state = pretraining.first_state(now)
    while not pretraining.is_done(now):
        pretraining.advance(now, 10)
    machine, found, last = pretraining.machine(now), now.pretrained, len(hidden) - 1
    values = [np.random.default_rng(1).random(size) for size in (5, *hidden)]
    up = [
        (1 + (k == 0)) * values[k] @ found[f"W_{k}"] + found[f"c_{k}"]
        for k in range(last + 1)
    ]
    gains = [1 + (k == last) for k in range(last + 1)]
    down = [
        gains[k] * values[k + 1] @ found[f"W_{k}"].T + found[f"b_{k}"]
        for k in range(last + 1)
    ]
    inner = [(above + below) / 2 for above, below in zip(up, down[1:], strict=False)]
    for layer, expected in enumerate([down[0], *inner, up[last]]):
        heard = machine.biases[layer]
        heard = heard + (values[layer - 1] @ machine.weights[layer - 1] if layer else 0)
        heard = heard + (
            machine.weights[layer] @ values[layer + 1] if layer <= last else 0
        )
        assert_allclose(heard, expected, atol=1e-6)
    sides = ("W", "b", "c"), ("mu", "lam")
    rbms = [
        [[found[f"{name}_{k}"] for name in side] for side in sides]
        for k in range(last + 1)
    ]
    for part, expected in zip(machine[1:4], ref.pretrained(rbms), strict=True):
        for array, other in zip(part, expected, strict=True):
            assert_array_equal(array, other)


@HIDDEN
def test_flipped_units_leave_the_pretrained_machine_as_it_is(hidden):
    """RBMs of flipped units become the deep machine of flipped units: the inputs of all
    layers change their sign where units are flipped, and do not change elsewhere.
    """
    rng, sizes = np.random.default_rng(3), (6, *hidden)
    flips = [rng.random(size) < 0.5 for size in sizes]
    states = [rng.random(size) for size in sizes]
    rbms, flipped = [], []
    for k, (n, m) in enumerate(itertools.pairwise(sizes)):
        up, down = ref.gains_of_layer(k, len(hidden))
        W, b, c = rng.normal(size=(n, m)), rng.normal(size=n), rng.normal(size=m)
        below, above = (np.where(flip, -1.0, 1.0) for flip in flips[k : k + 2])
        offsets = rng.random(n), rng.random(m)
        rbms.append(((W, b, c), offsets))
        theta = (
            below[:, None] * W * above,
            below * (b + down * W @ flips[k + 1]),
            above * (c + up * flips[k] @ W),
        )
        flipped.append((theta, offsets))

    def inputs(rbms, states):
        weights, biases, _ = ref.pretrained(rbms)
        heard = [bias.copy() for bias in biases]
        for k, W in enumerate(weights):
            heard[k] += W @ states[k + 1]
            heard[k + 1] += states[k] @ W
        return heard

    pairs = zip(states, flips, strict=True)
    mirrored = [np.where(flip, 1 - state, state) for state, flip in pairs]
    before, after = inputs(rbms, states), inputs(flipped, mirrored)
    for old, new, flip in zip(before, after, flips, strict=True):
        assert_allclose(new, np.where(flip, -old, old), atol=1e-12)


def test_pretraining_has_no_option_that_breaks_flip_invariance():
    with pytest.raises(ValidationError, match="doubling"):
        settings(pretraining={"epochs": 2, "doubling": False})


@HIDDEN
def test_every_layer_is_trained_as_an_rbm_that_is_doubled_where_it_should(hidden):
    offsets = "d" * (1 + len(hidden)) + "^b"
    its = settings(hidden, offsets=offsets, pretraining={"epochs": 5}, batch="full")
    pretraining, now = LayerTraining(its, DATA, seed=7), Progress(None)
    now.state, x = pretraining.first_state(now), ROWS.astype(float)
    for k, (n, m) in enumerate(itertools.pairwise((5, *hidden))):
        up, down = ref.gains_of_layer(k, len(hidden))
        assert (up, down) == (1 + (k == 0), 1 + (k == len(hidden) - 1))
        mean = np.clip(x.mean(axis=0), 0.001, 0.999)
        assert_allclose(now.state.b, ref.inverse_sigmoid(mean), atol=1e-5)
        assert_allclose(now.state.mu, x.mean(axis=0), atol=1e-5)
        assert (now.stage, now.update, now.state.W.shape) == (k, 0, (n, m))
        rbm = plan((n, m), len(x), to_hidden=up, to_visible=down)
        trainer = Trainer(
            now.state, rbm._replace(seed=pretraining._stage_of(now).plan.seed)
        )
        for update in range(5):
            trainer.update(x, update)
        pretraining.advance(now, 3)
        assert now.update == 3
        pretraining.advance(now, 100)
        for name, expected in zip("Wbc", trainer.theta, strict=True):
            assert_allclose(now.pretrained[f"{name}_{k}"], expected, atol=1e-5)
        x = np.round(255 * ref.hidden_mean(x, up * trainer.W, trainer.c)) / 255
    assert pretraining.is_done(now)


def test_every_layer_draws_random_numbers_of_its_own():
    """Layers of one size start from different weights and chains, none of them those of
    the training itself.
    """
    its = settings((5, 5, 5))
    pretraining, now = LayerTraining(its, DATA, seed=7), Progress(None)
    now.state = pretraining.first_state(now)
    starts = [Learner(its, DATA, 7).start().W[:5, :5].tobytes()]
    seeds = {7}
    while not pretraining.is_done(now):
        if now.update == 0:
            starts.append(now.state.W.tobytes())
            seeds.add(int(pretraining._stage_of(now).plan.seed))
        pretraining.advance(now, 1000)
    assert len({*starts}) == len(seeds) == 4


@pytest.mark.parametrize("offsets", ["ddd^b", "d0d^b"])
def test_training_starts_from_the_pretrained_machine_and_its_offsets(offsets):
    still = {
        "learning_rate": 1e-30,
        "sliding_factor": {"visible": 1e-9, "hidden": 1e-9},
    }
    still |= {
        "offsets": f"{offsets}_s",
        "pretraining": {"epochs": 6, "learning_rate": 0.2},
    }
    trial = Trial("test", settings(**still), 0, 1)
    outcome = run_trial(trial, DATA)
    kept = {name: array.copy() for name, array in outcome.pretrained.items()}
    end = Progress(None, stage=2, pretrained=outcome.pretrained)
    machine = LayerTraining(trial.settings, DATA, trial.seed).machine(end)
    assert_equal(end.pretrained, kept)  # which other trials may share
    assert machine.offsets[1].any() == (offsets[1] == "d")
    expected = machine_arrays(machine)
    for name in expected.keys() - {"kind"}:
        assert_allclose(outcome.machine[name], expected[name], atol=1e-6)


GRID = grid_text(
    "dbm",
    data="{name: bars-and-stripes, size: 2}",
    model="{kind: dbm, hidden: [3, 2]}",
    pretraining="{epochs: 10, learning_rate: 0.2}",
    epochs="20",
    batch="4",
    seed="5",
    trials="2",
)


def run(text, out, *options, jobs=0, code=0):
    Path("grid.yaml").write_text(text)
    return cbm("run", "grid.yaml", "-o", out, "-j", jobs, *options, code=code)


def layers_in(experiment):  # files without a run-id
    return {
        path.parent for path in Path(experiment, "checkpoints").glob("*/trial-???.npz")
    }


@pytest.mark.parametrize("jobs", [0, 1])
def test_trials_share_pretrained_layers_and_end_in_the_same_bytes(
    here, monkeypatch, jobs
):
    calls, advance = [], LayerTraining.advance
    counting = lambda *args: calls.append(args[0].seed) or advance(*args)  # noqa: E731
    monkeypatch.setattr(LayerTraining, "advance", counting)
    run(GRID, "alone")
    alone, steps = contents_of("alone"), len(calls)
    calls.clear()
    four = GRID.replace("learning_rate: 0.1", "learning_rate: [0.1, 0.05, 0.03, 0.02]")
    run(four, "together", jobs=jobs)
    assert len({*calls}) == 2 * (jobs == 0)
    assert len(calls) < 2 * steps  # not four times more; pieces end by the clock
    assert len(layers_in("together/toy")) == 1  # one folder for all four cells
    assert len(alone) == 4
    assert alone.items() <= contents_of("together").items()


def test_of_trials_that_share_layers_one_each_runs_first():
    text = GRID.replace("learning_rate: 0.1", "learning_rate: [0.1, 0.03]")
    jobs = make_agenda(read_grid("grid.yaml", text=text).select(), Path("out")).jobs
    order = [(str(job.trial.settings.learning_rate), job.trial.number) for job in jobs]
    assert order == [("0.1", 0), ("0.1", 1), ("0.03", 0), ("0.03", 1)]


def test_layers_of_an_earlier_run_are_used_unless_damaged_or_of_another_pretraining(
    here, monkeypatch
):
    run(GRID, "out")
    whole = contents_of("out")
    with monkeypatch.context() as again:
        again.setattr(
            LayerTraining, "advance", lambda *_: pytest.fail("layers are trained again")
        )
        run(GRID.replace("learning_rate: 0.1", "learning_rate: 0.03"), "out")
    (path,) = (folder / "trial-000.npz" for folder in layers_in("out/toy"))
    layers = path.read_bytes()
    path.write_bytes(layers[:-40])
    forget("out/toy", *(key for key in lines_of("out/toy") if key[1] == 0))
    run(GRID, "out")
    assert contents_of("out").items() >= whole.items()
    assert (
        path.read_bytes() == layers
    )  # repaired, so that no later run trains them again
    others = (
        ("epochs: 10", "epochs: 11"),
        ("_rate: 0.2", "_rate: 0.3"),
        ("seed: 5", "seed: 6"),
    )
    for number, change in enumerate(others, 2):
        run(GRID.replace(*change, 1), "out")
        assert len(layers_in("out/toy")) == number


def test_no_two_uses_of_random_numbers_share_a_seed():
    used = [value for name, value in vars(streams).items() if name.isupper()]
    seeds = [
        streams.seed_of(7, stream, number) for stream in used for number in range(300)
    ]
    bases = 5, 5 + 3 * 2**32, 2**53
    trials = [
        Trial("x", None, number, base).seed for base in bases for number in range(50)
    ]
    trials += [Trial("x", None, 2**32, 5).seed]
    assert len({*seeds, *trials, 7}) == len(seeds) + len(trials) + 1
    assert (
        trials[3] == np.random.SeedSequence([5, 3]).generate_state(1, np.uint64)[0]
    )  # as ever
