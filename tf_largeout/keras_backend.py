"""Keras's backend, and the errors for names that only the TensorFlow backend has."""

import json
import os
import pathlib
import sys
from typing import Any

USE_JAX = (
    "Or use Keras's JAX backend: set KERAS_BACKEND=jax in the environment before Keras is "
    "imported"
)
# What to use on JAX instead of names that only the TensorFlow backend has.
_INSTEAD = {
    "LargeOutput": "ClassOutput FactoredOutput HierarchicalOutput HuffmanOutput ItemTower",
    "keras.layers.Embedding": "EmbeddingBag HashedBigrams",
    "TopKSampler or UniformSampler": """
        HardNegativeSampler InvertedFileSampler KernelTreeSampler LSHSampler SoftmaxSampler
    """,
    "UniformSampler or UnigramSampler": "BernoulliSampler BigramSampler",
    "NCELoss": """
        NegativeSamplingLoss SigmoidLoss negative_sampling negative_sampling_loss sigmoid
    """,
    "SampledSoftmaxLoss, or SoftmaxLoss for the exact loss": """
        AbsoluteSoftmaxLoss BernoulliNormalizationLoss BlackOutLoss HierarchicalSoftmaxLoss
        ImportanceNormalizationLoss MarginSoftmaxLoss RankingLoss SphericalSoftmaxLoss
        SquaredErrorLoss TaylorSoftmaxLoss ZLoss absolute_softmax_loss black_out_loss
        margin_softmax ranking_loss
    """,
    "predict_top_k and NumPy": """
        AveragePopularityAtK CatalogCoverageAtK MacroRecallAtK PropensityScoredPrecisionAtK
    """,
    "RowwiseAdagrad or LazyAdam": "LazyAdagrad LazySGD",
    "predict_top_k": "BruteForceIndex HnswIndex InvertedFileIndex LSHIndex build serving",
    "keras.callbacks": "callbacks",
    "NumPy arrays or any data set that Keras reads": "datasets",
    "keras.distribution": "distribute",
}


def name() -> str:
    """Returns the backend that Keras uses, or will use when it is imported, such as "jax".

    As in Keras, the environment variable KERAS_BACKEND decides, then keras.json in the folder
    KERAS_HOME or ~/.keras. The default is "tensorflow".
    """
    keras: Any = sys.modules.get("keras")
    if hasattr(keras, "config"):
        return str(keras.config.backend())
    if chosen := os.environ.get("KERAS_BACKEND"):
        return chosen
    try:
        config = json.loads((_folder() / "keras.json").read_text("utf-8"))
        return str(config.get("backend", "tensorflow"))
    except (OSError, ValueError):
        return "tensorflow"


def _folder() -> pathlib.Path:
    if folder := os.environ.get("KERAS_HOME"):
        return pathlib.Path(folder).expanduser()
    home = pathlib.Path("~").expanduser()
    return (home if os.access(home, os.W_OK) else pathlib.Path("/tmp")) / ".keras"


def needs_tensorflow(name: str) -> ImportError:
    """Returns the error for a name of tf_largeout, such as "losses.ZLoss", that JAX lacks."""
    module, _, last = name.rpartition(".")
    found = [use for use, names in _INSTEAD.items() if last in names.split()]
    instead = f" With the JAX backend, use {found[0]}." if found else ""
    if module in ("losses", "metrics", "optimizers"):
        instead += " A file that contains it loads with load_model(..., compile=False)."
    return ImportError(
        f"tf_largeout.{name} needs Keras's TensorFlow backend: set KERAS_BACKEND=tensorflow in "
        f"the environment before Keras is imported.{instead}"
    )
