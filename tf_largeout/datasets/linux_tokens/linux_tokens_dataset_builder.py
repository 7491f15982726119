"""The tfds builder of linux_tokens."""

from tf_largeout.datasets.corpus_builder import VocabularyConfig
from tf_largeout.datasets.folders import Folders
from tf_largeout.datasets.linux_callees import source
from tf_largeout.datasets.linux_tokens.corpus import corpus
from tf_largeout.datasets.token_builder import TokenCorpusBuilder
from tf_largeout.datasets.token_corpus import TokenCorpus


class Builder(TokenCorpusBuilder):
    """Examples are source files: `text` is the path, `tokens` are the token ids."""

    MANUAL_DOWNLOAD_INSTRUCTIONS = source.PACKAGE.by_hand
    BUILDER_CONFIGS = [
        VocabularyConfig(
            name="repeated",
            description="Tokens that occur 3 times or more in training, and one other class.",
            num_classes=1_619_159,
        ),
        VocabularyConfig(
            name="all",
            description="All tokens of the training split, and one class for all others.",
            num_classes=4_476_378,
        ),
    ]
    _HOMEPAGE = "https://www.kernel.org"

    def _corpus(self, folders: Folders) -> TokenCorpus:
        return corpus(folders, self.builder_config.num_classes)
