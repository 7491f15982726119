"""In which kind of step a layer is being called."""

import inspect

import keras

_TRAINING_OF_STEP = {"train_step": True, "test_step": False, "predict_step": False}


def training_of_step() -> bool | None:
    """Whether the step of a model that is on the call stack trains; None where none is.

    Keras tells the layers of a subclassed model that they train only if the model's own
    `call` takes `training`. Without this look a sampled loss would turn exact there, and
    each step O(num_classes), without a word.
    """
    frame = inspect.currentframe()
    while frame is not None:
        name = frame.f_code.co_name.removeprefix("tf__")  # AutoGraph's
        if name in _TRAINING_OF_STEP and isinstance(frame.f_locals.get("self"), keras.Model):
            return _TRAINING_OF_STEP[name]
        frame = frame.f_back
    return None
