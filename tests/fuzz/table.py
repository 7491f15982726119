"""The random calls of each op, by name. A new op needs a function in one of these modules."""

import inspect

from tests.fuzz.cases import (
    bag_ops,
    candidate_ops,
    class_scan_ops,
    factored_output_ops,
    hash_ops,
    inverted_file_ops,
    kernel_tree_ops,
    lsh_ops,
    process_ops,
    product_ops,
    row_dot_ops,
    row_ops,
    sampling_ops,
    table_sampling_ops,
)
from tf_largeout import ops
from tf_largeout.ops.library import gen_ops

MODULES = (
    bag_ops,
    candidate_ops,
    class_scan_ops,
    factored_output_ops,
    hash_ops,
    inverted_file_ops,
    kernel_tree_ops,
    lsh_ops,
    process_ops,
    product_ops,
    row_dot_ops,
    row_ops,
    sampling_ops,
    table_sampling_ops,
)


def expected_names():
    """Returns the public functions of tf_largeout.ops, and the ops that have none."""
    public = {name for name, value in vars(ops).items() if inspect.isfunction(value)}
    raw = {name for name in vars(gen_ops) if name.startswith("largeout_")}
    raw = {name for name in raw if not name.endswith("_eager_fallback")}
    return public | {name for name in raw if name.removeprefix("largeout_") not in public}


def cases():
    """Returns the functions that make random `Call`s, by the name of the op."""
    names = expected_names()
    found = {name: value for module in MODULES for name, value in vars(module).items()}
    return {name: case for name, case in sorted(found.items()) if name in names}
