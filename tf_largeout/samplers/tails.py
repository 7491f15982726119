"""The samplers that can draw the shared tail beside hard negatives."""

import keras

from tf_largeout.samplers.log_uniform_sampler import LogUniformSampler
from tf_largeout.samplers.sampler import Sampler
from tf_largeout.samplers.uniform_sampler import UniformSampler
from tf_largeout.samplers.unigram_sampler import UnigramSampler

TAILS = {
    "uniform": UniformSampler,
    "log_uniform": LogUniformSampler,
    "unigram": UnigramSampler,
}


def make_tail(identifier, num_sampled) -> Sampler:
    """The tail sampler that `identifier` means, drawing `num_sampled` classes.

    Args:
        identifier: A name in `TAILS`, a `Sampler` (whose own `num_sampled` is replaced), or a
            serialized one.
        num_sampled: Number of classes that it shall draw.
    """
    tail = identifier
    if isinstance(tail, str) and tail in TAILS:
        tail = TAILS[tail]()
    elif isinstance(tail, dict):
        tail = keras.saving.deserialize_keras_object(tail)
    if not isinstance(tail, Sampler):
        raise ValueError(
            f"Unknown tail: {identifier!r}. Expected one of the names {sorted(TAILS)} or a "
            "`tf_largeout.samplers.Sampler` that draws one sample for the batch."
        )
    tail.num_sampled = num_sampled
    return tail
