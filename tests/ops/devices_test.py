"""On which device variables are created; needs no GPU."""

import types

import pytest
import tensorflow as tf

from tf_largeout.ops import devices, library


@pytest.fixture(params=[False, True])
def has_kernels(request, monkeypatch):
    monkeypatch.setattr(library, "HAS_GPU_KERNELS", request.param)
    return request.param


@pytest.fixture(params=[0, 1])
def num_gpus(request, monkeypatch):
    gpus = [tf.config.LogicalDevice("GPU:0", "GPU")] * request.param
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: gpus)
    return request.param


def variable_on(device):
    return types.SimpleNamespace(name="table", device=device)


def test_a_library_reports_whether_it_has_gpu_kernels(tmp_path):
    path = tmp_path / "library.so"
    for content, expected in [
        (b"", False),
        (b"ELF largeout built for tensorflow 2.21.0\0", False),
        (b"ELF \0largeout built with kernels for gpus 80-real by cuda 13.0.88\0 more", True),
    ]:
        path.write_bytes(content)
        assert library.has_gpu_kernels(path) == expected


def test_variables_are_on_the_cpu_if_the_gpu_has_no_kernels(has_kernels, num_gpus):
    with tf.device("CPU:1"), devices.supported_device_scope():
        device = tf.Variable(1.0).device
    assert device.endswith("CPU:0" if num_gpus and not has_kernels else "CPU:1")


@pytest.mark.parametrize("reason", [None, "The driver is old"])
def test_one_warning_says_that_layers_are_on_the_cpu(caplog, monkeypatch, reason):
    monkeypatch.setattr(library, "GPUS_UNUSABLE", reason)  # The import has already warned.
    devices._warn.cache_clear()
    for _ in range(2):
        devices._warn()
    assert [record.message.count("LARGEOUT_GPU=1") for record in caplog.records] == (
        [] if reason else [1]
    )


def test_slots_are_on_the_device_of_their_variable(num_gpus):
    with tf.device("CPU:1"):
        variable = tf.Variable(1.0)
    with devices.device_scope_of(variable):
        slot = tf.Variable(0.0)
    assert slot.device.endswith("CPU:1" if num_gpus else "CPU:0")


def test_a_variable_on_a_gpu_without_kernels_raises_an_error(has_kernels, monkeypatch):
    devices.check_device(variable_on("/device:CPU:0"))
    devices.check_device(variable_on(""))
    if has_kernels:
        devices.check_device(variable_on("/device:GPU:0"))
        return
    where = r"'table' is on /device:GPU:0.*tf.device\('CPU:0'\)"
    with pytest.raises(ValueError, match=rf"{where}.*built without kernels.*LARGEOUT_GPU=1"):
        devices.check_device(variable_on("/device:GPU:0"))
    monkeypatch.setattr(library, "GPUS_UNUSABLE", "The driver is old")
    with pytest.raises(ValueError, match=rf"{where}. The driver is old\."):
        devices.check_device(variable_on("/device:GPU:0"))
