"""keras-hub's GPT-2, with its own head or a converted one, in a process of its own."""

import keras
import numpy as np

import tf_largeout as tflo
from benchmarks.harness import machine
from benchmarks.harness.step_case import StepTimes
from benchmarks.harness.step_clock import StepClock
from lab.language_models.case import LEARNING_RATE, WARM_UP

METHODS = ("keras_hub", "exact", "sampled")


def measure(method, case):
    """Returns the figures of a `StepClock`, and the number of weights.

    Args:
        method: One of `METHODS`.
        case: A `Case`.
    """
    machine.use("cpu", threads=1)
    keras.utils.set_random_seed(0)
    model = _compiled(method, case)
    tokens = case.tokens().astype(np.int32)
    x = {"token_ids": tokens[:, :-1], "padding_mask": np.ones_like(tokens[:, :-1])}
    y = tokens[:, 1:]
    model.optimizer.build(model.trainable_variables)
    standing = machine.resident_mb()
    clock = StepClock(case.steps, float("inf"), warm_up=WARM_UP)
    epochs = -(-(WARM_UP + case.steps) * case.batch_size // len(tokens))
    sizes = {"batch_size": case.batch_size, "epochs": epochs}
    model.fit(x, y, **sizes, verbose=0, callbacks=[StepTimes(clock)])
    weights = sum(weights.value.shape.num_elements() for weights in model.trainable_weights)
    return {**clock.figures(standing), "weights": weights}


def _compiled(method, case):
    import keras_hub

    backbone = keras_hub.models.GPT2Backbone(
        vocabulary_size=case.vocabulary_size,
        num_layers=case.num_layers,
        num_heads=case.num_heads,
        hidden_dim=case.dim,
        intermediate_dim=4 * case.dim,
        dropout=0.0,
        max_sequence_length=case.length,
    )
    model = keras_hub.models.GPT2CausalLM(backbone=backbone, preprocessor=None)
    if method == "keras_hub":
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        # keras-hub's default also computes the accuracy, which takes more time.
        model.compile(keras.optimizers.Adam(LEARNING_RATE), loss, weighted_metrics=None)
        return model
    if method == "exact":
        sampler, loss = None, tflo.losses.SoftmaxLoss()
    else:
        sampler = tflo.samplers.LogUniformSampler(case.num_sampled)
        loss = tflo.losses.SampledSoftmaxLoss()
    model = tflo.convert(model, sampler=sampler)
    model.compile(tflo.optimizers.LazyAdam(LEARNING_RATE), loss)
    return model
