"""The loader leaves out GPU kernels that the GPUs of the machine cannot run."""

import os

import pytest
import tensorflow as tf

from tf_largeout.ops import gpu_cards, library
from tf_largeout.ops.gpu_cards import Machine


@pytest.fixture
def gpu_library(tmp_path, monkeypatch):
    """A library with kernels that the (mocked) GPU of this machine cannot run."""
    machine = Machine((13, 0), [("V100", (7, 0))])
    monkeypatch.setattr(gpu_cards, "find_machine", lambda: machine)
    monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: True)
    path = tmp_path / "gpu.so"
    path.write_bytes(b"\0largeout built with kernels for gpus 90-real by cuda 13.0.88\0")
    return path


def test_a_gpu_that_cannot_run_the_kernels_causes_one_warning(gpu_library, caplog):
    reason = library.check_gpus(gpu_library)
    assert "'V100' has compute capability 7.0" in reason
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("tf_largeout", "WARNING")
    for part in [reason, "GPU kernels of tf_largeout are not used"]:
        assert part in record.message


def test_gpus_are_searched_for_only_if_needed(gpu_library, tmp_path, monkeypatch):
    def fail():
        raise AssertionError("looked for GPUs")

    monkeypatch.setattr(gpu_cards, "find_machine", fail)
    plain = tmp_path / "plain.so"
    plain.write_bytes(b"largeout built for tensorflow 2.21.0")
    assert library.check_gpus(plain) is None
    assert library.check_gpus(tmp_path / "missing.so") is None
    monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: False)  # tensorflow-cpu
    assert library.check_gpus(gpu_library) is None


@pytest.mark.parametrize("before", [None, "1"])
def test_gpu_kernels_are_left_out_on_request(monkeypatch, before):
    seen = []

    def load_op_library(path):
        seen.append(os.environ.get("LARGEOUT_GPU"))

    monkeypatch.setattr(tf, "load_op_library", load_op_library)
    monkeypatch.delenv("LARGEOUT_GPU", raising=False)
    if before:
        monkeypatch.setenv("LARGEOUT_GPU", before)
    monkeypatch.setattr(library, "check_library", lambda *_: None)
    for gpu_kernels in (True, False):
        library.load(library.LOADED, gpu_kernels)
        assert os.environ.get("LARGEOUT_GPU") == before
    assert seen == [before, "0"]
