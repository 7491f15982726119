"""The samplers on JAX: they draw the classes that a sampled loss compares with the labels.

Arguments, distributions and expected counts are those on TensorFlow, whose docstrings explain
them. A step takes O(num_sampled log num_classes) time, except for `TopKSampler`.
"""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras.src.backend.common.stateless_scope import in_stateless_scope

from tf_largeout import sampler_arguments as arguments
from tf_largeout import sampling_tables as tables
from tf_largeout.arguments import int64_or_none, real_number, whole_number
from tf_largeout.class_counts import batches_of_labels, check_counts, count_ids, distorted
from tf_largeout.jax import blocks
from tf_largeout.jax.draws import Line
from tf_largeout.jax.rows import value_of
from tf_largeout.jax.steps import Head, are_among
from tf_largeout.sampler_arguments import named
from tf_largeout.wrong_arguments import OF_SAMPLERS, refuse_wrong_arguments_of

_register = keras.saving.register_keras_serializable(package="tf_largeout")
_WATCHED = arguments.NUM_WATCHED
_FORMS = (
    "Labels must be integer class ids: an array of any shape, padded with -1; or an iterable "
    "of these or of batches (x, y)."
)


class SampledValues(NamedTuple):
    """The result of a sampler for a loss: ids, and how often each is expected in a sample."""

    sampled_candidates: jax.Array  # int32 [num_sampled], or [batch, n], padded with -1
    true_expected_count: jax.Array  # float32 [batch, num_labels], of the labels; 1 for padding
    sampled_expected_count: jax.Array  # float32, in the shape of `sampled_candidates`


class HeadAndTail(NamedTuple):
    """Hard classes of each example, with counts of 1, and a sample that the batch shares.

    Losses ignore tail classes that are in the head of the example. The sum over both is then
    unbiased. `head.true_expected_count` is 1 for labels in the head and 0 for other labels.
    """

    head: SampledValues
    tail: SampledValues

    @property
    def true_expected_count(self) -> jax.Array:
        """float32 `[batch, num_labels]`: 1 for a label in the head, else as in the tail."""
        in_head = self.head.true_expected_count > 0
        return jnp.where(in_head, 1.0, self.tail.true_expected_count)


Sample: TypeAlias = SampledValues | HeadAndTail


class Sampler:
    """Draws the classes that a sampled loss compares with the labels of a training step.

    A subclass implements `draw`. If it has state, it creates weights of the layer in `build`
    with `add_weight`, which are saved with the layer, and assigns them in `draw`.
    """

    searches = False  # whether draws depend on features or labels; then it cannot be a tail
    counts_are = "draws"  # or "probabilities", of a class at most once; or "none", if unknown

    def __new__(cls, *args: Any, **kwargs: Any) -> "Sampler":
        refuse_wrong_arguments_of(cls, kwargs, OF_SAMPLERS)
        return super().__new__(cls)

    def __init__(self, num_sampled: int = 1024, seed: int | None = None) -> None:
        self.num_sampled = whole_number("num_sampled", num_sampled, most=2**31 - 1)
        self.seed = int64_or_none("seed", seed)
        self.num_classes = 0  # until a layer builds it
        self._weights: dict[str, keras.Variable] = {}

    def build(self, layer: keras.layers.Layer) -> None:
        """Creates the state as weights of `layer`, which has `num_classes`."""
        arguments.require_free(self)
        self.num_classes, self._weights = layer.num_classes, {}

    def add_weight(self, layer: keras.layers.Layer, name: str, **options: Any) -> Any:
        """Creates a weight of `layer` that is not trained; `options` as `Layer.add_weight`."""
        options = {"trainable": False, "autocast": False, **options}
        weight = layer.add_weight(name=f"sampler_{name}", **options)
        self._weights[name] = weight
        return weight

    def _add(self, layer: keras.layers.Layer, name: str, value: np.ndarray) -> None:
        options = {"initializer": lambda shape, dtype: jnp.asarray(value)}
        self.add_weight(layer, name, shape=value.shape, dtype=value.dtype.name, **options)

    def sample(self, features: jax.Array, labels: jax.Array, head: Head) -> Sample:
        """Draws classes for one training step; no gradient flows through the result."""
        values = self.draw(jax.lax.stop_gradient(features), labels, head)
        return jax.tree.map(jax.lax.stop_gradient, values)

    def draw(self, features: jax.Array, labels: jax.Array, head: Head) -> Sample:
        """Draws classes. Called once in each training step, as a part of a compiled function.

        `features` are float32 `[batch, dim]`, whose products with rows, plus biases, are
        logits. `labels` are int32 `[batch, num_labels]`, padded with -1. `head` has the rows
        and biases, and `head.next_key()` returns a random key.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `draw`.")

    def saved_state(self) -> dict[str, np.ndarray]:
        """Returns the state by name, in the form of the TensorFlow backend."""
        state = {name: np.asarray(value_of(one)) for name, one in self._weights.items()}
        return {k: v.astype(np.int64) if v.dtype == np.int32 else v for k, v in state.items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Sets the state to that of a file, unless it is that of another sampler."""
        fits = bool(self._weights or not state) and all(
            name in state and tuple(state[name].shape) == tuple(weight.shape)
            for name, weight in self._weights.items()
        )
        if not fits:
            logging.getLogger("tf_largeout").warning(
                "The file has the state of another sampler than %s, which starts with a new "
                "state.",
                type(self).__name__,
            )
            return
        for name, weight in self._weights.items():
            weight.assign(np.asarray(state[name]).astype(weight.dtype))

    def get_config(self) -> dict[str, Any]:
        return {"num_sampled": self.num_sampled, "seed": self.seed}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Sampler":
        return cls(**config)


