"""`convert`: a keras-hub causal language model with a `LargeOutput` as its head."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tf_largeout import losses
from tf_largeout.keras_internals import input_of, operation_before
from tf_largeout.layers import LargeOutput
from tf_largeout.optimizers import LazyAdam
from tf_largeout.types import Config

_FIXED = ("num_classes", "embeddings", "embeddings_initializer")
_HOW = "Build a model of `backbone.input` that ends in a `LargeOutput` yourself."


class _Converted:
    """What a converted model adds to the keras-hub class from which it is made."""

    name: str
    backbone: keras.Model
    preprocessor: keras.layers.Layer | None
    head: LargeOutput
    optimizer: keras.optimizers.Optimizer
    trainable_variables: list[keras.Variable]

    def compile(
        self,
        optimizer: Any = "auto",
        loss: keras.losses.Loss | str = "auto",
        *,
        weighted_metrics: Any = "auto",
        **kwargs: Any,
    ) -> None:
        """Compiles like keras-hub's model, with defaults that do not compute all logits.

        "auto" is `LazyAdam(2e-5)`, and `SampledSoftmaxLoss` if the head has a sampler,
        otherwise `SoftmaxLoss`, without metrics.
        """
        if optimizer == "auto":
            optimizer = LazyAdam(2e-5)
        if loss == "auto":
            sampled = self.head.sampler is not None
            loss = losses.SampledSoftmaxLoss() if sampled else losses.SoftmaxLoss()
        if weighted_metrics == "auto":
            weighted_metrics = None
        super().compile(  # type: ignore[misc]
            optimizer=optimizer, loss=loss, weighted_metrics=weighted_metrics, **kwargs
        )

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Generates as keras-hub's model does, with the trained weights."""
        _copy_rows_back(self)
        return super().generate(*args, **kwargs)  # type: ignore[misc]

    def get_compile_config(self) -> Config:
        """Returns the arguments of `compile`, also the sampler of `generate`, if any."""
        config: Config = super().get_compile_config()  # type: ignore[misc]
        sampler = getattr(self, "sampler", None)
        if config and sampler is not None:
            config["sampler"] = keras.saving.serialize_keras_object(sampler)
        return config

    def compile_from_config(self, config: Config) -> None:
        """Compiles a loaded model, and builds its optimizer, so that its state can be loaded.

        Without this method, Keras leaves a model with its own `compile` uncompiled.
        """
        if config:
            self.compile(**keras.saving.deserialize_keras_object(config))
            self.optimizer.build(self.trainable_variables)

    def get_config(self) -> Config:
        task = _task_class(self)
        head = self.head.get_config()
        for name in _FIXED:
            head.pop(name)
        return {
            **super().get_config(),  # type: ignore[misc]
            "task": keras.saving.get_registered_name(task),
            "head": head,
        }

    @classmethod
    def from_config(cls, config: Config) -> keras.Model:
        """Makes the keras-hub model, and converts it."""
        config = dict(config)
        name, head = config.pop("task"), config.pop("head")
        task = keras.saving.get_registered_object(name)
        if task is None:
            raise ValueError(
                f"The file has a converted model of class '{name}', which is not known. "
                "Write `import keras_hub` before you load it."
            )
        return _convert(task.from_config(config), LargeOutput.from_config, head)


def convert(model: keras.Model, **large_output_arguments: Any) -> keras.Model:
    """Replaces the head of a keras-hub causal language model by a `LargeOutput`.

    keras-hub's head computes the logits of all tokens of the vocabulary at all positions. For a
    batch of 4,096 tokens and a vocabulary of 256,000, they take 4 GB, and their gradient takes
    as much again. A `LargeOutput` computes the loss exactly in blocks of the vocabulary, or on
    a sample of it, and never stores these logits.

    ```python
    model = keras_hub.models.CausalLM.from_preset("gpt2_base_en")
    model = tflo.convert(model, sampler="log_uniform")
    model.compile(tflo.optimizers.LazyAdam(2e-5), tflo.losses.SampledSoftmaxLoss())
    model.fit(texts)
    model.generate("Keras is a", max_length=64)
    ```

    The class of the new model is a subclass of that of `model`. It has the same backbone,
    preprocessor and methods. It shares all weights with `model`, which does not change. If the
    table of tokens is also the head (`tie_weights=True`), training either model trains both. An
    untied head is stored transposed, so the new model has a copy of it, `[vocabulary, dim]`.
    `generate` and `restore` copy the trained rows back. Until `restore`, the optimizer does not
    train the head of `model`.

    A model file (`save`, `load_model`) restores the converted model, with the arguments of
    `compile` and the state of the optimizer. Import `keras_hub` and `tf_largeout` before you
    load it.

    Args:
        model: A keras-hub causal language model. Its output must be
            `backbone.token_embedding(x, reverse=True)`. Tested with keras-hub 0.32: Falcon,
            Gemma, GPT-2, Llama, Mistral, OPT and Qwen.
        **large_output_arguments: Arguments of `LargeOutput`, such as `sampler`. By default
            there is no sampler, so `SoftmaxLoss` trains the model exactly. `use_bias` defaults
            to False, and `logit_soft_cap` to that of `model`, because other values would change
            the model's logits. The classes are the rows of the table, including rows that pad
            the vocabulary.

    Returns:
        A model with the logits of `model`, not compiled.

    Raises:
        ValueError: If the output of `model` is not computed by the `token_embedding` of a
            backbone, or if an argument is given that the model determines.
        TypeError: If the weights are not float32. With the policy "bfloat16", Adam would not
            train the backbone: its `1 - beta_2 ** step` is 0 in bfloat16. Use the policy
            "mixed_bfloat16", which computes in bfloat16. With it, the rows of an untied head
            can be bfloat16 (`embeddings_dtype="bfloat16"`).
    """
    wrong = sorted(set(large_output_arguments) & set(_FIXED))
    if wrong:
        raise ValueError(
            f"The model determines {wrong}. Received: {large_output_arguments}. Leave them out."
        )
    return _convert(model, lambda arguments: LargeOutput(**arguments), large_output_arguments)


