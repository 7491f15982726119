"""Models that XLA compiles (`jit_compile=True`), with the stock operations."""

import functools
import importlib
import pathlib
import re
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.pairs.features import FEATURES, IDS, LABELS, NUM_CLASSES, new_model
from tests.slow import slow_but
from tf_largeout.classes import blockwise
from tf_largeout.ops import library, stock
from tf_largeout.ops.stock import class_scans

PACKAGE = pathlib.Path(tflo.__file__).parent
optimizers, S = tflo.optimizers, tflo.samplers


@pytest.fixture(autouse=True)
def stock_ops(monkeypatch):
    """Replaces the functions of the op library, and makes passes in several blocks."""
    for path in PACKAGE.rglob("*_ops.py"):
        importlib.import_module(
            ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        )
    for name, module in list(sys.modules.items()):
        if name.startswith("tf_largeout.") and hasattr(module, "gen_ops"):
            monkeypatch.setattr(module, "gen_ops", stock)
    monkeypatch.setattr(library, "OPS", "stock")
    for module in (blockwise, class_scans):
        monkeypatch.setattr(module, "_NUMBERS_OF_A_BLOCK", 1)  # the least size of a block


# Optimizers and arguments of `compile`, with the features that they are tested with.
OTHERS = {
    "LazyAdagrad": (lambda: optimizers.LazyAdagrad(0.1, initial_accumulator_value=0.0), {}),
    "RowwiseAdagrad": (lambda: optimizers.RowwiseAdagrad(0.1), {}),
    "LazySGD": (lambda: optimizers.LazySGD(1.0, momentum=0.9, nesterov=True), {}),
    "momentum": (lambda: optimizers.LazyAdam(0.05, row_beta_1=0.9, weight_decay=0.1), {}),
    "clipnorm": (lambda: optimizers.LazyAdam(0.05, clipnorm=0.1), {}),
    "global_clipnorm": (lambda: optimizers.LazyAdam(0.05, global_clipnorm=0.1), {}),
    "keras.optimizers.Adam": (lambda: keras.optimizers.Adam(0.05), {}),
    "steps_per_execution": (lambda: optimizers.LazyAdam(0.05), {"steps_per_execution": 2}),
}
# Layers and samplers that are not compiled, or that need the op library.
NOT_COMPILED = re.compile(
    "Factored|Hierarchical|Taylor|[Bb]ernoulli|shards|inverted|bfloat16 rows|lsh|kernel_tree"
)
CASES = [*(name for name in FEATURES if not NOT_COMPILED.search(name)), *OTHERS]


def compiled_model(name, jit_compile):
    """Returns a model of a case, and its labels."""
    feature = name if name in FEATURES else "plain"
    model = new_model(feature)
    # Adam would turn errors of rounding of tiny gradients into large changes.
    optimizer, options = OTHERS.get(name, (lambda: optimizers.LazySGD(0.5), {}))
    metrics = [
        tflo.metrics.PrecisionAtK(1),
        tflo.metrics.RecallAtK(5),
        tflo.metrics.Perplexity(),
    ]
    model.compile(
        optimizer(),
        FEATURES[feature].loss(),
        metrics=metrics,
        jit_compile=jit_compile,
        **options,
    )
    return model, LABELS[FEATURES[feature].labels]


