"""A step with invalid input raises an error and changes nothing."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.pairs.features import DIM, FEATURES, IDS, LABELS, LENGTH, NUM_CLASSES
from tests.slow import slow_but


def _one(value):
    """Returns a function that sets one number of the fourth example of an array."""

    def spoil(array):
        array = array.copy()
        array.reshape(len(array), -1)[3, 0] = value
        return array

    return spoil


# Which of features, labels and weights is wrong, how, and the message.
BAD_INPUT = {
    "NaN in a feature": (0, _one(np.nan), "features.*must be finite"),
    "infinity in a feature": (0, _one(np.inf), "features.*must be finite"),
    "id above the classes": (1, _one(NUM_CLASSES), "class ids"),
    "id below -1": (1, _one(-2), "class ids"),
    "NaN in a weight": (2, _one(np.nan), "`sample_weight`.*must be finite"),
    "infinity in a weight": (2, _one(-np.inf), "`sample_weight`.*must be finite"),
}


def _model(name, **compile_arguments):
    """Returns a compiled model with a feature of the table `FEATURES`, and two inputs.

    The second input is added to the features of the output layer.
    """
    feature = FEATURES[name]
    keras.utils.set_random_seed(7)
    ids = keras.Input([LENGTH], dtype="int32")
    table = feature.table()
    hidden = table(ids)
    if feature.labels != "in time":
        hidden = keras.layers.GlobalAveragePooling1D()(hidden)
    added = keras.Input(hidden.shape[1:])
    hidden = keras.layers.Dense(DIM)(hidden) + added
    model = keras.Model([ids, added], feature.head(table)(hidden))
    metrics = [tflo.metrics.PrecisionAtK(1), tflo.metrics.RecallAtK(5)]
    model.compile(
        tflo.optimizers.LazyAdam(0.05), feature.loss(), metrics=metrics, **compile_arguments
    )
    return model


def _data(name):
    labels = LABELS[FEATURES[name].labels]
    shape = [*IDS.shape, DIM] if FEATURES[name].labels == "in time" else [len(IDS), DIM]
    features = np.random.default_rng(0).normal(size=shape).astype("float32")
    return features, labels, np.ones(len(IDS), "float32")


def _state(model):
    """Returns all variables by name; those of metrics are not among them."""
    return {v.path: v.numpy() for v in model.variables + model.optimizer.variables}


METHODS = {
    "fit": lambda model, x, y, w: model.fit(
        [IDS, x], y, sample_weight=w, batch_size=len(y), verbose=0
    ),
    "train_on_batch": lambda model, x, y, w: model.train_on_batch([IDS, x], y, w),
    "evaluate": lambda model, x, y, w: model.evaluate(
        [IDS, x], y, sample_weight=w, batch_size=len(y), verbose=0
    ),
}
METHODS["train_on_batch, eager"] = METHODS["train_on_batch"]


@pytest.mark.parametrize(
    ("name", "method"),
    slow_but(
        [
            ("plain", "fit"),
            ("plain", "train_on_batch, eager"),
            ("plain", "evaluate"),
            ("loss: SoftmaxLoss", "fit"),
            ("sampler: inverted_file", "fit"),
        ],
        itertools.product(FEATURES, METHODS),
    ),
)
def test_invalid_input_raises_an_error_and_changes_no_variable(name, method):
    model, data = _model(name, run_eagerly="eager" in method), _data(name)
    call = METHODS[method]
    call(model, *data)
    METHODS["train_on_batch"](model, *data)
    before = _state(model)
    for case, (which, spoil, message) in BAD_INPUT.items():
        bad = list(data)
        bad[which] = spoil(data[which])
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            call(model, *bad)
        after = _state(model)
        changed = [path for path in before if not np.array_equal(before[path], after[path])]
        assert not changed, f"{case}: {changed}"
    call(model, *data)


ENCODERS = {
    "EmbeddingBag": lambda: [tflo.layers.EmbeddingBag(9, DIM, name="bag")],
    "HashedBigrams": lambda: [
        tflo.layers.HashedBigrams(9, 20),
        tflo.layers.EmbeddingBag(29, DIM),
    ],
}


@pytest.mark.parametrize("name", slow_but(["EmbeddingBag"], ENCODERS))
def test_invalid_ids_of_an_encoder_change_no_variable(name):
    head = tflo.layers.LargeOutput(NUM_CLASSES, tflo.samplers.UniformSampler(10, seed=2))
    model = keras.Sequential([keras.Input([4], dtype="int64"), *ENCODERS[name](), head])
    model.compile(tflo.optimizers.LazyAdam(0.1), tflo.losses.SampledSoftmaxLoss())
    ids, labels = np.arange(32).reshape(8, 4) % 8 + 1, np.arange(8)
    model.fit(ids, labels, batch_size=8, verbose=0)
    before = _state(model)
    for bad in (_one(9), _one(-1)):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"`ids`.*below input_dim=9"):
            model.fit(bad(ids), labels, batch_size=8, verbose=0)
        after = _state(model)
        assert all(np.array_equal(before[path], after[path]) for path in before)


@pytest.mark.parametrize(
    "name", slow_but(["SampledSoftmaxLoss"], ["SampledSoftmaxLoss", "NCELoss", "SoftmaxLoss"])
)
def test_an_overflow_only_lowers_the_loss_scale(name):
    loss = getattr(tflo.losses, name)()
    model = keras.Sequential(
        [
            keras.layers.Embedding(30, 4, dtype="mixed_float16"),
            keras.layers.GlobalAveragePooling1D(dtype="mixed_float16"),
            tflo.layers.LargeOutput(
                NUM_CLASSES, tflo.samplers.UniformSampler(10), dtype="mixed_float16"
            ),
        ]
    )
    optimizer = keras.optimizers.LossScaleOptimizer(
        tflo.optimizers.LazyAdam(0.1), initial_scale=2.0**40
    )
    model.compile(optimizer, loss)
    words, labels = np.arange(24).reshape(8, 3), np.arange(8)
    model.build((None, 3))
    before = [variable.numpy() for variable in model.trainable_variables]
    model.train_on_batch(words, labels)
    assert optimizer.dynamic_scale == 2.0**39
    for was, now in zip(before, model.trainable_variables, strict=True):
        np.testing.assert_array_equal(now, was)


@pytest.mark.slow
def test_an_empty_batch_changes_no_weights():
    head = tflo.layers.LargeOutput(NUM_CLASSES, tflo.samplers.UniformSampler(10, seed=2))
    model = keras.Sequential([keras.layers.Dense(4), head])
    model.compile(tflo.optimizers.LazySGD(0.1), tflo.losses.SampledSoftmaxLoss())
    x, y = np.ones((8, 3), "float32"), np.arange(8)
    model.build(x.shape)
    model.optimizer.build(model.trainable_variables)
    before = [variable.numpy() for variable in model.trainable_variables]
    tf.function(model.train_step)((tf.constant(x[:0]), tf.constant(y[:0])))
    for was, now in zip(before, model.trainable_variables, strict=True):
        np.testing.assert_array_equal(now.numpy(), was)


class Subclassed(keras.Model):
    def __init__(self, heads):
        super().__init__()
        self.dense, self.head = keras.layers.Dense(DIM), heads[0]

    def call(self, inputs):
        return self.head(self.dense(inputs))


def _by_inputs(outputs_of):
    def model(heads):
        inputs = keras.Input([DIM])
        return keras.Model(inputs, outputs_of(heads, keras.layers.Dense(DIM)(inputs)))

    return model


MODELS = {
    "one output": _by_inputs(lambda heads, hidden: heads[0](hidden)),
    "two outputs": _by_inputs(lambda heads, hidden: [head(hidden) for head in heads]),
    "named outputs": _by_inputs(lambda heads, hidden: {h.name: h(hidden) for h in heads}),
    "subclassed": Subclassed,
}


@pytest.mark.parametrize("trained", [False, True], ids=["new", "trained"])
@pytest.mark.parametrize("name", MODELS)
def test_fit_works_after_a_first_step_that_could_not_be_traced(name, trained):
    names = ("first", "second")
    heads = [tflo.layers.LargeOutput(NUM_CLASSES, "uniform", name=one) for one in names]
    model = MODELS[name](heads)
    loss, inputs, labels = (
        tflo.losses.SampledSoftmaxLoss(),
        np.ones([4, DIM], "float32"),
        np.arange(4),
    )
    losses = loss
    if name == "two outputs":
        losses, labels = [loss, loss], [labels, labels]
    elif name == "named outputs":
        losses, labels = dict.fromkeys(names, loss), dict.fromkeys(names, labels)
    optimizer = tflo.optimizers.LazyAdam()
    if trained:
        model.compile(optimizer, losses)
        model.fit(inputs, labels, verbose=0)
    model.compile(optimizer, losses)
    wrong = keras.tree.map_structure(lambda one: one.astype("float32"), labels)
    with pytest.raises(ValueError, match="integer class ids"):
        model.fit(inputs, wrong, verbose=0)
    model.fit(inputs, labels, verbose=0, epochs=2)
    assert optimizer.iterations == 2 + trained
