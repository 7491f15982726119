"""Top k after filters, compared with a loop over classes in NumPy."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.papers.hierarchical.hierarchical_problem import Problem
from tests.reference import class_scan
from tests.reference import filtered_top_k as reference
from tests.slow import slow_but
from tf_largeout import layers
from tf_largeout.classes import blockwise
from tf_largeout.classes.best_scores import best_left
from tf_largeout.classes.class_scorer import ClassMatrix
from tf_largeout.classes.filtered_top_k import exact_top_k
from tf_largeout.retrieval import BruteForceIndex, predict_top_k

pytestmark = pytest.mark.portable

N, DIM, BATCH = 150, 4, 6
RNG = np.random.default_rng(0)
# Integers, so that scores are exact and many are equal.
ROWS = RNG.integers(-2, 3, (N, DIM)).astype("float32")
BIAS = RNG.integers(-1, 2, N).astype("float32")
QUERIES = RNG.integers(-2, 3, (BATCH, DIM)).astype("float32")
SCORES = class_scan.logits(QUERIES, ROWS, BIAS)
BEST = np.argsort(-SCORES, kind="stable")
FILTERS = {
    "none": {},
    "the best excluded": {"exclude": BEST[:, :5]},
    "padded and repeated": {"exclude": np.repeat(np.c_[BEST[:, 3:9], [[-1, -7]] * 6], 3, 1)},
    "more than there are": {"exclude": np.c_[BEST, BEST]},
    "no column": {"exclude": np.zeros((BATCH, 0), np.int64)},
    "all but two": {"exclude": BEST[:, 2:]},
    "allowed": {"allowed": RNG.permutation(N)[:70]},
    "allowed twice": {"allowed": np.int32([9, 2, 9, 2, 140])},
    "none allowed": {"allowed": np.zeros(0, np.int64)},
    "both": {"allowed": np.arange(20, 90), "exclude": BEST[:, :100]},
    "both, nothing left": {"allowed": np.arange(3), "exclude": [[0, 1, 2]] * BATCH},
}
each_filter = pytest.mark.parametrize("name", FILTERS)


@pytest.fixture(params=[64, None], ids=["blocks of 64", "one block"])
def matrix(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(blockwise, "_NUMBERS_OF_A_BLOCK", 1)
    return ClassMatrix(keras.Variable(ROWS), keras.Variable(BIAS), "test")


@pytest.fixture(scope="module")
def brute_force_index():
    return BruteForceIndex().build(ROWS, BIAS)


def assert_equal(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@each_filter
@pytest.mark.parametrize("k", [1, 10, N, N + 3])
def test_filtered_top_k_equals_the_reference(matrix, name, k):
    found = exact_top_k(matrix, tf.constant(QUERIES), k, **FILTERS[name])
    assert_equal(found, reference.top_k(SCORES, k, **FILTERS[name]))
    assert found[0].dtype == tf.float32 and found[1].dtype == tf.int64


@each_filter
def test_filters_apply_to_absolute_values(matrix, name):
    found = exact_top_k(
        matrix.with_form(rank_by="absolute"), tf.constant(QUERIES), 10, **FILTERS[name]
    )
    assert_equal(found, reference.top_k(np.abs(SCORES), 10, **FILTERS[name]))


def test_filters_work_in_a_function_of_unknown_shapes(matrix):
    spec = tf.TensorSpec([None, DIM]), tf.TensorSpec([None, None], tf.int64)

    @tf.function(autograph=False, input_signature=[*spec, tf.TensorSpec([None], tf.int32)])
    def function(queries, exclude, allowed):
        return exact_top_k(matrix, queries, 10, exclude, allowed), exact_top_k(
            matrix, queries, 10, exclude
        )

    for batch, width in [(6, 0), (6, 9), (1, 3), (0, 3)]:
        exclude, allowed = BEST[:batch, :width], np.arange(10, 90, dtype="int32")
        found = function(QUERIES[:batch], exclude, allowed)
        expected = [
            reference.top_k(SCORES[:batch], 10, exclude, one) for one in (allowed, None)
        ]
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other)


@pytest.mark.parametrize("name", slow_but(["none", "all but two", "both"], FILTERS))
def test_filters_work_in_a_function_of_known_shapes(matrix, name):
    function = tf.function(lambda: exact_top_k(matrix, QUERIES, 10, **FILTERS[name]))
    assert_equal(function(), reference.top_k(SCORES, 10, **FILTERS[name]))


@each_filter
@pytest.mark.parametrize("kind", ["factored", "hierarchical"])
def test_filters_apply_to_scores_that_are_not_products(name, kind):
    if kind == "factored":
        layer = layers.FactoredOutput(43, 1.0, bias_initializer="normal")
        layer.build((None, 5))
        features = RNG.normal(size=(BATCH, 5)).astype("float32")
    else:
        problem = Problem()
        layer, features = problem.layer, problem.features
    filters = {key: np.asarray(ids) % 43 for key, ids in FILTERS[name].items()}
    scores = class_scan.logits(features, layer.class_embeddings(), None)
    scores = layer(features).numpy() if kind == "factored" else problem.expected()
    expected = reference.top_k(scores, 10, **filters)
    found = exact_top_k(layer.class_matrix, tf.constant(features), 10, **filters)
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-5)


def test_filters_support_leading_axes(matrix):
    queries, exclude = tf.reshape(QUERIES, [2, 3, DIM]), BEST[:, :4].reshape(2, 3, 4)
    scores, ids = exact_top_k(matrix, queries, 5, exclude)
    expected = reference.top_k(SCORES, 5, BEST[:, :4])
    np.testing.assert_array_equal(scores, expected[0].reshape(2, 3, 5))
    np.testing.assert_array_equal(ids, expected[1].reshape(2, 3, 5))


class Sparse:
    """A stand-in for a sparse matrix of SciPy, with an explicitly stored zero."""

    def __init__(self, columns):
        columns = [[0, *columns[0]], *columns[1:]]
        self.shape = (len(columns), N)
        self.indptr = np.cumsum([0, *map(len, columns)], dtype="int32")
        self.indices = np.concatenate(columns).astype("int32")
        self.data = np.where(np.arange(len(self.indices)) == 0, 0.0, 0.5)

    def tocsr(self):
        return self


UNEVEN = [BEST[b, :b] for b in range(BATCH)]
UNEVEN_FORMS = {
    "ragged": lambda: tf.ragged.constant([row.tolist() for row in UNEVEN]),
    "ragged, unsigned": lambda: tf.ragged.constant([row.tolist() for row in UNEVEN], "uint64"),
    "lists": lambda: [row.tolist() for row in UNEVEN],
    "tuple of tuples": lambda: tuple(tuple(row.tolist()) for row in UNEVEN),
    "sets": lambda: [set(row.tolist()) for row in UNEVEN],
    "arrays": lambda: list(UNEVEN),
    "array of lists": lambda: np.array([row.tolist() for row in UNEVEN], object),
    "sparse matrix": lambda: Sparse(UNEVEN),
}


@pytest.mark.parametrize("form", UNEVEN_FORMS)
def test_exclusions_of_different_lengths_are_supported(matrix, brute_force_index, form):
    exclude = UNEVEN_FORMS[form]()
    found = exact_top_k(matrix, tf.constant(QUERIES), 5, exclude)
    assert_equal(found, reference.top_k(SCORES, 5, UNEVEN))
    np.testing.assert_array_equal(brute_force_index.top_k(QUERIES, 5, exclude)[1], found[1])


@pytest.mark.parametrize("exclude", [[{3}, {5}] * 3, [set()] * 6, np.array([[3], [5]] * 3)])
def test_exclusions_of_equal_lengths_are_supported(matrix, exclude):
    found = exact_top_k(matrix, tf.constant(QUERIES), 5, exclude)
    expected = [sorted(row) for row in exclude]
    assert_equal(found, reference.top_k(SCORES, 5, np.array(expected, int).reshape(6, -1)))


def test_only_allowed_classes_are_returned(matrix):
    for allowed in ({9, 2, 140}, frozenset([7]), set()):
        found = exact_top_k(matrix, tf.constant(QUERIES), 5, allowed=allowed)
        expected = np.array(sorted(allowed), np.int64)
        assert_equal(found, reference.top_k(SCORES, 5, allowed=expected))


def test_filtered_results_keep_their_order():
    scores = tf.constant([[3.0, 2.0, 2.0, -np.inf], [1.0, 0.0, -np.inf, -np.inf]])
    ids = tf.constant([[7, 9, 4, 2], [5, 6, -1, -1]], tf.int64)
    found = best_left(scores, ids, tf.constant([[7, -1, 7], [-1, 8, 6]], tf.int64), 3)
    assert_equal(found, ([[2, 2, -np.inf], [1, -np.inf, -np.inf]], [[9, 4, 2], [5, -1, -1]]))


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"exclude": [[3, N]] * BATCH}, rf"(?s)in .0, {N}., or -1 as padding.*{N}"),
        ({"exclude": np.full([BATCH, 1], 2**63, np.uint64)}, f"must be class ids in .0, {N}."),
        ({"allowed": [N]}, f"`allowed` must be class ids in .0, {N}."),
        ({"allowed": [3, -1]}, "`allowed` must be class ids"),
        ({"exclude": [[1]] * (BATCH - 1)}, "`exclude` must have shape .6, n.*5, 1"),
        ({"exclude": [1] * BATCH}, "`exclude` must have shape"),
        ({"allowed": [[1]]}, "`allowed` must be a vector"),
        ({"exclude": [[0.5]] * BATCH}, "`exclude` must be integer class ids.*float32"),
        ({"exclude": [[1], [2.5, 3]] * 3}, "padded with -1.*tf.RaggedTensor.*type list"),
        ({"exclude": [[[1], [2, 3]], [[1]]] * 3}, "padded with -1.*list of lists or sets"),
        ({"exclude": [{1}, {2, N}] * 3}, f"must be class ids in .0, {N}."),
        ({"exclude": {1, 2}}, "`exclude` must have shape .6, n.*2"),
        ({"exclude": Sparse([[1]] * 5)}, "`exclude` must have shape .6, n.*5, "),
        ({"allowed": np.ones(N, bool)}, "`allowed` must be integer.*bool.*flatnonzero"),
    ],
)
def test_invalid_filters_raise_an_error(matrix, filters, message):
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=message):
        exact_top_k(matrix, tf.constant(QUERIES), 3, **filters)


def test_a_sparse_matrix_of_another_width_raises_an_error(matrix, brute_force_index):
    exclude = Sparse(UNEVEN)
    exclude.shape = (BATCH, N + 1)
    layer = layers.LargeOutput(N, embeddings_initializer=ROWS, bias_initializer=BIAS)
    model = keras.Sequential([keras.Input([DIM]), layer])
    for search in (
        functools.partial(exact_top_k, matrix, tf.constant(QUERIES), 3),
        functools.partial(brute_force_index.top_k, QUERIES, 3),
        functools.partial(predict_top_k, model, QUERIES, 3, verbose=0),
    ):
        with pytest.raises(ValueError, match=f"one column per class, {N}. .*Sparse of shape"):
            search(exclude=exclude)


def test_shapes_known_only_at_run_time_are_checked(matrix):
    spec = tf.TensorSpec([None, DIM]), tf.TensorSpec([None, None], tf.int64)
    function = tf.function(lambda q, e: exact_top_k(matrix, q, 3, e), input_signature=spec)
    with pytest.raises(tf.errors.InvalidArgumentError, match="`exclude` must have shape"):
        function(QUERIES, BEST[:1, :2])


@pytest.mark.parametrize("filters", [{"exclude": BEST[:1, :2]}, {"allowed": [1, 2, 3]}])
def test_features_with_nan_raise_an_error(matrix, filters):
    with pytest.raises(tf.errors.InvalidArgumentError, match="finite"):
        exact_top_k(matrix, tf.fill([1, DIM], np.nan), 3, **filters)


@pytest.mark.parametrize("shape", [(4, DIM), (2, 3, DIM), (0, DIM)])
def test_top_k_of_a_layer_accepts_filters(shape):
    layer = layers.LargeOutput(N, embeddings_initializer=ROWS, bias_initializer=BIAS)
    layer.build((None, DIM))
    queries = np.resize(QUERIES, shape)
    rows = queries.reshape(-1, DIM)
    exclude, allowed = BEST[: len(rows), :4], np.arange(100)
    scores = class_scan.logits(rows, ROWS, BIAS)
    found = layer.top_k(queries, 5, exclude.reshape(*shape[:-1], 4), allowed)
    expected = reference.top_k(scores, 5, exclude, allowed)
    assert_equal(found, [one.reshape(*shape[:-1], 5) for one in expected])


def test_absolute_ranking_of_log_probabilities_raises_an_error():
    problem = Problem()
    with pytest.raises(ValueError, match="absolute=True"):
        problem.layer.top_k(problem.features, 3, allowed=[1, 2], absolute=True)
