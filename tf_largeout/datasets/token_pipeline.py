"""Texts as `tf.data` pipelines of windows: some tokens, and for each of them the next one."""

import numpy as np
import tensorflow as tf

from tf_largeout.datasets.pipeline import batches


class TokenPipeline:
    """Makes `tf.data` datasets of stretches of a text.

    A stretch is cut into windows of `length` tokens, each with the token that follows it, so
    that every token but the first is predicted once. The last window is filled up: with token
    0 and labels -1, which losses and metrics leave out.

    Args:
        tokens: int32 `[num_tokens]`.
        length: tokens of a window.
    """

    def __init__(self, tokens: np.ndarray, length: int) -> None:
        self.length = length
        with tf.device("CPU:0"):
            self._tokens = tf.constant(tokens, tf.int32)

    def windows(self, start: int, end: int) -> np.ndarray:
        """int64: where the windows of the tokens `start ... end - 1` begin."""
        return np.arange(start, max(end - 1, start), self.length)

    def dataset(
        self, start: int, end: int, batch_size: int | None, shuffle_seed: int | None = None
    ) -> tf.data.Dataset:
        """Batches `(tokens, next tokens)` of a stretch, int32 and int64 `[batch_size, length]`.

        Args:
            start: the stretch's first token.
            end: the token after its last.
            batch_size: windows of a batch; None for single ones. The last may be smaller.
            shuffle_seed: int for a new order of the windows in each epoch, the same ones in
                each run; None for that of the text.
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
