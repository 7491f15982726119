"""Predicts the next word of a text with an LSTM, from 10,000 words or over a million tokens.

Downloads the text once, trains, prints the exact perplexity on the test split, saves the model
and continues texts. Run it in the root of a clone:

    python -m examples.language_model
    python -m examples.language_model --tied --sampler uniform
    python -m examples.language_model --load language_model.keras "the president of the"
"""

import argparse

import keras
import numpy as np

import tf_largeout as tflo
from lab import corpora

TEXTS = ["the president of the", "she looked at", "in the"]
WIDTH = 200  # of the embeddings and the LSTM, as in Blanc & Rendle 2018
SAMPLERS = {
    "unigram": lambda data, count: tflo.samplers.UnigramSampler(count, data.label_counts),
    "log_uniform": lambda data, count: tflo.samplers.LogUniformSampler(count),
    "uniform": lambda data, count: tflo.samplers.UniformSampler(count),
    "inverted_file": lambda data, count: tflo.samplers.InvertedFileSampler(
        count, tail=tflo.samplers.UnigramSampler(counts=data.label_counts)
    ),
    "none": lambda data, count: None,  # the exact softmax over all classes, for comparison
}


def build_model(data, sampler, tied=False):
    words = keras.layers.Embedding(data.num_classes, WIDTH)
    return keras.Sequential(
        [
            keras.Input([None], dtype="int32"),
            words,
            keras.layers.LSTM(WIDTH, return_sequences=True),
            keras.layers.Dropout(0.2),
            tflo.layers.LargeOutput(
                data.num_classes, sampler=sampler, embeddings=words if tied else None
            ),
        ]
    )


def train(data, sampler, epochs, tied=False, learning_rate=4e-3):
    model = build_model(data, sampler, tied)
    rate = keras.optimizers.schedules.PolynomialDecay(
        learning_rate, decay_steps=epochs * len(data.train), end_learning_rate=0.0
    )
    exact = tflo.losses.SoftmaxLoss()
    model.compile(
        optimizer=tflo.optimizers.LazyAdam(rate, global_clipnorm=1.0),
        loss=tflo.losses.SampledSoftmaxLoss() if sampler else exact,
        metrics=[tflo.metrics.Perplexity()],  # `fit` computes it for the validation split only.
    )
    # `data.train` is shuffled already.
    model.fit(data.train, validation_data=data.validation, epochs=epochs, shuffle=False)
    return model


def continue_texts(model, data, texts):
    """Prints the words that most likely follow each text."""
    ids = {data.class_text(class_id): class_id for class_id in range(data.num_classes)}
    *encoder, output = model.layers
    for text in texts:
        words = [ids.get(word, data.unknown_id) for word in text.lower().split()]
        features = keras.Sequential(encoder)(np.array([words], np.int32))
        scores, classes = output.top_k(features[:, -1], 5)
        print(text)
        for score, class_id in zip(scores.numpy()[0], classes.numpy()[0], strict=True):
            print(f"  {score:6.2f}  {data.class_text(class_id)}")


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", nargs="*", default=TEXTS, help="texts to continue")
    parser.add_argument("--dataset", default="brown")
    parser.add_argument("--vocabulary", type=int, help="number of classes; optional")
    parser.add_argument("--sampler", default="unigram", choices=SAMPLERS)
    parser.add_argument("--num-sampled", type=int, default=1024)
    parser.add_argument("--tied", action="store_true", help="one table for input and output")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=4e-3)
    parser.add_argument("--out", default="language_model.keras", help="file of the model")
    parser.add_argument("--load", help="file of a trained model, to skip the training")
    options = parser.parse_args(arguments)
    data = corpora.load(
        options.dataset,
        batch_size=options.batch_size,
        vocabulary_size=options.vocabulary,
        validation_fraction=0.05,
    )
    if options.load:
        model = keras.saving.load_model(options.load)
        num_classes = model.layers[-1].num_classes
        if num_classes != data.num_classes:
            parser.error(
                f"{options.load} has {num_classes:,} classes, but the data have "
                f"{data.num_classes:,}. Pass the --dataset and --vocabulary of its training."
            )
    else:
        sampler = SAMPLERS[options.sampler](data, options.num_sampled)
        model = train(data, sampler, options.epochs, options.tied, options.learning_rate)
        print("Exact, on the test split:")
        model.evaluate(data.test)
        model.save(options.out)
    continue_texts(model, data, options.texts)


if __name__ == "__main__":
    main()
