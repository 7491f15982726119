"""On a GPU whose kernels were not built the output layer trains on the CPU."""

import os
import subprocess
import sys

import pytest

from tf_largeout.ops import library

pytestmark = pytest.mark.gpu

PROGRAM = """
import keras
import numpy as np
import tf_largeout as tflo

x, y = np.ones([48, 12], "float32"), np.arange(48)
for sampler in [
    tflo.samplers.UniformSampler(20),
    tflo.samplers.UnigramSampler(20, counts=np.arange(1, 302)),
    tflo.samplers.InvertedFileSampler(20, num_hard=6, start_step=0),
    tflo.samplers.LSHSampler(20),
    tflo.samplers.TopKSampler(20),
]:
    head = tflo.layers.LargeOutput(301, sampler)
    model = keras.Sequential([keras.Input([12]), keras.layers.Dense(12), head])
    model.compile(tflo.optimizers.LazyAdam(0.01), tflo.losses.SampledSoftmaxLoss())
    assert np.isfinite(model.fit(x, y, batch_size=16, verbose=0).history["loss"]).all()
    assert np.isfinite(model.evaluate(x, y, verbose=0))
    assert "GPU" in model.layers[0].kernel.value.device
    assert "CPU" in head.embeddings.value.device

model = keras.Sequential([keras.Input([2], dtype="int32"), keras.layers.Embedding(50, 3)])
model.compile(tflo.optimizers.LazyAdam(0.01), "mse", jit_compile=False)
try:
    model.fit(np.zeros([4, 2]), np.zeros([4, 2, 3]), verbose=0)
except ValueError as error:
    print(error)
"""


def test_it_trains_and_warns(tmp_path):
    if library.has_gpu_kernels(library._LIBRARY):
        pytest.skip("the library of the package has kernels for GPUs")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "LARGEOUT_OPS_LIBRARY": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("was built without kernels for GPUs") == 1
    assert "is on /job:localhost/replica:0/task:0/device:GPU:0" in done.stdout
