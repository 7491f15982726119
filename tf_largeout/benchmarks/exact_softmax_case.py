"""The problem of the benchmark `exact_softmax`, and its models, in processes of their own."""

import dataclasses
import os
import time

import keras
import numpy as np
import tensorflow as tf

from tf_largeout import layers, losses, optimizers
from tf_largeout.benchmarks import machine, tasks
from tf_largeout.benchmarks.methods import METHODS
from tf_largeout.benchmarks.training_clock import ENDLESS, TrainingClock

SKIPPED_MASS = 1e-3
# Arguments of the loss, and the optimizer; None is Keras's `Dense`.
VARIANTS = {
    "Keras Dense + Adam": (None, keras.optimizers.Adam),
    "float32, Keras Adam": ({}, keras.optimizers.Adam),
    "float32": ({}, optimizers.LazyAdam),
    "float32, mass left out": ({"skipped_mass": SKIPPED_MASS}, optimizers.LazyAdam),
    "bfloat16": ({"compute_dtype": "bfloat16"}, optimizers.LazyAdam),
    "bfloat16, mass left out": (
        {"compute_dtype": "bfloat16", "skipped_mass": SKIPPED_MASS},
        optimizers.LazyAdam,
    ),
}
_BATCHES = 8
_RATE = 1e-6  # steps that are measured should not train


@dataclasses.dataclass(frozen=True)
class Problem:
    """Where the problem lies, and what makes it.

    Attributes:
        path: of the arrays, see `save_problem`.
        task: key of `TASKS`, whose examples have one label.
        batch_size: of the steps.
        seconds: of training, by the method "recommended".
    """

    path: str
    task: str
    batch_size: int
    seconds: float


def save_problem(problem):
    """Trains, and writes what enters the output layer, and its classes before and after."""
    keras.utils.set_random_seed(0)
    task = tasks.load(problem.task, 512)
    model = METHODS["recommended"].model(
        task, METHODS["recommended"].settings_for(problem.task)
    )
    features, labels = task.test_sample(_BATCHES * problem.batch_size)
    model(features[:1])
    start = model.layers[-1].class_embeddings().numpy()
    clock = TrainingClock(problem.seconds, problem.seconds, lambda *_: {}, anneal=1.0)
    model.fit(task.train, steps_per_epoch=ENDLESS, callbacks=[clock], shuffle=False, verbose=0)
    output = model.layers[-1]
    np.savez(
        problem.path,
        features=model.layers[0](features).numpy(),
        labels=labels,
        start=start,
        trained=output.class_embeddings().numpy(),
        bias=output.bias.numpy(),
    )
    loss = model.evaluate(features, labels, batch_size=problem.batch_size, verbose=0)
    return {
        **dataclasses.asdict(problem),
        "num_classes": task.num_classes,
        "dim": start.shape[1],
        "trained_loss": loss if np.isscalar(loss) else loss[0],
    }


def figures(problem, cores, rounds):
    """Median milliseconds of a step of each of `VARIANTS`, before and after training."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])
    tf.config.threading.set_intra_op_parallelism_threads(cores)
    arrays = np.load(problem.path)
    rows = []
    for state in ("start", "trained"):
        bias = arrays["bias"] if state == "trained" else np.zeros_like(arrays["bias"])
        models = {name: _model(name, arrays[state], bias) for name in VARIANTS}
        times = _times(models, arrays["features"], arrays["labels"], problem, rounds)
        for name, seconds in times.items():
            low, median, high = 1e3 * np.percentile(seconds, [10, 50, 90])
            rows.append(
                {"variant": name, "state": state, "ms": median, "ms_10": low, "ms_90": high}
            )
    limits = {
        "gb_per_s": machine.memory_bandwidth(),
        "float32": machine.matrix_rate(),
        "bfloat16": machine.matrix_rate(dtype="bfloat16"),
    }
    return {"cores": cores, "rounds": rounds, "limits": limits, "rows": rows}


def _model(name, embeddings, bias):
    options, optimizer = VARIANTS[name]
    num_classes, dim = embeddings.shape
    if options is None:
        output, loss = keras.layers.Dense(num_classes), _cross_entropy()
        weights = [embeddings.T, bias]
    else:
        output, loss = layers.LargeOutput(num_classes), losses.SoftmaxLoss(**options)
        weights = [embeddings, bias]
    encoder = keras.layers.Dense(dim, kernel_initializer="identity")  # to pass a gradient on to
    model = keras.Sequential([keras.Input([dim]), encoder, output])
    output.set_weights(weights)
    model.compile(optimizer(_RATE), loss, jit_compile=False)
    return model


def _cross_entropy():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _times(models, features, labels, problem, rounds):
    """Seconds of each round's step, by model, without the first, which traces the graph."""
    times = {name: [] for name in models}
    for turn in range(rounds + 1):
        first = turn % _BATCHES * problem.batch_size
        rows = slice(first, first + problem.batch_size)
        batch = tf.constant(features[rows]), tf.constant(labels[rows])
        for name, model in models.items():
            start = time.perf_counter()
            model.train_on_batch(*batch)
            machine.finish()
            if turn:
                times[name].append(time.perf_counter() - start)
    return times
