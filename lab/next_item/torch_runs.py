"""Trains our model in PyTorch, or RecTools' SASRecModel, until a `Watch` stops it."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

DIM, BATCH, HEADS = 64, 32, 2
NUM_SAMPLED = 512
TWINS = ("torch_sampled", "torch_in_batch", "torch_exact")
RECTOOLS = {
    # As a new user runs it: all defaults of RecTools 0.19.
    "rectools_default": {},
    "rectools_softmax": {"loss": "softmax"},
    "rectools_sampled": {"loss": "sampled_softmax", "n_negatives": 256},
    "rectools_gbce": {"loss": "gBCE", "n_negatives": 256, "gbce_t": 0.75},
    "rectools_bce": {"loss": "BCE", "n_negatives": 1},
    "rectools_esasrec": {"loss": "sampled_softmax", "n_negatives": 256, "ligr": True},
}


class Block(nn.Module):
    """A block of our example's transformer."""

    def __init__(self, dropout):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(DIM, 1e-3) for _ in range(2)])
        self.attention = nn.MultiheadAttention(DIM, HEADS, dropout, batch_first=True)
        self.hidden, self.out = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)
        self.dropout = nn.Dropout(dropout)

    def forward(self, h, mask):
        x = self.norms[0](h)
        mask = mask.repeat_interleave(HEADS, 0)
        h = h + self.dropout(self.attention(x, x, x, attn_mask=mask, need_weights=False)[0])
        x = functional.gelu(self.hidden(self.norms[1](h)))
        return h + self.dropout(self.out(x))


class TorchModel(nn.Module):
    """Our example's model, with a table whose gradients are sparse."""

    def __init__(self, num_classes, length, dropout, sparse):
        super().__init__()
        self.sparse = sparse
        self.table = nn.Parameter(torch.randn(num_classes, DIM) * 0.5 / DIM**0.5)
        self.positions = nn.Parameter(torch.randn(length, DIM) * 0.5 / DIM**0.5)
        self.blocks = nn.ModuleList([Block(dropout) for _ in range(2)])
        self.norm, self.dropout = nn.LayerNorm(DIM, 1e-3), nn.Dropout(dropout)

    def rows(self, ids):
        return functional.embedding(ids, self.table, sparse=self.sparse)

    def forward(self, ids):
        length = ids.shape[1]
        h = self.dropout(self.rows(ids) + self.positions)
        causal = torch.ones(length, length, dtype=torch.bool).triu(1)
        # A padded position attends to itself, so that no row of the softmax is empty.
        hidden = (causal | (ids == 0)[:, None, :]) & ~torch.eye(length, dtype=torch.bool)
        for block in self.blocks:
            h = block(h, hidden)
        return self.norm(h)


def our_model(method, watch, learning_rate, dropout):
    """Trains our model in PyTorch: exact loss, sampled negatives or in-batch negatives."""
    data = watch.data
    counts = torch.tensor(data["counts"]).clamp(min=1).double()
    log_share = (counts / counts.sum()).log().float()
    model = TorchModel(len(counts), data["x"].shape[1], dropout, method != "torch_exact")
    others = [weight for name, weight in model.named_parameters() if name != "table"]
    adam = {"lr": learning_rate, "betas": (0.9, 0.999)}
    if method == "torch_exact":
        optimizers = [torch.optim.Adam([model.table, *others], fused=True, **adam)]
    else:
        optimizers = [
            torch.optim.SparseAdam([model.table], **adam),
            torch.optim.Adam(others, fused=True, **adam),
        ]
    losses = {
        "torch_exact": lambda f, y: functional.linear_cross_entropy(f, model.table, y),
        "torch_sampled": lambda f, y: _sampled(model, f, y),
        "torch_in_batch": lambda f, y: _in_batch(model, f, y, log_share),
    }
    x, y = torch.tensor(data["x"]), torch.tensor(data["y"]).long()
    while True:
        for rows in torch.randperm(len(x)).split(BATCH):
            model.train()
            labels = y[rows]
            features = model(x[rows])[labels >= 0]
            loss = losses[method](features, labels[labels >= 0])
            for optimizer in optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate * (1 - watch.progress)
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            if watch.step(_encode(model), lambda: model.table.detach().numpy()):
                return sum(weight.numel() for weight in model.parameters())


