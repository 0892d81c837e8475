"""What the pages tell a reader to type, and what it prints.

A block of output follows the block whose last command prints it. Pages are followed in
a folder of their own, one block after the other, as a reader would:

    python -m tests.docs.pages                # follow all pages, and write outputs again
    python -m tests.docs.pages diagnose.md    # of one page
    python -m tests.docs.pages --check        # write nothing; fail where outputs differ
"""

import contextlib
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GRID = ROOT / "experiments.yaml"
FENCE = re.compile(
    r'^(<!-- not run: [^\n]*-->\n)?```(\w+)(?: title="([^"\n]*)")?\n(.*?)^```$',
    re.M | re.S,
)
CUT = "..."  # a line of an output: what comes before it, or after it, is left out
COURSE = [
    "course/first-run.md",
    "course/read-a-table.md",
    "course/own-data.md",
    "course/choose-settings.md",
    "course/figure-and-table.md",
]
# Pages with printed numbers, and the pages before them on the same disk
WITH_OUTPUTS = [
    [*COURSE],
    ["diagnose.md"],
    ["course/first-run.md", "../README.md"],
    ["how-to/compare-settings.md"],
]
SHORTER = {  # the same, in less time
    "epochs: 50": "epochs: 2",
    "n_iter=5": "n_iter=1",
    "jobs=1": "jobs=0",
    "updates: 15000000": "updates: 400",
    "updates=18000000": "updates=500",
    "every: 100000": "every: 100",
    "updates: 10000": "updates: 200",
    "trials: 8": "trials: 2",
    "updates=2000": "updates=200",
    "temperatures 2000": "temperatures 100",
}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    language: str
    title: str | None  # the file that a reader saves it as
    body: str
    is_run: bool
    start: int  # of the body, in the text of the page
    end: int


@dataclass(frozen=True)
class Output:
    """A block of output: as the page shows it, and as it was printed now."""

    block: Block
    printed: str


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    for match in FENCE.finditer(page.read_text("utf-8")):
        unrun, language, title, body = match.groups()
        yield Block(
            page, language, title, body, not unrun, match.start(4), match.end(4)
        )


def shorter(text: str) -> str:
    """Return commands and grids of a page that take less time."""
    for long, short in SHORTER.items():
        text = text.replace(long, short)
    return text


def follow(
    pages: Iterable[str], run: Callable[[list[str]], str], is_short: bool
) -> Iterator[Output]:
    """Follow pages in the current folder; yield the outputs that they show.

    Parameters
    ----------
    pages : iterable of str
        Names below ``docs``.
    run : callable
        Runs cbm with some arguments, and returns what it prints.
    is_short : bool
        Whether trainings are shortened, as tests need it.
    """
    if not Path("experiments.yaml").exists():
        Path("experiments.yaml").write_text(GRID.read_text("utf-8"), "utf-8")
    names: dict[str, object] = {}
    for page in pages:
        printed = ""
        for block in blocks_of((DOCS / page).resolve()):
            body = shorter(block.body) if is_short else block.body
            if not block.is_run:
                continue
            if block.language == "text":
                yield Output(block, printed)
            elif block.title:
                Path(block.title).write_text(body, "utf-8")
            elif block.language == "python":
                stream = io.StringIO()
                with contextlib.redirect_stdout(stream):
                    exec(compile(body, block.page.name, "exec"), names)
                printed = stream.getvalue()
            elif block.language == "sh":
                lines = re.sub(r"\\\n\s*", "", body).splitlines()
                for line in lines:
                    printed = _type(line, run, is_short)


