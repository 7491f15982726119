"""On which device variables are created; needs no GPU."""

import contextlib
import types

import pytest
import tensorflow as tf

from tf_largeout.ops import devices, library, places


@pytest.fixture(params=["native", "stock"])
def ops(request, monkeypatch):
    monkeypatch.setattr(library, "OPS", request.param)
    monkeypatch.setattr(library, "RUNS_ON_GPUS", request.param == "stock")
    return request.param


@pytest.fixture(params=[0, 1])
def num_gpus(request):
    with places.stand_in("CPU:1") if request.param else contextlib.nullcontext():
        yield request.param


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


@pytest.mark.parametrize("scope", ["", "CPU:0", "CPU:1"])
@pytest.mark.parametrize("wanted", ["0", "1"])
def test_the_place_of_variables(ops, num_gpus, scope, wanted, monkeypatch):
    monkeypatch.setenv("LARGEOUT_GPU", wanted)
    with tf.device(scope) if scope else contextlib.nullcontext():
        with devices.supported_device_scope():
            device = tf.Variable(1.0).device
    expected = scope or "CPU:0"
    if num_gpus and ops == "native":
        expected = "CPU:0"
    elif num_gpus and not scope and wanted == "1":
        expected = "CPU:1"
    assert device.endswith(expected)


def test_ids_are_on_the_host_with_a_gpu_and_stock_operations(ops, num_gpus):
    with tf.device("CPU:1"), devices.host_ids_scope():
        device = tf.constant(1).device
    assert device.endswith("CPU:0" if num_gpus and ops == "stock" else "CPU:1")


def test_one_warning_says_that_layers_are_on_the_cpu(caplog):
    devices._warn.cache_clear()
    for _ in range(2):
        devices._warn()
    assert [record.message.count("LARGEOUT_GPU=1") for record in caplog.records] == [1]


def test_slots_are_on_the_device_of_their_variable(num_gpus):
    with tf.device("CPU:1"):
        variable = tf.Variable(1.0)
    with devices.device_scope_of(variable):
        slot = tf.Variable(0.0)
    assert slot.device.endswith("CPU:1" if num_gpus else "CPU:0")


def test_a_variable_on_a_gpu_without_kernels_raises_an_error(ops):
    devices.check_device(variable_on("/device:CPU:0"))
    devices.check_device(variable_on(""))
    if ops == "stock":
        devices.check_device(variable_on("/device:GPU:0"))
        return
    where = r"'table' is on /device:GPU:0.*tf.device\('CPU:0'\)"
    with pytest.raises(ValueError, match=rf"{where}.*LARGEOUT_GPU=1"):
        devices.check_device(variable_on("/device:GPU:0"))
