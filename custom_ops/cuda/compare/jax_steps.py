"""The steps as JAX has them: each one a jitted function."""

import functools
import os
from typing import Any

# JAX else takes most of the memory at once, and nothing is left for others.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np

from custom_ops.cuda.compare.problem import Adam, ClassProblem, SampledProblem
from custom_ops.cuda.compare.reference import logits_of
from custom_ops.cuda.compare.step import PRECISIONS, Offer

NAME = "JAX"
# A GPU makes float32 products of TF32 by default.
_PRECISIONS = {"float32": jax.lax.Precision.HIGHEST, "TF32": jax.lax.Precision.DEFAULT}


def version() -> str:
    """The version."""
    return f"JAX {jax.__version__}"


def has_gpu() -> bool:
    """Whether JAX uses a GPU."""
    return jax.default_backend() == "gpu"


def offers() -> dict[str, list[Offer]]:
    """Returns the steps of each task."""
    variants: dict[str, list[tuple[str, Any]]] = {
        "sampled": [
            (name, functools.partial(SampledStep, name == "dense"))
            for name in ("sparse", "dense")
        ],
        "loss": [("", functools.partial(SoftmaxStep, False))],
        "softmax": [("", functools.partial(SoftmaxStep, True))],
        "top_k": [("", TopKStep)],
    }
    return {
        task: [
            Offer(NAME, name, one, functools.partial(make, _PRECISIONS[one]))
            for one in PRECISIONS
            for name, make in made
        ]
        for task, made in variants.items()
    }


def _sampled_loss(own, shared, features, inputs, precision):
    labels, sampled, true_offsets, offsets = inputs
    true_logits = (features * own).sum(1) + true_offsets
    logits = jnp.matmul(features, shared.T, precision=precision) + offsets
    logits = jnp.where(labels[:, None] == sampled, -jnp.inf, logits)
    log_partition = jax.nn.logsumexp(logits, axis=1)
    return (jnp.logaddexp(true_logits, log_partition) - true_logits).mean()


def _updated(rows, momentum, velocity, gradient, adam: Adam):
    momentum += (gradient - momentum) * (1 - adam.beta_1)
    velocity += (gradient**2 - velocity) * (1 - adam.beta_2)
    return (
        rows - adam.step_size * momentum / (jnp.sqrt(velocity) + adam.epsilon),
        momentum,
        velocity,
    )


def _sparse_step(state, features, inputs, precision, adam):
    """Gradients of the rows read, added up by class, and Adam on those rows alone."""
    embeddings = state[0]
    ids = jnp.concatenate(inputs[:2])
    own, shared = embeddings[inputs[0]], embeddings[inputs[1]]
    loss, (d_own, d_shared, d_features) = jax.value_and_grad(_sampled_loss, (0, 1, 2))(
        own, shared, features, inputs, precision
    )
    classes = len(embeddings)
    touched, segments = jnp.unique(
        ids, return_inverse=True, size=min(len(ids), classes), fill_value=classes
    )
    d_rows = jnp.concatenate([d_own, d_shared])
    gradient = jax.ops.segment_sum(d_rows, segments.reshape(-1), len(touched))
    rows = _updated(*(one.at[touched].get(mode="clip") for one in state), gradient, adam)
    state = [
        one.at[touched].set(new, mode="drop") for one, new in zip(state, rows, strict=True)
    ]
    return state, loss, d_features


def _dense_step(state, features, inputs, precision, adam):
    """A gradient and an update of all rows."""

    def loss_of(embeddings, features):
        own, shared = embeddings[inputs[0]], embeddings[inputs[1]]
        return _sampled_loss(own, shared, features, inputs, precision)

    loss, (gradient, d_features) = jax.value_and_grad(loss_of, (0, 1))(state[0], features)
    return list(_updated(*state, gradient, adam)), loss, d_features


