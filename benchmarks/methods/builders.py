"""Functions of (task, settings) that build the models of the methods, not compiled."""

import keras

from benchmarks.methods.samplers import SAMPLERS
from benchmarks.methods.stock_models import CandidateModel
from tf_largeout.layers import EmbeddingBag, HashedBigrams, LargeOutput


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
