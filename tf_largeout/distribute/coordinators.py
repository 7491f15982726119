"""Starts TensorFlow's `ClusterCoordinator`, which schedules steps on asynchronous trainers."""

import os
from collections.abc import Sequence

import tensorflow as tf

from tf_largeout.distribute import cluster

_OWN_JOB = "chief"  # TensorFlow's name of the process that coordinates


def start(servers: Sequence[str], trainers: Sequence[str], own_address: str) -> None:
    """Connects this process to servers and trainers, and starts their coordinator."""
    spec = tf.train.ClusterSpec(
        {
            _OWN_JOB: [own_address],
            cluster.JOB: list(servers),
            cluster.TRAINER_JOB: list(trainers),
        }
    )
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        spec, task_type=_OWN_JOB, task_id=0, rpc_layer="grpc"
    )
    # Otherwise TensorFlow would retry a step on a server that has lost its rows.
    os.environ.setdefault("TF_COORDINATOR_IGNORE_TRANSIENT_PS_FAILURES", "0")
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    cluster.set_coordinator(tf.distribute.coordinator.ClusterCoordinator(strategy))
