"""Where layers train on a machine with a GPU if no CUDA kernels are used."""

import os
import subprocess
import sys

import pytest

from tests import fake_cuda, gpu
from tf_largeout.ops import library

pytestmark = pytest.mark.gpu

PROGRAM = """
import sys
import keras
import numpy as np
import tensorflow as tf

tf.test.is_built_with_cuda = lambda: True  # the GPU may be emulated
import tf_largeout as tflo

place = sys.argv[1]
x, y = np.ones([48, 12], "float32"), np.arange(48)
samplers = [
    tflo.samplers.UniformSampler(20),
    tflo.samplers.UnigramSampler(20, counts=np.arange(1, 302)),
    tflo.samplers.InvertedFileSampler(20, num_hard=6, start_step=0),
    tflo.samplers.TopKSampler(20),
]
if place == "CPU":
    samplers += [tflo.samplers.LSHSampler(20), tflo.samplers.KernelTreeSampler(20)]
for sampler in samplers:
    head = tflo.layers.LargeOutput(301, sampler)
    model = keras.Sequential([keras.Input([12]), keras.layers.Dense(12), head])
    model.compile(tflo.optimizers.LazyAdam(0.01), tflo.losses.SampledSoftmaxLoss())
    assert np.isfinite(model.fit(x, y, batch_size=16, verbose=0).history["loss"]).all()
    assert np.isfinite(model.evaluate(x, y, verbose=0))
    assert "GPU" in model.layers[0].kernel.value.device
    assert place in head.embeddings.value.device

bag = tflo.layers.EmbeddingBag(50, 12)
head = tflo.layers.FactoredOutput(301, learning_rate=0.01)
model = keras.Sequential([keras.Input([5], dtype="int32"), bag, head])
model.compile(tflo.optimizers.LazyAdam(0.01), tflo.losses.SphericalSoftmaxLoss())
assert np.isfinite(model.fit(np.ones([48, 5]), y, verbose=0).history["loss"]).all()
assert place in bag.embeddings.value.device
assert place in head.weights[1].value.device

model = keras.Sequential([keras.Input([2], dtype="int32"), keras.layers.Embedding(50, 3)])
model.compile(tflo.optimizers.LazyAdam(0.01), "mse", jit_compile=False)
try:
    model.fit(np.zeros([4, 2]), np.zeros([4, 2, 3]), verbose=0)
except ValueError as error:
    print(error)
"""


def train(place, **environment):
    """Runs `PROGRAM` in a new process; returns its stdout and stderr."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, place],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_by_default_layers_train_on_the_cpu():
    printed, logged = train("CPU", LARGEOUT_GPU="0")
    assert "is on /job:localhost/replica:0/task:0/device:GPU:0" in printed
    assert logged.count("on the CPU") == 1


def test_with_kernels_for_other_gpus_layers_train_with_stock_operations(tmp_path):
    if not gpu.is_emulated():
        pytest.skip("needs a GPU that can pretend to be an old one")
    path = tmp_path / "_largeout_ops.so"
    content = library.LOADED.read_bytes()
    assert content.count(b"for gpus emulated by") == 1
    path.write_bytes(content.replace(b"for gpus emulated by", b"for gpus 90-real, by"))
    fake = fake_cuda.environment(tmp_path, driver=13000, card=70)
    printed, logged = train("GPU", **fake, LARGEOUT_GPU="1", LARGEOUT_OPS_LIBRARY=str(path))
    assert printed == ""
    assert logged.count("GPU 'Fake V100' has compute capability 7.0") == 1
