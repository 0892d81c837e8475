"""``cbm sample``: samples have the distribution of the machine, files the documented
form.
"""

from pathlib import Path

import cbm_cli as cbm_package
import numpy as np
import pandas as pd
import pytest
from cbm_cli import reference as ref
from cbm_cli.datasets.dataset import Image
from cbm_cli.datasets.formats import read_given
from cbm_cli.machines import samples
from cbm_cli.machines.models import Layered, flatten
from cbm_cli.machines.samples import draw, draw_given, parse_sampler
from cbm_cli.report.learned import GAP, tile_panel, tiled
from cbm_cli.report.panels import compose
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chi2

from tests import networks as nets
from tests.builders import arrays, cbm, holds, refusal
from tests.oracles import joint, rbm, states
from tests.pictures import tiles_of

pytestmark = pytest.mark.usefixtures("here")
ROWS = np.array(
    [[1, np.nan, 0, np.nan], [np.nan, np.nan, 1, 0]]
)  # of which some units are given


def save(layers=nets.RBM, **changes):
    """Write m.npz; return its weights, biases and offsets."""
    machine = nets.layered(layers, 3)
    np.savez(
        "m.npz",
        **nets.machine_file(machine, "rbm" if len(layers) == 2 else "dbm") | changes,
    )
    return machine


def sample(*arguments):
    """Arrays of cbm sample m.npz, and what it says."""
    said = cbm("sample", "m.npz", "-o", "s.npz", *arguments).stderr
    with np.load("s.npz") as file:
        return dict(file), said


def p_value(rows, p):
    """Of the chi-square test that rows have the distribution p over all states."""
    found = np.bincount(rows @ 2 ** np.arange(rows.shape[1]), minlength=len(p))
    assert not found[p == 0].any()
    expected = len(rows) * p[p > 0]
    return chi2.sf(((found[p > 0] - expected) ** 2 / expected).sum(), len(expected) - 1)


def test_tempering_leaves_a_mode_that_gibbs_sampling_is_caught_in():
    n, m, w = 6, 4, 3.0
    two_modes = rbm(np.full((n, m), w), np.full(n, -w * m / 2), np.full(m, -w * n / 2))
    start = np.zeros((1, n), np.uint8), 1.0
    p_on = joint(*two_modes.plain)[0].sum(axis=1)[states(n).sum(axis=1) > n / 2].sum()
    assert p_on == pytest.approx(0.5, abs=0.01)
    how = {"chains": 1_000, "steps": 500, "seed": 5, "start": start}
    for sampler, share in (("gibbs", 0.0), ("PT_10", p_on)):
        rows = draw(two_modes, parse_sampler(sampler), 1_000, **how).samples
        error = 4.5 * np.sqrt(share * (1 - share) / 1_000) + 0.01 * (share == 0)
        assert abs((rows.sum(axis=1) > n / 2).mean() - share) < error


def test_chains_start_at_rows_of_data_each_once_before_any_twice():
    frozen = rbm(100 * np.eye(5), np.full(5, -50.0), np.full(5, -50.0))  # h = x, x = h
    start = np.eye(5, dtype=np.uint8), 1.0
    how = {"sampler": parse_sampler("gibbs"), "seed": 1}
    found = draw(frozen, count=10, chains=10, steps=3, start=start, **how)
    assert (found.samples.sum(axis=0) == 2).all()
    assert (found.samples.sum(axis=1) == 1).all()
    grey = np.full((1, 5), 51, np.uint8), 1 / 255  # 0.2
    found = draw(frozen, count=4_000, chains=4_000, steps=1, start=grey, **how)
    assert abs(found.samples.mean() - 0.2) < 4.5 * np.sqrt(0.2 * 0.8 / 20_000)


def test_rounding_makes_no_probability_exceed_1():
    for seed in range(40):  # machines that have one state only, nearly
        random = np.random.default_rng(seed)
        weights, hidden = random.normal(0, 1, (5, 4)), random.normal(0, 2, 4)
        visible = 60 + random.normal(0, 3, 5)
        np.savez("m.npz", weights_0=weights, biases_0=visible, biases_1=hidden)
        assert -1e-12 < cbm_package.load("m.npz").log_likelihood(np.ones((1, 5))) <= 0


def test_chains_of_python_start_at_grey_rows_as_probabilities():
    eye, half = 100 * np.eye(5), np.full(5, -50.0)  # h = x, x = h
    np.savez("m.npz", weights_0=eye, biases_0=half, biases_1=half)
    machine, grey = cbm_package.load("m.npz"), np.full((3, 5), 0.2)
    how = {"sampler": "gibbs", "chains": 4_000, "steps": 1}
    found = machine.sample(4_000, start=grey, **how)
    assert abs(found.mean() - 0.2) < 4.5 * np.sqrt(0.2 * 0.8 / 20_000)
    assert_array_equal(machine.sample(9, start=grey > 0.5, **how), np.zeros((9, 5)))


