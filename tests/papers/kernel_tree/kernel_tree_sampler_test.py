import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests import harness, replicas
from tests.reference import kernel_tree as reference
from tests.slow import slow_but
from tf_largeout import samplers

NUM_CLASSES, DIM, BATCH = 300, 8, 16
FORMS = {
    "own": {"shared": False},
    "projected": {"shared": False, "projection_dim": 3},
    "shared": {"leaf_size": 7},
    "head": {"num_hard": 4},
    "cosine own": {"shared": False, "normalize": True},
    "cosine projected": {"shared": False, "projection_dim": 3, "normalize": True},
    "cosine shared": {"leaf_size": 7, "normalize": True},
    "cosine projected shared": {"projection_dim": 3, "normalize": True},
    "cosine head": {"num_hard": 4, "normalize": True},
}
# Their changes are not reported to the tree.
OPTIMIZERS = {"lazy": tflo.optimizers.LazyAdam, "of Keras": keras.optimizers.Adam}


def make_model(form="own", optimizer="lazy", **kwargs):
    keras.utils.set_random_seed(3)
    arguments = {"num_sampled": 20, "seed": 1, **FORMS[form], **kwargs}
    of_layer = {"scale": 3, "normalize": arguments.pop("normalize", False), "name": "head"}
    sampler = samplers.KernelTreeSampler(**arguments)
    head = tflo.layers.LargeOutput(NUM_CLASSES, sampler=sampler, **of_layer)
    model = keras.Sequential([keras.Input([DIM]), keras.layers.Dense(DIM), head])
    loss = tflo.losses.SampledSoftmaxLoss()
    model.compile(optimizer=OPTIMIZERS[optimizer](0.01), loss=loss)
    model.optimizer.build(model.trainable_variables)  # Otherwise each step is traced twice.
    return model


def examples(steps, seed=0):
    labels = np.random.default_rng(seed).integers(NUM_CLASSES, size=steps * BATCH)
    features = np.random.default_rng(9).normal(size=[NUM_CLASSES, DIM])[labels]
    return features.astype("f4"), labels


def fit(model, steps, seed=0):
    x, y = examples(steps, seed)
    return model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0).history["loss"][0]


def drawn(layer, features, labels=None):
    if labels is None:
        labels = np.full([len(features), 1], -1)
    values = layer.sampler.sample(tf.constant(features), tf.constant(labels), layer)
    return [tensor.numpy() for tensor in values]


def q_of(layer, features):
    weights = {weight.name: weight.numpy() for weight in layer.weights}
    rows = weights["embeddings"]
    return reference.probabilities(
        features,
        reference.scaled(rows) if layer.normalize else rows,
        weights["bias"],
        layer.sampler.alpha,
        weights.get("sampler_projection"),
    )


def sums_are_fresh(layer):
    before = layer.sampler_sums.numpy()
    layer.sampler.rebuild(layer)
    return np.array_equal(before, layer.sampler_sums.numpy())


COUNTED = [form for form in FORMS if "head" not in form]


@pytest.mark.parametrize("form", slow_but(["cosine projected"], COUNTED))
def test_expected_counts_equal_those_of_the_kernel_of_current_weights(form):
    model = make_model(form)
    model.run_eagerly = True
    fit(model, 7)
    layer, features = model.layers[-1], examples(1)[0]
    labels = np.random.default_rng(0).integers(-1, NUM_CLASSES, [BATCH, 3])
    ids, true_counts, counts = drawn(layer, features, labels)
    q = q_of(layer, features)
    if "shared" in form:
        q = np.broadcast_to(q.mean(axis=0), q.shape)
        ids, counts = ids[np.newaxis], counts[np.newaxis]
    rows = np.arange(BATCH)[:, np.newaxis]
    np.testing.assert_allclose(counts, 20 * q[rows[: len(ids)], ids], rtol=2e-4)
    expected = np.where(labels >= 0, 20 * q[rows, labels], 1)
    np.testing.assert_allclose(true_counts, expected, rtol=2e-4)


@pytest.mark.slow
def test_the_head_has_distinct_classes_and_the_tail_is_shared():
    model = make_model("head", num_sampled=60, num_hard=40)
    model.run_eagerly = True
    fit(model, 5)
    features = examples(1)[0]
    labels = tf.zeros([BATCH, 1], tf.int64)
    values = model.layers[-1].sampler.sample(features, labels, model.layers[-1])
    head = values.head.sampled_candidates.numpy()
    assert head.shape == (BATCH, 40) and values.tail.sampled_candidates.shape == (20,)
    for row in head:
        found = row[row >= 0]
        assert 0 < len(set(found)) == len(found)
    assert np.any(head < 0)


@pytest.mark.parametrize("form", slow_but(["projected"], FORMS))
def test_the_tree_follows_the_training_step_by_step(form):
    model = make_model(form)
    first, last = fit(model, 60), fit(model, 60)
    assert last < first
    layer = model.layers[-1]
    assert layer.sampler.health(layer)["built_at"] == 0
    drawn_before = layer.sampler_schedule.numpy()[0]
    layer.sampler.prepare(layer)
    assert layer.sampler_schedule.numpy()[0] == drawn_before + 1
    assert layer.sampler_num_stale.numpy() == 0
    assert sums_are_fresh(layer)


@pytest.mark.slow
def test_draws_follow_the_kernel_during_500_steps_of_fit():
    model = make_model(num_sampled=100)
    layer, features = model.layers[-1], examples(1)[0]
    for _ in range(5):
        fit(model, 100)
        counts = np.zeros([BATCH, NUM_CLASSES])
        for _ in range(300):
            ids = drawn(layer, features)[0]
            np.add.at(counts, (np.arange(BATCH)[:, np.newaxis], ids), 1)
        for row, expected in zip(counts, q_of(layer, features), strict=True):
            assert abs(reference.chi_square_deviation(row, expected)) < 5
    assert sums_are_fresh(layer)


