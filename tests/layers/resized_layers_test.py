"""Adding and removing classes in each output layer and each kind of model."""

import functools

import keras
import numpy as np
import pytest

import tf_largeout as tflo
from tests.papers.factored import factored_models
from tests.resize_problem import (
    DIM,
    GROWN,
    KEPT,
    PERMUTATION,
    N,
    assert_moved,
    examples,
    fit,
    state,
)
from tests.slow import slow_but
from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.layers import FactoredOutput, HierarchicalOutput, LargeOutput

WORDS = np.random.default_rng(1).integers(0, N, [24, 4])
LABELS = np.random.default_rng(2).integers(0, N, 24)


def _factored(bias=True, loss="taylor_softmax", **kwargs):
    head = FactoredOutput(N, 2.0, use_bias=bias, **kwargs)
    model = keras.Sequential([keras.Input([DIM]), keras.layers.Dense(DIM, "tanh"), head])
    loss = factored_models.LOSSES[loss]()
    model.compile(keras.optimizers.Adam(0.01), loss, run_eagerly=True)
    fit(model, *examples(steps=20))
    return model


@pytest.mark.slow
@pytest.mark.parametrize("name", factored_models.LOSSES)
def test_a_permuted_factored_output_trains_bit_identically(name):
    model = _factored(loss=name)
    permuted = tflo.resize_classes(model, N, PERMUTATION)
    x, y = examples(seed=2)
    losses = fit(permuted, x, ClassChange(N, N, PERMUTATION).new_ids()[y])
    assert losses == fit(model, x, y)
    assert_moved(state(model), state(permuted), PERMUTATION)


trained_factored = functools.cache(_factored)  # for tests that do not change it


@pytest.mark.parametrize(
    "num_classes, num_kept, bias",
    slow_but(
        [(GROWN, 0, True)],
        [
            (*sizes, bias)
            for sizes in [(GROWN, len(KEPT)), (20, 20), (GROWN, 0)]
            for bias in [True, False]
        ],
    ),
)
def test_resized_factors_contain_kept_and_new_rows(num_classes, num_kept, bias):
    model, kept = trained_factored(bias), KEPT[:num_kept]
    rows = np.random.default_rng(0).normal(size=[num_classes - len(kept), DIM])
    copy = tflo.resize_classes(model, num_classes, kept, rows)
    before, head = model.layers[-1], copy.layers[-1]
    kept = np.asarray(kept, int)
    expected = np.concatenate([before.class_embeddings().numpy()[kept], rows])
    np.testing.assert_allclose(head.class_embeddings(), expected, rtol=1e-5, atol=1e-6)
    if bias:
        biases = np.pad(before.bias.numpy()[kept], (0, len(rows)))
        np.testing.assert_allclose(head.bias, biases, rtol=1e-5, atol=1e-6)
    assert max(head.drift().values()) < 1e-6
    assert int(head.class_matrix.state.steps.numpy()) == 20
    fit(copy, *examples(num_classes=num_classes))
    assert max(head.drift().values()) < 1e-6


@pytest.mark.slow
def test_the_learning_rate_schedule_of_a_factored_output_continues():
    rate = keras.optimizers.schedules.PolynomialDecay(2.0, 30, 0.0)
    model = keras.Sequential([keras.Input([DIM]), FactoredOutput(N, rate)])
    model.compile("sgd", tflo.losses.TaylorSoftmaxLoss(), run_eagerly=True)
    fit(model, *examples(steps=20))
    grown = tflo.resize_classes(model, GROWN, initializer="zeros").layers[-1]
    assert grown.get_config()["learning_rate"] == model.layers[-1].get_config()["learning_rate"]
    np.testing.assert_array_equal(grown.class_matrix.state.steps, 20)


def _hierarchical(clusters):
    head = HierarchicalOutput(N, clusters=clusters, name="head")
    model = keras.Sequential([keras.Input([DIM]), head])
    loss = tflo.losses.HierarchicalSoftmaxLoss()
    model.compile(tflo.optimizers.LazyAdam(0.01), loss, run_eagerly=True)
    fit(model, *examples())
    return model


