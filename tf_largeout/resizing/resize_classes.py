"""`resize_classes`: a trained model with more, fewer or other classes."""

from typing import Any

import keras
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
    features: Any = None,
) -> keras.Model:
    """Returns a copy of a trained model with other classes.

    New class i below `len(kept)` is the old class `kept[i]`. It keeps its row, bias, optimizer
    slots and label counts, and training continues as if the class had always had the id i. All
    other classes are new. The copy has the compile arguments, iterations, learning rate and
    random states of `model`. `model` itself does not change. If the classes are the same,
    training the copy is bit-identical to training `model`.

    New classes get rows from `initializer`, biases from the initializer of the layer, and the
    slots of a new optimizer. Samplers that draw by frequency give them a count of 0; call
    `adapt` to set other counts. The next step rebuilds the search structures of samplers,
    unless the classes are the same. In a `HierarchicalOutput` new classes are assigned to the
    smallest clusters, and empty clusters are removed. A tied table (`embeddings=`) is resized
    too, so the ids at the input change as well. If an `ItemTower` computes the rows, new
    classes need `features`. The encoder and the free rows are kept, and new free rows start at
    0. A sharded layer keeps its number of shards.
    Rows and slots are copied from server to server, not through this process.

    ```python
    model = keras.Sequential([keras.Input([16]), tflo.layers.LargeOutput(1_000)])
    model.compile(tflo.optimizers.LazyAdam(3e-3), tflo.losses.SoftmaxLoss())
    model.fit(np.zeros([8, 16]), np.arange(8), verbose=0)
    grown = tflo.resize_classes(model, 1_200)
    without_first = tflo.resize_classes(model, 999, kept=np.arange(1, 1_000))
    ```

    Args:
        model: A built `Sequential`, functional or subclassed model with one `LargeOutput`,
            `FactoredOutput` or `HierarchicalOutput`, at any depth. The copy is made from its
            config, which must be complete, as for `.keras` files.
        num_classes: Number of classes of the copy, from 1 to 2^31 - 2.
        kept: Old ids in their new order, each at most once. By default all ids below
            `num_classes`, unchanged.
        initializer: Rows of the new classes: a Keras initializer, or an array
            `[num_classes - len(kept), dim]`, such as embeddings of their texts. By default the
            initializer of the layer. If the layer was initialized with an array, the default
            initializer of its class. A layer with an `ItemTower` takes `features` instead.
        features: Features of the new classes, for a layer with an `ItemTower`: arrays
            `[num_classes - len(kept), ...]` in the structure of the tower's features.

    Returns:
        The new model, compiled if `model` is.

    Raises:
        ValueError: If `num_classes` is out of range, `kept` is not a vector of distinct old
            ids, or `initializer` is not an initializer or such an array. It is also raised if
            the model is not built, does not have exactly one class output layer, or cannot be
            made from its config with this number of classes; and if `features` or `initializer`
            do not fit the layer: an `ItemTower` needs features of all new classes.
    """
    head = class_output(model)
    if not head.built:
        raise ValueError(
            f"Layer '{head.name}' of model '{model.name}' is not built, so it has no classes "
            "to keep. Call the model on data first, or make a new model."
        )
    change = ClassChange(head.num_classes, num_classes, kept, features)
    _check_source_of_rows(head, initializer, features)
    with model.distribute_strategy.scope():
        new_rows = _new_rows(initializer, change.num_new, head.class_matrix.dim)
        copy, new_head, compile_config = copy_of(model, head, change)
        _copy_others(model, copy, new_head, change)
        changed = new_head.take_classes(head, change, new_rows)
        if compile_config:
            copy.compile_from_config(compile_config)
            by_variable = {id(variable): of_rows for variable, of_rows in changed}
            copy_state(model.optimizer, copy.optimizer, change, by_variable)
    return copy


def _check_source_of_rows(head: ClassOutput, initializer: Any, features: Any) -> None:
    has_tower = getattr(head, "tower", None) is not None
    if has_tower and initializer is not None:
        raise ValueError(
            f"An ItemTower computes the rows of layer '{head.name}' from features. Received: "
            "`initializer`. Pass `features` of the new classes instead."
        )
    if features is not None and not has_tower:
        raise ValueError(
            f"`features` is for a layer whose rows an ItemTower computes. Layer '{head.name}' "
            "has a table of rows. Pass the rows of the new classes as `initializer`."
        )


def _new_rows(
    initializer: InitializerLike | TensorLike | None, num_new: int, dim: int
) -> tf.Tensor | None:
    """Returns float32 `[num_new, dim]`, the rows of the new classes; None for default rows."""
    if initializer is None:
        return None
    chosen = initializers.get("initializer", initializer, keras.initializers.Zeros())
    if isinstance(chosen, initializers.ArrayInitializer):
        if chosen.values.shape != (num_new, dim):
            raise ValueError(
                "An array in `initializer` must have one row for each of the "
                f"{num_new} new classes, so its shape must be {(num_new, dim)}. Received: an "
                f"array of shape {chosen.values.shape} and dtype {chosen.values.dtype}."
            )
    return tf.cast(chosen((num_new, dim), dtype="float32"), tf.float32)


def _copy_others(
    model: keras.Model, copy: keras.Model, head: ClassOutput, change: ClassChange
) -> None:
    """Copies all variables except those of the class output layer and of layers tied to it."""
    of_head = set(map(id, head.variables))
    old, new = model.variables, copy.variables
    names = [[one.name for one in variables] for variables in (old, new)]
    if names[0] != names[1]:
        raise ValueError(
            f"Model '{model.name}' has the variables {names[0]}, but a model made from its "
            f"config has {names[1]}. Make the configs of its layers complete, or build the "
            "resized model in your code."
        )
    for before, after in zip(old, new, strict=True):
        if id(after) not in of_head:
            change.copy(before, after)
