"""`python -m lab.barber_botev.likelihood`: distance of sampled losses to the exact likelihood.

The experiments of Barber and Botev 2016, figures 1 and 2. All methods, exact maximum likelihood
included, start from the same weights and use the same batches. After each epoch, or part of an
epoch, it reports:

* `log_likelihood`: of the labels, under the softmax over all classes, mean over the examples;
* `from_exact`: mean absolute difference between the class probabilities of the model and
  those of exact maximum likelihood after the same number of steps;
* `from_true`: the same difference to the model from which the labels were drawn, if there is
  one.

Methods that estimate the likelihood use the learning rate of the exact method, as in the paper.
The others, or all with `--own-rates`, use the best rate of a grid by log likelihood, found with
another draw of the problem. BlackOut's exponent is found in the same way, with the rate.
"""

import dataclasses
import itertools

import keras
import numpy as np
import tensorflow as tf
from tqdm import tqdm

from benchmarks.harness import machine
from benchmarks.harness.files import write_json
from lab.barber_botev.problems import PROBLEMS
from lab.shared.command_line import new_parser
from lab.shared.plots import draw_likelihood
from tf_largeout import losses, samplers

FIGURES = ("log_likelihood", "from_exact", "from_true")
_GRID = (1 / 30, 1 / 10, 1 / 3, 1.0, 3.0, 10.0)


@dataclasses.dataclass(frozen=True)
class Estimator:
    """A loss and where its negatives come from.

    Attributes:
        title: name in tables and figures.
        loss: function without arguments that creates the loss.
        sampler: function of (number, counts, exponent) that creates the sampler, or None.
        is_likelihood: whether the loss estimates the exact one.
        exponents: powers of the frequency to draw by, of which the best is used.
    """

    title: str
    loss: object
    sampler: object = None
    is_likelihood: bool = False
    exponents: tuple = (1.0,)


class ObservedClassesOnly(losses.BernoulliNormalizationLoss):
    """Updates only the rows of the labels of the batch (paper, section 2.1.3).

    Drawn classes count in the sum, but their logits have no gradient. So neither have the
    features from them, which is right only if the features are constants, as in softmax
    regression.
    """

    def __init__(self):
        super().__init__(complement="batch")

    def candidate_losses(self, candidates):
        labels, drawn = candidates.samples
        products, biases = map(tf.stop_gradient, (drawn.products, drawn.biases))
        drawn = drawn._replace(products=products, biases=biases)
        return super().candidate_losses(candidates._replace(samples=(labels, drawn)))


def _by_frequency(number, counts, exponent):
    options = {"distortion": exponent, "unique": False}
    return samplers.UnigramSampler(number, counts=counts, **options)


def _bernoulli(number, counts, _exponent):
    return samplers.BernoulliSampler(number, counts=counts)


def _uniform(number, _counts, _exponent):
    return samplers.UniformSampler(number, unique=False)


ESTIMATORS = {
    "exact": Estimator("exact maximum likelihood", losses.SoftmaxLoss, is_likelihood=True),
    "importance": Estimator(
        "importance normalisation", losses.ImportanceNormalizationLoss, _by_frequency, True
    ),
    "importance_batch": Estimator(
        "importance normalisation, all labels of the batch",
        lambda: losses.ImportanceNormalizationLoss(complement="batch"),
        _by_frequency,
        True,
    ),
    "bernoulli": Estimator(
        "Bernoulli normalisation", losses.BernoulliNormalizationLoss, _bernoulli, True
    ),
    "bernoulli_batch": Estimator(
        "Bernoulli normalisation, all labels of the batch",
        lambda: losses.BernoulliNormalizationLoss(complement="batch"),
        _bernoulli,
        True,
    ),
    "bernoulli_observed": Estimator(
        "Bernoulli normalisation, updates of the labels of the batch only",
        ObservedClassesOnly,
        _bernoulli,
        True,
    ),
    "blackout": Estimator("BlackOut", losses.BlackOutLoss, _by_frequency),
    "blackout_tuned": Estimator(
        "BlackOut, tuned exponent",
        losses.BlackOutLoss,
        _by_frequency,
        exponents=(0.0, 0.25, 0.5, 0.75, 1.0),
    ),
    "nce": Estimator("NCE", losses.NCELoss, _by_frequency),
    "negative_sampling": Estimator(
        "negative sampling",
        lambda: losses.NegativeSamplingLoss(negative_reduction="mean"),
        _uniform,
    ),
    "ranking": Estimator("ranking, margin log(N - 1)", losses.RankingLoss, _uniform),
    "ranking_1": Estimator("ranking, margin 1", lambda: losses.RankingLoss(1.0), _uniform),
    "ranking_0": Estimator("ranking, margin 0", lambda: losses.RankingLoss(0.0), _uniform),
    "hinge": Estimator(
        "ranking, hinge, margin 1", lambda: losses.RankingLoss(form="hinge"), _uniform
    ),
}


