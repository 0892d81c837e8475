"""What the README and the pages in docs tell a reader to type works."""

import importlib
import itertools
import json
import math
import re
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
from PIL import Image

from tests.builders import cbm
from tests.docs.pages import (
    COURSE,
    DOCS,
    FENCE,
    GRID,
    ROOT,
    blocks_of,
    fitted,
    follow,
    words_of,
)
from tests.processes import nightly

PAGES = [ROOT / f"{page}.md" for page in ("README", "CONTRIBUTING", "SECURITY")]
PAGES += sorted(DOCS.rglob("*.md"))


def pages_in(folder):
    names = sorted(path.name for path in (DOCS / folder).glob("*.md"))
    return [[f"{folder}/{name}"] for name in names]


# Pages that are read and typed from top to bottom, each after those before it
FOLLOWED = [
    [*COURSE, "course/continue-and-share.md"],
    ["python.md"],
    ["recorders.md"],
    ["course/first-run.md", "../README.md"],
    *pages_in("how-to"),
]
FOLLOWED += nightly([*COURSE, "gallery.md"], ["diagnose.md"], *pages_in("science"))


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


SHAPED = r"^(?:\w+ = |machine.kind, )?(.+?)  # (?:\"rbm\", )?(\([\d, ]+\))"


@pytest.mark.parametrize("pages", FOLLOWED, ids=page_id)
def test_pages_can_be_followed_to_the_letter(pages, here):
    """Every block does what it says, and every output has the words of the page."""
    outputs = follow(pages, lambda words: cbm(*words).stdout, is_short=True)
    for output in outputs:
        shown = output.block.body
        printed = fitted(shown, output.printed)
        assert words_of(printed) == words_of(shown), output.block.page.name


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_a_mark_leaves_out_the_block_below_it_alone(page):
    marks = page.read_text("utf-8").count("<!-- not run:")
    assert sum(not block.is_run for block in blocks_of(page)) == marks


def test_values_on_the_page_on_python_have_the_shapes_in_their_comments(here):
    names, shapes = {}, 0
    for block in blocks_of(DOCS / "python.md"):
        if block.language == "python" and block.is_run:
            exec(compile(block.body.replace("jobs=1", "jobs=0"), "page", "exec"), names)
            for value, shape in re.findall(SHAPED, block.body, re.M):
                shown = eval(value, names)
                actual = shown if isinstance(shown, tuple) else shown.shape
                assert actual == eval(shape), value
                shapes += 1
    assert shapes == 10


def test_kept_tables_are_those_of_the_page_on_three_tables():
    """Each output is what cbm prints of the kept results, but for the description."""
    text = (DOCS / "reproduction/twenty-minutes.md").read_text("utf-8")
    kept = re.findall(
        r"the kept results of ([\w-]+) -->\n```text\n(.*?)```", text, re.S
    )
    assert len(kept) == 3
    for experiment, shown in kept:
        printed = cbm("table", ROOT / "reproduction/results", experiment).stdout
        printed = re.sub(r"^About: .*\n\n", "", printed)
        assert fitted(shown, printed) == shown, experiment


def test_the_course_shows_what_a_run_finds(here):
    """One cell of the table of the course, trained again with some of its trials."""
    data, choice = ((DOCS / page).read_text("utf-8") for page in COURSE[2:4])
    lines = re.findall(r"^ (?:flipped-)?digits +.*$", choice, re.M)[:2]
    printed = [re.findall(r"(-[\d.]+) ± ([\d.]+)", line)[2] for line in lines]
    titled = [block.body for block in blocks_of(DOCS / COURSE[2]) if block.title]
    script, grid = titled
    trials = 2  # of 8
    exec(script, {})
    Path("grid.yaml").write_text(re.sub(r"rate: \[.*\]", "rate: [1.0]", grid), "utf-8")
    spec = make_spec(path="train.csv", binarise="threshold", threshold=8, hold_out=0.2)
    assert f"`{describe(spec, load(spec)).partition(' (')[0]}`" in data
    cbm("run", "grid.yaml", "--trials", trials, "--set", "offsets=dd^b_s", "-j", 0)
    table = json.loads(
        cbm("table", "results", "--statistic", "best-valid", "-f", "json").stdout
    )
    for cell, (mean, spread) in zip(table["cells"], printed, strict=True):
        error = float(spread) / math.sqrt(trials)
        assert abs(cell["mean"] - float(mean)) < 3 * error + 0.005  # rounding


