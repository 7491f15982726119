"""Two replicas on two logical CPUs."""

import functools

import tensorflow as tf


@functools.cache
def two_replicas():
    """One strategy a process: each numbers its collectives from the same start, and TensorFlow
    takes a late one of another strategy for its own (tensorflow/tensorflow issue 62790)."""
    cpus = [device.name for device in tf.config.list_logical_devices("CPU")[:2]]
    return tf.distribute.MirroredStrategy(cpus)
