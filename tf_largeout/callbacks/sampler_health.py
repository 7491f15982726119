"""`SamplerHealth`: numbers about the samplers and the class rows, for the logs of `fit`."""

import math
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tf_largeout.arguments import whole_number
from tf_largeout.callbacks.examples import require_labels, sample_of
from tf_largeout.keras_internals import all_layers, slot_of
from tf_largeout.layers import LargeOutput
from tf_largeout.steps.hardness import hardness
from tf_largeout.steps.output_tag import SampledTag, attached_tag

_ROWS_AT_ONCE = 65536
_LARGEST_COUNTER = 1024  # numbers; a draw changes the seed and counters, which are small


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
        x: Inputs for `hardness`: arrays in the structure of the model's inputs, or a
            `tf.data.Dataset` or `keras.utils.PyDataset`, whose first batch is used. None, the
            default, leaves out `hardness`.
        y: Labels, if `x` contains arrays.
        num_examples: Number of examples (positions of sequences) to draw negatives for. If the
            negatives that a batch shares depend on its examples, as for a pool of `LSHSampler`
            or `KernelTreeSampler`, pass the batch size. Defaults to 256.

    Raises:
        ValueError: If `num_examples` is not a positive integer, the arrays have different
            lengths, `y` is missing for arrays, or an argument is a sparse or ragged tensor.
    """

    def __init__(self, x: Any = None, y: Any = None, num_examples: int = 256) -> None:
        super().__init__()
        self._num_examples = whole_number("num_examples", num_examples)
        if x is not None:
            require_labels("SamplerHealth", x, y)
        self._data = (x, y) if y is None else sample_of((x, y, None), num_examples)[:2]
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
            numbers = {
                f"{layer.name}_{name}": float(value)
                for name, value in found.items()
                if isinstance(value, int | float)
            }
            logs.update(numbers)
        if self._data[0] is not None:
            logs.update(self._hardness(layers))

    def _hardness(self, layers: list[LargeOutput]) -> dict[str, float]:
        """Returns the hardness by layer, and restores what the draws change."""
        if self._measure is None:
            self._measure = tf.function(self._hardness_of_batch, autograph=False)
            self._data = _first_batch(*self._data)
        counters = [
            (weight, weight.numpy())
            for layer in layers
            for weight in layer.non_trainable_variables
            if math.prod(weight.shape) <= _LARGEST_COUNTER
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
                found[tag.head.name] = hardness(tag, labels, self._num_examples)
        return found

    def _trained_rows(self, layer: LargeOutput) -> dict[str, float]:
        """Returns the share of class rows whose slot is not 0, or {} without such slots."""
        optimizer = self.model.optimizer
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        tables = [one for one in layer.trainable_weights if "embeddings" in one.name]
        slots = _slots_that_start_at_zero(optimizer)
        if slots is None or not tables:
            return {}
        trained = sum(_count_trained(slot_of(optimizer, slots, table)) for table in tables)
        return {"trained_rows": trained / layer.num_classes}


def _slots_that_start_at_zero(optimizer: keras.optimizers.Optimizer) -> str | None:
    """Returns the name of the slots that an update of a row raises above 0, or None."""
    if isinstance(optimizer, keras.optimizers.Adam):
        return "velocities"
    if isinstance(optimizer, keras.optimizers.Adagrad):
        return None if optimizer.initial_accumulator_value else "accumulators"
    return None


def _count_trained(slot: keras.Variable) -> int:
    """Returns the number of rows that are not 0. Does not copy the slot."""
    count, value = 0, slot.value
    for first in range(0, slot.shape[0], _ROWS_AT_ONCE):
        block = value[first : first + _ROWS_AT_ONCE]
        nonzero = tf.reshape(block, [tf.shape(block)[0], -1]) != 0
        count += int(tf.math.count_nonzero(tf.reduce_any(nonzero, axis=1)))
    return count


def _first_batch(x: Any, y: Any) -> tuple[Any, Any]:
    """Returns `(x, y)`, or the first batch of `x` if `y` is None."""
    if y is not None:
        return x, y
    batch = x[0] if isinstance(x, keras.utils.PyDataset) else next(iter(x))
    return keras.utils.unpack_x_y_sample_weight(batch)[:2]
