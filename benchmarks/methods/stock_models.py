"""Large output layers as users write them in stock Keras and TensorFlow."""

import keras
import tensorflow as tf

SAMPLERS = {
    "uniform": tf.random.uniform_candidate_sampler,
    "log_uniform": tf.random.log_uniform_candidate_sampler,
}


class CandidateModel(keras.Model):
    """`tf.nn.sampled_softmax_loss` or `tf.nn.nce_loss` on an encoder, with its own train step.

    An example with several labels trains on one of them, drawn in each step, because these
    losses need the same number of labels for every example.

    Args:
        encoder: layer that ends in [batch, dim].
        num_classes: rows of the output matrix.
        num_sampled: negatives per step, shared by the batch.
        loss: `tf.nn.sampled_softmax_loss` or `tf.nn.nce_loss`.
        sampler: "uniform" or "log_uniform" (class 0 the most frequent).
    """

    def __init__(self, encoder, num_classes, dim, num_sampled, loss, sampler):
        super().__init__()
        self.encoder = encoder
        self.num_classes, self.num_sampled = num_classes, num_sampled
        self.loss_function, self.draw = loss, SAMPLERS[sampler]
        self.mean_loss = keras.metrics.Mean(name="loss")
        self.class_embeddings = self.add_weight(
            name="class_embeddings",
            shape=[num_classes, dim],
            initializer=keras.initializers.RandomNormal(stddev=0.05),
        )
        self.bias = self.add_weight(name="bias", shape=[num_classes], initializer="zeros")

    @property
    def metrics(self):
        """The metrics that Keras resets at the start of an epoch."""
        return [self.mean_loss]

    def call(self, inputs):
        features = self.encoder(inputs)
        return tf.matmul(features, self.class_embeddings, transpose_b=True) + self.bias

    def train_step(self, data):
        inputs, labels = data
        variables = [v.value for v in self.trainable_variables]
        with tf.GradientTape() as tape:
            loss = self.sampled_loss(self.encoder(inputs), tf.cast(labels, tf.int64))
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        self.mean_loss.update_state(loss)
        return {"loss": self.mean_loss.result()}

    def sampled_loss(self, features, labels):
        true = one_label_each(labels)
        losses = self.loss_function(
            weights=self.class_embeddings.value,
            biases=self.bias.value,
            labels=true,
            inputs=features,
            num_sampled=self.num_sampled,
            num_classes=self.num_classes,
            sampled_values=self.sample(true),
        )
        return tf.reduce_mean(losses)

    def sample(self, true):
        return self.draw(
            true_classes=true,
            num_true=1,
            num_sampled=self.num_sampled,
            unique=True,
            range_max=self.num_classes,
        )


class AllPositivesModel(CandidateModel):
    """Sampled softmax with all labels of an example as positives: the best stock form.

    `loss_b = logsumexp over {labels of b} and sample of o' - mean over labels of b of o'`, with
    `o'_s = o_s - log E[count_s]` and sampled ids that are labels of the example masked. Padding
    takes no time, because the labels of the batch and their logits are flat lists.
    """

    def sampled_loss(self, features, labels):
        labels = labels[:, None] if labels.shape.rank == 1 else labels
        present = labels >= 0
        flat, row = tf.boolean_mask(labels, present), tf.where(present)[:, 0]
        ids, _, expected_count = self.sample(tf.maximum(labels[:, :1], 0))
        num_true, candidates = tf.size(flat), tf.concat([flat, ids], axis=0)
        weights = tf.gather(self.class_embeddings.value, candidates)
        bias = tf.gather(self.bias.value, candidates)
        true_logits = bias[:num_true] + tf.reduce_sum(
            weights[:num_true] * tf.gather(features, row), axis=1
        )
        logits = tf.matmul(features, weights[num_true:], transpose_b=True)
        logits += bias[num_true:] - tf.math.log(expected_count)
        logits = hide_accidental_hits(logits, ids, flat, row)
        return all_positives_loss(true_logits, row, logits)


def one_label_each(labels):
    """Draws one label per example, uniformly from those that are not -1: `[batch, 1]`."""
    if labels.shape.rank == 1:
        return labels[:, None]
    count = tf.reduce_sum(tf.cast(labels >= 0, tf.float32), axis=1)
    draw = tf.cast(tf.random.uniform(tf.shape(count)) * count, tf.int32)
    return tf.gather(labels, draw, axis=1, batch_dims=1)[:, None]


def hide_accidental_hits(logits, ids, flat_labels, row):
    """Sets the logit of a sampled id to -inf for each example that has it as a label."""
    order = tf.argsort(ids)
    position = tf.searchsorted(tf.gather(ids, order), flat_labels)
    sampled = tf.gather(order, tf.minimum(position, tf.size(ids) - 1))
    hits = tf.where(tf.equal(tf.gather(ids, sampled), flat_labels))[:, 0]
    cells = tf.stack(
        [tf.gather(row, hits), tf.cast(tf.gather(sampled, hits), tf.int64)], axis=1
    )
    return tf.tensor_scatter_nd_update(
        logits, cells, tf.fill([tf.size(hits)], tf.constant(float("-inf"), logits.dtype))
    )


def all_positives_loss(true_logits, row, sampled_logits):
    """Returns the mean loss. `true_logits`, and `row`, their examples, are flat lists.

    `sampled_logits` are `[batch, m]`.
    """
    batch = tf.shape(sampled_logits)[0]
    largest = tf.maximum(
        tf.math.unsorted_segment_max(true_logits, row, batch),
        tf.reduce_max(sampled_logits, axis=1),
    )
    largest = tf.stop_gradient(largest)
    total = tf.math.unsorted_segment_sum(
        tf.exp(true_logits - tf.gather(largest, row)), row, batch
    ) + tf.reduce_sum(tf.exp(sampled_logits - largest[:, None]), axis=1)
    mean_true = tf.math.unsorted_segment_mean(true_logits, row, batch)
    return tf.reduce_mean(tf.math.log(total) + largest - mean_true)
