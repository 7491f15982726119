"""Distributions of samplers by their formulas, in float64."""

import numpy as np


def uniform(num_classes):
    return np.full(num_classes, 1 / num_classes)


def log_uniform(num_classes):
    c = np.arange(num_classes)
    return np.log((c + 2) / (c + 1)) / np.log(num_classes + 1)


def unigram(counts, distortion=1.0):
    counts = np.asarray(counts, np.float64)
    weights = np.maximum(counts, min(1, counts[counts > 0].min())) ** distortion
    return weights / weights.sum()


def expected_counts(q, num_sampled, unique):
    """Returns `num_sampled q`; if unique, `min(1, tau q)` with the sum `num_sampled`."""
    if not unique:
        return num_sampled * q
    low, high = 0.0, num_sampled / q.min()
    for _ in range(60):
        tau = (low + high) / 2
        if np.minimum(1, tau * q).sum() < num_sampled:
            low = tau
        else:
            high = tau
    return np.minimum(1, high * q)


def by_inverse(q, uniform):
    """Returns the classes whose cumulative probabilities contain the numbers in [0, 1)."""
    return np.minimum(np.searchsorted(np.cumsum(q), uniform, side="right"), len(q) - 1)


def ordered_pivotal_inclusion(pi):
    """Returns first and second order inclusion probabilities of the ordered pivotal method.

    In the textbook form (Deville and Tille 1998), a survivor is compared with each class in
    turn. The sum of their two probabilities, up to 1, goes to one of them. All outcomes are
    enumerated.
    """
    n = len(pi)
    first, second = np.zeros(n), np.zeros((n, n))

    def walk(survivor, mass, unit, chosen, chance):
        if chance == 0:
            return
        if unit == n:
            chosen = [*chosen, survivor] if mass > 0.5 else chosen
            first[chosen] += chance
            second[np.ix_(chosen, chosen)] += chance
            return
        total = mass + pi[unit]
        if total < 1 - 1e-12:
            walk(survivor, total, unit + 1, chosen, chance * mass / total)
            walk(unit, total, unit + 1, chosen, chance * pi[unit] / total)
        else:
            first_wins = (1 - pi[unit]) / (2 - total) if total < 2 else 1.0
            walk(unit, total - 1, unit + 1, [*chosen, survivor], chance * first_wins)
            walk(survivor, total - 1, unit + 1, [*chosen, unit], chance * (1 - first_wins))

    walk(0, pi[0], 1, [], 1.0)
    return first, second


def by_logits(logits, labels, distribution, alpha=100.0):
    """Returns the distribution of one example over all classes except its labels."""
    logits = np.asarray(logits, np.float64)
    weights = {
        "softmax": np.exp(logits),
        "absolute_softmax": np.exp(np.abs(logits)),
        "quadratic": alpha * logits**2 + 1,
        "quartic": logits**4 + 1,
    }[distribution]
    weights[[y for y in labels if y >= 0]] = 0
    return weights / weights.sum()


def bernoulli(counts, expected, summed=slice(None)):
    """Returns `f^a` with the sum `expected` over the classes `summed`, a mask or slice.

    Barber & Botev 2016, section 2.1.2.
    """
    f = unigram(counts)
    low, high = 0.0, 100.0
    for _ in range(200):
        a = (low + high) / 2
        low, high = (a, high) if (f[summed] ** a).sum() > expected else (low, a)
    return f**low


def bigram(sequences, num_classes):
    """Returns q after each class, `[num_classes + 1, num_classes]`; the last row is for none.

    Witten & Bell 1991, method C, with the frequencies of single classes, at least 1 each.
    """
    alone = np.zeros(num_classes)
    after = np.zeros((num_classes + 1, num_classes))
    for sequence in sequences:
        for place, label in enumerate(sequence):
            if label < 0:
                continue
            alone[label] += 1
            if place > 0 and sequence[place - 1] >= 0:
                after[sequence[place - 1], label] += 1
    alone = np.maximum(alone, 1) / np.maximum(alone, 1).sum()
    q = np.zeros_like(after)
    for first, times in enumerate(after):
        distinct = np.count_nonzero(times)
        share = times.sum() / (times.sum() + distinct) if distinct else 0.0
        q[first] = share * times / max(times.sum(), 1) + (1 - share) * alone
    return q
