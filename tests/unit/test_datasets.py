"""Data sets by name: generated ones against enumeration, published ones against files made here."""

import gzip
import hashlib
import itertools
import math
import pickle
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from cbm_cli.datasets.dataset import Dataset, Image
from cbm_cli.datasets.fetch import catalogue
from cbm_cli.datasets.loading import describe, load
from cbm_cli.datasets.published import SOURCES
from cbm_cli.datasets.spec import available
from cbm_cli.errors import FieldError
from cbm_cli.grid.settings import Data
from numpy.testing import assert_array_equal

from tests.builders import arrays, cbm, holds, idx, lines, refusal, sha256

TRAIN, TEST = "train-images-idx3-ubyte", "t10k-images-idx3-ubyte"
PUBLISHED = [name for name, source in SOURCES.items() if source.forms]
GREY = (np.arange(300) % 256).astype(np.uint8).reshape(50, 2, 3)  # all grey values
WHOLE = np.random.default_rng(6).integers(0, 2, (16, 6), np.uint8)
PARTS = {"train": WHOLE[:7], "valid": WHOLE[7:11], "test": WHOLE[11:]}


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """Folder of data in a world without any other data."""
    monkeypatch.setenv("CBM_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def publish(folder, monkeypatch):
    """Return a function that gives a published set other files, and writes them, packed."""

    def make(name, contents, place=folder, **changes):
        forms = tuple(
            tuple(replace(it, checksums=(sha256(contents.get(it.stem, b"")),)) for it in form)
            for form in SOURCES[name].forms
        )
        monkeypatch.setitem(SOURCES, name, replace(SOURCES[name], forms=forms, **changes))
        place.mkdir(parents=True, exist_ok=True)
        for stem, content in contents.items():
            (place / f"{stem}.gz").write_bytes(gzip.compress(content, mtime=0))

    return make


@pytest.fixture
def mnist(folder, publish):
    """Make MNIST 50 training images (packed) and 7 test images (plain) of 2 x 3 pixels."""
    publish("mnist", {TRAIN: idx(GREY), TEST: idx(GREY[:7])}, image=Image(2, 3))
    (folder / f"{TEST}.gz").unlink()
    (folder / TEST).write_bytes(idx(GREY[:7]))


@pytest.mark.parametrize("size", [1, 3])
def test_bars_and_stripes_are_all_squares_of_equal_rows_or_of_equal_columns(size):
    expected = Counter()
    for line in itertools.product((0, 1), repeat=size):
        expected[tuple(np.repeat(line, size))] += 1
        expected[line * size] += 1
    data = load("bars-and-stripes", size=size)
    assert (data.train.shape, data.image) == ((2 ** (size + 1), size**2), Image(size, size))
    assert Counter(map(tuple, data.train.tolist())) == expected
    log_p = [math.log(expected[tuple(row)] / len(data.train)) for row in data.train.tolist()]
    assert data.upper_bound == pytest.approx(np.mean(log_p), rel=1e-12)


@pytest.mark.parametrize(("size", "bar"), [(9, 4), (2, 1)])
def test_shifting_bar_is_a_line_with_every_rotation_of_one_bar_once(size, bar):
    line = [1] * bar + [0] * (size - bar)
    data = load("shifting-bar", size=size, bar=bar)
    assert sorted(data.train.tolist()) == sorted(line[-p:] + line[:-p] for p in range(size))
    assert (data.upper_bound, data.image) == (pytest.approx(math.log(1 / size)), Image(1, size))


@pytest.mark.parametrize("threshold", [0.0, 127 / 255])
def test_mnist_is_read_packed_or_plain_and_a_pixel_is_on_above_the_threshold(threshold, mnist):
    data = load("mnist", threshold=threshold)
    assert (data.levels, data.valid, data.image) == (1, None, Image(2, 3))
    expected = [[int(v / 255 > threshold) for v in row] for row in GREY.reshape(50, 6).tolist()]
    assert data.train.tolist() == expected
    assert_array_equal(data.test, expected[:7])


def test_a_flip_exchanges_on_and_off_in_every_part_of_grey_values(mnist):
    spec = Data(name="mnist", binarise="none", flip=True)
    data = load(spec)
    assert (data.levels, data.upper_bound) == (255, None)
    assert_array_equal(data.train, 255 - GREY.reshape(50, 6))
    assert_array_equal(data.test, 255 - GREY[:7].reshape(7, 6))
    assert data.name == spec.title == "flipped-mnist"
    mean = f"{data.train.mean() / 255:.3f}"
    assert holds(describe(spec, data), f"flipped-mnist|50|6|{mean}|test 7")


def test_missing_files_name_every_folder_and_what_to_put_there(folder, mnist):
    assert available(Data(name="mnist")) == ""
    (folder / TEST).unlink()  # part of the files is as good as none
    for found, missing in ((folder, [TEST]), ("CBM_DATA_DIR", [TRAIN, TEST])):
        error = refusal(load, "mnist")
        assert available(Data(name="mnist")) == str(error)
        assert error.field == "name"
        assert holds(error, "|".join([str(found), *missing, "cbm data fetch mnist"]))
        (folder / f"{TRAIN}.gz").unlink(missing_ok=True)
    assert all(f"{folder}{place}" in str(error) for place in ("", "/mnist", "/cache/cbm/data"))


def test_a_changed_file_of_a_named_set_is_listed_and_never_trained_on(folder, mnist):
    assert re.search(r"^state +ok$", cbm("data", "list", "mnist").stdout, re.M)
    changed = GREY.copy()
    changed[3, 1, 2] ^= 1
    for content, told in (
        (idx(changed), f"{sha256(idx(GREY))}|{sha256(idx(changed))}"),
        (idx(GREY)[:-1], sha256(idx(GREY)[:-1])),
        (gzip.compress(idx(GREY), mtime=0)[:-20], "gzip"),
    ):
        (folder / f"{TRAIN}.gz").unlink(missing_ok=True)
        (folder / TRAIN).write_bytes(content)
        error = refusal(load, "mnist")
        assert (error.field, str(error).partition(":")[0]) == ("name", str(folder / TRAIN))
        assert holds(error, f"{told}|cbm data fetch mnist")
    assert re.search(r"^mnist  .*?%  +damaged", cbm("data", "list", code=1).stdout, re.M)
    shown = cbm("data", "list", "mnist", code=1).stdout
    assert re.search(r"^state +damaged$", shown, re.M)
    assert holds(shown, f"{folder / TRAIN}|gzip")


@pytest.mark.parametrize("name", PUBLISHED)
def test_real_files_have_the_sizes_and_the_ones_that_are_listed(name, real_data_dir, monkeypatch):
    monkeypatch.setenv("CBM_DATA_DIR", str(real_data_dir))
    if available(Data(name=name)):
        pytest.skip(f"{name} is not here")
    data, (entry,) = load(name), catalogue(name)
    assert entry.state == "ok"
    assert {part: len(rows) for part, rows in data.parts.items()} == entry.source.rows
    assert data.width == entry.source.width
    assert all(rows.max() == 1 for rows in data.parts.values())
    mean = np.concatenate([*data.parts.values()]).mean()
    assert mean == pytest.approx(entry.source.ones, abs=5e-6)


def test_published_sets_have_their_pictures():
    images = {name: SOURCES[name].image for name in PUBLISHED if SOURCES[name].image}
    images_of = {"mnist": Image(28, 28), "ocr-letters": Image(16, 8)}
    assert images == images_of | {"caltech101-silhouettes": Image(28, 28, "F")}  # down the columns


@pytest.mark.parametrize(
    "place", ["root/dna", "root/binary/dna", "root", "cache/cbm/data/binary/dna"]
)
def test_text_files_are_read_from_every_folder_they_may_be_in(place, folder, monkeypatch, publish):
    """The folder of the environment comes before the cache."""
    monkeypatch.setenv("CBM_DATA_DIR", str(folder / "root"))
    contents = {f"dna.{part}.data": lines(rows) for part, rows in PARTS.items()}
    publish("dna", dict.fromkeys(contents, b"others"), folder / "cache/cbm/data")
    publish("dna", contents, folder / place)
    for part, rows in load("dna").parts.items():
        assert_array_equal(rows, PARTS[part])


def test_all_parts_are_read_from_one_npz(publish):
    parts = {f"{part}_data": rows.astype(np.float32) for part, rows in PARTS.items()}
    publish("web", {"web.npz": arrays(inputsize=np.array(7), **parts)})
    for part, rows in load("web").parts.items():
        assert_array_equal(rows, PARTS[part])


def test_rcv1_valid_is_a_part_split_by_position_and_web_reshuffled_two_by_a_shuffle(publish):
    sizes = {part: len(rows) for part, rows in PARTS.items()}
    publish("rcv1-valid", {"rcv1.valid.data": lines(WHOLE)}, rows=sizes)
    both = {"web.trainvalid.data": lines(WHOLE[:11]), "web.test.data": lines(WHOLE[11:])}
    publish("web-reshuffled", both, rows=sizes)
    order = np.random.Generator(np.random.Philox(key=1)).permutation(11)  # as documented
    for name, rows in ("rcv1-valid", WHOLE), ("web-reshuffled", [*WHOLE[order], *WHOLE[11:]]):
        parts = load(name).parts
        assert {part: len(its) for part, its in parts.items()} == sizes
        assert_array_equal(np.concatenate([*parts.values()]), rows)


def test_rows_are_read_only_bytes_and_stay_so_when_sent_to_another_process(mnist):
    data = load("mnist", hold_out=20, rows="last")
    for copy in (data, pickle.loads(pickle.dumps(data, protocol=5))):
        for rows in copy.parts.values():
            assert rows.dtype == np.uint8
            assert rows.flags.c_contiguous > rows.flags.writeable
        assert copy.digest == data.digest
        assert (copy.name, copy.levels, copy.upper_bound) == ("mnist", 1, None)
        assert copy.image == Image(2, 3)
    error = pickle.loads(pickle.dumps(FieldError("words", "path")))
    assert (str(error), error.field) == ("words", "path")


def test_a_data_set_is_written_with_the_fields_that_it_uses():
    named, grey = ["name", "size", "bar", "flip"], ["binarise", "threshold"]
    assert [*Data(name="mnist").model_dump()] == [*named, *grey]
    found = Data(path="rows.csv", scale=16, hold_out=2).model_dump()
    of_file = ["path", "valid", "test", "scale", "hold_out", "rows", "seed"]
    assert [*found] == [*named, *of_file]


def test_a_digest_is_of_all_the_content_and_of_nothing_else():
    rows, other = np.eye(4, dtype=np.uint8), 1 - np.eye(4, dtype=np.uint8)
    content = b"levels 255\ntrain (4, 4)\n%b\ntest (4, 4)\n%b" % (rows.tobytes(), other.tobytes())
    found = Dataset("a", rows, test=other, levels=255, upper_bound=-1.0, image=Image(2, 2))
    assert found.digest == hashlib.sha256(content).hexdigest()


def test_data_are_listed_with_sizes_state_whom_to_cite_and_where_the_files_belong(folder, publish):
    publish("dna", {"dna.valid.data": b"0\n"})
    listed = cbm("data", "list")
    _, *rows = (re.split(r"  +", line)[:4] for line in listed.stdout.splitlines())
    assert rows[0] == ["{name: bars-and-stripes, size: 3}", "16 x 9", "50.0%", "generated"]
    assert rows[1] == ["{name: shifting-bar, size: 9, bar: 1}", "9 x 9", "11.1%", "generated"]
    assert rows[2] == ["mnist", "60,000 + 10,000 x 784", "13.3%", "missing"]
    assert holds(listed.stderr, f"{' '.join(PUBLISHED)}|cbm data fetch NAME")
    shown = cbm("data", "list", "dna").stdout
    assert re.search(r"^state +missing$", shown, re.M)
    assert holds(shown, f"data: dna|600 rows of 180|25.27%|Larochelle|CC BY 4.0|{folder / 'dna'}")
    assert re.search(r"dna.valid.data.*: ok\n(.*\n)*.*dna.test.data: missing\n", shown)
    assert holds(cbm("data", "list", "mushroom", code=2).stderr, "mushrooms")
