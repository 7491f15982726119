"""Models on Keras's JAX backend against the TensorFlow backend: same files, same results."""

import pathlib
import subprocess

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo

ROOT = pathlib.Path(__file__).parents[2]
PYTHON = ROOT / ".venv_jax/bin/python"
NUM_CLASSES, BATCH, STEPS = 40, 8, 4

rng = np.random.default_rng(1)
FEATURES = rng.standard_normal((BATCH, 6)).astype(np.float32)
ONE = rng.integers(0, NUM_CLASSES, BATCH)
SEVERAL = np.stack([ONE, (ONE + 3) % NUM_CLASSES, np.where(ONE % 2, ONE - 1, -1)], axis=1)
IDS = rng.permutation(NUM_CLASSES)[:12].tolist()
COUNTS = rng.uniform(0.2, 0.9, NUM_CLASSES).tolist()


@keras.saving.register_keras_serializable(package="tests")
class FixedSampler(tflo.samplers.Sampler):
    """Draws given classes, with given expected counts of all classes."""

    def __init__(self, ids, counts):
        super().__init__(len(ids))
        self.ids, self.counts = ids, counts

    def draw(self, features, labels, layer):
        ids, counts = tf.constant(self.ids, tf.int64), tf.constant(self.counts)
        true_counts = tf.where(labels >= 0, tf.gather(counts, tf.maximum(labels, 0)), 1)
        return tflo.samplers.SampledValues(ids, true_counts, tf.gather(counts, ids))

    def get_config(self):
        return {"ids": self.ids, "counts": self.counts}


losses, optimizers, samplers = tflo.losses, tflo.optimizers, tflo.samplers
# Layer options, loss, labels, optimizer.
CASES = {
    "sampled": ({}, losses.SampledSoftmaxLoss(), ONE, optimizers.LazyAdam(0.05)),
    "clipped": (
        {"use_bias": False},
        losses.SampledSoftmaxLoss(label_smoothing=0.1),
        SEVERAL,
        optimizers.LazyAdam(0.05, global_clipnorm=0.1, weight_decay=0.1, row_beta_1=0.5),
    ),
    "nce": ({}, losses.NCELoss(), SEVERAL, optimizers.RowwiseAdagrad(0.3, clipnorm=0.2)),
    "decoupled": (
        {"normalize": True, "scale": "learned"},
        losses.DecoupledSoftmaxLoss(),
        SEVERAL,
        optimizers.LazyAdam(keras.optimizers.schedules.CosineDecay(0.05, 6)),
    ),
    "exact": (
        {"logit_soft_cap": 4.0, "sampler": None},
        losses.SoftmaxLoss(label_smoothing=0.2),
        ONE,
        optimizers.LazyAdam(0.05),
    ),
    "exact sampler": ({}, losses.SoftmaxLoss(), ONE, optimizers.LazyAdam(0.05)),
    "plain adam": ({}, losses.SampledSoftmaxLoss(), ONE, keras.optimizers.Adam(0.05)),
    # Other draws, so these take no steps.
    "unigram": (
        {"sampler": samplers.UnigramSampler(4, counts=np.arange(NUM_CLASSES) + 1.0)},
        losses.SampledSoftmaxLoss(),
        ONE,
        optimizers.LazyAdam(0.05),
    ),
    "top_k": (
        {"sampler": samplers.TopKSampler(16, num_hard=4, start_step=None)},
        losses.SampledSoftmaxLoss(),
        ONE,
        optimizers.LazyAdam(0.05),
    ),
    "bfloat16": (
        {"sampler": samplers.LogUniformSampler(4), "embeddings_dtype": "bfloat16"},
        losses.SampledSoftmaxLoss(),
        ONE,
        optimizers.RowwiseAdagrad(0.05),
    ),
}


def make_model(name):
    options, loss, _, optimizer = CASES[name]
    options = {"sampler": FixedSampler(IDS, COUNTS)} | options
    keras.utils.set_random_seed(3)
    encoder = keras.layers.Dense(8, activation="tanh")
    head = tflo.layers.LargeOutput(NUM_CLASSES, **options)
    model = keras.Sequential([keras.Input((6,)), encoder, head])
    compile_model(model, optimizer, loss)
    return model


def compile_model(model, optimizer, loss):
    model.compile(optimizer, loss, metrics=["precision_at_1", "ndcg_at_5"])


def results_of(model, given):
    data = given["features"], given["labels"]
    found = {"losses": [model.train_on_batch(*data) for _ in range(int(given["steps"]))]}
    head, encoder = model.layers[-1], keras.Sequential(model.layers[:-1])
    features = encoder.predict(given["features"], verbose=0)
    found["scores"], found["ids"] = head.top_k(features, 4)
    found["evaluated"] = model.evaluate(*data, verbose=0)
    return {name: np.asarray(value) for name, value in found.items()} | {
        "rows": head.class_embeddings().numpy()
    }


def assert_close(found, expected):
    np.testing.assert_array_equal(found["ids"], expected["ids"])
    for name in ("losses", "evaluated", "scores", "rows"):
        np.testing.assert_allclose(
            found[name], expected[name], rtol=2e-4, atol=2e-5, err_msg=name
        )


@pytest.fixture(scope="module")
def on_both(tmp_path_factory):
    """Returns a folder with the files of both backends, and TensorFlow's results by case."""
    if not PYTHON.exists():
        pytest.skip("needs .venv_jax, from `make test-jax`")
    folder, expected = tmp_path_factory.mktemp("models"), {}
    for name, (options, _, labels, _) in CASES.items():
        model = make_model(name)
        takes_steps = options.get("sampler") is None
        given = {"features": FEATURES, "labels": labels, "steps": STEPS * takes_steps}
        model.train_on_batch(FEATURES, labels)
        model.save(folder / f"{name}.keras")
        np.savez(folder / f"{name}.npz", **given)
        expected[name] = results_of(model, given)
    program = ROOT / "tests/jax/other_backend.py"
    subprocess.run([PYTHON, program, folder], check=True, cwd=folder, env=_environment())
    return folder, expected


def _environment():
    flags = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
    return {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "HOME": "/tmp"}


@pytest.mark.parametrize("name", CASES)
def test_a_file_of_tensorflow_has_the_same_results_on_jax(on_both, name):
    folder, expected = on_both
    found, wanted = dict(np.load(folder / f"{name}_jax.npz")), dict(expected[name])
    if "logit_soft_cap" in CASES[name][0]:
        # TensorFlow ranks with a cap by the rows after the step, so only the losses are equal.
        found["losses"], wanted["losses"] = found["losses"][:, 0], wanted["losses"][:, 0]
    assert_close(found, wanted)


@pytest.mark.filterwarnings("ignore:Model doesn't support `jit_compile=True`")
@pytest.mark.parametrize("name", CASES)
def test_a_file_of_jax_has_the_same_results_on_tensorflow(on_both, name):
    folder, expected = on_both
    model = keras.models.load_model(folder / f"{name}_jax.keras")
    compile_model(model, model.optimizer, model.loss)
    given = {"features": FEATURES, "labels": CASES[name][2], "steps": 0}
    found = results_of(model, given)
    assert_close(found | {"losses": expected[name]["losses"]}, expected[name])
    before = float(model.optimizer.iterations)
    model.train_on_batch(FEATURES, CASES[name][2])  # with the sampler and slots of the file
    assert float(model.optimizer.iterations) == before + 1
