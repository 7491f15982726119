"""The gradient step of a `FactoredOutput`, which updates its weights in the backward pass."""

import weakref
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tf_largeout.classes.class_changes import ClassChange
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
        self._owner = owner
        # Updates that have been traced or run, in all, and the last one of each graph.
        self._num_updates = 0
        self._last_update: weakref.WeakKeyDictionary[Hashable, int] = (
            weakref.WeakKeyDictionary()
        )
        self._undo: Callable[[], None] = lambda: None  # the last update in eager execution

    @property
    def dtype(self) -> str:
        """The dtype of the class vectors, and of the features that the ops take."""
        return self._weights.vectors.dtype

    def state(self) -> FactoredState:
        """Returns the weights as `tf.Variable`s."""
        return FactoredState(*(weight.value for weight in self._weights))

    def spheres(self, features: tf.Tensor, labels: tf.Tensor) -> Spheres:
        """Returns the `Spheres` of labels `[B, L]`, padded with -1; without a gradient."""
        found = factored_output_scores(tf.stop_gradient(features), labels, self.state())
        return Spheres(found.q, found.s, found.a)

    def learning_batch(
        self, features: tf.Tensor, loss_scale: tf.Tensor, update: bool
    ) -> "LearningBatch":
        """Returns a batch whose backward pass updates the weights, if `update`.

        The weights take the step of the loss without the factor `loss_scale`, a float64 scalar.
        """
        num_before = self._num_updates

        def step(labels: tf.Tensor, slopes: Spheres, found: FactoredScores) -> tf.Tensor:
            if update:
                self._count_update(num_before, labels)
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

        return LearningBatch(features, self.anchor, self.state(), step)

    def _count_update(self, num_before: int, labels: tf.Tensor) -> None:
        """Must be called before each update of the weights.

        The losses of all calls of the layer are computed from the weights before the update. So
        an update is wrong if another one follows the call that it belongs to. While TensorFlow
        traces a function, nothing is executed, so the second update that is traced raises an
        error before a weight changes. In eager execution, the first update is undone.
        """
        is_eager = tf.executing_eagerly()
        place: Hashable = self if is_eager else tf.constant(0).graph
        is_second = self._last_update.get(place, 0) > num_before
        self._num_updates += 1
        self._last_update[place] = self._num_updates
        if is_second:
            if is_eager:
                self._undo()
            raise ValueError(
                f"Layer '{self._owner}' was called twice in one training step, with a loss on "
                "each call. Its weights are updated once per batch, in the backward pass of "
                "one call. Concatenate the inputs and call the layer once."
            )
        if is_eager:
            self._undo = self._restoring(labels)

    def _restoring(self, labels: tf.Tensor) -> Callable[[], None]:
        """Returns a function that restores what an update for some labels changes."""
        labels, state = tf.reshape(labels, [-1]), self.state()
        rows = tf.unique(tf.boolean_mask(labels, labels >= 0))[0]
        # `tf.gather` of a variable, instead of its value, would make TensorFlow copy it.
        by_class = [(one, tf.gather(one.value(), rows)) for one in (state.vectors, state.seen)]
        others = [(one, tf.identity(one)) for one in state[1:-1]]

        def restore() -> None:
            for variable, values in by_class:
                variable.scatter_update(tf.IndexedSlices(values, rows))
            for variable, values in others:
                variable.assign(values)

        return restore

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

    `step` takes the step and returns the derivative with respect to the features. Its arguments
    are labels `[B, L]`, the derivatives with respect to their `Spheres`, and their
    `FactoredScores`.
    """

    def __init__(
        self,
        features: tf.Tensor,
        anchor: keras.Variable,
        state: FactoredState,
        step: Callable[[tf.Tensor, Spheres, FactoredScores], tf.Tensor],
    ) -> None:
        self._state, self._step = state, step
        self._learnt: list[tuple[tf.Tensor, tuple[tf.Tensor, ...], FactoredScores]] = []
        self._features = self._stepping(features, tf.convert_to_tensor(anchor))

    def spheres(self, labels: tf.Tensor) -> Spheres:
        """Returns the `Spheres` of labels `[B, L]`, padded with -1, for one of the losses."""

        @tf.custom_gradient
        def of(features: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], Callable[..., tf.Tensor]]:
            found = factored_output_scores(features, labels, self._state)

            def gradient(*slopes: tf.Tensor) -> tf.Tensor:
                self._learnt.append((labels, slopes, found))
                return tf.zeros_like(features)

            return (found.q, found.s, found.a), gradient

        return Spheres(*of(self._features))

    def _stepping(self, features: tf.Tensor, anchor: tf.Tensor) -> tf.Tensor:
        """Returns the features, with a backward pass that runs after those of all `spheres`."""

        @tf.custom_gradient
        def of(features: tf.Tensor, anchor: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
            def gradient(_: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                labels, slopes, found = zip(*self._learnt, strict=True)
                self._learnt.clear()
                by_squares, by_sums, by_logits = zip(*slopes, strict=True)
                sums = Spheres(
                    tf.add_n(by_squares), tf.add_n(by_sums), tf.concat(by_logits, axis=1)
                )
                by_features = self._step(tf.concat(labels, axis=1), sums, found[0])
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
    are bit-identical. For a new row w of W, the row of V is `(w - omega) U^-1`. `after` are the
    variables of a newly built layer, in which V is equal to W; its biases are those of new
    classes.
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
