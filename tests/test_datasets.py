"""Data sets: the generated ones against enumeration, the read ones against files made here."""

import gzip
import itertools
import json
import math
import pickle
import re
import struct
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from click.testing import CliRunner

from cbm_cli.cli.data import data
from cbm_cli.datasets import PUBLISHED, Dataset, Image, catalogue, check, load, names
from cbm_cli.errors import CbmError

TRAIN = "train-images-idx3-ubyte"
TEST = "t10k-images-idx3-ubyte"


@pytest.fixture(autouse=True)
def _no_files_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.delenv("CBM_DATA_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def idx(images: np.ndarray) -> bytes:
    return struct.pack(">4I", 0x0803, *images.shape) + images.tobytes()


def grey_images(n: int) -> np.ndarray:
    """Return n images of 2 x 3 pixels, together all grey values where n is large enough."""
    return (np.arange(n * 6) % 256).astype(np.uint8).reshape(n, 2, 3)


@pytest.fixture
def mnist_dir(tmp_path):
    """Folder with 50 training images (packed) and 7 test images (plain)."""
    (tmp_path / f"{TRAIN}.gz").write_bytes(gzip.compress(idx(grey_images(50))))
    (tmp_path / TEST).write_bytes(idx(grey_images(7)))
    return tmp_path


def as_strings(rows: np.ndarray) -> list[str]:
    return ["".join(map(str, row)) for row in rows.tolist()]


# Generated data


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_bars_and_stripes_are_all_squares_of_equal_rows_or_of_equal_columns(size):
    expected = Counter()
    for lines in itertools.product("01", repeat=size):
        expected["".join(pixel * size for pixel in lines)] += 1
        expected["".join(lines) * size] += 1
    rows = load("bars-and-stripes", size=size).train
    assert rows.shape == (2 ** (size + 1), size**2)
    assert Counter(as_strings(rows)) == expected
    assert expected["0" * size**2] == expected["1" * size**2] == 2


@pytest.mark.parametrize(("size", "bar"), [(9, 1), (9, 8), (9, 4), (2, 1), (5, 3)])
def test_shifting_bar_is_every_rotation_of_one_bar_once(size, bar):
    line = "1" * bar + "0" * (size - bar)
    rows = load("shifting-bar", size=size, bar=bar).train
    assert sorted(as_strings(rows)) == sorted(line[-p:] + line[:-p] for p in range(size))


def test_shifting_bar_has_the_share_of_ones_that_the_paper_gives():
    assert round(100 * load("shifting-bar", size=9, bar=1).train.mean(), 1) == 11.1


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
    dataset = load(**options)
    assert round(dataset.upper_bound * len(dataset.train), 2) == total


@pytest.mark.parametrize(
    "options", [{"name": "bars-and-stripes", "size": 1}, {"name": "bars-and-stripes", "size": 4}]
)
def test_upper_bound_is_the_log_likelihood_of_the_rows_own_distribution(options):
    dataset = load(**options)
    n = len(dataset.train)
    frequencies = Counter(as_strings(dataset.train))
    own = sum(math.log(frequencies[row] / n) for row in as_strings(dataset.train)) / n
    assert dataset.upper_bound == pytest.approx(own, rel=1e-12)


# Flips


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
def test_a_flip_exchanges_on_and_off_row_by_row_in_every_part(options, mnist_dir):
    plain, flip = (load(**options, flip=flip, data_dir=mnist_dir) for flip in (False, True))
    assert flip.parts.keys() == plain.parts.keys()
    for part in plain.parts:
        # Complements: so flipping is its own inverse.
        np.testing.assert_array_equal(
            flip.parts[part].astype(int), plain.levels - plain.parts[part].astype(int)
        )
    assert (flip.levels, flip.upper_bound) == (plain.levels, plain.upper_bound)
    assert flip.name == f"flipped-{plain.name}"


def test_flipped_shifting_bar_is_the_bar_of_all_pixels_but_one():
    flipped = load("shifting-bar", size=9, bar=1, flip=True)
    assert sorted(as_strings(flipped.train)) == sorted(as_strings(load("shifting-bar", size=9, bar=8).train))


# MNIST


def test_mnist_is_read_from_packed_and_plain_files_alike(mnist_dir):
    dataset = load("mnist", binarise="none", data_dir=mnist_dir)
    np.testing.assert_array_equal(dataset.train, grey_images(50).reshape(50, 6))
    np.testing.assert_array_equal(dataset.test, grey_images(7).reshape(7, 6))
    assert (dataset.levels, dataset.valid, dataset.width) == (255, None, 6)


@pytest.mark.parametrize("threshold", [0.0, 0.2, 0.5, 127 / 255, 0.999])
def test_a_pixel_is_on_where_its_value_exceeds_the_threshold(threshold, mnist_dir):
    dataset = load("mnist", threshold=threshold, data_dir=mnist_dir)
    expected = [
        [int(value / 255 > threshold) for value in row] for row in grey_images(50).reshape(50, 6).tolist()
    ]
    assert dataset.train.tolist() == expected
    assert dataset.levels == 1


def test_sampled_pixels_are_on_as_often_as_their_grey_value_says(tmp_path):
    n = 20000
    for stem in (TRAIN, TEST):
        (tmp_path / stem).write_bytes(idx(np.tile(np.uint8([0, 1, 64, 128, 254, 255]), n).reshape(n, 2, 3)))
    dataset = load("mnist", binarise="sample", data_dir=tmp_path)
    p = np.array([0, 1, 64, 128, 254, 255]) / 255
    error = np.sqrt(p * (1 - p) / n)
    for rows in dataset.parts.values():
        assert (np.abs(rows.mean(axis=0) - p) <= 4 * error).all()  # exact for black and white
    assert not np.array_equal(dataset.train, dataset.test)


def test_sampling_gives_the_same_rows_whatever_the_state_of_the_global_generator(mnist_dir):
    digests = set()
    for seed in (1, 2):
        np.random.seed(seed)  # noqa: NPY002 (that it has no influence is what is tested)
        before = np.random.get_state()[1].tolist()  # noqa: NPY002
        digests.add(load("mnist", binarise="sample", data_dir=mnist_dir).digest)
        assert np.random.get_state()[1].tolist() == before  # noqa: NPY002
    assert len(digests) == 1


@pytest.mark.parametrize("inside", ["", "mnist"])
@pytest.mark.parametrize("where", ["argument", "environment", "cache"])
def test_files_are_found_in_every_place_they_may_be_in(where, inside, mnist_dir, tmp_path, monkeypatch):
    platformdirs = pytest.importorskip("platformdirs")
    cache = platformdirs.user_cache_path("cbm") / "data"
    root = cache if where == "cache" else tmp_path / "root"
    folder = root / inside
    folder.mkdir(parents=True)
    for file in (f"{TRAIN}.gz", TEST):
        (mnist_dir / file).rename(folder / file)
    if where == "environment":
        monkeypatch.setenv("CBM_DATA_DIR", str(root))
    assert len(load("mnist", data_dir=root if where == "argument" else None).train) == 50


def test_an_explicit_folder_comes_before_the_environment(mnist_dir, tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    for stem in (TRAIN, TEST):
        (other / stem).write_bytes(idx(grey_images(3)))
    monkeypatch.setenv("CBM_DATA_DIR", str(other))
    assert len(load("mnist", data_dir=mnist_dir).train) == 50
    assert len(load("mnist", data_dir=tmp_path / "nowhere").train) == 3
    assert len(load("mnist").train) == 3


def test_missing_files_name_every_place_looked_in_and_what_to_put_there(tmp_path, monkeypatch):
    monkeypatch.setenv("CBM_DATA_DIR", str(tmp_path / "from-environment"))
    with pytest.raises(CbmError) as raised:
        load("mnist", data_dir=tmp_path / "given")
    message = str(raised.value)
    for folder in ("given", "given/mnist", "from-environment", "from-environment/mnist"):
        assert f"  {tmp_path / folder}\n" in message
    assert f"{TRAIN}[.gz]" in message
    assert f"{TEST}[.gz]" in message
    assert "CBM_DATA_DIR" in message


def test_training_images_without_test_images_are_refused(mnist_dir):
    (mnist_dir / TEST).unlink()
    with pytest.raises(CbmError, match=f"no {TEST}"):
        load("mnist", data_dir=mnist_dir)


def test_images_of_two_sizes_are_refused(mnist_dir):
    (mnist_dir / TEST).write_bytes(idx(np.zeros((7, 3, 3), np.uint8)))
    with pytest.raises(CbmError, match="differ in size"):
        load("mnist", data_dir=mnist_dir)


GOOD = idx(grey_images(50))
PACKED = gzip.compress(GOOD)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not an IDX file of images: it starts with nothing"),
        (b"\0", "not an IDX file"),
        (GOOD[:10], "truncated within its header"),
        (GOOD[:-1], "is truncated: it holds 299 of the 300 values"),
        (GOOD + b"\0", "goes on after the 300 values"),
        (struct.pack(">2I", 0x0801, 300) + bytes(300), "starts with IDX labels, expected 0x00000803"),
        (struct.pack(">4I", 0x0D03, 50, 2, 3) + bytes(1200), "starts with bytes 0x00000d03"),
        (b"P5 28 28 255\n" + bytes(784), "starts with bytes 0x50352032"),
        (struct.pack(">4I", 0x0803, 0, 28, 28), "claims to hold 0 images"),
        (struct.pack(">4I", 0x0803, 2**32 - 1, 2**32 - 1, 28), "claims to hold 4294967295 images"),
        (PACKED[:-20], "damaged gzip file"),
        (PACKED[:5], "damaged gzip file"),
        (PACKED[:-6] + b"\0\0" + PACKED[-4:], "damaged gzip file"),
        (PACKED[:30] + bytes(10) + PACKED[40:], "damaged gzip file"),
        (gzip.compress(GOOD[:-1]), "is truncated: it holds 299 of the 300 values"),
        (gzip.compress(GOOD + b"\0"), "goes on after the 300 values"),
    ],
    ids=range(16),
)
@pytest.mark.parametrize("name", [TRAIN, f"{TRAIN}.gz"])
def test_bad_files_are_named_with_what_is_wrong(name, content, complaint, mnist_dir):
    (mnist_dir / f"{TRAIN}.gz").unlink()
    (mnist_dir / name).write_bytes(content)
    with pytest.raises(CbmError, match=complaint) as raised:
        load("mnist", data_dir=mnist_dir)
    assert str(mnist_dir / name) in str(raised.value)


