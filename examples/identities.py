"""Learns to tell identities apart, with a margin softmax over a million classes.

The last layer has one class per training identity, as for faces or products. After training,
only the encoder is used: it maps a picture to a unit vector, and two pictures show the same
identity if the angle between their vectors is small. The program trains, and verifies pairs of
pictures of identities that were not in the training data.

    python examples/identities.py
    python examples/identities.py --identities 100000 --sampled 0         # all classes
    python examples/identities.py --shards 4

The pictures are synthetic vectors, so nothing is downloaded: a fixed random network mixes the
traits of the identity with those of one of 65,536 poses. Eight identities share a family and
look alike. Each pair of different identities in the test is from one family.
"""

import argparse
import math

import keras
import numpy as np
import tensorflow as tf

import tf_largeout as tflo

PICTURES, FAMILY = 8, 8  # pictures per identity, identities per family
TRAITS, POSE, PIXELS, WIDTH = 32, 16, 256, 128
TEST_IDENTITIES = 20_000


class Pictures:
    """Pictures of identities, each a vector of `PIXELS` numbers."""

    def __init__(self, num_identities, seed):
        rng = np.random.default_rng(seed)
        families = rng.standard_normal((-(-num_identities // FAMILY), TRAITS), "float32")
        own = rng.standard_normal((num_identities, TRAITS), "float32")
        families = np.repeat(families, FAMILY, axis=0)[:num_identities]
        self.traits = tf.constant(families + 0.5 * own)
        world = np.random.default_rng(0)  # the same for training and test identities
        self.poses = tf.constant(1.5 * world.standard_normal((65_536, POSE), "float32"))
        self.mix = world.standard_normal((TRAITS + POSE, PIXELS), "float32") * 0.3
        self.camera = world.standard_normal((PIXELS, PIXELS), "float32") * 0.1

    def take(self, identities, pictures):
        """Returns `[n, PIXELS]`, picture `pictures[i]` of identity `identities[i]`."""
        poses = (identities * 7_919 + pictures * 104_729) % len(self.poses)
        seen = tf.concat([tf.gather(self.traits, identities), tf.gather(self.poses, poses)], 1)
        return tf.tanh(tf.tanh(seen @ self.mix) @ self.camera)

    def batches(self, batch_size, seed):
        """Returns an endless dataset of pictures and their identities."""

        def random(seed, most):
            return tf.random.stateless_uniform([batch_size], seed, 0, most, tf.int64)

        def draw(step):
            identities = random([seed, 2 * step], len(self.traits))
            pictures = random([seed, 2 * step + 1], PICTURES)
            return self.take(identities, pictures), identities

        return tf.data.Dataset.counter().map(draw).prefetch(2)


def build_model(num_identities, num_sampled, num_shards=1):
    sampler = tflo.samplers.UniformSampler(num_sampled) if num_sampled else None
    encoder = keras.Sequential(
        [
            keras.Input([PIXELS]),
            keras.layers.Dense(512, "relu"),
            keras.layers.Dense(512, "relu"),
            keras.layers.Dense(WIDTH),
        ],
        name="encoder",
    )
    output = tflo.layers.LargeOutput(
        num_identities,
        sampler=sampler,
        use_bias=False,
        normalize=True,  # The logits are cosines times `scale`.
        scale=32.0,
        num_shards=num_shards,
    )
    return keras.Sequential([encoder, output])


def compile_model(model, steps, learning_rate):
    rate = keras.optimizers.schedules.PolynomialDecay(learning_rate, steps, 0.0)
    model.compile(
        optimizer=tflo.optimizers.LazyAdam(rate),
        loss=tflo.losses.MarginSoftmaxLoss(angular_margin=0.3),
        steps_per_execution=math.gcd(10, steps // 10),  # `main` has epochs of this length.
    )


def cosines(encoder, seed=1):
    """Returns the cosines of pairs of pictures of new identities: equal and different ones."""
    world = Pictures(TEST_IDENTITIES, seed)
    first = np.arange(TEST_IDENTITIES)
    one = encoder.predict(world.take(first, first * 0), batch_size=1024, verbose=0)
    same = encoder.predict(world.take(first, first * 0 + 1), batch_size=1024, verbose=0)
    one, same = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (one, same))
    neighbour = first ^ 1  # of the same family
    return np.sum(one * same, axis=1), np.sum(one * same[neighbour], axis=1)


def verify(encoder, seed=1):
    """Verifies pairs of new identities.

    Returns:
        The share of correct answers, and the share of equal pairs that are accepted where one
        of 1,000 different pairs is accepted.
    """
    equal, different = cosines(encoder, seed)
    half = TEST_IDENTITIES // 2  # The first half chooses the threshold.
    thresholds = np.quantile([equal[:half], different[:half]], np.linspace(0, 1, 501))
    right = [np.mean(equal[:half] > t) + np.mean(different[:half] <= t) for t in thresholds]
    threshold = thresholds[np.argmax(right)]
    accuracy = (np.mean(equal[half:] > threshold) + np.mean(different[half:] <= threshold)) / 2
    return accuracy, np.mean(equal > np.quantile(different, 0.999))


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--identities", type=int, default=1_000_000)
    parser.add_argument("--sampled", type=int, help="negatives, 10,000 or fewer; 0 for all")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    keras.utils.set_random_seed(options.seed)
    pictures = Pictures(options.identities, seed=0)
    sampled = options.sampled
    if sampled is None:
        sampled = min(10_000, options.identities // 10)
    model = build_model(options.identities, sampled, options.shards)
    compile_model(model, options.steps, options.learning_rate)
    data = pictures.batches(options.batch_size, options.seed)
    model.fit(data, steps_per_epoch=options.steps // 10, epochs=10, shuffle=False)
    accuracy, accepted = verify(model.get_layer("encoder"))
    print(f"New identities: {accuracy:.1%} of pairs correct, {accepted:.1%} accepted at 1e-3")
    return accuracy, accepted


if __name__ == "__main__":
    main()
