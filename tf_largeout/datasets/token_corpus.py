"""The parsed form of text datasets: documents of tokens, for language models."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from tf_largeout.datasets.class_order import frequency_order
from tf_largeout.datasets.hashing import md5_uint64
from tf_largeout.datasets.ragged import Ragged
from tf_largeout.datasets.storable import Storable
from tf_largeout.datasets.text_table import TextTable

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
    kept = table.utf8.take(rows)
    unknown = np.frombuffer(UNKNOWN.encode(), np.uint8)
    place = kept.offsets[unknown_id]
    return TextTable(
        Ragged.from_lengths(
            np.insert(kept.values, place, unknown),
            np.insert(kept.lengths, unknown_id, len(unknown)),
        )
    )