@pytest.mark.slow  # In the short suite fit_test.py has a shared tree.
@pytest.mark.parametrize("form", ["projected", "shared", "cosine projected shared"])
def test_a_resumed_run_equals_an_uninterrupted_one(form, tmp_path):
    harness.assert_resumed_equals_uninterrupted(
        lambda: make_model(form),
        lambda model: fit(model, 7, seed=1),
        lambda model: fit(model, 9, seed=2),
        tmp_path,
    )


@pytest.mark.slow
def test_the_tree_is_rebuilt_after_weights_are_assigned():
    model = make_model()
    fit(model, 5)
    layer = model.layers[-1]
    weights = layer.get_weights()
    layer.set_weights([-3 * weights[0][::-1], *weights[1:]])
    fit(model, 60)
    layer.sampler.prepare(layer)
    assert sums_are_fresh(layer)


@pytest.mark.slow
def test_an_optimizer_of_keras_rebuilds_the_tree_every_50_steps():
    model = make_model(optimizer="of Keras")
    fit(model, 120)
    assert model.layers[-1].sampler.health(model.layers[-1])["built_at"] == 100


def test_rebuild_uses_assigned_weights():
    model = make_model()
    layer, features = model.layers[-1], examples(1)[0]
    layer.embeddings.assign(tf.random.stateless_normal([NUM_CLASSES, DIM], [1, 2]))
    layer.sampler.rebuild(layer)
    ids, _, counts = drawn(layer, features)
    q = q_of(layer, features)
    np.testing.assert_allclose(counts, 20 * q[np.arange(BATCH)[:, None], ids], rtol=2e-4)


@pytest.mark.parametrize("num_classes", [1, 2, 30])
def test_few_classes_are_supported(num_classes):
    sampler = samplers.KernelTreeSampler(5)
    layer = tflo.layers.LargeOutput(num_classes, sampler=sampler)
    layer.build((None, DIM))
    ids, _, counts = drawn(layer, np.ones([3, DIM], "f4"))
    assert np.all((ids >= 0) & (ids < num_classes))
    if num_classes == 1:
        np.testing.assert_allclose(counts, 5, rtol=1e-6)


def test_draws_for_zero_features_are_uniform():
    sampler = samplers.KernelTreeSampler(5)
    layer = tflo.layers.LargeOutput(NUM_CLASSES, sampler=sampler)
    layer.build((None, DIM))
    counts = drawn(layer, np.zeros([3, DIM], "f4"))[2]
    np.testing.assert_allclose(counts, 5 / NUM_CLASSES, rtol=1e-5)


@pytest.mark.parametrize("where", ["embeddings", "features"])
def test_values_that_are_not_finite_raise_an_error_in_the_step(where):
    model = make_model()
    model.run_eagerly = True
    fit(model, 3)
    layer, features = model.layers[-1], examples(1)[0]
    layer.sampler.prepare(layer)
    sums = layer.sampler_sums.numpy()
    if where == "features":
        features[2, 1] = np.nan
    else:
        layer.embeddings.assign(tf.fill(layer.embeddings.shape, np.inf))
    with pytest.raises(tf.errors.InvalidArgumentError, match="finite"):
        drawn(layer, features)
    np.testing.assert_array_equal(layer.sampler_sums, sums)


@pytest.mark.slow
@pytest.mark.parametrize("form", slow_but(["projected"], ["projected", "shared"]))
def test_mixed_precision_trains(form):
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        model = make_model(form)
        model.run_eagerly = True
        assert np.isfinite(fit(model, 4))
    finally:
        keras.mixed_precision.set_global_policy("float32")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["projected", "shared", "cosine shared"])
def test_replicas_have_equal_trees(form):
    with replicas.two_replicas().scope():
        model = make_model(form)
    fit(model, 8)
    layer = model.layers[-1]
    assert layer.sampler.health(layer)["built_at"] == 0
    for weight in layer.weights:
        if weight.name.startswith("sampler_"):
            np.testing.assert_array_equal(*weight.value.values)
    layer.sampler.rebuild(layer)
    np.testing.assert_array_equal(*layer.sampler_sums.value.values)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_sampled": 0},
        {"alpha": 0.0},
        {"projection_dim": 0},
        {"leaf_size": 1.5},
        {"num_hard": 20},
        {"num_hard": 3, "shared": True},
        {"num_hard": 3, "tail": "top_k"},
    ],
    ids=str,
)
def test_wrong_arguments_raise_an_error(wrong):
    with pytest.raises(ValueError, match=list(wrong)[-1]):
        samplers.KernelTreeSampler(**{"num_sampled": 20, **wrong})


def test_a_projection_that_is_too_wide_raises_an_error_and_the_layer_can_be_built_again():
    sampler = samplers.KernelTreeSampler(5, projection_dim=DIM + 1, num_hard=2)
    layer = tflo.layers.LargeOutput(NUM_CLASSES, sampler=sampler)
    with pytest.raises(ValueError, match="projection_dim"):
        layer.build((None, DIM))
    layer.build((None, DIM + 1))
    assert layer.sampler_sums.shape[0] > 1


def test_an_unbuilt_sampler_raises_an_error():
    with pytest.raises(ValueError, match="no state"):
        samplers.KernelTreeSampler(5).rebuild(None)
    with pytest.raises(ValueError, match="no state"):
        samplers.KernelTreeSampler(5).health(None)
