"""Number of threads of a program."""

import tensorflow as tf


def use_one():
    """Runs TensorFlow's operations on one thread. Call it before TensorFlow has run anything.

    Unlike `machine.use`, it does not choose the core.
    """
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
