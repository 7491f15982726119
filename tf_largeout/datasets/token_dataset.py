"""What `load` returns for a text."""

import dataclasses
from typing import SupportsIndex

import numpy as np

from tf_largeout.datasets.dataset import Dataset, check_division, checked_place
from tf_largeout.datasets.token_corpus import TokenCorpus
from tf_largeout.datasets.token_pipeline import TokenPipeline


@dataclasses.dataclass(frozen=True)
class TokenDataset(Dataset):
    """A text that is ready for `fit` and `evaluate` of a language model.

    The pipelines give `(tokens, next_tokens)`, windows of the text: int32 and int64
    `[batch_size, max_features]`. Input and output have one vocabulary, so their tables may be
    one. The last window of a split is filled up with token 0 and labels -1.

    What differs from `Dataset`:

    Attributes:
        num_train, num_validation, num_test: windows.
        num_classes, vocabulary_size: size of the vocabulary, the unknown token included.
        label_counts: int64 `[num_classes]`, how often each class occurs in `train_tokens`.
        max_features: tokens of a window.
        unknown_id: the class of all tokens that are not in the vocabulary.
        train_tokens: int32, all of `train` as one text; for counts of pairs, for instance.
        test_tokens: int32, all of `test` as one text.
    """

    unknown_id: int
    train_tokens: np.ndarray = dataclasses.field(repr=False)
    test_tokens: np.ndarray = dataclasses.field(repr=False)

    def test_text(self, index: SupportsIndex) -> str:
        """The tokens of a window of `test`, with spaces between them.

        Args:
            index: place of the window in `test`, an integer in `[0, num_test)`.

        Raises:
            IndexError: `test` has no such window.
            TypeError: `index` is no integer.
        """
        start = checked_place("index", index, self.num_test) * self.max_features
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
    """The dataset of a corpus; arguments as those of `load`, `length` is `sequence_length`."""
    num_validation = _num_validation(corpus, validation_fraction)
    bounds = [0, num_validation, corpus.num_train, corpus.num_examples]
    begin, middle, train_end, end = (int(corpus.documents.offsets[row]) for row in bounds)
    tokens = corpus.documents.values
    pipeline = TokenPipeline(tokens, length)
    validation = pipeline.dataset(begin, middle, batch_size) if num_validation else None
    label_counts = corpus.token_counts(num_validation, corpus.num_train)
    in_validation = corpus.token_counts(0, num_validation)
    return TokenDataset(
        name=name,
        train=pipeline.dataset(middle, train_end, batch_size, shuffle_seed),
        test=pipeline.dataset(train_end, end, batch_size),
        validation=validation,
        num_train=len(pipeline.windows(middle, train_end)),
        num_test=len(pipeline.windows(train_end, end)),
        num_validation=len(pipeline.windows(begin, middle)),
        num_classes=corpus.num_classes,
        num_train_classes=int(np.count_nonzero(label_counts + in_validation)),
        label_counts=label_counts,
        vocabulary_size=corpus.num_classes,
        max_features=length,
        corpus=corpus,
        unknown_id=corpus.unknown_id,
        train_tokens=tokens[middle:train_end],
        test_tokens=tokens[train_end:end],
    )


def _num_validation(corpus: TokenCorpus, fraction: float) -> int:
    """How many documents, the first of the training split, are held out."""
    hashes = corpus.group_hashes[: corpus.num_train]
    num_validation = int(np.searchsorted(hashes, np.uint64(int(fraction * 2**64))))
    check_division(corpus.num_train - num_validation, num_validation, fraction, "documents")
    return num_validation
