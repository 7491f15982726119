"""`require_compiled`: checks that a model is built and compiled."""

import keras


def require_compiled(model: keras.Model, before: str) -> None:
    """Raises a ValueError unless the model is built and compiled.

    Args:
        model: The model.
        before: What the model is needed for, as text for the message.
    """
    if not model.built or getattr(model, "optimizer", None) is None:
        raise ValueError(
            f"A model must be built and compiled before {before}. Received: model "
            f"'{model.name}'. Give it a `keras.Input`, or call it on a batch, and compile it."
        )
