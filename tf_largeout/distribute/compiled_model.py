"""What is asked of a model before its training is looked after."""

import keras


def require_compiled(model: keras.Model, before: str) -> None:
    """Raises a ValueError unless the model is built and compiled.

    Args:
        model: The model.
        before: What it must be that for, as the message calls it.
    """
    if not model.built or getattr(model, "optimizer", None) is None:
        raise ValueError(
            f"Build and compile a model before {before}: give it a `keras.Input`, or call it "
            f"on a batch. Received: model '{model.name}'."
        )
