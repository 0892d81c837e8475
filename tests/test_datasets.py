"""Data sets by name: the generated ones against enumeration, the published ones against files made here."""

import gzip
import itertools
import json
import math
import pickle
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from cbm_cli.datasets.catalogue import catalogue, describe, load
from cbm_cli.datasets.dataset import DataError, Dataset, Image
from cbm_cli.datasets.sources import SOURCES
from cbm_cli.datasets.spec import available
from cbm_cli.grid.parts import Data
from tests.builders import cbm, idx

TRAIN, TEST = "train-images-idx3-ubyte", "t10k-images-idx3-ubyte"
PUBLISHED = [name for name, source in SOURCES.items() if source.forms]
GREY = (np.arange(300) % 256).astype(np.uint8).reshape(50, 2, 3)  # all grey values


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """Folder of data in a world without any other data."""
    monkeypatch.setenv("CBM_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def mnist(folder, monkeypatch):
    """Make MNIST 50 training images (packed) and 7 test images (plain) of 2 x 3 pixels."""
    small = replace(SOURCES["mnist"], rows={"train": 50, "test": 7}, width=6, image=Image(2, 3))
    monkeypatch.setitem(SOURCES, "mnist", small)
    (folder / f"{TRAIN}.gz").write_bytes(gzip.compress(idx(GREY), mtime=0))
    (folder / TEST).write_bytes(idx(GREY[:7]))


def as_strings(rows: np.ndarray) -> list[str]:
    return ["".join(map(str, row)) for row in rows.tolist()]


# Generated data


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_bars_and_stripes_are_all_squares_of_equal_rows_or_of_equal_columns(size):
    expected = Counter()
    for line in itertools.product("01", repeat=size):
        expected["".join(pixel * size for pixel in line)] += 1
        expected["".join(line) * size] += 1
    data = load("bars-and-stripes", size=size)
    assert data.train.shape == (2 ** (size + 1), size**2)
    assert Counter(as_strings(data.train)) == expected
    assert expected["0" * size**2] == expected["1" * size**2] == 2
    n = len(data.train)
    own = sum(math.log(expected[row] / n) for row in as_strings(data.train)) / n
    assert data.upper_bound == pytest.approx(own, rel=1e-12)


@pytest.mark.parametrize(("size", "bar"), [(9, 1), (9, 8), (9, 4), (2, 1), (5, 3)])
def test_shifting_bar_is_every_rotation_of_one_bar_once(size, bar):
    line = "1" * bar + "0" * (size - bar)
    rows = load("shifting-bar", size=size, bar=bar).train
    assert sorted(as_strings(rows)) == sorted(line[-p:] + line[:-p] for p in range(size))


@pytest.mark.parametrize(
    ("options", "total"),
    [
        ({"name": "bars-and-stripes", "size": 3}, -41.59),
        ({"name": "bars-and-stripes", "size": 2}, -13.86),
        ({"name": "shifting-bar", "size": 9, "bar": 1}, -19.78),
        ({"name": "shifting-bar", "size": 9, "bar": 8}, -19.78),
        ({"name": "shifting-bar", "size": 9, "bar": 1, "flip": True}, -19.78),
    ],
)
def test_upper_bounds_are_those_of_the_paper(options, total):
    data = load(**options)
    assert round(data.upper_bound * len(data.train), 2) == total


@pytest.mark.parametrize(
    "options",
    [
        {"name": "bars-and-stripes", "size": 3},
        {"name": "shifting-bar", "size": 9, "bar": 2},
        {"name": "mnist"},
        {"name": "mnist", "binarise": "sample"},
        {"name": "mnist", "binarise": "none"},
    ],
    ids=str,
)
def test_a_flip_exchanges_on_and_off_row_by_row_in_every_part(options, mnist):
    plain, flip = load(Data(**options)), load(Data(**options, flip=True))
    assert flip.parts.keys() == plain.parts.keys()
    for part, rows in plain.parts.items():
        np.testing.assert_array_equal(flip.parts[part].astype(int), plain.levels - rows.astype(int))
    assert (flip.levels, flip.upper_bound) == (plain.levels, plain.upper_bound)
    assert flip.name == f"flipped-{plain.name}" == Data(**options, flip=True).title


# Published data


@pytest.mark.parametrize("threshold", [0.0, 0.2, 0.5, 127 / 255, 0.999])
def test_mnist_is_read_packed_or_plain_and_a_pixel_is_on_above_the_threshold(threshold, mnist):
    grey, data = load("mnist", binarise="none"), load("mnist", threshold=threshold)
    np.testing.assert_array_equal(grey.train, GREY.reshape(50, 6))
    np.testing.assert_array_equal(grey.test, GREY[:7].reshape(7, 6))
    assert (grey.levels, grey.valid, data.levels, data.image) == (255, None, 1, Image(2, 3))
    expected = [[int(v / 255 > threshold) for v in row] for row in GREY.reshape(50, 6).tolist()]
    assert data.train.tolist() == expected


@pytest.mark.parametrize("inside", ["", "mnist"])
@pytest.mark.parametrize("where", ["environment", "cache"])
def test_files_are_found_in_every_place_they_may_be_in(where, inside, folder, monkeypatch, mnist):
    root = folder / ("cache/cbm/data" if where == "cache" else "root")
    (root / inside).mkdir(parents=True)
    for file in (f"{TRAIN}.gz", TEST):
        (folder / file).rename(root / inside / file)
    monkeypatch.setenv("CBM_DATA_DIR", str(root if where == "environment" else folder / "nowhere"))
    assert len(load("mnist").train) == 50


def test_the_folder_of_the_environment_comes_before_the_cache(folder, mnist):
    cache = folder / "cache/cbm/data"
    cache.mkdir(parents=True)
    for stem in (TRAIN, TEST):
        (cache / stem).write_bytes(idx(GREY[:3]))
    assert len(load("mnist").train) == 50


def test_missing_files_name_every_folder_and_what_to_put_there(folder):
    with pytest.raises(DataError) as raised:
        load("mnist")
    message = str(raised.value)
    assert available(Data(name="mnist")) == message
    for place in (folder, folder / "mnist", folder / "cache/cbm/data"):
        assert f"  {place}\n" in message
    for words in (f"{TRAIN}[.gz]", f"{TEST}[.gz]", "CBM_DATA_DIR", "`cbm data fetch mnist`"):
        assert words in message


def test_part_of_the_files_is_as_good_as_none(folder, mnist):
    assert available(Data(name="mnist")) == ""
    (folder / TEST).unlink()
    assert re.search(f"has no {TEST}", available(Data(name="mnist")))
    with pytest.raises(DataError, match=f"has no {TEST}"):
        load("mnist")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (idx(GREY)[:-1], "truncated: 299 of the 300"),
        (idx(GREY[:, :1]), "50 rows of 3 here, but 50 rows of 6"),
        (idx(GREY[:49]), "49 rows of 6 here"),
        (gzip.compress(idx(GREY), mtime=0)[:-20], "damaged gzip"),
    ],
    ids=range(4),
)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_bad_files_are_named_with_what_is_wrong(ending, content, words, folder, mnist):
    (folder / f"{TRAIN}.gz").unlink()
    (folder / f"{TRAIN}{ending}").write_bytes(content)
    with pytest.raises(DataError, match=words) as raised:
        load("mnist")
    assert f"{TRAIN}{ending}" in str(raised.value) or "train has" in str(raised.value)
    assert "`cbm data" in str(raised.value)
    assert raised.value.field == "name"


