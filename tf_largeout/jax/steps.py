"""A step of an output layer on JAX, and the tag by which losses and metrics find it.

Keras passes nothing but arrays to losses and metrics. So the layer registers its output by
identity, with a `Tag`: the values that the layer was called with. With labels, a tag makes a
`Step`, and losses and metrics are functions of the step. XLA removes logits that nothing reads.
"""

import dataclasses
import functools
import math
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras.src.backend.common.symbolic_scope import in_symbolic_scope

from tf_largeout.jax import blocks
from tf_largeout.jax.blocks import ClassStatistics
from tf_largeout.jax.rows import Table

LOWEST = float(np.finfo(np.float32).min)
# The label of a class that `metrics.with_exclude` excludes is the class plus this number.
EXCLUDED = -(2**31)
_MANY = 2**20  # numbers in a table that is slow to copy
_FORMS = (
    "Labels must be integer class ids: [batch] for one class per example, or [batch, "
    "max_labels], padded with -1. For sequences [batch, time] or [batch, time, max_labels]."
)
_tags: dict[int, tuple[Any, "Tag"]] = {}


class Form(NamedTuple):
    """The form of the logits: `cap tanh(o / cap)` of `o = scale <w_c, h> + b_c`.

    With `unit_rows`, features h and rows w_c are scaled to length 1. A `cap` of None means that
    logits have no cap.
    """

    unit_rows: bool = False
    scale: float | jax.Array = 1.0
    cap: float | None = None

    def queries(self, features: jax.Array) -> jax.Array:
        """Returns float32 `[..., dim]`: their products with rows, plus biases, are logits."""
        features = features.astype(jnp.float32)
        return (unit_length(features) if self.unit_rows else features) * self.scale

    def rows(self, rows: jax.Array) -> jax.Array:
        """Returns rows as they are multiplied, float32."""
        rows = rows.astype(jnp.float32)
        return unit_length(rows) if self.unit_rows else rows

    def capped(self, logits: jax.Array) -> jax.Array:
        """Applies the cap, if there is one; -inf and the lowest float stay as they are."""
        if self.cap is None:
            return logits
        return jnp.where(logits > LOWEST, self.cap * jnp.tanh(logits / self.cap), logits)


def unit_length(vectors: jax.Array) -> jax.Array:
    """Returns vectors of length 1, `[..., dim]`; vectors of zeros stay zeros."""
    # Dividing by a constant first does not change a direction, but squares cannot overflow.
    largest = jnp.abs(jax.lax.stop_gradient(vectors)).max(axis=-1, keepdims=True)
    scaled = vectors / jnp.maximum(largest, 1)
    squares = jnp.square(scaled).sum(axis=-1, keepdims=True)
    return scaled * jax.lax.rsqrt(jnp.maximum(squares, 1e-12))


class Labels(NamedTuple):
    """Labels of `B` examples; `is_valid`, a bool scalar: whether all are classes or padding."""

    ids: jax.Array  # int32 [B, L], -1 at padding
    excluded: jax.Array | None  # int32 [B, n], classes that `evaluate` must not rank
    is_valid: jax.Array

    @property
    def counted(self) -> jax.Array:
        """Bool `[B]`, True for examples with a label."""
        return (self.ids >= 0).any(axis=1)


@dataclasses.dataclass(eq=False)
class Head:
    """What the steps of an output layer need of it, and what its sampler gets."""

    name: str  # of the layer, for messages
    num_classes: int
    table: Table  # [num_classes, dim]
    bias: Table | None  # [num_classes]
    form: Form
    sampler: Any = None
    key: jax.Array | None = None  # for the random draws of this step
    num_keys: int = 0

    def next_key(self) -> jax.Array:
        """Returns a key that differs at each call and in each step."""
        self.num_keys += 1
        return jax.random.fold_in(self.key, self.num_keys)

    @property
    def classes(self) -> tuple[jax.Array, jax.Array | None, Form]:
        """Rows, biases and form, as the functions of `blocks` take them: queries are scaled."""
        bias = None if self.bias is None else self.bias.value
        return self.table.value, bias, self.form._replace(scale=1.0)

    def logits(self, queries: jax.Array, ids: jax.Array, lookup: bool) -> jax.Array:
        """Returns the logits of int32 ids `[B, n]`, float32 `[B, n]`, for queries `[B, dim]`.

        `lookup` is whether the gradient of the rows should have a sparse form, see `rows`.
        """
        read = Table.lookup if lookup else Table.read
        logits = jnp.einsum("bd,bnd->bn", queries, self.form.rows(read(self.table, ids)))
        return self.form.capped(logits if self.bias is None else logits + read(self.bias, ids))


