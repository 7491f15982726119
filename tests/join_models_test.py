"""`join_models`: one model whose logits are the mean of the logits of several models."""

import keras
import numpy as np
import pytest

import tf_largeout as tflo

N, WIDTH = 50, 6


def _model(seed, dim=4, num_classes=N, width=WIDTH, **kwargs):
    keras.utils.set_random_seed(seed)
    inputs = keras.Input([width])
    features = keras.layers.Dense(dim, activation="tanh")(inputs)
    output = tflo.layers.LargeOutput(num_classes, bias_initializer="normal", **kwargs)
    return keras.Model(inputs, output(features))


def _bag(seed):
    keras.utils.set_random_seed(seed)
    bag = tflo.layers.EmbeddingBag(30, 4)
    output = tflo.layers.LargeOutput(N, sampler="uniform")
    return keras.Sequential([keras.Input([5], dtype="int32"), bag, output])


def _with_two_outputs():
    inputs = keras.Input([WIDTH])
    return keras.Model(inputs, [tflo.layers.LargeOutput(N)(inputs) for _ in range(2)])


def _examples(width=WIDTH):
    return np.random.default_rng(3).normal(size=(7, width)).astype("float32")


@pytest.mark.parametrize("dims", [(4, 4), (3, 5, 8)])
def test_logits_are_the_mean_of_the_models_logits(dims):
    models = [_model(seed, dim) for seed, dim in enumerate(dims)]
    expected = np.mean([model(_examples()) for model in models], axis=0)
    joined = tflo.join_models(models)
    np.testing.assert_allclose(joined(_examples()), expected, rtol=1e-5, atol=1e-6)
    assert joined.layers[-1].class_matrix.dim == sum(dims)


def test_a_missing_bias_counts_as_zero():
    models = [_model(0), _model(1, use_bias=False)]
    expected = np.mean([model(_examples()) for model in models], axis=0)
    joined = tflo.join_models(models)
    np.testing.assert_allclose(joined(_examples()), expected, rtol=1e-5, atol=1e-6)
    without = tflo.join_models([_model(seed, use_bias=False) for seed in range(2)])
    assert without.layers[-1].bias is None


def test_classes_are_ranked_by_the_product_of_probabilities():
    models = [_bag(0), _bag(1)]
    ids = np.random.default_rng(1).integers(0, 30, (9, 5))
    product = np.prod([keras.ops.softmax(model(ids)) for model in models], axis=0)
    joined = tflo.join_models(models)
    _, best = tflo.retrieval.predict_top_k(joined, ids, 3)
    np.testing.assert_array_equal(best, np.argsort(-product, axis=1)[:, :3])


@pytest.mark.slow
def test_a_joined_model_can_be_saved_loaded_and_evaluated(tmp_path):
    joined = tflo.join_models([_bag(0), _bag(1)])
    ids = np.random.default_rng(1).integers(0, 30, (9, 5))
    joined.save(tmp_path / "joined.keras")
    loaded = keras.saving.load_model(tmp_path / "joined.keras")
    np.testing.assert_array_equal(loaded(ids), joined(ids))
    loaded.compile(loss=tflo.losses.SoftmaxLoss(), metrics=[tflo.metrics.PrecisionAtK(1)])
    result = loaded.evaluate(ids, np.argmax(joined(ids), axis=1), verbose=0, return_dict=True)
    assert result["precision_at_1"] == 1


def test_the_models_are_not_changed():
    models = [_model(0), _model(1)]
    before = [model(_examples()).numpy() for model in models]
    joined = tflo.join_models(models)
    joined.layers[-1].embeddings.assign(joined.layers[-1].embeddings * 2)
    for model, logits in zip(models, before, strict=True):
        np.testing.assert_array_equal(model(_examples()), logits)


@pytest.mark.parametrize(
    "models, message",
    [
        (lambda: [], "two or more models. Received: 0"),
        (lambda: [_model(0)], "two or more models. Received: 1"),
        (lambda: [_model(0), _model(1, num_classes=N + 1)], "Received: 50 and 51"),
        (lambda: [_model(0), _model(1, width=3)], r"same inputs. Received: .*6.*3"),
        (lambda: [_model(0), keras.Sequential([keras.layers.Dense(3)])], "ends in a `LargeOut"),
        (
            lambda: [_model(0), keras.Sequential([tflo.layers.LargeOutput(N)])],
            "that is built and ends in",
        ),
        (lambda: [_model(0), _with_two_outputs()], "with 2 outputs.*model.outputs.0"),
        (lambda: [_model(0), "model"], "Received: 'model' with 0"),
        (lambda: [_model(0), _model(1, scale=2.0)], "scale=2.0 and"),
        (lambda: [_model(0), _model(1, ranking="absolute")], "ranks classes by 'absolute'"),
    ],
)
def test_models_that_cannot_be_joined_raise_an_error(models, message):
    with pytest.raises(ValueError, match=message):
        tflo.join_models(models())
