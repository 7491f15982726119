"""A sampler that observes changes of the class embeddings inside the step."""

import gc
import itertools
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests import replicas
from tests.slow import slow_but
from tf_largeout.variables.replicas import local_variable

WORDS, DIM = 70, 4
IDS = np.random.default_rng(0).integers(0, WORDS, (48, 6))
OPTIMIZERS = {
    "adam": lambda: tflo.optimizers.LazyAdam(0.1),
    "adam, clipped": lambda: tflo.optimizers.LazyAdam(0.1, global_clipnorm=0.1),
    "rowwise adagrad": lambda: tflo.optimizers.RowwiseAdagrad(0.3),
    "sgd": lambda: tflo.optimizers.LazySGD(1.0, momentum=0.9),
}


class SumOfRows(tflo.samplers.UniformSampler):
    """Computes the sum of all class embeddings only from their changes."""

    def build(self, layer):
        super().build(layer)
        self.sum = self.add_weight(layer, "sum", (DIM,), "float32", "zeros")

    def rows_changed(self, ids, old_rows, layer):
        ids, places = tf.unique(ids)
        first = tf.math.unsorted_segment_min(
            tf.range(tf.size(places)), places, num_segments=tf.size(ids)
        )
        change = layer.class_matrix.rows(ids) - tf.gather(old_rows, first)
        local_variable(self.sum).assign_add(tf.reduce_sum(change, axis=0))


def _model(optimizer, tied=False, **compile):
    keras.utils.set_random_seed(2)
    table = keras.layers.Embedding(WORDS, DIM)
    head = tflo.layers.LargeOutput(
        WORDS, SumOfRows(12, seed=1), embeddings=table if tied else None
    )
    model = keras.Sequential([keras.Input([5], dtype="int64"), table, head])
    model.compile(OPTIMIZERS[optimizer](), tflo.losses.SampledSoftmaxLoss(), **compile)
    model.optimizer.build(model.trainable_variables)  # Otherwise each step is traced twice.
    return model, head


def _trained(model, head):
    """Trains, and returns the change of the sum as the sampler has it, and the true one."""
    before, ids = head.embeddings.numpy(), np.tile(IDS, (2, 1))
    model.fit(ids[:, :-1], ids[:, 1:], batch_size=8, verbose=0)
    return head.sampler_sum.numpy(), (head.embeddings.numpy() - before).sum(axis=0)


# The next test has steps in a graph.
@pytest.mark.parametrize(
    "optimizer, tied, eager",
    slow_but(
        [
            ("adam, clipped", True, True),
        ],
        itertools.product(OPTIMIZERS, [False, True], [False, True]),
    ),
)
def test_a_sampler_is_notified_of_each_changed_row(optimizer, tied, eager):
    followed, actual = _trained(*_model(optimizer, tied, run_eagerly=eager))
    assert np.abs(actual).max() > 0.01
    np.testing.assert_allclose(followed, actual, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_a_sampler_is_notified_with_several_steps_per_execution():
    followed, actual = _trained(*_model("adam", steps_per_execution=3))
    np.testing.assert_allclose(followed, actual, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_a_sampler_is_notified_of_the_rows_of_each_replica():
    with replicas.two_replicas().scope():
        model, head = _model("adam")
    followed, actual = _trained(model, head)
    np.testing.assert_allclose(followed, actual, rtol=1e-3, atol=1e-4)
    sums = replicas.two_replicas().experimental_local_results(head.sampler_sum.value)
    np.testing.assert_allclose(*sums, rtol=1e-4)


def test_a_sampler_is_notified_of_dense_gradients():
    model, head = _model("adam")
    model.compile(OPTIMIZERS["adam"](), tflo.losses.SoftmaxLoss(), run_eagerly=True)
    followed, actual = _trained(model, head)
    assert np.abs(actual).max() > 0.01
    np.testing.assert_allclose(followed, actual, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_deleted_layers_are_not_notified():
    table = keras.layers.Embedding(WORDS, DIM)
    table.build()
    for _ in range(3):
        head = tflo.layers.LargeOutput(WORDS, SumOfRows(12), embeddings=table)
        head.build((None, DIM))
        gone = weakref.ref(head)
        del head
        gc.collect()
        assert gone() is None
    assert len(table.embeddings._largeout_observers) == 1


def test_a_sampler_that_observes_rows_as_a_tail_raises_an_error():
    with pytest.raises(ValueError, match="distribution that the model does not change"):
        tflo.samplers.TopKSampler(20, num_hard=5, tail=SumOfRows(12))


def test_a_sampler_that_does_not_observe_rows_registers_no_observer():
    head = tflo.layers.LargeOutput(WORDS, "uniform")
    head.build((None, DIM))
    assert not hasattr(head.embeddings, "_largeout_observers")
