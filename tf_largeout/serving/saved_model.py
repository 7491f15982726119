"""`export`: saves a model as a SavedModel whose signatures return the best classes."""

import functools
import os
import tempfile
import time
import uuid
from typing import Any, Literal

import keras
import tensorflow as tf

from tf_largeout.arguments import is_int8, one_of, whole_number
from tf_largeout.classes.class_scorer import RowScorer
from tf_largeout.classes.probabilities import Scores
from tf_largeout.layers import ClassOutput
from tf_largeout.serving import class_names as class_names_file
from tf_largeout.serving.class_names import ClassNames
from tf_largeout.serving.class_scores import (
    ListIndex,
    ServedIndex,
    exact_classes,
    indexed_classes,
)
from tf_largeout.serving.endpoints import Answer, Endpoints, input_specs, output_layer_of
from tf_largeout.steps.output_tag import require_model
from tf_largeout.version import __version__

OPS = ("core", "custom")
_ROWS_AT_A_TIME = 2**18
# For rounding, and for differences between scores, such as those in a log-softmax.
_MARGIN = 4
_LONGEST_EXPORT = 24 * 3600.0  # seconds
_CUSTOM_README = """\
This SavedModel uses ops of tf_largeout {version}, compiled for TensorFlow {tensorflow}. Without
them, it does not load: NOT_FOUND: Op type not registered 'Largeout...'.

* In Python: import tf_largeout.ops before tf.saved_model.load.
* In your own build of TensorFlow Serving: link the target //:largeout_ops of tf_largeout.
* On any other server: export the model again, with tflo.serving.export(..., ops="core").
"""


def export(
    model: keras.Model,
    path: str | os.PathLike[str],
    k: int = 10,
    index: ListIndex | ServedIndex | None = None,
    ops: Literal["core", "custom"] = "core",
    class_names: ClassNames | None = None,
    scores: Scores = "logit",
    embeddings_dtype: Literal["int8"] | None = None,
) -> dict[str, int]:
    """Saves `model` as a SavedModel that returns the best classes, and prints its sizes.

    It has two signatures. Both take the inputs of the model under their names ("features" for
    an input without a name):

    * `serving_default`: returns the `k` best classes. Servers may combine requests to batches.
    * `top_k`: also takes `k` and `exclude`. `k` is an int32 scalar from 0 to the number of
      classes; other values fail the request. `exclude` is int64 `[batch, n]` or `[1, n]`,
      padded with -1: the classes that must not be in the result. Ids that are not classes
      exclude nothing. Only gRPC requests may omit `k` and `exclude`; REST requests and calls in
      Python must contain them.

    Both signatures return `scores` float32 and `ids` int64 `[batch, ..., k]`, best first,
    padded with -inf and -1 if fewer than `k` classes are left. An example whose features are
    not finite, or so large that scores may overflow float32, gets only -inf and -1. The classes
    are ranked by the `ranking` of the layer, which the layer takes from its loss. The scores
    are the values that rank the classes: logits, `|logit|` or `|1 + logit|`, or
    log-probabilities for a `HierarchicalOutput`. With the argument `scores`, they are
    probabilities, and 0 instead of -inf.

    The SavedModel contains each variable that the signatures read, once. It contains no state
    of samplers or optimizers. For a `FactoredOutput`, it contains the computed class embeddings
    instead of the factors. It includes preprocessing layers, with their tables of strings.

    ```python
    tflo.serving.export(model, "export/1")
    loaded = tf.saved_model.load("export/1")
    answer = loaded.signatures["serving_default"](features=x)
    ```

    Args:
        model: A built model whose only output comes from a `LargeOutput` or another output
            layer of this library. It is functional or sequential, or it has one float input
            whose shape is known from its first call.
        path: The folder to create. It never contains an incomplete export. For TensorFlow
            Serving its name is a number: the server uses the version with the highest number.
        k: Number of classes that `serving_default` returns, and the default of `top_k`. At most
            the number of classes: a larger `k` is an error, so that no request can make a
            server allocate padding. (`top_k` of layers and indexes pads its result instead.)
        index: A `retrieval.InvertedFileIndex` of the layer's class embeddings and bias, or with
            `ops="custom"` also a `retrieval.LSHIndex`. The export then scores only the classes
            in the best lists of a query, or those that share most hash buckets with it. Their
            scores are exact, but the export may miss some of the best classes, and does not
            find removed classes. None, the default, scores all classes.
        ops: "core", the default, uses only core TensorFlow ops, so the export runs on any
            TensorFlow 2 server and converts to other runtimes. "custom" uses the ops of
            tf_largeout, which are faster. They must be linked into the server; in Python,
            import `tf_largeout.ops` before loading the export.
        class_names: The names of the classes in the order of their ids, as a list of strings or
            the path of a UTF-8 text file with one line per class. The export stores them in
            `assets/class_names.txt`, for the program that shows the results. The signatures
            return only ids. None, the default, writes no such file.
        scores: "logit", the default, "softmax", "top_k_softmax" or "sigmoid": what the output
            `scores` of both signatures contains, as in the layer's `top_k`. The probabilities
            of "softmax" are those among all classes, also with `exclude` or an index. Each
            request takes another pass over all classes to compute them, except for a
            `HierarchicalOutput`. Those of "top_k_softmax" are those among the classes of the
            response, without this pass.
        embeddings_dtype: "int8" stores the class rows as 8-bit integers and a float32 scale per
            row, the largest magnitude in the row over 127, in about a quarter of the bytes.
            Scores are computed in float32 from these rows. With `ops="custom"`, a class takes
            20 bytes more. None, the default, stores the rows in the dtype of the layer.

    Returns:
        Sizes in bytes: "weights", "graph", "assets" and "total".

    Raises:
        ValueError: If the model has another output, its class weights are not finite, `k`
            exceeds the number of classes, or `index` has other class rows. It is also raised if
            `ops` or `embeddings_dtype` is another string, `class_names` does not have one line
            for each class, or the layer does not support 8-bit rows or `scores`, see its
            `top_k`.
        FileExistsError: If `path` exists and is not an empty folder.
        OSError: If the folder `path` cannot be created.
    """
    path = os.fspath(path)
    one_of("ops", ops, OPS)
    whole_number("k", k)
    quantize = is_int8(embeddings_dtype)
    require_model(model, "`export`")
    _require_free(path)
    specs = input_specs(model)
    layer = output_layer_of(model, specs)
    if k > layer.num_classes:
        raise ValueError(
            f"`k` must be at most the number of classes of layer '{layer.name}', "
            f"{layer.num_classes}. Received: k={k}."
        )
    probabilities = layer.probabilities(scores)
    _require_writable(path)
    largest = _largest_features(layer)
    with tempfile.TemporaryDirectory() as folder:
        names = None
        if class_names is not None:
            names = class_names_file.write(class_names, layer.num_classes, folder)
        scorer = layer.class_matrix.ranked_by(layer.ranking)
        classes = (
            exact_classes(scorer, ops, quantize)
            if index is None
            else indexed_classes(scorer, index, ops, quantize)
        )
        endpoints = Endpoints(model, classes, layer.num_classes, largest, probabilities)
        signatures = _signatures(endpoints, specs, k)
        everything = _everything(model, layer, index, signatures)
        if names is not None:
            everything.class_names = names
        readme = _CUSTOM_README.format(version=__version__, tensorflow=tf.__version__)
        _write(everything, signatures, path, None if ops == "core" else readme)
    sizes = _sizes_of(path)
    print(f"Exported model '{model.name}' to {path}: {_as_text(sizes)}.")
    return sizes


