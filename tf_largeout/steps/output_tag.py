"""The tag that connects an output layer to its losses and metrics.

Keras passes nothing but tensors to losses and metrics. An output layer returns true logits
`[..., num_classes]` and attaches a tag to that tensor. The losses and metrics of this library
take the `Step` of a tag and never the logits. So `tf.function` removes the product with all
classes from the step. Other users of the output, such as `predict` and Keras's losses, get the
true logits.
"""

import dataclasses
import functools
import math
import threading
from typing import Any, ClassVar, NamedTuple, Protocol

import keras
import tensorflow as tf

from tf_largeout import checks
from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.keras_internals import is_symbolic, mask_of, running_step
from tf_largeout.ops import devices
from tf_largeout.sampled_values import HeadAndTail, Sample, SampledValues
from tf_largeout.steps.labels import Labels, SelectedRows, as_labels
from tf_largeout.steps.step import SampledStep, Step, StepLoss
from tf_largeout.types import Config, TensorLike
from tf_largeout.variables.replicas import replica_id

LARGEST_COUNTER = 1024  # numbers in a weight that counts steps; others are tables of a sampler
_ATTRIBUTE = "_largeout_tag"
_scopes = threading.local()


class Ranking:
    """How an output layer ranks classes: as its argument says, or else as its loss does.

    `value` is the one that counts: `given` is None for the ranking of the loss, `of_loss`.
    """

    def __init__(self, given: str | None = None) -> None:
        self.given, self.of_loss = given, None
        self.value = given or "logit"

    def follow(self, loss: object, *, replace: bool = True) -> None:
        """Ranks by the `ranking` of a loss, if it has one; without `replace`, by the first."""
        ranking = getattr(loss, "ranking", None)
        if ranking is not None and (replace or self.of_loss in (None, ranking)):
            self.of_loss = ranking
            self.value = self.given or ranking

    def get_config(self) -> Config:
        known = {"ranking": self.given, "loss_ranking": self.of_loss}
        return {name: value for name, value in known.items() if value is not None}

    def set_config(self, config: Config) -> None:
        self.of_loss = config.get("loss_ranking")
        self.value = self.given or self.of_loss or "logit"


class StepSampler(Protocol):
    """What a step needs of a sampler, a `tf_largeout.samplers.Sampler`."""

    searches: bool
    uses_previous: bool

    @property
    def counts_are(self) -> str: ...

    def sample(
        self,
        features: TensorLike,
        labels: TensorLike,
        layer: "Head",
        previous: TensorLike | None = None,
        in_step: bool = True,
    ) -> Sample: ...


@dataclasses.dataclass(frozen=True, eq=False)
class Head:
    """What the steps of an output layer need of it, and what its sampler gets as `layer`.

    `seed_state`, int64 `[2]`, has the seed and the number of draws; None without a sampler.
    `raises` is whether steps check values of the model, and raise errors. They do not if the
    layer is on a GPU, by stock operations, because each step would wait for the GPU.
    """

    name: str
    class_matrix: ClassScorer
    ranking: Ranking
    sampler: StepSampler | None = None
    seed_state: keras.Variable | None = None
    raises: bool = True

    @property
    def num_classes(self) -> int:
        return self.class_matrix.num_classes

    def next_seed(self) -> tf.Tensor:
        """Returns two int64 numbers that differ at each call and on each replica."""
        state: Any = self.seed_state
        with devices.host_ids_scope():
            seed = tf.identity(state.value)
            state.assign(seed + [0, 1])
            return seed + [replica_id() << 32, 0]


class Selection(NamedTuple):
    """A step of `P` of the `B` examples of a call, at positions `rows`; None for all."""

    step: Step
    rows: SelectedRows | None = None
    has_sample: bool = False  # whether it was made with a sample
    counted: tf.Tensor | None = None  # bool [B], the examples that count; the step has all


