"""The tfds builder of linux_callees."""

from tf_largeout.datasets.corpus_builder import CorpusBuilder, VocabularyConfig, ids_feature
from tf_largeout.datasets.linux_callees import source
from tf_largeout.datasets.linux_callees.corpus import corpus
from tf_largeout.datasets.tfds_api import tfds


class Builder(CorpusBuilder):
    """`text` (`path: function`), `features` (ids of subtokens) and `labels`, not padded."""

    MANUAL_DOWNLOAD_INSTRUCTIONS = source.PACKAGE.by_hand
    BUILDER_CONFIGS = [
        VocabularyConfig(
            name="functions",
            description="Labels are the functions and macros that are called.",
            num_classes=426_523,
        ),
        VocabularyConfig(
            name="constants",
            description="Labels are also the identifiers in capitals.",
            num_classes=915_325,
        ),
        VocabularyConfig(
            name="fields",
            description="Labels are also the identifiers in capitals and the struct fields.",
            num_classes=1_109_852,
        ),
    ]
    _HOMEPAGE = "https://www.kernel.org"

    def _features(self):
        label = tfds.features.ClassLabel(num_classes=self.builder_config.num_classes)
        return {"features": ids_feature(), "labels": tfds.features.Sequence(label)}

    def _corpus(self, folders):
        return corpus(folders, self.builder_config.name)
