"""`python -m lab.vijayanarasimhan.analogies`: word vectors of a WTA softmax and of others.

Trains skipgram models on a dictionary, each for the same CPU time on one thread: the vector of
a word predicts another word at most five words away. Frequent words are dropped at random from
the text, as in Mikolov et al. 2013. Then the word vectors answer analogy questions ("king is to
queen as boy is to ...") by the word whose vector has the largest cosine with `b - a + c`, and
their cosines are compared with the similarities that people gave to pairs of words. Both
questions and pairs come from the wheel of gensim. This is the claim of section 4.2 of
Vijayanarasimhan et al. 2015 on analogies. Each run has its own process. Its figures are kept in
`--out`, so an interrupted series can be continued.
"""

import zipfile

import keras
import numpy as np

from benchmarks.harness.evaluation import evaluate
from benchmarks.harness.files import markdown
from benchmarks.harness.training import ENDLESS, Stopwatch, TrainingClock
from lab import corpora
from lab.shared import threads
from lab.shared.command_line import new_parser
from lab.shared.figures import mean_and_deviation
from lab.shared.kept_runs import KeptRuns
from lab.vincent.similarity import correlation, known_pairs, read_pairs
from tf_largeout.layers import HierarchicalOutput, HuffmanOutput, LargeOutput
from tf_largeout.losses import HierarchicalSoftmaxLoss, SampledSoftmaxLoss
from tf_largeout.optimizers import LazyAdam
from tf_largeout.samplers import LSHSampler, UnigramSampler

_QUESTIONS = "gensim/test/test_data/questions-words.txt"
_PAIRS = ("simlex999", "wordsim353")
_REACH = 5  # words on each side that a word may predict
_KEPT = 1e-4  # a word of frequency f is kept with probability sqrt(_KEPT / f)
_FOUND, _NEGATIVES = 128, 1024
_TABLES = {"hash": "wta", "bin_size": 16, "num_hashes": 3}
_TESTED = 4096
_BLOCK = 512  # questions, or test examples, whose scores are in memory at a time


def _wta(data):
    sampler = LSHSampler(_FOUND, form="frequent", tables=_TABLES)
    return LargeOutput(data.num_classes, sampler=sampler), SampledSoftmaxLoss()


def _sampled(data):
    sampler = UnigramSampler(_NEGATIVES, counts=data.label_counts)
    return LargeOutput(data.num_classes, sampler=sampler), SampledSoftmaxLoss()


def _hierarchical(data):
    return HierarchicalOutput(data.num_classes), HierarchicalSoftmaxLoss()


def _huffman(data):
    counts = np.maximum(data.label_counts, 1)
    return HuffmanOutput(data.num_classes, counts), HierarchicalSoftmaxLoss()


OUTPUTS = {
    "WTA softmax": _wta,
    "two-level tree": _hierarchical,
    "binary Huffman tree": _huffman,
    "1,024 negatives by frequency": _sampled,
}


def read_questions(wheel, ids):
    """Returns the analogy questions whose words are all in `ids`, and how many there are.

    Args:
        wheel: path of gensim's wheel.
        ids: dict of words, lower case, and their rows.

    Returns:
        Rows `[n, 4]` of a, b, c and the answer; bools `[n]`, whether a question is on grammar;
        and the number of all questions.
    """
    with zipfile.ZipFile(wheel) as archive:
        lines = archive.read(_QUESTIONS).decode().lower().splitlines()
    known, on_grammar, count = [], [], 0
    for line in lines:
        if line.startswith(":"):
            is_grammar = line[1:].strip().startswith("gram")
            continue
        count += 1
        words = line.split()
        if all(word in ids for word in words):
            known.append([ids[word] for word in words])
            on_grammar.append(is_grammar)
    return np.array(known).reshape(-1, 4), np.array(on_grammar, bool), count


def answered(questions, rows):
    """Returns bools `[n]`: whether the nearest other word of `b - a + c` is the answer.

    Args:
        questions: `[n, 4]`, of `read_questions`.
        rows: word vectors `[words, dim]`.
    """
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    right = []
    for start in range(0, len(questions), _BLOCK):
        own = questions[start : start + _BLOCK]
        a, b, c = (unit[own[:, place]] for place in range(3))
        scores = (b - a + c) @ unit.T
        np.put_along_axis(scores, own[:, :3], -np.inf, axis=1)
        right.append(scores.argmax(axis=1) == own[:, 3])
    return np.concatenate(right)


def examples(tokens, label_counts, count, seed):
    """Returns random words `[count, 1]` and, for each, a word at most `_REACH` away `[count]`.

    Args:
        tokens: the text `[words]`.
        label_counts: how often each word occurs, `[num_classes]`.
        count: number of examples.
        seed: of the words that are dropped, and of the examples.
    """
    rng = np.random.default_rng(seed)
    frequencies = np.maximum(label_counts, 1) / label_counts.sum()
    tokens = tokens[rng.random(len(tokens)) < np.sqrt(_KEPT / frequencies)[tokens]]
    centers = rng.integers(_REACH, len(tokens) - _REACH, size=count)
    offsets = rng.integers(1, _REACH + 1, size=count) * rng.choice([-1, 1], size=count)
    return tokens[centers][:, np.newaxis], tokens[centers + offsets]


