"""Losses by their formulas, one row and one class at a time, in float64."""

import numpy as np


def _logit(feature, embeddings, bias, class_id):
    return float(np.dot(feature, embeddings[class_id]) + bias[class_id])


def _log_sigmoid(x):
    return -np.logaddexp(0, -x)


def _rows(features, labels):
    for feature, row in zip(np.asarray(features, np.float64), labels, strict=True):
        yield feature, [int(y) for y in row if y >= 0]


def full_softmax(features, embeddings, bias, labels):
    losses = []
    for feature, positives in _rows(features, labels):
        logits = [_logit(feature, embeddings, bias, c) for c in range(len(embeddings))]
        log_partition = np.logaddexp.reduce(logits)
        losses.append(np.mean([log_partition - logits[y] for y in positives] or [0.0]))
    return np.array(losses)


def _candidates(feature, positives, embeddings, bias, sampled, log_count):
    """(id, corrected logit) of the samples that are no accidental hits."""
    return [
        (s, _logit(feature, embeddings, bias, s) - log_count[i])
        for i, s in enumerate(sampled)
        if s not in positives
    ]


def _per_row(values, row):
    return values[row] if np.ndim(values) == 2 else values


def _each_row(features, embeddings, bias, labels, sampled, sampled_count):
    """Yields the row, its positives with logits, and the logits of its negatives."""
    for row, (feature, positives) in enumerate(_rows(features, labels)):
        log_count = np.log(_per_row(sampled_count, row))
        negatives = _candidates(
            feature, positives, embeddings, bias, _per_row(sampled, row), log_count
        )
        true = [_logit(feature, embeddings, bias, y) for y in positives]
        yield row, true, [logit for _, logit in negatives]


def _log_true_count(true_count, row, positives):
    return [np.log(true_count[row][i]) for i in range(positives)]


def sampled_softmax(
    features, embeddings, bias, labels, sampled, true_count, sampled_count, correct_positive
):
    """Labels must be padded at the end of each row only."""
    losses = []
    for row, true, negatives in _each_row(
        features, embeddings, bias, labels, sampled, sampled_count
    ):
        if correct_positive:
            true = np.subtract(true, _log_true_count(true_count, row, len(true)))
        log_partition = np.logaddexp.reduce([*true, *negatives]) if len(true) else 0.0
        losses.append(np.mean([log_partition - o for o in true]) if len(true) else 0.0)
    return np.array(losses)


def nce(features, embeddings, bias, labels, sampled, true_count, sampled_count):
    """`tf.nn.nce_loss`: sigmoid cross entropy with target 1 / #labels for each label."""
    losses = []
    for row, true, negatives in _each_row(
        features, embeddings, bias, labels, sampled, sampled_count
    ):
        if not len(true):
            losses.append(0.0)
            continue
        true = np.subtract(true, _log_true_count(true_count, row, len(true)))
        target = 1 / len(true)
        positive = sum(
            -target * _log_sigmoid(o) - (1 - target) * _log_sigmoid(-o) for o in true
        )
        losses.append(positive - sum(_log_sigmoid(-o) for o in negatives))
    return np.array(losses)


def negative_sampling(features, embeddings, bias, labels, sampled, negative_reduction):
    losses = []
    for _, true, negatives in _each_row(
        features, embeddings, bias, labels, sampled, np.ones(np.shape(sampled))
    ):
        reduce = np.mean if negative_reduction == "mean" else np.sum
        negative = reduce([-_log_sigmoid(-o) for o in negatives]) if negatives else 0.0
        losses.append(np.mean([-_log_sigmoid(o) for o in true]) + negative if true else 0.0)
    return np.array(losses)


def with_head(loss, features, embeddings, bias, labels, own, shared, true_count, shared_count):
    """`loss` of each row over its own classes, counted once, and what they lack of the shared.

    A label that is among the row's own classes has an expected count of 1.
    """
    losses = []
    for row, ids in enumerate(own):
        ids = [c for c in ids if c >= 0]
        rest = [i for i, c in enumerate(shared) if c not in ids]
        counts = [1.0] * len(ids) + [shared_count[i] for i in rest]
        true = [
            1.0 if y in ids else n for y, n in zip(labels[row], true_count[row], strict=True)
        ]
        one = slice(row, row + 1)
        sampled = [*ids, *(shared[i] for i in rest)]
        losses += [*loss(features[one], embeddings, bias, labels[one], sampled, [true], counts)]
    return np.array(losses)
