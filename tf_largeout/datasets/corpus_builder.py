"""Base class of the tensorflow-datasets builders."""

import abc
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tf_largeout.datasets.corpus import Corpus
from tf_largeout.datasets.folders import Folders
from tf_largeout.datasets.tfds_api import tfds
from tf_largeout.datasets.token_corpus import TokenCorpus


@dataclasses.dataclass(eq=False)
class VocabularyConfig(tfds.core.BuilderConfig):
    """A vocabulary of classes.

    Attributes:
        num_classes: Number of classes, including that of all unknown tokens, if there is one.
    """

    num_classes: int = 0


class CorpusBuilder(tfds.core.GeneratorBasedBuilder):
    """Writes the corpus that `tf_largeout.datasets.load` reads as a tfds dataset.

    A subclass defines `_HOMEPAGE`, `_features` and `_corpus`. Source files are in tfds's
    `manual_dir`. They are downloaded into it if a program can do this.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First release."}
    _HOMEPAGE: str
    _SUPERVISED: Any = ("features", "labels")
    _WRONG_CLASSES = "Please report this as a bug of tf_largeout."

    @abc.abstractmethod  # Also keeps tfds from registering the base classes.
    def _corpus(self, folders: Folders) -> Corpus | TokenCorpus:
        """Returns the parsed source files."""

    @abc.abstractmethod
    def _features(self) -> dict[str, Any]:
        """Returns the features of an example, except `text`."""

    def _other_info(self) -> dict[str, Any]:
        """Returns other arguments of `tfds.core.DatasetInfo`."""
        return {}

    def _info(self) -> tfds.core.DatasetInfo:
        features = {"text": tfds.features.Text(), **self._features()}
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(features),
            supervised_keys=self._SUPERVISED,
            homepage=self._HOMEPAGE,
            **self._other_info(),
        )

    def _save_class_texts(self, texts: list[str]) -> None:
        """Adds the text of each class to `info`, which tfds saves with the examples."""
        features = self.info.features
        label = features["label"] if "label" in features else features["labels"].feature
        if len(texts) != label.num_classes:
            raise ValueError(
                f"Expected {label.num_classes:,} classes in {self.info.full_name}. Its source "
                f"files have {len(texts):,}. {self._WRONG_CLASSES}"
            )
        try:
            label.names = texts
        except ValueError:  # tfds sets names only once.
            raise ValueError(
                f"The source files of {self.info.full_name} have changed since it was last "
                "prepared. Its old files are deleted now. Create a new builder, or call "
                "`tfds.load` again."
            ) from None

    def _split_generators(
        self, dl_manager: tfds.download.DownloadManager
    ) -> dict[str, Iterator[tuple[int, dict[str, Any]]]]:
        # Read once for both splits, because it takes minutes.
        corpus = self._corpus(Folders.of_download_manager(dl_manager))
        self._save_class_texts([corpus.class_texts[i] for i in range(corpus.num_classes)])
        return {
            "train": self._generate_examples(corpus, range(corpus.num_train)),
            "test": self._generate_examples(
                corpus, range(corpus.num_train, corpus.num_examples)
            ),
        }

    def _generate_examples(
        self, corpus: Corpus | TokenCorpus, examples: Iterable[int]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        for index in examples:
            yield index, self._example(corpus, index)

    def _example(self, corpus: Any, index: int) -> dict[str, Any]:
        return {
            "text": corpus.example_texts[index],
            "features": corpus.features.row(index),
            "labels": corpus.labels.row(index),
        }


def ids_feature() -> tfds.features.Tensor:
    """Returns the TFDS feature (the type) of a list of ids of any length, without padding."""
    return tfds.features.Tensor(shape=(None,), dtype=np.int32)
