"""Random calls of the logits of classes that differ between examples."""

import numpy as np
import tensorflow as tf

from tests.fuzz import checks
from tests.fuzz.draws import Call
from tf_largeout import ops
from tf_largeout.ops.library import gen_ops


def row_dots(draws):
    problem = _Problem(draws)
    arguments = (problem.features, problem.embeddings, problem.ids, problem.bias)
    return Call(ops.row_dots, arguments, {}, problem.are_logits)


def row_dots_and_rows(draws):
    problem = _Problem(draws)
    arguments = (problem.features, problem.embeddings, problem.bias)
    arguments += (problem.ids, problem.shared_ids)

    def check(dots):
        logits, rows, biases = dots
        problem.are_logits(logits)
        expected = tf.gather(problem.embeddings, problem.shared_ids)
        checks.equal(rows, tf.cast(expected, tf.float32))
        if problem.bias is not None:
            checks.equal(biases, tf.gather(problem.bias, problem.shared_ids))

    return Call(ops.row_dots_and_rows, arguments, {}, check)


def largeout_row_dots_grad(draws):
    problem = _Problem(draws)
    ids, shared_ids = problem.ids, problem.shared_ids
    num_shared = len(shared_ids) if shared_ids.shape.rank else 0
    biases = [] if problem.bias is None else [getattr(problem.bias, "handle", problem.bias)]
    embeddings = getattr(problem.embeddings, "handle", problem.embeddings)
    arguments = (problem.features, embeddings, biases, ids, shared_ids)
    arguments += (draws.floats(*ids.shape), draws.floats(num_shared, problem.dim))
    arguments += ([draws.floats(num_shared) for _ in biases],)

    def check(gradients):
        d_features, row_ids, d_rows, shape, d_biases = gradients
        checks.has_shape(d_features, *problem.features.shape)
        everything = np.unique(np.concatenate([np.ravel(ids), shared_ids]))
        checks.equal(row_ids, everything[everything >= 0])
        checks.has_shape(d_rows, len(row_ids), problem.features.shape[1])
        checks.equal(shape, problem.embeddings.shape)
        for d_bias in d_biases:
            checks.has_shape(d_bias, len(row_ids))

    return Call(gen_ops.largeout_row_dots_grad, arguments, {}, check)


class _Problem:
    """Features, classes, and the class ids of each example and of the batch."""

    def __init__(self, draws):
        batch, num_classes, self.dim = draws.rows(), draws.size(1), draws.size()
        self.features = draws.floats(batch, self.dim)
        embeddings = draws.floats(num_classes, self.dim)
        if draws.number % 4 == 3:
            embeddings = tf.cast(embeddings, tf.bfloat16)
        self.embeddings = draws.variable(embeddings)
        self.bias = draws.variable(draws.floats(num_classes)) if draws.chance(0.6) else None
        self.ids = draws.ids((batch, draws.size()), num_classes)
        self.shared_ids = draws.ids((draws.size(),), num_classes, 0)

    def are_logits(self, logits):
        checks.has_shape(logits, *self.ids.shape)
        padding = self.ids.numpy() == -1
        checks.equal(logits.numpy()[padding], checks.LOWEST)
        checks.within(self.ids, -1, self.embeddings.shape[0])
