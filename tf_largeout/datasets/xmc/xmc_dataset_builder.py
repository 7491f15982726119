"""The tfds builder of datasets of the Extreme Classification Repository."""

import dataclasses

import numpy as np

from tf_largeout.datasets.corpus_builder import CorpusBuilder, ids_feature
from tf_largeout.datasets.tfds_api import tfds
from tf_largeout.datasets.xmc.corpus import BY_HAND, corpus


@dataclasses.dataclass(eq=False)
class XmcConfig(tfds.core.BuilderConfig):
    """A dataset of the repository. It is named after the folder with its two files.

    Attributes:
        num_labels: Number of classes, the third number in the first line of both files.
    """

    num_labels: int = 0


class Builder(CorpusBuilder):
    """`text`, `features` (ids, from 1), `weights` and `labels`, not padded.

    For other datasets, use `tfds.builder("xmc", config=XmcConfig(name=..., num_labels=...))`.
    """

    MANUAL_DOWNLOAD_INSTRUCTIONS = BY_HAND
    BUILDER_CONFIGS = [
        XmcConfig(name="Eurlex-4K", num_labels=3_993, description="EU law, 3,993 labels."),
        XmcConfig(name="Wiki-325K", num_labels=325_056, description="Wikipedia categories."),
        XmcConfig(name="Amazon-670K", num_labels=670_091, description="Products bought next."),
    ]

    _WRONG_CLASSES = "Pass this number as `num_labels` of an `XmcConfig`."

    _HOMEPAGE = "http://manikvarma.org/downloads/XC/XMLRepository.html"
    _SUPERVISED = ({"ids": "features", "weights": "weights"}, "labels")

    def _features(self):
        label = tfds.features.ClassLabel(num_classes=self.builder_config.num_labels)
        return {
            "features": ids_feature(),
            "weights": tfds.features.Tensor(shape=(None,), dtype=np.float32),
            "labels": tfds.features.Sequence(label),
        }

    def _corpus(self, folders):
        return corpus(folders, self.builder_config.name)

    def _example(self, corpus, index):
        weights = corpus.ragged_weights.row(index)
        return super()._example(corpus, index) | {"weights": weights}
