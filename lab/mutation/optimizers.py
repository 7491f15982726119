"""Faults of optimizers."""

from lab.mutation.fault import Fault

_OPTIMIZERS = "tf_largeout/optimizers/"
_ALL = (
    "tests/optimizers",
    "tests/ops/row_ops_test.py",
    "tests/integration/replicas_test.py",
)

FAULTS = [
    Fault(
        "Adam's bias correction for rows ignores `row_step_offset`",
        _OPTIMIZERS + "lazy_adam.py",
        "tf.cast(self.beta_2, tf.float32), step + step_offset)",
        "tf.cast(self.beta_2, tf.float32), step + 0 * step_offset)",
        ("tests/optimizers/optimizers_test.py", *_ALL),
    ),
    Fault(
        "before a dense gradient, moments decay for one skipped step too many",
        _OPTIMIZERS + "lazy_adam.py",
        "skipped = step - last_step.value - 1",
        "skipped = step - last_step.value",
        ("tests/optimizers/optimizers_test.py", *_ALL),
    ),
    Fault(
        "between sparse gradients, moments decay for one skipped step too many",
        "custom_ops/core/optimizers/row_update_simd.cc",
        "const int64_t gap = args.step - args.last_step[row] - 1;",
        "const int64_t gap = args.step - args.last_step[row];",
        ("tests/optimizers/optimizers_test.py", *_ALL),
    ),
    Fault(
        "Nesterov's step leaves out the decay of the momentum",
        "custom_ops/core/optimizers/row_update_formulas.h",
        "args.nesterov ? *m * args.decay + change : *m",
        "args.nesterov ? *m + change : *m",
        ("tests/optimizers/optimizers_test.py", *_ALL),
    ),
    Fault(
        "the accumulator of a row adds the sum of squares of a dense gradient, not the mean",
        _OPTIMIZERS + "adagrad.py",
        "tf.reduce_mean(gradient**2, axis=list(range(1, rank)))",
        "tf.reduce_sum(gradient**2, axis=list(range(1, rank)))",
        ("tests/optimizers/optimizers_test.py", *_ALL),
    ),
    Fault(
        "weight decay of rows ignores the learning rate",
        _OPTIMIZERS + "row_sparse.py",
        "rates = learning_rate, decay * learning_rate",
        "rates = learning_rate, decay",
        ("tests/optimizers/options_test.py", *_ALL),
    ),
    Fault(
        "gradients of repeated rows are clipped by value before they are summed",
        _OPTIMIZERS + "row_sparse.py",
        "if not (self.clipnorm or self.clipvalue or self.global_clipnorm)",
        "if not (self.clipnorm or self.global_clipnorm)",
        ("tests/optimizers/options_test.py", *_ALL),
    ),
    Fault(
        "only one replica skips a step with an infinite gradient",
        _OPTIMIZERS + "row_sparse.py",
        "return tf.equal(replicas.summed(tf.cast(failed, tf.float32)), 0)",
        "return tf.equal(tf.cast(failed, tf.float32), 0)",
        ("tests/integration/replicas_test.py", *_ALL),
    ),
]
