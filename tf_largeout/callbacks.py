"""Keras callbacks: exact metrics, causes of NaN, the state of samplers, and safe saves."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_largeout import checks
from tf_largeout.arguments import whole_number
from tf_largeout.atomic_file import atomic_path
from tf_largeout.classes import blockwise
from tf_largeout.classes.best_scores import NOTHING
from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.keras_internals import all_layers, slot_of
from tf_largeout.layers import LargeOutput
from tf_largeout.steps.labels import Labels, per_example
from tf_largeout.steps.output_tag import (
    LARGEST_COUNTER,
    Head,
    SampledTag,
    StepSampler,
    attached_tag,
    outputs_without_logits,
)
from tf_largeout.steps.step import Candidates, absolute_or_lowest, score_candidates

__all__ = ["ExactMetrics", "ExplainNaN", "ModelCheckpoint", "SamplerHealth"]

_ROWS_AT_ONCE = 65536
_CHECKED_AT_ONCE = 1024  # examples


class ExactMetrics(keras.callbacks.Callback):
    """Evaluates the model on some held-out examples during `fit`.

    During `fit`, the metrics of a sampled loss compare a label with the sampled classes only,
    so they are far too optimistic. This callback evaluates the model exactly, over all classes,
    and adds the results to the logs. Each is named after the loss or metric, with a prefix. The
    progress bar, `History`, and the callbacks that follow in the list can read them. So put
    this callback before `EarlyStopping`, `ModelCheckpoint`, `TensorBoard` or `CSVLogger`:

    ```python
    exact = tflo.callbacks.ExactMetrics(x_validation, y_validation)
    stop = keras.callbacks.EarlyStopping("exact_precision_at_1", mode="max", patience=2)
    model.fit(x, y, epochs=20, callbacks=[exact, stop])
    ```

    An evaluation of n examples scores them against all classes, which takes `n * num_classes *
    dim` multiplications: 26 billion for 1,000 examples, 200,000 classes and width 128.
    `validation_data` of `fit` is also exact; use this callback to evaluate only a sample,
    or to evaluate within an epoch. It has no effect on training: the metrics of the current
    epoch, weights, optimizer and random numbers do not change.

    Args:
        x: Inputs, as in `model.evaluate`: arrays in the structure of the model's inputs, a
            `tf.data.Dataset` or a `keras.utils.PyDataset`.
        y: Labels, if `x` contains arrays.
        sample_weight: Weights of the examples, if `x` contains arrays; or None.
        num_examples: Number of examples to evaluate, drawn once at random, if `x` contains
            arrays. None uses all. Defaults to 1,000, whose P@1 has a standard error of at most
            1.6 points. All examples of a dataset are evaluated.
        every: Number of training steps between evaluations. None, the default, evaluates at the
            end of each epoch. With a number, the logs of an epoch contain the last results.
        batch_size: As in `model.evaluate`.
        prefix: Prefix of the names. Defaults to "exact_".

    Raises:
        ValueError: If a number is out of range, the arrays have different lengths, `y` is
            missing for arrays, or an argument is a sparse or ragged tensor.

    Attributes:
        results: A list of dicts: the results of each evaluation, and `step`, the number of the
            training step after which it ran.
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        num_examples: int | None = 1000,
        every: int | None = None,
        batch_size: int | None = None,
        prefix: str = "exact_",
    ) -> None:
        super().__init__()
        count = whole_number("num_examples", num_examples, or_none=True)
        self._every = whole_number("every", every, or_none=True)
        _require_labels("ExactMetrics", x, y)
        data = (x, y, sample_weight)
        self._x, self._y, self._weight = data if y is None else _sample_of(data, count)
        self._batch_size, self._prefix = batch_size, prefix
        self.results: list[dict[str, float]] = []
        self._last_step = 0

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._last_step = int(self.model.optimizer.iterations)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self._every is None:
            return
        step = int(self.model.optimizer.iterations)
        if step // self._every > self._last_step // self._every:
            self._evaluate(step)
            self._add_to(logs)
        self._last_step = step

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self._every is None:
            self._evaluate(int(self.model.optimizer.iterations))
        self._add_to(logs)

    def _evaluate(self, step: int) -> None:
        metrics = [one for metric in self.model.metrics for one in metric.variables]
        before = [one.numpy() for one in metrics]
        options = {"sample_weight": self._weight, "batch_size": self._batch_size, "verbose": 0}
        found = self.model.evaluate(self._x, self._y, return_dict=True, **options)
        for variable, value in zip(metrics, before, strict=True):
            variable.assign(value)
        self.results.append({"step": step, **found})

    def _add_to(self, logs: dict[str, Any] | None) -> None:
        if logs is not None and self.results:
            for name, value in self.results[-1].items():
                if name != "step":
                    logs[f"{self._prefix}{name}"] = value


