"""Machine files of every kind, and deep machines as RBMs, against energies written out layer by layer."""

from itertools import pairwise

import numpy as np
import pytest

from cbm_cli.datasets import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import Settings
from cbm_cli.machines.files import Layered, flatten, machine_arrays, read_machine
from cbm_cli.trial.learner import Learner
from tests.oracles import states

ONE, TWO, THREE, FOUR = (4, 3), (3, 4, 2), (3, 2, 3, 2), (2, 3, 2, 2, 1)
DEEP = pytest.mark.parametrize("sizes", [TWO, THREE, FOUR])
ENCODERS = pytest.mark.parametrize("sizes", [ONE, TWO, FOUR])


def layered(sizes, kind="dbm", seed=1, dtype=np.float64):
    """A random machine with offsets."""
    rng = np.random.default_rng(seed)

    def vectors(layers, draw):
        return tuple(draw(n).astype(dtype) for n in layers)

    inner = sizes[1:-1] if kind == "auto-encoder" else ()
    return Layered(
        kind,
        tuple(rng.standard_normal(shape).astype(dtype) for shape in pairwise(sizes)),
        vectors(sizes, rng.standard_normal),
        vectors(sizes, rng.random),
        vectors(inner, rng.standard_normal),
        vectors(inner, rng.random),
    )


def file_of(sizes, kind, seed=1):
    """Arrays of a machine file, drawn as they are: centered parameters and offsets."""
    machine = layered(sizes, kind, seed)
    numbered = [("weights", 0), ("biases", 0), ("offsets", 0), ("decoder_biases", 1), ("decoder_offsets", 1)]
    return {"kind": np.array(kind)} | {
        f"{name}_{layer}": array
        for name, first in numbered
        for layer, array in enumerate(getattr(machine, name), first)
    }


def saved(path, arrays):
    np.savez(path, **arrays)
    return path


def energy(file, its):
    """The documented energy of the states of all layers, term by term."""
    x = [[a - o for a, o in zip(state, file[f"offsets_{i}"], strict=True)] for i, state in enumerate(its)]
    terms = [a * b for i, layer in enumerate(x) for a, b in zip(layer, file[f"biases_{i}"], strict=True)]
    for i, W in ((i, file[f"weights_{i}"]) for i in range(len(x) - 1)):
        terms += [x[i][j] * W[j, k] * x[i + 1][k] for j in range(W.shape[0]) for k in range(W.shape[1])]
    return -sum(terms)


def split(state, sizes):
    return np.split(state, np.cumsum(sizes)[:-1])


@pytest.mark.parametrize(("sizes", "kind"), [(ONE, "rbm"), (TWO, "dbm"), (THREE, "dbm"), (FOUR, "dbm")])
def test_a_flattened_file_has_the_documented_energy_up_to_a_constant(sizes, kind, tmp_path):
    file = file_of(sizes, kind)
    W, b, c = flatten(read_machine(saved(tmp_path / "m.npz", file)), np.float64).plain
    differences = []
    for state in states(sum(sizes)):
        its = split(state, sizes)
        x, h = np.concatenate(its[::2]), np.concatenate(its[1::2])
        differences.append(energy(file, its) + x @ b + c @ h + x @ W @ h)
    np.testing.assert_allclose(differences, differences[0], rtol=0, atol=1e-12)


@DEEP
def test_layers_that_are_not_neighbours_are_not_connected(sizes):
    W = flatten(layered(sizes)).W
    assert np.count_nonzero(W) == sum(n * m for n, m in pairwise(sizes))


