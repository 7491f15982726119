"""Keras optimizers that update only the rows of a variable that have a gradient.

They serve every variable whose gradient is sparse: the class embeddings of a sampled
loss, and any `keras.layers.Embedding`. Dense gradients give what Keras's optimizer of that
name gives (`RowwiseAdagrad`, which Keras lacks, its own rule).
"""

from tf_largeout.optimizers.lazy_adagrad import LazyAdagrad
from tf_largeout.optimizers.lazy_adam import LazyAdam
from tf_largeout.optimizers.lazy_sgd import LazySGD
from tf_largeout.optimizers.loss_scale import keep_finite_check_sparse
from tf_largeout.optimizers.rowwise_adagrad import RowwiseAdagrad

__all__ = ["LazyAdagrad", "LazyAdam", "LazySGD", "RowwiseAdagrad"]

keep_finite_check_sparse()
