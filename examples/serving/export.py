"""Exports a model that maps a place name to the best places, for serving.

    python -m examples.serving.export                                  # trains, two minutes
    python -m examples.serving.export --model place_names.keras

The second command exports a model saved by `examples/place_names.py` or `make demo`. For the
next steps see README.md in this folder.
"""

import argparse
import pathlib

import keras

import tf_largeout as tflo
from examples import place_names
from examples.serving.name_encoder import NameEncoder


def with_name_input(model):
    """Returns the trained model with names, strings `[batch]`, as input instead of ids."""
    names = keras.Input([], dtype="string", name="name")
    outputs = NameEncoder()(names)
    for layer in model.layers:
        outputs = layer(outputs)
    return keras.Model(names, outputs, name="places")


def next_version(folder):
    """Returns the path of a new version, above all existing ones."""
    folder = pathlib.Path(folder)
    versions = [int(path.name) for path in folder.glob("*") if path.name.isdecimal()]
    return folder / str(max(versions, default=0) + 1)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="file of a trained model; by default, trains one")
    parser.add_argument("--epochs", type=int, default=2, help="each takes a minute on one core")
    parser.add_argument("--out", default="export/places", help="folder of the versions")
    parser.add_argument("-k", type=int, default=5, help="number of places per name")
    options = parser.parse_args(arguments)
    data = tflo.datasets.load("place_names", batch_size=512)
    if options.model:
        model = keras.saving.load_model(options.model)
    else:
        model = place_names.train(data, options.epochs)
        print("Exact, on 5,120 names of the test split:")
        model.evaluate(data.test.take(10))
    texts = [data.class_text(place).replace("\n", " ") for place in range(data.num_classes)]
    path = next_version(options.out)
    tflo.serving.export(with_name_input(model), path, k=options.k, class_names=texts)


if __name__ == "__main__":
    main()
