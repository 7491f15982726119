import numpy as np
import pytest

from tf_largeout.benchmarks import tasks
from tf_largeout.benchmarks.methods import METHODS


@pytest.mark.parametrize("name", METHODS)
def test_every_method_learns_and_returns_logits(name):
    batch_size = 64
    task = tasks.synthetic(num_classes=50, examples=1000)("tiny", batch_size, 0, False)
    settings = METHODS[name].settings_for(
        "tiny", batch_size=batch_size, num_sampled=20, dim=16, learning_rate=2e-2
    )
    model = METHODS[name].model(task, settings)
    losses = [
        model.fit(task.train, steps_per_epoch=10, verbose=0, shuffle=False).history["loss"][0]
        for _ in range(4)
    ]
    assert losses[-1] < 0.7 * losses[0]
    assert np.shape(model(task.test[0][:3])) == (3, 50)


@pytest.mark.parametrize("name", [n for n in METHODS if n != "dense"])
def test_methods_train_on_several_labels_a_row(name):
    task = tasks.synthetic(num_classes=50, examples=500, max_labels=3)("tiny", 32, 0, False)
    settings = METHODS[name].settings_for("tiny", batch_size=32, num_sampled=20, dim=16)
    history = (
        METHODS[name]
        .model(task, settings)
        .fit(task.train, steps_per_epoch=3, verbose=0, shuffle=False)
    )
    assert np.isfinite(history.history["loss"]).all()


def test_settings_of_the_task_go_before_those_of_the_method_and_the_caller_s_before_both():
    method = METHODS["stock_best"]
    assert method.settings_for("no such task").num_sampled == 8192
    assert method.settings_for("no such task", num_sampled=7).num_sampled == 7
