"""The tfds face of a corpus."""

from collections.abc import Iterable, Iterator
from typing import Any

from tf_largeout.datasets.corpus import Corpus
from tf_largeout.datasets.folders import Folders
from tf_largeout.datasets.tfds_api import tfds
from tf_largeout.datasets.token_corpus import TokenCorpus


class CorpusBuilder(tfds.core.GeneratorBasedBuilder):
    """Base of the builders: a subclass says its features and where its corpus comes from.

    A subclass writes `_info` and `_corpus`. Source files lie in tfds's `manual_dir`; those that
    a program can fetch are fetched there.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First release."}

    def _corpus(self, folders: Folders) -> Corpus | TokenCorpus:
        """The corpus, by `Folders`."""
        raise NotImplementedError

    def _split_generators(
        self, dl_manager: tfds.download.DownloadManager
    ) -> dict[str, Iterator[tuple[int, dict[str, Any]]]]:
        # Once for both splits: reading the source takes minutes.
        corpus = self._corpus(Folders.of_download_manager(dl_manager))
        return {
            "train": self._generate_examples(corpus, range(corpus.num_train)),
            "test": self._generate_examples(
                corpus, range(corpus.num_train, corpus.num_examples)
            ),
        }

    def _generate_examples(
        self, corpus: Corpus | TokenCorpus, examples: Iterable[int]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        for index in examples:
            yield index, self._example(corpus, index)

    def _example(self, corpus: Any, index: int) -> dict[str, Any]:
        return {
            "text": corpus.example_texts[index],
            "features": corpus.features.row(index),
            "labels": corpus.labels.row(index),
        }
