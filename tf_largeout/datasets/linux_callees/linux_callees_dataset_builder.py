"""The tfds builder of linux_callees."""

import dataclasses

import numpy as np

from tf_largeout.datasets.corpus_builder import CorpusBuilder
from tf_largeout.datasets.linux_callees import source
from tf_largeout.datasets.linux_callees.corpus import corpus
from tf_largeout.datasets.tfds_api import tfds


@dataclasses.dataclass(eq=False)
class LinuxCalleesConfig(tfds.core.BuilderConfig):
    """A label vocabulary.

    Attributes:
        num_classes: Size of the vocabulary.
    """

    num_classes: int = 0


class Builder(CorpusBuilder):
    """`text` (`path: function`), `features` (ids of subtokens) and `labels`, not padded."""

    MANUAL_DOWNLOAD_INSTRUCTIONS = source.PACKAGE.by_hand
    BUILDER_CONFIGS = [
        LinuxCalleesConfig(
            name="functions",
            description="Labels are the functions and macros that are called.",
            num_classes=426_523,
        ),
        LinuxCalleesConfig(
            name="constants",
            description="Labels are also the identifiers in capitals.",
            num_classes=915_325,
        ),
        LinuxCalleesConfig(
            name="fields",
            description="Labels are also the identifiers in capitals and the struct fields.",
            num_classes=1_109_852,
        ),
    ]

    def _info(self):
        label = tfds.features.ClassLabel(num_classes=self.builder_config.num_classes)
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "text": tfds.features.Text(),
                    "features": tfds.features.Tensor(shape=(None,), dtype=np.int32),
                    "labels": tfds.features.Sequence(label),
                }
            ),
            supervised_keys=("features", "labels"),
            homepage="https://www.kernel.org",
        )

    def _corpus(self, folders):
        return corpus(folders, self.builder_config.name)