@dataclasses.dataclass(eq=False)
class OutputTag:
    """The arguments of one call of an output layer. With labels, they make a `Step`.

    `shared` is what losses and metrics share, by ids of tensors, which the values keep.
    """

    step_class: ClassVar[type[Step]] = Step

    head: Head
    features: tf.Tensor  # the input of the layer, [..., dim]
    training: bool | None  # None if it is not known
    exclude: tf.Tensor | None = None  # int64 [B, n], classes that `evaluate` must not rank
    loss: StepLoss | None = None  # that was called on the output, if it is of this library
    owner: keras.layers.Layer = None  # the layer, for functions that search for it in a model
    shared: dict[Any, Any] = dataclasses.field(default_factory=dict)

    def attach_to(self, logits: tf.Tensor) -> tf.Tensor:
        """Attaches this tag to `logits` and returns them."""
        setattr(logits, _ATTRIBUTE, self)
        return logits

    @functools.cached_property
    def flat_features(self) -> tf.Tensor:
        """The input of the layer as `[B, dim]`; if the head `raises`, checked to be finite."""
        message = (
            f"The features that enter layer '{self.head.name}' must be finite. If they were "
            "finite in earlier steps, lower the learning rate of the model or of the layer"
        )
        features = self.features
        if self.head.raises:
            features = checks.finite(features, message)
        return tf.reshape(features, [-1, features.shape[-1]])

    def counted(self, labels: Labels) -> tf.Tensor:
        """Returns `labels.counted` by position, bool like the features without `dim`."""
        sizes = tf.shape(self.features)[:-1]
        with devices.host_ids_scope():  # a GPU would copy bools to the host and back
            counted = tf.reshape(labels.counted, sizes)
            return tf.ensure_shape(counted, self.features.shape[:-1])

    @functools.cached_property
    def queries(self) -> tf.Tensor:
        """The vectors that are multiplied by the class rows, `[B, dim]`."""
        return self.head.class_matrix.form.queries(self.flat_features)

    def labels(self, y_true: TensorLike, numeric: bool = False) -> Labels:
        """Checks labels of any accepted form, and returns them as `Labels`.

        All losses and metrics share the result for one `y_true`. If the loss accepts soft
        targets, or no loss was called, it can be a `tf.SparseTensor`. `numeric` is whether the
        caller uses its numbers as targets, as some losses of a `FactoredOutput` do.
        """
        ignored = None if self.loss is None else self.loss.ignore_class
        key = "labels", id(y_true), ignored
        if key not in self.shared:
            takes_targets = self.loss is None or self.loss.takes_soft_targets
            num_classes = self.head.class_matrix.num_classes
            found = as_labels(y_true, self.features, num_classes, ignored, takes_targets)
            if self.exclude is not None and not self.training:
                found = found.without(self.exclude)
            self.shared[key] = y_true, found
        return self.shared[key][1]

    def are_valid(self, labels: Labels) -> tf.Tensor:
        """Returns whether labels and features have passed their checks, a bool scalar.

        This is for steps that XLA compiles, which cannot raise errors; see `checks`.
        """
        is_valid = checks.are_all_finite([self.flat_features])
        for ids in (labels.ids, labels.excluded):
            if ids is not None:
                is_valid &= tf.reduce_all(ids < ids.dtype.max)
        return is_valid

    def counters(self) -> list[tuple[keras.Variable, tf.Tensor]]:
        """Returns the seed of the layer and counters of its sampler, with their values."""
        return [
            (one, tf.identity(one.value))
            for one in self.owner.non_trainable_variables
            if math.prod(one.shape) <= LARGEST_COUNTER
        ]

    def step(self, labels: Labels, counted: tf.Tensor, sampled: bool = False) -> Selection:
        """Returns the step of the examples that count, so that no others are scored.

        Most positions of padded sequences have no label. If no example counts, the result has
        the first one. For features `[batch, dim]`, and where XLA compiles, it has all
        examples. The losses and metrics of a call share the result for the same labels.
        `sampled` says whether to draw a sample, which only a `LargeOutput` can.
        """
        key = "step", id(labels), id(counted)
        found = self.shared.get(key)
        if found is None or (sampled and not found.has_sample):
            rows = None
            # XLA needs to know the number of examples, so there the step has all.
            if self.features.shape.rank > 2 and not running_step().is_compiled:
                with devices.host_ids_scope():
                    rows = SelectedRows.where(counted)
            step = self.make_step(labels, rows, sampled)
            found = self.shared[key] = Selection(step, rows, sampled, counted)
        return found

    def make_step(
        self, labels: Labels, rows: SelectedRows | None = None, sampled: bool = False
    ) -> Step:
        """Returns a new step of the examples in `rows`, or of all."""
        return self.step_class(**self.arguments(labels, rows))

    def arguments(self, labels: Labels, rows: SelectedRows | None) -> dict[str, Any]:
        """Returns the arguments of a step; a subclass adds those of its class of steps."""
        features = self.queries
        if rows is not None:
            features = self.head.class_matrix.form.queries(rows.take(self.flat_features))
        if tf.inside_function() and running_step().is_compiled:
            features = checks.valid_only_if(self.are_valid(labels), features)
        if rows is not None:
            labels = self._selected(labels, rows)
        return {
            "layer_name": self.head.name,
            "classes": self.head.class_matrix,
            "features": features,
            "labels": labels,
            "training": self.training,
            "ranking": self.head.ranking.value,
            "loss": self.loss,
            "shared": self.shared,
        }

    def _selected(self, labels: Labels, rows: SelectedRows) -> Labels:
        key = "selected", id(labels), id(rows)
        if key not in self.shared:
            with devices.host_ids_scope():
                self.shared[key] = labels.take(rows), rows
        return self.shared[key][0]


