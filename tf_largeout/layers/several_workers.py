"""What somebody who trains on several workers must hear before Keras fails."""

import functools
import logging

import tensorflow as tf


def warn_of_keras() -> None:
    """Logs once that plain `fit` fails, if variables are now made for several workers.

    Keras fails before it calls any layer, so that this is the last place to say it. A training
    loop of one's own works.
    """
    strategy = tf.distribute.get_strategy()
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        cluster = strategy.cluster_resolver.cluster_spec()
        if sum(cluster.num_tasks(job) for job in cluster.jobs) > 1:
            _warn()


@functools.cache
def _warn() -> None:
    logging.getLogger("tf_largeout").warning(
        "Plain `fit`, `evaluate` and `predict` of Keras 3 fail under "
        "MultiWorkerMirroredStrategy (https://github.com/keras-team/keras/issues/20585). "
        "docs/guides/distribution.md, section Replicas, has a model class and a training loop "
        "that work; or take `LargeOutput(num_shards=...)`, or `tf_largeout.distribute.fit`."
    )
