"""The page of results: numbers, troubles, and its use in a browser."""

import json
import re
import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cbm_cli.kernels import KERNEL_VERSION
from cbm_cli.results import Results

from tests.builders import cbm, run_grid
from tests.journals import change_manifest, change_record, writing
from tests.pictures import numbers_in, page_of

TOYS = """
defaults: {trials: 6, seed: 5, batch: full}
experiments:
  bars: {data: {name: bars-and-stripes, size: 2}, model: {kind: rbm, hidden: 3}, updates: 600,
    offsets: [00, dd^b_s], sampler: [CD-1, PT_4], learning_rate: [0.1, 0.3],
    evaluate: {method: exact, every: 2}, table: {scale: total}, description: Toys}
  wild: {data: {name: shifting-bar, size: 4, bar: 1}, model: {kind: rbm, hidden: 2}, trials: 2,
    offsets: dd^b, sampler: PCD-1, learning_rate: [0.1, 3.3e38], updates: 20,
    evaluate: {method: exact, every: 10}}
"""
EVIL = '"><img src=x onerror="hacked=1"></script><script>hacked=1</script>{{ 7 * 6 }}'
SHOWN = {"00": "00", "dd^b_s": "ddᵇₛ", "CD-1": "CD-1", "PT_4": "PT₄"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Results of two experiments; not to be changed."""
    return run_grid(
        TOYS, "bars", "wild", folder=tmp_path_factory.mktemp("report"), output="toys"
    )


@pytest.fixture
def results(made, tmp_path):
    """A copy of them, which a test may damage."""
    return Path(shutil.copytree(made, tmp_path / "toys"))


def written(results, *experiments):
    """The path of a new page next to the results."""
    cbm("report", results, *experiments, "-o", target := results.parent / "page.html")
    return target


def read(results, *experiments):
    return page_of(written(results, *experiments).read_text("utf-8"))


@pytest.fixture(scope="module")
def page(made):
    return read(made)


def test_the_page_is_one_file_without_network_and_always_the_same(made, page):
    for element, name in product(page.all(""), ("src", "href", "xlink:href")):
        assert element.get(name, "#").startswith("#")
    path = written(made)
    first = path.read_bytes()
    assert b"default-src 'none'" in first
    said = cbm("report", made, "-o", path).stderr
    assert numbers_in(said.rpartition("page.html")[2]) == [f"{len(first) / 1e3:,.0f}"]
    assert path.read_bytes() == first


def test_the_page_names_experiments_settings_and_versions(made, page):
    assert page.all("h1")[0].words == "toys: bars, wild"
    assert page.all("li")[0].words == "bars : 48 of 48 trials"
    shown = {"offsets": "00, ddᵇₛ", "sampler": "CD-1, PT₄", "learning rate": "0.1, 0.3"}
    shown |= {"kernel version": f"{KERNEL_VERSION}", "numpy version": np.__version__}
    assert page.all("dl")[0].terms().items() >= shown.items()


def test_the_table_is_that_of_cbm_table_and_all_cells_are_listed(made, page):
    (table, *_), (listed, *_) = (
        page.all("table", kind) for kind in ("results", "cells")
    )
    header, heading, *rows = table.rows()
    assert (header[1:], heading) == (["00", "ddᵇₛ"], ["bars-and-stripes"])
    said = re.findall(
        r"^\| [CP].*", cbm("table", made, "bars", "-f", "markdown").stdout, re.M
    )
    printed = [re.sub("[*]|</?u>", "", line).strip("| ").split(" | ") for line in said]
    cells = json.loads(cbm("table", made, "bars", "-f", "json").stdout)["cells"]
    words = " {difference:.3g} [{difference_low:.3g}, {difference_high:.3g}]"
    told = ["" if cell["best"] else words.format_map(cell) for cell in cells]
    for (name, one, other), row, place in zip(
        printed, rows, range(0, 8, 2), strict=True
    ):
        assert row == [name, one + told[place], other + told[place + 1]]
    assert len(table.all("b")) == sum(cell["bold"] for cell in cells)
    assert page.words.count("Small print") == 1
    names, *lines = listed.rows()
    frame = pd.DataFrame(lines, columns=names).set_index(
        ["offsets", "sampler", "learning rate"]
    )
    assert [*frame["trials"]] == ["6 of 6"] * len(cells)
    for cell in cells:
        key = SHOWN[cell["offsets"]], SHOWN[cell["sampler"]], f"{cell['learning_rate']}"
        mean, spread = frame.loc[key, ["train log-likelihood (max)", "±"]]
        assert (mean, spread) == (f"{cell['mean']:.2f}", f"{cell['std']:.2f}")


def test_curves_are_pictures_of_matplotlib_with_their_caption(made, page):
    assert len(page.all("svg")) == 2  # one for each data set of each experiment
    texts = re.findall(r"<!-- (.*?) -->", written(made).read_text("utf-8"))
    shown = (
        "train log-likelihood (of all rows)",
        "updates",
        "(d) PT$_{4}$, $\\eta$ = 0.3",
    )
    assert {*shown} <= {*texts}
    assert "Median over 6 trials, band: quartiles." in page.words


def test_failed_trials_are_listed_with_their_reason(results):
    store = Results(results).store("bars")
    run = store.manifest().cells[0].run_id
    details = "Traceback:\n  in code\nValueError: not <enough>\n"
    with writing(store.folder) as writer:
        writer.write_failure(run, 6, details)
    page = read(results)
    (failure,) = page.all("ul", "bad")[0].all("li")
    assert failure.words == f"{run}, trial 6: ValueError: not <enough>"
    names, *lines = page.all("table", "cells")[1].rows()
    assert [line[names.index("diverged")] for line in lines] == ["0", "2"]


def test_unfinished_experiments_are_not_complete_ones(results):
    change_manifest(results / "bars", lambda manifest: manifest.update(trials=9))
    page = read(results, "bars")
    assert page.all("h1")[0].words == "toys: bars"
    assert numbers_in(page.all("p", "bad")[0].words)[:2] == ["48", "72"]
    assert "n=6/9" in page.words
    (results / "bars/trials.jsonl").unlink()
    page = read(results, "bars")
    assert numbers_in(page.all("p", "bad")[0].words) == ["0", "72"]
    assert page.all("table") == []


def test_mixed_versions_and_what_was_not_evaluated_are_said(results):
    store = Results(results).store("bars")
    run = store.manifest().cells[0].run_id
    newer = store.line(run, 2).made | {"kernel": 99}
    change_record(store.folder, (run, 2), lambda record: record.update(made=newer))
    change_manifest(
        results / "bars", lambda manifest: manifest["table"].update(metric="test_cost")
    )
    page = read(results, "bars")
    said = [it.words for it in page.all("p", "bad")]
    (versions,) = (text for text in said if "kernel version" in text)
    assert numbers_in(versions)[1:4] == ["47", "99", "1"]
    assert not page.all("table", "results")
    assert any("test_cost" in text for text in said)


def test_every_text_of_a_user_is_escaped(results):
    """The name of the folder, description, data set, reason of a failure, and the
    reasons why a part is missing.
    """
    evil = results.rename(results.parent / "<img src=x onerror=hacked=1>")
    (evil / "bars").rename(evil / "<i>bars")
    store = Results(evil).store("<i>bars")
    with writing(store.folder) as writer:
        writer.write_failure(store.manifest().cells[0].run_id, 6, f"Error: {EVIL}")

    def change(manifest):
        manifest.update(description=EVIL, experiment="<i>bars")
        manifest["table"].update(metric="<b>cost")
        for cell in manifest["cells"]:
            cell["settings"]["data"] = {"path": "rows.npy", "name": EVIL}

    change_manifest(evil / "<i>bars", change)
    html = written(evil, "<i>bars").read_text("utf-8")
    for raw in ("<img src=x", "<i>bars", "<b>cost", EVIL):
        assert raw not in html
    assert html.count("<script>") == html.count("</script>") == 1
    page = page_of(html)
    assert page.all("h1")[0].words == "<img src=x onerror=hacked=1>: <i>bars"
    shown = [EVIL in element.words for element in (*page.all("p"), *page.all("li"))]
    assert sum(shown) == 2  # description and failure
    assert page.all("dl")[0].terms()["data"] == EVIL
    assert any("<b>cost" in element.words for element in page.all("p", "bad"))


def test_links_lead_to_the_sections_in_their_order(page):
    links = [(link.get("href"), link.words) for link in page.all("a")]
    sections = [
        (f"#{section.get('id')}", section.all("h2")[0].words)
        for section in page.all("section")
    ]
    assert links == sections == [("#1", "bars"), ("#2", "wild")]


def test_the_name_of_a_single_experiment_is_there_once(made):
    page = read(made, "wild")
    assert [element.words for element in page.all("h1")] == ["toys: wild"]
    assert page.all("h2") == page.all("a") == []


def test_cells_whose_settings_the_table_chose_are_marked(results):
    def change(manifest):
        manifest["table"].update(choose=["learning_rate"], by="train")

    change_manifest(results / "bars", change)
    page = read(results, "bars")
    (listed,) = page.all("table", "cells")
    names, *lines = listed.rows()
    frame = pd.DataFrame(lines, columns=names)
    is_marked = [row.get("class") == "chosen" for row in listed.all("tr")[1:]]
    assert is_marked == [words == "chosen" for words in frame["in the table"]]
    shown = frame[is_marked].set_index(["offsets", "sampler", "learning rate"])
    cells = json.loads(cbm("table", results, "bars", "-f", "json").stdout)["cells"]
    assert len(shown) == len(cells) == 4  # of eight
    for cell in cells:
        key = SHOWN[cell["offsets"]], SHOWN[cell["sampler"]], f"{cell['learning_rate']}"
        assert shown["train log-likelihood (max)"][key] == f"{cell['mean']:.2f}"


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="pip install playwright"
    )
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as player:
        yield player.chromium.launch(executable_path=chromium, args=["--no-sandbox"])


@pytest.fixture
def opened(browser):
    """Open a page; any complaint of the browser fails the test."""
    complaints, context = [], browser.new_context()

    def open_(path, width=1280):
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(path.as_uri())
        return page

    yield open_
    context.close()
    assert complaints == []


def test_a_click_or_a_key_on_a_head_sorts_a_table_by_numbers(made, opened):
    cells = json.loads(cbm("table", made, "bars", "-f", "json").stdout)["cells"]
    means = sorted(cell["mean"] for cell in cells if cell["offsets"] == "00")
    page = opened(written(made))
    table, keyboard = page.locator(".results").first, page.keyboard
    head = table.locator("thead th").nth(1)
    for order, use in (
        ("descending", head.click),
        ("ascending", lambda: keyboard.press("Enter")),
    ):
        use()
        head.focus()
        assert head.get_attribute("aria-sort") == order
        texts = table.locator("tbody tr td:nth-child(2)").all_text_contents()
        shown = [float(text.split()[0]) for text in texts]
        assert shown == pytest.approx(
            means[:: -1 if order == "descending" else 1], abs=0.01
        )


def test_a_phone_shows_all(made, opened):
    page = opened(written(made), width=390)
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_hostile_strings_stay_text(results, opened):
    evil = results.rename(results.parent / "<img src=x onerror=hacked=1>")
    store = Results(evil).store("bars")
    with writing(store.folder) as writer:
        writer.write_failure(store.manifest().cells[0].run_id, 6, EVIL)

    def change(manifest):
        manifest.update(description=EVIL)
        for cell in manifest["cells"]:
            cell["settings"]["data"] = {"path": "rows.npy", "name": EVIL}

    change_manifest(evil / "bars", change)
    page = opened(written(evil))
    assert page.evaluate("typeof hacked") == "undefined"
    assert page.locator("script").count() == 1
    assert page.locator("img").count() == 0
    for query in ("section p", ".results", "ul.bad", "dl"):
        assert EVIL in page.locator(query).first.text_content(), query