def results(name, jit_compile):
    """Returns losses and metrics of `fit` and `evaluate`, logits and variables."""
    model, labels = compiled_model(name, jit_compile)
    assert model.jit_compile == jit_compile
    options = {"batch_size": len(labels) // 2, "verbose": 0}
    history = model.fit(IDS, labels, epochs=3, shuffle=False, **options).history
    tested = model.evaluate(IDS, labels, return_dict=True, **options)
    found = {f"fit {name}": values for name, values in history.items()}
    found |= {f"evaluate {name}": value for name, value in tested.items()}
    found["predict"] = model.predict(IDS, **options)
    variables = [*model.variables, *model.optimizer.variables]
    return found | {f"variable {i}": one.numpy() for i, one in enumerate(variables)}


@pytest.mark.parametrize("name", slow_but(["plain"], CASES))
def test_results_are_those_without_xla(name):
    expected, found = results(name, False), results(name, True)
    # XLA leaves out roundings to bfloat16, whose numbers have 8 bits.
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if "mixed_bfloat16" in name else {"rtol": 2e-3}
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        if np.issubdtype(np.asarray(values).dtype, np.integer):
            np.testing.assert_array_equal(found[key], values, err_msg=key)
        else:
            found_values, values = (np.asarray(one, "float64") for one in (found[key], values))
            np.testing.assert_allclose(
                found_values, values, err_msg=key, **{"atol": 1e-5, **tolerance}
            )


def fit(model, x, y, weights=None):
    return model.fit(x, y, sample_weight=weights, batch_size=len(x), verbose=0).history


def state_of(model):
    """Returns all variables but those of metrics, by number."""
    variables = [*model.variables, *model.optimizer.variables]
    return {i: one.numpy() for i, one in enumerate(variables)}


FEATURES_DIM = 4
X = np.random.default_rng(2).normal(size=(8, FEATURES_DIM)).astype("float32")
Y, WEIGHTS = np.arange(8), np.ones(8, "float32")


@tf.custom_gradient
def with_large_gradient(x):
    return x, lambda d: d * tf.where(tf.reduce_max(x) > 50, np.inf, 1.0)


def small_model(optimizer=None, head=None, **options):
    """Returns a compiled model, and a model whose gradients overflow for inputs above 50."""
    keras.utils.set_random_seed(1)
    head = head or tflo.layers.LargeOutput(NUM_CLASSES, S.UniformSampler(20, seed=1))
    hidden = keras.layers.Dense(FEATURES_DIM, kernel_initializer="identity")
    layers = [
        keras.Input([FEATURES_DIM]),
        hidden,
        keras.layers.Lambda(with_large_gradient),
        head,
    ]
    model = keras.Sequential(layers)
    loss = tflo.losses.SampledSoftmaxLoss() if head.sampler else tflo.losses.SoftmaxLoss()
    metrics = [tflo.metrics.PrecisionAtK(1)]
    options = {"jit_compile": True, "metrics": metrics} | options
    model.compile(optimizer or optimizers.LazyAdam(0.05, weight_decay=0.1), loss, **options)
    return model


def spoiled(array, value):
    array = array.copy()
    array.reshape(len(array), -1)[3, 0] = value
    return array


INVALID = {
    "NaN in a feature": (spoiled(X, np.nan), Y, WEIGHTS),
    "infinity in a feature": (spoiled(X, np.inf), Y, WEIGHTS),
    "label above the classes": (X, spoiled(Y, NUM_CLASSES), WEIGHTS),
    "label below -1": (X, spoiled(Y, -2), WEIGHTS),
    "NaN in a weight": (X, Y, spoiled(WEIGHTS, np.nan)),
    "infinity in a weight": (X, Y, spoiled(WEIGHTS, -np.inf)),
}
MODELS = {
    "LazyAdam": small_model,
    "SoftmaxLoss": lambda: small_model(head=tflo.layers.LargeOutput(NUM_CLASSES)),
    "RowwiseAdagrad": lambda: small_model(optimizers.RowwiseAdagrad(0.1, clipnorm=1.0)),
    "LazyAdagrad": lambda: small_model(optimizers.LazyAdagrad(0.1, global_clipnorm=1.0)),
    "LazySGD": lambda: small_model(optimizers.LazySGD(0.1, momentum=0.9)),
    "TopKSampler": lambda: small_model(
        head=tflo.layers.LargeOutput(
            NUM_CLASSES, S.TopKSampler(20, num_hard=5, start_step=3, seed=1)
        )
    ),
}


@pytest.mark.parametrize("name", slow_but(["LazyAdam"], MODELS))
def test_an_invalid_step_has_a_loss_of_nan_and_changes_nothing(name):
    model = MODELS[name]()
    fit(model, X, Y, WEIGHTS)
    before = state_of(model)
    for case, data in INVALID.items():
        logs = fit(model, *data)
        assert np.isnan(logs["loss"]), case
        assert np.isnan(logs["precision_at_1"]) or "weight" in case, case
        tested = model.evaluate(*data[:2], sample_weight=data[2], batch_size=8, verbose=0)
        assert np.isnan(tested[0]), case
        changed = [
            i for i, one in state_of(model).items() if not np.array_equal(one, before[i])
        ]
        assert not changed, case
    for place in (0, 2):  # a weight of the encoder, and a class row
        variable = model.trainable_variables[place]
        good = variable.numpy()
        variable.assign(spoiled(good, np.nan))
        bad = state_of(model)
        assert np.isnan(fit(model, X, Y, WEIGHTS)["loss"])
        for i, one in state_of(model).items():
            np.testing.assert_array_equal(one, bad[i])
        variable.assign(good)
    trained = [*model.trainable_variables, *model.optimizer.variables]
    before = [one.numpy() for one in trained]
    assert np.isfinite(fit(model, X + 100, Y, WEIGHTS)["loss"])  # only the gradients overflow
    for was, now in zip(before, trained, strict=True):
        np.testing.assert_array_equal(now.numpy(), was)
    assert np.isfinite(fit(model, X, Y, WEIGHTS)["loss"])
    assert model.optimizer.iterations == 2


BAGS = np.arange(32).reshape(8, 4) % 8  # 0 is padding


def bag_model(jit_compile, **options):
    keras.utils.set_random_seed(1)
    head = tflo.layers.LargeOutput(NUM_CLASSES, S.UniformSampler(20, seed=1))
    bag = tflo.layers.EmbeddingBag(9, FEATURES_DIM)
    model = keras.Sequential([keras.Input([None], dtype="int64", **options), bag, head])
    loss = tflo.losses.SampledSoftmaxLoss()
    model.compile(optimizers.LazyAdam(0.1), loss, jit_compile=jit_compile)
    return model


@pytest.mark.slow
def test_bags_of_padded_ids_are_compiled():
    found = []
    for jit_compile in (False, True):
        model = bag_model(jit_compile)
        losses = [fit(model, BAGS, Y)["loss"][0] for _ in range(3)]
        tested = model.evaluate(BAGS, Y, verbose=0)
        found.append([*losses, tested, *model.predict(BAGS, verbose=0).ravel()])
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-5)
    before = state_of(model)
    for bad in (9, -1):
        assert np.isnan(fit(model, spoiled(BAGS, bad), Y)["loss"])
        assert all(np.array_equal(one, before[i]) for i, one in state_of(model).items())


