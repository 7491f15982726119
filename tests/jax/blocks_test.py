"""Passes over all classes in blocks, against NumPy and against JAX's derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.reference import class_scan
from tests.reference import filtered_top_k as reference
from tf_largeout.jax import blocks
from tf_largeout.jax.steps import Form

FORMS = {
    "plain": Form(),
    "cosine": Form(unit_rows=True, scale=9.0),
    "capped": Form(cap=2.0),
    "all": Form(unit_rows=True, scale=9.0, cap=4.0),
}
BLOCK = 64  # classes, for examples of width up to 8
statistics = jax.jit(blocks.statistics, static_argnums=3)
top_k = jax.jit(blocks.top_k, static_argnums=(3, 4))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "_NUMBERS_OF_A_BLOCK", 8 * BLOCK)


class Problem:
    """Random classes, queries, labels and exclusions, and the logits in float64."""

    def __init__(self, num_classes, form="plain", dtype="float32", has_bias=True, ties=False):
        random, self.form = np.random.default_rng(num_classes), FORMS[form]
        features = random.normal(size=(7, 8))
        table, bias = random.normal(size=(num_classes, 8)), random.normal(size=num_classes)
        if ties:
            features, table, bias = (np.rint(one / 2) for one in (features, table, bias))
        self.queries = self.form.queries(jnp.asarray(features))
        self.table = jnp.asarray(table, dtype)
        self.bias = jnp.asarray(bias, "float32") if has_bias else None
        rows = np.asarray(self.table, "float64")
        if self.form.unit_rows:
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        self.uncapped = class_scan.logits(self.queries, rows, self.bias)
        cap = self.form.cap
        self.logits = cap * np.tanh(self.uncapped / cap) if cap else self.uncapped
        self.labels = random.integers(-1, num_classes, (7, 3)).astype("int32")
        self.excluded = random.integers(-1, num_classes, (7, 5)).astype("int32")

    @property
    def classes(self):
        return self.queries, self.table, self.bias, self.form


CASES = [
    (1, "plain", "float32", True),
    (50, "plain", "float32", False),
    (2 * BLOCK, "capped", "float32", True),
    (3 * BLOCK + 5, "cosine", "float32", True),
    (3 * BLOCK + 5, "all", "bfloat16", True),
]
each_problem = pytest.mark.parametrize("case", CASES)


def ranks_of(logits, labels, excluded):
    """Ranks among the classes that are not excluded."""
    found = np.full(labels.shape, logits.shape[1])
    for (b, i), label in np.ndenumerate(labels):
        if label >= 0 and label not in excluded[b]:
            own, others = logits[b, label], np.setdiff1d(range(logits.shape[1]), excluded[b])
            scores = logits[b, others]
            found[b, i] = np.sum((scores > own) | ((scores == own) & (others < label)))
    return found


@each_problem
def test_statistics_equal_those_of_all_logits(case):
    problem = Problem(*case)
    found = statistics(*problem.classes, problem.labels)
    with_excluded = statistics(*problem.classes, problem.labels, problem.excluded)
    log_partition = class_scan.log_partition(problem.logits)
    true_logits = class_scan.true_logits(problem.logits, problem.labels)
    np.testing.assert_allclose(found.log_partition, log_partition, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.true_logits, true_logits, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(
        found.ranks, class_scan.ranks(problem.uncapped, problem.labels)
    )
    expected = ranks_of(problem.uncapped, problem.labels, problem.excluded)
    np.testing.assert_array_equal(with_excluded.ranks, expected)
    np.testing.assert_allclose(with_excluded.log_partition, log_partition, 1e-5, 1e-5)


@pytest.mark.parametrize(
    "form, ties, k", [("plain", True, 1), ("plain", True, 300), ("all", False, 70)]
)
def test_the_best_classes_equal_those_of_a_sort(form, ties, k):
    problem, allowed = Problem(200, form, ties=ties), np.arange(0, 200, 3, dtype="int32")
    filters = [
        (None, None),
        (problem.excluded, None),
        (problem.excluded, allowed),
        (problem.excluded, allowed[:0]),
    ]
    for excluded, classes in filters:
        scores, ids = top_k(*problem.classes, k, excluded, classes)
        expected = reference.top_k(problem.uncapped, k, excluded, classes)
        np.testing.assert_array_equal(ids, expected[1])
        capped = problem.form.capped(jnp.asarray(expected[0], "float32"))
        np.testing.assert_allclose(scores, capped, rtol=1e-5, atol=1e-5)


def test_equal_logits_rank_by_the_lower_id():
    problem = Problem(3 * BLOCK + 5, ties=True)
    found = statistics(*problem.classes, problem.labels, problem.excluded).ranks
    expected = ranks_of(problem.uncapped, problem.labels, problem.excluded)
    np.testing.assert_array_equal(found, expected)
    # Equal rows with random numbers, whose logits may differ by rounding errors.
    row = np.random.default_rng(1).normal(size=(1, 8))
    table = jnp.asarray(np.repeat(row, 200, axis=0), "float32")
    labels = np.arange(7 * 3, dtype="int32").reshape(7, 3) * 9
    found = statistics(problem.queries, table, None, Form(), labels).ranks
    np.testing.assert_array_equal(found, labels)


def test_logits_that_are_not_finite_rank_last():
    problem = Problem(200)
    table = problem.table.at[jnp.array([5, 100])].set(jnp.nan)
    bias = problem.bias.at[7].set(-jnp.inf)
    labels = jnp.tile(jnp.array([[5, 7, 8, 200]], "int32"), (7, 1))
    found = statistics(problem.queries, table, bias, Form(), labels)
    assert (found.ranks[:, [0, 1, 3]] == 200).all() and (found.ranks[:, 2] < 197).all()
    assert np.isnan(found.true_logits[:, [0, 3]]).all()
    scores, ids = top_k(problem.queries, table, bias, Form(), 200)
    assert np.isfinite(scores[:, :197]).all() and (scores[:, 197:] == -np.inf).all()
    assert (ids[:, 197:] == jnp.array([5, 7, 100])).all()


@each_problem
def test_gradients_equal_those_of_all_logits(case):
    queries, table, bias, form = Problem(*case).classes
    weights = np.random.default_rng(0).normal(size=(2, 7)).astype("float32")

    def value(sums, arrays):
        log_partition, mean = sums(*arrays)
        return (weights[0] * log_partition + weights[1] * mean**2).sum()

    def of_all_logits(queries, table, bias):
        logits = queries @ form.rows(table).T
        logits = form.capped(logits if bias is None else logits + bias)
        return jax.nn.logsumexp(logits, axis=1), logits.mean(axis=1)

    def in_blocks(*arrays):
        sums = lambda one: blocks.log_partition_and_mean(*one, form)  # noqa: E731
        return jax.lax.cond(arrays[0][0, 0] < 99, sums, sums, arrays)

    arrays = queries, table, bias
    expected, wanted = jax.value_and_grad(value, argnums=1)(of_all_logits, arrays)
    found, gradients = jax.jit(jax.value_and_grad(value, argnums=1), static_argnums=0)(
        in_blocks, arrays
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    for one, other in zip(jax.tree.leaves(gradients), jax.tree.leaves(wanted), strict=True):
        tolerance = 1e-2 if one.dtype == jnp.bfloat16 else 1e-5
        assert one.dtype == other.dtype
        np.testing.assert_allclose(
            np.asarray(one, "float32"), np.asarray(other, "float32"), tolerance, tolerance
        )


def test_examples_of_weight_0_change_no_gradient():
    queries, table, bias, form = Problem(50).classes

    @jax.jit
    def gradients(queries):
        def loss(*classes):
            losses = blocks.log_partition_and_mean(*classes, form)[0]
            return jnp.where(jnp.arange(7) == 2, 0, losses).sum()

        return jax.grad(loss, argnums=(0, 1, 2))(queries, table, bias)

    found = gradients(queries.at[2].set(jnp.nan))
    jax.tree.map(np.testing.assert_array_equal, found, gradients(queries))


@pytest.mark.parametrize("form, dtype", [("plain", "float32"), ("all", "bfloat16")])
def test_no_pass_copies_the_table_or_holds_all_logits(form, dtype, monkeypatch):
    monkeypatch.setattr(blocks, "_NUMBERS_OF_A_BLOCK", 2**16)
    num_classes, form, shape = 100_003, FORMS[form]._replace(scale=1.0), jax.ShapeDtypeStruct
    classes = shape((16, 32), "float32"), shape((num_classes, 32), dtype)
    labels = shape((16, 2), "int32")

    def loss(queries, table, bias):
        return blocks.log_partition_and_mean(queries, table, bias, form)[0].sum()

    passes = {
        "statistics": lambda *args: blocks.statistics(*args[:3], form, *args[3:]),
        "top_k": lambda *args: blocks.top_k(*args[:3], form, 10, args[4]),
        "gradient": lambda *args: jax.grad(loss, argnums=(0, 1, 2))(*args[:3]),
    }
    for name, function in passes.items():
        bias = shape((num_classes,), "float32")
        compiled = jax.jit(function).lower(*classes, bias, labels, labels).compile()
        used = compiled.memory_analysis().temp_size_in_bytes
        if name == "gradient" and dtype == "bfloat16":  # Summed in float32.
            used -= num_classes * 32 * 4
        assert used < 2**21 < min(num_classes * 32 * 2, num_classes * 16 * 4) / 2, name
