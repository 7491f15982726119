"""Trains on place names with the 202,458 classes in shards on servers.

Starts two servers on this machine, which store the class rows and their optimizer state. Trains
with `fit`, prints exact metrics on names of the test split, and saves a file that can be loaded
on one machine.

    python examples/sharded.py
    python examples/sharded.py --servers 10.0.0.1:4711 10.0.0.2:4711

With `--servers`, the shards are on running servers. Start each of them on its machine with
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
            keras.Input([data.max_features], dtype="int32"),  # Hashed character n-grams.
            tflo.layers.EmbeddingBag(data.vocabulary_size, 128),  # Not on the servers.
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
    model.fit(data.train, epochs=epochs, shuffle=False)  # `data.train` is shuffled already.
    return model


@contextlib.contextmanager
def server_addresses(options):
    """Yields the addresses of the command line, or those of two new local servers."""
    if options.servers:
        yield options.servers
        return
    with local_servers(2) as servers:
        print("Two servers on this machine:", ", ".join(server.address for server in servers))
        yield [server.address for server in servers]


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--servers", nargs="*", help="addresses of running servers")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--out", default="sharded.keras", help="file of the trained model")
    options = parser.parse_args(arguments)
    data = tflo.datasets.load("place_names", batch_size=512)
    with server_addresses(options) as addresses:
        tflo.distribute.connect(addresses)  # Before the model is built.
        model = train(data, len(addresses), options.epochs)
        for weight in model.layers[-1].trainable_weights:
            print(f"{weight.name:14} {tuple(weight.shape)} on {weight.value.device}")
        print("Exact, on 5,120 names of the test split:")
        model.evaluate(data.test.take(10))
        model.save(options.out)


if __name__ == "__main__":
    main()
