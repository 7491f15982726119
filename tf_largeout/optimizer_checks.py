"""Checks of the row-sparse optimizers: their settings, and the variables that they update."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from tf_largeout.arguments import boolean, is_real, real_number


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raises a ValueError for a setting out of range, which Keras would accept."""
    for name, value in settings.items():
        if name in ("beta_1", "beta_2"):
            real_number(name, value, least=0, most=1, allow_most=False)
        elif name in ("epsilon", "initial_accumulator_value", "momentum"):
            real_number(name, value, least=0)
        elif name == "weight_decay" and value is not None:
            real_number(name, value, least=0)
        elif name == "learning_rate" and is_real(value):  # or a schedule
            real_number(name, value, least=0)
        elif name == "nesterov":
            boolean(name, value)
        elif name == "amsgrad" and value:
            raise ValueError(
                "LazyAdam has no amsgrad variant. Received: amsgrad=True. Leave it out, or use "
                "keras.optimizers.Adam, which updates every row in each step."
            )


def check_number(grads: Sequence[Any], variables: Sequence[Any]) -> None:
    """Raises a ValueError if there is not one gradient, or None, for each variable."""
    if len(variables) != len(grads):
        raise ValueError(
            "Expected one gradient (or None) for each variable. Received: "
            f"{len(grads)} gradients and {len(variables)} variables."
        )


def check_sparse(
    optimizer: keras.optimizers.Optimizer, variable: Any, is_rounded: bool
) -> None:
    """Raises a ValueError if an optimizer cannot update some rows of a variable.

    `is_rounded` tells whether the variable has class rows that may be in bfloat16.
    """
    path, name = getattr(variable, "path", variable.name), type(optimizer).__name__
    if keras.backend.standardize_dtype(variable.dtype) != "float32" and not is_rounded:
        raise ValueError(
            f"{name} updates float32 variables by rows. Received: variable '{path}' of dtype "
            f"{variable.dtype} with a sparse gradient. Keep it in float32 (the policies "
            "mixed_bfloat16 and mixed_float16 do)."
        )
    accumulated = optimizer.gradient_accumulation_steps
    options = {
        "use_ema": (optimizer.use_ema, "Average checkpoints after training"),
        "gradient_accumulation_steps": (
            accumulated,
            f"Use a batch that is {accumulated} times as large",
        ),
        "constraint": (getattr(variable, "constraint", None), "Remove the constraint"),
    }
    for option, (value, instead) in options.items():
        if value:
            of_keras = next(
                one.__name__
                for one in type(optimizer).__mro__
                if one.__module__.startswith("keras.")
            )
            raise ValueError(
                f"{option} reads and writes every row of variable '{path}' of shape "
                f"{tuple(variable.shape)} in each step, but its gradient is sparse and {name} "
                f"updates only the rows in it. {instead}, or use keras.optimizers.{of_keras}."
            )
