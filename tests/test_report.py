"""The page of results: its numbers, what it says of troubles, and its use in a browser."""

import base64
import io
import json
import re
import shutil
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from scipy.stats import wilcoxon

from cbm_cli.results import Results
from tests.builders import cbm, change_manifest, change_record, problems_of, run_grid
from tests.pictures import grey, numbers_in, page_of, points_of, tiles_of, trials_of, weights_of

TOYS = """
defaults: {trials: 6, seed: 5, batch: full}
experiments:
  bars:
    description: Toys
    data: {name: bars-and-stripes, size: 2}
    model: {kind: rbm, hidden: 3}
    offsets: [00, dd^b_s]
    sampler: [CD-1, PT_4]
    learning_rate: [0.1, 0.3]
    updates: 600
    evaluate: {method: exact, every: 2}
    table: {scale: total}
  wild: {data: {name: shifting-bar, size: 4, bar: 1}, model: {kind: rbm, hidden: 2}, offsets: dd^b, trials: 2,
    sampler: PCD-1, learning_rate: [0.1, 3.3e38], updates: 20, evaluate: {method: exact, every: 10}}
"""
EVIL = '"><img src=x onerror="hacked=1"></script><script>hacked=1</script>{{ 7 * 6 }}'
SHOWN = {"00": "00", "dd^b_s": "ddᵇₛ", "CD-1": "CD-1", "PT_4": "PT₄"}
CELLS = [*product(("CD-1", "PT_4"), (0.1, 0.3))]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Results of two experiments; not to be changed."""
    return run_grid(TOYS, "bars", "wild", folder=tmp_path_factory.mktemp("report"), output="toys")


@pytest.fixture
def results(made, tmp_path):
    """A copy of them, which a test may damage."""
    return Path(shutil.copytree(made, tmp_path / "toys"))


def written(results, *experiments):
    """Write the page beside the results; return its path, and what the command says."""
    target = results.parent / "page.html"
    return target, cbm("report", results, *experiments, "-o", target).stderr


def read(results, *experiments):
    return page_of(written(results, *experiments)[0].read_text("utf-8"))


@pytest.fixture(scope="module")
def page(made):
    return read(made)


@pytest.fixture(scope="module")
def trials(made):
    return trials_of(made, "bars")


def test_the_page_is_one_file_without_network_and_always_the_same(made, page):
    addresses = [it.at[name] for it in page.all("") for name in ("src", "href") if name in it.at]
    assert all(address.startswith(("data:image/png", "#")) for address in addresses)
    path, said = written(made)
    first = path.read_bytes()
    assert numbers_in(said.rpartition("page.html")[2]) == [f"{len(first) / 1e3:,.0f}"]
    assert len(first) < 300_000
    assert written(made)[0].read_bytes() == first
    texts = " ".join(it.text for it in page.all("section"))
    assert not re.search(r"paper|published|finding|scoreboard", texts, re.I)  # these are own results


def test_the_overview_counts_cells_and_trials(made, page):
    overview = page.all("table")[0]
    for row, name in zip(overview.rows()[1:], ("bars", "wild"), strict=True):
        one = trials_of(made, name).drop_duplicates(["run_id", "trial"])
        cells, diverged = one["run_id"].nunique(), one["diverged"].notna().sum()
        assert row[0].split()[0] == name
        written = datetime.fromtimestamp((Path(made) / name / "trials.jsonl").stat().st_mtime, UTC)
        expected = [f"{cells}", f"{len(one)} of {len(one)}", "0", "0", f"{diverged}"]
        assert row[1:] == [*expected, f"{written:%Y-%m-%d %H:%M} UTC"]
    assert diverged == 2
    assert [(it.at["value"], it.at["max"]) for it in overview.all("progress")] == [("48", "48"), ("4", "4")]


def test_settings_versions_and_filters_are_those_of_the_trials(page, trials):
    varied, fixed = (it.terms() for it in page.all("section", "experiment")[0].all("dl"))
    assert varied == {"offsets": "00, ddᵇₛ", "sampler": "CD-1, PT₄", "learning rate": "0.1, 0.3"}
    assert (fixed["updates"], fixed["data"], fixed["evaluate every"]) == (
        "600",
        "bars-and-stripes",
        "2 updates",
    )
    versions = page.all("dl")[-1].terms()
    for name in ("kernel_version", "numpy_version"):
        assert versions[name.replace("_", " ")].startswith(f"{trials[name].iloc[0]} (52 ")
    boxes = "offsets 00 dd^b_s dd^b,sampler CD-1 PT_4 PCD-1,data bars-and-stripes shifting-bar"
    settings = map(str.split, f"{boxes},learning_rate 0.1 0.3 3.3e38".split(","))
    boxes = [(name, value) for name, *values in settings for value in values]
    assert [(box.at["name"], box.at["value"]) for box in page.all("input")] == boxes


def test_the_table_has_the_mean_of_each_cell_and_what_it_rests_on(made, page, trials):
    table, groups = page.all("table", "results")[0], ["sampler", "learning_rate", "offsets", "trial"]
    header, heading, *rows = table.rows()
    assert (header[1:], heading) == (["00", "ddᵇₛ"], ["bars-and-stripes"])
    found = 8 * trials[trials["update"] > 0].groupby(groups)["train_log_likelihood"].agg(["max", "last"])
    found["update"] = trials.groupby(groups)["train_log_likelihood_max_update"].first()
    entries = iter(table.all("td", "item"))
    for (stub, *texts), (sampler, rate) in zip(rows, CELLS, strict=True):
        assert stub == f"{SHOWN[sampler]}-{rate}"
        own = found.loc[sampler, rate]
        means, test = own.groupby("offsets").mean(), wilcoxon(*own["max"].unstack().to_numpy())
        p, effect = test.pvalue, 1 - 2 * test.statistic / 21  # of the ranks 1 to 6
        for text, (scheme, mean) in zip(texts, means.iterrows(), strict=True):
            entry, numbers = next(entries), re.findall(r"-?[\d.]+", text.replace("−", "-"))
            expected = [mean["max"], own.loc[scheme, "max"].std(), mean["last"]]
            decimals = [len(number.partition(".")[2]) for number in numbers]
            assert numbers == [f"{it:.{n}f}" for it, n in zip(expected, decimals, strict=True)]
            assert float(entry.at["data-sort"]) == pytest.approx(mean["max"], rel=1e-12)
            best, about = mean["max"] == means["max"].max(), numbers_in(entry.at["title"])
            assert about[:2] + about[-1:] == ["6", "6", f"{mean['update']:,.0f}"]
            assert about[2:-1] == ([] if best else [f"{p:.2g}", "6", f"{effect:.2f}"])
            assert bool(entry.all("strong")) == (best or p >= 0.05)
    assert page.all("pre")[0].text.split() == cbm("table", made, "bars", "-f", "latex").stdout.split()


def scale_of(panel):
    """What places across and down stand for, by the numbers of the axes."""
    texts = [(it.at["text-anchor"], float(it.at["x"]), float(it.text)) for it in panel.all("text")]
    across = [text[1:] for text in texts if text[0] == "middle"]
    down = [float(it.at["d"].split()[1].partition("H")[0]) for it in panel.all("path", "grid")]
    values = [text[2] for text in texts if text[0] == "end"]
    return np.poly1d(np.polyfit(*zip(*across, strict=True), 1)), np.poly1d(np.polyfit(down, values, 1))


def test_curves_bands_dots_and_markers_are_those_of_the_trials(page, trials):
    picture = page.all("section", "experiment")[0].all("div", "holds")[0]
    keys = [(it.text, it.all("svg")[0], it.all("path")) for it in picture.all("p", "legend")[0].all("span")]
    looks = {n: (svg.at["style"], p[0].at["stroke-dasharray"]) for n, svg, p in keys}
    assert looks == {"00": ("--c:currentColor", ""), "ddᵇₛ": ("--c:#009E73", "8 3.2")}
    for panel, (sampler, rate) in zip(picture.all("figure", "panel"), CELLS, strict=True):
        assert panel.all("figcaption")[0].text == f"{SHOWN[sampler]}, η = {rate}"
        (x, y), lines = scale_of(panel), zip(panel.all("g"), panel.all("path", "item"), SHOWN, strict=False)
        close, own = {"rtol": 0, "atol": 2 * abs(y.c[0])}, trials[trials.sampler == sampler]
        letters = max(len(it.text) for it in panel.all("text") if it.at["text-anchor"] == "end")
        left = -float(panel.all("svg")[0].at["viewbox"].split()[0])
        assert 40 + 50 * letters < left < 100 + 80 * letters  # a letter is some 60 units wide
        for slot, (line, marks, scheme) in enumerate(lines):
            tags = [line.at[f"data-{name}"] for name in ("offsets", "sampler", "learning_rate")]
            assert tags == [scheme, sampler, f"{rate}"]
            title, path = line.all("title")[0].text, {it.at["class"]: it.at for it in line.all("path")}
            look = (line.at["style"], path["line"]["stroke-dasharray"])
            assert (title.split(";")[0], look) == (SHOWN[scheme], looks[SHOWN[scheme]])
            table = own[(own.offsets == scheme) & (own.learning_rate == rate)]
            table = 8 * table.pivot_table("train_log_likelihood", "update", "trial")
            points = points_of(path["line"]["d"])
            updates = (x(points[:, 0]) / 2).round() * 2
            assert (len(points), updates[0], updates[-1]) == (200, 0, 600)
            np.testing.assert_allclose(y(points[:, 1]), table.median(axis=1)[updates], **close)
            high, low = points_of(path["band"]["d"]).reshape(2, 200, 2)
            np.testing.assert_allclose(y(high[:, 1]), table.quantile(0.75, axis=1)[updates], **close)
            np.testing.assert_allclose(y(low[::-1, 1]), table.quantile(0.25, axis=1)[updates], **close)
            centres = re.findall(r"M(-?\d+ -?\d+)m", marks.at["d"])
            assert marks.at["style"] == line.at["style"]
            assert len(centres) >= 5
            assert {*centres} <= {f"{a:.0f} {b:.0f}" for a, b in points}
            dots = np.array(re.findall(r"M(\d+) (-?\d+)h0", path["dots"]["d"]), dtype=float)
            within = table.loc[600][table.loc[600].between(y(1500), y(0))]
            np.testing.assert_allclose(y(dots[:, 1]), within, **close)
            assert path["beyond"]["d"].count("M") == 6 - len(within)
            assert ((dots[:, 0] - 2200) // 110 == slot).all()
            quartiles = [f"{-value:.5g}" for value in table.loc[600].quantile([0.25, 0.5, 0.75])]
            assert numbers_in(title.rpartition(":")[2]) == quartiles
    note = picture.all("p", "note")[0].text
    assert note.lower().startswith("train log-likelihood (of all rows) over updates")
    assert ["Median" in note, "quartiles" in note, "200" in numbers_in(note)] == [True] * 3


def test_the_upper_bound_lies_where_the_axis_has_its_value(tmp_path):
    grid = """{trials: 1, data: {name: bars-and-stripes, size: 2}, model: {kind: rbm, hidden: 4},
        offsets: dd^b, sampler: exact, learning_rate: 2.0, updates: 800, batch: full,
        evaluate: {method: exact, every: 20}}"""
    [panel] = read(run_grid(f"experiments: {{good: {grid}}}", folder=tmp_path)).all("figure", "panel")
    (_, y), [bound] = scale_of(panel), panel.all("path", "bound")
    at_most = np.log(1 / 8) / 2 + np.log(2 / 8) / 2  # a row; two of eight come twice
    np.testing.assert_allclose(
        y(float(re.findall(r"\d+", bound.at["d"])[1])), at_most, rtol=0, atol=2 * abs(y.c[0])
    )


def test_the_longest_curve_ends_the_axis_that_it_shares_with_shorter_ones(page):
    wild = page.all("section", "experiment")[1]
    lines = [group.all("path", "line")[0].at["d"] for group in wild.all("g", "item")]
    assert sorted(points_of(line)[-1, 0] for line in lines) == [0, 2200]  # one diverged at once


def test_filters_are_of_each_methods_machine_with_the_best_final_value(page, trials):
    last = trials[trials["update"] == 600].sort_values("train_log_likelihood")
    for shown, scheme in zip(page.all("div", "machines")[0].all("figure"), ("00", "dd^b_s"), strict=True):
        best = last[last.offsets == scheme].iloc[-1]
        names = ["bars-and-stripes", SHOWN[scheme], SHOWN[best["sampler"]], f"η = {best['learning_rate']}"]
        assert shown.text == ", ".join([*names, f"trial {best['trial']}"])
        content = base64.b64decode(shown.all("img")[0].at["src"].partition(",")[2])
        tiles = tiles_of(imread(io.BytesIO(content), format="png")[..., 0], 2, 2)
        np.testing.assert_allclose(tiles[:3], grey(weights_of(best["machine"])["weights_0"].T), atol=0.01)


def test_diverged_and_failed_trials_are_listed_with_their_reason(results):
    store = Results(results).store("bars")
    run = store.manifest()["cells"][0]["run_id"]
    store.write_failure(run, 6, "Traceback (most recent call last):\n  in code\nValueError: not <enough>\n")
    store.flush()
    page = read(results)
    bars, wild = (it.text for it in page.all("ul", "troubles"))
    assert "ValueError: not <enough>" in bars
    assert numbers_in(bars.partition("η")[2])[:2] == ["0.1", "6"]
    assert numbers_in(wild.rpartition("3.3e38")[2]) == ["2", "10"]  # trials, the first at update
    assert page.all("table")[0].rows()[1][4:6] == ["1", "0"]


def test_unfinished_experiments_are_no_complete_ones(results):
    change_manifest(results / "bars", lambda manifest: manifest.update(trials=9))
    page = read(results, "bars")
    assert numbers_in(page.all("p", "warning")[0].text)[:2] == ["48", "72"]
    assert page.all("table")[0].rows()[1][2] == "48 of 72"
    assert "n=6/9" in page.text
    assert numbers_in(page.all("td", "item")[0].at["title"])[:2] == ["6", "9"]
    for name in ("trials.jsonl", "summary.csv"):
        (results / "bars" / name).unlink()
    page = read(results, "bars")
    assert page.all("table")[0].rows()[1][2] == "0 of 72"
    assert numbers_in(page.all("p", "warning")[0].text) == ["72", "0", "0"]


def test_mixed_versions_and_what_was_not_evaluated_are_said(results):
    store = Results(results).store("bars")
    run = store.manifest()["cells"][0]["run_id"]
    newer = store.made(run, 2) | {"kernel": 99}
    change_record(store.folder, (run, 2), lambda record: record.update(made="newer"))
    store.journal.append({"made": "newer", "with": newer})
    store.flush()
    change_manifest(results / "bars", lambda manifest: manifest["table"].update(metric="test_cost"))
    path, said = written(results, "bars")
    page = page_of(path.read_text("utf-8"))
    for text in (said.splitlines()[0], page.all("p", "warning")[0].text):
        assert "kernel version" in text
        assert numbers_in(text)[1:4] == ["47", "99", "1"]
    assert not page.all("table", "results")
    assert any("test_cost" in note.text for note in page.all("p", "note"))


@pytest.mark.parametrize(
    ("words", "content"), [("toys basr", "bars"), ("none", "none"), ("toys -o f/p.html", "f")]
)
def test_bad_input_is_named(made, tmp_path, words, content, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("toys").symlink_to(made)
    Path("f").touch()
    said = cbm("report", *words.split(), code=2)
    assert content in problems_of(said)[0][0] or content in said.stderr
    assert not Path("report.html").exists()


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
    page = opened(written(made)[0])
    assert page.inner_text("#found") == "10 of 10 cells"
    choose(page, "dd^b_s")
    assert seen(page, ".results thead th")[1:] == ["ddᵇₛ"]
    assert seen(page, "h2") == ["Overview", "bars", "Versions"]  # wild has other schemes
    assert page.inner_text("#found") == "4 of 10 cells"
    choose(page, "PT_4")
    choose(page, "0.3")
    assert seen(page, ".results tbody th[scope=row]") == ["PT₄-0.3"]
    assert len(seen(page, ".panel")) == 1
    assert page.locator(".panel g.item:visible").count() == 1
    choose(page, "00")
    assert page.locator(".panel g.item:visible").count() == 2
    page.click("button[type=reset]")
    page.wait_for_function("document.getElementById('found').textContent === '10 of 10 cells'")


def test_keys_alone_filter_and_sort_by_numbers_and_back(made, opened):
    cells = json.loads(cbm("table", made, "bars", "-f", "json").stdout)["cells"]
    means = [cell["mean"] for cell in cells if cell["offsets"] == "00"]
    page = opened(written(made)[0])
    page.locator('input[value="00"]').focus()
    page.keyboard.press("Space")
    assert page.inner_text("#found") == "4 of 10 cells"
    rows = page.locator(".results").first.locator("tr.holds")
    for order, expected in (
        ("descending", sorted(means)[::-1]),
        ("ascending", sorted(means)),
        ("none", means),
    ):
        page.locator(".results thead button").nth(1).focus()
        page.keyboard.press("Enter")
        numbers = [float(row.locator("td").first.get_attribute("data-sort")) for row in rows.all()]
        assert numbers == expected
        assert page.locator(".results thead th").nth(1).get_attribute("aria-sort") == order


def test_a_table_is_copied_as_the_latex_of_cbm_table(made, opened):
    page = opened(written(made)[0])
    page.locator(".copy").first.click()
    page.wait_for_selector("text=Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == cbm("table", made, "bars", "-f", "latex").stdout.strip()


def test_light_and_dark_follow_the_system_until_the_button_is_used_and_a_phone_shows_all(made, opened):
    def darkness(page):
        return page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"

    page = opened(written(made)[0], color_scheme="dark")
    assert darkness(page)
    page.click("#theme")
    assert not darkness(page)
    page = opened(written(made)[0], color_scheme="light", size={"width": 390, "height": 844})
    assert not darkness(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    ready = page.evaluate("performance.timing.domInteractive - performance.timing.navigationStart")
    assert ready < 1000


def test_hostile_strings_stay_text(results, opened):
    evil = results.rename(results.parent / "<img src=x onerror=hacked=1>")
    store = Results(evil).store("bars")
    store.write_failure(store.manifest()["cells"][0]["run_id"], 6, EVIL)
    store.flush()

    def change(manifest):
        manifest.update(description=EVIL, grid_commit=EVIL)
        manifest["machine"][EVIL] = EVIL
        for cell in manifest["cells"]:
            cell["columns"] |= {"data": EVIL, "init": EVIL + cell["columns"]["offsets"]}

    change_manifest(evil / "bars", change)
    page = opened(written(evil)[0])
    assert page.evaluate("typeof hacked") == "undefined"
    assert page.locator("script").count() == 1
    assert page.locator('img:not([src^="data:image/png"])').count() == 0
    for query in ("#overview small", ".experiment > p", ".heading", ".settings", ".troubles", ".machines"):
        assert EVIL in page.locator(query).first.text_content(), query
    choose(page, EVIL.replace('"', '\\"'))
    assert page.inner_text("#found") == "8 of 10 cells"
