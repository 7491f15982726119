"""Vectors of classes from the features of their training examples."""

import numpy as np

_SEED = 0


def class_vectors(task, dim=64):
    """Returns `[num_classes, dim]`, random projections of each class's mean features.

    Label trees cluster the same vectors: features are weighted by the logarithm of their
    rareness, and each example has length 1 ("positive instance feature aggregation", Prabhu et
    al. 2018, "Parabel").
    """
    counts = sum(
        np.bincount(ids.ravel(), minlength=task.num_features) for ids, _ in task.one_epoch()
    )
    rareness = np.log(task.num_examples / np.maximum(counts, 1)).astype(np.float32)
    rareness[0] = 0.0  # the padding
    vectors = np.random.default_rng(_SEED).normal(size=[task.num_features, dim])
    vectors = (vectors * rareness[:, None]).astype(np.float32)
    result = np.zeros([task.num_classes, dim], np.float32)
    for ids, labels in task.one_epoch():
        examples = vectors[ids].sum(1)
        examples /= np.linalg.norm(examples, axis=1, keepdims=True) + 1e-6
        labels = labels.reshape(len(labels), -1)
        row, column = np.nonzero(labels >= 0)
        np.add.at(result, labels[row, column], examples[row])
    return result
