"""A recorder for hypotheses.yaml: lengths of the gradients of one machine, in several senses."""

import numpy as np

from cbm_cli.machines.gradients import centered, hidden_mean, standard_gradient


def lengths(snapshots, context):
    """Lengths of weight changes alone, and of all changes in the centered machine's own coordinates.

    These are W, b + W lam and c + W' mu. The centered gradient changes the first as its own W, the others as
    the standard gradient changes b and c. The standard gradient counts either by its changes of W, b and c
    (plain), or by the changes of these coordinates that it makes (moved).
    """
    W, b, c = (array.astype(float) for array in snapshots[1:4])
    mu, lam = snapshots.mu.astype(float), snapshots.lam.astype(float)
    rows = context.unit * context.data.train
    standard = standard_gradient(W, b, c, context.data.train, context.unit)
    bare = ~(mu.any(axis=1) | lam.any(axis=1))[:, None]  # 00: take the data means
    mu = np.where(bare, rows.mean(axis=0), mu)
    lam = np.where(bare, hidden_mean(W, c, rows).mean(axis=1), lam)
    along = centered(standard, mu, lam)
    return {
        "standard_weights": np.sqrt((standard.W**2).sum(axis=(1, 2))),
        "centered_weights": np.sqrt((along.W**2).sum(axis=(1, 2))),
        "standard_plain": length(standard.flat()),
        "standard_moved": length_moved(standard, mu, lam),
        "centered_own": length(standard._replace(W=along.W).flat()),
    }


def length_moved(gradient, mu, lam):
    """Length of a change of (W, b, c) as a change of (W, b + W lam, c + W' mu)."""
    b = gradient.b + np.einsum("tnm,tm->tn", gradient.W, lam)
    return length(gradient._replace(b=b, c=gradient.c + np.einsum("tnm,tn->tm", gradient.W, mu)).flat())


def length(flat):
    """Lengths of vectors, one a row."""
    return np.sqrt((flat**2).sum(axis=1))
