"""Random calls of draws by tables, including damaged tables."""

import numpy as np
import tensorflow as tf

from tests.fuzz import checks
from tests.fuzz.draws import EXTREME_INTEGERS, Call
from tf_largeout import ops


def alias_table(draws):
    weights = _weights(draws)

    def check(table):
        slots, probability = table
        num_classes = weights.shape[0]
        checks.has_shape(slots, num_classes, 2)
        checks.within(slots[:, 0], 0, 2**60 + 1)
        checks.within(slots[:, 1], 0, num_classes)
        checks.within(probability, 0, 1.0001)
        np.testing.assert_allclose(np.sum(probability, dtype=np.float64), 1, rtol=1e-4)

    return Call(ops.alias_table, (weights,), {}, check)


def pivotal_table(draws):
    weights = _weights(draws)
    num_classes = weights.shape[0] if weights.shape.rank else 1
    num_sampled = draws.attribute(draws.random.integers(1, max(num_classes, 1) + 1))
    num_buckets = draws.attribute(draws.size(1))

    def check(table):
        cumulative, index = table
        checks.has_shape(cumulative, num_classes + 1)
        checks.has_shape(index, num_buckets + 1)
        assert cumulative[0] == 0 and (np.diff(cumulative) >= 0).all(), "sums fall"
        checks.within(index, 0, num_classes + 1)

    return Call(ops.pivotal_table, (weights, num_sampled, num_buckets), {}, check)


def alias_sample(draws):
    num_classes = draws.rows(1)
    slots, probability = ops.alias_table(draws.random.random(num_classes) + 1e-6)
    slots = _damaged(draws, slots)
    if draws.odd():
        probability = draws.floats(num_classes)
    labels = draws.ids((draws.size(), draws.size() % 8), num_classes)
    num_sampled = draws.attribute(draws.size(1))

    def check(draw):
        checks.within(draw[0], 0, num_classes)
        if draws.odd_chance == 0:
            checks.is_draw(draw, labels, num_classes, num_sampled)

    arguments = (labels, draws.seed(), slots, probability, num_sampled)
    return Call(ops.alias_sample, arguments, {}, check)


def pivotal_sample(draws):
    num_classes = draws.rows(1)
    made_for = int(draws.random.integers(1, num_classes + 1))
    weights = draws.random.random(num_classes) + 1e-6
    cumulative, index = ops.pivotal_table(weights, made_for, draws.size(1))
    cumulative, index = _damaged(draws, cumulative), _damaged(draws, index)
    labels = draws.ids((draws.size(), draws.size() % 8), num_classes)
    num_sampled = draws.attribute(made_for)

    def check(draw):
        checks.within(draw[0], 0, num_classes)
        if draws.odd_chance == 0:
            checks.is_draw(draw, labels, num_classes, num_sampled)
            checks.distinct(draw[0])

    arguments = (labels, draws.seed(), cumulative, index, num_sampled)
    return Call(ops.pivotal_sample, arguments, {}, check)


def _weights(draws):
    """Returns float64 weights of similar or different sizes, some extreme."""
    values = np.abs(draws.random.normal(size=draws._shape((draws.rows(1),))))
    values = values ** draws.pick((0, 1, 8, 60)) * draws.pick((1, 1, 1e-300, 1e300, 5e-324))
    edges = (5e-324, 1e-308, 1.7e308, 1.0)
    if draws.odd():
        edges = (*edges, 0.0, -1.0, np.nan, np.inf, -np.inf)
    others = draws.random.choice(edges, size=values.shape)
    chosen = draws.random.random(values.shape) < draws.pick((0, 0, 0.3))
    return tf.constant(np.where(chosen, others, np.clip(values, 5e-324, 1.7e308)), tf.float64)


def _damaged(draws, table):
    """Returns a table with some invalid or missing integers."""
    if not draws.odd():
        return table
    if draws.chance(0.3):
        return table[:-1]
    values = table.numpy()
    others = draws.random.choice(np.array(EXTREME_INTEGERS), size=values.shape)
    return tf.constant(np.where(draws.random.random(values.shape) < 0.2, others, values))