def test_tiles_lie_line_by_line_within_a_pixel_of_grey_and_hold_every_value_in_its_place():
    rows = np.array([[1, 0], [0, 1], [1, 1]])  # three of 2x1
    lines = ".....", ".1.0.", ".0.1.", ".....", ".1...", ".1...", "....."
    values = {".": GAP, "0": 0, "1": 1}
    assert tiled(rows, Image(2, 1)).tolist() == [
        [values[it] for it in line] for line in lines
    ]
    (row,) = rows = np.arange(6)[None] / 6
    (axes,) = compose([tile_panel(rows, Image(2, 3, "F"))]).figure.axes
    drawn = tiles_of(axes.images[0].get_array(), 2, 3, times=6)
    assert_array_equal(drawn[0].reshape(2, 3), row.reshape((2, 3), order="F"))


@pytest.mark.parametrize(
    ("sizes", "sampler"),
    [((3, 4), "gibbs"), ((3, 2, 2), "PT_3-2"), ((3, 2, 2, 2), "PT_4")],
)
def test_samples_of_a_file_with_offsets_are_its_visible_and_odd_layers(
    sizes, sampler, monkeypatch
):
    its, n = save(sizes), 20_000
    monkeypatch.setattr(samples, "CHAINS", n)
    found, said = sample("--sampler", sampler, "--steps", 60, "-n", 2 * n)
    assert holds(said, "s.npz|40,000")
    kinds = {name: array.dtype.name for name, array in found.items()}
    assert kinds == {"samples": "uint8", "means": "float32", "hidden": "uint8"}
    parts = nets.all_states(sizes)
    kept = np.concatenate([parts[0], *parts[1::2]]).astype(int)
    weights = np.exp(-nets.layered_energy(its, parts))
    p = np.bincount(2 ** np.arange(len(kept)) @ kept, weights)
    both = np.hstack([found["samples"], found["hidden"]])
    for part in (both[:n], both[n:]):  # the first and the second sample of each chain
        assert p_value(part, p / p.sum()) > 1e-4
    W, b, lam = its[0][0], its[1][0], its[2][1]
    expected = ref.visible_mean(found["hidden"][:, : sizes[1]], W, b, lam)
    assert_allclose(found["means"], expected, rtol=0, atol=1e-6)


def exact_conditional(machine, layers, row):
    """Probabilities of all visible states, given the row."""
    p, held = np.exp(nets.brute_log_likelihoods(machine, layers)), ~np.isnan(row)
    p = np.where((nets.visible_rows(layers)[:, held] == row[held]).all(axis=1), p, 0)
    return p / p.sum()


@pytest.mark.parametrize(
    ("layers", "sampler"),
    [(nets.RBM, "PT_4"), (nets.TWO, "gibbs"), (nets.THREE, "PT_4")],
)
def test_free_units_have_their_exact_conditional_distribution(layers, sampler):
    machine, rows = (
        save(layers),
        np.pad(ROWS, ((0, 0), (0, layers[0] - 4)), constant_values=np.nan),
    )
    how = {"sampler": sampler, "steps": 30, "chains": 4000}
    found = cbm_package.load("m.npz").sample(8000, 7, given=rows, **how)
    for r, row in enumerate(rows):
        assert p_value(found[r::2], exact_conditional(machine, layers, row)) > 1e-4


def test_rows_that_give_the_same_units_are_completed_independently():
    coins = flatten(Layered("rbm", *fair_coins(8)))
    given = np.full((2, 8), np.nan)
    given[:, 0] = 1
    how = {"chains": 1, "steps": 1, "seed": 3}
    drawn = draw_given(coins, parse_sampler("gibbs"), 2, given, "given", **how).samples
    assert drawn[:, 0].all()
    assert (drawn[0] != drawn[1]).any()


def fair_coins(units):
    W, b, c = np.zeros((units, 2)), np.zeros(units), np.zeros(2)
    return (W,), (b, c), (b, c)


def test_chains_that_start_in_equilibrium_stay_there():
    p = exact_conditional(save(), nets.RBM, ROWS[1])
    starts = nets.visible_rows(nets.RBM)[
        np.random.default_rng(1).choice(len(p), 5000, p=p)
    ]
    how = {"sampler": "gibbs", "steps": 1, "chains": 5000, "start": starts}
    assert (
        p_value(cbm_package.load("m.npz").sample(5000, 3, given=ROWS[1:], **how), p)
        > 1e-4
    )


GAPS = ["1,,0,?\n?,,1,0\n", "a;b;c;d\n1; ;0;\n;?;1;0\n", "1\tnan\t0\t?\n\t\t1\t0"]


