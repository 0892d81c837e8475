"""The accuracy of a linear classifier on a representation of the data."""

import importlib.util
import warnings
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.errors import CbmError
from cbm_cli.machines import streams

ITERATIONS = 500
_MOST_CLASSES = 1_000  # more are numbers with another meaning


class Accuracy(NamedTuple):
    """Shares of rows that are classified correctly."""

    train: float  # of the rows that the classifier has learned from
    test: float  # of the test part, or of the rows held out
    settled: bool  # the fit converged


def check_classifier(labels: Mapping[str, NDArray]) -> None:
    """Raise CbmError where scikit-learn is missing, or the labels of the training part are not classes."""
    if importlib.util.find_spec("sklearn") is None:
        message = "--classify needs scikit-learn; install it with: pip install 'cbm-cli[classify]'"
        raise CbmError(message, "missing")
    classes = len(np.unique(labels["train"]))
    if not 1 < classes <= _MOST_CLASSES:
        raise CbmError(
            f"--classify: the labels of the train part have {classes:,} class{'es' * (classes != 1)}; "
            f"expected 2 to {_MOST_CLASSES:,}",
            "unsuited",
        )


def accuracy(parts: Mapping[str, NDArray], labels: Mapping[str, NDArray], seed: int) -> Accuracy:
    """Fit a classifier to the training part and test it on the test part, or on a random fifth held out.

    Multinomial logistic regression with an L2 penalty (C = 1) on features of mean 0 and variance 1. Given
    rows (n, units) and labels (n,) by part, and the seed of the fifth: the same for every representation.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    (train, of_train), (test, of_test) = _divided(parts, labels, seed)
    classes, codes = np.unique(of_train, return_inverse=True)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=ITERATIONS))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(train, codes)
    learned, tested = (
        float((classes[model.predict(rows)] == true).mean())
        for rows, true in ((train, of_train), (test, of_test))
    )
    settled = not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    return Accuracy(learned, tested, settled)


def _divided(
    parts: Mapping[str, NDArray], labels: Mapping[str, NDArray], seed: int
) -> list[tuple[NDArray, NDArray]]:
    """Return the rows and labels to learn from, and those to test on."""
    if "test" in labels:
        return [(parts[part], labels[part]) for part in ("train", "test")]
    rows = streams.generator(seed, streams.HELD_OUT).permutation(len(labels["train"]))
    test, train = np.split(rows, [-(-len(rows) // 5)])
    return [(parts["train"][chosen], labels["train"][chosen]) for chosen in (train, test)]
