"""Hash tables, and when they are rebuilt: they find the rows in a query's buckets."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.arguments import is_whole, one_of, real_number, require_memory, whole_number
from tf_largeout.ops import devices
from tf_largeout.papers.lsh.hash_ops import hash_functions, lsh_hash
from tf_largeout.papers.lsh.lsh_ops import lsh_build, lsh_fresh_share, lsh_pool, lsh_query
from tf_largeout.types import AddWeight, Config
from tf_largeout.variables.initializers import constant_initializer, zeros_initializer
from tf_largeout.variables.replicas import local_variable

HASHES = ["simhash", "dwta", "wta"]
DEFAULT_BIN_SIZE = 8
_BIN_SIZES = [2**bits for bits in range(1, 9)]  # the limit of the ops is 256
_MOST_BITS = 30
_NUM_PROBES = 64
_LEAST_LOOKUPS = 8  # per table, if the rows that occur most often are searched
LOOKUPS_PER_ROW = 16  # table entries that a query looks at per row of the most frequent ones
_NEVER = 2.0**62  # steps


class HashTableConfig:
    """The hash tables of an `LSHSampler`: L tables of K hashes, and when they are rebuilt.

    Args:
        hash: "simhash", "dwta" or "wta".
        num_hashes: K. None chooses K such that the L buckets of a query contain about `8
            num_sampled` entries if all buckets have equal size.
        num_tables: L.
        rebuild_every: Steps between the first two builds.
        rebuild_growth: Growth factor g of this interval after each rebuild: rebuild i is
            at step `rebuild_every (g^i - 1) / (g - 1)`.
        bin_size: For "dwta" and "wta", how many numbers a hash value compares: a power of two
            from 2 to 256, 8 by default. A value has `log2(bin_size)` bits. "simhash" does not
            use it. Vijayanarasimhan et al. 2015 (section 4) use 16 with 1,000 tables of 3
            hashes: k = 16, M = 1,000 bands, P = 3,000 permutations.

    Raises:
        ValueError: If an argument is out of range.

    Example:
        LSHSampler(1024, tables=HashTableConfig(num_tables=20, rebuild_growth=2.0))
    """

    def __init__(
        self,
        hash: str = "simhash",
        num_hashes: int | None = None,
        num_tables: int = 50,
        rebuild_every: int = 50,
        rebuild_growth: float = 1.5,
        bin_size: int = DEFAULT_BIN_SIZE,
    ) -> None:
        self.hash = one_of("hash", hash, HASHES)
        self.num_hashes = whole_number("num_hashes", num_hashes, or_none=True)
        self.num_tables = whole_number("num_tables", num_tables)
        self.rebuild_every = whole_number("rebuild_every", rebuild_every)
        self.rebuild_growth = real_number("rebuild_growth", rebuild_growth, least=1)
        self.bin_size = checked_bin_size(bin_size)

    def get_config(self) -> Config:
        """Returns the arguments as values that JSON supports."""
        return dict(vars(self))

    @classmethod
    def get(cls, identifier: Any) -> "HashTableConfig":
        """Returns the configuration for a `HashTableConfig`, a dict of its arguments, or None.

        Other values and other keys raise a ValueError.
        """
        if isinstance(identifier, cls):
            return identifier
        names = list(vars(cls()))
        given = {} if identifier is None else identifier
        if not isinstance(given, dict) or given.keys() - set(names):
            raise ValueError(
                f"`tables` must be a HashTableConfig, or a dict with some of the keys {names}. "
                f"Received: tables={identifier!r}."
            )
        return cls(**given)


def most_bits(num_rows: int) -> int:
    """Returns the number of bits of a bucket number, for at most `num_rows / 10` buckets."""
    return max(1, min(_MOST_BITS, int(math.log2(max(2, num_rows / 10)))))


def checked_bin_size(value: Any) -> int:
    """Returns the argument `bin_size` as an int; raises a ValueError if it is not valid."""
    if is_whole(value) and value in _BIN_SIZES:
        return int(value)
    raise ValueError(
        f"`bin_size` must be a power of two from 2 to {_BIN_SIZES[-1]}, because a hash value "
        f"is stored in log2(bin_size) bits. Received: bin_size={value!r} (of type "
        f"{type(value).__name__}). Pass the next power of two, such as 8 or 16."
    )


def bits_per_value(hash: str, bin_size: int) -> int:
    """Returns how many bits a hash value has: 1 for SimHash, otherwise `log2(bin_size)`."""
    return 1 if hash == "simhash" else int(math.log2(bin_size))


def default_num_hashes(
    hash: str,
    num_tables: int,
    num_rows: int,
    num_found: int,
    bin_size: int = DEFAULT_BIN_SIZE,
) -> int:
    """Returns a K with which L buckets of equal size have about `8 num_found` entries."""
    bits = math.log2(max(2.0, num_tables * num_rows / (8 * num_found)))
    return max(1, round(bits / bits_per_value(hash, bin_size)))


class HashTables:
    """L tables of K hashes over N rows, and the hash functions.

    The state takes at most `4.4 L N` bytes, because no table has more than N / 10 buckets. If K
    hash values have more bits than a bucket number, they are mixed to fewer bits. The state and
    the queries are on the device of the rows. `kind` and `bin_size` are those of `hash_ops`.
    """

    def __init__(
        self,
        kind: str,
        num_hashes: int,
        num_tables: int,
        bin_size: int = DEFAULT_BIN_SIZE,
    ) -> None:
        self.kind, self.num_hashes, self.num_tables = kind, num_hashes, num_tables
        self.bin_size = bin_size
        self._functions: keras.Variable = None
        self._offsets: keras.Variable = None
        self._ids: keras.Variable = None
        self._bits = self._num_rows = self._dim = 0

    def build(
        self,
        num_rows: int,
        dim: int,
        add_weight: AddWeight,
        *,
        num_rows_of_all: int = 0,
        num_parts: int = 1,
    ) -> None:
        """Creates the state. Until the first `rebuild` all buckets are empty.

        If the rows are a shard, the tables have as many buckets as tables over
        `num_rows_of_all` rows; `num_parts` shards are on this machine. Tables that need more
        memory than the machine has raise a ValueError.
        """
        self._num_rows, self._dim = num_rows, dim
        bits = self.num_hashes * bits_per_value(self.kind, self.bin_size)
        self._bits = min(bits, most_bits(num_rows_of_all or num_rows))
        offsets_shape = (self.num_tables, 2**self._bits + 1)
        ids_shape = (self.num_tables, num_rows)
        require_memory(
            4 * (math.prod(offsets_shape) + math.prod(ids_shape)) * num_parts,
            f"{self.num_tables} hash tables over {num_rows * num_parts} rows take",
            f"Received: num_tables={self.num_tables}. Lower it.",
        )
        with tf.init_scope(), tf.device("CPU:0"):
            functions = self._new_functions(tf.constant([0, 0], tf.int64)).numpy()
        self._functions = add_weight(
            "hash_functions",
            functions.shape,
            "int32",
            constant_initializer(functions),
            on_host=True,
        )
        # uint32: TensorFlow keeps int32 variables on the CPU even if the rest is on a GPU.
        self._offsets = add_weight("table_offsets", offsets_shape, "uint32", zeros_initializer)
        self._ids = add_weight("table_ids", ids_shape, "uint32", zeros_initializer)

    def rebuild(self, embeddings: tf.Variable, seed: tf.Tensor) -> None:
        """Hashes all rows again, with new functions; equal seeds give equal functions.

        Whether a row and a query share a bucket depends on the random functions. If the
        functions stayed the same, a row that shares no bucket with similar queries would be
        missed during the whole training.
        """
        with devices.host_scope(self._functions):
            functions = self._new_functions(seed)
            local_variable(self._functions).assign(functions)
        offsets, ids = self._variables()
        lsh_build(embeddings, functions, offsets, ids, *self._family)

    def codes(
        self,
        vectors: tf.Tensor,
        labels: tf.Tensor | None = None,
        others: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns the buckets of a batch of queries, an argument of the methods below.

        They are int32 `[batch, k * num_tables]` for k vectors per query, -1 for those of
        padding. Without `labels`, a query has one vector. With labels, int64 `[batch,
        num_labels]`, padded with -1, `vectors` has a row for each label that is not padding, in
        their order, and `others`, `[batch, dim]`, may have one more vector per query.
        """
        functions = local_variable(self._functions).read_value()
        codes = lsh_hash(vectors, functions, *self._family)
        if labels is None:
            return codes
        shape = tf.concat([tf.shape(labels), [self.num_tables]], axis=0)
        none = tf.fill(shape, tf.constant(-1, tf.int64))  # int32 would go through the host
        codes = tf.cast(codes, tf.int64)
        codes = tf.tensor_scatter_nd_update(none, tf.where(labels >= 0), codes)
        codes = tf.reshape(codes, [shape[0], shape[1] * shape[2]])
        if others is not None:
            codes = tf.concat([tf.cast(self.codes(others), tf.int64), codes], axis=1)
        return tf.cast(codes, tf.int32)

    def query(
        self,
        codes: tf.Tensor,
        excluded: tf.Tensor,
        select: str,
        num_found: int,
        max_lookups: int,
        seed: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns rows that share buckets with each query, see `lsh_query`.

        `max_lookups` is the most table entries that a query reads. "frequent" reads at least 8
        per table: with fewer entries than tables, it would find nothing. A `seed` of None,
        without the uniform draws that complete a result, is possible only for "frequent".
        """
        no_seed = tf.zeros([2], tf.int64)
        if select == "frequent":
            max_lookups = max(max_lookups, _LEAST_LOOKUPS * self.num_tables)
        return lsh_query(
            *self._variables(),
            codes,
            excluded,
            no_seed if seed is None else seed,
            select,
            num_found,
            max_lookups,
            fill=seed is not None,
        )

    def num_entries(self, codes: tf.Tensor) -> tf.Tensor:
        """Returns the number of entries in the buckets of each query, int64 `[batch]`."""
        offsets = local_variable(self._offsets)
        tables = tf.range(tf.shape(codes)[1]) % self.num_tables
        places = tf.stack([tf.zeros_like(codes) + tables, tf.maximum(codes, 0)], axis=-1)
        begins, ends = (
            tf.cast(tf.gather_nd(offsets, places + [0, step]), tf.int64) for step in (0, 1)
        )
        return tf.reduce_sum(tf.where(codes < 0, tf.zeros_like(ends), ends - begins), axis=1)

    def draw(
        self, codes: tf.Tensor, seed: tf.Tensor, num_drawn: int
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws from all entries in the buckets of a batch, see `lsh_pool`."""
        return lsh_pool(*self._variables(), codes, seed, num_drawn)

    def fresh_share(self, embeddings: tf.Variable) -> tf.Tensor:
        """Estimates the share of entries that are in the right buckets for the current rows."""
        ids = tf.range(_NUM_PROBES, dtype=tf.int64) * self._num_rows // _NUM_PROBES
        codes = self.codes(tf.cast(tf.gather(embeddings, ids), tf.float32))
        return lsh_fresh_share(*self._variables(), codes, ids)

    def are_stale(self, embeddings: tf.Variable) -> tf.Tensor:
        """Returns a scalar bool: whether hardly more entries are correct than by chance."""
        chance = 2.0**-self._bits
        return self.fresh_share(embeddings) < chance + (1 - chance) / 16

    def collision_probability(self, cosine: tf.Tensor) -> tf.Tensor:
        """Returns the probability that vectors share a bucket of one table, for SimHash.

        This is `(1 - theta / pi)^K` for the angle theta (Charikar 2002), if K is at most
        `most_bits`. Cosines are clipped to [-1, 1].
        """
        agree = 1 - tf.acos(tf.clip_by_value(cosine, -1.0, 1.0)) / math.pi
        return agree**self.num_hashes

    def bucket_sizes(self) -> np.ndarray:
        """Returns the number of entries of each bucket, int64 `[num_tables, num_buckets]`."""
        return np.diff(self._offsets.numpy().astype("int64"), axis=1)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the state, by the names of the weights."""
        names = ("hash_functions", "table_offsets", "table_ids")
        return {name: w.numpy() for name, w in zip(names, self.variables(), strict=True)}

    def variables(self) -> list[tf.Variable]:
        """Returns the `tf.Variable`s of functions, offsets and ids on this replica."""
        return [local_variable(self._functions), *self._variables()]

    @property
    def _family(self) -> tuple[str, int, int, int, int]:
        return self.kind, self.num_hashes, self.num_tables, self._bits, self.bin_size

    def _variables(self) -> tuple[tf.Variable, tf.Variable]:
        """Returns the `tf.Variable`s of offsets and ids on this replica."""
        return local_variable(self._offsets), local_variable(self._ids)

    def _new_functions(self, seed: tf.Tensor) -> tf.Tensor:
        family = (self.kind, self._dim, self.num_hashes, self.num_tables)
        return hash_functions(*family, seed, self.bin_size)


class ScheduledHashTables(HashTables):
    """`HashTables` that are rebuilt inside training steps.

    The first training step builds. If a rebuild comes d steps after the previous one, the next
    one comes `growth * d` steps later (Daghaghi et al. 2021, section 3.3), because weights
    change less and less; see `HashTableConfig`. Also, every `every` steps, the tables are
    rebuilt if they no longer fit the rows, as after weights were set directly. The state is a
    weight, so a resumed run rebuilds in the same steps as an uninterrupted one.
    """

    def __init__(self, config: HashTableConfig, num_hashes: int) -> None:
        super().__init__(config.hash, num_hashes, config.num_tables, config.bin_size)
        self._every, self._growth = config.rebuild_every, config.rebuild_growth
        self._schedule: keras.Variable = None  # [step, step of the next rebuild]

    def build(self, num_rows: int, dim: int, add_weight: AddWeight, **of_all: int) -> None:
        super().build(num_rows, dim, add_weight, **of_all)
        self._schedule = add_weight("rebuild_state", (2,), "int64", "zeros", on_host=True)

    def keep_up(
        self, seed: tf.Tensor, embeddings: tf.Variable, bias: tf.Variable | None = None
    ) -> None:
        """Counts a training step, and first rebuilds the tables if that is due.

        The hash functions depend only on the seed of the run and the step. Hashes compare
        directions, so they do not use the biases.
        """
        schedule = local_variable(self._schedule)

        def is_stale() -> tf.Tensor:
            with devices.device_scope_of(self._ids):
                return self.are_stale(embeddings)

        def rebuild() -> tf.Tensor:
            with devices.device_scope_of(self._ids):
                self._rebuild_in(step, seed, embeddings)
            return self._next_after(step)

        with devices.host_scope(self._schedule):
            step, next_rebuild = tf.unstack(schedule.read_value())
            due = step >= next_rebuild
            ask = tf.logical_and(step % self._every == 0, tf.logical_not(due))
            due = tf.logical_or(due, tf.cond(ask, is_stale, lambda: tf.constant(False)))
            next_rebuild = tf.cond(due, rebuild, lambda: next_rebuild)
            schedule.assign([step + 1, next_rebuild])

    def rebuild_now(
        self, seed: tf.Tensor, embeddings: tf.Variable, bias: tf.Variable | None = None
    ) -> None:
        """Rebuilds outside the schedule; the next interval starts at this step."""
        schedule = local_variable(self._schedule)
        step = schedule.read_value()[0]
        self._rebuild_in(step, seed, embeddings)
        schedule.assign([step, self._next_after(step)])

    def resume(self, before: Any) -> None:
        """Takes the step number of other `ScheduledHashTables`; the next step rebuilds."""
        step = local_variable(before._schedule).read_value()[0]
        self._schedule.assign([step, step])

    def _next_after(self, step: tf.Tensor) -> tf.Tensor:
        # every * growth^i, from the step of rebuild i, so that i is not part of the state.
        distance = self._every + (self._growth - 1) * tf.cast(step, tf.float64)
        return step + tf.cast(tf.math.ceil(tf.minimum(distance, _NEVER)), tf.int64)

    def _rebuild_in(self, step: tf.Tensor, seed: tf.Tensor, embeddings: tf.Variable) -> None:
        with devices.host_scope(self._functions):
            # Draws count up from 0, so no draw has the seed of a rebuild.
            seed = tf.stack([seed[0], -1 - step])
        self.rebuild(embeddings, seed)


def health_of(parts: Sequence[HashTables]) -> dict[str, Any]:
    """Returns the sizes of the buckets of tables, those of several shards added up.

    See `LSHSampler.health`.
    """
    sizes = np.sum([part.bucket_sizes() for part in parts], axis=0)
    return {
        "num_tables": parts[0].num_tables,
        "num_hashes": parts[0].num_hashes,
        "num_buckets": sizes.shape[1],
        "mean_bucket": float(sizes.mean()),
        "largest_bucket": int(sizes.max()),
        "empty_bucket_share": float(np.mean(sizes == 0)),
        "median_bucket_of_a_class": _median_bucket_of_rows(sizes),
    }


def _median_bucket_of_rows(sizes: np.ndarray) -> int:
    """Returns the bucket size that half of the rows do not exceed."""
    sizes = np.sort(sizes.reshape(-1))
    total = np.cumsum(sizes)
    return int(sizes[np.searchsorted(total, total[-1] / 2)]) if total[-1] else 0
