"""Resizes a model on the servers of the command line and in this process; prints results.

python -m tests.distribute.resizing_trainer ADDRESS ...
"""

import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import keras
import numpy as np

import tf_largeout as tflo
from benchmarks.harness import machine
from tests.resize_problem import GROWN, KEPT, examples, fit, sampled_model

LARGE, DIM = 1_000_000, 64


def resized(num_shards):
    """Returns a model, its resized copy, and the copy's rows and losses after more training."""
    keras.utils.set_random_seed(3)
    model = sampled_model(
        sampler=tflo.samplers.UniformSampler(12, seed=1), num_shards=num_shards
    )
    fit(model, *examples())
    grown = tflo.resize_classes(model, GROWN, KEPT)
    losses = fit(grown, *examples(num_classes=GROWN, seed=2))
    return model, grown, [grown.layers[-1].class_embeddings().numpy(), losses]


def devices_of(model):
    """Returns the devices of the class weights and their slots, by name."""
    variables = [*model.trainable_variables, *model.optimizer.variables]
    shards = [part for one in variables for part in getattr(one, "shards", [one])]
    return [(one.name, one.value.device) for one in shards if "head" in one.path]


def grown_mb():
    """The memory growth of this process in a large resize, and whether the rows are right."""
    head = tflo.layers.LargeOutput(LARGE, "uniform", num_shards=2)
    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile(tflo.optimizers.LazySGD(0.1, momentum=0.9), tflo.losses.SampledSoftmaxLoss())
    x, y = np.zeros([8, DIM], "float32"), np.arange(8)
    model.fit(x, y, verbose=0)
    before = machine.peak_mb()
    other = tflo.resize_classes(model, LARGE, np.arange(LARGE - 5)[::-1])
    after = machine.peak_mb() - before
    rows = head.class_matrix.rows(np.arange(9))
    found = other.layers[-1].class_matrix.rows(LARGE - 6 - np.arange(9))
    return after, np.array_equal(found, rows)


def main(*addresses):
    _, _, expected = resized(1)
    tflo.distribute.connect(addresses)
    model, grown, found = resized(3)
    memory, are_moved = grown_mb()
    print(
        json.dumps(
            {
                "equal": all(map(np.array_equal, found, expected)),
                "devices": devices_of(grown) == devices_of(model),
                "places": sorted({place for _, place in devices_of(grown)}),
                "moved": are_moved,
                "grown_mb": memory,
                "matrix_mb": LARGE * DIM * 4 / 2**20,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
