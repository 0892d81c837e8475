"""``cbm features``: filters, activities and representations against formulas written out unit by unit."""

import json
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
    """Run cbm features m.npz; check its exit code; return what it says on stdout and stderr."""
    result = cbm("features", "m.npz", *arguments, code=code)
    return result.stdout, result.stderr


def known(*arguments):
    return json.loads(features(*arguments, "--json")[0])


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


def test_a_picture_is_of_the_size_and_order_that_is_asked_for_else_the_datas_else_square_or_a_line():
    data = Dataset("d", ROWS, image=Image(1, 4, "F"))
    assert shape_of(None, data, 4) == (1, 4, "F")
    assert shape_of("4x1", data, 4) == (4, 1, "C")
    assert shape_of(None, Dataset("d", ROWS), 4) == shape_of(None, None, 4) == (2, 2, "C")
    assert shape_of(None, None, 784) == (28, 28, "C")
    assert shape_of(None, None, 128) == (1, 128, "C")


def test_a_unit_is_unbalanced_outside_the_range_and_not_at_its_ends():
    assert unbalanced(np.array([0.0, 0.04, 0.05, 0.5, 0.95, 0.96, 1.0, 0.3])) == 0.5


# The command


@pytest.mark.parametrize(("sizes", "kind"), [(RBM, "rbm"), (DEEPER, "dbm"), (DEEP, "auto-encoder")])
def test_all_that_is_asked_for_is_written_and_right(sizes, kind):
    save(sizes, kind)
    np.savez("rows.npz", train=ROWS, test=ROWS[::3])
    formats = ("--representations", "npz", "--representations", "csv")
    answer = known("--data", "rows.npz", "-o", "out", "--filters", 2, *formats)

    its = read_machine(Path("m.npz"))
    layers = range(1, len(sizes))
    (train, _), (test, _) = represent(its, ROWS), represent(its, ROWS[::3])
    files = ["filters.npz", *(f"filters-{i}.png" for i in layers), "activity.csv", "activity.png"]
    files += [f"layer-{i}.npz" for i in layers]
    files += [f"layer-{i}-{part}.csv" for part in ("train", "test") for i in layers]
    assert answer["files"] == [f"out/{name}" for name in files]
    assert sorted(path.name for path in Path("out").iterdir()) == sorted(files)
    assert (answer["model"], answer["kind"], answer["unsettled"]) == ("m.npz", kind, 0)

    with np.load("out/filters.npz") as file:
        assert {*file.files} == {f"{name}_{i}" for name in ("filters", "drawn") for i in layers}
        for i, rows in enumerate(filters(its), 1):
            np.testing.assert_array_equal(file[f"filters_{i}"], rows)
            assert file[f"drawn_{i}"].shape == (2,)
            panel = tile_panel(normalised(rows[file[f"drawn_{i}"]]), Image(2, 2))
            assert Path(f"out/filters-{i}.png").read_bytes() == compose([panel], Page()).content()

    table = np.genfromtxt("out/activity.csv", delimiter=",", names=True)
    for i, hidden in enumerate(train, 1):
        mean, its_rows = hidden.mean(axis=0), table[table["layer"] == i]
        assert its_rows["rank"].tolist() == list(range(1, sizes[i] + 1))
        np.testing.assert_allclose(its_rows["mean_activity"], np.sort(mean)[::-1], rtol=2e-6)
        np.testing.assert_allclose(mean[its_rows["unit"].astype(int)], its_rows["mean_activity"], rtol=2e-6)
        outside = np.mean((mean < 0.05) | (mean > 0.95))
        expected = {"layer": i, "units": sizes[i], "mean_activity": mean.mean(), "unbalanced": outside}
        assert answer["layers"][i - 1] == pytest.approx(expected)

        with np.load(f"out/layer-{i}.npz") as file:
            assert sorted(file.files) == ["test", "train"]
            np.testing.assert_array_equal(file["train"], hidden)
            np.testing.assert_array_equal(file["test"], test[i - 1])
        for part, rows in (("train", hidden), ("test", test[i - 1])):
            read = np.loadtxt(f"out/layer-{i}-{part}.csv", delimiter=",", ndmin=2)
            np.testing.assert_allclose(read, rows, rtol=1e-5)

    data = load(path="out/layer-1.npz", binarise="none")  # data for another machine
    assert (data.levels, list(data.parts)) == (255, ["train", "test"])
    np.testing.assert_allclose(data.train / 255, train[0], rtol=0, atol=0.5 / 255 + 1e-6)


