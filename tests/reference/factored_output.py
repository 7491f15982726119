"""A dense output layer, and the factored form with the same gradient steps, in float64.

Equations and sections are those of Vincent, de Brebisson and Bouthillier, "Exact gradient
updates in time independent of output size for the spherical loss family", 2015. Arguments have
one example per row. Inside a step examples are columns, as in the paper. The losses are in
`spherical_losses`.
"""

from typing import NamedTuple

import numpy as np


class Refused(ArithmeticError):
    """A step is refused because it would make the state invalid. The state is unchanged."""


class Batch(NamedTuple):
    """The arguments of a step. The target classes of an example are distinct.

    features: `[B, d]`.
    ids: Target classes, `[B, K]`, padded with -1.
    values: Target values `[B, K]`, 0 for padding.
    weights: `[B]`; the loss of a batch is `sum_j weights_j loss_j / B`.
    """

    features: np.ndarray
    ids: np.ndarray
    values: np.ndarray
    weights: np.ndarray

    def dense_targets(self, num_classes):
        """Returns the targets of all classes, `[B, N]`."""
        result = np.zeros([len(self.ids), num_classes])
        row, k = np.nonzero(self.ids >= 0)
        result[row, self.ids[row, k]] = self.values[row, k]
        return result


def with_values(features, ids, values, weights=None):
    """Returns a batch with numbers as targets. Repeated classes of an example are added."""
    features, ids = np.array(features, np.float64), np.array(ids, np.int64)
    values = np.where(ids >= 0, values, 0.0)
    for i in range(ids.shape[1]):
        for first in range(i):
            same = (ids[:, i] == ids[:, first]) & (ids[:, i] >= 0)
            values[same, first] += values[same, i]
            ids[same, i], values[same, i] = -1, 0.0
    weights = np.ones(len(features)) if weights is None else np.array(weights, np.float64)
    return Batch(features, ids, values, weights)


def with_labels(features, labels, weights=None):
    """Returns a batch of int labels `[B, L]`, padded with -1. Each has the target 1 / #labels.

    A repeated label counts twice. Examples without labels are ignored: the loss of the batch is
    `sum_j weights_j loss_j` over the other examples, divided by their number.
    """
    labels = np.array(labels, np.int64)
    count = (labels >= 0).sum(-1)
    values = np.repeat(1 / np.maximum(count, 1)[:, None], labels.shape[1], axis=1)
    weights = np.ones(len(labels)) if weights is None else np.array(weights, np.float64)
    share = len(labels) / max((count > 0).sum(), 1)  # The loss is divided by the batch size.
    return with_values(features, labels, values, np.where(count > 0, share * weights, 0.0))


class DenseLayer:
    """`o = W h + b`, trained by plain gradient descent on all logits; equation 23."""

    def __init__(self, kernel, bias, loss):
        self.kernel = np.array(kernel, np.float64)  # [N, d]
        self.bias = None if bias is None else np.array(bias, np.float64)  # [N]
        self.loss = loss

    def logits(self, features):
        return features @ self.kernel.T + (0.0 if self.bias is None else self.bias)

    def value(self, batch):
        """Returns the loss of the batch."""
        targets = batch.dense_targets(len(self.kernel))
        return _mean(self.loss.of_logits(self.logits(batch.features), targets), batch)

    def step(self, batch, learning_rate):
        """Returns the loss and its gradient for the features `[B, d]`, both before the step."""
        if not len(batch.features):
            return 0.0, np.zeros_like(batch.features)
        loss, logits = self.value(batch), self.logits(batch.features)
        by_logits = self.loss.gradient(logits, batch.dense_targets(len(self.kernel)))
        by_logits *= batch.weights[:, None] / len(batch.weights)
        gradient = by_logits @ self.kernel
        self.kernel -= learning_rate * by_logits.T @ batch.features
        if self.bias is not None:
            self.bias -= learning_rate * by_logits.sum(0)
        return loss, gradient


