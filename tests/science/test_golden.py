"""Results of many settings against those of the kernels that the golden files were made with."""

import pytest
from cbm_cli.grid.words import value_of
from cbm_cli.results import Results
from cbm_cli.trial import learner
from numpy.testing import assert_allclose

from tests.builders import cbm
from tests.golden import outputs
from tests.golden.cases import (
    CASES,
    FILE,
    LONG,
    REMEDY,
    SHORT,
    TRIES,
    departure,
    departure_of_runs,
    golden_values,
    read,
    run_case,
    values_of,
)

MOVED = "a golden value moved: bump KERNEL_VERSION and run python -m tests.golden.make"


@pytest.mark.parametrize("updates", [SHORT, LONG])
@pytest.mark.parametrize("name", CASES)
def test_a_case_is_as_it_was(name, updates):
    expected = golden_values(name, updates)
    assert expected, f"{name} has no golden values; {REMEDY}"
    departed = departure_of_runs(expected, name, updates)
    assert departed is None, f"{MOVED}: {departed}"


@pytest.mark.parametrize("name", ["toy-PCD-1-dd", "dbm-ddd", "encoder"])
@pytest.mark.parametrize("change", ["weights", "biases"])
def test_another_start_is_noticed(monkeypatch, name, change):
    """The identity of results is KERNEL_VERSION: code outside the kernels must not change
    numbers either.
    """
    first = learner.first_machine

    def first_machine(*arguments):
        machine = first(*arguments)
        return machine._replace(
            **{change: tuple(1.001 * array for array in getattr(machine, change))}
        )

    monkeypatch.setattr(learner, "first_machine", first_machine)
    expected = golden_values(name, SHORT)
    for nudge in (None, *range(TRIES)):
        assert departure(values_of(name, SHORT, run_case(name, SHORT, nudge)), expected, SHORT)


def test_every_golden_value_has_a_case():
    assert {name.split("/")[0] for name in read()} == CASES.keys()


@pytest.mark.parametrize(
    "damage", [lambda b: b[: len(b) // 2], lambda b: b[:900] + b"?" + b[901:], lambda b: b""]
)
def test_a_damaged_golden_file_is_reported(tmp_path, damage):
    path = tmp_path / FILE.name
    path.write_bytes(damage(FILE.read_bytes()))
    with pytest.raises(ValueError, match=FILE.name):
        read(path)


def test_a_golden_file_of_another_version_is_reported(monkeypatch):
    monkeypatch.setattr("tests.golden.cases.KERNEL_VERSION", 0)
    with pytest.raises(ValueError, match="KERNEL_VERSION"):
        read()


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return outputs.unpack(tmp_path_factory.mktemp("results"))


@pytest.mark.parametrize("name", outputs.COMMANDS)
def test_results_are_shown_as_they_were(results, name):
    printed = outputs.output_of(name, results), (outputs.OUTPUTS / name).read_text(encoding="utf-8")
    found, expected = map(outputs.parted, printed)
    assert found[0] == expected[0], f"an output changed; if this is meant, {REMEDY}"
    # Sums in float32 are behind evaluations; what tables show is exact but for the last digit of
    # libraries.
    limit = 1e-5 if name.startswith("evaluate") else 1e-9
    assert_allclose(found[1], expected[1], rtol=limit, atol=limit, err_msg=MOVED)


@pytest.mark.parametrize(
    ("experiment", "axis"),
    [("bars", "log-likelihood"), ("deep", "log-likelihood"), ("encoder", "cost")],
)
def test_results_are_drawn(results, tmp_path, experiment, axis):
    picture = tmp_path / "curves.svg"
    cbm("plot", results, "curves", experiment, "-o", picture)
    drawn = picture.read_text("utf-8")
    assert f"train {axis} (" in drawn
    cells = Results(results).store(experiment).manifest().cells
    assert all(value_of("offsets", cell["offsets"]).latex in drawn for cell in cells)
