"""`resize_classes` of a sharded model: equal to that of a model with one shard."""

import re

import keras
import numpy as np
import pytest

import tf_largeout as tflo
from tests.harness import multi_optimizer
from tests.resize_problem import DIM, GROWN, KEPT, PERMUTATION, N, examples, fit, sampled_model
from tests.slow import slow_but

pytestmark = pytest.mark.portable

CHANGES = {
    "others": (GROWN, KEPT),
    "permuted": (N, PERMUTATION),
    "fewer": (20,),
    "more": (GROWN,),
    "none kept": (GROWN, []),
    "rows given": (GROWN, KEPT, np.random.default_rng(0).normal(size=[GROWN - 30, DIM])),
}
OPTIMIZERS = {
    "lazy adam with momentum": lambda: tflo.optimizers.LazyAdam(0.01, row_beta_1=0.9),
    "rowwise adagrad": lambda: tflo.optimizers.RowwiseAdagrad(0.1),
    "lazy sgd": lambda: tflo.optimizers.LazySGD(0.1, momentum=0.9),
    "averages": lambda: keras.optimizers.Adam(0.01, use_ema=True),
    "loss scale": lambda: keras.optimizers.LossScaleOptimizer(tflo.optimizers.LazyAdam(0.01)),
    "several": lambda: multi_optimizer(
        keras.optimizers.Adam(0.01), {"model/head/.*": tflo.optimizers.LazyAdagrad(0.1)}
    ),
}


def resized(change, num_shards, optimizer):
    """The variables of a resized model, before and after more training; and its losses."""
    keras.utils.set_random_seed(3)
    sampler = tflo.samplers.UnigramSampler(12, counts=np.arange(N), seed=1)
    model = sampled_model(OPTIMIZERS[optimizer](), sampler, num_shards=num_shards)
    fit(model, *examples())
    other = tflo.resize_classes(model, *CHANGES[change])
    after = state(other)
    losses = fit(other, *examples(num_classes=CHANGES[change][0], seed=2))
    return after, state(other), losses


def state(model):
    """Returns all variables by name; those of one name, or of shards, are concatenated."""
    found = {}
    for one in [*model.variables, *model.optimizer.variables]:
        name = re.sub(r"(embeddings|bias)_\d+", r"\1", one.name)
        found.setdefault(name, []).append(np.atleast_1d(one.numpy()))
    return {name: np.concatenate(values) for name, values in found.items()}


ADAM, *OTHERS = OPTIMIZERS
CASES = [
    *(("others", num_shards, ADAM) for num_shards in (2, 3, 7)),
    ("more", 3, "rowwise adagrad"),
    ("fewer", 3, "averages"),
    *((change, 3, ADAM) for change in CHANGES if change != "others"),
    *(("others", 3, optimizer) for optimizer in OTHERS),
]
SHORT = [("fewer", 3, "averages")]


@pytest.mark.slow
@pytest.mark.parametrize("change, num_shards, optimizer", slow_but(SHORT, CASES))
def test_all_variables_equal_those_of_one_shard(change, num_shards, optimizer):
    """After the change and after more training, and the losses."""
    *found, losses = resized(change, num_shards, optimizer)
    *expected, expected_losses = resized(change, 1, optimizer)
    assert losses == expected_losses
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name, values in one.items():
            np.testing.assert_array_equal(values, other[name], err_msg=name)


def test_an_untrained_model_can_be_resized():
    model = sampled_model(sampler="uniform", num_shards=3)
    grown = tflo.resize_classes(model, GROWN, KEPT)
    rows = [one.layers[-1].class_embeddings().numpy() for one in (model, grown)]
    np.testing.assert_array_equal(rows[1][: len(KEPT)], rows[0][KEPT])
    assert grown.layers[-1].num_shards == 3
    assert [one.shape[0] for one in grown.layers[-1].trainable_weights[:3]] == [16, 17, 17]
    fit(grown, *examples(num_classes=GROWN))


def test_shards_with_several_optimizers_raise_an_error():
    model = sampled_model(sampler="uniform", num_shards=3)
    first = {"model/head/embeddings_0": tflo.optimizers.LazySGD(0.1, momentum=0.9)}
    optimizer = multi_optimizer(tflo.optimizers.LazySGD(0.2, momentum=0.9), first)
    model.compile(optimizer, tflo.losses.SampledSoftmaxLoss())
    optimizer.build(model.trainable_variables)
    with pytest.raises(ValueError, match="must train all shards .*trains some of"):
        tflo.resize_classes(model, GROWN)
