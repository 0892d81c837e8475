"""The page of results: its numbers, what it says of troubles, and its use in a browser."""

import base64
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from scipy.stats import wilcoxon

from cbm_cli.results import Results
from cbm_cli.results.contents import sealed
from cbm_cli.statistics.findings import Evidence, Judged
from tests.builders import cbm, problems_of
from tests.pictures import numbers_in, page_of, points_of, tiles_of, trials_of

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
SHOWN = {"00": "00", "dd^b_s": "ddᵇₛ", "CD-1": "CD-1", "PT_4": "PT₄"}


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


def written(results, *experiments):
    """Write the page beside the results; return its path, and what the command says."""
    target = results.parent / "page.html"
    return target, cbm("report", results, *experiments, "-o", target).stderr


def read(results, *experiments):
    return page_of(written(results, *experiments)[0].read_text("utf-8"))


def change_manifest(results, change):
    """Change the manifest of the experiment bars."""
    manifest = Results(results).store("bars").manifest()
    change(manifest)
    (results / "bars" / "manifest.json").write_bytes(sealed(manifest))


@pytest.fixture(scope="module")
def page(made):
    return read(made)


@pytest.fixture(scope="module")
def trials(made):
    return trials_of(made, "bars")


def own(trials, tags):
    """The trials of the cell that a part of the page is tagged with."""
    own = trials[(trials.offsets == tags["data-offsets"]) & (trials.sampler == tags["data-sampler"])]
    return own[own.learning_rate == float(tags["data-learning_rate"])]


def test_the_page_is_one_file_without_network_and_always_the_same(made, page):
    addresses = [it.at[name] for it in page.all("") for name in ("src", "href") if name in it.at]
    assert all(address.startswith(("data:image/png", "#")) for address in addresses)
    path, said = written(made)
    first = path.read_bytes()
    assert numbers_in(said.rsplit("page.html")[1]) == [f"{len(first) / 1e3:,.0f}"]
    assert len(first) < 300_000
    assert written(made)[0].read_bytes() == first
    texts = " ".join(it.text for it in page.all("body")[0].all("section"))
    assert not re.search(r"paper|published|finding|scoreboard", texts, re.I)  # these are own results


def test_the_overview_counts_cells_and_trials(made, page):
    (overview,) = [it for it in page.all("section") if it.at.get("id") == "overview"]
    _, *rows = overview.all("table")[0].rows()
    for row, name in zip(rows, ("bars", "wild"), strict=True):
        one = trials_of(made, name).drop_duplicates(["run_id", "trial"])
        number, diverged = len(one), int(one["diverged"].notna().sum())
        assert row[0].split()[0] == name
        assert row[1:6] == [str(one["run_id"].nunique()), f"{number} of {number}", "0", "0", str(diverged)]
    assert diverged == 2
    bars = [(bar.at["value"], bar.at["max"]) for bar in overview.all("progress")]
    assert bars == [("48", "48"), ("4", "4")]


def test_settings_versions_and_filters_are_those_of_the_trials(page, trials):
    (bars, _), (versions,) = page.all("section", "experiment"), page.all("section")[-1:]
    varied, fixed = bars.all("dl", "settings")
    assert varied.terms() == {"offsets": "00, ddᵇₛ", "sampler": "CD-1, PT₄", "learning rate": "0.1, 0.3"}
    assert {
        "updates": "600",
        "data": "bars-and-stripes",
        "evaluate every": "2 updates",
    }.items() <= fixed.terms().items()
    for name in ("kernel", "numpy"):
        assert numbers_in(versions.all("dl")[0].terms()[f"{name} version"])[-1] == "52"
        assert (
            versions.all("dl")[0]
            .terms()[f"{name} version"]
            .startswith(f"{trials[f'{name}_version'].iloc[0]} (")
        )
    boxes = [(box.at["name"], box.at["value"]) for box in page.all("input")]
    schemes = [("offsets", it) for it in ("00", "dd^b_s", "dd^b")]
    assert boxes[:6] == [*schemes, *(("sampler", it) for it in ("CD-1", "PT_4", "PCD-1"))]
    assert boxes[6:] == [
        ("data", "bars-and-stripes"),
        ("data", "shifting-bar"),
        *(("learning_rate", it) for it in ("0.1", "0.3", "3.3e+38")),
    ]


