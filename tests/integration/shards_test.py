"""Files and checkpoints of sharded models load into any number of shards."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.harness import multi_optimizer
from tests.slow import slow_but

pytestmark = pytest.mark.portable

N, BATCH = 31, 8
RNG = np.random.default_rng(4)
X = RNG.normal(size=(12 * BATCH, 5)).astype("float32")
Y = RNG.integers(0, N, 12 * BATCH)

OPTIMIZERS = {
    "adam": lambda: tflo.optimizers.LazyAdam(0.05, row_beta_1=0.9),
    "rowwise adagrad": lambda: tflo.optimizers.RowwiseAdagrad(0.1),
    "momentum": lambda: tflo.optimizers.LazySGD(0.5, momentum=0.9),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(tflo.optimizers.LazyAdam(0.05)),
    "two": lambda: multi_optimizer(
        tflo.optimizers.LazyAdam(1e-2),
        {".*large_output.*": tflo.optimizers.LazySGD(1.0, momentum=0.5)},
    ),
}
COUNTS = [(1, 3), (3, 1), (3, 7), (2, 3), (3, 2)]
# Each optimizer, and each change of the number of shards.
PAIRS = [(one, *counts) for one, counts in zip(OPTIMIZERS, COUNTS, strict=True)]


def new_model(num_shards, optimizer, seed=5, has_slots=True, eagerly=False):
    keras.utils.set_random_seed(seed)
    sampler = tflo.samplers.UniformSampler(6, seed=1)
    model = keras.Sequential(
        [
            keras.Input([5]),
            keras.layers.Dense(4),
            tflo.layers.LargeOutput(N, sampler, num_shards=num_shards),
        ]
    )
    loss = tflo.losses.SampledSoftmaxLoss()
    model.compile(OPTIMIZERS[optimizer](), loss, run_eagerly=eagerly)
    if has_slots:
        model.optimizer.build(model.trainable_variables)
    return model


def train(model, half):
    rows = slice(half * 6 * BATCH, (half + 1) * 6 * BATCH)
    model.fit(X[rows], Y[rows], batch_size=BATCH, shuffle=False, verbose=0)
    return model


@functools.cache
def half(num_shards, optimizer):
    """Returns a model after the first half. Do not train it further."""
    return train(new_model(num_shards, optimizer), 0)


def weights(model):
    dense, head = model.layers
    return [*dense.get_weights(), head.class_embeddings().numpy()]


@functools.cache
def uninterrupted(optimizer):
    """Returns the weights of a model with one shard after both halves."""
    return weights(train(train(new_model(1, optimizer), 0), 1))


def assert_resumes(model, optimizer):
    """Checks that the second half gives the bits of an uninterrupted run with one shard."""
    for expected, found in zip(uninterrupted(optimizer), weights(train(model, 1)), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer, before, after", PAIRS)
@pytest.mark.parametrize("file", ["model.keras", "model.weights.h5"])
def test_a_run_resumes_from_a_file_in_any_number_of_shards(
    optimizer, before, after, file, tmp_path
):
    model = half(before, optimizer)
    save = model.save if file.endswith(".keras") else model.save_weights
    save(tmp_path / file)
    resumed = new_model(after, optimizer, seed=6)
    resumed.load_weights(tmp_path / file)
    assert_resumes(resumed, optimizer)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "two"])
def test_a_loaded_model_has_the_saved_number_of_shards(optimizer, tmp_path):
    half(3, optimizer).save(tmp_path / "model.keras")
    resumed = keras.models.load_model(tmp_path / "model.keras")
    assert resumed.layers[-1].num_shards == 3
    assert_resumes(resumed, optimizer)


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer, before, after",
    [
        *(("adam", *counts) for counts in COUNTS),
        ("rowwise adagrad", 2, 2),
        ("scaled", 3, 3),
    ],
)
def test_a_run_resumes_from_a_checkpoint_in_any_number_of_shards(
    optimizer, before, after, tmp_path
):
    """Except with Keras optimizers that wrap ours. Checkpoints of MultiOptimizer lack slots."""
    model = half(before, optimizer)
    path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(tmp_path / "c")
    resumed = new_model(after, optimizer, seed=6)
    status = tf.train.Checkpoint(model=resumed, optimizer=resumed.optimizer).read(path)
    status.assert_existing_objects_matched()
    assert_resumes(resumed, optimizer)


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer, before, after",
    [
        ("adam", 3, 2),
        ("adam", 1, 3),
        ("adam", 3, 1),
        ("adam", 1, 1),
        ("rowwise adagrad", 2, 7),
        ("momentum", 3, 3),
    ],
)
def test_a_run_resumes_from_a_checkpoint_read_before_the_slots_exist(
    optimizer, before, after, tmp_path
):
    """The first step of `fit` creates the slots, and TensorFlow then restores them."""
    model = half(before, optimizer)
    path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(tmp_path / "c")
    resumed = new_model(after, optimizer, seed=6, has_slots=False)
    checkpoint = tf.train.Checkpoint(model=resumed, optimizer=resumed.optimizer)
    status = checkpoint.read(path)
    assert_resumes(resumed, optimizer)
    status.assert_consumed().assert_existing_objects_matched()
    # A checkpoint written now is complete.
    again = new_model(after, optimizer, seed=7)
    path = checkpoint.write(tmp_path / "again")
    tf.train.Checkpoint(model=again, optimizer=again.optimizer).read(path).assert_consumed()
    for each in (resumed, again):
        train(each, 0)
    for expected, found in zip(weights(resumed), weights(again), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_a_checkpoint_with_loss_scaling_needs_the_same_number_of_shards(tmp_path):
    model, other = (new_model(number, "scaled", eagerly=True) for number in (3, 2))
    train(model, 0)
    path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(tmp_path / "c")
    with pytest.raises(ValueError, match="incompatible tensor with shape"):
        tf.train.Checkpoint(model=other, optimizer=other.optimizer).read(path)


def test_checkpoints_contain_one_table_for_any_number_of_shards(tmp_path):
    for num_shards in (1, 3):
        model = half(num_shards, "adam")
        path = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        path.write(tmp_path / f"{num_shards}")
    # Without the empty arrays of slots on demand, whose rows are separate for shards.
    one, three = (
        sorted(tuple(s) for _, s in tf.train.list_variables(tmp_path / name) if 0 not in s)
        for name in ("1", "3")
    )
    assert one == three and (N, 4) in one


def test_loading_weights_of_another_shape_reports_both_shapes(tmp_path):
    half(3, "adam").save_weights(tmp_path / "a.weights.h5")
    other = keras.Sequential([keras.Input([5]), keras.layers.Dense(4)])
    other.add(tflo.layers.LargeOutput(N + 1, num_shards=2))
    with pytest.raises(ValueError, match=rf"\({N + 1}, 4\).*The file has.*\({N}, 4\)"):
        other.load_weights(tmp_path / "a.weights.h5")


@pytest.mark.slow
@pytest.mark.parametrize("num_shards", slow_but([3], [1, 3]))
def test_a_failing_step_changes_no_shard(num_shards):
    """An id out of range in one shard stops the step for all shards."""
    model = train(new_model(num_shards, "adam", eagerly=True), 0)
    variables, optimizer = model.trainable_variables, model.optimizer

    @tf.function(autograph=False)
    def step(last_id):
        grads = [tf.ones(tuple(variable.shape)) for variable in variables[:2]]
        for number, variable in enumerate(variables[2:]):
            ids = tf.stack([0, last_id if number == num_shards - 1 else 1])
            values = tf.ones([2, *variable.shape[1:]])
            grads.append(tf.IndexedSlices(values, ids, tf.constant(tuple(variable.shape))))
        optimizer.apply(grads, variables)

    before = [variable.numpy() for variable in [*variables, *optimizer.variables]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="99"):
        step(tf.constant(99))
    for variable, expected in zip([*variables, *optimizer.variables], before, strict=True):
        np.testing.assert_array_equal(variable, expected)
    step(tf.constant(2))
    assert int(optimizer.iterations) == 7