@pytest.mark.parametrize("name", PUBLISHED)
def test_real_files_have_the_sizes_and_the_ones_that_are_listed(name, real_data_dir, monkeypatch):
    monkeypatch.setenv("CBM_DATA_DIR", str(real_data_dir))
    if available(Data(name=name)):
        pytest.skip(f"{name} is not here")
    data, (entry,) = load(name), catalogue(name)
    assert entry.state == "ok"
    assert {part: len(rows) for part, rows in data.parts.items()} == entry.rows
    assert all(rows.max() == 1 for rows in data.parts.values())
    assert np.concatenate([*data.parts.values()]).mean() == pytest.approx(entry.ones, abs=5e-6)


@pytest.mark.parametrize(
    ("name", "rows", "width"),  # of the publications, as the benchmark's table has them
    [
        ("mnist", (60000, 10000), 784),
        ("caltech101-silhouettes", (4100, 2264, 2307), 784),
        ("adult", (5000, 1414, 26147), 123),
        ("connect4", (16000, 4000, 47557), 126),
        ("dna", (1400, 600, 1186), 180),
        ("mushrooms", (2000, 500, 5624), 112),
        ("nips", (400, 100, 1240), 500),
        ("ocr-letters", (32152, 10000, 10000), 128),
        ("rcv1", (40000, 10000, 150000), 150),
        ("web", (14000, 3188, 32561), 300),
        ("rcv1-valid", (8000, 1000, 1000), 150),
        ("web-reshuffled", (14000, 3188, 32561), 300),
    ],
)
def test_every_published_set_is_listed_with_its_sizes(name, rows, width):
    (entry,) = catalogue(name)
    assert (tuple(entry.rows.values()), entry.width) == (rows, width)


