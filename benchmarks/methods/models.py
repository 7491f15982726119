"""Models of the methods, not compiled, their samplers, and those of stock TensorFlow."""

import keras
import tensorflow as tf

from tf_largeout.layers import EmbeddingBag, HashedBigrams, LargeOutput
from tf_largeout.samplers import (
    InvertedFileSampler,
    LogUniformSampler,
    LSHSampler,
    TopKSampler,
    UniformSampler,
    UnigramSampler,
)


def sampler_of(sampler_class, **fixed):
    """Returns an entry of `SAMPLERS` for a sampler that does not use the task."""
    return lambda task, num_sampled, **options: sampler_class(num_sampled, **fixed, **options)


def search_of(sampler_class, **fixed):
    """Returns an entry like `sampler_of`, which passes `tail` only together with `num_hard`."""

    def make(task, num_sampled, tail="uniform", **options):
        if "num_hard" in options:
            options["tail"] = tail
        return sampler_class(num_sampled, **fixed, **options)

    return make


def _lsh(**fixed):
    """Returns an entry for an `LSHSampler`, which passes `form` only without `num_hard`."""

    def make(task, num_sampled, tail="uniform", **options):
        if "num_hard" in options:
            options |= {"tail": tail, "form": None}
        return LSHSampler(num_sampled, **{**fixed, **options})

    return make


def _frequency(task, num_sampled, **options):
    return UnigramSampler(num_sampled, counts=task.label_counts, **options)


# Each is called as (task, num_sampled, **options). Those that search have the options
# `num_hard` and `tail`, and options of their own.
SAMPLERS = {
    "uniform": sampler_of(UniformSampler),
    "log_uniform": sampler_of(LogUniformSampler),
    "frequency": _frequency,
    "lsh_embedding": _lsh(form="walk"),
    "lsh_label": _lsh(form="walk", query="label"),
    "lsh_pool": _lsh(form="pool"),
    "wta": _lsh(form="frequent", tables={"hash": "wta"}),
    "top_k": search_of(TopKSampler),
    "inverted_file": sampler_of(InvertedFileSampler),
}


_STOCK_SAMPLERS = {
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
        self.loss_function, self.draw = loss, _STOCK_SAMPLERS[sampler]
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


def stock(task, settings, loss=None, model_class=CandidateModel):
    """Returns a model that trains with a loss of `tf.nn`, or with that of `model_class`."""
    return model_class(
        task.encoder(settings.dim),
        task.num_classes,
        dim=settings.dim,
        num_sampled=settings.num_sampled,
        loss=loss,
        sampler=settings.sampler,
    )


def ours(task, settings, samplers=SAMPLERS, **options):
    """Returns the task's encoder and a `LargeOutput`.

    `samplers` maps the sampler names in the settings to functions that create the samplers.
    `options` are other arguments of the layer.
    """
    output = _output(task, settings, samplers, **options)
    return task.model(settings.dim, output)


def residual(task, settings, pairs_per_id=0):
    """Returns `ours` with a residual block after the encoder: `x + relu(Dense(x))`.

    With `pairs_per_id`, bags also contain bigrams of ids, hashed to this multiple of the number
    of ids.
    """
    inputs = task.input()
    if pairs_per_id:
        num_pairs = pairs_per_id * task.num_features
        ids = HashedBigrams(task.num_features, num_pairs)(inputs)
        features = EmbeddingBag(task.num_features + num_pairs, settings.dim)(ids)
    else:
        features = task.encoder(settings.dim)(inputs)
    block = keras.layers.Dense(settings.dim, activation="relu")(features)
    return keras.Model(inputs, _output(task, settings)(keras.layers.add([features, block])))


def _output(task, settings, samplers=SAMPLERS, **options):
    """Returns a `LargeOutput` with the sampler of the settings."""
    sampler = samplers[settings.sampler](task, settings.num_sampled)
    if settings.search:
        sampler = samplers[settings.search](
            task, settings.num_sampled, tail=sampler, **settings.search_options
        )
    options = {"num_shards": settings.num_shards, **options}
    return LargeOutput(task.num_classes, sampler=sampler, **options)


def encoder_of(model):
    """Returns the part of a functional model before its last layer, as a model."""
    return keras.Model(model.input, model.layers[-1].input)


def dense(task, settings):
    """Returns Keras's `Dense` over all classes."""
    return task.model(settings.dim, keras.layers.Dense(task.num_classes))