def test_ragged_bags_are_not_compiled():
    bags = tf.RaggedTensor.from_row_lengths(BAGS[:, :2].ravel(), [2] * 8)
    with pytest.raises(ValueError, match=r"ragged ids, and jit_compile=True. Pass padded ids"):
        bag_model(True, ragged=True).fit(bags, Y, verbose=0)


class Following(S.UniformSampler):
    """A sampler that adds up the rows before their updates."""

    def build(self, layer):
        super().build(layer)
        self.total = self.add_weight(layer, "total", (), "float32", "zeros")

    def rows_changed(self, ids, old_rows, layer):
        exists = tf.cast(ids >= 0, tf.float32)[:, tf.newaxis]
        self.total.assign_add(tf.reduce_sum(exists * old_rows))


MANY = 4999  # a number that no other dimension of a step has
PROGRAMS = {
    "LazyAdam": lambda head: small_model(head=head(S.UniformSampler(20))),
    "clipnorm": lambda head: small_model(
        optimizers.LazyAdam(0.05, clipnorm=1.0), head=head(S.UniformSampler(20))
    ),
    "RowwiseAdagrad": lambda head: small_model(
        optimizers.RowwiseAdagrad(0.1), head=head(S.UniformSampler(20))
    ),
    "LazySGD": lambda head: small_model(
        optimizers.LazySGD(0.1, momentum=0.9), head=head(S.UniformSampler(20))
    ),
    "normalize": lambda head: small_model(head=head(S.UniformSampler(20), normalize=True)),
    "TopKSampler": lambda head: small_model(head=head(S.TopKSampler(20, num_hard=5))),
    "rows_changed": lambda head: small_model(head=head(Following(20))),
}


def program_of(model):
    """Returns what XLA makes of a training step."""
    model.train_on_batch(X, Y)
    step = tf.function(model.train_step, jit_compile=True)
    compiler = step.experimental_get_compiler_ir((tf.constant(X), tf.constant(Y)))
    return compiler(stage="optimized_hlo")


@pytest.mark.parametrize("name", slow_but(["LazyAdam"], PROGRAMS))
def test_a_compiled_step_copies_no_table(name):
    head = functools.partial(tflo.layers.LargeOutput, MANY)
    model = PROGRAMS[name](head)
    text = program_of(model)
    tables = rf"\w+\[{MANY}(?:,{FEATURES_DIM})?\]"
    copies = re.findall(rf"= {tables}\S* copy(?:-start)?\(.*", text)
    assert not copies
    assert f"[{len(X)},{MANY}]" not in text and f"[{MANY},{len(X)}]" not in text
    in_place = re.findall(r"\{\d+\}: \(\d+, \{\}, m\w+-alias\)", text.splitlines()[0])
    changed = [*model.trainable_variables, *model.optimizer.variables]
    changed = [one for one in changed if one.shape[:1] != (0,)]  # a slot without rows
    assert len(in_place) >= len(changed) - 1  # the learning rate does not change