class SampledTag(OutputTag):
    """The tag of a `LargeOutput`, whose steps have a sample if a sampled loss trains them."""

    step_class = SampledStep

    def make_step(
        self, labels: Labels, rows: SelectedRows | None = None, sampled: bool = False
    ) -> Step:
        arguments, sampler = self.arguments(labels, rows), self.head.sampler
        if sampler is not None:
            arguments["sampler_name"] = type(sampler).__name__
            arguments["counts_are"] = sampler.counts_are
            if sampled:
                selected = arguments["features"], arguments["labels"]
                arguments["sample"] = self.draw(labels, rows, *selected)
        return self.step_class(**arguments)

    def draw(
        self, labels: Labels, rows: SelectedRows | None, features: tf.Tensor, selected: Labels
    ) -> Sample:
        """Draws classes for the selected examples.

        A sampler that searches by features does so only for these examples. Other samplers draw
        for all examples, because some draws depend on the position of the example in the batch.
        """
        sampler: StepSampler = self.head.sampler  # type: ignore[assignment]  # not None
        for_all = sampler.uses_previous or not sampler.searches
        if rows is not None and for_all:
            features, selected = self.queries, labels
        given = [features, selected.ids, self.head]
        if sampler.uses_previous:
            given.append(self.previous_labels(labels))
        sample = sampler.sample(*given)
        return sample if rows is None or not for_all else _of_examples(sample, rows)

    def previous_labels(self, labels: Labels) -> tf.Tensor:
        """Returns the first label of the previous position, int64 `[B]`; -1 for none."""
        if self.features.shape.rank < 3:
            raise ValueError(
                f"{type(self.head.sampler).__name__} of layer '{self.head.name}' draws by "
                "the previous label in a sequence, so features must be [batch, time, dim] and "
                f"labels [batch, time]. Received features of shape {self.features.shape}. Use "
                "a `UnigramSampler` for data without sequences."
            )
        sizes = tf.shape(self.features)[:-1]
        with devices.host_ids_scope():
            first = tf.pad(labels.ids, [[0, 0], [0, 1]], constant_values=-1)[:, 0]
            in_time = tf.reshape(first, sizes)
            is_first = tf.range(tf.shape(in_time)[-1]) == 0
            none = tf.constant(-1, tf.int64)
            return tf.reshape(tf.where(is_first, none, tf.roll(in_time, 1, axis=-1)), [-1])


def _of_examples(sample: Sample, rows: SelectedRows) -> Sample:
    """Returns the part of a sample that belongs to the selected examples."""
    if isinstance(sample, HeadAndTail):
        return HeadAndTail(*(_of_examples(part, rows) for part in sample))  # type: ignore[arg-type]
    ids, true_count, count = sample
    with devices.host_ids_scope():
        if ids.shape.rank == 2:
            ids, count = tf.gather(ids, rows.places), tf.gather(count, rows.places)
        return SampledValues(ids, tf.gather(true_count, rows.places), count)


def attached_tag(y_pred: Any) -> OutputTag | None:
    """Returns the tag of a tensor; None if it is not the direct output of an output layer."""
    found: OutputTag | None = getattr(y_pred, _ATTRIBUTE, None)
    return found


