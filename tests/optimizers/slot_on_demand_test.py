"""The momentum of `LazyAdam` for class rows, which exists only if a gradient is dense."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.slow import slow_but
from tf_largeout import layers, losses, optimizers, resize_classes, samplers
from tf_largeout.variables import class_rows

N, DIM = 60, 4
RNG = np.random.default_rng(3)
X, Y = RNG.integers(1, 20, (16, 5)), RNG.integers(0, N, 16)


def new_model(num_shards=1, has_all_slots=False, seed=1, **options):
    """Returns a model; with `has_all_slots`, its optimizer is as that of older versions."""
    keras.utils.set_random_seed(seed)
    head = layers.LargeOutput(N, samplers.UniformSampler(8), num_shards=num_shards, **options)
    bag = layers.EmbeddingBag(20, DIM)
    model = keras.Sequential([keras.Input([5], dtype="int64"), bag, head])
    for variable in model.trainable_variables if has_all_slots else ():
        delattr(variable, class_rows.SPARSE)
    model.compile(optimizers.LazyAdam(0.05))
    model.optimizer.build(model.trainable_variables)
    return model


def train(model, *with_losses):
    for loss in with_losses:
        model.compile(model.optimizer, loss())
        model.train_on_batch(X, Y)


def num_bytes(model):
    return sum(np.asarray(one).nbytes for one in model.optimizer.variables)


def state(model):
    tables = [*class_rows.join_shards(model.weights), *model.optimizer.variables]
    return [np.asarray(one) for one in tables]


SAMPLED, EXACT = losses.SampledSoftmaxLoss, losses.SoftmaxLoss
ROWS = {(1, None), (2, None), (2, "bfloat16")}


@pytest.mark.parametrize("num_shards, dtype", slow_but([(2, None)], sorted(ROWS, key=str)))
def test_a_later_dense_gradient_has_the_effect_of_slots_from_the_start(num_shards, dtype):
    options = {"num_shards": num_shards, "embeddings_dtype": dtype}
    model, other = new_model(**options), new_model(**options, has_all_slots=True)
    assert num_bytes(other) - num_bytes(model) == 4 * (N * (DIM + 1) + 20 * DIM)
    for loss, missing in [(SAMPLED, N * (DIM + 1) + 20 * DIM), (EXACT, 20 * DIM)]:
        for one in (model, other):
            train(one, loss, loss)
        assert num_bytes(other) - num_bytes(model) == 4 * missing
        assert len(model.optimizer.variables) == len(other.optimizer.variables)
    train(model, SAMPLED, EXACT)
    train(other, SAMPLED, EXACT)
    for one, expected in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(one, expected)


def test_row_momentum_has_rows_from_the_start():
    model = new_model()
    optimizer = optimizers.LazyAdam(row_beta_1=0.9)
    optimizer.build(model.trainable_variables)
    assert [tuple(one.shape) for one in optimizer.variables if "momentum" in one.name] == [
        tuple(one.shape) for one in model.trainable_variables
    ]


def by_checkpoint(model, restored, path):
    before, after = (
        tf.train.Checkpoint(model=m, optimizer=m.optimizer) for m in (model, restored)
    )
    after.restore(before.save(path)).assert_consumed()
    return restored


def by_weights_file(model, restored, path):
    model.save_weights(f"{path}.weights.h5")
    restored.load_weights(f"{path}.weights.h5")
    return restored


def by_model_file(model, _, path):
    model.save(f"{path}.keras")
    return keras.models.load_model(f"{path}.keras")


WAYS = (by_checkpoint, by_weights_file, by_model_file)
CASES = [
    (way, shards, old, before, after)
    for way in WAYS
    for shards in [(1, 1), (2, 2), (1, 2), (2, 1)]
    for old in (False, True)
    for before in [(SAMPLED,), (SAMPLED, EXACT)]
    for after in [(), (EXACT,)]
    if way is not by_model_file or (shards[0] == shards[1] and not after)
]


@pytest.mark.parametrize(
    "way, shards, is_old, before, after",
    slow_but(
        [
            (by_checkpoint, (2, 2), False, (SAMPLED, EXACT), ()),
            (by_checkpoint, (2, 2), False, (SAMPLED,), (EXACT,)),
            (by_checkpoint, (2, 2), True, (SAMPLED, EXACT), ()),
            (by_checkpoint, (2, 1), False, (SAMPLED, EXACT), ()),
            (by_weights_file, (1, 2), True, (SAMPLED, EXACT), ()),
            (by_model_file, (1, 1), False, (SAMPLED,), ()),
        ],
        CASES,
    ),
)
def test_a_restored_optimizer_continues_as_the_saved_one(
    way, shards, is_old, before, after, tmp_path
):
    """`after`: what the restored model was trained with before it was restored."""
    model = new_model(shards[0], is_old)
    train(model, *before)
    restored = new_model(shards[1], seed=2)
    train(restored, *after)
    restored = way(model, restored, str(tmp_path / "state"))
    if not after and EXACT not in before:
        assert num_bytes(restored) == num_bytes(new_model(shards[1]))
    for one, expected in zip(state(restored), state(model), strict=True):
        np.testing.assert_array_equal(one if one.size else 0, expected if expected.size else 0)
    if shards[0] != shards[1]:
        return  # the order of sums depends on the shards
    for one in (model, restored):
        train(one, EXACT, EXACT)
    for one, expected in zip(restored.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, expected)


@pytest.mark.parametrize("num_shards", [1, 2])
def test_resizing_keeps_the_state_of_slots(num_shards):
    for before in [(SAMPLED,), (SAMPLED, EXACT)]:
        model = new_model(num_shards)
        train(model, *before)
        copy = resize_classes(model, N)
        assert num_bytes(copy) == num_bytes(model)
        for one in (model, copy):
            train(one, EXACT)
        for one, expected in zip(copy.get_weights(), model.get_weights(), strict=True):
            np.testing.assert_array_equal(one, expected)


def test_a_step_with_its_own_trace_creates_rows():
    """A model that is built in the trace of its first step, with a dense gradient."""

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.bag, self.head = layers.EmbeddingBag(20, DIM), layers.LargeOutput(N)

        def call(self, x, training=None):
            return self.head(self.bag(x), training=training)

        def train_step(self, data):
            return super().train_step(data)

    model = Model()
    model.compile(optimizers.LazyAdam(0.05), losses.SoftmaxLoss())
    model.fit(X, Y, 8, epochs=2, verbose=0)
    momentum = model.optimizer._momentums[1]
    assert tuple(momentum.shape) == (N, DIM) and np.any(momentum.numpy())