@dataclasses.dataclass(eq=False)
class Tag:
    """The values of one call of an output layer."""

    head: Head
    features: jax.Array  # the input of the layer, [..., dim]; B is the product of the others
    training: bool
    exclude: jax.Array | None = None  # int32 [B, n], classes that `evaluate` must not rank
    mask: jax.Array | None = None  # the Keras mask of the output
    ignore_class: int | None = None  # that of the loss, which metrics ignore too
    shared: dict[Any, Any] = dataclasses.field(default_factory=dict)  # by losses and metrics

    @property
    def leading(self) -> tuple[int, ...]:
        """The shape of the features without `dim`."""
        return self.features.shape[:-1]

    @functools.cached_property
    def queries(self) -> jax.Array:
        """float32 `[B, dim]`, see `Form.queries`."""
        return self.head.form.queries(self.features.reshape(-1, self.features.shape[-1]))

    def labels(self, y_true: Any) -> Labels:
        """Checks labels of any accepted form; all losses and metrics share the result."""
        key = "labels", id(y_true), self.ignore_class
        if key not in self.shared:
            found = as_labels(y_true, self.leading, self.head.num_classes, self.ignore_class)
            if self.exclude is not None and not self.training:
                parts = [one for one in (found.excluded, self.exclude) if one is not None]
                found = found._replace(excluded=jnp.concatenate(parts, axis=1))
            self.shared[key] = y_true, found
        return self.shared[key][1]

    def step(self, labels: Labels) -> "Step":
        """Returns the step for labels of this call."""
        return Step(self.head, labels, self.training, self)

    def counted(self, labels: Labels) -> jax.Array:
        """Bool of the shape `leading`: the positions with a label that no mask leaves out."""
        counted = labels.counted.reshape(self.leading)
        return counted if self.mask is None else counted & per_example(self.mask, self.leading)


class Candidates(NamedTuple):
    """The scored labels and sampled classes of `B` examples."""

    labels: jax.Array  # int32 [B, L], -1 at padding
    true_logits: jax.Array  # float32 [B, L], 0 at padding
    true_log_counts: jax.Array  # float32 [B, L], logs of the expected counts of the labels
    logits: jax.Array  # float32 [B, n], the lowest float where a class has no effect
    log_counts: jax.Array  # float32 [B, n], logs of the expected counts
    is_other: jax.Array  # bool [B, n], whether the class is not a label of the example
    num_classes: int
    counts_are: str  # see `samplers.Sampler`

    def corrected_logits(self) -> jax.Array:
        """Returns the logits minus the logs of the expected counts, float32 `[B, n]`."""
        return jnp.where(self.logits > LOWEST, self.logits - self.log_counts, LOWEST)

    def mean_logits(self) -> jax.Array:
        """Returns an unbiased estimate of the mean logit of all classes, float32 `[B]`."""
        if self.counts_are == "none":
            raise ValueError(
                "Label smoothing estimates a sum over all classes. The sampler of the layer "
                "searches for classes, whose expected counts are not known. Use a static "
                "sampler, such as UniformSampler, or a tail: TopKSampler(1024, num_hard=16)."
            )
        has_effect = self.is_other & (self.logits > LOWEST)
        of_labels = jnp.where(first_occurrences(self.labels), self.true_logits, 0).sum(axis=1)
        weighted = jnp.where(has_effect, self.logits * jnp.exp(-self.log_counts), 0)
        return (of_labels + weighted.sum(axis=1)) / self.num_classes


