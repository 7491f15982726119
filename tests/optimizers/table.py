"""The table of all row-sparse optimizers. Every test runs for each entry."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.reference import optimizers as reference
from tests.slow import slow_but
from tf_largeout import optimizers

NUM_ROWS = 40


@dataclasses.dataclass
class Member:
    """An entry; `keras_class` is None if Keras has no such optimizer."""

    ours: type
    keras_class: type | None
    oracle: type
    arguments: dict = dataclasses.field(default_factory=dict)

    def make(self, learning_rate=0.05, **options):
        return self.ours(learning_rate, **(self.arguments | options))

    def make_keras(self, learning_rate=0.05, **options):
        return self.keras_class(learning_rate, **(self.arguments | options))

    @property
    def has_one_rule(self):
        """Whether a sparse gradient of all rows has the same effect as a dense gradient."""
        optimizer = self.make()
        return not isinstance(optimizer, optimizers.LazyAdam) or (
            optimizer.row_beta_1 == optimizer.beta_1 and optimizer.row_step_offset == 0
        )

    def make_oracle(self, start, learning_rate=0.05):
        return self.oracle(start, learning_rate, **self.arguments)


_ADAM = (optimizers.LazyAdam, keras.optimizers.Adam, reference.Adam)
_ROW_ADAM = (optimizers.LazyAdam, None, reference.Adam)
_ADAGRAD = (optimizers.LazyAdagrad, keras.optimizers.Adagrad, reference.Adagrad)
_ROWWISE = (optimizers.RowwiseAdagrad, None, reference.RowwiseAdagrad)
_SGD = (optimizers.LazySGD, keras.optimizers.SGD, reference.SGD)

OPTIMIZERS = {
    "adam": Member(*_ADAM),
    "adam_betas": Member(*_ADAM, {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-3}),
    "adam_weight_decay": Member(*_ADAM, {"weight_decay": 0.3}),
    "adam_no_momentum": Member(*_ROW_ADAM, {"beta_1": 0.0, "row_step_offset": 0}),
    "adam_row_momentum": Member(*_ROW_ADAM, {"row_beta_1": 0.9, "row_step_offset": 0}),
    "adam_row_momentum_with_offset": Member(*_ROW_ADAM, {"row_beta_1": 0.9}),
    "adam_without_decay_of_skipped_rows": Member(
        *_ROW_ADAM, {"row_beta_1": 0.9, "decay_skipped": False, "row_step_offset": 0}
    ),
    "adagrad": Member(*_ADAGRAD),
    "adagrad_arguments": Member(
        *_ADAGRAD, {"initial_accumulator_value": 0.5, "epsilon": 1e-2, "weight_decay": 0.1}
    ),
    "rowwise_adagrad": Member(*_ROWWISE),
    "rowwise_adagrad_arguments": Member(
        *_ROWWISE, {"initial_accumulator_value": 0.5, "epsilon": 1e-2, "weight_decay": 0.1}
    ),
    "sgd": Member(*_SGD),
    "momentum": Member(*_SGD, {"momentum": 0.9}),
    "nesterov": Member(*_SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
}

# For tests that train models: one entry per class, with the most slots.
CLASSES = ["adam", "adagrad", "rowwise_adagrad", "nesterov"]
# For tests that are not about the update rule. The other entries are slow.
one_of_each_class = pytest.mark.parametrize(
    "member", slow_but(CLASSES, OPTIMIZERS), indirect=True
)


def random_slices(rng, dims=(5,), n=60, index_dtype="int64"):
    """Returns a sparse gradient with repeated ids and without many of the rows."""
    ids = rng.integers(0, NUM_ROWS, n) // 3 * 3
    values = rng.normal(size=(n, *dims)).astype("float32")
    dense_shape = tf.constant([NUM_ROWS, *dims])
    return tf.IndexedSlices(
        tf.constant(values), tf.constant(ids.astype(index_dtype)), dense_shape
    )


def random_weights(rng, dims=(5,)):
    return rng.normal(size=(NUM_ROWS, *dims)).astype("float32")


def dense(slices):
    """Returns the dense gradient that equals a sparse one."""
    result = np.zeros(slices.dense_shape, "float32")
    np.add.at(result, slices.indices.numpy(), slices.values.numpy())
    return tf.constant(result)


def state(optimizer, *variables):
    """Weights, slots and iterations as arrays."""
    return [v.numpy() for v in (*variables, *optimizer.variables)]