def main(arguments=None):
    """Trains as the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    make = PROBLEMS[options.problem]
    tuning = make(options.seeds[0] - 1, options.epochs)
    names = ["exact", *(name for name in options.estimators if name != "exact")]
    settings, tried = {}, {}
    for name in tqdm(names, desc="learning rates", unit="method"):
        is_fixed = ESTIMATORS[name].is_likelihood and not options.own_rates
        grid = (1.0,) if is_fixed else options.grid
        found = best_setting(tuning, ESTIMATORS[name], options.num_sampled, grid)
        settings[name], tried[name] = found
    rates = {name: rate for name, (rate, _) in settings.items()}
    exponents = {name: exponent for name, (_, exponent) in settings.items()}
    runs, uniform = [], []
    for seed in tqdm(options.seeds, desc=options.problem, unit="seed"):
        problem, exact = make(seed, options.epochs), None
        uniform.append(uniform_from_true(problem))
        for name in names:
            found = train(problem, ESTIMATORS[name], options.num_sampled, *settings[name])
            exact = exact or found
            points = [figures(problem, *pair) for pair in zip(found, exact, strict=True)]
            runs.append({"estimator": name, "seed": seed, "points": points})
            report = {"machine": machine.describe(), **vars(options), "rates": rates}
            report |= {"exponents": exponents, "tried": tried}
            report |= {"uniform_from_true": uniform, "runs": runs}
            if options.json:
                write_json(options.json, report)
    titles = {name: estimator.title for name, estimator in ESTIMATORS.items()}
    draw_likelihood(runs, titles, options.png, options.problem, tuning.points_per_epoch)
    print(table(runs, rates), f"\nThe picture is {options.png}.", sep="\n")
    return report


def best_setting(problem, estimator, num_sampled, grid):
    """Returns the setting with the highest log likelihood at the end of the training.

    Args:
        problem: A `Problem`.
        estimator: An `Estimator`.
        num_sampled: Negatives per batch.
        grid: Factors of the problem's rate.

    Returns:
        `(setting, tried)`: rate and exponent; and a list of the rate, the exponent and the log
        likelihood (None if not finite) of each setting, empty if there is only one.
    """
    rates = [problem.learning_rate * factor for factor in grid]
    choices = list(itertools.product(rates, estimator.exponents))
    if len(choices) == 1:
        return choices[0], []

    def reached(setting):
        found = train(problem, estimator, num_sampled, *setting)[-1]
        value = _log_likelihood(problem, found)
        return value if np.isfinite(value) else None

    tried = [(*setting, reached(setting)) for setting in choices]
    best = max(tried, key=lambda one: -np.inf if one[-1] is None else one[-1])
    return best[:2], tried


def train(problem, estimator, num_sampled, rate, exponent=1.0):
    """Returns the log probabilities of `problem.looked_at` at each point of the training."""
    keras.utils.set_random_seed(problem.seed)
    counts = problem.label_counts
    sampler = estimator.sampler and estimator.sampler(num_sampled, counts, exponent)
    model = problem.model(sampler)
    model.compile(problem.optimizer(rate), estimator.loss())
    found = []
    for epoch in range(problem.epochs):
        order = np.random.default_rng([problem.seed, epoch]).permutation(len(problem.labels))
        for part in np.array_split(order, problem.points_per_epoch):
            x, y = problem.inputs[part], problem.labels[part]
            model.fit(x, y, batch_size=problem.batch_size, shuffle=False, verbose=0)
            logits = model.predict(problem.looked_at, verbose=0)
            found.append(tf.nn.log_softmax(logits).numpy())
    return found


def figures(problem, log_probabilities, exact):
    """Returns the `FIGURES` of one point."""
    probabilities = np.exp(log_probabilities)
    values = [_log_likelihood(problem, log_probabilities), _distance(probabilities, exact)]
    if problem.true_log_probabilities is not None:
        values.append(_distance(probabilities, problem.true_log_probabilities))
    return dict(zip(FIGURES, values, strict=False))


def uniform_from_true(problem):
    """Returns the figure `from_true` of equal probabilities, or None without a true model."""
    if problem.true_log_probabilities is None:
        return None
    equal = np.full_like(problem.true_log_probabilities, 1 / len(problem.label_counts))
    return _distance(equal, problem.true_log_probabilities)


def _log_likelihood(problem, log_probabilities):
    labels = problem.labels_looked_at
    return float(np.mean(log_probabilities[np.arange(len(labels)), labels]))


def _distance(probabilities, log_probabilities):
    return float(np.mean(np.abs(probabilities - np.exp(log_probabilities))))


def table(runs, rates):
    """Formats the last points as lines of text, with mean and spread over the seeds."""
    found = [figure for figure in FIGURES if figure in runs[0]["points"][-1]]
    lines = [f"{'':52}{'rate':>8}" + "".join(f"{figure:>24}" for figure in found)]
    for name in dict.fromkeys(run["estimator"] for run in runs):
        mine = [run for run in runs if run["estimator"] == name]
        cells = []
        for figure in found:
            values = [run["points"][-1][figure] for run in mine]
            cells.append(f"{np.mean(values):15.4g} ±{np.ptp(values) / 2:7.2g}")
        lines.append(f"{ESTIMATORS[name].title:52}{rates[name]:8.3g}" + "".join(cells))
    return "\n".join(lines)


def _parser():
    parser = new_parser("barber_botev.likelihood", __doc__)
    add = parser.add_argument
    add("--problem", choices=PROBLEMS, default="toy")
    add("--estimators", nargs="+", choices=ESTIMATORS, default=list(ESTIMATORS))
    add("--num-sampled", type=int, default=20, help="negatives per batch")
    add("--epochs", type=int, default=20)
    add("--seeds", type=int, nargs="+", default=[1, 2, 3])
    add("--grid", type=float, nargs="+", default=_GRID, help="factors of the problem's rate")
    add("--own-rates", action="store_true", help="tune estimates of the likelihood too")
    add("--json", help="file for the figures")
    add("--png", default="benchmark-results/likelihood.png", help="file for the picture")
    return parser


if __name__ == "__main__":
    main()
