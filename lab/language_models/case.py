"""`Case`: the sizes of `lab.language_models.heads`; needs no TensorFlow."""

import dataclasses

import numpy as np

WARM_UP = 1
LEARNING_RATE = 2e-5  # keras-hub's default
_BATCHES = 8


@dataclasses.dataclass(frozen=True)
class Case:
    """Sizes of model and step.

    Attributes:
        vocabulary_size: Number of tokens.
        dim: Width of the model; the feed-forward layers have four times as much.
        num_layers, num_heads: Of the transformer.
        batch_size: Sequences of a step.
        length: Tokens of a sequence.
        num_sampled: Negatives of the sampled loss.
        chunk: Tokens of a chunk of `linear_cross_entropy`.
        steps: Measured steps of a run.
    """

    vocabulary_size: int = 256_000
    dim: int = 256
    num_layers: int = 2
    num_heads: int = 4
    batch_size: int = 8
    length: int = 128
    num_sampled: int = 4096
    chunk: int = 128
    steps: int = 5

    def tokens(self):
        """Returns token ids `[batches * batch_size, length + 1]`, by decreasing frequency."""
        shape = [_BATCHES * self.batch_size, self.length + 1]
        draws = np.random.default_rng(0).random(shape)
        return ((self.vocabulary_size + 1) ** draws).astype(np.int64) - 1
