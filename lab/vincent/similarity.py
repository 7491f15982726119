"""`python -m lab.vincent.similarity`: similar-word scores of word embeddings against CPU time.

Trains the models of `examples/word_embeddings.py` on a dictionary, each for the same processor
time. Compares the cosines of the input embeddings with the similarities that people gave to
pairs of words, by Spearman's rank correlation: SimLex-999 and WordSim-353, from the wheel of
gensim. This is the comparison of Vincent et al. 2015, figure 3 (right).
"""

import importlib.util
import pathlib
import time
import zipfile

import keras
import numpy as np

from benchmarks.harness import machine
from lab import corpora
from lab.shared.command_line import new_parser
from lab.shared.kept_runs import KeptRuns
from tf_largeout import optimizers

_EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "word_embeddings.py"
_FILES = {"simlex999": "simlex999.txt", "wordsim353": "wordsim353.tsv"}
_OUTPUTS = ("factored", "sampled", "hierarchical", "softmax")
_WARM_UP = 2  # steps, with the traces


def example():
    """Returns the module `examples/word_embeddings.py`."""
    spec = importlib.util.spec_from_file_location("word_embeddings_example", _EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_pairs(wheel, name):
    """Returns the pairs of words, lower case, and their similarities by people.

    Args:
        wheel: path of gensim's wheel.
        name: key of `_FILES`.
    """
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"gensim/test/test_data/{_FILES[name]}").decode()
    rows = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    return [(a.lower(), b.lower(), float(score)) for a, b, score in rows]


def known_pairs(pairs, ids):
    """Returns the pairs as rows of a table, without pairs of which a word is not in `ids`.

    Args:
        pairs: of `read_pairs`.
        ids: dict of words and their rows.

    Returns:
        Arrays `[n]`: first rows, second rows, and similarities.
    """
    known = [(ids[a], ids[b], score) for a, b, score in pairs if a in ids and b in ids]
    return tuple(map(np.array, zip(*known, strict=True)))


def correlation(pairs, rows):
    """Returns Spearman's correlation of cosines and similarities.

    Args:
        pairs: of `known_pairs`.
        rows: `[words, dim]`.
    """
    first, second, scores = pairs
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    cosines = (unit[first] * unit[second]).sum(axis=1)
    return float(np.corrcoef(ranks(cosines), ranks(scores))[0, 1])


def ranks(values):
    """Returns the ranks of values, from 0; equal values have the mean of their ranks."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts + 1) / 2)[which]


class _Clock(keras.callbacks.Callback):
    """Lowers the rates to zero over the processor time of training, and scores in between."""

    def __init__(self, seconds, points, score):
        super().__init__()
        self._seconds, self._every, self._score = seconds, seconds / points, score
        self.points, self._spent, self._steps = [], 0.0, 0

    def on_train_batch_begin(self, batch, logs=None):
        self._start = time.process_time()

    def on_train_batch_end(self, batch, logs=None):
        self._steps += 1
        if self._steps <= _WARM_UP:
            return
        self._spent += time.process_time() - self._start
        rest = max(0.0, 1 - self._spent / self._seconds)
        for owner, rate in self._rates:
            owner.learning_rate = max(rate * rest, 1e-9)
        if self._spent >= self._every * (len(self.points) + 1):
            found = self._score(self.model)
            self.points.append({"cpu_seconds": self._spent, "steps": self._steps, **found})
        self.model.stop_training = rest == 0

    def on_train_begin(self, logs=None):
        owners = [self.model.optimizer, self.model.layers[-1]]
        owners = [owner for owner in owners if hasattr(owner, "learning_rate")]
        self._rates = [(owner, float(owner.learning_rate)) for owner in owners]


def train(output, seed, options):
    """Returns scores of one model during training.

    Args:
        output: one of `_OUTPUTS`.
        seed: of weights and negatives.
        options: the parsed command line.
    """
    machine.use("cpu", 1)
    keras.utils.set_random_seed(seed)
    module = example()
    data = corpora.load(options.dataset, vocabulary_size=options.vocabulary)
    ids = {data.class_text(class_id): class_id for class_id in range(data.num_classes)}
    pairs = {name: known_pairs(read_pairs(options.gensim_wheel, name), ids) for name in _FILES}

    def score(model):
        rows = np.asarray(model.layers[0].embeddings)
        return {name: correlation(pairs[name], rows) for name in _FILES}

    layer, loss = module.OUTPUTS[output](data, lambda start: start)
    model = keras.Sequential(
        [
            keras.Input([2 * module.SIDE], dtype="int32"),
            keras.layers.Embedding(data.num_classes, 100),
            keras.layers.Flatten(),
            keras.layers.Dense(module.WIDTH, "relu"),
            layer,
        ]
    )
    model.compile(optimizers.LazyAdam(2e-3), loss)
    clock = _Clock(options.seconds, options.points, score)
    x, y = module.windows(data.train_tokens, options.windows)
    model.fit(x, y, options.batch_size, 1000, callbacks=[clock], verbose=0)
    return {
        "output": output,
        "seed": seed,
        "num_classes": data.num_classes,
        "pairs": {name: len(pairs[name][0]) for name in _FILES},
        "points": clock.points,
    }


def main(arguments=None):
    """Runs what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    kept = KeptRuns(options.out, options.json or f"{options.out}/similarity.json", _line)
    for seed in options.seeds:
        for output in options.outputs:
            words = [output, options.dataset, options.vocabulary, options.seconds, seed]
            kept.add(words, {}, train, output, seed, options)
    return kept.report


def _line(run):
    last = run["points"][-1]
    return ", ".join(f"{key} {value:.3f}" for key, value in last.items())


def _parser():
    parser = new_parser("vincent.similarity", __doc__)
    add = parser.add_argument
    add("--gensim-wheel", required=True, help="file: pip download --no-deps gensim")
    add("--dataset", default="gcide")
    add("--vocabulary", type=int, default=20_000, help="words")
    add("--outputs", nargs="+", choices=_OUTPUTS, default=list(_OUTPUTS))
    add("--windows", type=int, default=9_000_000, help="different examples of training")
    add("--seconds", type=float, default=480.0, help="of processor time per run")
    add("--points", type=int, default=6, help="scores per run")
    add("--batch-size", type=int, default=512)
    add("--seeds", type=int, nargs="+", default=[1, 2, 3])
    add("--out", default="benchmark-results/similarity", help="directory of the figures")
    add("--json", help="file for the figures of all runs")
    return parser


if __name__ == "__main__":
    main()
