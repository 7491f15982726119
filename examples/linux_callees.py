"""C function signature and path -> the functions it calls: 426,523 classes, several a row.

Trains one model on the Linux kernel three times, each for the same time: with
tf.nn.sampled_softmax_loss and tf.nn.nce_loss under Keras's Adam, and with tf_largeout. Then it
prints a table, draws P@1 against seconds (curves.png), saves the last model (model.keras) and
answers functions of the test split: give some words of a signature or path.

    python examples/linux_callees.py
    python examples/linux_callees.py "ext4 inode" "usb probe"
"""

import keras

import tf_largeout as tflo
from tf_largeout.benchmarks.demo import Demo
from tf_largeout.benchmarks.encoder import FeatureBag


def train(data, callbacks):
    model = keras.Sequential(
        [
            keras.Input([data.max_features], dtype="int32"),
            FeatureBag(data.vocabulary_size, dim=128),
            tflo.layers.LargeOutput(
                data.num_classes, sampler=tflo.samplers.LogUniformSampler(2048)
            ),
        ]
    )
    model.compile(
        optimizer=tflo.optimizers.LazyAdam(3e-3),
        loss=tflo.losses.SampledSoftmaxLoss(),
        steps_per_execution=16,
    )
    model.fit(data.train, epochs=100, verbose=0, callbacks=callbacks)
    return model


DEMO = Demo(
    doc=__doc__,
    dataset="linux_callees",
    train=train,
    settings={"batch_size": 512, "num_sampled": 2048, "learning_rate": 3e-3}
    | {"sampler": "log_uniform", "anneal": 0.5},
    own_settings={"optimizer": "lazy_adam"},
    questions=("usb probe", "ext4 inode", "tcp", "alloc page", "debugfs show"),
    prompt="Words of a function's signature or path",
    seconds=60,
)

if __name__ == "__main__":
    DEMO.main()
