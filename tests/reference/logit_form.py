"""Logits of cosines, with a scale and a soft cap, in NumPy."""

import numpy as np


def logits(features, rows, bias, normalize=False, scale=None, logit_soft_cap=None):
    """Returns float64 `[B, N]`. A learned scale has its first value."""
    features, rows = features.astype("float64"), rows.astype("float64")
    if scale in (None, "learned"):
        scale = 64 if normalize else 1
    found = np.empty((len(features), len(rows)))
    for example, feature in enumerate(features):
        for class_id, row in enumerate(rows):
            product = feature @ row
            if normalize and row.any():
                product /= np.linalg.norm(feature) * np.linalg.norm(row)
            found[example, class_id] = scale * product + bias[class_id]
    return found if logit_soft_cap is None else logit_soft_cap * np.tanh(found / logit_soft_cap)


def cross_entropies(logits, labels):
    """Returns `-log softmax(logits)[label]` of each example."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_partition = np.log(np.exp(shifted).sum(axis=1))
    return log_partition - shifted[np.arange(len(labels)), labels]