def test_kept_classes_keep_their_clusters_and_new_classes_join_the_smallest():
    clusters = np.repeat(np.arange(5), [10, 20, 3, 9, 1])
    model = _hierarchical(clusters)
    kept = np.flatnonzero(clusters != 4)[::-1]
    grown = tflo.resize_classes(model, GROWN, kept)
    before, head = model.layers[-1], grown.layers[-1]
    found = head.cluster_of_class.numpy()
    np.testing.assert_array_equal(found[: len(kept)], clusters[kept])
    np.testing.assert_array_equal(np.bincount(found), [10, 20, 10, 10])
    of_clusters = [before.cluster_embeddings, before.cluster_bias]
    for old, new in zip(of_clusters, [head.cluster_embeddings, head.cluster_bias], strict=True):
        np.testing.assert_array_equal(new, old.numpy()[:4])
    slots = {one.name: one.numpy() for one in model.optimizer.variables}
    for slot in grown.optimizer.variables:
        if "cluster" in slot.name:
            np.testing.assert_array_equal(slot, slots[slot.name][:4], err_msg=slot.name)
    probabilities = np.exp(grown.predict(examples()[0], verbose=0))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    fit(grown, *examples(num_classes=GROWN))
    copy = grown.get_config()
    assert copy["layers"][-1]["config"]["num_clusters"] == 4


@pytest.mark.slow
def test_a_permuted_hierarchical_output_equals_the_original():
    model = _hierarchical(np.random.default_rng(0).integers(0, 4, N))
    permuted = tflo.resize_classes(model, N, PERMUTATION)
    x, y = examples(seed=2)
    np.testing.assert_allclose(
        permuted.predict(x, verbose=0), model.predict(x, verbose=0)[:, PERMUTATION], rtol=1e-5
    )
    losses = fit(permuted, x, ClassChange(N, N, PERMUTATION).new_ids()[y])
    np.testing.assert_allclose(losses, fit(model, x, y), rtol=1e-5)


@functools.cache
def _five_clusters():
    return _hierarchical(np.arange(N) % 5)


@pytest.mark.parametrize("num_classes", slow_but([60], [2, 60]))
def test_all_classes_of_a_hierarchical_output_may_be_new(num_classes):
    grown = tflo.resize_classes(_five_clusters(), num_classes, [])
    sizes = np.bincount(grown.layers[-1].cluster_of_class)
    assert len(sizes) == min(5, num_classes) and sizes.max() - sizes.min() <= 1
    fit(grown, *examples(num_classes=num_classes))


def _tied(table=None):
    table = table or keras.layers.Embedding(N, DIM, name="table")
    head = LargeOutput(N, "uniform", embeddings=table, name="head")
    pool = keras.layers.GlobalAveragePooling1D()
    return keras.Sequential([keras.Input([4], dtype="int32"), table, pool, head])


def _tied_to_inner_layer():
    ids = keras.Input([4], dtype="int32")
    table = keras.layers.Embedding(N, DIM, name="table")
    encoder = keras.Model(ids, keras.layers.GlobalAveragePooling1D()(table(ids)))
    return keras.Sequential([ids, encoder, LargeOutput(N, "uniform", embeddings=table)])


def _head_in_inner_model():
    classifier = keras.Sequential([keras.Input([DIM]), LargeOutput(N, "uniform")], name="inner")
    ids = keras.Input([4], dtype="int32")
    embedded = keras.layers.Embedding(N, DIM)(ids)  # as many rows, but not one per class
    return keras.Model(ids, classifier(keras.layers.GlobalAveragePooling1D()(embedded)))


@keras.saving.register_keras_serializable("resized_layers_test")
class Subclassed(keras.Model):
    """A model whose config contains only the number of classes."""

    def __init__(self, num_classes, **kwargs):
        super().__init__(**kwargs)
        self.table = keras.layers.Embedding(N, DIM)
        self.head = LargeOutput(num_classes, "uniform")

    def call(self, ids):
        return self.head(keras.ops.mean(self.table(ids), axis=1))

    def get_config(self):
        return {**super().get_config(), "num_classes": self.head.num_classes}


