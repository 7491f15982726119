"""The package's methods, and those that only notes compare."""

import dataclasses
import functools
import math

import keras
import numpy as np
import tensorflow as tf

from benchmarks.methods.method_table import METHODS as PACKAGE_METHODS
from benchmarks.methods.method_table import method_of_ours
from benchmarks.methods.models import ours
from lab.shared.class_vectors import class_vectors
from lab.shared.factored_heads import FACTORED_HEADS
from lab.shared.samplers import SAMPLERS
from tf_largeout import losses
from tf_largeout.layers import HierarchicalOutput, HuffmanOutput


def normalized_at_start(task, settings):
    """Returns `ours` with each bias at -log(num_classes).

    NCE treats logits as log-probabilities, so their exponentials should sum to 1 at the start.
    With biases of 0, the first steps only lower all logits, and the model hardly learns
    anything else. A logistic loss, too, starts with a sum of probabilities of 1.
    """
    start = keras.initializers.Constant(-math.log(task.num_classes))
    return ours(task, settings, samplers=SAMPLERS, bias_initializer=start)


def hierarchical(task, settings, clusters=None):
    """Returns a two-level softmax. Clusters are consecutive ids, with similar frequencies."""
    output = HierarchicalOutput(task.num_classes, clusters=clusters)
    return task.model(settings.dim, output)


def hierarchical_k_means(task, settings):
    """Like `hierarchical`, with clusters of classes whose examples have similar features."""
    clusters = HierarchicalOutput.clusters_of(class_vectors(task))
    return hierarchical(task, settings, clusters)


def huffman(task, settings):
    """A binary Huffman tree of the label counts. Classes without examples count as 1."""
    output = HuffmanOutput(task.num_classes, np.maximum(task.label_counts, 1))
    return keras.Sequential([task.input(), task.encoder(settings.dim), output])


def factored(task, settings, head):
    """Returns the task's encoder and a `FactoredOutput` with a `FactoredHead`."""
    output = head.layers(task.num_classes, settings.class_rate)
    return task.model(settings.dim, *output)


def with_any_sampler(task, settings):
    """Returns `ours` with the samplers of `SAMPLERS`, not only those of the package."""
    return ours(task, settings, samplers=SAMPLERS)


def _sampled(title, search=None, build=with_any_sampler, **options):
    return method_of_ours(title, search, build=build, **options)


def _absolute(title, search):
    """Returns `_sampled` with the softmax of `|logit|`, the partner of an even kernel."""
    method = _sampled(f"{title}, absolute softmax", search, loss=losses.AbsoluteSoftmaxLoss)
    return dataclasses.replace(method, score=tf.abs)


def _ranking(title, **options):
    """Returns a ranking loss with uniform negatives, for which the paper derives its margin."""
    loss = functools.partial(losses.RankingLoss, **options)
    return method_of_ours(f"tf_largeout, ranking, {title}", sampler="uniform", loss=loss)


def _with_settings(method, **settings):
    """Returns a method with other settings on all tasks."""
    tuned = {task: {**values, **settings} for task, values in method.tuned.items()}
    return dataclasses.replace(method, settings={**method.settings, **settings}, tuned=tuned)


def _factored(head):
    """Returns a method with a `FactoredHead` and the settings of the others."""
    method = method_of_ours(
        f"tf_largeout, {head.title}",
        loss=head.loss,
        build=functools.partial(factored, head=head),
    )
    settings = {**method.settings, "class_rate": head.class_rate}
    score = tf.abs if head.absolute else tf.identity
    return dataclasses.replace(method, score=score, settings=settings)


