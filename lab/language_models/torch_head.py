"""A PyTorch model with the layers of keras-hub's GPT-2, for a process without TensorFlow."""

import torch
from torch import nn
from torch.nn import functional

from benchmarks.harness import machine
from benchmarks.harness.step_clock import StepClock
from lab.language_models.case import LEARNING_RATE, WARM_UP, Case


class Block(nn.Module):
    """A layer of GPT-2."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.norm, self.next_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.queries_keys_values, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        batch, length, dim = x.shape
        parts = self.queries_keys_values(self.norm(x)).view(
            batch, length, 3, self.num_heads, dim // self.num_heads
        )
        found = functional.scaled_dot_product_attention(
            *parts.permute(2, 0, 3, 1, 4), is_causal=True
        )
        x = x + self.out(found.transpose(1, 2).reshape(batch, length, dim))
        hidden = functional.gelu(self.up(self.next_norm(x)), approximate="tanh")
        return x + self.down(hidden)


class CausalLM(nn.Module):
    """The mean cross entropy of the next tokens, with one table for input and output.

    Args:
        method: "torch", "torch_in_chunks" or "torch_in_default_chunks".
        case: A `Case`.
    """

    def __init__(self, method, case):
        super().__init__()
        self.tokens = nn.Embedding(case.vocabulary_size, case.dim)
        self.positions = nn.Embedding(case.length, case.dim)
        nn.init.normal_(self.tokens.weight, std=0.01)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.blocks = nn.Sequential(
            *(Block(case.dim, case.num_heads) for _ in range(case.num_layers))
        )
        self.norm = nn.LayerNorm(case.dim)
        self.options = None
        if method != "torch":
            size = case.chunk if method == "torch_in_chunks" else None
            sizes = {"batch_chunk_size": size} if size else {}
            self.options = nn.LinearCrossEntropyOptions(**sizes)

    def forward(self, x, y):
        features = self.norm(self.blocks(self.tokens(x) + self.positions.weight))
        features, y, table = features.flatten(0, 1), y.flatten(), self.tokens.weight
        if self.options is None:
            return functional.cross_entropy(functional.linear(features, table), y)
        return functional.linear_cross_entropy(features, table, y, options=self.options)


def measure(options):
    """Returns the figures of a `StepClock`, the number of weights and the version of torch.

    Args:
        options: A dict with the `method` and the attributes of a `Case`.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    method = options.pop("method")
    case = Case(**options)
    model = CausalLM(method, case)
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, fused=True)
    for weights in model.parameters():
        weights.grad = torch.zeros_like(weights)
    optimizer.step()  # creates the slots
    optimizer.zero_grad()
    standing = machine.resident_mb()
    clock = StepClock(case.steps, float("inf"), warm_up=WARM_UP, finish=lambda: None)
    batches = torch.tensor(case.tokens()).split(case.batch_size)
    enough, step = False, 0
    while not enough:
        batch = batches[step % len(batches)]
        clock.begin()
        model(batch[:, :-1], batch[:, 1:]).backward()
        optimizer.step()
        optimizer.zero_grad()
        enough, step = clock.end(), step + 1
    return {
        **clock.figures(standing),
        "weights": sum(weights.numel() for weights in model.parameters()),
        "library": f"torch {torch.__version__}",
    }
