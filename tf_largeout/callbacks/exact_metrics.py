"""`ExactMetrics`: the metrics of `evaluate` on a small sample, during `fit`."""

from typing import Any

import keras

from tf_largeout.arguments import whole_number
from tf_largeout.callbacks.examples import require_labels, sample_of


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
        require_labels("ExactMetrics", x, y)
        data = (x, y, sample_weight)
        self._x, self._y, self._weight = data if y is None else sample_of(data, count)
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
        found = self.model.evaluate(
            self._x,
            self._y,
            sample_weight=self._weight,
            batch_size=self._batch_size,
            verbose=0,
            return_dict=True,
        )
        for variable, value in zip(metrics, before, strict=True):
            variable.assign(value)
        self.results.append({"step": step, **found})

    def _add_to(self, logs: dict[str, Any] | None) -> None:
        if logs is not None and self.results:
            for name, value in self.results[-1].items():
                if name != "step":
                    logs[f"{self._prefix}{name}"] = value
