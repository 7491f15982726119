"""`predict_top_k` against a sort of what `predict` gives."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import harness
from tests.serving import models
from tests.slow import slow_but
from tf_largeout.layers import LargeOutput
from tf_largeout.retrieval import BruteForceIndex, InvertedFileIndex, LSHIndex, predict_top_k

pytestmark = pytest.mark.portable

N, X, K = models.N, models.X, models.K
EXCLUDE = harness.pad([[1, 2, 3, 3], [5], [], [7, 8], [0]])  # Any classes.
# One of each structure of inputs and outputs; tests of `top_k` have all layers.
SHORT = ["large"]
each_model = pytest.mark.parametrize("name", slow_but(SHORT, models.MODELS))


@pytest.fixture(scope="module")
def model():
    return models.new_model("large")


def inputs_of(name):
    """Returns the inputs in the structure that `predict` accepts."""
    inputs = models.MODELS[name][1]
    if len(inputs) > 1:
        return inputs
    (inputs,) = inputs.values()
    return tf.constant(inputs) if name == "strings" else inputs


def assert_found(found, logits, exclude=None, allowed=None, k=K):
    if allowed is not None:
        logits = np.where(np.isin(np.arange(N), allowed), logits, -np.inf)
    expected = models.best(logits, k, exclude)
    models.assert_same(dict(zip(("scores", "ids"), found, strict=True)), expected)
    assert [one.dtype for one in found] == ["float32", "int64"]


def for_each_position(exclude, logits):
    """Ids `[B, n]`, or `[B, T, n]` if the logits are those of sequences."""
    return exclude if logits.ndim == 2 else np.repeat(exclude[:, np.newaxis], 3, axis=1)


@each_model
def test_the_best_classes_of_each_model_equal_those_of_its_logits(name):
    one = models.new_model(name)
    x, logits = inputs_of(name), models.logits_of(one, name)
    excluded, allowed = models.excluded(logits, -1), np.arange(0, N, 3)
    exclude = for_each_position(excluded, logits)
    assert_found(predict_top_k(one, x, K, batch_size=2, verbose=0), logits)
    found = predict_top_k(one, x, K, exclude, allowed, batch_size=2, verbose=0)
    assert_found(found, logits, excluded, allowed)


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, place):
        return X[2 * place : 2 * place + 2], np.zeros(len(X[2 * place : 2 * place + 2]))


DATA = {
    "dataset": lambda: tf.data.Dataset.from_tensor_slices(X).batch(2),
    "dataset with labels": lambda: tf.data.Dataset.from_tensor_slices((X, EXCLUDE)).batch(2),
    "generator": lambda: (batch for batch in [(X[:2],), (X[2:4],), (X[4:],)]),
    "python data set": lambda: Batches(),
    "tensor": lambda: tf.constant(X),
}


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # For all generators.
@pytest.mark.parametrize("kind", DATA)
def test_all_inputs_of_predict_are_accepted(model, kind):
    logits = models.logits_of(model, "large")
    assert_found(predict_top_k(model, DATA[kind](), K, verbose=0), logits)


def test_fewer_classes_than_k_after_filters_are_padded(model):
    logits = models.logits_of(model, "large")
    found = predict_top_k(model, X, 9, allowed=[3, 5, 3], verbose=0)
    assert_found(found, logits, None, [3, 5], k=9)
    exclude = models.excluded(logits, -1)
    found = predict_top_k(model, X, N, exclude=exclude, verbose=0)
    assert_found(found, logits, exclude, k=N)


NO_COLUMNS = {
    "array": np.zeros((5, 0), int),
    "list": [[]] * 5,
    "ragged": tf.ragged.constant([[]] * 5, tf.int64),
}


@pytest.mark.parametrize("kind", slow_but(["list"], NO_COLUMNS))
def test_exclusions_of_width_0_exclude_nothing(model, kind):
    exclude, logits = NO_COLUMNS[kind], models.logits_of(model, "large")
    assert_found(predict_top_k(model, X, K, exclude, verbose=0), logits)


@pytest.mark.parametrize(
    "name, has_exclude",
    slow_but(
        [("large", False), ("sequences", True)],
        itertools.product(["large", "sequences", "hierarchical"], [False, True]),
    ),
)
def test_no_examples_give_an_empty_result(name, has_exclude):
    one, x = models.new_model(name), inputs_of(name)[:0]
    exclude = None
    if has_exclude:
        exclude = np.zeros([0, 3, 2] if name == "sequences" else [0, 2], int)
    leading = one.compute_output_shape(x.shape)[:-1]
    scores, ids = predict_top_k(one, x, K, exclude, verbose=0)
    assert scores.shape == ids.shape == (*leading, K)


@pytest.mark.slow
def test_replicas_share_batches_and_an_incomplete_last_batch():
    with tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]).scope():
        one = models.new_model("large")
    logits = models.logits_of(one, "large")
    exclude = models.excluded(logits, -1)
    found = predict_top_k(one, X, K, exclude, batch_size=4, verbose=0)
    assert_found(found, logits, exclude)


class Index:
    """An exact index that adds 100 to its scores."""

    def __init__(self, layer, **attributes):
        self.layer = layer
        vars(self).update(attributes)

    def top_k(self, queries, k, exclude=None, allowed=None):
        assert queries.shape.rank == 2
        scores, ids = self.layer.top_k(queries, k, exclude, allowed)
        return scores + 100, ids


@pytest.mark.parametrize("name", slow_but(["sequences"], ["large", "sequences"]))
def test_an_index_is_searched_with_the_features(name):
    one = models.new_model(name)
    logits = models.logits_of(one, name)
    excluded = models.excluded(logits, -1)
    exclude = for_each_position(excluded, logits)
    index = Index(one.layers[-1], num_classes=N, dim=models.DIM)
    found = predict_top_k(one, inputs_of(name), K, exclude, None, index, verbose=0)
    assert_found((found[0] - np.float32(100), found[1]), logits, excluded)


@pytest.mark.parametrize(("name", "value"), [("num_classes", N + 1), ("dim", 3)])
def test_an_index_of_other_classes_raises_an_error(model, name, value):
    index = Index(model.layers[-1], **{name: value})
    with pytest.raises(ValueError, match=f"large_output.*{name}=.*Index with {name}={value}"):
        predict_top_k(model, X, K, index=index, verbose=0)


@pytest.mark.parametrize(
    "make",
    slow_but(
        [BruteForceIndex],
        [BruteForceIndex, LSHIndex, lambda: InvertedFileIndex(num_probes=1)],
    ),
    ids=["brute force", "lsh", "inverted file"],
)
def test_an_index_without_the_bias_or_with_old_rows_raises_an_error(make):
    draws = np.random.default_rng(0)
    head = LargeOutput(
        N,
        embeddings_initializer=draws.normal(size=(N, 3)),
        bias_initializer=draws.normal(size=N),
    )
    model = keras.Sequential([keras.Input([3]), head])
    x = draws.normal(size=(2, 3)).astype("float32")
    index = make().build(head.class_embeddings(), head.bias)
    predict_top_k(model, x, K, index=index, verbose=0)
    with pytest.raises(ValueError, match="Build it again after training"):
        predict_top_k(model, x, K, index=make().build(head.class_embeddings()), verbose=0)
    head.embeddings.assign(2 * head.embeddings)
    with pytest.raises(ValueError, match="Build it again after training"):
        predict_top_k(model, x, K, index=index, verbose=0)
    index.update(np.arange(N), head.class_embeddings(), head.bias)
    predict_top_k(model, x, K, index=index, verbose=0)


def _followed(model):
    return keras.Model(model.inputs, keras.layers.Softmax()(model.outputs[0]))


def _two_outputs(model):
    return keras.Model(model.inputs, [model.outputs[0], model.layers[0].output])


@pytest.mark.parametrize("make", [_followed, _two_outputs])
def test_a_model_with_another_output_raises_an_error(model, make):
    with pytest.raises(ValueError, match="`predict_top_k` needs a model with one output"):
        predict_top_k(make(model), X, K, verbose=0)


@pytest.mark.parametrize(
    "scores", slow_but(["softmax"], ["logit", "softmax", "top_k_softmax", "sigmoid"])
)
def test_a_k_above_the_number_of_classes_is_padded_as_in_an_index(model, scores):
    layer, padding = model.layers[-1], -np.inf if scores == "logit" else 0
    index = BruteForceIndex().build(layer.class_embeddings(), layer.bias)
    for more in (
        predict_top_k(model, X, N + 2, scores=scores, verbose=0),
        predict_top_k(model, X, N + 2, scores=scores, index=index, verbose=0),
    ):
        for found, all_of_them, fill in zip(
            more,
            predict_top_k(model, X, N, scores=scores, verbose=0),
            (padding, -1),
            strict=True,
        ):
            np.testing.assert_allclose(found[:, :N], all_of_them, rtol=1e-5)
            np.testing.assert_array_equal(found[:, N:], np.full([len(X), 2], fill))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, "`k` must be a positive integer"),
        ({"exclude": EXCLUDE[:4]}, "`exclude` must have a list of ids for each example"),
        ({"exclude": EXCLUDE[:, 0]}, "`exclude` must have shape"),
        ({"exclude": np.full((5, 1), N)}, r"`exclude` must be class ids in \[0, 211\)"),
        ({"exclude": np.full((5, 1), 0.5)}, "`exclude` must be integer class ids"),
        ({"allowed": [N]}, "`allowed` must be class ids"),
        ({"x": DATA["dataset"](), "exclude": EXCLUDE}, "`exclude` requires arrays"),
        ({"x": DATA["generator"](), "exclude": EXCLUDE}, "`exclude` requires arrays"),
        ({"x": np.full((5, models.DIM), np.nan)}, "finite"),
        ({"x": ["one", "two"]}, r"pass the token ids .* model\.preprocessor"),
        ({"x": np.array(["one", "two"])}, r"pass tf\.constant\(texts\)"),
    ],
)
def test_invalid_arguments_raise_an_error(model, change, message):
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=message):
        predict_top_k(model, **{"x": X, "k": K, "verbose": 0, **change})
