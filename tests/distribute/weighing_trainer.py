"""Trains with one trainer and class weights, and with `fit`; prints the losses.

python -m tests.distribute.weighing_trainer SERVER TRAINER
"""

import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import tensorflow as tf

import tf_largeout as tflo
from tests.distribute.asynchronous_trainer import BATCH, WORDS, N, error_of, new_model

STEPS = 6 * 7  # a multiple of `steps_per_execution`
CLASS_WEIGHT = {
    one: one % 5 for one in range(0, N, 3)
}  # with the last class, as Keras requires


def dataset_fn(seed):
    data = tf.data.Dataset.range(N).repeat().batch(BATCH)
    return data.map(lambda ids: (tf.gather(WORDS, ids), ids))


def several_fn(seed):
    return dataset_fn(seed).map(lambda x, y: (x, tf.stack([y, y], axis=1)))


def unlabelled_fn(seed):
    return dataset_fn(seed).map(
        lambda x, y: (x, tf.where(y % 3 > 0, tf.constant(-1, y.dtype), y))
    )


def losses_here(function, class_weight=None):
    """Returns the losses of `fit` with shards in this process."""
    options = {"steps_per_epoch": STEPS, "epochs": 2, "verbose": 0}
    history = new_model().fit(function(0), class_weight=class_weight, **options).history
    return history["loss"]


def main(server, trainer):
    found = {
        "expected": losses_here(dataset_fn, CLASS_WEIGHT),
        "unweighted": losses_here(dataset_fn),
        "expected without labels": losses_here(unlabelled_fn),
    }
    tflo.distribute.connect([server], trainers=[trainer])

    def fit(function, class_weight=CLASS_WEIGHT):
        return tflo.distribute.fit(
            new_model(), function, STEPS, epochs=2, verbose=0, class_weight=class_weight
        )

    found["losses"] = fit(dataset_fn).history["loss"]
    found["losses without labels"] = fit(unlabelled_fn, None).history["loss"]
    found["several"] = error_of(lambda: fit(several_fn))
    print(json.dumps(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
