"""Keras output layers for very many classes, and an encoder for bags of ids."""

from tf_largeout.layers.class_output import ClassOutput
from tf_largeout.layers.embedding_bag import EmbeddingBag
from tf_largeout.layers.large_output import LargeOutput

__all__ = ["ClassOutput", "EmbeddingBag", "LargeOutput"]