METHODS = {
    **PACKAGE_METHODS,
    "recommended_decoupled": dataclasses.replace(
        PACKAGE_METHODS["recommended"],
        title="tf_largeout, recommended defaults, DecoupledSoftmaxLoss",
        loss=losses.DecoupledSoftmaxLoss,
    ),
    "nce": method_of_ours("tf_largeout, NCE", loss=losses.NCELoss, build=normalized_at_start),
    "inverted_file_nce": method_of_ours(
        "tf_largeout, NCE, own hard negatives, inverted file",
        "inverted_file",
        loss=losses.NCELoss,
        build=normalized_at_start,
    ),
    "kernel_tree": _sampled("tf_largeout, kernel tree", "kernel_tree"),
    "kernel_tree_32": _sampled("tf_largeout, kernel tree of width 32", "kernel_tree_32"),
    "kernel_tree_pool": _sampled(
        "tf_largeout, kernel tree, one pool per batch", "kernel_tree_pool"
    ),
    "kernel_tree_pool_32": _sampled(
        "tf_largeout, kernel tree of width 32, one pool per batch", "kernel_tree_pool_32"
    ),
    "kernel_tree_head": _sampled(
        "tf_largeout, 16 of the kernel tree, corrected tail", "kernel_tree_head", num_hard=16
    ),
    "kernel_tree_absolute": _absolute("tf_largeout, kernel tree", "kernel_tree"),
    "kernel_tree_32_absolute": _absolute(
        "tf_largeout, kernel tree of width 32", "kernel_tree_32"
    ),
    "kernel_tree_pool_absolute": _absolute(
        "tf_largeout, kernel tree, one pool a batch", "kernel_tree_pool"
    ),
    "kernel_tree_pool_32_absolute": _absolute(
        "tf_largeout, kernel tree of width 32, one pool a batch", "kernel_tree_pool_32"
    ),
    "frequency_own": _sampled(
        "tf_largeout, draws by frequency for each example", sampler="frequency_own"
    ),
    "inverted_file_draws": _sampled(
        "tf_largeout, draws from the inverted file", "inverted_file_draws"
    ),
    "softmax_draws": _sampled("tf_largeout, exact draws of the softmax", "softmax"),
    "importance": _sampled(
        "tf_largeout, importance normalisation, all labels of the batch",
        sampler="frequency",
        loss=functools.partial(losses.ImportanceNormalizationLoss, complement="batch"),
    ),
    "bernoulli": _sampled(
        "tf_largeout, Bernoulli normalisation, all labels of the batch",
        sampler="bernoulli",
        loss=functools.partial(losses.BernoulliNormalizationLoss, complement="batch"),
    ),
    "blackout": _sampled(
        "tf_largeout, BlackOut", sampler="frequency", loss=losses.BlackOutLoss
    ),
    "ranking": _sampled("tf_largeout, ranking", sampler="frequency", loss=losses.RankingLoss),
    "ranking_uniform": _ranking("margin log(N - 1)"),
    "ranking_uniform_1": _ranking("margin 1", margin=1.0),
    "ranking_uniform_0": _ranking("margin 0", margin=0.0),
    "ranking_uniform_hinge": _ranking("hinge, margin 1", form="hinge"),
    "hierarchical": method_of_ours(
        "tf_largeout, hierarchical softmax",
        loss=losses.HierarchicalSoftmaxLoss,
        build=hierarchical,
    ),
    "huffman": method_of_ours(
        "tf_largeout, hierarchical softmax, binary Huffman tree",
        loss=losses.HierarchicalSoftmaxLoss,
        build=huffman,
    ),
    "lsh_both": _sampled("tf_largeout, LSH embedding and label", "lsh_both"),
    "wta_16": _with_settings(
        _sampled("tf_largeout, WTA softmax, 16 coordinates, 128 classes", "wta_16"),
        num_sampled=128,
    ),
    "wta_16_logistic": _with_settings(
        _sampled(
            "tf_largeout, WTA, logistic loss of the 128 classes found",
            "wta_16",
            loss=losses.NegativeSamplingLoss,
            build=normalized_at_start,
        ),
        num_sampled=128,
    ),
    "wta_16_sigmoid": _sampled(
        "tf_largeout, WTA, SigmoidLoss, 128 classes and a uniform tail",
        "wta_16_head",
        sampler="uniform",
        loss=losses.SigmoidLoss,
        build=normalized_at_start,
        num_hard=128,
    ),
    "hierarchical_k_means": method_of_ours(
        "tf_largeout, hierarchical softmax, clusters by k-means",
        loss=losses.HierarchicalSoftmaxLoss,
        build=hierarchical_k_means,
    ),
    **{name: _factored(head) for name, head in FACTORED_HEADS.items()},
}
