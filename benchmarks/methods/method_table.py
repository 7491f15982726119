"""The methods that are compared; a new one is one line in `METHODS`."""

import collections.abc
import dataclasses
import functools

import keras
import tensorflow as tf

from benchmarks.methods.models import AllPositivesModel, dense, ours, residual, stock
from benchmarks.methods.optimizers import OPTIMIZERS
from tf_largeout import losses


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of a training run. A method ignores fields that it does not use.

    Attributes:
        batch_size, num_sampled, dim, learning_rate: as everywhere.
        class_rate: learning rate of a `FactoredOutput`, which updates itself.
        optimizer: key of `OPTIMIZERS`.
        sampler: "uniform", "log_uniform" or, with our methods, "frequency": the static
            distribution of negatives.
        search: key of `SAMPLERS` for the sampler that finds hard negatives, or None.
        search_options: other arguments of that sampler than `num_sampled` and `tail`.
        anneal: share of the training time, at its end, over which the rate falls to zero.
        steps_per_execution: steps inside one call of the compiled train function.
        num_shards: of the classes of a `LargeOutput`.
    """

    batch_size: int = 256
    num_sampled: int = 1024
    dim: int = 128
    learning_rate: float = 1e-3
    class_rate: float = 100.0
    optimizer: str = "adam"
    sampler: str = "log_uniform"
    search: str | None = None
    search_options: dict = dataclasses.field(default_factory=dict)
    anneal: float = 0.0
    steps_per_execution: int = 1
    num_shards: int = 1


@dataclasses.dataclass(frozen=True)
class Method:
    """One row of the table. It can be pickled, so that it trains in its own process.

    Attributes:
        title: name in tables and figures.
        build: (task, settings) -> model, without compile.
        loss: function without arguments that creates the loss; None for a model with its own.
        score: function of logits. Its values rank the classes, and their softmax gives the
            exact loss.
        settings: settings that differ from the defaults, for all tasks.
        tuned: such settings by task, found on a part of the training examples.
    """

    title: str
    build: collections.abc.Callable
    loss: collections.abc.Callable | None = None
    score: collections.abc.Callable = tf.identity
    settings: dict = dataclasses.field(default_factory=dict)
    tuned: dict = dataclasses.field(default_factory=dict)

    def searching_at_once(self):
        """Returns settings that start any search in the first step."""
        if not self.settings.get("search"):
            return {}
        return {"search_options": {**self.settings["search_options"], "start_step": 0}}

    def settings_for(self, task_name, **overrides):
        """Returns the settings on a task: of the method, then the task's and the caller's."""
        chosen = {**self.settings, **self.tuned.get(task_name, {}), **overrides}
        return Settings(**chosen)

    def model(self, task, settings):
        """Returns a compiled model of this method, ready for `fit`."""
        model = self.build(task, settings)
        model.compile(
            optimizer=OPTIMIZERS[settings.optimizer](settings.learning_rate),
            loss=self.loss() if self.loss else None,
            steps_per_execution=settings.steps_per_execution,
            jit_compile=False,
        )
        return model


# Found on a validation split. The stock methods with Keras's Adam are not tuned: in the time of
# a race, they make so few steps that their settings do not matter.
_FAST = {"steps_per_execution": 16}
_PLACE_NAMES = {"batch_size": 512, "learning_rate": 7e-3, "sampler": "uniform", "anneal": 1.0}
_LINUX = {"batch_size": 512, "learning_rate": 3e-3, "num_sampled": 2048, "anneal": 1.0}
_STOCK_BEST = {**_FAST, "num_sampled": 8192, "optimizer": "row_sparse_adam"}


_RECOMMENDED = {
    **_FAST,
    "batch_size": 512,
    "learning_rate": 1e-2,
    "optimizer": "lazy_adam",
    "sampler": "frequency",
    "search": "inverted_file",
    "anneal": 1.0,
}


def method_of_ours(
    title,
    search=None,
    sampler=None,
    loss=losses.SampledSoftmaxLoss,
    build=ours,
    **options,
):
    """Returns a method of this package; all share the settings of the static one.

    `search` with its `options` finds hard negatives; `sampler` is the same on every task, by
    default the tuned one; `loss` and `build` as in `Method`.
    """
    static = {"sampler": sampler} if sampler else {}
    return Method(
        title,
        build,
        loss,
        settings={
            **_FAST,
            "optimizer": "lazy_adam",
            "search": search,
            "search_options": options,
            **static,
        },
        tuned={
            "place_names": {**_PLACE_NAMES, **static},
            "linux_callees": {**_LINUX, **static},
        },
    )


def _several_labels(title, **options):
    """Returns the model of `lab/multi_label/README.md`. For `options`, see `residual`."""
    return Method(
        f"tf_largeout, {title}",
        functools.partial(residual, **options),
        losses.DecoupledSoftmaxLoss,
        settings={**_RECOMMENDED, "learning_rate": 3e-3, "dim": 256},
    )


METHODS = {
    "recommended": Method(
        "tf_largeout, recommended defaults",
        ours,
        losses.SampledSoftmaxLoss,
        settings=_RECOMMENDED,
        tuned={"linux_callees": {"learning_rate": 3e-3}},
    ),
    "several_labels": _several_labels("multi-label"),
    "several_labels_bigrams": _several_labels("multi-label, bigrams", pairs_per_id=6),
    "ours": method_of_ours("tf_largeout"),
    "ours_bfloat16": method_of_ours(
        "tf_largeout, bfloat16 products",
        loss=functools.partial(losses.SampledSoftmaxLoss, compute_dtype="bfloat16"),
    ),
    "uniform": method_of_ours("tf_largeout, uniform negatives", sampler="uniform"),
    "log_uniform": method_of_ours("tf_largeout, log-uniform negatives", sampler="log_uniform"),
    "frequency": method_of_ours("tf_largeout, negatives by frequency", sampler="frequency"),
    "inverted_file": method_of_ours(
        "tf_largeout, own hard negatives, inverted file", "inverted_file"
    ),
    "lsh_head": method_of_ours(
        "tf_largeout, own hard negatives, LSH", "lsh_embedding", num_hard=16, start_step=None
    ),
    "top_k_head": method_of_ours(
        "tf_largeout, own hard negatives, exact", "top_k", num_hard=16, start_step=None
    ),
    "lsh_embedding": method_of_ours("tf_largeout, LSH embedding", "lsh_embedding"),
    "lsh_label": method_of_ours("tf_largeout, LSH label", "lsh_label"),
    "lsh_pool": method_of_ours("tf_largeout, LSH, one pool per batch", "lsh_pool"),
    "wta": method_of_ours("tf_largeout, WTA softmax", "wta"),
    "top_k": method_of_ours("tf_largeout, TopK softmax", "top_k"),
    "softmax": Method(
        "tf_largeout, exact SoftmaxLoss",
        ours,
        losses.SoftmaxLoss,
        settings={"optimizer": "lazy_adam"},
        tuned={
            "place_names": {**_PLACE_NAMES, "batch_size": 1024},
            "linux_callees": {**_LINUX, "batch_size": 1024},
        },
    ),
    "tf_nn_sampled_softmax": Method(
        "tf.nn.sampled_softmax_loss + Keras Adam",
        functools.partial(stock, loss=tf.nn.sampled_softmax_loss),
        tuned={"place_names": _PLACE_NAMES, "linux_callees": _LINUX},
    ),
    "tf_nn_nce": Method(
        "tf.nn.nce_loss + Keras Adam",
        functools.partial(stock, loss=tf.nn.nce_loss),
        tuned={"place_names": _PLACE_NAMES, "linux_callees": _LINUX},
    ),
    "stock_best": Method(
        "stock ops, all positives, row-sparse Adam by hand",
        functools.partial(stock, model_class=AllPositivesModel),
        settings=_STOCK_BEST,
        tuned={
            "place_names": {"num_sampled": 1024, **_PLACE_NAMES, "batch_size": 256},
            "linux_callees": {"learning_rate": 2e-3},
        },
    ),
    "stock_tuned": Method(
        "stock ops, row-sparse Adam by hand, batch and negatives as ours",
        functools.partial(stock, model_class=AllPositivesModel),
        settings=_STOCK_BEST,
        tuned={"place_names": {"num_sampled": 1024, **_PLACE_NAMES}, "linux_callees": _LINUX},
    ),
    "dense": Method(
        "Keras Dense + Adam",
        dense,
        functools.partial(keras.losses.SparseCategoricalCrossentropy, from_logits=True),
    ),
}
