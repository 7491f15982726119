"""`LargeOutput` as a Keras layer: outputs, weights, config, exact search, errors."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import harness, low_precision
from tests.slow import slow_but
from tf_largeout import layers, samplers

N, DIM = 23, 6

LAYERS = {
    "LargeOutput": lambda **kwargs: layers.LargeOutput(
        N, sampler=samplers.UniformSampler(7, seed=5), **kwargs
    ),
    "LargeOutput without bias": lambda **kwargs: layers.LargeOutput(
        N, use_bias=False, embeddings_initializer="he_normal", **kwargs
    ),
    "LargeOutput for NCE": lambda **kwargs: layers.LargeOutput(
        N, bias_initializer=keras.initializers.Constant(-math.log(N)), **kwargs
    ),
}
EVERY_LAYER = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)


def _random(*shape):
    return np.random.default_rng(3).normal(size=shape).astype("float32")


def _head(**kwargs):
    return harness.built_head(_random(N, DIM), _random(N), **kwargs)


def test_every_public_layer_is_in_the_table():
    covered = {type(make()).__name__ for make in LAYERS.values()}
    covered.add("EmbeddingBag")  # an encoder: embedding_bag_test.py
    covered.add("HashedBigrams")  # an encoder: hashed_bigrams_test.py
    covered.add("HierarchicalOutput")  # hierarchical_output_test.py
    covered.add("HuffmanOutput")  # huffman_output_test.py
    covered.add("FactoredOutput")  # factored_output_test.py
    covered.add("ItemTower")  # item_tower_test.py
    assert harness.public_classes(layers, keras.layers.Layer) == covered


@EVERY_LAYER
def test_config_round_trip(make):
    harness.config_round_trip(make(name="head", dtype="mixed_bfloat16"))


@EVERY_LAYER
@pytest.mark.parametrize("shape", [(4, DIM), (2, 3, DIM), (2, 3, 2, DIM), (0, DIM)])
def test_logits_are_inner_products_with_the_class_embeddings(make, shape):
    layer = make()
    features = np.resize(_random(40), shape).astype("float32")
    logits = layer(features)
    bias = 0 if layer.bias is None else layer.bias.numpy()
    np.testing.assert_allclose(
        logits, features @ layer.class_embeddings().numpy().T + bias, rtol=1e-5, atol=1e-5
    )
    assert layer.compute_output_shape((None, *shape[1:])) == (None, *shape[1:-1], N)


@EVERY_LAYER
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_computes_in_low_precision_and_stores_float32(make, policy):
    layer = make(dtype=policy)
    assert layer(_random(4, DIM)).dtype == keras.DTypePolicy(policy).compute_dtype
    assert layer.embeddings.dtype == "float32"


@EVERY_LAYER
def test_a_symbolic_call_gives_a_functional_model(make):
    inputs = keras.Input((DIM,))
    model = keras.Model(inputs, make()(inputs))
    assert model.output_shape == (None, N)
    assert model.predict(_random(3, DIM), verbose=0).shape == (3, N)


def test_initial_logits_have_variance_one_quarter_for_any_number_of_classes():
    for num_classes in (100, 10_000):
        layer = layers.LargeOutput(num_classes)
        logits = layer(_random(200, 64))
        assert np.var(logits) == pytest.approx(1 / 4, rel=0.15)  # for features of variance 1


def test_weights_have_one_row_per_class():
    layer = LAYERS["LargeOutput"]()
    layer.build((None, DIM))
    shapes = {weight.name: tuple(weight.shape) for weight in layer.weights}
    assert shapes == {"embeddings": (N, DIM), "bias": (N,), "seed_state": (2,)}
    assert [weight.name for weight in layer.trainable_weights] == ["embeddings", "bias"]


@pytest.mark.parametrize("k", [1, 5, N])
@pytest.mark.parametrize("shape", [(4, DIM), (2, 3, DIM), (0, DIM)])
def test_top_k_sorts_the_logits(k, shape):
    head = _head()
    features = np.resize(_random(40), shape).astype("float32")
    scores, ids = head.top_k(features, k)
    logits = head(features).numpy()
    order = np.argsort(-logits, axis=-1, kind="stable")[..., :k]
    np.testing.assert_array_equal(ids, order)
    np.testing.assert_allclose(
        scores, np.take_along_axis(logits, order, -1), rtol=1e-5, atol=1e-6
    )
    assert ids.dtype == "int64"


def test_seeds_do_not_repeat_and_are_restored_with_the_weights():
    layer = LAYERS["LargeOutput"]()
    layer.build((None, DIM))
    weights = layer.get_weights()
    first = [tuple(layer.next_seed().numpy()) for _ in range(5)]
    assert len(set(first)) == 5
    layer.set_weights(weights)
    assert [tuple(layer.next_seed().numpy()) for _ in range(5)] == first


def test_a_sampler_without_a_seed_uses_the_global_seed():
    def seed_state():
        keras.utils.set_random_seed(11)
        layer = layers.LargeOutput(N, samplers.UniformSampler(3))
        layer.build((None, DIM))
        return layer.seed_state.numpy()

    np.testing.assert_array_equal(seed_state(), seed_state())


@pytest.mark.parametrize("name", ["uniform", "log_uniform"])
def test_a_sampler_can_be_created_by_name(name):
    assert isinstance(layers.LargeOutput(10_000, name).sampler, samplers.Sampler)


_NAMES = ["uniform", "log_uniform", "lsh", "inverted_file", "top_k", "kernel_tree"]
_SIZES = [(1, 1), (3, 1), (30, 15), (900, 450), (2048, 1024)]


@pytest.mark.parametrize(
    "name, num_classes, num_sampled",
    slow_but(
        [*((name, 3, 1) for name in _NAMES), *(("inverted_file", *sizes) for sizes in _SIZES)],
        [(name, *sizes) for name in _NAMES for sizes in _SIZES],
    ),
)
def test_a_sampler_created_by_name_draws_at_most_half_of_the_classes(
    name, num_classes, num_sampled
):
    head = layers.LargeOutput(num_classes, name)
    head.build((None, DIM))
    assert head.sampler.num_sampled == num_sampled


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool"])
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_integer_features_are_cast_to_the_compute_dtype(dtype, policy):
    head = _head(dtype=policy)
    features = np.array([[1, 0, 1, 1, 0, 1], [0, 1, 1, 0, 0, 1]], dtype)
    logits = head(features)
    assert logits.dtype == head.compute_dtype
    problem = features.astype("float64"), _random(N, DIM), _random(N)
    low_precision.assert_within_twice_the_naive_error(
        logits,
        low_precision.naive_logits(*problem, head.compute_dtype),
        problem[0] @ problem[1].T + problem[2],
    )


def test_an_activity_regularizer_raises_an_error():
    with pytest.raises(ValueError, match="logits of all classes.*weight_decay"):
        layers.LargeOutput(N, activity_regularizer="l2")


def test_the_layer_supports_xla_with_stock_operations_unless_false_is_set():
    layer = LAYERS["LargeOutput"]()
    assert layer.supports_jit == (layer.why_not_compiled() is None)
    layer.supports_jit = False
    assert not layer.supports_jit


@pytest.mark.parametrize("num_classes", [2**31 - 1, 2**31, 2**70])
def test_more_classes_than_the_ops_support_raise_an_error(num_classes):
    message = f"at most 2147483646. Received: num_classes={num_classes}"
    with pytest.raises(ValueError, match=message):
        layers.LargeOutput(num_classes)
    assert layers.LargeOutput(2**31 - 2).num_classes == 2**31 - 2


@pytest.mark.parametrize("num_classes", [0, -1, 2.5, "many", True, None])
def test_an_invalid_number_of_classes_raises_an_error(num_classes):
    with pytest.raises(ValueError, match="`num_classes` must be a positive integer. Received"):
        layers.LargeOutput(num_classes)


@pytest.mark.parametrize("make", [layers.LargeOutput, layers.HierarchicalOutput])
def test_features_of_unknown_width_raise_an_error(make):
    with pytest.raises(ValueError, match="last dimension of the input"):
        make(N).build((None, None))


def test_features_of_rank_one_raise_an_error():
    with pytest.raises(ValueError, match="min_ndim=2"):
        layers.LargeOutput(N)(np.ones(DIM, "float32"))


@pytest.mark.parametrize(
    "features, kind",
    [
        (tf.sparse.from_dense(np.eye(DIM, dtype="float32")), "SparseTensor"),
        (tf.RaggedTensor.from_row_lengths(np.eye(DIM), [2, DIM - 2]), "RaggedTensor"),
    ],
)
@pytest.mark.parametrize(
    "make",
    [layers.LargeOutput, lambda n: layers.FactoredOutput(n, 1.0), layers.HierarchicalOutput],
)
def test_sparse_and_ragged_features_raise_an_error(make, features, kind):
    with pytest.raises(ValueError, match=f"must be a dense tensor.*Received: a {kind} of sha"):
        make(N)(features)


@pytest.mark.parametrize("k", [0, -1, 2.0, True, None])
def test_a_k_out_of_range_raises_an_error(k):
    with pytest.raises(ValueError, match=rf"between 1 and num_classes={N}. Received: k={k}"):
        _head().top_k(_random(2, DIM), k)


@pytest.mark.parametrize(
    "make",
    [
        layers.LargeOutput,
        lambda n: layers.LargeOutput(n, num_shards=2),
        lambda n: layers.FactoredOutput(n, 1.0),
        layers.HierarchicalOutput,
        layers.HuffmanOutput,
    ],
)
@pytest.mark.parametrize(
    "filters", [{}, {"exclude": [[1], [2]], "allowed": np.arange(N - 3)}], ids=["all", "some"]
)
def test_a_k_above_the_number_of_classes_is_padded(make, filters):
    layer, features, left = make(N), _random(2, DIM), N - 4 if filters else N
    layer.build((None, DIM))
    scores, ids = layer.top_k(features, N + 2, **filters)
    all_scores, all_ids = layer.top_k(features, left, **filters)
    np.testing.assert_array_equal(ids[:, :left], all_ids)
    np.testing.assert_array_equal(scores[:, :left], all_scores)
    assert ids.shape == (2, N + 2) and np.isfinite(all_scores).all()
    assert (ids[:, left:].numpy() == -1).all() and np.isneginf(scores[:, left:]).all()


def test_logits_in_place_of_features_raise_an_error():
    with pytest.raises(ValueError, match=rf"\[\.\.\., {DIM}\].*\(2, {4 * DIM}\).*not logits"):
        _head().top_k(_random(2, 4 * DIM), 1)


@pytest.mark.parametrize("policy", ["bfloat16", "float64"])
def test_searching_weights_that_are_not_float32_raises_an_error(policy):
    head = layers.LargeOutput(N, dtype=policy)
    features = tf.cast(_random(2, DIM), policy)
    assert head(features).dtype == policy
    with pytest.raises(ValueError, match=f"float32 weights.*{policy}"):
        head.top_k(features, 1)


@pytest.mark.parametrize(
    "ask", [lambda h: h.top_k(_random(2, DIM), 1), lambda h: h.class_embeddings()]
)
def test_an_unbuilt_layer_raises_an_error(ask):
    with pytest.raises(ValueError, match="not built yet"):
        ask(layers.LargeOutput(N))


def test_class_embeddings_returns_a_copy():
    head = _head()
    before = head.class_embeddings()
    head.class_matrix.variables()[0].scatter_add(tf.IndexedSlices(tf.ones((1, DIM)), [2]))
    np.testing.assert_array_equal(before, _random(N, DIM))
