"""Exports with an inverted file, against numpy."""

import numpy as np
import pytest
import tensorflow as tf

from tests.serving import models
from tf_largeout import serving

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

    def lists(self):
        return self.means, self.mean_bias, self.members

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
        (Lists(2, num_classes=models.N - 1), "each class of the layer, of rows .* in one list"),
        (Lists(2, dim=models.DIM + 1), "rows of width 9"),
    ],
    ids=["classes", "width"],
)
def test_an_index_of_other_rows_is_refused(index, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        serving.export(models.new_model("large"), tmp_path / "1", index=index)


def test_an_index_is_refused_where_it_would_not_be_used(tmp_path):
    with pytest.raises(ValueError, match="ops='custom'"):
        serving.export(models.new_model("large"), tmp_path / "1", index=Lists(2), ops="custom")
    with pytest.raises(ValueError, match="no inner"):
        serving.export(models.new_model("hierarchical"), tmp_path / "1", index=Lists(2))
