"""Faults of the op library, in C++."""

from lab.mutation.fault import Fault

_CORE = "custom_ops/core/"
_SAMPLING = ("tests/ops", "tests/samplers", "tests/search")
_LOSSES = ("tests/ops", "tests/losses")
_SCANS = ("tests/ops", "tests/metrics", "tests/retrieval")

FAULTS = [
    Fault(
        "gradients of a repeated id are not summed",
        _CORE + "rows/row_merge.cc",
        "return i == 0 || entries[i].id != entries[i - 1].id;",
        "return i == 0 || entries[i].id >= entries[i - 1].id;",
        ("tests/ops/row_ops_test.py", "tests/ops", "tests/optimizers"),
    ),
    Fault(
        "ids of a gradient are sorted only by their lowest digit",
        _CORE + "rows/row_merge.cc",
        "shift < bits; shift += digit_bits",
        "shift < digit_bits; shift += digit_bits",
        ("tests/ops/row_ops_test.py", "tests/ops", "tests/optimizers"),
    ),
    Fault(
        "the gradient of a bias leaves out all full blocks of its terms",
        _CORE + "rows/row_dots.cc",
        "d_biases[s] = sum + run;",
        "d_biases[s] = run;",
        ("tests/ops/row_dot_ops_test.py", *_LOSSES),
    ),
    Fault(
        "the sum of exponentials is not rescaled when the largest logit rises",
        _CORE + "class_scan/class_scan_statistics.h",
        "shard_.total[example + lane] *= factor[lane];",
        "shard_.total[example + lane] *= 1.0f;",
        ("tests/ops/class_scan_ops_test.py", *_SCANS),
    ),
    Fault(
        "a sampled class with the logit of the label ranks above the label",
        _CORE + "candidates/candidates_simd.cc",
        "counts -= Load(buffer + i) > scores;",
        "counts -= Load(buffer + i) >= scores;",
        ("tests/ops/candidate_ops_test.py", "tests/steps/candidates_test.py", *_SCANS),
    ),
    Fault(
        "only one of two draws of a label is masked",
        _CORE + "candidates/accidental_hits.cc",
        "    next_[i] = first;\n",
        "    next_[i] = kNone;\n",
        ("tests/ops/candidate_ops_test.py", "tests/steps/candidates_test.py", *_LOSSES),
    ),
    Fault(
        "the bounds of packed classes ignore the rounding of the queries",
        _CORE + "class_scan/class_scan_filter.h",
        "norm * queries_.errors[query + q];",
        "0.0f * norm * queries_.errors[query + q];",
        ("tests/ops/packed_classes_test.py", *_SCANS),
    ),
    Fault(
        "for a repeated target of an example, only the last derivative counts",
        _CORE + "factored_output/factored_output_targets.cc",
        "slopes_.back().value += slope.value;",
        "slopes_.back().value = slope.value;",
        (
            "tests/papers/factored/factored_output_ops_test.py",
            "tests/ops",
            "tests/papers/factored/factored_training_test.py",
        ),
    ),
    Fault(
        "a class at the boundary between two strata is drawn too rarely",
        _CORE + "sampling/sampling.h",
        "ScaleBits(stratum.fight, distribution_.stratum() - stratum.after) < stratum.before",
        "ScaleBits(stratum.fight, distribution_.stratum()) < stratum.before",
        ("tests/samplers/static_samplers_test.py", *_SAMPLING),
    ),
    Fault(
        "an alias table ignores the remaining probability of the previous heavy class",
        _CORE + "sampling/alias_table.cc",
        "left += scaled(next) - kAliasTotal;",
        "left = scaled(next);",
        ("tests/ops/table_sampling_ops_test.py", *_SAMPLING),
    ),
    Fault(
        "draws within a leaf of the kernel tree ignore the biases",
        _CORE + "kernel_tree/kernel_tree_walk.cc",
        "LogitMass(alpha, double{logits[c]} + bias[c])",
        "LogitMass(alpha, double{logits[c]} + 0 * bias[c])",
        ("tests/papers/kernel_tree/kernel_tree_ops_test.py", *_SAMPLING),
    ),
    Fault(
        "a pool takes the first class of a bucket instead of the drawn entry",
        _CORE + "lsh/lsh_pool.cc",
        "bucket.ids[bucket.size - (ends[at] - entry)]",
        "bucket.ids[0 * (ends[at] - entry)]",
        ("tests/papers/lsh/lsh_ops_test.py", *_SAMPLING),
    ),
]
