"""Random calls of kernel trees, including damaged ones."""

import numpy as np
import tensorflow as tf

from tests.fuzz import checks
from tests.fuzz.draws import SPECIAL_FLOATS, Call
from tf_largeout.papers.kernel_tree import kernel_tree_ops
from tf_largeout.papers.kernel_tree.kernel_tree_ops import Projection, kernel_tree_shape

_MOST_DRAWN = 2**16


def kernel_tree_build(draws):
    tree = _Tree(draws)

    def check(_):
        if draws.odd_chance == 0:
            assert np.all(np.isfinite(tree.sums)), "a sum overflows"

    return Call(kernel_tree_ops.kernel_tree_build, tree.state(), {}, check, tree.is_as_before)


def kernel_tree_update(draws):
    tree = _Tree(draws)
    ids = draws.ids([draws.size()], tree.num_classes)

    def check(num_changed):
        checks.within(num_changed, 0, len(set(np.ravel(ids))) + 1)

    return Call(
        kernel_tree_ops.kernel_tree_update, (ids, *tree.state()), {}, check, tree.is_as_before
    )


def kernel_tree_sample(draws):
    tree = _Tree(draws, projects=False)
    batch, num_sampled = draws.rows(most=2**14), draws.attribute(draws.size(1))
    if _MOST_DRAWN < num_sampled < 2**31:  # Takes minutes if there is enough memory.
        num_sampled = _MOST_DRAWN
    labels = draws.ids([batch, draws.pick((0, 1, 3))], tree.num_classes)
    shared = draws.chance(0.3)
    tree.build(draws)
    embeddings, bias, sums, leaf_size, _ = tree.state()
    arguments = (draws.floats(batch, tree.dim), labels, draws.seed(), embeddings, bias, sums)
    arguments += (leaf_size, num_sampled, draws.scalar() or 100.0, shared)

    def check(sampled):
        ids, log_q, label_log_q = sampled
        shape = (num_sampled,) if shared else (arguments[0].shape[0], num_sampled)
        checks.has_shape(ids, *shape)
        checks.has_shape(log_q, *shape)
        checks.has_shape(label_log_q, *labels.shape)
        checks.within(ids, 0, tree.num_classes)
        checks.within(log_q, -1e4, 1e-6)
        checks.within(label_log_q, -1e4, 1e-6)

    return Call(kernel_tree_ops.kernel_tree_sample, arguments, {}, check)


class _Tree:
    """Class rows, and the variables of their tree."""

    def __init__(self, draws, projects=True):
        self.num_classes, self.dim = draws.rows(1), draws.size()
        self.leaf_size = draws.attribute(draws.size(1 if self.num_classes < 200 else 16))
        embeddings = draws.floats(self.num_classes, self.dim)
        bias = draws.floats(self.num_classes) if draws.chance(0.5) else None
        dim, self._projection = self.dim + (bias is not None), None
        self._embeddings = draws.variable(embeddings)
        self._bias = None if bias is None else draws.variable(bias)
        if projects and draws.chance(0.5):
            projected = draws.size(1)
            matrix = draws.variable(draws.floats(projected, dim))
            rows = draws.variable(tf.zeros([self.num_classes, projected]))
            self._projection, dim = Projection(matrix, rows), projected
        leaf_size = max(1, min(self.leaf_size, self.num_classes))
        sums = draws.floats(*kernel_tree_shape(self.num_classes, dim, leaf_size))
        self.sums = draws.variable(sums)
        self._before = tf.identity(sums)

    def state(self):
        return self._embeddings, self._bias, self.sums, self.leaf_size, self._projection

    def build(self, draws):
        """Builds the tree. Some calls leave the sums unchanged or make them invalid."""
        if draws.odd():
            bad = draws.random.choice(SPECIAL_FLOATS, size=self._before.shape)
            self.sums = draws.variable(tf.constant(bad.astype("f4")))
        elif draws.chance(0.7):
            try:
                kernel_tree_ops.kernel_tree_build(*self.state())
            except (ValueError, TypeError, tf.errors.OpError):
                return

    def is_as_before(self):
        is_right = isinstance(self.sums, tf.Variable) and self.sums.dtype == tf.float32
        if is_right and self.sums.shape == self._before.shape:
            checks.equal(self.sums, self._before)
