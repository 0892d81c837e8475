"""The paper's published values and the settings of their runs, as package data.

``published-results.csv`` has one line for each published value, with the settings of its row spelled as in
``summary.csv``. Schemes 00 and d0 "as originally proposed" start at zero biases. What the paper prints as d0
is d0^b_s where it trains with mini-batches: its visible offset does not move with the batch
(docs/decisions/0019-published-d0.md).

``settings.csv`` has the remaining settings, one column for each value of ``settings`` in
``published-results.csv``. ``|`` separates values that mean the same (nothing before or between them: the
column may be empty, as in results of older versions), and ``*`` allows any value. The training costs under
``auto-encoder-to-the-end`` are of trainings of 5,000 epochs: the test cost had stopped falling before, so
early stopping did not end them.
"""

from importlib.resources import files

PUBLISHED_RESULTS = files(__name__) / "published-results.csv"
SETTINGS = files(__name__) / "settings.csv"
FIGURES = files(__name__) / "figures.yaml"
