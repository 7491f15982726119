"""One Python function for each C++ op. Only this package uses the op library.

The texts of the ops, in `custom_ops/ops/X_ops.cc`, give formulas, shapes and errors. The
docstrings here give what the Python functions add. A variable may be passed itself or as its
handle.
"""

# Imported first: if TensorFlow is missing, its error says which version to install.
import tf_largeout.ops.library  # noqa: F401
from tf_largeout.ops.bag_ops import bag_sums as bag_sums
from tf_largeout.ops.candidate_ops import candidate_log_partition as candidate_log_partition
from tf_largeout.ops.candidate_ops import candidate_ranks as candidate_ranks
from tf_largeout.ops.candidate_ops import mask_accidental_hits as mask_accidental_hits
from tf_largeout.ops.candidate_ops import shifted_candidate_logits as shifted_candidate_logits
from tf_largeout.ops.class_scan_ops import class_statistics as class_statistics
from tf_largeout.ops.class_scan_ops import class_top_k as class_top_k
from tf_largeout.ops.class_scan_ops import label_logits as label_logits
from tf_largeout.ops.class_scan_ops import pack_classes as pack_classes
from tf_largeout.ops.class_scan_ops import packed_top_k as packed_top_k
from tf_largeout.ops.dense_adam_ops import dense_adam as dense_adam
from tf_largeout.ops.inverted_file_ops import inverted_file_fit as inverted_file_fit
from tf_largeout.ops.inverted_file_ops import inverted_file_search as inverted_file_search
from tf_largeout.ops.inverted_file_ops import inverted_file_upkeep as inverted_file_upkeep
from tf_largeout.ops.process_ops import server_versions as server_versions
from tf_largeout.ops.product_ops import rounded_product as rounded_product
from tf_largeout.ops.row_dot_ops import row_dots as row_dots
from tf_largeout.ops.row_dot_ops import row_dots_and_rows as row_dots_and_rows
from tf_largeout.ops.row_ops import check_row_ids as check_row_ids
from tf_largeout.ops.row_ops import merge_rows as merge_rows
from tf_largeout.ops.row_ops import row_adagrad as row_adagrad
from tf_largeout.ops.row_ops import row_adam as row_adam
from tf_largeout.ops.row_ops import row_momentum as row_momentum
from tf_largeout.ops.row_ops import row_rowwise_adagrad as row_rowwise_adagrad
from tf_largeout.ops.sampling_ops import log_uniform_sample as log_uniform_sample
from tf_largeout.ops.sampling_ops import uniform_sample as uniform_sample
from tf_largeout.ops.table_sampling_ops import alias_sample as alias_sample
from tf_largeout.ops.table_sampling_ops import alias_table as alias_table
from tf_largeout.ops.table_sampling_ops import pivotal_sample as pivotal_sample
from tf_largeout.ops.table_sampling_ops import pivotal_table as pivotal_table
