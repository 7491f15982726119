"""The gradient step of a `FactoredOutput`, which updates its weights in the backward pass."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.classes.trained_calls import TrainedCall, TrainedCalls
from tf_largeout.papers.factored.factored_output_ops import (
    FactoredScores,
    FactoredState,
    blocks_of,
    current_blocks,
    factored_output_scores,
    factored_output_step,
    factored_output_take_folds,
)
from tf_largeout.types import Shape


class Spheres(NamedTuple):
    """The values that losses of the spherical family need, for the logits `o` of `B` examples.

    Attributes:
        squares: float64 `[B]`, the sum over all classes of `o_c^2`.
        sums: float64 `[B]`, the sum over all classes of `o_c`.
        true_logits: float64 `[B, L]`, the logits of the labels; 0 at padding.
    """

    squares: tf.Tensor
    sums: tf.Tensor
    true_logits: tf.Tensor

    def as_columns(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns `squares` and `sums` as `[B, 1]`, and `true_logits`."""
        return self.squares[:, tf.newaxis], self.sums[:, tf.newaxis], self.true_logits


def gram_of(vectors: keras.Variable) -> Callable[..., tf.Tensor]:
    """Returns an initializer of `V'V`, `[D, D]`, which computes in float64."""
    return _sum_over_blocks(vectors, lambda rows: tf.matmul(rows, rows, transpose_a=True))


def total_of(vectors: keras.Variable) -> Callable[..., tf.Tensor]:
    """Returns an initializer of `V'1`, `[D]`, which computes in float64."""
    return _sum_over_blocks(vectors, lambda rows: tf.reduce_sum(rows, axis=0))


def _sum_over_blocks(
    vectors: keras.Variable, function: Callable[[tf.Tensor], tf.Tensor]
) -> Callable[..., tf.Tensor]:
    """Returns an initializer of the sum of `function(rows)` over blocks of rows."""

    def initializer(shape: Shape, dtype: str | None = None) -> tf.Tensor:
        total = tf.zeros(shape, tf.float64)
        for classes in blocks_of(vectors.shape[0]):
            total += function(tf.cast(vectors.value[classes], tf.float64))
        return tf.cast(total, dtype)

    return initializer


class FactoredUpdate:
    """The exact gradient descent step of a `FactoredOutput`, in O(D^2) per example.

    Args:
        weights: The Keras variables of a `FactoredState`.
        anchor: A trainable scalar of value 0 and gradient 0. Because of it, the backward pass
            runs through the layer even if no layer before it is trained.
        learning_rate: Function without arguments that returns the rate of a step, float64.
        owner: Name of the layer, for errors.
    """

    def __init__(
        self,
        weights: FactoredState,
        anchor: keras.Variable,
        learning_rate: Callable[[], tf.Tensor],
        owner: str,
    ) -> None:
        self._weights, self.anchor, self._learning_rate = weights, anchor, learning_rate
        self._calls = TrainedCalls(owner)

    @property
    def dtype(self) -> str:
        """The dtype of the class vectors, and of the features that the ops take."""
        return self._weights.vectors.dtype

    def state(self) -> FactoredState:
        """Returns the weights as `tf.Variable`s."""
        return FactoredState(*(weight.value for weight in self._weights))

    def spheres(self, features: tf.Tensor, labels: tf.Tensor) -> Spheres:
        """Returns the `Spheres` of a batch, without a gradient.

        Args:
            features: Float `[B, dim]`.
            labels: int64 `[B, L]`, padded with -1.
        """
        found = factored_output_scores(tf.stop_gradient(features), labels, self.state())
        return Spheres(found.q, found.s, found.a)

    def learning_batch(
        self, features: tf.Tensor, loss_scale: tf.Tensor, update: bool
    ) -> "LearningBatch":
        """Returns a batch whose backward pass updates the weights.

        Args:
            features: As in `spheres`.
            loss_scale: float64 scalar, the factor of the loss in loss scaling. The weights take
                the step of the loss without this factor.
            update: Whether to update the weights; otherwise only the features get a gradient.
        """
        call = TrainedCall(self._calls)

        def step(
            labels: tf.Tensor, slopes: Spheres, found: FactoredScores, losses: list[Any]
        ) -> tf.Tensor:
            if update:
                call.make_step(losses)
            by_features = factored_output_step(
                features,
                labels,
                slopes.squares / loss_scale,
                slopes.sums / loss_scale,
                slopes.true_logits / loss_scale,
                found,
                self._learning_rate(),
                self.state(),
                update=update,
            )
            return tf.cast(loss_scale * by_features, features.dtype)

        return LearningBatch(features, self.anchor, self.state(), step, call)

    def drift(self, num_probes: int) -> dict[str, tf.Tensor]:
        """See `FactoredOutput.drift`."""
        state = self.state()
        width = state.gram.shape[0]
        probes = tf.random.stateless_normal([width, num_probes], [0, 0], dtype=tf.float64)
        probes /= tf.norm(probes, axis=0)
        hidden, shift = (
            tf.matmul(state.mixing, probes),
            tf.linalg.matvec(probes, state.offset, transpose_a=True),
        )
        squares = sums = tf.zeros([num_probes], tf.float64)
        for rows in current_blocks(state):
            logits = tf.matmul(tf.cast(rows, tf.float64), hidden) + shift
            squares += tf.reduce_sum(logits**2, axis=0)
            sums += tf.reduce_sum(logits, axis=0)
        kept = tf.reduce_sum(probes * tf.matmul(state.gram, probes), axis=0)
        most = tf.sqrt(tf.cast(state.vectors.shape[0], tf.float64) * squares)
        product = tf.matmul(state.mixing, state.inverse)
        return {
            "gram": _largest(tf.math.divide_no_nan(kept - squares, squares)),
            "total": _largest(
                tf.math.divide_no_nan(
                    tf.linalg.matvec(probes, state.total, transpose_a=True) - sums, most
                )
            ),
            "inverse": _largest(product - tf.eye(width, dtype=tf.float64)),
        }


