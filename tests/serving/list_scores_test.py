"""Exports with an inverted file, compared with NumPy."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.serving import models
from tests.slow import slow_but
from tf_largeout import serving
from tf_largeout.retrieval import BruteForceIndex, ClassLists, InvertedFileIndex, LSHIndex

pytestmark = pytest.mark.portable

LISTS, LONGEST = 9, 61
SEED = 6  # With one probe, the list of some queries has fewer than k classes.


class Lists:
    """An index of random lists of unequal lengths; an export works for any lists."""

    def __init__(self, num_probes, num_classes=models.N, dim=models.DIM, shortest=0):
        self.num_probes, random = num_probes, np.random.default_rng(SEED)
        self.means = random.normal(size=(LISTS, dim)).astype("float32")
        self.mean_bias = random.normal(size=LISTS).astype("float32")
        ids, more = random.permutation(num_classes), num_classes - LISTS * shortest
        ends = np.sort(random.integers(0, more, LISTS - 1))
        sizes = shortest + np.diff([0, *ends, more])
        self.members = np.full((LISTS, sizes.max()), -1, np.int32)
        for row, part in zip(self.members, np.split(ids, np.cumsum(sizes)[:-1]), strict=True):
            row[: len(part)] = part

    def require_rows(self, matrix):
        pass

    def lists(self):
        return ClassLists(self.means, self.mean_bias, self.members, self.num_probes)

    def variables(self):
        return []

    def searched(self, k):
        """Returns the number of lists that an export searches first."""
        sizes, surely = np.sort((self.members >= 0).sum(axis=1)), 1
        while sizes[:surely].sum() < k:
            surely += 1
        most = min(self.num_probes, LISTS)
        if surely > most and surely * self.members.shape[1] > models.N / 4:
            return LISTS
        return max(surely, most)

    def reached(self, features, num_lists=None):
        """Returns which classes are in the best lists, bool `[B, num_classes]`."""
        scores = features @ self.means.T + self.mean_bias
        best = np.argsort(-scores)[:, : num_lists or self.searched(models.K)]
        found = np.zeros((len(features), models.N), bool)
        for row, lists in zip(found, best, strict=True):
            ids = self.members[lists]
            row[ids[ids >= 0]] = True
        return found


@pytest.mark.parametrize(
    "name, num_probes",
    slow_but(
        [("large", 3)],
        itertools.product(["large", "no_bias", "factored"], [1, 3, LISTS, LISTS + 5]),
    ),
)
def test_the_best_classes_of_the_best_lists_are_found(name, num_probes, tmp_path):
    model, index = models.new_model(name), Lists(num_probes, shortest=4 * (num_probes == 3))
    serving.export(model, tmp_path / "1", k=models.K, index=index)
    assert b"Largeout" not in (tmp_path / "1" / "saved_model.pb").read_bytes()
    signatures = tf.saved_model.load(str(tmp_path / "1")).signatures
    logits, features = models.logits_of(model, name), model.layers[0](models.X).numpy()
    inputs = {"features": tf.constant(models.X)}
    expected = models.best(np.where(index.reached(features), logits, -np.inf))
    models.assert_same(signatures["serving_default"](**inputs), expected)
    exclude = models.excluded(logits)
    excluded = (exclude >= 0).sum(axis=1)
    for k in (0, 1, 4, 150, models.N):
        inputs |= {"k": tf.constant(k), "exclude": tf.constant(exclude)}
        num_lists = index.searched(max(k, 1))
        reached = index.reached(features, num_lists)
        found = models.best(np.where(reached, logits, -np.inf), k, exclude)["ids"]
        # An example searches more lists if they have too few classes after its exclusions.
        is_short = (found < 0).any(axis=1)
        is_short |= (excluded > 0) & (excluded + k > num_lists * models.N / LISTS)
        reached |= is_short[:, np.newaxis]
        expected = models.best(np.where(reached, logits, -np.inf), k, exclude)
        models.assert_same(signatures["top_k"](**inputs), expected)


@pytest.mark.slow  # the previous test has k that need more lists
@pytest.mark.parametrize("ops", slow_but(["core"], ["core", "custom"]))
def test_enough_lists_are_searched_to_find_k_classes(ops, tmp_path):
    model = models.new_model("large")
    embeddings, bias = model.layers[-1].class_matrix.as_products()
    index = InvertedFileIndex(num_probes=1, num_lists=60).build(embeddings, bias)
    index.remove([3, 5])
    logits, inputs = models.logits_of(model, "large"), {"features": tf.constant(models.X)}
    logits[:, [3, 5]] = -np.inf
    for k in (models.K, models.N):
        serving.export(model, tmp_path / str(k), k=k, index=index, ops=ops)
        signatures = tf.saved_model.load(str(tmp_path / str(k))).signatures
        found, there = signatures["serving_default"](**inputs), min(k, models.N - 2)
        for ids, scores, row in zip(found["ids"].numpy(), found["scores"], logits, strict=True):
            assert (ids[there:] == -1).all() and len(set(ids[:there])) == there
            expected = np.append(row, -np.inf)[ids]  # The id -1 selects the last score.
            np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)
    everything = np.delete(np.arange(models.N), [3, 5, 9, 100])[np.newaxis]
    inputs |= {"k": tf.constant(5), "exclude": tf.constant(everything)}
    left = models.best(logits, 5, np.repeat(everything, models.BATCH, axis=0))
    models.assert_same(signatures["top_k"](**inputs), left)


@pytest.mark.parametrize(
    "index, message",
    [
        (Lists(2, num_classes=models.N + 1), "classes of the layer, .* in one list"),
        (Lists(2, dim=models.DIM + 1), "of width 9"),
    ],
    ids=["classes", "width"],
)
def test_an_index_of_other_rows_raises_an_error(index, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        serving.export(models.new_model("large"), tmp_path / "1", index=index)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, ops",
    slow_but(
        [("large", "custom")],
        itertools.product(["large", "no_bias", "factored"], ["core", "custom"]),
    ),
)
def test_an_exported_inverted_file_equals_the_index_in_python(name, ops, tmp_path):
    model = models.new_model(name)
    layer = model.layers[-1]
    index = InvertedFileIndex(num_probes=12, num_lists=40)
    index.build(layer.class_matrix.as_products()[0], layer.class_matrix.as_products()[1])
    index.remove([3, 5])
    sizes = serving.export(model, tmp_path / "1", k=models.K, index=index, ops=ops)
    assert (b"Largeout" in (tmp_path / "1" / "saved_model.pb").read_bytes()) == (
        ops == "custom"
    )
    signatures = tf.saved_model.load(str(tmp_path / "1")).signatures
    found = signatures["serving_default"](features=tf.constant(models.X))
    queries = model.layers[0](models.X)
    expected = index.top_k(queries, models.K)
    same = found["ids"].numpy() == expected[1].numpy()
    assert same.mean() > (
        0.99 if ops == "custom" else 0.8
    )  # The export splits long lists, and so searches other ones.
    np.testing.assert_allclose(
        found["scores"].numpy()[same], expected[0].numpy()[same], rtol=1e-5, atol=1e-5
    )
    assert not np.isin(found["ids"], [3, 5]).any()
    assert sizes["weights"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("ops", ["core", "custom"])
def test_an_exported_search_of_all_lists_is_exact(ops, tmp_path):
    model = models.new_model("large")
    embeddings, bias = model.layers[-1].class_matrix.as_products()
    index = InvertedFileIndex(num_probes=10**6).build(embeddings, bias)
    serving.export(model, tmp_path / "1", k=models.K, index=index, ops=ops)
    signatures = tf.saved_model.load(str(tmp_path / "1")).signatures
    inputs = {"features": tf.constant(models.X)}
    expected = models.best(models.logits_of(model, "large"))
    models.assert_same(signatures["serving_default"](**inputs), expected)


def test_an_index_of_other_weights_raises_an_error(tmp_path):
    model = models.new_model("large")
    embeddings, bias = model.layers[-1].class_matrix.as_products()
    for rows, biases in (
        (embeddings + 1.0, bias),
        (embeddings, None),
        (embeddings[1:], bias[1:]),
    ):
        index = InvertedFileIndex(num_probes=1).build(rows, biases)
        if biases is None:
            model.layers[-1].bias.assign_add(tf.ones_like(bias))
        with pytest.raises(ValueError, match="with other embeddings or biases"):
            serving.export(model, tmp_path / "1", index=index)
    for ops in serving.saved_model.OPS:
        index = BruteForceIndex().build(embeddings)
        with pytest.raises(ValueError, match="have no lists to export"):
            serving.export(model, tmp_path / "1", index=index, ops=ops)
    with pytest.raises(ValueError, match="a LSHIndex, whose .* Pass ops='custom'"):
        serving.export(model, tmp_path / "1", index=LSHIndex().build(embeddings))


def test_an_index_for_scores_that_are_not_products_raises_an_error(tmp_path):
    with pytest.raises(ValueError, match="not inner"):
        serving.export(models.new_model("hierarchical"), tmp_path / "1", index=Lists(2))
