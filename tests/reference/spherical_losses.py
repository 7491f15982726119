"""The spherical family of losses by their formulas, in float64.

Vincent, de Brebisson and Bouthillier, "Exact gradient updates in time independent of output
size for the spherical loss family", 2015, section 4. Of the N logits `o` of an example, these
losses need only `q = sum(o**2)`, `s = sum(o)` and the logits `a` of the few targets, whose
values are `t`.

Each class computes its loss in two independent ways:
    value, slopes: From `q` `[B]`, `s` `[B]`, `a` `[B, K]` and `t` `[B, K]`, 0 for padding. The
        slopes are the derivatives with respect to `q`, `s` and `a` (gamma, sigma and the
        columns of A-hat in equation 19).
    of_logits, gradient: From all logits `o` `[B, N]` and dense targets `[B, N]`. The gradient
        is that of `o`.
`scores(o)` `[B, N]` ranks the classes as the loss does: a higher score of a label means a lower
loss.

The target of an int label is 1 over the number of labels of its example. The squared error
accepts any numbers as targets. The other losses weight the loss of each label by its target.
"""

import numpy as np


def _weighted(t, *terms):
    """Returns `sum_k t_k term_k` for each term. A term may be infinite if its target is 0."""
    with np.errstate(invalid="ignore"):
        return [np.where(t != 0, t * term, 0).sum(-1) for term in terms]


class SquaredError:
    """`q - 2 sum_k a_k t_k + sum_k t_k**2` = `|o - t|**2`; equation 1.

    Targets must be of distinct classes. `unobserved_weight` multiplies the squares of the
    logits of classes whose target is 0.
    """

    def __init__(self, num_classes, unobserved_weight=1.0):
        self.num_classes, self.unobserved_weight = num_classes, unobserved_weight

    def value(self, q, s, a, t):
        observed = np.where(t != 0, (a - t) ** 2 - self.unobserved_weight * a**2, 0)
        return self.unobserved_weight * q + observed.sum(-1)

    def slopes(self, q, s, a, t):
        by_a = np.where(t != 0, 2 * (a - t) - 2 * self.unobserved_weight * a, 0)
        return np.full_like(q, self.unobserved_weight), np.zeros_like(s), by_a

    def of_logits(self, o, targets):
        return (self._weights(targets) * (o - targets) ** 2).sum(-1)

    def gradient(self, o, targets):
        return 2 * self._weights(targets) * (o - targets)

    def _weights(self, targets):
        return np.where(targets != 0, 1.0, self.unobserved_weight)

    def scores(self, o):
        return o


class SphericalSoftmax:
    """`-log((a**2 + epsilon) / (q + N epsilon))`."""

    def __init__(self, num_classes, epsilon=0.1):
        self.num_classes, self.epsilon = num_classes, epsilon

    def value(self, q, s, a, t):
        partition = (q + self.num_classes * self.epsilon)[:, None]
        return _weighted(t, np.log(partition) - np.log(a**2 + self.epsilon))[0]

    def slopes(self, q, s, a, t):
        by_q = t.sum(-1) / (q + self.num_classes * self.epsilon)
        return by_q, np.zeros_like(s), -t * 2 * a / (a**2 + self.epsilon)

    def of_logits(self, o, targets):
        p = o**2 + self.epsilon
        return -(targets * np.log(p / p.sum(-1, keepdims=True))).sum(-1)

    def gradient(self, o, targets):
        p = o**2 + self.epsilon
        mass = targets.sum(-1, keepdims=True)
        return 2 * o * (mass / p.sum(-1, keepdims=True) - targets / p)

    def scores(self, o):
        return np.abs(o)


class TaylorSoftmax:
    """`-log((1 + a + a**2 / 2) / (N + s + q / 2))`."""

    def __init__(self, num_classes):
        self.num_classes = num_classes

    def value(self, q, s, a, t):
        partition = (self.num_classes + s + q / 2)[:, None]
        return _weighted(t, np.log(partition) - np.log(1 + a + a**2 / 2))[0]

    def slopes(self, q, s, a, t):
        by_s = t.sum(-1) / (self.num_classes + s + q / 2)
        return by_s / 2, by_s, -t * (1 + a) / (1 + a + a**2 / 2)

    def of_logits(self, o, targets):
        p = 1 + o + o**2 / 2
        return -(targets * np.log(p / p.sum(-1, keepdims=True))).sum(-1)

    def gradient(self, o, targets):
        p = 1 + o + o**2 / 2
        mass = targets.sum(-1, keepdims=True)
        return (1 + o) * (mass / p.sum(-1, keepdims=True) - targets / p)

    def scores(self, o):
        return np.abs(1 + o)


class ZLoss:
    """`gamma softplus(beta (z_0 - z))` of the standardised logit `z = (a - s/N) / deviation`.

    `deviation**2 = q/N - (s/N)**2`. De Brebisson and Vincent, "The Z-loss: a shift and scale
    invariant classification loss belonging to the spherical family", 2016. NaN if all logits
    are equal. By default `z_0` is twice the expected maximum of N normal deviates.
    """

    def __init__(self, num_classes, beta=1.0, z_0=None, gamma=1.0):
        self.num_classes, self.beta, self.gamma = num_classes, beta, gamma
        self.z_0 = np.sqrt(8 * np.log(num_classes)) if z_0 is None else z_0

    def _standardised(self, q, s, a):
        """Returns `z` `[B, K]` and the standard deviation `[B, 1]`."""
        mean = s / self.num_classes
        with np.errstate(divide="ignore", invalid="ignore"):
            deviation = np.sqrt(q / self.num_classes - mean**2)[:, None]
            return (a - mean[:, None]) / deviation, deviation

    def _by_z(self, z):
        return -self.gamma * self.beta / (1 + np.exp(-self.beta * (self.z_0 - z)))

    def value(self, q, s, a, t):
        z, _ = self._standardised(q, s, a)
        with np.errstate(invalid="ignore"):
            label_loss = self.gamma * np.logaddexp(0, self.beta * (self.z_0 - z))
        return _weighted(t, label_loss)[0]

    def slopes(self, q, s, a, t):
        """`dz/da = 1/D`, `dz/dq = -z / (2 N D**2)`, `dz/ds = (z s / (N D) - 1) / (N D)`."""
        z, deviation = self._standardised(q, s, a)
        with np.errstate(divide="ignore", invalid="ignore"):
            by_a = self._by_z(z) / deviation
            by_q = -by_a * z / (2 * self.num_classes * deviation)
            mean = s[:, None] / self.num_classes
            by_s = by_a * (z * mean / deviation - 1) / self.num_classes
            return *_weighted(t, by_q, by_s), np.where(t != 0, t * by_a, 0)

    def of_logits(self, o, targets):
        z = (o - o.mean(-1, keepdims=True)) / o.std(-1, keepdims=True)
        class_loss = self.gamma * np.logaddexp(0, self.beta * (self.z_0 - z))
        return (targets * class_loss).sum(-1)

    def gradient(self, o, targets):
        """Returns `dz_k/do_c = ([k = c] - 1/N - z_k z_c / N) / deviation`."""
        deviation = o.std(-1, keepdims=True)
        z = (o - o.mean(-1, keepdims=True)) / deviation
        by_z = targets * self._by_z(z)
        return (
            by_z - by_z.mean(-1, keepdims=True) - z * (by_z * z).mean(-1, keepdims=True)
        ) / deviation

    def scores(self, o):
        return o


LOSSES = {
    "squared_error": SquaredError,
    "spherical_softmax": SphericalSoftmax,
    "taylor_softmax": TaylorSoftmax,
    "z_loss": ZLoss,
}