def _encode(model):
    def encode(history):
        model.eval()
        with torch.no_grad():
            return model(torch.tensor(history))[:, -1].numpy()

    return encode


def _sampled(model, features, labels):
    """Computes the sampled softmax with log-uniform negatives, shared by the batch."""
    num_classes = len(model.table)
    drawn = (num_classes + 1.0) ** torch.rand(NUM_SAMPLED, dtype=torch.double) - 1
    drawn = drawn.long().clamp(max=num_classes - 1)
    return _softmax(model, features, labels, drawn, _log_uniform(drawn, num_classes))


def _log_uniform(ids, num_classes):
    ids = ids.double()
    share = ((ids + 2) / (ids + 1)).log() / np.log(num_classes + 1)
    return (NUM_SAMPLED * share).log().float()


def _in_batch(model, features, labels, log_share):
    """Computes the softmax with the labels of the other positions as negatives."""
    drawn = labels
    return _softmax(model, features, labels, drawn, log_share[drawn] + np.log(len(drawn)))


def _softmax(model, features, labels, drawn, log_counts):
    """Returns the softmax over the label and the drawn classes, corrected by their counts."""
    own = (features * model.rows(labels)).sum(-1, keepdim=True)
    others = features @ model.rows(drawn).T - log_counts
    others = others.masked_fill(drawn == labels[:, None], -torch.inf)
    logits = torch.cat([own, others], 1)
    return functional.cross_entropy(logits, torch.zeros_like(labels))


def rectools(method, watch, seed):
    """Trains RecTools' SASRecModel. All but `rectools_default` have our sizes."""
    import pandas as pd
    from pytorch_lightning import Trainer
    from rectools import Columns
    from rectools.dataset import Dataset
    from rectools.models import SASRecModel
    from rectools.models.nn.transformers.ligr import LiGRLayers

    data, options = watch.data, dict(RECTOOLS[method])
    if options.pop("ligr", False):
        options["transformer_layers_type"] = LiGRLayers
    if method != "rectools_default":
        length = data["x"].shape[1]
        options |= {"n_factors": DIM, "n_heads": HEADS, "session_max_len": length}
    lengths = data["lengths"]
    within = np.arange(len(data["training"])) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    frame = pd.DataFrame(
        {
            Columns.User: np.repeat(np.arange(len(lengths)), lengths),
            Columns.Item: data["training"].astype(np.int64),
            Columns.Weight: 1.0,
            Columns.Datetime: pd.to_datetime(within, unit="s"),
        }
    )

    def trainer():
        return Trainer(
            max_epochs=10**6,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[_stopper(watch, model)],
        )

    model = SASRecModel(get_trainer_func=unused_trainer, **options)
    model._trainer = trainer()
    model.fit(Dataset.construct(frame))
    return sum(weight.numel() for weight in model.torch_model.parameters())


def unused_trainer():
    """Returns a trainer, which RecTools requires at first. `rectools` replaces it."""
    from pytorch_lightning import Trainer

    return Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)


def _stopper(watch, model):
    from pytorch_lightning import Callback

    class Stopper(Callback):
        def __deepcopy__(self, memo):
            return self

        def on_train_batch_end(self, trainer, module, *_):
            trainer.should_stop = watch.step(*_views(watch.data, model, module.torch_model))
            module.torch_model.train()

    return Stopper()


def _views(data, model, network):
    """Returns the functions and the mask that `Watch.step` needs, in our ids of items."""
    num_classes = len(data["counts"])
    external = model.data_preparator.item_id_map.external_ids
    is_item = np.array([isinstance(one, (int, np.integer)) for one in external])
    internal_of = np.zeros(num_classes, np.int64)
    internal_of[external[is_item].astype(np.int64)] = np.flatnonzero(is_item)
    length = model.data_preparator.session_max_len

    def encode(history):
        network.eval()
        ids = np.zeros((len(history), length), np.int64)
        for row, items in zip(ids, internal_of[history], strict=True):
            kept = items[items > 0][-length:]
            row[length - len(kept) :] = kept
        with torch.no_grad():
            embeddings = network.item_model.get_all_embeddings()
            return network.encode_sessions({"x": torch.tensor(ids)}, embeddings)[:, -1].numpy()

    def table():
        with torch.no_grad():
            return network.item_model.get_all_embeddings().numpy()[internal_of]

    return encode, table, internal_of > 0
