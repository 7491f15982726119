"""A trained model with more, fewer or other classes."""

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.layers import ClassOutput
from tf_largeout.resizing.model_copy import class_output, copy_of
from tf_largeout.resizing.optimizer_slots import copy_state
from tf_largeout.types import InitializerLike, TensorLike
from tf_largeout.variables import initializers


def resize_classes(
    model: keras.Model,
    num_classes: int,
    kept: TensorLike | None = None,
    initializer: InitializerLike | TensorLike | None = None,
) -> keras.Model:
    """A copy of a model, trained so far, whose classes are other ones.

    New class i below `len(kept)` is the class that was `kept[i]`, with its row, its bias, its
    optimizer slots and its label counts, and training goes on as if it had always had that
    number; the others are new. Compile arguments, iterations, learning rate and random states
    are those of `model`, which stays as it is. With the classes that it has, the copy trains
    to the bits that `model` would.

    New classes have rows from `initializer`, biases from that of the layer, and the slots of a
    new optimizer. In samplers by frequency they count as never seen: call `adapt` for other
    counts. What samplers search in is built anew by the next step, of the rows of then, unless
    the classes are the same. In a `HierarchicalOutput` they join the smallest clusters, and
    clusters without a class go. A table that is tied (`embeddings=`) has other rows too, so
    the ids at the input are the new ones as well. A layer in shards has as many again, of other
    bounds, whose rows and slots come from where they were without passing through this process.

    ```python
    model = keras.Sequential([keras.Input([16]), tflo.layers.LargeOutput(1_000)])
    model.compile(tflo.optimizers.LazyAdam(3e-3), tflo.losses.SoftmaxLoss())
    model.fit(np.zeros([8, 16]), np.arange(8), verbose=0)
    grown = tflo.resize_classes(model, 1_200)
    without_first = tflo.resize_classes(model, 999, kept=np.arange(1, 1_000))
    ```

    Args:
        model: A `Sequential`, functional or subclassed model, built, with one `LargeOutput`,
            `FactoredOutput` or `HierarchicalOutput`, also inside of models in it. It is made
            anew from its config, so that must say all, as for `.keras` files.
        num_classes: Number of classes of the copy, from 1 to 2^31 - 2.
        kept: Old ids in their new order, each at most once. By default all that are below
            `num_classes`, each where it was.
        initializer: Rows of the new classes: an initializer of Keras, or an array
            `[num_classes - len(kept), dim]`, such as embeddings of their texts. By default the
            layer's own initializer; where that was an array, the default one.

    Returns:
        The new model, compiled if `model` is.

    Raises:
        ValueError: If an argument is none such, the model is not built, has no class output
            layer or several, or cannot be made from its config with so many classes.
    """
    head = class_output(model)
    if not head.built:
        raise ValueError(
            f"Layer '{head.name}' of model '{model.name}' is not built: it has no classes to "
            "keep. Call the model on data first, or make a new one."
        )
    change = ClassChange(head.num_classes, num_classes, kept)
    with model.distribute_strategy.scope():
        new_rows = _new_rows(initializer, change.num_new, head.class_matrix.dim)
        copy = copy_of(model, head, change)
        _copy_others(model, copy.model, copy.head, change)
        changed = copy.head.take_classes(head, change, new_rows)
        if copy.compile_config:
            copy.model.compile_from_config(copy.compile_config)
            by_variable = {id(variable): of_rows for variable, of_rows in changed}
            copy_state(model.optimizer, copy.model.optimizer, change, by_variable)
    return copy.model


def _new_rows(
    initializer: InitializerLike | TensorLike | None, num_new: int, dim: int
) -> tf.Tensor | None:
    """The rows that `initializer` gives, float32 `[num_new, dim]`; None where it is None."""
    if initializer is None:
        return None
    chosen = initializers.get("initializer", initializer, keras.initializers.Zeros())
    if isinstance(chosen, initializers.ArrayInitializer):
        if chosen.values.shape != (num_new, dim) or not np.all(np.isfinite(chosen.values)):
            raise ValueError(
                "An array in `initializer` must be finite numbers, one row for each of the "
                f"{num_new} new classes: of shape {(num_new, dim)}. Received: an array of "
                f"shape {chosen.values.shape} and dtype {chosen.values.dtype}"
                f"{'' if np.all(np.isfinite(chosen.values)) else ', not all finite'}."
            )
    return tf.cast(chosen((num_new, dim), dtype="float32"), tf.float32)


def _copy_others(
    model: keras.Model, copy: keras.Model, head: ClassOutput, change: ClassChange
) -> None:
    """Copies all variables but those of the class output layer and what is tied to it."""
    own = set(map(id, head.variables))
    old, new = model.variables, copy.variables
    names = [[one.name for one in variables] for variables in (old, new)]
    if names[0] != names[1]:
        raise ValueError(
            f"Model '{model.name}' has other variables than one made from its config: "
            f"{names[0]} against {names[1]}. What the config of a layer does not say must be "
            "made by your own code."
        )
    for before, after in zip(old, new, strict=True):
        if id(after) not in own:
            change.copy(before, after)
