"""The ops in stock TensorFlow operations: for machines without our op library, GPUs and XLA.

The functions have the names, the arguments and the results of the generated functions of the op
library. What they do is documented in `custom_ops/ops` and in the modules of `ops`.
"""

from tf_largeout.ops.stock.bags import largeout_bag_sums as largeout_bag_sums
from tf_largeout.ops.stock.candidates import (
    largeout_candidate_log_partition as largeout_candidate_log_partition,
)
from tf_largeout.ops.stock.candidates import (
    largeout_candidate_ranks as largeout_candidate_ranks,
)
from tf_largeout.ops.stock.candidates import (
    largeout_fill_accidental_hits as largeout_fill_accidental_hits,
)
from tf_largeout.ops.stock.candidates import (
    largeout_shift_candidate_logits as largeout_shift_candidate_logits,
)
from tf_largeout.ops.stock.class_scans import (
    largeout_class_softmax_gradient as largeout_class_softmax_gradient,
)
from tf_largeout.ops.stock.class_scans import (
    largeout_class_statistics as largeout_class_statistics,
)
from tf_largeout.ops.stock.class_scans import largeout_class_top_k as largeout_class_top_k
from tf_largeout.ops.stock.class_scans import largeout_label_logits as largeout_label_logits
from tf_largeout.ops.stock.class_scans import largeout_pack_classes as largeout_pack_classes
from tf_largeout.ops.stock.dense_adam import largeout_dense_adam as largeout_dense_adam
from tf_largeout.ops.stock.factored_output import (
    largeout_factored_output_scores as largeout_factored_output_scores,
)
from tf_largeout.ops.stock.factored_output import (
    largeout_factored_output_step as largeout_factored_output_step,
)
from tf_largeout.ops.stock.factored_output import (
    largeout_factored_output_take_folds as largeout_factored_output_take_folds,
)
from tf_largeout.ops.stock.factored_output import (
    largeout_factored_output_vectors as largeout_factored_output_vectors,
)
from tf_largeout.ops.stock.inverted_file import (
    largeout_inverted_file_fit as largeout_inverted_file_fit,
)
from tf_largeout.ops.stock.inverted_file import (
    largeout_inverted_file_fitted as largeout_inverted_file_fitted,
)
from tf_largeout.ops.stock.inverted_file import (
    largeout_inverted_file_kept_up as largeout_inverted_file_kept_up,
)
from tf_largeout.ops.stock.inverted_file import (
    largeout_inverted_file_search as largeout_inverted_file_search,
)
from tf_largeout.ops.stock.inverted_file import (
    largeout_inverted_file_upkeep as largeout_inverted_file_upkeep,
)
from tf_largeout.ops.stock.packed_classes import (
    largeout_pack_classes as largeout_pack_classes,
)
from tf_largeout.ops.stock.packed_classes import (
    largeout_packed_top_k as largeout_packed_top_k,
)
from tf_largeout.ops.stock.products import (
    largeout_rounded_product as largeout_rounded_product,
)
from tf_largeout.ops.stock.row_dots import largeout_row_dots as largeout_row_dots
from tf_largeout.ops.stock.rows import largeout_check_row_ids as largeout_check_row_ids
from tf_largeout.ops.stock.rows import largeout_merge_rows as largeout_merge_rows
from tf_largeout.ops.stock.rows import largeout_row_adagrad as largeout_row_adagrad
from tf_largeout.ops.stock.rows import largeout_row_adam as largeout_row_adam
from tf_largeout.ops.stock.rows import largeout_row_momentum as largeout_row_momentum
from tf_largeout.ops.stock.rows import (
    largeout_row_rowwise_adagrad as largeout_row_rowwise_adagrad,
)
from tf_largeout.ops.stock.sampling import (
    largeout_log_uniform_sample as largeout_log_uniform_sample,
)
from tf_largeout.ops.stock.sampling import largeout_uniform_sample as largeout_uniform_sample
from tf_largeout.ops.stock.table_sampling import largeout_alias_sample as largeout_alias_sample
from tf_largeout.ops.stock.table_sampling import largeout_alias_table as largeout_alias_table
from tf_largeout.ops.stock.table_sampling import (
    largeout_pivotal_sample as largeout_pivotal_sample,
)
from tf_largeout.ops.stock.table_sampling import (
    largeout_pivotal_table as largeout_pivotal_table,
)
from tf_largeout.ops.stock.unsupported import (
    largeout_hash_functions as largeout_hash_functions,
)
from tf_largeout.ops.stock.unsupported import (
    largeout_kernel_tree_build as largeout_kernel_tree_build,
)
from tf_largeout.ops.stock.unsupported import (
    largeout_kernel_tree_sample as largeout_kernel_tree_sample,
)
from tf_largeout.ops.stock.unsupported import (
    largeout_kernel_tree_update as largeout_kernel_tree_update,
)
from tf_largeout.ops.stock.unsupported import (
    largeout_lsh_build as largeout_lsh_build,
)
from tf_largeout.ops.stock.unsupported import (
    largeout_lsh_fresh_share as largeout_lsh_fresh_share,
)
from tf_largeout.ops.stock.unsupported import (
    largeout_lsh_hash as largeout_lsh_hash,
)
from tf_largeout.ops.stock.unsupported import (
    largeout_lsh_pool as largeout_lsh_pool,
)
from tf_largeout.ops.stock.unsupported import (
    largeout_lsh_query as largeout_lsh_query,
)
from tf_largeout.ops.stock.unsupported import (
    largeout_server_versions as largeout_server_versions,
)
from tf_largeout.ops.stock.unsupported import (
    largeout_union_of_lists as largeout_union_of_lists,
)
