"""Functions of (task, settings) that build a model, without `compile`, for the methods."""

import math

import keras

from tf_largeout.benchmarks.methods.class_vectors import class_vectors
from tf_largeout.benchmarks.methods.samplers import SAMPLERS
from tf_largeout.benchmarks.methods.stock_models import CandidateModel
from tf_largeout.layers import EmbeddingBag, HashedBigrams, HierarchicalOutput, LargeOutput


def stock(loss, model_class=CandidateModel):
    """A builder of models that train by a loss of `tf.nn`."""

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
    """`ours` with a residual block behind the encoder: `x + relu(Dense(x))`.

    With `pairs_per_id` the bags have pairs of neighbouring ids too, hashed to as many times
    as there are ids.
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

    NCE takes logits for log probabilities as they stand, so at its start they should sum to 1.
    From biases of 0 it has to bring all of them down first, and hardly learns meanwhile.
    """
    start = keras.initializers.Constant(-math.log(task.num_classes))
    return ours(task, settings, bias_initializer=start)


def hierarchical(task, settings, clusters=None):
    """A softmax in two levels, its clusters of consecutive ids: classes of like frequency."""
    output = HierarchicalOutput(task.num_classes, clusters=clusters)
    return keras.Sequential([task.input(), task.encoder(settings.dim), output])


def hierarchical_k_means(task, settings):
    """The same, its clusters of classes whose examples have like features."""
    clusters = HierarchicalOutput.clusters_of(class_vectors(task))
    return hierarchical(task, settings, clusters)


def factored(head):
    """A builder of models that end in a `FactoredOutput`, which steps at a rate of its own."""

    def build(task, settings):
        output = head.layers(task.num_classes, settings.class_rate)
        return keras.Sequential([task.input(), task.encoder(settings.dim), *output])

    return build


def dense(task, settings):
    """Keras's own output layer over all classes."""
    layers = [task.input(), task.encoder(settings.dim), keras.layers.Dense(task.num_classes)]
    return keras.Sequential(layers)
