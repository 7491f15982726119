"""Writes a model of place names for servers: a name in, the best places out.

    python -m examples.serving.export                                  # trains, two minutes
    python -m examples.serving.export --model place_names.keras

The second takes what `examples/place_names.py` or `make demo` has saved. README.md beside this
file goes on from there.
"""

import argparse
import pathlib

import keras

import tf_largeout as tflo
from examples import place_names
from examples.serving.name_encoder import NameEncoder


def of_names(model):
    """The trained model, with names in front: strings `[batch]` instead of feature ids."""
    names = keras.Input([], dtype="string", name="name")
    outputs = NameEncoder()(names)
    for layer in model.layers:
        outputs = layer(outputs)
    return keras.Model(names, outputs, name="places")


def next_version(folder):
    """The path of a version that is higher than all that are there."""
    folder = pathlib.Path(folder)
    there = [int(one.name) for one in folder.glob("*") if one.name.isdecimal()]
    return folder / str(max(there, default=0) + 1)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="file of a trained model; without, one is trained")
    parser.add_argument("--epochs", type=int, default=2, help="a minute each on one core")
    parser.add_argument("--out", default="export/places", help="folder of the versions")
    parser.add_argument("-k", type=int, default=5, help="places that answer a name")
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
    tflo.serving.export(of_names(model), path, k=options.k, class_names=texts)


if __name__ == "__main__":
    main()
