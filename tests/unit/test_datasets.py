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


def random_rows(seed, *shape):
    return np.random.default_rng(seed).integers(0, 2, shape, np.uint8)


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
    contents = {TRAIN: idx(GREY), TEST: idx(GREY[:7])}
    files = SOURCES["mnist"].forms[0]
    form = tuple(replace(it, checksums=(sha256(contents[it.stem]),)) for it in files)
    small = {"rows": {"train": 50, "test": 7}, "width": 6, "image": Image(2, 3), "forms": (form,)}
    monkeypatch.setitem(SOURCES, "mnist", replace(SOURCES["mnist"], **small))
    (folder / f"{TRAIN}.gz").write_bytes(gzip.compress(contents[TRAIN], mtime=0))
    (folder / TEST).write_bytes(contents[TEST])


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


@pytest.mark.parametrize("binarise", ["threshold", "none"])
def test_a_flip_exchanges_on_and_off_row_by_row_in_every_part(binarise, mnist):
    options = {"name": "mnist", "binarise": binarise}
    plain, flip = load(Data(**options)), load(Data(**options, flip=True))
    assert flip.parts.keys() == plain.parts.keys()
    for part, rows in plain.parts.items():
        assert_array_equal(flip.parts[part].astype(int), plain.levels - rows.astype(int))
    assert (flip.levels, flip.upper_bound) == (plain.levels, plain.upper_bound)
    assert flip.name == f"flipped-{plain.name}" == Data(**options, flip=True).title


@pytest.mark.parametrize("threshold", [0.0, 127 / 255])
def test_mnist_is_read_packed_or_plain_and_a_pixel_is_on_above_the_threshold(threshold, mnist):
    grey, data = load("mnist", binarise="none"), load("mnist", threshold=threshold)
    assert_array_equal(grey.train, GREY.reshape(50, 6))
    assert_array_equal(grey.test, GREY[:7].reshape(7, 6))
    assert (grey.levels, grey.valid, data.levels, data.image) == (255, None, 1, Image(2, 3))
    expected = [[int(v / 255 > threshold) for v in row] for row in GREY.reshape(50, 6).tolist()]
    assert data.train.tolist() == expected


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


def test_a_changed_file_of_a_named_set_is_never_trained_on(folder, mnist):
    changed = GREY.copy()
    changed[3, 1, 2] ^= 1
    for content, told in (
        (idx(changed), sha256(idx(GREY))),
        (idx(GREY)[:-1], sha256(idx(GREY)[:-1])),
        (gzip.compress(idx(GREY), mtime=0)[:-20], "gzip"),
    ):
        (folder / f"{TRAIN}.gz").unlink(missing_ok=True)
        (folder / TRAIN).write_bytes(content)
        for how in ({}, {"binarise": "none"}):
            error = refusal(load, "mnist", **how)
            assert (error.field, str(error).partition(":")[0]) == ("name", str(folder / TRAIN))
            assert holds(error, f"{told}|cbm data fetch mnist")


@pytest.mark.parametrize("name", PUBLISHED)
def test_real_files_have_the_sizes_and_the_ones_that_are_listed(name, real_data_dir, monkeypatch):
    monkeypatch.setenv("CBM_DATA_DIR", str(real_data_dir))
    if available(Data(name=name)):
        pytest.skip(f"{name} is not here")
    data, (entry,) = load(name), catalogue(name)
    assert entry.state == "ok"
    assert {part: len(rows) for part, rows in data.parts.items()} == entry.source.rows
    assert all(rows.max() == 1 for rows in data.parts.values())
    mean = np.concatenate([*data.parts.values()]).mean()
    assert mean == pytest.approx(entry.source.ones, abs=5e-6)


SIZES = {  # rows and columns of the publications, as the benchmark's table has them
    "mnist": (60000, 10000, 784),
    "caltech101-silhouettes": (4100, 2264, 2307, 784),
    "adult": (5000, 1414, 26147, 123),
    "connect4": (16000, 4000, 47557, 126),
    "dna": (1400, 600, 1186, 180),
    "mushrooms": (2000, 500, 5624, 112),
    "nips": (400, 100, 1240, 500),
    "ocr-letters": (32152, 10000, 10000, 128),
    "rcv1": (40000, 10000, 150000, 150),
    "web": (14000, 3188, 32561, 300),
    "rcv1-valid": (8000, 1000, 1000, 150),
    "web-reshuffled": (14000, 3188, 32561, 300),
}


