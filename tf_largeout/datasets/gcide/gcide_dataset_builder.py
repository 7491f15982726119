"""The tfds builder of gcide."""

from tf_largeout.datasets.corpus_builder import VocabularyConfig
from tf_largeout.datasets.folders import Folders
from tf_largeout.datasets.gcide import source
from tf_largeout.datasets.gcide.corpus import corpus
from tf_largeout.datasets.token_builder import TokenCorpusBuilder
from tf_largeout.datasets.token_corpus import TokenCorpus


class Builder(TokenCorpusBuilder):
    """`text` (the headword) and `tokens` of an article."""

    MANUAL_DOWNLOAD_INSTRUCTIONS = source.PACKAGE.by_hand
    BUILDER_CONFIGS = [
        VocabularyConfig(
            name="repeated",
            description="Tokens that occur twice or more in training, and one other class.",
            num_classes=102_059,
        ),
        VocabularyConfig(
            name="all",
            description="All tokens of the training split, and one class for all others.",
            num_classes=206_476,
        ),
    ]
    _HOMEPAGE = "https://www.gnu.org/software/gcide"

    def _corpus(self, folders: Folders) -> TokenCorpus:
        return corpus(folders, self.builder_config.num_classes)
