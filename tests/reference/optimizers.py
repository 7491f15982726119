"""Row-sparse optimizer steps by their formulas, one row at a time, in float64."""

import numpy as np


class RowOptimizer:
    """The state of one variable. `step` applies gradient rows `values` to the rows `ids`."""

    def __init__(self, weights, learning_rate, weight_decay=0.0):
        self.weights = np.array(weights, np.float64)
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.t = 0

    def step(self, values, ids):
        self.t += 1
        gradients = {}
        for value, row in zip(np.asarray(values, np.float64), np.asarray(ids), strict=True):
            gradients[row] = gradients.get(row, 0.0) + value
        for row, gradient in gradients.items():
            self.weights[row] *= 1 - self.learning_rate * self.weight_decay
            self.update(row, gradient)

    def dense_step(self, gradient):
        self.t += 1
        self.weights *= 1 - self.learning_rate * self.weight_decay
        self.update_all(np.asarray(gradient, np.float64))

    def update_all(self, gradient):
        for row, g in enumerate(gradient):
            self.update(row, g)


class Adam(RowOptimizer):
    """Sparse gradients use the decay `row_beta_1` for the first moment; 0 disables it.

    The bias correction of their second moment counts `row_step_offset` additional steps.
    """

    def __init__(
        self,
        *args,
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-7,
        decay_skipped=True,
        row_beta_1=0.0,
        row_step_offset=300,
        **kw,
    ):
        super().__init__(*args, **kw)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        self.decay_skipped, self.row_beta_1 = decay_skipped, row_beta_1
        self.row_step_offset = row_step_offset
        self.m = np.zeros_like(self.weights)
        self.v = np.zeros_like(self.weights)
        self.last = np.zeros(len(self.weights), int)

    def update(self, row, g):
        m = g
        if self.row_beta_1:
            self.decay(self.m, row, self.row_beta_1)
            m = self.m[row] = self.row_beta_1 * self.m[row] + (1 - self.row_beta_1) * g
        self.move(row, g, m, self.row_beta_1, self.row_step_offset)

    def update_all(self, gradient):
        for row, g in enumerate(gradient):
            self.decay(self.m, row, self.beta_1)
            self.m[row] = self.beta_1 * self.m[row] + (1 - self.beta_1) * g
            self.move(row, g, self.m[row], self.beta_1, 0)

    def decay(self, moment, row, beta):
        if self.decay_skipped:
            for _ in range(self.last[row] + 1, self.t):
                moment[row] *= beta

    def move(self, row, g, m, beta_1, step_offset):
        self.decay(self.v, row, self.beta_2)
        self.last[row] = self.t
        self.v[row] = self.beta_2 * self.v[row] + (1 - self.beta_2) * g**2
        m_hat = m / (1 - beta_1**self.t)
        correction = np.sqrt(1 - self.beta_2 ** (self.t + step_offset))
        v_hat = np.sqrt(self.v[row]) / correction
        self.weights[row] -= self.learning_rate * m_hat / (v_hat + self.epsilon / correction)


class Adagrad(RowOptimizer):
    def __init__(self, *args, initial_accumulator_value=0.1, epsilon=1e-7, **kw):
        super().__init__(*args, **kw)
        self.epsilon = epsilon
        self.a = np.full_like(self.weights, initial_accumulator_value)

    def update(self, row, g):
        self.a[row] += g**2
        self.weights[row] -= self.learning_rate * g / np.sqrt(self.a[row] + self.epsilon)


class RowwiseAdagrad(RowOptimizer):
    def __init__(self, *args, initial_accumulator_value=0.0, epsilon=1e-7, **kw):
        super().__init__(*args, **kw)
        self.epsilon = epsilon
        self.a = np.full(len(self.weights), initial_accumulator_value)

    def update(self, row, g):
        self.a[row] += np.mean(g**2)
        self.weights[row] -= self.learning_rate * g / np.sqrt(self.a[row] + self.epsilon)


class SGD(RowOptimizer):
    def __init__(self, *args, momentum=0.0, nesterov=False, **kw):
        super().__init__(*args, **kw)
        self.momentum, self.nesterov = momentum, nesterov
        self.m = np.zeros_like(self.weights)

    def update(self, row, g):
        self.m[row] = self.momentum * self.m[row] - self.learning_rate * g
        step = self.m[row]
        if self.nesterov:
            step = self.momentum * step - self.learning_rate * g
        self.weights[row] += step
