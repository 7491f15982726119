"""Each sampler, loss and optimizer on two replicas of a strategy, with Keras's `fit`."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.integration import graphs, resume_test
from tests.integration.resume_test import BATCH, EVERY_PAIR, PAIRS, STEPS, data
from tests.integration.samplers import NUM_CLASSES, SAMPLERS
from tests.optimizers.table import CLASSES, OPTIMIZERS
from tests.replicas import two_replicas
from tests.slow import slow_but

# The first three compute with all classes; the others read tables as tensors, without a copy.
OVER_ALL_CLASSES = ("softmax", "top_k", "top_k and tail", "bernoulli", "unigram, own")


def new_model(sampler, optimizer):
    with two_replicas().scope():
        return resume_test.new_model(sampler, optimizer)


def train(model, first_step, last_step):
    return resume_test.train(model, first_step, last_step)


@functools.cache
def trained(sampler, optimizer):
    return train(new_model(sampler, optimizer), 0, STEPS)


def state(model):
    """Returns the path of each variable except metrics, and its value on each replica."""
    variables = [*model.variables, *model.optimizer.variables]
    local_results = two_replicas().experimental_local_results
    return {
        variable.path: [part.numpy() for part in local_results(variable.value)]
        for variable in variables
        if "metrics" not in variable.path and "compile" not in variable.path
    }


def assert_equal_states(one, other):
    for (path, values), others in zip(one.items(), other.values(), strict=True):
        np.testing.assert_array_equal(values[0], others[0], err_msg=path)


@pytest.mark.parametrize(
    "sampler, optimizer",
    slow_but([pair for pair in PAIRS if pair[0] == "inverted_file"], PAIRS),
    ids=SAMPLERS,
)
def test_replicas_are_bit_identical(sampler, optimizer):
    for path, values in state(trained(sampler, optimizer)).items():
        assert len(values) == 2
        np.testing.assert_array_equal(*values, err_msg=path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler, optimizer",
    slow_but([pair for pair in PAIRS if pair[0] == "lsh head"], PAIRS),
    ids=SAMPLERS,
)
def test_no_tensor_of_a_step_grows_with_the_number_of_classes(sampler, optimizer):
    if sampler in OVER_ALL_CLASSES:
        pytest.skip("reads all classes in each step")
    assert graphs.tensors_of_size(traced_step(new_model(sampler, optimizer)), NUM_CLASSES) == []


@pytest.mark.slow
def test_tensors_of_size_searches_the_steps_of_replicas():
    model = new_model("uniform", "adam")
    with two_replicas().scope():
        model.compile(keras.optimizers.Adam(), tflo.losses.SampledSoftmaxLoss())
        model.optimizer.build(model.trainable_variables)
    assert graphs.tensors_of_size(traced_step(model), NUM_CLASSES)


def traced_step(model):
    batch = next(iter(two_replicas().experimental_distribute_dataset(data(0, STEPS))))
    step = tf.function(lambda batch: two_replicas().run(model.train_step, args=(batch,)))
    return step.get_concrete_function(batch)


@EVERY_PAIR
@pytest.mark.slow
def test_a_resumed_run_is_bit_identical(sampler, optimizer, tmp_path):
    half = train(new_model(sampler, optimizer), 0, 5)
    half.save(tmp_path / "half.keras")
    with two_replicas().scope():
        resumed = keras.models.load_model(tmp_path / "half.keras")
    resumed = state(train(resumed, 5, STEPS))
    assert all(len(values) == 2 for values in resumed.values())
    assert_equal_states(state(trained(sampler, optimizer)), resumed)
    for path, values in resumed.items():
        np.testing.assert_array_equal(*values, err_msg=path)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["unigram", "lsh"])
def test_a_run_resumed_from_a_checkpoint_is_bit_identical(sampler, tmp_path):
    optimizer = dict(resume_test.PAIRS)[sampler]
    half, resumed = (new_model(sampler, optimizer) for _ in range(2))
    train(half, 0, 5)
    path = tf.train.Checkpoint(model=half, optimizer=half.optimizer).write(tmp_path / "half")
    tf.train.Checkpoint(model=resumed, optimizer=resumed.optimizer).read(path)
    train(resumed, 5, STEPS)
    assert_equal_states(state(trained(sampler, optimizer)), state(resumed))


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["uniform", "lsh", "inverted_file"])
def test_files_of_two_replicas_load_on_one_and_the_reverse(sampler, tmp_path):
    mirrored = trained(sampler, dict(resume_test.PAIRS)[sampler])
    mirrored.save(tmp_path / "two.keras")
    alone = keras.models.load_model(tmp_path / "two.keras")
    assert_equal_states(state(mirrored), state(alone))
    train(alone, 0, 2).save(tmp_path / "one.keras")
    with two_replicas().scope():
        again = keras.models.load_model(tmp_path / "one.keras")
    assert_equal_states(state(alone), state(again))
    for path, values in state(train(again, 2, 4)).items():
        np.testing.assert_array_equal(*values, err_msg=path)


def test_outside_the_scope_the_class_matrix_uses_the_variables_of_one_replica():
    head = new_model("uniform", "adam").layers[-1]
    for variable in head.class_matrix.variables():
        assert not isinstance(variable, tf.distribute.DistributedValues)


@pytest.mark.parametrize(
    "sampler",
    slow_but(["uniform"], ["uniform", "unigram", "lsh", "kernel_tree", "softmax"]),
)
def test_each_replica_draws_different_classes(sampler):
    def drawn():
        model = new_model(sampler, "adam")
        head = model.layers[-1]
        features, labels = tf.ones([4, 6]), tf.zeros([4, 1], tf.int64)

        @tf.function
        def draw():
            values = two_replicas().run(head.sampler.sample, (features, labels, head))
            return two_replicas().experimental_local_results(values.sampled_candidates)

        return [[ids.numpy() for ids in draw()] for _ in range(2)]

    first, again = drawn(), drawn()
    np.testing.assert_array_equal(first, again)  # the seed repeats
    (one, other), (later, _) = first
    assert not np.array_equal(one, other) and not np.array_equal(one, later)


class GivenClasses(tflo.samplers.Sampler):
    """Gives the same classes in each step, on each replica."""

    def draw(self, features, labels, layer):
        counts = 0.1 * tf.ones(tf.shape(labels))
        ids = tf.range(0, NUM_CLASSES, 5, dtype=tf.int64)
        return tflo.samplers.SampledValues(ids, counts, 0.2 * tf.ones(tf.shape(ids)))


LOSSES = {
    "softmax": tflo.losses.SoftmaxLoss,
    "sampled softmax": tflo.losses.SampledSoftmaxLoss,
    "nce": tflo.losses.NCELoss,
    "negative sampling": tflo.losses.NegativeSamplingLoss,
}
CLIPPING = [{"clipnorm": 0.02}, {"global_clipnorm": 0.02}, {"clipvalue": 1e-4}]
SGD = functools.partial(tflo.optimizers.LazySGD, 0.5)
SAMPLED = tflo.losses.SampledSoftmaxLoss
# Name: optimizer and loss.
JOINT_BATCH = {
    **{name: (SGD, loss) for name, loss in LOSSES.items()},
    **{name: (OPTIMIZERS[name].make, SAMPLED) for name in CLASSES},
    **{str(clips): (functools.partial(SGD, **clips), SAMPLED) for clips in CLIPPING},
}


def history_and_weights(make_optimizer, loss, strategy):
    keras.utils.set_random_seed(4)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Embedding(40, 6),
                keras.layers.GlobalAveragePooling1D(),
                tflo.layers.LargeOutput(NUM_CLASSES, GivenClasses(61)),
            ]
        )
        model.compile(make_optimizer(), loss)
        model.build((None, 5))
        model.optimizer.build(model.trainable_variables)  # avoids a second trace
    history = model.fit(data(0, STEPS), shuffle=False, verbose=0).history["loss"]
    return history, [v.numpy() for v in (*model.weights, *model.optimizer.variables)]


@pytest.mark.slow
@pytest.mark.parametrize("name", JOINT_BATCH)
def test_two_replicas_equal_one_with_the_joint_batch(name):
    """Losses, weights and slots, also with clipping of gradients."""
    make_optimizer, loss = JOINT_BATCH[name]
    strategies = (tf.distribute.get_strategy(), two_replicas())
    one, two = (history_and_weights(make_optimizer, loss(), each) for each in strategies)
    np.testing.assert_allclose(one[0], two[0], rtol=1e-5)
    for ours, theirs in zip(one[1], two[1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["uniform", "lsh"])
def test_the_last_batch_may_have_no_examples_for_a_replica(sampler):
    model = new_model(sampler, "adam")
    x, y = (np.concatenate(parts)[: BATCH + 1] for parts in zip(*data(0, 2), strict=True))
    history = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    for path, values in state(model).items():
        np.testing.assert_array_equal(*values, err_msg=path)


def test_an_optimizer_created_outside_the_scope_raises_an_error():
    optimizer = tflo.optimizers.LazySGD(0.5)  # each replica would count its steps
    with two_replicas().scope():
        model = resume_test.new_model("uniform", "adam")
        model.compile(optimizer, tflo.losses.SampledSoftmaxLoss())
    with pytest.raises(ValueError, match="LazySGD.*outside of .*scope.*each of 2 replicas"):
        train(model, 0, 1)


def test_an_overflow_on_one_replica_changes_no_weights():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        with two_replicas().scope():
            encoder = keras.layers.Dense(
                6, kernel_initializer=keras.initializers.Constant(1e-5)
            )
            model = keras.Sequential(
                [keras.Input([3]), encoder, tflo.layers.LargeOutput(NUM_CLASSES, "uniform")]
            )
            model.compile(tflo.optimizers.LazySGD(0.5), tflo.losses.SampledSoftmaxLoss())
            model.optimizer.build(model.trainable_variables)
        before = model.get_weights()
        x = np.full([BATCH, 3], 0.1, "float32")
        x[-1] = 3e4  # an example of the second replica, whose gradient overflows
        model.fit(x, np.arange(BATCH), batch_size=BATCH, shuffle=False, verbose=0)
    finally:
        keras.config.set_dtype_policy("float32")
    assert model.optimizer.dynamic_scale < model.optimizer.initial_scale
    for old, new in zip(before, model.get_weights(), strict=True):
        if old.dtype == "float32":  # not the state of the seed
            np.testing.assert_array_equal(old, new)