def test_published_mnist_has_the_share_of_ones_that_the_paper_gives(real_data_dir):
    dataset = load("mnist", data_dir=real_data_dir)
    assert (dataset.train.shape, dataset.test.shape) == ((60000, 784), (10000, 784))
    ones = np.concatenate([dataset.train, dataset.test]).mean()
    assert round(100 * ones, 1) == 13.3
    listed = next(entry for entry in catalogue(real_data_dir) if entry.name == "mnist")
    assert listed.ones == pytest.approx(ones, abs=5e-6)


# The binary sets


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name != "mnist"])
def test_published_files_have_the_sizes_and_the_ones_that_are_listed(name, real_data_dir):
    try:
        dataset = load(name, data_dir=real_data_dir)
    except CbmError as error:
        pytest.skip(str(error).splitlines()[0])
    listed = next(entry for entry in catalogue(real_data_dir) if entry.name == name)
    assert {part: len(rows) for part, rows in dataset.parts.items()} == listed.rows
    assert dataset.width == listed.width
    assert all(rows.dtype == np.uint8 and rows.max() == 1 for rows in dataset.parts.values())
    every = np.concatenate([*dataset.parts.values()])
    assert every.mean() == pytest.approx(listed.ones, abs=5e-6)


@pytest.mark.parametrize(
    ("name", "rows", "width"),  # of the publications, as the benchmark's table has them
    [
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
    entry = next(entry for entry in catalogue() if entry.name == name)
    assert (tuple(entry.rows.values()), entry.width) == (rows, width)


def write_text(folder, name: str, part: str, rows: np.ndarray) -> None:
    """Write rows as zeros and ones parted by commas, packed."""
    folder.mkdir(parents=True, exist_ok=True)
    text = np.full((len(rows), 2 * rows.shape[1]), ord(","), np.uint8)
    text[:, ::2] = rows + ord("0")
    text[:, -1] = ord("\n")
    (folder / f"{name}.{part}.data.gz").write_bytes(gzip.compress(text.tobytes(), compresslevel=1))


def random_rows(seed: int, shape: tuple[int, int]) -> np.ndarray:
    return np.random.Generator(np.random.Philox(seed)).integers(0, 2, shape, np.uint8)


@pytest.mark.parametrize("inside", ["dna", "binary/dna", ""])
def test_text_files_are_read_from_every_folder_they_may_be_in(inside, tmp_path):
    rows = {
        part: random_rows(seed, shape) for seed, (part, shape) in enumerate(PUBLISHED["dna"].shapes.items())
    }
    for part, values in rows.items():
        write_text(tmp_path / inside, "dna", part, values)
    dataset = load("dna", data_dir=tmp_path)
    for part, values in rows.items():
        np.testing.assert_array_equal(dataset.parts[part], values)


def test_web_and_dna_are_read_from_one_npz_of_all_parts(tmp_path):
    for name in ("web", "dna"):
        rows = {part: random_rows(3, shape) for part, shape in PUBLISHED[name].shapes.items()}
        arrays = {f"{part}_data": values.astype(np.float32) for part, values in rows.items()}
        np.savez(tmp_path / f"{name}.npz", inputsize=np.array(7), train_length=np.array(1), **arrays)
        dataset = load(name, data_dir=tmp_path)
        for part, values in rows.items():
            np.testing.assert_array_equal(dataset.parts[part], values)


def test_a_part_of_another_size_is_refused(tmp_path):
    for part, shape in PUBLISHED["dna"].shapes.items():
        write_text(tmp_path, "dna", part, random_rows(1, (shape[0] - (part == "test"), shape[1])))
    with pytest.raises(CbmError, match="test has 1,185 rows of 180 here, but 1,186 rows of 180 as published"):
        load("dna", data_dir=tmp_path)


@pytest.mark.parametrize(("name", "stand_in"), [("rcv1", "rcv1-valid"), ("web", "web-reshuffled")])
def test_what_is_not_here_names_its_stand_in_and_how_to_get_it(name, stand_in, tmp_path):
    with pytest.raises(CbmError) as raised:
        load(name, data_dir=tmp_path)
    assert f"{stand_in} stands in for it" in str(raised.value)
    assert f"`cbm data fetch {name}`" in str(raised.value)


def test_rcv1_valid_is_the_published_part_split_by_position(tmp_path):
    rows = random_rows(5, (10000, 150))
    write_text(tmp_path, "rcv1", "valid", rows)
    dataset = load("rcv1-valid", data_dir=tmp_path)
    assert [len(part) for part in dataset.parts.values()] == [8000, 1000, 1000]
    np.testing.assert_array_equal(np.concatenate([*dataset.parts.values()]), rows)
    assert dataset.name == "rcv1-valid"


def test_web_reshuffled_divides_the_rows_by_the_documented_shuffle(tmp_path):
    rows, test = random_rows(6, (17188, 300)), random_rows(7, (32561, 300))
    write_text(tmp_path, "web", "trainvalid", rows)
    write_text(tmp_path, "web", "test", test)
    dataset = load("web-reshuffled", data_dir=tmp_path)
    order = np.random.Generator(np.random.Philox(key=1)).permutation(17188)
    np.testing.assert_array_equal(dataset.train, rows[order[:14000]])
    np.testing.assert_array_equal(dataset.valid, rows[order[14000:]])
    np.testing.assert_array_equal(dataset.test, test)


# Pictures


def test_rows_are_drawn_upright_in_either_order():
    picture = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(Image(2, 3).upright(picture.reshape(1, 6)), [picture])
    np.testing.assert_array_equal(Image(2, 3, "F").upright(picture.flatten("F")[None]), [picture])


def test_bars_are_uniform_when_drawn_and_a_picture_does_not_change_a_digest():
    dataset = load("bars-and-stripes", size=3)
    drawn = dataset.image.upright(dataset.train)
    uniform = [np.ptp(drawn, axis=axis).max(axis=1) == 0 for axis in (1, 2)]
    assert (uniform[0] | uniform[1]).all()
    assert Dataset("a", dataset.train).digest == dataset.digest
    assert pickle.loads(pickle.dumps(dataset)).image == dataset.image


# Options


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"name": "shifting_bar"}, "did you mean shifting-bar"),
        ({"name": "cifar"}, "there are bars-and-stripes, shifting-bar, mnist"),
        ({"name": "my.csv"}, r"is unknown; .*for a file write \{path: my.csv\}"),
        ({}, r"needs the name of a data set, or the path of a file, as in \{path: rows.csv\}"),
        ({"name": "adult", "binarise": "sample"}, "adult has no option binarise; it takes flip"),
        ({"name": "mnist", "test": "t.csv"}, "mnist has no option test; that is for files of your own"),
        (
            {"path": "a/mnist.csv.gz"},
            "mnist is the name of a data set that cbm knows; add a name of your own",
        ),
        ({"path": "a.csv", "name": "dna"}, "dna is the name of a data set that cbm knows; choose another"),
        ({"path": "a.csv", "size": 3}, "a is read from a file and has no option size"),
        ({"name": "bars-and-stripes"}, r"needs a size; write \{name: bars-and-stripes, size: 3\}"),
        ({"name": "shifting-bar", "size": 9}, r"needs a bar; write \{name: shifting-bar, size: 9, bar: 1\}"),
        ({"name": "bars-and-stripes", "size": 3, "bar": 1}, "has no option bar; it takes size, flip"),
        ({"name": "shifting-bar", "size": 9, "bar": 1, "binarise": "sample"}, "has no option binarise"),
        ({"name": "bars-and-stripes", "size": 3, "threshold": 0.3}, "has no option threshold"),
        ({"name": "mnist", "size": 28}, "has no option size; it takes binarise, threshold, flip"),
        (
            {"name": "mnist", "binarise": "none", "threshold": 0.3},
            "threshold says nothing where binarise is none",
        ),
    ],
    ids=str,
)
def test_options_that_do_not_fit_are_refused_before_any_file_is_read(options, complaint):
    with pytest.raises(CbmError, match=complaint):
        check(**options)
    with pytest.raises(CbmError, match=complaint):
        load(**options)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"name": "bars-and-stripes", "size": 0}, "size 0 is out of range"),
        ({"name": "bars-and-stripes", "size": 11}, "size 11 is out of range.* 1 to 10"),
        ({"name": "shifting-bar", "size": 1, "bar": 1}, "size 1 is out of range"),
        ({"name": "shifting-bar", "size": 10**6, "bar": 1}, "2 to 4096"),
        ({"name": "shifting-bar", "size": 9, "bar": 0}, "bar 0 does not fit"),
        ({"name": "shifting-bar", "size": 9, "bar": 9}, "bar 9 does not fit.* 1 to 8"),
        ({"name": "mnist", "threshold": 1.0}, "threshold 1.0 is out of range"),
        ({"name": "mnist", "threshold": -0.1}, "threshold -0.1 is out of range"),
        ({"name": "mnist", "binarise": "otsu"}, "write threshold, sample, none"),
    ],
    ids=str,
)
def test_values_out_of_range_are_refused(options, complaint):
    with pytest.raises(CbmError, match=complaint):
        load(**options)


