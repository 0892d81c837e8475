"""Words of the command line: helps that fit, paths to write to, numbers, commands to type next, JSON."""

import json
import re
import shlex
from pathlib import Path

import click
import numpy as np
import pytest

from cbm_cli.cli import main
from cbm_cli.execution import forecast
from cbm_cli.machines.estimates import ais, reverse_ais
from cbm_cli.machines.likelihood import doubt_of
from cbm_cli.machines.limits import likelihood_seconds
from cbm_cli.machines.samples import exact_samples
from cbm_cli.text import decimal, text_of
from tests.builders import GRID, cbm, summary

ROWS = np.random.default_rng(5).integers(0, 2, (60, 6)).astype(np.uint8)
TWO = GRID.replace("size: 2}", "size: [2, 3]}")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("grid.yaml").write_text(GRID)


def run(*words, output="results"):
    return cbm("run", "grid.yaml", "-o", output, "-j", 0, *words)


def test_every_one_line_help_fits_80_columns():
    def groups(command, name):
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=name, terminal_width=78)
            yield name, command.get_help(context)
            for one in command.list_commands(context):
                yield from groups(command.get_command(context, one), one)

    helps = dict(groups(main, "cbm"))
    assert set(helps) >= {"cbm", "data"}
    for name, text in helps.items():
        cut = [line for line in text.splitlines() if line.endswith("...") and line.startswith("  ")]
        assert cut == [], name
        assert max(map(len, text.splitlines())) <= 80


# ---- Where to write ----

PLACES = [
    ("run grid.yaml -o {}", ""),
    ("report -o {}", ".html"),
    ("plot curves -o {}", ".png"),
    ("figure 3 -o {}", ".pdf"),
    ("sample m.npz -o {}", ".npz"),
    ("sample m.npz --png {}", ".png"),
    ("features m.npz -o {}", ""),
    ("run grid.yaml --plot {}", ".png"),
]


@pytest.mark.parametrize(
    ("command", "suffix"), PLACES, ids=[f"{c.split()[0]} {c.split()[-2]}" for c, _ in PLACES]
)
def test_every_command_refuses_a_place_where_it_cannot_or_should_not_write(folder, command, suffix):
    np.savez("m.npz", anything=ROWS)

    def said(place):
        before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
        (line,) = cbm(*command.format(place).split(), code=2).stderr.splitlines()
        assert {path: path.stat().st_mtime_ns for path in Path().rglob("*")} == before
        assert line.startswith(f"Error: {command.split()[-2]} {place}: ")
        return line

    assert f"there is no folder {Path.cwd() / 'nosuch'}" in said(f"nosuch/x{suffix}")
    assert (
        "grid.yaml: is a file" in said("grid.yaml") if not suffix else "suffix must be" in said("grid.yaml")
    )
    if suffix:
        Path(f"there{suffix}").mkdir()
        assert f"is a folder; name a file in it, such as there{suffix}/new." in said(f"there{suffix}")
        assert "is a folder" in said(".")
    else:
        assert "is the name of a grid" in said("other.yaml")
        assert all("is the name of a file" in said(name) for name in ("-", "page.html", "x.PNG", "f.npz"))


def test_samples_do_not_overwrite_what_they_are_drawn_from(folder):
    np.savez("rows.npz", train=ROWS)
    for words in (("rows.npz",), ("m.npz", "--data", "rows.npz")):
        assert "is read by this command" in cbm("sample", *words, "-o", "./rows.npz", code=2).stderr


# ---- The best machine of each data set, and the metric ----


def test_each_data_set_has_a_best_machine_of_its_own(folder):
    Path("grid.yaml").write_text(TWO)
    run("--no-table")
    found = [json.loads(line) for line in cbm("best", "results", "bars", "--json").stdout.splitlines()]
    rows = summary("results")
    for one, size in zip(found, "23", strict=True):
        finals = [float(row["train_log_likelihood_final"]) for row in rows if row["data_size"] == size]
        assert one["value"] == max(finals)
        assert one["settings"]["data_size"] == size
    assert found[0]["value"] > found[1]["value"] + 1  # fewer pixels: such values cannot be compared
    result = cbm("best")
    assert result.stdout.split() == [one["path"] for one in found]
    for line, one in zip(result.stderr.splitlines(), found, strict=True):
        assert line.startswith(
            f"bars-and-stripes: train_log_likelihood {one['value']:.4f} per row at the end"
        )
        assert f"data_size {one['settings']['data_size']}" in line


