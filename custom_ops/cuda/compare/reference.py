"""What the compared steps compute, in numpy and float64: all of them are held to this."""

import numpy as np

from custom_ops.cuda.compare.problem import ClassProblem, SampledProblem

Results = dict[str, np.ndarray]
_BLOCK = 65536  # classes at a time


def sampled_softmax(problem: SampledProblem) -> Results:
    """Returns the loss, its gradient by the features, and the changes of rows."""
    p, batch = problem, len(problem.labels)
    features = p.features.astype(np.float64)
    own, shared = (p.embeddings[ids].astype(np.float64) for ids in (p.labels, p.sampled))
    true_logits = (features * own).sum(1) + p.true_offsets
    logits = features @ shared.T + p.offsets
    logits[p.labels[:, None] == p.sampled] = -np.inf
    shift = np.maximum(true_logits, logits.max(1))
    total = np.exp(true_logits - shift) + np.exp(logits - shift[:, None]).sum(1)
    log_total = shift + np.log(total)
    d_logits = np.exp(logits - log_total[:, None]) / batch
    d_true = (np.exp(true_logits - log_total) - 1) / batch
    d_rows = np.concatenate([d_true[:, None] * features, d_logits.T @ features])
    gradient = np.zeros((len(p.touched), features.shape[1]))
    ids = np.concatenate([p.labels, p.sampled])
    np.add.at(gradient, np.searchsorted(p.touched, ids), d_rows)
    return {
        "loss": np.mean(log_total - true_logits),
        "d_features": d_logits @ shared + d_true[:, None] * own,
        **p.changes(_adam(p, gradient)),
    }


def _adam(problem: SampledProblem, gradient: np.ndarray) -> np.ndarray:
    """The rows of `touched` after the update."""
    p, adam = problem, problem.adam
    rows, momentum, velocity = (
        values[p.touched].astype(np.float64)
        for values in (p.embeddings, p.momentum, p.velocity)
    )
    momentum += (gradient - momentum) * (1 - adam.beta_1)
    velocity += (gradient**2 - velocity) * (1 - adam.beta_2)
    return rows - adam.step_size * momentum / (np.sqrt(velocity) + adam.epsilon)


def softmax_loss(problem: ClassProblem) -> Results:
    """Returns the mean loss over the batch."""
    return {"loss": np.mean(_log_partition(problem) - _true_logits(problem))}


def softmax(problem: ClassProblem) -> Results:
    """Returns the mean loss over the batch and its gradients."""
    log_partition = _log_partition(problem)
    features = problem.features.astype(np.float64)
    batch = len(features)
    d_embeddings = np.empty(problem.embeddings.shape, np.float64)
    d_features = np.zeros_like(features)
    for begin in range(0, len(d_embeddings), _BLOCK):
        rows = problem.embeddings[begin : begin + _BLOCK].astype(np.float64)
        share = np.exp(features @ rows.T - log_partition[:, None]) / batch
        d_embeddings[begin : begin + _BLOCK] = share.T @ features
        d_features += share @ rows
    np.subtract.at(d_embeddings, problem.labels, features / batch)
    d_features -= problem.embeddings[problem.labels] / batch
    loss = np.mean(log_partition - _true_logits(problem))
    return {"loss": loss, "d_features": d_features, "d_embeddings": d_embeddings}


def _log_partition(problem: ClassProblem) -> np.ndarray:
    features = problem.features.astype(np.float64)
    log_partition = np.full(len(features), -np.inf)
    for begin in range(0, len(problem.embeddings), _BLOCK):
        logits = features @ problem.embeddings[begin : begin + _BLOCK].astype(np.float64).T
        shift = logits.max(1)
        block = shift + np.log(np.exp(logits - shift[:, None]).sum(1))
        log_partition = np.logaddexp(log_partition, block)
    return log_partition


def _true_logits(problem: ClassProblem) -> np.ndarray:
    rows = problem.embeddings[problem.labels].astype(np.float64)
    return (problem.features * rows).sum(1)


def top_k(problem: ClassProblem) -> Results:
    """Returns the k highest logits of each row, falling, as scores and as logits of ids."""
    features = problem.features.astype(np.float64)
    best = np.empty((len(features), 0))
    for begin in range(0, len(problem.embeddings), _BLOCK):
        logits = features @ problem.embeddings[begin : begin + _BLOCK].astype(np.float64).T
        best = np.concatenate([best, logits], 1)
        best = -np.partition(-best, problem.top_k - 1, 1)[:, : problem.top_k]
    best = -np.sort(-best, 1)
    return {"scores": best, "logits of ids": best}


def logits_of(problem: ClassProblem, ids: np.ndarray) -> np.ndarray:
    """Returns the logits of ids `[batch, k]`, falling; NaN where an id is none or repeated."""
    valid = (ids >= 0) & (ids < len(problem.embeddings))
    rows = problem.embeddings[np.where(valid, ids, 0)].astype(np.float64)
    logits = np.einsum("bd,bkd->bk", problem.features.astype(np.float64), rows)
    repeated = (np.diff(np.sort(ids, 1), axis=1) == 0).any(1)
    return -np.sort(-np.where(valid & ~repeated[:, None], logits, np.nan), 1)
