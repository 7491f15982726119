"""Texts as `tf.data` pipelines of windows: tokens, and for each token the next one."""

import numpy as np
import tensorflow as tf

from tf_largeout.datasets.pipeline import batches


class TokenPipeline:
    """Makes `tf.data` datasets from ranges of a text.

    A range is cut into windows of `length` tokens. The labels of a window are its tokens
    shifted by one, so every token of the range except the first is predicted once. The last
    window is padded with token 0 and label -1, which losses and metrics ignore.

    Args:
        tokens: int32 `[num_tokens]`.
        length: Number of tokens per window.
    """

    def __init__(self, tokens: np.ndarray, length: int) -> None:
        self.length = length
        with tf.device("CPU:0"):
            self._tokens = tf.constant(tokens, tf.int32)

    def windows(self, start: int, end: int) -> np.ndarray:
        """Returns the start positions (int64) of the windows of tokens `start ... end - 1`."""
        return np.arange(start, max(end - 1, start), self.length)

    def dataset(
        self, start: int, end: int, batch_size: int | None, shuffle_seed: int | None = None
    ) -> tf.data.Dataset:
        """Returns the batches of a range, `(tokens, next_tokens)`.

        Both are `[batch_size, length]`, int32 and int64.

        Args:
            start: First token of the range.
            end: End of the range, not included.
            batch_size: Windows per batch, or None for single windows. The last batch may be
                smaller.
            shuffle_seed: Integer to shuffle the windows in each epoch, in the same way in each
                run; None for the order of the text.
        """
        return batches(
            self.windows(start, end), batch_size, shuffle_seed, lambda at: self._batch(at, end)
        )

    def _batch(self, starts: tf.Tensor, end: int) -> tuple[tf.Tensor, tf.Tensor]:
        positions = starts[:, None] + tf.range(self.length + 1, dtype=tf.int64)
        inside = positions < end
        tokens = tf.gather(self._tokens, tf.minimum(positions, end - 1))
        tokens = tf.where(inside, tokens, -1)
        return tf.maximum(tokens[:, :-1], 0), tf.cast(tokens[:, 1:], tf.int64)
