"""Fetching against a local server that serves right, wrong, truncated and slow files, and parts of them."""

import gzip
import hashlib
import http.server
import re
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from cbm_cli.cli import main
from cbm_cli.datasets import fetching, load
from cbm_cli.datasets.sources import PUBLISHED, File, Published

PARTS = ("train", "valid", "test")
ROWS = {
    part: np.random.Generator(np.random.Philox(key=seed)).integers(0, 2, (3000, 40), np.uint8)
    for seed, part in enumerate(PARTS)
}
TEXTS = {
    part: "".join(",".join(map(str, row)) + "\n" for row in rows.tolist()).encode()
    for part, rows in ROWS.items()
}
FILE = "toy.train.data"
URL = f"/binary/toy/{FILE}"


def git_blob(content: bytes) -> str:
    return "git:" + hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


def sha256(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves ``files``; ``moods`` say how a path is served, once for each request, then as it should be."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.moods: dict[str, list[str]] = {}
        self.ranges = True
        self.requests: list[tuple[str, str | None]] = []  # path, Range
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address) -> None:
        """Say nothing of connections that tests break off."""


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.requests.append((self.path, asked))
        content = self.server.files.get(self.path)
        if content is None:
            return self.send_error(404)
        moods = self.server.moods.get(self.path, [])
        mood = moods.pop(0) if moods else "right"
        if mood == "broken":
            return self.send_error(500)
        if mood == "wrong":
            content = bytes(reversed(content))
        begin = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked and self.server.ranges else None
        if begin is not None and begin >= len(content):
            return self.send_error(416)
        self.send_response(200 if begin is None else 206)
        content = content[begin or 0 :]
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self._send(content, mood)
        return None

    def _send(self, content: bytes, mood: str) -> None:
        half = len(content) // 2
        if mood == "silent":
            half = 0
        if mood not in ("truncated", "silent", "stalled"):
            self.wfile.write(content)
            return
        self.wfile.write(content[:half])
        self.wfile.flush()
        if mood == "stalled":
            time.sleep(1.5)  # longer than the timeout of these tests
        self.close_connection = True

    def log_message(self, *arguments) -> None:
        """Keep quiet."""


@pytest.fixture
def server():
    with Server() as running:
        running.files |= {f"/binary/toy/toy.{part}.data": text for part, text in TEXTS.items()}
        yield running
        running.shutdown()


@pytest.fixture
def other():
    """Another mirror, which has all files."""
    with Server() as running:
        running.files |= {f"/binary/toy/toy.{part}.data": text for part, text in TEXTS.items()}
        yield running
        running.shutdown()


@pytest.fixture(autouse=True)
def _away_from_this_machine(monkeypatch, tmp_path):
    for variable in ("CBM_DATA_DIR", fetching.MIRROR, "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(fetching, "TIMEOUT", 0.5)


@pytest.fixture
def toy(monkeypatch, server, other):
    """Make ``dna`` a small data set, published by both servers, the first one first."""

    def publish(checksum=sha256, mirrors=(server, other)) -> Published:
        form = {
            part: File(
                f"toy.{part}.data",
                (checksum(text),),
                tuple(f"{mirror.address}/binary/toy/toy.{part}.data" for mirror in mirrors),
            )
            for part, text in TEXTS.items()
        }
        shapes = {part: rows.shape for part, rows in ROWS.items()}
        published = replace(PUBLISHED["dna"], folder="binary/toy", forms=(form,), shapes=shapes)
        monkeypatch.setitem(PUBLISHED, "dna", published)
        return published

    publish()
    return publish


def cbm(*arguments: str):
    return CliRunner().invoke(main, ["data", *arguments])


def ranges(server: Server, path: str = URL) -> list[str | None]:
    return [asked for asked_path, asked in server.requests if asked_path == path]


def assert_whole(folder: Path) -> None:
    """The files are there, and nothing else is."""
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        f"toy.{part}.data": text for part, text in TEXTS.items()
    }


# What arrives