def _type(line: str, run: Callable[[list[str]], str], is_short: bool) -> str:
    """Do what a line of a shell block does; MODEL is the first word of best.txt."""
    words = shlex.split(line, comments=True)
    if not words:
        return ""
    if words[0] == "python":
        stream = io.StringIO()
        with contextlib.redirect_stdout(stream):
            runpy.run_path(words[1])
        return stream.getvalue()
    assert words[0] == "cbm", f"mark the block as not run: {line}"
    words = words[1:]
    if "MODEL" in words:
        best = Path("best.txt").read_text("utf-8").split()
        words[words.index("MODEL")] = best[0]
    target = None
    if ">" in words:
        target = Path(words[-1])
        words = words[: words.index(">")]
    if is_short and words[0] == "run":
        words = _shortened(words)
    printed = run(words)
    if target is None:
        return printed
    target.write_text(printed, "utf-8")
    return ""


def _shortened(words: list[str]) -> list[str]:
    """Return a run of experiments.yaml with two trials of 200 updates."""
    is_of_clone = words[1:2] in ([], ["--dry-run"], ["experiments.yaml"])
    if "-j" not in words:
        words = [*words, "-j", "0"]
    if not is_of_clone:
        return words
    if "--trials" not in words:
        words = [*words, "--trials", "2"]
    if not any(word.startswith(("updates=", "epochs=")) for word in words):
        words = [*words, "--set", "updates=200"]
    return words


def fitted(shown: str, printed: str) -> str:
    """Return an output as a page shows it: without the lines that `CUT` stands for."""
    lines = printed.strip("\n").splitlines()
    wanted = shown.rstrip("\n").splitlines()
    if wanted[-1:] == [CUT]:
        lines = [*lines[: len(wanted) - 1], CUT]
    if wanted[:1] == [CUT]:
        lines = [CUT, *lines[len(lines) - len(wanted) + 1 :]]
    return "\n".join(line.rstrip() for line in lines) + "\n"


NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


def words_of(output: str) -> list[str]:
    """Return the words of a table: its head and the names of its rows.

    They do not depend on the length of a training, as numbers, marks of tests and the
    sentences below a table do.
    """
    lines = [line for line in output.splitlines() if not line.endswith(".")]
    plain = NUMBER.sub("#", "\n".join(lines))
    plain = re.sub(r"[*_\u2500]|\[(?:better by test|best by mean|[a-z])\]", " ", plain)
    return plain.split()


def numbers_of(output: str) -> list[float]:
    """Return the numbers of an output."""
    return [float(text.replace(",", "")) for text in NUMBER.findall(output)]


def _run(words: list[str]) -> str:
    """Run cbm as a reader does."""
    done = subprocess.run(
        [sys.executable, "-m", "cbm_cli.cli", *words],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "120"},
    )
    return done.stdout


def is_alike(shown: str, printed: str) -> bool:
    """Whether two outputs have the same words and, but for chance, numbers.

    Processors round differently, and so some trials differ.
    """
    if words_of(shown) != words_of(printed):
        return False
    pairs = zip(numbers_of(shown), numbers_of(printed), strict=False)
    return all(abs(old - new) <= 0.2 * abs(old) + 0.05 for old, new in pairs)


def write_outputs(names: list[str], is_check: bool) -> bool:
    """Follow pages at full length, and write the outputs that they show again.

    With ``is_check`` nothing is written. Returns whether all outputs were alike.
    """
    are_alike = True
    for pages in WITH_OUTPUTS:
        if names and not {*names} & {*pages}:
            continue
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            outputs = list(follow(pages, _run, is_short=False))
        for output in reversed(outputs):  # so that places before it stay the same
            block = output.block
            new = fitted(block.body, output.printed)
            if new == block.body:
                continue
            print(f"{block.page.name}:\n{block.body}becomes\n{new}")
            are_alike = are_alike and is_alike(block.body, new)
            if not is_check:
                text = block.page.read_text("utf-8")
                text = text[: block.start] + new + text[block.end :]
                block.page.write_text(text, "utf-8")
    return are_alike


def main() -> None:
    names = [name for name in sys.argv[1:] if name != "--check"]
    is_check = len(names) < len(sys.argv) - 1
    are_alike = write_outputs(names, is_check)
    sys.exit(is_check and not are_alike)


if __name__ == "__main__":
    main()
