"""Data sets by name: the generated ones against enumeration, the published ones against files made here."""

import gzip
import hashlib
import itertools
import json
import math
import pickle
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from cbm_cli.datasets.catalogue import catalogue, describe, load
from cbm_cli.datasets.dataset import DataError, Dataset, Image
from cbm_cli.datasets.sources import SOURCES
from cbm_cli.datasets.spec import available
from cbm_cli.grid.parts import Data
from tests.builders import cbm, holds, idx, problems_of, refusal

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
    contents = {TRAIN: idx(GREY), TEST: idx(GREY[:7])}
    form = tuple(
        replace(file, checksums=(sha256(contents[file.stem]),)) for file in SOURCES["mnist"].forms[0]
    )
    small = {"rows": {"train": 50, "test": 7}, "width": 6, "image": Image(2, 3), "forms": (form,)}
    monkeypatch.setitem(SOURCES, "mnist", replace(SOURCES["mnist"], **small))
    (folder / f"{TRAIN}.gz").write_bytes(gzip.compress(contents[TRAIN], mtime=0))
    (folder / TEST).write_bytes(contents[TEST])


def sha256(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def as_strings(rows: np.ndarray) -> list[str]:
    return ["".join(map(str, row)) for row in rows.tolist()]


# Generated data


@pytest.mark.parametrize("size", [1, 3])
def test_bars_and_stripes_are_all_squares_of_equal_rows_or_of_equal_columns(size):
    expected = Counter()
    for line in itertools.product("01", repeat=size):
        expected["".join(pixel * size for pixel in line)] += 1
        expected["".join(line) * size] += 1
    data = load("bars-and-stripes", size=size)
    assert (data.train.shape, data.image) == ((2 ** (size + 1), size**2), Image(size, size))
    assert Counter(as_strings(data.train)) == expected
    n = len(data.train)
    own = sum(math.log(expected[row] / n) for row in as_strings(data.train)) / n
    assert data.upper_bound == pytest.approx(own, rel=1e-12)


@pytest.mark.parametrize(("size", "bar"), [(9, 4), (2, 1)])
def test_shifting_bar_is_a_line_with_every_rotation_of_one_bar_once(size, bar):
    line = "1" * bar + "0" * (size - bar)
    data = load("shifting-bar", size=size, bar=bar)
    assert sorted(as_strings(data.train)) == sorted(line[-p:] + line[:-p] for p in range(size))
    assert (data.upper_bound, data.image) == (pytest.approx(math.log(1 / size)), Image(1, size))


FLIPS = [
    {"name": "shifting-bar", "size": 9, "bar": 2},
    {"name": "mnist"},
    {"name": "mnist", "binarise": "none"},
]


@pytest.mark.parametrize("options", FLIPS, ids=str)
def test_a_flip_exchanges_on_and_off_row_by_row_in_every_part(options, mnist):
    plain, flip = load(Data(**options)), load(Data(**options, flip=True))
    assert flip.parts.keys() == plain.parts.keys()
    for part, rows in plain.parts.items():
        np.testing.assert_array_equal(flip.parts[part].astype(int), plain.levels - rows.astype(int))
    assert (flip.levels, flip.upper_bound) == (plain.levels, plain.upper_bound)
    assert flip.name == f"flipped-{plain.name}" == Data(**options, flip=True).title


# Published data


@pytest.mark.parametrize("threshold", [0.0, 0.5, 127 / 255, 0.999])
def test_mnist_is_read_packed_or_plain_and_a_pixel_is_on_above_the_threshold(threshold, mnist):
    grey, data = load("mnist", binarise="none"), load("mnist", threshold=threshold)
    np.testing.assert_array_equal(grey.train, GREY.reshape(50, 6))
    np.testing.assert_array_equal(grey.test, GREY[:7].reshape(7, 6))
    assert (grey.levels, grey.valid, data.levels, data.image) == (255, None, 1, Image(2, 3))
    expected = [[int(v / 255 > threshold) for v in row] for row in GREY.reshape(50, 6).tolist()]
    assert data.train.tolist() == expected


def test_missing_files_name_every_folder_and_what_to_put_there(folder, mnist):
    assert available(Data(name="mnist")) == ""
    (folder / TEST).unlink()  # part of the files is as good as none
    for found, others in ((f"{folder}", [TEST]), ("", [TRAIN, TEST])):
        error = refusal(load, "mnist")
        assert available(Data(name="mnist")) == str(error)
        assert (error.field, error.kinds) == ("name", ("missing",))
        assert holds(error, "|".join([found or "CBM_DATA_DIR", *others, "cbm data fetch mnist"]))
        assert (TRAIN in str(error)) == (found == "")
        (folder / f"{TRAIN}.gz").unlink(missing_ok=True)
    for place in (folder, folder / "mnist", folder / "cache/cbm/data"):
        assert f"  {place}\n" in str(error)


@pytest.mark.parametrize(
    ("content", "kind", "told"),
    [
        (idx(GREY)[:-1], "unreadable", "299|300"),
        (idx(GREY[:, :1]), "changed", "50|3|6|list mnist --check"),
        (gzip.compress(idx(GREY), mtime=0)[:-20], "unreadable", "fetch mnist"),
    ],
    ids=range(3),
)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_bad_files_are_named_with_what_is_wrong(ending, content, kind, told, folder, mnist):
    (folder / f"{TRAIN}.gz").unlink()
    (folder / f"{TRAIN}{ending}").write_bytes(content)
    error = refusal(load, "mnist")
    assert (error.field, error.kinds) == ("name", (kind,))
    assert holds(error, told)
    assert problems_of(error)[0][0] == ("mnist" if kind == "changed" else str(folder / f"{TRAIN}{ending}"))


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


SIZES = {  # rows and columns of the publications, as the benchmark's table has them
    "mnist": (60000, 10000, 784), "caltech101-silhouettes": (4100, 2264, 2307, 784),
    "adult": (5000, 1414, 26147, 123), "connect4": (16000, 4000, 47557, 126), "dna": (1400, 600, 1186, 180),
    "mushrooms": (2000, 500, 5624, 112), "nips": (400, 100, 1240, 500),
    "ocr-letters": (32152, 10000, 10000, 128), "rcv1": (40000, 10000, 150000, 150),
    "web": (14000, 3188, 32561, 300), "rcv1-valid": (8000, 1000, 1000, 150),
    "web-reshuffled": (14000, 3188, 32561, 300),
}  # fmt: skip


def test_every_published_set_is_listed_with_its_sizes_and_pictures_in_the_published_order():
    found = {name: SOURCES[name] for name in PUBLISHED}
    assert {name: (*one.rows.values(), one.width) for name, one in found.items()} == SIZES
    assert {name: source.image for name, source in found.items() if source.image} == {
        "mnist": Image(28, 28),
        "caltech101-silhouettes": Image(28, 28, "F"),  # down the columns
        "ocr-letters": Image(16, 8),
    }


def write_text(folder, name, part, rows):
    """Write rows as zeros and ones separated by commas, packed."""
    folder.mkdir(parents=True, exist_ok=True)
    text = np.full((len(rows), 2 * rows.shape[1]), ord(","), np.uint8)
    text[:, ::2], text[:, -1] = rows + ord("0"), ord("\n")
    (folder / f"{name}.{part}.data.gz").write_bytes(gzip.compress(text.tobytes(), compresslevel=1, mtime=0))


def random_rows(seed, *shape):
    return np.random.Generator(np.random.Philox(seed)).integers(0, 2, shape, np.uint8)


@pytest.fixture
def shrunk(monkeypatch):
    """Make a published set one of 7, 4 and 5 rows of 6 units, and return rows of these parts."""

    def shrink(name):
        counts = {"train": 7, "valid": 4, "test": 5}
        rows = {part: random_rows(n, n, 6) for part, n in counts.items()}
        monkeypatch.setitem(SOURCES, name, replace(SOURCES[name], rows=counts, width=6))
        return rows

    return shrink


@pytest.mark.parametrize("root", ["root", "cache/cbm/data"])
@pytest.mark.parametrize("inside", ["dna", "binary/dna", ""])
def test_text_files_are_read_from_every_folder_they_may_be_in(root, inside, folder, monkeypatch, shrunk):
    """The folder of the environment comes before the cache."""
    rows = shrunk("dna")
    monkeypatch.setenv("CBM_DATA_DIR", str(folder / "root"))
    for part, values in rows.items():
        write_text(folder / "cache/cbm/data", "dna", part, 1 - values)
        write_text(folder / root / inside, "dna", part, values)
    for part, values in load("dna").parts.items():
        np.testing.assert_array_equal(values, rows[part])


@pytest.mark.parametrize("name", ["web", "dna"])
def test_all_parts_are_read_from_one_npz(name, folder, shrunk):
    rows = shrunk(name)
    arrays = {f"{part}_data": values.astype(np.float32) for part, values in rows.items()}
    np.savez(folder / f"{name}.npz", inputsize=np.array(7), **arrays)
    for part, values in load(name).parts.items():
        np.testing.assert_array_equal(values, rows[part])
    few = {"train_data": rows["train"]}
    for changed, kind in ((arrays | {"test_data": rows["test"] * 2}, "value"), (few, "missing")):
        np.savez(folder / f"{name}.npz", **changed)
        error = refusal(load, name)
        assert problems_of(error) == [(str(folder / f"{name}.npz"), "", kind)]


@pytest.mark.parametrize(("name", "substitute"), [("rcv1", "rcv1-valid"), ("web", "web-reshuffled")])
def test_what_is_not_here_names_its_substitute(name, substitute):
    assert holds(refusal(load, name), substitute)


def test_rcv1_valid_is_the_published_part_split_by_position(folder, shrunk):
    parts = shrunk("rcv1-valid")
    rows = np.concatenate([*parts.values()])
    write_text(folder, "rcv1", "valid", rows)
    data = load("rcv1-valid")
    assert [(part, len(its)) for part, its in data.parts.items()] == [("train", 7), ("valid", 4), ("test", 5)]
    np.testing.assert_array_equal(np.concatenate([*data.parts.values()]), rows)


def test_web_reshuffled_divides_the_rows_by_the_documented_shuffle(folder, shrunk):
    test = shrunk("web-reshuffled")["test"]
    rows = random_rows(6, 11, 6)
    write_text(folder, "web", "trainvalid", rows)
    write_text(folder, "web", "test", test)
    data = load("web-reshuffled")
    order = np.random.Generator(np.random.Philox(key=1)).permutation(11)
    assert list(data.parts) == ["train", "valid", "test"]
    for found, expected in [(data.train, rows[order[:7]]), (data.valid, rows[order[7:]]), (data.test, test)]:
        np.testing.assert_array_equal(found, expected)


# Options


@pytest.mark.parametrize(
    ("options", "field", "kind", "told"),
    [
        ({"name": "shifting_bar"}, "name", "unknown", "shifting_bar|shifting-bar"),
        ({"name": "my.csv"}, "name", "unknown", "path: my.csv"),
        ({}, None, "missing", "path: rows.csv"),
        ({"name": "mnist", "test": "t.csv"}, "test", "unsuited", "mnist|path"),
        ({"path": "a/mnist.csv.gz"}, "name", "conflict", "mnist|name: my-data"),
        ({"path": "a.csv", "name": "dna"}, "name", "conflict", "dna"),
        ({"path": "a.csv", "size": 3}, "size", "unsuited", "a|valid|test|scale|flip"),
        ({"name": "bars-and-stripes"}, "size", "missing", "size: 3|bars-and-stripes:size=3"),
        ({"name": "mnist", "binarise": "none", "threshold": 0.3}, "threshold", "unsuited", "none"),
        ({"name": "mnist", "threshold": 1}, "threshold", "value", "mnist|1"),
        ({"name": "mnist", "binarise": "refuse"}, "binarise", "unsuited", "threshold|sample|none"),
        ({"name": "bars-and-stripes", "size": 11}, "size", "value", "11|1|10"),
        ({"name": "shifting-bar", "size": 4097, "bar": 1}, "size", "value", "2|4096"),
        ({"name": "shifting-bar", "size": 9, "bar": 9}, "bar", "conflict", "9"),
        ({"name": "mnist", "threshold": -0.1}, "threshold", "value", "-0.1|0"),
        ({"name": "mnist", "binarise": "otsu"}, "binarise", "value", "otsu|threshold|sample|none"),
        ({"name": "mnist", "treshold": 0.1}, "treshold", "unknown", "treshold|threshold"),
        ({"name": "mnist", "rows": "last"}, "rows", "unsuited", "hold_out: 0.2"),
        ({"name": "mnist", "hold_out": 5, "rows": "last", "seed": 1}, "seed", "unsuited", "rows: last"),
    ],
    ids=str,
)
def test_options_that_do_not_fit_are_refused_with_their_field_before_any_file_is_read(
    options, field, kind, told
):
    error = refusal(load, **options)
    assert (error.field, error.kinds) == (field or "", (kind,))
    assert holds(error, told)


def test_rows_may_be_held_out_for_validation(mnist):
    data, whole = load("mnist", hold_out=20, rows="last"), load("mnist")
    np.testing.assert_array_equal(np.concatenate([data.train, data.valid]), whole.train)
    assert len(data.valid) == 20
    assert len(load("mnist", hold_out=49, binarise="none").train) == 1
    error = refusal(load, "mnist", hold_out=50)
    assert (error.field, error.kinds) == ("hold_out", ("value",))


# Arrays and digests


def test_rows_are_read_only_bytes_and_stay_so_when_sent_to_another_process(mnist):
    data = load("mnist")
    for copy in (data, pickle.loads(pickle.dumps(data, protocol=5))):
        for rows in copy.parts.values():
            assert (rows.dtype, rows.flags.c_contiguous, rows.flags.writeable) == (np.uint8, True, False)
        assert copy.digest == data.digest
        assert (copy.name, copy.levels, copy.upper_bound, copy.image) == ("mnist", 1, None, Image(2, 3))
    error = pickle.loads(pickle.dumps(DataError("words", "path", "limit")))
    assert (str(error), error.field, error.kinds) == ("words", "path", ("limit",))


def test_a_digest_is_of_all_the_content_and_of_nothing_else():
    rows, other = np.eye(4, dtype=np.uint8), 1 - np.eye(4, dtype=np.uint8)
    content = b"levels 255\ntrain (4, 4)\n%b\ntest (4, 4)\n%b" % (rows.tobytes(), other.tobytes())
    found = Dataset("a", rows, test=other, levels=255, upper_bound=-1.0, image=Image(2, 2))
    assert found.digest == hashlib.sha256(content).hexdigest()
    others = [
        Dataset("a", rows, valid=other, levels=255),
        Dataset("a", rows, test=other),
        Dataset("a", other, test=rows, levels=255),
        Dataset("a", rows.reshape(2, 8), test=other, levels=255),
        Dataset("a", np.concatenate([rows, other]), levels=255),
    ]
    assert len({data.digest for data in [found, *others]}) == 6


@pytest.mark.parametrize("rows", [np.zeros((2, 3)), np.zeros(3, np.uint8), np.zeros((3, 2), np.uint8).T])
def test_arrays_of_another_form_are_refused(rows):
    with pytest.raises(ValueError, match=r"^a: "):
        Dataset("a", rows)


# What is said of data


def test_a_line_describes_what_was_loaded(mnist):
    bars = {"name": "bars-and-stripes", "size": 3}
    assert holds(describe(Data(**bars), load(**bars)), "bars-and-stripes|16|9|50.0%")
    grey = load("mnist", binarise="none", flip=True)
    mean = f"{grey.train.mean() / 255:.3f}"
    line = describe(Data(name="mnist", binarise="none", flip=True, hold_out=0.2), grey)
    assert holds(line, f"flipped-mnist|50|6|{mean}|test 7")


def columns(line):
    return re.split(r"  +", line)[:4]


def test_data_list_prints_one_line_per_data_set_and_what_is_missing():
    result = cbm("data", "list")
    _, *rows = map(columns, result.stdout.splitlines())
    assert rows[:3] == [
        ["{name: bars-and-stripes, size: 3}", "16 x 9", "50.0%", "generated"],
        ["{name: shifting-bar, size: 9, bar: 1}", "9 x 9", "11.1%", "generated"],
        ["mnist", "60,000 + 10,000 x 784", "13.3%", "missing"],
    ]
    assert ["dna", "1,400 + 600 + 1,186 x 180", "25.3%", "missing"] in rows
    assert [name for name, *_ in rows[2:]] == PUBLISHED
    assert holds(result.stderr, f"{' '.join(PUBLISHED)}|cbm data fetch NAME")


def states_of(name):
    """What the commands say of a set, and what `cbm data list` and `cbm data list --check` say beside it."""
    listed, verified = cbm("data", "list"), cbm("data", "list", name, "--check", code=1).stdout
    (line,) = (line for line in listed.stdout.splitlines() if line.startswith(f"{name} "))
    info = json.loads(cbm("data", "list", name, "--json").stdout)[0]["state"]
    return (
        {columns(line)[3], info, verified.partition("\n")[0].removeprefix(f"{name}: ")},
        listed.stderr,
        verified,
    )


def test_a_set_with_a_wrong_file_is_damaged_everywhere(folder, mnist):
    assert cbm("data", "list", "mnist", "--check").stdout.startswith("mnist: ok\n")
    (folder / TEST).write_bytes(b"not images")
    states, listed, _ = states_of("mnist")
    assert states == {"damaged"}
    assert holds(listed, f"{folder / TEST}|{sha256(b'not images')}")
    assert TRAIN not in listed


def test_a_set_of_which_a_part_is_here_is_missing_everywhere(folder):
    write_text(folder, "rcv1", "valid", random_rows(5, 10, 150))
    states, _, verified = states_of("rcv1")
    assert states == {"missing"}
    assert "  rcv1.train.data: missing\n" in verified


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


def test_data_info_has_sizes_whom_to_cite_and_where_the_files_belong(folder):
    shown = cbm("data", "list", "dna").stdout
    lines = [columns(line) for line in shown.splitlines()]
    for line in ("train", "1,400 rows of 180"), ("ones", "25.27%"), ("in a grid", "data: dna"):
        assert [*line] in lines
    assert holds(shown, f"Larochelle|{folder / 'dna'}")
    assert ["file", "dna.test.data: missing"] in lines
    (record,) = json.loads(cbm("data", "list", "dna", "--json").stdout)
    assert record["rows"] == {"train": 1400, "valid": 600, "test": 1186}
    assert "CC BY 4.0" in record["licence"]
    assert "data: {name: shifting-bar, size: 9, bar: 1}" in cbm("data", "list", "shifting-bar").stdout
    refused = cbm("data", "list", "mushroom", code=2)
    assert refused.error.kinds == ("unknown",)
    assert holds(refused.stderr, "mushrooms")
