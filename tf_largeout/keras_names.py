"""Names of our classes for Keras: in files, and in `compile`."""

import importlib
import re
from collections.abc import MutableMapping
from typing import Any

import keras

# The classes that Keras saves, by the sub-package that exports them.
CLASSES = {
    "layers": """
        EmbeddingBag FactoredOutput HashedBigrams HierarchicalOutput HuffmanOutput ItemTower
        LargeOutput
    """.split(),
    "losses": """
        AbsoluteSoftmaxLoss BernoulliNormalizationLoss BlackOutLoss DecoupledSoftmaxLoss
        HierarchicalSoftmaxLoss ImportanceNormalizationLoss MarginSoftmaxLoss NCELoss
        NegativeSamplingLoss RankingLoss SampledSoftmaxLoss SigmoidLoss SoftmaxLoss
        SphericalSoftmaxLoss SquaredErrorLoss TaylorSoftmaxLoss ZLoss
    """.split(),
    "metrics": """
        AveragePopularityAtK CatalogCoverageAtK HitRateAtK MacroRecallAtK MeanAveragePrecision
        MeanReciprocalRank NDCG Perplexity PrecisionAtK PropensityScoredPrecisionAtK RecallAtK
    """.split(),
    "optimizers": "LazyAdagrad LazyAdam LazySGD RowwiseAdagrad".split(),
    "samplers": """
        BernoulliSampler BigramSampler InvertedFileSampler KernelTreeSampler LSHSampler
        LogUniformSampler SoftmaxSampler TopKSampler UniformSampler UnigramSampler
    """.split(),
}
_METRICS = ("MeanAveragePrecision", "MeanReciprocalRank", "NDCG", "Perplexity")
_METRICS_AT_K = {
    "hit_rate": "HitRateAtK",
    "mean_average_precision": "MeanAveragePrecision",
    "mean_reciprocal_rank": "MeanReciprocalRank",
    "ndcg": "NDCG",
    "precision": "PrecisionAtK",
    "recall": "RecallAtK",
}
_RANKS = (1, 5, 10)  # those of the guides


def register_classes() -> None:
    """Registers all classes with Keras, so that it can load a file, without their import.

    The entry of a class is a stand-in. When Keras creates an object of it, the sub-package is
    imported, which replaces the entries of its classes. Optimizers also have a name for
    `compile`, such as "lazy_adam".
    """
    table = keras.saving.get_custom_objects()
    for module, names in CLASSES.items():
        for name in names:
            table.setdefault(f"tf_largeout>{name}", _stand_in(module, name))
    for name in CLASSES["optimizers"]:
        table.setdefault(snake_case(name), _stand_in("optimizers", name))


def register_for_compile(
    losses: MutableMapping[str, Any], metrics: MutableMapping[str, Any]
) -> None:
    """Adds names to the tables in which `compile` looks for losses and metrics.

    A loss has the name of its class in snake case, such as "sampled_softmax_loss". Metrics of
    the k best classes have names for k of 1, 5 and 10, such as "ndcg_at_10". Names that Keras
    defines are not changed.
    """
    for name in CLASSES["losses"]:
        losses.setdefault(snake_case(name), _stand_in("losses", name))
    for name in _METRICS:
        metrics.setdefault(snake_case(name), _stand_in("metrics", name))
    for kind, name in _METRICS_AT_K.items():
        for k in _RANKS:
            metrics.setdefault(f"{kind}_at_{k}", _stand_in("metrics", name, k))


def _stand_in(module: str, name: str, *arguments: Any) -> type:
    """Returns a class that creates objects of a class of a sub-package, by a call or a config.

    A call, which gets no arguments, passes `arguments` on.
    """

    def loaded() -> Any:
        return getattr(importlib.import_module(f"tf_largeout.{module}"), name)

    members = {
        "__new__": lambda cls: loaded()(*arguments),
        "from_config": classmethod(lambda cls, config: loaded().from_config(config)),
    }
    return type(name, (), members)


def snake_case(name: str) -> str:
    """Returns the name of a class in snake case, such as "nce_loss" for "NCELoss"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
