"""Fetching from a local server that serves right, wrong, and truncated files."""

import gzip
import hashlib
import http.server
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from cbm_cli.datasets.fetch import TRIES
from cbm_cli.datasets.loading import load
from cbm_cli.datasets.published import SOURCES, File
from numpy.testing import assert_array_equal

from tests.builders import cbm, holds, lines, sha256

RNG = np.random.default_rng(0)
ROWS = {part: RNG.integers(0, 2, (3000, 40), np.uint8) for part in ("train", "valid", "test")}
TEXTS = {f"toy.{part}.data": lines(rows) for part, rows in ROWS.items()}
FILE = "toy.train.data"
FIRST, SECOND = f"/one/{FILE}", f"/two/{FILE}"  # where two mirrors have it


def git_blob(content):
    return "git:" + hashlib.sha1(b"blob %d\0%b" % (len(content), content)).hexdigest()


class _Handler(http.server.BaseHTTPRequestHandler):
    """Serves files; the moods of a path decide how its next requests are served."""

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        content, moods = self.server.files.get(self.path), self.server.moods.get(self.path)
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
    files = {f"/{root}/{name}": text for root in ("one", "two") for name, text in TEXTS.items()}
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as running:
        running.files, running.moods, running.requests = files, {}, []
        running.handle_error = lambda *_: None  # of connections that tests break off
        running.address = f"http://127.0.0.1:{running.server_port}"
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture
def publish(monkeypatch, tmp_path, server):
    """Return a function that makes ``dna`` a small data set of mirrors; it goes to tmp_path."""
    monkeypatch.setattr("pooch.core.time", SimpleNamespace(sleep=lambda seconds: None))
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")  # which may be on another disk
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for variable, folder in {"XDG_CACHE_HOME": "cache", "HOME": "home", "CBM_DATA_DIR": ""}.items():
        monkeypatch.setenv(variable, str(tmp_path / folder))

    def make(*mirrors, kinds=(sha256,), ending=""):
        files = []
        for part, (name, text) in zip(ROWS, TEXTS.items(), strict=True):
            urls = tuple(f"{server.address}/{mirror}/{name}{ending}" for mirror in mirrors)
            files.append(File(name, part, tuple(kind(text) for kind in kinds), urls))
        small = {"folder": "toy", "rows": dict.fromkeys(ROWS, 3000), "width": 40}
        small = replace(SOURCES["dna"], forms=(tuple(files),), **small)
        monkeypatch.setitem(SOURCES, "dna", small)

    make("one", "two")
    return make


@pytest.fixture
def place(tmp_path, publish):
    """Folder that the files of ``dna`` are fetched into."""
    (folder := tmp_path / "toy").mkdir()
    return folder


def fetch(code=0):
    return cbm("data", "fetch", "dna", code=code)


def assert_whole(folder):
    """The files are there, and nothing else is."""
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == TEXTS


def assert_loaded():
    for part, rows in load("dna").parts.items():
        assert_array_equal(rows, ROWS[part])


@pytest.mark.parametrize(
    "kinds", [(sha256,), (git_blob,), (lambda text: sha256(text[::-1]), git_blob)]
)
def test_fetched_files_with_one_of_their_checksums_are_loaded_from_where_they_were_put(
    kinds, publish, place
):
    publish("one", kinds=kinds)
    result = fetch()
    assert result.stdout == ""
    assert holds(result.stderr, "|".join((*TEXTS, str(place))))
    assert_whole(place)
    assert_loaded()


def test_files_go_to_the_cache_or_to_the_folder_of_the_environment(
    publish, tmp_path, monkeypatch, server
):
    monkeypatch.delenv("CBM_DATA_DIR")
    fetch()
    assert_loaded()
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


def test_a_packed_file_replaces_a_wrong_plain_one_that_would_be_read_first(publish, server, place):
    publish("one", ending=".gz")
    server.files |= {f"/one/{name}.gz": gzip.compress(text, 1) for name, text in TEXTS.items()}
    (place / FILE).write_bytes(b"0,1\n")
    fetch()
    assert_loaded()
    assert not (place / FILE).exists()


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
        ("missing", 1, "answers 404. By hand"),
        ("broken", TRIES, f"answers 500, {TRIES} times"),
        ("truncated", TRIES, f"{TRIES} times"),
    ],
)
def test_a_file_that_does_not_come_is_named_changes_nothing_and_may_come_later(
    mood, tries, told, publish, server, place
):
    publish("one")
    server.moods[FIRST] = [mood] * (2 * tries - 1)  # what breaks off is asked for again
    before = {FILE: b"0,1\n", "toy.valid.data": TEXTS["toy.valid.data"]}
    for name, content in before.items():
        (place / name).write_bytes(content)
    assert holds(fetch(code=2).stderr, f"dna: {server.address}{FIRST}|{told}")
    assert server.requests == [FIRST] * tries
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before
    fetch()
    assert_whole(place)


def test_without_a_network_one_line_shows_what_to_put_where(publish, server, place):
    publish("one")
    server.shutdown()
    server.server_close()
    told = fetch(code=2).stderr.splitlines()[-1]
    assert holds(told, "|".join((*(f"{server.address}/one/{name}" for name in TEXTS), str(place))))


def test_a_set_that_fails_does_not_keep_the_others_from_coming(server, place, monkeypatch):
    (form,) = SOURCES["web"].forms
    form = tuple(replace(one, urls=(f"{server.address}/{one.stem}",)) for one in form)
    monkeypatch.setitem(SOURCES, "web", replace(SOURCES["web"], forms=(form,)))
    told = cbm("data", "fetch", "web", "dna", "web-reshuffled", code=2).error
    assert [line.partition(":")[0] for line in str(told).splitlines()] == ["web", "web-reshuffled"]
    assert holds(told, "web.npz|404|web.trainvalid.data.gz|web.test.data.gz")
    assert_whole(place)


def test_what_cannot_be_fetched_is_said(publish):
    for name, told in (("dan", "dan|dna"), ("shifting-bar", "shifting-bar")):
        assert holds(cbm("data", "fetch", name, code=2).stderr, told)


def test_a_folder_that_cannot_be_written_is_named(publish, monkeypatch):
    monkeypatch.setenv("CBM_DATA_DIR", __file__)
    assert holds(fetch(code=2).stderr, f"{__file__}/toy|CBM_DATA_DIR")
