"""`Backup`: a callback from whose files a run goes on when a machine or a program has ended."""

import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from tf_largeout.arguments import whole_number
from tf_largeout.distribute.compiled_model import require_compiled

_PARTS = "*_temp"  # what TensorFlow leaves of a checkpoint that was not finished


class Backup(keras.callbacks.Callback):
    """Saves model and optimizer after epochs, and goes on from there.

    Each server writes the rows and slots that it has, into `folder`, by TensorFlow's
    checkpoints; nothing of them passes through the trainer, and any number of shards reads
    them. The last backup is deleted when the next is whole. So whatever ends, a server, the
    trainer, or the room on the disk, costs the epochs since the last backup: start the servers
    that ended, then the trainer, and it goes on.

    ```
    tflo.distribute.connect(addresses)
    model = ...  # compiled
    backup = tflo.distribute.Backup(model, "/shared/run_1")
    model.fit(data, epochs=30, initial_epoch=backup.restore(), callbacks=[backup])
    ```

    The run is that which nothing interrupted, to the bit, where the data are the same in each
    epoch, or those of the epoch: of a stream, leave out the batches of the epochs that are
    done. What other callbacks count for themselves is not saved. (`keras.callbacks.
    BackupAndRestore` works too, and writes one file, through the memory of the trainer.)

    Args:
        model: What is trained; compiled, and built.
        folder: A path that all machines reach, or a URL that TensorFlow can write to.
        save_freq: After how many epochs to save.

    Raises:
        ValueError: If the model is not built or not compiled, or `save_freq` is no such number.
    """

    def __init__(
        self, model: keras.Model, folder: str | os.PathLike[str], save_freq: int = 1
    ) -> None:
        super().__init__()
        require_compiled(model, "its Backup")
        self._save_freq = whole_number("save_freq", save_freq)
        model.optimizer.build(model.trainable_variables)
        self.folder = os.fspath(folder)
        self._epoch = tf.Variable(0, dtype=tf.int64, trainable=False)
        checkpoint = tf.train.Checkpoint(
            model=model,
            optimizer=model.optimizer,
            epoch=self._epoch,
            random=_random(model),
            **_inner_optimizers(model.optimizer),
        )
        self._manager = tf.train.CheckpointManager(checkpoint, self.folder, max_to_keep=1)

    def restore(self) -> int:
        """Takes the last backup, if there is one.

        Returns:
            How many epochs it has seen, for `initial_epoch` of `fit`; 0 without one.

        Raises:
            ValueError: If it is one of another model.
        """
        for rest in _left_behind(self.folder):
            shutil.rmtree(rest, ignore_errors=True)
        path = self._manager.latest_checkpoint
        if path is None:
            return 0
        try:
            self._manager.checkpoint.restore(path).assert_existing_objects_matched()
        except (AssertionError, ValueError, tf.errors.InvalidArgumentError) as error:
            raise ValueError(
                f"{path} is a backup of another model than '{self.folder}' is to be for. Give "
                f"each run a folder of its own. {error}"
            ) from error
        return int(self._epoch)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        if (epoch + 1) % self._save_freq == 0:
            self._epoch.assign(epoch + 1)
            self._manager.save()


def _inner_optimizers(optimizer: Any) -> dict[str, Any]:
    """Those of a MultiOptimizer, which a checkpoint of it leaves out."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # of a LossScaleOptimizer
    inner = getattr(optimizer, "optimizers", [])
    return {"inner_optimizers": list(inner)} if inner else {}


def _random(model: keras.Model) -> list[tf.Variable]:
    """States of random numbers, as of dropout, which checkpoints of Keras models leave out."""
    known = {id(one) for one in [*model.weights, *model.metrics_variables]}
    return [one.value for one in model.variables if id(one) not in known]


def _left_behind(folder: str) -> Iterator[pathlib.Path]:
    return pathlib.Path(folder).glob(_PARTS) if os.path.isdir(folder) else iter(())
