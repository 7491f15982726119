"""Learns word embeddings by predicting the middle word of five, among 102,059 words.

The task is that of Vincent et al. 2015, "Exact gradient updates in time independent of output
size for the spherical loss family", on a dictionary. Downloads the text once, trains, prints
exact metrics on the test split, saves the model and prints similar words. Run it in the
root of a clone:

    python -m examples.word_embeddings
    python -m examples.word_embeddings --output sampled
    python -m examples.word_embeddings --load word_embeddings.keras red seven
"""

import argparse
import time

import keras
import numpy as np

import tf_largeout as tflo
from lab import corpora

ENGLISH = ["red", "seven", "river", "king", "london", "small"]
WORDS = {"gcide": ENGLISH, "brown": ENGLISH, "linux_tokens": ["int", "kfree", "goto", "dev"]}
SIDE = 2  # Neighbours on each side.
WIDTH = 300  # Of the output layer's input, as in the paper.
NEGATIVES = 1024
COMMON = 20_000  # Words to compare. The embeddings of rarer words are hardly trained.


def factored(data, rate):
    """Computes the exact gradient of all classes. The layer has its own learning rate."""
    layer = tflo.layers.FactoredOutput(data.num_classes, rate(2000.0))
    return layer, tflo.losses.TaylorSoftmaxLoss()


def sampled(data, rate):
    sampler = tflo.samplers.UnigramSampler(NEGATIVES, counts=data.label_counts)
    layer = tflo.layers.LargeOutput(data.num_classes, sampler=sampler)
    return layer, tflo.losses.SampledSoftmaxLoss()


def hierarchical(data, rate):
    layer = tflo.layers.HierarchicalOutput(data.num_classes)  # Clusters of similar frequency.
    return layer, tflo.losses.HierarchicalSoftmaxLoss()


def softmax(data, rate):
    return tflo.layers.LargeOutput(data.num_classes), tflo.losses.SoftmaxLoss()


OUTPUTS = {f.__name__: f for f in (factored, sampled, hierarchical, softmax)}


def windows(tokens, count):
    """Returns neighbours `[count, 2 * SIDE]` and middle words `[count]` of random windows."""
    starts = np.random.default_rng(0).integers(len(tokens) - 2 * SIDE, size=count)
    words = tokens[starts[:, None] + np.arange(2 * SIDE + 1)]
    return np.delete(words, SIDE, axis=1), words[:, SIDE]


def train(data, output, steps, batch_size):
    def rate(start):
        return keras.optimizers.schedules.PolynomialDecay(start, steps, end_learning_rate=0.0)

    layer, loss = OUTPUTS[output](data, rate)
    model = keras.Sequential(
        [
            keras.Input([2 * SIDE], dtype="int32"),
            keras.layers.Embedding(data.num_classes, 100),
            keras.layers.Flatten(),
            keras.layers.Dense(WIDTH, "relu"),
            layer,
        ]
    )
    model.compile(
        optimizer=tflo.optimizers.LazyAdam(rate(2e-3)),
        loss=loss,
        metrics=[tflo.metrics.PrecisionAtK(1), tflo.metrics.RecallAtK(10)],
        steps_per_execution=16,
    )
    model.fit(*windows(data.train_tokens, steps * batch_size), batch_size=batch_size)
    return model


def print_similar(model, data, words):
    """Prints the words whose input embeddings have the largest cosine similarity to `words`."""
    ids = {data.class_text(class_id): class_id for class_id in range(data.num_classes)}
    vectors = np.asarray(model.layers[0].embeddings[:COMMON])
    vectors = keras.utils.normalize(vectors, axis=-1)
    for word in words:
        if ids.get(word, COMMON) >= COMMON:
            print(f"{word}: not among the {COMMON:,} most frequent words.")
            continue
        cosines = vectors @ vectors[ids[word]]
        best = np.argsort(-cosines)[1:8]  # Without the word itself.
        print(f"{word}:", ", ".join(f"{data.class_text(i)} {cosines[i]:.2f}" for i in best))


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="words to find similar words for")
    parser.add_argument("--dataset", default="gcide", choices=WORDS)
    parser.add_argument("--output", default="factored", choices=OUTPUTS)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--out", default="word_embeddings.keras", help="file of the model")
    parser.add_argument("--load", help="file of a trained model, to skip the training")
    options = parser.parse_args(arguments)
    data = corpora.load(options.dataset)
    if options.load:
        model = keras.saving.load_model(options.load)
    else:
        start = time.perf_counter()
        model = train(data, options.output, options.steps, options.batch_size)
        seconds = time.perf_counter() - start
        print(f"{options.output}: {options.steps} steps in {seconds:.0f} s")
        print("Exact, on 8,192 windows of the test split:")
        model.evaluate(*windows(data.test_tokens, 8192), batch_size=512)
        model.save(options.out)
    print_similar(model, data, options.words or WORDS[options.dataset])


if __name__ == "__main__":
    main()
