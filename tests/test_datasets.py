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
from cbm_cli.datasets import Dataset, catalogue, check, load, names
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


# Options


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"name": "shifting_bar"}, "did you mean shifting-bar"),
        ({"name": "cifar"}, "there are bars-and-stripes, shifting-bar, mnist"),
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
    head, bars, bar, mnist = (re.split(r"  +", line)[:4] for line in result.stdout.splitlines())
    assert head == ["write in a grid", "rows x width", "ones", "where"]
    assert bars == ["{name: bars-and-stripes, size: 3}", "16 x 9", "50.0%", "generated"]
    assert bar == ["{name: shifting-bar, size: 9, bar: 1}", "9 x 9", "11.1%", "generated"]
    assert mnist == ["mnist", "60,000 + 10,000 x 784", "13.3%", "missing"]
    assert f"no {TRAIN}[.gz]" in result.stderr


def test_data_list_names_the_folder_and_the_size_of_what_is_there(mnist_dir, monkeypatch):
    monkeypatch.setenv("CBM_DATA_DIR", str(mnist_dir))
    result = CliRunner().invoke(data, ["list"])
    row = re.split(r"  +", result.stdout.splitlines()[-1])
    assert row[:4] == ["mnist", "50 + 7 x 6", "?", str(mnist_dir)]
    assert result.stderr == ""


def test_data_list_survives_a_damaged_file(mnist_dir, monkeypatch):
    monkeypatch.setenv("CBM_DATA_DIR", str(mnist_dir))
    (mnist_dir / TEST).write_bytes(b"no images")
    result = CliRunner().invoke(data, ["list"])
    assert result.exit_code == 0
    assert "damaged" in result.stdout.splitlines()[-1]
    assert f"{mnist_dir / TEST} is not an IDX file" in result.stderr


def test_data_list_json_is_json_alone_and_its_examples_load():
    result = CliRunner().invoke(data, ["list", "--json"])
    entries = json.loads(result.stdout)
    assert result.stderr == ""
    assert [entry["name"] for entry in entries] == names()
    assert [entry["present"] for entry in entries] == [True, True, False]
    assert entries[2]["looked_in"]
    for entry in entries[:2]:
        dataset = load(**entry["example"])
        assert entry["rows"] == {"train": len(dataset.train)}
        assert (entry["width"], entry["ones"]) == (dataset.width, dataset.train.mean())
