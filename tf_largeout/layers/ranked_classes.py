"""How an output layer ranks its classes: as the loss predicts them that trains it."""

from typing import Any

import keras

from tf_largeout.classes.class_matrix import ClassMatrix
from tf_largeout.types import Config


class RankedClasses(keras.layers.Layer):
    """A layer that knows by what its classes are ranked.

    Args:
        ranking: By what classes are ranked: "logit"; "absolute", which is `|logit|`; or
            "taylor", which is `|1 + logit|`. None, the default, for the ranking of the loss
            that trained the layer last, which the config keeps too.
        **kwargs: Of `keras.layers.Layer`.

    Raises:
        ValueError: If the layer has no such `ranking`.

    Attributes:
        rankings: The values of `ranking` that the layer supports.
        scores_are_products: Whether class rows and biases alone rank the classes.
        class_matrix: The `ClassMatrix`, of a built layer.
    """

    rankings: tuple[str, ...] = ("logit",)
    scores_are_products = True
    class_matrix: ClassMatrix

    def __init__(self, ranking: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if ranking is not None and ranking not in self.rankings:
            raise ValueError(
                f"`ranking` of a {type(self).__name__} must be None or one of {self.rankings}. "
                f"Received: ranking={ranking!r}."
            )
        self._ranking, self._loss_ranking = ranking, None

    @property
    def ranking(self) -> str:
        """By what classes are ranked: "logit", "absolute" or "taylor"."""
        return self._ranking or self._loss_ranking or "logit"

    def follow(self, loss: Any, *, replace: bool = True) -> None:
        """Ranks classes as a model that is trained with `loss` predicts them.

        The argument `ranking` of the constructor comes first.

        Args:
            loss: A loss. One that is not of this library leaves the ranking as it is.
            replace: Whether to replace the ranking of another loss.
        """
        ranking = getattr(loss, "ranking", None)
        if ranking is not None and (replace or self._loss_ranking is None):
            self._loss_ranking = ranking

    def ranked_by(self, absolute: bool | None) -> tuple[ClassMatrix, bool]:
        """A matrix, and whether the absolute values of its logits rank the classes.

        Args:
            absolute: Whether to rank by `|logit|`; None for the layer's `ranking`.
        """
        if absolute is not None:
            return self.class_matrix, absolute
        if self.ranking == "taylor":
            return self.class_matrix.raised_by_one(), True  # type: ignore[attr-defined]
        return self.class_matrix, self.ranking == "absolute"

    def get_config(self) -> Config:
        rankings = {"ranking": self._ranking, "loss_ranking": self._loss_ranking}
        given = {name: value for name, value in rankings.items() if value is not None}
        return {**super().get_config(), **given}

    @classmethod
    def from_config(cls, config: Config) -> "RankedClasses":
        config = dict(config)
        ranking = config.pop("loss_ranking", None)
        layer = super().from_config(config)
        layer._loss_ranking = ranking
        return layer