# Arrays and digests


def test_rows_are_read_only_bytes_and_stay_so_when_sent_to_another_process(mnist_dir):
    dataset = load("mnist", data_dir=mnist_dir)
    for copy in (dataset, pickle.loads(pickle.dumps(dataset, protocol=5))):
        for rows in copy.parts.values():
            assert rows.dtype == np.uint8
            assert rows.flags.c_contiguous
            assert not rows.flags.writeable
        assert copy.digest == dataset.digest
        assert (copy.name, copy.levels, copy.upper_bound) == ("mnist", 1, None)


def test_a_digest_changes_with_any_part_of_the_content():
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
    assert len({dataset.digest for dataset in datasets}) == len(datasets)


def test_a_digest_says_nothing_of_names_and_bounds():
    rows = np.eye(4, dtype=np.uint8)
    assert Dataset("a", rows).digest == Dataset("b", rows.copy(), upper_bound=-1.0).digest


def test_a_digest_is_the_same_in_another_process():
    script = "from cbm_cli.datasets import load; print(load('shifting-bar', size=9, bar=2, flip=True).digest)"
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    digest = load("shifting-bar", size=9, bar=2, flip=True).digest
    assert re.fullmatch("[0-9a-f]{64}", digest)
    assert other.stdout.strip() == digest