LOSSES = ["SoftmaxLoss", "SigmoidLoss", "MarginSoftmaxLoss"]


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_a_compiled_exact_loss_has_no_logits_of_all_classes(name):
    loss = getattr(tflo.losses, name)()
    is_cosine = name == "MarginSoftmaxLoss"
    head = tflo.layers.LargeOutput(MANY, normalize=is_cosine, use_bias=not is_cosine)
    model = keras.Sequential([keras.Input([FEATURES_DIM]), head])
    model.compile(optimizers.LazyAdam(0.1), loss, jit_compile=True)
    text = program_of(model)
    assert f"[{len(X)},{MANY}]" not in text and f"[{MANY},{len(X)}]" not in text


@pytest.mark.slow
def test_the_time_of_a_compiled_step_does_not_depend_on_the_number_of_classes():
    times = []
    for num_classes in (100_000, 1_000_000):
        head = tflo.layers.LargeOutput(num_classes, S.UniformSampler(1024, seed=1))
        model = keras.Sequential([keras.Input([64]), head])
        model.compile(optimizers.LazyAdam(), tflo.losses.SampledSoftmaxLoss(), jit_compile=True)
        x, y = np.ones([128, 64], "float32"), np.arange(128)
        for _ in range(5):
            model.train_on_batch(x, y)
        of_steps = []
        for _ in range(20):
            start = time.process_time()
            model.train_on_batch(x, y)
            of_steps.append(time.process_time() - start)
        times.append(np.median(of_steps))
    # A copy of the larger table alone takes more than 20 times as long as a step.
    assert times[1] < 3 * times[0], times


@pytest.mark.slow
def test_observers_of_rows_get_the_rows_before_the_update():
    found = []
    for jit_compile in (False, True):
        keras.utils.set_random_seed(1)
        head = tflo.layers.LargeOutput(NUM_CLASSES, Following(20, seed=1))
        model = small_model(head=head, jit_compile=jit_compile)
        for _ in range(3):
            fit(model, X, Y)
        found.append(float(head.sampler.total))
    np.testing.assert_allclose(*found, rtol=1e-4)


REFUSED = {
    "op library": ("LARGEOUT_OPS=stock", {}),
    "shards": ("num_shards=2.*Use num_shards=1", {"num_shards": 2}),
    "InvertedFileSampler": ("Use a static sampler", {"sampler": S.InvertedFileSampler}),
    "bfloat16": ("Use float32 rows", {"embeddings_dtype": "bfloat16"}),
}


@pytest.mark.parametrize("name", slow_but(["op library", "shards"], REFUSED))
def test_a_layer_that_cannot_be_compiled_says_why(name, monkeypatch, caplog):
    message, options = REFUSED[name]
    if name == "op library":
        monkeypatch.setattr(library, "OPS", "native")
    sampler = options.get("sampler", S.UniformSampler)
    arguments = {**options, "sampler": sampler(20)}
    with pytest.warns(UserWarning, match="doesn't support `jit_compile=True`"):
        model = small_model(head=tflo.layers.LargeOutput(NUM_CLASSES, **arguments))
    fit(model, X, Y)
    assert re.search(
        f"large_output.* does not support jit_compile=True.*{message}", caplog.text
    )


def test_a_callback_names_the_cause_of_nan():
    model, logs = small_model(jit_compile=False), {"loss": float("nan")}

    def end_epoch(*data, logs=logs):
        explain = tflo.callbacks.ExplainNaN(*data)
        explain.set_model(model)
        explain.on_epoch_end(0, logs)

    kinds = {"feature": "features.*must be finite", "weight": "`sample_weight`"}
    for case, data in INVALID.items():
        end_epoch(*data, logs={"loss": 1.0})
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=kinds.get(case.split()[-1], "class ids")
        ):
            end_epoch(*data)
    with pytest.raises(FloatingPointError, match="passes all checks. Either the logits"):
        end_epoch(X, Y)
    batches = tf.data.Dataset.from_tensor_slices((X, INVALID["label below -1"][1])).batch(4)
    with pytest.raises(tf.errors.InvalidArgumentError, match="class ids"):
        end_epoch(batches)
    model.layers[-1].embeddings.assign(spoiled(np.ones((NUM_CLASSES, FEATURES_DIM)), np.nan))
    with pytest.raises(FloatingPointError, match="not finite: .*large_output.*/embeddings"):
        end_epoch(X, Y)


@pytest.mark.slow
def test_fit_works_after_a_first_step_that_could_not_be_traced_or_was_invalid():
    model = small_model()
    with pytest.raises(ValueError, match="integer class ids"):
        fit(model, X, Y.astype("float32"))
    assert np.isnan(fit(model, X * np.nan, Y)["loss"])
    assert np.isfinite(fit(model, X, Y)["loss"])
    function = model.train_function
    fit(model, X, Y)
    assert model.optimizer.iterations == 2 and model.train_function is function
