"""What several commands share: places to write to, lists, numbers, JSON."""

import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from cbm_cli.machines.certificate import by_all_states
from cbm_cli.machines.estimates import ais, apart
from cbm_cli.machines.likelihood import doubt_of
from cbm_cli.text import decimal, text_of

from tests.builders import GRID, cbm, holds, problems_of
from tests.oracles import log_z, rbm
from tests.pictures import bounds_of, figure_of

ROWS = np.random.default_rng(5).integers(0, 2, (60, 6)).astype(np.uint8)
BARS = "{name: bars-and-stripes, size: 2}"


def run(*words, output="results"):
    return cbm("run", "grid.yaml", "-o", output, "-j", 0, *words)


PLACES = {"run grid.yaml -o": "", "report -o": ".html", "plot curves -o": ".png"}
PLACES |= {"sample m.npz -o": ".npz", "features m.npz --data rows.npz -o": ".npz"}


@pytest.mark.parametrize(("command", "suffix"), PLACES.items())
def test_every_command_refuses_a_place_where_it_cannot_or_should_not_write(
    grid, command, suffix
):
    np.savez("m.npz", anything=ROWS)
    Path(f"there{suffix}").mkdir()
    others = f"there{suffix} ." if suffix else "other.yaml - page.html x.PNG f.npz"
    for place in (f"nosuch/x{suffix}", "grid.yaml", *others.split()):
        found = cbm(*command.split(), place, code=2)
        assert problems_of(found) == [(f"{command.split()[-1]} {place}", "")]
        if place.startswith(("nosuch", "there")):
            named = (
                Path.cwd() / "nosuch" if "nosuch" in place else f"there{suffix}/new."
            )
            assert str(named) in found.stderr


def test_the_default_metric_is_one_for_all_commands(grid):
    np.savez("rows.npz", train=ROWS[:30], test=ROWS[30:])
    np.savez("more.npz", train=ROWS[:30])
    text = GRID.replace("[CD-1, PT_4]", "CD-1").replace("[00, dd^b_s]", "00")
    both = "[{path: rows.npz}, {path: more.npz}]"
    for data, part in (("{path: rows.npz}", "test"), (both, "train")):
        grid(text.replace(BARS, data).replace("total", "per-sample"))
        printed = run(output=part).stdout
        assert printed == cbm("table", part).stdout
        assert f"aximum {part} log-likelihood" in printed
        assert (
            "test_log_likelihood" in cbm("best", part).stderr
        )  # each data set has its own
        axes, *_ = figure_of("plot", part, "curves")[0].axes
        assert (
            axes.get_ylabel().replace("\n", " ") == f"{part} log-likelihood (per row)"
        )


def test_sizes_of_one_data_set_do_not_share_an_upper_bound(grid):
    for name, size, bounds in (("both", "[2, 3]", []), ("bars", "2", [-1.733])):
        grid(GRID.replace("size: 2", f"size: {size}").replace("bars:", f"{name}:"))
        run("--set", "updates=20", "--set", "sampler=CD-1", "--trials", 1)
        manifest = json.loads(Path(f"results/{name}/manifest.json").read_text())
        assert [*manifest["upper_bounds"].values()] == pytest.approx(bounds, abs=1e-3)
    best = map(json.loads, cbm("best", "results", "both", "--json").stdout.splitlines())
    assert [machine["settings"]["data_size"] for machine in best] == [
        "2",
        "3",
    ]  # nor a best machine
    figure, said = figure_of("plot", "curves", "both")
    assert [bounds_of(axes) for axes in figure.axes if axes.get_visible()] == [[], []]
    assert "bound" not in said