def write_text(folder, name, part, rows):
    """Write rows as zeros and ones separated by commas, packed."""
    folder.mkdir(parents=True, exist_ok=True)
    text = np.full((len(rows), 2 * rows.shape[1]), ord(","), np.uint8)
    text[:, ::2], text[:, -1] = rows + ord("0"), ord("\n")
    (folder / f"{name}.{part}.data.gz").write_bytes(gzip.compress(text.tobytes(), compresslevel=1, mtime=0))


def random_rows(seed, *shape):
    return np.random.Generator(np.random.Philox(seed)).integers(0, 2, shape, np.uint8)


def published_rows(name):
    source = SOURCES[name]
    return {part: random_rows(seed, n, source.width) for seed, (part, n) in enumerate(source.rows.items())}


@pytest.mark.parametrize("inside", ["dna", "binary/dna", ""])
def test_text_files_are_read_from_every_folder_they_may_be_in(inside, folder):
    rows = published_rows("dna")
    for part, values in rows.items():
        write_text(folder / inside, "dna", part, values)
    for part, values in load("dna").parts.items():
        np.testing.assert_array_equal(values, rows[part])


@pytest.mark.parametrize("name", ["web", "dna"])
def test_all_parts_are_read_from_one_npz(name, folder):
    rows = published_rows(name)
    arrays = {f"{part}_data": values.astype(np.float32) for part, values in rows.items()}
    np.savez(folder / f"{name}.npz", inputsize=np.array(7), **arrays)
    for part, values in load(name).parts.items():
        np.testing.assert_array_equal(values, rows[part])
    np.savez(folder / f"{name}.npz", **arrays | {"test_data": rows["test"] * 2})
    with pytest.raises(DataError, match="more than zeros and ones"):
        load(name)
    np.savez(folder / f"{name}.npz", train_data=rows["train"])
    with pytest.raises(DataError, match="no valid part"):
        load(name)


def test_pictures_of_the_published_sets_have_their_published_order():
    images = {name: source.image for name, source in SOURCES.items() if source.image}
    assert images == {
        "mnist": Image(28, 28),
        "caltech101-silhouettes": Image(28, 28, "F"),  # down the columns
        "ocr-letters": Image(16, 8),
    }


@pytest.mark.parametrize(("name", "substitute"), [("rcv1", "rcv1-valid"), ("web", "web-reshuffled")])
def test_what_is_not_here_names_its_substitute(name, substitute):
    with pytest.raises(DataError, match=f"{substitute} is a substitute"):
        load(name)


def test_rcv1_valid_is_the_published_part_split_by_position(folder):
    rows = random_rows(5, 10000, 150)
    write_text(folder, "rcv1", "valid", rows)
    data = load("rcv1-valid")
    assert [len(part) for part in data.parts.values()] == [8000, 1000, 1000]
    np.testing.assert_array_equal(np.concatenate([*data.parts.values()]), rows)
    assert data.name == "rcv1-valid"


def test_web_reshuffled_divides_the_rows_by_the_documented_shuffle(folder):
    rows, test = random_rows(6, 17188, 300), random_rows(7, 32561, 300)
    write_text(folder, "web", "trainvalid", rows)
    write_text(folder, "web", "test", test)
    data = load("web-reshuffled")
    order = np.random.Generator(np.random.Philox(key=1)).permutation(17188)
    assert list(data.parts) == ["train", "valid", "test"]
    for found, expected in [
        (data.train, rows[order[:14000]]),
        (data.valid, rows[order[14000:]]),
        (data.test, test),
    ]:
        np.testing.assert_array_equal(found, expected)


