"""Faults of samplers."""

from lab.mutation.fault import Fault

_SAMPLERS = "tf_largeout/samplers/"
_PAPERS = "tf_largeout/papers/"
_ALL = ("tests/samplers", "tests/search")

FAULTS = [
    Fault(
        "a class without a count gets the weight of the rarest counted class",
        "tf_largeout/class_counts.py",
        "floor = min(1.0, counts[counts > 0].min())",
        "floor = counts[counts > 0].min()",
        ("tests/samplers/unigram_sampler_test.py", *_ALL),
    ),
    Fault(
        "the labels of the last batch replace the counts of earlier ones",
        "tf_largeout/class_counts.py",
        "np.add.at(merged, places, times)",
        "merged[places] = times",
        ("tests/samplers/unigram_sampler_test.py", *_ALL),
    ),
    Fault(
        "draws are not increased for repeats, so too few distinct classes are drawn",
        _PAPERS + "likelihood/bernoulli_sampler.py",
        "hits = np.minimum(-np.log(-np.expm1(log_b)), _MOST_HITS)",
        "hits = np.minimum(np.exp(log_b), _MOST_HITS)",
        ("tests/papers/likelihood/bernoulli_sampler_test.py", *_ALL),
    ),
    Fault(
        "the smoothing of bigrams ignores the number of followers of a class",
        _SAMPLERS + "counted_samplers.py",
        "tf.where(total > 0, distinct * scale, 1)",
        "tf.where(total > 0, scale, 1)",
        ("tests/samplers/bigram_sampler_test.py", *_ALL),
    ),
    Fault(
        "a rebuild comes one step late",
        _PAPERS + "lsh/hash_tables.py",
        "due = step >= next_rebuild",
        "due = step > next_rebuild",
        ("tests/papers/lsh/rebuild_schedule_test.py", *_ALL),
    ),
    Fault(
        "a search waits until more than half of the watched labels have returned",
        _SAMPLERS + "hard_negative_sampler.py",
        "2 * tf.math.count_nonzero(often) >= NUM_WATCHED",
        "2 * tf.math.count_nonzero(often) > NUM_WATCHED",
        ("tests/samplers/search_start_test.py", *_ALL),
    ),
    Fault(
        "expected counts of an LSH pool are those of one table",
        _PAPERS + "lsh/lsh_sampler.py",
        "weight = num_from_tables * self.tables.num_tables / tf.maximum(num_entries, 1)",
        "weight = num_from_tables / tf.maximum(num_entries, 1)",
        ("tests/papers/lsh/lsh_sampler_test.py", *_ALL),
    ),
    Fault(
        "log q of a draw from one of several trees leaves out the probability of the tree",
        _PAPERS + "kernel_tree/kernel_trees.py",
        "log_q.append(found[1] + tf.gather(log_share, own_queries))",
        "log_q.append(found[1] + 0 * tf.gather(log_share, own_queries))",
        ("tests/papers/kernel_tree/sharded_trees_test.py", *_ALL),
    ),
]
