"""`FactoredOutput` in `fit` against the same model with a dense layer, trained by SGD."""

import numpy as np
import pytest
import tensorflow as tf

from tests.layers.factored_models import (
    BATCH,
    LOSSES,
    STEPS,
    N,
    Pair,
    data,
    each_loss,
    in_float64,
    several_labels,
    words,
)
from tests.reference import factored_problem
from tests.reference.factored_output import with_labels
from tf_largeout import layers


def steps_of(layer):
    return int(layer.class_matrix._weights.steps.numpy())


FORMS = {
    "squared_error": {"steps_per_execution": 3},
    "spherical_softmax": {"run_eagerly": True},
    "taylor_softmax": {},
    "z_loss": {"loss_weights": [0.3]},
}


@pytest.mark.parametrize("name, options", FORMS.items(), ids=FORMS)
@in_float64
def test_fit_is_gradient_descent_of_a_dense_layer(name, options):
    pair = Pair(name, **options).fit(*data())
    pair.check_equal()
    assert steps_of(pair.head) == STEPS


@pytest.mark.parametrize(
    "name, reduction",
    [
        ("squared_error", "sum_over_batch_size"),
        ("spherical_softmax", "mean_with_sample_weight"),
        ("taylor_softmax", "sum"),
        ("z_loss", "sum_over_batch_size"),
    ],
)
@in_float64
def test_several_labels_or_none_with_weights(name, reduction):
    x, _ = data()
    weight = np.random.default_rng(3).random(len(x)) * (np.arange(len(x)) % 4 > 0)
    pair = Pair(name, bias=False, reduction=reduction)
    pair.fit(x, several_labels(), sample_weight=weight).check_equal()


@in_float64
def test_weights_of_classes():
    pair = Pair("z_loss").fit(*data(), class_weight={c: 1 + c % 3 for c in range(N)})
    pair.check_equal()


@pytest.mark.parametrize("weighted", [False, True])
@in_float64
def test_masked_steps_of_time(weighted):
    random = np.random.default_rng(0)
    x = random.integers(0, 9, [3 * BATCH, 4])
    y = random.integers(0, N, [3 * BATCH, 4])
    weight = random.random([3 * BATCH, 4]) if weighted else None
    name = "squared_error" if weighted else "taylor_softmax"
    Pair(name, words).fit(x, y, sample_weight=weight).check_equal()


class AgainstNumpy:
    """A layer and its loss, step by step beside `DenseLayer`."""

    def __init__(self, name, bias, dtype):
        self.tolerance = {"float32": 1e-4, "float64": 1e-9}[dtype]
        self.problem = factored_problem.Problem(name, bias=bias)
        self.dense = self.problem.dense
        self.rate = self.problem.learning_rate
        self.layer = layers.FactoredOutput(
            self.problem.num_classes,
            self.rate,
            use_bias=bias,
            embeddings_initializer=self.dense.kernel,
            bias_initializer=self.dense.bias if bias else "zeros",
            dtype=dtype,
        )
        self.layer.build([None, self.problem.dim])
        self.loss = LOSSES[name](dtype=dtype)
        if dtype == "float32":  # both from the same numbers
            self.dense.kernel = np.float64(np.float32(self.dense.kernel))
            self.dense.bias = None if not bias else np.float64(np.float32(self.dense.bias))
        self.step = tf.function(self._step, autograph=False, reduce_retracing=True)

    def _step(self, features, labels, weights):
        with tf.GradientTape() as tape:
            tape.watch(features)
            loss = self.loss(labels, self.layer(features, training=True), weights)
        return loss, tape.gradient(loss, features)

    def batch(self, size):
        """Distinct labels, for which all losses agree on what several mean, or one."""
        first = self.problem.random.integers(0, 40, [size, 1])
        labels = first if self.layer.use_bias else np.concatenate([first, first * 0 - 1], 1)
        features = self.problem.features(size).astype(self.layer.variable_dtype)
        weights = self.problem.random.random(size) * (self.problem.random.random(size) < 0.8)
        return with_labels(features, labels, weights), labels

    def train(self, steps, size):
        for _ in range(steps):
            batch, labels = self.batch(size)
            features = tf.constant(batch.features, self.layer.variable_dtype)
            found = self.step(features, tf.constant(labels), tf.constant(batch.weights))
            for one, other in zip(found, self.dense.step(batch, self.rate), strict=True):
                factored_problem.assert_equal(one.numpy(), other, self.tolerance)
        self.check_weights()
        assert max(self.layer.drift().values()) < self.tolerance
        return self

    def check_weights(self):
        found = self.layer.class_embeddings().numpy()
        factored_problem.assert_equal(found, self.dense.kernel, self.tolerance)
        if self.layer.use_bias:
            found = self.layer.bias.numpy()
            factored_problem.assert_equal(found, self.dense.bias, self.tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@each_loss
def test_each_step_and_its_gradient_equal_those_in_numpy(name, dtype):
    against = AgainstNumpy(name, bias=True, dtype=dtype).train(10, size=7)
    against.train(1, size=40)  # more rows than columns


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1, 7, 128])
@pytest.mark.parametrize("bias", [False, True])
@each_loss
def test_a_thousand_steps_equal_those_in_numpy(name, bias, size, dtype):
    AgainstNumpy(name, bias, dtype).train(1000, size)
