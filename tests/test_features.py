"""Filters, activities and representations, and ``cbm features``, by formulas written out unit by unit."""

from pathlib import Path

import numpy as np
import pytest

from cbm_cli.datasets.catalogue import load
from cbm_cli.datasets.dataset import Dataset, Image
from cbm_cli.machines.files import read_machine
from cbm_cli.machines.representations import chosen, filters, hidden_means, represent, unbalanced
from cbm_cli.report.learned import normalised, shape_of, tile_panel
from cbm_cli.report.panels import Page, compose
from tests.builders import cbm, file_of, holds
from tests.oracles import joint, sigmoid, states

pytestmark = pytest.mark.usefixtures("here")

RBM, DEEP, DEEPER = (4, 3), (4, 3, 2), (4, 3, 3, 2)
ROWS = states(4).astype(np.uint8)


def save(sizes=RBM, kind="rbm", name="m.npz", **changes):
    arrays = file_of(sizes, kind, **changes)
    np.savez(name, **arrays)
    return arrays


def machine(sizes, kind="dbm", **changes):
    save(sizes, kind, **changes)
    return read_machine(Path("m.npz"))


def features(*arguments, code=0):
    """Run cbm features m.npz -o out.npz; check its exit code; return what it says on stdout and stderr."""
    result = cbm("features", "m.npz", "-o", "out.npz", *arguments, code=code)
    return result.stdout, result.stderr


# Representations


def test_an_rbm_represents_a_row_by_the_exact_means_of_its_hidden_units():
    its = save()
    p, _ = joint(*(its[name] for name in ("weights_0", "biases_0", "biases_1", "offsets_0", "offsets_1")))
    exact = (p / p.sum(axis=1, keepdims=True)) @ states(3)
    (hidden,), unsettled = represent(read_machine(Path("m.npz")), np.tile(ROWS, (130, 1)))  # several blocks
    np.testing.assert_allclose(hidden, np.tile(exact, (130, 1)), rtol=0, atol=1e-6)
    assert unsettled == 0
    grey = np.random.default_rng(3).integers(0, 256, (5, 4), np.uint8)  # enters as it is
    (hidden,), _ = represent(its := read_machine(Path("m.npz")), grey, 1 / 255)
    expected = sigmoid(grey / 255 @ its.weights[0] + its.biases[1])
    np.testing.assert_allclose(hidden, expected, rtol=0, atol=1e-6)


FUNCTIONS = {"sigmoid": sigmoid, "tanh": np.tanh, "relu": lambda a: np.maximum(a, 0.0), "linear": lambda a: a}


@pytest.mark.parametrize("activation", FUNCTIONS)
@pytest.mark.parametrize("sizes", [RBM, DEEP])
def test_an_auto_encoder_represents_a_row_by_the_outputs_of_its_encoder(sizes, activation):
    its, f = machine(sizes, "auto-encoder", encoder=np.array(activation)), FUNCTIONS[activation]
    with np.load("m.npz") as arrays:
        found, y = represent(its, ROWS)[0], ROWS
        for i, layer in enumerate(found):
            W, o, b = arrays[f"weights_{i}"], arrays[f"offsets_{i}"], arrays[f"biases_{i + 1}"]
            y = f(b + (y - o) @ W)
            np.testing.assert_allclose(layer, y, rtol=0, atol=5e-6)


@pytest.mark.parametrize("sizes", [DEEP, DEEPER, (4, 3, 2, 3, 2)])
def test_mean_field_ends_where_every_layer_answers_to_its_neighbours(sizes):
    its = machine(sizes)
    layers, unsettled = hidden_means(its, ROWS.astype(np.float32), tolerance=1e-6, rounds=10_000)
    assert unsettled == 0
    whole = [ROWS, *layers, np.zeros((16, 0))]
    weights = [*its.weights, np.zeros((sizes[-1], 0))]
    for i in range(1, len(sizes)):
        activation = its.biases[i] + whole[i - 1] @ weights[i - 1] + whole[i + 1] @ weights[i].T
        np.testing.assert_allclose(whole[i], sigmoid(activation), rtol=0, atol=5e-6)


def test_mean_field_starts_at_the_offsets():
    its = machine(DEEP)
    (first, second), _ = hidden_means(its, ROWS.astype(np.float32), rounds=0)
    np.testing.assert_allclose(second, np.tile(its.offsets[2], (16, 1)), rtol=1e-6)
    answer = ROWS @ its.weights[0] + its.offsets[2] @ its.weights[1].T + its.biases[1]
    np.testing.assert_allclose(first, sigmoid(answer), rtol=0, atol=1e-6)


# Filters and activity


def test_filters_of_higher_layers_are_projected_through_the_layers_below():
    its = machine(DEEPER)
    W, V, U = its.weights
    for found, expected in zip(filters(its), (W, W @ V, W @ V @ U), strict=True):
        np.testing.assert_allclose(found, expected.T, rtol=0, atol=1e-6)


def test_filters_are_chosen_at_random_each_once_in_order():
    few, all_of_them = chosen((50, 3), 10, seed=1)
    assert sorted({*few}) == few.tolist()
    assert (len(few), max(few) < 50) == (10, True)
    assert all_of_them.tolist() == [0, 1, 2]
    assert few.tolist() == chosen((50, 3), 10, seed=1)[0].tolist() != chosen((50, 3), 10, seed=2)[0].tolist()


