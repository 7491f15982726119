"""Settings of the row-sparse optimizers, for both backends: arguments, configs and checks.

An optimizer inherits from its settings first, then from the `RowSparse` of its backend, which
inherits from `RowSparseSettings`, and then from the Keras optimizer.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import keras

from tf_largeout.arguments import boolean, is_real, real_number, whole_number
from tf_largeout.wrong_arguments import OF_OPTIMIZERS, refuse_wrong_arguments

_Rate: TypeAlias = float | keras.optimizers.schedules.LearningRateSchedule | Callable[[], float]


class RowSparseSettings(keras.optimizers.Optimizer):
    """Checks of a row-sparse optimizer: its settings, and the variables that it updates."""

    def __new__(cls, *args: Any, **kwargs: Any) -> "RowSparseSettings":
        refuse_wrong_arguments(cls.__name__, kwargs, OF_OPTIMIZERS)
        return super().__new__(cls)

    def __init__(self, **settings: Any) -> None:
        _check(settings)
        super().__init__(**settings)

    def check_number(self, grads: Sequence[Any], variables: Sequence[Any]) -> None:
        """Raises a ValueError if there is not one gradient, or None, for each variable."""
        if len(variables) != len(grads):
            raise ValueError(
                "Expected one gradient (or None) for each variable. Received: "
                f"{len(grads)} gradients and {len(variables)} variables."
            )

    def check_sparse(self, variable: Any, is_rounded: bool) -> None:
        """Raises a ValueError if the optimizer cannot update only some rows of a variable.

        `is_rounded` tells whether the variable has class rows in bfloat16.
        """
        dtype = keras.backend.standardize_dtype(variable.dtype)
        if dtype != "float32" and not is_rounded:
            raise ValueError(
                f"{type(self).__name__} updates float32 variables by rows. Received: variable "
                f"'{getattr(variable, 'path', variable.name)}' of dtype {variable.dtype} with "
                "a sparse gradient. Keep it in float32 (the policies mixed_bfloat16 and "
                "mixed_float16 do)."
            )
        if self.use_ema:
            self._refuse("use_ema", variable, "Average checkpoints after training")
        if self.gradient_accumulation_steps:
            larger = f"Use a batch that is {self.gradient_accumulation_steps} times as large"
            self._refuse("gradient_accumulation_steps", variable, larger)
        if getattr(variable, "constraint", None) is not None:
            self._refuse("constraint", variable, "Remove the constraint")

    def _refuse(self, option: str, variable: Any, instead: str) -> None:
        of_keras = next(
            one.__name__ for one in type(self).__mro__ if one.__module__.startswith("keras.")
        )
        raise ValueError(
            f"{option} reads and writes every row of variable "
            f"'{getattr(variable, 'path', variable.name)}' of shape {tuple(variable.shape)} in "
            f"each step, but its gradient is sparse and {type(self).__name__} updates only the "
            f"rows in it. {instead}, or use keras.optimizers.{of_keras}."
        )


class AdamSettings(keras.optimizers.Optimizer):
    """The arguments and the config of `LazyAdam`."""

    def __init__(
        self,
        learning_rate: _Rate = 3e-3,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        weight_decay: float | None = None,
        decay_skipped: bool = True,
        row_beta_1: float = 0.0,
        row_step_offset: int = 300,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            learning_rate=learning_rate,
            beta_1=beta_1,
            beta_2=beta_2,
            epsilon=epsilon,
            weight_decay=weight_decay,
            name=name,
            **kwargs,
        )
        self.decay_skipped = boolean("decay_skipped", decay_skipped)
        self.row_beta_1 = real_number("row_beta_1", row_beta_1, 0, most=1, allow_most=False)
        self.row_step_offset = whole_number("row_step_offset", row_step_offset, least=0)

    def get_config(self) -> dict[str, Any]:
        """Returns the config, without `amsgrad`."""
        config = super().get_config()
        del config["amsgrad"]
        return config | {
            "decay_skipped": self.decay_skipped,
            "row_beta_1": self.row_beta_1,
            "row_step_offset": self.row_step_offset,
        }


class RowwiseAdagradSettings(keras.optimizers.Optimizer):
    """The arguments of `RowwiseAdagrad`."""

    def __init__(
        self,
        learning_rate: _Rate = 0.1,
        initial_accumulator_value: float = 0.0,
        epsilon: float = 1e-7,
        weight_decay: float | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            learning_rate=learning_rate,
            initial_accumulator_value=initial_accumulator_value,
            epsilon=epsilon,
            weight_decay=weight_decay,
            name=name,
            **kwargs,
        )


def _check(settings: Mapping[str, Any]) -> None:
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
