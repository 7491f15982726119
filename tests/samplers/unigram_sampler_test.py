import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import replicas
from tests.reference import samplers as reference
from tests.samplers.stub_layer import built_layer
from tests.slow import slow_but
from tf_largeout import layers, losses, samplers

COUNTS = np.array([5.0, 0, 3, 1, 0, 40, 2, 2])
both_ways = pytest.mark.parametrize("unique", [False, True])


def layer_with(sampler):
    return built_layer(COUNTS.size, sampler)


def expected(counts, unique, distortion=1.0, num_sampled=3):
    return reference.expected_counts(reference.unigram(counts, distortion), num_sampled, unique)


LABELS = np.repeat(np.arange(COUNTS.size), COUNTS.astype(int))
PADDED = np.concatenate([LABELS, np.full(3, -1)]).reshape(-1, 8)[::-1]
DATA = {
    "array": LABELS,
    "list": LABELS.tolist(),
    "matrix padded with -1": PADDED,
    "tensor": tf.constant(PADDED, tf.int32),
    "ragged tensor": tf.RaggedTensor.from_row_lengths(LABELS, [50, 0, 3]),
    "dataset of labels": tf.data.Dataset.from_tensor_slices(LABELS).batch(9),
    "dataset of x, y": tf.data.Dataset.from_tensor_slices((PADDED, PADDED)).batch(2),
    "dataset of x, y, weight": tf.data.Dataset.from_tensors((0, LABELS, 1.0)),
}


@pytest.mark.parametrize(
    "kind, built_first, unique",
    slow_but(
        [
            *((kind, False, True) for kind in DATA),
            ("array", True, True),
            ("array", True, False),
            ("dataset of x, y", False, False),
        ],
        itertools.product(DATA, [False, True], [False, True]),
    ),
)
def test_adapt_counts_the_labels(kind, built_first, unique):
    sampler = samplers.UnigramSampler(3, unique=unique, distortion=0.75)
    if built_first:
        layer = layer_with(sampler)
        sampler.adapt(DATA[kind])
    else:
        sampler.adapt(DATA[kind])
        layer = layer_with(sampler)
    np.testing.assert_allclose(
        layer.expected_counts(), expected(COUNTS, unique, 0.75), rtol=1e-6
    )


def test_adapt_replaces_earlier_counts():
    sampler = samplers.UnigramSampler(3, counts=COUNTS, unique=False)
    layer = layer_with(sampler)
    sampler.adapt([0, 0, 1])
    np.testing.assert_allclose(
        layer.expected_counts(), expected([2, 1, 0, 0, 0, 0, 0, 0], False), rtol=1e-6
    )


@pytest.mark.parametrize(
    "data, received",
    [
        ([[0, 1], [2]], "rows of several lengths"),
        ((batch for batch in [LABELS]), "type generator"),
        (tf.data.Dataset.from_tensors((0, {"labels": LABELS})), "type dict"),
        (LABELS.astype("float32"), "type ndarray, of dtype float32"),
    ],
)
def test_the_error_of_adapt_names_the_accepted_forms_of_labels(data, received):
    with pytest.raises(ValueError, match=f"tf.ragged.constant.*Dataset.*Received.*{received}"):
        samplers.UnigramSampler(3).adapt(data)


def test_infinite_datasets_are_counted_for_the_given_steps():
    data = tf.data.Dataset.from_tensor_slices(LABELS).batch(53).repeat()
    sampler = samplers.UnigramSampler(3)
    with pytest.raises(ValueError, match="infinite: pass `steps`"):
        sampler.adapt(data)
    sampler.adapt(data, steps=1)
    np.testing.assert_allclose(
        layer_with(sampler).expected_counts(), expected(COUNTS, True), rtol=1e-6
    )


@both_ways
def test_classes_without_examples_count_as_seen_once(unique):
    layer = layer_with(samplers.UnigramSampler(3, counts=COUNTS, unique=unique))
    counts = layer.expected_counts()
    assert np.all(np.isfinite(np.log(counts)))
    np.testing.assert_array_equal(counts[[1, 4]], counts[3])


def test_counts_may_be_probabilities():
    q = COUNTS / COUNTS.sum()
    whole = layer_with(samplers.UnigramSampler(3, counts=COUNTS))
    shares = layer_with(samplers.UnigramSampler(3, counts=q))
    np.testing.assert_allclose(whole.expected_counts(), shares.expected_counts(), rtol=1e-6)


