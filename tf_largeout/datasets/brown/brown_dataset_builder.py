"""The tfds builder of brown."""

from tf_largeout.datasets.brown import source
from tf_largeout.datasets.brown.corpus import NUM_CLASSES, corpus
from tf_largeout.datasets.corpus_builder import VocabularyConfig
from tf_largeout.datasets.folders import Folders
from tf_largeout.datasets.token_builder import TokenCorpusBuilder
from tf_largeout.datasets.token_corpus import TokenCorpus


class Builder(TokenCorpusBuilder):
    """`text` (the document's name) and `tokens`."""

    MANUAL_DOWNLOAD_INSTRUCTIONS = source.ARCHIVE.by_hand
    BUILDER_CONFIGS = [
        VocabularyConfig(
            name="frequent",
            description="The 9,999 most frequent words, and one class for all others.",
            num_classes=NUM_CLASSES,
        ),
        VocabularyConfig(
            name="all",
            description="All words of the training split, and one class for all others.",
            num_classes=47_685,
        ),
    ]
    _HOMEPAGE = "http://www.hit.uib.no/icame/brown/bcm.html"

    def _corpus(self, folders: Folders) -> TokenCorpus:
        return corpus(folders, self.builder_config.num_classes)
