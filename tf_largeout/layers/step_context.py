"""From where a layer is being called: in which kind of step."""

from collections.abc import Iterator

import keras

from tf_largeout import keras_internals

_TRAINING_OF_STEP = {"train_step": True, "test_step": False, "predict_step": False}


def training_of_step() -> bool | None:
    """Whether the step of a model that is on the call stack trains; None where none is.

    Keras tells the layers of a subclassed model that they train only if the model's own
    `call` takes `training`. Without this look a sampled loss would turn exact there, and
    each step O(num_classes), without a word.
    """
    for name, _ in _steps_on_the_stack():
        return _TRAINING_OF_STEP[name]
    return None


def training_model() -> keras.Model | None:
    """The model whose `train_step` is on the call stack, or None."""
    return next((model for name, model in _steps_on_the_stack() if name == "train_step"), None)


def _steps_on_the_stack() -> Iterator[tuple[str, keras.Model]]:
    """The steps of models that this is called from, inner ones first: name and model."""
    for frame in keras_internals.frames():
        name = frame.f_code.co_name.removeprefix("tf__")  # AutoGraph's
        model = frame.f_locals.get("self")
        if name in _TRAINING_OF_STEP and isinstance(model, keras.Model):
            yield name, model
