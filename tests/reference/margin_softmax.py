"""The softmax loss of cosines with margins, from angles, in float64."""

import math

import numpy as np


def with_margins(cosine, angular_margin, cosine_margin):
    """Returns the cosine of a label with its margins."""
    angle = math.acos(min(1.0, max(-1.0, cosine)))
    if angle + angular_margin <= math.pi:
        return math.cos(angle + angular_margin) - cosine_margin
    return cosine - (1 - math.cos(angular_margin)) - cosine_margin


def losses(
    features,
    rows,
    labels,
    margins,
    scale=64.0,
    counts=None,
    label_smoothing=0.0,
    class_weights=None,
):
    """Returns float64 `[B]`, 0 for an example without labels.

    `counts` maps the drawn classes to their expected counts, of all examples; None for all
    classes, each with a count of 1.
    """
    found, num_classes = [], len(rows)
    counts = dict.fromkeys(range(num_classes), 1) if counts is None else counts
    for feature, row in zip(np.asarray(features, np.float64), labels, strict=True):
        positives = [int(label) for label in row if label >= 0]
        cosines = [
            feature @ each / (np.linalg.norm(feature) * np.linalg.norm(each))
            for each in np.asarray(rows, np.float64)
        ]
        logits = {
            c: scale * (with_margins(cosines[c], *margins) if c in positives else cosines[c])
            for c in {*positives, *counts}
        }
        weight = {c: 1.0 if c in positives else 1.0 / counts[c] for c in logits}
        log_partition = np.logaddexp.reduce(
            [o + math.log(weight[c]) for c, o in logits.items()]
        )
        mean = sum(o * weight[c] for c, o in logits.items()) / num_classes
        loss = 0.0
        for label in positives:
            importance = 1.0 if class_weights is None else class_weights[label]
            target = (1 - label_smoothing) * logits[label] + label_smoothing * mean
            loss += importance * (log_partition - target) / len(positives)
        found.append(loss)
    return np.array(found)
