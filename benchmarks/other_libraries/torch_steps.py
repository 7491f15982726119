"""Training steps of PyTorch on the shapes of a `StepCase`."""

import functools

import torch
from torch.nn import functional

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


def prepare(threads):
    """Sets the number of threads, or None for all; returns the version of the library."""
    if threads:
        torch.set_num_threads(threads)
    torch.manual_seed(0)
    return f"torch {torch.__version__}"


def new_step(case, features, labels):
    """Returns a function that trains on batch `i`, and the name of its loss.

    Args:
        case: The attributes of a `StepCase`.
        features: `[num_batches, batch_size, dim]`.
        labels: `[num_batches, batch_size]`.
    """
    model = MODELS[case["method"]](case["num_classes"], case["dim"], case["num_sampled"])
    batches = list(zip(torch.tensor(features), torch.tensor(labels), strict=True))
    optimizers = model.optimizers()
    return lambda i: _train_step(model, optimizers, *batches[i]), model.loss


def _train_step(model, optimizers, features, labels):
    for optimizer in optimizers:
        optimizer.zero_grad()
    model(features, labels).backward()
    for optimizer in optimizers:
        optimizer.step()
