"""Measurements of the machine and of the process, for the reports of benchmarks."""

import os
import pathlib
import platform
import time

_STATUS = pathlib.Path("/proc/self/status")
_CLEAR = pathlib.Path("/proc/self/clear_refs")


def describe():
    """Returns the processor, the number of cores, the GPUs and the versions, for reports."""
    import keras
    import tensorflow as tf

    gpus = tf.config.get_visible_devices("GPU")
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    info = pathlib.Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "gpus": [detail.get("device_name", "unknown") for detail in details],
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
    }


def use(device, threads=None):
    """Selects "cpu" or the first "gpu" for TensorFlow, before it has run anything.

    Args:
        device: "cpu" or "gpu".
        threads: The number of cores for this process and of threads for TensorFlow's ops; None
            for all.

    Raises:
        RuntimeError: If `device` is "gpu" and TensorFlow finds no GPU, or if the process may
            use fewer than `threads` cores.
    """
    import tensorflow as tf

    if threads:
        cores = sorted(os.sched_getaffinity(0))
        if threads > len(cores):
            raise RuntimeError(f"This process may use {len(cores)} cores, not {threads}")
        os.sched_setaffinity(0, cores[-threads:])
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)

    gpus = tf.config.list_physical_devices("GPU")[: 1 if device == "gpu" else 0]
    tf.config.set_visible_devices(gpus, "GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if device == "gpu" and not gpus:
        raise RuntimeError(
            f"Nothing can be measured on a GPU: TensorFlow {tf.__version__} finds none. See "
            "docs/gpu.md."
        )


def resident_mb(device="cpu"):
    """Returns the current memory of the process, or of its tensors on the GPU, in MiB."""
    return _status_mb("VmRSS") if device == "cpu" else _gpu_mb("current")


def peak_mb(device="cpu"):
    """Returns the peak of `resident_mb` since the start or the last `reset_peak`."""
    return _status_mb("VmHWM") if device == "cpu" else _gpu_mb("peak")


def reset_peak(device="cpu"):
    """Restarts `peak_mb`; if the kernel does not allow this, the peak stays."""
    if device == "gpu":
        import tensorflow as tf

        tf.config.experimental.reset_memory_stats("GPU:0")
        return True
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True


def _gpu_mb(field):
    import tensorflow as tf

    return tf.config.experimental.get_memory_info("GPU:0")[field] / 2**20


def _status_mb(field):
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"{_STATUS} has no field {field!r}: memory is measured on Linux only.")


def finish():
    """Waits for all queued work, because ops on a GPU return before they are done."""
    import tensorflow as tf

    tf.test.experimental.sync_devices()


def limits():
    """Measures all cores or the GPU in use: `gb_per_s` of memory, `gflops` of products."""
    return {"gb_per_s": memory_bandwidth(), "gflops": matrix_rate()}


def memory_bandwidth(megabytes=512):
    """Returns the GB per second that all cores together, or the GPU, read and write."""
    import tensorflow as tf

    source = tf.Variable(tf.ones([megabytes << 18]), trainable=False)
    target = tf.Variable(tf.zeros([megabytes << 18]), trainable=False)
    seconds = _fastest(lambda: target.assign_add(source))  # two reads and a write per element
    return 3 * (megabytes << 20) / seconds / 1e9


def matrix_rate(size=2048, dtype="float32"):
    """Returns the GFLOP per second of a product of square matrices."""
    import tensorflow as tf

    left, right = (tf.random.normal([size, size], dtype=dtype) for _ in range(2))
    return 2 * size**3 / _fastest(lambda: tf.matmul(left, right)) / 1e9


def seconds_of_calls(function, times):
    """Calls a function `times` times. Returns the seconds of each call."""
    seconds = []
    finish()
    for _ in range(times):
        start = time.perf_counter()
        function()
        finish()
        seconds.append(time.perf_counter() - start)
    return seconds


def _fastest(function):
    return min(seconds_of_calls(function, 7))
