"""`ModelCheckpoint`: a `keras.callbacks.ModelCheckpoint` whose saves are complete or absent."""

import os
from collections.abc import Callable
from typing import Any

import keras


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

    Args:
        *args: As in `keras.callbacks.ModelCheckpoint`.
        **kwargs: As in `keras.callbacks.ModelCheckpoint`.

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
        _save_and_rename(self._model.save, path, options)

    def save_weights(self, path: str, **options: Any) -> None:
        _save_and_rename(self._model.save_weights, path, options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def _save_and_rename(save: Callable[..., None], path: str, options: dict[str, Any]) -> None:
    if "://" in path:
        save(path, **options)
        return
    folder, name = os.path.split(path)
    unfinished = os.path.join(folder, f".unfinished.{name}")
    try:
        save(unfinished, **options)
        with open(unfinished, "rb") as file:
            os.fsync(file.fileno())  # some file systems report a full disk only here
        os.replace(unfinished, path)
    except BaseException:
        if os.path.isfile(unfinished):
            os.remove(unfinished)
        raise
