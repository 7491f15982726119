"""A run that is saved, loaded in a new process and continued equals the uninterrupted one."""

import itertools
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.integration.samplers import NUM_CLASSES, SAMPLERS

BATCH, STEPS = 8, 12

OPTIMIZERS = {
    "adam": lambda: tflo.optimizers.LazyAdam(0.01),
    "adam of others": lambda: tflo.optimizers.LazyAdam(
        0.01, row_beta_1=0.9, decay_skipped=False, row_step_offset=0
    ),
    "rowwise adagrad": lambda: tflo.optimizers.RowwiseAdagrad(0.1),
    "momentum": lambda: tflo.optimizers.LazySGD(0.1, momentum=0.9),
    "adagrad": lambda: tflo.optimizers.LazyAdagrad(0.1),
}
# Each sampler, and each optimizer with one of them.
EVERY_PAIR = pytest.mark.parametrize(
    "sampler, optimizer",
    list(zip(SAMPLERS, itertools.cycle(OPTIMIZERS), strict=False)),
    ids=SAMPLERS,
)


def data(first_step, last_step):
    rng = np.random.default_rng(9)
    x = rng.integers(0, 40, (STEPS * BATCH, 5))
    y = rng.integers(-1, NUM_CLASSES, (STEPS * BATCH, 3))
    y[:, 0] = x[:, 0] * 7
    steps = slice(first_step * BATCH, last_step * BATCH)
    return tf.data.Dataset.from_tensor_slices((x[steps], y[steps])).batch(BATCH)


def new_model(sampler, optimizer):
    keras.utils.set_random_seed(4)
    model = keras.Sequential(
        [
            keras.layers.Embedding(40, 6),
            keras.layers.GlobalAveragePooling1D(),
            tflo.layers.LargeOutput(NUM_CLASSES, SAMPLERS[sampler]()),
        ]
    )
    model.compile(OPTIMIZERS[optimizer](), tflo.losses.SampledSoftmaxLoss())
    return model


def train(model, first_step, last_step):
    model.fit(data(first_step, last_step), shuffle=False, verbose=0)
    return model


def _in_new_process(expression):
    code = f"from tests.integration import resume_test as t; import keras; {expression}"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


@EVERY_PAIR
def test_a_run_saved_in_the_middle_of_an_epoch_continues_to_the_same_bits(
    sampler, optimizer, tmp_path
):
    whole = train(new_model(sampler, optimizer), 0, STEPS)
    half, end = tmp_path / "half.keras", tmp_path / "end.keras"
    train(new_model(sampler, optimizer), 0, 5).save(half)
    _in_new_process(
        f"t.train(keras.models.load_model({str(half)!r}), 5, {STEPS}).save({str(end)!r})"
    )
    _assert_equal_states(whole, keras.models.load_model(end))


@EVERY_PAIR
def test_a_checkpoint_continues_to_the_same_bits(sampler, optimizer, tmp_path):
    whole = train(new_model(sampler, optimizer), 0, STEPS)
    saved = train(new_model(sampler, optimizer), 0, 5)
    path = tf.train.Checkpoint(model=saved, optimizer=saved.optimizer).write(tmp_path / "half")
    resumed = new_model(sampler, optimizer)
    resumed.build((None, 5))
    resumed.optimizer.build(resumed.trainable_variables)
    checkpoint = tf.train.Checkpoint(model=resumed, optimizer=resumed.optimizer)
    checkpoint.read(path).assert_consumed()
    _assert_equal_states(whole, train(resumed, 5, STEPS))


def _assert_equal_states(one, other):
    for variables in ("variables", "optimizer.variables"):
        ones, others = (_variables(model, variables) for model in (one, other))
        assert len(ones) == len(others)
        for left, right in zip(ones, others, strict=True):
            np.testing.assert_array_equal(left.numpy(), right.numpy(), err_msg=left.path)


def _variables(model, name):
    for part in name.split("."):
        model = getattr(model, part)
    return [variable for variable in model if "metrics" not in variable.path
            and "compile" not in variable.path]  # fmt: skip
