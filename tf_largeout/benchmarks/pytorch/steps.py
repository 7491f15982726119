"""Training steps of PyTorch on the shapes of a `StepCase`; the program of `step_process`.

The loop is written by hand. Batches are tensors in memory, without a data loader.
"""

import functools
import json
import sys

import numpy as np
import torch
from torch.nn import functional

from tf_largeout.benchmarks.harness import machine
from tf_largeout.benchmarks.harness.step_clock import StepClock

_STDDEV = 0.05  # of the class embeddings at the start


class SampledSoftmax(torch.nn.Module):
    """Sampled softmax over uniform negatives, with sparse gradients for `SparseAdam`.

    The batch shares the negatives, which may repeat. A negative that is the label of an example
    has no effect on it. All expected counts are equal, so subtracting their log would change
    nothing.
    """

    loss = "cross_entropy"

    def __init__(self, num_classes, dim, num_sampled):
        super().__init__()
        self.encoder = torch.nn.Linear(dim, dim)
        self.embeddings = torch.nn.Embedding(num_classes, dim, sparse=True)
        self.bias = torch.nn.Embedding(num_classes, 1, sparse=True)
        self.num_classes, self.num_sampled = num_classes, num_sampled
        torch.nn.init.normal_(self.embeddings.weight, std=_STDDEV)
        torch.nn.init.zeros_(self.bias.weight)

    def forward(self, features, labels):
        features, batch = self.encoder(features), len(labels)
        negatives = torch.randint(self.num_classes, [self.num_sampled])
        ids = torch.cat([labels, negatives])
        rows, bias = self.embeddings(ids), self.bias(ids)[:, 0]
        true_logits = (features * rows[:batch]).sum(1) + bias[:batch]
        logits = torch.addmm(bias[batch:], features, rows[batch:].T)
        logits = logits.masked_fill(labels[:, None] == negatives, float("-inf"))
        logits = torch.cat([true_logits[:, None], logits], 1)
        return functional.cross_entropy(logits, torch.zeros_like(labels))

    def optimizers(self):
        """Returns `SparseAdam` for the classes, fused Adam for the encoder."""
        classes = [self.embeddings.weight, self.bias.weight]
        return [
            torch.optim.SparseAdam(classes),
            torch.optim.Adam(self.encoder.parameters(), fused=True),
        ]


class ExactSoftmax(torch.nn.Module):
    """The cross entropy over all classes, by `linear_cross_entropy` if torch has it.

    Args:
        in_chunks: Whether to compute it in chunks of the batch, which takes less memory.
    """

    def __init__(self, num_classes, dim, num_sampled, in_chunks=False):
        super().__init__()
        self.encoder = torch.nn.Linear(dim, dim)
        self.embeddings = torch.nn.Parameter(_STDDEV * torch.randn(num_classes, dim))
        self.bias = torch.nn.Parameter(torch.zeros(num_classes))
        self._has_function = hasattr(functional, "linear_cross_entropy")
        if in_chunks and not hasattr(torch.nn, "LinearCrossEntropyOptions"):
            raise ValueError(
                f"torch {torch.__version__} has no linear_cross_entropy in chunks. Install "
                "torch 2.14 or later."
            )
        self._options = {"options": torch.nn.LinearCrossEntropyOptions()} if in_chunks else {}
        self.loss = "linear_cross_entropy" if self._has_function else "cross_entropy of linear"

    def forward(self, features, labels):
        features = self.encoder(features)
        if not self._has_function:
            logits = functional.linear(features, self.embeddings, self.bias)
            return functional.cross_entropy(logits, labels)
        return functional.linear_cross_entropy(
            features, self.embeddings, labels, linear_bias=self.bias, **self._options
        )

    def optimizers(self):
        """Returns fused Adam for all weights."""
        return [torch.optim.Adam(self.parameters(), fused=True)]


MODELS = {
    "torch_sampled_softmax": SampledSoftmax,
    "torch_softmax": ExactSoftmax,
    "torch_softmax_in_chunks": functools.partial(ExactSoftmax, in_chunks=True),
}


def main(case):
    """Measures and writes the figures to the standard output as a line of JSON.

    Args:
        case: The attributes of a `StepCase`, and two more. `arrays` is the path of features
            `[n, batch_size, dim]` and labels `[n, batch_size]`. `steps_per_turn` is 0 for no
            turns. At the end of a turn, the process writes a line with null, and waits for a
            line of its standard input.
    """
    if case["threads"]:
        torch.set_num_threads(case["threads"])
    torch.manual_seed(0)
    turn = _Turn() if case["steps_per_turn"] else None
    clock = StepClock(
        case["max_steps"],
        case["max_seconds"],
        turn=turn,
        steps_per_turn=case["steps_per_turn"],
        finish=lambda: None,
    )
    model = MODELS[case["method"]](case["num_classes"], case["dim"], case["num_sampled"])
    figures = measure(model, np.load(case["arrays"]), clock)
    print(json.dumps({**figures, "library": f"torch {torch.__version__}", "loss": model.loss}))


def measure(model, arrays, clock):
    """Runs the steps; returns the figures of the `StepClock`.

    The slots of the optimizers exist before memory is measured.
    """
    features, labels = torch.tensor(arrays["features"]), torch.tensor(arrays["labels"])
    batches = list(zip(features, labels, strict=True))
    optimizers = model.optimizers()
    _train_step(model, optimizers, *batches[0])
    standing = machine.resident_mb()
    enough, step = False, 0
    while not enough:
        clock.begin()
        _train_step(model, optimizers, *batches[step % len(batches)])
        enough, step = clock.end(), step + 1
    return clock.figures(standing)


class _Turn:
    def pass_on(self):
        print("null", flush=True)
        sys.stdin.readline()


def _train_step(model, optimizers, features, labels):
    for optimizer in optimizers:
        optimizer.zero_grad()
    model(features, labels).backward()
    for optimizer in optimizers:
        optimizer.step()
