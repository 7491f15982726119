"""Exports with an inverted file, against numpy."""

import numpy as np
import pytest
import tensorflow as tf

from tests.serving import models
from tf_largeout import serving
from tf_largeout.retrieval import BruteForceIndex, ClassLists, InvertedFileIndex

LISTS, LONGEST = 9, 61
RNG = np.random.default_rng(6)


class Lists:
    """An index of random lists, of uneven lengths: which they are, the export must not mind."""

    def __init__(self, num_probes, num_classes=models.N, dim=models.DIM):
        self.num_probes = num_probes
        self.means = RNG.normal(size=(LISTS, dim)).astype("float32")
        self.mean_bias = RNG.normal(size=LISTS).astype("float32")
        ids = RNG.permutation(num_classes)
        sizes = np.diff([0, *np.sort(RNG.choice(LONGEST, LISTS - 1)) * 3, num_classes])
        self.members = np.full((LISTS, sizes.max()), -1, np.int32)
        for row, part in zip(self.members, np.split(ids, np.cumsum(sizes)[:-1]), strict=True):
            row[: len(part)] = part

    def require_rows(self, matrix):
        pass

    def lists(self):
        return ClassLists(self.means, self.mean_bias, self.members, self.num_probes)

    def variables(self):
        return []

    def reached(self, features):
        """Which classes are in the lists that numpy chooses, bool `[B, num_classes]`."""
        best = np.argsort(-(features @ self.means.T + self.mean_bias))[:, : self.num_probes]
        found = np.zeros((len(features), models.N), bool)
        for row, lists in zip(found, best, strict=True):
            ids = self.members[lists]
            row[ids[ids >= 0]] = True
        return found


@pytest.mark.parametrize("name", ["large", "no_bias", "factored"])
@pytest.mark.parametrize("num_probes", [1, 3, LISTS, LISTS + 5])
def test_the_best_classes_of_the_best_lists_are_found(name, num_probes, tmp_path):
    model, index = models.new_model(name), Lists(num_probes)
    serving.export(model, tmp_path / "1", k=models.K, index=index)
    assert b"Largeout" not in (tmp_path / "1" / "saved_model.pb").read_bytes()
    signatures = tf.saved_model.load(str(tmp_path / "1")).signatures
    reached = index.reached(model.layers[0](models.X).numpy())
    logits = np.where(reached, models.logits_of(model, name), -np.inf)
    inputs = {"features": tf.constant(models.X)}
    models.assert_same(signatures["serving_default"](**inputs), models.best(logits))
    inputs |= {"k": tf.constant(150), "exclude": tf.constant(models.EXCLUDE)}
    expected = models.best(logits, 150, models.EXCLUDE)
    models.assert_same(signatures["top_k"](**inputs), expected)


@pytest.mark.parametrize(
    "index, message",
    [
        (Lists(2, num_classes=models.N + 1), "classes of the layer, of rows .* in one list"),
        (Lists(2, dim=models.DIM + 1), "rows of width 9"),
    ],
    ids=["classes", "width"],
)
def test_an_index_of_other_rows_is_refused(index, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        serving.export(models.new_model("large"), tmp_path / "1", index=index)


@pytest.mark.parametrize("ops", ["core", "custom"])
@pytest.mark.parametrize("name", ["large", "no_bias", "factored"])
def test_an_inverted_file_finds_what_it_finds_in_python(name, ops, tmp_path):
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
    assert same.mean() > (0.99 if ops == "custom" else 0.8)  # pieces of lists are other lists
    np.testing.assert_allclose(
        found["scores"].numpy()[same], expected[0].numpy()[same], rtol=1e-5, atol=1e-5
    )
    assert not np.isin(found["ids"], [3, 5]).any()
    assert sizes["weights"] > 0


def test_an_index_that_searches_all_lists_exports_the_exact_best(tmp_path):
    model = models.new_model("large")
    embeddings, bias = model.layers[-1].class_matrix.as_products()
    index = InvertedFileIndex(num_probes=10**6).build(embeddings, bias)
    for ops in ("core", "custom"):
        serving.export(model, tmp_path / ops, k=models.K, index=index, ops=ops)
        signatures = tf.saved_model.load(str(tmp_path / ops)).signatures
        inputs = {"features": tf.constant(models.X)}
        expected = models.best(models.logits_of(model, "large"))
        models.assert_same(signatures["serving_default"](**inputs), expected)


def test_an_index_of_other_weights_is_refused(tmp_path):
    model = models.new_model("large")
    embeddings, bias = model.layers[-1].class_matrix.as_products()
    for rows, biases in (
        (embeddings + 1.0, bias),
        (embeddings, None),
        (embeddings[1:], bias[1:]),
    ):
        index = InvertedFileIndex().build(rows, biases)
        if biases is None:
            model.layers[-1].bias.assign_add(tf.ones_like(bias))
        with pytest.raises(ValueError, match="with other embeddings or biases"):
            serving.export(model, tmp_path / "1", index=index)
    with pytest.raises(ValueError, match="have no lists to export"):
        serving.export(model, tmp_path / "1", index=BruteForceIndex().build(embeddings))


def test_an_index_is_refused_where_scores_are_no_products(tmp_path):
    with pytest.raises(ValueError, match="no inner"):
        serving.export(models.new_model("hierarchical"), tmp_path / "1", index=Lists(2))