def test_the_default_metric_is_one_for_all_commands(folder):
    np.savez("rows.npz", train=ROWS[:30], test=ROWS[30:])
    np.savez("more.npz", train=ROWS[:30])
    text = GRID.replace("    table: {scale: total}\n", "").replace("[CD-1, PT_4]", "CD-1")
    both = "[{path: rows.npz}, {path: more.npz}]"
    for data, part in (("{path: rows.npz}", "test"), (both, "train")):
        Path("grid.yaml").write_text(text.replace("{name: bars-and-stripes, size: 2}", data))
        printed = run(output=part).stdout
        assert f"Maximum {part} log-likelihood during training, per row: mean" in printed
        assert f"Maximum {part} log-likelihood during training, per row: mean" in cbm("table", part).stdout
        best = cbm("best", part).stderr.splitlines()[0]
        assert "test_log_likelihood" in best  # each data set has its own
        cbm("plot", part, "curves", "-o", "curves.svg")
        assert f"{part} log-likelihood (per row)" in Path("curves.svg").read_text()
        cbm("report", part, "-o", "report.html")
        assert f"{part.capitalize()} log-likelihood (per row) over updates" in Path("report.html").read_text()
    Path("grid.yaml").write_text(Path("grid.yaml").read_text() + "    table: {scale: total}\n")
    total = run(output="total").stdout
    assert "Maximum train log-likelihood during training, of all 30 rows" in total


# ---- Runs that the grid no longer asks for ----


def test_longer_runs_that_a_short_one_hides_are_told_of_listed_and_shown(folder):
    run("--no-table")
    long = cbm("table").stdout
    said = run("--set", "updates=40", "--no-table").stderr
    assert "bars: 4 other runs (updates 100) are kept, which this grid does not ask for" in said
    assert "table results bars --all-runs" in said
    assert "4 runs no longer in the grid" in cbm("ls").stdout
    assert "table results EXPERIMENT --all-runs" in cbm("ls").stderr
    lines = [line.split() for line in cbm("ls", "results", "bars").stdout.splitlines()[1:]]
    assert [line[4] for line in lines] == ["40"] * 4 + ["100"] * 4  # the settings that tell all runs apart
    assert all(line[5:10] == ["2", "not", "in", "the", "grid"] for line in lines[4:])
    every = cbm("table", "results", "bars", "--all-runs").stdout
    for row in ("CD-1-0.1", "PT_4-0.1"):
        (before,) = (line for line in long.splitlines() if row in line)
        (after,) = (line for line in every.splitlines() if f"{row}-100 " in line)
        assert after.split()[1:] == before.split()[1:]
        assert f"{row}-40 " in every


# ---- cbm show ----


def test_show_takes_a_hash_or_a_path_and_is_short(folder):
    Path("grid.yaml").write_text(GRID.replace("trials: 2", "trials: 12"))
    run("--no-table")
    path = cbm("best").stdout.strip()
    run_id = Path(path).parent.name
    text = cbm("show", path).stdout
    assert text == cbm("show", run_id[-10:]).stdout
    assert text == cbm("show", "results", run_id).stdout
    assert text == cbm("show", str(Path(path).parent)).stdout
    lines = text.splitlines()
    assert len(lines) < 40
    first = lines.index("setting  value")
    assert [line.split()[0] for line in lines[first + 1 : first + 3]] == ["sampler", "offsets"]
    assert sum(" finished  " in line for line in lines) == 12
    assert "per row" in lines[-1]


# ---- Commands to type next ----


