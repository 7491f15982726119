"""`python -m lab.kernel_trees.draw_worth`: how many draws replace one draw of the softmax.

With m draws from q, the relative variance of the estimated sum of `exp(logit)` over all classes
but the labels is `(chi - 1) / m`, where `chi = sum_c p_c^2 / q_c` and p is the softmax of these
classes. Trains a model, and computes chi for each distribution and test example by a pass over
all classes. Samplers with a search structure report q as the expected counts of labels.
"""

import keras
import numpy as np
import tensorflow as tf

from benchmarks.harness import machine, tasks
from benchmarks.harness.files import write_json
from benchmarks.harness.training import ENDLESS, TrainingClock
from benchmarks.methods.method_table import METHODS
from lab.negatives.hardness import with_sampler
from lab.shared.command_line import new_parser
from lab.shared.samplers import SAMPLERS
from tf_largeout.samplers import KernelTreeSampler

_AT_ONCE = 2**20  # expected counts of labels


def main(arguments=None):
    """Trains and examines as the command line says; returns the report."""
    options = _parser().parse_args(arguments)
    report = {"machine": machine.describe(), "tasks": {}}
    for name in options.tasks:
        report["tasks"][name] = examine(name, options)
        write_json(options.json, report)
    return report


def examine(name, options):
    """Returns the steps of training, and the median of chi of each distribution, as a dict."""
    method = METHODS["inverted_file"]
    settings = method.settings_for(name)
    task = tasks.load(name, settings.batch_size)
    model = method.model(task, settings)
    clock = TrainingClock(options.seconds, options.seconds, lambda *_: {}, by_cpu=True)
    model.fit(task.train, steps_per_epoch=ENDLESS, verbose=0, shuffle=False, callbacks=[clock])
    x, y = task.test_sample(options.sample)
    features, labels = keras.Sequential(model.layers[:-1])(x), np.reshape(y, [len(x), -1])
    head, steps = model.layers[-1], int(model.optimizer.iterations)
    logits = head(features).numpy()
    found = {"seconds": options.seconds, "steps": steps, "chi": {}}
    for title, weights in weights_of(logits, np.maximum(task.label_counts, 1)).items():
        found["chi"][title] = median_chi(logits, weights, labels)
    for title, sampler in samplers(task).items():
        layer = with_sampler(head, sampler, features)
        found["chi"][title] = median_chi(logits, probabilities_of(layer, features), labels)
    for title, value in found["chi"].items():
        print(f"{name}, step {steps}: {title} {value:,.3g}", flush=True)
    return found


def weights_of(logits, counts):
    """Returns the weights of the classes in distributions without a search, as a dict."""
    return {
        "uniform": np.ones_like(logits),
        "frequency": np.broadcast_to(counts, logits.shape),
        "quadratic kernel": 100 * logits**2 + 1,
        "quartic kernel": logits**4 + 1,
    }


def samplers(task):
    """Returns samplers with a search structure; each draws once for each example."""
    return {
        **{
            f"quadratic kernel, {dim} dimensions": KernelTreeSampler(
                1, projection_dim=dim, seed=1, shared=False
            )
            for dim in (48, 32, 16)
        },
        "inverted file": SAMPLERS["inverted_file_draws"](task, 1),
    }


def probabilities_of(layer, features):
    """Returns the probability of each class in one draw, `[batch, num_classes]`."""
    num_classes = layer.num_classes
    found = np.empty([len(features), num_classes], np.float32)
    size = max(1, _AT_ONCE // len(features))
    for first in range(0, num_classes, size):
        ids = np.arange(first, min(first + size, num_classes))
        labels = tf.constant(np.tile(ids, [len(features), 1]), tf.int64)
        counts = layer.sampler.sample(features, labels, layer).true_expected_count
        found[:, first : first + size] = counts
    return found


def median_chi(logits, weights, labels):
    """Returns the median over the rows of `sum_c p_c^2 / q_c` over the classes but the labels.

    Args:
        logits: `[batch, num_classes]`; p is their softmax.
        weights: `[batch, num_classes]`; q is proportional to them.
        labels: `[batch, num_labels]`, padded with -1.
    """
    found = []
    for row, weight, own in zip(logits, weights, labels, strict=True):
        others = np.delete(np.arange(len(row)), own[own >= 0])
        p = np.exp(row[others].astype(np.float64) - row[others].max())
        p /= p.sum()
        q = weight[others] / weight[others].sum(dtype=np.float64)
        found.append((p**2 / q).sum())
    return float(np.median(found))


def _parser():
    parser = new_parser("kernel_trees.draw_worth", __doc__)
    add = parser.add_argument
    add("--tasks", nargs="+", choices=tasks.TASKS, default=["place_names", "linux_callees"])
    add("--seconds", type=float, default=15.0, help="CPU seconds of training")
    add("--sample", type=int, default=64, help="test examples")
    add("--json", default="benchmark-results/draw_worth.json", help="file for the figures")
    return parser


if __name__ == "__main__":
    main()
