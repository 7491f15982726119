"""Faults of indexes and filters."""

from lab.mutation.fault import Fault

_RETRIEVAL = "tf_largeout/retrieval/"
_ALL = ("tests/retrieval", "tests/classes/filtered_top_k_test.py")

FAULTS = [
    Fault(
        "a search finds only k classes before it removes the excluded ones",
        "tf_largeout/classes/best_scores.py",
        "else k + tf.shape(exclude)[1]",
        "else k + 0 * tf.shape(exclude)[1]",
        ("tests/classes/filtered_top_k_test.py", *_ALL),
    ),
    Fault(
        "excluded ids are found only if they are in rising order",
        "tf_largeout/classes/best_scores.py",
        "ordered = tf.sort(lowest, axis=1)",
        "ordered = tf.identity(lowest)",
        ("tests/classes/filtered_top_k_test.py", *_ALL),
    ),
    Fault(
        "an update of rows without biases sets the biases of these classes to 0",
        _RETRIEVAL + "rows.py",
        "bias = tf.gather(biases, ids)",
        "bias = 0 * tf.gather(biases, ids)",
        ("tests/retrieval/brute_force_index_test.py", *_ALL),
    ),
    Fault(
        "a changed row goes to the list with the longest mean",
        _RETRIEVAL + "inverted_file_index.py",
        "directions = tf.math.l2_normalize(means, axis=1)",
        "directions = tf.identity(means)",
        ("tests/retrieval/inverted_file_index_test.py", *_ALL),
    ),
    Fault(
        "exclusions do not increase the number of searched lists",
        _RETRIEVAL + "inverted_file_index.py",
        "        is_short |= (excluded > 0) & too_few\n",
        "",
        ("tests/retrieval/inverted_file_index_test.py", *_ALL),
    ),
    Fault(
        "one list too few is searched for the recall target",
        _RETRIEVAL + "inverted_file_index.py",
        "        return number\n    while",
        "        return max(number - 1, 1)\n    while",
        ("tests/retrieval/inverted_file_index_test.py", *_ALL),
    ),
    Fault(
        "predict_top_k does not pass exclusions on to an index",
        _RETRIEVAL + "predict_top_k.py",
        "found = self._index.top_k(queries, self._k, exclude=exclude, allowed=self._allowed)",
        "found = self._index.top_k(queries, self._k, exclude=None, allowed=self._allowed)",
        ("tests/retrieval/predict_top_k_test.py", *_ALL),
    ),
    Fault(
        "a search chooses lists without their biases",
        "custom_ops/core/inverted_file/inverted_file_search.cc",
        "{file_.means, file_.mean_bias, file_.num_lists, dim_}",
        "{file_.means, nullptr, file_.num_lists, dim_}",
        ("tests/ops/inverted_file_ops_test.py", "tests/search", *_ALL),
    ),
]
