"""Texts for language models: documents of tokens, and windows of them for `fit`."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex, cast

import numpy as np
import tensorflow as tf

from tf_largeout.datasets.corpus import Storable, frequency_order, md5_uint64
from tf_largeout.datasets.dataset import Dataset, check_division, checked_index
from tf_largeout.datasets.pipeline import batches
from tf_largeout.datasets.ragged import Ragged, TextTable

UNKNOWN = "<unknown>"  # The class of all tokens that are not in the vocabulary.
END = "<end>"  # The token at the end of a sentence, an article or a file.

_COUNT_CHUNK = 1 << 22  # Tokens counted at a time, because `np.bincount` copies them to int64.


@dataclasses.dataclass(frozen=True)
class TokenCorpus(Storable):
    """All documents of a text as class ids: the training split first, then the test split.

    Class ids, including that of unknown tokens, are in descending order of counts in the
    training split. Class 0 is the most frequent one, as a log-uniform sampler expects.

    Attributes:
        documents: int32, one row of class ids per document.
        class_texts: One token per class.
        example_texts: One readable line per document.
        group_hashes: uint64 `[num_documents]`, hash of the text that determines a document's
            split. They ascend within a split, so documents selected by a threshold on the hash
            are consecutive.
        num_train: Number of documents in the training split.
        unknown_id: The class of all tokens that are not in the vocabulary.
    """

    documents: Ragged
    class_texts: TextTable
    example_texts: TextTable
    group_hashes: np.ndarray
    num_train: int
    unknown_id: int

    @classmethod
    def from_documents(
        cls,
        tokens: Sequence[np.ndarray],
        types: Iterable[str],
        texts: Sequence[str],
        groups: Sequence[str],
        is_test: np.ndarray,
    ) -> "TokenCorpus":
        """Creates a corpus whose vocabulary is every token of the training split.

        Args:
            tokens: For each document, the int32 numbers of its tokens.
            types: The tokens, in the order of their numbers.
            texts: One readable line per document.
            groups: For each document, the text that determines its split; see `group_hashes`.
            is_test: bool `[num_documents]`, whether each document is in the test split.
        """
        table = TextTable.from_strings(types)
        hashes = md5_uint64(groups)
        order = np.lexsort([hashes, is_test])
        documents = Ragged.from_lengths(
            np.concatenate([tokens[place] for place in order]),
            [len(tokens[place]) for place in order],
        )
        num_train = int(np.count_nonzero(~is_test))
        counts = _counts(documents.values[: documents.offsets[num_train]], len(table))
        by_count, _ = frequency_order(counts)
        known = by_count[: np.count_nonzero(counts)]
        class_of_type = np.full(len(table), len(known), np.int32)
        class_of_type[known] = np.arange(len(known), dtype=np.int32)
        return cls(
            documents=Ragged(class_of_type[documents.values], documents.offsets),
            class_texts=_with_unknown(table, known, len(known)),
            example_texts=TextTable.from_strings(texts[place] for place in order),
            group_hashes=hashes[order],
            num_train=num_train,
            unknown_id=len(known),
        )

    @property
    def num_examples(self) -> int:
        return len(self.documents)

    @property
    def num_classes(self) -> int:
        return len(self.class_texts)

    def token_counts(self, first: int, end: int) -> np.ndarray:
        """Returns the int64 count of each class in the documents `first ... end - 1`."""
        start, stop = self.documents.offsets[[first, end]]
        return _counts(self.documents.values[start:stop], self.num_classes)

    def limited(self, num_classes: int) -> "TokenCorpus":
        """Returns the corpus with a vocabulary of the most frequent tokens.

        Args:
            num_classes: Size of the vocabulary including the unknown token, at least 2. If it
                is larger than the present vocabulary, the corpus is returned unchanged.
        """
        if num_classes >= self.num_classes:
            return self
        counts = self.token_counts(0, self.num_train)
        known = np.delete(np.arange(self.num_classes), self.unknown_id)[: num_classes - 1]
        unknown_count = counts.sum() - counts[known].sum()
        order, rank = frequency_order(np.append(counts[known], unknown_count))
        new_class = np.full(self.num_classes, rank[-1], np.int32)
        new_class[known] = rank[:-1]
        return dataclasses.replace(
            self,
            documents=Ragged(new_class[self.documents.values], self.documents.offsets),
            class_texts=_with_unknown(
                self.class_texts, known[order[order < len(known)]], int(rank[-1])
            ),
            unknown_id=int(rank[-1]),
        )

    def with_min_count(self, min_count: int) -> "TokenCorpus":
        """Returns the corpus with the tokens with a training count of at least `min_count`."""
        counts = self.token_counts(0, self.num_train)
        return self.limited(1 + int(np.count_nonzero(counts >= min_count)))


def _counts(tokens: np.ndarray, num_classes: int) -> np.ndarray:
    counts = np.zeros(num_classes, np.int64)
    for start in range(0, len(tokens), _COUNT_CHUNK):
        counts += np.bincount(tokens[start : start + _COUNT_CHUNK], minlength=num_classes)
    return counts


def _with_unknown(table: TextTable, rows: np.ndarray, unknown_id: int) -> TextTable:
    """Returns the given rows of the table, with `UNKNOWN` inserted at `unknown_id`."""
    kept = table.take(rows)
    unknown = np.frombuffer(UNKNOWN.encode(), np.uint8)
    return TextTable.from_lengths(
        np.insert(kept.values, kept.offsets[unknown_id], unknown),
        np.insert(kept.lengths, unknown_id, len(unknown)),
    )


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
    batch_size: int | None = None,
    shuffle_seed: int | None = 0,
    validation_fraction: float = 0.0,
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
        corpus=cast(Any, corpus),
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


class TokenPipeline:
    """Makes `tf.data` datasets from ranges of a text.

    A range is cut into windows of `length` tokens. The labels of a window are its tokens
    shifted by one, so every token of the range except the first is predicted once. The last
    window is padded with token 0 and label -1, which losses and metrics ignore.

    Args:
        tokens: int32 `[num_tokens]`.
        length: Number of tokens per window.
    """

    def __init__(self, tokens: np.ndarray, length: int) -> None:
        self.length = length
        with tf.device("CPU:0"):
            self._tokens = tf.constant(tokens, tf.int32)

    def windows(self, start: int, end: int) -> np.ndarray:
        """Returns the start positions (int64) of the windows of tokens `start ... end - 1`."""
        return np.arange(start, max(end - 1, start), self.length)

    def dataset(
        self, start: int, end: int, batch_size: int | None, shuffle_seed: int | None = None
    ) -> tf.data.Dataset:
        """Returns the batches of a range, `(tokens, next_tokens)`.

        Both are `[batch_size, length]`, int32 and int64.

        Args:
            start: First token of the range.
            end: End of the range, not included.
            batch_size: Windows per batch, or None for single windows. The last batch may be
                smaller.
            shuffle_seed: Integer to shuffle the windows in each epoch, in the same way in each
                run; None for the order of the text.
        """
        return batches(
            self.windows(start, end), batch_size, shuffle_seed, lambda at: self._batch(at, end)
        )

    def _batch(self, starts: tf.Tensor, end: int) -> tuple[tf.Tensor, tf.Tensor]:
        positions = starts[:, None] + tf.range(self.length + 1, dtype=tf.int64)
        inside = positions < end
        tokens = tf.gather(self._tokens, tf.minimum(positions, end - 1))
        tokens = tf.where(inside, tokens, -1)
        return tf.maximum(tokens[:, :-1], 0), tf.cast(tokens[:, 1:], tf.int64)
