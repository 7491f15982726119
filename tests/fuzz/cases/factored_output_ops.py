"""Random calls of the factored output layer, including invalid states."""

import numpy as np
import tensorflow as tf

from tests.fuzz import checks
from tests.fuzz.draws import Call
from tf_largeout.papers.factored import factored_output_ops


def factored_output_scores(draws):
    layer = _Layer(draws)

    def check(scores):
        _have_shapes(scores, *layer.features.shape, *layer.ids.shape, layer.width)
        checks.equal(scores.a.numpy()[layer.ids.numpy() == -1], 0)

    return Call(
        factored_output_ops.factored_output_scores,
        (layer.features, layer.ids, layer.state),
        {},
        check,
    )


def factored_output_step(draws):
    layer = _Layer(draws)
    batch, num_targets = layer.batch, layer.num_targets
    slopes = [layer.doubles(*shape) for shape in ([batch], [batch], [batch, num_targets])]
    products = [layer.doubles(batch, layer.width) for _ in range(2)]
    scores = factored_output_ops.FactoredScores(
        *slopes, *products, tf.constant(draws.odd(), tf.int64)
    )
    if draws.chance(0.7):
        try:
            scores = factored_output_ops.factored_output_scores(
                layer.features, layer.ids, layer.state
            )
        except (ValueError, TypeError, tf.errors.OpError):
            pass
    arguments = (layer.features, layer.ids, *slopes, scores, draws.scalar(), layer.state)
    options = {
        "update": draws.chance(0.8),
        "min_pivot": draws.pick((1e-4, 1e-4, draws.scalar())),
    }

    def check(by_features):
        checks.has_shape(by_features, *layer.features.shape)
        layer.is_stepped(options["update"] and layer.features.shape[0] > 0)

    return Call(
        factored_output_ops.factored_output_step, arguments, options, check, layer.is_as_before
    )


def factored_output_take_folds(draws):
    layer = _Layer(draws)

    def check(_):
        if draws.odd_chance == 0 and not layer.has_folds:
            layer.is_as_before()

    return Call(factored_output_ops.factored_output_take_folds, (layer.state,), {}, check)


def factored_output_vectors(draws):
    layer = _Layer(draws)

    def check(vectors):
        checks.has_shape(vectors, *layer.state.vectors.shape)
        layer.is_as_before()

    return Call(factored_output_ops.factored_output_vectors, (layer.state,), {}, check)


def _have_shapes(scores, batch, dim, rows_of_ids, num_targets, width):
    assert batch == rows_of_ids and dim in (width - 1, width)
    checks.has_shape(scores.q, batch)
    checks.has_shape(scores.s, batch)
    checks.has_shape(scores.a, batch, num_targets)
    checks.has_shape(scores.gram_features, batch, width)
    checks.has_shape(scores.mixed_features, batch, width)


class _Layer:
    """A random state, whose parts usually do not belong to the same weights, and a batch."""

    def __init__(self, draws):
        self._draws = draws
        self.num_classes, self.width = draws.rows(1), draws.size(1)
        self.batch, self.num_targets = draws.size(), draws.pick((0, 1, 3))
        dim = self.width - draws.pick((0, 1))
        self.features = draws.floats(self.batch, dim)
        self.ids = draws.ids([self.batch, self.num_targets], self.num_classes)
        width, vectors = self.width, draws.floats(self.num_classes, self.width)
        if draws.chance(0.5):
            vectors = tf.cast(vectors, tf.float64)
        sizes = ([width, width], [width, width], [width], [width], [width, width])
        state = [vectors, *(self.doubles(*size) for size in sizes), tf.zeros([], tf.int64)]
        self.has_folds = draws.chance(0.5)
        state += [self._folds(), tf.zeros([self.num_classes], tf.uint32)]
        self.state = factored_output_ops.FactoredState(*map(draws.variable, state))
        self._before = [(one, one.numpy()) for one in draws.variables]

    def _folds(self):
        places = self._draws.pick((8, 9, 20))
        if not self.has_folds:
            return tf.zeros([places + 1, self.width + 1], tf.float64)
        return self.doubles(places + 1, self.width + 1)

    def doubles(self, *shape):
        return tf.cast(self._draws.floats(*shape), tf.float64)

    def is_stepped(self, is_written):
        if not is_written:
            self.is_as_before()
            return
        if self._draws.odd_chance > 0 or self.has_folds:  # A variable may be a wrong one.
            return
        checks.equal(self.state.steps, 1)
        touched = np.isin(np.arange(self.num_classes), self.ids)
        vectors, before = self.state.vectors.numpy(), self._before[0][1]
        checks.equal(vectors[~touched], before[~touched])
        for one in (vectors[touched], *self.state[1:]):
            assert np.all(np.isfinite(one)), "what is not finite was written"

    def is_as_before(self):
        for one, value in self._before:
            checks.equal(one, value)
