"""Samplers by name."""

import keras

from tf_largeout.samplers.inverted_file_sampler import InvertedFileSampler
from tf_largeout.samplers.lsh_sampler import LSHSampler
from tf_largeout.samplers.sampler import Sampler
from tf_largeout.samplers.tails import TAILS
from tf_largeout.samplers.top_k_sampler import TopKSampler

_BY_NAME = {
    **TAILS,
    "inverted_file": InvertedFileSampler,
    "lsh": LSHSampler,
    "top_k": TopKSampler,
}


def get(identifier, num_classes=None):
    """The sampler that `identifier` means, as `keras.losses.get` does for losses.

    Args:
        identifier: `None` (gives `None`), a `Sampler`, a name such as `"uniform"` (a sampler
            with its default arguments), or a serialized sampler.
        num_classes: Of how many classes one made by name draws at most half; None for no bound.

    Raises:
        ValueError: If it means no sampler, or is "unigram", a name without counts.
    """
    if identifier is None or isinstance(identifier, Sampler):
        return identifier
    if isinstance(identifier, str) and identifier in _BY_NAME:
        return _make(_BY_NAME[identifier], num_classes)
    if isinstance(identifier, dict):
        sampler = keras.saving.deserialize_keras_object(identifier)
        if isinstance(sampler, Sampler):
            return sampler
    raise ValueError(
        f"Unknown sampler: {identifier!r}. Expected None, a `tf_largeout.samplers.Sampler`, "
        f"its serialized config, or one of the names {sorted(_BY_NAME)}."
    )


def _make(sampler, num_classes):
    made = sampler()
    num_sampled = made.num_sampled if num_classes is None else max(1, num_classes // 2)
    if num_sampled >= made.num_sampled:
        return made
    if (getattr(made, "num_hard", None) or 0) >= num_sampled:
        return sampler(num_sampled, num_hard=num_sampled // 2 or None)
    return sampler(num_sampled)