def restore(model: keras.Model) -> keras.Model:
    """Undoes `convert`: returns a keras-hub model with the trained weights of `model`.

    It has the class from which `convert` made `model`, the same backbone and preprocessor, and
    is compiled with keras-hub's defaults. Other models raise a ValueError.
    """
    if not isinstance(model, _Converted):
        raise ValueError(f"`restore` needs a model that `convert` returned. Received: {model}.")
    _copy_rows_back(model)
    if not model.backbone.token_embedding.tie_weights:
        model.backbone.token_embedding.reverse_embeddings.trainable = True
    return _task_class(model)(
        backbone=model.backbone, preprocessor=model.preprocessor, name=model.name
    )


def _convert(
    model: keras.Model, make_head: Callable[[Config], LargeOutput], arguments: Config
) -> keras.Model:
    """Returns a model of a subclass of the class of `model`, with another head."""
    embedding = _token_embedding(model)
    defaults = {
        "num_classes": embedding.input_dim,
        "use_bias": False,
        "logit_soft_cap": embedding.logit_soft_cap,
        "dtype": embedding.reverse_dtype or embedding.dtype_policy,
    }
    if embedding.tie_weights:
        table: Config = {"embeddings": embedding}
    else:
        table = {"embeddings_initializer": embedding.reverse_embeddings.numpy().T}
    head = make_head({**defaults, **arguments, **table})
    outputs = head(input_of(model.output))
    if not embedding.tie_weights:
        embedding.reverse_embeddings.trainable = False  # has no gradient
    task = type(model)
    # All subclasses have one registered name. Its `from_config` does not depend on the class.
    register = keras.saving.register_keras_serializable("tf_largeout", "ConvertedCausalLM")
    converted = register(type(task.__name__, (_Converted, task), {}))
    result = converted.__new__(converted)
    result.backbone, result.preprocessor, result.head = model.backbone, model.preprocessor, head
    # The constructor of `task` would make its own head, so that of its base class is called.
    super(task, result).__init__(
        inputs=model.input, outputs=outputs, name=model.name, compile=False
    )
    return result


def _task_class(model: Any) -> Any:
    """Returns the keras-hub class from which a converted model was made."""
    return type(model).__bases__[1]


def _token_embedding(model: Any) -> Any:
    """Returns the layer that computes the logits of a causal language model."""
    if isinstance(model, _Converted):
        raise ValueError("The model is already converted. Call `restore` first.")
    embedding: Any = getattr(getattr(model, "backbone", None), "token_embedding", None)
    if not isinstance(embedding, keras.layers.ReversibleEmbedding):
        raise ValueError(
            "`convert` needs a keras-hub causal language model (tested: Falcon, Gemma, GPT-2, "
            "Llama, Mistral, OPT, Qwen), whose `backbone` has a `token_embedding` of type "
            f"keras.layers.ReversibleEmbedding. Received: {model!r}, whose token_embedding is "
            f"{embedding!r}. For another model, build keras.Model(model.input, "
            "LargeOutput(num_classes, sampler='uniform')(features)), where `features` is the "
            "input of its last layer. If its last layer uses the table of an Embedding or a "
            "ReversibleEmbedding, share it: LargeOutput(num_classes, sampler='uniform', "
            "embeddings=layer, use_bias=False). See 'Replace a trained Dense layer' in the "
            "guide on saving."
        )
    last: Any = operation_before(model.output)
    if last is not embedding:
        raise ValueError(
            f"The last layer of '{model.name}' must be '{embedding.name}' of its backbone. "
            f"Received: {last}. {_HOW}"
        )
    if not hasattr(embedding, "embeddings") or embedding.variable_dtype != "float32":
        raise TypeError(
            f"The weights of '{embedding.name}' must be float32 and not quantized. Received: "
            f"dtype policy {embedding.dtype_policy}. Load the model with "
            'dtype="mixed_bfloat16" or "float32": Adam does not change weights in bfloat16, '
            "because its 1 - beta_2 ** step is 0 in this dtype."
        )
    return embedding


def _copy_rows_back(model: Any) -> None:
    """Copies the rows of an untied head to the backbone; a tied head shares them."""
    embedding = model.backbone.token_embedding
    if not embedding.tie_weights:
        embedding.reverse_embeddings.assign(tf.transpose(model.head.class_embeddings()))
