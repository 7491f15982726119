"""Place name in any script -> GeoNames id: 202,458 classes, on a processor, in minutes.

Trains one model three times, each for the same time: with tf.nn.sampled_softmax_loss and
tf.nn.nce_loss under Keras's Adam, and with tf_largeout. Then it prints a table, draws P@1
against seconds (curves.png), saves the last model (model.keras) and answers names.

    python examples/place_names.py
    python examples/place_names.py Lutetia 長安 Царьград
"""

import keras

import tf_largeout as tflo
from tf_largeout.benchmarks.demo import Demo
from tf_largeout.benchmarks.encoder import FeatureBag
from tf_largeout.datasets import place_names


def train(data, callbacks):
    by_frequency = tflo.samplers.UnigramSampler(counts=data.label_counts)
    model = keras.Sequential(
        [
            keras.Input([data.max_features], dtype="int32"),
            FeatureBag(data.vocabulary_size, dim=128),
            tflo.layers.LargeOutput(
                data.num_classes,
                sampler=tflo.samplers.InvertedFileSampler(
                    1024,
                    tail=by_frequency,
                    start_step=3_000,  # later than by default: for a minute, not for an hour
                ),
            ),
        ]
    )
    model.compile(
        optimizer=tflo.optimizers.LazyAdam(1e-2, beta_1=0.0, decay_skipped=True),
        loss=tflo.losses.SampledSoftmaxLoss(),
        steps_per_execution=16,
    )
    model.fit(data.train, epochs=100, verbose=0, callbacks=callbacks)
    return model


DEMO = Demo(
    doc=__doc__,
    dataset="place_names",
    train=train,
    settings={"batch_size": 512, "num_sampled": 1024, "learning_rate": 1e-2}
    | {"sampler": "uniform", "anneal": 1.0},
    own_settings={"sampler": "frequency", "search": "inverted_file"}
    | {"search_options": {"start_step": 3_000}},
    questions=("Nieuw Amsterdam", "京都市", "Санкт-Петербург", "القاهرة", "Αθήνα", "Kiyev"),
    featurize=lambda data, name: place_names.encode([name], data.max_features),
    prompt="A place name in any script",
    seconds=62,
)

if __name__ == "__main__":
    DEMO.main()
