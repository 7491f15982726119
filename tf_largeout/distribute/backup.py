"""`Backup`: a callback that saves a run, so that it can resume after a failure."""

import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from tf_largeout.arguments import whole_number
from tf_largeout.distribute.fit import require_compiled

_PARTS = "*_temp"  # files of a checkpoint that TensorFlow did not complete


class Backup(keras.callbacks.Callback):
    """Saves model and optimizer after epochs, and resumes from the last backup.

    Each server writes its rows and slots to `folder` as a TensorFlow checkpoint, without
    sending them to the trainer. A model with any number of shards can read them. A backup is
    deleted when the next one is complete. If a server or the trainer ends, or the disk is full,
    only the epochs since the last backup are lost. Restart the servers that ended, and then the
    trainer.

    ```
    tflo.distribute.connect(addresses)
    model = ...  # compiled
    backup = tflo.distribute.Backup(model, "/shared/run_1")
    model.fit(data, epochs=30, initial_epoch=backup.restore(), callbacks=[backup])
    ```

    The resumed run is bit-identical to an uninterrupted run if the data of an epoch depend only
    on the number of the epoch. With a stream of data, skip the batches of completed epochs. The
    state of other callbacks is not saved.

    Args:
        model: The model to save; built and compiled.
        folder: A path that all machines can access, or a URL that TensorFlow can write to.
        save_freq: Number of epochs between backups.

    Raises:
        ValueError: If the model is not built or not compiled, or `save_freq` is not a positive
            integer.
    """

    def __init__(
        self, model: keras.Model, folder: str | os.PathLike[str], save_freq: int = 1
    ) -> None:
        super().__init__()
        require_compiled(model, "`Backup`")
        self._save_freq = whole_number("save_freq", save_freq)
        model.optimizer.build(model.trainable_variables)
        self.folder = os.fspath(folder)
        self._epoch = tf.Variable(0, dtype=tf.int64, trainable=False)
        # Random states, such as dropout's, which Keras checkpoints do not include.
        known = {id(one) for one in [*model.weights, *model.metrics_variables]}
        checkpoint = tf.train.Checkpoint(
            model=model,
            optimizer=model.optimizer,
            epoch=self._epoch,
            random=[one.value for one in model.variables if id(one) not in known],
            **_inner_optimizers(model.optimizer),
        )
        self._manager = tf.train.CheckpointManager(checkpoint, self.folder, max_to_keep=1)

    def restore(self) -> int:
        """Restores the last backup, if there is one.

        Returns:
            The number of completed epochs, for `initial_epoch` of `fit`; 0 without a backup.

        Raises:
            ValueError: If it is a backup of another model.
        """
        if os.path.isdir(self.folder):
            for part in pathlib.Path(self.folder).glob(_PARTS):
                shutil.rmtree(part, ignore_errors=True)
        path = self._manager.latest_checkpoint
        if path is None:
            return 0
        try:
            self._manager.checkpoint.restore(path).assert_existing_objects_matched()
        except (AssertionError, ValueError, tf.errors.InvalidArgumentError) as error:
            raise ValueError(
                f"{path} must be a backup of this model. Received: a backup of another model. "
                f"Use a new folder for each run. {error}"
            ) from error
        return int(self._epoch)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        if (epoch + 1) % self._save_freq == 0:
            self._epoch.assign(epoch + 1)
            self._manager.save()


def _inner_optimizers(optimizer: Any) -> dict[str, Any]:
    """Returns the optimizers in a MultiOptimizer, which its checkpoint does not include."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # of a LossScaleOptimizer
    inner = getattr(optimizer, "optimizers", [])
    return {"inner_optimizers": list(inner)} if inner else {}