@dataclasses.dataclass(eq=False)
class Step:
    """What losses and metrics are functions of; if it does not train, losses are exact."""

    head: Head
    labels: Labels
    training: bool
    tag: Tag

    @property
    def queries(self) -> jax.Array:
        """float32 `[B, dim]`, see `Form.queries`."""
        return self.tag.queries

    def statistics(self) -> ClassStatistics:
        """Returns exact statistics by one pass over all classes; not in a step that trains."""
        key = "statistics", id(self.labels)
        if key not in self.tag.shared:
            self.tag.shared[key] = blocks.statistics(
                self.queries, *self.head.classes, self.labels.ids, self.labels.excluded
            )
        return self.tag.shared[key]

    def candidates(self, remove_accidental_hits: bool, compute_dtype: str) -> Candidates:
        """Draws classes, and scores them and the labels. All losses share the draw."""
        shared, key = self.tag.shared, ("sample", id(self.labels))
        if key not in shared:
            shared[key] = self.head.sampler.sample(self.queries, self.labels.ids, self.head)
        found = _score(self, shared[key], remove_accidental_hits, compute_dtype)
        rivals = jnp.where(found.is_other, found.logits, LOWEST)

        def keep(values: Any) -> None:
            self.tag.shared["drawn"] = self.labels.ids, *values

        true_logits, _ = outside(keep, (found.true_logits, rivals))
        return found._replace(true_logits=true_logits)

    def log_partition_and_mean(self) -> tuple[jax.Array, jax.Array]:
        """Returns log Z and the mean logit, float32 `[B]`, exactly, in a step that trains."""
        table, bias, form = self.head.classes

        def keep(values: Any) -> None:
            self.tag.shared["passed"] = *values, form, self.labels.ids

        queries, table, bias = outside(keep, (self.queries, table, bias))
        return blocks.log_partition_and_mean(queries, table, bias, form)

    def label_ranks(self) -> jax.Array | None:
        """Returns the ranks of the labels, int32 `[B, L]`; None if they are not known.

        In a step that trains, they are those among the classes that the loss has drawn, or
        exact if the loss makes a pass over all classes.
        """
        if not self.training:
            return self.statistics().ranks
        shared = self.tag.shared
        if "passed" in shared:
            return blocks.statistics(*shared["passed"]).ranks
        return _ranks_among(*shared["drawn"]) if "drawn" in shared else None


def outside(keep: Callable[[Any], None], values: Any) -> Any:
    """Returns `values`, and calls `keep` with the same values outside of a derivative.

    Metrics are called outside of the derivative of a train step, and cannot use values of it.
    """
    identity = jax.custom_vjp(lambda values: values)

    def forward(values: Any) -> tuple[Any, None]:
        keep(values)
        return values, None

    identity.defvjp(forward, lambda _, gradient: (gradient,))
    return identity(values)


def _score(step: Step, sample: Any, remove_accidental_hits: bool, dtype: str) -> Candidates:
    head, labels = step.head, step.labels.ids
    parts = [sample] if hasattr(sample, "sampled_candidates") else [*sample]
    own = [labels, *(one.sampled_candidates for one in parts if one[0].ndim == 2)]
    of_own = head.logits(step.queries, jnp.concatenate(own, axis=1), lookup=True)
    true_logits, *own_logits = jnp.split(
        of_own, np.cumsum([one.shape[1] for one in own])[:-1], axis=1
    )
    columns, earlier = [], labels[:, :0]
    for ids, _, counts in parts:
        scores = own_logits.pop(0) if ids.ndim == 2 else _shared_logits(step, ids, dtype)
        ids = jnp.broadcast_to(ids, scores.shape)
        # A class of the tail that is also in the head has no effect.
        has_effect, is_other = (ids >= 0) & ~are_among(ids, earlier), ~are_among(ids, labels)
        is_other, earlier = has_effect & is_other, ids
        used = is_other if remove_accidental_hits else has_effect
        log_counts = jnp.broadcast_to(jnp.log(counts), scores.shape)
        columns.append((jnp.where(used, scores, LOWEST), log_counts, is_other))
    true_logits = jnp.where(labels >= 0, true_logits, 0)
    logits, log_counts, is_other = (
        jnp.concatenate(one, axis=1) for one in zip(*columns, strict=True)
    )
    return Candidates(
        labels,
        true_logits,
        jnp.log(sample.true_expected_count),
        logits,
        log_counts,
        is_other,
        head.num_classes,
        head.sampler.counts_are,
    )


