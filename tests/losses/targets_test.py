"""Ignored, smoothed, weighted and soft targets, and the penalty of log Z."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests import harness
from tests.losses.table import BATCH, DIM, N, Problem
from tests.reference import losses as reference
from tests.slow import slow_but
from tf_largeout import layers, losses, samplers
from tf_largeout.classes.class_scorer import RowScorer
from tf_largeout.classes.row_sources import RowSource, tables_of

RNG = np.random.default_rng(4)
WEIGHTS = RNG.uniform(0, 3, N).astype("float32")
OPTIONS = {
    "smoothing": {"label_smoothing": 0.2},
    "penalty": {"log_partition_penalty": 0.1},
    "weights": {"class_weights": WEIGHTS},
    "all": {"label_smoothing": 0.2, "log_partition_penalty": 0.1, "class_weights": WEIGHTS},
}
EACH_OPTION = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
SOFT = np.zeros([BATCH, N])
SOFT[[0, 0, 1, 2, 2, 4], [3, 9, 0, 36, 1, 12]] = [0.5, 0.3, 1, 0.25, 0.5, 0.125]
SOFT_IDS = [np.flatnonzero(row) for row in SOFT]


def sparse_targets(dense=SOFT):
    return tf.sparse.from_dense(tf.constant(dense, tf.float32))


def logits_of(problem):
    return problem.features.astype("float64") @ problem.embeddings.T + problem.bias


def expected(problem, options, soft=None):
    targets = reference.dense_targets(
        problem.labels if soft is None else SOFT_IDS,
        N,
        options.get("label_smoothing", 0),
        options.get("class_weights"),
        soft,
    )
    penalty = options.get("log_partition_penalty", 0)
    return reference.soft_cross_entropy(logits_of(problem), targets, penalty), targets


def dense_gradients(problem, targets, penalty):
    features, embeddings, bias = (
        tf.Variable(one, dtype=tf.float64)
        for one in (problem.features, problem.embeddings, problem.bias)
    )
    with tf.GradientTape() as tape:
        logits = tf.matmul(features, embeddings, transpose_b=True) + bias
        log_partition = tf.reduce_logsumexp(logits, axis=1)
        mass = tf.reduce_sum(targets, axis=1)
        loss = mass * (log_partition + penalty * log_partition**2)
        loss -= tf.reduce_sum(targets * logits, axis=1)
    return tape.gradient(loss, [features, embeddings, bias])


@EACH_OPTION
@pytest.mark.parametrize("soft", [False, True], ids=["labels", "soft targets"])
@pytest.mark.parametrize("loss", [losses.SoftmaxLoss, losses.SampledSoftmaxLoss])
def test_over_all_classes_it_is_the_cross_entropy_of_the_targets(loss, soft, options):
    problem = Problem()
    head = harness.built_head(problem.embeddings, problem.bias, samplers.UniformSampler(N))
    y_true = sparse_targets() if soft else problem.labels
    values, targets = expected(problem, options, SOFT if soft else None)
    for training in (True, False):
        found = loss(reduction=None, **options)(
            y_true, head(problem.features, training=training)
        )
        np.testing.assert_allclose(found, values, rtol=1e-5, atol=1e-5)
    _, gradients = harness.loss_and_gradients(
        loss(reduction="sum", **options), head, problem.features, y_true
    )
    penalty = options.get("log_partition_penalty", 0)
    for ours, dense in zip(gradients, dense_gradients(problem, targets, penalty), strict=True):
        np.testing.assert_allclose(ours, dense, rtol=1e-4, atol=1e-5)


@EACH_OPTION
def test_the_absolute_softmax_has_the_same_options(options):
    problem = Problem()
    head = harness.built_head(problem.embeddings, problem.bias, samplers.UniformSampler(N))
    _, targets = expected(problem, options)
    penalty = options.get("log_partition_penalty", 0)
    values = reference.soft_cross_entropy(np.abs(logits_of(problem)), targets, penalty)
    loss = losses.AbsoluteSoftmaxLoss(reduction=None, **options)
    for training in (True, False):
        found = loss(problem.labels, head(problem.features, training=training))
        np.testing.assert_allclose(found, values, rtol=1e-5, atol=1e-5)


def test_smoothing_equals_that_of_keras():
    problem = Problem(np.arange(BATCH)[:, None])
    logits = problem.head()(problem.features, training=False)
    by_keras = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.3)
    found = losses.SoftmaxLoss(label_smoothing=0.3)(problem.labels, logits)
    np.testing.assert_allclose(found, by_keras(np.eye(N)[:BATCH], logits), rtol=1e-5)


@pytest.mark.parametrize("loss", [losses.DecoupledSoftmaxLoss, losses.SoftmaxLoss])
def test_class_weights_multiply_the_loss_of_one_label(loss):
    problem = Problem(np.array([[3], [9], [0], [36], [7], [12]]))
    for training in (True, False):
        logits = problem.head()(problem.features, training=training)
        plain = loss(reduction=None)(problem.labels, logits)
        found = loss(reduction=None, class_weights=WEIGHTS)(problem.labels, logits)
        np.testing.assert_allclose(found, plain * WEIGHTS[problem.labels[:, 0]], rtol=1e-5)


def _smoothed_and_weighted(logits, smoothing):
    """The formula in the docstrings of the losses."""
    log_z = np.log(np.exp(logits).sum(axis=1))
    found = []
    for row, labels in enumerate(Problem().labels):
        own = labels[labels >= 0]
        terms = log_z[row] - (1 - smoothing) * logits[row, own] - smoothing * logits[row].mean()
        found.append(sum(WEIGHTS[own] * terms / max(1, len(own))))
    return found


def _cosines_with_margins(problem, scale, margin):
    rows, features = (
        one / np.linalg.norm(one, axis=1, keepdims=True)
        for one in (problem.embeddings, problem.features)
    )
    is_label = (problem.labels[:, :, None] == np.arange(N)).any(axis=1)
    return scale * (features @ rows.T - margin * is_label)


@pytest.mark.parametrize(
    "name", ["Softmax", "SampledSoftmax", "AbsoluteSoftmax", "MarginSoftmax"]
)
def test_class_weights_multiply_also_the_smoothed_part_as_the_docstring_says(name):
    problem, loss = Problem(), getattr(losses, f"{name}Loss")
    assert "sum_y w_y t_y (log Z - (1 - e) o_y - e mean_c o_c)" in losses.SoftmaxLoss.__doc__
    options, bias, head_options = {"label_smoothing": 0.3}, problem.bias, {}
    logits = logits_of(problem)
    if name == "AbsoluteSoftmax":
        logits = np.abs(logits)
    if name == "MarginSoftmax":
        options.update(angular_margin=0.0, cosine_margin=0.2)
        bias, head_options = None, {"normalize": True, "scale": 4.0}
        logits = _cosines_with_margins(problem, 4.0, 0.2)
    head = harness.built_head(
        problem.embeddings, bias, samplers.UniformSampler(N), **head_options
    )
    found = loss(reduction=None, class_weights=WEIGHTS, **options)(
        problem.labels, head(problem.features, training=True)
    )
    np.testing.assert_allclose(found, _smoothed_and_weighted(logits, 0.3), 1e-5, 1e-5)


def test_class_weights_multiply_the_loss_of_a_hierarchical_softmax():
    keras.utils.set_random_seed(1)
    layer = tflo.layers.HierarchicalOutput(N)
    logits = layer(RNG.normal(size=[4, DIM]).astype("float32"), training=True)
    labels = np.array([3, 5, 0, 36])
    plain = losses.HierarchicalSoftmaxLoss(reduction=None)(labels, logits)
    loss = losses.HierarchicalSoftmaxLoss(reduction=None, class_weights=WEIGHTS)
    np.testing.assert_allclose(loss(labels, logits), plain * WEIGHTS[labels], rtol=1e-5)


@pytest.mark.parametrize(
    "sampler",
    [
        samplers.UnigramSampler(6, counts=np.arange(N) + 5, seed=2),
        pytest.param(samplers.UniformSampler(6, seed=2), marks=pytest.mark.slow),
        pytest.param(
            samplers.TopKSampler(8, num_hard=3, tail=samplers.UniformSampler(5, seed=2)),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["unigram", "uniform", "head and tail"],
)
def test_a_sum_over_all_classes_is_estimated_without_bias(sampler):
    problem = Problem()
    head = harness.built_head(problem.embeddings, problem.bias, sampler)

    @tf.function(autograph=False)
    def estimates():
        def draw(_):
            step = head.step(problem.features, problem.labels, training=True)
            candidates = step.candidates(remove_accidental_hits=False)
            return candidates.sum_over_classes(tf.math.softplus)

        return tf.map_fn(draw, tf.range(3000), tf.float32, parallel_iterations=1)

    found = estimates().numpy().astype("float64")
    exact = np.logaddexp(0, logits_of(problem)).sum(axis=1)
    sigma = found.std(axis=0) / np.sqrt(len(found))
    assert np.all(np.abs(found.mean(axis=0) - exact) < 5 * sigma + 1e-4)
    assert np.all(sigma < 0.05 * exact)


def test_sums_over_shards_equal_those_over_one_table():
    problem = Problem()
    parts = slice(0, 10), slice(10, 11), slice(11, N)
    tables = tables_of(
        [keras.Variable(problem.embeddings[part]) for part in parts],
        [keras.Variable(problem.bias[part]) for part in parts],
        "layer",
    )
    matrix = RowScorer(RowSource(tables))
    logits, features = logits_of(problem), tf.constant(problem.features)
    np.testing.assert_allclose(matrix.mean_logits(features), logits.mean(1), rtol=1e-4)
    for training in (True, False):
        found = matrix.sum_over_classes(features, tf.math.softplus, training)
        np.testing.assert_allclose(found, np.logaddexp(0, logits).sum(1), rtol=1e-5)


@pytest.mark.parametrize("ignored", [-100, 9, 255])
def test_an_ignored_class_has_the_effect_of_padding(ignored):
    problem = Problem()
    labels = np.where(problem.labels == 9, -1, problem.labels)
    marked = np.where(labels == -1, ignored, labels)
    for training in (True, False):
        head, loss = problem.head(), losses.SampledSoftmaxLoss(ignore_class=ignored)
        logits = head(problem.features, training=training)
        found, metric = loss(marked, logits), tflo.metrics.RecallAtK(5)
        metric.update_state(marked, logits)
        logits = head(problem.features, training=training)
        plain, plain_metric = (
            losses.SampledSoftmaxLoss()(labels, logits),
            tflo.metrics.RecallAtK(5),
        )
        plain_metric.update_state(labels, logits)
        assert float(found) == float(plain)
        assert float(metric.result()) == float(plain_metric.result())


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("name", OPTIONS)
def test_a_model_is_fitted_saved_and_loaded(name, policy, tmp_path):
    keras.utils.set_random_seed(2)
    options = OPTIONS[name]
    layer = tflo.layers.LargeOutput(N, samplers.UniformSampler(8, seed=1), dtype=policy)
    model = keras.Sequential([keras.Input([DIM]), layer])
    loss = losses.SampledSoftmaxLoss(ignore_class=-100, **options)
    model.compile(tflo.optimizers.LazyAdam(0.05), loss, metrics=[tflo.metrics.RecallAtK(2)])
    x = Problem().features
    data = tf.data.Dataset.from_tensor_slices((x, sparse_targets())).batch(4)
    first = model.evaluate(data, verbose=0)
    model.fit(data, epochs=15, shuffle=False, verbose=0)
    last = model.evaluate(data, verbose=0)
    assert last[0] < first[0] and last[1] > 0.5
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.loss.get_config() == loss.get_config()
    np.testing.assert_allclose(loaded.evaluate(data, verbose=0), last, rtol=1e-5)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"ignore_class": 1.5}, "`ignore_class` must be an integer"),
        ({"ignore_class": True}, "`ignore_class` must be an integer"),
        (
            {"label_smoothing": 1.0},
            "`label_smoothing` must be a number of at least 0 and below 1",
        ),
        ({"label_smoothing": -0.1}, "`label_smoothing` must be a number of at least 0"),
        ({"label_smoothing": np.nan}, "`label_smoothing` must be"),
        ({"log_partition_penalty": -1}, "`log_partition_penalty` must be"),
        ({"class_weights": [1.0, -1.0]}, "`class_weights` must be finite, at least 0"),
        ({"class_weights": [1.0, np.nan]}, "`class_weights` must be finite"),
        ({"class_weights": [0.0, 0.0]}, "`class_weights` must be .*not all 0"),
        ({"class_weights": [[1.0]]}, "`class_weights` must be a list of numbers"),
        ({"class_weights": {0: 1.0}}, "list of numbers.*`class_weight` of `fit`"),
        ({"class_weights": []}, "`class_weights` must be a list of numbers"),
        ({"class_weights": ["a"]}, "`class_weights` must be a list of numbers"),
    ],
)
@pytest.mark.parametrize("loss", [losses.SoftmaxLoss, losses.SampledSoftmaxLoss])
def test_arguments_out_of_range_are_refused(loss, arguments, message):
    with pytest.raises(ValueError, match=message):
        loss(**arguments)


@pytest.mark.parametrize("options", [{"label_smoothing": 0.1}, {"log_partition_penalty": 0.1}])
def test_a_corrected_positive_allows_no_estimate(options):
    with pytest.raises(ValueError, match="need correct_positive=False"):
        losses.SampledSoftmaxLoss(correct_positive=True, **options)


def test_soft_targets_need_a_loss_and_a_sampler_that_take_them():
    problem = Problem()
    logits = problem.head()(problem.features, training=True)
    with pytest.raises(ValueError, match="need correct_positive=False"):
        losses.SampledSoftmaxLoss(correct_positive=True)(sparse_targets(), logits)
    logits = problem.head()(problem.features, training=True)
    with pytest.raises(ValueError, match="Labels must be integer class ids.*SparseTensor"):
        losses.NCELoss()(sparse_targets(), logits)
    head = harness.built_head(problem.embeddings, problem.bias, samplers.TopKSampler(8))
    for loss, y_true in (
        (losses.SampledSoftmaxLoss(), sparse_targets()),
        (losses.SampledSoftmaxLoss(label_smoothing=0.1), problem.labels),
    ):
        with pytest.raises(ValueError, match="expected counts are not known.*UniformSampler"):
            loss(y_true, head(problem.features, training=True))


def test_class_weights_of_another_number_of_classes_are_refused():
    problem = Problem()
    logits = problem.head()(problem.features, training=True)
    with pytest.raises(ValueError, match=f"each of the {N} classes. Received: 2 weights"):
        losses.SoftmaxLoss(class_weights=[1, 2])(problem.labels, logits)


def test_a_label_of_minus_100_is_explained():
    problem = Problem(np.full([BATCH, 1], -100))
    logits = problem.head()(problem.features, training=True)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="pass ignore_class=-100 to the loss"
    ):
        losses.SoftmaxLoss()(problem.labels, logits)


@pytest.mark.parametrize(
    "values, message",
    [
        ([-0.5, 1.0], "must not be negative"),
        ([np.nan, 0.5], "must be finite"),
        ([0.0, 0.0], "a sum above 0"),
        ([0.8, 0.8], "at most 1"),
    ],
)
def test_wrong_soft_targets_are_refused(values, message):
    problem = Problem()
    logits = problem.head()(problem.features, training=True)
    targets = tf.SparseTensor([[0, 3], [0, 5]], np.float32(values), [BATCH, N])
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"(?s){message}"):
        losses.SoftmaxLoss()(targets, logits)


def test_soft_targets_of_another_shape_are_refused():
    problem = Problem()
    logits = problem.head()(problem.features, training=True)
    targets = tf.SparseTensor([[0, 3]], [0.5], [BATCH, N + 1])
    with pytest.raises(ValueError, match=f"Soft targets must have the shape .*{N}"):
        losses.SoftmaxLoss()(targets, logits)
    for wrong in (N + 2, -1):
        outside = tf.SparseTensor([[0, 1], [1, wrong]], [0.5, 0.5], [BATCH, N])
        message = rf"(?s)must be a class id in \[0, {N}\).*Leave out.*indices.*\b1, {wrong}"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            losses.SoftmaxLoss()(outside, logits)


@pytest.mark.parametrize(
    "form",
    [{"normalize": True, "scale": 3.0}, {"logit_soft_cap": 2.0}],
    ids=["cosine", "capped"],
)
@pytest.mark.parametrize("shards", [1, 3])
def test_smoothing_uses_the_mean_of_the_logits_that_the_layer_returns(form, shards):
    head = tflo.layers.LargeOutput(N, num_shards=shards, bias_initializer="ones", **form)
    features = tf.constant(RNG.normal(size=(BATCH, DIM)), tf.float32)
    head.build(features.shape)
    labels = tf.constant(RNG.integers(0, N, BATCH))
    log_probabilities = tf.nn.log_softmax(head(features).numpy())
    of_labels = tf.gather(log_probabilities, labels, batch_dims=1)
    dense = -0.8 * of_labels - 0.2 * tf.reduce_mean(log_probabilities, axis=1)
    for training in (True, False):
        loss = losses.SoftmaxLoss(reduction=None, label_smoothing=0.2)
        found = loss(labels, head(features, training=training))
        np.testing.assert_allclose(found, dense, rtol=1e-5)


@pytest.mark.parametrize(
    "head", slow_but([layers.LargeOutput], [layers.FactoredOutput, layers.LargeOutput])
)
def test_another_number_of_columns_in_a_second_fit_raises_an_error(head):
    factored = head is layers.FactoredOutput
    output = head(N, **({"learning_rate": 0.1} if factored else {}))
    model = keras.Sequential([keras.Input([3]), output])
    model.compile("sgd", losses.SquaredErrorLoss() if factored else losses.SoftmaxLoss())
    x = np.ones([BATCH, 3], "float32")
    places = [[row, 1] for row in range(BATCH)]

    def targets(columns):
        return tf.SparseTensor(places, np.ones(BATCH, "float32"), [BATCH, columns])

    model.fit(x, targets(N), verbose=0)
    before = model.get_weights()
    for call, columns in ((model.fit, N + 5), (model.evaluate, N - 2)):
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="per class"):
            call(x, targets(columns), verbose=0)
    for one, other in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def _steps():
    head = tflo.layers.LargeOutput(50, "uniform")
    factored = tflo.layers.FactoredOutput(50, 0.1)
    for layer in (head, factored):
        layer.build([None, 8])
    features, labels = np.ones([2, 8], "f"), np.array([1, 2])
    soft = tf.sparse.from_dense(np.eye(50, dtype="f")[labels])
    return {
        "trains": head.step(features, labels, training=True),
        "does not": head.step(features, labels),
        "soft": head.step(features, soft, training=True),
        "factored": factored.step(features, labels, training=True),
    }


@pytest.mark.parametrize(
    "step, loss, options, message",
    [
        ("trains", "sampled_softmax", {"reduction": "sum"}, "no argument .'reduction'."),
        ("trains", "nce", {"ignore_class": -100}, "no argument .'ignore_class'."),
        ("soft", "nce", {}, "NCELoss does not use soft targets"),
        ("factored", "sampled_softmax", {}, "step of a `LargeOutput`.*Use `TaylorSoftmaxLoss`"),
    ],
)
def test_functions_of_a_step_refuse_what_they_cannot_use(step, loss, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(tflo.losses, loss)(_steps()[step], **options)


def test_a_step_without_a_sample_has_no_candidates():
    with pytest.raises(ValueError, match="training=True"):
        _steps()["does not"].candidates()