def tag_of(y_pred: tf.Tensor, asked_by: str, kind: type[Step] = Step) -> OutputTag | None:
    """Returns the tag of `y_pred`; None while Keras traces the model with placeholders.

    `asked_by` is the name of a loss or metric that needs steps of the class `kind`. If `y_pred`
    is not the direct output of a layer that makes such steps, it raises a ValueError.
    """
    found: OutputTag | None = getattr(y_pred, _ATTRIBUTE, None)
    if found is not None and issubclass(found.step_class, kind):
        return found
    if found is not None:
        raise ValueError(
            f"{asked_by} cannot be used with the {type(found.owner).__name__} "
            f"'{found.head.name}': it works with a {kind.given_by}. Use "
            f"{found.step_class.losses_to_take}."
        )
    if is_symbolic(y_pred):
        return None
    raise ValueError(
        f"{asked_by} needs the direct output of a {kind.given_by} layer. Received: `y_pred` of "
        f"shape {getattr(y_pred, 'shape', '?')}, which is not the output of such a layer. Make "
        "it the last layer of the model: no softmax, reshape or cast may follow it. Do not put "
        "it in a TimeDistributed, because it accepts [batch, time, dim]. For logits of another "
        "layer, use Keras's losses."
    )


def are_logits_left_out() -> bool:
    """Returns whether the output layers of this thread attach their tags to zeros, not logits.

    They do in `tag_and_mask`, for graphs that are saved to files: converters read these graphs
    before unused operations are removed.
    """
    return getattr(_scopes, "logits_left_out", False)


def compiled_loss(model: keras.Model) -> Any:
    """Returns the loss that a model with one output is compiled with, or None.

    `model.loss` is what `compile` received: a loss or its name, or a list or dict of them.
    """
    loss = getattr(model, "loss", None)
    if isinstance(loss, (list, tuple, dict)) and len(loss) == 1:
        (loss,) = loss.values() if isinstance(loss, dict) else loss
    return keras.losses.get(loss) if isinstance(loss, str) else loss


def require_model(model: Any, asked_by: str) -> None:
    """Raises a ValueError if the argument of the function `asked_by` is not a `keras.Model`."""
    if not isinstance(model, keras.Model):
        raise ValueError(
            f"{asked_by} needs a keras.Model. Received: model={model!r} (of type "
            f"{type(model).__name__})."
        )


def outputs_without_logits(model: keras.Model, inputs: Any) -> Any:
    """Returns the outputs of a model without training, with zeros in the place of logits."""
    before, _scopes.logits_left_out = are_logits_left_out(), True
    try:
        return model(inputs, training=False)
    finally:
        _scopes.logits_left_out = before


def tag_and_mask(
    model: keras.Model, inputs: Any, asked_by: str
) -> tuple[OutputTag, tf.Tensor | None]:
    """Returns the tag of the output of `model`, and the mask of its positions, or None.

    The tag has the output layer and its input features. The mask comes from an earlier layer,
    such as `Embedding(mask_zero=True)`. A model without a `ClassOutput` raises a ValueError.
    """
    outputs = outputs_without_logits(model, inputs)
    num_outputs = len(keras.tree.flatten(outputs))
    if num_outputs != 1:
        raise ValueError(
            f"{asked_by} needs a model with one output, which must come from a LargeOutput "
            "or another output layer of tf_largeout. Received: model "
            f"'{model.name}' with {num_outputs} outputs. Make a model of one of them, with the "
            "same layers: keras.Model(model.inputs, model.outputs[0])."
        )
    try:
        tag = tag_of(outputs, asked_by)
    except ValueError as error:
        shapes = keras.tree.map_structure(lambda one: tuple(one.shape), outputs)
        raise ValueError(
            f"{asked_by} needs a model with one output, which must come from a LargeOutput "
            "or another output layer of tf_largeout. Received: model "
            f"'{model.name}', with an output of shape {shapes} from another layer. Remove the "
            "layers after the output layer; a softmax does not change the order of the classes."
        ) from error
    if tag is None:
        raise ValueError(f"Model '{model.name}' was traced only for its shapes.")
    # After `load_weights`, the layer does not know the loss yet, and so not its ranking.
    tag.head.ranking.follow(compiled_loss(model), replace=False)
    return tag, mask_of(outputs)
