"""Recommends the next item of each user: SASRec, or eSASRec with --ligr, with a tied table.

Trains on MovieLens-100K, on one million C identifiers, or on your own files. Ranks all items in
the evaluation, prints recommendations, and saves and exports the model.

    python examples/next_item.py
    python examples/next_item.py --data ~/ml-20m --format movielens --k-core 5 --length 100
    python -m examples.next_item --data linux_tokens --pieces 20000 --epochs 1 --repeats

To serve the export, see docs/guides/serving.md. Its signature `top_k` takes `exclude`.
"""

import argparse
import math

import keras
import numpy as np
import tensorflow as tf

import tf_largeout as tflo

SAMPLERS = {
    "uniform": lambda data, count: tflo.samplers.UniformSampler(count),
    "log_uniform": lambda data, count: tflo.samplers.LogUniformSampler(count),
    "unigram": lambda data, count: tflo.samplers.UnigramSampler(count, data.item_counts),
    "inverted_file": lambda data, count: tflo.samplers.InvertedFileSampler(
        count, tail="log_uniform"
    ),
}
LOSSES = {
    "sampled_softmax": tflo.losses.SampledSoftmaxLoss,
    "softmax": tflo.losses.SoftmaxLoss,  # the exact cross entropy over all items
    # On average, the mean over shared uniform negatives equals the loss of one random negative
    # per position, as in SASRec and keras-rs.
    "bce": lambda: tflo.losses.NegativeSamplingLoss(negative_reduction="mean"),
    "gbce": lambda: tflo.losses.NegativeSamplingLoss(calibration=0.75),
}


def load(name, format, k_core, pieces=200_000):
    """Returns `Interactions`: of MovieLens-100K, of linux_tokens, or of files."""
    if name == "ml-100k":
        return tflo.datasets.ml_100k(k_core=k_core)
    if name == "linux_tokens":
        from lab.next_item.data import text_pieces  # only in a clone

        return text_pieces(name, pieces)
    return tflo.datasets.interactions(name, format, k_core=k_core)


