import importlib.machinery
import sys
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests import harness, replicas
from tests.slow import slow_but
from tf_largeout import losses, samplers
from tf_largeout.sampler_arguments import first_and_last_step

N, DIM, BATCH = 60, 5, 8
RNG = np.random.default_rng(4)
EMBEDDINGS = RNG.normal(size=(N, DIM)).astype("float32")
BIAS = RNG.normal(size=N).astype("float32")
FEATURES = RNG.normal(size=(BATCH, DIM)).astype("float32")
LABELS = harness.pad([[3], [3, 5], [0], [], [7], [1], [2], [49]])

SEARCHES = {
    "top k": samplers.TopKSampler,
    "lsh": samplers.LSHSampler,
    "inverted file": samplers.InvertedFileSampler,
}
LOSSES = [losses.SampledSoftmaxLoss, losses.NCELoss, losses.NegativeSamplingLoss]


def found(layer):
    """Returns whether a training step has candidates per example."""
    labels = tf.constant(LABELS)
    ids = layer.sampler.sample(tf.constant(FEATURES), labels, layer).head.sampled_candidates
    assert np.all(ids.numpy() == -1) or np.all(ids.numpy()[:, 0] >= 0)
    return bool(np.any(ids.numpy() >= 0))


def announcements(capfd):
    """Returns the lines about a search written to stderr since the last call."""
    lines = capfd.readouterr().err.splitlines()
    return [line for line in lines if "search for hard negatives begins" in line]


def flat_model(loss, sampler, num_classes=30_000, steps_per_execution=10):
    """Returns a model with zero features, so that all negatives are equally hard."""
    head = tflo.layers.LargeOutput(num_classes, sampler=sampler, name="words")
    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile(tflo.optimizers.LazyAdam(1e-3), loss, steps_per_execution=steps_per_execution)
    model.optimizer.build(model.trainable_variables)  # Otherwise each step is traced twice.
    return model


def fit(model, steps, seed=0):
    labels = np.random.default_rng(seed).integers(model.layers[-1].num_classes, size=2 * steps)
    features = np.zeros([2 * steps, DIM], "f4")
    model.fit(features, labels, batch_size=2, shuffle=False, verbose=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss, num_sampled",
    list(zip(LOSSES, [64, 1024, 8192], strict=True)),
    ids=["64", "1024", "8192"],
)
def test_by_default_the_search_starts_on_data_without_hard_negatives(loss, num_sampled, capfd):
    model = flat_model(
        loss(), samplers.InvertedFileSampler(num_sampled), steps_per_execution=50
    )
    head = model.layers[-1]
    fit(model, 450)
    assert head.sampler.health(head)["started_at"] == -1
    assert announcements(capfd) == []
    fit(model, 50)
    health = head.sampler.health(head)
    assert health["started_at"] == 450 and health["fitted_at"] == 0
    (line,) = announcements(capfd)
    assert "'words'" in line and "step 450" in line and "InvertedFileSampler" in line


def started_at(label_of, num_classes=30_000, steps=500):
    """Returns the step in which a search starts if step i has the labels `label_of(i)`."""
    sampler = samplers.TopKSampler(20, num_hard=4, start_step=None)
    harness.built_head(np.zeros([num_classes, 1], "f4"), None, sampler)

    @tf.function
    def train(labels):
        for of_step in labels:
            sampler.start.advance()
            sampler.start.see(of_step)

    train(tf.constant([label_of(step) for step in range(steps)], tf.int64))
    return sampler.start.started_at()


def test_the_search_starts_after_half_of_the_first_labels_occurred_fifteen_times():
    other = [[7], [8]]
    assert started_at(lambda step: other) == 150  # Known from earlier steps.
    assert started_at(lambda step: [[7], [100 + step]]) == 150  # One of two is half.
    assert started_at(lambda step: [[100 + step], [-1]]) == 450  # Never, so in the latest step.
    # The 15th occurrence is in step 300; the next step detects it.
    assert started_at(lambda step: other if step % 20 == 0 else [[1], [2]]) == 301


@pytest.mark.slow
def test_replicas_count_the_labels_of_all_and_one_reports_the_start(capfd):
    strategy = replicas.two_replicas()
    sampler = samplers.TopKSampler(20, num_hard=4, start_step=None)
    with strategy.scope():
        harness.built_head(np.zeros([30_000, 1], "f4"), None, sampler)

    @tf.function
    def step(number):
        def of_replica():
            new = tf.distribute.get_replica_context().replica_id_in_sync_group > 0
            sampler.start.advance()
            sampler.start.see(
                tf.where(new, [[100 + 2 * number], [101 + 2 * number]], [[7], [8]])
            )

        strategy.run(of_replica)

    for number in range(152):
        step(tf.constant(number, tf.int64))
    state = strategy.experimental_local_results(sampler.start._progress.value)
    assert [part[1].numpy() for part in state] == [150, 150]
    assert len(announcements(capfd)) == 1


def test_batches_without_labels_do_not_count_as_first():
    nothing = [[-1], [-1]]
    assert started_at(lambda step: nothing) == 450
    assert started_at(lambda step: nothing if step < 200 else [[7], [8]]) == 216


