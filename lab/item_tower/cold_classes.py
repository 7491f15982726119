"""`python -m lab.item_tower.cold_classes`: precision on classes without training examples.

A tenth of the classes, drawn at random, have no training example: the cold classes. Examples
and classes are texts, encoded as hashed character n-grams. The program compares

* `tower`: class rows computed by an `ItemTower` from the texts of the classes;
* `tower, shared encoder`: the same, but one layer encodes the examples and the classes;
* `tower, 20 n-grams`: the first, with at most 20 n-grams of a class instead of 40;
* `tower, free rows`: the first, plus a trained row per class;
* `free rows`: an ordinary matrix, in which the cold classes keep their initial rows;
* `free rows from text`: the same, but the row of a class starts as the mean of vectors of its
  n-grams, and the encoder of the examples starts with these vectors too;
* `nearest text`: no model. It takes the class with the nearest text by TF-IDF of the n-grams.

All of them rank all classes. Test examples that equal the text of a class are left out. Each
run has its own process.
"""

import itertools

import keras
import numpy as np
import tensorflow as tf

from benchmarks.harness.evaluation import rank_figures
from benchmarks.harness.files import markdown
from benchmarks.harness.tasks import endless_batches
from benchmarks.rivals.examples import TfIdf
from lab import corpora
from lab.shared.command_line import new_parser
from lab.shared.figures import mean_and_deviation
from lab.shared.kept_runs import KeptRuns
from tf_largeout import layers, losses, optimizers, samplers
from tf_largeout.datasets import place_names
from tf_largeout.datasets.ragged import Ragged

# task -> (n-grams of an example, most labels of a training example, sampler)
TASKS = {
    "place_names": (40, 1, samplers.UniformSampler),
    "linux_callees": (160, 8, samplers.LogUniformSampler),
}
FREE, FROM_TEXT, TOWER = "free rows", "free rows from text", "tower"
SHARED, SHORT, SUM = (f"{TOWER}, {kind}" for kind in ("shared encoder", "20 n-grams", FREE))
MODELS = (TOWER, SHARED, SHORT, SUM, FREE, FROM_TEXT)
NEAREST = "nearest text"
_NGRAMS, _FEW_NGRAMS, _COLD_SHARE, _BEST, _BATCH = 40, 20, 0.1, 5, 512


class Problem:
    """Examples and classes of a task as n-grams. The cold classes have the highest ids.

    Attributes:
        train: int32 `[n, width]` n-grams, int64 `[n, max_labels]` warm labels, padded with -1.
        test: The same for the test split, with all labels.
        classes: int32 `[num_classes, 40]`, n-grams of the texts of the classes.
        num_warm: Number of classes that occur in `train`; the first ids.
        counts: int64 `[num_classes]`, training examples of each class.
    """

    def __init__(self, task, num_test):
        corpus = corpora.load(task, batch_size=1).corpus
        width, most_labels, _ = TASKS[task]
        texts = list(corpus.example_texts)
        names = [text.split(", ")[0] for text in corpus.class_texts]
        split = corpus.num_train
        seen = np.unique(corpus.labels.values[: corpus.labels.offsets[split]])
        pick = np.random.default_rng(0)
        cold = pick.choice(seen, int(_COLD_SHARE * len(seen)), replace=False)
        warm = np.setdiff1d(seen, cold)  # in order of their counts
        self.num_warm = len(warm)
        order = np.concatenate([warm, cold])  # classes of the test split alone are left out
        number = np.full(len(names), -1)
        number[order] = np.arange(len(order))
        labels = Ragged(number[corpus.labels.values], corpus.labels.offsets)

        kept = labels.take(np.arange(split))
        is_warm = (kept.values >= 0) & (kept.values < len(warm))
        kept = kept.filtered(is_warm)
        kept = kept.filtered(kept.places < most_labels).padded(most_labels, -1)
        rows = np.flatnonzero(kept[:, 0] >= 0)
        self.train = place_names.encode([texts[i] for i in rows], width), kept[rows]
        self.counts = np.bincount(kept[kept >= 0], minlength=len(order))

        rest = pick.permutation(np.arange(split, len(texts)))
        trivial = set(names)
        rest = [i for i in rest if texts[i] not in trivial][:num_test]
        labels = labels.take(np.array(rest))
        labels = labels.filtered(labels.values >= 0)
        labels = labels.padded(labels.lengths.max(), -1)
        self.test = place_names.encode([texts[i] for i in rest], width), labels
        self.classes = place_names.encode([names[i] for i in order], _NGRAMS)

    def figures(self, best):
        """Returns P@1 for all, warm and cold labels, and PSP@5, of classes `[examples, 5]`."""
        labels = self.test[1]
        known = labels.max(axis=1) >= 0
        found = {"psp5": self._rank(best, labels, known, self.counts)["psp5"]}
        kinds = {"warm": labels < self.num_warm, "cold": labels >= self.num_warm}
        for kind, of_kind in ({"all": labels >= 0} | kinds).items():
            of_kind = np.where(of_kind, labels, -1)
            found[f"p1_{kind}"] = self._rank(best, of_kind, of_kind.max(axis=1) >= 0)["p1"]
        return found

    def _rank(self, best, labels, rows, counts=None):
        return rank_figures(best[rows], labels[rows], counts, len(self.train[0]))