# Options


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"name": "shifting_bar"}, "name", "did you mean shifting-bar"),
        ({"name": "cifar"}, "name", "there are bars-and-stripes, shifting-bar, mnist"),
        ({"name": "my.csv"}, "name", r"for a file write \{path: my.csv\}"),
        ({}, None, r"needs the name of a data set, or the path of a file, as in \{path: rows.csv\}"),
        ({"name": "adult", "binarise": "sample"}, "binarise", "no option binarise; it takes flip"),
        ({"name": "mnist", "test": "t.csv"}, "test", "no option test; that is for files of your own"),
        ({"name": "mnist", "scale": 16}, "scale", "no option scale; that is for files"),
        ({"path": "a/mnist.csv.gz"}, "name", "mnist is the name of a data set .* add a name"),
        ({"path": "a.csv", "name": "dna"}, "name", "dna is the name of a data set .* choose another"),
        ({"path": "a.csv", "size": 3}, "size", "a is read from a file and has no option size"),
        ({"name": "bars-and-stripes"}, "size", r"size: 3\}, on a command line bars-and-stripes:size=3"),
        ({"name": "shifting-bar", "size": 9}, "bar", r"needs a bar; write .*size: 9, bar: 1\}"),
        ({"name": "bars-and-stripes", "size": 3, "bar": 1}, "bar", "no option bar; it takes size, flip"),
        ({"name": "bars-and-stripes", "size": 3, "threshold": 0.3}, "threshold", "no option threshold"),
        ({"name": "mnist", "size": 28}, "size", "no option size; it takes binarise, threshold, flip"),
        ({"name": "mnist", "binarise": "none", "threshold": 0.3}, "threshold", "no effect"),
        ({"name": "mnist", "threshold": 8}, "threshold", "below 1"),
        ({"name": "mnist", "binarise": "refuse"}, "binarise", "threshold, sample or none"),
        ({"name": "bars-and-stripes", "size": 11}, "size", "out of range.* 1 to 10"),
        ({"name": "shifting-bar", "size": 1, "bar": 1}, "size", "size 1 is out of range"),
        ({"name": "shifting-bar", "size": 10**6, "bar": 1}, "size", "2 to 4096"),
        ({"name": "shifting-bar", "size": 9, "bar": 9}, "bar", "less than size 9"),
        ({"name": "shifting-bar", "size": 9, "bar": 0}, "bar", "greater than or equal to 1"),
        ({"name": "mnist", "threshold": -0.1}, "threshold", "greater than or equal to 0"),
        ({"name": "mnist", "binarise": "otsu"}, "binarise", "threshold.*sample.*none"),
        ({"name": "mnist", "treshold": 0.1}, "treshold", "did you mean threshold"),
        ({"path": "a.csv", "scale": 0}, "scale", "greater than 0"),
    ],
    ids=str,
)  # fmt: skip
def test_options_that_do_not_fit_are_refused_with_their_field_before_any_file_is_read(options, field, words):
    with pytest.raises(DataError, match=words) as raised:
        load(**options)
    assert raised.value.field == field


def test_rows_may_be_held_out_for_validation(mnist):
    data, whole = load("mnist", hold_out=20, rows="last"), load("mnist")
    np.testing.assert_array_equal(np.concatenate([data.train, data.valid]), whole.train)
    assert len(data.valid) == 20
    with pytest.raises(DataError, match="must leave some") as raised:
        load("mnist", hold_out=50)
    assert raised.value.field == "hold_out"


# Arrays and digests


def test_rows_are_read_only_bytes_and_stay_so_when_sent_to_another_process(mnist):
    data = load("mnist")
    for copy in (data, pickle.loads(pickle.dumps(data, protocol=5))):
        for rows in copy.parts.values():
            assert rows.dtype == np.uint8
            assert rows.flags.c_contiguous
            assert not rows.flags.writeable
        assert copy.digest == data.digest
        assert (copy.name, copy.levels, copy.upper_bound, copy.image) == ("mnist", 1, None, Image(2, 3))
    error = pickle.loads(pickle.dumps(DataError("words", "path")))
    assert (str(error), error.field) == ("words", "path")


def test_a_digest_changes_with_any_part_of_the_content_and_with_nothing_else():
    rows, other = np.eye(4, dtype=np.uint8), 1 - np.eye(4, dtype=np.uint8)
    datasets = [
        Dataset("a", rows),
        Dataset("a", other),
        Dataset("a", rows.reshape(2, 8)),
        Dataset("a", rows, levels=255),
        Dataset("a", rows, test=other),
        Dataset("a", rows, valid=other),
        Dataset("a", rows, valid=other, test=other),
        Dataset("a", np.concatenate([rows, other])),
    ]
    assert len({data.digest for data in datasets}) == len(datasets)
    assert datasets[0].digest == Dataset("b", rows.copy(), upper_bound=-1.0, image=Image(2, 2)).digest


def test_a_digest_is_the_same_in_another_process():
    script = "from cbm_cli.datasets.catalogue import load; "
    script += "print(load('shifting-bar', size=9, bar=2, flip=True).digest)"
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    digest = load("shifting-bar", size=9, bar=2, flip=True).digest
    assert re.fullmatch("[0-9a-f]{64}", digest)
    assert other.stdout.strip() == digest


