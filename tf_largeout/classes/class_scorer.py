"""`ClassScorer`: scores all classes, for losses, metrics, samplers and retrieval."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_largeout import checks
from tf_largeout.classes import blockwise
from tf_largeout.classes.best_scores import without_overflow
from tf_largeout.classes.blockwise import BlockFunction
from tf_largeout.classes.class_shard import ClassShard
from tf_largeout.classes.class_statistics import ClassStatistics
from tf_largeout.types import Elementwise


class ClassScorer:
    """The base class of objects that score the classes of an output layer.

    Losses, metrics, samplers and indexes access the classes only through it. A subclass
    defines `rows`, `values`, `logits`, `dots` and `fold_logits`. The other methods are built
    on `fold_logits`; a subclass overrides those that it can compute faster.

    Args:
        num_classes: Number of classes.
        dim: Width of the features.
        has_bias: Whether the classes have biases.
        owner: Name of the layer, for messages.

    Attributes:
        num_classes, dim, has_bias: As above.
    """

    def __init__(self, num_classes: int, dim: int, has_bias: bool, owner: str) -> None:
        self.num_classes, self.dim, self.has_bias = num_classes, dim, has_bias
        self._owner = owner

    # Whether inner products with the class rows, plus biases, rank the classes.
    scores_are_products = True
    # The soft cap of the logits, or None.
    soft_cap: float | None = None
    # Whether the rows are in bfloat16 (`bfloat16_rows`).
    is_rounded = False
    # Whether the rows of the variables are scaled to length 1 when they are read.
    has_unit_rows = False

    @property
    def uncapped(self) -> Any:
        """The classes with logits without a soft cap."""
        return self

    def capped(self, logits: tf.Tensor) -> tf.Tensor:
        """Applies the soft cap, if there is one; the lowest float and -inf stay as they are."""
        if self.soft_cap is None:
            return logits
        capped = self.soft_cap * tf.tanh(logits / self.soft_cap)
        return tf.where(logits > logits.dtype.min, capped, logits)

    def shards(self) -> list[ClassShard]:
        """Returns the ranges of classes that have search structures of their own, in order."""
        return [ClassShard(matrix=self, first=0, num_rows=self.num_classes)]

    def as_products(self) -> tuple[tf.Variable, tf.Variable | None] | None:
        """Returns variables whose inner products with the features score the classes.

        Exports use them: `embeddings` float32 `[num_classes, dim]`, and `bias`
        `[num_classes]` or None. They are variables of the layer if it has such variables.
        The result is None if inner products cannot score the classes.
        """
        return None

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the embeddings, float32 `[..., dim]`, of `ids`, int64 `[...]`."""
        raise self._missing("rows")

    def values(self) -> tf.Tensor:
        """Returns all embeddings, `[num_classes, dim]`, without the biases."""
        raise self._missing("values")

    def logits(self, features: tf.Tensor) -> tf.Tensor:
        """Returns the logits of all classes, `[..., num_classes]`, in the dtype of `features`.

        It uses only stateless TensorFlow operations. TensorFlow prunes them if nothing uses the
        logits.
        """
        raise self._missing("logits")

    def dots(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Returns the logits of each example's own classes, see `ops.row_dots`.

        Args:
            features: Float `[B, dim]`.
            ids: int64 `[B, n]`, padded with -1.

        Returns:
            float32 `[B, n]`; the lowest float, without a gradient, at padding.
        """
        raise self._missing("dots")

    def fold_logits(
        self,
        features: tf.Tensor,
        function: BlockFunction,
        state: Any,
        *,
        width: int | tf.Tensor = 1,
        classes: tf.Tensor | None = None,
    ) -> Any:
        """Passes over the logits of all classes in blocks, for results that no op computes.

        It gathers class rows and never copies the matrix. It stores `B * block * width` numbers
        at a time, about 16 MiB. With equal shapes of the features and equal `width`, the blocks
        are the same.

        Args:
            features: Float `[B, dim]`.
            function: `(state, logits, ids) -> state`, called for each block in turn: float32
                `[B, n]`, and int64 `[n]`, the classes, rising by 1 if `classes` is None.
            state: The state for the first block: tensors in any structure. They keep their
                shapes.
            width: How many numbers `function` computes from each logit.
            classes: int64 `[m]`, ids of the classes to pass over, rising; None for all.

        Returns:
            The state after the last block.
        """
        raise self._missing("fold_logits")

    def statistics(
        self,
        features: tf.Tensor,
        labels: tf.Tensor,
        compute_dtype: str = "float32",
        training: bool = False,
    ) -> ClassStatistics:
        """Returns the exact `ClassStatistics` of a batch.

        Args:
            features: Float `[B, dim]`.
            labels: int64 `[B, L]`, padded with -1.
            compute_dtype: "float32" or "bfloat16", see `ops.class_statistics`.
            training: Whether the step trains: gradients are needed, and ranks rarely. Only
                shards use this.

        Raises:
            ValueError: If the classes do not support this `compute_dtype`.
        """
        self._require_float32(compute_dtype)
        fold = functools.partial(self.fold_logits, features, width=tf.shape(labels)[1])
        found = blockwise.statistics(fold, labels)
        ranks = functools.partial(blockwise.ranks, fold, labels, found[1], self.num_classes)
        return ClassStatistics(*found, ranks)

    def ranked_scores(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Returns the scores that `statistics` uses to rank classes, bit-identical to those.

        Args:
            features: Float `[B, dim]`.
            ids: int64 `[B, n]`, padded with -1; as many columns as the labels of `statistics`.

        Returns:
            float32 `[B, n]`; any value at padding.
        """

        def add(found: tf.Tensor, scores: tf.Tensor, block: tf.Tensor) -> tf.Tensor:
            return blockwise.at_labels(scores, block, ids, found)

        shape = tf.shape(ids)
        return self.fold_logits(features, add, tf.zeros(shape), width=shape[1])

    def exact_scores(
        self,
        features: tf.Tensor,
        labels: tf.Tensor,
        function: Elementwise = tf.identity,
        others_only: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns `log sum_c exp(f(o_c))` and `f(o_y)`, with gradients, in O(num_classes).

        Gradients of the class embeddings and biases are dense.

        Args:
            features: float32 `[B, dim]`.
            labels: int64 `[B, L]`, padded with -1.
            function: Differentiable elementwise function f.
            others_only: Whether the sum leaves out the labels of the example.

        Returns:
            float32 `[B]`, the lowest float if no class is left, and float32 `[B, L]`, 0 at
            padding.
        """
        raise self._missing("exact_scores")

    def sum_over_classes(
        self, features: tf.Tensor, function: Elementwise, training: bool = False
    ) -> tf.Tensor:
        """Returns the sum of `function(logit)` over all classes, float32 `[B]`.

        Args:
            features: Float `[B, dim]`.
            function: Elementwise and differentiable.
            training: Whether gradients are needed.

        Raises:
            ValueError: In training, if the classes support only sums without gradients.
        """
        if training:
            raise ValueError(
                f"Layer '{self._owner}' cannot be trained with a sum over the logits of all "
                "classes, which label smoothing and soft targets need. Use a `LargeOutput`, or "
                "leave them out of the loss."
            )

        def add(total: tf.Tensor, logits: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
            return total + tf.reduce_sum(function(logits), axis=1)

        return self.fold_logits(features, add, tf.zeros(tf.shape(features)[:1]))

    def log_partitions(
        self, features: tf.Tensor, log_weight: Elementwise | None = None
    ) -> tf.Tensor:
        """Returns the log of the sum over all classes of `exp(f(logit))`, exactly.

        The result is float32 `[B]`. It takes one pass over the classes.

        Args:
            features: float32 `[B, dim]`.
            log_weight: The elementwise function f; None for the identity.
        """
        batch = tf.shape(features)[0]
        if log_weight is None:
            return self.statistics(features, tf.zeros([batch, 0], tf.int64)).log_partition
        fold = functools.partial(self.fold_logits, features)
        return blockwise.log_partitions(fold, batch, log_weight)

    def mean_logits(self, features: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns the mean of the logits of all classes, float32 `[B]`.

        The arguments and errors are those of `sum_over_classes`.
        """
        return self.sum_over_classes(features, tf.identity, training) / self.num_classes

    def top_k(self, features: tf.Tensor, k: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the `k` classes with the highest logits, exactly, see `ops.class_top_k`.

        Args:
            features: float32 `[B, dim]`, finite.
            k: Between 1 and `num_classes`.

        Returns:
            `(scores, ids)`: float32 and int64 `[B, k]`, best first; lower ids win ties.
        """
        return self.top_k_of(features, None, k)

    def top_k_of(
        self, features: tf.Tensor, classes: tf.Tensor | None, k: int | tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the best `k` of some classes. Only the rows of those classes are read.

        Args:
            features: float32 `[B, dim]`, finite.
            classes: int64 `[m]`, ids of classes, rising; None for all.
            k: Between 0 and m.

        Returns:
            As `top_k`.

        Raises:
            tf.errors.InvalidArgumentError: If the features are not finite, or scores overflow.
        """
        features = checks.finite(features, "The features must be finite")
        fold = functools.partial(self.fold_logits, features, classes=classes)
        scores, ids = blockwise.top_k(fold, tf.shape(features)[0], k)
        return without_overflow(features, scores), ids

    def ranked_by(self, ranking: str) -> "ClassScorer":
        """Returns the classes, scored by the values that rank them.

        Args:
            ranking: "logit"; "absolute" for `|logit|`; or "taylor" for `|1 + logit|`.

        Raises:
            ValueError: If the scores are log-probabilities and `ranking` is not "logit".
        """
        if ranking == "logit":
            return self
        if not self.scores_are_products:
            raise ValueError(
                f"Layer '{self._owner}' returns log-probabilities, which are at most 0. "
                "Ranked by absolute value, the least likely class would come first. Received: "
                "absolute=True. Leave `absolute` out for a `HierarchicalOutput`."
            )
        return (self.raised_by_one() if ranking == "taylor" else self).absolute()

    def raised_by_one(self) -> "ClassScorer":
        """Returns a view of these classes whose logits are `1 + logit`."""
        raise self._missing("raised_by_one")

    def absolute(self) -> "ClassScorer":
        """Returns a view of these classes whose logits are the absolute values `|logit|`."""
        return AbsoluteScores(self)

    def each_replica(self, function: Callable[[], Any]) -> None:
        """Runs `function()` on each replica that has the rows, outside a training step."""
        function()

    def _require_float32(self, compute_dtype: str) -> None:
        if compute_dtype != "float32":
            raise ValueError(
                f"Layer '{self._owner}' supports only compute_dtype='float32'. Received: a "
                f"loss with compute_dtype={compute_dtype!r}. Leave it out of the loss."
            )

    def _missing(self, method: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} must define `{method}`.")


class MappedScores(ClassScorer):
    """The base class of views of classes whose scores are a function of other logits.

    A subclass defines `mapped`, and overrides what can be computed faster.

    Args:
        original: The `ClassScorer` of the logits.

    Attributes:
        original: As above.
    """

    def __init__(self, original: Any) -> None:
        super().__init__(original.num_classes, original.dim, original.has_bias, original._owner)
        self.original = original

    def mapped(self, logits: tf.Tensor) -> tf.Tensor:
        """Returns the scores of logits."""
        raise self._missing("mapped")

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        return self.original.rows(ids)

    def values(self) -> tf.Tensor:
        return self.original.values()

    def logits(self, features: tf.Tensor) -> tf.Tensor:
        return self.mapped(self.original.logits(features))

    def dots(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        return self.mapped(self.original.dots(features, ids))

    def fold_logits(
        self, features: tf.Tensor, function: BlockFunction, state: Any, **options: Any
    ) -> Any:
        def of_mapped(state: Any, logits: tf.Tensor, ids: tf.Tensor) -> Any:
            return function(state, self.mapped(logits), ids)

        return self.original.fold_logits(features, of_mapped, state, **options)

    def sum_over_classes(
        self, features: tf.Tensor, function: Elementwise, training: bool = False
    ) -> tf.Tensor:
        return self.original.sum_over_classes(
            features, lambda logits: function(self.mapped(logits)), training
        )


class AbsoluteScores(MappedScores):
    """A view of classes that scores them by `|logit|`."""

    def mapped(self, logits: tf.Tensor) -> tf.Tensor:
        return tf.abs(logits)

    def dots(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        return absolute_or_lowest(self.original.dots(features, ids))


def new_products(
    embeddings: tf.Tensor, bias: tf.Tensor | None
) -> tuple[tf.Variable, tf.Variable | None]:
    """Returns the result of `ClassScorer.as_products` as new float32 variables."""

    def variable(values: tf.Tensor, name: str) -> tf.Variable:
        return tf.Variable(tf.cast(values, tf.float32), trainable=False, name=name)

    return variable(embeddings, "embeddings"), None if bias is None else variable(bias, "bias")


def absolute_or_lowest(logits: tf.Tensor) -> tf.Tensor:
    """Returns `|logits|`, but leaves the lowest float, which marks padding, as it is."""
    return tf.where(logits > logits.dtype.min, tf.abs(logits), logits.dtype.min)
