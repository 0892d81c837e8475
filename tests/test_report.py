"""The page of results: its numbers, what it says of troubles, and its use in a browser."""

import base64
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from markupsafe import escape
from matplotlib.image import imread

from cbm_cli.report.curves import MARKS
from cbm_cli.results import Results
from cbm_cli.results.contents import sealed
from cbm_cli.statistics.findings import Evidence, Judged
from tests.builders import cbm

TOYS = """
defaults: {trials: 6, seed: 5}
experiments:
  bars:
    description: Toys
    data: {name: bars-and-stripes, size: 2}
    model: {kind: rbm, hidden: 3}
    offsets: [00, dd^b_s]
    sampler: [CD-1, PT_4]
    learning_rate: [0.1, 0.3]
    updates: 600
    batch: full
    evaluate: {method: exact, every: 2}
    table: {scale: total}
  wild:
    data: {name: shifting-bar, size: 4, bar: 1}
    model: {kind: rbm, hidden: 2}
    offsets: dd^b
    sampler: PCD-1
    learning_rate: [0.1, 3.3e38]
    trials: 2
    updates: 20
    batch: full
    evaluate: {method: exact, every: 10}
"""
EVIL = '"><img src=x onerror="hacked=1"></script><script>hacked=1</script>{{ 7 * 6 }}'


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Results of two experiments; not to be changed."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "grid.yaml").write_text(TOYS)
    cbm("run", folder / "grid.yaml", "bars", "wild", "-o", folder / "toys", "-j", 0, "--no-table")
    return folder / "toys"


@pytest.fixture
def results(made, tmp_path):
    """A copy of them, which a test may damage."""
    return Path(shutil.copytree(made, tmp_path / "toys"))


def page_of(results, *experiments, note="wrote"):
    target = results.parent / "page.html"
    assert note in cbm("report", results, *experiments, "-o", target).stderr
    return target


def change_manifest(results, change):
    """Change the manifest of the experiment bars."""
    manifest = Results(results).store("bars").manifest()
    change(manifest)
    (results / "bars" / "manifest.json").write_bytes(sealed(manifest))


def without_trials(results):
    for name in ("trials", "recent", "summary.csv", "summary.sha256"):
        path = results / "bars" / name
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def html(made):
    return page_of(made).read_text("utf-8")


def test_the_page_is_one_file_without_network_and_always_the_same(made, html):
    assert not re.search(r'(src|href)="(?!data:image/png|#)', html)
    assert len(html) < 300_000
    assert page_of(made).read_text("utf-8") == html


def test_values_of_the_table_tell_what_they_rest_on(made, html):
    cells = json.loads(cbm("table", made, "bars", "-f", "json").stdout)["cells"]
    shown = re.findall(r'<td class="item" data-sort="([^"]+)" title="([^"]+)"', html)
    assert [float(value) for value, _ in shown[: len(cells)]] == [cell["mean"] for cell in cells]
    for (_, title), cell in zip(shown, cells, strict=False):
        assert "n = 6 of 6" in title
        assert ("best of its row" in title) == cell["best"]
        assert cell["best"] or f"p = {cell['p_value']:.2g}" in title