@pytest.mark.parametrize("rows", [np.zeros((2, 3)), np.zeros(3, np.uint8), np.zeros((3, 2), np.uint8).T])
def test_arrays_of_another_form_are_refused(rows):
    with pytest.raises(ValueError, match="C-contiguous"):
        Dataset("a", rows)


# cbm data list


def test_data_list_prints_one_plain_line_a_data_set_and_says_what_is_missing():
    result = CliRunner().invoke(data, ["list"])
    assert result.exit_code == 0
    head, bars, bar, mnist, *others = (re.split(r"  +", line)[:4] for line in result.stdout.splitlines())
    assert head == ["write in a grid", "rows x width", "ones", "where"]
    assert bars == ["{name: bars-and-stripes, size: 3}", "16 x 9", "50.0%", "generated"]
    assert bar == ["{name: shifting-bar, size: 9, bar: 1}", "9 x 9", "11.1%", "generated"]
    assert mnist == ["mnist", "60,000 + 10,000 x 784", "13.3%", "missing"]
    assert ["dna", "1,400 + 600 + 1,186 x 180", "25.3%", "missing"] in others
    assert [name for name, *_ in others] == [name for name in PUBLISHED if name != "mnist"]
    assert f"Missing: {' '.join(PUBLISHED)}." in result.stderr
    assert "`cbm data fetch NAME`" in result.stderr


