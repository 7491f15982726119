"""A `tf.train.Checkpoint` contains what a `.keras` file contains, for every kind of layer."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.integration.samplers import SAMPLERS
from tests.samplers import sampler_table
from tests.slow import slow_but
from tf_largeout.layers import ItemTower, LargeOutput

N, DIM, BATCH, TIME = 60, 6, 8, 3
RANDOM = np.random.default_rng(0)
IDS = RANDOM.integers(1, N, [2 * BATCH, TIME])
LABELS = RANDOM.integers(0, N, 2 * BATCH)
COUNTS = RANDOM.integers(1, 9, N)
NUMBERS = RANDOM.normal(size=[N, 4])
BAGS = tf.RaggedTensor.from_row_lengths(
    RANDOM.integers(1, 9, COUNTS.sum()), COUNTS
).to_tensor()  # several ids per class, padded with 0


def _model(head, loss=None, optimizer=None, table=None):
    """Returns a model of bags of ids; `table` is the layer that encodes them, if not a bag."""
    ids = keras.Input([TIME], dtype="int64")
    table = table or tflo.layers.EmbeddingBag(N, DIM, name="encoder")
    encoded = table(ids)
    if len(encoded.shape) == 3:
        encoded = keras.layers.GlobalAveragePooling1D()(encoded)
    model = keras.Model(ids, head(encoded))
    model.compile(
        optimizer or tflo.optimizers.LazyAdam(0.01),
        loss or tflo.losses.SampledSoftmaxLoss(),
        run_eagerly=True,  # few steps, so a trace would take longer
    )
    return model


def _large(sampler="uniform", optimizer=None, **options):
    return _model(LargeOutput(N, sampler, **options), optimizer=optimizer)


def _tied(table):
    return _model(LargeOutput(N, "uniform", embeddings=table), table=table)


def _tower(features, encoder, **options):
    return _large(embeddings=ItemTower(features, encoder, **options))


def _tower_of_several_features():
    inputs = {
        "word": keras.Input([], dtype="int64", name="word"),
        "numbers": keras.Input([4], name="numbers"),
    }
    words = keras.layers.Embedding(7, DIM)(inputs["word"])
    encoder = keras.Model(inputs, words + keras.layers.Dense(DIM)(inputs["numbers"]))
    return _tower({"word": np.arange(N) % 7, "numbers": NUMBERS}, encoder, free_rows=True)


def _tower_that_shares_its_encoder():
    bag = tflo.layers.EmbeddingBag(N, DIM)
    return _model(LargeOutput(N, "uniform", embeddings=ItemTower(BAGS, bag)), table=bag)


def _bigram():
    sampler = tflo.samplers.BigramSampler(8)
    sampler.adapt(RANDOM.integers(0, N, [20, 9]))
    ids = keras.Input([TIME], dtype="int64")
    model = keras.Model(ids, LargeOutput(N, sampler)(keras.layers.Embedding(N, DIM)(ids)))
    model.compile(
        tflo.optimizers.LazyAdam(0.01), tflo.losses.SampledSoftmaxLoss(), run_eagerly=True
    )
    return model


SOURCES = {
    "table": lambda: _large(),
    "learned scale": lambda: _large(normalize=True, scale="learned", logit_soft_cap=9.0),
    "bfloat16 rows": lambda: _large(embeddings_dtype="bfloat16"),
    "shards": lambda: _large(num_shards=3),
    "bfloat16 shards": lambda: _large(num_shards=3, embeddings_dtype="bfloat16"),
    "shards with a search": lambda: _large("inverted_file", num_shards=2),
    "tied embedding": lambda: _tied(keras.layers.Embedding(N, DIM)),
    "tied reversible embedding": lambda: _tied(keras.layers.ReversibleEmbedding(N, DIM)),
    "tied bag": lambda: _tied(tflo.layers.EmbeddingBag(N, DIM)),
    "tower": lambda: _tower(NUMBERS, keras.layers.Dense(DIM)),
    "tower with free rows": lambda: _tower(NUMBERS, keras.layers.Dense(DIM), free_rows=True),
    "tower of bags": lambda: _tower(BAGS, tflo.layers.EmbeddingBag(9, DIM)),
    "tower of several features": _tower_of_several_features,
    "tower that shares its encoder": _tower_that_shares_its_encoder,
}
OUTPUTS = {
    "factored": lambda: _model(
        tflo.layers.FactoredOutput(N, 0.1), tflo.losses.TaylorSoftmaxLoss()
    ),
    "factored with a schedule": lambda: _model(
        tflo.layers.FactoredOutput(N, keras.optimizers.schedules.CosineDecay(0.1, 9)),
        tflo.losses.SphericalSoftmaxLoss(),
    ),
    "hierarchical": lambda: _model(
        tflo.layers.HierarchicalOutput(N, clusters=RANDOM.permutation(N) % 7),
        tflo.losses.HierarchicalSoftmaxLoss(),
    ),
    "huffman": lambda: _model(
        tflo.layers.HuffmanOutput(N, COUNTS), tflo.losses.HierarchicalSoftmaxLoss()
    ),
    "hashed bigrams": lambda: _model(
        LargeOutput(N, "uniform"), table=tflo.layers.HashedBigrams(N, DIM)
    ),
}
OPTIMIZERS = {
    "adam of rows": lambda: tflo.optimizers.LazyAdam(0.01, row_beta_1=0.9),
    "rowwise adagrad": lambda: tflo.optimizers.RowwiseAdagrad(0.1),
    "adagrad": lambda: tflo.optimizers.LazyAdagrad(0.1),
    "momentum": lambda: tflo.optimizers.LazySGD(0.1, momentum=0.9),
    "loss scale": lambda: keras.optimizers.LossScaleOptimizer(tflo.optimizers.LazyAdam(0.01)),
}
CASES = {
    **SOURCES,
    **OUTPUTS,
    **{
        f"optimizer: {name}": lambda make=make: _large(optimizer=make())
        for name, make in OPTIMIZERS.items()
    },
    **{
        f"sampler: {name}": lambda name=name: _large(
            sampler_table.SAMPLERS[name](N, num_sampled=20)
        )
        for name in SAMPLERS
    },
    "sampler: bigram": _bigram,
}
SHORT = [
    "shards with a search",
    "tower that shares its encoder",
    "factored",
]


@pytest.mark.parametrize("case", slow_but(SHORT, CASES))
def test_a_checkpoint_restores_what_a_file_restores(case, tmp_path):
    keras.utils.set_random_seed(1)
    model = CASES[case]()
    _train(model, slice(BATCH))
    model.save(tmp_path / "model.keras")
    path = tf.train.Checkpoint(model=model).write(tmp_path / "checkpoint")

    keras.utils.set_random_seed(2)
    clone = _clone_with_random_weights(model)
    tf.train.Checkpoint(model=clone).read(path).assert_consumed()
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for when in ("restored", "trained"):
        for found in (clone, loaded):
            _assert_equal(found, model, when)
        for one in (model, clone, loaded):
            _train(one, slice(BATCH, None))


def _train(model, steps):
    labels = LABELS if len(model.output.shape) == 2 else IDS
    model.fit(IDS[steps], labels[steps], BATCH, verbose=0)


def _clone_with_random_weights(model):
    clone = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(model))
    for weight in _weights(clone):
        values = np.random.uniform(1, 99, weight.shape)
        weight.assign(tf.cast(values, weight.dtype))
    return clone


def _weights(model):
    return [*model.weights, *model.optimizer.variables]


def _assert_equal(found, model, when):
    for one, expected in zip(_weights(found), _weights(model), strict=True):
        np.testing.assert_array_equal(
            one.numpy(), expected.numpy(), err_msg=f"{when}: {expected.path}"
        )
    np.testing.assert_array_equal(*(one.predict(IDS, verbose=0) for one in (found, model)))