class StaticSampler(Sampler):
    """Base of the samplers whose distribution `q` does not depend on features or weights.

    The expected count of class c is `num_sampled * q_c`. If `unique`, it is the probability
    `min(1, tau * q_c)`, with the sum `num_sampled`.
    """

    def __init__(
        self,
        num_sampled: int = 1024,
        unique: bool | None = None,
        seed: int | None = None,
        shared: bool = True,
    ) -> None:
        super().__init__(num_sampled, seed)
        self.shared, self.unique = arguments.shared_and_unique(shared, unique)
        self.counts_are = "probabilities" if self.unique else "draws"

    def build(self, layer: keras.layers.Layer) -> None:
        arguments.check_size(self, layer.num_classes)
        super().build(layer)
        self._num_strata = self.num_sampled if self.unique else 1
        self._tables = self._make_tables(self.num_classes, self._num_strata)

    def _make_tables(self, num_classes: int, num_strata: int) -> tuple[np.ndarray, ...]:
        return ()

    def line(self) -> Line:
        """Returns the distribution; called once per step."""
        return Line(self._num_strata, *map(jnp.asarray, self._tables))

    def draw(self, features: jax.Array, labels: jax.Array, head: Head) -> SampledValues:
        line, key = self.line(), head.next_key()
        shape = (self.num_sampled,) if self.shared else (len(labels), self.num_sampled)
        ids = line.draw_distinct(key) if self.unique else line.draw(key, shape)
        factor = 1 if self.unique else self.num_sampled
        true_counts = jnp.where(labels >= 0, factor * line.shares(jnp.maximum(labels, 0)), 1.0)
        return SampledValues(ids, true_counts, factor * line.shares(ids))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "unique": self.unique, "shared": self.shared}


@named("uniform")
@_register
class UniformSampler(StaticSampler):
    """Draws every class with the same probability."""

    _make_tables = staticmethod(tables.uniform_tables)


@named("log_uniform")
@_register
class LogUniformSampler(StaticSampler):
    """Draws by Zipf's law, `q_c = log((c + 2) / (c + 1)) / log(num_classes + 1)`.

    Ids must be sorted by falling frequency. From class 8,192 on, similar classes have equal
    probabilities, so these differ from the formula by a factor of at most 1 + 6.2e-5.
    """

    _make_tables = staticmethod(tables.log_uniform_tables)