@pytest.mark.parametrize("text", GAPS)
def test_text_has_gaps(text):
    Path("rows.csv").write_text(text)
    assert_array_equal(read_given(Path("rows.csv")), ROWS)


def test_a_seed_decides_the_bytes_of_files_and_of_python():
    save()
    np.savez("rows.npz", rows=ROWS)
    Path("rows.csv").write_text(GAPS[0])
    machine, how = cbm_package.load("m.npz"), ("-n", 6, "--steps", 5, "--seed")
    for name in ("rows.npz", "rows.csv"):
        found, told = sample("--given", name, *how, 4)
        assert "6 samples" in told
        same = {"given": ROWS, "steps": 5}
        assert_array_equal(found["samples"], machine.sample(6, 4, **same))
    means, given = machine.sample(6, 4, means=True, **same), np.tile(ROWS, (3, 1))
    assert_array_equal(found["means"], means)
    assert_array_equal(np.where((means > 0) & (means < 1), np.nan, means), given)
    assert len(machine.sample(given=ROWS, steps=1)) == 2
    assert len(machine.sample(5, chains=2, steps=1)) == 5
    one, other = (sample(*how, seed)[0]["samples"] for seed in (4, 5))
    assert_array_equal(one, machine.sample(6, 4, steps=5))
    assert (one != other).any()
    default, _ = sample("-n", 6, "--steps", 5)
    assert_array_equal(default["samples"], machine.sample(6, steps=5))


NAMES = ["north", "east", "south", "west"]
FRAME = pd.DataFrame(ROWS, columns=NAMES)
GIVEN = {  # forms of the same rows in Python
    "masked integers": np.ma.masked_array(np.nan_to_num(ROWS, nan=7), np.isnan(ROWS)),
    "lists with None": [[None if x != x else int(x) for x in row] for row in ROWS],
    "objects": np.where(np.isnan(ROWS), pd.NA, ROWS.astype(object)),
    "pandas.NA": FRAME.astype("Int64"),
    "objects of a frame": FRAME.astype(object).where(FRAME.notna(), pd.NA),
    "words of text": FRAME.astype(object).replace({1.0: "1", 0.0: "0"}),
    "a frame with an index": FRAME.set_index(pd.Index(["a", "b"], name="id")),
    "a frame with other columns": FRAME[NAMES[::-1]].assign(id=[7, 8], kind="a"),
    "a frame without names": pd.DataFrame(ROWS),
}


@pytest.mark.parametrize("form", GIVEN)
@pytest.mark.parametrize("names", [NAMES, ["3", "1", "2", "0"], None])
def test_rows_to_complete_are_read_from_python_as_from_files(form, names):
    save(**({"names": np.array(names)} if names else {}))
    machine, rows = cbm_package.load("m.npz"), GIVEN[form]
    if names is None and form == "a frame with other columns":
        return  # which a machine without names cannot tell from the others
    if isinstance(rows, pd.DataFrame) and "without names" not in form and names:
        rows = rows.rename(columns=dict(zip(NAMES, names, strict=True)))
    assert_array_equal(
        machine.sample(6, 4, given=rows, steps=5),
        machine.sample(6, 4, given=ROWS, steps=5),
    )


def test_rows_from_python_that_cannot_be_completed_are_refused():
    save(names=np.array(NAMES))
    machine = cbm_package.load("m.npz")
    for rows, told in (
        (FRAME.drop(columns="east"), "given|0 columns east"),
        (FRAME.astype(object).fillna("x"), "given|row 1, column 2|x"),
        (ROWS[0], "given|(4,)"),
        (ROWS[:, :3], "given|4|2 x 3"),
    ):
        assert holds(refusal(machine.sample, given=rows), told)


@pytest.mark.parametrize(
    ("rows", "place"),
    [
        (b"0.5,1,,0\n", "row 1, column 1 is 0.5"),
        (b"9,8,7,6\n1,,0,1\n0,,1,2\n", "row 2, column 4 is 2"),  # below names
        ([[1, 0, 1, 0]], "row 1 gives all"),
        ([[1, None, 1, 0], [None] * 4], "row 2 gives no"),
        ([[1, None, 1, 0.5]], "row 1, column 4 is 0.5"),
        ([[1, None, 2]], "1 x 3"),
        ([[1, None, 1, 0], [1, None, 1, 0]], ""),  # more than samples
        (b"1,x,0,\n", "line 1, column 2"),
        (b"a,b,c,d\n", "no rows"),
    ],
)
def test_rows_that_cannot_be_completed_are_refused(rows, place):
    save()
    Path("rows").write_bytes(
        rows if isinstance(rows, bytes) else arrays(np.array(rows, float))
    )
    result = cbm("sample", "m.npz", "--given", "rows", "-o", "s.npz", "-n", 1, code=2)
    assert place in result.stderr
