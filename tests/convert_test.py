"""`convert` and `restore`: causal language models with a `LargeOutput`."""

import importlib.util

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.slow import slow_but

VOCABULARY, WIDTH, LENGTH = 40, 8, 6


class SmallBackbone(keras.Model):
    def __init__(self, dtype="float32", **embedding):
        self.token_embedding = keras.layers.ReversibleEmbedding(
            VOCABULARY, WIDTH, name="token_embedding", dtype=dtype, **embedding
        )
        inputs = {"token_ids": keras.Input([None], dtype="int32", name="token_ids")}
        tokens = self.token_embedding(inputs["token_ids"])
        super().__init__(inputs, keras.layers.Dense(WIDTH, "tanh")(tokens))
        self._embedding = {"dtype": dtype, **embedding}

    def get_config(self):
        return self._embedding


class _Task(keras.Model):
    """The parts of keras-hub's `Task` and `CausalLM` on which `convert` relies."""

    def __init__(self, *args, compile=True, **kwargs):
        super().__init__(*args, **kwargs)

    def get_config(self):
        return {"backbone": keras.saving.serialize_keras_object(self.backbone)}

    @classmethod
    def from_config(cls, config):
        return cls(keras.saving.deserialize_keras_object(config["backbone"]))

    def generate(self, token_ids):
        hidden = self.backbone({"token_ids": token_ids})
        logits = self.backbone.token_embedding(hidden, reverse=True)
        return tf.argmax(logits[:, -1], axis=1).numpy()


@keras.saving.register_keras_serializable("tests")
class SmallCausalLM(_Task):
    def __init__(self, backbone, preprocessor=None, last=lambda logits: logits, **kwargs):
        self.backbone, self.preprocessor = backbone, preprocessor
        outputs = last(backbone.token_embedding(backbone(backbone.input), reverse=True))
        super().__init__(inputs=backbone.input, outputs=outputs, **kwargs)


keras.saving.register_keras_serializable("tests")(SmallBackbone)


def _model(**embedding):
    keras.utils.set_random_seed(1)
    return SmallCausalLM(SmallBackbone(**embedding))


def _token_ids(seed=0):
    return np.random.default_rng(seed).integers(0, VOCABULARY, [4, LENGTH], np.int32)


def _hub_model(name):
    """Returns a small keras-hub model with random weights."""
    from keras_hub import models

    sizes = {"num_layers": 2, "hidden_dim": 16, "intermediate_dim": 32}
    heads = {"num_query_heads": 2, "num_key_value_heads": 1}
    cap = {"final_logit_soft_cap": 3.0, "use_post_ffw_norm": True}
    learned = {"num_heads": 2, "dropout": 0.0, "max_sequence_length": LENGTH}
    options = {
        "GPT2": learned,
        "Gemma": {**heads, **cap, "head_dim": 8},
        "Llama": heads,
        "Mistral": heads,
        "Qwen": {**heads, "tie_word_embeddings": True},
        "OPT": learned,
        "Falcon": {"num_attention_heads": 2},
    }[name]
    keras.utils.set_random_seed(1)
    backbone = getattr(models, f"{name}Backbone")
    backbone = backbone(vocabulary_size=VOCABULARY, **sizes, **options)
    return getattr(models, f"{name}CausalLM")(backbone=backbone, preprocessor=None)


_NO_HUB = importlib.util.find_spec("keras_hub") is None
_HUB = (
    pytest.mark.slow,
    pytest.mark.skipif(_NO_HUB, reason="not installed: pip install keras-hub"),
)
MODELS = {
    "tied": _model,
    "untied": lambda: _model(tie_weights=False),
    "soft cap": lambda: _model(logit_soft_cap=0.1),
}
HUB = ["GPT2", "Gemma", "Llama", "Mistral", "Qwen", "OPT", "Falcon"]


@pytest.fixture(params=[*MODELS, *[pytest.param(name, marks=_HUB) for name in HUB]])
def make_model(request):
    return MODELS.get(request.param, lambda: _hub_model(request.param))


def _inputs(model):
    ids = _token_ids()
    return {name: ids if name == "token_ids" else np.ones_like(ids) for name in model.input}


def _trained(model, loss):
    """Returns the model after two steps, the second padded."""
    model.compile(keras.optimizers.SGD(0.5), loss, weighted_metrics=None)
    weights = np.ones([4, LENGTH])
    weights[2:, 3:] = 0
    losses = model.fit(
        _inputs(model), _token_ids(1), 2, sample_weight=weights, shuffle=False, verbose=0
    )
    return losses.history["loss"]


