"""`place_names.encode` as a layer of standard TensorFlow operations."""

import sys
import unicodedata

import keras
import tensorflow as tf

from tf_largeout.datasets import place_names

_BOUNDARY = "\u2423"  # Inserted before, between and after the words of a name.
_NGRAM_LENGTHS = (2, 3, 4)


class NameEncoder(keras.layers.Layer):
    """Maps names to the feature ids that the model was trained on.

    In contrast to `place_names.encode`, characters are normalised (NFKC) one by one, with a
    table in the exported model. So a letter and a combining accent remain two characters. Send
    composed names (NFC), as keyboards do. The web page composes its input.

    Input shape: strings `[batch]`, UTF-8.
    Output shape: int32 `[batch, place_names.MAX_FEATURES]`, padded with 0.
    """

    def __init__(self, **kwargs):
        super().__init__(dtype="string", autocast=False, **kwargs)
        self.folded = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(*_folded_characters()), default_value=""
        )

    def call(self, names):
        codes = tf.strings.unicode_decode(self._marked(names), "UTF-8")
        codes = tf.cast(codes, tf.uint64)
        ids = tf.concat([_hashed_ngrams(codes, n) for n in _NGRAM_LENGTHS], axis=1)
        return ids.to_tensor(0, shape=[None, place_names.MAX_FEATURES])

    def compute_output_shape(self, input_shape):
        return (*input_shape, place_names.MAX_FEATURES)

    def compute_output_spec(self, names):
        return keras.KerasTensor(self.compute_output_shape(names.shape), "int32")

    def _marked(self, names):
        """Returns the folded words with boundary marks: "New  York" becomes "␣new␣york␣"."""
        letters = tf.strings.unicode_split(names, "UTF-8")
        folded = self.folded.lookup(letters.flat_values)
        folded = tf.where(folded == "", letters.flat_values, folded)
        text = tf.strings.reduce_join(letters.with_flat_values(folded), axis=1)
        words = tf.strings.split(text)
        inner = tf.strings.reduce_join(words, axis=1, separator=_BOUNDARY)
        return tf.strings.join([_BOUNDARY, inner, _BOUNDARY])


def _folded_characters():
    """Returns all characters that normalisation or folding changes, and their new values."""
    folded = {}
    for character in map(chr, range(sys.maxunicode + 1)):
        new = unicodedata.normalize("NFKC", character).casefold()
        new = " " if new.isspace() else new
        if new != character and not 0xD800 <= ord(character) <= 0xDFFF:
            folded[character] = new
    return list(folded), list(folded.values())


def _hashed_ngrams(codes, n):
    """Returns the ids of the n-grams of each name, hashed as by `place_names.encode`."""
    hashes = tf.constant(n, tf.uint64)
    for offset in range(n):
        last = offset + 1 - n
        window = codes[:, offset : last or None]
        hashes = hashes * _uint64(0x9E3779B97F4A7C15) + window.flat_values
    for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        hashes = _mixed(hashes) * _uint64(multiplier)
    ids = _mixed(hashes) % _uint64(place_names.VOCABULARY_SIZE - 1)
    return window.with_flat_values(tf.cast(ids, tf.int32) + 1)


def _mixed(hashes):
    return tf.bitwise.bitwise_xor(hashes, tf.bitwise.right_shift(hashes, _uint64(33)))


def _uint64(value):
    return tf.constant(value, tf.uint64)
