"""`BigramSampler`: counts, draws and expected counts given the previous label."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.reference import samplers as reference
from tests.samplers.stub_layer import built_layer
from tf_largeout import layers, losses, samplers

N, M = 12, 5
RNG = np.random.default_rng(0)
SEQUENCES = np.minimum(RNG.geometric(0.3, (30, 9)), N - 1)
SEQUENCES[::4, 6:] = -1
SEQUENCES[3, 2] = -1
Q = reference.bigram(SEQUENCES, N)
RAGGED = [[int(c) for c in row if c >= 0] for row in SEQUENCES if row[2] >= 0]
DATA = {
    "padded": (SEQUENCES, Q),
    "list": (SEQUENCES.tolist(), Q),
    "with more dimensions": (SEQUENCES.reshape(5, 6, 9), Q),
    "dataset of labels": (tf.data.Dataset.from_tensor_slices(SEQUENCES), Q),
    "dataset of x, y": (tf.data.Dataset.from_tensors((0, SEQUENCES)), Q),
    "one sequence": (SEQUENCES[0], reference.bigram(SEQUENCES[:1], N)),
    "ragged": (tf.ragged.constant(RAGGED, tf.int32), reference.bigram(RAGGED, N)),
}


def adapted(data=SEQUENCES, **kwargs):
    sampler = samplers.BigramSampler(M, **kwargs)
    sampler.adapt(data)
    return sampler


def expected_counts(layer):
    """Returns the expected counts of classes after each class; the last row is for none."""
    previous = np.append(np.arange(N), -1)
    labels = np.tile(np.arange(N), (N + 1, 1))
    values = layer.sampler.sample(None, labels, layer, previous)
    return values.true_expected_count.numpy()


@pytest.mark.parametrize("built_first", [False, True])
@pytest.mark.parametrize("kind", DATA)
def test_expected_counts_equal_those_of_the_counted_pairs(kind, built_first):
    data, q = DATA[kind]
    if built_first:
        layer = built_layer(N, samplers.BigramSampler(M, num_pairs=200))
        layer.sampler.adapt(data)
    else:
        layer = built_layer(N, adapted(data))
    counts = expected_counts(layer)
    np.testing.assert_allclose(counts, M * q, rtol=1e-5)
    np.testing.assert_allclose(counts.sum(axis=1), M, rtol=1e-6)


def test_draws_are_as_frequent_as_reported():
    layer, copies = built_layer(N, adapted()), 4000
    previous = np.repeat(np.append(np.arange(N), -1), copies)
    ids, _, counts = layer.sampler.sample(None, np.zeros((len(previous), 1)), layer, previous)
    ids, counts = ids.numpy(), counts.numpy()
    assert ids.shape == counts.shape == (len(previous), M)
    np.testing.assert_allclose(counts, M * Q[previous[:, None], ids], rtol=1e-5)
    for first in range(-1, N):
        found = np.bincount(ids[previous == first].reshape(-1), minlength=N) / (copies * M)
        sigma = np.sqrt(Q[first] * (1 - Q[first]) / (copies * M))
        assert np.all(np.abs(found - Q[first]) <= 5 * sigma)


def test_only_the_most_frequent_pairs_are_kept():
    data = np.array([[0, 1, -1, 0, 1, -1, 0, 2, -1, 3, 1, -1, 3, 1]])
    layer = built_layer(N, adapted(data, num_pairs=2))
    q = expected_counts(layer) / M
    seen = np.array([[0, 1, -1, 0, 1, -1, 0, -1, 2, -1, 3, 1, -1, 3, 1]])
    np.testing.assert_allclose(q, reference.bigram(seen, N), rtol=1e-5)
    assert layer.sampler.get_config()["num_pairs"] == 2


def test_labels_without_a_pair_raise_an_error():
    with pytest.raises(ValueError, match=r"no consecutive labels. Pass sequences"):
        adapted(np.array([[3], [3], [1]]))


def test_the_previous_label_is_of_the_same_sequence(monkeypatch):
    seen = []

    def draw_after(self, previous, labels, layer):
        seen.append((previous.numpy().tolist(), labels.numpy()[:, 0].tolist()))
        return original(self, previous, labels, layer)

    original = samplers.BigramSampler.draw_after
    monkeypatch.setattr(samplers.BigramSampler, "draw_after", draw_after)
    head = layers.LargeOutput(N, adapted())
    loss = losses.SampledSoftmaxLoss()
    labels = np.array([[1, 2, 3], [4, -1, 5]])
    loss(labels, head(np.ones((2, 3, 4), "float32"), training=True))
    several = np.stack([labels, np.full((2, 3), 7)], axis=-1)
    loss(several, head(np.ones((2, 3, 4), "float32"), training=True))
    loss(labels[None], head(np.ones((1, 2, 3, 4), "float32"), training=True))
    loss(labels[:, :0], head(np.ones((2, 0, 4), "float32"), training=True))
    assert seen == [([-1, 1, 2, -1, 4, -1], [1, 2, 3, 4, -1, 5])] * 3 + [([], [])]


def language_model():
    head = layers.LargeOutput(N, adapted(seed=3))
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Embedding(N + 1, 4, mask_zero=True), head]
    )
    model.compile(keras.optimizers.SGD(0.1), losses.SampledSoftmaxLoss())
    return model


@pytest.mark.slow
def test_a_resumed_run_is_bit_identical(tmp_path):
    x, y = SEQUENCES[:, :-1] + 1, SEQUENCES[:, 1:]
    model = language_model()
    model.fit(x, y, shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    for one in (model, again):
        assert np.isfinite(one.fit(x, y, shuffle=False, verbose=0).history["loss"])
    for weight, same in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(weight, same, err_msg=weight.path)


def test_many_batches_are_counted_like_one(monkeypatch):
    monkeypatch.setattr("tf_largeout.class_counts._NUMBERS_AT_ONCE", 3)
    data = tf.data.Dataset.from_tensor_slices(SEQUENCES).repeat()
    sampler = samplers.BigramSampler(M)
    with pytest.raises(ValueError, match="infinite: pass `steps`"):
        sampler.adapt(data)
    sampler.adapt(data, steps=len(SEQUENCES))
    np.testing.assert_allclose(expected_counts(built_layer(N, sampler)), M * Q, rtol=1e-5)


def test_features_that_are_not_sequences_raise_an_error():
    head = layers.LargeOutput(N, adapted(), name="words")
    logits = head(np.ones((3, 4), "float32"), training=True)
    with pytest.raises(ValueError, match="BigramSampler of layer 'words'.*Unigram"):
        losses.SampledSoftmaxLoss()([1, 2, 3], logits)


def test_the_error_of_missing_labels_or_counts_names_them():
    with pytest.raises(ValueError, match="how many pairs.*`adapt`.*`num_pairs`"):
        built_layer(N, samplers.BigramSampler(M))
    layer = built_layer(N, samplers.BigramSampler(M, num_pairs=7))
    with pytest.raises(ValueError, match="BigramSampler has no class counts.*`adapt`"):
        layer.sample()


@pytest.mark.parametrize("data", [[[3, N]], np.array([[1, 2], [0, N + 5]])])
def test_labels_out_of_range_raise_an_error(data):
    with pytest.raises(ValueError, match=f"labels up to {np.max(data)}.*num_classes=12"):
        built_layer(N, adapted(np.array(data)))


@pytest.mark.parametrize("data", [[[0.5, 1.0]], [[-2, 1]], [[-1, -1]]])
def test_data_without_labels_raises_an_error(data):
    with pytest.raises(ValueError, match="[Ll]abels"):
        samplers.BigramSampler(M).adapt(np.array(data))
