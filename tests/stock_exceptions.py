"""Tests that do not hold with the stock operations (`LARGEOUT_OPS=stock`), with the reason.

They test the op library itself. What they test of results is tested for the stock operations,
too: by the tests of the same files, or by `tests/ops/stock_*_test.py`.
"""

import re

PADDED = "merged gradient rows have static shapes: rows of 0 with the highest id follow"
LIBRARY = "the stock operations have no such op: it needs the op library"
PACKED = "the stock operations do not pack rows to 8 bits"

# Regular expressions for ids of tests.
EXCEPTIONS = {
    r"ops/bag_ops_test.*one_slice_per_distinct_id": PADDED,
    r"ops/row_dot_ops_test.*one_slice_per_distinct_class": PADDED,
    r"ops/row_ops_test.*test_merge_rows_(sums_rows_of_equal_ids|takes_large_ids)": PADDED,
    r"ops/row_ops_test.*test_id_out_of_range_changes_nothing.*--1\]": "-1 is no row: it is skipped",
    r"ops/row_ops_test.*test_a_finished_read_causes_no_copy": "TensorFlow's updates of rows copy "
    "a variable once, and then reads of all rows copy it",
    r"ops/bfloat16_scan_test.*test_results_equal_numpy_on_rounded_numbers": "the gradient of the "
    "logit of a label is added without rounding",
    r"ops/bad_arguments_test.*test_several_handles_in_place_of_one": "the error has no number of "
    "the input",
    r"ops/huge_pages_test": "the op library requests huge pages",
    r"ops/(packed_classes|process_ops)_test": LIBRARY,
    r"ops/bad_arguments_test.*(lsh_|kernel_tree|hash_functions|two_parts_of_the_tables)": LIBRARY,
    r"ops/bad_arguments_test.*(more_lookups_than_entries|more_samples_than_classes)": LIBRARY,
    r"ops/library_test.*test_the_import_error_states_the_required_tensorflow": "it imports the "
    "package without the op library",
}


def reason_to_skip(test: str) -> str | None:
    """Returns why a test does not hold with the stock operations, or None."""
    return next((why for name, why in EXCEPTIONS.items() if re.search(name, test)), None)
