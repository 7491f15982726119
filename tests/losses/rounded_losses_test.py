"""Sampled losses with bfloat16 products of features and shared classes."""

import keras
import numpy as np
import pytest

import tf_largeout as tflo
from tests import harness
from tests.losses.table import CLASSES, LOSSES, SAMPLED, SEVERAL, Problem, each_loss
from tests.reference import class_scan as reference
from tests.slow import slow_but

ROUNDED = {"compute_dtype": "bfloat16"}
EVERY_SAMPLED_LOSS = each_loss(without=["softmax"])
ONE_OF_EACH_CLASS = each_loss(CLASSES, without=["softmax"])


def example_losses(case, problem, **options):
    logits = problem.head()(problem.features, training=True)
    return case.loss(reduction=None, **options)(problem.labels, logits).numpy()


def gradients(case, problem, **options):
    loss = case.loss(reduction="sum", **options)
    return harness.loss_and_gradients(loss, problem.head(), problem.features, problem.labels)[1]


def rounded(problem):
    problem.features = np.float32(reference.bfloat16(problem.features))
    problem.embeddings = np.float32(reference.bfloat16(problem.embeddings))
    return problem


# All SIMD levels with one loss, and all losses with the highest level.
@pytest.mark.parametrize(
    "name, level",
    slow_but(
        [
            *(("sampled softmax", level) for level in ("generic", "avx2", "avx512", "amx")),
            *((name, "amx") for name in LOSSES if name != "softmax"),
        ],
        [
            (name, level)
            for name in LOSSES
            for level in ("generic", "avx2", "avx512", "amx")
            if name != "softmax"
        ],
    ),
)
def test_the_loss_of_rounded_numbers_equals_its_formula(name, level, set_simd_level):
    set_simd_level(level)
    case, problem = LOSSES[name], rounded(Problem())
    expected = problem.expected(case.oracle)
    np.testing.assert_allclose(
        example_losses(case, problem, **ROUNDED), expected, rtol=1e-5, atol=1e-5
    )


@ONE_OF_EACH_CLASS
def test_the_error_is_within_the_rounding_of_the_inputs(case):
    problem = Problem()
    found, exact = example_losses(case, problem, **ROUNDED), example_losses(case, problem)
    logits_off = 2**-7 * np.abs(problem.features) @ np.abs(problem.embeddings).T
    terms = SAMPLED + SEVERAL.shape[1]
    assert (found != exact).any()
    np.testing.assert_array_less(np.abs(found - exact), 2 * terms * logits_off.max(axis=1))


@ONE_OF_EACH_CLASS
def test_gradient_errors_are_within_the_rounding_of_logit_gradients(case):
    problem = rounded(Problem())
    found, exact = gradients(case, problem, **ROUNDED), gradients(case, problem)
    for one, other in zip(found, exact, strict=True):
        np.testing.assert_allclose(one, other, rtol=2**-7, atol=2**-7 * np.abs(other).max())
    assert (np.asarray(found[0]) != np.asarray(exact[0])).any()


@ONE_OF_EACH_CLASS
def test_candidates_per_example_are_not_rounded(case):
    problem = Problem(per_example=True)
    if "batch" in case.loss().get_config().get("complement", ""):
        pytest.skip("shares the labels of the batch")
    np.testing.assert_array_equal(
        example_losses(case, problem, **ROUNDED), example_losses(case, problem)
    )


@EVERY_SAMPLED_LOSS
def test_the_config_has_the_dtype_and_other_dtypes_raise_an_error(case):
    loss = case.loss(**ROUNDED)
    assert type(loss).from_config(loss.get_config()).compute_dtype == "bfloat16"
    assert case.loss().compute_dtype == "float32"
    with pytest.raises(ValueError, match="`compute_dtype` must be one of .*'float16'"):
        case.loss(compute_dtype="float16")


def trained(policy, num_shards, **options):
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    labels = rng.integers(500, size=640)
    features = rng.normal(size=(500, 24))[labels] + 0.3 * rng.normal(size=(640, 24))
    output = tflo.layers.LargeOutput(
        500,
        tflo.samplers.UniformSampler(100, seed=1),
        num_shards=num_shards,
        dtype=policy,
    )
    model = keras.Sequential([keras.Input([24]), keras.layers.Dense(24, dtype=policy), output])
    model.compile(tflo.optimizers.LazyAdam(1e-2), tflo.losses.SampledSoftmaxLoss(**options))
    model.optimizer.build(model.trainable_variables)  # Otherwise each step is traced twice.
    history = model.fit(features, labels, epochs=8, batch_size=64, shuffle=False, verbose=0)
    return history.history["loss"], model.evaluate(features, labels, verbose=0)


# In the short suite, softmax_loss_test.py trains a model with the exact loss.
@pytest.mark.slow
@pytest.mark.parametrize("policy, num_shards", [("float32", 3), ("mixed_bfloat16", 1)])
def test_a_model_learns_as_well_as_with_float32_products(policy, num_shards):
    exact, exact_loss = trained(policy, num_shards)
    found, found_loss = trained(policy, num_shards, **ROUNDED)
    assert exact[-1] < 0.6 * exact[0]
    np.testing.assert_allclose(found, exact, rtol=0.02)
    np.testing.assert_allclose(found_loss, exact_loss, rtol=0.02)