class FactoredLayer:
    """The same layer as `W = V U + 1 omega^T` (equation 24). A step never computes W.

    With a bias, features have a 1 appended and `W` is `[N, d + 1]`. With D the width of `W`:
        V `[N, D]`, U `[D, D]`, U_inverse `[D, D]`, omega `[D]`,
        w_bar `[D]`: `W^T 1`, updated by equation 34,
        Q `[D, D]`: `W^T W`, updated by equation 35.
    """

    def __init__(self, kernel, bias, loss, min_pivot=1e-8):
        columns = [kernel] if bias is None else [kernel, np.reshape(bias, [-1, 1])]
        self.V = np.concatenate(columns, axis=1).astype(np.float64)
        self.num_classes, width = self.V.shape
        self.U, self.U_inverse, self.omega = np.eye(width), np.eye(width), np.zeros(width)
        self.Q, self.w_bar = self.V.T @ self.V, self.V.sum(0)
        self.has_bias, self.loss, self.min_pivot = bias is not None, loss, min_pivot

    def state(self):
        names = ("V", "U", "U_inverse", "omega", "w_bar", "Q")
        return {name: getattr(self, name).copy() for name in names}

    def step(self, batch, learning_rate):
        """Applies the minibatch update of section 4.8, for the mean of the losses.

        Returns:
            The same as `DenseLayer.step`.

        Raises:
            Refused: If U would become singular, or the result is not finite.
        """
        if not len(batch.features):
            return 0.0, np.zeros_like(batch.features)
        H = self._columns(batch.features)
        loss, by_q, by_s, A_hat = self._loss(H, batch)
        Z = self.U.T @ (self.V.T @ A_hat) + np.outer(self.omega, A_hat.sum(0))  # eq. 31, 32
        by_features = 2 * self.Q @ H * by_q + np.outer(self.w_bar, by_s) + Z  # eq. 33
        _require_finite("loss or its gradient", loss, by_features)
        with np.errstate(over="ignore", invalid="ignore"):
            new = self._updated(H, by_q, by_s, A_hat, Z, learning_rate)
        _require_finite("new state", *new.values())
        vars(self).update(new)
        return loss, by_features[: batch.features.shape[1]].T

    def _columns(self, features):
        """Returns features as columns `[D, B]`, with a 1 appended for the bias."""
        ones = np.ones([len(features), int(self.has_bias)])
        return np.concatenate([features, ones], axis=1).T

    def _loss(self, H, batch):
        """Returns the loss and its derivatives for q, s `[B]` and target logits `[N, B]`."""
        q = np.einsum("dj,de,ej->j", H, self.Q, H)  # eq. 14
        s = H.T @ self.w_bar  # eq. 15
        hidden, offset = self.U @ H, self.omega @ H  # eq. 28, 29
        j, k = np.nonzero(batch.ids >= 0)
        c, a = batch.ids[j, k], np.zeros(batch.ids.shape)
        a[j, k] = (self.V[c] * hidden[:, j].T).sum(1) + offset[j]  # eq. 30
        loss = _mean(self.loss.value(q, s, a, batch.values), batch)
        by_q, by_s, by_a = self.loss.slopes(q, s, a, batch.values)
        A_hat = np.zeros([self.num_classes, len(q)])
        scale = batch.weights / len(q)
        A_hat[c, j] = scale[j] * by_a[j, k]
        return loss, scale * by_q, scale * by_s, A_hat

    def _updated(self, H, by_q, by_s, A_hat, Z, learning_rate):
        """Returns the state after the step. `Z` `[D, B]` is `W^T A_hat` for the old W."""
        eta, N = learning_rate, self.num_classes
        M = np.eye(len(H)) - 2 * eta * (H * by_q) @ H.T
        U = self.U @ M  # eq. 25
        g = H @ by_s
        omega = M @ self.omega - eta * g  # eq. 26
        U_inverse = self._inverse_of(M, H, by_q, eta) @ self.U_inverse
        V = self.V - eta * A_hat @ H.T @ U_inverse  # eq. 27
        Hy = H @ A_hat.sum(0)
        w_bar = M @ self.w_bar - eta * Hy - eta * N * g  # eq. 34
        WG = Z @ H.T  # eq. 36
        MWG, Mwg = M @ WG, np.outer(M @ self.w_bar, g)
        squares = H @ (A_hat.T @ A_hat) @ H.T
        squares += np.outer(Hy, g) + np.outer(g, Hy) + N * np.outer(g, g)
        Q = M @ self.Q @ M - eta * (MWG + MWG.T + Mwg + Mwg.T - eta * squares)  # eq. 35
        return dict(V=V, U=U, U_inverse=U_inverse, omega=omega, w_bar=w_bar, Q=Q)

    def _inverse_of(self, M, H, by_q, eta):
        """Inverts `M = I - 2 eta H Gamma H^T` by the Woodbury identity, section 4.7.

        `I - 2 eta H^T H Gamma` has the same determinant, so its pivots show whether M is
        invertible.
        """
        small = np.eye(len(by_q)) - 2 * eta * (H.T @ H) * by_q
        pivot = smallest_pivot(small)
        if not pivot >= self.min_pivot:  # Also true for NaN.
            raise Refused(
                f"A step with learning rate {eta} would make U singular: the smallest pivot is "
                f"{pivot}, but must be at least {self.min_pivot}."
            )
        return np.eye(len(M)) + 2 * eta * (H * by_q) @ np.linalg.inv(small) @ H.T

    def stabilise(self, low=0.001, high=100.0):
        """Sets singular values of U outside `[low, high]` to 1 and corrects V; section 5.2.

        `V U` does not change: with `U = sum_i sigma_i p_i r_i^T`, V becomes
        `V (I + (sigma_i - 1) p_i p_i^T)`. U_inverse is recomputed, and Q is symmetrised.
        Returns the number of these singular values.
        """
        P, sigma, R = np.linalg.svd(self.U)
        offending = np.flatnonzero((sigma < low) | (sigma > high))
        for i in offending:
            self.V += (sigma[i] - 1) * np.outer(self.V @ P[:, i], P[:, i])
            self.U += (1 - sigma[i]) * np.outer(P[:, i], R[i])
        self.U_inverse = np.linalg.inv(self.U)
        self.Q = (self.Q + self.Q.T) / 2
        return len(offending)

    def drift(self):
        """Measures the errors of Q, w_bar and U_inverse, compared with V, U and omega.

        Returns the largest errors of Q, w_bar and `U U_inverse`, relative to the largest entry
        of Q, to `sqrt(N max diag Q)`, which bounds w_bar, and to 1.
        """
        W = self.weights()
        Q = W.T @ W
        largest = np.abs(Q).max()
        return {
            "Q": np.abs(self.Q - Q).max() / (largest or 1.0),
            "w_bar": np.abs(self.w_bar - W.sum(0)).max()
            / (np.sqrt(self.num_classes * largest) or 1.0),
            "U_inverse": np.abs(self.U @ self.U_inverse - np.eye(len(self.U))).max(),
        }

    def weights(self):
        """Returns `W` `[N, D]`, with the bias as last column if there is one."""
        return self.V @ self.U + self.omega

    def class_embeddings(self):
        """Returns the class embeddings `[N, d]`."""
        return self.weights()[:, :-1] if self.has_bias else self.weights()

    def bias(self):
        """Returns the bias `[N]`, or None."""
        return self.weights()[:, -1] if self.has_bias else None

    def logits(self, features):
        """Returns the logits `[B, N]`."""
        H = self._columns(features)
        return (self.V @ (self.U @ H) + self.omega @ H).T

    def top_k(self, features, k):
        """Returns the k largest logits per example and their classes; lower ids win ties."""
        logits = self.logits(features)
        order = np.stack([np.lexsort((np.arange(len(o)), -o))[:k] for o in logits])
        return np.take_along_axis(logits, order, 1), order