def train(task, name, seed, options):
    """Trains one model and returns its figures."""
    problem = Problem(task, options.num_test)
    model, rows, batches = new_model(problem, task, name, seed, options)
    model.fit(batches, steps_per_epoch=options.steps, shuffle=False, verbose=0)
    bag, head = model.layers
    all_rows = _all_rows(head, rows, class_ngrams(name, problem)[problem.num_warm :])
    found = problem.figures(_best(bag(problem.test[0]).numpy(), all_rows))
    return {"steps": options.steps, **found}


def new_model(problem, task, name, seed, options):
    """Returns a compiled model, what its class rows are made of, and training batches."""
    keras.utils.set_random_seed(seed)
    width, _, sampler = TASKS[task]
    bag = layers.EmbeddingBag(place_names.VOCABULARY_SIZE, options.dim)
    rows = _class_rows(name, problem, bag, options.dim)
    head = layers.LargeOutput(
        problem.num_warm,
        sampler(options.num_sampled, seed=seed),
        use_bias=False,
        **({"embeddings": rows} if isinstance(rows, layers.ItemTower) else {}),
        **({"embeddings_initializer": _first(rows)} if isinstance(rows, np.ndarray) else {}),
    )
    model = keras.Sequential([keras.Input([width], dtype="int32"), bag, head])
    rate = keras.optimizers.schedules.PolynomialDecay(1e-2, options.steps, 0.0)
    model.compile(optimizers.LazyAdam(rate), losses.SampledSoftmaxLoss())
    whole = len(problem.train[0]) // _BATCH * _BATCH
    train = (part[:whole] for part in problem.train)
    return model, rows, endless_batches(*train, _BATCH, seed)


def class_ngrams(name, problem):
    """Returns int `[num_classes, n]`, the n-grams of the classes that a model reads."""
    # They are in order of length: the longest ones are left out.
    return problem.classes[:, :_FEW_NGRAMS] if name == SHORT else problem.classes


def nearest(task, options):
    """Returns the figures of the classes whose texts are nearest to the examples by TF-IDF."""
    problem = Problem(task, options.num_test)
    classes = Ragged.from_padded(problem.classes, 0)
    weigh = TfIdf(classes, place_names.VOCABULARY_SIZE).weigh
    ids, weights = weigh(classes)
    places = np.stack([np.repeat(np.arange(len(ids)), ids.lengths), ids.values], axis=1)
    shape = [len(ids), place_names.VOCABULARY_SIZE]
    matrix = tf.SparseTensor(places, weights.astype(np.float32), shape)
    best = []
    for start in range(0, len(problem.test[0]), 64):
        block = problem.test[0][start : start + 64]
        ids, weights = weigh(Ragged.from_padded(block, 0))
        queries = np.zeros([shape[1], len(block)], np.float32)
        queries[ids.values, np.repeat(np.arange(len(block)), ids.lengths)] = weights
        scores = tf.transpose(tf.sparse.sparse_dense_matmul(matrix, queries))
        best.append(tf.math.top_k(scores, _BEST).indices.numpy())
    return problem.figures(np.concatenate(best).astype(np.int64))


