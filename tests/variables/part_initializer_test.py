import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.slow import slow_but
from tf_largeout.variables import initializers
from tf_largeout.variables.initializers import PartInitializer

SHAPES = [(10, 4), (7, 3), (5, 1), (6, 17), (9,)]
INITIALIZERS = {
    "uniform": lambda: keras.initializers.RandomUniform(-0.3, 0.7, seed=3),
    "normal": lambda: keras.initializers.RandomNormal(0.5, 2.0, seed=2**31 - 5),
    "truncated": lambda: keras.initializers.TruncatedNormal(0.5, 2.0, seed=4),
    "default": lambda: initializers.get_for_embeddings(None),
    "glorot": lambda: keras.initializers.GlorotUniform(seed=-7),
    "he": lambda: keras.initializers.HeNormal(seed=2**33 + 1),
    "lecun": lambda: keras.initializers.VarianceScaling(
        2.0, "fan_avg", "untruncated_normal", seed=1
    ),
    "constant": lambda: keras.initializers.Constant(0.25),
    "zeros": lambda: keras.initializers.get("zeros"),
}


@pytest.mark.parametrize(
    "kind, shape",
    slow_but(
        [
            *((kind, (7, 3)) for kind in INITIALIZERS if kind != "glorot"),
            *(("truncated", shape) for shape in [(6, 17), (9,)]),
        ],
        itertools.product(INITIALIZERS, SHAPES),
    ),
    ids=str,
)
def test_parts_are_bit_identical_to_rows_of_the_whole(kind, shape, monkeypatch):
    initializer = INITIALIZERS[kind]()
    whole = np.asarray(initializer(shape, "float32"))
    for first, end in ((0, 2), (2, 3), (3, shape[0])):
        part = PartInitializer(initializer, shape, first, "embeddings_initializer")
        for many, call in ((2**20, part), (1, part), (1, tf.function(part, autograph=False))):
            monkeypatch.setattr(initializers, "_LARGE", many)
            rows = call((end - first, *shape[1:]), "float32")
            np.testing.assert_array_equal(rows, whole[first:end])


def test_parts_of_an_array():
    values = np.arange(12.0).reshape(6, 2)
    array = initializers.get_for_embeddings(values)
    part = PartInitializer(array, (6, 2), 3, "embeddings_initializer")
    for call in (part, tf.function(part, autograph=False)):
        np.testing.assert_array_equal(call((2, 2), "float32"), values[3:5])
    with pytest.raises(ValueError, match=r"shape of the weight, \(7, 2\).*\(6, 2\)"):
        PartInitializer(array, (7, 2), 3, "embeddings_initializer")


def test_only_the_requested_rows_are_drawn():
    """The whole matrix would not fit in memory."""
    initializer = keras.initializers.RandomUniform(seed=1)
    part = PartInitializer(initializer, (2**31 - 2, 2**12), 2**31 - 4, "embeddings_initializer")
    rows = part((2, 2**12), "float32")
    assert rows.shape == (2, 2**12) and len(np.unique(rows)) > 2**12


@pytest.mark.parametrize(
    "initializer, match",
    [
        (keras.initializers.Orthogonal(), "Orthogonal.*num_shards=1"),
        (lambda shape, dtype: tf.zeros(shape, dtype), "embeddings_initializer.*function"),
    ],
)
def test_initializers_that_cannot_be_split_raise_an_error(initializer, match):
    with pytest.raises(ValueError, match=match):
        PartInitializer(initializer, (6, 2), 0, "embeddings_initializer")


def test_seed_generators_and_other_dtypes_raise_an_error():
    moving = keras.initializers.RandomUniform(seed=keras.random.SeedGenerator(1))
    with pytest.raises(ValueError, match="SeedGenerator"):
        PartInitializer(moving, (6, 2), 0, "embeddings_initializer")((3, 2), "float32")
    part = PartInitializer(keras.initializers.RandomUniform(), (6, 2), 0, "bias_initializer")
    with pytest.raises(ValueError, match="dtype='bfloat16'"):
        part((3, 2), "bfloat16")
