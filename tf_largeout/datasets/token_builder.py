"""The tfds face of a text."""

import dataclasses
from typing import Any

import numpy as np

from tf_largeout.datasets.corpus_builder import CorpusBuilder
from tf_largeout.datasets.tfds_api import tfds


@dataclasses.dataclass(eq=False)
class VocabularyConfig(tfds.core.BuilderConfig):
    """A vocabulary.

    Attributes:
        num_classes: its size, with the class of all other tokens.
    """

    num_classes: int = 0


class TokenCorpusBuilder(CorpusBuilder):
    """Base of the builders of texts: an example is a document, `text` (its name) and `tokens`.

    A subclass writes `BUILDER_CONFIGS`, of `VocabularyConfig`s, `_HOMEPAGE` and `_corpus`.
    Tokens are class ids by falling count, not cut into windows.
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
            homepage=self._HOMEPAGE,
        )

    def _example(self, corpus: Any, index: int) -> dict[str, Any]:
        return {"text": corpus.example_texts[index], "tokens": corpus.documents.row(index)}
