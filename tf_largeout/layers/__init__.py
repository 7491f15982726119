"""Keras output layers for very many classes, and encoders for bags of ids."""

from tf_largeout.classes.class_matrix import ClassMatrix
from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.layers.class_output import ClassOutput
from tf_largeout.layers.embedding_bag import EmbeddingBag
from tf_largeout.layers.factored_output import FactoredOutput
from tf_largeout.layers.hashed_bigrams import HashedBigrams
from tf_largeout.layers.hierarchical_output import HierarchicalOutput
from tf_largeout.layers.huffman_output import HuffmanOutput
from tf_largeout.layers.item_tower import ItemTower
from tf_largeout.layers.large_output import LargeOutput
from tf_largeout.tags.output_tag import OutputTag

__all__ = [
    "ClassMatrix",
    "ClassOutput",
    "ClassScorer",
    "EmbeddingBag",
    "FactoredOutput",
    "HashedBigrams",
    "HierarchicalOutput",
    "HuffmanOutput",
    "ItemTower",
    "LargeOutput",
    "OutputTag",
]
