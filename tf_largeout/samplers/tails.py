"""The samplers that can draw the shared tail beside hard negatives."""

import copy

import keras

from tf_largeout.samplers.log_uniform_sampler import LogUniformSampler
from tf_largeout.samplers.sampler import Sampler
from tf_largeout.samplers.uniform_sampler import UniformSampler


def _refuse_unigram(*_):
    raise ValueError(
        'The name "unigram" says no counts to draw by. Pass '
        "`UnigramSampler(num_sampled, counts=...)`, or a `UnigramSampler` after its "
        "`adapt(labels)`."
    )


TAILS = {
    "uniform": UniformSampler,
    "log_uniform": LogUniformSampler,
    "unigram": _refuse_unigram,
}


def make_tail(identifier, num_sampled) -> Sampler:
    """The tail sampler that `identifier` means, drawing `num_sampled` classes.

    Args:
        identifier: "uniform" or "log_uniform", a sampler that does not search (and stays as it
            is), or a serialized one.
        num_sampled: Number of classes that it shall draw.

    Raises:
        ValueError: If it means no such sampler (the loss is unbiased only if the tail's
            expected counts hold for all classes, whatever the search finds), or one that
            draws for a layer already: its state is that layer's.
    """
    tail = identifier
    if isinstance(tail, str) and tail in TAILS:
        tail = TAILS[tail]()
    elif isinstance(tail, dict):
        tail = keras.saving.deserialize_keras_object(tail)
    if not isinstance(tail, Sampler) or tail.searches:
        raise ValueError(
            f"`tail` must be one of the names {sorted(TAILS)} or a `StaticSampler`: one sample "
            "for the whole batch, from a distribution that nothing else changes. "
            f"Received: tail={identifier!r} (of type {type(identifier).__name__}). "
            f"{_way_out(tail)}"
        )
    if tail.num_classes:
        raise ValueError(
            f"The {type(tail).__name__} in `tail` was already built by a layer with "
            f"{tail.num_classes} classes. Give each sampler a tail of its own."
        )
    tail = copy.copy(tail)  # with what a config lacks, such as counts
    tail.num_sampled = num_sampled
    return tail


def _way_out(tail):
    if isinstance(tail, Sampler):
        return f"Make a {type(tail).__name__} the sampler of the layer, with a static tail."
    return 'Leave `tail` out for "uniform".'
