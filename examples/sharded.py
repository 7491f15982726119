"""Place names again, with the 202,458 classes in shards on servers: here two, on this machine.

Starts the servers, trains in plain `fit` with the class rows and their optimizer state on them,
prints exact figures on names of the test split, and saves a file that one machine reads.

    python examples/sharded.py
    python examples/sharded.py --servers 10.0.0.1:4711 10.0.0.2:4711

With `--servers` the shards are on servers that run already, each started on its machine by
`python -m tf_largeout.distribute.server --host 10.0.0.1 --port 4711`.
"""

import argparse
import contextlib

import keras

import tf_largeout as tflo
from tf_largeout.distribute.local_servers import local_servers


def build_model(data, num_shards):
    by_frequency = tflo.samplers.UnigramSampler(1024, counts=data.label_counts)
    return keras.Sequential(
        [
            keras.Input([data.max_features], dtype="int32"),  # hashed n-grams of characters
            tflo.layers.EmbeddingBag(data.vocabulary_size, 128),  # stays here
            tflo.layers.LargeOutput(
                data.num_classes,
                sampler=tflo.samplers.InvertedFileSampler(1024, tail=by_frequency),
                num_shards=num_shards,
            ),
        ]
    )


def train(data, num_shards, epochs):
    model = build_model(data, num_shards)
    rate = keras.optimizers.schedules.PolynomialDecay(
        1e-2, decay_steps=epochs * len(data.train), end_learning_rate=0.0
    )
    model.compile(
        optimizer=tflo.optimizers.LazyAdam(rate),
        loss=tflo.losses.SampledSoftmaxLoss(),
        metrics=[tflo.metrics.PrecisionAtK(1), tflo.metrics.PrecisionAtK(5)],
        steps_per_execution=16,
    )
    model.fit(data.train, epochs=epochs, shuffle=False)  # `data.train` shuffles by itself
    return model


@contextlib.contextmanager
def servers_of(options):
    """The addresses of the command line, or those of servers made for this run."""
    if options.servers:
        yield options.servers
        return
    with local_servers(2) as servers:
        print("Two servers of this machine:", ", ".join(server.address for server in servers))
        yield [server.address for server in servers]


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--servers", nargs="*", help="addresses of servers that run already")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--out", default="sharded.keras", help="file of the trained model")
    options = parser.parse_args(arguments)
    data = tflo.datasets.load("place_names", batch_size=512)
    with servers_of(options) as addresses:
        tflo.distribute.connect(addresses)  # before the model is built
        model = train(data, len(addresses), options.epochs)
        for weight in model.layers[-1].trainable_weights:
            print(f"{weight.name:14} {tuple(weight.shape)} on {weight.value.device}")
        print("Exact, on 5,120 names of the test split:")
        model.evaluate(data.test.take(10))
        model.save(options.out)


if __name__ == "__main__":
    main()