def _shared_logits(step: Step, ids: jax.Array, dtype: str) -> jax.Array:
    """Returns the logits of int32 ids `[n]`, float32 `[B, n]`, by one matrix product."""
    head = step.head
    rows = head.form.rows(head.table.lookup(ids))
    factors = step.queries.astype(dtype), rows.astype(dtype).T
    logits = jnp.matmul(*factors, preferred_element_type=jnp.float32)
    return head.form.capped(logits if head.bias is None else logits + head.bias.lookup(ids))


def _ranks_among(labels: jax.Array, true_logits: jax.Array, rivals: jax.Array) -> jax.Array:
    """Returns the ranks of labels among drawn classes and other labels, int32 `[B, L]`."""
    above = (rivals[:, None, :] > true_logits[:, :, None]).sum(axis=2, dtype=jnp.int32)
    own, other = true_logits[:, :, None], true_logits[:, None, :]
    slots = jnp.arange(labels.shape[1])
    is_above = (other > own) | ((other == own) & (slots < slots[:, None]))
    counts = (labels >= 0)[:, None, :] & (labels[:, None, :] != labels[:, :, None])
    ranks = above + (is_above & counts).sum(axis=2, dtype=jnp.int32)
    return jnp.where(labels >= 0, ranks, rivals.shape[1] + labels.shape[1])


def are_among(ids: jax.Array, others: jax.Array) -> jax.Array:
    """Returns which of `ids`, `[B, n]`, are among `others`, `[B, m]`, of the same example."""
    return (ids[:, :, None] == others[:, None, :]).any(axis=2)


def first_occurrences(labels: jax.Array) -> jax.Array:
    """Returns bool `[B, L]`, True where a label occurs first in its example."""
    slots = jnp.arange(labels.shape[1])
    earlier = (labels[:, :, None] == labels[:, None, :]) & (slots < slots[:, None])
    return (labels >= 0) & ~earlier.any(axis=2)


def as_labels(
    y_true: Any, leading: tuple[int, ...], num_classes: int, ignore_class: int | None
) -> Labels:
    """Returns `Labels` of an array of the shape `leading`, or with one more dimension.

    Labels of a wrong dtype or shape raise a ValueError, as do ids out of range and multi-hot
    labels outside of a compiled step.
    """
    labels = y_true if isinstance(y_true, jax.Array) else np.asarray(y_true)
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(
            f"{_FORMS} Received: labels of dtype {labels.dtype} and shape {labels.shape}. "
            "Convert one-hot labels by numpy.argmax(y, axis=-1), and names by "
            "keras.layers.StringLookup."
        )
    if labels.shape[: len(leading)] != leading or labels.ndim > len(leading) + 1:
        raise ValueError(f"{_FORMS} Received: shape {labels.shape} for features {leading}.")
    columns = labels.reshape(math.prod(leading), *labels.shape[len(leading) :] or [1])
    if not isinstance(columns, jax.core.Tracer):
        check_range(np.asarray(columns), num_classes, ignore_class)
    ids, excluded = jnp.asarray(columns, jnp.int32), None
    if ids.shape[1] > 1:
        is_excluded = ids < EXCLUDED + num_classes
        excluded = jnp.where(is_excluded, ids - EXCLUDED, -1)
        ids = jnp.where(is_excluded, -1, ids)
    if ignore_class is not None and -(2**31) <= ignore_class < 2**31:
        ids = jnp.where(ids == ignore_class, -1, ids)
    is_valid = ((ids >= -1) & (ids < num_classes)).all()
    if num_classes > 1 and ids.shape[1] == num_classes:  # not multi-hot
        is_valid &= ~((ids >= 0) & (ids <= 1)).all()
    return Labels(jnp.where(ids < num_classes, ids, -1), excluded, is_valid)


