"""Base class of the tensorflow-datasets builders of text datasets."""

from typing import Any

from tf_largeout.datasets.corpus_builder import CorpusBuilder, ids_feature
from tf_largeout.datasets.tfds_api import tfds


class TokenCorpusBuilder(CorpusBuilder):
    """Writes text datasets. An example is a document: `text` (name) and `tokens` (class ids).

    A subclass defines `BUILDER_CONFIGS` (a list of `VocabularyConfig`), `_HOMEPAGE` and
    `_corpus`. `info.metadata["vocabulary"]` is the list of all tokens by class id.
    """

    _SUPERVISED = ("tokens", "tokens")

    def _features(self) -> dict[str, Any]:
        return {"tokens": ids_feature()}

    def _other_info(self) -> dict[str, Any]:
        return {"metadata": tfds.core.MetadataDict()}

    def _save_class_texts(self, texts: list[str]) -> None:
        self.info.metadata["vocabulary"] = texts

    def _example(self, corpus: Any, index: int) -> dict[str, Any]:
        return {"text": corpus.example_texts[index], "tokens": corpus.documents.row(index)}
