"""Corpora for measurements: see README.md."""

from typing import Any

from lab.corpora import brown, gcide, linux
from lab.corpora.text import TokenDataset as TokenDataset
from lab.corpora.text import token_dataset
from tf_largeout import datasets
from tf_largeout.arguments import whole_number
from tf_largeout.datasets.dataset import checked_options, examples_dataset
from tf_largeout.datasets.sources import Folders

TEXTS = {"brown": brown.corpus, "gcide": gcide.corpus, "linux_tokens": linux.tokens}


def load(name: str, **options: Any) -> Any:
    """Loads a corpus of README.md, or what `tf_largeout.datasets.load` knows.

    Args:
        name: `"linux_callees"`, `"linux_callees/constants"` or `"linux_callees/fields"`; a
            text: `"brown"`, `"gcide"` or `"linux_tokens"`; or as for `datasets.load`.
        **options: As for `datasets.load`. For a text, there are no `max_train_labels`, but
            `vocabulary_size`: number of classes, the most frequent tokens and one class for all
            others; its default depends on the text. And `sequence_length`: tokens per window,
            by default 64.

    Returns:
        A `Dataset`, or a `TokenDataset` for a text.

    Raises:
        SourceFileError: If the source is damaged, or is missing and cannot be downloaded.
        ValueError: If an argument is invalid.
    """
    base, _, variant = name.partition("/")
    if base == "linux_callees":
        return _load_callees(name, variant or "functions", **options)
    if name in TEXTS:
        return _load_text(name, **options)
    return datasets.load(name, **options)


def _load_callees(
    name: str,
    vocabulary: str,
    data_dir: Any = None,
    max_train_labels: Any = None,
    **options: Any,
) -> datasets.Dataset:
    corpus = linux.callees(Folders.of_data_dir(data_dir), vocabulary)
    return examples_dataset(name, corpus, max_train_labels, **checked_options(**options))


def _load_text(
    name: str,
    data_dir: Any = None,
    vocabulary_size: Any = None,
    sequence_length: Any = 64,
    **options: Any,
) -> TokenDataset:
    size = whole_number("vocabulary_size", vocabulary_size, least=2, or_none=True)
    length = whole_number("sequence_length", sequence_length)
    corpus = TEXTS[name](Folders.of_data_dir(data_dir), size)
    return token_dataset(name, corpus, length, **checked_options(**options))
