"""When own hard negatives begin to pay."""

import tensorflow as tf

_PERIOD = 16  # steps from one look to the next
_ROWS = 64  # of the batch that a look takes
_MEMORY = 0.8  # weight of the looks before in the running mean
_TOO_FEW = 4.0


class TailWatch:
    """Follows the effective sample size of a shared sample of classes.

    The sample estimates the partition function of a row by the mean of the importance weights
    `w_s = exp(o_s) / E[count_s]`. As a model learns, more and more of that mass lies on a few
    classes that the sample meets by chance or not at all. What is left of it,

        ESS = (sum_s w_s)^2 / sum_s w_s^2     (Kong 1992; labels of the row left out)

    is `num_sampled` where all weigh the same, and 1 where one class outweighs the rest. Here
    its mean over some rows, and over the looks of the last hundred steps or so.

    It falls below 4 of 1,024 on `place_names` after 3,500 steps of 512 examples, which is
    when the search for hard classes begins to gain more than its time; on `linux_callees`,
    whose static negatives follow the frequencies, it is 20 still when the precision peaks,
    and hard classes gain nothing there.

    A look costs a product of 64 rows with the sample, every 16 steps.
    """

    def __init__(self):
        self._state = None

    def build(self, sampler, layer, num_sampled):
        """Makes the running mean, a weight of `layer`; it starts from `num_sampled`."""
        self._state = sampler.add_weight(
            layer, "effective_sample_size", (), "float32", tf.constant_initializer(num_sampled)
        )

    def is_too_small(self, step, features, labels, sample, layer):
        """Takes a look where it is time for one, and judges.

        Args:
            step: int64 scalar, number of the training step.
            features: float32 `[batch, dim]`.
            labels: int64 `[batch, num_labels]`, padded with -1.
            sample: `SampledValues` with candidates `[num_sampled]`.
            layer: The layer whose step it is.

        Returns:
            Scalar bool: whether the running mean is below 4.
        """
        state = layer.local_variable(self._state)

        def look():
            sizes = effective_sample_size(features[:_ROWS], labels[:_ROWS], sample, layer)
            sizes = tf.boolean_mask(sizes, tf.math.is_finite(sizes))
            mean = state.read_value()
            new = _MEMORY * mean + (1 - _MEMORY) * tf.reduce_mean(sizes)
            return tf.where(tf.size(sizes) > 0, new, mean)

        mean = tf.cond(step % _PERIOD == 0, look, state.read_value)
        state.assign(mean)
        return mean < _TOO_FEW


def effective_sample_size(features, labels, sample, layer):
    """`TailWatch`'s ESS of each row at the weights of `layer`.

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