@pytest.mark.parametrize("checksum", [sha256, git_blob])
def test_fetched_files_are_loaded_from_where_they_were_put(checksum, toy, tmp_path):
    toy(checksum)
    result = cbm("fetch", "dna", "--to", str(tmp_path / "here"))
    assert result.exit_code == 0, result.output
    assert_whole(tmp_path / "here" / "binary" / "toy")
    assert f"CBM_DATA_DIR={tmp_path / 'here'}" in result.stderr
    dataset = load("dna", data_dir=tmp_path / "here")
    for part, rows in ROWS.items():
        np.testing.assert_array_equal(dataset.parts[part], rows)


def test_files_go_to_the_cache_or_to_the_folder_of_the_environment(toy, tmp_path, monkeypatch):
    assert cbm("fetch", "dna").exit_code == 0
    assert len(load("dna").train) == 3000
    cached = list(tmp_path.rglob("toy.train.data"))
    monkeypatch.setenv("CBM_DATA_DIR", str(tmp_path / "mine"))
    assert "is here already" in cbm("fetch", "dna").stderr  # in the cache, which is looked in too
    cached[0].unlink()
    assert "fetched into" in cbm("fetch", "dna").stderr
    assert_whole(tmp_path / "mine" / "binary" / "toy")


def test_what_is_here_and_right_is_not_asked_for_again(toy, server, tmp_path):
    cbm("fetch", "dna", "--to", str(tmp_path))
    (tmp_path / "binary/toy/toy.valid.data").unlink()
    server.requests.clear()
    assert cbm("fetch", "dna", "--to", str(tmp_path)).exit_code == 0
    assert server.requests == [("/binary/toy/toy.valid.data", None)]


def test_a_mirror_of_ones_own_replaces_the_published_addresses(toy, server, other, tmp_path, monkeypatch):
    for part, text in TEXTS.items():
        del server.files[f"/binary/toy/toy.{part}.data"]
        server.files[f"/own/binary/toy/toy.{part}.data.gz"] = gzip.compress(text)
    monkeypatch.setenv(fetching.MIRROR, f"{server.address}/own/")
    assert cbm("fetch", "dna", "--to", str(tmp_path)).exit_code == 0
    np.testing.assert_array_equal(load("dna", data_dir=tmp_path).test, ROWS["test"])
    assert other.requests == []
    assert cbm("fetch", "web-reshuffled", "--to", str(tmp_path)).exit_code == 2  # asked for there, too
    assert "/own/binary/web/web.trainvalid.data.gz answers 404" in cbm("fetch", "web-reshuffled").stderr


def test_a_mirror_may_serve_plain_files_too(toy, server, tmp_path, monkeypatch):
    monkeypatch.setenv(fetching.MIRROR, server.address)
    assert cbm("fetch", "dna", "--to", str(tmp_path)).exit_code == 0
    assert_whole(tmp_path / "binary" / "toy")
    assert ranges(server, f"{URL}.gz") == [None]


# What goes wrong


@pytest.mark.parametrize("mood", ["wrong", "broken", "silent"])
def test_the_next_mirror_is_tried_after_one_that_fails(mood, toy, server, other, tmp_path):
    server.moods[URL] = [mood] * 9
    assert cbm("fetch", "dna", "--to", str(tmp_path)).exit_code == 0
    assert_whole(tmp_path / "binary" / "toy")
    assert len(ranges(other)) == 1


@pytest.mark.parametrize("mood", ["truncated", "stalled"])
def test_a_file_that_breaks_off_goes_on_where_it_ended(mood, toy, server, other, tmp_path):
    server.moods[URL] = [mood, mood]
    assert cbm("fetch", "dna", "--to", str(tmp_path)).exit_code == 0
    assert_whole(tmp_path / "binary" / "toy")
    first, *others = ranges(server)
    begun = [int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) for asked in others]
    size = len(TEXTS["train"])
    assert first is None
    assert 0.4 * size < begun[0] <= size / 2 < begun[1] <= 3 / 4 * size  # all but the last, unfinished block
    assert other.requests == []


def test_a_file_that_breaks_off_starts_anew_where_the_server_knows_no_ranges(toy, server, tmp_path):
    server.ranges = False
    server.moods[URL] = ["truncated"]
    assert cbm("fetch", "dna", "--to", str(tmp_path)).exit_code == 0
    assert_whole(tmp_path / "binary" / "toy")


