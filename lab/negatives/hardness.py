"""`python -m lab.negatives.hardness`: how hard the negatives of each sampler are.

Trains one model and examines it at several points. At each point, every sampler draws negatives
for the same test examples and weights. A pass over all classes shows how hard they are: their
mean logit, their share of the softmax probability of all classes but the labels, and their
median rank. The other figures describe the sampled softmax loss with these negatives: the error
of the logarithm of the partition function, in nats; the effective sample size
`(sum w)^2 / sum w^2`; and the relative error of the features' gradient, for the mean over draws
(its bias) and for one draw. Samplers with search structures build them at each point.
"""

import keras
import numpy as np
import tensorflow as tf

from benchmarks.harness import machine, tasks
from benchmarks.harness.evaluation import evaluate
from benchmarks.harness.files import write_json
from benchmarks.harness.training import ENDLESS, TrainingClock
from benchmarks.methods.method_table import METHODS
from lab.shared.command_line import new_parser
from lab.shared.plots import draw_hardness
from lab.shared.samplers import SAMPLERS
from tf_largeout.layers import LargeOutput
from tf_largeout.losses import SampledSoftmaxLoss, SoftmaxLoss
from tf_largeout.steps.step import score_candidates

OF_IDS = ("mean logit", "softmax mass", "median rank")
OF_LOSS = ("partition error", "effective sample", "gradient bias", "gradient error")
FIGURES = OF_IDS + OF_LOSS
_DRAWS = 16  # the figures in OF_LOSS are means over this number of draws
_DEFAULT_SAMPLERS = [
    "uniform",
    "log_uniform",
    "frequency",
    "lsh_embedding",
    "lsh_label",
    "wta",
    "inverted_file",
    "top_k",
]


def main(arguments=None):
    """Trains and examines as the command line says; returns the report."""
    options = _parser().parse_args(arguments)
    settings = METHODS["ours"].settings_for(options.task)
    task = tasks.load(options.task, settings.batch_size)
    model = METHODS["ours"].model(task, settings)
    points = []
    x, y = task.test_sample(options.sample)
    labels = np.reshape(y, [len(x), -1])

    def look(model, seconds, steps):
        features, head = keras.Sequential(model.layers[:-1])(x), model.layers[-1]
        draws = {
            name: hardness(head, SAMPLERS[name](task, options.num_sampled), features, labels)
            for name in options.samplers
        }
        points.append({"seconds": seconds, "steps": steps, "samplers": draws})
        return evaluate(model, x, y)

    clock = TrainingClock(
        options.seconds, options.seconds / options.points, look, title=options.task
    )
    model.fit(task.train, steps_per_epoch=ENDLESS, verbose=0, shuffle=False, callbacks=[clock])
    report = {"machine": machine.describe(), "task": options.task, "points": points}
    if options.json:
        write_json(options.json, report)
    draw_hardness(report, FIGURES, options.png)
    print(table(points[-1]), f"\nThe picture is {options.png}.", sep="\n")
    return report


def hardness(trained, sampler, features, labels):
    """Returns the `FIGURES` of the negatives that `sampler` draws for a trained layer.

    Args:
        trained: a built `LargeOutput`.
        sampler: a sampler that no layer has built yet.
        features: float32 [batch, dim].
        labels: int64 [batch, num_labels], padded with -1.

    Returns:
        dict of the figures, means over the rows.
    """
    layer = with_sampler(trained, sampler, features)
    labels, logits = tf.constant(labels, tf.int64), trained(features)
    samples = [sampler.sample(features, labels, layer) for _ in range(_DRAWS)]
    of_loss = figures_of_loss(layer, samples, tf.constant(features), labels)
    ids = own_ids(samples[0], len(labels))
    return {**figures_of(ids, logits.numpy(), labels.numpy()), **of_loss}


def with_sampler(trained, sampler, features):
    """Returns a layer with the weights of another one, and with a sampler of its own.

    Args:
        trained: as in `hardness`.
        sampler: as in `hardness`. If it has a search structure, it is built.
        features: float32 [batch, dim].
    """
    layer = LargeOutput(trained.num_classes, sampler, use_bias=trained.use_bias)
    layer.build(features.shape)
    for mine, theirs in zip(
        layer.trainable_variables, trained.trainable_variables, strict=True
    ):
        mine.assign(theirs)
    if hasattr(sampler, "rebuild"):
        sampler.rebuild(layer)
    return layer