def _class_rows(name, problem, bag, dim):
    """Returns an `ItemTower` for the warm classes, an array of all initial rows, or None."""
    if name.startswith(TOWER):
        own = layers.EmbeddingBag(place_names.VOCABULARY_SIZE, dim)
        features = class_ngrams(name, problem)[: problem.num_warm]
        return layers.ItemTower(features, bag if name == SHARED else own, name == SUM)
    if name == FREE:
        return None
    bag.build([None, problem.classes.shape[1]])
    blocks = range(0, len(problem.classes), 10_000)
    return np.concatenate([bag(problem.classes[i : i + 10_000]).numpy() for i in blocks])


def _first(rows):
    return lambda shape, dtype: rows[: shape[0]]


def _all_rows(head, rows, cold_features):
    """Returns the rows of all classes; cold classes without text keep rows of zeros."""
    warm = head.class_embeddings().numpy()
    if isinstance(rows, layers.ItemTower):
        cold = rows.encoder(cold_features).numpy()
    elif rows is None:
        cold = np.zeros([len(cold_features), warm.shape[1]], np.float32)
    else:
        cold = rows[len(warm) :]
    return np.concatenate([warm, cold])


def _best(queries, rows, block=128):
    """Returns ids `[queries, 5]` of the rows with the largest dot products."""
    return np.concatenate(
        [
            tf.math.top_k(queries[i : i + block] @ rows.T, _BEST).indices.numpy()
            for i in range(0, len(queries), block)
        ]
    ).astype(np.int64)


def table(runs, task):
    """Returns the figures of the runs of a task as Markdown, one line per model."""
    columns = {
        "p1_warm": "P@1, warm",
        "p1_cold": "P@1, cold",
        "p1_all": "P@1, all",
        "psp5": "PSP@5",
    }
    runs = [run for run in runs if run["task"] == task]
    rows = []
    for name in dict.fromkeys(run["model"] for run in runs):
        of_model = [run for run in runs if run["model"] == name]
        cells = ([run[key] for run in of_model if key in run] for key in columns)
        rows.append([name, *map(mean_and_deviation, cells)])
    return markdown([f"`{task}`", *columns.values()], rows)


def main(arguments=None):
    """Runs what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    sizes = ("steps", "dim", "num_sampled", "num_test")
    about = {name: getattr(options, name) for name in sizes}
    file = options.json or f"{options.out}/cold_classes.json"
    kept = KeptRuns(options.out, file, _line, **about)
    for task in options.tasks:
        if NEAREST in options.models:
            run = {"task": task, "model": NEAREST}
            kept.add(run.values(), run, nearest, task, options)
        trained = [name for name in options.models if name != NEAREST]
        for seed, name in itertools.product(options.seeds, trained):
            run = {"task": task, "model": name, "seed": seed}
            kept.add(run.values(), run, train, task, name, seed, options)
        print(table(kept.runs, task), flush=True)
    return kept.report


def _line(run):
    return f"P@1 {run['p1_warm']:.1f} warm, {run['p1_cold']:.1f} cold"


def _parser():
    parser = new_parser("item_tower.cold_classes", __doc__)
    add = parser.add_argument
    add("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    models = [NEAREST, *MODELS]
    add("--models", nargs="+", choices=models, default=models)
    add("--steps", type=int, default=4000)
    add("--dim", type=int, default=64)
    add("--num-sampled", type=int, default=1024)
    add("--num-test", type=int, default=5000, help="test examples of each task")
    add("--seeds", nargs="+", type=int, default=[0, 1, 2])
    add("--out", default="benchmark-results/cold_classes", help="directory of the figures")
    add("--json", help="file for the figures of all runs")
    return parser


if __name__ == "__main__":
    main()