@pytest.mark.parametrize(
    ("sizes", "kind"),
    [(ONE, "rbm"), (TWO, "dbm"), (FOUR, "dbm"), (ONE, "auto-encoder"), (FOUR, "auto-encoder")],
)
def test_what_is_written_is_read_back_to_the_last_bit(sizes, kind, tmp_path):
    machine = layered(sizes, kind, dtype=np.float32)._replace(decoder="linear", loss="squared")
    arrays = machine_arrays(machine)
    assert arrays["weights_0"].dtype == arrays["offsets_0"].dtype == np.float32
    assert arrays["biases_0"].dtype == np.float64
    back = read_machine(saved(tmp_path / "m.npz", arrays))
    assert back.kind == kind
    assert back.sizes == sizes
    assert (kind == "auto-encoder") == (back.loss == "squared") == ("decoder" in arrays)
    for name in ("weights", "biases", "offsets", "decoder_biases", "decoder_offsets"):
        for a, b in zip(getattr(back, name), getattr(machine, name), strict=True):
            np.testing.assert_array_equal(a.astype(np.float32), b)


@DEEP
def test_a_file_is_written_as_it_was_read(sizes, tmp_path):
    for kind in ("dbm", "auto-encoder"):
        file = file_of(sizes, kind)
        written = machine_arrays(read_machine(saved(tmp_path / "m.npz", file)))
        for name, array in file.items():
            if array.ndim:
                np.testing.assert_allclose(written[name], array, rtol=0, atol=1e-12)


@ENCODERS
def test_an_auto_encoder_without_offsets_computes_what_its_file_says(sizes, tmp_path):
    file = file_of(sizes, "auto-encoder")
    machine = read_machine(saved(tmp_path / "m.npz", file))
    depth, rng = len(sizes) - 1, np.random.default_rng(5)
    for at, W in enumerate(machine.weights):
        y = rng.random(sizes[at])
        up = [
            sum((y[i] - file[f"offsets_{at}"][i]) * W[i, j] for i in range(len(y)))
            + file[f"biases_{at + 1}"][j]
            for j in range(sizes[at + 1])
        ]
        np.testing.assert_allclose(y @ W + machine.biases[at + 1], up, rtol=0, atol=1e-12)
        y = rng.random(sizes[at + 1])
        offsets = file[f"offsets_{depth}" if at + 1 == depth else f"decoder_offsets_{at + 1}"]
        bias = file[f"decoder_biases_{at}" if at else "biases_0"]
        down = [sum((y[j] - offsets[j]) * W[i, j] for j in range(len(y))) + bias[i] for i in range(sizes[at])]
        plain = (machine.biases[0], *machine.decoder_biases)[at]
        np.testing.assert_allclose(y @ W.T + plain, down, rtol=0, atol=1e-12)


def read_back(machine, path, **changes):
    """The machine that a trial which starts from another writes before its first update."""
    kind = {"kind": machine.kind, "hidden": list(machine.sizes[1:])}
    rows = np.eye(4, machine.sizes[0], dtype=np.uint8)
    its = Settings(
        data={"name": "mnist"},  # its name; the rows are others
        model=kind | {name: getattr(machine, name) for name in changes},
        offsets="d" * len(machine.sizes),
        learning_rate=0.1,
        epochs=1,
        batch="full",
        **({} if changes else {"sampler": "PCD-1"}),
    )
    learner = Learner(its, Dataset("rows", rows, rows), 1)
    return read_machine(saved(path, learner.machine(learner.start_from(machine))))


@pytest.mark.parametrize("sizes", [ONE, TWO, FOUR])
def test_what_a_boltzmann_machines_trial_writes_is_read_back_to_the_last_bit(sizes, tmp_path):
    machine = layered(sizes, "rbm" if sizes == ONE else "dbm", dtype=np.float32)
    back = read_back(machine, tmp_path / "m.npz")
    assert back.kind == machine.kind
    for name in ("weights", "biases", "offsets"):
        for a, b in zip(getattr(back, name), getattr(machine, name), strict=True):
            np.testing.assert_array_equal(a.astype(np.float32), b)


@ENCODERS
def test_what_an_auto_encoders_trial_writes_is_read_back_to_the_last_bit(sizes, tmp_path):
    texts = {"encoder": "tanh", "decoder": "linear", "loss": "squared"}
    machine = layered(sizes, "auto-encoder", dtype=np.float32)._replace(**texts)
    back = read_back(machine, tmp_path / "m.npz", **texts)
    assert (back.kind, *back[6:]) == ("auto-encoder", "tanh", "linear", "squared")
    for name in ("weights", "biases", "offsets", "decoder_biases", "decoder_offsets"):
        for a, b in zip(getattr(back, name), getattr(machine, name), strict=True):
            np.testing.assert_array_equal(a.astype(np.float32), b)


