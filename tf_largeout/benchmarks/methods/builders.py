"""Functions of (task, settings) that build the models of the methods, not compiled."""

import math

import keras

from tf_largeout.benchmarks.methods.class_vectors import class_vectors
from tf_largeout.benchmarks.methods.samplers import SAMPLERS
from tf_largeout.benchmarks.methods.stock_models import CandidateModel
from tf_largeout.layers import EmbeddingBag, HashedBigrams, HierarchicalOutput, LargeOutput


def stock(loss, model_class=CandidateModel):
    """Returns a builder of models that train with a loss of `tf.nn`."""

    def build(task, settings):
        return model_class(
            task.encoder(settings.dim),
            task.num_classes,
            dim=settings.dim,
            num_sampled=settings.num_sampled,
            loss=loss,
            sampler=settings.sampler,
        )

    return build


def ours(task, settings, **options):
    """The task's encoder and a `LargeOutput`; `options` are its other arguments."""
    output = _output(task, settings, **options)
    return keras.Sequential([task.input(), task.encoder(settings.dim), output])


def residual(task, settings, pairs_per_id=0):
    """`ours` with a residual block after the encoder: `x + relu(Dense(x))`.

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


def _output(task, settings, **options):
    """A `LargeOutput` with the sampler of the settings."""
    sampler = SAMPLERS[settings.sampler](task, settings.num_sampled)
    if settings.search:
        sampler = SAMPLERS[settings.search](
            task, settings.num_sampled, tail=sampler, **settings.search_options
        )
    options = {"num_shards": settings.num_shards, **options}
    return LargeOutput(task.num_classes, sampler=sampler, **options)


def normalized_at_start(task, settings):
    """`ours` with each bias at -log(num_classes).

    NCE treats logits as log-probabilities, so their exponentials should sum to 1 at the start.
    With biases of 0, the first steps only lower all logits, and the model hardly learns
    anything else.
    """
    start = keras.initializers.Constant(-math.log(task.num_classes))
    return ours(task, settings, bias_initializer=start)


def hierarchical(task, settings, clusters=None):
    """A two-level softmax with clusters of consecutive ids, which have similar frequencies."""
    output = HierarchicalOutput(task.num_classes, clusters=clusters)
    return keras.Sequential([task.input(), task.encoder(settings.dim), output])


def hierarchical_k_means(task, settings):
    """The same with clusters of classes whose examples have similar features."""
    clusters = HierarchicalOutput.clusters_of(class_vectors(task))
    return hierarchical(task, settings, clusters)


def factored(head):
    """Returns a builder of models that end in a `FactoredOutput`."""

    def build(task, settings):
        output = head.layers(task.num_classes, settings.class_rate)
        return keras.Sequential([task.input(), task.encoder(settings.dim), *output])

    return build


def dense(task, settings):
    """Keras's `Dense` over all classes."""
    layers = [task.input(), task.encoder(settings.dim), keras.layers.Dense(task.num_classes)]
    return keras.Sequential(layers)
