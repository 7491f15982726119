"""Optimizers that update only the rows of a variable that have a gradient."""

from tf_largeout.optimizers.lazy_adam import LazyAdam

__all__ = ["LazyAdam"]
