"""The device of tests marked `gpu`, and comparisons of its results with those of the CPU."""

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import kernels

NAME = "GPU:0"


def missing():
    """Returns why no test can run on the GPU, or None."""
    if tf.config.get_visible_devices("GPU"):
        return None
    return "no GPU, or not run as `pytest -m gpu`"


def has_cuda_kernels():
    """Returns whether the op library has registered its CUDA kernels."""
    found = kernels.get_registered_kernels_for_op("LargeoutLshHash").kernel
    return any(kernel.device_type == "GPU" for kernel in found)


def is_emulated():
    """Returns whether the device is the emulated GPU of `make test-emulated-gpu`."""
    device = tf.config.get_visible_devices("GPU")[0]
    return tf.config.experimental.get_device_details(device).get("device_name") == "EMULATED"


def on_gpu(compute):
    """Runs `compute()` on the GPU and returns arrays. Fails if another device computed them."""
    with tf.device(NAME):
        results = tf.nest.flatten(compute())
    devices = {result.device.rpartition("device:")[2] for result in results}
    assert devices == {NAME}
    return [tf.convert_to_tensor(result).numpy() for result in results]


def on_cpu(compute):
    """Runs `compute()` on the CPU and returns arrays."""
    with tf.device("CPU:0"):
        return [tf.convert_to_tensor(result).numpy() for result in tf.nest.flatten(compute())]


def assert_same_on_gpu(compute, exact=False, rtol=1e-5, atol=1e-5):
    """Runs `compute()` on both devices and compares the results, with `exact` bit by bit."""
    for got, expected in zip(on_gpu(compute), on_cpu(compute), strict=True):
        if exact or not np.issubdtype(expected.dtype, np.floating):
            np.testing.assert_array_equal(got, expected)
        else:
            np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)
