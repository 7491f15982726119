"""Registers the builders of the corpora with tensorflow-datasets."""

import dataclasses
from typing import Any

import tensorflow_datasets.public_api as tfds

from lab.corpora import brown, gcide, linux
from tf_largeout.datasets.builders import CorpusBuilder, ids_feature
from tf_largeout.datasets.corpus import Corpus
from tf_largeout.datasets.sources import Folders

_LINUX = r"""
@misc{linux,
  title = {The {Linux} kernel, version 6.1},
  author = {Torvalds, Linus and others},
  howpublished = {\url{https://www.kernel.org}},
  note = {GPL-2.0; as packaged by Debian, linux-source-6.1 6.1.176-1},
}
"""
_ALL = "All tokens of the training split, and one class for all others."


@dataclasses.dataclass(eq=False)
class VocabularyConfig(tfds.core.BuilderConfig):
    """A vocabulary of classes.

    Attributes:
        num_classes: Number of classes, including that of all unknown tokens, if there is one.
    """

    num_classes: int = 0


class LinuxCallees(CorpusBuilder):
    """`text` (`path: function`), `features` (ids of subtokens) and `labels`, not padded."""

    MANUAL_DOWNLOAD_INSTRUCTIONS = linux.PACKAGE.by_hand
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
    HOMEPAGE = "https://www.kernel.org"
    DESCRIPTION = "The functions that a C function calls, from its signature and path."
    CITATION = _LINUX

    def _features(self) -> dict[str, Any]:
        label = tfds.features.ClassLabel(num_classes=self.builder_config.num_classes)
        return {"features": ids_feature(), "labels": tfds.features.Sequence(label)}

    def _corpus(self, folders: Folders) -> Corpus:
        return linux.callees(folders, self.builder_config.name)


class TokenCorpusBuilder(CorpusBuilder):
    """Base class for texts. An example is a document: `text` (name) and `tokens` (class ids).

    A subclass also defines `BUILDER_CONFIGS`, a list of `VocabularyConfig`.
    `info.metadata["vocabulary"]` is the list of all tokens by class id.
    """

    SUPERVISED = ("tokens", "tokens")

    def _features(self) -> dict[str, Any]:
        return {"tokens": ids_feature()}

    def _save_class_texts(self, texts: list[str]) -> None:
        self.info.metadata["vocabulary"] = texts

    def _example(self, corpus: Any, index: int) -> dict[str, Any]:
        return {"text": corpus.example_texts[index], "tokens": corpus.documents.row(index)}


class LinuxTokens(TokenCorpusBuilder):
    """Examples are source files: `text` is the path."""

    MANUAL_DOWNLOAD_INSTRUCTIONS = linux.PACKAGE.by_hand
    BUILDER_CONFIGS = [
        VocabularyConfig(
            name="repeated",
            description="Tokens that occur 3 times or more in training, and one other class.",
            num_classes=1_619_159,
        ),
        VocabularyConfig(name="all", description=_ALL, num_classes=4_476_378),
    ]
    HOMEPAGE = "https://www.kernel.org"
    DESCRIPTION = "The tokens of the C files of the Linux kernel."
    CITATION = _LINUX

    def _corpus(self, folders: Folders) -> Any:
        return linux.tokens(folders, self.builder_config.num_classes)


class Brown(TokenCorpusBuilder):
    """`text` is the name of the document."""

    MANUAL_DOWNLOAD_INSTRUCTIONS = brown.ARCHIVE.by_hand
    BUILDER_CONFIGS = [
        VocabularyConfig(
            name="frequent",
            description="The 9,999 most frequent words, and one class for all others.",
            num_classes=brown.NUM_CLASSES,
        ),
        VocabularyConfig(name="all", description=_ALL, num_classes=47_685),
    ]
    HOMEPAGE = "http://www.hit.uib.no/icame/brown/bcm.html"
    DESCRIPTION = "American English of 1961, a text as long as the Penn Treebank."
    CITATION = r"""
@manual{brown,
  title = {Manual of information to accompany a standard corpus of present-day edited
           {American} {English}, for use with digital computers},
  author = {Francis, W. N. and Ku\v{c}era, H.},
  organization = {Department of Linguistics, Brown University},
  year = {1964},
  note = {Revised 1971, revised and amplified 1979},
}
"""

    def _corpus(self, folders: Folders) -> Any:
        return brown.corpus(folders, self.builder_config.num_classes)


class Gcide(TokenCorpusBuilder):
    """`text` is the headword of an article."""

    MANUAL_DOWNLOAD_INSTRUCTIONS = gcide.PACKAGE.by_hand
    BUILDER_CONFIGS = [
        VocabularyConfig(
            name="repeated",
            description="Tokens that occur twice or more in training, and one other class.",
            num_classes=102_059,
        ),
        VocabularyConfig(name="all", description=_ALL, num_classes=206_476),
    ]
    HOMEPAGE = "https://www.gnu.org/software/gcide"
    DESCRIPTION = "The articles of a dictionary of English."
    CITATION = r"""
@misc{gcide,
  title = {{GCIDE}, the Collaborative International Dictionary of English, version 0.48},
  editor = {Cassidy, Patrick},
  howpublished = {\url{https://www.gnu.org/software/gcide}},
  note = {GPL-2.0 or later; as packaged by Debian, dict-gcide 0.48.5+nmu2},
}
"""

    def _corpus(self, folders: Folders) -> Any:
        return gcide.corpus(folders, self.builder_config.num_classes)