def figures_of_loss(layer, samples, features, labels):
    """Returns the figures `OF_LOSS` of the sampled softmax loss with given samples.

    Args:
        layer: A built `LargeOutput`.
        samples: Drawn for the same examples.
        features: float32 `[batch, dim]`.
        labels: int64 `[batch, num_labels]`, padded with -1.
    """
    with tf.GradientTape() as tape:
        tape.watch(features)
        logits = layer(features)
        loss = SoftmaxLoss(reduction="sum")(labels, logits)
    exact = tape.gradient(loss, features).numpy()
    gradients, errors, effective = [], [], []
    for sample in samples:
        with tf.GradientTape() as tape:
            tape.watch(features)
            candidates = score_candidates(layer.class_matrix, features, labels, sample)
            loss = tf.reduce_sum(SampledSoftmaxLoss().candidate_losses(candidates))
        gradients.append(tape.gradient(loss, features).numpy())
        errors.append(partition_error(candidates, logits))
        effective.append(effective_sample_size(candidates))
    values = np.mean(errors), np.mean(effective), *gradient_errors(np.stack(gradients), exact)
    return dict(zip(OF_LOSS, map(float, values), strict=True))


def effective_sample_size(candidates):
    """Returns the mean of `(sum w)^2 / sum w^2`, w the weights of a row's drawn classes."""
    log_weights = candidates.corrected_logits()
    log_sizes = 2 * candidates.log_partition() - tf.reduce_logsumexp(2 * log_weights, axis=1)
    return float(tf.reduce_mean(tf.exp(log_sizes)))


def gradient_errors(gradients, exact):
    """Returns the relative errors of the gradient: of the mean of all draws, and of one.

    Both are root mean squares over the examples, relative to that of the exact gradient. The
    first is corrected for the spread of the draws.

    Args:
        gradients: `[draws, batch, dim]`.
        exact: `[batch, dim]`.
    """
    scale = np.mean(np.sum(exact**2, axis=1))
    spread = np.mean(np.sum(gradients.var(axis=0, ddof=1), axis=1))
    of_mean = np.mean(np.sum((gradients.mean(axis=0) - exact) ** 2, axis=1))
    bias = max(of_mean - spread / len(gradients), 0.0)
    return np.sqrt(bias / scale), np.sqrt((bias + spread) / scale)


def partition_error(candidates, logits):
    """Returns the mean over the rows of `|log Z' - log Z|`, in nats.

    Args:
        candidates: `Candidates`, whose labels and drawn classes estimate Z'.
        logits: [batch, num_classes], which sum to Z.
    """
    lowest = logits.dtype.min
    true = tf.where(candidates.has_label, candidates.true_logits, lowest)
    parts = tf.concat([true, candidates.log_partition()[:, tf.newaxis]], axis=1)
    errors = tf.reduce_logsumexp(parts, axis=1) - tf.reduce_logsumexp(logits, axis=1)
    return float(tf.reduce_mean(tf.abs(errors)))


def own_ids(sample, batch):
    """Returns the distinct classes of each example: int64 `[batch, n]`, padded with -1."""
    parts = [sample.head, sample.tail] if hasattr(sample, "head") else [sample]
    ids = [np.asarray(part.sampled_candidates) for part in parts]
    rows = np.concatenate([np.broadcast_to(i, [batch, i.shape[-1]]) for i in ids], axis=1)
    rows = np.sort(rows, axis=1)
    repeated = np.pad(rows[:, 1:] == rows[:, :-1], [(0, 0), (1, 0)])
    return np.where(repeated, -1, rows)


def figures_of(ids, logits, labels):
    """Returns the means over the examples of the figures `OF_IDS`, without labels."""
    mean_logit, mass, rank = [], [], []
    for row_ids, row, row_labels in zip(ids, logits.astype(np.float64), labels, strict=True):
        row_labels = row_labels[row_labels >= 0]
        negatives = np.setdiff1d(row_ids[row_ids >= 0], row_labels)
        weights = np.exp(row - row.max())
        weights[row_labels] = 0.0
        others = np.sort(np.delete(row, row_labels))
        mean_logit.append(row[negatives].mean())
        mass.append(weights[negatives].sum() / weights.sum())
        higher = len(others) - np.searchsorted(others, row[negatives], side="right")
        rank.append(np.median(higher))
    means = [float(np.mean(values)) for values in (mean_logit, mass, rank)]
    return dict(zip(OF_IDS, means, strict=True))


def table(point):
    """Formats one point as lines of text."""
    lines = [f"{'':16}" + "".join(f"{figure:>17}" for figure in FIGURES)]
    for name, row in point["samplers"].items():
        lines.append(f"{name:16}" + "".join(f"{row[figure]:17,.4g}" for figure in FIGURES))
    return "\n".join(lines)


def _parser():
    parser = new_parser("negatives.hardness", __doc__)
    add = parser.add_argument
    add("--task", choices=tasks.TASKS, default="place_names")
    add("--samplers", nargs="+", choices=SAMPLERS, default=_DEFAULT_SAMPLERS)
    add("--num-sampled", type=int, default=1024)
    add("--seconds", type=float, default=60.0, help="training time")
    add("--points", type=int, default=6, help="how often to look")
    add("--sample", type=int, default=128, help="test examples to look with")
    add("--json", help="file for the figures")
    add("--png", default="benchmark-results/hardness.png", help="file for the picture")
    return parser


if __name__ == "__main__":
    main()
