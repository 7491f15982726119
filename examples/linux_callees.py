"""C function signature and path -> the functions it calls: 426,523 classes, several per row.

Fetches the Linux kernel's sources once (139 MB), trains, prints exact figures on functions of
the test split, saves the model and answers: give words that a function's signature or path has.

    python examples/linux_callees.py
    python examples/linux_callees.py --load linux_callees.keras "ext4 inode" "usb probe"
"""

import argparse

import keras

import tf_largeout as tflo

WORDS = ["usb probe", "ext4 inode", "tcp", "alloc page", "debugfs show"]


def build_model(data):
    by_frequency = tflo.samplers.UnigramSampler(counts=data.label_counts)
    return keras.Sequential(
        [
            keras.Input([data.max_features], dtype="int32"),  # words of signature and path
            tflo.layers.EmbeddingBag(data.vocabulary_size, 128),
            tflo.layers.LargeOutput(
                data.num_classes,
                sampler=tflo.samplers.InvertedFileSampler(1024, tail=by_frequency),
            ),
        ]
    )


def train(data, epochs):
    model = build_model(data)
    rate = keras.optimizers.schedules.PolynomialDecay(
        3e-3, decay_steps=epochs * len(data.train), end_learning_rate=0.0
    )
    model.compile(
        optimizer=tflo.optimizers.LazyAdam(rate),
        loss=tflo.losses.SampledSoftmaxLoss(),  # of several labels each has an equal share
        metrics=[tflo.metrics.PrecisionAtK(1), tflo.metrics.PrecisionAtK(5)],
        steps_per_execution=16,
    )
    # `data.train` shuffles by itself.
    model.fit(data.train, epochs=epochs, shuffle=False)
    return model


def answer(model, data, words):
    """Prints what the first function of the test split with all of the words may call."""
    index = find_test_example(data, words)
    if index is None:
        print(f"{words}: no function of the test split has all these words.")
        return
    ((ids, _),) = data.test.unbatch().skip(index).take(1).batch(1)
    *encoder, output = model.layers
    scores, classes = output.top_k(keras.Sequential(encoder)(ids), 5)
    print(data.test_text(index))
    for score, class_id in zip(scores.numpy()[0], classes.numpy()[0], strict=True):
        print(f"  {score:6.2f}  {data.class_text(class_id)}")


def find_test_example(data, words):
    """Number of the first test example that has all of the words; None if there is none."""
    for index in range(data.num_test):
        text = data.test_text(index).lower()
        if all(word in text for word in words.lower().split()):
            return index
    return None


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", default=WORDS, help="of a signature or path")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument(
        "--out", default="linux_callees.keras", help="file of the trained model"
    )
    parser.add_argument("--load", help="file of a trained model, which then only answers")
    options = parser.parse_args(arguments)
    data = tflo.datasets.load("linux_callees", batch_size=512)
    if options.load:
        model = keras.saving.load_model(options.load)
    else:
        model = train(data, options.epochs)
        print("Exact, on 5,120 functions of the test split:")
        model.evaluate(data.test.take(10))
        model.save(options.out)
    for words in options.words:
        answer(model, data, words)


if __name__ == "__main__":
    main()
