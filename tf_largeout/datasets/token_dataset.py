"""The result of `load` for a text dataset."""

import dataclasses
from typing import SupportsIndex

import numpy as np

from tf_largeout.datasets.dataset import Dataset, check_division, checked_index
from tf_largeout.datasets.token_corpus import TokenCorpus
from tf_largeout.datasets.token_pipeline import TokenPipeline


@dataclasses.dataclass(frozen=True)
class TokenDataset(Dataset):
    """A text dataset that is ready for `fit` and `evaluate` of a language model.

    The pipelines yield windows of the text, `(tokens, next_tokens)`: int32 and int64
    `[batch_size, max_features]`. Input and output have the same vocabulary, so they can share
    one table. The last window of a split is padded with token 0 and label -1.

    The following attributes differ from those of `Dataset`.

    Attributes:
        num_train, num_validation, num_test: Numbers of windows.
        num_classes, vocabulary_size: Size of the vocabulary, including the unknown token.
        label_counts: int64 `[num_classes]`, how often each class occurs in `train_tokens`.
        max_features: Number of tokens per window.
        unknown_id: The class of all tokens that are not in the vocabulary.
        train_tokens: int32, all tokens of `train` in order, for example to count bigrams.
        test_tokens: int32, all tokens of `test` in order.
    """

    unknown_id: int
    train_tokens: np.ndarray = dataclasses.field(repr=False)
    test_tokens: np.ndarray = dataclasses.field(repr=False)

    def test_text(self, index: SupportsIndex) -> str:
        """Returns the tokens of a window of `test`, separated by spaces.

        Args:
            index: Position of the window in `test`, an integer in `[0, num_test)`.

        Raises:
            IndexError: If `index` is out of range.
            TypeError: If `index` is not an integer.
        """
        start = checked_index("index", index, self.num_test) * self.max_features
        tokens = self.test_tokens[start : start + self.max_features]
        return " ".join(self.class_text(token) for token in tokens)


def token_dataset(
    name: str,
    corpus: TokenCorpus,
    length: int,
    *,
    batch_size: int | None,
    shuffle_seed: int | None,
    validation_fraction: float,
) -> TokenDataset:
    """Creates the dataset of a corpus.

    The arguments are those of `load`; `length` is `sequence_length`. The first training
    documents form the validation split.
    """
    num_validation = _num_validation(corpus, validation_fraction)
    bounds = [0, num_validation, corpus.num_train, corpus.num_examples]
    start, train_start, train_end, end = (
        int(corpus.documents.offsets[document]) for document in bounds
    )
    tokens = corpus.documents.values
    pipeline = TokenPipeline(tokens, length)
    validation = pipeline.dataset(start, train_start, batch_size) if num_validation else None
    label_counts = corpus.token_counts(num_validation, corpus.num_train)
    validation_counts = corpus.token_counts(0, num_validation)
    return TokenDataset(
        name=name,
        train=pipeline.dataset(train_start, train_end, batch_size, shuffle_seed),
        test=pipeline.dataset(train_end, end, batch_size),
        validation=validation,
        num_train=len(pipeline.windows(train_start, train_end)),
        num_test=len(pipeline.windows(train_end, end)),
        num_validation=len(pipeline.windows(start, train_start)),
        num_classes=corpus.num_classes,
        num_train_classes=int(np.count_nonzero(label_counts + validation_counts)),
        label_counts=label_counts,
        vocabulary_size=corpus.num_classes,
        max_features=length,
        corpus=corpus,
        unknown_id=corpus.unknown_id,
        train_tokens=tokens[train_start:train_end],
        test_tokens=tokens[train_end:end],
    )


def _num_validation(corpus: TokenCorpus, fraction: float) -> int:
    """Returns how many documents of the training split are held out for validation."""
    hashes = corpus.group_hashes[: corpus.num_train]
    num_validation = int(np.searchsorted(hashes, np.uint64(int(fraction * 2**64))))
    check_division(corpus.num_train - num_validation, num_validation, fraction, "documents")
    return num_validation
