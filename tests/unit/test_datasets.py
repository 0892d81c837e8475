"""Data sets by name: generated ones against enumeration, published ones against files
made here.

A local server serves them right, wrong and truncated.
"""

import gzip
import hashlib
import http.server
import itertools
import math
import pickle
import re
import threading
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from cbm_cli.datasets.dataset import Dataset, Image
from cbm_cli.datasets.fetch import TRIES, catalogue
from cbm_cli.datasets.loading import describe, load
from cbm_cli.datasets.published import SOURCES, File
from cbm_cli.datasets.spec import lack_of
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
    """Return a function that gives a published set other files, and writes them,
    packed.
    """

    def make(name, contents, place=folder, **changes):
        forms = tuple(
            tuple(
                replace(it, checksums=(sha256(contents.get(it.stem, b"")),))
                for it in form
            )
            for form in SOURCES[name].forms
        )
        monkeypatch.setitem(
            SOURCES, name, replace(SOURCES[name], forms=forms, **changes)
        )
        place.mkdir(parents=True, exist_ok=True)
        for stem, content in contents.items():
            (place / f"{stem}.gz").write_bytes(gzip.compress(content, mtime=0))

    return make


@pytest.fixture
def mnist(folder, publish):
    """Make MNIST 50 training images (packed) and 7 test images (plain) of 2 x 3
    pixels.
    """
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
    assert (data.train.shape, data.image) == (
        (2 ** (size + 1), size**2),
        Image(size, size),
    )
    assert Counter(map(tuple, data.train.tolist())) == expected
    log_p = [
        math.log(expected[tuple(row)] / len(data.train)) for row in data.train.tolist()
    ]
    assert data.upper_bound == pytest.approx(np.mean(log_p), rel=1e-12)


@pytest.mark.parametrize(("size", "bar"), [(9, 4), (2, 1)])
def test_shifting_bar_is_a_line_with_every_rotation_of_one_bar_once(size, bar):
    line = [1] * bar + [0] * (size - bar)
    data = load("shifting-bar", size=size, bar=bar)
    assert sorted(data.train.tolist()) == sorted(
        line[-p:] + line[:-p] for p in range(size)
    )
    assert (data.upper_bound, data.image) == (
        pytest.approx(math.log(1 / size)),
        Image(1, size),
    )


@pytest.mark.parametrize("threshold", [0.0, 127 / 255])
def test_mnist_is_read_packed_or_plain_and_a_pixel_is_on_above_the_threshold(
    threshold, mnist
):
    data = load("mnist", threshold=threshold)
    assert (data.levels, data.valid, data.image) == (1, None, Image(2, 3))
    expected = [
        [int(v / 255 > threshold) for v in row] for row in GREY.reshape(50, 6).tolist()
    ]
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
    assert lack_of(Data(name="mnist")) == ""
    (folder / TEST).unlink()  # part of the files is as good as none
    error = refusal(load, "mnist")
    assert error.field == "name"
    places = "|".join(f"{folder}{place}" for place in ("", "/mnist", "/cache/cbm/data"))
    assert holds(error, f"{places}|CBM_DATA_DIR|{TEST}|cbm data fetch mnist")
    assert lack_of(Data(name="mnist")) == str(error)


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
        assert (error.field, str(error).partition(":")[0]) == (
            "name",
            str(folder / TRAIN),
        )
        assert holds(error, f"{told}|cbm data fetch mnist")
    assert re.search(
        r"^mnist  .*?%  +damaged", cbm("data", "list", code=1).stdout, re.M
    )
    shown = cbm("data", "list", "mnist", code=1).stdout
    assert re.search(r"^state +damaged$", shown, re.M)
    assert holds(shown, f"{folder / TRAIN}|gzip")


@pytest.mark.parametrize("name", PUBLISHED)
def test_real_files_have_the_sizes_and_the_ones_that_are_listed(
    name, real_data_dir, monkeypatch
):
    monkeypatch.setenv("CBM_DATA_DIR", str(real_data_dir))
    if lack_of(Data(name=name)):
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
    assert images == images_of | {
        "caltech101-silhouettes": Image(28, 28, "F")
    }  # down the columns


@pytest.mark.parametrize(
    "place", ["root/dna", "root/binary/dna", "root", "cache/cbm/data/binary/dna"]
)
def test_text_files_are_read_from_every_folder_they_may_be_in(
    place, folder, monkeypatch, publish
):
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


