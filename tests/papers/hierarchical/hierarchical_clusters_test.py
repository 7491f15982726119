"""The clusters of a `HierarchicalOutput`: their number, k-means, and errors."""

import numpy as np
import pytest

from tests.papers.hierarchical.hierarchical_problem import UNEVEN, N
from tf_largeout import layers


@pytest.mark.parametrize("num_classes", [1, 2, 10, 10_000])
def test_the_default_number_of_clusters_is_the_square_root(num_classes):
    layer = layers.HierarchicalOutput(num_classes)
    layer.build([None, 1])
    sizes = np.bincount(layer.cluster_of_class, minlength=layer.num_clusters)
    assert layer.num_clusters == round(num_classes**0.5)
    assert sizes.min() >= 1 and sizes.max() - sizes.min() <= 1
    assert np.all(np.diff(layer.cluster_of_class) >= 0)


def test_clusters_of_vectors_share_a_direction_and_are_of_bounded_size():
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(40, 16))
    group = rng.integers(0, 40, 4000)
    vectors = centers[group] + 0.1 * rng.normal(size=(4000, 16))
    clusters = layers.HierarchicalOutput.clusters_of(vectors, 40)
    sizes = np.bincount(clusters)
    assert sizes.min() >= 1 and sizes.max() <= 2 * 100
    same = clusters[:, None] == clusters[None]
    same_group = group[:, None] == group[None]
    assert np.mean(same[same_group]) > 0.6 and np.mean(same[~same_group]) < 0.03
    assert layers.HierarchicalOutput(4000, clusters=clusters).num_clusters == len(sizes)


def test_clusters_of_equal_vectors_are_of_bounded_size():
    clusters = layers.HierarchicalOutput.clusters_of(np.ones([900, 3]))
    sizes = np.bincount(clusters)
    assert sizes.min() >= 1 and sizes.max() <= 2 * 30


@pytest.mark.parametrize("bad", [np.ones(5), np.full([3, 2], np.nan), np.zeros([0, 2])])
def test_invalid_vectors_raise_an_error(bad):
    with pytest.raises(ValueError, match="`vectors` must be a matrix.*Received: an array"):
        layers.HierarchicalOutput.clusters_of(bad)


@pytest.mark.parametrize("bad", [0, -1, N + 1, 2.5, True])
def test_a_number_of_clusters_out_of_range_raises_an_error(bad):
    with pytest.raises(ValueError, match=f"`num_clusters` must be .*num_clusters={bad}"):
        layers.HierarchicalOutput(N, bad)
    with pytest.raises(ValueError, match=f"`num_clusters` must be .*num_clusters={bad}"):
        layers.HierarchicalOutput.clusters_of(np.ones([N, 2]), bad)


@pytest.mark.parametrize(
    "bad, num_clusters, message",
    [
        (UNEVEN[:-1], None, rf"must be {N} integers.*shape \({N - 1},\)"),
        (UNEVEN.astype(float), None, "integers.*float64"),
        (UNEVEN - 1, None, "from 0 to .*from -1 to 5"),
        (UNEVEN, 5, "from 0 to num_clusters - 1 = 4. Received: numbers from 0 to 6"),
        (UNEVEN, 9, "Each of the 9 clusters .* without cluster 7"),
        (UNEVEN + 1, None, "without cluster 0.*np.unique"),
        (np.full(N, 10**12), None, f"= {N - 1}. Received: .*1000000000000"),
    ],
)
def test_invalid_clusters_raise_an_error(bad, num_clusters, message):
    with pytest.raises(ValueError, match=message):
        layers.HierarchicalOutput(N, num_clusters, clusters=bad)