def check_range(columns: np.ndarray, num_classes: int, ignore_class: int | None) -> None:
    """Raises a ValueError unless labels `[B, L]` are ids of classes, and not multi-hot."""
    is_label = (columns >= EXCLUDED + num_classes) | (columns < EXCLUDED)
    is_label &= columns != ignore_class
    bad = columns[is_label & ((columns < -1) | (columns >= num_classes))]
    if bad.size:
        raise ValueError(
            f"Labels must be class ids in [0, {num_classes}), or -1 as padding. Received: "
            f"{bad[:5].tolist()}. For another padding, pass `ignore_class` to the loss."
        )
    is_wide = columns.size > 0 and columns.shape[1] == num_classes > 1
    if is_wide and 0 <= columns.min() and columns.max() <= 1:
        raise ValueError(
            f"Labels must be class ids. Received: a matrix of {num_classes} columns of "
            "only 0 and 1, multi-hot labels. Pass the ids that are 1, padded with -1."
        )


def per_example(values: Any, leading: tuple[int, ...]) -> jax.Array:
    """Broadcasts numbers or bools to the shape `leading`; it aligns the first dimensions."""
    values = jnp.asarray(values)
    shape = (*values.shape, *[1] * len(leading))[: len(leading)]
    fits = all(one in (1, size) for one, size in zip(shape, leading, strict=True))
    if not fits or values.size != np.prod(shape):
        raise ValueError(
            f"`sample_weight` must have one number per example, shape {leading}, or fewer "
            "dimensions, equal to the first ones of this shape. Received: shape "
            f"{values.shape}. For weights of classes, pass `class_weights` to the loss."
        )
    return jnp.broadcast_to(values.reshape(shape), leading)


def frame_of_keras() -> Any:
    """Returns the frame of the method of a Keras model that calls this step, or None."""
    frame: Any = sys._getframe()
    methods = "fit", "evaluate", "train_on_batch", "test_on_batch"
    while frame is not None and not (
        frame.f_code.co_name in methods and frame.f_globals["__name__"].startswith("keras.")
    ):
        frame = frame.f_back
    return frame


def keeps_weights(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a method that Keras calls in steps: its errors do not lose the weights.

    `fit` and `evaluate` take the values out of the variables of a model. They do not put them
    back after an error in the first step.
    """

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except Exception:
            frame = frame_of_keras()
            if frame is not None and "state" in frame.f_locals:
                model, state = frame.f_locals["self"], frame.f_locals["state"]
                slots = [model.optimizer.variables] if len(state) == 4 else []
                groups = model.trainable_variables, model.non_trainable_variables, *slots
                for variables, values in zip(groups, state, strict=False):
                    for variable, value in zip(variables, values, strict=True):
                        variable._value = value
            raise

    return call


def attach(tag: Tag, logits: jax.Array) -> jax.Array:
    """Registers a tag for logits, also outside of a derivative, and returns the logits."""

    def keep(value: jax.Array) -> None:
        _register(tag, value)
        if not isinstance(value, jax.core.Tracer) and tag.head.table.value.size > _MANY:
            warnings.warn(
                f"The training steps of layer '{tag.head.name}' are not compiled, so each "
                "computes the logits of all classes and copies the class rows. Call "
                "`compile` without `jit_compile` and `run_eagerly`; also for a model from a "
                "file of the TensorFlow backend, which has jit_compile=False.",
                stacklevel=1,
            )

    if tag.training:
        logits = outside(keep, logits)
    _register(tag, logits)
    return logits


def _register(tag: Tag, logits: jax.Array) -> None:
    key = id(logits)
    _tags[key] = weakref.ref(logits, lambda _: _tags.pop(key, None)), tag


def tag_of(y_pred: Any, asked_by: str) -> Tag | None:
    """Returns the tag of the output of a layer; None while Keras infers shapes.

    Anything else than the direct output of a `LargeOutput` raises a ValueError.
    """
    if isinstance(y_pred, keras.KerasTensor) or in_symbolic_scope():
        return None
    if id(y_pred) in _tags:
        return _tags[id(y_pred)][1]
    raise ValueError(
        f"{asked_by} needs the direct output of a `LargeOutput` layer. Received: `y_pred` of "
        f"shape {getattr(y_pred, 'shape', '?')}, which is not the output of such a layer. Make "
        "it the last layer of the model: no softmax, reshape or cast may follow it. For logits "
        "of another layer, use Keras's losses."
    )
