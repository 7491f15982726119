"""Features of models: losses, heads, ties, samplers, shards and labels."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np

import tf_largeout as tflo
from tests.integration.samplers import NUM_CLASSES, SAMPLERS

DIM, BATCH, STEPS, LENGTH = 6, 12, 2, 3
VOCABULARY = NUM_CLASSES  # If a table is shared, words are classes.


class Feature(NamedTuple):
    """The difference of a model from the plain model.

    Attributes:
        head: Function that maps the layer of the input table to the output layer.
        loss: Function that returns the loss.
        labels: A key of `LABELS`.
        table: Function that returns the layer for the input ids.
        policy: Dtype policy.
    """

    head: Callable[[Any], Any] = lambda table: tflo.layers.LargeOutput(NUM_CLASSES, "uniform")
    loss: Callable[[], Any] = tflo.losses.SampledSoftmaxLoss
    labels: str = "one"
    table: Callable[[], Any] = functools.partial(keras.layers.Embedding, VOCABULARY, DIM)
    policy: str = "float32"


def _large(sampler="uniform", **kwargs):
    def make(table):
        chosen = sampler() if callable(sampler) else sampler
        return tflo.layers.LargeOutput(NUM_CLASSES, chosen, **kwargs)

    return make


def _tied(**kwargs):
    return lambda table: tflo.layers.LargeOutput(
        NUM_CLASSES, "uniform", embeddings=table, **kwargs
    )


def _tower(table):
    features = np.random.default_rng(4).normal(size=(NUM_CLASSES, 3))
    tower = tflo.layers.ItemTower(features, keras.layers.Dense(DIM), free_rows=True)
    return tflo.layers.LargeOutput(NUM_CLASSES, "uniform", embeddings=tower)


def _factored(table):
    return tflo.layers.FactoredOutput(NUM_CLASSES, 0.05)


def _hierarchical(table):
    return tflo.layers.HierarchicalOutput(NUM_CLASSES)


def _huffman(table):
    return tflo.layers.HuffmanOutput(NUM_CLASSES, np.arange(1, NUM_CLASSES + 1))


def _reversible(**kwargs):
    return functools.partial(keras.layers.ReversibleEmbedding, VOCABULARY, DIM, **kwargs)


def _labels():
    """Returns labels of each kind."""
    draws = np.random.default_rng(5)
    one = draws.integers(0, NUM_CLASSES, BATCH)
    several = np.stack([(one + 7 * place) % NUM_CLASSES for place in range(3)], axis=1)
    several[::3, 1:] = -1
    unlabelled = several.copy()
    unlabelled[1::4] = -1
    in_time = draws.integers(0, NUM_CLASSES, (BATCH, LENGTH))
    in_time[::2, 0] = -1
    return {"one": one, "several": several, "unlabelled": unlabelled, "in time": in_time}


LABELS = _labels()
IDS = np.random.default_rng(6).integers(1, VOCABULARY, (BATCH, LENGTH))

_losses = tflo.losses
FEATURES = {
    "plain": Feature(),
    **{
        f"loss: {loss.__name__}": Feature(loss=loss)
        for loss in (
            _losses.SoftmaxLoss,
            _losses.AbsoluteSoftmaxLoss,
            _losses.DecoupledSoftmaxLoss,
            _losses.NCELoss,
            _losses.NegativeSamplingLoss,
            _losses.RankingLoss,
            _losses.ImportanceNormalizationLoss,
        )
    },
    "loss: BernoulliNormalizationLoss": Feature(
        _large(SAMPLERS["bernoulli"]), _losses.BernoulliNormalizationLoss
    ),
    "loss: BlackOutLoss": Feature(_large(SAMPLERS["unigram"]), _losses.BlackOutLoss),
    **{
        f"head: FactoredOutput, {loss.__name__}": Feature(_factored, loss)
        for loss in (
            _losses.TaylorSoftmaxLoss,
            _losses.SphericalSoftmaxLoss,
            _losses.ZLoss,
            _losses.SquaredErrorLoss,
        )
    },
    "head: HierarchicalOutput": Feature(_hierarchical, _losses.HierarchicalSoftmaxLoss),
    "head: HuffmanOutput": Feature(_huffman, _losses.HierarchicalSoftmaxLoss),
    "head: HierarchicalOutput, SoftmaxLoss": Feature(_hierarchical, _losses.SoftmaxLoss),
    "head: no bias": Feature(_large(use_bias=False)),
    "head: ranking absolute": Feature(_large(ranking="absolute")),
    "form: normalize": Feature(_large(normalize=True, scale=4.0)),
    "form: learned scale, 3 shards": Feature(
        _large(normalize=True, scale="learned", num_shards=3)
    ),
    "form: normalize, inverted file": Feature(
        _large(SAMPLERS["inverted_file"], normalize=True, scale=4.0)
    ),
    "form: normalize, SoftmaxLoss, mixed_bfloat16": Feature(
        _large(normalize=True, scale=4.0), _losses.SoftmaxLoss, policy="mixed_bfloat16"
    ),
    "form: normalize, tie": Feature(_tied(normalize=True, scale=4.0)),
    "form: soft cap": Feature(_large(logit_soft_cap=0.5)),
    "form: soft cap, AbsoluteSoftmaxLoss": Feature(
        _large(logit_soft_cap=0.5), _losses.AbsoluteSoftmaxLoss
    ),
    "form: scale, 2 shards, DecoupledSoftmaxLoss": Feature(
        _large(scale=3.0, num_shards=2), _losses.DecoupledSoftmaxLoss, labels="several"
    ),
    "form: bfloat16 rows": Feature(_large(embeddings_dtype="bfloat16")),
    "form: bfloat16 rows, SoftmaxLoss": Feature(
        _large(embeddings_dtype="bfloat16"), _losses.SoftmaxLoss
    ),
    "form: bfloat16 rows, 2 shards, inverted file": Feature(
        _large(SAMPLERS["inverted_file"], embeddings_dtype="bfloat16", num_shards=2)
    ),
    "form: bfloat16 rows, 2 shards, own draws, mixed_bfloat16": Feature(
        _large(SAMPLERS["unigram, own"], embeddings_dtype="bfloat16", num_shards=2),
        policy="mixed_bfloat16",
    ),
    "form: bfloat16 rows, 2 shards, normalize, mixed_bfloat16": Feature(
        _large(embeddings_dtype="bfloat16", num_shards=2, normalize=True, scale=4.0),
        policy="mixed_bfloat16",
    ),
    "loss: MarginSoftmaxLoss": Feature(
        _large(normalize=True, use_bias=False, scale=4.0), _losses.MarginSoftmaxLoss
    ),
    "loss: SigmoidLoss": Feature(loss=_losses.SigmoidLoss),
    "tower": Feature(_tower),
    "tie: Embedding": Feature(_tied()),
    "tie: Embedding, AbsoluteSoftmaxLoss": Feature(_tied(), _losses.AbsoluteSoftmaxLoss),
    "tie: ReversibleEmbedding": Feature(_tied(), table=_reversible()),
    "tie: capped ReversibleEmbedding": Feature(
        _tied(logit_soft_cap=0.5), table=_reversible(logit_soft_cap=0.5)
    ),
    **{f"sampler: {name}": Feature(_large(make)) for name, make in SAMPLERS.items()},
    **{f"shards: {count}": Feature(_large(num_shards=count)) for count in (2, 7)},
    "shards: 3, AbsoluteSoftmaxLoss": Feature(
        _large(num_shards=3), _losses.AbsoluteSoftmaxLoss
    ),
    "shards: 2, inverted file": Feature(
        _large(SAMPLERS["inverted_file"], num_shards=2), labels="several"
    ),
    "labels: several": Feature(labels="several"),
    "labels: rows without": Feature(labels="unlabelled"),
    "labels: rows without, SoftmaxLoss": Feature(loss=_losses.SoftmaxLoss, labels="unlabelled"),
    "labels: rows without, Taylor": Feature(
        _factored, _losses.TaylorSoftmaxLoss, labels="unlabelled"
    ),
    "labels: rows without, Hierarchical": Feature(
        _hierarchical, _losses.HierarchicalSoftmaxLoss, labels="unlabelled"
    ),
    "labels: in time": Feature(labels="in time"),
    "labels: in time, tied": Feature(_tied(), labels="in time"),
    "labels: in time, AbsoluteSoftmaxLoss": Feature(
        loss=_losses.AbsoluteSoftmaxLoss, labels="in time"
    ),
    "policy: mixed_bfloat16": Feature(policy="mixed_bfloat16"),
}


def new_model(name):
    """Returns a compiled, untrained model with the feature."""
    feature = FEATURES[name]
    keras.utils.set_random_seed(7)
    keras.config.set_dtype_policy(feature.policy)
    try:
        ids = keras.Input([LENGTH], dtype="int32", name="ids")
        table = feature.table()
        hidden = table(ids)
        if feature.labels != "in time":
            hidden = keras.layers.GlobalAveragePooling1D()(hidden)
        hidden = keras.layers.Dense(DIM, "tanh", name="hidden")(hidden)
        model = keras.Model(ids, feature.head(table)(hidden))
    finally:
        keras.config.set_dtype_policy("float32")
    model.compile(
        tflo.optimizers.LazyAdam(0.05),
        feature.loss(),
        metrics=[
            tflo.metrics.PrecisionAtK(1),
            tflo.metrics.RecallAtK(5),
            tflo.metrics.Perplexity(),
        ],
        run_eagerly=True,
    )
    return model


def train(model, name, steps=STEPS):
    """Trains for `steps` steps, each on all data."""
    labels = LABELS[FEATURES[name].labels]
    for _ in range(steps):
        model.train_on_batch(IDS, labels)
    return model
