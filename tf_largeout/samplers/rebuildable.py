"""The base class of samplers whose search structure can be rebuilt outside training."""

import functools

from tf_largeout.samplers.sampler import ClassLayer, Sampler


class Rebuildable(Sampler):
    """Base of the samplers with a search structure. A subclass implements `rebuild_replica`."""

    def rebuild(self, layer: ClassLayer) -> None:
        """Builds the search structure from the current class embeddings, and starts the search.

        It costs O(num_classes dim), and O(num_classes dim^2) for a kernel tree. The next
        interval between rebuilds of hash tables starts at this step. Training rebuilds
        automatically. Call it outside a training step, after setting the embeddings directly.

        Args:
            layer: The layer that built this sampler.

        Raises:
            ValueError: If no layer has built it.
        """
        self.require_built()
        layer.class_matrix.each_replica(functools.partial(self.rebuild_replica, layer))

    def rebuild_replica(self, layer: ClassLayer) -> None:
        """Implements `rebuild` on one replica.

        Args:
            layer: The layer that built this sampler.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `rebuild_replica`.")
