"""Predicts the functions that a C function calls: 426,523 classes, several per example.

Downloads the Linux kernel's sources once (139 MB), trains, prints exact metrics on functions of
the test split, and saves the model. Then it prints predictions for functions whose signature or
path contains given words. Run it in the root of a clone:

    python -m examples.linux_callees
    python -m examples.linux_callees --load linux_callees.keras "ext4 inode" "usb probe"
"""

import argparse

import keras

import tf_largeout as tflo
from lab import corpora

WORDS = ["usb probe", "ext4 inode", "tcp", "alloc page", "debugfs show"]
WIDTH, PAIRS_PER_WORD = 256, 6


def build_model(data):
    num_words, num_pairs = data.vocabulary_size, PAIRS_PER_WORD * data.vocabulary_size
    words = keras.Input([data.max_features], dtype="int32")  # Of the signature and the path.
    ids = tflo.layers.HashedBigrams(num_words, num_pairs)(words)
    features = tflo.layers.EmbeddingBag(num_words + num_pairs, WIDTH)(ids)
    block = keras.layers.Dense(WIDTH, activation="relu")(features)
    by_frequency = tflo.samplers.UnigramSampler(counts=data.label_counts)
    output = tflo.layers.LargeOutput(
        data.num_classes,
        sampler=tflo.samplers.InvertedFileSampler(1024, tail=by_frequency),
    )
    return keras.Model(words, output(keras.layers.add([features, block])))


def train(data, epochs):
    model = build_model(data)
    rate = keras.optimizers.schedules.PolynomialDecay(
        3e-3, decay_steps=epochs * len(data.train), end_learning_rate=0.0
    )
    model.compile(
        optimizer=tflo.optimizers.LazyAdam(rate),
        loss=tflo.losses.DecoupledSoftmaxLoss(),  # The labels of an example do not compete.
        metrics=[tflo.metrics.PrecisionAtK(1), tflo.metrics.PrecisionAtK(5)],
        steps_per_execution=16,
    )
    # `data.train` is shuffled already.
    model.fit(data.train, epochs=epochs, shuffle=False)
    return model


def print_callees(model, data, words):
    """Prints the predicted callees of the first test function that has all of the words."""
    index = find_test_example(data, words)
    if index is None:
        print(f"{words}: no function of the test split has all these words.")
        return
    ((ids, _),) = data.test.unbatch().skip(index).take(1).batch(1)
    output = model.layers[-1]
    encoder = keras.Model(model.input, output.input)
    scores, classes = output.top_k(encoder(ids), 5)
    print(data.test_text(index))
    for score, class_id in zip(scores.numpy()[0], classes.numpy()[0], strict=True):
        print(f"  {score:6.2f}  {data.class_text(class_id)}")


def find_test_example(data, words):
    """Returns the index of the first test example that has all of the words, or None."""
    for index in range(data.num_test):
        text = data.test_text(index).lower()
        if all(word in text for word in words.lower().split()):
            return index
    return None


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", default=WORDS, help="words of a signature or path")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument(
        "--out", default="linux_callees.keras", help="file of the trained model"
    )
    parser.add_argument("--load", help="file of a trained model, to skip the training")
    options = parser.parse_args(arguments)
    data = corpora.load("linux_callees", batch_size=512)
    if options.load:
        model = keras.saving.load_model(options.load)
    else:
        model = train(data, options.epochs)
        print("Exact, on 5,120 functions of the test split:")
        model.evaluate(data.test.take(10))
        model.save(options.out)
    for words in options.words:
        print_callees(model, data, words)


if __name__ == "__main__":
    main()