def row_of_mnist(result) -> list[str]:
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("mnist"))
    return re.split(r"  +", line)[:4]


def test_data_list_names_the_folder_and_the_size_of_what_is_there(mnist_dir, monkeypatch):
    monkeypatch.setenv("CBM_DATA_DIR", str(mnist_dir))
    result = CliRunner().invoke(data, ["list"])
    assert row_of_mnist(result) == ["mnist", "50 + 7 x 6", "?", str(mnist_dir)]
    assert "mnist" not in result.stderr


def test_data_list_survives_a_damaged_file(mnist_dir, monkeypatch):
    monkeypatch.setenv("CBM_DATA_DIR", str(mnist_dir))
    (mnist_dir / TEST).write_bytes(b"no images")
    result = CliRunner().invoke(data, ["list"])
    assert result.exit_code == 0
    assert row_of_mnist(result)[3] == "damaged"
    assert f"{mnist_dir / TEST} is not an IDX file" in result.stderr


def test_data_list_json_is_json_alone_and_its_examples_load():
    result = CliRunner().invoke(data, ["list", "--json"])
    entries = json.loads(result.stdout)
    assert result.stderr == ""
    assert [entry["name"] for entry in entries] == names()
    assert [entry["present"] for entry in entries] == [name not in PUBLISHED for name in names()]
    assert entries[2]["looked_in"]
    for entry in entries[:2]:
        dataset = load(**entry["example"])
        assert entry["rows"] == {"train": len(dataset.train)}
        assert (entry["width"], entry["ones"]) == (dataset.width, dataset.train.mean())


def test_data_info_says_what_it_is_whom_to_cite_and_where_the_files_belong():
    result = CliRunner().invoke(data, ["info", "dna"])
    assert result.exit_code == 0
    for line in ("train       1,400 rows of 180", "ones        25.27%", "in a grid   data: dna"):
        assert line in result.stdout.splitlines()
    assert "Larochelle" in result.stdout
    assert "file        dna.test.data: missing" in result.stdout
    record = json.loads(CliRunner().invoke(data, ["info", "dna", "--json"]).stdout)
    assert record["rows"] == {"train": 1400, "valid": 600, "test": 1186}
    assert "CC BY 4.0" in record["licence"]


def test_data_info_of_a_generated_set_and_of_an_unknown_one():
    shown = CliRunner().invoke(data, ["info", "shifting-bar"]).stdout
    assert "in a grid   data: {name: shifting-bar, size: 9, bar: 1}" in shown
    with pytest.raises(CbmError, match="did you mean mushrooms"):
        CliRunner().invoke(data, ["info", "mushroom"], catch_exceptions=False)
