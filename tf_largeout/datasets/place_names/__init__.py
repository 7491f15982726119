"""Prediction of a place's GeoNames id from its name in any script."""

from tf_largeout.datasets.place_names.encode import MAX_FEATURES as MAX_FEATURES
from tf_largeout.datasets.place_names.encode import VOCABULARY_SIZE as VOCABULARY_SIZE
from tf_largeout.datasets.place_names.encode import encode as encode
