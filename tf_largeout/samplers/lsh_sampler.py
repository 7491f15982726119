"""Negatives out of hash tables over the class embeddings."""

import math

import keras
import tensorflow as tf

from tf_largeout.arguments import whole_number
from tf_largeout.ops.row_dot_ops import row_dots
from tf_largeout.samplers import lsh_pool
from tf_largeout.samplers.hard_negative_sampler import HardNegativeSampler
from tf_largeout.samplers.hash_tables import BITS_OF_VALUE, HashTables, most_bits
from tf_largeout.samplers.rebuild_schedule import RebuildSchedule
from tf_largeout.sampled_values import SampledValues

_NUM_TABLES = 50
# Entries that a row looks at, at most, for each class that it wants.
_WALK_LOOKUPS, _FREQUENT_LOOKUPS, _POOL_LOOKUPS = 8, 16, 4


@keras.saving.register_keras_serializable(package="tf_largeout")
class LSHSampler(HardNegativeSampler):
    """Draws classes that fall into the same hash buckets as the example or its label.

    All class embeddings w_c lie in L hash tables of K hashes each. A row asks for its buckets,
    by its features ("LSH Embedding") or by the embeddings of its labels ("LSH Label"), and
    meets class c with probability `1 - (1 - p^K)^L`, where p is the collision probability of
    one hash. A step costs O(num_sampled + L) a row, whatever the number of classes. Forms:

    * `shared=False`: own classes `[batch, m]` for each row, by a walk through its buckets, or
      with `select="frequent"` those met most often. Where the buckets hold too few, uniform
      draws fill up. Expected counts are 1: not corrected for, as in the papers.
    * `shared=True`: one pool `[m]` for the batch. SimHash (this is `LSHSampler(m)`): entries
      are drawn from all buckets of the batch, and the expected count of class c is
      `m L sum_b (1 - theta_bc / pi)^K / E`, theta the angle between query and w_c, E the
      number of entries: right in the mean over hash functions, up to the relative variance of
      E (of order 1 / L). An eighth of the draws are uniform, so that no count is below
      `m / (8 N)`, wherever w_c points. Other hashes have no such form: the union of the
      classes that each row met most often, not corrected for.
    * `num_hard=T`: the classes met most often are scored exactly, and the T best are the head
      of a `HeadAndTail`; its loss is an unbiased estimate whatever the tables give.

    The tables are weights of the layer (at most 4.4 L N bytes), and are rebuilt inside the
    training step, see `RebuildSchedule`; also where the embeddings were set by hand, within
    `rebuild_every` steps, or at once by `rebuild`.

    Args:
        num_sampled: Number of classes a row is compared with.
        query: "embedding" or "label".
        hash: "simhash", "dwta" or "wta", the last two over 8 numbers a value.
        num_hashes: K. By default such that the L buckets of a row would hold about
            `8 num_sampled` entries if classes fell into buckets evenly.
        num_tables: L, 50 by default.
        select: "walk" or "frequent"; used where each row has its own uncorrected classes.
        shared: Whether the batch shares one pool. None shares where the pool is corrected for:
            SimHash, the walk, no `num_hard`. That takes no more hashes than buckets allow, and
            no more samples than classes. On `place_names` with 1,024 classes a step of a
            shared pool took a sixth of one with own classes, and P@1 was 34 against 4 after the
            same 75 s on one core.
        num_hard: How many classes of a row come from the tables, or None for all.
        tail: With `num_hard`, what draws the others: a name such as "uniform", or a static
            `Sampler`.
        rebuild_every: Steps between the first two builds.
        rebuild_growth: Factor by which that distance grows.
        start_step: With `num_hard`, number of the training step, from 0, that builds the
            tables and is the first to search; None for `num_classes / 200`, at
            least 100 and at most 1,000.
        seed: Optional int that the layer's draws start from; random if None.

    References:
        Daghaghi et al. 2021, "A tale of two efficient and informative negative sampling
        distributions" (walk); Vijayanarasimhan et al. 2015, "Deep networks with large output
        spaces" (frequent).

    Example:
        head = LargeOutput(100_000, sampler=LSHSampler(1024, num_hard=64))
    """

    def __init__(
        self,
        num_sampled=1024,
        query="embedding",
        hash="simhash",
        num_hashes=None,
        num_tables=None,
        select="walk",
        shared=None,
        num_hard=None,
        tail="uniform",
        rebuild_every=50,
        rebuild_growth=1.5,
        start_step=0,
        seed=None,
    ):
        super().__init__(num_sampled, num_hard, tail, start_step, seed)
        self.query = _one_of("query", query, ["embedding", "label"])
        self.hash = _one_of("hash", hash, list(BITS_OF_VALUE))
        self.num_hashes = whole_number("num_hashes", num_hashes, or_none=True)
        self.num_tables = whole_number("num_tables", num_tables, or_none=True)
        self.select = _one_of("select", select, ["walk", "frequent"])
        self.shared = None if shared is None else bool(shared)
        if self.shared and self.num_hard:
            raise ValueError(
                "A shared pool has no classes of a row's own. Received: shared=True, "
                f"num_hard={num_hard}. Leave one of them out."
            )
        self._schedule = RebuildSchedule(rebuild_every, rebuild_growth)
        self._tables: HashTables = None
        self._draws: keras.Variable = None
        self._pools = False

    def build(self, layer):
        self._pools = self._shares(layer.num_classes)
        super().build(layer)
        num_tables = self.num_tables or _NUM_TABLES
        num_hashes = self.num_hashes or self._default_num_hashes(num_tables)
        self._tables = HashTables(self.hash, num_hashes, num_tables)
        self._tables.build(self, layer)
        self._schedule.build(self, layer)
        self._draws = self.add_weight(layer, "draw_counts", (2,), "int64", "zeros")

    def prepare(self, layer):
        self._schedule.advance(
            layer,
            lambda step: self._tables.rebuild(layer, step),
            lambda: self._tables.are_stale(layer),
        )

    def sample(self, features, labels, layer):
        if not self._pools:
            return super().sample(features, labels, layer)
        self.prepare(layer)
        labels = tf.convert_to_tensor(labels, tf.int64)
        features = tf.cast(tf.stop_gradient(features), tf.float32)
        values = self._pool(features, labels, layer)
        return SampledValues(*(tf.stop_gradient(value) for value in values))

    def search(self, features, labels, layer):
        codes = self._codes(features, labels, layer)
        if not self.num_hard:
            per_class = _WALK_LOOKUPS if self.select == "walk" else _FREQUENT_LOOKUPS
            ids, num_filled = self._tables.query(
                codes, labels, layer, self.select, self.num_sampled,
                per_class * self.num_sampled,
            )  # fmt: skip
            self._count(tf.size(ids), tf.reduce_sum(tf.cast(num_filled, tf.int64)), layer)
            return ids
        candidates, _ = self._tables.query(
            codes, labels, layer, "frequent", self.num_sampled,
            _FREQUENT_LOOKUPS * self.num_sampled, fill=False,
        )  # fmt: skip
        self._count(tf.size(candidates), 0, layer)
        embeddings, bias = layer.local_variables()
        logits = row_dots(features, embeddings, candidates, bias)
        _, best = tf.math.top_k(logits, self.num_hard, sorted=False)
        return tf.gather(candidates, best, batch_dims=1)

    def rebuild(self, layer):
        """Rebuilds the tables now; the next rebuild follows at the distance of this step.

        Training does it by itself. For use outside of a training step, after the embeddings
        were changed by hand.
        """

        def rebuild():
            self._schedule.now(layer, lambda step: self._tables.rebuild(layer, step))

        self._rebuild_now(layer, rebuild)

    def table_health(self, layer):
        """What the tables are like, as a dict of numbers.

        `largest_bucket`, `mean_bucket`, `empty_bucket_share`; `median_bucket_of_a_class`, the
        size of the bucket that an average class is in; `fresh_share`, how much of the tables is
        right by the weights of now; `uniform_fill_share`, how much of what was drawn so far
        came from uniform draws, because the buckets held too little.
        """
        self.require_built()
        drawn, filled = self._draws.numpy().tolist()
        return {
            **self._tables.health(),
            "fresh_share": float(self._tables.fresh_share(layer)),
            "uniform_fill_share": filled / max(1, drawn),
        }

    def get_config(self):
        return {
            **super().get_config(),
            "query": self.query,
            "hash": self.hash,
            "num_hashes": self.num_hashes,
            "num_tables": self.num_tables,
            "select": self.select,
            "shared": self.shared,
            **self._schedule.get_config(),
        }

    def _default_num_hashes(self, num_tables):
        bits = math.log2(max(2.0, num_tables * self.num_classes / (8 * self.num_sampled)))
        num_hashes = max(1, round(bits / BITS_OF_VALUE[self.hash]))
        return min(num_hashes, most_bits(self.num_classes)) if self._pools else num_hashes

    def _shares(self, num_classes):
        """Whether the batch shares one pool; by default of the forms that are corrected for."""
        shares = self.shared
        if shares is None:
            walks = self.select == "walk" and not self.num_hard
            shares = walks and self.hash == "simhash"
        obstacle = self._obstacle_to_sharing(num_classes) if shares else None
        if obstacle:
            raise ValueError(
                f"{obstacle} Take fewer, or shared=False: classes of each row's own, which are "
                "not corrected for."
            )
        return shares

    def _obstacle_to_sharing(self, num_classes):
        """Why no pool can be shared, in two sentences; or None."""
        most = most_bits(num_classes)
        if self.hash == "simhash" and (self.num_hashes or 0) > most:
            return (
                "The counts of a shared pool of SimHash are known only if each list of hash "
                f"values has a bucket of its own: with at most {most} hashes for "
                f"num_classes={num_classes}. Received: num_hashes={self.num_hashes}."
            )
        if self.num_sampled > num_classes:
            return (
                f"A shared pool of {self.num_sampled} classes needs as many. Received: "
                f"num_sampled={self.num_sampled}, num_classes={num_classes}."
            )
        return None

    def _vectors(self, features, labels, layer):
        """What rows ask with, `[n, dim]`, and where its codes stand, `[n, 2]` or None."""
        if self.query == "embedding":
            return features, None
        places = tf.where(labels >= 0)
        rows = tf.gather(layer.local_variables()[0], tf.gather_nd(labels, places))
        return tf.stop_gradient(rows), places

    def _codes(self, features, labels, layer):
        """int32 `[batch, n * num_tables]`, -1 where there is no vector to ask with."""
        vectors, places = self._vectors(features, labels, layer)
        codes = self._tables.codes(vectors, layer)
        if places is None:
            return codes
        shape = tf.concat([tf.shape(labels), [self._tables.num_tables]], axis=0)
        none = tf.fill(shape, tf.constant(-1, tf.int64))  # int32 would go through the host
        codes = tf.tensor_scatter_nd_update(none, places, tf.cast(codes, tf.int64))
        return tf.cast(tf.reshape(codes, [shape[0], shape[1] * shape[2]]), tf.int32)

    def _pool(self, features, labels, layer):
        codes = self._codes(features, labels, layer)
        if self.hash == "simhash":
            vectors, _ = self._vectors(features, labels, layer)
            pool = lsh_pool.draw(self._tables, vectors, codes, labels, layer, self.num_sampled)
            self._count(self.num_sampled, 0, layer)
            return pool
        lists, _ = self._tables.query(
            codes, labels[:, :0], layer, "frequent", self.num_sampled,
            _POOL_LOOKUPS * self.num_sampled, fill=False,
        )  # fmt: skip
        pool, num_filled = lsh_pool.union(lists, layer, self.num_sampled)
        self._count(self.num_sampled, num_filled, layer)
        return SampledValues(pool, tf.ones(tf.shape(labels)), tf.ones(tf.shape(pool)))

    def _count(self, drawn, filled, layer):
        counts = tf.stack([tf.cast(drawn, tf.int64), tf.cast(filled, tf.int64)])
        layer.local_variable(self._draws).assign_add(counts)


def _one_of(name, value, choices):
    if value in choices:
        return value
    raise ValueError(f"`{name}` must be one of {choices}. Received: {name}={value!r}.")
