"""Properties of losses: full forms, bounds, bias of estimates, large logits."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests import harness
from tests.losses.table import BATCH, LOSSES, ONE_OF_EACH_CLASS, SEVERAL, N, Problem
from tests.reference import losses as reference
from tests.slow import slow_but
from tf_largeout import losses, samplers

NORMALIZATIONS = [name for name in LOSSES if name.startswith(("importance", "bernoulli"))]


def head_of(problem, sampler):
    return harness.built_head(problem.embeddings, problem.bias, sampler)


@pytest.mark.parametrize("name", [*NORMALIZATIONS, "absolute softmax"])
def test_the_loss_over_all_classes_equals_its_full_form(name):
    case, problem = LOSSES[name], Problem()
    head = head_of(problem, samplers.UniformSampler(N))
    value, gradients = harness.loss_and_gradients(
        case.loss(reduction="sum"), head, problem.features, problem.labels
    )
    assert value == pytest.approx(problem.expected(lambda *a: case.exact(*a[:4])).sum(), 1e-5)
    if name != "absolute softmax":
        exact = harness.loss_and_gradients(
            losses.SoftmaxLoss(reduction="sum"), head, problem.features, problem.labels
        )[1]
        for ours, theirs in zip(gradients, exact, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", slow_but(["importance, batch"], NORMALIZATIONS))
def test_derivatives_by_logits_are_at_most_one(name):
    """Barber & Botev 2016, equation 26; repeats of a class add up."""
    case = LOSSES[name]
    for seed in range(20):
        problem = Problem(np.array([[3, 5]]), seed=seed)
        problem.features = 3 * problem.features[:1]
        problem.sampled_count *= 1e-3
        _, (_, _, by_logit) = harness.loss_and_gradients(
            case.loss(reduction="sum"), problem.head(), problem.features, problem.labels
        )
        assert np.all(np.abs(by_logit) <= 1 + 1e-6)
        assert np.sum(by_logit) == pytest.approx(0, abs=1e-5)


ESTIMATES = {
    "importance": (losses.ImportanceNormalizationLoss, samplers.UnigramSampler, {}),
    "importance without replacement": (
        losses.ImportanceNormalizationLoss,
        samplers.UnigramSampler,
        {"unique": True},
    ),
    "bernoulli": (losses.BernoulliNormalizationLoss, samplers.BernoulliSampler, {}),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, complement",
    slow_but(
        [
            ("bernoulli", "batch"),
        ],
        itertools.product(ESTIMATES, ["label", "batch"]),
    ),
)
def test_the_partition_function_is_estimated_without_bias(name, complement):
    loss_class, sampler_class, options = ESTIMATES[name]
    problem = Problem(np.array([[3], [9], [0], [36], [7], [12]]))
    sampler = sampler_class(6, counts=np.arange(N) + 5, seed=2, **options)
    head = head_of(problem, sampler)
    loss = loss_class(complement=complement, reduction=None)

    @tf.function(autograph=False)
    def estimates():
        return tf.map_fn(
            lambda _: tf.exp(loss(problem.labels, head(problem.features, training=True))),
            tf.range(3000),
            fn_output_signature=tf.float32,
            parallel_iterations=1,
        )

    found = estimates().numpy().astype("float64")
    exact = np.exp(problem.expected(lambda *args: reference.full_softmax(*args[:4])))
    sigma = found.std(axis=0) / np.sqrt(len(found))
    assert np.all(np.abs(found.mean(axis=0) - exact) < 5 * sigma)
    assert np.all(sigma < 0.05 * exact)


@pytest.mark.slow
def test_the_complement_of_the_batch_has_lower_variance():
    problem = Problem(np.array([[3], [9], [0], [36], [7], [12]]))
    errors = []
    for complement in ("label", "batch"):
        head = head_of(problem, samplers.UniformSampler(12, seed=3))
        loss = losses.ImportanceNormalizationLoss(complement=complement, reduction=None)
        steps = [loss(problem.labels, head(problem.features, training=True)) for _ in range(50)]
        errors.append(np.std(steps, axis=0).mean())
    assert errors[1] < errors[0]


@ONE_OF_EACH_CLASS
@pytest.mark.parametrize("scale", slow_but([1e30], [1e4, 1e30]))
def test_large_logits_give_finite_losses_and_gradients(case, scale):
    problem = Problem(SEVERAL)
    problem.embeddings *= np.float32(scale)
    value, gradients = harness.loss_and_gradients(
        case.loss(), problem.head(), problem.features, problem.labels
    )
    assert np.all(np.isfinite(value))
    for gradient in gradients:
        assert np.all(np.isfinite(gradient))


def test_black_out_is_precise_if_one_negative_dominates():
    zeros, has_label = tf.zeros((1, 1)), tf.constant([[True]])
    value = losses.black_out_loss(zeros, tf.constant([[60.0, 1.0]]), has_label)
    # p of the first negative is 1 - (1 + e) / exp(60): its term is 60 - log(1 + e).
    np.testing.assert_allclose(value, [60 + 60 - np.log(1 + np.e)], rtol=1e-6)


@pytest.mark.parametrize("loss", [losses.RankingLoss(), losses.BlackOutLoss()])
def test_the_loss_over_all_other_classes_equals_the_full_formula(loss):
    problem = Problem(np.array([[3], [9], [0], [36], [7], [12]]))
    head = head_of(problem, samplers.UniformSampler(N))
    found = type(loss)(reduction=None)(problem.labels, head(problem.features, training=True))
    logits = problem.features.astype("float64") @ problem.embeddings.T + problem.bias
    own = np.take_along_axis(logits, problem.labels, axis=1)
    is_other = np.arange(N) != problem.labels
    if isinstance(loss, losses.RankingLoss):
        terms = np.logaddexp(0, logits - own + np.log(N - 1))
        expected = np.mean(terms[is_other].reshape(BATCH, N - 1), axis=1)
    else:
        p = np.exp(logits - np.logaddexp.reduce(logits, axis=1)[:, None])
        expected = -np.log(np.where(is_other, 1 - p, p)).sum(axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def _search(num_hard=None, **kwargs):
    return samplers.TopKSampler(8, num_hard=num_hard, **kwargs)


@pytest.mark.parametrize(
    "loss, sampler, message",
    [
        (losses.ImportanceNormalizationLoss, _search(), "searches.*UniformSampler.*num_hard"),
        (losses.BlackOutLoss, _search(), "searches.*UnigramSampler.*num_hard"),
        (losses.BernoulliNormalizationLoss, _search(), "searches.*BernoulliSampler"),
        (
            losses.BernoulliNormalizationLoss,
            samplers.UniformSampler(8, unique=False),
            "several times.*BernoulliSampler.*unique=True",
        ),
        (
            losses.BernoulliNormalizationLoss,
            _search(3, tail=samplers.UniformSampler(8, unique=False)),
            "TopKSampler of layer.*several times",
        ),
        (
            losses.ImportanceNormalizationLoss,
            samplers.LSHSampler(8, form="pool", tables={"hash": "wta"}),
            "LSHSampler of layer.*searches",
        ),
    ],
)
def test_a_sampler_that_the_formula_excludes_raises_an_error(loss, sampler, message):
    problem = Problem()
    logits = head_of(problem, sampler)(problem.features, training=True)
    with pytest.raises(ValueError, match=f"{loss.__name__} cannot be used with.*{message}"):
        loss()(problem.labels, logits)


@pytest.mark.parametrize(
    "loss, sampler",
    [
        (losses.BernoulliNormalizationLoss, _search(3)),
        (losses.ImportanceNormalizationLoss, samplers.LSHSampler(8)),
        (losses.RankingLoss, _search()),
        (losses.AbsoluteSoftmaxLoss, _search()),
    ],
)
def test_a_sampler_that_the_formula_allows_is_accepted(loss, sampler):
    problem = Problem()
    logits = head_of(problem, sampler)(problem.features, training=True)
    assert np.isfinite(loss()(problem.labels, logits))


@pytest.mark.parametrize("bad", [np.nan, np.inf, "1", True])
def test_an_invalid_margin_raises_an_error(bad):
    with pytest.raises(ValueError, match="`margin` must be a finite number. Received"):
        losses.RankingLoss(margin=bad)


def test_an_unknown_form_raises_an_error():
    with pytest.raises(ValueError, match="`form` must be one of.*'logistic', 'hinge'"):
        losses.RankingLoss(form="square")


@pytest.mark.parametrize(
    "loss", [losses.ImportanceNormalizationLoss, losses.BernoulliNormalizationLoss]
)
def test_an_unknown_complement_raises_an_error(loss):
    with pytest.raises(ValueError, match="`complement` must be one of.*'label', 'batch'"):
        loss(complement="row")