def test_the_next_call_goes_on_where_the_last_one_ended(toy, server, tmp_path):
    toy(mirrors=(server,))
    server.moods[URL] = ["truncated", "broken"]
    assert cbm("fetch", "dna", "--to", str(tmp_path)).exit_code == 2
    assert not (tmp_path / "binary/toy" / FILE).exists()
    server.requests.clear()
    assert cbm("fetch", "dna", "--to", str(tmp_path)).exit_code == 0
    (asked,) = ranges(server)
    assert asked != "bytes=0-"
    assert asked.startswith("bytes=")
    assert_whole(tmp_path / "binary" / "toy")


def test_what_goes_on_with_something_else_starts_anew(toy, server, tmp_path):
    folder = tmp_path / "binary" / "toy"
    folder.mkdir(parents=True)
    for begun in (b"something else", TEXTS["train"] + b"and more"):
        (folder / f".{FILE}.part").write_bytes(begun)
        assert cbm("fetch", "dna", "--to", str(tmp_path)).exit_code == 0
        assert_whole(folder)
        (folder / FILE).unlink()


def test_a_wrong_file_is_named_with_both_checksums_and_leaves_no_trace(toy, server, tmp_path):
    toy(mirrors=(server,))
    server.moods[URL] = ["wrong"]
    result = cbm("fetch", "dna", "--to", str(tmp_path))
    assert result.exit_code == 2
    expected, found = sha256(TEXTS["train"]), sha256(TEXTS["train"][::-1])
    told = f"{URL} has the wrong checksum: expected {expected}, found {found}"
    assert told in result.stderr
    assert [path.name for path in (tmp_path / "binary/toy").iterdir()] == []


def test_what_was_there_before_stays_until_better_has_come(toy, server, tmp_path):
    toy(mirrors=(server,))
    folder = tmp_path / "binary" / "toy"
    folder.mkdir(parents=True)
    (folder / FILE).write_bytes(b"0,1\n")
    (folder / "toy.valid.data").write_bytes(TEXTS["valid"])
    server.moods[URL] = ["wrong"]
    assert cbm("fetch", "dna", "--to", str(tmp_path)).exit_code == 2
    assert (folder / FILE).read_bytes() == b"0,1\n"
    assert (folder / "toy.valid.data").read_bytes() == TEXTS["valid"]
    assert cbm("fetch", "dna", "--to", str(tmp_path)).exit_code == 0
    assert_whole(folder)


def test_a_wrong_file_packed_otherwise_does_not_hide_the_right_one(toy, server, tmp_path, monkeypatch):
    folder = tmp_path / "binary" / "toy"
    folder.mkdir(parents=True)
    (folder / FILE).write_bytes(b"0,1\n")
    for part, text in TEXTS.items():
        server.files[f"/binary/toy/toy.{part}.data.gz"] = gzip.compress(text)
    monkeypatch.setenv(fetching.MIRROR, server.address)
    assert cbm("fetch", "dna", "--to", str(tmp_path)).exit_code == 0
    assert len(load("dna", data_dir=tmp_path).train) == 3000


def test_without_a_network_one_line_says_what_to_put_where(toy, server, other, tmp_path):
    for one in (server, other):
        one.shutdown()
        one.server_close()
    result = cbm("fetch", "dna", "--to", str(tmp_path))
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "cannot be reached" in line
    for part in PARTS:
        assert f"{server.address}/binary/toy/toy.{part}.data" in line
    assert line.endswith(f"put into {tmp_path / 'binary' / 'toy'}")


def test_a_set_that_fails_does_not_keep_the_others_from_coming(toy, server, tmp_path, monkeypatch):
    monkeypatch.setattr("cbm_cli.datasets.fetching.PUBLISHED", {n: PUBLISHED[n] for n in ("web", "dna")})
    monkeypatch.setenv(fetching.MIRROR, server.address)
    result = cbm("fetch", "all", "--to", str(tmp_path))
    assert result.exit_code == 2
    assert "web.npz answers 404" in result.stderr
    assert_whole(tmp_path / "binary" / "toy")


