"""Samples of some visible units given the others, of machines of any depth."""

from pathlib import Path

import numpy as np
import pytest

import cbm_cli as cbm_package
from cbm_cli.datasets.given import read_given
from cbm_cli.machines.given import conditional
from tests.builders import RBM, THREE, TWO, brute_log_likelihoods, cbm, layered, machine_file, visible_rows
from tests.oracles import rbm

pytestmark = pytest.mark.usefixtures("here")

ROWS = np.array([[1, np.nan, 0, np.nan], [np.nan, np.nan, 1, 0]])


def exact_conditional(machine, layers, row):
    """Probabilities of all visible states, 0 where they contradict the row."""
    p = np.exp(brute_log_likelihoods(machine, layers))
    held = ~np.isnan(row)
    p = np.where((visible_rows(layers)[:, held] == row[held]).all(axis=1), p, 0)
    return p / p.sum()


def p_value(rows, p):
    """Of the chi-square test that rows have the distribution p over all states, of which some have none."""
    from scipy.stats import chi2

    found = np.bincount(rows @ 2 ** np.arange(rows.shape[1]), minlength=len(p))
    assert not found[p == 0].any()
    expected = len(rows) * p[p > 0]
    return chi2.sf(((found[p > 0] - expected) ** 2 / expected).sum(), len(expected) - 1)


@pytest.mark.parametrize("sampler", ["gibbs", "PT_4"])
@pytest.mark.parametrize("layers", [RBM, TWO, THREE])
def test_free_units_have_their_exact_conditional_distribution(layers, sampler):
    machine = layered(layers, 3)
    np.savez("m.npz", **machine_file(machine, "rbm" if len(layers) == 2 else "dbm"))
    rows = np.pad(ROWS, ((0, 0), (0, layers[0] - 4)), constant_values=np.nan)
    how = {"sampler": sampler, "steps": 30, "chains": 4000}
    found = cbm_package.load("m.npz").sample(8000, 7, given=rows, **how)
    for r, row in enumerate(rows):
        assert p_value(found[r::2], exact_conditional(machine, layers, row)) > 1e-4


def test_means_are_those_of_free_units_and_given_values_elsewhere():
    machine = layered(RBM, 3)
    np.savez("m.npz", **machine_file(machine, "rbm"))
    means = cbm_package.load("m.npz").sample(4000, 2, given=ROWS[:1], steps=30, chains=4000, means=True)
    assert (means[:, [0, 2]] == [1, 0]).all()
    exact = exact_conditional(machine, RBM, ROWS[0]) @ visible_rows(RBM)
    error = means.std(axis=0) / np.sqrt(len(means))
    assert (np.abs(means.mean(axis=0) - exact)[[1, 3]] < 4.5 * error[[1, 3]]).all()


def test_chains_that_start_at_equilibrium_stay_there():
    machine = layered(RBM, 3)
    np.savez("m.npz", **machine_file(machine, "rbm"))
    p = exact_conditional(machine, RBM, ROWS[1])
    starts = visible_rows(RBM)[np.random.default_rng(1).choice(len(p), 5000, p=p)]
    how = {"sampler": "gibbs", "steps": 1, "chains": 5000, "start": starts}
    found = cbm_package.load("m.npz").sample(5000, 3, given=ROWS[1:], **how)
    assert p_value(found, p) > 1e-4


def test_what_is_given_becomes_biases():
    W, b, c = np.arange(8.0).reshape(4, 2), np.arange(4.0), np.array([10.0, 20.0])
    smaller = conditional(rbm(W, b, c), np.array([1, np.nan, 1, 0]))
    assert (smaller.W.tolist(), smaller.b.tolist()) == ([[2, 3]], [1])
    assert (smaller.c.tolist(), smaller.sizes) == ([10 + 0 + 4, 20 + 1 + 5], (1, 2))


@pytest.mark.parametrize("text", ["1,,0,?\n?,,1,0\n", "a;b;c;d\n1; ;0;\n;?;1;0\n", "1\tnan\t0\t?\n\t\t1\t0"])
def test_text_has_gaps(text):
    with open("rows.csv", "w") as file:
        file.write(text)
    np.testing.assert_array_equal(read_given(Path("rows.csv")), ROWS)


def test_files_and_python_give_the_same_bytes():
    np.savez("m.npz", **machine_file(layered(RBM, 3), "rbm"))
    np.savez("rows.npz", rows=ROWS)
    with open("rows.csv", "w") as file:
        file.write("1,,0,\n,,1,0\n")
    for name in ("rows.npz", "rows.csv"):
        told = cbm(
            "sample", "m.npz", "--given", name, "-o", "s.npz", "-n", 6, "--steps", 5, "--seed", 4
        ).stderr
        assert "6 samples" in told
        with np.load("s.npz") as found:
            mine = cbm_package.load("m.npz").sample(6, 4, given=ROWS, steps=5)
            np.testing.assert_array_equal(found["samples"], mine)
            assert found["hidden"].shape == (6, 3)
    assert len(cbm_package.load("m.npz").sample(given=ROWS, steps=1)) == 2


@pytest.mark.parametrize(
    ("rows", "place", "kind"),
    [
        ([[1, 0, 1, 0]], "row 1 gives all", "missing"),
        ([[1, None, 1, 0], [None] * 4], "row 2 gives no", "missing"),
        ([[1, None, 1, 0.5]], "row 1, column 4 is 0.5", "value"),
        ([[1, None, 2, 1]], "row 1, column 3 is 2", "value"),
        ([[1, None, 2]], "1 x 3", "conflict"),
    ],
)
def test_rows_that_cannot_be_completed_are_refused(rows, place, kind):
    np.savez("m.npz", **machine_file(layered(RBM, 3), "rbm"))
    np.save("rows.npy", np.array(rows, float))
    result = cbm("sample", "m.npz", "--given", "rows.npy", "-o", "s.npz", code=2)
    assert place in result.stderr
    assert result.error.kinds == (kind,)


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"1,x,0,\n", "row 1, column 2"),
        (b"1,,0,\n1,0,\n", "row 2"),
        (b"", "no rows"),
        (b"a,b,c,d\n", "no rows"),
    ],
)
def test_text_without_rows_is_refused(content, place):
    np.savez("m.npz", **machine_file(layered(RBM, 3), "rbm"))
    with open("rows.csv", "wb") as file:
        file.write(content)
    result = cbm("sample", "m.npz", "--given", "rows.csv", "-o", "s.npz", code=2)
    assert place in result.stderr.split("rows.csv")[-1]


def test_fewer_samples_than_rows_are_refused():
    np.savez("m.npz", **machine_file(layered(RBM, 3), "rbm"))
    np.savez_compressed("rows.npz", ROWS)
    assert cbm("sample", "m.npz", "--given", "rows.npz", "-n", 1, "-o", "s.npz", code=2).error.kinds == (
        "conflict",
    )
