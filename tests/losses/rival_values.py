"""Losses of other libraries, and their gradients, for arrays. It does not import TensorFlow.

TensorFlow and PyTorch crash in one process, so `rivals_test.py` calls it in another process.
"""

import inspect
import math
import types


def values(library, arrays):
    """Returns `{case: (loss, gradient of the features)}` of one of `LIBRARIES`.

    Args:
        library: Name of the library.
        arrays: NumPy arrays by name, see `rivals_test.py`.
    """
    import torch

    torch.set_num_threads(1)
    tensors = {name: torch.tensor(array) for name, array in arrays.items()}
    found = {}
    for case, loss in LIBRARIES[library](torch, types.SimpleNamespace(**tensors)).items():
        features = tensors["features"].clone().requires_grad_()
        value = loss(features)
        (gradient,) = torch.autograd.grad(value, features)
        found[case] = value.item(), gradient.numpy()
    return found


def _of_torch(torch, given):
    functional = torch.nn.functional
    rows, bias, labels = given.rows, given.bias, given.labels
    batch, log_counts = len(labels), torch.log(given.sampled_counts)

    def entropy(**options):
        targets = options.pop("targets", labels)
        return lambda h: functional.cross_entropy(h @ rows.T + bias, targets, **options)

    def sampled(h):
        true = (h * rows[labels]).sum(1) + bias[labels]
        logits = h @ rows[given.sampled].T + bias[given.sampled] - log_counts
        logits = torch.where(given.sampled == labels[:, None], -torch.inf, logits)
        first = torch.zeros(batch, dtype=torch.int64)
        return functional.cross_entropy(torch.cat([true[:, None], logits], 1), first)

    def sigmoid(h):
        ones = functional.one_hot(labels, len(rows)).float()
        logits = h @ rows.T + bias
        total = functional.binary_cross_entropy_with_logits(logits, ones, reduction="sum")
        return total / batch

    weighted = entropy(weight=given.class_weights, reduction="sum")
    cases = {
        "cross entropy": entropy(),
        "label smoothing": entropy(label_smoothing=0.1),
        "class weights": lambda h: weighted(h) / batch,
        "soft targets": entropy(targets=given.targets),
        "ignored class": entropy(targets=given.with_ignored, ignore_index=-100),
        "sampled softmax": sampled,
        "sigmoid": sigmoid,
    }
    if hasattr(functional, "linear_cross_entropy"):
        options = {"label_smoothing": 0.1, "ignore_index": -100}
        names = inspect.signature(functional.linear_cross_entropy).parameters
        name_of_bias = "linear_bias" if "linear_bias" in names else "bias"
        cases["linear_cross_entropy"] = lambda h: functional.linear_cross_entropy(
            h, rows, given.with_ignored, **{name_of_bias: bias}, **options
        )
    return cases


def _of_rectools(torch, given):
    from rectools.models.nn.transformers.lightning import TransformerLightningModule as Module

    num_classes, num_sampled = len(given.rows), len(given.apart)
    model = types.SimpleNamespace(
        _calc_softmax_loss=Module._calc_softmax_loss,
        _calc_bce_loss=Module._calc_bce_loss,
        data_preparator=types.SimpleNamespace(n_negatives=num_sampled),
        torch_model=types.SimpleNamespace(
            item_model=types.SimpleNamespace(n_items=num_classes)
        ),
        item_extra_tokens=[],
        gbce_t=0.75,
    )
    model._get_reduced_overconfidence_logits = types.MethodType(
        Module._get_reduced_overconfidence_logits, model
    )
    ids = torch.cat([given.labels[:, None], given.apart.expand(len(given.labels), -1)], 1)
    no_padding, weights = torch.ones_like(ids[:, :1]), torch.ones(len(ids), 1)

    def logits(h):
        return ((given.rows[ids] * h[:, None]).sum(-1) + given.bias[ids])[:, None]

    def loss(method):
        return lambda h: method(model, logits(h), no_padding, weights)

    return {
        "sampled softmax without counts": loss(Module._calc_sampled_softmax_loss),
        "gBCE": loss(Module._calc_gbce_loss),
        "BCE": lambda h: Module._calc_bce_loss(logits(h), no_padding, weights),
    }


def _of_metric_learning(torch, given):
    from pytorch_metric_learning import losses

    def loss(kind, rows, labels, **options):
        found = kind(len(rows), rows.shape[1], scale=64, **options)
        found.W.data = rows.T.clone()
        return lambda h: found(h, labels)

    # The classes of a step of PartialFC: the labels and the sampled ones.
    classes, places = torch.unique(torch.cat([given.labels, given.apart]), return_inverse=True)
    own, arc = places[: len(given.labels)], {"margin": math.degrees(0.5)}
    return {
        "ArcFace": loss(losses.ArcFaceLoss, given.rows, given.labels, **arc),
        "CosFace": loss(losses.CosFaceLoss, given.rows, given.labels, margin=0.35),
        "PartialFC": loss(losses.ArcFaceLoss, given.rows[classes], own, **arc),
    }


LIBRARIES = {
    "torch": _of_torch,
    "rectools": _of_rectools,
    "pytorch_metric_learning": _of_metric_learning,
}
