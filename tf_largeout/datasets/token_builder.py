"""Base class of the tensorflow-datasets builders of text datasets."""

import dataclasses
from typing import Any

import numpy as np

from tf_largeout.datasets.corpus_builder import CorpusBuilder
from tf_largeout.datasets.tfds_api import tfds


@dataclasses.dataclass(eq=False)
class VocabularyConfig(tfds.core.BuilderConfig):
    """The size of the vocabulary.

    Attributes:
        num_classes: Number of classes, including the class of all unknown tokens.
    """

    num_classes: int = 0


class TokenCorpusBuilder(CorpusBuilder):
    """Writes text datasets. An example is a document: `text` (name) and `tokens` (class ids).

    A subclass defines `BUILDER_CONFIGS` (a list of `VocabularyConfig`), `_HOMEPAGE` and
    `_corpus`. `info.metadata["vocabulary"]` is the list of all tokens by class id.
    """

    _HOMEPAGE: str

    def _info(self) -> tfds.core.DatasetInfo:
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "text": tfds.features.Text(),
                    "tokens": tfds.features.Tensor(shape=(None,), dtype=np.int32),
                }
            ),
            supervised_keys=("tokens", "tokens"),
            homepage=self._HOMEPAGE,
            metadata=tfds.core.MetadataDict(),
        )

    def _save_class_texts(self, texts: list[str]) -> None:
        self.info.metadata["vocabulary"] = texts

    def _example(self, corpus: Any, index: int) -> dict[str, Any]:
        return {"text": corpus.example_texts[index], "tokens": corpus.documents.row(index)}
