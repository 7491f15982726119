"""Our losses and their gradients against those of PyTorch libraries, on the same arrays."""

import importlib.util

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.harness import own_process
from tests import harness
from tests.losses import rival_values
from tf_largeout import losses

pytestmark = pytest.mark.slow
BATCH, DIM, N, SAMPLED = 12, 7, 40, 15
RANDOM = np.random.default_rng(0)
LABELS = np.arange(1, BATCH + 1)
ARRAYS = {
    "features": RANDOM.normal(size=(BATCH, DIM)).astype("float32"),
    "rows": RANDOM.normal(size=(N, DIM)).astype("float32"),
    "bias": RANDOM.normal(size=N).astype("float32"),
    "labels": LABELS,
    "with_ignored": np.where(LABELS % 4 == 0, -100, LABELS),
    "class_weights": RANDOM.uniform(0.5, 2, N).astype("float32"),
    "targets": RANDOM.dirichlet(np.full(N, 0.1), BATCH).astype("float32"),
    "sampled": RANDOM.permutation(N)[:SAMPLED],  # some of them are labels
    "sampled_counts": RANDOM.uniform(0.1, 0.9, SAMPLED).astype("float32"),
    "apart": np.arange(N - SAMPLED, N),  # none of them is a label
}
SMOOTH = {"label_smoothing": 0.1}


def _sampler(ids, counts):
    return harness.FixedSampler(harness.sampled_values(ids, np.ones((BATCH, 1)), counts))


def _plain(loss, labels=LABELS, sampler=None, scale=1.0):
    head = harness.built_head(ARRAYS["rows"], ARRAYS["bias"], sampler)
    return _loss_and_gradient(loss, labels, head, scale)


def _cosine(loss, sampler=None):
    head = harness.built_head(ARRAYS["rows"], None, sampler, normalize=True)
    return _loss_and_gradient(loss, LABELS, head)


def _loss_and_gradient(loss, labels, head, scale=1.0):
    features = tf.constant(ARRAYS["features"])
    with tf.GradientTape() as tape:
        tape.watch(features)
        value = scale * loss(labels, head(features, training=True))
    return value, tape.gradient(value, features)


def _counted():
    return _sampler(ARRAYS["sampled"], ARRAYS["sampled_counts"])


def _apart():
    return _sampler(ARRAYS["apart"], np.ones(SAMPLED))


# Their mean over the negatives and the label; ours is a sum.
MEAN = 1 / (SAMPLED + 1)
OURS = {
    "torch": {
        "cross entropy": lambda: _plain(losses.SoftmaxLoss()),
        "label smoothing": lambda: _plain(losses.SoftmaxLoss(**SMOOTH)),
        "class weights": lambda: _plain(
            losses.SoftmaxLoss(class_weights=ARRAYS["class_weights"])
        ),
        "soft targets": lambda: _plain(
            losses.SoftmaxLoss(), tf.sparse.from_dense(ARRAYS["targets"])
        ),
        "ignored class": lambda: _plain(
            losses.SoftmaxLoss(ignore_class=-100), ARRAYS["with_ignored"]
        ),
        "sampled softmax": lambda: _plain(losses.SampledSoftmaxLoss(), sampler=_counted()),
        "sigmoid": lambda: _plain(losses.SigmoidLoss()),
        "linear_cross_entropy": lambda: _plain(
            losses.SoftmaxLoss(ignore_class=-100, **SMOOTH), ARRAYS["with_ignored"]
        ),
    },
    "rectools": {
        "sampled softmax without counts": lambda: _plain(
            losses.SampledSoftmaxLoss(), sampler=_apart()
        ),
        "gBCE": lambda: _plain(
            losses.NegativeSamplingLoss(calibration=0.75), sampler=_apart(), scale=MEAN
        ),
        "BCE": lambda: _plain(losses.NegativeSamplingLoss(), sampler=_apart(), scale=MEAN),
    },
    "pytorch_metric_learning": {
        "ArcFace": lambda: _cosine(losses.MarginSoftmaxLoss(0.5)),
        "CosFace": lambda: _cosine(losses.MarginSoftmaxLoss(0.0, 0.35)),
        "PartialFC": lambda: _cosine(
            losses.MarginSoftmaxLoss(0.5),
            _sampler(_partial_classes(), np.ones(SAMPLED + BATCH)),
        ),
    },
}


def _partial_classes():
    return np.concatenate([LABELS, ARRAYS["apart"]])


@pytest.mark.parametrize("library", OURS)
def test_losses_and_gradients_are_those_of_other_libraries(library):
    for name in ("torch", library):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    theirs = own_process.call(rival_values.values, library, ARRAYS)
    assert theirs
    for case, (loss, gradient) in theirs.items():
        ours = OURS[library][case]()
        np.testing.assert_allclose(ours[0], loss, rtol=1e-5, err_msg=case)
        np.testing.assert_allclose(ours[1], gradient, rtol=1e-4, atol=1e-5, err_msg=case)
