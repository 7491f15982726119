"""`tf.data` pipelines that gather whole batches from memory, by a permutation per epoch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tf_largeout.datasets.corpus import Corpus
from tf_largeout.datasets.ragged import Ragged

_UNBATCHED_CHUNK = 1024
_MAX_PADDING = 4  # Maximum size of padded rows, relative to the rows without padding.


class Rows:
    """Rows of different lengths in CPU memory, padded when they are gathered.

    All rows are padded to `width` in advance, because they are then faster to gather, unless
    that needs too much memory. With a width of 0, a result is as wide as its longest row.
    """

    def __init__(
        self, ragged: Ragged, dtype: tf.DType, padding: int = 0, width: int = 0
    ) -> None:
        values = ragged.values.astype(dtype.as_numpy_dtype, copy=False)
        self._padding = tf.constant(padding, dtype)
        self._is_padded = width > 0 and len(ragged) * width <= _MAX_PADDING * len(values)
        with tf.device("CPU:0"):
            if self._is_padded:
                self._rows = tf.constant(Ragged(values, ragged.offsets).padded(width, padding))
            else:
                self._rows = tf.RaggedTensor.from_row_splits(
                    tf.constant(values), tf.constant(ragged.offsets), validate=False
                )

    def padded(self, rows: tf.Tensor, limit: int | None = None) -> tf.Tensor:
        """Returns rows by index as a matrix of at least 1 column, of at most `limit` values."""
        found = tf.gather(self._rows, rows)
        if self._is_padded:
            return found
        if limit is not None:
            found = found[:, :limit]
        width = tf.maximum(found.bounding_shape(1), 1)
        return found.to_tensor(self._padding, shape=tf.stack([found.nrows(), width]))

    def first(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns the first value of each row. No row may be empty."""
        return tf.gather(self._rows.values, tf.gather(self._rows.row_splits, rows))


class Pipeline:
    """Makes `tf.data` datasets from subsets of a corpus.

    With `single_label`, labels are `[batch_size]` instead of padded rows.
    """

    def __init__(self, corpus: Corpus, single_label: bool) -> None:
        self.max_features = width = int(corpus.features.lengths.max(initial=1))
        self._single_label = single_label
        self._ids = Rows(corpus.features, tf.int32, width=width)
        self._labels = Rows(corpus.labels, tf.int64, -1)
        weights = corpus.ragged_weights
        self._weights = None if weights is None else Rows(weights, tf.float32, width=width)

    def dataset(
        self,
        examples: np.ndarray,
        batch_size: int | None,
        shuffle_seed: int | None = None,
        max_labels: int | None = None,
    ) -> tf.data.Dataset:
        """Returns `batches` of `(features, labels)`, as `Dataset` describes.

        If the numbers of features differ much, a batch is only as wide as its longest row.
        Labels of an example after `max_labels` are dropped.
        """

        def batch(rows: tf.Tensor) -> tuple[Any, tf.Tensor]:
            features = self._ids.padded(rows)
            if self._weights is not None:
                features = {"ids": features, "weights": self._weights.padded(rows)}
            if self._single_label:
                return features, self._labels.first(rows)
            return features, self._labels.padded(rows, limit=max_labels)

        return batches(examples, batch_size, shuffle_seed, batch)


def batches(
    examples: np.ndarray,
    batch_size: int | None,
    shuffle_seed: int | None,
    gather: Callable[[tf.Tensor], Any],
) -> tf.data.Dataset:
    """Returns batches of examples, each of which `gather` makes of indices in one call.

    `examples` are int64 indices. A `batch_size` of None returns single examples. With a
    `shuffle_seed`, the order differs between epochs, but not between runs.
    """
    chunk = min(batch_size or _UNBATCHED_CHUNK, max(len(examples), 1))
    num_batches = -(-len(examples) // chunk)
    with tf.device("CPU:0"):
        examples = tf.constant(examples, tf.int64)

    def epoch(seed: tf.Tensor | None) -> tf.data.Dataset:
        order = examples
        if seed is not None:
            order = tf.random.experimental.stateless_shuffle(examples, seed)
        starts = tf.data.Dataset.range(0, num_batches * chunk, chunk)
        return starts.map(lambda start: gather(order[start : start + chunk]))

    unbatched = len(examples) if batch_size is None else None
    return epochs(epoch, num_batches, shuffle_seed, unbatched)


def epochs(
    epoch: Callable[[tf.Tensor | None], tf.data.Dataset],
    num_batches: int,
    shuffle_seed: int | None,
    unbatched: int | None = None,
) -> tf.data.Dataset:
    """Returns a dataset of known length whose epochs have different seeds.

    `epoch` returns the batches of an epoch, from a seed, int64 `[2]`, or None. `unbatched` is
    the number of examples, to return single examples; None for batches.
    """
    if shuffle_seed is None:
        result = epoch(None)
    else:
        seeds = tf.data.Dataset.random(shuffle_seed, rerandomize_each_iteration=True)
        result = _with_cardinality(seeds.batch(2).take(1).flat_map(epoch), num_batches)
    if unbatched is not None:
        result = _with_cardinality(result.unbatch(), unbatched)
    options = tf.data.Options()  # one thread: a batch takes microseconds
    options.threading.private_threadpool_size = 1
    options.autotune.enabled = False
    return result.with_options(options).prefetch(2)


def _with_cardinality(dataset: tf.data.Dataset, cardinality: int) -> tf.data.Dataset:
    return dataset.apply(tf.data.experimental.assert_cardinality(cardinality))
