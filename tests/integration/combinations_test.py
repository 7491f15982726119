"""Combinations of models, losses, samplers, optimizers, policies and options of `fit`."""

import contextlib
import functools
import subprocess
import sys
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests import replicas
from tests.integration import graphs
from tests.papers.lsh.lsh_forms import lsh_sampler
from tests.slow import slow_but

NUM_CLASSES, DIM, EXAMPLES, BATCH = 523, 8, 96, 16


def _head(sampler=None):
    sampler = sampler or tflo.samplers.UniformSampler(40, seed=3)
    return tflo.layers.LargeOutput(NUM_CLASSES, sampler)


def _encoder():
    return keras.layers.Dense(DIM, activation="tanh")


def _sequential(make_sampler=None, **kwargs):
    head = _head(make_sampler(40, seed=3, **kwargs) if make_sampler else None)
    return keras.Sequential([_encoder(), head])


_TOP_K = functools.partial(_sequential, tflo.samplers.TopKSampler, num_hard=10)
_LSH = functools.partial(_sequential, lsh_sampler, rebuild_every=5)
_INVERTED_FILE = functools.partial(
    _sequential, tflo.samplers.InvertedFileSampler, num_hard=10, start_step=3
)


def _functional():
    inputs = keras.Input((6,))
    return keras.Model(inputs, _head()(_encoder()(inputs)))


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = _encoder(), _head()

    def call(self, x, training=None):
        return self.head(self.encoder(x), training=training)


class SubclassedWithoutTraining(Subclassed):
    def call(self, x):
        return self.head(self.encoder(x))


def _language_model(tied=False, make_sampler=None, **kwargs):
    table = keras.layers.Embedding(NUM_CLASSES, DIM, mask_zero=True)
    sampler = make_sampler(40, seed=3, **kwargs) if make_sampler else "uniform"
    head = tflo.layers.LargeOutput(NUM_CLASSES, sampler, embeddings=table if tied else None)
    return keras.Sequential([table, keras.layers.SimpleRNN(DIM, return_sequences=True), head])


class Combination(NamedTuple):
    model: Any = _sequential
    loss: Any = tflo.losses.SampledSoftmaxLoss
    optimizer: Any = functools.partial(tflo.optimizers.LazyAdam, 0.02)
    policy: str = "float32"
    compile: dict = {}
    fit: dict = {}
    data: str = "one label"
    scope: Any = contextlib.nullcontext
    sparse: bool = True


def _mirrored():
    return replicas.two_replicas().scope()


def _adam(**kwargs):
    return functools.partial(tflo.optimizers.LazyAdam, 0.02, **kwargs)


WEIGHTS = np.linspace(0, 2, EXAMPLES).astype("float32")

COMBINATIONS = {
    "sequential": Combination(),
    "functional": Combination(_functional),
    "subclassed": Combination(Subclassed),
    "subclassed without training": Combination(SubclassedWithoutTraining),
    "several labels": Combination(data="several labels"),
    "positions in time": Combination(_language_model, data="time", sparse=False),
    "several labels in time": Combination(
        _language_model, data="several in time", sparse=False
    ),
    "nce": Combination(loss=tflo.losses.NCELoss),
    "negative sampling": Combination(loss=tflo.losses.NegativeSamplingLoss),
    "exact softmax": Combination(loss=tflo.losses.SoftmaxLoss, sparse=False),
    "sample weights": Combination(fit={"sample_weight": WEIGHTS}),
    "class weights": Combination(fit={"class_weight": {i: i % 3 for i in range(NUM_CLASSES)}}),
    "clipnorm": Combination(optimizer=_adam(clipnorm=0.1)),
    "clipvalue": Combination(optimizer=_adam(clipvalue=0.01)),
    "global clipnorm": Combination(optimizer=_adam(global_clipnorm=0.1)),
    "loss scale factor": Combination(optimizer=_adam(loss_scale_factor=128.0)),
    "learning rate schedule": Combination(
        optimizer=functools.partial(
            tflo.optimizers.LazyAdam, keras.optimizers.schedules.ExponentialDecay(0.03, 5, 0.9)
        ),
    ),
    "keras adam": Combination(
        optimizer=functools.partial(keras.optimizers.Adam, 0.02), sparse=False
    ),
    "steps per execution": Combination(compile={"steps_per_execution": 3}),
    "eager": Combination(compile={"run_eagerly": True}, sparse=False),
    "mixed bfloat16": Combination(policy="mixed_bfloat16"),
    "mixed float16": Combination(policy="mixed_float16"),
    "top k": Combination(_TOP_K),
    "top k, several labels": Combination(_TOP_K, data="several labels"),
    "top k, mixed float16": Combination(_TOP_K, policy="mixed_float16"),
    "top k, clipnorm": Combination(_TOP_K, optimizer=_adam(clipnorm=0.1)),
    "top k, mirrored": Combination(_TOP_K, scope=_mirrored, sparse=False),
    "stock metric": Combination(compile={"metrics": ["accuracy"]}, sparse=False),
    "lsh pool": Combination(_LSH),
    "lsh pool, mirrored": Combination(_LSH, scope=_mirrored, sparse=False),
    "lsh label, several labels": Combination(
        functools.partial(_LSH, query="label", hash="dwta"),
        data="several labels",
    ),
    "lsh pool of hash lists": Combination(functools.partial(_LSH, hash="wta", form="pool")),
    "lsh head, mixed bfloat16": Combination(
        functools.partial(_LSH, num_hard=10), policy="mixed_bfloat16"
    ),
    "inverted file": Combination(_INVERTED_FILE),
    "inverted file, several labels": Combination(_INVERTED_FILE, data="several labels"),
    "inverted file, mixed bfloat16": Combination(_INVERTED_FILE, policy="mixed_bfloat16"),
    "inverted file, mixed float16": Combination(_INVERTED_FILE, policy="mixed_float16"),
    "inverted file, steps per execution": Combination(
        _INVERTED_FILE, compile={"steps_per_execution": 3}
    ),
    "inverted file, global clipnorm": Combination(
        _INVERTED_FILE, optimizer=_adam(global_clipnorm=0.1)
    ),
    "inverted file, eager": Combination(
        _INVERTED_FILE, compile={"run_eagerly": True}, sparse=False
    ),
    "inverted file, mirrored": Combination(_INVERTED_FILE, scope=_mirrored, sparse=False),
    "inverted file, positions in time": Combination(
        functools.partial(
            _language_model,
            make_sampler=tflo.samplers.InvertedFileSampler,
            num_hard=10,
            start_step=3,
        ),
        data="time",
        sparse=False,
    ),
    "tied": Combination(functools.partial(_language_model, True), data="time", sparse=False),
    "tied, mirrored": Combination(
        functools.partial(_language_model, True),
        data="time",
        scope=_mirrored,
        sparse=False,
    ),
    "several at once": Combination(
        SubclassedWithoutTraining,
        policy="mixed_float16",
        compile={"steps_per_execution": 3},
        fit={"sample_weight": WEIGHTS},
        data="several labels",
    ),
    "tied, several labels in time": Combination(
        functools.partial(_language_model, True), data="several in time", sparse=False
    ),
    "mirrored": Combination(scope=_mirrored, sparse=False),
    "mirrored functional": Combination(_functional, scope=_mirrored, sparse=False),
}
# These two cover most kinds of models, data, options and policies. The others are slow.
SHORT = ("several at once",)