def with_folds(vectors, folds, seen):
    """Multiplies each row of V by the matrices G of the folds not yet applied to it.

    Args:
        vectors: V `[N, D]`.
        folds: `[places + 1, D + 1]`, the number of folds, then kind and factors of each.
        seen: `[N]`, the number of folds that have been applied to each row.
    """
    width = vectors.shape[1]
    after = np.array(vectors, np.float64)
    for i, (place, *factors) in enumerate(folds[1 : 1 + int(folds[0, 0])]):
        G = np.eye(width)
        if place == width:
            G *= factors[0]
        elif place < 0:
            G[:, int(-1 - place)] = factors
        else:
            G[int(place)] = factors
        pending = seen <= i
        after[pending] = after[pending] @ G
    return after


def _require_finite(what, *numbers):
    if not all(np.isfinite(one).all() for one in numbers):
        raise Refused(f"The {what} is not finite.")


def _mean(losses, batch):
    return batch.weights @ losses / len(losses)


def smallest_pivot(matrix):
    """Returns the smallest absolute pivot of Gaussian elimination with partial pivoting."""
    rest, smallest = np.array(matrix), np.inf
    while len(rest):
        largest = np.abs(rest[:, 0]).argmax()
        pivot_row, rest[largest] = rest[largest].copy(), rest[0]
        smallest = np.minimum(smallest, np.abs(pivot_row[0]))
        if not smallest > 0:  # Also true for NaN.
            break
        rest = rest[1:, 1:] - rest[1:, :1] * (pivot_row[1:] / pivot_row[0])
    return smallest