def test_longer_runs_that_a_short_one_hides_are_reported_and_listed_by_quoted_commands(
    grid, trained
):
    shutil.copytree(trained / "out", "my results")
    dry = run("--set", "learning_rate=[0.1, 0.2]", "--dry-run", output="my results")
    assert "not reused" not in dry.stderr
    for n in (40, 60):  # the first run is known all the same
        said = run("--set", f"updates={n}", output="my results").stderr
    reason = "16 of another length .* less than a minute"
    assert re.search(f"bars: 16 finished trials not reused: {reason}", said)
    assert "cbm plot 'my results' curves bars -o curves.png\n" in said
    listed = cbm("ls", "my results")
    assert "8 runs " in listed.stdout
    assert "cbm ls 'my results' EXPERIMENT" in listed.stderr
    lines = [
        line.split() for line in cbm("ls", "my results", "bars").stdout.splitlines()[1:]
    ]
    assert {line[4] for line in lines[4:]} == {"40", "100"}
    assert (
        "cbm ls 'my results' EXPERIMENT"
        in cbm("ls", "my results", "zzz", code=2).stderr
    )


def machine(name, weight):
    """Write a machine of 4 x 3 units whose weights are all alike."""
    biases = {"biases_0": np.zeros(4, "f4"), "biases_1": np.zeros(3, "f4")}
    np.savez(name, kind="rbm", weights_0=np.full((4, 3), weight, "f4"), **biases)


def test_huge_and_tiny_numbers_are_short_and_json_is_valid_where_they_are_not_finite(
    grid,
):
    numbers = {
        2.5e38: "2.5e38",
        1e-05: "1e-05",
        5e4: "50000",
        -0.0: "0",
        math.nan: "",
        "00": "00",
    }
    assert [*map(text_of, numbers)] == [*numbers.values()]
    assert (decimal(-5e38, ".2f"), decimal(-22.196, ".2f")) == ("-5e38", "-22.20")
    run("--set", "learning_rate=[1e30,2e30]", "--set", "updates=20")
    shown = [cbm(*words.split()) for words in ("table", "ls results bars", "best")]
    assert not any("00000000" in one.output for one in shown)
    assert "CD-1-1e30" in shown[0].stdout
    for words in ("ls results bars --json", "table -f json"):
        json.loads(
            cbm(*words.split()).stdout, parse_constant=pytest.fail
        )  # RFC 8259 has no NaN


def test_every_machine_file_that_is_named_is_evaluated(grid):
    machine("a.npz", 0.1)
    machine("b.npz", 0.5)
    files, words = ("a.npz", "b.npz"), ("--data", "bars-and-stripes:size=2")
    alone = [
        json.loads(cbm("evaluate", file, *words, "--json").stdout) for file in files
    ]
    lines = cbm("evaluate", *files, *words, "--json").stdout.splitlines()
    named = [
        {"model": file} | answer for file, answer in zip(files, alone, strict=True)
    ]
    assert [*map(json.loads, lines)] == named
    assert re.search(
        r"(?s)^a.npz\n.*^b.npz\n", cbm("evaluate", *files, *words).stdout, re.M
    )


def test_estimates_outside_of_proved_limits_are_doubtful_and_reported():
    n, weight = 12, 6  # two modes, between which few temperatures do not move
    plain = (
        np.full((n, 1), weight),
        np.full(n, -weight / 2),
        np.full(1, -weight * n / 2),
    )
    machine, base = rbm(*plain), np.zeros(n, "f4")
    least, most = by_all_states(machine)
    exact = log_z(machine.plain)
    assert exact - 1e-6 < least < exact < most < exact + 1e-6
    found, _ = ais(machine.plain, base, 1, temperatures=100, runs=50)
    answer = {"log_z_interval": found.interval, "runs": 50}
    answer |= {"effective_sample_size": 50.0}
    answer |= {"log_z_at_least": least, "log_z_at_most": most}
    assert doubt_of(answer) == ""
    assert holds(doubt_of(answer | {"log_z_interval": (-3.0, -2.0)}), "at least 1.28")
    assert holds(doubt_of(answer | {"log_z_interval": (2.0, 3.0)}), "at most 1.28")
    assert apart((0.0, 1.0), (1.1, 2.0))
    assert apart((1.1, 2.0), (0.0, 1.0))
    assert not apart((0.0, 1.0), (1.005, 2.0))  # annealing in float32 rounds by as much
