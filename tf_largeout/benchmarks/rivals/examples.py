"""`Examples`."""

import dataclasses

from tf_largeout.datasets.ragged import Ragged


@dataclasses.dataclass(frozen=True)
class Examples:
    """All training examples of a task as plain rows of ids, which rivals are given.

    Attributes:
        features: rows of feature ids above 0, as they come: one may occur twice.
        labels: rows of classes.
        num_features: above every feature id.
        num_classes: above every class.
    """

    features: Ragged
    labels: Ragged
    num_features: int
    num_classes: int

    @classmethod
    def of_task(cls, task):
        """Those of a `Task`.

        Raises:
            ValueError: the examples of the task are dense vectors.
        """
        if not task.num_features:
            raise ValueError(
                "Other libraries are trained on feature ids; the examples of this task are "
                "dense vectors. Take a task with `num_features` above 0."
            )
        parts = [
            (Ragged.from_padded(ids, 0), Ragged.from_padded(labels.reshape(len(ids), -1), -1))
            for ids, labels in task.one_epoch()
        ]
        features, labels = zip(*parts, strict=True)
        sizes = task.num_features, task.num_classes
        return cls(Ragged.joined(features), Ragged.joined(labels), *sizes)
