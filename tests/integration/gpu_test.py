"""A model with a `LargeOutput` trains the same on the GPU as on the CPU."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests import gpu
from tests.papers.lsh.lsh_forms import lsh_sampler
from tf_largeout.search import inverted_file

pytestmark = pytest.mark.gpu

NUM_CLASSES, DIM, BATCH, STEPS = 301, 12, 16, 3
COUNTS = np.arange(1, NUM_CLASSES + 1)

SAMPLERS = {
    "exact": lambda: None,
    "uniform": lambda: tflo.samplers.UniformSampler(20),
    "log_uniform": lambda: tflo.samplers.LogUniformSampler(20, unique=False),
    "unigram": lambda: tflo.samplers.UnigramSampler(20, counts=COUNTS),
    "unigram_with_replacement": lambda: tflo.samplers.UnigramSampler(
        20, counts=COUNTS, unique=False
    ),
    "inverted_file": lambda: tflo.samplers.InvertedFileSampler(20, num_hard=6, start_step=0),
    "inverted_file_alone": lambda: tflo.samplers.InvertedFileSampler(20, num_hard=None),
    "top_k": lambda: tflo.samplers.TopKSampler(20),
    "top_k_and_tail": lambda: tflo.samplers.TopKSampler(20, num_hard=6),
    "kernel_tree": lambda: tflo.samplers.KernelTreeSampler(20, projection_dim=5),
    "kernel_tree_own": lambda: tflo.samplers.KernelTreeSampler(20, shared=False),
    "kernel_tree_head": lambda: tflo.samplers.KernelTreeSampler(20, num_hard=6),
    "lsh": lambda: lsh(),  # one pool for the batch
    "lsh_own": lambda: lsh(form="walk"),
    "lsh_frequent": lambda: lsh(form="frequent"),
    "lsh_label": lambda: lsh(query="label"),
    "lsh_own_label": lambda: lsh(query="label", form="walk"),
    "lsh_dwta": lambda: lsh(hash="dwta"),
    "lsh_shared_dwta": lambda: lsh(hash="dwta", form="pool"),
    "lsh_head": lambda: lsh(num_hard=6),
    "lsh_head_label": lambda: lsh(num_hard=6, query="label", hash="wta"),
}
OPTIMIZERS = {
    "adam": lambda: tflo.optimizers.LazyAdam(0.002),
    "adam_without_decay_of_skipped_rows": lambda: tflo.optimizers.LazyAdam(
        0.01, row_beta_1=0.9, decay_skipped=False, row_step_offset=0
    ),
    "adam_clipped": lambda: tflo.optimizers.LazyAdam(0.002, global_clipnorm=0.1),
    "adagrad": lambda: tflo.optimizers.LazyAdagrad(0.1, weight_decay=0.1),
    "rowwise_adagrad": lambda: tflo.optimizers.RowwiseAdagrad(0.1),
    "sgd": lambda: tflo.optimizers.LazySGD(0.1),
    "momentum": lambda: tflo.optimizers.LazySGD(0.1, momentum=0.9, nesterov=True),
}


def lsh(**kwargs):
    """Returns a sampler that rebuilds its tables at step 1."""
    return lsh_sampler(20, num_tables=9, rebuild_every=1, **kwargs)


def data(first=0, last=STEPS):
    rng = np.random.default_rng(9)
    x = rng.normal(size=(STEPS * BATCH, DIM)).astype("float32")
    y = rng.integers(-1, NUM_CLASSES, (STEPS * BATCH, 3))
    y[:, 0] = np.arange(len(y)) % 7  # labels repeat
    return x[first * BATCH : last * BATCH], y[first * BATCH : last * BATCH]


def new_model(device, sampler, optimizer):
    """Returns a model with the same weights and slots on any `device`."""
    keras.utils.set_random_seed(4)
    head = tflo.layers.LargeOutput(NUM_CLASSES, SAMPLERS[sampler]())
    loss = tflo.losses.SampledSoftmaxLoss() if head.sampler else tflo.losses.SoftmaxLoss()
    with tf.device(device):
        model = keras.Sequential([keras.Input([DIM]), keras.layers.Dense(DIM), head])
        model.compile(OPTIMIZERS[optimizer](), loss)
        model.optimizer.build(model.trainable_variables)
    rng = np.random.default_rng(5)
    for weight in model.trainable_weights:
        weight.assign(rng.normal(size=weight.shape) / 4)
    if head.sampler:
        head.seed_state.assign([7, 0])
    return model


def fit(model, device, first=0, last=STEPS):
    # On the GPU without naming it, as users do.
    place = tf.device(device) if device == "CPU:0" else contextlib.nullcontext()
    with place:
        return model.fit(*data(first, last), batch_size=BATCH, shuffle=False, verbose=0).history


def assert_same_states(one, other, **tolerances):
    states = [[*model.weights, *model.optimizer.variables] for model in (one, other)]
    for left, right in zip(*states, strict=True):
        np.testing.assert_allclose(left, right, err_msg=left.path, **tolerances)


def trained_on_both(sampler, optimizer):
    models = [new_model(device, sampler, optimizer) for device in ("CPU:0", gpu.NAME)]
    assert models[1].layers[-1].embeddings.value.device.endswith(gpu.NAME)
    losses = [fit(m, d)["loss"] for m, d in zip(models, ("CPU:0", gpu.NAME), strict=True)]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    assert_same_states(*models, rtol=1e-4, atol=1e-5)
    return models


@pytest.fixture
def upkeep_in_few_steps(monkeypatch):
    """Fits the lists in the first step and updates them in the third."""
    monkeypatch.setattr(inverted_file, "_LEAST_INTERVAL", 2)


@pytest.mark.usefixtures("upkeep_in_few_steps")
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_each_sampler_trains_the_same_as_on_the_cpu(sampler):
    on_cpu, on_gpu = trained_on_both(sampler, "adam")
    with tf.device("CPU:0"):
        expected = on_cpu.evaluate(*data(), verbose=0)
        scores, ids = on_cpu.layers[-1].top_k(data()[0], 5)
    np.testing.assert_allclose(on_gpu.evaluate(*data(), verbose=0), expected, rtol=1e-5)
    got_scores, got_ids = on_gpu.layers[-1].top_k(data()[0], 5)
    np.testing.assert_allclose(got_scores, scores, rtol=1e-4, atol=1e-5)
    assert np.mean(got_ids == ids) > 0.95  # weights differ in their last bits


class Composite(keras.layers.Layer):
    """Has no `build` method, so Keras creates its variables later."""

    def __init__(self, head):
        super().__init__()
        self.head = head

    def call(self, features):
        return self.head(features)


def composite(head):
    features = keras.Input([DIM])
    return keras.Model(features, Composite(head)(features))


def without_input(head):
    return keras.Sequential([keras.layers.Dense(DIM), head])


@pytest.mark.parametrize("sampler", ["uniform", "inverted_file", "lsh", "top_k"])
@pytest.mark.parametrize("make", [composite, without_input])
def test_models_with_deferred_variables_train(make, sampler):
    head = tflo.layers.LargeOutput(NUM_CLASSES, SAMPLERS[sampler]())
    model = make(head)
    model.compile(OPTIMIZERS["adam"](), tflo.losses.SampledSoftmaxLoss())
    history = model.fit(*data(), batch_size=BATCH, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    assert head.embeddings.value.device.endswith(gpu.NAME)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_each_optimizer_trains_the_same_as_on_the_cpu_and_resumes_from_a_file(
    optimizer, tmp_path
):
    _, straight = trained_on_both("uniform", optimizer)
    first = new_model(gpu.NAME, "uniform", optimizer)
    fit(first, gpu.NAME, last=2)
    first.save(tmp_path / "model.keras")
    with tf.device(gpu.NAME):
        second = keras.models.load_model(tmp_path / "model.keras")
    fit(second, gpu.NAME, first=2)
    assert_same_states(straight, second, rtol=1e-5, atol=1e-6)


def test_hash_tables_are_on_the_gpu_also_after_loading(tmp_path):
    on_cpu, straight = trained_on_both("lsh", "adam")
    first = new_model(gpu.NAME, "lsh", "adam")
    fit(first, gpu.NAME, last=2)
    first.save(tmp_path / "model.keras")
    with tf.device(gpu.NAME):
        second = keras.models.load_model(tmp_path / "model.keras")
    fit(second, gpu.NAME, first=2)
    assert_same_states(straight, second, rtol=1e-5, atol=1e-6)
    heads = [model.layers[-1] for model in (on_cpu, straight, second)]
    for head in heads[1:]:
        for table in (head.sampler_table_offsets, head.sampler_table_ids):
            assert table.value.device.endswith(gpu.NAME)
    for rebuilds in (False, True):
        if rebuilds:
            for head in heads:
                head.sampler.rebuild(head)
        healths = [head.sampler.health(head) for head in heads]
        assert healths[0] == healths[1] == healths[2]
    assert healths[0]["fresh_share"] == 1
