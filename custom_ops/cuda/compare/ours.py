"""The steps by the launchers of custom_ops/cuda: what the ops of TensorFlow launch."""

import functools
from collections.abc import Callable

import numpy as np

from custom_ops.cuda.compare.blas import Blas
from custom_ops.cuda.compare.library import DeviceMemory, Library
from custom_ops.cuda.compare.problem import ClassProblem, SampledProblem
from custom_ops.cuda.compare.reference import logits_of
from custom_ops.cuda.compare.step import PRECISIONS, Offer, Step

NAME = "tf_largeout"


def offers(library: Library, blas: Blas | None) -> dict[str, list[Offer]]:
    """Returns the steps of each task. Products of shared negatives need cuBLAS."""
    found: dict[str, list[Offer]] = {
        "loss": [_offer(functools.partial(SoftmaxStep, library, False))],
        "softmax": [_offer(functools.partial(SoftmaxStep, library, True))],
        "top_k": [_offer(functools.partial(TopKStep, library))],
    }
    if blas is not None:
        found["sampled"] = [
            Offer(NAME, "", one, functools.partial(SampledStep, library, blas, one))
            for one in PRECISIONS
        ]
    return found


def _offer(make: Callable[[ClassProblem], Step]) -> Offer:
    return Offer(NAME, "", "float32", make)


class _LauncherStep:
    """What all steps have: a library and memory of its own."""

    def __init__(self, library: Library):
        self._library = library
        self._memory = DeviceMemory(library)

    def wait(self) -> None:
        self._library.call("wait")

    def peak_bytes(self) -> int | None:
        return self._memory.bytes

    def close(self) -> None:
        self._memory.close()


class SampledStep(_LauncherStep):
    """Sampled softmax, its gradients, and the update of rows."""

    def __init__(self, library: Library, blas: Blas, precision: str, problem: SampledProblem):
        super().__init__(library)
        self._blas, self._precision, self._problem = blas, precision, problem
        memory, adam = self._memory, problem.adam
        self._embeddings = memory.copy(problem.embeddings)
        self._slots = memory.copy(problem.momentum), memory.copy(problem.velocity)
        self._features = memory.copy(problem.features)
        self._labels, self._sampled = memory.copy(problem.labels), memory.copy(problem.sampled)
        self._true_offsets = memory.copy(problem.true_offsets)
        self._offsets = memory.copy(problem.offsets)
        self._betas = memory.copy([adam.beta_1, adam.beta_2], np.float64)
        self._rates = [
            memory.copy([one], np.float32) for one in (adam.step_size, adam.epsilon, 0)
        ]
        (classes, dim), (batch,), (sampled,) = (
            one.shape for one in (problem.embeddings, problem.labels, problem.sampled)
        )
        self._matrix = self._embeddings, classes, dim
        self._num_rows = min(batch + sampled, classes)
        self._shared, self._d_shared = (memory.empty([sampled, dim]) for _ in range(2))
        self._true_logits, self._log_partition, self._losses, self._d_true, self._d_log = (
            memory.empty([batch]) for _ in range(5)
        )
        self._logits, self._d_logits = (memory.empty([batch, sampled]) for _ in range(2))
        self._d_features = memory.empty([batch, dim])
        self._row_ids = memory.empty([self._num_rows], np.int64)
        self._d_rows = memory.empty([self._num_rows, dim])
        self._gradient_scratch = memory.scratch("row_gradient", batch, 1, sampled, classes, dim)
        self._adam_scratch = memory.scratch("row_adam", self._num_rows, classes, dim)

    def run(self) -> None:
        self._blas.set_precision(self._precision)
        self._forward()
        self._backward()
        self._update()

    def _forward(self) -> None:
        call, batch, sampled = self._library.call, *self._logits.shape
        call("gather_rows", *self._matrix, self._sampled, sampled, self._shared)
        own = self._labels, batch, 1
        call("row_dots", *self._matrix, self._features, *own, self._true_logits)
        self._blas.product(self._features, self._shared, self._logits, transpose_b=True)
        candidates = self._labels, self._sampled, batch, sampled, self._logits, self._offsets
        call("candidate_log_partition", *candidates, self._log_partition)
        label = self._true_logits, self._true_offsets, self._log_partition, batch
        call("label_loss", *label, self._losses, self._d_true, self._d_log)
        gradients = self._log_partition, self._d_log, self._d_logits
        call("candidate_gradient", *candidates, *gradients)

    def _backward(self) -> None:
        call, batch, sampled = self._library.call, *self._logits.shape
        own = self._labels, batch, 1
        gradients = self._d_true, self._d_features
        call("row_dots_feature_gradient", *self._matrix, *own, *gradients)
        self._blas.product(self._d_logits, self._shared, self._d_features, add=True)
        self._blas.product(self._d_logits, self._features, self._d_shared, transpose_a=True)
        given = self._features, self._d_true, self._d_shared
        call(
            "row_gradient",
            *(*own, self._sampled, sampled, *self._matrix[1:], *given),
            *(self._gradient_scratch, self._row_ids, self._d_rows),
        )

    def _update(self) -> None:
        step_size, epsilon, weight_decay = self._rates
        rules = step_size, self._betas, epsilon, weight_decay
        self._library.call(
            "row_adam",
            *(self._row_ids, self._num_rows, self._d_rows, *self._matrix[1:], *rules),
            *(self._adam_scratch, self._embeddings, *self._slots),
        )

    def results(self) -> dict[str, np.ndarray]:
        to_host = self._memory.to_host
        rows = to_host(self._embeddings)[self._problem.touched]
        return {
            "loss": to_host(self._losses).mean(),
            "d_features": to_host(self._d_features),
            **self._problem.changes(rows),
        }


