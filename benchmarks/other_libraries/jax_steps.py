"""Training steps of JAX on the shapes of a `StepCase`.

They are written as a user would write them for one device. A step is one jitted function, and
its state is donated, so that XLA updates tables and moments in place. "jax_sampled_softmax"
updates only the rows of the step's classes. "jax_dense_gradient" updates all rows by the
`adam` of optax.
"""

import functools

import jax
import jax.numpy as jnp

_STDDEV = 0.05  # of the class embeddings at the start
_RATE, _BETA_1, _BETA_2, _EPSILON = 1e-3, 0.9, 0.999, 1e-8


def prepare(threads):
    """Returns the version of the library, whose threads are the cores of this process."""
    jax.config.update("jax_platforms", "cpu")
    return f"jax {jax.__version__}"


def new_step(case, features, labels):
    """Returns a function that trains on batch `i`, and the name of its loss.

    Args:
        case: The attributes of a `StepCase`.
        features: `[num_batches, batch_size, dim]`.
        labels: `[num_batches, batch_size]`.
    """
    batches = [
        (jnp.asarray(x), jnp.asarray(y, jnp.int32))
        for x, y in zip(features, labels, strict=True)
    ]
    state = new_state(case["num_classes"], case["dim"])
    if case["method"] == "jax_dense_gradient":
        state, step = dense_step(state)
    else:
        step = train_step
    step = functools.partial(step, num_sampled=case["num_sampled"])

    def train(i):
        nonlocal state
        state, loss = step(state, *batches[i])
        jax.block_until_ready((state, loss))

    return train, "sampled softmax by hand"


def new_state(num_classes, dim):
    """Returns weights, their moments, the number of steps, and the key of the negatives."""
    keys = jax.random.split(jax.random.key(0), 3)
    classes = {
        "embeddings": _STDDEV * jax.random.normal(keys[0], [num_classes, dim]),
        "bias": jnp.zeros([num_classes]),
    }
    limit = (3 / dim) ** 0.5
    encoder = {
        "kernel": jax.random.uniform(keys[1], [dim, dim], minval=-limit, maxval=limit),
        "bias": jnp.zeros([dim]),
    }
    weights = {"classes": classes, "encoder": encoder}
    moments = [jax.tree.map(jnp.zeros_like, weights) for _ in range(2)]
    return {"weights": weights, "moments": moments, "step": jnp.zeros([]), "key": keys[2]}


@functools.partial(jax.jit, static_argnames="num_sampled", donate_argnums=0)
def train_step(state, features, labels, num_sampled):
    """Returns the new state and the loss."""
    weights = state["weights"]
    key, draw = jax.random.split(state["key"])
    num_classes = len(weights["classes"]["bias"])
    negatives = jax.random.randint(draw, [num_sampled], 0, num_classes)
    ids = jnp.concatenate([labels, negatives])
    rows = jax.tree.map(lambda table: table[ids], weights["classes"])
    loss, (d_encoder, d_rows) = jax.value_and_grad(mean_loss, argnums=(0, 1))(
        weights["encoder"], rows, features, labels, negatives
    )
    step = state["step"] + 1
    rate = _RATE * jnp.sqrt(1 - _BETA_2**step) / (1 - _BETA_1**step)
    encoder = _adam(weights["encoder"], state["moments"], "encoder", d_encoder, rate)
    classes = _row_adam(weights["classes"], state["moments"], ids, d_rows, rate)
    (new_encoder, *encoder_moments), (new_classes, *class_moments) = encoder, classes
    new = {
        "weights": {"classes": new_classes, "encoder": new_encoder},
        "moments": [
            {"classes": of_classes, "encoder": of_encoder}
            for of_classes, of_encoder in zip(class_moments, encoder_moments, strict=True)
        ],
        "step": step,
        "key": key,
    }
    return new, loss


def dense_step(state):
    """Returns a state for `optax.adam`, and a step like `train_step` that updates all rows."""
    import optax

    optimizer = optax.adam(_RATE, _BETA_1, _BETA_2, _EPSILON)
    weights, key = state["weights"], state["key"]

    @functools.partial(jax.jit, static_argnames="num_sampled", donate_argnums=0)
    def step(state, features, labels, num_sampled):
        weights, moments, key = state
        key, draw = jax.random.split(key)
        num_classes = len(weights["classes"]["bias"])
        negatives = jax.random.randint(draw, [num_sampled], 0, num_classes)
        ids = jnp.concatenate([labels, negatives])

        def loss(weights):
            rows = jax.tree.map(lambda table: table[ids], weights["classes"])
            return mean_loss(weights["encoder"], rows, features, labels, negatives)

        value, gradients = jax.value_and_grad(loss)(weights)
        changes, moments = optimizer.update(gradients, moments)
        return (optax.apply_updates(weights, changes), moments, key), value

    return (weights, optimizer.init(weights), key), step


def mean_loss(encoder, rows, features, labels, negatives):
    """Returns the mean loss of a batch.

    A negative that is the label of an example has no effect on it. All expected counts are
    equal, so subtracting their log would change nothing.

    Args:
        encoder: `kernel` and `bias`.
        rows: `embeddings` and `bias` of labels and negatives, `[batch + num_sampled, ...]`.
        features: `[batch, dim]`.
        labels: `[batch]`.
        negatives: `[num_sampled]`.
    """
    batch = len(labels)
    features = features @ encoder["kernel"] + encoder["bias"]
    embeddings, bias = rows["embeddings"], rows["bias"]
    true_logits = (features * embeddings[:batch]).sum(1) + bias[:batch]
    logits = features @ embeddings[batch:].T + bias[batch:]
    logits = jnp.where(labels[:, None] == negatives, -jnp.inf, logits)
    logits = jnp.concatenate([true_logits[:, None], logits], 1)
    return (jax.nn.logsumexp(logits, 1) - true_logits).mean()


def _adam(weights, moments, part, gradients, rate):
    """Returns weights and moments after a step of Adam."""
    return _apply(weights, *(moment[part] for moment in moments), gradients, rate)


def _row_adam(tables, moments, ids, gradients, rate):
    """Returns tables and moments; Adam changes only rows `ids`, whose repeats are merged."""
    num_rows = len(tables["bias"])
    unique, inverse = jnp.unique(ids, size=len(ids), fill_value=num_rows, return_inverse=True)
    merged = jax.tree.map(
        lambda g: jax.ops.segment_sum(g, inverse, num_segments=len(ids)), gradients
    )
    whole = [tables, *(moment["classes"] for moment in moments)]
    rows = [jax.tree.map(lambda table: table.at[unique].get(mode="clip"), one) for one in whole]
    new = _apply(*rows, merged, rate)

    def written(table, values):
        return table.at[unique].set(values, mode="drop", unique_indices=True)

    return [jax.tree.map(written, one, values) for one, values in zip(whole, new, strict=True)]


def _apply(weights, means, squares, gradients, rate):
    means = jax.tree.map(lambda m, g: _BETA_1 * m + (1 - _BETA_1) * g, means, gradients)
    squares = jax.tree.map(lambda v, g: _BETA_2 * v + (1 - _BETA_2) * g * g, squares, gradients)
    weights = jax.tree.map(
        lambda w, m, v: w - rate * m / (jnp.sqrt(v) + _EPSILON), weights, means, squares
    )
    return weights, means, squares
