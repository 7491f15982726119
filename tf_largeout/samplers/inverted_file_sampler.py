"""Hard classes from lists that are fitted to the class embeddings."""

import math

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.arguments import whole_number
from tf_largeout.ops import placement
from tf_largeout.ops.inverted_file_ops import (
    inverted_file_fit,
    inverted_file_fitted,
    inverted_file_kept_up,
    inverted_file_search,
    inverted_file_upkeep,
    packed_shapes,
)
from tf_largeout.samplers.hard_negative_sampler import HardNegativeSampler
from tf_largeout.samplers.sampler import zero_bits

_ROWS_A_STEP = 256  # reassigned: as many as a usual batch has queries, at their cost
_LEAST_INTERVAL = 48
_CLASSES_FOR_A_STEP = 4_200  # that are placed anew, in the mean


@keras.saving.register_keras_serializable(package="tf_largeout")
class InvertedFileSampler(HardNegativeSampler):
    """Finds the classes of highest logit of each row, most of them, in O(sqrt(num_classes)).

    The rows of the class embeddings are dealt to lists by spherical k-means. A row of the
    batch is scored against the lists' mean rows and then against the members of the
    `num_probes` best lists; the `num_hard` highest logits are its own negatives. The others
    are a static sample that the batch shares. The loss corrects for both exactly, whatever
    the search finds (see `HeadAndTail`): what it misses only makes the step less efficient.

    The lists are fitted early in training (`start_step`), and a line on stderr says when;
    before, while random negatives are hard enough, no class is searched for and a step costs
    what the tail costs. From then on they are kept up to date inside the steps: every few steps
    some rows, all in turn, move to the list that is nearest now, the means follow, and all rows
    are packed anew at 8 bits a number, in the order of the lists, which is what is searched. If
    nearly all of those rows move, the weights were replaced by others, and the lists are fitted
    anew; so they are by `rebuild`.

    State, as weights of the layer: `(dim + 12) * num_classes` bytes, with dim rounded up to a
    multiple of 16, and the means. A resumed run is equal to an uninterrupted one. With the
    embeddings on a GPU the state and the search are there too; the lists are brought up to date
    on the CPU, which takes a copy of the embeddings there and of the state back.

    Args:
        num_sampled: Number of classes a row is compared with, own and shared together. On
            `place_names` eight times as many as the batch has rows, so 4,096 for a batch of
            512, with `num_hard=32`, led to the precision of the exact softmax in a twelfth of
            its time. Rows are positions: a batch of 16 sequences of 32 steps has 512, too.
        num_lists: Number of lists; by default about `4 sqrt(num_classes)`.
        num_probes: Number of lists that are searched for a row; more find more. On
            `place_names` (202,458 classes) 16 find half of the 16 highest logits, 8 find .41;
            of the 64 highest 16 find .42, and 32 find half. Where lists are long, fewer are
            searched: none after those that hold as many members as `num_probes` lists of mean
            size. No list is longer than eight of these.
        num_hard: How many own negatives a row gets, less than `num_sampled`; None for
            `num_sampled` of them, no tail and no correction, from step 0 on. On `place_names`
            16 led to higher precision in the same time than 64, whose steps touch four times
            the rows.
        tail: With `num_hard`, what draws the others: a name such as "uniform", or a static
            `Sampler`.
        start_step: Number of the training step that fits the lists and is the first to search,
            from 0. None for `num_classes / 200`, at least 100 and at most 1,000, whatever the
            data, the loss and `num_sampled` (without a tail for 0). Where random negatives
            stay hard for long, as on `place_names`, a run of a minute does better with a later
            one, see docs/negatives.md.
        seed: Optional int that the layer's draws start from; random if None.

    Example:
        keras.Sequential([encoder, LargeOutput(200_000, sampler=InvertedFileSampler(1024))])

    References:
        Jegou, Douze, Schmid 2011, "Product quantization for nearest neighbor search",
        section IV (the inverted file).
    """

    def __init__(
        self,
        num_sampled=1024,
        num_lists=None,
        num_probes=16,
        num_hard=16,
        tail="uniform",
        start_step=None,
        seed=None,
    ):
        super().__init__(num_sampled, num_hard, tail, start_step, seed)
        self.num_lists = whole_number("num_lists", num_lists, or_none=True)
        self.num_probes = whole_number("num_probes", num_probes)
        self._state: list[keras.Variable] = []

    def build(self, layer):
        super().build(layer)
        dim = layer.embeddings.shape[1]
        lists = self.num_lists or max(1, round(4 * math.sqrt(self.num_classes)))
        lists = min(lists, self.num_classes)
        codes_shape, scales_shape = packed_shapes(self.num_classes, dim)
        specs = {
            "means": ((lists, dim), "float32"),
            "mean_bias": ((lists,), "float32"),
            "offsets": ((lists + 1,), "uint32"),
            "ids": ((self.num_classes,), "uint32"),
            "codes": (codes_shape, "uint8"),
            "scales": (scales_shape, "float32"),
            "schedule": ((2,), "int64"),
        }
        places = {"schedule": placement.deciding}
        self._state = [
            self.add_weight(
                layer, name, shape, dtype, _unfitted, places.get(name, placement.beside)
            )
            for name, (shape, dtype) in specs.items()
        ]

    def prepare(self, layer):
        turns = {
            "interval": max(_LEAST_INTERVAL, self.num_classes // _CLASSES_FOR_A_STEP),
            "rows_a_step": _ROWS_A_STEP,
        }
        if self._is_on_cpu(layer):
            inverted_file_upkeep(*self._variables(layer), **turns)
            return
        schedule = self._local_state(layer)[-1]
        with placement.deciding(layer.embeddings):
            step, fitted_at = tf.unstack(schedule.read_value())
            age = step - fitted_at
            only_counts = (fitted_at >= 0) & ((age <= 0) | (age % turns["interval"] != 0))
            tf.cond(
                only_counts,
                lambda: schedule.assign_add([1, 0]),
                lambda: self._write(
                    layer, inverted_file_kept_up(*self._copies(layer), **turns)
                ),
            )

    def search(self, features, labels, layer):
        state = self._local_state(layer)
        return inverted_file_search(features, state, self.num_probes, self.num_searched)[1]

    def rebuild(self, layer):
        """Fits the lists to the weights of `layer` now, whatever the schedule says.

        Training does it by itself. For use outside of a training step, after the embeddings
        were changed by hand.
        """

        def fit():
            if self._is_on_cpu(layer):
                inverted_file_fit(*self._variables(layer))
            else:
                self._write(layer, inverted_file_fitted(*self._copies(layer)))

        self._rebuild_now(layer, fit)

    def list_health(self, layer):
        """What the lists are like now.

        Returns:
            A dict: `started_at`, the training step that was the first to search, or -1;
            `fitted_at`, the last fit, counted in steps since then, or -1; `num_lists`; the
            sizes of the `largest`, the `median` and the `smallest` list; and the share of
            `empty` ones.
        """
        self.require_built()
        offsets, schedule = (self._local_state(layer)[i].numpy() for i in (2, 6))
        sizes = np.diff(offsets.astype(np.int64))
        return {
            "started_at": self.start.started_at(layer),
            "fitted_at": int(schedule[1]),
            "num_lists": sizes.size,
            "largest": int(sizes.max()),
            "median": float(np.median(sizes)),
            "smallest": int(sizes.min()),
            "empty": float(np.mean(sizes == 0)),
        }

    def get_config(self):
        return {
            **super().get_config(),
            "num_lists": self.num_lists,
            "num_probes": self.num_probes,
        }

    def _is_on_cpu(self, layer):
        # Asked when it is used: Keras makes the variables of some layers after `build`.
        return "GPU" not in self._local_state(layer)[0].device

    def _local_state(self, layer):
        """The `tf.Variable`s of the state on this replica."""
        return [layer.local_variable(weight) for weight in self._state]

    def _variables(self, layer):
        """Embeddings, bias or None, and state on this replica."""
        return *layer.local_variables(), self._local_state(layer)

    def _copies(self, layer):
        """The values of the same."""
        embeddings, bias, state = self._variables(layer)
        bias = None if bias is None else bias.read_value()
        return embeddings.read_value(), bias, [variable.read_value() for variable in state]

    def _write(self, layer, values):
        for variable, value in zip(self._local_state(layer), values, strict=True):
            variable.assign(value)
        return values[-1]


def _unfitted(shape, dtype=None):
    """Zeros, and for the schedule: step 0, never fitted."""
    return tf.constant([0, -1], dtype) if dtype == "int64" else zero_bits(shape, dtype)
