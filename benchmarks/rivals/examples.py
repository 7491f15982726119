"""`Examples`."""

import dataclasses

from tf_largeout.datasets.ragged import Ragged


@dataclasses.dataclass(frozen=True)
class Examples:
    """All training examples of a task as rows of ids, for other libraries.

    Attributes:
        features: Rows of feature ids above 0; an id may occur twice.
        labels: Rows of classes.
        num_features: Upper bound of the feature ids, not included.
        num_classes: Number of classes.
    """

    features: Ragged
    labels: Ragged
    num_features: int
    num_classes: int

    @classmethod
    def of_task(cls, task):
        """Returns the examples of a `Task`.

        Raises:
            ValueError: If the examples of the task are dense vectors, or ids with weights.
        """
        if not task.num_features or isinstance(task.train.element_spec[0], dict):
            raise ValueError(
                "Other libraries are trained on feature ids without weights; the examples of "
                "this task are dense vectors, or their ids have weights. Take another task."
            )
        parts = [
            (Ragged.from_padded(ids, 0), Ragged.from_padded(labels.reshape(len(ids), -1), -1))
            for ids, labels in task.one_epoch()
        ]
        features, labels = zip(*parts, strict=True)
        sizes = task.num_features, task.num_classes
        return cls(Ragged.joined(features), Ragged.joined(labels), *sizes)
