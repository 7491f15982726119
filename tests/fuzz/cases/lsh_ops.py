"""Random calls of hash tables, including damaged ones."""

import numpy as np
import tensorflow as tf

from tests.fuzz import checks
from tests.fuzz.cases.hash_ops import family
from tests.fuzz.draws import Call
from tf_largeout.papers.lsh import lsh_ops


def lsh_build(draws):
    one, bits = family(draws), int(draws.random.integers(1, 8))
    num_classes = one.rows(draws, 1)
    embeddings = draws.variable(draws.floats(num_classes, one.dim))
    offsets = draws.variable(np.zeros((one.num_tables, 2**bits + 1), np.uint32))
    ids = draws.variable(np.zeros((one.num_tables, num_classes), np.uint32))
    sizes = (one.num_hashes, one.num_tables, bits, one.bin_size)
    sizes = [draws.attribute(size) for size in sizes]

    def check(_):
        checks.offsets_rise(offsets, ids.shape[1])
        everything = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        checks.equal(np.sort(ids, axis=1), everything)

    arguments = (embeddings, one.functions, offsets, ids, one.kind, *sizes)
    return Call(lsh_ops.lsh_build, arguments, {}, check)


def lsh_query(draws):
    tables = _Tables(draws)
    batch = draws.rows()
    labels = draws.ids((batch, draws.size() % 6), tables.num_classes)
    num_sampled = draws.attribute(draws.size(1))
    max_lookups = draws.attribute(3 * draws.size(1))
    select = draws.pick(("walk", "frequent"))
    arguments = (tables.offsets, tables.ids, tables.codes(batch), labels, draws.seed())
    arguments += (select, num_sampled, max_lookups, draws.chance(0.5))

    def check(found):
        sampled, num_filled = found
        checks.has_shape(sampled, labels.shape[0], num_sampled)
        checks.has_shape(num_filled, labels.shape[0])
        checks.within(sampled, -1, tables.ids.shape[1])
        checks.distinct(sampled)
        checks.padded_at_the_end(sampled)
        checks.within(num_filled, 0, num_sampled + 1)
        sampled = np.asarray(sampled)
        assert not checks.hits(labels, sampled, len(sampled)).any(), "a label was drawn"

    return Call(lsh_ops.lsh_query, arguments, {}, check)


def lsh_pool(draws):
    tables = _Tables(draws)
    num_sampled = draws.attribute(draws.size(1))
    codes = tables.codes(draws.rows())

    def check(pool):
        sampled, num_entries = pool
        checks.has_shape(sampled, num_sampled)
        checks.has_shape(num_entries)
        checks.within(num_entries, 0, np.inf)
        checks.within(sampled, -1, tables.ids.shape[1])
        if draws.odd_chance == 0:
            assert (sampled.numpy() == -1).all() == (num_entries == 0)

    arguments = (tables.offsets, tables.ids, codes, draws.seed(), num_sampled)
    return Call(lsh_ops.lsh_pool, arguments, {}, check)


def union_of_lists(draws):
    num_classes = draws.size(1) if draws.chance(0.8) else draws.pick((2**31 - 1, 2**31, 2**40))
    lists = draws.ids((draws.rows(), draws.size()), num_classes)
    num_sampled, num_classes = draws.attribute(draws.size(1)), draws.attribute(num_classes)

    def check(union):
        sampled, num_filled = union
        checks.has_shape(sampled, num_sampled)
        checks.within(sampled, -1, num_classes)
        checks.distinct(sampled)
        checks.padded_at_the_end(sampled)
        checks.within(num_filled, 0, num_sampled + 1)
        listed = np.unique(lists)
        listed = listed[listed >= 0]
        if len(listed) <= num_sampled:
            assert np.isin(listed, sampled).all(), "an id of a list is missing"

    return Call(
        lsh_ops.union_of_lists, (lists, draws.seed(), num_classes, num_sampled), {}, check
    )


def lsh_fresh_share(draws):
    tables = _Tables(draws)
    number = draws.rows()
    codes = draws.ids((number, tables.num_tables), tables.num_buckets, 0, np.int32)
    row_ids = draws.ids((number,), tables.num_classes, 0)

    def check(share):
        checks.has_shape(share)
        checks.within(share, 0, 1.0001)

    return Call(
        lsh_ops.lsh_fresh_share, (tables.offsets, tables.ids, codes, row_ids), {}, check
    )


class _Tables:
    """Hash tables that are built, empty or damaged."""

    def __init__(self, draws):
        self._draws = draws
        self.num_classes, bits = draws.size(1), int(draws.random.integers(1, 8))
        self.num_tables, self.num_buckets = int(draws.random.integers(1, 6)), 2**bits
        offsets, ids = self._filled()
        self.offsets = draws.variable(self._damaged(offsets))
        self.ids = draws.variable(self._damaged(ids))

    def codes(self, batch):
        times = int(self._draws.random.integers(0, 4))
        shape = (batch, times * self.num_tables)
        return self._draws.ids(shape, self.num_buckets, dtype=np.int32)

    def _filled(self):
        """Puts each class in a random bucket of each table, or in none as before a build."""
        shape = self.num_tables, self.num_classes
        random = self._draws.random
        if self._draws.chance(0.1):
            return np.zeros((shape[0], self.num_buckets + 1)), np.zeros(shape)
        ends = np.sort(random.integers(0, shape[1] + 1, (shape[0], self.num_buckets + 1)))
        ends[:, 0], ends[:, -1] = 0, shape[1]
        return ends, random.permuted(np.tile(np.arange(shape[1]), (shape[0], 1)), axis=1)

    def _damaged(self, table):
        table = table.astype(np.uint32)
        if not self._draws.odd():
            return tf.constant(table)
        edges = (0, 1, self.num_classes, self.num_classes + 1, 2**31 - 1, 2**31, 2**32 - 1)
        others = self._draws.random.choice(np.array(edges, np.uint32), size=table.shape)
        damaged = self._draws.random.random(table.shape) < 0.3
        return tf.constant(np.where(damaged, others, table))