def test_without_data_there_are_filters_and_nothing_else():
    save(DEEP, "dbm")
    stdout, stderr = features()
    assert [line.split() for line in stdout.splitlines()[1:]] == [["1", "3"], ["2", "2"]]
    names = ["filters-1.png", "filters-2.png", "filters.npz"]
    assert sorted(path.name for path in Path("m-features").iterdir()) == names
    assert holds(stderr, "|".join(f"m-features/{name}" for name in names))


def test_the_table_is_read_at_a_glance():
    save(weights_0=np.zeros((4, 3)), biases_1=np.array([9.0, -9.0, 0.0]))
    Path("rows.csv").write_text("0,0,1,1\n" * 3)
    stdout, stderr = features("--data", "rows.csv", "--filters", 2)
    head, row = stdout.splitlines()
    assert row.split() == ["1", "3", "0.5000", "66.7%"]
    assert head.endswith("[0.05, 0.95]")
    (line,) = (line for line in stderr.splitlines() if "--filters" in line)
    assert holds(line, "m-features/filters-1.png|2|3|--seed")


def test_activities_that_are_no_probabilities_are_not_called_balanced_or_not():
    save(RBM, "auto-encoder", encoder=np.array("tanh"))
    np.save("rows.npy", ROWS)
    assert "unbalanced" not in known("--data", "rows.npy")["layers"][0]
    assert "%" not in features("--data", "rows.npy")[0]


def test_mean_field_that_does_not_settle_is_reported():
    # m = 2 p - 1 of both units follows m <- tanh(m): at this critical weight it falls like sqrt(3 / 4n), so
    # that p still moves by 2e-4 in round 100.
    offsets = {"offsets_1": np.zeros(1), "offsets_2": np.ones(1)}
    biases = {"biases_1": np.array([2.0]), "biases_2": np.array([-2.0])}  # plain ones: -2 and -2
    save((4, 1, 1), "dbm", weights_0=np.zeros((4, 1)), weights_1=np.full((1, 1), 4.0), **offsets, **biases)
    np.save("rows.npy", ROWS)
    stdout, stderr = features("--data", "rows.npy", "--json")
    assert json.loads(stdout)["unsettled"] == 16
    assert holds(stderr, "100|16")


def test_same_seed_same_bytes():
    save((9, 8), "rbm")
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        options = ("--data", "bars-and-stripes:size=3", "--filters", 4, "--representations", "npz")
        features("-o", name, "--seed", seed, *options)
    for file in Path("a").iterdir():
        a, b, c = (Path(name, file.name).read_bytes() for name in "abc")
        assert a == b
        assert (a != c) == file.name.startswith("filters")


# What cannot be done


@pytest.mark.parametrize(
    ("arguments", "kind", "told"),
    [
        ("--test rows.npy", "missing", "--test|--data"),
        ("--representations npz", "missing", "--representations|--data"),
        ("--data two.npz --test rows.npy", "conflict", "rows.npy|two.npz (test)"),
        ("--data rows.npy:treshold=0.1", "unknown", "treshold|threshold"),
        ("--data rows.npy:threshold", "value", "threshold|shifting-bar:size=9,bar=1"),
        ("--data rows.npy:flip=1,flip=0", "conflict", "flip"),
        ("--data bars-and-stripes:size=3", "conflict", "9|4"),
        ("--data nothing", "unknown", "nothing|bars-and-stripes"),
        ("--shape 3x3", None, "--shape 3x3|9|4"),
        ("--filters 0", None, "--filters"),
        ("--representations xlsx", None, "--representations"),
        ("-o rows.npy", None, "-o rows.npy"),
    ],
)
def test_impossible_requests_are_refused_and_nothing_is_written(arguments, kind, told):
    save()
    np.save("rows.npy", ROWS)
    np.savez("two.npz", train=ROWS, test=ROWS)
    before = {path.name: path.read_bytes() for path in Path().iterdir()}
    refused = cbm("features", "m.npz", *arguments.split(), code=2)
    assert kind is None or refused.error.kinds == (kind,)
    assert holds(refused.stderr, told)
    assert {path.name: path.read_bytes() for path in Path().iterdir()} == before


def test_the_machine_is_not_written_over():
    save(name="layer-1.npz")
    before = Path("layer-1.npz").read_bytes()
    refused = cbm("features", "layer-1.npz", "-o", ".", code=2)
    assert refused.error.kinds == ("conflict",)
    assert holds(refused.stderr, "-o .|layer-1.npz")
    assert Path("layer-1.npz").read_bytes() == before
