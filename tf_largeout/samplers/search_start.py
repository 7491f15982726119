"""When a search for hard negatives begins to pay."""

import tensorflow as tf

from tf_largeout.arguments import whole_number
from tf_largeout.ops import placement

_PERIOD = 16  # steps from one look to the next
_ROWS = 64  # of the batch that a look takes
_MEMORY = 0.8  # weight of the looks before in the running mean
_TOO_FEW = 16.0


class SearchStart:
    """Tells from which training step on a sampler searches.

    At a given step; or at the first where the tail alone no longer estimates the partition
    function well. The estimate of a row is the mean of the importance weights
    `w_s = exp(o_s) / E[count_s]` of the shared sample. As a model learns, more and more of the
    softmax mass lies on a few classes that the sample meets by chance or not at all. What is
    left of the sample,

        ESS = (sum_s w_s)^2 / sum_s w_s^2     (Kong 1992; labels of the row left out)

    is its size where all weigh the same, and 1 where one class outweighs the rest. The search
    starts where the mean over some rows, and over the looks of the last hundred steps or so,
    falls below 16: where the estimate is off by a quarter. (The mean begins at the size of the
    sample, so that with 1,008 classes no search starts in the first 300 steps.) It is
    measured: with 1,024 negatives on one core, 75 s on `linux_callees` led to P@1 34.9, with a
    limit of 64 to 33.6, without a search to 28.4; 110 s on `place_names` to 58.3, with a limit
    of 4 to 60.2. Runs of 300 s there gained by a start at step 400.

    A look costs a product of 64 rows with the sample, every 16 steps, until the start. The
    state is weights of the layer.

    Args:
        step: Number of the step, from 0; or None to judge by the effective sample size.
    """

    def __init__(self, step=0):
        self.step = whole_number("start_step", step, least=0, or_none=True)
        self._progress = self._mean_size = None

    def build(self, sampler, layer):
        """Makes `[number of the next step, step of the start or -1]`, and the running mean."""
        if self.step == 0:
            return
        self._progress = sampler.add_weight(
            layer,
            "search_start",
            (2,),
            "int64",
            lambda shape, dtype: tf.constant([0, -1], dtype),
            placement.deciding,
        )
        if self.step is None:
            size = tf.constant_initializer(sampler.tail.num_sampled)
            self._mean_size = sampler.add_weight(
                layer, "effective_sample_size", (), "float32", size
            )

    def advance(self, features, labels, tail, layer):
        """Counts a training step.

        Args:
            features: float32 `[batch, dim]`.
            labels: int64 `[batch, num_labels]`, padded with -1.
            tail: The `SampledValues` that the batch shares in this step.
            layer: The layer whose step it is.

        Returns:
            Whether the step searches: True, or a scalar bool tensor.
        """
        if self.step == 0:
            return True
        progress = layer.local_variable(self._progress)
        with placement.deciding(layer.seed_state):
            step, started_at = tf.unstack(progress.read_value())

            def judge():
                pays = self._pays(step, features, labels, tail, layer)
                return tf.where(pays, step, started_at)

            started_at = tf.cond(started_at < 0, judge, lambda: started_at)
            progress.assign([step + 1, started_at])
            return started_at >= 0

    def now(self, layer):
        """Starts with the next step, if that has not been."""
        if self.step != 0:
            progress = layer.local_variable(self._progress)
            step, started_at = tf.unstack(progress.read_value())
            progress.assign([step, tf.where(started_at < 0, step, started_at)])

    def started_at(self, layer):
        """The number of the step, or -1."""
        return 0 if self.step == 0 else int(layer.local_variable(self._progress)[1])

    def _pays(self, step, features, labels, tail, layer):
        if self.step is not None:
            return step >= self.step
        mean_size = layer.local_variable(self._mean_size)

        def look():
            with placement.beside(layer.seed_state):
                sizes = effective_sample_size(features[:_ROWS], labels[:_ROWS], tail, layer)
                sizes = tf.boolean_mask(sizes, tf.math.is_finite(sizes))
                new = _MEMORY * mean_size + (1 - _MEMORY) * tf.reduce_mean(sizes)
                mean_size.assign(tf.where(tf.size(sizes) > 0, new, mean_size))
                return mean_size < _TOO_FEW

        return tf.cond(step % _PERIOD == 0, look, lambda: tf.constant(False))


def effective_sample_size(features, labels, sample, layer):
    """`SearchStart`'s ESS of each row at the weights of `layer`.

    Returns:
        float32 `[batch]`; NaN where all of the sample are labels or a logit is not finite.
    """
    embeddings, bias = layer.local_variables()
    ids = sample.sampled_candidates
    logits = tf.matmul(features, tf.gather(embeddings, ids), transpose_b=True)
    logits -= tf.math.log(sample.sampled_expected_count)
    logits += 0.0 if bias is None else tf.gather(bias, ids)
    is_label = tf.reduce_any(labels[:, :, tf.newaxis] == ids, axis=1)
    logits = tf.where(is_label, logits.dtype.min, logits)
    return tf.exp(2 * tf.reduce_logsumexp(logits, -1) - tf.reduce_logsumexp(2 * logits, -1))
