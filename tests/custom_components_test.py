"""Custom losses, output layers and indexes work without a change of the package."""

import keras
import numpy as np
import tensorflow as tf

from tests import harness
from tf_largeout import layers, losses, metrics, optimizers, samplers
from tf_largeout.classes.class_scorer import ClassMatrix
from tf_largeout.search.inverted_file import InvertedFile
from tf_largeout.variables.initializers import constant_initializer

N, DIM, BATCH = 60, 8, 12
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(N, DIM)).astype("float32")
FEATURES = RNG.normal(size=(BATCH, DIM)).astype("float32")
LABELS = RNG.integers(0, N, BATCH)


class TaylorSoftmaxLoss(losses.SampledLoss):
    """Softmax with 1 + o + o^2 / 2 in place of exp(o): what is corrected is not o."""

    def candidate_losses(self, candidates):
        logits, counts = candidates.logits(), tf.exp(candidates.log_counts())
        has_effect = logits > tf.float32.min
        weights = tf.where(has_effect, _taylor(tf.where(has_effect, logits, 0)) / counts, 0)
        true = tf.math.log(_taylor(candidates.true_logits))
        has_label = candidates.has_label
        labels = tf.reduce_sum(tf.where(has_label, tf.exp(true), 0), axis=1)
        log_partition = tf.math.log(labels + tf.reduce_sum(weights, axis=1))
        return losses.softmax_cross_entropy(log_partition, true, has_label)

    def exact_losses(self, step):
        def add(state, logits, ids):
            return state + tf.reduce_sum(_taylor(logits), axis=1)

        matrix, features, labels = step.classes, step.features, step.labels.ids
        partition = matrix.fold_logits(features, add, tf.zeros(tf.shape(labels)[0]))
        true = tf.math.log(_taylor(matrix.dots(features, labels)))
        return losses.softmax_cross_entropy(tf.math.log(partition), true, labels >= 0)


def _taylor(logits):
    return 1 + logits + tf.square(logits) / 2


def test_a_custom_loss_defines_what_evaluate_reports():
    sampler = samplers.UniformSampler(N, seed=1)  # all classes, each once
    head = harness.built_head(ROWS, RNG.normal(size=N).astype("float32"), sampler)
    loss = TaylorSoftmaxLoss(reduction=None)
    in_training, in_evaluation = (
        loss(LABELS, head(FEATURES, training=training)) for training in (True, False)
    )
    terms = _taylor(FEATURES @ ROWS.T + head.bias.numpy()).numpy()
    expected = np.log(terms.sum(axis=1)) - np.log(terms[range(BATCH), LABELS])
    np.testing.assert_allclose(in_training, expected, rtol=1e-5)
    np.testing.assert_allclose(in_evaluation, expected, rtol=1e-5)


class SphericalStep(layers.Step):
    """q, s and a of Vincent et al. 2015 for a W that is never multiplied with the features."""

    def squared_error(self):
        features, matrix, labels = self.features, self.classes.values(), self.labels.ids
        gram = tf.matmul(matrix, matrix, transpose_a=True)  # a layer of its own would keep it
        q = tf.reduce_sum(tf.matmul(features, gram) * features, axis=1)
        rows = self.classes.rows(tf.maximum(labels, 0))
        a = tf.einsum("bd,bld->bl", features, rows)
        has_label = tf.cast(labels >= 0, tf.float32)
        return q - 2 * tf.reduce_sum(has_label * a, axis=1) + tf.reduce_sum(has_label, axis=1)


class SphericalTag(layers.OutputTag):
    step_class = SphericalStep


class FixedOutput(layers.ClassOutput):
    """A fixed W, of which only W'W `[dim, dim]` and some rows enter the loss."""

    tag_class = SphericalTag

    def __init__(self, rows, **kwargs):
        super().__init__(**kwargs)
        self.rows, self.num_classes = rows, len(rows)

    def build(self, input_shape):
        rows = self.add_weight(
            name="rows",
            shape=self.rows.shape,
            initializer=constant_initializer(self.rows),
            trainable=False,
            autocast=False,
        )
        self.class_matrix = ClassMatrix(rows, None, self.name)


class SquaredErrorLoss(losses.TaggedLoss):
    step_class = SphericalStep

    def of_step(self, step):
        return step.squared_error()


def test_a_custom_output_layer_and_tag_train_by_a_custom_loss():
    head = FixedOutput(ROWS)
    model = keras.Sequential([keras.layers.Dense(DIM), head])
    model.compile(optimizers.LazyAdam(0.01), SquaredErrorLoss())
    history = model.fit(FEATURES, LABELS, epochs=5, verbose=0).history["loss"]
    assert history[-1] < history[0]
    logits = model.predict(FEATURES, verbose=0)
    dense = logits - np.eye(N)[LABELS]
    expected = np.square(dense).sum(axis=1).mean()
    precision = metrics.PrecisionAtK(1)
    model.compile(loss=SquaredErrorLoss(), metrics=[precision], run_eagerly=True)
    evaluated = model.evaluate(FEATURES, LABELS, verbose=0, return_dict=True)
    np.testing.assert_allclose(evaluated["loss"], expected, rtol=1e-5)
    best = np.argmax(logits, axis=1)
    np.testing.assert_allclose(evaluated["precision_at_1"], np.mean(best == LABELS), rtol=1e-6)
    np.testing.assert_array_equal(head.top_k(model.layers[0](FEATURES), 1)[1][:, 0], best)


def test_a_custom_output_layer_supports_masks():
    head = FixedOutput(ROWS)
    assert head.supports_masking
    ids = np.array([[1, 0], [2, 3]])
    model = keras.Sequential([keras.layers.Embedding(5, DIM, mask_zero=True), head])
    model.compile(loss=losses.SoftmaxLoss(reduction="sum"))
    labels = np.array([[4, 5], [6, 7]])
    total = model.evaluate(ids, labels, verbose=0)
    logits = model.predict(ids, verbose=0)
    rows = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    expected = np.asarray(rows)[ids > 0].sum()
    np.testing.assert_allclose(total, expected, rtol=1e-5)


def test_a_loss_for_another_kind_of_layer_raises_an_error():
    head = FixedOutput(ROWS, name="fixed")
    try:
        losses.NCELoss()(LABELS, head(FEATURES, training=True))
    except ValueError as error:
        assert "NCELoss cannot be used with the FixedOutput 'fixed'" in str(error)
    else:
        raise AssertionError("a sampled loss took a layer that draws no classes")


class InvertedFileIndex:
    """The best rows of any array, without a model: what a retrieval index is made of."""

    def __init__(self, rows):
        self.rows = tf.Variable(rows)
        self.lists = InvertedFile(num_lists=8)
        self.lists.build(*rows.shape, self._add_weight)
        self.lists.fit(self.rows)

    def top_k(self, queries, k):
        return self.lists.search(queries, k, num_probes=8)

    @staticmethod
    def _add_weight(name, shape, dtype, initializer, on_host=False):
        return keras.Variable(initializer, shape=shape, dtype=dtype, name=name, trainable=False)


def test_a_custom_index_over_an_array_needs_no_layer():
    _, ids = InvertedFileIndex(ROWS).top_k(FEATURES, 5)
    expected = np.argsort(-FEATURES @ ROWS.T, axis=1)[:, :5]
    recall = np.mean(
        [len(set(a) & set(b)) / 5 for a, b in zip(ids.numpy(), expected, strict=True)]
    )
    assert recall > 0.9  # rows are kept in 8 bits
