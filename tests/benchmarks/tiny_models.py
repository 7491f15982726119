"""Trains the model of a `Method` on a tiny task."""

import numpy as np

from tf_largeout.benchmarks.harness import tasks


def task_and_model(method):
    """A task of 50 classes and the compiled model of a method."""
    task = tasks.synthetic(num_classes=50, examples=1000)("tiny", 64, 0, False)
    settings = method.settings_for(
        "tiny", batch_size=64, num_sampled=20, dim=32, learning_rate=2e-2
    )
    return task, method.model(task, settings)


def check_that_it_learns(method):
    task, model = task_and_model(method)
    fitted = model.fit(task.train, steps_per_epoch=10, epochs=4, verbose=0, shuffle=False)
    losses = fitted.history["loss"]
    assert losses[-1] < 0.7 * losses[0]


def check_training_on_several_labels(method):
    task = tasks.synthetic(num_classes=50, examples=500, max_labels=3)("tiny", 32, 0, False)
    model = method.model(
        task, method.settings_for("tiny", batch_size=32, num_sampled=20, dim=32)
    )
    history = model.fit(task.train, steps_per_epoch=3, verbose=0, shuffle=False)
    assert np.isfinite(history.history["loss"]).all()