def _softmax_loss(embeddings, features, labels, precision):
    logits = jnp.matmul(features, embeddings.T, precision=precision)
    true_logits = jnp.take_along_axis(logits, labels[:, None], 1)[:, 0]
    return (jax.nn.logsumexp(logits, axis=1) - true_logits).mean()


def _top_k(embeddings, features, precision, k, block):
    scores, ids = [], []
    for begin in range(0, len(embeddings), block):
        rows = embeddings[begin : begin + block]
        logits = jnp.matmul(features, rows.T, precision=precision)
        best, at = jax.lax.top_k(logits, min(k, len(rows)))
        scores.append(best)
        ids.append(at + begin)
    best, at = jax.lax.top_k(jnp.concatenate(scores, 1), k)
    return best, jnp.take_along_axis(jnp.concatenate(ids, 1), at, 1)


class _JaxStep:
    """What all steps have: results that `wait` waits for."""

    _found: Any

    def wait(self) -> None:
        jax.block_until_ready(self._found)

    def peak_bytes(self) -> int | None:
        return None  # JAX tells the peak of the process, not that of a step

    def close(self) -> None:
        self.__dict__.clear()


class SampledStep(_JaxStep):
    """Sampled softmax, with a sparse or a dense update, in place."""

    def __init__(self, dense: bool, precision: Any, problem: SampledProblem):
        self._problem = problem
        step = _dense_step if dense else _sparse_step
        step = functools.partial(step, precision=precision, adam=problem.adam)
        self._step = jax.jit(step, donate_argnums=0)
        values = problem.embeddings, problem.momentum, problem.velocity
        self._state = [jnp.array(one) for one in values]
        self._features = jnp.array(problem.features)
        ids = (jnp.array(one.astype(np.int32)) for one in (problem.labels, problem.sampled))
        self._inputs = *ids, jnp.array(problem.true_offsets), jnp.array(problem.offsets)

    def run(self) -> None:
        self._found = self._step(self._state, self._features, self._inputs)
        self._state = self._found[0]

    def results(self) -> dict[str, np.ndarray]:
        state, loss, d_features = self._found
        rows = np.asarray(state[0][jnp.array(self._problem.touched.astype(np.int32))])
        return {
            "loss": np.asarray(loss),
            "d_features": np.asarray(d_features),
            **self._problem.changes(rows),
        }


class SoftmaxStep(_JaxStep):
    """The exact softmax: all logits at once."""

    def __init__(self, has_gradient: bool, precision: Any, problem: ClassProblem):
        loss = functools.partial(_softmax_loss, precision=precision)
        self._has_gradient = has_gradient
        self._step = jax.jit(jax.value_and_grad(loss, (0, 1)) if has_gradient else loss)
        labels = jnp.array(problem.labels.astype(np.int32))
        self._given = jnp.array(problem.embeddings), jnp.array(problem.features), labels

    def run(self) -> None:
        self._found = self._step(*self._given)

    def results(self) -> dict[str, np.ndarray]:
        if not self._has_gradient:
            return {"loss": np.asarray(self._found)}
        loss, (d_embeddings, d_features) = self._found
        return {
            "loss": np.asarray(loss),
            "d_features": np.asarray(d_features),
            "d_embeddings": np.asarray(d_embeddings),
        }


class TopKStep(_JaxStep):
    """jax.lax.top_k of products, in blocks of classes."""

    def __init__(self, precision: Any, problem: ClassProblem):
        self._problem = problem
        self._step = jax.jit(
            functools.partial(_top_k, precision=precision, k=problem.top_k, block=problem.block)
        )
        self._given = jnp.array(problem.embeddings), jnp.array(problem.features)

    def run(self) -> None:
        self._found = self._step(*self._given)

    def results(self) -> dict[str, np.ndarray]:
        scores, ids = (np.asarray(one) for one in self._found)
        return {"scores": scores, "logits of ids": logits_of(self._problem, ids)}
