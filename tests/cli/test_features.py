"""Filters and representations, and ``cbm features``, by formulas written out."""

from pathlib import Path

import numpy as np
import pytest
from cbm_cli.datasets.dataset import Dataset, Image
from cbm_cli.datasets.loading import load
from cbm_cli.machines.files import read_machine
from cbm_cli.machines.representations import hidden_means, represent, unbalanced
from cbm_cli.report.learned import normalised, shape_of, tile_panel
from cbm_cli.report.panels import compose
from numpy.testing import assert_allclose, assert_array_equal

from tests.builders import cbm, holds
from tests.networks import SLOW, file_of
from tests.oracles import sigmoid, states

pytestmark = pytest.mark.usefixtures("here")

RBM, DEEP, DEEPER = (4, 3), (4, 3, 2), (4, 3, 3, 2)
ROWS = states(4).astype(np.uint8)


def save(sizes=RBM, kind="rbm", **changes):
    """Write m.npz; return the machine in it."""
    np.savez("m.npz", **file_of(sizes, kind, **changes))
    return read_machine(Path("m.npz"))


def features(*arguments):
    return cbm("features", "m.npz", "-o", "out.npz", "--data", *arguments)


def test_an_rbm_represents_grey_rows_as_they_are():
    its = save()
    grey = np.random.default_rng(3).integers(
        0, 256, (2000, 4), np.uint8
    )  # several blocks
    (hidden,), unsettled = represent(its, grey, 1 / 255)
    expected = sigmoid(grey / 255 @ its.weights[0] + its.biases[1])
    assert_allclose(hidden, expected, rtol=0, atol=1e-6)
    assert unsettled == 0


def test_mean_field_starts_at_the_offsets_and_ends_where_layers_answer_to_their_neighbours():
    its = save(sizes := (4, 3, 2, 3, 2), "dbm")
    layers, _ = hidden_means(its, ROWS.astype(np.float32), rounds=0)
    assert_allclose(layers[1], np.tile(its.offsets[2], (16, 1)), rtol=1e-6)
    answer = ROWS @ its.weights[0] + its.offsets[2] @ its.weights[1].T + its.biases[1]
    assert_allclose(layers[0], sigmoid(answer), rtol=0, atol=1e-6)
    layers, unsettled = hidden_means(
        its, ROWS.astype(np.float32), tolerance=1e-6, rounds=10_000
    )
    assert unsettled == 0
    whole, weights = (
        [ROWS, *layers, np.zeros((16, 0))],
        [*its.weights, np.zeros((sizes[-1], 0))],
    )
    for i in range(1, len(sizes)):
        activation = (
            its.biases[i] + whole[i - 1] @ weights[i - 1] + whole[i + 1] @ weights[i].T
        )
        assert_allclose(whole[i], sigmoid(activation), rtol=0, atol=5e-6)


def test_rows_whose_mean_field_has_not_settled_are_counted():
    save((4, 1, 1), "dbm", **SLOW)
    np.save("rows.npy", ROWS)
    assert holds(features("rows.npy").stderr, f"100|{len(ROWS)}")
    save()
    assert len(features("rows.npy").stderr.splitlines()) == 1  # where it wrote


def test_rows_of_every_part_that_have_not_settled_are_counted():
    save((4, 1, 1), "dbm", **SLOW)
    np.savez("rows.npz", train=ROWS, test=ROWS[:4])
    assert holds(features("rows.npz").stderr, f"100|{len(ROWS) + 4}")


def test_a_filter_without_weights_is_grey_and_long_lines_lie_under_each_other():
    assert_array_equal(normalised(np.zeros((1, 3))), [[0.5, 0.5, 0.5]])
    rows = np.random.default_rng(1).random((5, 31))  # no pictures
    (axes,) = compose([tile_panel(rows, Image(1, 31))]).figure.axes
    assert_array_equal(axes.images[0].get_array(), rows)


def test_a_picture_is_of_the_size_and_order_of_the_data_else_square_or_a_line():
    assert shape_of(Dataset("d", ROWS, image=Image(1, 4, "F")), 4) == (1, 4, "F")
    assert shape_of(Dataset("d", ROWS), 4) == shape_of(None, 4) == (2, 2, "C")
    assert shape_of(None, 784) == (28, 28, "C")
    assert shape_of(None, 128) == (1, 128, "C")


@pytest.mark.parametrize(
    ("sizes", "kind", "layer"),
    [(RBM, "rbm", ()), (DEEPER, "dbm", ("--layer", 2)), (DEEP, "auto-encoder", ())],
)
def test_every_part_of_the_data_is_represented_by_the_layer_asked_for(
    sizes, kind, layer
):
    its = save(sizes, kind)
    np.savez("rows.npz", train=ROWS, test=ROWS[::3])
    told, shown = features("rows.npz", *layer), 2 if layer else len(sizes) - 1
    assert holds(told.stderr, f"out.npz|layer {shown}")
    train, _ = represent(its, ROWS)
    head, *lines = told.stdout.splitlines()
    assert head.endswith("[0.05, 0.95]")
    for number, (line, hidden) in enumerate(zip(lines, train, strict=True), 1):
        mean = hidden.mean(axis=0)
        outside = np.mean((mean < 0.05) | (mean > 0.95))
        assert (
            line.split()
            == f"{number} {sizes[number]} {mean.mean():.4f} {outside:.1%}".split()
        )
    with np.load("out.npz") as file:
        assert sorted(file.files) == ["test", "train"]
        assert_array_equal(file["train"], train[shown - 1])
        assert_array_equal(file["test"], represent(its, ROWS[::3])[0][shown - 1])
    data = load(path="out.npz", binarise="none")  # data for another machine
    assert (data.levels, list(data.parts)) == (255, ["train", "test"])
    assert_allclose(data.train / 255, train[shown - 1], rtol=0, atol=0.5 / 255 + 1e-6)


def test_rows_of_a_libsvm_file_have_the_width_of_the_machine():
    """Such a file does not say how many units there are, if the last are 0."""
    its = save()
    Path("rows.txt").write_text("1 1:1\n-1 2:1\n1 1:1 3:1\n")
    features("rows.txt")
    rows = np.uint8([[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0]])
    with np.load("out.npz") as file:
        assert_array_equal(file["rows"], represent(its, rows)[0][-1])


def test_units_at_the_ends_of_the_interval_are_not_outside():
    assert unbalanced(np.array([0.0, 0.04, 0.05, 0.5, 0.95, 0.96, 1.0, 0.3])) == 0.5
