"""`ModelCheckpoint`: a `keras.callbacks.ModelCheckpoint` whose saves are complete or absent."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import keras

from tf_largeout.atomic_file import atomic_path


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
        with _atomic(path) as unfinished:
            self._model.save(unfinished, **options)

    def save_weights(self, path: str, **options: Any) -> None:
        with _atomic(path) as unfinished:
            self._model.save_weights(unfinished, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def _atomic(path: str) -> AbstractContextManager[str]:
    return nullcontext(path) if "://" in path else atomic_path(path)
