"""The paper's published values and the settings of their runs, as package data.

``published-results.csv`` has one line for each published value, with the settings of its row spelled as in
``summary.csv``. Schemes 00 and d0, as originally proposed, start at zero biases. What the paper prints as d0
is d0^b_s where it trains with mini-batches: its visible offset does not move with the batch
(docs/decisions/0019-published-d0.md).

``settings.csv`` has the remaining settings, one column for each value of ``settings`` in
``published-results.csv``. ``|`` separates values that mean the same (nothing before or between them: the
column may be empty, as in results of older versions), and ``*`` allows any value. The training costs under
``auto-encoder-to-the-end`` are of trainings of 5,000 epochs: the test cost had stopped falling before, so
early stopping did not end them.

``mismatches.yaml`` has the known reasons of differences between published and obtained values, and
``findings.yaml`` what the paper states in prose and figures, with the checks of it.

``experiments.yaml`` is a copy of the repository's grid, for those who have no clone of it.
"""

from importlib.resources import files

PUBLISHED_RESULTS = files(__name__) / "published-results.csv"
SETTINGS = files(__name__) / "settings.csv"
FIGURES = files(__name__) / "figures.yaml"
MISMATCHES = files(__name__) / "mismatches.yaml"
FINDINGS = files(__name__) / "findings.yaml"
EXPERIMENTS = files(__name__) / "experiments.yaml"

# Names of the tables in published-results.csv, and their numbers in the paper
PAPER_TABLES = {
    "standard-methods-bars-mnist": "2",
    "standard-methods-shifting-bar": "3",
    "init-00-flipped-shifting-bar": "4",
    "init-00-mnist": "5",
    "init-dd-flipped-shifting-bar": "6",
    "reparameterization-order": "7",
    "moving-average": "8",
    "big-rbm-test": "9",
    "big-rbm-train": "10",
    "dbm-test": "11",
    "dbm-train": "12",
    "auto-encoder": "13",
}
