"""Random calls of the passes over all classes."""

import numpy as np
import tensorflow as tf

from tests.fuzz import checks
from tests.fuzz.draws import Call
from tf_largeout import ops
from tf_largeout.ops import class_scan_ops
from tf_largeout.ops.devices import handle_of, optional_handle
from tf_largeout.ops.library import gen_ops


def class_statistics(draws):
    features, embeddings, bias = scan = _scan(draws)
    num_classes = _num_classes(embeddings)
    label_shape = _batch(features), draws.size() % 8
    options = {}
    if draws.chance(0.4):
        options["compute_dtype"] = "bfloat16"
    if is_shard := draws.chance(0.4):
        options["true_logits"] = draws.floats(*label_shape)
        options["first_class"] = draws.attribute(draws.random.integers(0, 2 * num_classes + 1))
    labels = draws.ids(label_shape, (3 if is_shard else 1) * num_classes)

    def check(statistics):
        log_partition, true_logits, ranks = statistics
        checks.has_shape(log_partition, features.shape[0])
        checks.has_shape(true_logits, *labels.shape)
        checks.has_shape(ranks, *labels.shape)
        checks.within(ranks, 0, num_classes + 1)
        padding = labels.numpy() == -1
        if is_shard:
            checks.equal(true_logits.numpy(), options["true_logits"].numpy())
        else:
            checks.equal(true_logits.numpy()[padding], 0)
        unknown = padding | ~(true_logits.numpy() > -np.inf)
        checks.equal(ranks.numpy()[unknown], num_classes)
        if not is_shard:
            checks.within(ranks.numpy()[~unknown], 0, num_classes)

    return Call(ops.class_statistics, (*scan, labels), options, check)


def label_logits(draws):
    features, embeddings, bias = scan = _scan(draws)
    labels = draws.ids((_batch(features), draws.size() % 8), _num_classes(embeddings))
    options = {"compute_dtype": "bfloat16"} if draws.chance(0.4) else {}

    def check(true_logits):
        checks.has_shape(true_logits, *labels.shape)
        checks.equal(true_logits.numpy()[labels.numpy() == -1], 0)

    return Call(ops.label_logits, (*scan, labels), options, check)


def class_top_k(draws):
    features, embeddings, bias = scan = _scan(draws)
    num_classes = _num_classes(embeddings)
    k = draws.attribute(draws.random.integers(1, max(num_classes, 1) + 1))

    def check(found):
        scores, ids = found
        checks.has_shape(scores, features.shape[0], k)
        checks.has_shape(ids, features.shape[0], k)
        checks.within(ids, 0, embeddings.shape[0])
        checks.distinct(ids)
        checks.falling(scores)

    packed = _packed(draws, embeddings, bias)
    return Call(ops.class_top_k, (*scan, k, packed), {}, check)


def pack_classes(draws):
    _, embeddings, bias = _scan(draws)

    def check(packed):
        num_classes, dim = (16 * -(-size // 16) for size in embeddings.shape)
        checks.has_shape(packed.codes, num_classes * dim)
        checks.has_shape(packed.scales, 5 * num_classes)
        assert not np.isnan(packed.scales.numpy()).any()

    return Call(ops.pack_classes, (embeddings, bias), {}, check)


def packed_top_k(draws):
    features, embeddings, bias = _scan(draws)
    num_classes = _num_classes(embeddings)
    k = draws.attribute(draws.random.integers(1, max(num_classes, 1) + 1))
    packed = _packed(draws, embeddings, bias) or class_scan_ops.PackedClasses(
        tf.zeros([16], tf.uint8), tf.zeros([80])
    )

    def check(found):
        scores, ids = found
        checks.has_shape(scores, features.shape[0], k)
        checks.has_shape(ids, features.shape[0], k)
        checks.within(ids, 0, num_classes)
        checks.distinct(ids)
        checks.falling(scores)

    arguments = (features, packed, draws.attribute(max(num_classes, 1)), k)
    return Call(ops.packed_top_k, arguments, {}, check)


def largeout_class_softmax_gradient(draws):
    features, embeddings, bias = _scan(draws)
    batch = _batch(features)
    handles = (handle_of(embeddings), optional_handle(bias))
    arguments = (features, *handles, draws.floats(batch), draws.floats(batch))
    num_labels = draws.size() % 8
    labels = draws.ids((batch, num_labels), _num_classes(embeddings))
    arguments += (labels, draws.floats(batch, num_labels))

    def check(gradients):
        d_features, d_embeddings, d_bias = gradients
        checks.has_shape(d_features, *features.shape)
        checks.has_shape(d_embeddings, *embeddings.shape)
        if bias is None:
            assert not d_bias
        else:
            checks.has_shape(d_bias[0], embeddings.shape[0])

    return Call(gen_ops.largeout_class_softmax_gradient, arguments, {}, check)


def _scan(draws):
    """Returns features, embeddings, and bias or None."""
    batch, num_classes, dim = draws.rows(), draws.size(), draws.size()
    if draws.chance(0.5):
        batch, num_classes = num_classes, batch
    features = draws.floats(batch, dim)
    embeddings = draws.variable(draws.floats(num_classes, dim))
    bias = draws.variable(draws.floats(num_classes)) if draws.chance(0.6) else None
    return features, embeddings, bias


def _packed(draws, embeddings, bias):
    """Returns None, the packed classes, or packed classes of other variables."""
    if draws.chance(0.4):
        return None
    if draws.chance(0.2):
        return class_scan_ops.PackedClasses(
            tf.cast(draws.ids([draws.size()], 256), tf.uint8), draws.floats(draws.size())
        )
    try:
        return ops.pack_classes(embeddings, bias)
    except (tf.errors.OpError, ValueError):
        return None


def _batch(features):
    return features.shape[0] if features.shape.rank else 0


def _num_classes(embeddings):
    shape = getattr(embeddings, "shape", tf.TensorShape(None))
    return (shape[0] or 0) if shape.rank else 0