def train(output, seed, options):
    """Trains one model; returns the scores of its word vectors, its exact loss and its costs.

    Args:
        output: key of `OUTPUTS`.
        seed: of weights, examples and negatives.
        options: the parsed command line.
    """
    threads.use_one()
    keras.utils.set_random_seed(seed)
    data = corpora.load(options.dataset, vocabulary_size=options.vocabulary)
    layer, loss = OUTPUTS[output](data)
    words = keras.layers.Embedding(data.num_classes, options.dim)
    parts = [keras.Input([1], dtype="int32"), words, keras.layers.Flatten(), layer]
    model, stopwatch = keras.Sequential(parts), Stopwatch()
    model.compile(LazyAdam(options.learning_rate), loss, steps_per_execution=16)
    clock = TrainingClock(
        options.seconds,
        options.seconds,
        lambda *_: {},
        stopwatch=stopwatch,
        by_cpu=True,
        anneal=1.0,
    )
    x, y = examples(data.train_tokens, data.label_counts, options.examples, seed)
    model.fit(x, y, options.batch_size, ENDLESS, callbacks=[clock], verbose=0)
    tested = examples(data.test_tokens, data.label_counts, _TESTED, seed=0)
    found = evaluate(model, *tested, batch_size=options.evaluated)
    return {
        "num_classes": data.num_classes,
        "trained_steps": int(model.optimizer.iterations),
        "cpu_seconds": stopwatch.cpu,
        "loss": found["loss"],
        **scores(np.asarray(words.embeddings), data, options.gensim_wheel),
    }


def scores(rows, data, wheel):
    """Returns the per cent of right analogies and the correlations of similarities, as a dict.

    Args:
        rows: word vectors `[words, dim]`.
        data: the text, for the words.
        wheel: path of gensim's wheel.
    """
    ids = {data.class_text(class_id): class_id for class_id in range(data.num_classes)}
    questions, on_grammar, count = read_questions(wheel, ids)
    right = answered(questions, rows)
    pairs = {name: known_pairs(read_pairs(wheel, name), ids) for name in _PAIRS}
    return {
        "all_questions": count,
        "questions": len(questions),
        "questions_on_grammar": int(on_grammar.sum()),
        "analogies": 100 * float(right.mean()),
        "analogies_on_grammar": 100 * float(right[on_grammar].mean()),
        "analogies_on_meaning": 100 * float(right[~on_grammar].mean()),
        **{name: correlation(own, rows) for name, own in pairs.items()},
    }


def main(arguments=None):
    """Runs what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    kept = KeptRuns(options.out, options.json or f"{options.out}/analogies.json", _line)
    names = ("dataset", "vocabulary", "seconds", "learning_rate", "batch_size")
    common = {name: getattr(options, name) for name in names}
    for seed in options.seeds:
        for output in options.outputs:
            settings = {"output": output, "seed": seed, **common}
            kept.add(["analogies", *settings.values()], settings, train, output, seed, options)
    print(table(kept.runs), flush=True)
    return kept.report


def table(runs):
    """Returns the runs as Markdown, one line per output: means over the seeds."""
    figures = {"trained_steps": 0, "loss": 2, "analogies": 1, "analogies_on_grammar": 1}
    figures |= {"analogies_on_meaning": 1, **dict.fromkeys(_PAIRS, 3)}
    lines = []
    for output in dict.fromkeys(run["output"] for run in runs):
        own = [run for run in runs if run["output"] == output]
        cells = [str(len(own))]
        for name, digits in figures.items():
            cells.append(mean_and_deviation([run[name] for run in own], digits))
        lines.append([output, *cells])
    return markdown(["output", "seeds", *figures], lines)


def _line(run):
    return (
        f"{run['trained_steps']} steps, loss {run['loss']:.2f}, "
        f"analogies {run['analogies']:.1f} %, SimLex {run['simlex999']:.3f}"
    )


def _parser():
    parser = new_parser("vijayanarasimhan.analogies", __doc__)
    add = parser.add_argument
    add("--gensim-wheel", required=True, help="file: pip download --no-deps gensim")
    add("--dataset", default="gcide")
    add("--vocabulary", type=int, default=20_000, help="words")
    add("--outputs", nargs="+", choices=OUTPUTS, default=list(OUTPUTS))
    add("--seconds", type=float, default=120.0, help="CPU time of a training")
    add("--examples", type=int, default=8_000_000, help="different examples of training")
    add("--learning-rate", type=float, default=5e-3, help="falls to zero")
    add("--batch-size", type=int, default=512)
    add("--dim", type=int, default=100, help="width of the word vectors")
    add("--evaluated", type=int, default=64, help="test examples scored at a time")
    add("--seeds", nargs="+", type=int, default=[0])
    add("--out", default="benchmark-results/vijayanarasimhan", help="directory of the figures")
    add("--json", help="file for the figures of all runs")
    return parser


if __name__ == "__main__":
    main()
