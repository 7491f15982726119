"""Faults of exported models."""

from lab.mutation.fault import Fault

_SERVING = "tf_largeout/serving/"
_ALL = ("tests/serving",)

FAULTS = [
    Fault(
        "the ids of each block start at 0",
        _SERVING + "class_scores.py",
        "return scores, tf.cast(places, tf.int64) + first",
        "return scores, tf.cast(places, tf.int64)",
        ("tests/serving/class_scores_test.py", *_ALL),
    ),
    Fault(
        "examples with features that are not finite get the result of features of 0",
        _SERVING + "endpoints.py",
        "scores = tf.where(finite, scores, NOTHING)",
        "scores = tf.where(finite | True, scores, NOTHING)",
        ("tests/serving/export_test.py", *_ALL),
    ),
    Fault(
        "positions of a sequence get the exclusions of other sequences",
        _SERVING + "endpoints.py",
        "tf.repeat(exclude, tf.reduce_prod(shape[1:]), axis=0)",
        "tf.tile(exclude, [tf.reduce_prod(shape[1:]), 1])",
        ("tests/serving/export_test.py", *_ALL),
    ),
    Fault(
        "removed classes are found if all classes are scored",
        _SERVING + "class_scores.py",
        "    if is_listed.all():\n",
        "    if is_listed.any():\n",
        ("tests/serving/list_scores_test.py", *_ALL),
    ),
    Fault(
        "one list too few is searched for k classes",
        _SERVING + "class_scores.py",
        "surely = 1 + tf.searchsorted(",
        "surely = tf.searchsorted(",
        ("tests/serving/list_scores_test.py", *_ALL),
    ),
    Fault(
        "a model with infinite weights is exported",
        _SERVING + "saved_model.py",
        "if not bool(tf.reduce_all(tf.math.is_finite(part))):",
        "if bool(tf.reduce_any(tf.math.is_nan(part))):",
        ("tests/serving/export_test.py", *_ALL),
    ),
]
