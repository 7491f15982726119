"""Faults of losses and of the candidates that they score."""

from lab.mutation.fault import Fault

_LOSSES = "tf_largeout/losses/"
_ALL = ("tests/losses", "tests/steps/candidates_test.py")

FAULTS = [
    Fault(
        "the expected count of a label is added to its logit",
        _LOSSES + "softmax_losses.py",
        "true_logits -= candidates.true_log_counts()",
        "true_logits += candidates.true_log_counts()",
        ("tests/losses/losses_test.py", *_ALL),
    ),
    Fault(
        "NCE gives each of several labels the target 1",
        _LOSSES + "binary_losses.py",
        "tf.math.softplus(true_logits) - weights * true_logits",
        "tf.math.softplus(true_logits) - true_logits + 0 * weights",
        ("tests/losses/losses_test.py", *_ALL),
    ),
    Fault(
        "the mean over negatives counts accidental hits",
        _LOSSES + "binary_losses.py",
        "tf.cast(sampled_logits > sampled_logits.dtype.min, sampled_logits.dtype)",
        "tf.ones_like(sampled_logits)",
        ("tests/losses/losses_test.py", *_ALL),
    ),
    Fault(
        "the default margin of the ranking loss counts the label as a negative",
        "tf_largeout/papers/likelihood/losses.py",
        "math.log(max(candidates.num_classes - 1, 1))",
        "math.log(max(candidates.num_classes, 1))",
        ("tests/losses/losses_test.py", *_ALL),
    ),
    Fault(
        "class 0 is missing from the classes that a batch shares",
        "tf_largeout/papers/likelihood/losses.py",
        "tf.boolean_mask(ids, ids >= 0)",
        "tf.boolean_mask(ids, ids > 0)",
        ("tests/losses/losses_test.py", *_ALL),
    ),
    Fault(
        "BlackOut leaves out the term of the most likely class",
        "tf_largeout/papers/likelihood/losses.py",
        "tf.where(is_top, (others - log_partition)[:, tf.newaxis], tf.math.log1p(-p))",
        "tf.math.log1p(-p)",
        ("tests/losses/losses_test.py", *_ALL),
    ),
    Fault(
        "a class of the head counts again if the tail also draws it",
        "tf_largeout/steps/step.py",
        "no_effect = tf.concat([no_effect, ids], axis=1)",
        "no_effect = tf.concat([no_effect, ids[:, :0]], axis=1)",
        ("tests/losses/head_and_tail_test.py", *_ALL),
    ),
    Fault(
        "the Z-loss uses the mean square instead of the variance",
        "tf_largeout/papers/factored/losses.py",
        "tf.sqrt(squares / num_classes - mean**2)",
        "tf.sqrt(squares / num_classes)",
        (
            "tests/papers/factored/spherical_losses_test.py",
            *_ALL,
            "tests/papers/factored/factored_training_test.py",
        ),
    ),
]