@named("unigram")
@_register
class UnigramSampler(StaticSampler):
    """Draws classes in proportion to `max(count, floor)^distortion`.

    floor is 1, or the smallest positive count if that is below 1. The counts come from `counts`
    or `adapt`, before or after the layer is built. They are saved with the weights of the
    layer, not in the config. The state takes 16 bytes per class.
    """

    def __init__(
        self,
        num_sampled: int = 1024,
        counts: Any = None,
        distortion: float = 1.0,
        unique: bool | None = None,
        seed: int | None = None,
        shared: bool = True,
    ) -> None:
        super().__init__(num_sampled, unique, seed, shared)
        self.distortion = real_number("distortion", distortion, least=0)
        self._counts = np.zeros(0) if counts is None else check_counts(counts)
        self._is_complete = counts is not None
        self._has_counts = False

    def adapt(self, data: Any, steps: int | None = None) -> None:
        """Counts the training labels; replaces earlier counts.

        `data` are integer labels of any shape, padded with -1; or an iterable of these or of
        batches `(x, y, ...)`, of which `steps` elements are used, None for all.
        """
        counts = count_ids(batches_of_labels(data, steps), _FORMS)
        if self.num_classes:
            arguments.check_num_counts(self, counts.size, False, self.num_classes)
            self._fill(counts)
        else:
            self._counts, self._is_complete = counts, False

    def build(self, layer: keras.layers.Layer) -> None:
        size = self._counts.size
        arguments.check_num_counts(self, size, self._is_complete, layer.num_classes)
        super().build(layer)
        for name, value in self._state_of(self._counts).items():
            self._add(layer, name, value)
        self._has_counts = size > 0
        self._notice_assignments(self._weights["cumulative"])

    def line(self) -> Line:
        if not self._has_counts:
            raise ValueError(
                f"{arguments.no_counts(type(self).__name__)} If this error comes from `fit`, "
                "create the model again, because Keras on JAX has removed its weights."
            )
        return Line(self._num_strata, value_of(self._weights["cumulative"]))

    def saved_state(self) -> dict[str, np.ndarray]:
        counts = np.array(value_of(self._weights["counts"])).view(np.float64)[:, 0]
        weights = distorted(counts, self.distortion) if counts.any() else np.ones(counts.size)
        if self.unique:
            made = tables.pivotal_table(weights, self.num_sampled, self.num_classes // 4 + 1)
            names = "cumulative", "index"
        else:
            made, names = tables.alias_table(weights), ("alias_slots", "probability")
        is_filled = int(counts.any())
        state = {name: table * is_filled for name, table in zip(names, made, strict=True)}
        return {**state, "counts": counts}

    def load_state(self, state: Mapping[str, Any]) -> None:
        if "counts" not in state or tuple(state["counts"].shape) != (self.num_classes,):
            return super().load_state({})
        return self._fill(np.asarray(state["counts"], np.float64))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "distortion": self.distortion}

    def _fill(self, counts: np.ndarray) -> None:
        for name, value in self._state_of(counts).items():
            self._weights[name].assign(value)
        self._has_counts = bool(counts.any())

    def _state_of(self, counts: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the weights: where classes start on the line, and the bits of the counts."""
        counts = np.pad(counts, (0, self.num_classes - counts.size))
        masses = np.zeros(self.num_classes, np.int64)
        if counts.any():
            weights = distorted(counts, self.distortion)
            masses = tables.integer_masses(weights, self._num_strata)
        starts = tables.words_of(np.cumsum(np.append(0, masses)))
        return {"cumulative": starts, "counts": counts.view(np.uint32).reshape(-1, 2)}

    def _notice_assignments(self, weight: keras.Variable) -> None:
        """Lets `set_weights` give counts: a compiled step cannot look at a weight."""
        assign = weight.assign

        def look_and_assign(value: Any) -> Any:
            if not self._has_counts and not isinstance(value, jax.core.Tracer):
                self._has_counts = bool(np.asarray(value)[-1].any())
            return assign(value)

        weight.assign = look_and_assign


@named("top_k")
@_register
class TopKSampler(Sampler):
    """Takes the classes with the highest logits per example, exactly: "TopK softmax".

    Each step makes a pass over all classes. With `num_hard=None`, the sum over these classes
    replaces the partition function, without a correction. With `num_hard`, they are the head of
    a `HeadAndTail`, and the estimate of the partition function is unbiased.
    """

    searches = True

    def __init__(
        self,
        num_sampled: int = 1024,
        num_hard: int | None = None,
        tail: Any = "uniform",
        start_step: int | None = 0,
        seed: int | None = None,
    ) -> None:
        super().__init__(num_sampled, seed)
        self.num_hard = arguments.checked_num_hard(num_hard, self.num_sampled, tail)
        self.tail = None
        if self.num_hard:
            num_tail = self.num_sampled - self.num_hard
            self.tail = arguments.copied_tail(tail, num_tail, Sampler, _may_be_tail)
        self.start_step = arguments.checked_start_step(start_step, self.tail is not None)
        self.counts_are = self.tail.counts_are if self.tail else "none"

    def build(self, layer: keras.layers.Layer) -> None:
        if self.tail and not self.num_classes:
            self.tail.build(layer)  # first: if it fails, this sampler is not built either
        super().build(layer)
        if self.start_step == 0:
            return
        self._first = self._last = self.start_step or 0
        if self.start_step is None:
            self._first, self._last = arguments.first_and_last_step(self.num_classes)
            labels = np.repeat(np.array([[-1], [0]], np.int32), _WATCHED, axis=1)
            self._add(layer, "search_start_labels", labels)
        self._add(layer, "search_start", np.array([0, -1], np.int32))

    def draw(self, features: jax.Array, labels: jax.Array, head: Head) -> Sample:
        if self.tail is None:
            ids = self._search(features, head)
            return SampledValues(ids, jnp.ones(labels.shape), jnp.ones(ids.shape))
        has_begun = self._has_begun()
        tail = self.tail.draw(features, labels, head)
        if "search_start_labels" in self._weights:
            watched = self._weights["search_start_labels"]
            numbers = value_of(watched)
            seen = jax.lax.cond(has_begun, lambda: numbers, lambda: _see(numbers, labels))
            _assign_in_step(watched, seen)
        nothing = jnp.full((len(labels), self.num_hard), -1, jnp.int32)
        ids = jax.lax.cond(has_begun, lambda: self._search(features, head), lambda: nothing)
        in_head = are_among(labels, ids) & (labels >= 0)
        found = SampledValues(ids, in_head.astype(jnp.float32), jnp.ones(ids.shape))
        return HeadAndTail(found, tail)

    def saved_state(self) -> dict[str, np.ndarray]:
        return {**super().saved_state(), **(self.tail.saved_state() if self.tail else {})}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        if self.tail:
            self.tail.load_state(state)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_hard": self.num_hard,
            "tail": keras.saving.serialize_keras_object(self.tail),
            "start_step": self.start_step,
        }

    def _search(self, features: jax.Array, head: Head) -> jax.Array:
        """Returns the classes with the highest logits, int32 `[batch, n]`, padded with -1."""
        num = self.num_hard or self.num_sampled
        rows, bias, form = head.classes
        rows, bias = jax.lax.stop_gradient((rows, bias))
        _, ids = blocks.top_k(features, rows, bias, form, min(num, self.num_classes))
        return jnp.pad(ids, ((0, 0), (0, num - ids.shape[1])), constant_values=-1)

    def _has_begun(self) -> Any:
        """Counts a step, and returns whether it searches."""
        if self.start_step == 0:
            return True
        progress = self._weights["search_start"]
        step, started_at = value_of(progress)
        begins = (started_at < 0) & (step >= self._first)
        if self._first != self._last:
            often = value_of(self._weights["search_start_labels"])[1] >= arguments.MET_OFTEN
            begins &= (2 * often.sum() >= _WATCHED) | (step >= self._last)
        started_at = jnp.where(begins, step, started_at)
        _assign_in_step(progress, jnp.stack([step + 1, started_at]))
        return started_at >= 0


def _see(numbers: jax.Array, labels: jax.Array) -> jax.Array:
    """Counts the watched labels; the first batch with labels says which are watched."""
    labels = labels.reshape(-1)
    is_label = labels >= 0
    labels_first = labels[jnp.argsort(~is_label, stable=True)]
    places = jnp.arange(_WATCHED) * is_label.sum(dtype=jnp.int32) // _WATCHED
    ids, times = numbers
    times += (labels == ids[:, None]).sum(axis=1, dtype=jnp.int32)
    is_first = ids[0] < 0  # until a batch has a label
    first = jnp.stack([labels_first[places], jnp.zeros_like(times)])
    return jnp.where(is_first, first, jnp.stack([ids, times]))


def _assign_in_step(variable: keras.Variable, value: jax.Array) -> None:
    if isinstance(value, jax.core.Tracer) and not in_stateless_scope():
        raise ValueError(
            "A TopKSampler with a `start_step` counts the steps in a weight of its layer, but "
            "this loss is called outside of the scope of the model's variables. In a custom "
            "training loop, use start_step=0, the default, or `model.stateless_compute_loss`."
        )
    variable.assign(value)


def _may_be_tail(sampler: Any) -> bool:
    return not sampler.searches and bool(getattr(sampler, "shared", True))


def get(identifier: Any, num_classes: int | None = None) -> Sampler | None:
    """Returns the sampler for a `Sampler`, its name, its serialized config, or None.

    A sampler by name draws at most half of `num_classes`, if it is given.
    """
    if identifier is None or isinstance(identifier, Sampler):
        return identifier
    if isinstance(identifier, str) and identifier in arguments.BY_NAME:
        return arguments.by_name(identifier, num_classes)
    if isinstance(identifier, dict):
        sampler = keras.saving.deserialize_keras_object(identifier)
        if isinstance(sampler, Sampler):
            return sampler
    arguments.refuse_class_or_number(identifier, Sampler)
    names = sorted(set(arguments.BY_NAME) - arguments.NEED_COUNTS)
    raise ValueError(
        f"Unknown sampler: {identifier!r}. Expected None, a `tf_largeout.samplers.Sampler`, "
        f"its serialized config, or one of the names {names}. UnigramSampler has no name: "
        "it needs the counts of the labels. All other samplers need the TensorFlow backend. "
        "For hard negatives on JAX, use TopKSampler(1024, num_hard=16)."
    )
