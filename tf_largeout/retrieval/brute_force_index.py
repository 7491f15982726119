from typing import Any

import numpy as np

from tf_largeout.arguments import boolean, is_int8
from tf_largeout.retrieval.index import Index, Search
from tf_largeout.retrieval.rows import QuantizedRows, Rows


class BruteForceIndex(Index[Search]):
    """Finds the `k` classes with the highest `<w_c, query> + b_c`, exactly.

    It accepts any array of class rows, such as those of a model. A search reads all rows in
    blocks, and never stores all scores. If scores are equal, the lower id comes first. See
    `Index` for the cost of changes.

    Args:
        packed: Whether to keep an 8-bit copy of the rows, which takes about 30 % more memory. A
            search then computes bounds of the scores, and reads the float32 rows of only those
            classes that can be among the best. The results are bit-identical, and a search
            takes less time. Rows narrower than 32 are never packed, nor are rows without the op
            library.
        embeddings_dtype: "int8" keeps only 8-bit rows: a byte per number, and 20 bytes per
            class, about a third of the memory of float32. The scale of a row is its largest
            magnitude over 127. `build` converts an array in blocks. For the rounded rows,
            searches are exact. `packed` is ignored. None, the default, keeps float32 rows.

    Raises:
        ValueError: If `packed` is not a bool, or `embeddings_dtype` is another dtype.
    """

    def __init__(self, packed: bool = True, embeddings_dtype: str | None = None) -> None:
        super().__init__()
        self._packed = boolean("packed", packed)
        self._kind = QuantizedRows if is_int8(embeddings_dtype) else Rows

    def _fitted(self, rows: Rows) -> Search:
        return Search(rows, self._packed)

    def _settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"packed": self._packed}
        if self._kind is QuantizedRows:
            matrix = self._built().rows.matrix
            settings["quantized"] = {"dim": matrix.dim, "has_bias": matrix.has_bias}
        return settings

    def _restore(self, settings: dict[str, Any], arrays: dict[str, np.ndarray]) -> Search:
        self._packed = settings.get("packed", True)
        quantized = settings.get("quantized")
        if quantized is None:
            return self._fitted(Rows.of_arrays(arrays))
        self._kind = QuantizedRows
        return self._fitted(QuantizedRows.restored(arrays, **quantized))
