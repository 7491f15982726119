"""Datasets with 10^5 to 10^6 classes: the function `load`, and a tfds builder for each."""

from tf_largeout.datasets import place_names as place_names
from tf_largeout.datasets.dataset import Dataset as Dataset
from tf_largeout.datasets.errors import SourceFileError as SourceFileError
from tf_largeout.datasets.loading import load as load
