"""Search structures over the rows of a matrix: which rows have the highest scores for a query.

Each structure is built over a float32 `tf.Variable` `[num_rows, dim]`. A `Sharded...` structure
is built over several such variables, each of which has one shard of the rows. The state of a
structure consists of weights of its owner, such as a layer, so it is saved and restored with
the owner. To create them, `build` takes a function `add_weight(name, shape, dtype, initializer,
on_host=False)`, an `AddWeight`. It returns a Keras variable that is not trained, on the CPU
with `on_host`, otherwise on the device of the rows.
"""

from tf_largeout.search.add_weight import AddWeight
from tf_largeout.search.hash_tables import HashTables
from tf_largeout.search.inverted_file import InvertedFile
from tf_largeout.search.k_means import k_means_clusters
from tf_largeout.search.kernel_tree import KernelTree
from tf_largeout.search.row_distribution import RowDistribution
from tf_largeout.search.scheduled_hash_tables import ScheduledHashTables
from tf_largeout.search.shard_distribution import ShardDistribution
from tf_largeout.search.sharded_hash_tables import ShardedHashTables
from tf_largeout.search.sharded_inverted_file import ShardedInvertedFile
from tf_largeout.search.sharded_kernel_tree import ShardedKernelTree

__all__ = [
    "AddWeight",
    "HashTables",
    "InvertedFile",
    "KernelTree",
    "RowDistribution",
    "ScheduledHashTables",
    "ShardDistribution",
    "ShardedHashTables",
    "ShardedInvertedFile",
    "ShardedKernelTree",
    "k_means_clusters",
]