@pytest.mark.parametrize("rows", [np.zeros((2, 3)), np.zeros(3, np.uint8), np.zeros((3, 2), np.uint8).T])
def test_arrays_of_another_form_are_refused(rows):
    with pytest.raises(ValueError, match="C-contiguous"):
        Dataset("a", rows)


# What is said of data


def test_a_line_describes_what_was_loaded(mnist):
    bars = {"name": "bars-and-stripes", "size": 3}
    assert describe(Data(**bars), load(**bars)) == "bars-and-stripes: 16 rows x 9 units, 50.0% ones"
    grey = Data(name="mnist", binarise="none", flip=True)
    assert re.fullmatch(
        r"flipped-mnist: 50 rows x 6 units, grey values, mean 0\.\d{3} \(test 7 rows\)",
        describe(grey, load(grey)),
    )


def columns(line):
    return re.split(r"  +", line)[:4]


def test_data_list_prints_one_line_per_data_set_and_what_is_missing():
    result = cbm("data", "list")
    head, bars, bar, mnist, *others = map(columns, result.stdout.splitlines())
    assert head == ["write in a grid", "rows x width", "ones", "where"]
    assert bars == ["{name: bars-and-stripes, size: 3}", "16 x 9", "50.0%", "generated"]
    assert bar == ["{name: shifting-bar, size: 9, bar: 1}", "9 x 9", "11.1%", "generated"]
    assert mnist == ["mnist", "60,000 + 10,000 x 784", "13.3%", "missing"]
    assert ["dna", "1,400 + 600 + 1,186 x 180", "25.3%", "missing"] in others
    assert [name for name, *_ in others] == PUBLISHED[1:]
    assert f"Missing: {' '.join(PUBLISHED)}." in result.stderr
    assert "`cbm data fetch NAME`" in result.stderr


@pytest.mark.parametrize("content", [idx(GREY[:7]), b"not images"])
def test_a_set_with_a_wrong_file_is_damaged_everywhere(content, folder, mnist):
    (folder / TEST).write_bytes(content)
    listed = cbm("data", "list")
    (line,) = (line for line in listed.stdout.splitlines() if line.startswith("mnist"))
    assert columns(line)[3] == "damaged"
    assert str(folder / TEST) in listed.stderr or TRAIN in listed.stderr
    assert "mnist: damaged" in cbm("data", "verify", code=1).stdout
    assert json.loads(cbm("data", "info", "mnist", "--json").stdout)["state"] == "damaged"


def test_a_set_of_which_a_part_is_here_is_missing_everywhere(folder):
    write_text(folder, "rcv1", "valid", random_rows(5, 10, 150))
    (line,) = (line for line in cbm("data", "list").stdout.splitlines() if line.startswith("rcv1 "))
    assert columns(line)[3] == "missing"
    verified = cbm("data", "verify", "rcv1", code=1).stdout
    assert verified.startswith("rcv1: missing\n  rcv1.train.data: missing\n")
    assert json.loads(cbm("data", "info", "rcv1", "--json").stdout)["state"] == "missing"


def test_data_list_json_is_json_alone_and_its_examples_load():
    result = cbm("data", "list", "--json")
    entries = json.loads(result.stdout)
    assert result.stderr == ""
    assert [entry["name"] for entry in entries] == [*SOURCES]
    assert [entry["present"] for entry in entries] == [name not in PUBLISHED for name in SOURCES]
    assert entries[2]["looked_in"]
    for entry in entries[:2]:
        data = load(**entry["example"])
        assert entry["rows"] == {"train": len(data.train)}
        assert (entry["width"], entry["ones"], entry["state"]) == (data.width, data.train.mean(), "generated")


def test_data_info_has_sizes_whom_to_cite_and_where_the_files_belong():
    shown = cbm("data", "info", "dna").stdout
    lines = [columns(line) for line in shown.splitlines()]
    for line in ("train", "1,400 rows of 180"), ("ones", "25.27%"), ("in a grid", "data: dna"):
        assert [*line] in lines
    assert "Larochelle" in shown
    assert ["file", "dna.test.data: missing"] in lines
    record = json.loads(cbm("data", "info", "dna", "--json").stdout)
    assert record["rows"] == {"train": 1400, "valid": 600, "test": 1186}
    assert "CC BY 4.0" in record["licence"]
    assert "data: {name: shifting-bar, size: 9, bar: 1}" in cbm("data", "info", "shifting-bar").stdout
    assert "did you mean mushrooms" in cbm("data", "info", "mushroom", code=2).stderr
