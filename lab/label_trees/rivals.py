"""The package's rivals, and label trees that also get bigrams."""

import dataclasses

import numpy as np

from benchmarks.rivals import FLAT, Rival
from benchmarks.rivals import RIVALS as PACKAGE_RIVALS
from benchmarks.rivals.models import OmikujiModel
from tf_largeout.datasets.ragged import Ragged
from tf_largeout.layers import HashedBigrams

_AT_ONCE = 4096


class BigramOmikujiModel(OmikujiModel):
    """Omikuji with weights of feature ids and of bigrams of ids.

    The bigrams are hashed to `pairs_per_id` ids per feature id, a setting, as `HashedBigrams`
    does for our models.
    """

    def __init__(self, settings, folder):
        settings = dict(settings)
        self._pairs_per_id = settings.pop("pairs_per_id")
        super().__init__(settings, folder)

    def prepare(self, examples):
        ids, num_pairs = examples.num_features, self._pairs_per_id * examples.num_features
        self._pairs = HashedBigrams(ids, num_pairs)
        features = self._with_pairs(examples.features)
        super().prepare(
            dataclasses.replace(examples, features=features, num_features=ids + num_pairs)
        )

    def weighed(self, features):
        return super().weighed(self._pairs(features).numpy())

    def _with_pairs(self, features):
        width, parts = features.lengths.max(), []
        for first in range(0, len(features), _AT_ONCE):
            some = features.take(np.arange(first, min(first + _AT_ONCE, len(features))))
            ids = self._pairs(some.padded(width, 0)).numpy()
            parts.append(Ragged.from_padded(ids, 0))
        return Ragged.joined(parts)


RIVALS = {
    **PACKAGE_RIVALS,
    "omikuji_bigrams": Rival(
        "Omikuji, 3 flat trees, bigrams",
        BigramOmikujiModel,
        settings={"pairs_per_id": 6, **FLAT},
    ),
    "omikuji_1_tree_bigrams": Rival(
        "Omikuji, 1 tree, bigrams",
        BigramOmikujiModel,
        settings={"n_trees": 1, "pairs_per_id": 6},
    ),
}
