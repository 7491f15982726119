"""`ClassShard`: a shard of the class rows, and the matrix that scores them."""

import dataclasses
from typing import Any

from tf_largeout.variables.row_shard import RowShard


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassShard(RowShard):
    """A range of classes, over which a search structure is built.

    Attributes:
        matrix: The `ClassMatrix` of its class rows. Its class 0 is the class with the id
            `first`.
    """

    matrix: Any