def test_the_table_has_the_mean_of_each_cell_and_what_it_rests_on(made, page, trials):
    table = page.all("table", "results")[0]
    header, *rows = table.rows()
    assert header[1:] == ["00", "ddᵇₛ"]
    groups = trials[trials["update"] > 0].groupby(["sampler", "learning_rate", "offsets", "trial"])
    best = 8 * groups["train_log_likelihood"].agg(["max", "last"])
    best["update"] = trials.groupby(groups.grouper.names)["train_log_likelihood_max_update"].first()
    entries = iter(table.all("td", "item"))
    for row, (sampler, rate) in zip(
        rows, [(s, r) for s in ("CD-1", "PT_4") for r in (0.1, 0.3)], strict=True
    ):
        assert row[0] == f"{SHOWN[sampler]}-{rate}"
        means = best.loc[sampler, rate].groupby("offsets").mean()
        p = wilcoxon(*best["max"].loc[sampler, rate].unstack("trial").to_numpy()).pvalue
        for text, (scheme, mean) in zip(row[1:], means.iterrows(), strict=True):
            entry, numbers = next(entries), [*map(float, re.findall(r"-?[\d.]+", text.replace("−", "-")))]
            spread = best["max"].loc[sampler, rate, scheme].std()
            assert numbers == pytest.approx([mean["max"], spread, mean["last"]], rel=2e-3, abs=6e-3)
            assert float(entry.at["data-sort"]) == pytest.approx(mean["max"], rel=1e-12)
            is_best = mean["max"] == means["max"].max()
            told = [] if is_best else [f"{p:.2g}", "6"]
            about = numbers_in(entry.at["title"])
            assert about[:2] == ["6", "6"]
            assert about[-1] == f"{mean['update']:,.0f}"
            assert about[2:4] == told or is_best
            assert bool(entry.all("strong")) == (is_best or p >= 0.05)
    assert page.all("pre")[0].text.split() == cbm("table", made, "bars", "-f", "latex").stdout.split()


def looks_of(picture):
    """Colour, dashes and hollow markers by the names of a legend."""
    keys = [(it.text, it.all("svg", "key")[0]) for it in picture.all("p", "legend")[0].all("span")]
    return {
        name: (
            key.at["style"],
            key.all("path", "line")[0].at["stroke-dasharray"],
            bool(key.all("path", "hollow")),
        )
        for name, key in keys
    }


def scale_of(panel):
    """What places across and down stand for, by the numbers of the axes."""
    texts = [it for it in panel.all("text") if it.text]
    across = [(float(it.at["x"]), float(it.text)) for it in texts if it.at["text-anchor"] == "middle"]
    values = [float(it.text) for it in texts if it.at["text-anchor"] == "end"]
    down = [float(it.at["d"].split()[1].partition("H")[0]) for it in panel.all("path", "grid")]
    return np.poly1d(np.polyfit(*zip(*across, strict=True), 1)), np.poly1d(np.polyfit(down, values, 1))


