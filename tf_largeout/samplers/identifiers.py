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


def get(identifier):
    """The sampler that `identifier` means, as `keras.losses.get` does for losses.

    Args:
        identifier: `None` (gives `None`), a `Sampler`, a name such as `"uniform"` (a sampler
            with its default arguments), or a serialized sampler.
    """
    if identifier is None or isinstance(identifier, Sampler):
        return identifier
    if isinstance(identifier, str) and identifier in _BY_NAME:
        return _BY_NAME[identifier]()
    if isinstance(identifier, dict):
        sampler = keras.saving.deserialize_keras_object(identifier)
        if isinstance(sampler, Sampler):
            return sampler
    raise ValueError(
        f"Unknown sampler: {identifier!r}. Expected None, a `tf_largeout.samplers.Sampler`, "
        f"its serialized config, or one of the names {sorted(_BY_NAME)}."
    )
