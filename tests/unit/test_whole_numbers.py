"""Whole numbers are read alike in every field and option: 10, 1_0, 1e1 and 10.0."""

from pathlib import Path

import click
import pytest
import yaml
from cbm_cli.cli import main
from cbm_cli.cli.options import Whole
from cbm_cli.datasets.loading import load_source
from cbm_cli.grid.read import read_grid
from cbm_cli.text import LARGEST, whole_number

from tests.builders import VALIDATOR, cbm, grid_text, problems_of, refusal
from tests.cli.test_commands import commands

DIGITS = "9" * 5000
SPELLINGS = ("10", "1_0", "1E+1", "1.0e1", "10.0", "010", "1e1")
FIELDS = """
rbm trials: # | seed: # | epochs: # | batch: # | chains: # | sampler: PCD-# | sampler: PT_#
rbm data: {name: shifting-bar, size: 20, bar: #} | model: {kind: rbm, hidden: #}
rbm data: {name: shifting-bar, size: 20, bar: 1, hold_out: #}
dbm model: {kind: dbm, hidden: [#, 5]} | model: {kind: dbm, hidden: 7-#} | pretraining: #
auto-encoder early_stopping: {look_ahead: #}
rbm learning_rate: {start: 0.1, decay: 0.5, every: # updates}
rbm learning_rate: {start: 0.1, steps: 0.01 from # updates + 0.001 from 20 updates}
rbm evaluate: {every: # epochs} | evaluate: {rows: #} | evaluate: {method: ais, runs: #}
rbm record: {what: weight_norms, every: #} | record: {what: weight_norms, window: 0-#+20-30}
"""
FIELDS = [
    (kind, *one.split(": ", 1))  # kind of machine, field, value with # for the number
    for kind, _, lines in (line.partition(" ") for line in FIELDS.strip().splitlines())
    for one in lines.split(" | ")
]
IDS = [f"{field} {value}" for _, field, value in FIELDS]


def read(kind, field, value):
    return read_grid("grid.yaml", text=grid_text(kind, **{field: value})).experiments["toy"]


@pytest.mark.parametrize(("kind", "field", "value"), FIELDS, ids=IDS)
def test_every_field_reads_every_spelling(kind, field, value):
    expected = read(kind, field, value.replace("#", "10"))
    for spelling in SPELLINGS[1:-1]:
        given = value.replace("#", spelling)
        found = read(kind, field, given)
        assert found.cells == expected.cells
        assert (found.trials, found.seed) == (expected.trials, expected.seed)
        assert VALIDATOR.is_valid(yaml.safe_load(grid_text(kind, **{field: given}))), spelling


@pytest.mark.parametrize(("kind", "field", "value"), FIELDS, ids=IDS)
def test_other_numbers_are_refused_at_their_place(kind, field, value):
    for number in ("1.5", "1.55e1", "1e-1", "-10", "x", "1e", "0x10", DIGITS, f"1e{'9' * 50}"):
        if "hold_out" in value and number == "1e-1":
            continue  # a tenth of the rows is a share that can be held out
        given = value.replace("#", number)
        error = refusal(read, kind, field, given)
        ((line, told),) = {*problems_of(error)}  # a list of layers may also be one of single layers
        lines = grid_text(kind, **{field: given}).splitlines()
        assert lines[int(line) - 1] == f"    {field}: {given}"
        assert told.split(".")[:2] == ["toy", field]
        assert all(len(line) < 500 for line in str(error).splitlines())


def test_one_reader_knows_all_spellings_signs_and_numbers_of_any_length():
    assert {whole_number(text) for text in (*SPELLINGS, 10.0)} == {10}
    for text in ("1.5", "100e-1", "1__0", "_1", "", "inf", "1e1.0"):
        assert whole_number(text) == text
    assert (whole_number(" +1e4 "), whole_number("-1e1")) == (10_000, -10)
    assert whole_number(f"{LARGEST + 1}") == LARGEST + 1
    assert whole_number("1e400") == whole_number(DIGITS) == 10**20
    endless = DIGITS * 40 + "x"  # without end if each digit were read twice
    assert whole_number(endless) == endless


def test_every_option_for_a_whole_number_reads_it_by_that_reader(grid):
    options = [it for _, command in commands(main) for it in command.params]
    numbers = [it for it in options if isinstance(it.type, click.types.IntParamType)]
    numbers = [it for it in numbers if not it.count]
    assert len(numbers) > 10
    assert [it.name for it in numbers if not isinstance(it.type, Whole)] == []
    for text in ("1.5", DIGITS):
        with pytest.raises(click.BadParameter) as caught:
            numbers[0].type.convert(text, None, None)
        assert text == DIGITS or text in str(caught.value)
        assert len(str(caught.value)) < 200
    told = cbm("run", "grid.yaml", "--trials", "1e1", "--dry-run", "-j", "2.0").stdout
    assert "40 trials" in told
    assert load_source("shifting-bar:size=1e1,bar=2.0").train.shape == (10, 10)


def test_what_no_memory_holds_is_refused_at_its_place_before_anything_runs(grid):
    for kind, field, value, inner, number in (
        ("rbm", "sampler", "PCD-99999999999999999999", "", "9,007,199,254,740,992"),
        ("rbm", "sampler", "PT_99999999999", "", "1,299,999,999,987"),
        ("dbm", "model", "{kind: dbm, hidden: [1e15, 1e15]}", ".hidden", ""),
        ("rbm", "evaluate", "{method: ais, runs: 1e15}", ".runs", "13,000,000,000,000,000"),
    ):
        grid(grid_text(kind, batch="9", **{field: value}))
        found = cbm("run", "grid.yaml", "-j", 0, code=2)
        assert [one for _, one in problems_of(found)] == [f"toy.{field}{inner}"]
        assert number in found.stderr
        assert not Path("results").exists()
