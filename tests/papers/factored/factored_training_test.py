"""`FactoredOutput` in `fit` against the same model with a dense layer, trained by SGD."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.papers.factored.factored_models import (
    BATCH,
    DIM,
    LOSSES,
    RATE,
    STEPS,
    DenseLoss,
    N,
    Pair,
    assert_close,
    data,
    each_loss,
    head,
    in_float64,
    model,
    nothing,
    several_labels,
    steps_of,
    words,
)
from tests.reference import factored_problem, spherical_losses
from tests.reference.factored_output import DenseLayer, with_labels, with_values
from tests.slow import slow_but
from tf_largeout import layers

FORMS = {
    "squared_error": {"steps_per_execution": 3},
    "spherical_softmax": {"run_eagerly": True},
    "taylor_softmax": {},
    "z_loss": {"loss_weights": [0.3]},
}


@pytest.mark.parametrize("name", slow_but(["z_loss"], FORMS))
@in_float64
def test_fit_equals_gradient_descent_of_a_dense_layer(name):
    pair = Pair(name, **FORMS[name]).fit(*data())
    pair.check_equal()
    assert steps_of(pair.head) == STEPS


@pytest.mark.parametrize(
    "name, reduction",
    slow_but(
        [("spherical_softmax", "mean_with_sample_weight"), ("taylor_softmax", "sum")],
        [
            ("squared_error", "sum_over_batch_size"),
            ("spherical_softmax", "mean_with_sample_weight"),
            ("taylor_softmax", "sum"),
            ("z_loss", "sum_over_batch_size"),
        ],
    ),
)
@in_float64
def test_examples_with_several_or_no_labels_and_weights(name, reduction):
    x, _ = data()
    weight = np.random.default_rng(3).random(len(x)) * (np.arange(len(x)) % 4 > 0)
    pair = Pair(name, bias=False, reduction=reduction, run_eagerly=True)
    pair.fit(x, several_labels(), sample_weight=weight).check_equal()


@pytest.mark.slow  # Keras converts them to example weights
@in_float64
def test_class_weights():
    pair = Pair("z_loss", run_eagerly=True).fit(
        *data(), class_weight={c: 1 + c % 3 for c in range(N)}
    )
    pair.check_equal()


@pytest.mark.parametrize("weighted", slow_but([True], [False, True]))
@in_float64
def test_masked_time_steps(weighted):
    random = np.random.default_rng(0)
    x = random.integers(0, 9, [3 * BATCH, 4])
    y = random.integers(0, N, [3 * BATCH, 4])
    weight = random.random([3 * BATCH, 4]) if weighted else None
    name = "squared_error" if weighted else "taylor_softmax"
    Pair(name, words, run_eagerly=True).fit(x, y, sample_weight=weight).check_equal()


class AgainstNumpy:
    """A layer and its loss, compared with `DenseLayer` step by step."""

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
        if dtype == "float32":  # both start from the same rounded values
            self.dense.kernel = np.float64(np.float32(self.dense.kernel))
            self.dense.bias = None if not bias else np.float64(np.float32(self.dense.bias))
        self.step = tf.function(self._step, autograph=False, reduce_retracing=True)

    def _step(self, features, labels, weights):
        with tf.GradientTape() as tape:
            tape.watch(features)
            loss = self.loss(labels, self.layer(features, training=True), weights)
        return loss, tape.gradient(loss, features)

    def batch(self, size):
        """A batch, its labels and weights: one label per example, -1 in a fifth of them."""
        first = self.problem.random.integers(-10, 40, [size, 1]).clip(-1)
        labels = np.pad(first, [(0, 0), (0, 1 - self.layer.use_bias)], constant_values=-1)
        features = self.problem.features(size).astype(self.layer.variable_dtype)
        weights = self.problem.random.random(size) * (self.problem.random.random(size) < 0.8)
        return with_labels(features, labels, weights), labels, weights

    def train(self, steps, size):
        for _ in range(steps):
            batch, labels, weights = self.batch(size)
            features = tf.constant(batch.features, self.layer.variable_dtype)
            found = self.step(features, tf.constant(labels), tf.constant(weights))
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


@pytest.mark.parametrize(
    "name, dtype",
    slow_but(
        [("z_loss", "float64"), ("spherical_softmax", "float64")],
        itertools.product(LOSSES, ["float32", "float64"]),
    ),
)
def test_each_step_and_its_gradient_equal_numpy(name, dtype):
    against = AgainstNumpy(name, bias=True, dtype=dtype).train(10, size=7)
    against.train(1, size=40)  # more rows than columns


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1, 7, 128])
@pytest.mark.parametrize("bias", [False, True])
@each_loss
def test_a_thousand_steps_equal_numpy(name, bias, size, dtype):
    AgainstNumpy(name, bias, dtype).train(1000, size)


@in_float64
def test_several_losses_with_different_labels_on_one_output_take_one_step():
    x, y = data(BATCH)
    several, layer, inputs = several_labels(BATCH), head(), keras.Input([DIM])
    logits = layer(inputs)
    one = keras.Model(inputs, [logits, logits])
    kinds = [LOSSES["squared_error"](), LOSSES["z_loss"]()]
    optimizer = keras.optimizers.SGD(RATE)
    one.compile(optimizer, kinds, loss_weights=[0.2, 1], run_eagerly=True)
    variables = [tf.Variable(layer.class_embeddings()), tf.Variable(layer.bias)]
    one.train_on_batch(x, [several, y])
    with tf.GradientTape() as tape:
        o = tf.matmul(x, variables[0], transpose_b=True) + variables[1]
        loss = 0.2 * DenseLoss("squared_error")(several, o) + DenseLoss("z_loss")(y, o)
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(RATE * gradient)
    assert_close(layer.class_embeddings(), variables[0])
    assert_close(layer.bias, variables[1])
    assert steps_of(layer) == 1


def sparse_targets(rows):
    """Sparse targets with repeated classes and empty examples, and their dense values."""
    random = np.random.default_rng(4)
    of_row = np.sort(random.integers(0, rows, 3 * rows))
    ids, values = random.integers(0, N, 3 * rows), random.normal(size=3 * rows)
    ids[1::9], of_row[1::9] = ids[::9][: len(ids[1::9])], of_row[::9][: len(ids[1::9])]
    dense = np.zeros([rows, N])
    np.add.at(dense, (of_row, ids), values)
    sparse = tf.SparseTensor(np.stack([of_row, ids], axis=1), values, [rows, N])
    return tf.sparse.reorder(sparse), with_values(
        np.zeros([rows, DIM]), [range(N)] * rows, dense
    )


def dense_copy(layer, loss=None):
    loss = loss or spherical_losses.SquaredError(N)
    return DenseLayer(layer.class_embeddings().numpy(), layer.bias.numpy(), loss)


@pytest.mark.slow
@in_float64
@pytest.mark.parametrize("weight", slow_but([0.3], [0.0, 0.3, 1.0]))
def test_sparse_targets_in_a_custom_loop(weight):
    x, _ = data(BATCH)
    targets, expected = sparse_targets(BATCH)
    batch = expected._replace(features=x, weights=np.linspace(0, 2, BATCH))
    layer, loss, features = head(), LOSSES["squared_error"](weight), tf.constant(x)
    layer.build([None, DIM])
    dense = dense_copy(layer, spherical_losses.SquaredError(N, weight))

    @tf.function(autograph=False)
    def step(targets):
        with tf.GradientTape() as tape:
            tape.watch(features)
            value = loss(targets, layer(features, training=True), batch.weights)
        return value, tape.gradient(value, features)

    for _ in range(3):
        for one, other in zip(step(targets), dense.step(batch, RATE), strict=True):
            assert_close(one, other)
    assert_close(layer.class_embeddings(), dense.kernel)


@in_float64
def test_sparse_targets_in_fit():
    x, _ = data(3 * BATCH)
    _, expected = sparse_targets(3 * BATCH)
    targets = tf.sparse.from_dense(expected.values)  # tf.data does not accept repeated indices
    one = model("squared_error", nothing, run_eagerly=True)
    dense = dense_copy(one.layers[-1])
    batches = tf.data.Dataset.from_tensor_slices((x, targets)).batch(BATCH)
    value = one.evaluate(batches, verbose=0)
    assert value == pytest.approx(dense.value(expected._replace(features=x)), rel=1e-9)
    one.fit(batches, verbose=0, shuffle=False)
    for first in range(0, 3 * BATCH, BATCH):
        rows = slice(first, first + BATCH)
        dense.step(type(expected)(x[rows], *(part[rows] for part in expected[1:])), RATE)
    assert_close(one.layers[-1].class_embeddings(), dense.kernel)


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy, scale",
    slow_but(
        [("mixed_float16", 2.0**10), ("mixed_float16", 2.0**40)],
        [("mixed_float16", 2.0**10), ("mixed_float16", 2.0**40), ("mixed_bfloat16", None)],
    ),
    ids=["float16", "skipped", "bfloat16"],
)
def test_loss_scaling_neither_scales_nor_skips_a_step(policy, scale):
    optimizer = keras.optimizers.SGD(RATE)
    if scale:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=scale)
    trunk = lambda: [keras.Input([DIM]), keras.layers.Dense(DIM, dtype=policy)]  # noqa: E731
    one = model(trunk=trunk, dtype=policy, optimizer=optimizer)
    before, layer = one.layers
    x, y = data(BATCH)
    dense, kernel = dense_copy(layer, spherical_losses.TaylorSoftmax(N)), before.kernel.numpy()
    features = tf.cast(before(x), tf.float64).numpy()
    value, gradient = dense.step(with_labels(features, y[:, np.newaxis]), RATE)
    assert one.train_on_batch(x, y) == pytest.approx(value, rel=1e-5)
    assert_close(layer.class_embeddings(), dense.kernel, 1e-6)
    assert_close(layer.bias, dense.bias, 1e-6)
    change = -RATE * x.T @ gradient
    if scale == 2.0**40:  # float16 overflows, so the optimizer skips this batch
        change = np.zeros_like(kernel)
    np.testing.assert_allclose(before.kernel.numpy() - kernel, change, rtol=0.05, atol=1e-5)
    assert steps_of(layer) == 1 and layer.class_embeddings().dtype == "float32"


@in_float64
def test_the_learning_rate_follows_a_schedule():
    schedule = keras.optimizers.schedules.ExponentialDecay(4 * RATE, 2, 0.5)
    pair = Pair("taylor_softmax", nothing, rate=schedule, run_eagerly=True)
    pair.dense.optimizer = keras.optimizers.SGD(schedule)
    pair.fit(*data()).check_equal()


@pytest.mark.slow
@in_float64
def test_the_learning_rate_can_be_set_between_steps():
    pair = Pair("z_loss", run_eagerly=True).fit(*data(BATCH))
    pair.head.learning_rate = 4 * RATE
    assert pair.head.learning_rate == 4 * RATE
    for one in (pair.factored, pair.dense):
        one.optimizer.learning_rate = 4 * RATE
    pair.fit(*data(BATCH)).check_equal()