class ExplainNaN(keras.callbacks.Callback):
    """Raises an error that explains why the loss of an epoch is NaN.

    With `jit_compile=True`, a training step cannot raise errors. If a label is out of range, or
    features or weights of examples are not finite, the loss of the step and the mean loss of
    the epoch are NaN, and the optimizers of this library change nothing in this step. At the
    end of such an epoch, this callback checks the training data without XLA, and raises the
    error that a step without XLA raises. It adds no work to a training step.

    ```python
    model.compile(optimizer, loss, jit_compile=True)
    model.fit(x, y, callbacks=[tflo.callbacks.ExplainNaN(x, y)])
    ```

    Args:
        x: The inputs of `fit`, as in `ExactMetrics`.
        y: Labels, if `x` contains arrays.
        sample_weight: Weights of the examples, if `x` contains arrays; or None.

    Raises:
        ValueError: As `ExactMetrics`.
        tf.errors.InvalidArgumentError: At the end of an epoch with a loss of NaN, if a check of
            the data fails.
        FloatingPointError: At the end of such an epoch, if no check fails. It names weights of
            the model that are not finite.
    """

    def __init__(self, x: Any, y: Any = None, sample_weight: Any = None) -> None:
        super().__init__()
        _require_labels("ExplainNaN", x, y)
        self._data: tuple[Any, ...] = (x, y, sample_weight)
        if y is not None:
            arrays = _sample_of(self._data, None)
            self._data = arrays if sample_weight is not None else arrays[:2]

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if not math.isnan((logs or {}).get("loss", 0.0)):
            return
        for batch in self._batches():
            self._check(*keras.utils.unpack_x_y_sample_weight(batch))
        weights = [one.path for one in self.model.weights if not _is_finite(one)]
        advice = (
            "Either the logits have overflowed in a step: lower the learning rate. Or `fit` "
            "got a `sample_weight` or `class_weight` that is not finite: pass a "
            "`sample_weight` to ExplainNaN, too."
        )
        if weights:
            advice = (
                f"These weights of the model are not finite: {', '.join(weights)}. Restore a "
                "checkpoint, and lower the learning rate."
            )
        raise FloatingPointError(
            f"The loss of epoch {epoch + 1} is NaN, but the data of ExplainNaN passes all "
            f"checks. {advice}"
        )

    def _batches(self) -> Any:
        if len(self._data) > 1 and self._data[1] is not None:
            return tf.data.Dataset.from_tensor_slices(self._data).batch(_CHECKED_AT_ONCE)
        data = self._data[0]
        is_indexed = isinstance(data, keras.utils.PyDataset)
        return (data[i] for i in range(data.num_batches)) if is_indexed else data

    def _check(self, x: Any, y: Any, sample_weight: Any) -> None:
        """Raises an error if a batch of examples does not pass the checks of a step."""
        outputs = keras.tree.flatten(outputs_without_logits(self.model, x))
        parts = [_by_output(one, self.model, len(outputs)) for one in (y, sample_weight)]
        losses = _by_output(self.model.loss, self.model, len(outputs))
        for output, loss, labels, weights in zip(outputs, losses, *parts, strict=True):
            tag = attached_tag(output)
            if tag is None:
                continue
            tag.loss = loss if hasattr(loss, "ignore_class") else None
            counted = tag.labels(labels).counted
            if weights is not None:
                weights = tf.reshape(per_example(weights, output), [-1])
                checks.finite(
                    tf.where(counted, weights, 0), "The `sample_weight` of `fit` must be finite"
                )
            tf.identity(tag.flat_features)


def _by_output(value: Any, model: keras.Model, count: int) -> list[Any]:
    """Returns an argument of `fit` or `compile` for each of the outputs."""
    if isinstance(value, dict):
        return [value.get(name) for name in model.output_names]
    return list(value) if isinstance(value, list | tuple) else [value] * count


def _is_finite(weight: keras.Variable) -> bool:
    is_float = "float" in str(weight.dtype)
    return not is_float or bool(checks.are_all_finite([tf.convert_to_tensor(weight.value)]))


class ModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """Saves a model during `fit`, and keeps the earlier save until the new one is complete.

    It has the arguments of `keras.callbacks.ModelCheckpoint`, which writes a file in place. If
    the process is killed during such a save, or the disk is full, the earlier save at the same
    path is lost. This callback writes the file `.unfinished.NAME` in the same folder, and then
    renames it to NAME. So the disk must have space for both. If the process is killed during a
    save, the unfinished file remains; the next save of this name replaces it. Paths of remote
    file systems (with `://`) are written as in Keras.

    ```python
    checkpoint = tflo.callbacks.ModelCheckpoint(
        "best.keras", monitor="val_loss", save_best_only=True
    )
    model.fit(x, y, validation_split=0.1, callbacks=[checkpoint])
    ```

    Raises:
        ValueError: As `keras.callbacks.ModelCheckpoint`.
        OSError: In `fit`, if a file cannot be written.
    """

    def set_model(self, model: keras.Model) -> None:
        super().set_model(_RenamedSaves(model))


class _RenamedSaves:
    """A model that saves to another name, and then renames the file."""

    def __init__(self, model: keras.Model) -> None:
        self._model = model

    def save(self, path: str, **options: Any) -> None:
        with nullcontext(path) if "://" in path else atomic_path(path) as unfinished:
            self._model.save(unfinished, **options)

    def save_weights(self, path: str, **options: Any) -> None:
        with nullcontext(path) if "://" in path else atomic_path(path) as unfinished:
            self._model.save_weights(unfinished, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class SamplerHealth(keras.callbacks.Callback):
    """Adds the state of the samplers to the logs at the end of each epoch.

    Callbacks after it in the list, such as `keras.callbacks.TensorBoard` and `CSVLogger`, write
    the numbers. This callback adds no work to a training step. For each `LargeOutput` with a
    sampler, the logs get these numbers; the name of the layer and "_" precede their names:

    * The numbers of `sampler.health(layer)`: `started_at`, the first step that searched, or -1;
      for an `InvertedFileSampler`, the sizes of the `largest`, `median` and `smallest` list and
      the share of `empty` lists; for an `LSHSampler`, numbers about its buckets.
    * `trained_rows`: the share of the class rows that a step has updated since the optimizer
      was built. A row counts as updated if its slot is not 0. So this number is available only
      with `LazyAdam`, or with an Adagrad that starts at 0. To count, all slots are read once.
    * `hardness`, if `x` is given: how hard the negatives are, from 0 to 1. The sampler draws
      negatives for some examples with the current weights. For each example, `hardness` is the
      share of the softmax probability of all classes but the labels that its distinct negatives
      have; the number is the mean over the examples. At 1, the negatives are all classes that
      matter. A small number that falls during training means that most negatives are already
      far below the label.

    The weights, the random numbers and the search structures do not change, so training is
    bit-identical with and without this callback. `hardness` takes a pass over all classes for
    `num_examples` examples, and a forward pass of the model without training.

    ```python
    health = tflo.callbacks.SamplerHealth(x_validation, y_validation)
    model.fit(x, y, callbacks=[health, keras.callbacks.TensorBoard()])
    ```

    Args:
        x: Inputs for `hardness`, as in `ExactMetrics`. Of a dataset, the first batch is used.
            None, the default, leaves out `hardness`.
        y: Labels, if `x` contains arrays.
        num_examples: Number of examples (positions of sequences) to draw negatives for. If the
            negatives that a batch shares depend on its examples, as for a pool of `LSHSampler`
            or `KernelTreeSampler`, pass the batch size. Defaults to 256.

    Raises:
        ValueError: As `ExactMetrics`.
    """

    def __init__(self, x: Any = None, y: Any = None, num_examples: int = 256) -> None:
        super().__init__()
        self._num_examples = whole_number("num_examples", num_examples)
        if x is not None:
            _require_labels("SamplerHealth", x, y)
        self._data = (x, y) if y is None else _sample_of((x, y, None), num_examples)[:2]
        self._measure: Callable[..., dict[str, tf.Tensor]] | None = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._measure = None  # the model may be another one

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is None:
            return
        layers = []
        for layer in all_layers(self.model):
            if not isinstance(layer, LargeOutput) or not layer.built or layer.sampler is None:
                continue
            layers.append(layer)
            found = {**layer.sampler.health(layer), **self._trained_rows(layer)}
            for name, value in found.items():
                if isinstance(value, int | float):
                    logs[f"{layer.name}_{name}"] = float(value)
        if self._data[0] is not None:
            logs.update(self._hardness(layers))

    def _hardness(self, layers: list[LargeOutput]) -> dict[str, float]:
        """Returns the hardness by layer, and restores what the draws change."""
        if self._measure is None:
            self._measure = tf.function(self._hardness_of_batch, autograph=False)
            x, y = self._data
            if y is None:  # a dataset: use its first batch
                batch = x[0] if isinstance(x, keras.utils.PyDataset) else next(iter(x))
                self._data = keras.utils.unpack_x_y_sample_weight(batch)[:2]
        counters = [
            (weight, weight.numpy())
            for layer in layers
            for weight in layer.non_trainable_variables
            if math.prod(weight.shape) <= LARGEST_COUNTER
        ]
        strategy = self.model.distribute_strategy
        with strategy.scope():
            found = strategy.run(self._measure, self._data)
        for weight, value in counters:
            weight.assign(value)
        return {
            f"{name}_hardness": float(strategy.experimental_local_results(value)[0])
            for name, value in found.items()
        }

    def _hardness_of_batch(self, x: Any, y: Any) -> dict[str, tf.Tensor]:
        if isinstance(y, dict) and getattr(self.model, "output_names", None):
            y = [y[name] for name in self.model.output_names]
        outputs = keras.tree.flatten(self.model(x, training=False))
        labels, losses = keras.tree.flatten(y), keras.tree.flatten(self.model.loss)
        found = {}
        for number, (output, y_true) in enumerate(zip(outputs, labels, strict=True)):
            tag = attached_tag(output)
            if isinstance(tag, SampledTag) and tag.head.sampler is not None:
                if len(losses) == len(outputs) and hasattr(losses[number], "ignore_class"):
                    tag.loss = losses[number]  # which says what the labels mean
                labels = tag.labels(y_true)
                found[tag.head.name] = _hardness(tag, labels, self._num_examples)
        return found

    def _trained_rows(self, layer: LargeOutput) -> dict[str, float]:
        """Returns the share of class rows whose slot is not 0, or {} without such slots."""
        optimizer = self.model.optimizer
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        tables = [one for one in layer.trainable_weights if "embeddings" in one.name]
        slots = "velocities" if isinstance(optimizer, keras.optimizers.Adam) else ""
        if isinstance(optimizer, keras.optimizers.Adagrad):
            slots = "" if optimizer.initial_accumulator_value else "accumulators"
        if not slots or not tables:
            return {}
        trained = sum(_count_trained(slot_of(optimizer, slots, table)) for table in tables)
        return {"trained_rows": trained / layer.num_classes}


def _hardness(tag: SampledTag, labels: Labels, num_examples: int) -> tf.Tensor:
    """Returns the mean `_softmax_mass` of negatives drawn now; NaN if no example has labels.

    The draw changes the seed of the layer and counters of the sampler, but no search structure.
    The examples to draw for are spread evenly over those that have labels.
    """
    head: Head = tag.head
    sampler: StepSampler = head.sampler  # type: ignore[assignment]  # not None
    previous = tag.previous_labels(labels) if sampler.uses_previous else None
    rows = tf.where(labels.counted)[:, 0]
    size = tf.shape(rows)[0]
    number = tf.minimum(size, num_examples)
    rows = tf.gather(rows, tf.range(number) * size // tf.maximum(number, 1))
    features = tf.cast(tf.gather(tag.queries, rows), tf.float32)
    ids = tf.gather(labels.ids, rows)
    if previous is not None:
        previous = tf.gather(previous, rows)
    sample = sampler.sample(features, ids, head, previous, in_step=False)
    classes: Any = head.class_matrix
    candidates = score_candidates(classes, features, ids, sample)
    ranking = head.ranking.value
    scorer = head.class_matrix.ranked_by(ranking)
    return tf.reduce_mean(_softmax_mass(candidates, features, scorer, ranking == "absolute"))


def _softmax_mass(
    candidates: Candidates, features: tf.Tensor, scorer: ClassScorer, absolute: bool = False
) -> tf.Tensor:
    """Returns the share of the softmax probability that the negatives of each example have.

    For an example with the labels Y, the distinct drawn classes S and the logits `o_c`, or
    `|o_c|` if `absolute`, it is `sum_{c in S - Y} e^{o_c} / sum_{c not in Y} e^{o_c}`; 0 if all
    classes are labels.
    """
    labels, shape = candidates.labels, tf.shape(candidates.labels)
    candidates = candidates._replace(remove_accidental_hits=True)
    ids = [
        tf.broadcast_to(one.sampled_candidates, tf.shape(one.products))
        for one in candidates.samples
    ]
    logits = candidates.logits()
    if absolute:
        logits = absolute_or_lowest(logits)
    of_negatives = tf.reduce_logsumexp(_first_of_equal(tf.concat(ids, axis=1), logits), axis=1)

    def add(total: tf.Tensor, scores: tf.Tensor, block: tf.Tensor) -> tf.Tensor:
        is_label = tf.reduce_any(labels[:, :, tf.newaxis] == block, axis=1)
        return blockwise.with_block(total, tf.where(is_label, NOTHING, scores))

    of_all = scorer.fold_logits(features, add, tf.fill(shape[:1], NOTHING), width=shape[1])
    share = tf.minimum(tf.exp(of_negatives - of_all), 1)
    return tf.where(tf.math.is_finite(of_all), share, 0)


def _first_of_equal(ids: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Returns the logits `[B, n]`, sorted by id; -inf for repeats and for the lowest float."""
    ids = tf.where(logits > logits.dtype.min, ids, -1)
    order = tf.argsort(ids, axis=1, stable=True)
    ids, logits = (tf.gather(one, order, batch_dims=1) for one in (ids, logits))
    is_first = tf.pad(ids[:, 1:] != ids[:, :-1], [[0, 0], [1, 0]], constant_values=True)
    return tf.where(is_first & (ids >= 0), logits, NOTHING)


def _count_trained(slot: keras.Variable) -> int:
    """Returns the number of rows that are not 0. Does not copy the slot."""
    count, value = 0, slot.value
    for first in range(0, slot.shape[0], _ROWS_AT_ONCE):
        block = value[first : first + _ROWS_AT_ONCE]
        nonzero = tf.reshape(block, [tf.shape(block)[0], -1]) != 0
        count += int(tf.math.count_nonzero(tf.reduce_any(nonzero, axis=1)))
    return count


def _require_labels(callback: str, x: Any, y: Any) -> None:
    """Raises a ValueError if `y` is None and `x` is not an iterable of batches."""
    if y is not None:
        return
    if any(hasattr(one, "shape") for one in keras.tree.flatten(x)):
        raise ValueError(
            "`y` must contain the labels if `x` contains arrays. Received: y=None. Pass "
            f"{callback}(x, y), or a tf.data.Dataset of batches (x, y)."
        )
    is_iterable = isinstance(x, keras.utils.PyDataset) or hasattr(x, "__iter__")
    if not is_iterable or isinstance(x, str | list | tuple | dict):
        raise ValueError(
            "`x` must be arrays, or a tf.data.Dataset or keras.utils.PyDataset of batches "
            f"(x, y). Received: x={x!r} (of type {type(x).__name__}). Pass {callback}(x, y)."
        )


def _sample_of(data: tuple[Any, Any, Any], count: int | None) -> tuple[Any, Any, Any]:
    """Returns `count` examples of `(x, y, sample_weight)`, drawn at random but in order."""
    for one in keras.tree.flatten(data):
        if isinstance(one, tf.SparseTensor | tf.RaggedTensor):
            raise ValueError(
                "`x`, `y` and `sample_weight` must be arrays. Received: a "
                f"{type(one).__name__}. Pass a tf.data.Dataset of batches as `x`."
            )
    arrays = keras.tree.map_structure(np.asarray, data, none_is_leaf=False)
    lengths = {len(one) for one in keras.tree.flatten(arrays) if one is not None and one.ndim}
    if len(lengths) != 1:
        raise ValueError(
            "`x`, `y` and `sample_weight` must be arrays with as many rows as there are "
            f"examples. Received arrays with these numbers of rows: {sorted(lengths)}."
        )
    number = lengths.pop()
    if count is not None and count < number:
        rows = np.sort(np.random.default_rng(0).permutation(number)[:count])
        arrays = keras.tree.map_structure(lambda one: one[rows], arrays, none_is_leaf=False)
    return keras.tree.map_structure(_without_strings, arrays, none_is_leaf=False)


def _without_strings(array: np.ndarray) -> np.ndarray | tf.Tensor:
    """Returns strings as a tensor, because `evaluate` does not accept NumPy strings."""
    return tf.constant(array) if array.dtype.kind in "SUO" else array