def test_curves_are_the_medians_of_the_trials(made, html):
    """The paths of a panel, read back by its ticks, against the medians of the files."""
    panel = re.search(r'<figure class="panel.*?</figure>', html, re.S)[0]
    ticks = re.findall(r'd="M0 (\d+)H\d+"/><text [^>]*>([^<]+)<', panel)
    places, values = np.array(ticks, dtype=float).T
    slope, start = np.polyfit(places, values, 1)
    paths = re.findall(r'class="line" [^>]* d="M(-?\d+) (-?\d+)l([^"]+)"', panel)
    store = Results(made).store("bars")
    for cell, (x, y, steps) in zip(store.manifest()["cells"][::4], paths, strict=True):
        dx, dy = np.array(steps.split(), dtype=float).reshape(-1, 2).T
        curves = [store.curve(cell["run_id"], trial) for trial in range(6)]
        median = 8 * np.median([curve["train_log_likelihood"] for curve in curves], axis=0)
        drawn = start + slope * (float(y) + np.concatenate([[0], np.cumsum(dy)]))
        at = np.concatenate([[0], np.cumsum(dx)]) + float(x)
        assert 150 < len(at) <= 200
        expected = np.interp(at / at[-1] * 600, curves[0]["update"], median)
        assert drawn == pytest.approx(expected, abs=abs(slope) * 8)
    marked = re.findall(r'class="item (full|hollow)" [^>]* d="([^"]+)"', panel)
    assert [kind for kind, _ in marked] == ["full", "hollow"]  # 00 and dd^b_s
    for (x, y, steps), (_, marks) in zip(paths, marked, strict=True):
        line = np.cumsum(np.array([x, y, *steps.split()], dtype=int).reshape(-1, 2), axis=0).tolist()
        centres = [[*map(int, centre)] for centre in re.findall(r"M(-?\d+) (-?\d+)m", marks)]
        assert len(centres) == MARKS
        assert all(centre in line for centre in centres)


def test_a_page_of_own_results_has_nothing_of_the_paper(made, tmp_path):
    said = cbm("report", made, "-o", tmp_path / "page.html").stderr
    size = (tmp_path / "page.html").stat().st_size
    assert said.endswith(f"page.html ({size / 1e3:,.0f} kB)\n")
    body = re.sub(r"<(style|script)>.*?</\1>", "", (tmp_path / "page.html").read_text("utf-8"), flags=re.S)
    assert not re.search(r"paper|published|finding|scoreboard", body, re.I)


def test_curves_say_what_line_and_band_are(html):
    words = "log-likelihood (of all rows) over updates. Line: median over trials; band: quartiles."
    assert f"Train {words}" in html or f"Log{words[3:]}" in html


def test_filters_are_of_the_machine_with_the_best_final_value(made, html):
    store = Results(made).store("bars")
    rows = store.summary().merge(pd.DataFrame(store.manifest()["cells"])[["run_id"]], on="run_id")
    shown = re.findall(r'<img src="data:image/png;base64,([^"]+)"[^>]*><figcaption>([^<]+)<', html)
    for scheme, (image, caption) in zip(("00", "dd^b_s"), shown, strict=False):
        own = rows[rows["offsets"].astype(str).replace("0", "00") == scheme]
        best = own.loc[own["train_log_likelihood_final"].idxmax()]
        assert caption.endswith(f"trial {best['trial']}")
        with np.load(store.path(best["run_id"], int(best["trial"]), ".npz")) as machine:
            weights = machine["weights_0"]
        tile = imread(io.BytesIO(base64.b64decode(image)), format="png")[..., 0]
        first = 0.5 + 0.5 * weights[:, 0] / np.abs(weights[:, 0]).max()
        np.testing.assert_allclose(tile[1:3, 1:3].ravel(), first, atol=0.01)


def test_hovering_tells_the_quartiles_of_the_final_values(made, html):
    rows = Results(made).store("bars").summary()
    titles = re.findall(r"<title>[^<]*quartiles of the final values: ([^<]+)</title>", html)
    cells = [cell["run_id"] for cell in Results(made).store("bars").manifest()["cells"]]
    expected = {
        ", ".join(f"{value:.5g}" for value in 8 * its.quantile([0.25, 0.5, 0.75]))
        for run_id, its in rows.groupby("run_id")["train_log_likelihood_final"]
        if run_id in cells
    }
    assert expected <= {*titles}