def test_curves_bands_dots_and_markers_are_those_of_the_trials(page, trials):
    picture = page.all("section", "experiment")[0].all("div", "holds")[0]
    looks, panels = looks_of(picture), picture.all("figure", "panel")
    assert looks == {"00": ("--c:currentColor", "", False), "ddᵇₛ": ("--c:#009E73", "8 3.2", True)}
    captions = [f"{SHOWN[sampler]}, η = {rate}" for sampler in ("CD-1", "PT_4") for rate in (0.1, 0.3)]
    assert [panel.all("figcaption")[0].text for panel in panels] == captions
    for panel in panels:
        x, y = scale_of(panel)
        close = {"rtol": 0, "atol": 2 * abs(y.c[0])}
        lines, marked = panel.all("g", "item"), [it for it in panel.all("path", "item")]
        for slot, (line, marks, name) in enumerate(zip(lines, marked, looks, strict=True)):
            cell = own(trials, line.at)
            assert (
                panel.all("figcaption")[0].text
                == f"{SHOWN[line.at['data-sampler']]}, η = {line.at['data-learning_rate']}"
            )
            assert name == SHOWN[line.at["data-offsets"]] == line.all("title")[0].text.split(";")[0]
            assert looks[name] == (
                line.at["style"],
                line.all("path", "line")[0].at["stroke-dasharray"],
                "hollow" in marks.at["class"],
            )
            assert marks.at["style"] == line.at["style"]
            table = 8 * cell.pivot_table("train_log_likelihood", "update", "trial")
            points = points_of(line.all("path", "line")[0].at["d"])
            updates = (x(points[:, 0]) / 2).round() * 2
            assert len(points) == 200
            assert (updates[0], updates[-1]) == (0, 600)
            np.testing.assert_allclose(y(points[:, 1]), table.median(axis=1)[updates], **close)
            high, low = points_of(line.all("path", "band")[0].at["d"]).reshape(2, 200, 2)
            np.testing.assert_allclose(y(high[:, 1]), table.quantile(0.75, axis=1)[updates], **close)
            np.testing.assert_allclose(y(low[::-1, 1]), table.quantile(0.25, axis=1)[updates], **close)
            centres = re.findall(r"M(-?\d+) (-?\d+)m", marks.at["d"])
            assert len(centres) >= 5
            assert {*centres} <= {(f"{a:.0f}", f"{b:.0f}") for a, b in points}
            dots = np.array(re.findall(r"M(\d+) (-?\d+)h0", line.all("path", "dots")[0].at["d"]), dtype=float)
            beyond = line.all("path", "beyond")[0].at["d"].count("M")
            finals = table.loc[600].to_numpy()
            assert len(dots) + beyond == 6
            assert beyond or np.allclose(y(dots[:, 1]), finals, **close)
            assert ((dots[:, 0] - 2200) // 110 == slot).all()
            quartiles = [f"{value:.5g}" for value in np.quantile(finals, [0.25, 0.5, 0.75])]
            assert numbers_in(line.all("title")[0].text.rpartition(":")[2]) == [
                it.strip("-") for it in quartiles
            ]
    note = picture.all("p", "note")[0].text
    assert note.lower().startswith("train log-likelihood (of all rows) over updates")
    assert ["median" in note, "quartiles" in note, numbers_in(note)[0]] == [True, True, "200"]


def test_filters_are_of_each_methods_machine_with_the_best_final_value(page, trials):
    last = trials[trials["update"] == 600]
    for shown, scheme in zip(page.all("div", "machines")[0].all("figure"), ("00", "dd^b_s"), strict=True):
        best = last.loc[last.offsets == scheme].sort_values("train_log_likelihood").iloc[-1]
        settings = [
            f"bars-and-stripes, {SHOWN[scheme]}",
            SHOWN[best["sampler"]],
            f"η = {best['learning_rate']}",
        ]
        assert shown.text == ", ".join([*settings, f"trial {best['trial']}"])
        with np.load(best["machine"]) as machine:
            weights = machine["weights_0"].T
        (image,) = shown.all("img")
        pixels = imread(io.BytesIO(base64.b64decode(image.at["src"].partition(",")[2])), format="png")[..., 0]
        tiles = tiles_of(pixels, 2, 2).reshape(-1, 4)[:3]
        np.testing.assert_allclose(
            tiles, 0.5 + 0.5 * weights / np.abs(weights).max(axis=1, keepdims=True), atol=0.01
        )


def test_findings_on_the_experiments_of_the_page_are_listed_and_others_counted(made, monkeypatch):
    def judged(experiment, outcomes):
        finding = {"name": "n", "place": "6.1, <i>figure</i>", "says": f"{EVIL} in {experiment}."}
        finding |= {"experiments": [experiment], "comparisons": 1}
        finding["checks"] = [{"cell": {"offsets": "00"}, "below": 1}]
        return Judged(
            finding, [Evidence(0, "run", "1", 0.5, 1.0, 6, 0.03, outcome, True) for outcome in outcomes]
        )

    found = [judged("bars", [1]), judged("bars", []), judged("wild", [-1]), judged("divergence", [])]
    monkeypatch.setattr("cbm_cli.report.page.check_findings", lambda results: found)
    board = next(it for it in read(made).all("section") if it.at.get("id") == "scoreboard")
    items = board.all("ul", "findings")[0].all("li")
    assert [(it.at["class"], it.all("strong")[0].text) for it in items] == [
        (verdict.replace(" ", "-"), verdict) for verdict in ("reproduced", "not run", "contradicted")
    ]
    assert EVIL.split()[0] + EVIL.split()[1] in items[0].text.replace(" ", "")
    assert numbers_in(items[0].all("small")[0].text) == ["6.1", "1", "1"]
    assert numbers_in(board.all("p", "note")[-1].text) == ["1"]


def test_diverged_and_failed_trials_are_listed_with_their_reason(results):
    store = Results(results).store("bars")
    run = store.manifest()["cells"][0]["run_id"]
    store.write_failure(run, 6, "Traceback (most recent call last):\n  in code\nValueError: not <enough>\n")
    page = read(results)
    bars, wild = (it.text for it in page.all("ul", "troubles"))
    assert "ValueError: not <enough>" in bars
    assert numbers_in(bars.split("η")[1])[:2] == ["0.1", "6"]
    assert numbers_in(wild.rpartition("e+38")[2]) == ["2", "10"]  # trials, the first at update
    assert page.all("table")[0].rows()[1][4:6] == ["1", "0"]


def test_without_finished_trials_the_page_says_what_is_planned(results):
    for name in ("trials", "recent", "summary.csv", "summary.sha256"):
        path = results / "bars" / name
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    page = read(results, "bars")
    assert page.all("table")[0].rows()[1][2] == "0 of 48"
    assert numbers_in(page.all("p", "warning")[0].text) == ["48", "0", "0"]


def test_incomplete_experiments_are_no_complete_ones(results):
    change_manifest(results, lambda manifest: manifest.update(trials=9))
    page = read(results, "bars")
    assert numbers_in(page.all("p", "warning")[0].text)[:2] == ["48", "72"]
    assert page.all("table")[0].rows()[1][2] == "48 of 72"
    assert "n=6/9" in page.text
    assert numbers_in(page.all("td", "item")[0].at["title"])[:2] == ["6", "9"]


def test_mixed_versions_are_shown_with_a_warning(results):
    store = Results(results).store("bars")
    run = store.manifest()["cells"][0]["run_id"]
    record = store._record(run, 2)
    record["row"]["kernel_version"] = 99
    store.files.write(f"trials/{run}/trial-002.json", sealed(record))
    path, said = written(results, "bars")
    (warning,) = page_of(path.read_text("utf-8")).all("p", "warning")
    for text in (said.splitlines()[0], warning.text):
        assert "kernel version" in text
        assert numbers_in(text)[1:4] == ["47", "99", "1"]


@pytest.mark.parametrize(
    ("arguments", "kind", "content"),
    [
        (("toys", "basr"), "unknown", "bars"),
        (("nowhere",), "missing", "nowhere"),
        (("toys", "-o", "file/page.html"), "missing", "file"),
    ],
)
def test_bad_input_is_named(made, tmp_path, arguments, kind, content, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("toys").symlink_to(made)
    Path("file").touch()
    said = cbm("report", *arguments, code=2)
    assert [it[2] for it in problems_of(said)] == [kind]
    assert content in said.stderr
    assert not Path("report.html").exists()


def test_what_was_not_evaluated_has_no_table(results):
    change_manifest(results, lambda manifest: manifest["table"].update(metric="test_cost"))
    page = read(results, "bars")
    assert not page.all("table", "results")
    assert any("test_cost" in note.text for note in page.all("p", "note"))


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
    page = opened(written(made)[0])
    page.locator('input[value="00"]').focus()
    page.keyboard.press("Space")
    assert page.inner_text("#found") == "4 of 10 cells"
    page.locator(".results thead button").nth(1).focus()
    page.keyboard.press("Enter")
    assert page.locator(".results th[aria-sort]").get_attribute("aria-sort") == "descending"


def test_columns_sort_by_their_numbers_and_back(made, opened):
    cells = json.loads(cbm("table", made, "bars", "-f", "json").stdout)["cells"]
    means = [cell["mean"] for cell in cells if cell["offsets"] == "00"]
    page = opened(written(made)[0])
    rows = page.locator(".results").first.locator("tr.holds")
    for expected in (sorted(means, reverse=True), sorted(means), means):
        page.locator(".results").first.locator("thead button").nth(1).click()
        numbers = [float(row.locator("td").first.get_attribute("data-sort")) for row in rows.all()]
        assert numbers == expected


def test_a_table_is_copied_as_the_latex_of_cbm_table(made, opened):
    page = opened(written(made)[0])
    page.locator(".copy").first.click()
    page.wait_for_selector("text=Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == cbm("table", made, "bars", "-f", "latex").stdout.strip()


def test_light_and_dark_follow_the_system_until_the_button_is_used(made, opened):
    def darkness(page):
        return page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"

    page = opened(written(made)[0], color_scheme="dark")
    assert darkness(page)
    page.click("#theme")
    assert not darkness(page)
    assert not darkness(opened(written(made)[0], color_scheme="light"))


def test_a_phone_shows_all_without_scrolling_sideways_and_soon(made, opened):
    page = opened(written(made)[0], size={"width": 390, "height": 844})
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
    page = opened(written(evil)[0])
    assert page.evaluate("typeof hacked") == "undefined"
    assert page.locator("script").count() == 1
    assert page.locator('img:not([src^="data:image/png"])').count() == 0
    for query in ("#overview small", ".experiment > p", ".heading", ".settings", ".troubles", ".machines"):
        assert EVIL in page.locator(query).first.text_content(), query
    choose(page, EVIL.replace('"', '\\"'))
    assert page.inner_text("#found") == "8 of 10 cells"
