"""One table of all row-sparse optimizers; each test takes each line of it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.reference import optimizers as reference
from tf_largeout import optimizers

NUM_ROWS = 40

# name: (our class, Keras class, oracle, arguments of the optimizers, arguments of the oracle)
OPTIMIZERS = {
    "adam": (optimizers.LazyAdam, keras.optimizers.Adam, reference.Adam, {}, {}),
    "adam_betas": (
        optimizers.LazyAdam,
        keras.optimizers.Adam,
        reference.Adam,
        {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-3},
        {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-3},
    ),
    "adam_decay_skipped": (
        optimizers.LazyAdam,
        None,
        reference.Adam,
        {"decay_skipped": True},
        {"decay_skipped": True},
    ),
    "adam_weight_decay": (
        optimizers.LazyAdam,
        keras.optimizers.Adam,
        reference.Adam,
        {"weight_decay": 0.3},
        {"weight_decay": 0.3},
    ),
}


@pytest.fixture(params=OPTIMIZERS)
def member(request):
    return Member(*OPTIMIZERS[request.param])


class Member:
    """A line of the table."""

    def __init__(self, ours, keras_class, oracle, arguments, oracle_arguments):
        self.ours, self.keras_class, self.oracle = ours, keras_class, oracle
        self.arguments, self.oracle_arguments = arguments, oracle_arguments

    def make(self, learning_rate=0.05, **options):
        return self.ours(learning_rate, **self.arguments, **options)


def random_slices(rng, dims=(5,), n=60, num_rows=NUM_ROWS):
    """A sparse gradient with repeated ids that misses many rows."""
    ids = rng.integers(0, num_rows, n) // 3 * 3
    values = rng.normal(size=(n, *dims)).astype("float32")
    return tf.IndexedSlices(
        tf.constant(values), tf.constant(ids), tf.constant([num_rows, *dims])
    )


def weights(rng, dims=(5,)):
    return rng.normal(size=(NUM_ROWS, *dims)).astype("float32")


@pytest.mark.parametrize("dims", [(5,), (), (2, 3), (16,), (40,)], ids=str)
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_sparse_step_equals_the_formula(member, dims, graph, for_all_simd_levels):
    rng = np.random.default_rng(1)
    start = weights(rng, dims)
    variable = keras.Variable(start)
    oracle = member.oracle(start, 0.05, **member.oracle_arguments)
    optimizer = member.make()
    optimizer.build([variable])
    apply = tf.function(lambda slices: optimizer.apply([slices], [variable]))
    for _ in range(4):
        slices = random_slices(rng, dims)
        if graph:
            apply(slices)
        else:
            optimizer.apply([slices], [variable])
        oracle.step(slices.values, slices.indices)
    np.testing.assert_allclose(variable, oracle.weights, rtol=1e-4, atol=1e-5)
