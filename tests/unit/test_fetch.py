"""Fetching from a local server that serves right, wrong, truncated and slow files."""

import gzip
import hashlib
import http.server
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from cbm_cli.datasets import fetch as fetching
from cbm_cli.datasets.loading import load
from cbm_cli.datasets.published import SOURCES, File
from numpy.testing import assert_array_equal

from tests.builders import cbm, holds, lines, sha256

PARTS = ("train", "valid", "test")
RNG = np.random.default_rng(0)
ROWS = {part: RNG.integers(0, 2, (3000, 40), np.uint8) for part in PARTS}
TEXTS = {part: lines(rows) for part, rows in ROWS.items()}
TEXTS_BY_NAME = {f"toy.{part}.data": text for part, text in TEXTS.items()}
FILE = "toy.train.data"


def git_blob(content):
    return "git:" + hashlib.sha1(b"blob %d\0%b" % (len(content), content)).hexdigest()


URL = f"/binary/toy/{FILE}"


class Server(http.server.ThreadingHTTPServer):
    """Serves ``files``; ``moods`` decide how the next requests of a path are served."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = {f"/binary/toy/{name}": text for name, text in TEXTS_BY_NAME.items()}
        self.moods: dict[str, list[str]] = {}
        self.requests: list[str] = []
        self.address = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def handle_error(self, request, client_address) -> None:
        """Say nothing of connections that tests break off."""


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        content = self.server.files.get(self.path)
        moods = self.server.moods.get(self.path, [])
        mood = moods.pop(0) if moods else "right"
        if content is None or mood == "broken":
            return self.send_error(404 if content is None else 500)
        if mood == "wrong":
            content = bytes(reversed(content))
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        half = 0 if mood == "silent" else len(content) // 2
        self.wfile.write(content[:half])
        self.wfile.flush()
        time.sleep({"slow": 0.4, "stalled": 0.6}.get(mood, 0))  # that is longer than the timeout
        if mood not in ("silent", "truncated", "stalled"):
            self.wfile.write(content[half:])
        self.close_connection = True
        return None

    def log_message(self, *arguments) -> None:
        """Keep quiet."""


def serving():
    with Server() as running:
        yield running
        running.shutdown()


server = pytest.fixture(serving, name="server")
other = pytest.fixture(serving, name="other")  # another mirror, which has all files


@pytest.fixture(autouse=True)
def _away_from_this_machine(monkeypatch, tmp_path):
    monkeypatch.setattr("pooch.core.time", SimpleNamespace(sleep=lambda seconds: None))
    for variable in ("CBM_DATA_DIR", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def toy(monkeypatch, tmp_path, server, other):
    """Make ``dna`` a small data set, published by both servers; it goes to tmp_path."""

    def publish(checksum=sha256, mirrors=(server, other)):
        files = []
        for part in PARTS:
            urls = tuple(f"{mirror.address}/binary/toy/toy.{part}.data" for mirror in mirrors)
            files.append(File(f"toy.{part}.data", part, (checksum(TEXTS[part]),), urls))
        small = {"folder": "binary/toy", "rows": dict.fromkeys(PARTS, 3000), "width": 40}
        small = replace(SOURCES["dna"], forms=(tuple(files),), **small)
        monkeypatch.setitem(SOURCES, "dna", small)

    publish()
    monkeypatch.setenv("CBM_DATA_DIR", str(tmp_path))
    return publish


def fetch(code=0):
    return cbm("data", "fetch", "dna", code=code)


@pytest.fixture
def place(tmp_path):
    """Folder that the files of ``dna`` are fetched into."""
    (folder := tmp_path / "binary" / "toy").mkdir(parents=True)
    return folder


def assert_whole(folder):
    """The files are there, and nothing else is."""
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == TEXTS_BY_NAME


def assert_loaded():
    for part, rows in load("dna").parts.items():
        assert_array_equal(rows, ROWS[part])


@pytest.mark.parametrize("checksum", [sha256, git_blob])
def test_fetched_files_are_loaded_from_where_they_were_put(checksum, toy, place):
    toy(checksum)
    result = fetch()
    assert result.stdout == ""
    assert holds(result.stderr, "|".join((*TEXTS_BY_NAME, str(place))))
    assert_whole(place)
    assert_loaded()


def test_files_go_to_the_cache_or_to_the_folder_of_the_environment(
    toy, tmp_path, monkeypatch, server
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
    assert_whole(tmp_path / "mine/binary/toy")
    (tmp_path / "mine/binary/toy" / FILE).unlink()
    server.requests.clear()
    fetch()  # what is here and right is not asked for again
    assert server.requests == [URL]


def test_a_packed_file_replaces_a_wrong_plain_one_that_would_be_read_first(
    toy, server, place, monkeypatch
):
    toy(mirrors=(server,))
    first, *others = SOURCES["dna"].forms[0]
    form = replace(first, urls=(f"{server.address}{URL}.gz",)), *others
    monkeypatch.setitem(SOURCES, "dna", replace(SOURCES["dna"], forms=(form,)))
    server.files[f"{URL}.gz"] = gzip.compress(server.files.pop(URL), 1)
    (place / FILE).write_bytes(b"0,1\n")
    fetch()
    assert_loaded()
    assert not (place / FILE).exists()


@pytest.mark.parametrize("mood", ["wrong", "broken", "silent"])
def test_the_next_mirror_is_tried_after_one_that_fails(mood, toy, server, other, place):
    server.moods[URL] = [mood] * 9
    fetch()
    assert_whole(place)
    assert other.requests == [URL]


def test_an_address_that_refuses_is_asked_once(toy, server, place):
    toy(mirrors=(server,))
    content = server.files.pop(URL)
    assert holds(fetch(code=2).stderr, f"{server.address}{URL} answers 404. By hand")
    assert server.requests.count(URL) == 1
    server.files[URL] = content
    fetch()
    assert_whole(place)


@pytest.mark.parametrize("mood", ["truncated", "stalled"])
def test_an_interrupted_download_starts_again(mood, toy, server, other, place, monkeypatch):
    monkeypatch.setattr(fetching, "TIMEOUT", 0.3)
    toy(mirrors=(server,))
    server.moods[URL] = [mood] * fetching.TRIES
    refused = fetch(code=2)
    assert str(refused.error).startswith("dna: ")
    assert holds(refused.stderr, f"{server.address}{URL}|{fetching.TRIES}")
    assert FILE not in (path.name.removesuffix(".part") for path in place.iterdir())
    toy()
    server.moods[URL] = [mood] * (fetching.TRIES - 1)
    fetch()
    assert_whole(place)
    assert other.requests == []


def test_two_fetches_at_once_from_a_slow_server_both_succeed(
    toy, server, place, tmp_path, monkeypatch
):
    monkeypatch.setenv("CBM_DATA_DIR", str(tmp_path))
    toy(mirrors=(server,))  # no other one helps out
    server.moods[URL] = ["slow"] * 2
    with ThreadPoolExecutor() as pool:
        both = [pool.submit(fetching.fetch, "dna")]
        while not [*place.glob("*.part")]:
            time.sleep(0.01)
        both.append(pool.submit(fetching.fetch, "dna"))
        assert [one.result()[0] for one in both] == [place, place]
    assert server.requests.count(URL) == 2
    assert_whole(place)


def test_a_wrong_file_is_named_with_both_checksums_and_changes_nothing(toy, server, place):
    toy(mirrors=(server,))
    server.moods[URL] = ["wrong"]
    before = {FILE: b"0,1\n", "toy.valid.data": TEXTS["valid"]}
    for name, content in before.items():
        (place / name).write_bytes(content)
    told = fetch(code=2).stderr
    right, wrong = sha256(TEXTS["train"]), sha256(TEXTS["train"][::-1])
    assert holds(told, f"{server.address}{URL}|{right}|{wrong}")
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before


def test_without_a_network_one_line_shows_what_to_put_where(toy, server, place):
    toy(mirrors=(server,))
    server.shutdown()
    server.server_close()
    refused = fetch(code=2)
    assert str(refused.error).startswith("dna: ")
    addresses = (f"{server.address}/binary/toy/{name}" for name in TEXTS_BY_NAME)
    assert holds(refused.stderr.splitlines()[-1], "|".join((*addresses, str(place))))


def test_a_set_that_fails_does_not_keep_the_others_from_coming(
    toy, server, place, tmp_path, monkeypatch
):
    for name in ("web", "rcv1"):
        (form,) = SOURCES[name].forms
        forms = [tuple(replace(one, urls=(f"{server.address}/{one.stem}",)) for one in form)]
        monkeypatch.setitem(SOURCES, name, replace(SOURCES[name], forms=tuple(forms)))
    monkeypatch.setenv("CBM_DATA_DIR", str(tmp_path))
    refused = cbm("data", "fetch", "web", "dna", "rcv1", code=2)
    assert [line.partition(":")[0] for line in str(refused.error).splitlines()] == ["web", "rcv1"]
    assert holds(refused.stderr, "web.npz|rcv1.train.data|404")
    assert_whole(place)


def test_what_cannot_be_fetched_is_said(toy):
    for name, told in (
        ("dan", "dan|dna"),
        ("shifting-bar", "shifting-bar"),
        ("web-reshuffled", "web.trainvalid.data.gz|web.test.data.gz"),
    ):
        assert holds(cbm("data", "fetch", name, code=2).stderr, told)


def test_a_folder_that_cannot_be_written_is_named(toy, monkeypatch):
    monkeypatch.setenv("CBM_DATA_DIR", __file__)
    assert holds(fetch(code=2).stderr, f"{__file__}/binary/toy|CBM_DATA_DIR")


def test_either_published_order_of_connect4_is_right(tmp_path, monkeypatch):
    file = File("toy.data", "", (git_blob(b"1\n0\n"), sha256(b"0\n1\n")))
    monkeypatch.setitem(SOURCES, "connect4", replace(SOURCES["connect4"], forms=((file,),)))
    monkeypatch.setenv("CBM_DATA_DIR", str(tmp_path))
    for content, state in ((b"0\n1\n", "ok"), (b"1\n0\n", "ok"), (b"1\n1\n", "damaged")):
        (tmp_path / "toy.data").write_bytes(content)
        told = cbm("data", "list", "connect4", code=state != "ok").stdout
        assert re.search(rf"^state +{state}$", told, re.M)
