"""The expected results of a model, computed with NumPy from its logits."""

import numpy as np


def _softmax(logits):
    logits = logits - logits.max()
    return np.exp(logits) / np.exp(logits).sum()


def _taylor(logits):
    terms = 1 + logits + logits**2 / 2
    return terms / terms.sum()


def _spherical(logits):
    terms = logits**2 + 0.1
    return terms / terms.sum()


def _cross_entropy(probabilities):
    return lambda logits, labels: -np.log(probabilities(logits)[labels]).mean()


def _z_loss(logits, labels):
    target = 2 * np.sqrt(2 * np.log(len(logits)))
    z = (logits[labels] - logits.mean()) / logits.std()
    return np.log1p(np.exp(target - z)).mean()


def _squared_error(logits, labels):
    targets = np.zeros(len(logits))
    targets[labels] = 1
    return ((logits - targets) ** 2).sum()


def _one_vs_all(logits, labels):
    return np.logaddexp(0, logits).sum() - logits[labels].sum()


# By the name of the loss: the scores that rank classes, their probabilities, and the loss of an
# example in `evaluate`. For other losses these are the logits and the exact softmax.
RANKINGS = {
    "absolute_softmax_loss": np.abs,
    "spherical_softmax_loss": np.abs,
    "taylor_softmax_loss": lambda logits: np.abs(1 + logits),
}
PROBABILITIES = {
    "absolute_softmax_loss": lambda logits: _softmax(np.abs(logits)),
    "spherical_softmax_loss": _spherical,
    "taylor_softmax_loss": _taylor,
}
EXAMPLE_LOSSES = {
    "z_loss": _z_loss,
    "squared_error_loss": _squared_error,
    "sigmoid_loss": _one_vs_all,
}


def probabilities(loss, logits):
    """Returns the probabilities of all classes, `[..., num_classes]`."""
    return np.apply_along_axis(PROBABILITIES.get(loss, _softmax), -1, logits)


def best(loss, logits, k, exclude=None):
    """Returns scores and ids of the `k` best classes, `[..., k]`."""
    scores = RANKINGS.get(loss, lambda one: one)(logits)
    if exclude is not None:
        np.put_along_axis(scores := scores.copy(), exclude, -np.inf, axis=-1)
    ids = np.argsort(-scores, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(scores, ids, axis=-1), ids


def evaluate(loss, logits, labels, k):
    """Returns loss, P@1, R@k and perplexity over the examples with labels.

    Args:
        loss: Name of the loss.
        logits: `[B, num_classes]`.
        labels: `[B, L]`, padded with -1, distinct per example.
        k: Of R@k.
    """
    losses, precisions, recalls, entropies = [], [], [], []
    probabilities = PROBABILITIES.get(loss, _softmax)
    example_loss = EXAMPLE_LOSSES.get(loss, _cross_entropy(probabilities))
    for row, ids in zip(logits, labels, strict=True):
        ids = ids[ids >= 0]
        if not len(ids):
            continue
        first = best(loss, row, max(k, 1))[1]
        losses.append(example_loss(row, ids))
        precisions.append(first[0] in ids)
        recalls.append(np.isin(ids, first[:k]).mean())
        entropies.append(-np.log(probabilities(row)[ids]).mean())
    return {
        "loss": np.mean(losses),
        "precision_at_1": np.mean(precisions),
        f"recall_at_{k}": np.mean(recalls),
        "perplexity": np.exp(np.mean(entropies)),
    }
