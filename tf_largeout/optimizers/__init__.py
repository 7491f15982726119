"""Keras optimizers that update only the rows of a variable that have a gradient.

They update any variable with a sparse gradient in this way: class embeddings with a sampled
loss, and any `keras.layers.Embedding`. For dense gradients they give the results of the Keras
optimizer of that name. (Keras has no `RowwiseAdagrad`.)
"""

from tf_largeout.optimizers.adagrad import LazyAdagrad, RowwiseAdagrad
from tf_largeout.optimizers.lazy_adam import LazyAdam
from tf_largeout.optimizers.lazy_sgd import LazySGD

__all__ = ["LazyAdagrad", "LazyAdam", "LazySGD", "RowwiseAdagrad"]