def _require_free(path: str) -> None:
    if not path:
        raise ValueError("`path` must be the path of a new folder. Received: path=''.")
    if tf.io.gfile.exists(path) and not (
        tf.io.gfile.isdir(path) and not tf.io.gfile.listdir(path)
    ):
        raise FileExistsError(
            f"`path` must be a new folder. Received: {path!r}, which already exists; a server "
            "may be reading it. Use the next number, to which TensorFlow Serving switches "
            "automatically, or remove the folder first."
        )


def _require_writable(path: str) -> None:
    """Creates and removes a folder next to `path`, so that errors come before the work."""
    trial = _unfinished(path)
    try:
        tf.io.gfile.makedirs(trial)
        tf.io.gfile.rmtree(trial)
    except tf.errors.OpError as error:
        raise OSError(
            f"`path` must be a folder that can be created. Received: path={path!r}. Creating a "
            f"folder next to it failed: {error.message}. Pass a path in a folder in which you "
            "may write."
        ) from error


def _signatures(
    endpoints: Endpoints, specs: Any, k: int
) -> dict[str, tf.types.experimental.PolymorphicFunction]:
    """Returns the two signatures as `tf.function`s, which are traced when they are saved."""
    k_spec = tf.TensorSpec([], tf.int32, name="k")
    exclude_spec = tf.TensorSpec([None, None], tf.int64, name="exclude")
    all_k, none = tf.constant(k, tf.int32), tf.zeros([1, 0], tf.int64)

    @tf.function(input_signature=[specs], autograph=False)
    def serving_default(inputs: Any) -> Answer:
        return endpoints.best(inputs, k)

    @tf.function(input_signature=[specs, k_spec, exclude_spec], autograph=False)
    def top_k(inputs: Any, k: tf.Tensor = all_k, exclude: tf.Tensor = none) -> Answer:
        return endpoints.best_but(inputs, k, exclude)

    return {"serving_default": serving_default, "top_k": top_k}


