"""A recorder for hypotheses.yaml: lengths of the gradients of one machine, in three senses."""

import numpy as np

from cbm_cli.machines.gradients import centered, standard_gradient


def lengths(snapshots, context):
    """Lengths of weight changes alone, and of all changes in the centered machine's own coordinates.

    These are W, b + W lam and c + W' mu. The centered gradient changes them by (its W, b, c of the standard
    one); the standard gradient either as a naive reading has it, by its own (W, b, c), or as a change of the
    same function, by (W, b + W lam, c + W' mu).
    """
    W, b, c = (array.astype(float) for array in snapshots[1:4])
    mu, lam = snapshots.mu.astype(float), snapshots.lam.astype(float)
    standard = standard_gradient(W, b, c, context.data.train, context.unit)
    bare = ~(mu.any(axis=1) | lam.any(axis=1))[:, None]  # 00: offsets at the data means
    h_mean = 1 / (1 + np.exp(-(context.data.train @ W + c[:, None, :])))
    mu = np.where(bare, context.data.train.mean(axis=0), mu)
    lam = np.where(bare, h_mean.mean(axis=1), lam)
    along = centered(standard, mu, lam)
    moved = standard._replace(
        b=standard.b + np.einsum("tnm,tm->tn", standard.W, lam),
        c=standard.c + np.einsum("tnm,tn->tm", standard.W, mu),
    )
    own = standard._replace(W=along.W)

    def length(flat):
        return np.sqrt((flat**2).sum(axis=1))

    return {
        "standard_weights": np.sqrt((standard.W**2).sum(axis=(1, 2))),
        "centered_weights": np.sqrt((along.W**2).sum(axis=(1, 2))),
        "standard_plain": length(standard.flat()),
        "standard_moved": length(moved.flat()),
        "centered_own": length(own.flat()),
    }