def build_models(
    num_classes, length, dim, sampler, dropout=0.2, ligr=False, blocks=2, heads=2, bias=None
):
    """Returns a model that trains on all positions, and one that ranks at the last position.

    `bias` is the first value of the items' biases; None for no biases.
    """
    layers, ops = keras.layers, keras.ops
    ids = keras.Input([None], dtype="int32")  # at most `length` items
    rows = keras.initializers.RandomNormal(stddev=0.5 / dim**0.5)
    items = layers.Embedding(num_classes, dim, embeddings_initializer=rows)
    positions = layers.Embedding(length, dim, embeddings_initializer=rows)
    # The newest item is at position `length - 1`, also in a batch of shorter inputs.
    columns = ops.ones_like(ops.sum(ids, axis=0))
    h = items(ids) + positions(length - ops.flip(ops.cumsum(columns)))
    h = layers.Dropout(dropout)(h)
    is_item = ops.expand_dims(ids != 0, 1)  # No position attends to the padding.

    def add(h, change):  # The gates are those of LiGR (Borisyuk et al. 2025).
        change = layers.Dropout(dropout)(change)
        return h + (change * layers.Dense(dim, "sigmoid")(h) if ligr else change)

    for _ in range(blocks):
        normed = layers.LayerNormalization()(h)
        attention = layers.MultiHeadAttention(heads, dim // heads, dropout=dropout)
        h = add(h, attention(normed, normed, attention_mask=is_item, use_causal_mask=True))
        normed = layers.LayerNormalization()(h)
        hidden = layers.Dense(4 * dim, "silu" if ligr else "gelu")(normed)
        if ligr:  # SwiGLU
            hidden = hidden * layers.Dense(4 * dim)(normed)
        h = add(h, layers.Dense(dim)(hidden))
    features = layers.LayerNormalization()(h)
    head = tflo.layers.LargeOutput(
        num_classes,
        sampler=sampler,
        use_bias=bias is not None,
        bias_initializer=keras.initializers.Constant(bias or 0),
        embeddings=items,
    )
    return keras.Model(ids, head(features)), keras.Model(ids, head(features[:, -1]))


def train(model, split, loss, learning_rate, epochs, batch_size):
    batches = split.batches(batch_size)  # Of inputs of similar length, already shuffled.
    steps = epochs * len(batches)
    rate = keras.optimizers.schedules.PolynomialDecay(learning_rate, steps, 0.0)
    # A step takes a few milliseconds, and Keras's loop about one of them.
    model.compile(tflo.optimizers.LazyAdam(rate), loss, steps_per_execution=16)
    model.fit(batches, epochs=epochs, shuffle=False)


def evaluate(next_item, held_out, loss, repeats):
    """Ranks all items; without `repeats`, only those that the user has not seen.

    Returns:
        The loss and the metrics by name.
    """
    metrics = [tflo.metrics.NDCG(10), tflo.metrics.HitRateAtK(10)]
    next_item.compile(loss=loss, metrics=metrics)

    def labels(target, seen):  # The last column of `seen` is the padding, 0.
        return tflo.metrics.with_exclude(target, seen[:, -1:] if repeats else seen)

    return next_item.evaluate(held_out.batches(256, labels), return_dict=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="ml-100k", help="ml-100k, linux_tokens, or a path")
    parser.add_argument("--format", help="format of the files, see tflo.datasets.interactions")
    parser.add_argument("--k-core", type=int, default=5)
    parser.add_argument("--pieces", type=int, default=200_000, help="users of linux_tokens")
    parser.add_argument("--repeats", action="store_true", help="recommend seen items too")
    parser.add_argument("--loss", default="sampled_softmax", choices=LOSSES)
    parser.add_argument("--sampler", default="log_uniform", choices=SAMPLERS)
    parser.add_argument("--num-sampled", type=int, default=512)
    parser.add_argument("--ligr", action="store_true", help="use the layers of eSASRec")
    parser.add_argument("--length", type=int, default=50, help="items per input")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--evaluated", type=int, default=10_000, help="maximum number of users")
    parser.add_argument("--out", default="next_item.keras", help="file of the model")
    parser.add_argument("--export", help="folder of a SavedModel for a server; optional")
    options = parser.parse_args(arguments)
    data = load(options.data, options.format, options.k_core, options.pieces)
    split = data.leave_one_out(options.length, options.evaluated)
    print(data)
    # The exact loss needs no negatives. BCE and gBCE are defined with uniform ones.
    names = {"softmax": None, "bce": "uniform", "gbce": "uniform"}
    name = names.get(options.loss, options.sampler)
    sampler = SAMPLERS[name](data, options.num_sampled) if name else None
    shape = data.num_classes, options.length, options.dim
    # gBCE sums over the negatives. Without biases, training would lower all logits first.
    bias = -math.log(options.num_sampled) if options.loss == "gbce" else None
    model, next_item = build_models(*shape, sampler, options.dropout, options.ligr, bias=bias)
    loss = LOSSES[options.loss]()
    train(model, split, loss, options.learning_rate, options.epochs, options.batch_size)
    next_item.save(options.out)  # Without the metrics of `evaluate`.
    for name in ("validation", "test"):
        print(f"Exact, over all items, on the {name} items:")
        evaluate(next_item, getattr(split, name), loss, options.repeats)
    if options.export:
        tflo.serving.export(next_item, options.export, k=10)
    some = split.test
    exclude = np.zeros([3, 1], int) if options.repeats else some.seen[:3]
    scores, best = tflo.retrieval.predict_top_k(
        next_item, some.history[:3], k=5, exclude=exclude, verbose=0
    )
    for user, ids in zip(some.users, best, strict=False):
        print(f"user {data.user_names[user]}: {', '.join(data.item_names[ids])}")


if __name__ == "__main__":
    # For steps of a few milliseconds, a second pool of threads costs more than it gains.
    tf.config.threading.set_inter_op_parallelism_threads(1)
    main()
