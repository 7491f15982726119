"""`join_models`: one model whose logits are the mean of the logits of several models."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from tf_largeout.layers import LargeOutput
from tf_largeout.steps.output_tag import compiled_loss


def join_models(models: Sequence[keras.Model]) -> keras.Model:
    """Joins models into one model whose logits are the mean of their logits.

    Models that are trained from different seeds make different errors. So the mean of their
    logits usually ranks the classes better than each single model. The mean of inner products
    is the inner product of the concatenated features with the concatenated class rows, divided
    by the number of models. So the joined model ends in one `LargeOutput` whose width is the
    sum of the models' widths. It works like any other model with `evaluate`, `top_k`, the
    indexes of `retrieval` and `serving.export`. It ranks classes by the geometric mean of the
    models' probabilities.

    ```python
    def trained(seed):
        keras.utils.set_random_seed(seed)
        model = keras.Sequential(
            [keras.Input([16]), keras.layers.Dense(8), tflo.layers.LargeOutput(1_000)]
        )
        model.compile(tflo.optimizers.LazyAdam(1e-2), tflo.losses.SoftmaxLoss())
        model.fit(np.ones([32, 16]), np.arange(32), verbose=0)
        return model

    joined = tflo.join_models([trained(seed) for seed in range(3)])
    ```

    Args:
        models: Two or more built `Sequential` or functional models with the same inputs, each
            with a `LargeOutput` of the same classes as its last layer and output.

    Returns:
        A functional model, not compiled, without a sampler. It contains the encoders of the
        models themselves, and copies of their class rows and biases.

    Raises:
        ValueError: If `models` has fewer than two models or others than described; or if an
            output layer has `normalize`, a `scale` other than 1 or a `logit_soft_cap`, or ranks
            classes by `|logit|`, as after training with `AbsoluteSoftmaxLoss`.
    """
    models = list(models)
    if len(models) < 2:
        raise ValueError(f"`models` must contain two or more models. Received: {len(models)}.")
    heads = [_head(model) for model in models]
    _check_alike(models, heads)
    inputs = keras.tree.map_structure(
        lambda one: keras.Input(batch_shape=one.shape, dtype=one.dtype), _inputs(models[0])
    )
    features = [
        keras.Model(_inputs(model), head.input, name=f"encoder_{number}")(inputs)
        for number, (model, head) in enumerate(zip(models, heads, strict=True))
    ]
    products = [head.class_matrix.as_products() for head in heads]
    rows = [one[0].numpy() for one in products if one is not None]
    biases = [one[1].numpy() for one in products if one is not None and one[1] is not None]
    output = LargeOutput(
        heads[0].num_classes,
        use_bias=bool(biases),
        embeddings_initializer=np.concatenate(rows, axis=1) / len(heads),
        bias_initializer=np.sum(biases, axis=0) / len(heads) if biases else None,
    )
    return keras.Model(inputs, output(keras.layers.Concatenate()(features)))


def _head(model: keras.Model) -> LargeOutput:
    """Returns the `LargeOutput` at the end of a model."""
    layers, outputs = getattr(model, "layers", None), getattr(model, "outputs", None) or []
    if (
        len(outputs) == 1
        and layers
        and getattr(model, "built", False)
        and isinstance(layers[-1], LargeOutput)
    ):
        _require_logit_ranking(model, layers[-1])
        return layers[-1]
    last = f"the {type(layers[-1]).__name__} '{layers[-1].name}'" if layers else "missing"
    raise ValueError(
        "Each model must be a Sequential or functional model that is built and ends in a "
        f"`LargeOutput`, its only output. Received: {model!r} with {len(outputs)} outputs; its "
        f"last layer is {last}. For one of several outputs, pass keras.Model(model.inputs, "
        "model.outputs[0]). With other output layers, average the scores of `top_k`."
    )


def _require_logit_ranking(model: keras.Model, head: LargeOutput) -> None:
    if head.normalize or head.scale not in (None, 1.0) or head.logit_soft_cap is not None:
        raise ValueError(
            "`join_models` computes the mean of inner products, but the output layer of model "
            f"'{model.name}' has normalize={head.normalize}, scale={head.scale} and "
            f"logit_soft_cap={head.logit_soft_cap}. Join models whose output layers do not use "
            "these arguments, or average the scores of `top_k`."
        )
    head.follow(compiled_loss(model), replace=False)
    if head.ranking != "logit":
        raise ValueError(
            f"`join_models` computes the mean of logits, but model '{model.name}' ranks "
            f"classes by {head.ranking!r}, as its loss does. Logits of opposite signs would "
            "cancel. Join models that were trained with another loss, or average the scores of "
            "`top_k`."
        )


def _check_alike(models: Sequence[keras.Model], heads: Sequence[LargeOutput]) -> None:
    for model, head in zip(models, heads, strict=True):
        if head.num_classes != heads[0].num_classes:
            raise ValueError(
                "The models must have the same number of classes. Received: "
                f"{heads[0].num_classes} and {head.num_classes}."
            )
        if _specs(model) != _specs(models[0]):
            raise ValueError(
                "The models must have the same inputs. Received: "
                f"{_specs(models[0])} and {_specs(model)}."
            )


def _inputs(model: keras.Model) -> Any:
    """Returns the symbolic inputs, in their structure; one tensor for a `Sequential`."""
    return model.inputs[0] if isinstance(model, keras.Sequential) else model.input


def _specs(model: keras.Model) -> Any:
    """Returns the shapes and dtypes of the inputs, in their structure."""
    return keras.tree.map_structure(lambda tensor: (tensor.shape, tensor.dtype), _inputs(model))
