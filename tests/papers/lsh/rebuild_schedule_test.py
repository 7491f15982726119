import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.samplers.stub_layer import built_layer
from tf_largeout import samplers
from tf_largeout.papers.lsh.hash_tables import ScheduledHashTables

SEED, ROWS = tf.constant([0, 0], tf.int64), tf.zeros([10, 2])


class RecordedTables(ScheduledHashTables):
    """Records the steps of its rebuilds in `rebuilt`, and is stale in the step `stale`."""

    def __init__(self, every, growth):
        config = samplers.HashTableConfig(
            num_tables=1, rebuild_every=every, rebuild_growth=growth
        )
        super().__init__(config, num_hashes=1)
        self.rebuilt = tf.Variable(tf.fill([40], np.int64(-1)))
        self.count = tf.Variable(0)
        self.stale = tf.Variable(np.int64(-1))

    def rebuild(self, embeddings, seed):
        self.rebuilt.scatter_nd_update([[self.count]], [-1 - seed[1]])
        self.count.assign_add(1)

    def are_stale(self, embeddings):
        return self._schedule.value.read_value()[0] == self.stale

    def steps(self):
        return self.rebuilt.numpy()[: int(self.count)].tolist()


class ScheduledSampler(samplers.UniformSampler):
    """Builds `tables` as weights of a layer."""

    def __init__(self, every, growth):
        super().__init__(3)
        self.tables = RecordedTables(every, growth)

    def build(self, layer):
        super().build(layer)
        self.tables.build(10, 2, functools.partial(self.add_weight, layer))


def advanced(steps, every, growth, eager=False, stale=-1):
    sampler = ScheduledSampler(every, growth)
    layer, tables = built_layer(10, sampler), sampler.tables
    tables.stale.assign(stale)

    def step():
        tables.keep_up(SEED, ROWS)

    step = step if eager else tf.function(step)
    for _ in range(steps):
        step()
    return tables, layer


@pytest.mark.parametrize("eager", [False, True])
def test_the_first_step_rebuilds_and_intervals_grow_by_the_factor(eager):
    assert advanced(160, 10, 2.0, eager)[0].steps() == [0, 10, 30, 70, 150]
    assert advanced(35, 10, 1.0, eager)[0].steps() == [0, 10, 20, 30]


def test_fractional_growth_follows_the_closed_form():
    steps = advanced(400, 20, 1.5)[0].steps()
    expected = [20 * (1.5**i - 1) / 0.5 for i in range(len(steps))]
    np.testing.assert_allclose(steps, expected, atol=len(steps))
    assert len(steps) == 6


def test_staleness_is_checked_at_a_fixed_interval():
    assert advanced(70, 10, 3.0, stale=20)[0].steps() == [0, 10, 20]
    assert advanced(39, 10, 3.0, stale=25)[0].steps() == [0, 10]


def test_a_manual_rebuild_postpones_the_next_one():
    tables, layer = advanced(15, 10, 2.0)
    tables.rebuild_now(SEED, ROWS)
    assert tables.steps() == [0, 10, 15]
    np.testing.assert_array_equal(layer.sampler_rebuild_state, [15, 40])


@pytest.mark.parametrize(
    "every, growth, message",
    [(0, 2, "rebuild_every=0"), (2.5, 2, "every=2.5"), (5, 0.5, "growth=0.5"),
     (5, float("nan"), "growth=nan")],
)  # fmt: skip
def test_bad_schedules_raise_an_error(every, growth, message):
    with pytest.raises(ValueError, match=message):
        samplers.HashTableConfig(rebuild_every=every, rebuild_growth=growth)
