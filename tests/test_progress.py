"""What is said about running trials, in the words of their kind."""

from types import SimpleNamespace

import numpy as np
import pytest

from cbm_cli.cli.progress import Progress
from cbm_cli.grid.settings import Settings
from tests.builders import cbm

MODELS = {
    "rbm": {"model": {"kind": "rbm", "hidden": 3}, "offsets": "dd", "sampler": "CD-1"},
    "dbm": {"model": {"kind": "dbm", "hidden": [3, 2]}, "offsets": "ddd", "sampler": "CD-1"},
    "auto-encoder": {"model": {"kind": "auto-encoder", "hidden": 3}, "offsets": "dd"},
}
WORDS = [
    ("rbm", None, "log-likelihood -7.25 per sample"),
    ("rbm", "ais", "log-likelihood -7.25 per sample"),
    ("rbm", "none", ""),
    ("dbm", None, "log-likelihood -7.25 per sample"),
    ("dbm", "ais", "lower bound of the log-likelihood -7.25 per sample"),
    ("dbm", "none", ""),
    ("auto-encoder", None, "cost -7.25 per sample"),
    ("auto-encoder", "none", ""),
]


def job(kind, method):
    settings = Settings(
        data={"name": "bars-and-stripes", "size": 2},
        learning_rate=0.1,
        updates=20,
        evaluate={"method": method},
        **MODELS[kind],
    )
    trial = SimpleNamespace(settings=settings, experiment="e")
    data = SimpleNamespace(parts={"train": [0] * 6, "test": [0] * 2})
    return SimpleNamespace(key=("run", 0), trial=trial, data=data, updates=20, title="a trial")


def progress_of(its, scale="per-sample"):
    experiment = SimpleNamespace(name="e", table=SimpleNamespace(scale=scale))
    return Progress(SimpleNamespace(jobs=[its], experiments=[experiment]))


@pytest.mark.parametrize(("kind", "method", "words"), WORDS)
def test_the_latest_value_is_called_what_it_is(kind, method, words):
    its = job(kind, method)
    progress = progress_of(its)
    progress.listen(*its.key, 4, -7.25)
    assert progress.running[its.key] == (4, f"update 4, {words}" if words else "update 4")
    progress.listen(*its.key, 8, np.nan)  # pre-training has no value
    assert progress.running[its.key] == (8, "update 8")
    progress.finished(its, SimpleNamespace(curve=np.array([[20, 1, -7.25]]), diverged=None))
    assert progress.latest == (f"a trial: {words}" if words else "a trial")


@pytest.mark.parametrize(("parts", "words"), [(None, "-43.50 in total"), ("test", "-14.50 in total")])
def test_values_are_in_the_scale_of_the_table(parts, words):
    its = job("rbm", "exact")
    its.trial.settings = its.trial.settings.model_copy(
        update={"evaluate": SimpleNamespace(method="exact", parts=parts)}
    )
    progress = progress_of(its, "total")
    progress.listen(*its.key, 4, -7.25)
    assert progress.running[its.key] == (4, f"update 4, log-likelihood {words}")


def test_half_of_an_odd_width_is_said_to_round_down_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for width in (5, 6):
        np.savez(f"w{width}.npz", train=np.eye(width, dtype=np.uint8), valid=np.eye(width, dtype=np.uint8))
    (tmp_path / "grid.yaml").write_text("""
experiments:
  halves:
    data: [{path: w5.npz}, {path: w6.npz}]
    model: {kind: auto-encoder, hidden: half}
    offsets: [00, dd]
    learning_rate: [0.1, 0.2]
    batch: full
    epochs: 2
""")
    said = cbm("run", "grid.yaml", "--dry-run").stderr
    assert said.count("half of 5 visible units rounds down to 2 hidden ones") == 1
    assert said.count("half of") == 1
