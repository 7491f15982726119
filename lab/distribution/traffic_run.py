"""A training with servers that counts bytes and milliseconds per step."""

import math
import time

import keras
import numpy as np

from benchmarks.harness import machine
from benchmarks.harness.step_case import dense_task
from lab.distribution.step_turns import small_model
from tf_largeout.distribute import connect
from tf_largeout.losses import SampledSoftmaxLoss
from tf_largeout.optimizers import LazyAdam
from tf_largeout.samplers import UniformSampler

_WARM_UP = 5  # calls, of `steps_per_execution` steps each


def train(options, case, wire, addresses):
    """Trains in this process, one shard per server; returns `bytes` per step, median `ms`.

    Args:
        options: `num_classes`, `dim`, and `steps`, the minimum number of counted steps.
        case: Dict of `batch_size`, `num_sampled` and `steps_per_execution`.
        wire: The `Network` to the servers.
        addresses: Addresses of the servers.
    """
    machine.use("cpu")
    connect(addresses, timeout_s=60)
    task = dense_task(options.num_classes, options.dim, case["batch_size"])
    at_once = case["steps_per_execution"]
    counts = []

    def count(step, logs):
        counts.append((step, wire.num_bytes(), time.perf_counter()))

    _model(options, case, len(addresses)).fit(
        task.train,
        steps_per_epoch=at_once * (_WARM_UP + 1 + math.ceil(options.steps / at_once)),
        shuffle=False,
        callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=count)],
        verbose=0,
    )
    steps, sent, seconds = np.transpose(counts[_WARM_UP:])
    return {
        "bytes": float((sent[-1] - sent[0]) / (steps[-1] - steps[0])),
        "ms": float(1e3 * np.median(np.diff(seconds) / np.diff(steps))),
    }


def _model(options, case, num_shards):
    sampler = UniformSampler(case["num_sampled"])
    model = small_model(options.num_classes, options.dim, sampler, num_shards)
    model.compile(
        LazyAdam(), SampledSoftmaxLoss(), steps_per_execution=case["steps_per_execution"]
    )
    return model
