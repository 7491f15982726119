"""The optimizers of the benchmarks; a new one is a line in `OPTIMIZERS` and `ROW_PASSES`."""

import functools

import keras
import tensorflow as tf

from benchmarks.methods.row_sparse_adam import RowSparseAdam
from tf_largeout.optimizers import LazyAdagrad, LazyAdam, LazySGD, RowwiseAdagrad


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
