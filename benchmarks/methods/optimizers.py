"""The optimizers of the benchmarks; a new one is a line in `OPTIMIZERS` and `ROW_PASSES`."""

import functools

import keras
import tensorflow as tf

from tf_largeout.optimizers import LazyAdagrad, LazyAdam, LazySGD, RowwiseAdagrad


class RowSparseAdam(keras.optimizers.Optimizer):
    """Adam as a user can write it: with unique, segment sum, gather and scatter.

    Repeated ids are merged. Then moments and rows of the ids in the gradient are read, changed
    and written back. Other rows keep their moments. Dense gradients are applied as in ordinary
    Adam. It shares no code with the optimizers of this package.

    Args:
        learning_rate: float or schedule.
        beta_1, beta_2, epsilon: as in Kingma & Ba 2015, algorithm 1.
    """

    def __init__(
        self, learning_rate=1e-3, beta_1=0.9, beta_2=0.999, epsilon=1e-7, name="row_sparse_adam"
    ):
        super().__init__(learning_rate=learning_rate, name=name)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.moments = [
            [self.add_variable_from_reference(v, name=name) for v in variables]
            for name in ("momentum", "velocity")
        ]
        self.slot_of = {v.value.ref(): slot for slot, v in enumerate(variables)}

    def update_step(self, gradient, variable, learning_rate):
        momentum, velocity = (slots[self.slot_of[variable.ref()]] for slots in self.moments)
        step = tf.cast(self.iterations + 1, tf.float32)
        rate = tf.cast(learning_rate, tf.float32)
        rate *= tf.sqrt(1 - self.beta_2**step) / (1 - self.beta_1**step)
        update = _update_rows if isinstance(gradient, tf.IndexedSlices) else _update_all
        moments = momentum.value, velocity.value
        update(gradient, variable, moments, (self.beta_1, self.beta_2), rate, self.epsilon)


def _adam(gradient, momentum, velocity, betas, rate, epsilon):
    momentum = betas[0] * momentum + (1 - betas[0]) * gradient
    velocity = betas[1] * velocity + (1 - betas[1]) * tf.square(gradient)
    return momentum, velocity, rate * momentum / (tf.sqrt(velocity) + epsilon)


def _update_rows(gradient, variable, moments, betas, rate, epsilon):
    rows, position = tf.unique(gradient.indices)
    merged = tf.math.unsorted_segment_sum(gradient.values, position, tf.size(rows))
    old = [tf.gather(moment, rows) for moment in moments]
    *new, change = _adam(merged, *old, betas, rate, epsilon)
    for moment, values in zip(moments, new, strict=True):
        moment.scatter_update(tf.IndexedSlices(values, rows))
    variable.scatter_sub(tf.IndexedSlices(change, rows))


def _update_all(gradient, variable, moments, betas, rate, epsilon):
    *new, change = _adam(gradient, *moments, betas, rate, epsilon)
    for moment, values in zip(moments, new, strict=True):
        moment.assign(values)
    variable.assign_sub(change)


class NoOptimizer(keras.optimizers.Optimizer):
    """Reads the gradients and updates no weight, to measure forward and backward only.

    `gradient_sum` is the sum of all gradients. TensorFlow does not compute gradients that no
    operation reads; a control dependency is not enough.
    """

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.gradient_sum = self.add_variable([], name="gradient_sum")

    def apply(self, grads, trainable_variables=None):
        self.build(trainable_variables)
        parts = [g.values if isinstance(g, tf.IndexedSlices) else g for g in grads]
        sums = [tf.cast(tf.reduce_sum(part), tf.float32) for part in parts]
        self.gradient_sum.value.assign_add(tf.add_n(sums))
        self.iterations.value.assign_add(1)

    def update_step(self, gradient, variable, learning_rate):
        raise NotImplementedError("NoOptimizer overrides `apply` and takes no steps.")


# How often a step reads or writes each updated row of the weights and of the slots.
ROW_PASSES = {
    "adam": 6,
    "adagrad": 4,
    "sgd": 2,
    "lazy_adam": 4,
    "lazy_adam_row_momentum": 6,
    "lazy_adagrad": 4,
    "rowwise_adagrad": 2,
    "lazy_sgd": 2,
    "row_sparse_adam": 6,
    "none": 0,
}

OPTIMIZERS = {
    "adam": keras.optimizers.Adam,
    "adagrad": keras.optimizers.Adagrad,
    "sgd": keras.optimizers.SGD,
    "lazy_adam": LazyAdam,
    "lazy_adam_row_momentum": functools.partial(
        LazyAdam, row_beta_1=0.9, decay_skipped=False, row_step_offset=0
    ),
    "lazy_adagrad": LazyAdagrad,
    "rowwise_adagrad": RowwiseAdagrad,
    "lazy_sgd": LazySGD,
    "row_sparse_adam": RowSparseAdam,
    "none": NoOptimizer,
}
