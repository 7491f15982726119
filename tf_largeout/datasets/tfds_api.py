"""The public interface of tensorflow_datasets."""

from tf_largeout.datasets.extras import needed_by_datasets

with needed_by_datasets():
    import tensorflow_datasets.public_api as tfds

__all__ = ["tfds"]
