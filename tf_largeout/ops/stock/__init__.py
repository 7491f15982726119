"""The ops in stock TensorFlow operations: for machines without our op library, GPUs and XLA.

The functions have the names, the arguments and the results of the generated functions of the op
library. What they do is documented in `custom_ops/ops` and in the modules of `ops`.
"""

from tf_largeout.ops.stock.bags import largeout_bag_sums as largeout_bag_sums
from tf_largeout.ops.stock.class_scans import (
    largeout_class_softmax_gradient as largeout_class_softmax_gradient,
)
from tf_largeout.ops.stock.class_scans import (
    largeout_class_statistics as largeout_class_statistics,
)
from tf_largeout.ops.stock.class_scans import largeout_class_top_k as largeout_class_top_k
from tf_largeout.ops.stock.class_scans import largeout_label_logits as largeout_label_logits
from tf_largeout.ops.stock.dense_adam import largeout_dense_adam as largeout_dense_adam
from tf_largeout.ops.stock.products import (
    largeout_rounded_product as largeout_rounded_product,
)
from tf_largeout.ops.stock.rows import largeout_check_row_ids as largeout_check_row_ids
from tf_largeout.ops.stock.rows import largeout_merge_rows as largeout_merge_rows
from tf_largeout.ops.stock.rows import largeout_row_adagrad as largeout_row_adagrad
from tf_largeout.ops.stock.rows import largeout_row_adam as largeout_row_adam
from tf_largeout.ops.stock.rows import largeout_row_momentum as largeout_row_momentum
from tf_largeout.ops.stock.rows import (
    largeout_row_rowwise_adagrad as largeout_row_rowwise_adagrad,
)