class LearningBatch:
    """A batch for which the weights take one step, for the sum of all losses on it.

    Args:
        features: Float `[B, dim]`.
        anchor: As in `FactoredUpdate`.
        state: The weights.
        step: Takes the step and returns the derivative with respect to the features. Its
            arguments are labels `[B, L]`, the derivatives with respect to their `Spheres`,
            their `FactoredScores`, and the result of `call.new_loss` for each loss.
        call: The call of the layer.
    """

    def __init__(
        self,
        features: tf.Tensor,
        anchor: keras.Variable,
        state: FactoredState,
        step: Callable[[tf.Tensor, Spheres, FactoredScores, list[Any]], tf.Tensor],
        call: TrainedCall,
    ) -> None:
        self._state, self._step, self._call = state, step, call
        self._learnt: list[tuple[tf.Tensor, tuple[tf.Tensor, ...], FactoredScores, Any]] = []
        self._features = self._stepping(features, tf.convert_to_tensor(anchor))

    def spheres(self, labels: tf.Tensor) -> Spheres:
        """Returns the `Spheres` of labels `[B, L]`, padded with -1, for one of the losses."""

        @tf.custom_gradient
        def of(features: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], Callable[..., tf.Tensor]]:
            found = factored_output_scores(features, labels, self._state)
            loss = self._call.new_loss()

            def gradient(*slopes: tf.Tensor) -> tf.Tensor:
                self._learnt.append((labels, slopes, found, loss))
                return tf.zeros_like(features)

            return (found.q, found.s, found.a), gradient

        return Spheres(*of(self._features))

    def _stepping(self, features: tf.Tensor, anchor: tf.Tensor) -> tf.Tensor:
        """Returns the features, with a backward pass that runs after those of all `spheres`."""

        @tf.custom_gradient
        def of(features: tf.Tensor, anchor: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
            def gradient(_: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                labels, slopes, found, losses = zip(*self._learnt, strict=True)
                self._learnt.clear()
                by_squares, by_sums, by_logits = zip(*slopes, strict=True)
                sums = Spheres(
                    tf.add_n(by_squares), tf.add_n(by_sums), tf.concat(by_logits, axis=1)
                )
                by_features = self._step(tf.concat(labels, axis=1), sums, found[0], [*losses])
                return by_features, tf.zeros_like(anchor)

            return tf.identity(features), gradient

        return of(features, anchor)


def _largest(numbers: tf.Tensor) -> tf.Tensor:
    return tf.reduce_max(tf.abs(numbers))


def move_classes(
    before: FactoredState, after: FactoredState, change: ClassChange, new_rows: tf.Tensor | None
) -> None:
    """Moves the rows of `W = V U + 1 omega'`, and computes `Q = W'W` and `w_bar = W'1`.

    U and omega do not change. So only the rows of V move for kept classes, and their rows of W
    are bit-identical. For a new row w of W, the row of V is `(w - omega) U^-1`.

    Args:
        before: The Keras variables of the layer with the old classes.
        after: Those of a newly built layer with the new classes, in which V is equal to W.
        change: Which classes are kept.
        new_rows: Float `[num_new, dim]`, the embeddings of the new classes; None for the
            initial ones of `after`. The biases are always those of `after`.
    """
    factored_output_take_folds(before)
    rows = tf.cast(after.vectors.value, tf.float64)[len(change.kept) :]
    if new_rows is not None:
        dim = new_rows.shape[1]
        rows = tf.concat([tf.cast(new_rows, tf.float64), rows[:, dim:]], axis=1)
    for name in ("mixing", "inverse", "offset", "steps"):
        change.copy(getattr(before, name), getattr(after, name))
    new_vectors = tf.matmul(rows - after.offset.value, after.inverse.value)
    change.move_rows(before.vectors, after.vectors, new_vectors)
    if change.is_permutation:  # sums over the same classes
        change.copy(before.gram, after.gram)
        change.copy(before.total, after.total)
        return
    _compute_sums(after)


def _compute_sums(state: FactoredState) -> None:
    mixing, offset = state.mixing.value, state.offset.value[:, tf.newaxis]
    gram = gram_of(state.vectors)(state.gram.shape, "float64")
    total = total_of(state.vectors)(state.total.shape, "float64")[:, tf.newaxis]
    count = tf.cast(state.vectors.shape[0], tf.float64)
    mixed = tf.matmul(mixing, total, transpose_a=True)
    cross = tf.matmul(mixed, offset, transpose_b=True)
    gram = tf.matmul(mixing, tf.matmul(gram, mixing), transpose_a=True)
    squares = count * tf.matmul(offset, offset, transpose_b=True)
    state.gram.assign(gram + cross + tf.transpose(cross) + squares)
    state.total.assign((mixed + count * offset)[:, 0])