def test_commands_to_type_next_are_quoted(folder):
    for words in (
        run("--no-table", output="my results"),
        run("--no-table", "--set", "updates=40", output="my results"),
    ):
        suggested = [
            line.removeprefix("Next:").strip() for line in words.stderr.splitlines() if "my results" in line
        ]
        commands = [line.partition("to see all: ")[2] or line for line in suggested]
        assert len(commands) >= 2
        for command in commands:
            assert "my results" in shlex.split(command)
    ls = cbm("ls", "my results").stderr
    assert "ls 'my results' EXPERIMENT" in ls
    assert "cbm ls 'my results' EXPERIMENT" in cbm("show", "my results", "zzz", code=2).stderr


# ---- Numbers and JSON ----


def machine(name, weight):
    """Write a machine of 4 x 3 units whose weights are all alike."""
    sizes, kinds = enumerate((4, 3)), ("biases", "offsets")
    arrays = {f"{kind}_{layer}": np.zeros(n, "f4") for layer, n in sizes for kind in kinds}
    np.savez(name, kind=np.array("rbm"), weights_0=np.full((4, 3), weight, "f4"), **arrays)


def test_huge_and_tiny_settings_are_as_short_as_they_were_written(folder):
    for value, text in (
        (1e38, "1e38"),
        (2.5e38, "2.5e38"),
        (1e-05, "1e-05"),
        (16.0, "16"),
        (5e4, "50000"),
        (-0.0, "0"),
    ):
        assert text_of(value) == text
    assert (decimal(-5e38, ".2f"), decimal(-22.196, ".2f")) == ("-5e38", "-22.20")
    run("--no-table", "--set", "learning_rate=[1e30,2e30]", "--set", "updates=20")
    for words in (("table",), ("ls", "results", "bars"), ("best",), ("watch", "--once")):
        result = cbm(*words)
        assert "00000000" not in result.stdout + result.stderr
    assert "CD-1-1e30" in cbm("table").stdout
    assert re.search(r" 1e30 ", cbm("evaluate").stdout)


def test_sizes_of_one_data_set_do_not_share_an_upper_bound(folder):
    text = GRID.replace("[CD-1, PT_4]", "CD-1")
    sizes = "[{name: bars-and-stripes, size: 2}, {name: bars-and-stripes, size: 3}]"
    Path("grid.yaml").write_text(text.replace("{name: bars-and-stripes, size: 2}", sizes))
    run("--no-table")
    cbm("plot", "curves", "-o", "curves.svg")
    assert "upper bound" not in Path("curves.svg").read_text()
    assert json.loads(Path("results/bars/manifest.json").read_text())["upper_bounds"] == {}
    for size, bound in ((2, -1.733), (3, -2.599)):
        Path("grid.yaml").write_text(
            text.replace("size: 2", f"size: {size}").replace("bars:", f"bars{size}:")
        )
        run("--no-table")
        (found,) = json.loads(Path(f"results/bars{size}/manifest.json").read_text())["upper_bounds"].values()
        assert found == pytest.approx(bound, abs=1e-3)
    cbm("plot", "curves", "bars2", "bars3", "-o", "curves.svg")
    assert "bound" not in re.sub("<[^<>]*>", "", Path("curves.svg").read_text())


def strict(text):
    """Read JSON as RFC 8259 has it: no NaN, no Infinity."""

    def refuse(name):
        raise AssertionError(name)

    return json.loads(text, parse_constant=refuse)


def test_json_is_valid_where_numbers_are_not_finite(folder):
    machine("m.npz", 1e30)
    words = ("evaluate", "m.npz", "--data", "bars-and-stripes:size=2")
    for method in ("--exact", "--ais"):
        answer = strict(cbm(*words, method, "--temperatures", 5, "--json").stdout)
        assert answer["log_likelihood"]["n"] == 8
    run("--no-table", "--set", "learning_rate=1e30")
    strict(cbm("ls", "results", "bars", "--json").stdout)
    run_id = json.loads(cbm("ls", "results", "bars", "--json").stdout)[0]["run_id"]
    strict(cbm("show", run_id, "--json").stdout)
    strict(cbm("table", "results", "--format", "json").stdout)


# ---- cbm evaluate ----


