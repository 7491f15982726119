"""Losses by their formulas, one example and one class at a time, in float64."""

import numpy as np


def reduced(rows, counts, reduction, weights=None):
    """Reduces the losses of examples to the loss of the batch, as Keras does with a mask.

    Args:
        rows: Losses of the examples `[B]`.
        counts: The mask, bool `[B]`.
        reduction: "sum", "sum_over_batch_size" or "mean_with_sample_weight".
        weights: Sample weights `[B]`; None for ones.
    """
    total, number, weight_of_counted = 0.0, 0, 0.0
    weights = np.ones(len(rows)) if weights is None else weights
    for row, count, weight in zip(rows, counts, weights, strict=True):
        if count:
            total, number = total + weight * row, number + 1
            weight_of_counted += weight
    divisors = {"sum": 1, "sum_over_batch_size": number}
    return total / (divisors.get(reduction, weight_of_counted) or 1)


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
    """Returns (id, corrected logit) of the samples that are not accidental hits."""
    return [
        (s, _logit(feature, embeddings, bias, s) - log_count[i])
        for i, s in enumerate(sampled)
        if s not in positives
    ]


def _per_example(values, row):
    """Returns the list of one example, if each has its own; otherwise the shared list."""
    return values[row] if isinstance(values[0], list) or np.ndim(values[0]) else values


def _each_example(features, embeddings, bias, labels, sampled, sampled_count):
    """Yields the index of each example, and the logits of its positives and negatives."""
    for row, (feature, positives) in enumerate(_rows(features, labels)):
        log_count = np.log(_per_example(sampled_count, row))
        negatives = _candidates(
            feature, positives, embeddings, bias, _per_example(sampled, row), log_count
        )
        true = [_logit(feature, embeddings, bias, y) for y in positives]
        yield row, true, [logit for _, logit in negatives]


def _log_true_count(true_count, row, positives):
    return [np.log(true_count[row][i]) for i in range(positives)]


def sampled_softmax(
    features, embeddings, bias, labels, sampled, true_count, sampled_count, correct_positive
):
    """Labels must be padded only at the end of each row."""
    losses = []
    for row, true, negatives in _each_example(
        features, embeddings, bias, labels, sampled, sampled_count
    ):
        if correct_positive:
            true = np.subtract(true, _log_true_count(true_count, row, len(true)))
        log_partition = np.logaddexp.reduce([*true, *negatives]) if len(true) else 0.0
        losses.append(np.mean([log_partition - o for o in true]) if len(true) else 0.0)
    return np.array(losses)


def decoupled_softmax(features, embeddings, bias, labels, sampled, sampled_count, label_power):
    """Gupta et al. 2024, section 4: one softmax per label, without the other labels."""
    losses = []
    for _, true, negatives in _each_example(
        features, embeddings, bias, labels, sampled, sampled_count
    ):
        label_p = [np.exp(o) / (np.exp(o) + np.exp(negatives).sum()) for o in true]
        weight = 1 / len(true) ** label_power if true else 0.0
        losses.append(-weight * np.log(label_p).sum())
    return np.array(losses)