def test_published_sets_have_the_published_sizes_and_pictures():
    found = {name: SOURCES[name] for name in PUBLISHED}
    assert {name: (*one.rows.values(), one.width) for name, one in found.items()} == SIZES
    images = {name: source.image for name, source in found.items() if source.image}
    images_of = {"mnist": Image(28, 28), "ocr-letters": Image(16, 8)}
    assert images == images_of | {"caltech101-silhouettes": Image(28, 28, "F")}  # down the columns


def write_text(folder, name, part, rows):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.{part}.data.gz").write_bytes(gzip.compress(lines(rows)))


@pytest.fixture
def shrunk(monkeypatch):
    """Make a published set one of 7, 4 and 5 rows of 6 units, and return rows of these parts.

    ``others`` are contents of its files, by their part; default: each part as text.
    """

    def shrink(name, others=lambda rows: {part: lines(values) for part, values in rows.items()}):
        counts = {"train": 7, "valid": 4, "test": 5}
        rows = {part: random_rows(n, n, 6) for part, n in counts.items()}
        contents = others(rows)
        sums = {part: (sha256(content),) for part, content in contents.items()}
        forms = tuple(
            tuple(replace(file, checksums=sums.get(file.part, ("",))) for file in form)
            for form in SOURCES[name].forms
        )
        small = replace(SOURCES[name], rows=counts, width=6, forms=forms)
        monkeypatch.setitem(SOURCES, name, small)
        return rows

    return shrink


@pytest.mark.parametrize(
    "place", ["root/dna", "root/binary/dna", "root", "cache/cbm/data/binary/dna"]
)
def test_text_files_are_read_from_every_folder_they_may_be_in(place, folder, monkeypatch, shrunk):
    """The folder of the environment comes before the cache."""
    rows = shrunk("dna")
    monkeypatch.setenv("CBM_DATA_DIR", str(folder / "root"))
    for part, values in rows.items():
        write_text(folder / "cache/cbm/data", "dna", part, 1 - values)
        write_text(folder / place, "dna", part, values)
    for part, values in load("dna").parts.items():
        assert_array_equal(values, rows[part])


def test_all_parts_are_read_from_one_npz(folder, shrunk):
    def content(rows):
        parts = {f"{part}_data": values.astype(np.float32) for part, values in rows.items()}
        return arrays(inputsize=np.array(7), **parts)

    rows = shrunk("web", lambda rows: {"": content(rows)})
    (folder / "web.npz").write_bytes(content(rows))
    for part, values in load("web").parts.items():
        assert_array_equal(values, rows[part])


def test_rcv1_valid_is_the_published_part_split_by_position(folder, shrunk):
    joined = lambda rows: np.concatenate([*rows.values()])  # noqa: E731
    rows = joined(shrunk("rcv1-valid", lambda rows: {"valid": lines(joined(rows))}))
    write_text(folder, "rcv1", "valid", rows)
    parts = load("rcv1-valid").parts
    assert {part: len(its) for part, its in parts.items()} == {"train": 7, "valid": 4, "test": 5}
    assert_array_equal(np.concatenate([*parts.values()]), rows)


def test_web_reshuffled_divides_the_rows_by_the_documented_shuffle(folder, shrunk):
    rows = random_rows(6, 11, 6)
    joined = {"trainvalid": lines(rows)}
    test = shrunk("web-reshuffled", lambda its: joined | {"test": lines(its["test"])})["test"]
    write_text(folder, "web", "trainvalid", rows)
    write_text(folder, "web", "test", test)
    parts = load("web-reshuffled").parts
    order = np.random.Generator(np.random.Philox(key=1)).permutation(11)
    assert [*parts] == ["train", "valid", "test"]
    assert_array_equal(np.concatenate([*parts.values()]), [*rows[order], *test])
    assert len(parts["train"]) == 7


