"""Machines of other programs have the same likelihoods in cbm, by the lines of the page.

A program that is not installed is skipped.
"""

import itertools
import re

import numpy as np
import pytest
from cbm_cli.machine import load
from scipy.special import logsumexp

from tests.docs.pages import DOCS

PAGE = DOCS / "how-to/other-programs.md"
VISIBLE, HIDDEN = 6, 4
STATES = np.array([*itertools.product([0, 1], repeat=VISIBLE)], "float32")


def lines_below(words):
    """Return the first block of Python of the page below some words."""
    pattern = rf"^{re.escape(words)}.*?```python\n(.*?)^```"
    return re.search(pattern, PAGE.read_text("utf-8"), re.M | re.S)[1]


def pytorch():
    torch = pytest.importorskip("torch")
    layer, visible_bias = torch.nn.Linear(VISIBLE, HIDDEN), torch.randn(VISIBLE)
    states = torch.from_numpy(STATES)
    log_p = states @ visible_bias + torch.nn.functional.softplus(layer(states)).sum(1)
    return {"layer": layer, "visible_bias": visible_bias}, log_p


def rbms():
    classes = pytest.importorskip("rbms.bernoulli_bernoulli.classes")
    torch = pytest.importorskip("torch")
    params = classes.BBRBM(
        weight_matrix=torch.randn(VISIBLE, HIDDEN),
        vbias=torch.randn(VISIBLE),
        hbias=torch.randn(HIDDEN),
    )
    return {"params": params}, -params.compute_energy_visibles(torch.from_numpy(STATES))


def learnergy():
    bernoulli = pytest.importorskip("learnergy.models.bernoulli")
    torch = pytest.importorskip("torch")
    model = bernoulli.RBM(n_visible=VISIBLE, n_hidden=HIDDEN)
    for parameter in (model.W, model.a, model.b):
        torch.nn.init.normal_(parameter)
    return {"model": model}, -model.energy(torch.from_numpy(STATES))


def pydeep():
    model = pytest.importorskip("pydeep.rbm.model", reason="not on the package index")
    rbm = model.BinaryBinaryRBM(
        number_visibles=VISIBLE,
        number_hiddens=HIDDEN,
        initial_visible_offsets=0.3,
        initial_hidden_offsets=0.4,
    )
    return {"rbm": rbm}, rbm.unnormalized_log_probability_v(STATES)


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        ("PyTorch", pytorch),
        ("rbms", rbms),
        ("learnergy", learnergy),
        ("PyDeep", pydeep),
    ],
)
def test_a_machine_keeps_its_likelihood(name, machine, here):
    parameters, log_p = machine()
    if hasattr(log_p, "detach"):
        log_p = log_p.detach()
    scores = np.ravel(log_p)
    exec(lines_below(f"**{name}**"), {"np": np, **parameters})
    (path,) = here.glob("*.npz")
    expected = scores - logsumexp(scores)
    np.testing.assert_allclose(load(path).log_likelihood(STATES), expected, atol=1e-5)


def test_a_layer_of_pytorch_has_the_means_of_the_hidden_units(here):
    pytest.importorskip("torch")
    names = {}
    for words in ("## Use a machine", "scikit-learn's", "and in PyTorch"):
        exec(lines_below(words), names)
    means = names["machine"].transform(names["X"])
    np.testing.assert_allclose(names["hidden"].detach(), means, atol=1e-6)
