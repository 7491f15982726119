"""Errors for arguments of other Keras layers that the output layers do not have."""

from collections.abc import Mapping
from typing import Any

_DECAY = (
    "A penalty of all rows would read them in each step. Use the optimizer's `weight_decay`, "
    "which decays only the rows that a step updates: "
    "tf_largeout.optimizers.LazyAdam(weight_decay=...)."
)
_INITIALIZER = "Its name is `embeddings_initializer`."
_LOSS = (
    "The layer returns logits; the loss defines their function, such as the softmax in "
    "tf_largeout.losses.SampledSoftmaxLoss. For probabilities, apply keras.ops.softmax to the "
    "output of `predict`."
)
_WHAT_TO_DO = {
    "activation": _LOSS,
    "embeddings_regularizer": _DECAY,
    "kernel_regularizer": _DECAY,
    "bias_regularizer": _DECAY,
    "kernel_initializer": _INITIALIZER,
    "num_sampled": (
        "It is the first argument of a sampler: pass to a `LargeOutput` "
        "sampler=tf_largeout.samplers.UniformSampler(512)."
    ),
    "units": "Its name is `num_classes`.",
}


def refuse_wrong_arguments(layer: str, arguments: Mapping[str, Any]) -> None:
    """Raises a ValueError for the arguments that have another name or place in this library.

    Args:
        layer: The name of the class of layers.
        arguments: The keyword arguments that the class does not define.
    """
    for name, value in arguments.items():
        if name in _WHAT_TO_DO:
            raise ValueError(
                f"{layer} has no argument `{name}`. Received: {name}={value!r}. "
                f"{_WHAT_TO_DO[name]}"
            )