@pytest.mark.parametrize(
    ("options", "field", "told"),
    [
        ({"name": "shifting_bar"}, "name", "shifting_bar|shifting-bar"),
        ({"name": "my.csv"}, "name", "path: my.csv"),
        ({}, None, "path: rows.csv"),
        ({"path": "a/mnist.csv.gz"}, "name", "mnist|name: my-data"),
        ({"path": "a.csv", "size": 3}, "size", "a|valid|test|scale|flip|hold_out"),
        ({"name": "bars-and-stripes"}, "size", "size: 3|bars-and-stripes:size=3"),
        ({"name": "mnist", "binarise": "none", "threshold": 0.3}, "threshold", "binarise"),
        ({"name": "bars-and-stripes", "size": 11}, "size", "11|1|10"),
        ({"name": "mnist", "binarise": "otsu"}, "binarise", "otsu|threshold|sample|none"),
        ({"name": "mnist", "treshold": 0.1}, "treshold", "treshold|threshold"),
    ],
    ids=str,
)
def test_options_that_do_not_fit_are_refused_before_any_file_is_read(options, field, told):
    error = refusal(load, **options)
    assert error.field == (field or "")
    assert holds(error, told)


def test_rows_are_read_only_bytes_and_stay_so_when_sent_to_another_process(mnist):
    data = load("mnist", hold_out=20, rows="last")
    for copy in (data, pickle.loads(pickle.dumps(data, protocol=5))):
        for rows in copy.parts.values():
            assert rows.dtype == np.uint8
            assert rows.flags.c_contiguous > rows.flags.writeable
        assert copy.digest == data.digest
        assert (copy.name, copy.levels, copy.upper_bound) == ("mnist", 1, None)
        assert copy.image == Image(2, 3)
    assert refusal(load, "mnist", hold_out=50).field == "hold_out"
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


def test_a_line_describes_what_was_loaded(mnist):
    grey = load("mnist", binarise="none", flip=True)
    mean = f"{grey.train.mean() / 255:.3f}"
    line = describe(Data(name="mnist", binarise="none", flip=True, hold_out=0.2), grey)
    assert holds(line, f"flipped-mnist|50|6|{mean}|test 7")


def test_a_set_with_a_wrong_file_is_damaged_and_one_of_which_only_a_part_is_here_missing(
    folder, mnist
):
    assert re.search(r"^state +ok$", cbm("data", "list", "mnist").stdout, re.M)
    (folder / TEST).write_bytes(b"not images")
    write_text(folder, "rcv1", "valid", random_rows(5, 10, 150))
    listed = cbm("data", "list", code=1)  # since one is damaged
    alone = {name: cbm("data", "list", name, code=name == "mnist") for name in ("mnist", "rcv1")}
    for name, state in (("mnist", "damaged"), ("rcv1", "missing")):
        assert re.search(rf"^{name}  .*?[%?]  +{state}", listed.stdout, re.M)
        assert re.search(rf"^state +{state}$", alone[name].stdout, re.M)
    told = listed.stderr + alone["mnist"].stdout
    assert holds(told, f"{folder / TEST}|{sha256(b'not images')}|{sha256(idx(GREY[:7]))}")
    assert "rcv1.train.data: missing\n" in alone["rcv1"].stdout


def test_data_are_listed_with_sizes_state_whom_to_cite_and_where_the_files_belong(folder):
    listed = cbm("data", "list")
    _, *rows = (re.split(r"  +", line)[:4] for line in listed.stdout.splitlines())
    assert rows[0] == ["{name: bars-and-stripes, size: 3}", "16 x 9", "50.0%", "generated"]
    assert rows[2] == ["mnist", "60,000 + 10,000 x 784", "13.3%", "missing"]
    assert [name for name, *_ in rows[2:]] == PUBLISHED
    assert holds(listed.stderr, f"{' '.join(PUBLISHED)}|cbm data fetch NAME")
    for entry in [*catalogue()][:2]:
        data = load(**entry.source.example)
        assert (entry.source.rows, entry.source.width) == ({"train": len(data.train)}, data.width)
        assert entry.source.ones == pytest.approx(data.train.mean(), abs=5e-6)
    shown = cbm("data", "list", "dna").stdout
    assert holds(shown, f"data: dna|600 rows of 180|25.27%|Larochelle|CC BY 4.0|{folder / 'dna'}")
    assert "dna.test.data: missing\n" in shown
    bar = cbm("data", "list", "shifting-bar").stdout
    assert "data: {name: shifting-bar, size: 9, bar: 1}" in bar
    assert holds(cbm("data", "list", "mushroom", code=2).stderr, "mushrooms")