def test_findings_on_the_experiments_of_the_page_are_listed_and_others_counted(made, tmp_path, monkeypatch):
    def judged(experiment, outcomes):
        finding = {"name": "n", "place": "6.1, <i>figure</i>", "says": f"{EVIL} in {experiment}."}
        finding |= {"experiments": [experiment], "comparisons": 1}
        finding["checks"] = [{"cell": {"offsets": "00"}, "below": 1}]
        return Judged(
            finding, [Evidence(0, "run", "1", 0.5, 1.0, 6, 0.03, outcome, True) for outcome in outcomes]
        )

    found = [judged("bars", [1]), judged("bars", []), judged("wild", [-1]), judged("divergence", [])]
    monkeypatch.setattr("cbm_cli.report.page.check_findings", lambda results: found)
    cbm("report", made, "-o", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text("utf-8")
    lines = re.findall(r'<li class="[^"]+"><strong>([^<]+)</strong><span>(.*?)</li>', text)
    assert [verdict for verdict, _ in lines] == ["reproduced", "not run", "contradicted"]
    assert escape(EVIL + " in bars.") in lines[0][1]
    assert "1 of 1 comparisons" in lines[0][1]
    assert EVIL not in text
    assert "on other experiments: 1;" in text


def test_diverged_and_failed_trials_are_listed_with_their_reason(results):
    store = Results(results).store("bars")
    run = store.manifest()["cells"][0]["run_id"]
    store.write_failure(run, 6, "Traceback (most recent call last):\n  in code\nValueError: not <enough>\n")
    text = page_of(results).read_text("utf-8")
    troubles = " ".join(re.findall(r'<ul class="troubles">.*?</ul>', text, re.S))
    assert "failed (trial 6): ValueError: not &lt;enough&gt;" in troubles
    assert "2 trials diverged, the first at update 10" in troubles
    assert re.search(r'<td class="bad">1</td><td>0</td>', text)  # failed and diverged, of bars


def test_without_finished_trials_the_page_says_what_is_planned(results):
    without_trials(results)
    text = page_of(results, "bars").read_text("utf-8")
    assert "No finished trial yet: 48 planned, 0 running or interrupted, 0 failed" in text
    assert "0 of 48" in text


def test_incomplete_experiments_are_no_complete_ones(results):
    change_manifest(results, lambda manifest: manifest.update(trials=9))
    text = page_of(results, "bars").read_text("utf-8")
    assert "Incomplete: 48 of 72 trials" in text
    assert "n=6/9" in text
    assert "n = 6 of 9" in text


def test_mixed_versions_are_shown_with_a_warning(results):
    store = Results(results).store("bars")
    run = store.manifest()["cells"][0]["run_id"]
    record = store._record(run, 2)
    record["row"]["kernel_version"] = 99
    store.files.write(f"trials/{run}/trial-002.json", sealed(record))
    text = page_of(results, "bars", note="kernel versions").read_text("utf-8")
    assert re.search(
        r'class="warning"[^>]*>Warning: .*kernel versions: .*\(47 trials\), 99 \(1 trial\)', text
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("toys", "basr"), "did you mean bars"),
        (("nowhere",), "there is no such folder"),
        (("toys", "-o", "file/page.html"), "there is no folder"),
    ],
)
def test_bad_input_is_named(made, tmp_path, arguments, words, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("toys").symlink_to(made)
    Path("file").touch()
    assert words in cbm("report", *arguments, code=2).stderr
    assert not Path("report.html").exists()


def test_what_was_not_evaluated_has_no_table(results):
    change_manifest(results, lambda manifest: manifest["table"].update(metric="test_cost"))
    assert "No table: the results hold no metric test_cost" in page_of(results, "bars").read_text("utf-8")


# In the browser


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as player:
        yield player.chromium.launch(executable_path=chromium, args=["--no-sandbox"])


@pytest.fixture
def opened(browser):
    """Open a page; any complaint of the browser fails the test."""
    complaints, context = [], browser.new_context()
    context.grant_permissions(["clipboard-read", "clipboard-write"])

    def open_(path, **look):
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.set_viewport_size(look.pop("size", {"width": 1280, "height": 900}))
        page.emulate_media(**look)
        page.goto(path.as_uri())
        return page

    yield open_
    context.close()
    assert complaints == []


def seen(page, query):
    return [it.text_content() for it in page.locator(query).all() if it.is_visible()]


def choose(page, value):
    page.locator(f'label:has(input[value="{value}"])').click()


def test_filters_keep_what_is_chosen(made, opened):
    page = opened(page_of(made))
    assert page.inner_text("#found") == "10 of 10 cells"
    choose(page, "dd^b_s")
    assert seen(page, ".results thead th")[1:] == ["ddᵇₛ"]
    assert seen(page, "h2")[2:] == ["bars", "Versions"]  # wild has other schemes
    assert page.inner_text("#found") == "4 of 10 cells"
    choose(page, "PT_4")
    choose(page, "0.3")
    assert seen(page, ".results tbody th[scope=row]") == ["PT₄-0.3"]
    assert len(seen(page, ".panel")) == 1
    assert page.locator(".panel g.item:visible").count() == 1
    choose(page, "00")
    assert page.locator(".panel g.item:visible").count() == 2
    page.click("text=Show all")
    page.wait_for_function("document.getElementById('found').textContent === '10 of 10 cells'")


def test_keys_alone_filter_and_sort(made, opened):
    page = opened(page_of(made))
    page.locator('input[value="00"]').focus()
    page.keyboard.press("Space")
    assert page.inner_text("#found") == "4 of 10 cells"
    page.locator(".results thead button").nth(1).focus()
    page.keyboard.press("Enter")
    assert page.locator(".results th[aria-sort]").get_attribute("aria-sort") == "descending"


def test_columns_sort_by_their_numbers_and_back(made, opened):
    cells = json.loads(cbm("table", made, "bars", "-f", "json").stdout)["cells"]
    means = [cell["mean"] for cell in cells if cell["offsets"] == "00"]
    page = opened(page_of(made))
    rows = page.locator(".results").first.locator("tr.holds")
    for expected in (sorted(means, reverse=True), sorted(means), means):
        page.locator(".results").first.locator("thead button").nth(1).click()
        numbers = [float(row.locator("td").first.get_attribute("data-sort")) for row in rows.all()]
        assert numbers == expected


def test_a_table_is_copied_as_the_latex_of_cbm_table(made, opened):
    page = opened(page_of(made))
    page.locator(".copy").first.click()
    page.wait_for_selector("text=Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == cbm("table", made, "bars", "-f", "latex").stdout.strip()


def test_light_and_dark_follow_the_system_until_the_button_is_used(made, opened):
    def darkness(page):
        return page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"

    page = opened(page_of(made), color_scheme="dark")
    assert darkness(page)
    page.click("#theme")
    assert not darkness(page)
    assert not darkness(opened(page_of(made), color_scheme="light"))


def test_a_phone_shows_all_without_scrolling_sideways_and_soon(made, opened):
    page = opened(page_of(made), size={"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    ready = page.evaluate("performance.timing.domInteractive - performance.timing.navigationStart")
    assert ready < 1000


def test_hostile_strings_stay_text(results, opened):
    evil = results.rename(results.parent / "<img src=x onerror=hacked=1>")
    store = Results(evil).store("bars")
    run = store.manifest()["cells"][0]["run_id"]
    store.write_failure(run, 6, EVIL)

    def change(manifest):
        manifest.update(description=EVIL, grid_commit=EVIL)
        manifest["machine"][EVIL] = EVIL
        for cell in manifest["cells"]:
            cell.update(data=EVIL, init=EVIL + cell["offsets"])

    change_manifest(evil, change)
    page = opened(page_of(evil))
    assert page.evaluate("typeof hacked") == "undefined"
    assert page.locator("script").count() == 1
    assert page.locator('img:not([src^="data:image/png"])').count() == 0
    for query in ("#overview small", ".experiment > p", ".heading", ".settings", ".troubles", ".machines"):
        assert EVIL in page.locator(query).first.text_content(), query
    choose(page, EVIL.replace('"', '\\"'))
    assert page.inner_text("#found") == "8 of 10 cells"
