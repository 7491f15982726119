import importlib

import pytest
import tensorflow as tf

from benchmarks.harness.step_case import dense_task
from benchmarks.methods.method_table import METHODS
from tests.slow import slow_but

_CONTEXT = importlib.import_module("tensorflow.python.eager.context").context()


def _products_of_a_step(method, optimizer):
    """Returns the number of matrix products in the optimized graph of a step of `fit`."""
    task = dense_task(num_classes=500, dim=16, batch_size=32)
    shape = {"dim": 16, "batch_size": 32, "num_sampled": 64, "steps_per_execution": 1}
    settings = METHODS[method].settings_for("step", optimizer=optimizer, **shape)
    model = METHODS[method].model(task, settings)
    model(tf.constant(task.test[0][:1]))
    _CONTEXT.enable_graph_collection()
    model.fit(task.train, steps_per_epoch=1, verbose=0, shuffle=False)
    graphs = _CONTEXT.export_run_metadata().partition_graphs
    _CONTEXT.disable_graph_collection()
    return sum("MatMul" in node.op for graph in graphs for node in graph.node)


@pytest.mark.parametrize("method", slow_but(["ours"], ["ours", "tf_nn_sampled_softmax"]))
def test_no_optimizer_computes_all_gradients(method):
    # Encoder: outputs and the gradient of its kernel. Classes: logits and two gradients.
    products = _products_of_a_step(method, "none")
    assert products == _products_of_a_step(method, "sgd") >= 5
