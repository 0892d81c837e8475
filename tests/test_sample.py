"""``cbm sample``: samples have the distribution of the machine, files the documented form."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2

from cbm_cli import reference as ref
from cbm_cli.datasets.dataset import Image
from cbm_cli.errors import CbmError
from cbm_cli.machines import samples
from cbm_cli.machines.samples import draw, parse_sampler
from cbm_cli.report.learned import GAP, tile_panel, tiled
from cbm_cli.report.panels import Page, compose
from tests.builders import cbm, holds, layered, layered_energy, machine_file, problems_of, split
from tests.oracles import joint, random_machine, rbm, states
from tests.pictures import tiles_of

pytestmark = pytest.mark.usefixtures("here")


def machine(n=4, m=3, seed=1):
    return rbm(*random_machine(n, m, seed))


def p_value(rows, p):
    """Of the chi-square test that rows (n, units) have the distribution p over all states."""
    index = rows @ 2 ** np.arange(rows.shape[1])[::-1]
    expected = len(rows) * p
    found = np.bincount(index, minlength=len(p))
    return chi2.sf(((found - expected) ** 2 / expected).sum(), len(p) - 1)


def test_one_chain_visits_its_states_as_often_as_it_should():
    its = machine(3, 2)
    found = draw(its, parse_sampler("PT_4"), 40_000, chains=1, steps=1, seed=7)
    means = found.samples.reshape(40, 1000, 3).mean(axis=1)  # of stretches far longer than correlations
    error = means.std(axis=0, ddof=1) / np.sqrt(40)
    exact = joint(*its.plain)[0].sum(axis=1) @ states(3)
    assert (np.abs(means.mean(axis=0) - exact) < 4.5 * error).all()


def test_tempering_leaves_a_mode_that_gibbs_sampling_is_caught_in():
    n, m, w = 6, 4, 3.0
    two_modes = rbm(np.full((n, m), w), np.full(n, -w * m / 2), np.full(m, -w * n / 2))
    start = np.zeros((1, n), np.uint8), 1.0
    p_on = joint(*two_modes.plain)[0].sum(axis=1)[states(n).sum(axis=1) > n / 2].sum()
    assert p_on == pytest.approx(0.5, abs=0.01)
    found = {
        sampler: draw(two_modes, parse_sampler(sampler), 1_000, chains=1_000, steps=500, seed=5, start=start)
        for sampler in ("gibbs", "PT_10")
    }
    on = {sampler: (it.samples.sum(axis=1) > n / 2).mean() for sampler, it in found.items()}
    assert on["gibbs"] < 0.01
    assert abs(on["PT_10"] - p_on) < 4.5 * np.sqrt(p_on * (1 - p_on) / 1_000)


def test_chains_start_at_rows_of_data_each_once_before_any_twice():
    frozen = rbm(100 * np.eye(5), np.full(5, -50.0), np.full(5, -50.0))  # h = x, x = h
    rows = np.eye(5, dtype=np.uint8)
    found = draw(frozen, parse_sampler("gibbs"), 10, chains=10, steps=3, seed=1, start=(rows, 1.0))
    assert (found.samples.sum(axis=0) == 2).all()
    assert (found.samples.sum(axis=1) == 1).all()
    grey = np.full((1, 5), 51, np.uint8)  # 0.2 of 255
    found = draw(frozen, parse_sampler("gibbs"), 4_000, chains=4_000, steps=1, seed=1, start=(grey, 1 / 255))
    assert abs(found.samples.mean() - 0.2) < 4.5 * np.sqrt(0.2 * 0.8 / 20_000)


def test_tiles_lie_line_by_line_within_a_pixel_of_grey():
    rows = np.array([[1, 0], [0, 1], [1, 1]])  # three of 2x1
    assert tiled(rows, Image(2, 1)).tolist() == [
        [GAP, GAP, GAP, GAP, GAP],
        [GAP, 1, GAP, 0, GAP],
        [GAP, 0, GAP, 1, GAP],
        [GAP, GAP, GAP, GAP, GAP],
        [GAP, 1, GAP, GAP, GAP],
        [GAP, 1, GAP, GAP, GAP],
        [GAP, GAP, GAP, GAP, GAP],
    ]
    assert tiled(np.zeros((100, 784)), Image(28, 28)).shape == (10 * 29 + 1, 10 * 29 + 1)
    assert tiled(np.zeros((5, 500)), Image(1, 500)).shape == (11, 502)


def test_a_picture_holds_every_value_of_a_row_in_its_place():
    rows = np.arange(6)[None] / 6
    for order in ("C", "F"):
        (axes,) = compose([tile_panel(rows, Image(2, 3, order))], Page()).figure.axes
        drawn = tiles_of(axes.images[0].get_array(), 2, 3, times=6)
        np.testing.assert_array_equal(drawn[0].reshape(2, 3), rows[0].reshape((2, 3), order=order))


def test_more_samples_than_memory_holds_are_refused():
    with pytest.raises(CbmError, match="1000000000") as refused:
        draw(machine(), parse_sampler("PT_999999"), 10**9, chains=10**9, steps=1, seed=1)
    assert refused.value.kinds == ("limit",)


def save(**changes):
    its = machine()
    np.savez("m.npz", **{"weights_0": its.W, "biases_0": its.b, "biases_1": its.c} | changes)


def sample(*arguments):
    """Run cbm sample; return what it says on stderr."""
    result = cbm("sample", *arguments)
    assert result.stdout == ""
    return result.stderr


@pytest.mark.parametrize(
    ("sizes", "sampler"), [((3, 4), "gibbs"), ((3, 2, 2), "PT_3-2"), ((3, 2, 2, 2), "PT_4")], ids=str
)
def test_samples_of_a_file_with_offsets_are_its_visible_and_odd_layers(sizes, sampler, monkeypatch):
    its, n = layered(sizes, seed=3), 20_000
    monkeypatch.setattr(samples, "CHAINS", n)
    np.savez("deep.npz", **machine_file(its, "rbm" if len(sizes) == 2 else "dbm"))
    options = ("--sampler", sampler, "--steps", 60, "-n", 2 * n)
    assert holds(sample("deep.npz", *options, "-o", "s.npz"), "s.npz|40000")
    with np.load("s.npz") as file:
        found = dict(file)
    kinds = {name: (array.dtype.name, array.shape) for name, array in found.items()}
    visible, hidden = (2 * n, 3), (2 * n, sum(sizes[1::2]))
    assert kinds == {
        "samples": ("uint8", visible),
        "means": ("float32", visible),
        "hidden": ("uint8", hidden),
    }
    p: dict = {}
    for state in states(sum(sizes)):
        parts = split(state, sizes)
        kept = tuple(np.concatenate([parts[0], *parts[1::2]]))
        p[kept] = p.get(kept, 0) + np.exp(-layered_energy(its, parts))
    both, weight = np.hstack([found["samples"], found["hidden"]]), np.array([p[state] for state in sorted(p)])
    for part in (both[:n], both[n:]):  # the first and the second sample of each chain
        assert p_value(part, weight / weight.sum()) > 1e-4
    W, b, lam = its[0][0], its[1][0], its[2][1]
    expected = ref.visible_mean(found["hidden"][:, : sizes[1]], W, b, lam)
    np.testing.assert_allclose(found["means"], expected, rtol=0, atol=1e-6)


def test_same_seed_same_bytes():
    save()
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        sample("m.npz", "--steps", 20, "-n", 7, "--seed", seed, "-o", f"{name}.npz")
    a, b, c = (Path(f"{name}.npz").read_bytes() for name in "abc")
    assert a == b != c


@pytest.mark.parametrize(
    ("arguments", "kind", "told"),
    [
        ((), None, "--output"),
        (("-o", "s.npy"), None, "-o s.npy|.npz"),
        (("-o", "./m.npz"), None, "-o m.npz"),
        (("-o", "s.npz", "--sampler", "CD-1"), "unknown", "--sampler CD-1|gibbs|PT_c"),
        (("-o", "s.npz", "--sampler", "PT10"), "unknown", "--sampler PT10|gibbs|PT_c"),
        (("-o", "s.npz", "--sampler", "PT_1"), None, "PT_1|2"),
        (("-o", "s.npz", "--steps", "0"), None, "--steps"),
        (("-o", "s.npz", "-n", "0"), None, "--count"),
        (("-o", "m.npz/s.npz", "--steps", "1"), None, "m.npz"),
    ],
)
def test_impossible_requests_are_refused_and_nothing_is_written(arguments, kind, told):
    save()
    before = Path("m.npz").read_bytes()
    refused = cbm("sample", "m.npz", *arguments, code=2)
    assert kind is None or refused.error.kinds == (kind,)
    assert holds(refused.stderr, told)
    assert [path.name for path in Path().iterdir()] == ["m.npz"]
    assert Path("m.npz").read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"biases_0": np.zeros(3)}, "conflict"),
        ({"kind": np.array("auto-encoder")}, "unsuited"),
        (None, "missing"),
    ],
)
def test_a_machine_file_that_cannot_be_sampled_is_refused(changes, kind):
    if changes:
        save(**changes)
    refused = cbm("sample", "m.npz", "-o", "s.npz", code=2)
    assert problems_of(refused) == [("m.npz", "", kind)]
