"""Ops that only the op library has: they raise an error that names what to use instead."""

from collections.abc import Callable
from typing import Any, NoReturn

import tensorflow as tf

from tf_largeout.ops.stock import errors


def _needs_library(what: str, instead: str) -> Callable[..., NoReturn]:
    """Returns an op that raises an UnimplementedError; Keras ignores a NotImplementedError."""

    def op(*_: Any, **__: Any) -> NoReturn:
        errors.fail(
            f"{what} needs the op library of tf_largeout, but the ops run in stock TensorFlow "
            f"operations here. {instead}, or install tf_largeout with its op library for this "
            "TensorFlow",
            tf.errors.UnimplementedError,
        )

    return op


_hashing = _needs_library(
    "Locality-sensitive hashing (LSHSampler, LSHIndex)",
    "Use InvertedFileSampler or InvertedFileIndex, which search in time independent of "
    "num_classes too",
)
_kernel_tree = _needs_library(
    "KernelTreeSampler",
    "Use InvertedFileSampler, which adapts to the features too, or UniformSampler",
)

largeout_hash_functions = _hashing
largeout_lsh_build = _hashing
largeout_lsh_fresh_share = _hashing
largeout_lsh_hash = _hashing
largeout_lsh_pool = _hashing
largeout_lsh_query = _hashing
largeout_union_of_lists = _hashing
largeout_kernel_tree_build = _kernel_tree
largeout_kernel_tree_sample = _kernel_tree
largeout_kernel_tree_update = _kernel_tree
largeout_server_versions = _needs_library(
    "tf_largeout.distribute with servers",
    "Train on one machine, or with tf.distribute's mirrored strategies",
)
