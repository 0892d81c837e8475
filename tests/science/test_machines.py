"""Machine files of every kind, against energies written out layer by layer."""

from itertools import chain, pairwise
from pathlib import Path

import cbm_cli as api
import numpy as np
import pytest
from cbm_cli import reference as ref
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.machines.files import machine_arrays, read_machine
from cbm_cli.machines.models import Layered, flatten
from cbm_cli.trial.learner import Learner
from numpy.testing import assert_allclose, assert_array_equal
from scipy.io import savemat

from tests.builders import cbm, holds, refusal
from tests.networks import all_states, file_of, layered, layered_energy, machine_file
from tests.trainings import rbm_settings

ONE, TWO, THREE, FOUR = (4, 3), (3, 4, 2), (3, 2, 3, 2), (2, 3, 2, 2, 1)
NAN, NONE = np.array([0.0, np.nan, 0.0]), np.zeros((4, 0))


def saved(path, arrays):
    np.savez(path, **arrays)
    return Path(path)


@pytest.mark.parametrize(("sizes", "kind"), [(ONE, "rbm"), (TWO, "dbm"), (FOUR, "dbm")])
def test_a_flattened_file_has_the_documented_energy_less_that_of_the_offsets(
    sizes, kind, tmp_path
):
    machine, by_layer = layered(sizes, seed=1), all_states(sizes)
    read = read_machine(saved(tmp_path / "m.npz", machine_file(machine, kind)))
    W, b, c = flatten(read, np.float64).plain
    x, h = (np.concatenate(by_layer[odd::2]).T for odd in (0, 1))
    difference = layered_energy(machine, by_layer) - ref.energy(x, h, W, b, c)
    assert_allclose(difference, -read.offset_energy, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("sizes", "kind"),
    [(ONE, "rbm"), (FOUR, "dbm"), (ONE, "auto-encoder"), (FOUR, "auto-encoder")],
)
def test_what_is_written_is_read_back_to_the_last_bit(sizes, kind, tmp_path):
    coder = kind == "auto-encoder"
    rng, inner = np.random.default_rng(1), sizes[1:-1] if coder else ()
    vectors = lambda layers: tuple(rng.random(n, np.float32) for n in layers)  # noqa: E731
    weights = tuple(rng.random(shape, np.float32) for shape in pairwise(sizes))
    each = weights, vectors(sizes), vectors(sizes), vectors(inner), vectors(inner)
    machine, rows = Layered(kind, *each), np.eye(4, sizes[0], dtype=np.uint8)
    its = {
        "model": {"kind": kind, "hidden": list(sizes[1:])},
        "offsets": "d" * len(sizes),
    }
    its |= {"updates": None, "epochs": 1, "batch": "full"} | (
        {"sampler": None} if coder else {}
    )
    learner = Learner(rbm_settings(**its), Dataset("rows", rows, rows), 1)
    for written in (
        machine_arrays(machine),
        learner.machine(learner.start_from(machine)),
    ):
        back = read_machine(saved(tmp_path / "m.npz", written))
        assert (back.kind, back.sizes, *back[6:]) == (kind, sizes, *machine[6:])
        for found, expected in zip(chain(*back[1:6]), chain(*each), strict=True):
            assert_array_equal(found.astype(np.float32), expected)


@pytest.mark.parametrize(
    ("sizes", "kind", "changes", "told"),
    [
        (TWO, "dbm", {"kind": np.array("gmm")}, "kind gmm|rbm, dbm, auto-encoder"),
        (TWO, "rbm", {}, "rbm|2|dbm"),
        (ONE, "rbm", {"weights_0": None}, "weights_0|weights_0, biases_0, biases_1"),
        (THREE, "dbm", {"weights_1": None, "biases_3": None}, "weights_1, biases_3"),
        (TWO, "auto-encoder", {"decoder_biases_1": None}, "decoder_biases_1"),
        (ONE, "rbm", {"offset_0": np.zeros(4)}, "offset_0|offsets_0"),
        (TWO, "dbm", {"weights_1": np.zeros((4, 3))}, "weights_1|(4, 3)|(4, 2)"),
        (
            ONE,
            "rbm",
            {"weights_0": NONE, "biases_1": NONE[0]},
            "biases_1|(0,)|each unit",
        ),
        (TWO, "dbm", {"biases_0": NAN}, "biases_0"),
        (TWO, "dbm", {"weights_0": np.full((3, 4), "a")}, "weights_0|U1"),
    ],
)
def test_a_file_that_is_not_a_machine_is_refused(sizes, kind, changes, told, tmp_path):
    path = saved(tmp_path / "m.npz", file_of(sizes, kind, **changes))
    error = refusal(read_machine, path)
    assert str(error).startswith(f"{path}: ")
    assert holds(str(error).removeprefix(str(path)), told)


def test_a_machine_file_may_have_any_name(here):
    saved("m.npz", file_of(ONE, "rbm")).rename("model.bin")
    assert "log Z" in cbm("evaluate", "model.bin", "--exact").stdout
    cbm("sample", "model.bin", "-n", 3, "-o", "samples.npz")
    assert api.load("model.bin").sizes == ONE


WRITERS = [np.save, lambda path, a: savemat(path, {"a": a}), lambda path, a: None]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("name", ["m.npy", "m.mat", "m.pkl", "m.npz"])
def test_another_file_is_distinguished_from_a_machine_in_every_command(
    write, name, here
):
    Path(name).write_bytes(b"\x80\x04]\x94.")
    with Path(name).open("r+b") as file:
        write(file, np.zeros(3))
    for command in (["evaluate", name, "--exact"], ["sample", name, "-o", "s.npz"]):
        assert holds(cbm(*command, code=2).stderr, f"{name}|weights_0|NPZ")
