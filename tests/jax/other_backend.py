"""Continues the training of models that the TensorFlow backend has saved, on JAX.

`tests/integration/jax_backend_test.py` runs this program, with a folder. For each `NAME.npz` it
loads NAME.keras, takes the same steps with the same negatives, and writes NAME_jax.npz and
NAME_jax.keras.
"""

import os
import pathlib
import sys

os.environ["KERAS_BACKEND"] = "jax"
sys.modules["tensorflow"] = None  # An import is then an error.

import jax.numpy as jnp  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402

import tf_largeout as tflo  # noqa: E402


@keras.saving.register_keras_serializable(package="tests")
class FixedSampler(tflo.samplers.Sampler):
    """Draws given classes, with given expected counts of all classes."""

    def __init__(self, ids, counts):
        super().__init__(len(ids))
        self.ids, self.counts = ids, counts

    def draw(self, features, labels, head):
        ids, counts = jnp.asarray(self.ids), jnp.asarray(self.counts, jnp.float32)
        true_counts = jnp.where(labels >= 0, counts[labels], 1)
        return tflo.samplers.SampledValues(ids, true_counts, counts[ids])

    def get_config(self):
        return {"ids": self.ids, "counts": self.counts}


def results_of(model, given):
    """Returns the results of some training steps, evaluation and search."""
    data = given["features"], given["labels"]
    losses = [model.train_on_batch(*data) for _ in range(int(given["steps"]))]
    head, encoder = model.layers[-1], keras.Sequential(model.layers[:-1])
    scores, ids = head.top_k(encoder.predict(given["features"], verbose=0), 4)
    rows = np.asarray(head.class_embeddings())
    evaluated = model.evaluate(*data, verbose=0)
    found = {"losses": losses, "evaluated": evaluated, "scores": scores, "ids": ids}
    return {name: np.asarray(value) for name, value in found.items()} | {"rows": rows}


def main(folder):
    for path in sorted(pathlib.Path(folder).glob("*.npz")):
        model = keras.models.load_model(path.with_suffix(".keras"))
        model.compile(model.optimizer, model.loss, metrics=["precision_at_1", "ndcg_at_5"])
        np.savez(f"{folder}/{path.stem}_jax.npz", **results_of(model, np.load(path)))
        model.save(f"{folder}/{path.stem}_jax.keras")


if __name__ == "__main__":
    main(sys.argv[1])