@pytest.mark.parametrize("scale, distortion", [(1e300, 1.0), (1e-300, 1.0), (1.0, 30.0)])
def test_extreme_counts_give_finite_expected_counts(scale, distortion):
    sampler = samplers.UnigramSampler(3, counts=COUNTS * scale, distortion=distortion)
    counts = layer_with(sampler).expected_counts()
    assert counts.sum() == pytest.approx(3)
    assert np.all(np.isfinite(np.log(counts)))


@both_ways
def test_checkpoints_restore_the_tables(tmp_path, unique):
    layer = layer_with(samplers.UnigramSampler(3, counts=COUNTS, unique=unique))
    path = tf.train.Checkpoint(layer).write(str(tmp_path / "checkpoint"))
    empty = layer_with(samplers.UnigramSampler(3, unique=unique))
    tf.train.Checkpoint(empty).read(path).assert_consumed()
    np.testing.assert_array_equal(empty.expected_counts(), layer.expected_counts())


@both_ways
def test_the_error_of_missing_counts_has_a_remedy(unique):
    layer = layer_with(samplers.UnigramSampler(3, unique=unique))
    for draw in (layer.expected_counts, tf.function(layer.sample).get_concrete_function):
        with pytest.raises(ValueError, match="`counts`.*`adapt`.*saved.*clone_model"):
            draw()


@pytest.mark.parametrize("unique", slow_but([True], [False, True]))
def test_a_clone_has_no_counts_until_it_gets_the_weights(unique):
    sampler = samplers.UnigramSampler(3, counts=COUNTS, unique=unique)
    model = keras.Sequential([keras.Input([4]), layers.LargeOutput(COUNTS.size, sampler)])
    clone = keras.models.clone_model(model)
    data = np.ones([2, 4]), np.ones(2, int)
    clone.compile("sgd", losses.SampledSoftmaxLoss())
    with pytest.raises(ValueError, match="no class counts.*clone.set_weights"):
        clone.fit(*data, verbose=0)
    clone.set_weights(model.get_weights())
    assert np.isfinite(clone.fit(*data, verbose=0).history["loss"]).all()


def test_each_replica_draws_from_the_tables():
    strategy = replicas.two_replicas()
    with strategy.scope():
        layer = layer_with(samplers.UnigramSampler(3, counts=COUNTS, unique=False))
    layer.sampler.adapt([7, 7, 7])

    @tf.function
    def step():
        return layer.sample([[7]]).true_expected_count

    for count in strategy.experimental_local_results(strategy.run(step)):
        np.testing.assert_allclose(count, 3 * 3 / 10, rtol=1e-6)


@pytest.mark.parametrize(
    "counts, message",
    [
        ([1, -2, 3], "-2.0 for class 1"),
        ([1, 2, np.nan], "nan for class 2"),
        ([np.inf, 2], "inf for class 0"),
        ([0, 0], "all zero"),
        ([], r"shape \(0,\)"),
        ([[1, 2]], r"shape \(1, 2\)"),
    ],
)
def test_bad_counts_raise_an_error(counts, message):
    with pytest.raises(ValueError, match=message):
        samplers.UnigramSampler(2, counts=counts)


@pytest.mark.parametrize("size", [7, 9])
def test_counts_of_the_wrong_length_raise_an_error(size):
    with pytest.raises(ValueError, match=rf"{size} classes.*num_classes=8"):
        layer_with(samplers.UnigramSampler(2, counts=np.ones(size)))


@pytest.mark.parametrize("built_first", [False, True])
def test_labels_out_of_range_raise_an_error(built_first):
    sampler = samplers.UnigramSampler(2)
    with pytest.raises(ValueError, match="9 classes.*num_classes=8"):
        if built_first:
            layer_with(sampler)
        sampler.adapt([0, 8])
        layer_with(sampler)


@pytest.mark.parametrize(
    "labels, message",
    [
        ([0.5, 1.0], "float64"),
        ([3, -2], "-2"),
        ([-1, -1], "none"),
        (["a"], "U1"),
        ([2**40, 0], str(2**40)),
    ],
)
def test_bad_labels_raise_an_error(labels, message):
    with pytest.raises(ValueError, match=message):
        samplers.UnigramSampler(2).adapt(np.array(labels))


@pytest.mark.parametrize("distortion", [-1, np.nan, np.inf])
def test_bad_distortions_raise_an_error(distortion):
    with pytest.raises(ValueError, match=f"distortion={distortion}"):
        samplers.UnigramSampler(2, distortion=distortion)