def test_a_folder_that_cannot_be_written_is_named(toy, tmp_path):
    (tmp_path / "file").write_text("")
    result = cbm("fetch", "dna", "--to", str(tmp_path / "file"))
    assert result.exit_code == 2
    assert f"{tmp_path / 'file' / 'binary' / 'toy'}: cannot write" in result.stderr


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("dan", "did you mean dna?"),
        ("shifting-bar", "shifting-bar is generated; it has no files"),
        ("web-reshuffled", "has no published address; put web.trainvalid.data.gz and web.test.data.gz into"),
    ],
)
def test_what_cannot_be_fetched_is_told(name, told):
    result = cbm("fetch", name)
    assert result.exit_code == 2
    assert told in result.stderr


def test_all_is_everything_that_has_an_address():
    assert fetching.fetchable() == [name for name in PUBLISHED if name != "web-reshuffled"]


def test_addresses_and_checksums_are_well_formed():
    for published in PUBLISHED.values():
        for file in published.files:
            assert all(re.fullmatch("sha256:[0-9a-f]{64}|git:[0-9a-f]{40}", one) for one in file.checksums)
            assert all(re.match("https?://", url) for url in file.urls)
            assert all(url.rpartition("/")[2].removesuffix(".gz") == file.stem for url in file.urls)


# Progress


def test_progress_is_told_in_bytes(toy, tmp_path):
    told = []

    class Bar:
        total = 0

        def __init__(self, name: str) -> None:
            self.name = name
            self.done = 0

        def update(self, size: int) -> None:
            self.done += size

        def reset(self) -> None:
            self.done = 0

        def close(self) -> None:
            told.append((self.name, self.total, self.done))

    fetching.fetch("dna", tmp_path, Bar)
    assert told == [(f"toy.{part}.data", len(text), len(text)) for part, text in TEXTS.items()]


def test_no_bar_is_drawn_where_there_is_no_terminal(toy, tmp_path):
    result = cbm("fetch", "dna", "--to", str(tmp_path))
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 2


# Verification


def test_verify_names_wrong_files_and_exits_with_1(toy, tmp_path, monkeypatch):
    cbm("fetch", "dna", "--to", str(tmp_path))
    monkeypatch.setenv("CBM_DATA_DIR", str(tmp_path))
    good = cbm("verify", "dna")
    assert good.exit_code == 0
    assert [line.rpartition(" ")[2] for line in good.stdout.splitlines()] == ["ok"] * 3
    wrong = tmp_path / "binary/toy" / FILE
    wrong.write_bytes(gzip.compress(b"0,1\n")[:-3])
    result = cbm("verify")
    assert result.exit_code == 1
    assert f"dna: {wrong}: {wrong} cannot be read: it is a damaged gzip file" in result.stdout
    wrong.write_bytes(b"0,1\n")
    result = cbm("verify")
    assert result.exit_code == 1
    expected, found = sha256(TEXTS["train"]), sha256(b"0,1\n")
    assert f"{wrong}: wrong: expected {expected}, found {found}" in result.stdout


def test_verify_passes_over_what_is_not_here_unless_it_is_named():
    assert (cbm("verify").exit_code, cbm("verify").stdout) == (0, "")
    result = cbm("verify", "dna")
    assert result.exit_code == 1
    assert "dna.test.data: missing" in result.stdout
    assert "is generated" in cbm("verify", "shifting-bar").stderr


def test_either_published_order_of_connect4_is_right(tmp_path, monkeypatch):
    file = File("toy.data", (git_blob(b"1\n0\n"), sha256(b"0\n1\n")))
    published = replace(PUBLISHED["connect4"], forms=({"train": file},))
    monkeypatch.setitem(PUBLISHED, "connect4", published)
    for content, good in [(b"0\n1\n", True), (b"1\n0\n", True), (b"1\n1\n", False)]:
        (tmp_path / "toy.data").write_bytes(content)
        (checked,) = fetching.check_files("connect4", tmp_path)
        assert checked.good is good


def test_real_files_have_their_published_checksums(real_data_dir, monkeypatch):
    monkeypatch.setenv("CBM_DATA_DIR", str(real_data_dir))
    result = cbm("verify")
    assert result.exit_code == 0, result.stdout
    assert "mnist: " in result.stdout
