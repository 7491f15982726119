"""A run that is saved, loaded and continued equals the uninterrupted one."""

import functools
import itertools
import subprocess
import sys
import traceback

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.integration.samplers import NUM_CLASSES, SAMPLERS
from tests.slow import slow_but

BATCH, STEPS = 8, 12

OPTIMIZERS = {
    "adam": lambda: tflo.optimizers.LazyAdam(0.01),
    "adam without decay of skipped rows": lambda: tflo.optimizers.LazyAdam(
        0.01, row_beta_1=0.9, decay_skipped=False, row_step_offset=0
    ),
    "rowwise adagrad": lambda: tflo.optimizers.RowwiseAdagrad(0.1),
    "nesterov": lambda: tflo.optimizers.LazySGD(0.1, momentum=0.9, nesterov=True),
    "adagrad": lambda: tflo.optimizers.LazyAdagrad(0.1),
}
# Each sampler, and each optimizer with one of them.
PAIRS = list(zip(SAMPLERS, itertools.cycle(OPTIMIZERS), strict=False))
# The others are slow.
IN_FILES = [pair for pair in PAIRS if pair[0] == "inverted_file"]
EVERY_PAIR = pytest.mark.parametrize("sampler, optimizer", PAIRS, ids=SAMPLERS)


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
    model.build((None, 5))
    model.optimizer.build(model.trainable_variables)  # avoids a second trace
    return model


def train(model, first_step, last_step):
    model.fit(data(first_step, last_step), shuffle=False, verbose=0)
    return model


def _state(model):
    variables = [*model.variables, *model.optimizer.variables]
    return [
        (variable.path, variable.numpy())
        for variable in variables
        if "metrics" not in variable.path and "compile" not in variable.path
    ]


@functools.cache
def uninterrupted(sampler, optimizer):
    """Returns the state after all steps."""
    return _state(train(new_model(sampler, optimizer), 0, STEPS))


@functools.cache
def half(sampler, optimizer):
    """Returns the model in the middle of its run."""
    return train(new_model(sampler, optimizer), 0, 5)


def resume_all(folder):
    """Finishes the training of each model `half ...` in a folder and saves it as `end ...`."""
    for half in folder.glob("half *"):
        try:
            model = train(keras.models.load_model(half), 5, STEPS)
            model.save(half.with_name(half.name.replace("half", "end")))
        except Exception:
            traceback.print_exc()  # The test then fails because the file is missing.


@pytest.fixture(scope="module")
def resumed(tmp_path_factory, request):
    """A folder with the resumed models. With --run-slow, another process resumes them."""
    folder = tmp_path_factory.mktemp("models")
    runs_slow = request.config.getoption("run_slow")
    for sampler, optimizer in PAIRS if runs_slow else IN_FILES:
        half(sampler, optimizer).save(folder / f"half {sampler}.keras")
    if not runs_slow:
        resume_all(folder)
        return folder
    code = (
        "import pathlib; from tests.integration import resume_test; "
        f"resume_test.resume_all(pathlib.Path({str(folder)!r}))"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
    return folder


@pytest.mark.parametrize("sampler, optimizer", slow_but(IN_FILES, PAIRS), ids=SAMPLERS)
def test_a_run_resumed_from_a_file_is_bit_identical(sampler, optimizer, resumed):
    model = keras.models.load_model(resumed / f"end {sampler}.keras")
    _assert_equal_states(uninterrupted(sampler, optimizer), _state(model))


@pytest.mark.slow
@EVERY_PAIR
def test_a_run_resumed_from_a_checkpoint_is_bit_identical(sampler, optimizer, tmp_path):
    path = _checkpoint_of(half(sampler, optimizer)).write(tmp_path / "checkpoint")
    resumed = new_model(sampler, optimizer)
    _checkpoint_of(resumed).read(path).assert_consumed()
    _assert_equal_states(uninterrupted(sampler, optimizer), _state(train(resumed, 5, STEPS)))


def _checkpoint_of(model):
    return tf.train.Checkpoint(model=model, optimizer=model.optimizer)


def _assert_equal_states(one, other):
    for (path, values), (_, others) in zip(one, other, strict=True):
        np.testing.assert_array_equal(values, others, err_msg=path)
