"""A user's mistake gives one message that names the place and the remedy; exit code
2.
"""

from pathlib import Path

import numpy as np
import pytest
from cbm_cli.datasets.loading import load
from cbm_cli.grid.read import read_grid
from cbm_cli.trial.checks import check

from tests.builders import GRID, cbm, holds, problems_of
from tests.networks import RBM, layered, machine_file, visible_rows

pytestmark = pytest.mark.usefixtures("grid")


def with_line(text, line):
    return text.replace("batch: full", f"batch: full\n    {line}") if line else text


LARGE = GRID.replace(
    "name: bars-and-stripes, size: 2", "name: shifting-bar, size: 20, bar: 2"
)
LARGE = LARGE.replace("hidden: 3", "hidden: 17").replace(
    "method: exact", "method: none"
)
HUGE = (
    LARGE.replace("size: 20", "size: 40").replace("17", "40").replace("none", "exact")
)
TABLES = (
    "metric: train_loglikelihood",
    "statistic: best-valid",
    "choose: offsets, by: test",
)
MISSPELT, BY_VALID, BY_TEST = (GRID.replace("scale: total", it) for it in TABLES)
MARGINAL = "gradient: {kind: natural, fisher: marginal}"


def drawn_by(sampler):
    return GRID.replace("[CD-1, PT_4]", sampler)


@pytest.mark.parametrize(
    ("text", "line", "told", "named"),
    [
        (GRID.replace("batch: full", "batch: 9"), "", "11 batch", "9 8"),
        (GRID.replace("batch: full", "shuffle: true"), "", "4 batch", "100 8"),
        (drawn_by("PCD-99999999999"), "", "8 sampler", "5,599,999,999,944"),
        (drawn_by("PT_99999999999"), "", "8 sampler", "699,999,999,993"),
        (
            GRID.replace("hidden: 3", "hidden: 1e15"),
            "",
            "6 model.hidden",
            "4,000,000,000,000,000",
        ),
        (
            GRID.replace("exact", "ais, runs: 1e15"),
            "",
            "12 evaluate.runs",
            "7,000,000,000,000,000",
        ),
        (MISSPELT, "", "13 table.metric", "train_log_likelihood"),
        (BY_VALID, "", "13 table.statistic", "hold_out:"),
        (BY_TEST, "", "13 table.by", "hold_out_test:"),
        (HUGE, "", "12 evaluate", "2^40 40x40 2^25 ais"),
        (LARGE, "gradient: natural", "12 gradient", "2^37 20x17 2^16 fisher: diagonal"),
        (LARGE, "offsets_from: exact", "12 offsets_from", "2^17 20x17 2^16"),
        (LARGE, "gradient_from: exact", "12 gradient_from", "2^17 20x17 2^16"),
        (LARGE, "record: free_energy_gap", "12 record", "free_energy_gap"),
        (GRID, MARGINAL, "12 gradient", "2^4 15 19 0.01"),
    ],
)
def test_what_a_machine_cannot_have_is_refused_once_with_the_way_out(
    text, line, told, named
):
    place, field = told.split()
    Path("grid.yaml").write_text(with_line(text, line))
    refused = cbm("run", "grid.yaml", "-j", 0, code=2)
    assert problems_of(refused) == [(place, f"bars.{field}")]  # of all four cells
    assert all(word in refused.stderr for word in named.split())
    assert not Path("results").exists()


DIAGONAL = "gradient: {kind: natural, fisher: diagonal}"


@pytest.mark.parametrize(
    "text", [GRID.replace("full", "8"), with_line(LARGE, DIAGONAL)]
)
def test_a_batch_of_all_rows_and_the_way_out_for_large_machines_are_allowed(text):
    cells = read_grid("grid.yaml", text=text).experiments["bars"].cells
    assert [check(cell, load(cell.data)) for cell in cells] == [None] * 4


def test_sum_over_too_many_states_is_refused_in_a_dry_run_too():
    np.save("wide.npy", np.eye(40, 30, dtype=np.uint8))
    text = GRID.replace("{name: bars-and-stripes, size: 2}", "{path: wide.npy}")
    Path("grid.yaml").write_text(text.replace("hidden: 3", "hidden: 100"))
    for options in ([], ["--dry-run"]):
        refused = cbm("run", "grid.yaml", "-o", "out", *options, code=2)
        assert problems_of(refused) == [("12", "bars.evaluate")]
        assert holds(refused.stderr, "2^30|30x100|2^25|method: ais")
    assert not Path("out").exists()


