"""Recommends films from the stars that users gave: numeric targets, exact training.

Trains on 80 % of the ratings of MovieLens-100K. The same sparse matrix of stars is the input,
through an `EmbeddingBag`, and the target, as a `tf.SparseTensor`. Ranks all films that a user
has not rated in training, and prints how often films with 4 or 5 held-out stars come first.

    python examples/ratings.py
    python examples/ratings.py --unobserved-weight 0.3
"""

import argparse

import keras
import numpy as np
import tensorflow as tf

import tf_largeout as tflo

LIKED = 4  # stars


def hold_out(ratings, share=0.2, seed=0):
    """Returns two sparse matrices `[users, items]` of stars: to train on, and to test on."""
    is_test = np.random.default_rng(seed).random(len(ratings)) < share
    places = np.stack([ratings.users, ratings.items], axis=1)  # sorted, as Keras expects
    shape = [ratings.num_users, ratings.num_items]
    return (
        tf.SparseTensor(places[chosen], ratings.values[chosen], shape)
        for chosen in (~is_test, is_test)
    )


def bags(matrix):
    """Returns the columns and the values of each row: the input of an `EmbeddingBag`."""
    ids = tf.RaggedTensor.from_value_rowids(
        matrix.indices[:, 1], matrix.indices[:, 0], matrix.dense_shape[0]
    )
    return {"ids": ids, "weights": ids.with_values(matrix.values)}


def build_model(num_items, dim, rate, dropout=0.5):
    """Returns a model from the stars of a user to a score of each item."""
    ids = keras.Input([None], dtype="int64", ragged=True, name="ids")
    stars = keras.Input([None], ragged=True, name="weights")
    bag = tflo.layers.EmbeddingBag(num_items, dim, combiner="sum", padding_id=None)
    features = keras.layers.Dropout(dropout)(bag(ids, stars))
    # The squared error is stable up to a learning rate of about 1 / max |features|^2.
    features = keras.layers.UnitNormalization()(features)
    head = tflo.layers.FactoredOutput(num_items, rate, embeddings_initializer="zeros")
    return keras.Model([ids, stars], head(features))


def train(stars, options):
    def falling(rate):
        steps = options.epochs * -(-stars.shape[0] // options.batch_size)
        return keras.optimizers.schedules.PolynomialDecay(rate, steps, end_learning_rate=0.0)

    model = build_model(stars.shape[1], options.dim, falling(options.class_rate))
    loss = tflo.losses.SquaredErrorLoss(unobserved_weight=options.unobserved_weight)
    model.compile(tflo.optimizers.LazyAdam(falling(options.learning_rate)), loss)
    model.fit(bags(stars), stars, batch_size=options.batch_size, epochs=options.epochs)
    return model


def evaluate(model, stars, test):
    """Returns metrics of the held-out films that users liked; they rank no film of `stars`."""
    liked = bags(tf.sparse.retain(test, test.values >= LIKED))["ids"]
    targets = tflo.metrics.with_exclude(liked, bags(stars)["ids"])
    model.compile(metrics=[tflo.metrics.NDCG(10), tflo.metrics.RecallAtK(10)])
    return model.evaluate(bags(stars), targets, return_dict=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--unobserved-weight", type=float, default=1.0)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=3e-3, help="of the encoder")
    parser.add_argument("--class-rate", type=float, default=0.3, help="of the output layer")
    parser.add_argument("--out", default="ratings.keras", help="file of the model")
    options = parser.parse_args(arguments)
    ratings = tflo.datasets.ml_100k_ratings()
    print(ratings)
    stars, test = hold_out(ratings)
    model = train(stars, options)
    model.save(options.out)
    evaluate(model, stars, test)
    some = tf.sparse.slice(stars, [0, 0], [3, ratings.num_items])
    _, best = tflo.retrieval.predict_top_k(
        model, bags(some), k=5, exclude=bags(some)["ids"], verbose=0
    )
    for user, films in zip(ratings.user_names, best, strict=False):
        print(f"user {user}: {', '.join(ratings.item_names[films])}")


if __name__ == "__main__":
    main()