CAPTIONED = re.compile(r"!\[[^\]]*\]\((\S+\.png)\)\n\n\*(.+?)\*\n", re.S)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_captions_of_pictures_count_the_trials_that_the_pictures_show(page):
    for picture, caption in CAPTIONED.findall(page.read_text("utf-8")):
        counts = re.findall(r"(\d+) trials", caption)
        description = Image.open(page.parent / picture).info.get("Description", "")
        for count in counts if description else ():
            assert f"{count} trials" in description, (page.name, picture)


def test_the_reference_is_the_same_in_every_place():
    printed = cbm("--cite").stdout
    reference = printed.partition("\n")[2]
    assert reference in (ROOT / "docs/citation.md").read_text("utf-8")
    known = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    article = known["preferred-citation"]
    for fact in (article["title"], str(article["year"]), article["url"]):
        assert f"{{{fact}}}" in reference
    assert f"cbm {known['version']} " in printed


def test_no_table_of_a_page_is_torn_by_an_empty_line():
    """A line with cells follows another one, or begins a table with its head."""
    for page in PAGES:
        lines = ["", *page.read_text("utf-8").splitlines(), ""]
        for before, line, after in zip(lines, lines[1:], lines[2:], strict=False):
            if line.startswith("|") and not before.startswith("|"):
                assert after.startswith(("|--", "| --")), (page, line)


def test_grids_on_other_pages_can_be_read():
    """The other YAML blocks that are whole grids."""
    for block in itertools.chain(*map(blocks_of, PAGES)):
        is_grid = block.language == "yaml" and block.body.startswith("experiments:")
        if is_grid and block.is_run and not block.title:
            named = yaml.load(block.body, yaml.BaseLoader)["experiments"]
            grid = read_grid("grid.yaml", text=block.body)
            assert grid.experiments.keys() == named.keys()


@pytest.fixture
def pages_module(monkeypatch):
    """Return a function that imports a module of the folder of pages."""
    monkeypatch.syspath_prepend(DOCS)
    return importlib.import_module


def test_generated_parts_of_pages_are_those_of_the_code(pages_module):
    pytest.importorskip("griffe", reason="griffe reads docstrings for the pages")
    generated = pages_module("generated")
    for name, make in generated.PARTS.items():
        text = (DOCS / name).read_text("utf-8")
        assert generated.with_part(text, make()) == text, (
            f"{name} is older than the code: python docs/generated.py"
        )


def test_reference_pages_have_every_command_field_default_and_function():
    commands, grid, python = (
        (DOCS / page).read_text("utf-8")
        for page in ("reference/commands.md", "grid.md", "python.md")
    )
    assert {f"## cbm {name}" for name in main.commands} - {"## cbm data"} <= {
        *commands.splitlines()
    }
    assert "[default: 0.05; " in commands
    assert re.search(r"^\| `momentum` \|.*\| number ≥ 0 < 1 \| `0.0` \|$", grid, re.M)
    assert re.search(r"^\| `offsets` \|.*\| \*\*required\*\* \|$", grid, re.M)
    for head in ("### cbm.run", "### cbm.load", "### CenteredRBM"):
        assert f"{head}\n" in python


def test_formulas_become_mathml_outside_of_code(pages_module):
    pytest.importorskip("latex2mathml", reason="formulas of the site need latex2mathml")
    hooks = pages_module("hooks")
    text = "so $x_i$ costs `$5` or $HOME\n\n$$\na = b\\\\\nc = d\n$$\n"
    page = hooks.on_page_markdown(text)
    assert page.count("<math") == 3
    assert "<msub><mi>x</mi><mi>i</mi></msub>" in page
    assert "`$5` or $HOME" in page


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
    pages = [DOCS / "python.md", DOCS / "how-to/labels.md"]
    blocks = itertools.chain(*map(blocks_of, pages))
    typed = "".join(block.body for block in blocks if block.is_run)
    names = [f"cbm.{name}(" for name in ("data", "load", "open_results", "run")]
    for owner in (ResultFrames, TrainedMachine, estimators.CenteredRBM):
        own = [
            name
            for name, one in vars(owner).items()
            if callable(one) and name[0] != "_"
        ]
        names += [f".{name}(" for name in own]
    assert [name for name in names if name not in typed] == []
