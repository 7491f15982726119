"""The pairs of a feature and a use that are not supported, with the error that says so."""

import fnmatch
from typing import NamedTuple


class Refusal(NamedTuple):
    """Uses that raise an error for some features.

    Attributes:
        features: Patterns of keys of `FEATURES`; `*` stands for any text.
        uses: Keys of `USES`.
        message: Regular expression that the message of the error contains.
    """

    features: tuple[str, ...]
    uses: tuple[str, ...]
    message: str


_FACTORED = ("head: FactoredOutput*", "labels: rows without, Taylor")
_HIERARCHICAL = ("head: HierarchicalOutput*", "labels: rows without, Hierarchical")
_HUFFMAN = ("head: HuffmanOutput",)
_ABSOLUTE = ("*AbsoluteSoftmaxLoss", "head: ranking absolute")
_OTHER_RANKINGS = (*_ABSOLUTE, "*SphericalSoftmaxLoss", "*Taylor*")
_OTHER_FORMS = (
    "form: *scale*",
    "form: *normalize*",
    "*MarginSoftmaxLoss",
    "form: soft cap*",
    "*capped*",
)
_INDEX = ("BruteForceIndex", "InvertedFileIndex", "LSHIndex", "export of an index")

REFUSALS = (
    # An index ranks by inner products.
    Refusal(_OTHER_RANKINGS, _INDEX, "ranks classes by '(absolute|taylor)'.*Omit `index`"),
    Refusal(_HIERARCHICAL, _INDEX, "`index` must be None.*not inner products.*Omit `index`"),
    Refusal(_HUFFMAN, _INDEX, "classes have no rows.*Use the layer's `top_k`"),
    # The mean of logits must be a logit.
    Refusal(
        (*_FACTORED, *_HIERARCHICAL, *_HUFFMAN),
        ("join_models",),
        "last layer is the (Factored|Hierarchical|Huffman)Output.*average the scores",
    ),
    Refusal(
        _OTHER_FORMS,
        ("join_models",),
        "mean of inner products, but .*(normalize=True|scale=3.0|logit_soft_cap=0.5)",
    ),
    Refusal(_ABSOLUTE, ("join_models",), "mean of logits, but .*ranks classes by 'absolute'"),
    # Others.
    Refusal(_HUFFMAN, ("resize_classes",), "its tree has no leaves for new classes"),
    Refusal(("*shards*",), ("replicas",), r"num_shards=\d and is built under MirroredStrategy"),
    Refusal(_FACTORED, ("replicas",), "cannot train on several replicas"),
    Refusal(("tower",), ("replicas",), "ItemTower does not support several replicas"),
)


def refusal(feature: str, use: str) -> Refusal | None:
    """Returns the first refusal of the pair, or None if the pair is supported."""
    for one in REFUSALS:
        if use in one.uses and any(fnmatch.fnmatchcase(feature, name) for name in one.features):
            return one
    return None