@pytest.mark.slow
def test_a_resumed_run_is_equal_and_does_not_repeat_the_message(tmp_path, capfd):
    sampler = samplers.InvertedFileSampler(40, start_step=20, seed=1)
    whole = flat_model(losses.NCELoss(), sampler, 400)
    fit(whole, 30)
    whole.save(tmp_path / "model.keras")
    assert len(announcements(capfd)) == 1
    resumed = keras.models.load_model(tmp_path / "model.keras")
    for model in (whole, resumed):
        fit(model, 70, seed=2)
    assert announcements(capfd) == []
    for a, b in zip(whole.get_weights(), resumed.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_a_run_saved_before_the_start_starts_in_the_same_step(tmp_path, capfd):
    model = flat_model(
        losses.NCELoss(), samplers.InvertedFileSampler(40, start_step=20, seed=1), 400
    )
    fit(model, 10)
    model.save(tmp_path / "model.keras")
    resumed = keras.models.load_model(tmp_path / "model.keras")
    assert announcements(capfd) == []
    fit(resumed, 20)
    assert len(announcements(capfd)) == 1
    head = resumed.layers[-1]
    assert head.sampler.health(head)["started_at"] == 20


@pytest.mark.slow
def test_only_one_replica_reports_the_start(capfd):
    with replicas.two_replicas().scope():
        sampler = samplers.InvertedFileSampler(40, start_step=3)
        model = flat_model(losses.NCELoss(), sampler, 400, steps_per_execution=1)
    fit(model, 10)
    assert len(announcements(capfd)) == 1


def test_an_exported_model_prints_no_message(tmp_path, capfd):
    model = flat_model(losses.NCELoss(), samplers.InvertedFileSampler(40, start_step=1), 400)
    model.export(tmp_path / "export", verbose=False)
    capfd.readouterr()
    served = tf.saved_model.load(tmp_path / "export")
    assert served.serve(np.zeros([2, DIM], "f4")).shape == (2, 400)
    assert announcements(capfd) == []


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_start_at_their_start_step(name, capfd):
    sampler = SEARCHES[name](20, num_hard=4, start_step=3)
    layer = harness.built_head(EMBEDDINGS, BIAS, sampler)
    assert [found(layer) for _ in range(5)] == [False, False, False, True, True]
    assert sampler.start.started_at() == 3
    assert len(announcements(capfd)) == 1


@pytest.mark.parametrize(
    "num_classes, step",
    [(1, 100), (20_000, 100), (120_234, 601), (200_000, 1000), (10**8, 1000)],
)
def test_the_default_step_grows_with_the_classes_between_two_bounds(num_classes, step):
    assert first_and_last_step(num_classes)[0] == step


@pytest.mark.parametrize("name", slow_but([], SEARCHES))
def test_all_searches_with_a_tail_start_by_the_default_rule(name):
    sampler = SEARCHES[name](20, num_hard=4, start_step=None)
    assert sampler.get_config()["start_step"] is None
    layer = harness.built_head(EMBEDDINGS, BIAS, sampler)
    assert [found(layer) for _ in range(102)] == [False] * 100 + [True] * 2


@pytest.mark.parametrize("name", ["lsh", "inverted file"])
def test_a_manual_rebuild_starts_the_search(name):
    sampler = SEARCHES[name](20, num_hard=4, start_step=1000)
    layer = harness.built_head(EMBEDDINGS, BIAS, sampler)
    assert not found(layer)
    sampler.rebuild(layer)
    assert found(layer)
    assert sampler.start.started_at() == 1


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_without_a_tail_start_at_once(name, capfd):
    sampler = SEARCHES[name](20, num_hard=None)
    layer = harness.built_head(EMBEDDINGS, BIAS, sampler)
    assert sampler.start.started_at() == 0
    sampler.sample(tf.constant(FEATURES), tf.constant(LABELS), layer)
    assert announcements(capfd) == []
    with pytest.raises(ValueError, match="start_step=3, num_hard=None"):
        SEARCHES[name](20, num_hard=None, start_step=3)


@pytest.mark.parametrize("step", [2**63, 2**70, -1, 2.5, "soon"])
def test_an_invalid_start_step_raises_an_error(step):
    with pytest.raises(ValueError, match=f"start_step={step!r}"):
        samplers.InvertedFileSampler(20, num_hard=4, start_step=step)


def events(directory):
    """Returns `{tag: [(step, value)]}` of the event files."""
    found = {}
    for file in directory.glob("events.*"):
        for record in tf.data.TFRecordDataset([str(file)]):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for one in event.summary.value:
                value = float(tf.make_ndarray(one.tensor))
                found.setdefault(one.tag, []).append((event.step, value))
    return found


def replace_tensorboard(monkeypatch, is_installed):
    """Replaces the part of the package tensorboard that `tf.summary.scalar` calls."""

    def scalar(name, data, step, description):
        return tf.summary.write(name, tf.cast(data, tf.float32), step)

    for name in ("tensorboard", "tensorboard.summary", "tensorboard.summary.v2"):
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.scalar = scalar
        monkeypatch.setitem(sys.modules, name, module if is_installed else None)


@pytest.mark.parametrize(
    "every, is_installed",
    slow_but([(1000, True)], [(1, True), (1000, True), (1000, False)]),
)
def test_the_start_is_a_scalar_of_the_default_summary_writer(
    every, is_installed, tmp_path, monkeypatch
):
    replace_tensorboard(monkeypatch, is_installed)
    sampler = samplers.TopKSampler(8, num_hard=2, start_step=13)
    model = flat_model(losses.SampledSoftmaxLoss(), sampler, num_classes=100)
    writer = tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default(step=0), tf.summary.record_if(lambda: every == 1):
        fit(model, 30)
    writer.close()
    assert events(tmp_path).get("words/search_start", []) == [(13, 13.0)] * is_installed