def test_a_filter_is_normalised_by_itself_about_grey():
    rows = np.array([[-2.0, 0.0, 1.0], [0.1, 0.05, 0.0], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(normalised(rows), [[0, 0.5, 0.75], [1, 0.75, 0.5], [0.5, 0.5, 0.5]])


def test_long_lines_that_are_no_pictures_lie_line_under_line():
    rows = np.random.default_rng(1).random((5, 31))
    (axes,) = compose([tile_panel(rows, Image(1, 31))], Page()).figure.axes
    np.testing.assert_array_equal(axes.images[0].get_array(), rows)


def test_a_picture_is_of_the_size_and_order_of_the_data_else_square_or_a_line():
    assert shape_of(Dataset("d", ROWS, image=Image(1, 4, "F")), 4) == (1, 4, "F")
    assert shape_of(Dataset("d", ROWS), 4) == shape_of(None, 4) == (2, 2, "C")
    assert shape_of(None, 784) == (28, 28, "C")
    assert shape_of(None, 128) == (1, 128, "C")


def test_a_unit_is_unbalanced_outside_the_range_and_not_at_its_ends():
    assert unbalanced(np.array([0.0, 0.04, 0.05, 0.5, 0.95, 0.96, 1.0, 0.3])) == 0.5


# The command


@pytest.mark.parametrize(("sizes", "kind"), [(RBM, "rbm"), (DEEPER, "dbm"), (DEEP, "auto-encoder")])
@pytest.mark.parametrize("layer", [None, 1])
def test_every_part_of_the_data_is_represented_by_the_layer_asked_for(sizes, kind, layer):
    save(sizes, kind)
    its = read_machine(Path("m.npz"))
    np.savez("rows.npz", train=ROWS, test=ROWS[::3])
    stdout, stderr = features("--data", "rows.npz", *(() if layer is None else ("--layer", layer)))
    shown = layer or len(sizes) - 1
    assert holds(stderr, f"out.npz|layer {shown}")
    train, _ = represent(its, ROWS)
    for number, (line, hidden) in enumerate(zip(stdout.splitlines()[1:], train, strict=True), 1):
        mean = hidden.mean(axis=0)
        outside = np.mean((mean < 0.05) | (mean > 0.95))
        assert line.split() == [str(number), str(sizes[number]), f"{mean.mean():.4f}", f"{outside:.1%}"]
    with np.load("out.npz") as file:
        assert sorted(file.files) == ["test", "train"]
        np.testing.assert_array_equal(file["train"], train[shown - 1])
        np.testing.assert_array_equal(file["test"], represent(its, ROWS[::3])[0][shown - 1])
    data = load(path="out.npz", binarise="none")  # data for another machine
    assert (data.levels, list(data.parts)) == (255, ["train", "test"])
    np.testing.assert_allclose(data.train / 255, train[shown - 1], rtol=0, atol=0.5 / 255 + 1e-6)


def test_the_table_is_read_at_a_glance():
    save(weights_0=np.zeros((4, 3)), biases_1=np.array([9.0, -9.0, 0.0]))
    Path("rows.csv").write_text("0,0,1,1\n" * 3)
    head, row = features("--data", "rows.csv")[0].splitlines()
    assert row.split() == ["1", "3", "0.5000", "66.7%"]
    assert head.endswith("[0.05, 0.95]")


def test_activities_that_are_no_probabilities_are_not_called_balanced_or_not():
    save(RBM, "auto-encoder", encoder=np.array("tanh"))
    np.save("rows.npy", ROWS)
    assert not {"%", "outside"} & {*features("--data", "rows.npy")[0].split()}


def test_mean_field_that_does_not_settle_is_reported():
    # m = 2 p - 1 of both units follows m <- tanh(m): at this critical weight it falls like sqrt(3 / 4n), so
    # that p still moves by 2e-4 in round 100.
    offsets = {"offsets_1": np.zeros(1), "offsets_2": np.ones(1)}
    biases = {"biases_1": np.array([2.0]), "biases_2": np.array([-2.0])}  # plain ones: -2 and -2
    save((4, 1, 1), "dbm", weights_0=np.zeros((4, 1)), weights_1=np.full((1, 1), 4.0), **offsets, **biases)
    np.save("rows.npy", ROWS)
    assert holds(features("--data", "rows.npy")[1], "100|16")


# What cannot be done


@pytest.mark.parametrize(
    ("arguments", "kind", "told"),
    [
        ("", None, "--data"),
        ("--data rows.npy:treshold=0.1", "unknown", "treshold|threshold"),
        ("--data rows.npy:threshold", "value", "threshold|shifting-bar:size=9,bar=1"),
        ("--data rows.npy:flip=1,flip=0", "conflict", "flip"),
        ("--data bars-and-stripes:size=3", "conflict", "9|4"),
        ("--data nothing", "unknown", "nothing|bars-and-stripes"),
        ("--data rows.npy --layer 2", "unsuited", "--layer 2|1 hidden layer"),
        ("--data rows.npy --layer 0", None, "--layer"),
        ("--data rows.npy -o out", "value", "-o out|.npz"),
        ("--data two.npz -o ./two.npz", "conflict", "-o two.npz"),
        ("--data rows.npy -o ./m.npz", "conflict", "-o m.npz"),
    ],
)
def test_impossible_requests_are_refused_and_nothing_is_written(arguments, kind, told):
    save()
    np.save("rows.npy", ROWS)
    np.savez("two.npz", train=ROWS, test=ROWS)
    before = {path.name: path.read_bytes() for path in Path().iterdir()}
    words = arguments.split()
    refused = cbm("features", "m.npz", *(() if "-o" in words else ("-o", "out.npz")), *words, code=2)
    assert kind is None or refused.error.kinds == (kind,)
    assert holds(refused.stderr, told)
    assert {path.name: path.read_bytes() for path in Path().iterdir()} == before
