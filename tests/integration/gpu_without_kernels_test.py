"""Layers run on the CPU when the library has no kernels for the GPU."""

import os
import subprocess
import sys

import pytest
import tensorflow as tf

from tests import fake_cuda, gpu
from tf_largeout.ops import library

pytestmark = pytest.mark.gpu

PROGRAM = """
import keras
import numpy as np
import tensorflow as tf

tf.test.is_built_with_cuda = lambda: True  # the GPU may be emulated
import tf_largeout as tflo

x, y = np.ones([48, 12], "float32"), np.arange(48)
for sampler in [
    tflo.samplers.UniformSampler(20),
    tflo.samplers.UnigramSampler(20, counts=np.arange(1, 302)),
    tflo.samplers.InvertedFileSampler(20, num_hard=6, start_step=0),
    tflo.samplers.LSHSampler(20),
    tflo.samplers.TopKSampler(20),
    tflo.samplers.KernelTreeSampler(20),
]:
    head = tflo.layers.LargeOutput(301, sampler)
    model = keras.Sequential([keras.Input([12]), keras.layers.Dense(12), head])
    model.compile(tflo.optimizers.LazyAdam(0.01), tflo.losses.SampledSoftmaxLoss())
    assert np.isfinite(model.fit(x, y, batch_size=16, verbose=0).history["loss"]).all()
    assert np.isfinite(model.evaluate(x, y, verbose=0))
    assert "GPU" in model.layers[0].kernel.value.device
    assert "CPU" in head.embeddings.value.device

bag = tflo.layers.EmbeddingBag(50, 12)
head = tflo.layers.FactoredOutput(301, learning_rate=0.01)
model = keras.Sequential([keras.Input([5], dtype="int32"), bag, head])
model.compile(tflo.optimizers.LazyAdam(0.01), tflo.losses.SphericalSoftmaxLoss())
assert np.isfinite(model.fit(np.ones([48, 5]), y, verbose=0).history["loss"]).all()
assert "CPU" in bag.embeddings.value.device
assert "CPU" in head.weights[1].value.device

model = keras.Sequential([keras.Input([2], dtype="int32"), keras.layers.Embedding(50, 3)])
model.compile(tflo.optimizers.LazyAdam(0.01), "mse", jit_compile=False)
try:
    model.fit(np.zeros([4, 2]), np.zeros([4, 2, 3]), verbose=0)
except ValueError as error:
    print(error)
"""


def train(**environment):
    """Runs `PROGRAM` in a new process; returns its stdout and stderr."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "is on /job:localhost/replica:0/task:0/device:GPU:0" in done.stdout
    return done.stdout, done.stderr


def test_a_library_without_kernels_trains_and_warns():
    if library.has_gpu_kernels(library.library_for(tf.__version__)):
        pytest.skip("the library of the package has kernels for GPUs")
    _, logged = train(LARGEOUT_OPS_LIBRARY="")
    assert logged.count("on the CPU. The op library of tf_largeout was built without") == 1


def test_kernels_can_be_turned_off():
    printed, logged = train(LARGEOUT_GPU="0")
    assert "LARGEOUT_GPU=0 in the environment turns the GPU kernels" in printed
    assert "on the CPU" not in logged


def test_kernels_for_other_gpus_are_not_used(tmp_path):
    if not gpu.is_emulated():
        pytest.skip("needs a GPU that can pretend to be an old one")
    path = tmp_path / "_largeout_ops.so"
    content = library.LOADED.read_bytes()
    assert content.count(b"for gpus emulated by") == 1
    path.write_bytes(content.replace(b"for gpus emulated by", b"for gpus 90-real, by"))
    fake = fake_cuda.environment(tmp_path, driver=13000, card=70)
    printed, logged = train(**fake, LARGEOUT_OPS_LIBRARY=str(path))
    assert logged.count("on the CPU. GPU 'Fake V100' has compute capability 7.0") == 1
    assert "GPU 'Fake V100' has compute capability 7.0" in printed
