"""Trains with a search on the servers of the command line; prints the results.

python -m tests.distribute.searching_trainer SAMPLER ADDRESS ...
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

N, LARGE, DIM, BATCH = 400, 600_000, 64, 32
RNG = np.random.default_rng(3)
CLASSES = RNG.normal(size=(N, DIM)).astype("float32")
SAMPLERS = {
    "inverted_file": lambda: tflo.samplers.InvertedFileSampler(
        60, num_hard=8, start_step=4, seed=1
    ),
    "inverted_file draws": lambda: tflo.samplers.InvertedFileSampler(
        60, num_hard=None, select="draw", seed=1
    ),
    "lsh": lambda: tflo.samplers.LSHSampler(60, tables={"rebuild_every": 20}, seed=1),
    "lsh head": lambda: tflo.samplers.LSHSampler(
        60, query="label", num_hard=8, start_step=4, tables={"rebuild_every": 20}, seed=1
    ),
    "lsh walk": lambda: tflo.samplers.LSHSampler(
        60, form="walk", tables={"num_tables": 10}, seed=1
    ),
    "kernel_tree": lambda: tflo.samplers.KernelTreeSampler(60, projection_dim=8, seed=1),
    "kernel_tree own": lambda: tflo.samplers.KernelTreeSampler(30, shared=False, seed=1),
    "kernel_tree cosine": lambda: tflo.samplers.KernelTreeSampler(60, seed=1),
}


def trained(sampler, num_shards, num_classes, steps):
    keras.utils.set_random_seed(2)
    of_layer = {"num_shards": num_shards, "normalize": sampler.endswith("cosine")}
    head = tflo.layers.LargeOutput(num_classes, SAMPLERS[sampler](), **of_layer)
    model = keras.Sequential([keras.Input([DIM]), keras.layers.Dense(DIM), head])
    model.compile(tflo.optimizers.LazyAdam(0.02), tflo.losses.SampledSoftmaxLoss())
    y = np.random.default_rng(4).integers(0, N, steps * BATCH)
    history = model.fit(CLASSES[y], y, BATCH, shuffle=False, verbose=0, epochs=2).history
    return model, history["loss"]


def main(sampler, *addresses):
    here, expected = trained(sampler, 3, N, 60)  # shards of this process
    tflo.distribute.connect(addresses)
    model, losses = trained(sampler, 3, N, 60)
    head = model.layers[-1]
    state = {w.name: w.value.device for w in head.weights if w.name.startswith("sampler_")}
    before = machine.peak_mb()
    large, _ = trained(sampler, 2, LARGE, 60)  # includes a fit and a reassignment
    grown = machine.peak_mb() - before
    sampler = large.layers[-1].sampler
    found = {
        "losses": losses,
        "expected": expected,
        "equal": np.array_equal(head.class_embeddings(), here.layers[-1].class_embeddings()),
        "devices": state,
        "grown_mb": grown,
        "matrix_mb": LARGE * DIM * 4 / 2**20,
        "health": sampler.health(large.layers[-1]),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