def test_a_file_that_names_no_kind_is_an_rbm_and_offsets_may_be_missing(tmp_path):
    file = file_of(ONE, "rbm")
    del file["kind"], file["offsets_1"]
    found = read_machine(saved(tmp_path / "m.npz", file))
    b, c = found.biases
    assert found.kind == "rbm"
    np.testing.assert_array_equal(b, file["biases_0"])
    np.testing.assert_allclose(c, file["biases_1"] - file["offsets_0"] @ file["weights_0"], atol=1e-12)


NAN = np.array([0.0, np.nan, 0.0])


@pytest.mark.parametrize(
    ("sizes", "kind", "changes", "words"),
    [
        (TWO, "dbm", {"kind": np.array("gmm")}, "kind gmm; cbm knows rbm, dbm, auto-encoder"),
        (TWO, "rbm", {}, "is of kind rbm, but holds 2 arrays of weights; is its kind dbm"),
        (
            ONE,
            "rbm",
            {"weights_0": None},
            "lacks weights_0; a machine file holds weights_0, biases_0, biases_1",
        ),
        (THREE, "dbm", {"weights_1": None, "biases_3": None}, "lacks weights_1, biases_3"),
        (TWO, "auto-encoder", {"decoder_biases_1": None}, "lacks decoder_biases_1"),
        (TWO, "dbm", {"weights_1": np.zeros((4, 3))}, r"weights_1 \(4, 3\), .*expected \(n_0, n_1\)"),
        (TWO, "dbm", {"weights_1": np.zeros(4)}, "shapes do not fit"),
        (ONE, "rbm", {"biases_1": np.zeros((3, 1))}, r"expected \(N, M\), \(N,\), \(M,\)"),
        (ONE, "rbm", {"weights_0": np.zeros((4, 0)), "biases_1": np.zeros(0)}, "shapes do not fit"),
        (TWO, "dbm", {"biases_0": NAN}, "biases_0 holds NaN or infinite values; the machine has diverged"),
        (TWO, "dbm", {"offsets_0": NAN}, "offsets_0 holds NaN"),
        (TWO, "dbm", {"offsets_2": np.zeros(3)}, r"offsets_2 has shape \(3,\); expected \(2,\)"),
        (TWO, "auto-encoder", {"decoder_offsets_1": np.zeros(3)}, "decoder_offsets_1 has shape"),
        (TWO, "dbm", {"weights_0": np.full((3, 4), "a")}, "weights_0 holds <U1, not numbers"),
        (TWO, "dbm", {"biases_1": np.array([None] * 4)}, "is not a machine file"),
        (
            TWO,
            "auto-encoder",
            {"encoder": np.array("softmax")},
            "encoder softmax is unknown; cbm knows sigmoid",
        ),
        (TWO, "auto-encoder", {"loss": np.array("hinge")}, "loss hinge is unknown"),
    ],
)
def test_a_file_that_is_no_machine_is_refused(sizes, kind, changes, words, tmp_path):
    arrays = file_of(sizes, kind) | changes
    path = saved(tmp_path / "m.npz", {name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(CbmError, match=words) as caught:
        read_machine(path)
    assert str(caught.value).startswith(str(path))


def test_what_is_no_npz_is_refused(tmp_path):
    with pytest.raises(CbmError, match="no such file"):
        read_machine(tmp_path / "m.npz")
    (tmp_path / "m.npz").write_text("no")
    with pytest.raises(CbmError, match="is not a machine file"):
        read_machine(tmp_path / "m.npz")
    np.save(tmp_path / "m.npy", np.zeros(3))
    with pytest.raises(CbmError, match="is not a machine file"):
        read_machine(tmp_path / "m.npy")
