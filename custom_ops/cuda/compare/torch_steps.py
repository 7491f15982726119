"""The steps as PyTorch has them."""

import functools
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from custom_ops.cuda.compare.problem import ClassProblem, SampledProblem
from custom_ops.cuda.compare.reference import logits_of
from custom_ops.cuda.compare.step import PRECISIONS, Offer

NAME = "PyTorch"
# torch.set_float32_matmul_precision by the name of the precision.
_PRECISIONS = {"float32": "highest", "TF32": "high"}


def version() -> str:
    """The version, with that of its CUDA."""
    return f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}"


def has_gpu() -> bool:
    """Whether PyTorch can use the GPU."""
    return torch.cuda.is_available()


def offers(device: str = "cuda", compiled: bool = False) -> dict[str, list[Offer]]:
    """Returns the steps of each task.

    Args:
        device: where they run: "cuda", or "cpu" to test them.
        compiled: whether there are also steps whose losses torch.compile has fused.
    """
    ways = [("", False), ("compiled", True)] if compiled else [("", False)]
    variants: dict[str, list[tuple[str, Any]]] = {
        "sampled": [
            (f"{name} {way}".rstrip(), functools.partial(SampledStep, name == "dense", fused))
            for name in ("sparse", "dense")
            for way, fused in ways
        ],
        "loss": [(way, functools.partial(SoftmaxStep, False, fused)) for way, fused in ways],
        "softmax": [(way, functools.partial(SoftmaxStep, True, fused)) for way, fused in ways],
        "top_k": [("", TopKStep)],
    }
    return {
        task: [
            Offer(NAME, name, precision, functools.partial(make, device, precision))
            for precision in PRECISIONS
            for name, make in made
        ]
        for task, made in variants.items()
    }


def _sampled_loss(features, own, shared, hits, true_offsets, offsets):
    """The mean loss; `hits` is where a negative is the label."""
    true_logits = (features * own).sum(1) + true_offsets
    logits = torch.addmm(offsets, features, shared.T).masked_fill(hits, -torch.inf)
    return (torch.logaddexp(true_logits, logits.logsumexp(1)) - true_logits).mean()


def _softmax_loss(features, embeddings, labels):
    return functional.cross_entropy(functional.linear(features, embeddings), labels)


class _TorchStep:
    """What all steps have: a device, and the precision of products, which is PyTorch's own."""

    def __init__(self, device: str, precision: str):
        torch.set_float32_matmul_precision(_PRECISIONS[precision])
        self._device = device
        if device == "cuda":
            torch.cuda.init()  # statistics of memory are refused before
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def _copy(self, values: np.ndarray) -> torch.Tensor:
        return torch.tensor(values, device=self._device)

    def wait(self) -> None:
        if self._device == "cuda":
            torch.cuda.synchronize()

    def peak_bytes(self) -> int | None:
        return torch.cuda.max_memory_allocated() if self._device == "cuda" else None

    def close(self) -> None:
        self.__dict__.clear()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


class SampledStep(_TorchStep):
    """F.embedding with sparse gradients and SparseAdam, or with dense ones and Adam."""

    def __init__(
        self, dense: bool, compiled: bool, device: str, precision: str, problem: SampledProblem
    ):
        super().__init__(device, precision)
        self._dense, self._problem = dense, problem
        self._loss_of = torch.compile(_sampled_loss) if compiled else _sampled_loss
        self._embeddings = torch.nn.Parameter(self._copy(problem.embeddings))
        self._features = self._copy(problem.features).requires_grad_()
        self._labels, self._sampled = self._copy(problem.labels), self._copy(problem.sampled)
        self._offsets = self._copy(problem.true_offsets), self._copy(problem.offsets)
        self._loss = torch.zeros(())
        self._optimizer = self._make_optimizer()

    def _make_optimizer(self) -> torch.optim.Optimizer:
        adam = self._problem.adam
        rules: dict[str, Any] = {
            "lr": adam.rate,
            "betas": (adam.beta_1, adam.beta_2),
            "eps": adam.epsilon,
        }
        optimizer: torch.optim.Optimizer
        if self._dense:
            optimizer = torch.optim.Adam([self._embeddings], **rules, fused=True)
        else:
            optimizer = torch.optim.SparseAdam([self._embeddings], **rules)
        optimizer.state[self._embeddings] = {
            "step": torch.zeros((), device=self._device) if self._dense else 0,
            "exp_avg": self._copy(self._problem.momentum),
            "exp_avg_sq": self._copy(self._problem.velocity),
        }
        return optimizer

    def run(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        self._features.grad = None
        ids = torch.cat([self._labels, self._sampled])
        rows = functional.embedding(ids, self._embeddings, sparse=not self._dense)
        own, shared = rows.split([len(self._labels), len(self._sampled)])
        hits = self._labels[:, None] == self._sampled
        self._loss = self._loss_of(self._features, own, shared, hits, *self._offsets)
        self._loss.backward()
        self._optimizer.step()

    def results(self) -> dict[str, np.ndarray]:
        touched = self._copy(self._problem.touched)
        rows = self._embeddings.detach()[touched].cpu().numpy()
        return {
            "loss": self._loss.detach().cpu().numpy(),
            "d_features": _gradient(self._features),
            **self._problem.changes(rows),
        }


class SoftmaxStep(_TorchStep):
    """F.linear and cross_entropy: all logits at once."""

    def __init__(
        self,
        has_gradient: bool,
        compiled: bool,
        device: str,
        precision: str,
        problem: ClassProblem,
    ):
        super().__init__(device, precision)
        self._has_gradient = has_gradient
        self._loss_of = torch.compile(_softmax_loss) if compiled else _softmax_loss
        self._embeddings, self._features = (
            self._copy(values).requires_grad_(has_gradient)
            for values in (problem.embeddings, problem.features)
        )
        self._labels = self._copy(problem.labels)
        self._loss = torch.zeros(())

    def run(self) -> None:
        self._embeddings.grad = self._features.grad = None
        self._loss = self._loss_of(self._features, self._embeddings, self._labels)
        if self._has_gradient:
            self._loss.backward()

    def results(self) -> dict[str, np.ndarray]:
        found = {"loss": self._loss.detach().cpu().numpy()}
        if self._has_gradient:
            found["d_features"] = _gradient(self._features)
            found["d_embeddings"] = _gradient(self._embeddings)
        return found


def _gradient(values: torch.Tensor) -> np.ndarray:
    if values.grad is None:
        raise RuntimeError("the step has not run")
    return values.grad.cpu().numpy()


class TopKStep(_TorchStep):
    """torch.topk of F.linear, in blocks of classes."""

    def __init__(self, device: str, precision: str, problem: ClassProblem):
        super().__init__(device, precision)
        self._problem = problem
        self._embeddings = self._copy(problem.embeddings)
        self._features = self._copy(problem.features)
        self._found = torch.zeros(()), torch.zeros(())

    @torch.no_grad()
    def run(self) -> None:
        k, block = self._problem.top_k, self._problem.block
        scores, ids = [], []
        for begin in range(0, len(self._embeddings), block):
            logits = functional.linear(self._features, self._embeddings[begin : begin + block])
            best = torch.topk(logits, min(k, logits.shape[1]))
            scores.append(best.values)
            ids.append(best.indices + begin)
        best = torch.topk(torch.cat(scores, 1), k)
        self._found = best.values, torch.cat(ids, 1).gather(1, best.indices)

    def results(self) -> dict[str, np.ndarray]:
        scores, ids = (one.cpu().numpy() for one in self._found)
        return {"scores": scores, "logits of ids": logits_of(self._problem, ids)}
