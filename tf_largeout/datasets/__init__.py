"""Datasets with 10^5 to 10^6 classes: `load`, and a tfds builder for each; `interactions`."""

from tf_largeout.datasets import place_names as place_names
from tf_largeout.datasets.dataset import Dataset as Dataset
from tf_largeout.datasets.dataset import load as load
from tf_largeout.datasets.next_item.files import Ratings as Ratings
from tf_largeout.datasets.next_item.files import interactions as interactions
from tf_largeout.datasets.next_item.files import ml_100k as ml_100k
from tf_largeout.datasets.next_item.files import ml_100k_ratings as ml_100k_ratings
from tf_largeout.datasets.next_item.interactions import Interactions as Interactions
from tf_largeout.datasets.sources import SourceFileError as SourceFileError
