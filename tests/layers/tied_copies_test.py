"""Copies of tied models made by files, clones and configs are tied too."""

import copy

import keras
import numpy as np
import pytest

import tf_largeout as tflo
from tests.layers.tied_embeddings_test import DIM, STEPS, TABLES, WORDS, X, Y, tied
from tests.slow import slow_but


def _tied_to_inner_layer(kind):
    keras.utils.set_random_seed(1)
    table = TABLES["embedding"]()
    if kind == "sequential":
        encoder = keras.Sequential([keras.Input([STEPS], dtype="int32"), table])
    else:
        ids = keras.Input([STEPS], dtype="int32")
        encoder = keras.Model(ids, keras.layers.Dropout(0.1)(table(ids)))
    head = tflo.layers.LargeOutput(WORDS, "uniform", embeddings=table)
    model = keras.Sequential([keras.Input([STEPS], dtype="int32"), encoder, head])
    model.compile(
        tflo.optimizers.LazyAdam(), tflo.losses.SampledSoftmaxLoss(), run_eagerly=True
    )
    return model


def assert_tied(model):
    tables = [weight for weight in model.weights if tuple(weight.shape) == (WORDS, DIM)]
    assert len(tables) == 1


COPIES = {
    "file": lambda model, path: (model.save(path), keras.models.load_model(path))[1],
    "clone": lambda model, path: keras.models.clone_model(model),
    "deepcopy": lambda model, path: copy.deepcopy(model),
    "config": lambda model, path: type(model).from_config(model.get_config()),
}


@pytest.fixture(scope="module", params=slow_but(["flat"], ["flat", "sequential", "functional"]))
def trained(request):
    model = tied() if request.param == "flat" else _tied_to_inner_layer(request.param)
    model.fit(X, Y, verbose=0)
    return model


@pytest.mark.parametrize("form", COPIES)
def test_a_copy_of_a_model_is_tied_too(form, trained, tmp_path):
    model = trained
    made = COPIES[form](model, tmp_path / "model.keras")
    assert_tied(made)
    made.set_weights(model.get_weights())
    np.testing.assert_array_equal(made(X), model(X))


def test_an_operation_may_be_between_the_table_and_the_head():
    table, ids = TABLES["embedding"](), keras.Input([STEPS], dtype="int32")
    model = keras.Model(ids, tflo.layers.LargeOutput(WORDS, embeddings=table)(2 * table(ids)))
    assert_tied(keras.models.clone_model(model))


@keras.saving.register_keras_serializable("tied_embeddings_test")
class Subclassed(keras.Model):
    """Its config contains the parts in the given order."""

    def __init__(self, parts=None, order=("table", "head"), **kwargs):
        super().__init__(**kwargs)
        table = TABLES["embedding"]()
        made = {"table": table, "head": tflo.layers.LargeOutput(WORDS, embeddings=table)}
        self.parts, self.order = parts or made, order

    def call(self, ids, training=None):
        return self.parts["head"](self.parts["table"](ids), training=training)

    def get_config(self):
        parts = {name: self.parts[name] for name in self.order}
        parts = {name: keras.saving.serialize_keras_object(p) for name, p in parts.items()}
        return {"parts": parts, "order": self.order}

    @classmethod
    def from_config(cls, config):
        load = keras.saving.deserialize_keras_object
        parts = {name: load(config["parts"][name]) for name in config["order"]}
        return cls({name: parts[name] for name in ("table", "head")}, config["order"])


@pytest.mark.parametrize("order", [("table", "head"), ("head", "table")], ids=str)
def test_a_subclassed_model_may_list_its_parts_in_any_order(order, tmp_path):
    model = Subclassed(order=order)
    expected = model(X)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(X), expected)
    assert_tied(loaded)


@pytest.mark.slow
def test_two_heads_share_one_table(tmp_path):
    table = TABLES["embedding"]()
    ids = keras.Input([STEPS], dtype="int32")
    heads = [
        tflo.layers.LargeOutput(WORDS, "uniform", embeddings=table, name=name)(table(ids))
        for name in ("one", "other")
    ]
    model = keras.Model(ids, heads)
    losses = [tflo.losses.NCELoss(), tflo.losses.NCELoss()]
    model.compile(tflo.optimizers.LazyAdam(), losses, run_eagerly=True)
    model.fit(X, [Y, Y], verbose=0)
    model.save(tmp_path / "model.keras")
    assert_tied(keras.models.load_model(tmp_path / "model.keras"))
