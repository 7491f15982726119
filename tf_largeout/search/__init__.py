"""Search structures over the rows of a matrix: which rows score highest for a query.

Each is built over any float32 `[num_rows, dim]` array in a `tf.Variable`. Its state is weights
that the owner makes: `build` is passed `add_weight(name, shape, dtype, initializer,
on_host=False)`, an `AddWeight`, which returns a Keras variable that is not trained, on the CPU
with `on_host` and else on the device of the array. So the state is saved and restored with the
owner.
"""

from tf_largeout.search.add_weight import AddWeight
from tf_largeout.search.hash_tables import HashTables
from tf_largeout.search.inverted_file import InvertedFile
from tf_largeout.search.k_means import k_means_clusters
from tf_largeout.search.kernel_tree import KernelTree
from tf_largeout.search.row_distribution import RowDistribution

__all__ = [
    "AddWeight",
    "HashTables",
    "InvertedFile",
    "KernelTree",
    "RowDistribution",
    "k_means_clusters",
]