class _ClassStep(_LauncherStep):
    """A pass over all classes."""

    def __init__(self, library: Library, problem: ClassProblem):
        super().__init__(library)
        self._problem = problem
        (classes, dim), batch = problem.embeddings.shape, len(problem.labels)
        self._sizes = batch, classes, dim
        self._embeddings = self._memory.copy(problem.embeddings)
        self._features = self._memory.copy(problem.features)
        self._given = self._embeddings, classes, dim, self._features, batch


class SoftmaxStep(_ClassStep):
    """The exact softmax loss, and its gradients."""

    def __init__(self, library: Library, has_gradient: bool, problem: ClassProblem):
        super().__init__(library, problem)
        memory, (batch, classes, dim) = self._memory, self._sizes
        self._has_gradient = has_gradient
        self._labels = memory.copy(problem.labels)
        self._log_partition, self._true_logits = (memory.empty([batch]) for _ in range(2))
        self._ranks = memory.empty([batch], np.int64)
        self._scratch = memory.scratch("class_statistics", batch, classes)
        if has_gradient:
            weights = np.full(batch, 1 / batch, np.float32)
            self._weights = memory.copy(weights), memory.copy(-weights)
            self._d_features = memory.empty([batch, dim])
            self._d_embeddings = memory.empty([classes, dim])
            self._gradient_scratch = memory.scratch("class_gradient", batch, classes, dim)

    def run(self) -> None:
        given = *self._given, self._labels
        found = self._log_partition, self._true_logits, self._ranks
        self._library.call("class_statistics", *given, self._scratch, *found)
        if self._has_gradient:
            weights = self._log_partition, *self._weights
            gradients = self._d_features, self._d_embeddings
            scratch = self._gradient_scratch
            self._library.call("class_gradient", *given, *weights, scratch, *gradients)

    def results(self) -> dict[str, np.ndarray]:
        to_host = self._memory.to_host
        losses = to_host(self._log_partition) - to_host(self._true_logits)
        if not self._has_gradient:
            return {"loss": losses.mean()}
        return {
            "loss": losses.mean(),
            "d_features": to_host(self._d_features),
            "d_embeddings": to_host(self._d_embeddings),
        }


class TopKStep(_ClassStep):
    """The k best classes of each row."""

    def __init__(self, library: Library, problem: ClassProblem):
        super().__init__(library, problem)
        batch, classes, _ = self._sizes
        self._scores = self._memory.empty([batch, problem.top_k])
        self._ids = self._memory.empty([batch, problem.top_k], np.int64)
        self._scratch = self._memory.scratch("class_top_k", batch, classes, problem.top_k)

    def run(self) -> None:
        found = self._scores, self._ids
        given = *self._given, self._problem.top_k
        self._library.call("class_top_k", *given, self._scratch, *found)

    def results(self) -> dict[str, np.ndarray]:
        ids = self._memory.to_host(self._ids)
        return {
            "scores": self._memory.to_host(self._scores),
            "logits of ids": logits_of(self._problem, ids),
        }