MODELS = {
    "tied": _tied,
    "tied bag": lambda: keras.Sequential(
        [
            keras.Input([4], dtype="int32"),
            bag := tflo.layers.EmbeddingBag(N, DIM, name="table"),
            LargeOutput(N, "uniform", embeddings=bag, name="head"),
        ]
    ),
    "tied to a layer of an inner model": _tied_to_inner_layer,
    "head in an inner model": _head_in_inner_model,
    "subclassed": lambda: Subclassed(N),
}


@pytest.mark.parametrize("name", slow_but(["tied bag"], MODELS))
def test_only_weights_of_classes_are_resized(name):
    model = MODELS[name]()
    loss = tflo.losses.SampledSoftmaxLoss()
    model.compile(tflo.optimizers.LazyAdam(0.01), loss, run_eagerly=True)
    fit(model, WORDS, LABELS)
    grown = tflo.resize_classes(model, GROWN, KEPT)
    is_tied = "tied" in name
    assert len(grown.weights) == len(model.weights)
    tables = [w.shape[0] for w in grown.trainable_weights if w.name == "embeddings"]
    assert sorted(tables) == ([GROWN] if is_tied else [N, GROWN])
    permuted = tflo.resize_classes(model, N, PERMUTATION)
    new_ids = ClassChange(N, N, PERMUTATION).new_ids()
    words = new_ids[WORDS] if is_tied and name != "tied bag" else WORDS
    if name != "tied bag":  # its row 0 is padding
        np.testing.assert_allclose(
            permuted.predict(words, verbose=0),
            model.predict(WORDS, verbose=0)[:, PERMUTATION],
            rtol=1e-5,
        )
    fit(grown, WORDS % 30, LABELS)
    assert type(grown) is type(model)


@keras.saving.register_keras_serializable("resized_layers_test")
class FixedSize(Subclassed):
    """A model whose config has a constant number of classes."""

    def get_config(self):
        return {"num_classes": N}


def test_a_config_with_a_constant_number_of_classes_raises_an_error():
    model = FixedSize(N)
    model.compile("sgd", tflo.losses.SampledSoftmaxLoss(), run_eagerly=True)
    fit(model, WORDS, LABELS)
    with pytest.raises(ValueError, match="has 43 classes, not 50.*the `num_classes` of layer"):
        tflo.resize_classes(model, GROWN)
    tflo.resize_classes(model, N, PERMUTATION)


class Scaled(keras.layers.Embedding):
    """An embedding with another weight of one number per word."""

    def build(self, input_shape=None):
        super().build(input_shape)
        self.scales = self.add_weight(shape=[self.input_dim], initializer="ones")


def test_tables_that_cannot_be_resized_raise_an_error():
    model = _tied(Scaled(N, DIM))
    with pytest.raises(ValueError, match="of its other weights"):
        tflo.resize_classes(model, GROWN)
    table = keras.layers.Embedding(N, DIM)
    table.build()
    model = keras.Sequential([keras.Input([DIM]), LargeOutput(N, embeddings=table.embeddings)])
    with pytest.raises(ValueError, match="embeddings=layer, not layer.embeddings"):
        tflo.resize_classes(model, GROWN)


def test_weights_per_class_after_the_output_layer_raise_an_error():
    last = keras.layers.Rescaling(1.0), keras.layers.BatchNormalization()
    model = keras.Sequential([keras.Input([DIM]), LargeOutput(N), *last])
    with pytest.raises(ValueError, match="gamma.*43.*50.*Only variables of the class output"):
        tflo.resize_classes(model, GROWN)


@pytest.mark.slow
def test_mixed_precision_and_loss_scaling_continue():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = _head_in_inner_model()
        loss = tflo.losses.SampledSoftmaxLoss()
        model.compile(tflo.optimizers.LazyAdam(0.01), loss, run_eagerly=True)
        fit(model, WORDS, LABELS)
        same = tflo.resize_classes(model, N)
        assert fit(same, WORDS, LABELS) == fit(model, WORDS, LABELS)
        assert float(same.optimizer.dynamic_scale) == float(model.optimizer.dynamic_scale)
    finally:
        keras.config.set_dtype_policy("float32")