def test_rcv1_valid_is_a_part_split_by_position_and_web_reshuffled_two_by_a_shuffle(
    publish,
):
    sizes = {part: len(rows) for part, rows in PARTS.items()}
    publish("rcv1-valid", {"rcv1.valid.data": lines(WHOLE)}, rows=sizes)
    both = {
        "web.trainvalid.data": lines(WHOLE[:11]),
        "web.test.data": lines(WHOLE[11:]),
    }
    publish("web-reshuffled", both, rows=sizes)
    order = np.random.Generator(np.random.Philox(key=1)).permutation(
        11
    )  # as documented
    for name, rows in (
        ("rcv1-valid", WHOLE),
        ("web-reshuffled", [*WHOLE[order], *WHOLE[11:]]),
    ):
        parts = load(name).parts
        assert {part: len(its) for part, its in parts.items()} == sizes
        assert_array_equal(np.concatenate([*parts.values()]), rows)


@pytest.mark.parametrize("part", ["path", "valid", "test"])
def test_a_file_of_any_part_that_is_not_there_is_named(folder, part):
    np.save(folder / "rows.npy", WHOLE)
    there = dict.fromkeys(("path", "valid", "test"), "rows.npy")
    assert lack_of(Data(**there), folder) == ""
    assert holds(lack_of(Data(**there | {part: "gone.npy"}), folder), "gone.npy")


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
    content = b"levels 255\ntrain (4, 4)\n%b\ntest (4, 4)\n%b" % (
        rows.tobytes(),
        other.tobytes(),
    )
    found = Dataset(
        "a", rows, test=other, levels=255, upper_bound=-1.0, image=Image(2, 2)
    )
    assert found.digest == hashlib.sha256(content).hexdigest()


def test_data_are_listed_with_sizes_state_whom_to_cite_and_where_the_files_belong(
    folder, publish
):
    publish("dna", {"dna.valid.data": b"0\n"})
    listed = cbm("data", "list")
    _, *rows = (re.split(r"  +", line)[:4] for line in listed.stdout.splitlines())
    assert rows[0] == [
        "{name: bars-and-stripes, size: 3}",
        "16 x 9",
        "50.0%",
        "generated",
    ]
    assert rows[1] == [
        "{name: shifting-bar, size: 9, bar: 1}",
        "9 x 9",
        "11.1%",
        "generated",
    ]
    assert rows[2] == ["mnist", "60,000 + 10,000 x 784", "13.3%", "missing"]
    assert holds(listed.stderr, f"{' '.join(PUBLISHED)}|cbm data fetch NAME")
    shown = cbm("data", "list", "dna").stdout
    assert re.search(r"^state +missing$", shown, re.M)
    assert holds(
        shown, f"data: dna|600 rows of 180|25.27%|Larochelle|CC BY 4.0|{folder / 'dna'}"
    )
    assert re.search(r"dna.valid.data.*: ok\n(.*\n)*.*dna.test.data: missing\n", shown)
    assert holds(cbm("data", "list", "mushroom", code=2).stderr, "mushrooms")


# Fetching

TEXTS = {f"toy.{part}.data": lines(rows) for part, rows in PARTS.items()}
FILE = "toy.train.data"
FIRST, SECOND = f"/one/{FILE}", f"/two/{FILE}"  # where two mirrors have it


def git_blob(content):
    return "git:" + hashlib.sha1(b"blob %d\0%b" % (len(content), content)).hexdigest()


class _Handler(http.server.BaseHTTPRequestHandler):
    """Serves files; the moods of a path decide how its next requests are served."""

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        content, moods = (
            self.server.files.get(self.path),
            self.server.moods.get(self.path),
        )
        mood = "missing" if content is None else moods.pop(0) if moods else "right"
        if mood in ("missing", "broken"):
            self.send_error(404 if mood == "missing" else 500)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        content = content[::-1] if mood == "wrong" else content
        self.wfile.write(content[: -9 if mood == "truncated" else None])

    def log_message(self, *arguments) -> None:
        """Keep quiet."""


@pytest.fixture
def server():
    """Two mirrors; the requests that they got."""
    files = {
        f"/{root}/{name}": text
        for root in ("one", "two")
        for name, text in TEXTS.items()
    }
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as running:
        running.files, running.moods, running.requests = files, {}, []
        running.handle_error = lambda *_: None  # of connections that tests break off
        running.address = f"http://127.0.0.1:{running.server_port}"
        threading.Thread(
            target=running.serve_forever, args=(0.01,), daemon=True
        ).start()
        yield running
        running.shutdown()


@pytest.fixture
def serve(monkeypatch, tmp_path, server):
    """Return a function that makes ``dna`` a small data set of mirrors; it goes to
    tmp_path.
    """
    monkeypatch.setattr("pooch.core.time", SimpleNamespace(sleep=lambda seconds: None))
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")  # which may be on another disk
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    def make(*mirrors, kinds=(sha256,), ending=""):
        files = []
        for part, (name, text) in zip(PARTS, TEXTS.items(), strict=True):
            urls = tuple(
                f"{server.address}/{mirror}/{name}{ending}" for mirror in mirrors
            )
            files.append(File(name, part, tuple(kind(text) for kind in kinds), urls))
        small = replace(SOURCES["dna"], forms=(tuple(files),), folder="toy")
        monkeypatch.setitem(SOURCES, "dna", small)

    make("one", "two")
    return make


