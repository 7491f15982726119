"""Tests that do not hold with the stock operations (`library.OPS`), with the reason.

They test the op library itself. What they test of results is tested for the stock operations,
too: by the tests of the same files, or by `tests/ops/stock_*_test.py`. A test that comes to LSH
or to a kernel tree is skipped there: the stock operations have neither.
"""

import contextlib
import re

import pytest

PADDED = "merged gradient rows have static shapes: rows of 0 with the highest id follow"
NAMES = "it finds ops of the op library by their names"
LIBRARY = "the stock operations have no such op: it needs the op library"
SKIPPED = "the id -1 is no row: updates skip it"

# Pairs of a regular expression for the ids of tests, and the reason.
EXCEPTIONS = [
    (r"ops/bag_ops_test.*one_slice_per_distinct_id", PADDED),
    (r"ops/row_dot_ops_test.*one_slice_per_distinct_class", PADDED),
    (r"layers/embedding_bag_test.*gradients_are_sparse_and_equal", PADDED),
    (r"hierarchical_softmax_loss_test.*each_row_of_the_clusters_of_labels_once", PADDED),
    (r"integration/evaluation_test.*the_loss_and_all_metrics_share_one_pass", NAMES),
    (r"factored_output_folds_test.*without_use_of_the_rows_does_not_compute_them", NAMES),
    (r"integration/step_path_test", "the limits are those of the op library"),
    (r"ops/row_ops_test.*merge_rows_(sums_rows_of_equal_ids|takes_large_ids)", PADDED),
    (r"ops/row_ops_test.*id_out_of_range_changes_nothing.*--1\]", SKIPPED),
    (r"optimizers/training_test.*id_out_of_range_changes_nothing.*--1-", SKIPPED),
    (
        r"optimizers/training_test.*id_out_of_range_changes_nothing.*-True\]",
        "an error within a function has the number and the rest of the text in brackets",
    ),
    (
        r"ops/row_ops_test.*a_finished_read_causes_no_copy",
        "TensorFlow's updates of rows copy a variable once, and then reads of all rows copy it",
    ),
    (
        r"ops/bfloat16_scan_test.*results_equal_numpy_on_rounded_numbers",
        "the gradient of the logit of a label is added without rounding to bfloat16",
    ),
    (
        r"ops/bad_arguments_test.*several_handles_in_place_of_one",
        "the error does not number the inputs",
    ),
    (r"ops/huge_pages_test", "the op library requests huge pages"),
    (r"ops/stock_ops_test.*bag_sums", "it needs the gradients of the op library"),
    (
        r"layers/sharded_output_test.*bit_identical_to_one_shard",
        "sums of equal ids have no fixed order: weights agree to 1e-6",
    ),
    (r"serving/loading_test.*without_our_library_the_error_names_the_op", LIBRARY),
    (r"serving/export_test.*only_the_custom_export_contains_our_op", LIBRARY),
    (
        r"packed_classes_test.*packed_classes_of_other_shapes",
        "`class_top_k` does not read them",
    ),
]

_NEEDS_LIBRARY = "needs the op library of tf_largeout"


@contextlib.contextmanager
def skipped_without_library():
    """Skips a test that comes to an op of `stock/unsupported.py`."""
    try:
        yield
    except Exception as error:
        from tf_largeout.ops import library

        if library.OPS != "stock" or _NEEDS_LIBRARY not in str(error):
            raise
        pytest.skip(LIBRARY)


def reason_to_skip(test: str) -> str | None:
    """Returns why a test does not hold with the stock operations, or None."""
    return next((why for name, why in EXCEPTIONS if re.search(name, test)), None)
