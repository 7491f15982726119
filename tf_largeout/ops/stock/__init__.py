"""The ops in stock TensorFlow operations: for machines without our op library, GPUs and XLA.

The functions have the names, the arguments and the results of the generated functions of the op
library. What they do is documented in `custom_ops/ops` and in the modules of `ops`.
"""

# ruff: noqa: F401
from tf_largeout.ops.stock.bags import (
    largeout_bag_sums,
)
from tf_largeout.ops.stock.candidates import (
    largeout_candidate_log_partition,
    largeout_candidate_ranks,
    largeout_fill_accidental_hits,
    largeout_shift_candidate_logits,
)
from tf_largeout.ops.stock.class_scans import (
    largeout_class_softmax_gradient,
    largeout_class_statistics,
    largeout_class_top_k,
    largeout_label_logits,
)
from tf_largeout.ops.stock.dense_adam import (
    largeout_dense_adam,
)
from tf_largeout.ops.stock.factored_output import (
    largeout_factored_output_scores,
    largeout_factored_output_step,
    largeout_factored_output_take_folds,
    largeout_factored_output_vectors,
)
from tf_largeout.ops.stock.inverted_file import (
    largeout_inverted_file_fit,
    largeout_inverted_file_fitted,
    largeout_inverted_file_kept_up,
    largeout_inverted_file_search,
    largeout_inverted_file_upkeep,
)
from tf_largeout.ops.stock.packed_classes import (
    largeout_pack_classes,
    largeout_packed_top_k,
)
from tf_largeout.ops.stock.products import (
    largeout_rounded_product,
)
from tf_largeout.ops.stock.row_dots import (
    largeout_row_dots,
)
from tf_largeout.ops.stock.rows import (
    largeout_check_row_ids,
    largeout_merge_rows,
    largeout_row_adagrad,
    largeout_row_adam,
    largeout_row_momentum,
    largeout_row_rowwise_adagrad,
)
from tf_largeout.ops.stock.sampling import (
    largeout_log_uniform_sample,
    largeout_uniform_sample,
)
from tf_largeout.ops.stock.table_sampling import (
    largeout_alias_sample,
    largeout_alias_table,
    largeout_pivotal_sample,
    largeout_pivotal_table,
)
from tf_largeout.ops.stock.unsupported import (
    largeout_hash_functions,
    largeout_kernel_tree_build,
    largeout_kernel_tree_sample,
    largeout_kernel_tree_update,
    largeout_lsh_build,
    largeout_lsh_fresh_share,
    largeout_lsh_hash,
    largeout_lsh_pool,
    largeout_lsh_query,
    largeout_server_versions,
    largeout_union_of_lists,
)