def test_a_converted_model_trains_as_the_model_it_was_made_from(make_model, tmp_path):
    model, original = make_model(), make_model()
    converted = tflo.convert(original)
    inputs, path = _inputs(model), tmp_path / "model.keras"
    dense = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    assert isinstance(converted, type(model)) and converted.name == original.name
    np.testing.assert_allclose(converted(inputs), model(inputs), atol=1e-6)
    expected = _trained(model, dense)
    np.testing.assert_allclose(_trained(converted, tflo.losses.SoftmaxLoss()), expected, 1e-5)
    np.testing.assert_allclose(converted(inputs), model(inputs), atol=1e-5)

    converted.save(path)
    loaded = keras.models.load_model(path, compile=False)
    restored = tflo.restore(converted)
    assert isinstance(loaded.head, tflo.layers.LargeOutput) and type(restored) is type(model)
    for other in (loaded, restored, original):
        np.testing.assert_allclose(other(inputs), converted(inputs), atol=1e-6)


@pytest.mark.parametrize("tied", slow_but([False], [True, False]))
def test_a_converted_model_generates_from_the_rows_of_its_last_step(tied):
    model = tflo.convert(_model(tie_weights=tied), sampler="uniform", bias_initializer="ones")
    model.compile(tflo.optimizers.LazyAdam(0.1))
    assert isinstance(model.loss, tflo.losses.SampledSoftmaxLoss)
    model.fit(_inputs(model), _token_ids(1), epochs=3, verbose=0)
    expected = tf.argmax(model(_inputs(model))[:, -1], axis=1)
    np.testing.assert_array_equal(model.generate(_token_ids()), expected)


def _random_steps(model):
    model.fit(_inputs(model), _token_ids(1), 2, epochs=2, shuffle=False, verbose=0)
    return model.head.class_embeddings()


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, dtype",
    [
        ("tied", None),
        pytest.param("untied", None, marks=pytest.mark.slow),
        pytest.param("untied", "bfloat16", marks=pytest.mark.slow),
        pytest.param("GPT2", None, marks=_HUB),
    ],
)
def test_a_loaded_model_goes_on_as_if_it_had_not_been_saved(kind, dtype, tmp_path):
    make_model = MODELS.get(kind, lambda: _hub_model(kind))
    model = tflo.convert(make_model(), sampler="uniform", embeddings_dtype=dtype)
    path = tmp_path / "model.keras"
    model.compile(tflo.optimizers.LazyAdam(0.01), weighted_metrics=["precision_at_1"])
    _random_steps(model)
    model.save(path)
    loaded = keras.models.load_model(path)
    assert loaded.optimizer.iterations == 4
    assert isinstance(loaded.loss, tflo.losses.SampledSoftmaxLoss)
    np.testing.assert_array_equal(_random_steps(loaded), _random_steps(model))
    assert "precision_at_1" in loaded.get_metrics_result()


@pytest.mark.slow
@pytest.mark.skipif(_NO_HUB, reason="not installed: pip install keras-hub")
def test_a_loaded_model_generates_by_the_sampler_of_the_saved_one(tmp_path):
    model, path = tflo.convert(_hub_model("GPT2")), tmp_path / "model.keras"
    model.compile(sampler="greedy")
    model.optimizer.build(model.trainable_variables)
    model.save(path)
    assert type(keras.models.load_model(path).sampler) is type(model.sampler)


def test_a_model_that_is_not_compiled_is_loaded_so(tmp_path):
    tflo.convert(_model()).save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert not getattr(loaded, "compiled", False)


@pytest.mark.parametrize(
    "make, arguments, message",
    [
        (
            lambda: keras.Sequential([keras.Input([3]), keras.layers.Dense(5)]),
            {},
            r"(?s)keras-hub causal language model.*GPT-2.*For another model.*LargeOutput\(num_",
        ),
        (lambda: SmallCausalLM(SmallBackbone(), last=keras.layers.ReLU()), {}, "last layer of"),
        (lambda: _model(dtype="bfloat16"), {}, r"must be float32.*1 - beta_2 \*\* step is 0"),
        (lambda: tflo.convert(_model()), {}, "already converted"),
        (_model, {"num_classes": 5}, r"determines \['num_classes'\]"),
    ],
)
def test_a_model_that_cannot_be_converted_raises_an_error(make, arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        tflo.convert(make(), **arguments)


def test_a_model_keeps_its_head_if_convert_fails():
    model = _model(tie_weights=False)
    with pytest.raises(ValueError, match="samplr"):
        tflo.convert(model, samplr="uniform")
    assert model.backbone.token_embedding.reverse_embeddings.trainable


def test_restore_of_another_model_raises_an_error():
    with pytest.raises(ValueError, match="needs a model that `convert` returned"):
        tflo.restore(_model())
