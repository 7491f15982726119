"""An evaluation step makes one pass over the classes, for the loss and all metrics."""

import keras
import numpy as np
import tensorflow as tf

import tf_largeout as tflo


def test_the_loss_and_all_metrics_share_one_pass():
    model = keras.Sequential([keras.Input((4,)), tflo.layers.LargeOutput(31)])
    metrics = [
        *(tflo.metrics.PrecisionAtK(k) for k in (1, 3, 5)),
        tflo.metrics.RecallAtK(5),
        tflo.metrics.PropensityScoredPrecisionAtK(3, counts=np.arange(31)),
        tflo.metrics.Perplexity(),
        tflo.metrics.NDCG(),
        tflo.metrics.MacroRecallAtK(5, 31),
        tflo.metrics.CatalogCoverageAtK(5, 31),
        tflo.metrics.AveragePopularityAtK(3, np.arange(31)),
    ]
    model.compile(loss=tflo.losses.SoftmaxLoss(), metrics=metrics)
    x, y = np.ones((6, 4), "float32"), np.arange(6)
    model.evaluate(x, y, verbose=0)
    step = tf.function(model.test_step).get_concrete_function((tf.constant(x), tf.constant(y)))
    ops = [op.type for op in step.graph.get_operations()]
    assert ops.count("LargeoutClassStatistics") == 1
    assert ops.count("LargeoutClassTopK") == 1