def _data(kind):
    rng = np.random.default_rng(5)
    classes = rng.integers(0, 30, EXAMPLES)
    if "time" in kind:
        x = rng.integers(1, 30, (EXAMPLES, 5))
        x[::4, 3:] = 0
        y = x * 7
        return x, np.stack([y, np.where(y % 2, y + 1, -1)], -1) if "several" in kind else y
    x = np.eye(30, 6)[classes % 6] + 0.1 * np.random.default_rng(1).normal(size=(EXAMPLES, 6))
    y = classes * 11
    if kind == "several labels":
        y = np.stack([y, np.where(y % 2, y + 1, -1), np.full(EXAMPLES, -1)], -1)
    return x.astype("float32"), y


def _compiled(combination):
    keras.utils.set_random_seed(1)
    keras.config.set_dtype_policy(combination.policy)
    with combination.scope():
        model = combination.model()
        model.compile(
            optimizer=combination.optimizer(), loss=combination.loss(), **combination.compile
        )
    return model


@pytest.fixture(autouse=True)
def restore_float32_policy():
    yield
    keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize("name", slow_but(SHORT, COMBINATIONS))
def test_training_lowers_the_exact_loss(name):
    combination = COMBINATIONS[name]
    x, y = _data(combination.data)
    model = _compiled(combination)
    before = model.evaluate(x, y, batch_size=BATCH, verbose=0, return_dict=True)["loss"]
    with combination.scope():  # otherwise TensorFlow traces the training step twice
        model.optimizer.build(model.trainable_variables)
    history = model.fit(
        x, y, batch_size=BATCH, epochs=4, verbose=0, validation_data=(x, y), **combination.fit
    ).history
    assert np.isfinite(history["loss"]).all()
    assert history["val_loss"][-1] < before - 0.1
    assert model(x[:3]).shape == (*x[:3].shape[: y.ndim - ("several" in
        combination.data)], NUM_CLASSES)  # fmt: skip


@pytest.mark.slow
def test_repeated_runs_are_bit_identical_under_op_determinism():
    # In another process, since determinism cannot be switched off again.
    code = "from tests.integration import combinations_test as t; t.check_repeated_runs()"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def check_repeated_runs():
    tf.config.experimental.enable_op_determinism()
    names = ("several labels in time", "nce", "mixed float16")
    for name in names:
        first, second = (_weights_after_fit(COMBINATIONS[name]) for _ in range(2))
        for one, other in zip(first, second, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=name)


def _weights_after_fit(combination):
    x, y = _data(combination.data)
    model = _compiled(combination)
    model.fit(x, y, batch_size=BATCH, epochs=1, shuffle=False, verbose=0, **combination.fit)
    return model.get_weights()


@pytest.mark.parametrize(
    "name",
    slow_but(
        ["several at once"],
        [name for name, combination in COMBINATIONS.items() if combination.sparse],
    ),
)
def test_no_tensor_of_a_training_step_grows_with_the_number_of_classes(name):
    combination = COMBINATIONS[name]
    x, y = _data(combination.data)
    assert graphs.tensors_of_size(_traced_step(combination, x, y), NUM_CLASSES) == []


def _traced_step(combination, x, y):
    model = _compiled(combination)
    model(x[:BATCH])
    model.optimizer.build(model.trainable_variables)
    step = tf.function(model.train_step)
    return step.get_concrete_function((tf.constant(x[:BATCH]), tf.constant(y[:BATCH])))


def test_tensors_of_size_finds_the_tensors_of_a_dense_optimizer():
    x, y = _data("one label")
    concrete = _traced_step(COMBINATIONS["keras adam"], x, y)
    assert graphs.tensors_of_size(concrete, NUM_CLASSES)