def _everything(
    model: keras.Model,
    layer: ClassOutput,
    index: ListIndex | ServedIndex | None,
    signatures: dict[str, Any],
) -> tf.Module:
    """Returns only what the signatures read. Tracking the model would save all its state."""
    functions = [one.get_concrete_function() for one in signatures.values()]
    read = {id(handle) for one in functions for handle in one.captured_inputs}
    variables = [variable for one in functions for variable in one.variables]
    # The ops of tf_largeout take handles, so a function does not know which variables they
    # read.
    of_ops = [weight.value for weight in layer.weights]
    of_ops += [] if index is None else index.variables()
    if isinstance(layer.class_matrix, RowScorer):  # an ItemTower has a copy of its rows
        for table in layer.class_matrix.source.tables():
            of_ops += [one for one in table.variables() if one is not None]
    variables += [variable for variable in of_ops if id(variable.handle) in read]
    everything = tf.Module()
    # By handle, because both a mirrored variable and its replica's variable may occur.
    everything.variables_read = list({id(one.handle): one for one in variables}.values())
    resource = tf.saved_model.experimental.TrackableResource
    parts = tf.train.TrackableView(model).descendants()
    tables = [part for part in parts if isinstance(part, resource)]
    everything.tables = [one for one in tables if id(one.resource_handle) in read]
    return everything


def _write(
    everything: tf.Module, signatures: dict[str, Any], path: str, readme: str | None
) -> None:
    """Saves to another folder and renames it, so that servers see no incomplete export."""
    for left in tf.io.gfile.glob(f"{path.rstrip('/')}.*.unfinished"):
        seconds = time.time() - tf.io.gfile.stat(left).mtime_nsec / 1e9
        if seconds > _LONGEST_EXPORT:  # of an export that was killed
            tf.io.gfile.rmtree(left)
    unfinished = _unfinished(path)
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    try:
        tf.saved_model.save(everything, unfinished, signatures, options)
        if readme is not None:
            extra = os.path.join(unfinished, "assets.extra")
            tf.io.gfile.makedirs(extra)
            with tf.io.gfile.GFile(os.path.join(extra, "README"), "w") as file:
                file.write(readme)
        if tf.io.gfile.exists(path):
            tf.io.gfile.rmtree(path)
        tf.io.gfile.rename(unfinished, path)
    except BaseException:
        if tf.io.gfile.exists(unfinished):
            tf.io.gfile.rmtree(unfinished)
        raise


def _unfinished(path: str) -> str:
    """Returns the path of a new folder next to `path`, for an export that is not complete."""
    return f"{path.rstrip('/')}.{uuid.uuid4().hex}.unfinished"


def _largest_features(layer: ClassOutput) -> float:
    """Returns the sum of `|h_i|` of an example up to which no score can overflow float32.

    Let `r = 1 + sum |h_i|`, where 1 is the factor of the bias. Then neither a score nor a sum
    of some of its terms exceeds `r * layer.score_bound`. Weights that are not finite raise a
    ValueError.
    """
    slope = layer.score_bound(functools.partial(_largest, layer.name))
    highest = float(tf.float32.max)
    return min(highest, highest / _MARGIN / slope - 1) if slope else highest


def _largest(owner: str, name: str, weight: tf.Tensor) -> float:
    """Returns the largest absolute value, without a copy of all rows."""
    rows = tf.reshape(weight, [-1]) if weight.shape == () else weight
    largest = 0.0
    for first in range(0, rows.shape[0], _ROWS_AT_A_TIME):
        # A slice of a variable would read all rows.
        part = tf.gather(rows, tf.range(first, min(first + _ROWS_AT_A_TIME, rows.shape[0])))
        if not bool(tf.reduce_all(tf.math.is_finite(part))):
            raise ValueError(
                f"The weights of layer '{owner}' must be finite. Received: '{name}' with NaN "
                "or infinity in it. The training has diverged: restore a checkpoint, and lower "
                "the learning rate."
            )
        largest = max(largest, float(tf.reduce_max(tf.abs(part))))
    return largest


def _sizes_of(path: str) -> dict[str, int]:
    """Returns bytes of "weights", "graph" and "assets" of a SavedModel, and their "total"."""
    sizes = {"weights": 0, "graph": 0, "assets": 0}
    for folder, _, files in tf.io.gfile.walk(path):
        kinds = {"variables": "weights", "assets": "assets", "assets.extra": "assets"}
        kind = kinds.get(os.path.basename(folder.rstrip("/")), "graph")
        for name in files:
            sizes[kind] += tf.io.gfile.stat(os.path.join(folder, name)).length
    return {**sizes, "total": sum(sizes.values())}


def _as_text(sizes: dict[str, int]) -> str:
    """Formats sizes: "217.4 MiB (weights 217.3 MiB, graph 64.0 KiB)"."""
    texts = {
        name: f"{size / 2**20:,.1f} MiB" if size >= 2**20 else f"{size / 2**10:,.1f} KiB"
        for name, size in sizes.items()
        if size
    }
    total = texts.pop("total")
    return f"{total} ({', '.join(f'{name} {text}' for name, text in texts.items())})"
