"""What a benchmark says about the machine and the process it ran in."""

import os
import pathlib
import platform
import time

import numpy as np

_STATUS = pathlib.Path("/proc/self/status")
_CLEAR = pathlib.Path("/proc/self/clear_refs")


def describe():
    """Processor, number of cores and versions, for the head of every report."""
    import keras
    import tensorflow as tf

    info = pathlib.Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
    }


def resident_mb():
    """Memory the process holds now, in MiB."""
    return _status_mb("VmRSS")


def peak_mb():
    """Most memory the process has held since the start or the last `reset_peak`, in MiB."""
    return _status_mb("VmHWM")


def reset_peak():
    """Starts `peak_mb` anew; where the kernel does not allow it, the peak stays as it was."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True


def _status_mb(field):
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"{_STATUS} has no field {field!r}: memory is measured on Linux only.")


def limits():
    """What all cores can do: `gb_per_s` through memory, `gflops` of matrix product."""
    return {"gb_per_s": memory_bandwidth(), "gflops": matrix_rate()}


def memory_bandwidth(megabytes=512):
    """GB a second that all cores together read and write."""
    import tensorflow as tf

    source = tf.Variable(tf.ones([megabytes << 18]), trainable=False)
    target = tf.Variable(tf.zeros([megabytes << 18]), trainable=False)
    seconds = _fastest(lambda: target.assign_add(source))  # two reads and a write an element
    return 3 * (megabytes << 20) / seconds / 1e9


def matrix_rate(size=2048):
    """Float32 GFLOP a second of a square matrix product."""
    import tensorflow as tf

    left, right = tf.random.normal([size, size]), tf.random.normal([size, size])
    return 2 * size**3 / _fastest(lambda: tf.matmul(left, right)) / 1e9


def _fastest(function, repeats=7):
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return float(np.min(seconds))
