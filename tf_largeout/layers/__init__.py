"""Keras output layers for very many classes."""

from tf_largeout.layers.large_output import LargeOutput

__all__ = ["LargeOutput"]
