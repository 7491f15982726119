"""Hash tables over the class embeddings, as weights of the layer."""

import math
import os

import numpy as np
import tensorflow as tf

from tf_largeout.ops import placement
from tf_largeout.ops.hash_ops import hash_functions, lsh_hash
from tf_largeout.ops.lsh_ops import lsh_build, lsh_fresh_share, lsh_query
from tf_largeout.samplers.sampler import giving, zero_bits

BITS_OF_VALUE = {"simhash": 1, "dwta": 3, "wta": 3}
_BIN_SIZE = 8
_MOST_BITS = 30
_NUM_PROBES = 64


def most_bits(num_classes):
    """The most bits that a bucket may have: there are at most `num_classes / 10` buckets."""
    return max(1, min(_MOST_BITS, int(math.log2(max(2, num_classes / 10)))))


class HashTables:
    """L tables of K hashes over the class embeddings, with the functions that made them.

    Memory is at most `4.4 L N` bytes: there are no more than N / 10 buckets a table. Where K
    values take more bits than that allows they are mixed. A rebuild draws new functions, so
    that no pair of class and query stays in or out of the same bucket by chance for a whole
    training; they depend on the layer's seed and the step alone.

    Args:
        kind: "simhash", "dwta" or "wta".
        num_hashes: K.
        num_tables: L.
    """

    def __init__(self, kind, num_hashes, num_tables):
        self.kind, self.num_hashes, self.num_tables = kind, num_hashes, num_tables
        self._functions = self._offsets = self._ids = None
        self._bits = self._num_classes = self._dim = 0

    def build(self, sampler, layer):
        """Makes the weights `hash_functions`, `table_offsets` and `table_ids` of `layer`."""
        self._num_classes, self._dim = layer.embeddings.shape
        bits = self.num_hashes * BITS_OF_VALUE[self.kind]
        self._bits = min(bits, most_bits(self._num_classes))
        shapes = [
            ("table_offsets", (self.num_tables, 2**self._bits + 1)),
            ("table_ids", (self.num_tables, self._num_classes)),
        ]
        self._check_memory(sum(4 * math.prod(shape) for _, shape in shapes))
        with tf.init_scope(), placement.deciding(layer.seed_state):
            functions = self._new_functions([0, 0]).numpy()
        self._functions = sampler.add_weight(
            layer,
            "hash_functions",
            functions.shape,
            "int32",
            giving(functions),
            placement.deciding,
        )
        # uint32: TensorFlow keeps int32 variables on the host, also where all else is on a GPU.
        self._offsets, self._ids = (
            sampler.add_weight(layer, name, shape, "uint32", zero_bits)
            for name, shape in shapes
        )

    def rebuild(self, layer, step):
        """Hashes all classes anew, by new functions, on this replica.

        Args:
            layer: The layer whose embeddings are hashed.
            step: int64 scalar, the number of the training step.
        """
        first_seed = layer.local_variable(layer.seed_state).read_value()[0]
        with placement.deciding(layer.seed_state):
            functions = self._new_functions([first_seed, -1 - step])  # steps count up from 0
            layer.local_variable(self._functions).assign(functions)
        lsh_build(
            layer.local_variables()[0],
            functions,
            *self.variables(layer),
            *self._family,
        )

    def variables(self, layer):
        """The `tf.Variable`s of offsets and ids on this replica."""
        return [layer.local_variable(weight) for weight in (self._offsets, self._ids)]

    def codes(self, vectors, layer):
        """The buckets of vectors [n, dim]: int32 [n, num_tables]."""
        functions = layer.local_variable(self._functions).read_value()
        return lsh_hash(vectors, functions, *self._family)

    def query(self, codes, labels, layer, select, num_sampled, max_lookups, fill=True):
        """Classes that share buckets with each row, see `lsh_ops.lsh_query`."""
        # On several replicas no seed can be drawn in the branch of a late start, nor is one
        # needed there: what is most frequent, without a fill, is no draw.
        draws = select == "walk" or fill
        return lsh_query(
            *self.variables(layer),
            codes,
            labels,
            layer.next_seed() if draws else tf.zeros([2], tf.int64),
            select,
            num_sampled,
            max_lookups,
            fill,
        )

    def fresh_share(self, layer):
        """The share of entries that are where the weights of now put them, estimated."""
        ids = tf.range(_NUM_PROBES, dtype=tf.int64) * self._num_classes // _NUM_PROBES
        rows = tf.gather(layer.local_variables()[0], ids)
        return lsh_fresh_share(*self.variables(layer), self.codes(rows, layer), ids)

    def are_stale(self, layer):
        """Whether the tables tell hardly more of the weights than chance would."""
        chance = 2.0**-self._bits
        return self.fresh_share(layer) < chance + (1 - chance) / 16

    def collision_probability(self, cosine):
        """The probability that vectors at an angle share a bucket of one table, for SimHash.

        `(1 - theta / pi)^K` (Charikar 2002), provided that K is at most `most_bits`.
        """
        agree = 1 - tf.acos(tf.clip_by_value(cosine, -1.0, 1.0)) / math.pi
        return agree**self.num_hashes

    def health(self):
        """Sizes of the buckets, as a dict of numbers."""
        sizes = np.diff(self._offsets.numpy().astype("int64"), axis=1)
        return {
            "num_tables": self.num_tables,
            "num_hashes": self.num_hashes,
            "num_buckets": sizes.shape[1],
            "mean_bucket": float(sizes.mean()),
            "median_bucket_of_a_class": _median_of_classes(sizes),
            "largest_bucket": int(sizes.max()),
            "empty_bucket_share": float(np.mean(sizes == 0)),
        }

    @property
    def _family(self):
        return self.kind, self.num_hashes, self.num_tables, self._bits, _BIN_SIZE

    def _new_functions(self, seed):
        family = (self.kind, self._dim, self.num_hashes, self.num_tables)
        return hash_functions(*family, tf.cast(tf.stack(seed), tf.int64), _BIN_SIZE)

    def _check_memory(self, needed):
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if needed > available:
            raise ValueError(
                f"{self.num_tables} hash tables over {self._num_classes} classes take "
                f"{needed / 2**30:.1f} GiB, and this machine has {available / 2**30:.1f} GiB. "
                f"Received: num_tables={self.num_tables}. Lower it."
            )


def _median_of_classes(sizes):
    """The bucket size that half of the classes do not exceed."""
    sizes = np.sort(sizes.reshape(-1))
    total = np.cumsum(sizes)
    return int(sizes[np.searchsorted(total, total[-1] / 2)]) if total[-1] else 0
