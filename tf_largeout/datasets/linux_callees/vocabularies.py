"""Creates a corpus with one of the three label vocabularies from the table of functions."""

import numpy as np

from tf_largeout.datasets.class_order import frequency_order
from tf_largeout.datasets.corpus import Corpus
from tf_largeout.datasets.linux_callees.c_functions import CALLED, CONSTANT, FIELD
from tf_largeout.datasets.ragged import Ragged
from tf_largeout.datasets.text_table import TextTable

MAX_FEATURES = 40  # One function in ten thousand has more.
VOCABULARIES = {
    "functions": CALLED,
    "constants": CALLED | CONSTANT,
    "fields": CALLED | CONSTANT | FIELD,
}


def select(table, vocabulary):
    """Returns the `Corpus` whose classes are the identifiers of one vocabulary.

    Feature ids are in descending order of training counts. Features that do not occur in the
    training split are dropped, and a function keeps at most its first `MAX_FEATURES` features.

    Args:
        table: `FunctionTable`.
        vocabulary: A key of `VOCABULARIES`.
    """
    is_test = table.is_test()
    rows = np.argsort(is_test, kind="stable")  # Training split first.
    num_train = int((~is_test).sum())
    kept = (table.kinds & VOCABULARIES[vocabulary]) != 0
    labels = table.labels.filtered(kept).take(rows)
    labels, classes, _ = _by_frequency(labels, num_train, len(table.words))
    features = table.features.take(rows)
    features, _, num_seen = _by_frequency(features, num_train, len(table.words))
    features = features.filtered(features.values < num_seen).head(MAX_FEATURES)
    return Corpus(
        features=Ragged(features.values + np.int32(1), features.offsets),  # 0 is padding.
        labels=labels,
        example_texts=TextTable(table.texts.utf8.take(rows)),
        class_texts=TextTable(table.words.utf8.take(classes)),
        group_hashes=table.group_hashes()[rows],
        num_train=num_train,
        vocabulary_size=1 + num_seen,
    )


def _by_frequency(ragged, num_train, num_words):
    """Renumbers words in descending order of their counts in the first `num_train` rows.

    Returns:
        `(rows, old, num_seen)`: the rows with new ids; int64, the old id of each new id; and
        the number of words that occur in the first `num_train` rows.
    """
    present = np.flatnonzero(np.bincount(ragged.values, minlength=num_words))
    train_values = ragged.values[: ragged.offsets[num_train]]
    counts = np.bincount(train_values, minlength=num_words)[present]
    order, _ = frequency_order(counts)
    old = present[order]
    new = np.full(num_words, -1, np.int32)
    new[old] = np.arange(len(old))
    return Ragged(new[ragged.values], ragged.offsets), old, int(np.count_nonzero(counts))
