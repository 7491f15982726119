"""`SamplerHealth`: numbers about the samplers and the class rows, for the logs of `fit`."""

from typing import Any

import keras
import tensorflow as tf

from tf_largeout.keras_internals import all_layers, slot_of
from tf_largeout.layers import LargeOutput

_ROWS_AT_ONCE = 65536


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

    ```python
    model.fit(x, y, callbacks=[tflo.callbacks.SamplerHealth(), keras.callbacks.TensorBoard()])
    ```
    """

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is None:
            return
        for layer in all_layers(self.model):
            if isinstance(layer, LargeOutput) and layer.built and layer.sampler is not None:
                found = {**layer.sampler.health(layer), **self._trained_rows(layer)}
                numbers = {
                    f"{layer.name}_{name}": float(value)
                    for name, value in found.items()
                    if isinstance(value, int | float)
                }
                logs.update(numbers)

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