@pytest.fixture
def place(tmp_path, serve):
    """Folder that the files of ``dna`` are fetched into."""
    (folder := tmp_path / "toy").mkdir()
    return folder


def fetch(code=0):
    return cbm("data", "fetch", "dna", code=code)


def assert_whole(folder):
    """The files are there, and nothing else is."""
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == TEXTS


@pytest.mark.parametrize(
    "kinds", [(sha256,), (git_blob,), (lambda text: sha256(text[::-1]), git_blob)]
)
def test_fetched_files_with_one_of_their_checksums_are_loaded_from_where_they_were_put(
    kinds, serve, place
):
    serve("one", kinds=kinds)
    result = fetch()
    assert result.stdout == ""
    assert holds(result.stderr, "|".join((*TEXTS, str(place))))
    assert_whole(place)


def test_files_go_to_the_cache_or_to_the_folder_of_the_environment(
    serve, tmp_path, monkeypatch, server
):
    monkeypatch.delenv("CBM_DATA_DIR")
    fetch()
    for part, rows in load("dna").parts.items():
        assert_array_equal(rows, PARTS[part])
    (cached,) = tmp_path.rglob(FILE)
    monkeypatch.setenv("CBM_DATA_DIR", str(tmp_path / "mine"))
    server.requests.clear()
    assert str(cached.parent) in fetch().stderr  # the cache is looked in, too
    assert server.requests == []
    cached.unlink()
    assert str(tmp_path / "mine") in fetch().stderr
    assert_whole(tmp_path / "mine/toy")
    (tmp_path / "mine/toy" / FILE).unlink()
    server.requests.clear()
    fetch()  # what is here and right is not asked for again
    assert server.requests == [FIRST]


def test_a_packed_file_replaces_a_wrong_plain_one_that_would_be_read_first(
    serve, server, place
):
    serve("one", ending=".gz")
    server.files |= {
        f"/one/{name}.gz": gzip.compress(text, 1) for name, text in TEXTS.items()
    }
    (place / FILE).write_bytes(b"0,1\n")
    fetch()
    assert [*place.glob(f"{FILE}*")] == [place / f"{FILE}.gz"]
    assert_array_equal(load("dna").train, PARTS["train"])


@pytest.mark.parametrize("mood", ["wrong", "broken"])
def test_the_next_mirror_is_tried_after_one_that_fails(mood, server, place):
    server.moods[FIRST] = [mood] * 9
    fetch()
    assert_whole(place)
    assert server.requests.count(SECOND) == 1


BOTH = f"{sha256(TEXTS[FILE])}|{sha256(TEXTS[FILE][::-1])}"


@pytest.mark.parametrize(
    ("mood", "tries", "told"),
    [
        ("wrong", 1, BOTH),
        ("missing", 1, "answers 404"),
        ("broken", TRIES, f"answers 500, {TRIES} times"),
        ("truncated", TRIES, f"{TRIES} times"),
    ],
)
def test_a_file_that_does_not_come_is_named_changes_nothing_and_may_come_later(
    mood, tries, told, serve, server, place
):
    serve("one")
    server.moods[FIRST] = [mood] * (2 * tries - 1)  # what breaks off is asked for again
    before = {FILE: b"0,1\n", "toy.valid.data": TEXTS["toy.valid.data"]}
    for name, content in before.items():
        (place / name).write_bytes(content)
    url = f"{server.address}{FIRST}"
    assert holds(fetch(code=2).stderr, f"dna: {url}|{told}|By hand: get {url}|{place}")
    assert server.requests == [FIRST] * tries
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before
    fetch()
    assert_whole(place)


def test_a_set_that_fails_does_not_keep_the_others_from_coming(
    server, place, monkeypatch
):
    (form,) = SOURCES["web"].forms
    form = tuple(replace(one, urls=(f"{server.address}/{one.stem}",)) for one in form)
    monkeypatch.setitem(SOURCES, "web", replace(SOURCES["web"], forms=(form,)))
    told = cbm("data", "fetch", "web", "dna", "web-reshuffled", code=2).error
    assert [line.partition(":")[0] for line in str(told).splitlines()] == [
        "web",
        "web-reshuffled",
    ]
    assert holds(told, "web.npz|404|web.trainvalid.data.gz|web.test.data.gz")
    assert_whole(place)


def test_what_cannot_be_fetched_or_written_is_named(serve, monkeypatch):
    for name, told in (("dan", "dan|dna"), ("shifting-bar", "shifting-bar")):
        assert holds(cbm("data", "fetch", name, code=2).stderr, told)
    monkeypatch.setenv("CBM_DATA_DIR", __file__)
    assert holds(fetch(code=2).stderr, f"{__file__}/toy|CBM_DATA_DIR")
