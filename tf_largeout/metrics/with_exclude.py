"""`with_exclude`: labels for an evaluation that does not rank some classes."""

import tensorflow as tf

from tf_largeout.classes.filtered_top_k import class_ids
from tf_largeout.steps.labels import integer_ids, with_excluded
from tf_largeout.types import TensorLike


def with_exclude(labels: TensorLike, exclude: TensorLike) -> tf.Tensor:
    """Returns labels that also name classes that must not be ranked, such as seen items.

    Pass the result as `y` to `evaluate`, or in `validation_data`. All metrics except
    `Perplexity` then rank only the classes that are not excluded for the example. The loss and
    `Perplexity` do not change. An excluded label is never found, as in RecBole and RecTools,
    but still counts as a label. In training, `exclude` has no effect.

    ```python
    test = data.map(lambda x, y, seen: (x, tflo.metrics.with_exclude(y, seen)))
    model.evaluate(test)
    ```

    Keras passes one tensor of labels to all losses and metrics. So each excluded class becomes
    a further column of the labels, with the value `class - 2^62`. Only the losses and metrics
    of this library accept such labels.

    Args:
        labels: Integer class ids, as for the losses: `[...]` or, padded with -1 or ragged,
            `[..., max_labels]`, where `[..., dim]` is the shape of the features.
        exclude: Integer class ids `[..., n]`, padded with -1; they may repeat. Or a different
            number of ids per example: a list of lists or sets, a `tf.RaggedTensor`, or a SciPy
            sparse matrix, which excludes its nonzero columns. For sequences
            `[batch, time, n]`.

    Returns:
        int64 `[..., max_labels + n]`. `evaluate` raises a `tf.errors.InvalidArgumentError` if
        an id is not below the number of classes.

    Raises:
        ValueError: If the ids are not integers, or the shapes do not match.
        tf.errors.InvalidArgumentError: If the shapes do not match, where only the step knows
            them.
    """
    given, excluded = integer_ids(labels), class_ids("exclude", exclude)
    ids = given
    if ids.shape.rank is not None and ids.shape.rank + 1 == excluded.shape.rank:
        ids = ids[..., tf.newaxis]
    if (
        excluded.shape.rank in (None, 0, 1)
        or ids.shape.rank != excluded.shape.rank
        or not ids.shape[:-1].is_compatible_with(excluded.shape[:-1])
    ):
        raise ValueError(
            "`exclude` must have a row of class ids for each example: [examples, n] for labels "
            "[examples] or [examples, max_labels], and [batch, time, n] for sequences. "
            f"Received: labels of shape {given.shape}, and exclude of shape {excluded.shape}. "
            "For one excluded class per example, pass exclude[:, numpy.newaxis]."
        )
    return with_excluded(ids, excluded)
