"""What the README and the pages in docs tell a reader to type works."""

import importlib
import itertools
import json
import math
import re
import runpy
import shlex
from pathlib import Path

import click
import pytest
import yaml
from cbm_cli.api import ResultFrames
from cbm_cli.cli import main
from cbm_cli.datasets.loading import describe, load
from cbm_cli.datasets.spec import make_spec
from cbm_cli.grid.read import read_grid
from cbm_cli.machine import TrainedMachine

from tests.builders import cbm
from tests.processes import nightly

ROOT = Path(__file__).parents[2]
GRID = ROOT / "experiments.yaml"
PAGES = [ROOT / f"{page}.md" for page in ("README", "CONTRIBUTING", "SECURITY")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
BLOCK = r'^(<!-- not run: .*-->\n)?```(\w+)(?: title="([^"\n]*)")?\n(.*?)^```$'
FENCE = re.compile(BLOCK, re.M | re.S)
# Pages that are read and typed from top to bottom; the gallery needs the results of the
# course
COURSE = [
    f"course/{page}.md" for page in ("own-data", "choose-settings", "figure-and-table")
]
SHARED = [*COURSE, "gallery.md"]
OTHERS = [[f"course/{page}.md"] for page in ("read-a-table", "continue-and-share")]


def pages_in(folder):
    return [
        [f"{folder}/{path.name}"]
        for path in sorted((ROOT / "docs" / folder).glob("*.md"))
    ]


FOLLOWED = [COURSE, *OTHERS, ["python.md"], *pages_in("how-to")]
FOLLOWED += nightly(SHARED, ["diagnose.md"], *pages_in("science"))
SMALLER = {  # the same, in less time
    "epochs: 50": "epochs: 2",
    "n_iter=5": "n_iter=1",
    "jobs=1": "jobs=0",
    "updates: 10000": "updates: 200",
    "trials: 8": "trials: 2",
    "--trials 5": "",
    "updates=2000": "updates=200",
    "temperatures 2000": "temperatures 100",
}


def blocks(page):
    """Whether it is not run, language, title and body of every block of a page, made
    smaller.
    """
    for unrun, language, title, body in FENCE.findall(page.read_text("utf-8")):
        for long, short in SMALLER.items():
            body = body.replace(long, short)
        yield unrun, language, title, body


def page_id(pages):
    return "+".join(pages) if isinstance(pages, list) else str(pages.relative_to(ROOT))


def commands(text):
    """Return the words of every ``cbm`` line of the blocks of a page, fenced or
    indented.
    """
    text = re.sub(r"\\\n\s*", "", text)
    shell = [body for _, language, _, body in FENCE.findall(text) if language == "sh"]
    unfenced = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    shell += re.findall(r"^    (cbm .*)$", unfenced, re.M)
    lines = [
        part for line in "\n".join(shell).splitlines() for part in line.split(" && ")
    ]
    return [
        shlex.split(line, comments=True) for line in lines if line.startswith("cbm ")
    ]


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_commands_and_their_options_exist(page):
    grid = yaml.load(GRID.read_text("utf-8"), yaml.BaseLoader)
    for line in commands(page.read_text("utf-8")):
        words = [
            word for word in itertools.takewhile(">".__ne__, line[1:]) if word != "&"
        ]
        command, context = main, click.Context(main, info_name="cbm")
        while (
            isinstance(command, click.Group) and words and not words[0].startswith("-")
        ):
            assert words[0] in command.list_commands(context), line
            command = command.get_command(context, words.pop(0))
            context = click.Context(command, parent=context)
        command.make_parser(context).parse_args([*words])
        if words[:1] == ["experiments.yaml"]:
            names = itertools.takewhile(
                re.compile(r"[a-z][a-z0-9-]+").fullmatch, words[1:]
            )
            assert set(names) <= {*grid["experiments"], *grid["groups"]}


def follow(line):
    """Do what a line of a shell block does, in this process; MODEL is the first of
    best.txt.
    """
    words = shlex.split(line, comments=True)
    if "MODEL" in words:
        words[words.index("MODEL")] = Path("best.txt").read_text("utf-8").split()[0]
    if words[:1] == ["python"]:
        runpy.run_path(words[1])
        return
    assert words[0] == "cbm", f"mark the block as not run: {line}"
    words, target = (
        (words[: words.index(">")], words[-1]) if ">" in words else (words, None)
    )
    if words[1] == "run" and "-j" not in words:
        words += ["-j", "0"]
    if words[:3] == ["cbm", "run", "experiments.yaml"]:
        lengths = any(
            word.startswith(("updates=", "epochs=")) for word in words
        )  # its own
        words += [] if "--trials" in words else ["--trials", "2"]
        words += [] if lengths else ["--set", "updates=200"]
    result = cbm(*words[1:])
    if target:
        Path(target).write_text(result.stdout, "utf-8")


@pytest.mark.parametrize("pages", FOLLOWED, ids=page_id)
def test_pages_can_be_followed_to_the_letter(pages, here):
    """Where a value of Python is followed by its shape as a comment, it has this
    shape.
    """
    Path("experiments.yaml").write_text(GRID.read_text("utf-8"), "utf-8")
    names, shapes = {}, 0
    every = itertools.chain(*(blocks(ROOT / "docs" / page) for page in pages))
    for unrun, language, title, body in every:
        if title and not unrun:
            Path(title).write_text(body, "utf-8")
        elif language == "python" and not unrun:
            exec(compile(body, str(pages), "exec"), names)
            commented = (
                r"^(?:\w+ = |machine.kind, )?(.+?)  # (?:\"rbm\", )?(\([\d, ]+\))"
            )
            for value, shape in re.findall(commented, body, re.M):
                shown = eval(value, names)
                assert (shown if isinstance(shown, tuple) else shown.shape) == eval(
                    shape
                ), value
                shapes += 1
        elif language == "sh" and not unrun:
            for line in body.splitlines():
                follow(line)
    assert shapes == (10 if pages == ["python.md"] else 0)


def test_the_course_shows_what_a_run_finds(here):
    data, choice = ((ROOT / f"docs/{page}").read_text("utf-8") for page in COURSE[:2])
    lines = re.findall(r"^ (?:flipped-)?digits +.*$", choice, re.M)
    printed = [re.findall(r"(-[\d.]+) ± ([\d.]+)", line)[2] for line in lines]
    (script, grid), trials = (
        (body for *_, title, body in FENCE.findall(data) if title),
        2,
    )  # of 8
    exec(script, {})
    Path("grid.yaml").write_text(re.sub(r"rate: \[.*\]", "rate: [1.0]", grid), "utf-8")
    spec = make_spec(path="train.csv", binarise="threshold", threshold=8, hold_out=0.2)
    assert f"`{describe(spec, load(spec)).partition(' (')[0]}`" in data
    cbm("run", "grid.yaml", "--trials", trials, "--set", "offsets=dd^b_s", "-j", 0)
    found = json.loads(
        cbm("table", "results", "--statistic", "best-valid", "-f", "json").stdout
    )
    for cell, (mean, spread) in zip(found["cells"], printed, strict=True):
        error = float(spread) / math.sqrt(trials)
        assert abs(cell["mean"] - float(mean)) < 3 * error + 0.005  # rounding


def test_grids_on_other_pages_can_be_read():
    """The other YAML blocks that are whole grids."""
    for unrun, language, title, body in itertools.chain(*map(blocks, PAGES)):
        if (
            language == "yaml"
            and body.startswith("experiments:")
            and not (unrun or title)
        ):
            named = yaml.load(body, yaml.BaseLoader)["experiments"]
            assert read_grid("grid.yaml", text=body).experiments.keys() == named.keys()


@pytest.fixture(scope="module")
def hooks():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")
        return importlib.import_module("hooks")


def test_reference_pages_of_the_site_have_every_command_field_and_function(hooks):
    texts = [page.read_text("utf-8") for page in (ROOT / "docs/reference").glob("*.md")]
    pages = map(hooks.on_page_markdown, texts)
    lines = {line for text in pages for line in text.splitlines()}
    assert {f"## cbm {name}" for name in main.commands} - {"## cbm data"} <= lines
    assert {"## cbm.run", "## cbm.load", "## CenteredRBM", "### fit"} <= lines
    momentum = (
        "| `momentum` | Share of the last step that is added to the next one | "
        " | `0.0` |"
    )
    assert momentum in lines


def test_no_text_tells_a_reader_to_install_the_strangers_package_of_the_same_short_name():
    name = "cbm"  # on the index: another project
    installed = rf"\b(?:pip|pipx|uv|conda)\b[^\n`&;|]* ['\"]?{name}(?![\w./(-])"
    wrong = re.compile(rf"\b{name}\[|{installed}")
    files = [
        *PAGES,
        *(path for path in (ROOT / "cbm_cli").rglob("*.*") if path.suffix != ".pyc"),
    ]
    assert [path for path in files if wrong.search(path.read_text("utf-8"))] == []
    assert wrong.search(f"pip install {name}")


def test_every_public_function_of_python_has_an_example_that_is_run():
    estimators = pytest.importorskip("cbm_cli.sklearn")
    pages = [ROOT / "docs/python.md", ROOT / "docs/how-to/scikit-learn.md"]
    typed = "".join(
        body for page in pages for unrun, *_, body in blocks(page) if not unrun
    )
    names = [f"cbm.{name}(" for name in ("data", "load", "open_results", "run")]
    for owner in (ResultFrames, TrainedMachine, estimators.CenteredRBM):
        own = [
            name
            for name, one in vars(owner).items()
            if callable(one) and name[0] != "_"
        ]
        names += [f".{name}(" for name in own]
    assert [name for name in names if name not in typed] == []
