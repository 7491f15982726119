"""Keras output layers for very many classes, and encoders for bags of ids."""

from typing import TYPE_CHECKING, Any

import keras

from tf_largeout.classes.class_scorer import ClassMatrix, ClassScorer
from tf_largeout.keras_internals import compile_names
from tf_largeout.keras_names import register_for_compile
from tf_largeout.layers.class_output import ClassOutput
from tf_largeout.layers.embedding_bag import EmbeddingBag, HashedBigrams
from tf_largeout.layers.item_tower import ItemTower
from tf_largeout.layers.large_output import LargeOutput
from tf_largeout.lazy_names import papers_name
from tf_largeout.steps.output_tag import OutputTag
from tf_largeout.steps.step import SampledStep, Step

if TYPE_CHECKING:
    from tf_largeout.papers.factored.factored_output import FactoredOutput
    from tf_largeout.papers.hierarchical.hierarchical_output import HierarchicalOutput
    from tf_largeout.papers.hierarchical.huffman_output import HuffmanOutput

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
    "SampledStep",
    "Step",
]

register_for_compile(compile_names(keras.losses.get), compile_names(keras.metrics.get))


def __getattr__(name: str) -> Any:
    return papers_name(__name__, name)