def test_every_machine_file_that_is_named_is_evaluated(folder):
    for name, weight in (("a.npz", 0.1), ("b.npz", 0.5), ("c.npz", 1.0)):
        machine(name, weight)
    words = ("--data", "bars-and-stripes:size=2")
    alone = [json.loads(cbm("evaluate", f"{name}.npz", *words, "--json").stdout) for name in "abc"]
    lines = cbm("evaluate", "a.npz", "b.npz", "c.npz", *words, "--json").stdout.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"model": f"{name}.npz"} | answer for name, answer in zip("abc", alone, strict=True)
    ]
    text = cbm("evaluate", "a.npz", "b.npz", *words).stdout
    assert text.index("a.npz") < text.index(f"{alone[0]['log_likelihood']['mean']:.6f} nats per row (8 rows)")
    assert f"{alone[1]['log_likelihood']['total']:.6f} nats of all 8 rows" in text
    assert "nosuch.npz" in cbm("evaluate", "a.npz", "nosuch.npz", *words, code=2).stderr


def test_estimates_that_contradict_each_other_are_doubtful():
    n, weight = 12, 6  # two modes, between which few temperatures do not move
    machine = np.full((n, 1), weight, "f4"), np.full(n, -weight / 2, "f4"), np.full(1, -weight * n / 2, "f4")
    base = np.zeros(n, "f4")
    back = reverse_ais(machine, base, exact_samples(machine, 50, 1), 1, 5)
    found = ais(machine, base, 1, 5, 50)
    assert not found.doubtful  # by its effective sample size
    assert found.interval[1] < back.interval[0]
    assert found.contradicts(back)
    assert back.contradicts(found)
    longer = ais(machine, base, 1, 100, 50), reverse_ais(machine, base, exact_samples(machine, 50, 1), 1, 100)
    assert not longer[0].contradicts(longer[1])


def test_a_contradiction_is_told_with_both_intervals(folder):
    n, weight = 12, 6
    arrays = {
        "weights_0": np.full((n, 1), weight),
        "biases_0": np.full(n, -weight / 2),
        "biases_1": np.full(1, -weight * n / 2),
    }
    np.savez("m.npz", kind=np.array("rbm"), **{name: array.astype("f4") for name, array in arrays.items()})
    np.save("rows.npy", np.eye(n, dtype=np.uint8))
    words = (
        "evaluate",
        "m.npz",
        "--data",
        "rows.npy",
        "--ais",
        "--base",
        "uniform",
        "--runs",
        50,
        "--temperatures",
        5,
    )
    answer = json.loads(cbm(*words, "--json").stdout)
    assert answer["contradicted"]
    assert answer["doubtful"]
    said = cbm(*words).stderr
    assert "forward and reverse AIS contradict each other" in said
    assert f"{answer['reverse_log_z_interval'][0]:.2f} to" in said
    assert "use more --temperatures" in said
    exact = cbm(*words[:4], "--exact")
    assert "temperatures" not in exact.stderr
    assert doubt_of(json.loads(cbm(*words[:4], "--exact", "--json").stdout)) == ""


# ---- Before a run ----


def test_a_dry_run_does_not_compute_the_evaluations_that_it_forecasts(folder, monkeypatch):
    def refuse(*_):
        raise AssertionError("an exact likelihood was computed")

    monkeypatch.setattr("cbm_cli.machines.likelihood.log_partition", refuse)
    np.savez("rows.npz", train=np.tile(ROWS, (1, 5)))  # 30 visible units
    Path("grid.yaml").write_text(
        GRID.replace("{name: bars-and-stripes, size: 2}", "{path: rows.npz}").replace(
            "hidden: 3", "hidden: 28"
        )
    )
    assert "about " in cbm("run", "grid.yaml", "--dry-run").stdout
    assert likelihood_seconds((784, 24), 0) == pytest.approx(16 * likelihood_seconds((784, 20), 0))
    assert 3 < likelihood_seconds((784, 24), 60_000) < 60


def test_a_dry_run_says_that_it_compiles(folder, monkeypatch):
    monkeypatch.setattr(forecast, "_is_compiled", lambda kind: False)
    said = cbm("run", "grid.yaml", "--dry-run").stderr
    assert "Compiling the kernels (once for this version, about 40 s) ..." in said
