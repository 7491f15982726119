"""A slow oracle of the search in an inverted file, with unquantized rows."""

import numpy as np


def search(features, rows, bias, means, mean_bias, offsets, ids, num_probes, k):
    """Finds the best classes in the best lists.

    Returns:
        For each query, a list of at most `k` ids, best first.
    """
    results = []
    for h in np.asarray(features, np.float64):
        list_scores = means.astype(np.float64) @ h + mean_bias
        enough = num_probes * -(-len(ids) // len(means))
        members = np.array([], ids.dtype)
        for i in np.argsort(-list_scores, kind="stable")[:num_probes]:
            if len(members) < enough:
                members = np.concatenate([members, ids[offsets[i] : offsets[i + 1]]])
        logits = rows[members].astype(np.float64) @ h + bias[members]
        results.append(members[np.argsort(-logits, kind="stable")][:k])
    return results


def nearest_lists(rows, means):
    """Returns for each row the list whose mean has the largest cosine with it."""
    directions = means / np.linalg.norm(means, axis=1, keepdims=True)
    return np.argmax(rows.astype(np.float64) @ directions.T.astype(np.float64), axis=1)


def row_probabilities(queries, means, mean_bias, offsets, ids):
    """Returns the probability of each row for each query, `[batch, num_rows]`, in float64.

    A list is drawn by the softmax of the score of its mean plus the log of its size. Then one
    of its members is drawn uniformly.
    """
    probabilities = np.zeros([len(queries), len(ids)])
    for h, row in zip(queries, probabilities, strict=True):
        masses = np.diff(offsets) * np.exp(means.astype(np.float64) @ h + mean_bias)
        for i in range(len(means)):
            members = ids[offsets[i] : offsets[i + 1]]
            row[members] = masses[i] / masses.sum() / max(len(members), 1)
    return probabilities
