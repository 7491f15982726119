"""Errors for arguments of other libraries that our classes do not have."""

import inspect
from collections.abc import Mapping
from typing import Any

_DECAY = (
    "A penalty on all rows would read all of them in each step. Use the optimizer's "
    "`weight_decay`, which decays only the rows that a step updates: "
    "tf_largeout.optimizers.LazyAdam(weight_decay=...)."
)
_INITIALIZER = "Its name is `embeddings_initializer`."
_LOSS = (
    "The layer returns logits. The loss applies the activation, such as the softmax of "
    "tf_largeout.losses.SampledSoftmaxLoss. For probabilities, apply keras.ops.softmax to the "
    "output of `predict`."
)
_SAMPLER = (
    "Pass it to the sampler of the layer: LargeOutput(num_classes, "
    "sampler=tf_largeout.samplers.UniformSampler(512))."
)
_SCALE = (
    "Pass its inverse to the layer as `scale`: LargeOutput(num_classes, scale=1 / temperature)."
)
_OF_LARGE_OUTPUT = "Only a `LargeOutput` has this argument."
OF_LAYERS = {
    "activation": _LOSS,
    "embeddings": _OF_LARGE_OUTPUT,
    "embeddings_regularizer": _DECAY,
    "kernel_regularizer": _DECAY,
    "bias_regularizer": _DECAY,
    "kernel_initializer": _INITIALIZER,
    "normalize": _OF_LARGE_OUTPUT,
    "num_sampled": (
        "It is the first argument of a sampler: pass to a `LargeOutput` "
        "sampler=tf_largeout.samplers.UniformSampler(512)."
    ),
    "sampler": "Only a `LargeOutput` has a sampler. This layer needs none.",
    "temperature": "Pass its inverse to a `LargeOutput`: scale=1 / temperature.",
    "units": "Its name is `num_classes`.",
    "weights": (
        "Pass `embeddings_initializer`, an array [num_classes, dim], and `bias_initializer`. "
        "Transpose the kernel of a Dense layer: embeddings_initializer=kernel.T."
    ),
}
OF_ID_LAYERS = {
    "embeddings_regularizer": _DECAY,
    "mask_zero": "Id 0 is padding by default, by the argument padding_id=0. Leave it out.",
}
_OF_SOFTMAX = (
    "SoftmaxLoss, SampledSoftmaxLoss and AbsoluteSoftmaxLoss have this argument. The guide on "
    "losses and metrics lists all losses that have it."
)
OF_LOSSES = {
    "class_weight": "Its name is `class_weights`. It is an array with one weight per class.",
    "class_weights": _OF_SOFTMAX,
    "from_logits": "The layer always returns logits. Leave it out.",
    "ignore_index": "Its name is `ignore_class`.",
    "num_classes": "It is an argument of the output layer. Leave it out.",
    "num_sampled": _SAMPLER,
    "sampler": _SAMPLER,
    "temperature": _SCALE,
}
_NUM_SAMPLED = "Its name is `num_sampled`, the first argument."
_K = "Its name is `k`, the first argument."
_COUNTS = (
    "Samplers that draw by frequency have the argument `counts`: "
    "tf_largeout.samplers.UnigramSampler(512, counts=counts)."
)
_OF_LAYER = "It is an argument of the output layer. Leave it out."
OF_SAMPLERS = {
    "counts": _COUNTS,
    "nprobe": "Its name is `num_probes`, an argument of InvertedFileSampler.",
    "num_classes": _OF_LAYER,
    "num_negatives": _NUM_SAMPLED,
    "remove_accidental_hits": "It is an argument of sampled losses, with the default True.",
    "temperature": _SCALE,
    "unigrams": _COUNTS,
}
OF_METRICS = {
    "from_logits": "The layer always returns logits. Leave it out.",
    "ignore_class": "Pass it to the loss. The metrics of the same output then ignore it too.",
    "num_classes": _OF_LAYER,
    "top_k": _K,
}
_BY_ROWS = "`build` takes it from the class rows. Leave it out."
OF_INDEXES = {
    "M": "Its name is `max_neighbors`, an argument of HnswIndex.",
    "dim": _BY_ROWS,
    "efConstruction": "Its name is `ef_construction`, an argument of HnswIndex.",
    "nlist": "Its name is `num_lists`, an argument of InvertedFileIndex.",
    "nprobe": "Its name is `num_probes`, an argument of InvertedFileIndex.",
    "num_classes": _BY_ROWS,
}
OF_OPTIMIZERS = {
    "beta1": "Its name is `beta_1`.",
    "beta2": "Its name is `beta_2`.",
    "betas": "Pass `beta_1` and `beta_2`.",
    "eps": "Its name is `epsilon`.",
    "lr": "Its name is `learning_rate`.",
}


def refuse_wrong_arguments(
    owner: str, arguments: Mapping[str, Any], what_to_do: Mapping[str, str]
) -> None:
    """Raises a ValueError for the arguments that have another name or place in this library.

    `owner` is a class, `arguments` are those of its constructor, and `what_to_do` is one of the
    tables above, whose keys are names that the class does not define.
    """
    for name, value in arguments.items():
        if name in what_to_do:
            raise ValueError(
                f"{owner} has no argument `{name}`. Received: {name}={value!r}. "
                f"{what_to_do[name]}"
            )


def refuse_wrong_arguments_of(
    cls: type, arguments: Mapping[str, Any], what_to_do: Mapping[str, str]
) -> None:
    """Like `refuse_wrong_arguments`, for a class that has some of the arguments in the table.

    Arguments of its constructor are accepted, and those of the constructors of this library
    that it passes `**options` on to. If a constructor of another package takes `**kwargs`, all
    arguments are accepted.
    """
    suspects = {name: arguments[name] for name in arguments if name in what_to_do}
    if not suspects:
        return
    known: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        if "__init__" in vars(base):
            parameters = inspect.signature(vars(base)["__init__"]).parameters
            passes_on = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
            if passes_on and not base.__module__.startswith("tf_largeout."):
                return
            known.update(parameters)
            if not passes_on:
                break
    others = {name: value for name, value in suspects.items() if name not in known}
    refuse_wrong_arguments(cls.__name__, others, what_to_do)