def nce(features, embeddings, bias, labels, sampled, true_count, sampled_count):
    """`tf.nn.nce_loss`: sigmoid cross entropy with target 1 / #labels for each label."""
    losses = []
    for row, true, negatives in _each_example(
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


def _ones(sampled):
    return (
        [1.0] * len(sampled) if np.ndim(sampled[0]) == 0 else [[1.0] * len(s) for s in sampled]
    )


def negative_sampling(
    features, embeddings, bias, labels, sampled, negative_reduction, positive_weight=1
):
    losses = []
    for _, true, negatives in _each_example(
        features, embeddings, bias, labels, sampled, _ones(sampled)
    ):
        reduce = np.mean if negative_reduction == "mean" else np.sum
        negative = reduce([-_log_sigmoid(-o) for o in negatives]) if negatives else 0.0
        positive = np.mean([-_log_sigmoid(o) for o in true] or [0.0])
        losses.append(positive_weight * positive + negative if true else 0.0)
    return np.array(losses)


def full_absolute_softmax(features, embeddings, bias, labels):
    losses = []
    for feature, positives in _rows(features, labels):
        logits = [abs(_logit(feature, embeddings, bias, c)) for c in range(len(embeddings))]
        log_partition = np.logaddexp.reduce(logits)
        losses.append(np.mean([log_partition - logits[y] for y in positives] or [0.0]))
    return np.array(losses)


def _drawn(row, labels, sampled, sampled_count):
    """Returns (id, expected count) of the draws of an example that are not in `labels`."""
    ids, counts = _per_example(sampled, row), _per_example(sampled_count, row)
    return [(int(s), counts[i]) for i, s in enumerate(ids) if s not in labels]


def absolute_softmax(features, embeddings, bias, labels, sampled, true_count, sampled_count):
    """Blanc & Rendle 2018, equations 2 and 11."""
    losses = []
    for row, (feature, positives) in enumerate(_rows(features, labels)):
        true = [abs(_logit(feature, embeddings, bias, y)) for y in positives]
        partition = sum(np.exp(o) for o in true)
        for s, count in _drawn(row, positives, sampled, sampled_count):
            partition += np.exp(abs(_logit(feature, embeddings, bias, s))) / count
        losses.append(np.mean([np.log(partition) - o for o in true] or [0.0]))
    return np.array(losses)


def normalization(
    features, embeddings, bias, labels, sampled, true_count, sampled_count, complement
):
    """Barber & Botev 2016, equation 23, with kappa = 1 / expected count."""
    batch = {int(y) for y in np.reshape(labels, -1) if y >= 0}
    losses = []
    for row, (feature, positives) in enumerate(_rows(features, labels)):
        explicit = batch if complement == "batch" else set(positives)
        # A repeated label counts twice, as in tf.nn.
        summed = [*positives, *(explicit - set(positives))]
        partition = sum(np.exp(_logit(feature, embeddings, bias, c)) for c in summed)
        for s, count in _drawn(row, explicit, sampled, sampled_count):
            partition += np.exp(_logit(feature, embeddings, bias, s)) / count
        true = [_logit(feature, embeddings, bias, y) for y in positives]
        losses.append(np.mean([np.log(partition) - o for o in true] or [0.0]))
    return np.array(losses)


def _hinge(x):
    return max(0.0, -x)


def ranking(features, embeddings, bias, labels, sampled, margin, form="logistic"):
    """Barber & Botev 2016, equation 33 (or 32: hinge) as a loss, averaged over negatives."""
    penalty = _hinge if form == "hinge" else lambda x: -_log_sigmoid(x)
    losses = []
    for _, true, negatives in _each_example(
        features, embeddings, bias, labels, sampled, _ones(sampled)
    ):
        terms = [penalty(o - other - margin) for o in true for other in negatives]
        losses.append(np.mean(terms or [0.0]))
    return np.array(losses)


def black_out(features, embeddings, bias, labels, sampled, true_count, sampled_count):
    """Barber & Botev 2016, equations 46 and 47."""
    losses = []
    for row, true, negatives in _each_example(
        features, embeddings, bias, labels, sampled, sampled_count
    ):
        true = np.subtract(true, _log_true_count(true_count, row, len(true)))
        weights = np.exp([*true, *negatives])
        p = weights / weights.sum()
        loss = -np.mean(np.log(p[: len(true)])) if len(true) else 0.0
        losses.append(loss - np.log(1 - p[len(true) :]).sum() if len(true) else 0.0)
    return np.array(losses)


def with_head(loss, features, embeddings, bias, labels, own, shared, true_count, shared_count):
    """`loss` over the classes `own` of each example and the shared classes not among them.

    Classes in `own` have an expected count of 1.
    """
    sampled, counts, true = [], [], []
    for row, ids in enumerate(own):
        ids = [c for c in ids if c >= 0]
        rest = [i for i, c in enumerate(shared) if c not in ids]
        sampled.append([*ids, *(shared[i] for i in rest)])
        counts.append([1.0] * len(ids) + [shared_count[i] for i in rest])
        true.append(
            [1.0 if y in ids else n for y, n in zip(labels[row], true_count[row], strict=True)]
        )
    return loss(features, embeddings, bias, labels, sampled, true, counts)


def soft_cross_entropy(logits, targets, log_partition_penalty=0.0):
    """Cross entropy with dense targets `[B, N]`, by class, and the penalty of log Z."""
    losses = []
    for row, target in zip(np.float64(logits), targets, strict=True):
        log_partition = np.logaddexp.reduce(row)
        terms = [q * (log_partition - o) for q, o in zip(target, row, strict=True)]
        losses.append(sum(terms) + sum(target) * log_partition_penalty * log_partition**2)
    return np.array(losses)


def dense_targets(labels, num_classes, smoothing=0.0, class_weights=None, soft=None):
    """Returns the targets `[B, N]` of all classes, from labels or soft targets."""
    weights = np.ones(num_classes) if class_weights is None else class_weights
    targets = np.zeros([len(labels), num_classes])
    for row, target in enumerate(targets):
        own = [int(y) for y in labels[row] if y >= 0]
        given = [(y, 1 / len(own)) for y in own] if soft is None else enumerate(soft[row])
        for y, share in given:
            target[y] += (1 - smoothing) * weights[y] * share
            target += smoothing * weights[y] * share / num_classes
        if soft is not None and own:
            target += (1 - sum(soft[row])) / num_classes
    return targets


def full_sigmoid(features, embeddings, bias, labels):
    """Returns the sum over all classes of the binary cross entropy."""
    losses = []
    for feature, positives in _rows(features, labels):
        logits = [_logit(feature, embeddings, bias, c) for c in range(len(embeddings))]
        terms = [-_log_sigmoid(o if c in positives else -o) for c, o in enumerate(logits)]
        losses.append(sum(terms) if positives else 0.0)
    return np.array(losses)


def sampled_sigmoid(features, embeddings, bias, labels, sampled, true_count, sampled_count):
    losses = []
    for row, (feature, positives) in enumerate(_rows(features, labels)):
        loss = sum(-_log_sigmoid(_logit(feature, embeddings, bias, y)) for y in set(positives))
        for s, count in _drawn(row, positives, sampled, sampled_count):
            loss += -_log_sigmoid(-_logit(feature, embeddings, bias, s)) / count
        losses.append(loss if positives else 0.0)
    return np.array(losses)
