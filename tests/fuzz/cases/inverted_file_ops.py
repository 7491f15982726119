"""Random calls of inverted files, including damaged ones."""

import numpy as np
import tensorflow as tf

from tests.fuzz import checks
from tests.fuzz.draws import EXTREME_INTEGERS, SPECIAL_FLOATS, Call
from tf_largeout import ops
from tf_largeout.ops import inverted_file_ops
from tf_largeout.ops.library import gen_ops

OFFSETS, IDS, SCHEDULE = 2, 3, 6


def inverted_file_search(draws):
    classes = _Classes(draws)
    features = draws.floats(draws.rows(most=2**14), classes.dim)
    state = classes.variables(_damaged(draws, classes.fitted()))[:SCHEDULE]
    num_probes, k = draws.attribute(draws.random.integers(1, 9)), draws.size(1)

    def check(found):
        scores, ids = found
        checks.has_shape(scores, features.shape[0], k)
        checks.has_shape(ids, features.shape[0], k)
        checks.within(ids, -1, classes.num_classes + 1)
        checks.padded_at_the_end(ids)
        checks.falling(scores)
        checks.equal(scores.numpy()[ids.numpy() == -1], -np.inf)
        if draws.odd_chance == 0:
            checks.distinct(ids)

    arguments = (features, state, num_probes, k)
    return Call(ops.inverted_file_search, arguments, {}, check)


def inverted_file_fit(draws):
    classes = _Classes(draws)
    arguments = classes.updated(draws)
    check = _state_is_fit(draws, classes, lambda _: arguments[-1])
    return Call(ops.inverted_file_fit, arguments, {}, check)


def inverted_file_upkeep(draws):
    classes = _Classes(draws)
    arguments = classes.updated(draws)
    check = _state_is_fit(draws, classes, lambda _: arguments[-1])
    return Call(ops.inverted_file_upkeep, arguments, _rhythm(draws), check)


def largeout_inverted_file_fitted(draws):
    classes = _Classes(draws)
    check = _state_is_fit(draws, classes, lambda state: state)
    return Call(gen_ops.largeout_inverted_file_fitted, classes.copied(draws), {}, check)


def largeout_inverted_file_kept_up(draws):
    classes = _Classes(draws)
    check = _state_is_fit(draws, classes, lambda state: state)
    arguments = classes.copied(draws)
    return Call(gen_ops.largeout_inverted_file_kept_up, arguments, _rhythm(draws), check)


class _Classes:
    """Embeddings, biases, and the state of an inverted file."""

    def __init__(self, draws):
        self._draws = draws
        self.num_classes, self.dim = draws.rows(1, most=2**14), draws.size(1)
        self._embeddings = draws.floats(self.num_classes, self.dim)
        self._bias = draws.floats(self.num_classes) if draws.chance(0.5) else None

    def fitted(self):
        """Returns a fitted or an initial state with a random schedule."""
        draws = self._draws
        state = self._empty()
        if draws.chance(0.6):
            rows = draws.random.normal(size=(self.num_classes, self.dim)).astype(np.float32)
            state = gen_ops.largeout_inverted_file_fitted(rows, [], *state)
        steps = [draws.size(), draws.attribute(draws.size() - 1)]
        return [*state[:SCHEDULE], tf.constant(steps, tf.int64)]

    def variables(self, state):
        return [self._draws.variable(tensor) for tensor in state]

    def updated(self, draws):
        """Returns the arguments of an op that updates the variables."""
        embeddings = draws.variable(self._embeddings)
        bias = None if self._bias is None else draws.variable(self._bias)
        return embeddings, bias, self.variables(_damaged(draws, self.fitted()))

    def copied(self, draws):
        """Returns the same arguments as tensors."""
        bias = [] if self._bias is None else [self._bias]
        return self._embeddings, bias, *_damaged(draws, self.fitted())

    def _empty(self):
        draws, num_classes = self._draws, self.num_classes
        num_lists = min(draws.size(1), num_classes)
        codes, scales = inverted_file_ops.packed_shapes(num_classes, self.dim)
        return [
            tf.zeros([num_lists, self.dim]),
            tf.zeros([num_lists]),
            tf.zeros([num_lists + 1], tf.uint32),
            tf.zeros([num_classes], tf.uint32),
            tf.zeros(codes, tf.uint8),
            tf.zeros(scales),
            tf.constant([0, -1], tf.int64),
        ]


def _rhythm(draws):
    return {
        "interval": draws.attribute(draws.random.integers(1, 5)),
        "rows_a_step": draws.attribute(draws.size(1)),
    }


def _state_is_fit(draws, classes, state_of):
    """Checks that each class is at most once in the lists, if the given state was valid."""

    def check(result):
        if draws.odd_chance > 0:
            return
        state = state_of(result)
        ids, offsets = np.asarray(state[IDS]), np.asarray(state[OFFSETS])
        if not offsets.any():
            return
        checks.offsets_rise(offsets, offsets[-1])
        checks.within(offsets[-1], 0, classes.num_classes + 1)
        members = ids[: offsets[-1]]
        checks.within(members, 0, classes.num_classes)
        assert len(np.unique(members)) == len(members), "a class is in two lists"

    return check


def _damaged(draws, state):
    """Returns the state, or a state with a tensor of invalid numbers or another shape."""
    return [_damaged_tensor(draws, tensor) if draws.odd() else tensor for tensor in state]


def _damaged_tensor(draws, tensor):
    if draws.chance(0.3):
        return draws.pick((tensor[:-1], tf.concat([tensor, tensor], 0), tensor[tf.newaxis]))
    values = tensor.numpy()
    if values.dtype == np.float32:
        others = draws.random.choice(SPECIAL_FLOATS, size=values.shape)
    else:
        limits = np.iinfo(values.dtype)
        edges = [one for one in EXTREME_INTEGERS if limits.min <= one <= limits.max]
        edges = np.array([*edges, limits.max, limits.min], values.dtype)
        others = draws.random.choice(edges, size=values.shape)
    damaged = draws.random.random(values.shape) < draws.pick((0.05, 0.5))
    return tf.constant(np.where(damaged, others, values).astype(values.dtype))
