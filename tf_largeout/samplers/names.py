"""Samplers by name; those of papers are imported when a name needs them."""

import keras

from tf_largeout.lazy_names import import_papers
from tf_largeout.sampler_arguments import (
    BY_NAME,
    NEED_COUNTS,
    by_name,
    refuse_class_or_number,
)
from tf_largeout.samplers.sampler import Sampler
from tf_largeout.types import Config


def get(
    identifier: Sampler | Config | str | None, num_classes: int | None = None
) -> Sampler | None:
    """Returns the sampler for an identifier, as `keras.losses.get` does for losses.

    Args:
        identifier: None or a `Sampler`, returned as it is; a name such as "uniform" for a
            sampler with its default arguments; or a serialized sampler.
        num_classes: A sampler created by name draws at most half of this number of classes;
            None for no bound.

    Raises:
        ValueError: If the identifier is unknown, or is "unigram", which needs counts.
    """
    if identifier is None or isinstance(identifier, Sampler):
        return identifier
    if isinstance(identifier, str):
        if identifier not in BY_NAME:
            import_papers()
        if identifier in BY_NAME:
            return by_name(identifier, num_classes)
    if isinstance(identifier, dict):
        sampler = keras.saving.deserialize_keras_object(identifier)
        if isinstance(sampler, Sampler):
            return sampler
    refuse_class_or_number(identifier, Sampler)
    import_papers()
    raise ValueError(
        f"Unknown sampler: {identifier!r}. Expected None, a `tf_largeout.samplers.Sampler`, "
        f"its serialized config, or one of the names {sorted(set(BY_NAME) - NEED_COUNTS)}. "
        "UnigramSampler, BernoulliSampler and BigramSampler have no names, because they need "
        "the counts of the labels: pass e.g. UnigramSampler(num_sampled, counts=...)."
    )