def test_results_that_cannot_be_written_are_refused(monkeypatch):
    monkeypatch.setattr(
        "os.access", lambda *_: False
    )  # of a folder that is read-only, to root too
    assert problems_of(cbm("run", "grid.yaml", "-o", "out", code=2)) == [("-o out", "")]


# A command in a folder with grid.yaml, its results in out, a machine of 4x3 units and
# rows; then what is said, whatever is around it.
REFUSED = """
init -o grid.txt -> Error: -o grid.txt:
run -> Error: experiments.yaml:|`cbm init`
run grid.yaml --set learning_rate -> FIELD=VALUE
evaluate none.npz --data rows.npy -> none.npz
evaluate m.npz --ais --rows 5 -> --rows|--data
evaluate m.npz --pseudo -> --data
evaluate m.npz --ais --again --data rows.npy -> --again|results
evaluate m.npz --ais --select sampler=CD-1 --data rows.npy -> --select|results
evaluate out --exact --ais -> --exact|--ais
evaluate out --ais --temperatures 2 -> --temperatures
evaluate out --exact --runs 5 -> --runs|--exact
evaluate out --pseudo --seed 3 -> --seed|--pseudo
sample m.npz -> --output
sample m.npz -o s.npz --sampler CD-1 -> --sampler CD-1|gibbs|PT_c
sample m.npz -o s.npz --sampler PT_1 -> PT_1|2
sample m.npz -o s.npz --steps 0 -> --steps
sample m.npz -o s.npz -n 0 -> --count
sample m.npz -o m.npz/s.npz --steps 1 -> m.npz
sample m.npz -o ./m.npz -> -o m.npz
sample m.npz --given two.npz -o ./two.npz -> -o two.npz
features m.npz -o f.npz -> --data
features m.npz -o f.npz --data rows.npy:treshold=0.1 -> treshold|threshold
features m.npz -o f.npz --data rows.npy:flip=true,flip=true -> --data|flip|twice
features m.npz -o f.npz --data rows.npy:threshold -> rows.npy:threshold|rows.npy
features m.npz -o f.npz --data bars-and-stripes:size=3 -> 9|4
features m.npz -o f.npz --data nothing -> nothing|bars-and-stripes
features m.npz -o f.npz --data rows.npy --layer 2 -> --layer 2|1 hidden layer
features m.npz -o ./two.npz --data two.npz -> -o two.npz
plot out curves bars -o p.png --xlim 5 -> --xlim 5|0:1000
plot out curves bars -o p.png --ylim 3:1 -> --ylim 3:1|LOW:HIGH
plot out curves bars -o p.png --log z -> --log|z|x,y
plot out curves bars -o p.png --size big -> --size big|6.5x4
plot out finals bars -o p.png --metric weight_norm --metric b -> --metric|2
plot out finals bars -o p.png --statistic mean -> --statistic mean|max
plot data -o p.png -> data|cbm plot data
plot data mnits -o p.png -> Error: mnits:
plot data shifting-bar:size=4 -o p.png -> Error: shifting-bar:size=4:
plot curves m.npz -o p.png -> Error: m.npz:
plot filters none.npz -o p.png -> Error: none.npz:
plot activity m.npz -o p.png -> Error: m.npz:|--data
plot out cruves bars -o p.png -> curves
report out basr -o page.html -> basr|bars
table out bars --select nonsense=1 -> --select nonsense|offsets|sampler
table out bars --select batch=10 -> --select batch|offsets|sampler
table out bars --select sampler=CD-9 -> --select sampler|CD-1|PT_4
table out bars --choose= -> --choose|none
table out bars --by valid -> --by valid|--choose
table out bars --choose none --by test -> --by test|--choose
table out bars --choose sampler --by train --rows sampler -> --rows sampler|none
table out --alpha 1 -> --alpha|1
table out --metric a --metric b -> --metric|twice
verify out --sample 0 -> --sample
verify out --sample some -> --sample
"""


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_a_command_that_cannot_be_is_refused_and_nothing_is_written(finished, line):
    np.savez("m.npz", **machine_file(layered(RBM, 1), "rbm"))
    np.save("rows.npy", rows := visible_rows(RBM))
    np.savez("two.npz", train=rows, test=rows)
    command, _, told = line.partition(" -> ")
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("[!.]*.*")}
    assert holds(cbm(*command.split(), code=2).stderr, told)
    assert {path: path.stat().st_mtime_ns for path in Path().rglob("[!.]*.*")} == before
